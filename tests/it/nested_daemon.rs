//! Daemons that are started inside jobs, or while another daemon is running.

use slotd_kit::{Slotd, proc, until};
use std::fs;

#[test]
fn a_job_cannot_start_the_daemon_of_its_own_root() {
    let mut slotd = Slotd::start();
    let tries = "slotd daemon start; echo code $?; slotd daemon; echo code $?; setsid slotd daemon; echo code $?";
    let job = slotd.begun(&["-o", "out", "-e", "err"], "go", tries);
    slotd.kill9();
    slotd.open("go");
    slotd.wait_text("out", "code 1\ncode 78\ncode 78\n");
    let errors = slotd.read("err");
    assert_eq!(errors.matches("this is inside a job of").count(), 3, "{errors}");
    slotd.start_daemon();
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn a_job_cannot_restart_the_daemon_of_its_own_root() {
    let slotd = Slotd::start();
    let daemon = slotd.daemon_pid();
    let job = slotd.wrap(&["-o", "out"], "slotd daemon restart; echo code $?");
    slotd.wait_state(job, "COMPLETED");
    assert!(slotd.read("out").ends_with("code 1\n"), "{}", slotd.read("out"));
    assert!(proc::is_alive(daemon));
}

#[test]
fn leftover_processes_of_a_job_are_killed_but_not_the_daemon() {
    let mut slotd = Slotd::start();
    let other = slotd.begun(&[], "never", "true");
    let job = slotd.begun(&[], "never", "true");
    let watcher = slotd.watcher_of(job);
    slotd.kill9();
    proc::signal(watcher, proc::KILL);
    until(|| (!proc::is_alive(watcher)).then_some(())).unwrap();
    // As if started in a shell of that job. The watcher of the job is dead, so the environment is
    // the daemon's only connection to it.
    slotd.reset_var("SLURM_JOB_ID", job);
    slotd.start_daemon();
    slotd.wait_state(job, "FAILED");
    assert_eq!(slotd.state(other), "RUNNING");
    slotd.cmd("sinfo", &[] as &[&str]).ok();
}

#[test]
fn a_daemon_of_another_root_dies_only_with_its_job() {
    let slotd = Slotd::start();
    let other = slotd.endless(&["--mem", "1"]);
    let inner = "export SLOTD_ROOT=$PWD/inner SLOTD_CPUS=1 SLOTD_GPU_COUNT=0; slotd daemon & \
                 until squeue >/dev/null 2>&1; do sleep 0.05; done; echo $! >pid; wait";
    let job = slotd.wrap(&["--mem", "1"], inner);
    let daemon: i32 = slotd.wait_text("pid", "\n").trim().parse().unwrap();
    slotd.cancel(job);
    slotd.wait_state(job, "CANCELLED");
    slotd.wait("the end of the inner daemon", || (!proc::is_alive(daemon)).then_some(()));
    assert_eq!(slotd.state(other), "RUNNING");
}

#[test]
fn no_second_daemon_starts_if_the_run_directory_was_deleted() {
    let mut slotd = Slotd::start();
    let daemon = slotd.daemon_pid();
    let job = slotd.begun(&[], "go", "true");
    let waits = slotd.submit(&["--wrap", "echo once >>ran", "-d", &format!("afterok:{job}")]);
    for path in ["run/slotd.lock", "run"] {
        let path = slotd.root.join(path);
        let removed =
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.unwrap();
        let second = slotd.run(slotd.daemon_command()).fails(1);
        let wanted = format!("a daemon (process {daemon}) is using {}", slotd.root.display());
        assert!(second.stderr.contains(&wanted), "{}", second.stderr);
        assert!(second.stderr.contains("`slotd daemon restart` replaces it"), "{}", second.stderr);
        assert!(slotd.daemon_is_running());
    }
    let clean = slotd.cmd("slotd", &["clean", "--older-than", "0s", "--yes"]);
    assert_ne!(clean.code, 0, "{}", clean.text());
    // The first daemon is found and stopped.
    slotd.cmd("slotd", &["daemon", "stop"]).ok();
    until(|| (!slotd.daemon_is_running()).then_some(())).unwrap();
    slotd.start_daemon();
    slotd.open("go");
    slotd.wait_state(waits, "COMPLETED");
    assert_eq!(slotd.read("ran"), "once\n");
}
