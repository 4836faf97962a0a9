//! The machine goes down: by a reboot, or by a loss of power in which the kernel loses what was not
//! synced. What ran then does not run any more, and it does not run twice.

use slotd_kit::wal::is_committed;
use slotd_kit::{Setup, Slotd, proc};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::time::{SystemTime, UNIX_EPOCH};

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// A daemon of boot 1, which was a while ago.
fn first_boot() -> Slotd {
    Setup::default().set("SLOTD_TEST_BOOT", format!("1@{}", now() - 1000)).start()
}

/// The machine starts again an hour later, as boot 2.
fn boot_an_hour_later(slotd: &mut Slotd) {
    slotd.set_clock(3600);
    slotd.boot(2, now() + 3590);
}

/// State, reason and exit code.
fn told(slotd: &Slotd, job: u32) -> (String, String, String) {
    let job = slotd.job(job);
    (job.state(), job.reason(), job.exit())
}

fn three(state: &str, reason: &str, exit: &str) -> (String, String, String) {
    (state.to_owned(), reason.to_owned(), exit.to_owned())
}

#[test]
fn what_ran_at_a_reboot_is_node_fail_and_what_waited_goes_on() {
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
    slotd.wait("the client, which goes down with the machine", || {
        (!srun.is_running()).then_some(())
    });
    boot_an_hour_later(&mut slotd);

    for id in [job, job + 1, foreground.id()] {
        // At the first request: nobody sees it run under the new boot.
        assert_eq!(told(&slotd, id), three("NODE_FAIL", "NodeDown", "0:1"), "job {id}");
        let elapsed = slotd.sacct(id, "ElapsedRaw").trim().parse::<i64>().unwrap();
        assert!(elapsed < 600, "{elapsed} s: the hour in which the machine was off does not count");
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
fn a_job_that_asked_for_it_runs_again_after_a_reboot_and_no_other() {
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
    assert_eq!(told(&slotd, other), three("NODE_FAIL", "NodeDown", "0:1"));
    slotd.power_off();
    slotd.boot(3, now() + 3595);
    assert_eq!(told(&slotd, asked), three("NODE_FAIL", "NodeDown", "0:1"));
    assert_eq!(
        (slotd.read("asked"), slotd.read("other")),
        ("run\nrun\n".to_owned(), "run\n".to_owned())
    );
    let runs = slotd.line(&format!("sacct -nPXDj {asked} -o State")).ok().stdout;
    assert_eq!(runs, "NODE_FAIL\nNODE_FAIL\n");
}

#[test]
fn an_end_that_the_disk_has_kept_is_true_and_one_that_it_has_lost_is_node_fail() {
    let mut slotd = first_boot();
    let jobs: Vec<u32> =
        (0..4).map(|_| slotd.begun(&[], "go", "echo end >> ends; exit 3")).collect();
    slotd.kill9();
    slotd.open("go");
    let record = |slotd: &Slotd, job: u32| slotd.job_dir(job).join("exit_status");
    slotd
        .wait("the records", || jobs.iter().all(|job| record(&slotd, *job).exists()).then_some(()));
    slotd.power_off();
    // What the disk may have of a file that nobody synced: nothing, no bytes, zeros, a part.
    let whole = fs::read(record(&slotd, jobs[0])).unwrap();
    fs::write(record(&slotd, jobs[1]), "").unwrap();
    fs::write(record(&slotd, jobs[2]), vec![0; whole.len()]).unwrap();
    fs::write(record(&slotd, jobs[3]), &whole[..whole.len() / 2]).unwrap();
    boot_an_hour_later(&mut slotd);
    assert_eq!(told(&slotd, jobs[0]), three("FAILED", "NonZeroExitCode", "3:0"));
    for job in &jobs[1..] {
        assert_eq!(
            told(&slotd, *job),
            three("NODE_FAIL", "NodeDown", "0:1"),
            "job {job}\n{}",
            slotd.log()
        );
    }
    // Nothing of them runs again.
    let after = slotd.wrap(&["-c", "4"], "true");
    slotd.wait_state(after, "COMPLETED");
    assert_eq!(slotd.read("ends").lines().count(), jobs.len());
}

/// What the daemon is told by the manager that stops it.
fn manager_says(slotd: &Slotd, state: &str) {
    let program = slotd.program("systemctl", &format!("#!/bin/sh\necho {state}\n"));
    let place = slotd.base.join("bin/systemctl");
    fs::rename(program, place).expect("a directory of the test");
}

/// A daemon that is a service, as its environment says.
fn service() -> Slotd {
    Setup::default()
        .set("INVOCATION_ID", "1")
        .set("MANAGERPID", "1")
        .set("SLOTD_KILL_WAIT", "30")
        .start()
}

#[test]
fn a_shutdown_in_order_tells_the_jobs_and_gives_them_time() {
    let mut slotd = service();
    manager_says(&slotd, "stopping");
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

    // Nothing has been started meanwhile, and nothing of it depends on another boot.
    manager_says(&slotd, "running");
    slotd.start_daemon();
    for id in [running, suspended] {
        assert_eq!(told(&slotd, id), three("NODE_FAIL", "NodeDown", "0:1"), "job {id}");
    }
    slotd.wait_state(requeued, "COMPLETED");
    slotd.wait_state(waiting, "COMPLETED");
    assert_eq!(slotd.read("again"), "x\nx\n");
}

#[test]
fn a_stop_of_the_service_alone_leaves_its_jobs_alone() {
    let mut slotd = service();
    manager_says(&slotd, "running");
    let job = slotd.begun(&[], "go", "true");
    assert!(slotd.stop().success());
    slotd.open("go");
    slotd.start_daemon();
    slotd.wait_state(job, "COMPLETED");
}

#[test]
fn a_shutdown_that_has_no_time_left_is_told_by_the_next_daemon() {
    let mut slotd = service();
    manager_says(&slotd, "stopping");
    // It does not end by SIGTERM, and the daemon is killed while it waits for it.
    let job = slotd.wrap(&[], "trap '' TERM; echo begun >begun; while :; do sleep 0.05; done");
    slotd.wait_text("begun", "begun\n");
    proc::signal(slotd.daemon_pid(), proc::TERM);
    slotd.wait("the notice", || slotd.output(job).contains("DUE TO NODE FAILURE").then_some(()));
    // What ends a job acts at once, and is recorded after.
    let database = slotd.root.join("lib/state.db");
    slotd.wait("the record", || is_committed(&database, "NodeDown").then_some(()));
    slotd.kill9();
    manager_says(&slotd, "running");
    slotd.start_daemon();
    let told = slotd.wait_state(job, "COMPLETING").reason();
    assert_eq!(told, "NodeDown");
    slotd.cmd("scancel", &["-s", "KILL", &job.to_string()]);
    slotd.wait_end(job);
    assert_eq!(slotd.job(job).state(), "NODE_FAIL");
}
