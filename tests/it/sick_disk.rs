//! A database that cannot be written: what runs can be ended, nothing new is promised, and all goes
//! on when it is over.

use slotd_kit::disk::{ReadOnly, SmallDisk, limit_files};
use slotd_kit::{Out, Slotd, proc, until};
use std::fs;
use std::time::{Duration, Instant};

/// Far less than until the disk is well again; what an answer takes here is a thousandth of it.
const SOON: Duration = Duration::from_secs(20);

const FAILS: &str = "the disk of the daemon's database fails";

/// The daemon writes to no file any more.
fn break_disk(slotd: &Slotd) {
    limit_files(slotd.daemon_pid(), Some(0));
}

fn mend_disk(slotd: &Slotd) {
    limit_files(slotd.daemon_pid(), None);
}

/// A command, which answers soon.
#[track_caller]
fn soon(slotd: &Slotd, line: &str) -> Out {
    let began = Instant::now();
    let out = slotd.line(line);
    assert!(began.elapsed() < SOON, "`{line}` took {:?}", began.elapsed());
    out
}

/// The process of a job whose script has begun.
fn begun(slotd: &Slotd, args: &[&str], script: &str) -> (u32, i32) {
    let job = slotd.wrap(args, &format!("echo $$ >> pids; {script}"));
    slotd.wait_text("pids", "\n");
    (job, slotd.read("pids").trim().parse().unwrap())
}

fn wait_gone(pid: i32) {
    assert!(until(|| (!proc::is_alive(pid)).then_some(())).is_some(), "process {pid} lives");
}

#[test]
fn a_job_is_cancelled_while_nothing_can_be_written() {
    let slotd = Slotd::start();
    let (job, pid) = begun(&slotd, &[], "exec sleep 1000");
    break_disk(&slotd);
    soon(&slotd, &format!("scancel {job}")).ok();
    wait_gone(pid);
    let sdiag = soon(&slotd, "sdiag").ok().stdout;
    assert!(sdiag.contains(&format!(": {FAILS} (cannot commit: disk I/O error)\n")), "{sdiag}");
    mend_disk(&slotd);
    let ended = slotd.wait_state(job, "CANCELLED");
    assert_eq!(ended.exit(), "0:15");
    slotd.wait("the end in the database", || {
        slotd.sacct(job, "state").starts_with("CANCELLED").then_some(())
    });
}

#[test]
fn a_signal_and_a_suspension_reach_a_job_while_nothing_can_be_written() {
    let slotd = Slotd::start();
    let script =
        "trap 'echo usr1 >> heard' USR1; echo > ready; sleep 1000 & while :; do wait; done";
    let (job, pid) = begun(&slotd, &[], script);
    slotd.wait_text("ready", "\n");
    break_disk(&slotd);
    // What waits for the disk is no hindrance.
    soon(&slotd, &format!("scontrol hold {job}"));
    soon(&slotd, &format!("scancel -b -s USR1 {job}")).ok();
    slotd.wait_text("heard", "usr1");
    let told = soon(&slotd, &format!("scontrol suspend {job}")).fails(1);
    assert!(told.stderr.contains(&format!(
        "done, but undone if the daemon dies before it can write that down: {FAILS}"
    )));
    assert!(until(|| (proc::state(pid) == Some('T')).then_some(())).is_some());
    mend_disk(&slotd);
    slotd.wait_state(job, "SUSPENDED");
}

#[test]
fn a_job_that_was_cancelled_unwritten_is_not_started_again_after_the_death_of_the_daemon() {
    let mut slotd = Slotd::start();
    // Its end alone would look like a failure, after which it runs again.
    let (job, pid) = begun(&slotd, &["--requeue"], "exec sleep 1000");
    break_disk(&slotd);
    soon(&slotd, &format!("scancel {job}")).ok();
    wait_gone(pid);
    slotd.crash();
    assert_eq!(slotd.wait_state(job, "CANCELLED").restarts(), 0);
    assert_eq!(slotd.read("pids").lines().count(), 1);
}

#[test]
fn a_time_limit_is_kept_unwritten_and_known_after_the_death_of_the_daemon() {
    let mut slotd = Slotd::start();
    let (job, pid) = begun(&slotd, &[], "exec sleep 1000");
    slotd.limit(job, 1);
    break_disk(&slotd);
    wait_gone(pid);
    slotd.crash();
    slotd.wait_state(job, "TIMEOUT");
}

#[test]
fn who_meets_the_fault_first_is_refused_and_nothing_is_left_of_it() {
    let slotd = Slotd::start();
    break_disk(&slotd);
    let refused = format!("{FAILS}: see the log of the kernel and try again\n");
    let out = soon(&slotd, "sbatch --wrap true").fails(1);
    assert_eq!(out.stderr, format!("sbatch: error: Batch job submission failed: {refused}"));
    for line in ["srun true", "salloc true"] {
        let out = soon(&slotd, line).fails(1);
        assert!(out.stderr.contains(&refused), "{line}: {}", out.stderr);
    }
    assert_eq!(soon(&slotd, "squeue -h -t all").ok().stdout, "");
    mend_disk(&slotd);
    let job = until(|| slotd.line("sbatch --parsable --wrap true").text().parse::<u32>().ok())
        .expect("it is taken");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(
        slotd.cmd("sacct", &["-nPX", "-o", "jobid"]).ok().text(),
        job.to_string(),
        "no other was ever stored"
    );
}

#[test]
fn a_step_that_cannot_be_stored_is_refused_and_its_job_goes_on() {
    let slotd = Slotd::start();
    let script =
        format!("{}; srun true; echo code $?; srun true; echo code $?; echo end", slotd.gate("go"));
    let (job, _) = begun(&slotd, &[], &script);
    break_disk(&slotd);
    slotd.open("go");
    slotd.wait_text(&format!("slurm-{job}.out"), "end");
    let refused = format!(
        "srun: error: Unable to create step for job {job}: {FAILS}: see the log of the kernel"
    );
    let output = slotd.output(job);
    assert_eq!(
        (output.matches(&refused).count(), output.matches("code 1\n").count()),
        (2, 2),
        "{output}"
    );
    mend_disk(&slotd);
    slotd.wait_state(job, "COMPLETED");
    assert!(!slotd.steps(job, "jobid").contains(&format!("{job}.0")), "no step was ever stored");
}

#[test]
fn a_cancel_that_only_the_daemon_knows_is_told_as_such() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["--hold"], "true");
    break_disk(&slotd);
    let text =
        format!("done, but undone if the daemon dies before it can write that down: {FAILS}\n");
    // The second finds nothing to do, and promises no more.
    for _ in 0..2 {
        let out = soon(&slotd, &format!("scancel {job}")).fails(1);
        assert_eq!(out.stderr, format!("scancel: error: Kill job error on job id {job}: {text}"));
    }
    mend_disk(&slotd);
    slotd.wait("the end in the database", || {
        slotd.sacct(job, "state").starts_with("CANCELLED").then_some(())
    });
}

#[test]
fn on_a_full_disk_the_job_that_fills_it_can_be_cancelled_and_all_goes_on_with_new_room() {
    let slotd = Slotd::setup().prepare();
    let Some(disk) = SmallDisk::mount(&slotd.root, 4 << 20) else { return };
    let mut slotd = slotd;
    slotd.start_daemon();
    let (job, pid) = begun(&slotd, &[], "exec sleep 1000");
    let next = slotd.wrap(&["-c", "4"], "true");
    let filling = disk.fill();
    let out = soon(&slotd, "sbatch --wrap true").fails(1);
    let text = "the disk of the daemon's database is full: make room and try again\n";
    assert_eq!(out.stderr, format!("sbatch: error: Batch job submission failed: {text}"));
    soon(&slotd, &format!("scancel {job}")).ok();
    wait_gone(pid);
    // Neither the next daemon needs room to begin, nor does it start what was cancelled.
    slotd.crash();
    let out = soon(&slotd, "sbatch --wrap true").fails(1);
    assert!(out.stderr.ends_with(text), "{}", out.stderr);
    slotd.wait_state(job, "CANCELLED");
    slotd.wait_state(next, "PENDING");
    fs::remove_file(filling).unwrap();
    slotd.wait_state(job, "CANCELLED");
    slotd.wait_state(next, "COMPLETED");
    let lines = slotd.log().lines().filter(|line| line.contains("is full (")).count();
    assert_eq!(lines, 2, "one of each daemon: {}", slotd.log());
}

#[test]
fn an_output_on_a_read_only_mount_of_the_roots_file_system_fails_its_job_alone() {
    let slotd = Slotd::start();
    fs::create_dir(slotd.path("frozen")).unwrap();
    let Some(_mount) = ReadOnly::make(&slotd.path("frozen")) else { return };
    let frozen = slotd.wrap(&["-o", "frozen/out"], "true");
    slotd.wait_state(frozen, "FAILED");
    let next = slotd.wrap(&[], "true");
    slotd.wait_state(next, "COMPLETED");
    assert_eq!(slotd.line("sinfo -h -R").ok().text(), "");
}

/// Goes on for ever, and writes down each SIGTERM.
const STUBBORN: &str = "trap 'echo term >> terms' TERM; echo > ready; while :; do sleep 0.05; done";

#[test]
fn a_limit_that_two_daemons_keep_is_told_once_in_the_output() {
    let mut slotd = Slotd::setup().set("SLOTD_KILL_WAIT", 1000).start();
    let (job, _) = begun(&slotd, &[], STUBBORN);
    slotd.wait_text("ready", "\n");
    slotd.limit(job, 1);
    break_disk(&slotd);
    slotd.wait_text("terms", "term\n");
    slotd.crash();
    slotd.wait_state(job, "COMPLETING");
    let output = slotd.output(job);
    assert_eq!(output.matches("DUE TO TIME LIMIT ***").count(), 1, "{output}");
    assert_eq!(slotd.read("terms"), "term\n");
}

#[test]
fn what_was_suspended_or_resumed_unwritten_is_as_its_record_says_after_the_death_of_the_daemon() {
    let mut slotd = Slotd::start();
    // A shell that starts programs would be stopped in vfork(2) at times, and be in state D then.
    let (job, pid) = begun(&slotd, &[], "exec sleep 1000");
    let wait_stopped = |yes: bool| {
        let there = until(|| ((proc::state(pid)? == 'T') == yes).then_some(()));
        assert!(there.is_some(), "stopped: {:?}, not {yes}", proc::state(pid));
    };
    break_disk(&slotd);
    soon(&slotd, &format!("scontrol suspend {job}")).fails(1);
    wait_stopped(true);
    slotd.crash();
    wait_stopped(false);
    assert_eq!(slotd.state(job), "RUNNING");
    slotd.line(&format!("scontrol suspend {job}")).ok();
    wait_stopped(true);
    break_disk(&slotd);
    soon(&slotd, &format!("scontrol resume {job}")).fails(1);
    wait_stopped(false);
    slotd.crash();
    wait_stopped(true);
    assert_eq!(slotd.state(job), "SUSPENDED");
    slotd.line(&format!("scontrol resume {job}")).ok();
    wait_stopped(false);
}

#[test]
fn a_hold_that_only_the_daemon_knows_is_told_as_such_each_time() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["--begin=now+1hour"], "true");
    break_disk(&slotd);
    for line in ["scontrol hold", "scontrol hold", "scontrol release", "scontrol release"] {
        let out = soon(&slotd, &format!("{line} {job}")).fails(1);
        assert!(
            out.stderr
                .contains("done, but undone if the daemon dies before it can write that down"),
            "{line}"
        );
    }
    mend_disk(&slotd);
    slotd.wait("an answer that is on disk", || {
        (slotd.line(&format!("scontrol hold {job}")).code == 0).then_some(())
    });
}

#[test]
fn a_database_that_is_moved_away_takes_no_jobs_until_it_is_back() {
    let mut slotd = Slotd::start();
    let kept = slotd.wrap(&["-H"], "true");
    let (job, pid) = begun(&slotd, &[], "exec sleep 1000");
    let (database, away) = (slotd.root.join("lib/state.db"), slotd.path("away.db"));
    fs::rename(&database, &away).unwrap();
    let refused = "the daemon's database lib/state.db was moved, deleted or replaced: put that file back, or `slotd daemon \
                   stop` and `slotd db restore` a copy, and try again\n";
    for _ in 0..2 {
        let out = soon(&slotd, "sbatch --wrap true").fails(1);
        assert_eq!(out.stderr, format!("sbatch: error: Batch job submission failed: {refused}"));
    }
    let doctor = slotd.line("slotd doctor").fails(1).stdout;
    let named = format!("{}: No such file or directory", database.display());
    assert!(doctor.contains(&named) && doctor.contains("mend: put that file back"), "{doctor}");
    let node = soon(&slotd, "scontrol show node").ok().stdout;
    assert!(node.contains("lib/state.db was moved"), "{node}");
    // An older copy in its place is not written to, and nothing is deleted that it does not name.
    fs::copy(&away, &database).unwrap();
    let before = fs::read(&database).unwrap();
    soon(&slotd, "sbatch --wrap true").fails(1);
    slotd.line("slotd clean --older-than 0s --yes").fails(1);
    assert_eq!(fs::read(&database).unwrap(), before);
    soon(&slotd, &format!("scancel {job}")).ok();
    wait_gone(pid);
    fs::rename(&away, &database).unwrap();
    slotd.wait_state(job, "CANCELLED");
    let next = until(|| slotd.line("sbatch --parsable --wrap true").text().parse::<u32>().ok())
        .expect("it is taken");
    slotd.wait_state(next, "COMPLETED");
    slotd.crash();
    assert_eq!(slotd.state(kept), "PENDING");
    assert_eq!(slotd.sacct(next, "state"), "COMPLETED");
}

#[test]
fn jobs_outlive_the_log_of_the_database_and_the_daemon() {
    for name in ["state.db-wal", "state.db-shm"] {
        let mut slotd = Slotd::start();
        let kept = slotd.wrap(&["-H"], "true");
        fs::remove_file(slotd.root.join("lib").join(name)).unwrap();
        let out = soon(&slotd, "sbatch --wrap true").fails(1);
        let refused = "the log of the daemon's database (lib/state.db-wal, -shm) was moved, deleted or replaced: restart the \
                       daemon, which loses nothing, and try again\n";
        assert!(out.stderr.ends_with(refused), "{}", out.stderr);
        slotd.crash();
        assert_eq!(slotd.state(kept), "PENDING", "{name}");
        let next = slotd.wrap(&[], "true");
        slotd.wait_state(next, "COMPLETED");
    }
}

#[test]
fn a_daemon_does_not_begin_anew_beside_the_log_of_a_database_that_is_gone() {
    let mut slotd = Slotd::start();
    let kept = slotd.wrap(&["-H"], "true");
    slotd.kill9();
    let (database, away) = (slotd.root.join("lib/state.db"), slotd.path("away.db"));
    fs::rename(&database, &away).unwrap();
    let out = slotd.line("slotd daemon").fails(1);
    assert!(
        out.stderr.contains("put the database back, or move the log away too"),
        "{}",
        out.stderr
    );
    fs::rename(&away, &database).unwrap();
    slotd.start_daemon();
    assert_eq!(slotd.state(kept), "PENDING");
}
