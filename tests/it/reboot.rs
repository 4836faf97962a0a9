//! Reboots and power failures in which unsynced writes are lost. Running jobs end, and nothing runs
//! twice.

use slotd_kit::wal::is_committed;
use slotd_kit::{Setup, Slotd, proc};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::time::{SystemTime, UNIX_EPOCH};

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// Starts a daemon in boot 1, which began 1000 seconds ago.
fn first_boot() -> Slotd {
    Setup::default().set("SLOTD_TEST_BOOT", format!("1@{}", now() - 1000)).start()
}

/// Starts the machine an hour later, as boot 2.
fn boot_an_hour_later(slotd: &mut Slotd) {
    slotd.set_clock(3600);
    slotd.boot(2, now() + 3590);
}

/// Returns the state, the reason and the exit code of a job.
fn outcome(slotd: &Slotd, job: u32) -> (String, String, String) {
    let job = slotd.job(job);
    (job.state(), job.reason(), job.exit())
}

fn triple(state: &str, reason: &str, exit: &str) -> (String, String, String) {
    (state.to_owned(), reason.to_owned(), exit.to_owned())
}

#[test]
fn a_reboot_fails_running_jobs_and_keeps_pending_ones() {
    let mut slotd = first_boot();
    let job = slotd.endless(&[]);
    slotd.line("salloc --no-shell").ok();
    let mut srun = slotd.spawn({
        let mut srun = slotd.command("srun");
        srun.args(["sleep", "1000"]);
        srun
    });
    let foreground = slotd
        .wait("srun's job", || slotd.all_records().last().filter(|r| r.id() == job + 2).cloned());
    slotd.wait_state(foreground.id(), "RUNNING");
    slotd.wait("srun's step", || {
        slotd.job_dir(foreground.id()).join("0.0.sock").exists().then_some(())
    });
    let waiting = slotd.wrap(&["-c", "4"], "echo $SLURM_JOB_ID >> ran");
    let held = slotd.wrap(&["-H"], "true");
    slotd.wait_reason(waiting, "Resources");
    slotd.power_off();
    slotd.wait("the client to end with the machine", || (!srun.is_running()).then_some(()));
    boot_an_hour_later(&mut slotd);

    for id in [job, job + 1, foreground.id()] {
        // The very first request already shows the end of the job.
        assert_eq!(outcome(&slotd, id), triple("NODE_FAIL", "NodeDown", "0:1"), "job {id}");
        let elapsed = slotd.sacct(id, "ElapsedRaw").trim().parse::<i64>().unwrap();
        assert!(elapsed < 600, "{elapsed} s: the hour of downtime must not count");
        let sockets = fs::read_dir(slotd.job_dir(id)).into_iter().flatten().flatten();
        assert_eq!(sockets.filter(|entry| entry.file_type().unwrap().is_socket()).count(), 0);
    }
    assert_eq!(
        slotd.steps(foreground.id(), "JobID,State").lines().last(),
        Some(&*format!("{}.0|NODE_FAIL", foreground.id()))
    );
    slotd.wait_state(waiting, "COMPLETED");
    assert_eq!(slotd.read("ran"), format!("{waiting}\n"));
    assert_eq!(slotd.state(held), "PENDING");
}

#[test]
fn only_requeue_jobs_run_again_after_a_reboot() {
    let mut slotd = first_boot();
    let count = |name: &str| format!("echo run >> {name}; {}", slotd.gate("never"));
    let asked = slotd.wrap(&["--requeue"], &count("asked"));
    let other = slotd.wrap(&[], &count("other"));
    slotd.wait_text("asked", "run");
    slotd.wait_text("other", "run");
    slotd.power_off();
    boot_an_hour_later(&mut slotd);
    slotd.wait("its second run", || (slotd.read("asked").lines().count() == 2).then_some(()));
    assert_eq!(slotd.job(asked).restarts(), 1);
    assert_eq!(outcome(&slotd, other), triple("NODE_FAIL", "NodeDown", "0:1"));
    slotd.power_off();
    slotd.boot(3, now() + 3595);
    assert_eq!(outcome(&slotd, asked), triple("NODE_FAIL", "NodeDown", "0:1"));
    assert_eq!(
        (slotd.read("asked"), slotd.read("other")),
        ("run\nrun\n".to_owned(), "run\n".to_owned())
    );
    let runs = slotd.line(&format!("sacct -nPXDj {asked} -o State")).ok().stdout;
    assert_eq!(runs, "NODE_FAIL\nNODE_FAIL\n");
}

#[test]
fn a_job_whose_end_was_lost_by_the_disk_is_node_fail() {
    let mut slotd = first_boot();
    let jobs: Vec<u32> =
        (0..4).map(|_| slotd.begun(&[], "go", "echo end >> ends; exit 3")).collect();
    slotd.kill9();
    slotd.open("go");
    let record = |slotd: &Slotd, job: u32| slotd.job_dir(job).join("exit_status");
    slotd
        .wait("the records", || jobs.iter().all(|job| record(&slotd, *job).exists()).then_some(()));
    slotd.power_off();
    // Possible contents of an unsynced file: complete, empty, zeros, or a part.
    let whole = fs::read(record(&slotd, jobs[0])).unwrap();
    fs::write(record(&slotd, jobs[1]), "").unwrap();
    fs::write(record(&slotd, jobs[2]), vec![0; whole.len()]).unwrap();
    fs::write(record(&slotd, jobs[3]), &whole[..whole.len() / 2]).unwrap();
    boot_an_hour_later(&mut slotd);
    assert_eq!(outcome(&slotd, jobs[0]), triple("FAILED", "NonZeroExitCode", "3:0"));
    for job in &jobs[1..] {
        assert_eq!(
            outcome(&slotd, *job),
            triple("NODE_FAIL", "NodeDown", "0:1"),
            "job {job}\n{}",
            slotd.log()
        );
    }
    // The jobs do not run again.
    let after = slotd.wrap(&["-c", "4"], "true");
    slotd.wait_state(after, "COMPLETED");
    assert_eq!(slotd.read("ends").lines().count(), jobs.len());
}

/// Sets the state that systemd reports to the daemon.
fn set_manager_state(slotd: &Slotd, state: &str) {
    let program = slotd.program("systemctl", &format!("#!/bin/sh\necho {state}\n"));
    let place = slotd.base.join("bin/systemctl");
    fs::rename(program, place).expect("the directory is writable");
}

/// Starts a daemon with the environment of a systemd service.
fn service() -> Slotd {
    Setup::default()
        .set("INVOCATION_ID", "1")
        .set("MANAGERPID", "1")
        .set("SLOTD_KILL_WAIT", "30")
        .start()
}

#[test]
fn an_orderly_shutdown_signals_jobs_and_gives_them_time() {
    let mut slotd = service();
    set_manager_state(&slotd, "stopping");
    let script = "trap 'sleep 0.2; echo saved >>saved; exit 0' TERM; echo x >>begun; while :; do sleep 0.05; done";
    let running = slotd.wrap(&[], script);
    let requeued =
        slotd.wrap(&["--requeue"], "echo x >>again; [ -n \"$SLURM_RESTART_COUNT\" ] || sleep 1000");
    let suspended = slotd.wrap(&[], script);
    slotd.wait_text("begun", "x\nx\n");
    slotd.wait_text("again", "x\n");
    slotd.cmd("scontrol", &["suspend", &suspended.to_string()]).ok();
    let waiting = slotd.wrap(&["-c", "4"], "true");
    assert!(slotd.stop().success());
    assert_eq!(slotd.read("saved"), "saved\nsaved\n");
    let output = slotd.output(running);
    assert!(output.contains("DUE TO NODE FAILURE"), "{output}");

    // Nothing was started in the meantime, and the result does not depend on a new boot.
    set_manager_state(&slotd, "running");
    slotd.start_daemon();
    for id in [running, suspended] {
        assert_eq!(outcome(&slotd, id), triple("NODE_FAIL", "NodeDown", "0:1"), "job {id}");
    }
    slotd.wait_state(requeued, "COMPLETED");
    slotd.wait_state(waiting, "COMPLETED");
    assert_eq!(slotd.read("again"), "x\nx\n");
}

#[test]
fn stopping_only_the_service_does_not_affect_jobs() {
    let mut slotd = service();
    set_manager_state(&slotd, "running");
    let job = slotd.begun(&[], "go", "true");
    assert!(slotd.stop().success());
    slotd.open("go");
    slotd.start_daemon();
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn the_next_daemon_completes_an_interrupted_shutdown() {
    let mut slotd = service();
    set_manager_state(&slotd, "stopping");
    // The job ignores SIGTERM, and the daemon is killed while it waits for the job.
    let job = slotd.wrap(&[], "trap '' TERM; echo begun >begun; while :; do sleep 0.05; done");
    slotd.wait_text("begun", "begun\n");
    proc::signal(slotd.daemon_pid(), proc::TERM);
    slotd.wait("the notice", || slotd.output(job).contains("DUE TO NODE FAILURE").then_some(()));
    // The end of a job takes effect immediately and is recorded afterwards.
    let database = slotd.root.join("lib/state.db");
    slotd.wait("the record", || is_committed(&database, "NodeDown").then_some(()));
    slotd.kill9();
    set_manager_state(&slotd, "running");
    slotd.start_daemon();
    let reason = slotd.wait_state(job, "COMPLETING").reason();
    assert_eq!(reason, "NodeDown");
    slotd.cmd("scancel", &["-s", "KILL", &job.to_string()]);
    slotd.wait_end(job);
    assert_eq!(slotd.job(job).state(), "NODE_FAIL");
}
