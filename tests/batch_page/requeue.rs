//! "Requeue Once": which ends bring a job back, and that it comes back once.

use slotd_kit::Slotd;

#[test]
fn failed_requeues_once() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["--requeue"], "echo run $SLURM_RESTART_COUNT; exit 1");
    let job = slotd.wait_state(id, "FAILED");
    assert_eq!((job.restarts(), job.exit().as_str()), (1, "1:0"));
    // The output of the second run is appended to that of the first.
    assert_eq!(slotd.output(id), "run\nrun 1\n");
}

#[test]
fn timeout_requeues_once() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["--requeue", "-t", "10"], "echo run $SLURM_RESTART_COUNT; exec sleep 1000");
    slotd.wait_text(&format!("slurm-{id}.out"), "run\n");
    slotd.limit(id, 1);
    let job = slotd.wait_state(id, "TIMEOUT");
    assert_eq!(job.restarts(), 1);
    assert_eq!(slotd.output(id).matches("DUE TO TIME LIMIT ***").count(), 2);
}

// Of OUT_OF_MEMORY there is a test beside the scheduler's rule: it needs a cgroup to happen.

#[test]
fn completed_does_not_requeue() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["--requeue"], "echo run");
    assert_eq!(slotd.wait_state(id, "COMPLETED").restarts(), 0);
    assert_eq!(slotd.output(id), "run\n");
}

#[test]
fn cancelled_does_not_requeue() {
    let slotd = Slotd::start();
    let id = slotd.endless(&["--requeue"]);
    slotd.cancel(id);
    assert_eq!(slotd.wait_state(id, "CANCELLED").restarts(), 0);
}

#[test]
fn example_the_first_failure_returns_the_job_to_pending_and_the_second_leaves_failed() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["--requeue"], &format!("{}; exit 1", slotd.gate("go")));
    slotd.wait_state(id, "RUNNING");
    // Something has the whole host when it comes back.
    let next = slotd.wrap(&["--exclusive", "--priority=4000000000"], &slotd.gate("end"));
    slotd.open("go");
    slotd.wait_state(next, "RUNNING");
    assert_eq!((slotd.state(id).as_str(), slotd.job(id).restarts()), ("PENDING", 1));
    slotd.open("end");
    slotd.wait_state(id, "FAILED");
}

#[test]
fn scontrol_requeue_from_inside_the_job_runs_it_again_with_the_same_id() {
    let slotd = Slotd::start();
    let script = "echo run ${SLURM_RESTART_COUNT:-0} of $SLURM_JOB_ID\n\
                  [ -n \"$SLURM_RESTART_COUNT\" ] && exit 0\n\
                  scontrol requeue $SLURM_JOB_ID && exec sleep 1000";
    let id = slotd.wrap(&[], script);
    let job = slotd.wait_state(id, "COMPLETED");
    assert_eq!(job.restarts(), 1);
    let seen = slotd.output(id);
    assert!(seen.starts_with(&format!("run 0 of {id}\n")) && seen.ends_with(&format!("run 1 of {id}\n")), "{seen}");
    assert!(seen.contains("DUE TO JOB REQUEUE ***"), "{seen}");
}

#[test]
fn no_requeue_refuses_scontrol_requeue() {
    let slotd = Slotd::start();
    let id = slotd.endless(&["--no-requeue"]);
    let out = slotd.cmd("scontrol", &["requeue", &id.to_string()]).fails(1);
    assert_eq!(out.stderr, format!("Requested operation is presently disabled for job {id}\n"));
    assert_eq!(slotd.state(id), "RUNNING");
}
