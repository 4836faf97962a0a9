//! "Dependencies", "Arrays" and "Delayed Start": a test for each supported expression.

use slotd_kit::{Slotd, most_at_once};

/// Two jobs that end when the gate opens: one in success and one in failure.
#[track_caller]
fn good_and_bad(slotd: &Slotd) -> (u32, u32) {
    let gate = slotd.gate("go");
    (slotd.wrap(&[], &gate), slotd.wrap(&[], &format!("{gate}; exit 1")))
}

#[track_caller]
fn depending(slotd: &Slotd, expression: &str) -> u32 {
    slotd.wrap(&["-d", expression], "true")
}

#[test]
fn dependency_after_jobs() {
    let slotd = Slotd::start();
    let later = [slotd.wrap(&["--hold"], &slotd.gate("go")), slotd.wrap(&["--hold"], &slotd.gate("go"))];
    let [one, two] = later;
    let id = depending(&slotd, &format!("after:{one},{two}"));
    slotd.wait_reason(id, "Dependency");
    slotd.cmd("scontrol", &["release", &one.to_string()]).ok();
    slotd.wait_state(one, "RUNNING");
    slotd.wait_reason(id, "Dependency");
    // A start is enough, and so is a cancellation.
    slotd.cancel(two);
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.state(one), "RUNNING");
}

#[test]
fn dependency_afterany_jobs() {
    let slotd = Slotd::start();
    let (good, bad) = good_and_bad(&slotd);
    let id = depending(&slotd, &format!("afterany:{good},{bad}"));
    slotd.wait_reason(id, "Dependency");
    slotd.open("go");
    let job = slotd.wait_state(id, "COMPLETED");
    assert!(job.start() >= slotd.job(good).end().max(slotd.job(bad).end()));
}

#[test]
fn dependency_afterok_jobs() {
    let slotd = Slotd::start();
    let (good, bad) = good_and_bad(&slotd);
    let met = depending(&slotd, &format!("afterok:{good}"));
    let never = depending(&slotd, &format!("afterok:{good},{bad}"));
    slotd.wait_reason(met, "Dependency");
    slotd.open("go");
    slotd.wait_state(met, "COMPLETED");
    slotd.wait_reason(never, "DependencyNeverSatisfied");
}

#[test]
fn dependency_afternotok_jobs() {
    let slotd = Slotd::start();
    let (good, bad) = good_and_bad(&slotd);
    let met = depending(&slotd, &format!("afternotok:{bad}"));
    let never = depending(&slotd, &format!("afternotok:{bad},{good}"));
    slotd.wait_reason(met, "Dependency");
    slotd.open("go");
    slotd.wait_state(met, "COMPLETED");
    slotd.wait_reason(never, "DependencyNeverSatisfied");
}

#[test]
fn dependency_singleton() {
    let slotd = Slotd::start();
    let first = slotd.wrap(&["-J", "one"], &slotd.gate("go"));
    let other = slotd.wrap(&["-J", "other", "-d", "singleton"], "true");
    let second = slotd.wrap(&["-J", "one", "-d", "singleton"], "true");
    slotd.wait_state(other, "COMPLETED");
    slotd.wait_reason(second, "Dependency");
    slotd.open("go");
    let second = slotd.wait_state(second, "COMPLETED");
    assert!(second.start() >= slotd.job(first).end());
}

#[test]
fn two_queued_singletons_never_block_each_other() {
    let slotd = Slotd::start();
    let first = slotd.endless(&["-J", "one"]);
    let both = [0, 1].map(|_| slotd.wrap(&["-J", "one", "-d", "singleton"], "true"));
    slotd.wait_reason(both[0], "Dependency");
    slotd.wait_reason(both[1], "Dependency");
    slotd.cancel(first);
    for id in both {
        slotd.wait_state(id, "COMPLETED");
    }
}

#[test]
fn dependency_jobs_are_separated_by_commas_or_colons() {
    let slotd = Slotd::start();
    let (good, bad) = good_and_bad(&slotd);
    for joint in [',', ':'] {
        let id = slotd.wrap(&["--hold", "-d", &format!("afterany:{good}{joint}{bad}")], "true");
        let shown = format!("afterany:{good}(unfulfilled),afterany:{bad}(unfulfilled)");
        assert_eq!(slotd.show(id, "Dependency"), shown);
        assert_eq!(slotd.cmd("squeue", &["-h", "-j", &id.to_string(), "-o", "%E"]).ok().text(), shown);
    }
}

#[test]
fn a_question_mark_lets_one_of_several_dependencies_do() {
    let slotd = Slotd::start();
    let (good, bad) = good_and_bad(&slotd);
    let id = depending(&slotd, &format!("afterok:{bad}?afterok:{good}"));
    slotd.wait_reason(id, "Dependency");
    slotd.open("go");
    slotd.wait_state(id, "COMPLETED");
    let mixed = slotd.cmd("sbatch", &["-d", "afterok:1,afterok:2?afterok:3", "--wrap", "true"]).fails(1);
    assert!(mixed.stderr.contains("Job dependency problem"), "{}", mixed.stderr);
}

#[test]
fn after_with_minutes_waits_so_long_after_the_start() {
    let slotd = Slotd::start();
    let first = slotd.endless(&[]);
    let id = depending(&slotd, &format!("after:{first}+5"));
    slotd.wait_reason(id, "Dependency");
    assert_eq!(slotd.show(id, "Dependency"), format!("after:{first}+5(unfulfilled)"));
}

#[test]
fn an_array_id_means_all_its_tasks_and_aftercorr_the_one_of_the_same_number() {
    let slotd = Slotd::start();
    let gate = slotd.gate("go");
    let array = slotd.wrap(&["-a", "1-2"], &format!("{gate}; [ $SLURM_ARRAY_TASK_ID = 1 ]"));
    let all = depending(&slotd, &format!("afterany:{array}"));
    let first = depending(&slotd, &format!("afterok:{array}_1"));
    let corresponding = slotd.wrap(&["-a", "1-2", "-d", &format!("aftercorr:{array}")], "true");
    for id in [all, first, corresponding] {
        slotd.wait_reason(id, "Dependency");
    }
    slotd.open("go");
    slotd.wait_state(all, "COMPLETED");
    slotd.wait_state(first, "COMPLETED");
    slotd.wait("the first task of the other array", || {
        slotd.records(corresponding).into_iter().find(|r| r.task() == Some(1) && r.state() == "COMPLETED")
    });
    slotd.wait_reason(corresponding, "DependencyNeverSatisfied");
}

#[test]
fn a_dependency_that_can_never_be_met_may_cancel_the_job() {
    let slotd = Slotd::start();
    let bad = slotd.wrap(&[], &format!("{}; exit 1", slotd.gate("go")));
    let id = slotd.wrap(&["-d", &format!("afterok:{bad}"), "--kill-on-invalid-dep=yes"], "true");
    slotd.open("go");
    let job = slotd.wait_state(id, "CANCELLED");
    assert_eq!(job.reason(), "DependencyNeverSatisfied");
}

#[test]
fn a_dependency_is_checked_at_submission() {
    let slotd = Slotd::start();
    for expression in ["foo:1", "afterok:abc", "afterok", "afterok:", "after:1+x", "singleton:3", "afterok:99999"] {
        let out = slotd.cmd("sbatch", &["-d", expression, "--wrap", "true"]).fails(1);
        assert!(out.stderr.contains("sbatch: error: Batch job submission failed: Job dependency problem"));
        assert!(out.stderr.contains(expression), "{}", out.stderr);
    }
    assert!(slotd.all_records().is_empty());
}

// Arrays.

/// The tasks of a held array, as squeue shows them.
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
fn array_form_stepped_ranges() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["-a", "0-15:4"], "echo $SLURM_ARRAY_TASK_ID");
    let records = slotd.wait_array(id, 4);
    let numbers: Vec<_> = records.iter().filter_map(|r| r.task()).collect();
    assert_eq!(numbers, [0, 4, 8, 12]);
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
fn array_example_multiple_persisted_records_and_at_most_two_at_the_same_time() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["-a", "0-9%2"], "echo task=$SLURM_ARRAY_TASK_ID");
    let records = slotd.wait_array(id, 10);
    assert_eq!(most_at_once(&records), 2);
    for task in 0..10 {
        assert_eq!(slotd.read(&format!("slurm-{id}_{task}.out")), format!("task={task}\n"));
    }
}

#[test]
fn an_array_beyond_all_bounds_is_refused() {
    let slotd = Slotd::start();
    for array in ["abc", "5-1", "1-", "-3", "1-5:0", "0-4000001"] {
        let out = slotd.cmd("sbatch", &[&format!("--array={array}"), "--wrap", "true"]).fails(1);
        let said = "Batch job submission failed: Invalid job array specification";
        assert!(out.stderr.contains(said) && out.stderr.contains(array), "{}", out.stderr);
    }
}

#[test]
fn a_million_tasks_are_submitted_as_one_record() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["-a", "0-999999%2", "--hold"], "true");
    assert_eq!(slotd.records(id).len(), 1);
    assert_eq!(slotd.cmd("squeue", &["-h", "-o", "%i"]).ok().text(), format!("{id}_[0-999999%2]"));
}

// Delayed start.

/// When a job with this `--begin` would start, in seconds since 1970, in New York.
#[track_caller]
fn begins(slotd: &Slotd, begin: &str) -> i64 {
    let mut command = slotd.command("sbatch");
    command.env("TZ", "America/New_York").args(["--parsable", "--hold", "--begin", begin, "--wrap", "true"]);
    let id: u32 = slotd.run(command).ok().text().parse().unwrap();
    slotd.job(id).0["request"]["begin"].as_i64().unwrap() / 1_000_000
}

fn now() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64
}

#[test]
fn begin_epoch_seconds() {
    assert_eq!(begins(&Slotd::start(), "4000000000"), 4_000_000_000);
}

#[test]
fn begin_date() {
    // Midnight in New York's winter is 05:00 UTC.
    assert_eq!(begins(&Slotd::start(), "2090-01-02"), 3_787_016_400);
}

#[test]
fn begin_date_and_time() {
    let slotd = Slotd::start();
    assert_eq!(begins(&slotd, "2090-01-02T03:04:05"), 3_787_016_400 + 3 * 3600 + 4 * 60 + 5);
    // In summer the clock is an hour ahead.
    assert_eq!(begins(&slotd, "2090-07-02T00:00:00"), 3_787_016_400 + 181 * 86_400 - 3600);
}

#[test]
fn begin_now_plus_duration() {
    let slotd = Slotd::start();
    for (begin, secs) in
        [("now+00:10:00", 600), ("now+1hour", 3600), ("now+60", 60), ("now+2days", 172_800), ("now+5minutes", 300)]
    {
        let before = now();
        let at = begins(&slotd, begin);
        assert!((before + secs..=now() + secs).contains(&at), "{begin}: {}", at - before);
    }
}

#[test]
fn begin_in_all_forms_of_slurm() {
    let slotd = Slotd::start();
    for begin in ["16:00", "16:00:30", "4:00PM", "tomorrow", "midnight", "noon", "elevenses", "fika", "teatime"] {
        let at = begins(&slotd, begin);
        assert!((now()..=now() + 2 * 86_400).contains(&at), "{begin}");
    }
    assert_eq!(begins(&slotd, "01/02/90"), 3_787_016_400);
    for begin in ["foo", "1h", "25:00", "2090-13-01"] {
        let out = slotd.cmd("sbatch", &["--begin", begin, "--wrap", "true"]).fails(255);
        assert_eq!(out.stderr, format!("sbatch: error: Invalid --begin specification: {begin}\n"));
    }
}

#[test]
fn delayed_start_example() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["--begin", "now+00:10:00"], "echo delayed");
    slotd.wait_reason(id, "BeginTime");
    // The job remains pending until the begin time, which squeue --start shows.
    let seen = slotd.cmd("squeue", &["--start", "-h", "-o", "%i %t %S %r"]).ok();
    let shown = slotd.show(id, "StartTime");
    assert_eq!(seen.text(), format!("{id} PD {shown} BeginTime"));
}

#[test]
fn a_job_starts_when_its_begin_time_has_come() {
    let slotd = Slotd::start();
    let id = slotd.wrap(&["--begin", "now+1"], "true");
    let job = slotd.wait_state(id, "COMPLETED");
    assert!(job.start() >= job.0["request"]["begin"].as_i64().unwrap());
}
