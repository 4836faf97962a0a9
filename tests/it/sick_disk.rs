//! The database cannot be written: running jobs can be ended, new ones are refused, and everything
//! continues once the disk works again.

use slotd_kit::disk::{HangingDisk, ReadOnly, SmallDisk, limit_files};
use slotd_kit::{Out, Slotd, proc, until};
use std::fs;
use std::time::{Duration, Instant};

/// A limit for responses, which usually take a thousandth of it. The disk is broken for much
/// longer.
const SOON: Duration = Duration::from_secs(20);

const FAILS: &str = "the disk of the daemon's database is failing";

/// Prevents the daemon from writing to any file.
fn break_disk(slotd: &Slotd) {
    limit_files(slotd.daemon_pid(), Some(0));
}

fn repair_disk(slotd: &Slotd) {
    limit_files(slotd.daemon_pid(), None);
}

/// Runs a command and asserts that it responds soon.
#[track_caller]
fn soon(slotd: &Slotd, line: &str) -> Out {
    let began = Instant::now();
    let out = slotd.line(line);
    assert!(began.elapsed() < SOON, "`{line}` took {:?}", began.elapsed());
    out
}

/// Starts a job, waits until its script has begun, and returns the job and its process.
fn begun(slotd: &Slotd, args: &[&str], script: &str) -> (u32, i32) {
    let job = slotd.wrap(args, &format!("echo $$ >> pids; {script}"));
    slotd.wait_text("pids", "\n");
    (job, slotd.read("pids").trim().parse().unwrap())
}

fn wait_dead(pid: i32) {
    assert!(until(|| (!proc::is_alive(pid)).then_some(())).is_some(), "process {pid} is alive");
}

#[test]
fn a_job_can_be_cancelled_while_the_disk_fails() {
    let slotd = Slotd::start();
    let (job, pid) = begun(&slotd, &[], "exec sleep 1000");
    break_disk(&slotd);
    soon(&slotd, &format!("scancel {job}")).ok();
    wait_dead(pid);
    let sdiag = soon(&slotd, "sdiag").ok().stdout;
    assert!(sdiag.contains(&format!(": {FAILS} (cannot commit: disk I/O error)\n")), "{sdiag}");
    repair_disk(&slotd);
    let ended = slotd.wait_state(job, "CANCELLED");
    assert_eq!(ended.exit(), "0:15");
    slotd.wait("the end in the database", || {
        slotd.sacct(job, "state").starts_with("CANCELLED").then_some(())
    });
}

#[test]
fn a_job_can_be_signalled_and_suspended_while_the_disk_fails() {
    let slotd = Slotd::start();
    let script =
        "trap 'echo usr1 >> signals' USR1; echo > ready; sleep 1000 & while :; do wait; done";
    let (job, pid) = begun(&slotd, &[], script);
    slotd.wait_text("ready", "\n");
    break_disk(&slotd);
    // A request that waits for the disk does not block others.
    soon(&slotd, &format!("scontrol hold {job}"));
    soon(&slotd, &format!("scancel -b -s USR1 {job}")).ok();
    slotd.wait_text("signals", "usr1");
    let out = soon(&slotd, &format!("scontrol suspend {job}")).fails(1);
    assert!(
        out.stderr.contains(&format!(
            "done, but lost if the daemon dies before it can record it: {FAILS}"
        ))
    );
    assert!(until(|| (proc::state(pid) == Some('T')).then_some(())).is_some());
    repair_disk(&slotd);
    slotd.wait_state(job, "SUSPENDED");
}

#[test]
fn an_unstored_cancel_survives_a_daemon_crash() {
    let mut slotd = Slotd::start();
    // If only its end were known, it would look like a failure and be requeued.
    let (job, pid) = begun(&slotd, &["--requeue"], "exec sleep 1000");
    break_disk(&slotd);
    soon(&slotd, &format!("scancel {job}")).ok();
    wait_dead(pid);
    slotd.crash();
    assert_eq!(slotd.wait_state(job, "CANCELLED").restarts(), 0);
    let by = format!("CANCELLED by {}", nix::unistd::getuid());
    assert_eq!(slotd.sacct(job, "state"), by);
    assert_eq!(slotd.read("pids").lines().count(), 1);
}

/// Otherwise, the job would be over after the crash, and not run again.
#[test]
fn an_unstored_requeue_stops_no_job() {
    let mut slotd = Slotd::start();
    let (job, pid) = begun(&slotd, &[], "exec sleep 1000");
    break_disk(&slotd);
    let out = soon(&slotd, &format!("scontrol requeue {job}")).fails(1);
    assert!(out.stderr.contains("done, but lost if the daemon dies"), "{}", out.stderr);
    slotd.crash();
    assert_eq!(slotd.wait_state(job, "RUNNING").restarts(), 0);
    assert!(proc::is_alive(pid));
    slotd.line(&format!("scontrol requeue {job}")).ok();
    wait_dead(pid);
    slotd.wait("the second run", || (slotd.read("pids").lines().count() == 2).then_some(()));
    assert_eq!(slotd.wait_state(job, "RUNNING").restarts(), 1);
}

/// Commands on a job whose preemption waits for the disk report that they are not recorded.
#[test]
fn a_preemption_that_waits_for_the_disk_is_no_end() {
    let tiers = "[[partition]]\nname = \"low\"\npreempt_mode = \"requeue\"\ndefault = true\n\
                 [[partition]]\nname = \"high\"\npriority_tier = 10\n";
    let mut slotd = Slotd::setup().set("SLOTD_CPUS", 2).toml(tiers).start();
    let (job, pid) = begun(&slotd, &["-c", "2"], "exec sleep 1000");
    let urgent = slotd.wrap(&["-p", "high", "-c", "2", "-b", "now+1second"], "true");
    break_disk(&slotd);
    slotd.wait_state(job, "COMPLETING");
    for line in ["scontrol update comment=x jobid=", "scontrol hold "] {
        let out = soon(&slotd, &format!("{line}{job}")).fails(1);
        assert!(out.stderr.contains("done, but lost if the daemon dies"), "{line}: {}", out.stderr);
    }
    assert!(proc::is_alive(pid));
    soon(&slotd, &format!("scancel {job}"));
    wait_dead(pid);
    slotd.crash();
    assert_eq!(slotd.wait_end(job).state(), "CANCELLED");
    assert_eq!(slotd.wait_end(urgent).state(), "COMPLETED");
    assert_eq!(slotd.read("pids").lines().count(), 1);
}

#[test]
fn a_requeue_that_waits_for_the_disk_does_not_delay_a_cancel() {
    for cancel in ["scancel", "scancel -s KILL"] {
        let slotd = Slotd::start();
        let (job, pid) = begun(&slotd, &[], "exec sleep 1000");
        break_disk(&slotd);
        soon(&slotd, &format!("scontrol requeue {job}")).fails(1);
        assert!(proc::is_alive(pid));
        soon(&slotd, &format!("{cancel} {job}"));
        wait_dead(pid);
        repair_disk(&slotd);
        assert_eq!(slotd.wait_state(job, "CANCELLED").restarts(), 0);
    }
}

#[test]
fn an_unstored_timeout_survives_a_daemon_crash() {
    let mut slotd = Slotd::start();
    let (job, pid) = begun(&slotd, &[], "exec sleep 1000");
    slotd.limit(job, 1);
    break_disk(&slotd);
    wait_dead(pid);
    slotd.crash();
    slotd.wait_state(job, "TIMEOUT");
}

#[test]
fn a_submission_that_hits_the_fault_is_refused_and_leaves_nothing() {
    let slotd = Slotd::start();
    break_disk(&slotd);
    let refused = format!("{FAILS}: check the kernel log and try again\n");
    let out = soon(&slotd, "sbatch --wrap true").fails(1);
    assert_eq!(out.stderr, format!("sbatch: error: Batch job submission failed: {refused}"));
    for line in ["srun true", "salloc true"] {
        let out = soon(&slotd, line).fails(1);
        assert!(out.stderr.contains(&refused), "{line}: {}", out.stderr);
    }
    assert_eq!(soon(&slotd, "squeue -h -t all").ok().stdout, "");
    repair_disk(&slotd);
    let job = until(|| slotd.line("sbatch --parsable --wrap true").text().parse::<u32>().ok())
        .expect("a submission");
    slotd.wait_state(job, "COMPLETED");
    assert_eq!(
        slotd.cmd("sacct", &["-nPX", "-o", "jobid"]).ok().text(),
        job.to_string(),
        "only this job is stored"
    );
}

#[test]
fn a_step_that_cannot_be_stored_is_refused_and_its_job_continues() {
    let slotd = Slotd::start();
    let script =
        format!("{}; srun true; echo code $?; srun true; echo code $?; echo end", slotd.gate("go"));
    let (job, _) = begun(&slotd, &[], &script);
    break_disk(&slotd);
    slotd.open("go");
    slotd.wait_text(&format!("slurm-{job}.out"), "end");
    let refused =
        format!("srun: error: Unable to create step for job {job}: {FAILS}: check the kernel log");
    let output = slotd.output(job);
    assert_eq!(
        (output.matches(&refused).count(), output.matches("code 1\n").count()),
        (2, 2),
        "{output}"
    );
    repair_disk(&slotd);
    slotd.wait_state(job, "COMPLETED");
    assert!(!slotd.steps(job, "jobid").contains(&format!("{job}.0")), "no step is stored");
}

#[test]
fn an_unstored_cancel_is_reported() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["--hold"], "true");
    break_disk(&slotd);
    let text = format!("done, but lost if the daemon dies before it can record it: {FAILS}\n");
    // The second one has nothing to do, but reports the same.
    for _ in 0..2 {
        let out = soon(&slotd, &format!("scancel {job}")).fails(1);
        assert_eq!(out.stderr, format!("scancel: error: Kill job error on job id {job}: {text}"));
    }
    repair_disk(&slotd);
    slotd.wait("the end in the database", || {
        slotd.sacct(job, "state").starts_with("CANCELLED").then_some(())
    });
}

#[test]
fn jobs_can_be_cancelled_on_a_full_disk() {
    let slotd = Slotd::setup().prepare();
    let Some(disk) = SmallDisk::mount(&slotd.root, 4 << 20) else { return };
    let mut slotd = slotd;
    slotd.start_daemon();
    let (job, pid) = begun(&slotd, &[], "exec sleep 1000");
    let next = slotd.wrap(&["-c", "4"], "true");
    let filling = disk.fill();
    let out = soon(&slotd, "sbatch --wrap true").fails(1);
    let text = "the disk of the daemon's database is full: free some space and try again\n";
    assert_eq!(out.stderr, format!("sbatch: error: Batch job submission failed: {text}"));
    soon(&slotd, &format!("scancel {job}")).ok();
    wait_dead(pid);
    // The next daemon starts without free space, and does not start the cancelled job.
    slotd.crash();
    let out = soon(&slotd, "sbatch --wrap true").fails(1);
    assert!(out.stderr.ends_with(text), "{}", out.stderr);
    slotd.wait_state(job, "CANCELLED");
    slotd.wait_state(next, "PENDING");
    fs::remove_file(filling).unwrap();
    slotd.wait_state(job, "CANCELLED");
    slotd.wait_state(next, "COMPLETED");
    let lines = slotd.log().lines().filter(|line| line.contains("is full (")).count();
    assert_eq!(lines, 2, "one from each daemon: {}", slotd.log());
}

#[test]
fn hung_job_directories_do_not_hold_up_other_requests() {
    let mut slotd = Slotd::setup().prepare();
    // The database is on another disk.
    let jobs = slotd.root.join("lib/jobs");
    fs::create_dir_all(&jobs).unwrap();
    let Some(disk) = HangingDisk::mount(&jobs, &slotd.path("image")) else { return };
    slotd.start_daemon();
    let first = slotd.wrap(&["-H"], "true");
    disk.hang();
    let run = |name: &str, args: &[&str]| {
        let mut command = slotd.command(name);
        command.args(args);
        slotd.spawn(command)
    };
    let submits = run("sbatch", &["-H", "--parsable", "--wrap", "echo second"]);
    let second: u32 = submits.end().ok().text().parse().unwrap();
    run("scontrol", &["update", &format!("jobid={first}"), "comment=durable"]).end().ok();
    run("scancel", &[&first.to_string()]).end().ok();
    disk.resume();
    slotd.line(&format!("scontrol release {second}")).ok();
    slotd.wait_state(second, "COMPLETED");
    assert_eq!(slotd.output(second), "second\n");
}

#[test]
fn an_output_on_a_read_only_mount_fails_only_its_job() {
    let slotd = Slotd::start();
    fs::create_dir(slotd.path("frozen")).unwrap();
    let Some(_mount) = ReadOnly::make(&slotd.path("frozen")) else { return };
    let frozen = slotd.wrap(&["-o", "frozen/out"], "true");
    slotd.wait_state(frozen, "FAILED");
    let next = slotd.wrap(&[], "true");
    slotd.wait_state(next, "COMPLETED");
    assert_eq!(slotd.line("sinfo -h -R").ok().text(), "");
}

/// A script that runs forever and records each SIGTERM.
const STUBBORN: &str = "trap 'echo term >> terms' TERM; echo > ready; while :; do sleep 0.05; done";

#[test]
fn a_time_limit_enforced_by_two_daemons_is_reported_once() {
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
fn an_unstored_suspend_or_resume_is_undone_after_a_daemon_crash() {
    let mut slotd = Slotd::start();
    // A shell that starts programs is sometimes stopped in vfork(2), in state D.
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
fn an_unstored_hold_is_reported_each_time() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["--begin=now+1hour"], "true");
    break_disk(&slotd);
    for line in ["scontrol hold", "scontrol hold", "scontrol release", "scontrol release"] {
        let out = soon(&slotd, &format!("{line} {job}")).fails(1);
        assert!(
            out.stderr.contains("done, but lost if the daemon dies before it can record it"),
            "{line}"
        );
    }
    repair_disk(&slotd);
    slotd.wait("a hold that is stored", || {
        (slotd.line(&format!("scontrol hold {job}")).code == 0).then_some(())
    });
}

#[test]
fn no_jobs_are_accepted_while_the_database_is_moved_away() {
    let mut slotd = Slotd::start();
    let kept = slotd.wrap(&["-H"], "true");
    let (job, pid) = begun(&slotd, &[], "exec sleep 1000");
    let (database, away) = (slotd.root.join("lib/state.db"), slotd.path("away.db"));
    fs::rename(&database, &away).unwrap();
    let refused = "the daemon's database lib/state.db was moved, deleted or replaced: put that file back, or run \
                   `slotd daemon stop` and restore a copy with `slotd db restore`, and try again\n";
    for _ in 0..2 {
        let out = soon(&slotd, "sbatch --wrap true").fails(1);
        assert_eq!(out.stderr, format!("sbatch: error: Batch job submission failed: {refused}"));
    }
    let doctor = slotd.line("slotd doctor").fails(1).stdout;
    let named = format!("{}: No such file or directory", database.display());
    assert!(doctor.contains(&named) && doctor.contains("fix: put that file back"), "{doctor}");
    let node = soon(&slotd, "scontrol show node").ok().stdout;
    assert!(node.contains("lib/state.db was moved"), "{node}");
    // An older copy in its place is not written to, and the files of jobs that it lacks are not
    // deleted.
    fs::copy(&away, &database).unwrap();
    let before = fs::read(&database).unwrap();
    soon(&slotd, "sbatch --wrap true").fails(1);
    slotd.line("slotd clean --older-than 0s --yes").fails(1);
    assert_eq!(fs::read(&database).unwrap(), before);
    soon(&slotd, &format!("scancel {job}")).ok();
    wait_dead(pid);
    fs::rename(&away, &database).unwrap();
    slotd.wait_state(job, "CANCELLED");
    let next = until(|| slotd.line("sbatch --parsable --wrap true").text().parse::<u32>().ok())
        .expect("a submission");
    slotd.wait_state(next, "COMPLETED");
    slotd.crash();
    assert_eq!(slotd.state(kept), "PENDING");
    assert_eq!(slotd.sacct(next, "state"), "COMPLETED");
}

#[test]
fn jobs_survive_the_loss_of_the_write_ahead_log() {
    for name in ["state.db-wal", "state.db-shm"] {
        let mut slotd = Slotd::start();
        let kept = slotd.wrap(&["-H"], "true");
        fs::remove_file(slotd.root.join("lib").join(name)).unwrap();
        let out = soon(&slotd, "sbatch --wrap true").fails(1);
        let refused = "the log of the daemon's database (lib/state.db-wal, -shm) was moved, deleted or replaced: restart the \
                       daemon (nothing is lost) and try again\n";
        assert!(out.stderr.ends_with(refused), "{}", out.stderr);
        slotd.crash();
        assert_eq!(slotd.state(kept), "PENDING", "{name}");
        let next = slotd.wrap(&[], "true");
        slotd.wait_state(next, "COMPLETED");
    }
}

#[test]
fn no_new_database_is_created_next_to_an_old_write_ahead_log() {
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
