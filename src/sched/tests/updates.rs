//! `scontrol update`.

use super::*;
use slotd_model::batch_tasks::ScriptTasks;
use slotd_model::request::KeptText;

/// Returns the refusal of an unknown partition.
fn unknown(name: &str) -> Refusal {
    Refusal::UnknownPartition {
        name: name.to_owned(),
        known: vec!["cpu".to_owned(), "gpu".to_owned()],
        lacks_gpus: false,
    }
}

#[test]
fn a_new_list_of_partitions_is_applied_as_a_whole() {
    let mut d = Double::new(4, 1000, 2);
    let id = d.submit(ask().held());
    let update = |d: &mut Double, names: &str| {
        let key = [Update::Partition(names.into())];
        d.act(|core, cx| core.update(&JobRef::job(id), &key, &[], cx))
    };
    // The size is that in the first partition, which may add a GPU by default.
    for (names, gpus) in [("gpu,cpu", 1), ("cpu,gpu", 0), ("cpu", 0)] {
        update(&mut d, names).unwrap();
        let job = d.core.job(id).unwrap();
        assert_eq!((job.partition.as_str(), job.tres.gpus), (names, gpus));
        assert_eq!(job.request.partition.as_deref(), Some(names));
    }
    assert_eq!(update(&mut d, "cpu,nope"), Err(unknown("nope")));
}

#[test]
fn a_relative_time_limit_applies_to_each_job() {
    let mut d = Double::new(4, 1000, 0);
    let (limited, endless) =
        (d.submit(ask().with(|r| r.time_limit_secs = Some(600))), d.submit(ask()));
    let update = |d: &mut Double, id, by| {
        let key = [Update::TimeLimitBy(by)];
        d.act(|core, cx| core.update(&JobRef::job(id), &key, &[], cx))
    };
    for (by, secs) in [(60, 660), (-120, 540)] {
        update(&mut d, limited, by).unwrap();
        assert_eq!(d.core.job(limited).unwrap().request.time_limit_secs, Some(secs));
    }
    assert_eq!(update(&mut d, endless, 60), Err(Refusal::NoTimeLimit));
    let refused = Err(Refusal::DecrementTooLarge { by_secs: 6000, limit_secs: 540 });
    assert_eq!(update(&mut d, limited, -6000), refused);
    assert_eq!(d.core.job(limited).unwrap().request.time_limit_secs, Some(540));
    d.plan();
    assert_eq!(update(&mut d, limited, -6000), refused);
    assert_eq!(
        (d.state(limited), d.core.job(limited).unwrap().request.time_limit_secs),
        (JobState::Running, Some(540))
    );
}

#[test]
fn a_new_end_sets_the_time_limit_of_a_running_job() {
    let mut d = Double::new(1, 1000, 0);
    let running = d.submit(ask().limit(3600));
    let pending = d.submit(ask());
    let update = |d: &mut Double, id, end| {
        let key = [Update::EndTime(end)];
        d.act(|core, cx| core.update(&JobRef::job(id), &key, &[], cx))
    };
    let limit = |d: &Double| d.core.job(running).unwrap().request.time_limit_secs;
    d.plan();
    let start = d.now;
    d.wait(10);
    update(&mut d, running, start.plus_secs(610)).unwrap();
    assert_eq!(limit(&d), Some(610));
    // The time of a suspension does not count against the limit.
    d.act(|core, cx| core.suspend(&JobRef::job(running), cx)).unwrap();
    assert_eq!(update(&mut d, running, start.plus_secs(700)), Err(Refusal::NotRunning));
    d.wait(50);
    d.act(|core, cx| core.resume(&JobRef::job(running), cx)).unwrap();
    update(&mut d, running, start.plus_secs(700)).unwrap();
    assert_eq!(limit(&d), Some(650));
    let end = line::run_times::expected_end(d.core.job(running).unwrap(), None, d.now);
    assert_eq!(end, line::run_times::ExpectedEnd::ByLimit(start.plus_secs(700)));

    let ago = start.plus_secs(57);
    assert_eq!(update(&mut d, running, ago), Err(Refusal::EndHasPassed { secs: 3 }));
    assert_eq!(update(&mut d, pending, start.plus_secs(700)), Err(Refusal::NotRunning));
    assert_eq!(limit(&d), Some(650));
    d.end(running, EndCause::Exited, ExitCode::OK);
    let ended = update(&mut d, running, start.plus_secs(700)).unwrap_err();
    assert!(matches!(ended, Refusal::AlreadyFinished | Refusal::UnknownJob));
}

#[test]
fn running_jobs_refuse_keys_for_pending_jobs_but_not_the_time_limit() {
    let mut d = Double::new(1, 1000, 0);
    let running = d.submit(ask());
    let pending = d.submit(ask());
    d.plan();
    let update =
        |d: &mut Double, id, u| d.act(|core, cx| core.update(&JobRef::job(id), &[u], &[], cx));
    for key in [
        Update::Exclusive(true),
        Update::Partition("gpu".into()),
        Update::Priority(0),
        Update::WorkDir("/tmp".into()),
        Update::StdOut("/tmp/x".into()),
        Update::StdErr("/tmp/x".into()),
        Update::StdIn("/tmp/x".into()),
    ] {
        assert_eq!(update(&mut d, running, key), Err(Refusal::NotPending));
    }
    for key in [
        Update::JobName("r".into()),
        Update::Nice(5),
        Update::Priority(5),
        Update::TimeMin(Some(60)),
    ] {
        update(&mut d, running, key).unwrap();
    }
    let kept = &d.store.jobs[&running];
    assert_eq!(
        (kept.request.name.as_str(), kept.request.priority, kept.run.state),
        ("r", Some(5), JobState::Running)
    );
    update(&mut d, running, Update::TimeLimit(Some(600))).unwrap();
    let start = d.now;
    assert_eq!(
        d.effects.last(),
        Some(&Effect::SetTimeLimit { job: running, limit_secs: Some(600), start, suspended_us: 0 })
    );
    update(&mut d, pending, Update::JobName("x".into())).unwrap();
    assert_eq!(d.store.jobs[&pending].request.name, "x");
    assert_eq!(update(&mut d, pending, Update::Partition("no".into())), Err(unknown("no")));
    assert_eq!(
        update(&mut d, pending, Update::NumCpus(99)).unwrap_err().to_string(),
        "Requested partition configuration not available now"
    );
    d.exit(running, 0);
    assert_eq!(update(&mut d, running, Update::TimeLimit(None)), Err(Refusal::AlreadyFinished));
}

#[test]
fn a_changed_priority_changes_the_order_and_zero_holds() {
    let mut d = Double::new(1, 1000, 0);
    d.submit(ask());
    d.plan();
    let (a, b) = (d.submit(ask()), d.submit(ask()));
    let update = |d: &mut Double, id, u| {
        d.act(|core, cx| core.update(&JobRef::job(id), &[u], &[], cx)).unwrap()
    };
    update(&mut d, b, Update::Priority(100));
    assert_eq!(d.core.line.queue().first().map(|key| key.id), Some(b));
    d.act(|core, cx| core.top(&JobRef::job(a), cx)).unwrap();
    assert_eq!(d.core.line.queue().first().map(|key| key.id), Some(a));
    update(&mut d, a, Update::Priority(0));
    assert_eq!(d.reason(a), Reason::JobHeldUser);
    update(&mut d, a, Update::PriorityReset);
    assert_eq!(d.reason(a), Reason::JobHeldUser, "only a release ends a hold");
}

#[test]
fn the_script_of_an_array_changes_only_as_a_whole_before_it_starts() {
    let mut d = Double::new(1, 1000, 0);
    let blocker = d.submit(ask());
    d.plan();
    let array = d.submit(ask().array(0, 2, None));
    let update = |d: &mut Double, named: JobRef, text: String| {
        let key = Update::Script { text, tasks: ScriptTasks::ReadsRank("SLURM_PROCID".into()) };
        d.act(|core, cx| core.update(&named, &[key], &[], cx))
    };
    let whole = JobRef::job(array);
    let one = JobRef { tasks: Some(TaskSet::one(1)), ..whole.clone() };
    assert_eq!(update(&mut d, one, "new".into()), Err(Refusal::ScriptOfArray));
    assert!(matches!(
        update(&mut d, whole.clone(), "x".repeat(5 << 20)),
        Err(Refusal::TooLong { .. })
    ));
    assert_eq!(update(&mut d, JobRef::job(blocker), "new".into()), Err(Refusal::NotPending));
    update(&mut d, whole.clone(), "new".into()).unwrap();
    let tells = |d: &Double| d.core.job(array).unwrap().request.script_tasks.clone();
    assert_eq!(tells(&d), ScriptTasks::ReadsRank("SLURM_PROCID".into()));
    d.exit(blocker, 0);
    d.plan();
    assert_eq!(update(&mut d, whole, "late".into()), Err(Refusal::ScriptOfArray));
}

#[test]
fn a_changed_dependency_is_checked_and_waited_for() {
    let mut d = Double::new(1, 1000, 0);
    let running = d.submit(ask());
    d.plan();
    let id = d.submit(ask());
    let update = |d: &mut Double, terms| {
        let key = Update::Dependency(Dependency { terms, any: false });
        d.act(|core, cx| core.update(&JobRef::job(id), &[key], &[], cx))
    };
    assert!(matches!(
        update(&mut d, vec![on(AfterOk, JobId(99))]),
        Err(Refusal::UnknownDependency(_) | Refusal::DependsOnItself(_))
    ));
    assert!(matches!(
        update(&mut d, vec![on(AfterOk, id)]),
        Err(Refusal::UnknownDependency(_) | Refusal::DependsOnItself(_))
    ));
    update(&mut d, vec![on(AfterOk, running)]).unwrap();
    assert_eq!(d.reason(id), Reason::Dependency);
    update(&mut d, Vec::new()).unwrap();
    assert_eq!(d.reason(id), Reason::Resources);
}

#[test]
fn changed_texts_have_the_same_length_limits_as_submitted_ones() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    for (what, max, key) in [
        ("name", 1024, Update::JobName as fn(String) -> Update),
        ("comment", 1024, |text| Update::Text(KeptText::Comment, text)),
        ("std_out", 4096, Update::StdOut),
        ("work_dir", 4096, Update::WorkDir),
    ] {
        let update = |d: &mut Double, len| {
            d.act(|core, cx| core.update(&JobRef::job(id), &[key("x".repeat(len))], &[], cx))
        };
        assert_eq!(update(&mut d, max), Ok(vec![id]));
        assert_eq!(
            update(&mut d, max + 1),
            Err(Refusal::TooLong { what: what.to_owned(), len: max + 1, max })
        );
    }
}

#[test]
fn a_minimum_time_above_the_time_limit_is_refused() {
    let mut d = Double::new(1, 1000, 0);
    let update = |d: &mut Double, id, key: Update| {
        d.act(|core, cx| core.update(&JobRef::job(id), &[key], &[], cx)).map(|_| ())
    };
    let with_min = |secs| ask().limit(600).with(|r| r.time_min_secs = Some(secs));
    assert_eq!(d.try_submit(with_min(660)), Err(Refusal::TimeMin));
    let held = d.submit(with_min(600).with(|r| r.hold = true));
    assert_eq!(update(&mut d, held, Update::TimeMin(Some(660))), Err(Refusal::TimeMin));
    assert_eq!(update(&mut d, held, Update::TimeMin(Some(300))), Ok(()));
    assert_eq!(update(&mut d, held, Update::TimeLimit(Some(240))), Err(Refusal::TimeMin));
    d.submit(ask().with(|r| r.time_min_secs = Some(660)));
}
