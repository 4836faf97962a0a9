//! Daemons that are started where jobs run, and beside another one.

use slotd_kit::{Slotd, proc, until};
use std::fs;

#[test]
fn a_job_does_not_start_the_daemon_of_its_own_root() {
    let mut slotd = Slotd::start();
    let tries = "slotd daemon start; echo code $?; slotd daemon; echo code $?; setsid slotd daemon; echo code $?";
    let job = slotd.begun(&["-o", "out", "-e", "err"], "go", tries);
    slotd.kill9();
    slotd.open("go");
    slotd.wait_text("out", "code 1\ncode 78\ncode 78\n");
    let told = slotd.read("err");
    assert_eq!(told.matches("this is inside a job of").count(), 3, "{told}");
    slotd.start_daemon();
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn a_job_does_not_stop_the_daemon_that_it_could_not_start_again() {
    let slotd = Slotd::start();
    let daemon = slotd.daemon_pid();
    let job = slotd.wrap(&["-o", "out"], "slotd daemon restart; echo code $?");
    slotd.wait_state(job, "COMPLETED");
    assert!(slotd.read("out").ends_with("code 1\n"), "{}", slotd.read("out"));
    assert!(proc::is_alive(daemon));
}

#[test]
fn what_is_left_of_a_job_is_killed_and_the_daemon_is_not() {
    let mut slotd = Slotd::start();
    let other = slotd.begun(&[], "never", "true");
    let job = slotd.begun(&[], "never", "true");
    let watcher = slotd.watcher_of(job);
    slotd.kill9();
    proc::signal(watcher, proc::KILL);
    until(|| (!proc::is_alive(watcher)).then_some(())).unwrap();
    // As in a shell of that job: its own watcher is gone, so that nothing else ties the daemon to
    // it.
    slotd.reset_var("SLURM_JOB_ID", job);
    slotd.start_daemon();
    slotd.wait_state(job, "FAILED");
    assert_eq!(slotd.state(other), "RUNNING");
    slotd.cmd("sinfo", &[] as &[&str]).ok();
}

#[test]
fn a_daemon_of_another_root_dies_with_its_job_and_with_nothing_else() {
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
fn no_daemon_starts_beside_one_whose_run_directory_was_deleted() {
    let mut slotd = Slotd::start();
    let daemon = slotd.daemon_pid();
    let job = slotd.begun(&[], "go", "true");
    let waits = slotd.submit(&["--wrap", "echo once >>ran", "-d", &format!("afterok:{job}")]);
    for gone in ["run/slotd.lock", "run"] {
        let gone = slotd.root.join(gone);
        let removed =
            if gone.is_dir() { fs::remove_dir_all(&gone) } else { fs::remove_file(&gone) };
        removed.unwrap();
        let second = slotd.run(slotd.daemon_command()).fails(1);
        let said = format!("a daemon (process {daemon}) serves {}", slotd.root.display());
        assert!(second.stderr.contains(&said), "{}", second.stderr);
        assert!(second.stderr.contains("`slotd daemon restart` ends it"), "{}", second.stderr);
        assert!(slotd.daemon_is_running());
    }
    let clean = slotd.cmd("slotd", &["clean", "--older-than", "0s", "--yes"]);
    assert_ne!(clean.code, 0, "{}", clean.text());
    // The one that was left behind is found, and ends.
    slotd.cmd("slotd", &["daemon", "stop"]).ok();
    until(|| (!slotd.daemon_is_running()).then_some(())).unwrap();
    slotd.start_daemon();
    slotd.open("go");
    slotd.wait_state(waits, "COMPLETED");
    assert_eq!(slotd.read("ran"), "once\n");
}
