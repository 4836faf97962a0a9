//! Modes of srun: --immediate, --no-wait, and steps in an existing allocation.

use slotd_kit::Slotd;

#[test]
fn immediate_fails_instead_of_waiting() {
    let slotd = Slotd::start();
    slotd.cmd("srun", &["--immediate", "true"]).ok();
    let running = slotd.endless(&["-c", "4"]);
    for option in ["--immediate", "-I", "-I1", "--immediate=1"] {
        let out = slotd.cmd("srun", &[option, "true"]).fails(1);
        assert_eq!(
            out.stderr, "srun: error: Unable to allocate resources: Requested nodes are busy\n",
            "{option}"
        );
    }
    slotd.cancel(running);
    slotd.wait_end(running);
    slotd.cmd("srun", &["--immediate", "true"]).ok();
    // The refused jobs are no longer in the queue.
    slotd.wait("the end of all jobs", || {
        slotd.all_records().iter().all(slotd_kit::Record::is_over).then_some(())
    });
}

#[test]
fn no_wait_makes_the_daemon_run_the_command() {
    let slotd = Slotd::start();
    let gate = slotd.gate("go");
    let out = slotd
        .cmd("srun", &["--no-wait", "-o", "out", "sh", "-c", &format!("{gate}; echo done; exit 3")])
        .ok();
    assert_eq!(out.stdout, "Submitted run job 1\n");
    slotd.wait_state(1, "RUNNING");
    slotd.open("go");
    assert_eq!(slotd.wait_state(1, "FAILED").exit(), "3:0");
    assert_eq!(slotd.read("out"), "done\n");
}

#[test]
fn no_wait_runs_one_process_per_rank() {
    let slotd = Slotd::start();
    slotd
        .cmd("srun", &["--no-wait", "-n", "3", "-o", "out", "sh", "-c", "echo $SLURM_PROCID"])
        .ok();
    slotd.wait_state(1, "COMPLETED");
    let out = slotd.read("out");
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0", "1", "2"]);
}

#[test]
fn no_wait_refuses_options_that_need_a_client() {
    let slotd = Slotd::start();
    for option in ["--label", "--unbuffered"] {
        let out = slotd.cmd("srun", &["--no-wait", option, "true"]);
        assert_ne!(out.code, 0);
        assert!(out.stderr.contains(option) && out.stderr.contains("--no-wait"), "{}", out.stderr);
    }
    assert!(slotd.all_records().is_empty());
}

#[test]
fn allocation_is_found_by_its_id() {
    let slotd = Slotd::start();
    let job = slotd.endless(&[]);
    let out = slotd
        .cmd(
            "srun",
            &["--jobid", &job.to_string(), "sh", "-c", "echo $SLURM_JOB_ID.$SLURM_STEP_ID"],
        )
        .ok();
    assert_eq!(out.stdout, format!("{job}.0\n"));
    let mut srun = slotd.command("srun");
    srun.env("SLURM_JOB_ID", job.to_string()).args([
        "sh",
        "-c",
        "echo $SLURM_JOB_ID.$SLURM_STEP_ID",
    ]);
    assert_eq!(slotd.run(srun).ok().stdout, format!("{job}.1\n"));
    assert_eq!(slotd.all_records().len(), 1);
}

#[test]
fn invalid_allocation_is_reported() {
    let slotd = Slotd::start();
    let out = slotd.cmd("srun", &["--jobid=999999", "true"]).fails(1);
    assert_eq!(
        out.stderr,
        "srun: error: Unable to confirm allocation for job 999999: Invalid job id specified\n\
         srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 999999\n"
    );
    let over = slotd.wrap(&[], "true");
    slotd.wait_state(over, "COMPLETED");
    let out = slotd.cmd("srun", &["--jobid", &over.to_string(), "true"]).fails(1);
    let hint = "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job";
    assert_eq!(out.stderr, format!("srun: error: Slurm job {over} has expired\n{hint} {over}\n"));
    let held = slotd.wrap(&["-H"], "true");
    let out = slotd.cmd("srun", &["--jobid", &held.to_string(), "true"]).fails(1);
    let why = format!("Unable to confirm allocation for job {held}: Job is pending execution");
    assert_eq!(out.stderr, format!("srun: error: {why}\n{hint} {held}\n"));
}

#[test]
fn command_of_no_wait_is_step_0_and_its_steps_follow() {
    let slotd = Slotd::start();
    let gate = slotd.gate("go");
    let script = format!("srun -n1 echo inner; echo > here; {gate}");
    slotd.cmd("srun", &["--no-wait", "-n", "1", "-o", "out", "sh", "-c", &script]).ok();
    slotd.wait("the inner step", || slotd.exists("here").then_some(()));
    assert_eq!(slotd.steps(1, "JobID,State"), "1|RUNNING\n1.0|RUNNING\n1.1|COMPLETED");
    slotd.cmd("scancel", &["1.0"]).ok();
    slotd.wait_end(1);
    assert!(
        slotd.steps(1, "JobID,State").contains("1.0|CANCELLED"),
        "{}",
        slotd.steps(1, "JobID,State")
    );
}
