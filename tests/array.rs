//! Job arrays.

use slotd_kit::{Slotd, most_at_once};
use std::collections::BTreeSet;

#[test]
fn each_task_is_a_record_with_its_own_id_and_index() {
    let slotd = Slotd::start();
    let job =
        slotd.wrap(&["-a", "1-3"], "echo $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_JOB_ID");
    let tasks = slotd.wait_array(job, 3);
    assert!(tasks.iter().all(|task| task.state() == "COMPLETED"));
    let ids: BTreeSet<u32> = tasks.iter().map(slotd_kit::Record::id).collect();
    assert_eq!(ids.len(), 3);
    // As in Slurm, the last task has the ID of the array.
    assert_eq!(tasks[2].id(), job);
    for (index, task) in (1..).zip(&tasks) {
        assert_eq!(
            slotd.read(&format!("slurm-{job}_{index}.out")),
            format!("{job} {index} {}\n", task.id())
        );
    }
}

#[test]
fn all_forms_in_the_book_are_accepted() {
    let slotd = Slotd::start();
    for (spec, tasks) in [
        ("5", vec![5]),
        ("0-3", vec![0, 1, 2, 3]),
        ("0-15:5", vec![0, 5, 10, 15]),
        ("7,2,4-5", vec![2, 4, 5, 7]),
        ("1,1", vec![1]),
        ("01-03", vec![1, 2, 3]),
        ("0-3%2", vec![0, 1, 2, 3]),
        ("0-3%0", vec![0, 1, 2, 3]),
        ("0-3%", vec![0, 1, 2, 3]),
    ] {
        let job = slotd.wrap(&["-a", spec, "-o", "/dev/null", "--mem", "1"], "true");
        let found: Vec<u64> =
            slotd.wait_array(job, tasks.len()).iter().filter_map(slotd_kit::Record::task).collect();
        assert_eq!(found, tasks, "-a {spec}");
    }
    let plain = slotd.job(slotd.wrap(&["-a", ""], "true"));
    assert_eq!(plain.task(), None);
}

#[test]
fn tasks_get_the_shape_of_their_array() {
    let slotd = Slotd::start();
    let script = "echo $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_MIN $SLURM_ARRAY_TASK_MAX $SLURM_ARRAY_TASK_STEP";
    let job = slotd.wrap(&["-a", "2-8:3"], script);
    slotd.wait_array(job, 3);
    for index in [2, 5, 8] {
        assert_eq!(slotd.read(&format!("slurm-{job}_{index}.out")), "3 2 8 3\n");
    }
}

#[test]
fn array_limit_is_never_exceeded() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-a", "0-9%2", "--mem", "1"], "sleep 0.02");
    let tasks = slotd.wait_array(job, 10);
    assert_eq!(most_at_once(&tasks), 2);
}

#[test]
fn limited_array_shows_why_the_rest_is_pending() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-a", "1-5%1"], "exec sleep 1000");
    slotd.wait("the first task", || {
        slotd.records(job).iter().any(|r| r.state() == "RUNNING").then_some(())
    });
    slotd.wait_reason(job, "JobArrayTaskLimit");
    let other = slotd.wrap(&[], "true");
    slotd.wait_state(other, "COMPLETED");
    slotd.cancel(job);
    slotd.wait("the end", || {
        slotd.records(job).iter().all(slotd_kit::Record::is_over).then_some(())
    });
}

#[test]
fn tasks_fail_independently() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-a", "0-3"], "exit $((SLURM_ARRAY_TASK_ID % 2))");
    let states: Vec<String> =
        slotd.wait_array(job, 4).iter().map(slotd_kit::Record::state).collect();
    assert_eq!(states, ["COMPLETED", "FAILED", "COMPLETED", "FAILED"]);
}

#[test]
fn two_arrays_take_turns() {
    let slotd = Slotd::start();
    let running = slotd.endless(&["-c", "4"]);
    let submit =
        |name: &str| slotd.wrap(&["-a", "0-3", "-c", "4"], &format!("echo {name} >> order"));
    let (first, second) = (submit("a"), submit("b"));
    slotd.cancel(running);
    slotd.wait_array(first, 4);
    slotd.wait_array(second, 4);
    assert_eq!(slotd.read("order").replace('\n', ""), "abababab");
}

#[test]
fn million_tasks_stay_one_record_when_cancelled() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H", "-a", "0-999999"], "true");
    assert_eq!(slotd.records(job).len(), 1);
    slotd.cancel(job);
    slotd.wait_state(job, "CANCELLED");
    assert_eq!(slotd.records(job).len(), 1);
}

#[test]
fn single_pending_tasks_can_be_cancelled() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-H", "-a", "1-9"], "true");
    let shown =
        || slotd.cmd("squeue", &["-h", "-o", "%i", "-j", &job.to_string()]).ok().text().to_owned();
    assert_eq!(shown(), format!("{job}_[1-9]"));
    slotd.cmd("scancel", &[format!("{job}_[1-3]")]).ok();
    assert_eq!(shown(), format!("{job}_[4-9]"));
    slotd.cmd("scancel", &[format!("{job}_5"), format!("{job}_7")]).ok();
    assert_eq!(shown(), format!("{job}_[4,6,8-9]"));
    slotd.cmd("scancel", &[format!("{job}_[4,8-9]")]).ok();
    assert_eq!(shown(), format!("{job}_[6]"));
    slotd.cmd("scancel", &[job.to_string()]).ok();
    assert_eq!(shown(), "");
}

#[test]
fn single_running_task_can_be_cancelled() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-a", "1-2"], "exec sleep 1000");
    let running = || slotd.records(job).iter().filter(|r| r.state() == "RUNNING").count();
    slotd.wait("both tasks", || (running() == 2).then_some(()));
    slotd.cmd("scancel", &[format!("{job}_1")]).ok();
    slotd.wait("the end of the first", || {
        slotd
            .records(job)
            .iter()
            .any(|r| r.task() == Some(1) && r.state() == "CANCELLED")
            .then_some(())
    });
    assert_eq!(running(), 1);
}

#[test]
fn tasks_are_requeued_independently() {
    let slotd = Slotd::start();
    let job = slotd.wrap(&["-a", "0-1", "--requeue"], "exit $SLURM_ARRAY_TASK_ID");
    let tasks = slotd.wait_array(job, 2);
    assert_eq!((tasks[0].state().as_str(), tasks[0].restarts()), ("COMPLETED", 0));
    assert_eq!((tasks[1].state().as_str(), tasks[1].restarts()), ("FAILED", 1));
}

/// Returns the tasks of a held array as squeue shows them.
#[track_caller]
fn tasks(slotd: &Slotd, array: &str) -> String {
    slotd.shown(&["-a", array], "%K")
}

#[test]
fn array_form_single_ids() {
    let slotd = Slotd::start();
    assert_eq!(tasks(&slotd, "7"), "7");
    assert_eq!(tasks(&slotd, "7,2,4"), "2,4,7");
    let id = slotd.wrap(&["-a", "5"], "echo $SLURM_ARRAY_TASK_ID");
    slotd.wait_array(id, 1);
    assert_eq!(slotd.read(&format!("slurm-{id}_5.out")), "5\n");
}

#[test]
fn array_form_ranges() {
    let slotd = Slotd::start();
    assert_eq!(tasks(&slotd, "0-7"), "0-7");
    assert_eq!(tasks(&slotd, "01-03,8"), "1-3,8");
}

#[test]
fn array_form_concurrency_limits() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["-a", "0-7%3", "--mem", "1"], "sleep 0.05");
    let records = slotd.wait_array(id, 8);
    assert_eq!(most_at_once(&records), 3);
    assert_eq!(tasks(&slotd, "0-31%4"), "0-31%4");
}

#[test]
fn invalid_array_specification_is_refused() {
    let slotd = Slotd::start();
    for array in ["abc", "5-1", "1-", "-3", "1-5:0", "0-4000001"] {
        let out = slotd.cmd("sbatch", &[&format!("--array={array}"), "--wrap", "true"]).fails(1);
        let error = "Batch job submission failed: Invalid job array specification";
        assert!(out.stderr.contains(error) && out.stderr.contains(array), "{}", out.stderr);
    }
}

#[test]
fn million_tasks_are_submitted_as_one_record() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["-a", "0-999999%2", "--hold"], "true");
    assert_eq!(slotd.records(id).len(), 1);
    assert_eq!(slotd.cmd("squeue", &["-h", "-o", "%i"]).ok().text(), format!("{id}_[0-999999%2]"));
}
