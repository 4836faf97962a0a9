//! Combinations of scheduling rules: a job that waits for two things waits for both and shows the
//! true reason.

use slotd_kit::{Setup, Slotd, most_at_once};

#[test]
fn prepare_map_reduce_runs_in_order() {
    let slotd = Slotd::start();
    let prepare = slotd.wrap(&[], "seq 1 8 > in; echo prepare >> order");
    let map = slotd.wrap(
        &["-a", "1-8%3", "-d", &format!("afterok:{prepare}"), "--mem", "1"],
        "sed -n ${SLURM_ARRAY_TASK_ID}p in | awk '{print $1 * $1}' > part$SLURM_ARRAY_TASK_ID; echo map >> order",
    );
    let reduce = slotd.wrap(
        &["-d", &format!("afterok:{map}")],
        "cat part* | awk '{s += $1} END {print s}' > sum; echo reduce >> order",
    );
    slotd.wait_state(reduce, "COMPLETED");
    assert_eq!(slotd.read("sum"), "204\n");
    assert_eq!(slotd.read("order"), format!("prepare\n{}reduce\n", "map\n".repeat(8)));
    assert!(most_at_once(&slotd.records(map)) <= 3);
}

#[test]
fn failure_in_a_chain_blocks_only_its_dependents() {
    let slotd = Slotd::start();
    let first = slotd.wrap(&[], "exit 3");
    let second = slotd.wrap(&["-d", &format!("afterok:{first}")], "true");
    let third = slotd.wrap(&["-d", &format!("afterok:{second}")], "true");
    let cleanup = slotd.wrap(&["-d", &format!("afternotok:{first}")], "true");
    slotd.wait_state(cleanup, "COMPLETED");
    slotd.wait_reason(second, "DependencyNeverSatisfied");
    assert_eq!(slotd.queued(third).state(), "PENDING");
}

#[test]
fn hold_outlasts_a_dependency() {
    let slotd = Slotd::start();
    let first = slotd.wrap(&[], &slotd.gate("go"));
    let held = slotd.wrap(&["-H", "-d", &format!("afterok:{first}")], "true");
    slotd.open("go");
    slotd.wait_state(first, "COMPLETED");
    slotd.wait_reason(held, "JobHeldUser");
    slotd.cmd("scontrol", &["release", &held.to_string()]).ok();
    slotd.wait_state(held, "COMPLETED");
}

#[test]
fn begin_time_outlasts_a_dependency() {
    let slotd = Slotd::start();
    let first = slotd.wrap(&[], "true");
    slotd.wait_state(first, "COMPLETED");
    let later = slotd.wrap(&["--begin", "now+1hour", "-d", &format!("afterok:{first}")], "true");
    slotd.wait_reason(later, "BeginTime");
}

#[test]
fn blocked_job_does_not_block_jobs_that_wait_for_something_else() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 1).start();
    let gpu = slotd.endless(&["-p", "gpu"]);
    let waits = slotd.wrap(&["-p", "gpu"], "true");
    let cpu = slotd.wrap(&["-t", "1"], "true");
    slotd.wait_state(cpu, "COMPLETED");
    slotd.wait_reason(waits, "Resources");
    slotd.cancel(gpu);
    slotd.wait_state(waits, "COMPLETED");
}

#[test]
fn dependents_wait_for_the_last_end_of_a_requeued_job() {
    let slotd = Slotd::start();
    let first = slotd.wrap(&["--requeue"], "if [ -e once ]; then exit 0; fi; touch once; exit 1");
    let second = slotd.wrap(&["-d", &format!("afterok:{first}")], "true");
    let (first, second) =
        (slotd.wait_state(first, "COMPLETED"), slotd.wait_state(second, "COMPLETED"));
    assert_eq!(first.restarts(), 1);
    assert!(second.start() >= first.end());
}

#[test]
fn exclusive_job_among_array_tasks_has_the_host_to_itself() {
    let slotd = Slotd::start();
    let before = slotd.wrap(&["-a", "0-5", "--mem", "1"], "sleep 0.02");
    let alone = slotd.wrap(&["--exclusive"], "sleep 0.05");
    let after = slotd.wrap(&["-a", "0-5", "--mem", "1"], "sleep 0.02");
    let mut others = slotd.wait_array(before, 6);
    others.extend(slotd.wait_array(after, 6));
    let alone = slotd.wait_state(alone, "COMPLETED");
    for other in others {
        assert!(
            other.end() <= alone.start() || other.start() >= alone.end(),
            "job {} ran beside the exclusive one",
            other.id()
        );
    }
}

#[test]
fn mixed_queue_drains() {
    let slotd = Setup::default().set("SLOTD_GPU_COUNT", 2).start();
    let mut last = slotd.wrap(&[], "true");
    for i in 0..12 {
        let dependency = format!("afterany:{last}");
        let args: Vec<&str> = match i % 6 {
            0 => vec!["-a", "0-3%2", "--mem", "1"],
            1 => vec!["-d", &dependency],
            2 => vec!["-p", "gpu", "-G", "2"],
            3 => vec!["--exclusive"],
            4 => vec!["-J", "one", "-d", "singleton", "-c", "3"],
            _ => vec!["--requeue", "-n", "2"],
        };
        last = slotd.wrap(&args, "sleep 0.01; exit 0");
    }
    slotd.wait("an empty queue", || {
        slotd.all_records().iter().all(slotd_kit::Record::is_over).then_some(())
    });
    assert!(slotd.all_records().iter().all(|job| job.state() == "COMPLETED"));
}
