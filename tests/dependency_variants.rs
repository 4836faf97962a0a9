//! All kinds of dependencies.

use slotd_kit::Slotd;

/// Whether a job with this dependency on a job that exits with `exit` runs. `None`: it never can.
fn runs(slotd: &Slotd, kind: &str, exit: &str) -> Option<()> {
    let gate = format!("go{kind}{}", exit.replace(' ', ""));
    let first = slotd.wrap(&[], &format!("{}; {exit}", slotd.gate(&gate)));
    let second = slotd.wrap(&["-d", &format!("{kind}:{first}")], "true");
    if kind != "after" {
        slotd.wait_reason(second, "Dependency");
    }
    slotd.open(&gate);
    slotd.wait_end(first);
    slotd.wait("a decision", || {
        let job = slotd.queued(second);
        match (job.state().as_str(), job.reason().as_str()) {
            ("COMPLETED", _) => Some(Some(())),
            ("PENDING", "DependencyNeverSatisfied") => Some(None),
            _ => None,
        }
    })
}

#[test]
fn afterok_requires_success() {
    let slotd = Slotd::start();
    assert_eq!(runs(&slotd, "afterok", "exit 0"), Some(()));
    assert_eq!(runs(&slotd, "afterok", "exit 1"), None);
}

#[test]
fn afternotok_requires_failure() {
    let slotd = Slotd::start();
    assert_eq!(runs(&slotd, "afternotok", "exit 0"), None);
    assert_eq!(runs(&slotd, "afternotok", "exit 1"), Some(()));
}

#[test]
fn afterany_requires_the_end() {
    let slotd = Slotd::start();
    assert_eq!(runs(&slotd, "afterany", "exit 0"), Some(()));
    assert_eq!(runs(&slotd, "afterany", "exit 1"), Some(()));
}

#[test]
fn afterburstbuffer_requires_the_end() {
    let slotd = Slotd::start();
    assert_eq!(runs(&slotd, "afterburstbuffer", "exit 0"), Some(()));
    assert_eq!(runs(&slotd, "afterburstbuffer", "exit 1"), Some(()));
}

#[test]
fn after_requires_the_start() {
    let slotd = Slotd::start();
    let blocker = slotd.endless(&["-c", "4"]);
    let first = slotd.wrap(&["-c", "2"], "exec sleep 1000");
    let second = slotd.wrap(&["-d", &format!("after:{first}")], "true");
    slotd.wait_reason(second, "Dependency");
    slotd.cancel(blocker);
    slotd.wait_state(second, "COMPLETED");
    assert_eq!(slotd.state(first), "RUNNING");
}

#[test]
fn after_can_add_minutes() {
    let slotd = Slotd::start();
    let first = slotd.endless(&[]);
    let second = slotd.wrap(&["-d", &format!("after:{first}+60")], "true");
    slotd.wait_reason(second, "Dependency");
    let at_once = slotd.wrap(&["-d", &format!("after:{first}")], "true");
    slotd.wait_state(at_once, "COMPLETED");
    assert_eq!(slotd.state(second), "PENDING");
}

#[test]
fn minutes_have_no_effect_on_other_kinds() {
    let slotd = Slotd::start();
    let first = slotd.wrap(&[], &slotd.gate("go"));
    let failing = slotd.wrap(&[], &format!("{}; exit 1", slotd.gate("go")));
    let expressions = [
        format!("afterok:{first}+60"),
        format!("afterany:{failing}+60"),
        format!("afternotok:{failing}+60"),
        format!("aftercorr:{first}+60"),
        format!("afterburstbuffer:{failing}+60"),
    ];
    let waiting: Vec<u32> = expressions.iter().map(|text| depending(&slotd, text)).collect();
    for (id, text) in waiting.iter().zip(&expressions) {
        slotd.wait_reason(*id, "Dependency");
        assert_eq!(slotd.show(*id, "Dependency"), format!("{text}(unfulfilled)"));
    }
    slotd.open("go");
    waiting.iter().for_each(|id| drop(slotd.wait_state(*id, "COMPLETED")));
}

#[test]
fn several_jobs_can_be_joined_by_colons_or_commas() {
    let slotd = Slotd::start();
    let first = slotd.wrap(&[], &slotd.gate("one"));
    let second = slotd.wrap(&[], &slotd.gate("two"));
    let colon = slotd.wrap(&["-d", &format!("afterok:{first}:{second}")], "true");
    let comma = slotd.wrap(&["-d", &format!("afterok:{first},{second}")], "true");
    slotd.open("one");
    slotd.wait_state(first, "COMPLETED");
    slotd.wait_reason(colon, "Dependency");
    slotd.wait_reason(comma, "Dependency");
    slotd.open("two");
    slotd.wait_state(colon, "COMPLETED");
    slotd.wait_state(comma, "COMPLETED");
}

#[test]
fn question_mark_means_or() {
    let slotd = Slotd::start();
    let good = slotd.wrap(&[], "true");
    let bad = slotd.wrap(&[], "false");
    slotd.wait_end(good);
    slotd.wait_end(bad);
    let either = slotd.wrap(&["-d", &format!("afterok:{bad}?afterok:{good}")], "true");
    slotd.wait_state(either, "COMPLETED");
    let both = slotd.wrap(&["-d", &format!("afterok:{bad},afterok:{good}")], "true");
    slotd.wait_reason(both, "DependencyNeverSatisfied");
}

#[test]
fn singletons_with_the_same_name_run_one_at_a_time() {
    let slotd = Slotd::start();
    let first = slotd.wrap(&["-J", "only"], &slotd.gate("go"));
    let second = slotd.wrap(&["-J", "only", "-d", "singleton"], "true");
    let third = slotd.wrap(&["-J", "only", "-d", "singleton"], "true");
    let other = slotd.wrap(&["-J", "other", "-d", "singleton"], "true");
    slotd.wait_state(other, "COMPLETED");
    slotd.wait_reason(second, "Dependency");
    slotd.wait_reason(third, "Dependency");
    slotd.open("go");
    // Two pending singletons do not block each other.
    let (second, third) =
        (slotd.wait_state(second, "COMPLETED"), slotd.wait_state(third, "COMPLETED"));
    slotd.wait_state(first, "COMPLETED");
    assert!(third.start() >= second.end());
}

#[test]
fn ended_job_satisfies_a_dependency_immediately() {
    let slotd = Slotd::start();
    let first = slotd.wrap(&[], "true");
    slotd.wait_state(first, "COMPLETED");
    for kind in ["after", "afterok", "afterany"] {
        let job = slotd.wrap(&["-d", &format!("{kind}:{first}")], "true");
        slotd.wait_state(job, "COMPLETED");
    }
    let job = slotd.wrap(&["-d", &format!("afternotok:{first}")], "true");
    slotd.wait_reason(job, "DependencyNeverSatisfied");
}

#[test]
fn unsatisfiable_dependency_can_cancel_the_job() {
    let slotd = Slotd::start();
    let bad = slotd.wrap(&[], "false");
    slotd.wait_end(bad);
    let job = slotd.wrap(&["-d", &format!("afterok:{bad}"), "--kill-on-invalid-dep=yes"], "true");
    let ended = slotd.wait_state(job, "CANCELLED");
    assert_eq!(ended.reason(), "DependencyNeverSatisfied");
}

#[test]
fn dependency_on_an_array_waits_for_all_tasks() {
    let slotd = Slotd::start();
    let array = slotd.wrap(
        &["-a", "0-2"],
        &format!("[ $SLURM_ARRAY_TASK_ID = 0 ] || {{ {}; }}", slotd.gate("go")),
    );
    let all = slotd.wrap(&["-d", &format!("afterok:{array}")], "true");
    let one = slotd.wrap(&["-d", &format!("afterok:{array}_0")], "true");
    slotd.wait_state(one, "COMPLETED");
    slotd.wait_reason(all, "Dependency");
    slotd.open("go");
    slotd.wait_state(all, "COMPLETED");
}

#[test]
fn failed_task_fails_afterok_of_its_array() {
    let slotd = Slotd::start();
    let array = slotd.wrap(&["-a", "0-2"], "[ $SLURM_ARRAY_TASK_ID != 1 ]");
    let ok = slotd.wrap(&["-d", &format!("afterok:{array}")], "true");
    let any = slotd.wrap(&["-d", &format!("afterany:{array}")], "true");
    slotd.wait_array(array, 3);
    slotd.wait_state(any, "COMPLETED");
    slotd.wait_reason(ok, "DependencyNeverSatisfied");
}

#[test]
fn aftercorr_applies_task_by_task() {
    let slotd = Slotd::start();
    let gate = slotd.gate("go");
    let first = slotd.wrap(
        &["-a", "1-2", "--mem", "1"],
        &format!("[ $SLURM_ARRAY_TASK_ID = 1 ] || {{ {gate}; }}"),
    );
    let second =
        slotd.wrap(&["-a", "1-2", "--mem", "1", "-d", &format!("aftercorr:{first}")], "true");
    let task = |index: u64| {
        slotd.records(second).into_iter().find(|r| r.task() == Some(index)).map(|r| r.state())
    };
    slotd.wait("the first of the second array", || {
        (task(1).as_deref() == Some("COMPLETED")).then_some(())
    });
    assert_ne!(task(2).as_deref(), Some("COMPLETED"));
    slotd.open("go");
    slotd.wait_array(second, 2);
}

#[test]
fn cancelled_job_does_not_count_as_success() {
    let slotd = Slotd::start();
    let first = slotd.wrap(&["-H"], "true");
    let ok = slotd.wrap(&["-d", &format!("afterok:{first}")], "true");
    let any = slotd.wrap(&["-d", &format!("afterany:{first}")], "true");
    slotd.cancel(first);
    slotd.wait_state(any, "COMPLETED");
    slotd.wait_reason(ok, "DependencyNeverSatisfied");
}

/// Submits two jobs that end when the gate opens, one successfully and one with a failure.
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
    let later =
        [slotd.wrap(&["--hold"], &slotd.gate("go")), slotd.wrap(&["--hold"], &slotd.gate("go"))];
    let [one, two] = later;
    let id = depending(&slotd, &format!("after:{one},{two}"));
    slotd.wait_reason(id, "Dependency");
    slotd.cmd("scontrol", &["release", &one.to_string()]).ok();
    slotd.wait_state(one, "RUNNING");
    slotd.wait_reason(id, "Dependency");
    // The start of a job or its cancellation is enough.
    slotd.cancel(two);
    slotd.wait_state(id, "COMPLETED");
    assert_eq!(slotd.state(one), "RUNNING");
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
fn dependency_jobs_are_separated_by_commas_or_colons() {
    let slotd = Slotd::start();
    let (good, bad) = good_and_bad(&slotd);
    for joint in [',', ':'] {
        let id = slotd.wrap(&["--hold", "-d", &format!("afterany:{good}{joint}{bad}")], "true");
        let shown = format!("afterany:{good}(unfulfilled),afterany:{bad}(unfulfilled)");
        assert_eq!(slotd.show(id, "Dependency"), shown);
        assert_eq!(
            slotd.cmd("squeue", &["-h", "-j", &id.to_string(), "-o", "%E"]).ok().text(),
            shown
        );
    }
}

#[test]
fn question_mark_requires_only_one_dependency() {
    let slotd = Slotd::start();
    let (good, bad) = good_and_bad(&slotd);
    let id = depending(&slotd, &format!("afterok:{bad}?afterok:{good}"));
    slotd.wait_reason(id, "Dependency");
    slotd.open("go");
    slotd.wait_state(id, "COMPLETED");
    // A single `?` applies to all of them.
    let mixed = depending(&slotd, &format!("afterok:{good},afterok:{good}?afterok:{bad}"));
    slotd.wait_state(mixed, "COMPLETED");
}

#[test]
fn after_with_minutes_waits_that_long_after_the_start() {
    let slotd = Slotd::start();
    let first = slotd.endless(&[]);
    let id = depending(&slotd, &format!("after:{first}+5"));
    slotd.wait_reason(id, "Dependency");
    assert_eq!(slotd.show(id, "Dependency"), format!("after:{first}+5(unfulfilled)"));
}

#[test]
fn dependencies_are_checked_at_submission() {
    let slotd = Slotd::start();
    for expression in [
        "foo:1",
        "afterok:abc",
        "afterok",
        "afterok:",
        "after:1+x",
        "after:1+0",
        "singleton:3",
        "afterok:99999",
    ] {
        let out = slotd.cmd("sbatch", &["-d", expression, "--wrap", "true"]).fails(1);
        assert!(
            out.stderr
                .contains("sbatch: error: Batch job submission failed: Job dependency problem")
        );
        assert!(out.stderr.contains(expression), "{}", out.stderr);
    }
    assert!(slotd.all_records().is_empty());
}
