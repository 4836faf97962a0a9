//! Dependencies and singletons.

use super::*;

#[test]
fn each_kind_of_dependency_waits_for_its_condition() {
    for (kind, status, is_met) in [
        (AfterOk, 0, true),
        (AfterOk, 1, false),
        (AfterNotOk, 0, false),
        (AfterNotOk, 1, true),
        (AfterAny, 0, true),
        (AfterAny, 1, true),
        (After, 0, true),
        (After, 1, true),
        (AfterCorr, 0, true),
        (AfterCorr, 1, false),
    ] {
        let mut d = Double::new(2, 1000, 0);
        let first = d.submit(ask());
        let second = d.submit(ask().after(kind, first));
        assert_eq!(d.reason(second), Reason::Dependency);
        let text = d.core.view(second, d.now).unwrap().dependency;
        assert_eq!(text, format!("{}:{first}(unfulfilled)", kind.name()));
        d.plan();
        d.plan();
        assert_eq!(d.state(second) == JobState::Running, kind == After, "{kind:?} while it runs");
        d.exit(first, status);
        if is_met {
            assert_eq!(d.state(second), JobState::Running, "{kind:?} after exit {status}");
        } else {
            assert_eq!(
                d.reason(second),
                Reason::DependencyNeverSatisfied,
                "{kind:?} after exit {status}"
            );
            assert_eq!(
                d.core.view(second, d.now).unwrap().dependency,
                format!("{}:{first}(failed)", kind.name())
            );
        }
    }
}

#[test]
fn after_with_minutes_counts_from_the_start() {
    let mut d = Double::new(2, 1000, 0);
    let first = d.submit(ask());
    let term = DependencyTerm::On { kind: After, job: JobRef::job(first), delay_minutes: 5 };
    let second = d.submit(ask().dependency(Dependency { terms: vec![term], any: false }));
    d.plan();
    d.wait(100);
    assert_eq!(d.state(second), JobState::Pending);
    assert_eq!(d.core.next_due(), Some(Timestamp::from_secs(T0 + 300)));
    d.wait(200);
    assert_eq!(d.state(second), JobState::Running);
}

#[test]
fn a_cancelled_job_counts_as_started_and_as_failed() {
    let mut d = Double::new(2, 1000, 0);
    let first = d.submit(ask().held());
    let after = d.submit(ask().after(After, first));
    let ok = d.submit(ask().after(AfterOk, first));
    d.cancel(&JobRef::job(first)).unwrap();
    d.plan();
    assert_eq!(
        (d.state(after), d.reason(ok)),
        (JobState::Running, Reason::DependencyNeverSatisfied)
    );
}

#[test]
fn all_terms_must_be_met_or_one_with_a_question_mark() {
    let mut d = Double::new(4, 1000, 0);
    let (good, bad) = (d.submit(ask()), d.submit(ask()));
    let terms = vec![on(AfterOk, good), on(AfterOk, bad)];
    let all = d.submit(ask().dependency(Dependency { terms: terms.clone(), any: false }));
    let any = d.submit(ask().dependency(Dependency { terms, any: true }));
    d.plan();
    d.exit(bad, 1);
    assert_eq!(
        (d.reason(all), d.reason(any)),
        (Reason::DependencyNeverSatisfied, Reason::Dependency)
    );
    d.exit(good, 0);
    assert_eq!((d.state(all), d.state(any)), (JobState::Pending, JobState::Running));
}

#[test]
fn kill_on_invalid_dep_cancels_a_whole_chain() {
    let mut d = Double::new(1, 1000, 0);
    let mut last = d.submit(ask());
    let first = last;
    for _ in 0..2000 {
        last = d.submit(ask().after(AfterOk, last).with(|r| r.kill_on_invalid_dep = Some(true)));
    }
    d.plan();
    d.exit(first, 1);
    assert_eq!(
        (d.state(last), d.reason(last)),
        (JobState::Ended(End::Cancelled), Reason::DependencyNeverSatisfied)
    );
}

#[test]
fn a_dependency_on_an_unknown_job_is_refused_and_names_it() {
    let mut d = Double::new(1, 1000, 0);
    assert_eq!(
        refusal(&mut d, ask().after(AfterOk, JobId(99))),
        [
            "no job 99 for dependency afterok:99",
            "Batch job submission failed: Job dependency problem"
        ]
    );
    assert_eq!(d.core.next_id(), JobId(1));
}

#[test]
fn a_job_can_depend_on_one_that_has_left_the_memory() {
    let mut d = Double::new(4, 1000, 0);
    let fact = |id, ok| EndedJob { id: JobId(id), array: None, ok, start: None, ended: d.now };
    let ended = vec![fact(70, true), fact(71, false)];
    let mut submit = |kind, id| {
        let request = ask().after(kind, JobId(id)).0;
        let s = Submission { request, ended: ended.clone(), ..Submission::default() };
        d.act(|core, cx| core.submit(s, cx)).unwrap()
    };
    let ids =
        [submit(AfterOk, 70), submit(AfterOk, 71), submit(AfterAny, 71), submit(AfterNotOk, 71)];
    d.plan();
    assert_eq!(ids.map(|id| d.state(id) == JobState::Running), [true, false, true, true]);
    assert_eq!(d.reason(ids[1]), Reason::DependencyNeverSatisfied);
}

#[test]
fn an_array_id_means_all_its_tasks() {
    let mut d = Double::new(1, 1000, 0);
    let array = d.submit(ask().array(1, 3, None));
    let ok = d.submit(ask().after(AfterOk, array));
    let any = d.submit(ask().after(AfterAny, array));
    let one = d.submit(ask().dependency(Dependency {
        terms: vec![DependencyTerm::On {
            kind: AfterOk,
            job: tasks_of(array, &[1]),
            delay_minutes: 0,
        }],
        any: false,
    }));
    assert_eq!(d.core.view(ok, d.now).unwrap().dependency, "afterok:1_*(unfulfilled)");
    d.plan();
    let first = d.started();
    d.exit(first[0], 0);
    assert_ne!(d.reason(one), Reason::Dependency);
    assert_eq!((d.reason(ok), d.reason(any)), (Reason::Dependency, Reason::Dependency));
    // All tasks end well except the last one.
    while let [id] = d.started()[..] {
        let is_last = d.label(id) == "1_3";
        d.exit(id, i32::from(is_last));
    }
    assert_eq!(
        (d.reason(ok), d.state(any)),
        (Reason::DependencyNeverSatisfied, JobState::Ended(End::Completed))
    );
}

#[test]
fn aftercorr_waits_for_the_task_of_the_same_number() {
    let mut d = Double::new(3, 1000, 0);
    let first = d.submit(ask().array(1, 3, None));
    let second = d.submit(ask().array(1, 3, None).after(AfterCorr, first));
    d.plan();
    let tasks = d.started();
    assert_eq!(d.reason(second), Reason::Dependency);
    d.exit(tasks[1], 0);
    let started = d.started();
    assert_eq!(d.labels(&started), [format!("{second}_2")]);
    d.exit(tasks[0], 1);
    assert_eq!(d.reason(second), Reason::Dependency);
    d.exit(tasks[2], 0);
    let started = d.started();
    assert_eq!(d.labels(&started), [format!("{second}_3")]);
    assert_eq!(
        (d.label(second), d.reason(second)),
        (format!("{second}_1"), Reason::DependencyNeverSatisfied)
    );
}

#[test]
fn a_task_without_a_counterpart_waits_for_the_whole_array() {
    for (status, expected) in [
        (0, (Reason::None, JobState::Running)),
        (1, (Reason::DependencyNeverSatisfied, JobState::Pending)),
    ] {
        let mut d = Double::new(8, 1000, 0);
        let first = d.submit(ask().array(1, 2, None));
        let second = d.submit(ask().array(1, 3, None).after(AfterCorr, first));
        let own = d.submit(ask().array(7, 8, None).after(AfterCorr, first));
        let own = d.act(|core, cx| core.hold(&tasks_of(own, &[8]), Hold::User, cx)).unwrap()[0];
        d.act(|core, cx| core.release(&JobRef::job(own), cx)).unwrap();
        d.plan();
        let tasks = d.started();
        d.exit(tasks[0], 0);
        assert_eq!((d.started().len(), d.reason(second)), (1, Reason::Dependency));
        assert_eq!(d.reason(own), Reason::Dependency);
        d.exit(tasks[1], status);
        d.plan();
        assert_eq!((d.reason(own), d.state(own)), expected, "{status}");
        // The other tasks of `own` and `second`.
        assert_eq!(d.started().len(), if status == 0 { 4 } else { 0 });
        assert!(status == 0 || d.reason(second) == Reason::DependencyNeverSatisfied);
    }
}

#[test]
fn a_forgotten_array_still_counts_beside_another_one() {
    let mut d = Double::with(|config| config.min_job_age_secs = 1);
    let forgotten = d.submit(ask().array(1, 2, None));
    d.plan();
    for task in d.started() {
        d.exit(task, 0);
    }
    d.wait(10);
    assert_eq!(d.core.records().len(), 0);
    let first = d.submit(ask().array(1, 2, None));
    let terms = [forgotten, first].map(|target| DependencyTerm::On {
        kind: AfterCorr,
        job: JobRef::job(target),
        delay_minutes: 0,
    });
    let both = Dependency { terms: terms.to_vec(), any: false };
    let second = d.submit(ask().array(1, 2, None).dependency(both));
    let own = d.act(|core, cx| core.hold(&tasks_of(second, &[2]), Hold::User, cx)).unwrap()[0];
    d.act(|core, cx| core.release(&JobRef::job(own), cx)).unwrap();
    d.plan();
    let tasks = d.started();
    assert_eq!(
        (tasks.len(), d.reason(second), d.reason(own)),
        (2, Reason::Dependency, Reason::Dependency)
    );
    for task in tasks {
        d.exit(task, 0);
    }
    assert_eq!(d.started().len(), 2);
}

#[test]
fn a_task_split_off_an_aftercorr_array_still_waits_for_its_counterpart() {
    let mut d = Double::new(4, 1000, 0);
    let first = d.submit(ask().array(1, 2, None));
    let second = d.submit(ask().array(1, 2, None).after(AfterCorr, first));
    let own = d.act(|core, cx| core.hold(&tasks_of(second, &[2]), Hold::User, cx)).unwrap()[0];
    d.act(|core, cx| core.release(&tasks_of(second, &[2]), cx)).unwrap();
    d.plan();
    let tasks = d.started();
    assert_eq!((tasks.len(), d.reason(own)), (2, Reason::Dependency));
    d.exit(tasks[1], 0);
    assert_eq!(d.state(own), JobState::Running);
}

#[test]
fn an_aftercorr_array_is_reevaluated_when_a_ready_task_leaves_it() {
    let mut d = Double::new(1, 1000, 0);
    let first = d.submit(ask().array(0, 1, None));
    d.plan();
    let task = d.started();
    d.exit(task[0], 1);
    let task = d.started();
    d.exit(task[0], 0);
    d.submit(ask());
    d.plan();
    let second = d.submit(ask().array(0, 1, None).after(AfterCorr, first));
    assert_eq!(d.reason(second), Reason::Resources);
    d.act(|core, cx| core.hold(&tasks_of(second, &[1]), Hold::User, cx)).unwrap();
    assert_eq!(d.reason(second), Reason::DependencyNeverSatisfied);
    assert!(d.core.line.queue().first().is_none());
}

#[test]
fn tasks_that_can_never_start_are_cancelled_as_one_record() {
    let mut d = Double::new(2, 1000, 0);
    let first = d.submit(ask().array(0, 1, None));
    let kill = |ask: Ask| ask.with(|r| r.kill_on_invalid_dep = Some(true));
    let second = d.submit(kill(ask().array(0, 20_000, None).after(AfterCorr, first)));
    d.plan();
    let tasks = d.started();
    d.exit(tasks[1], 1);
    let cancelled: Vec<JobId> = d
        .core
        .jobs()
        .filter(|job| job.run.state == JobState::Ended(End::Cancelled))
        .map(|job| job.id)
        .collect();
    assert_eq!(d.labels(&cancelled), [format!("{second}_[1-20000]")]);
    assert_eq!(d.reason(cancelled[0]), Reason::DependencyNeverSatisfied);
    assert_eq!((d.label(second), d.reason(second)), (format!("{second}_[0]"), Reason::Dependency));
}

#[test]
fn two_queued_singletons_never_block_each_other_and_run_one_after_the_other() {
    let mut d = Double::new(4, 1000, 0);
    let ids: Vec<JobId> = (0..3).map(|_| d.submit(ask().name("one").singleton())).collect();
    let other = d.submit(ask().name("two").singleton());
    d.plan();
    assert_eq!(d.started(), [ids[0], other]);
    assert_eq!(d.core.view(ids[1], d.now).unwrap().dependency, "singleton(unfulfilled)");
    d.exit(ids[0], 0);
    assert_eq!(d.started(), [ids[1]]);
    d.cancel(&JobRef::job(ids[1])).unwrap();
    d.end(ids[1], EndCause::Stopped, ExitCode::OK);
    d.plan();
    assert_eq!(d.started(), [ids[2]]);
}

#[test]
fn a_job_cancelled_before_it_began_waits_for_its_dependency_when_requeued() {
    let requeue = |d: &mut Double, id, ended: &[EndedJob]| {
        d.act(|core, cx| core.requeue(&JobRef::job(id), None, ended, cx)).unwrap();
        d.plan();
    };
    let mut d = Double::with(|config| config.min_job_age_secs = 1);
    let target = d.submit(ask());
    let [any, ok] = [AfterAny, AfterOk].map(|kind| d.submit(ask().after(kind, target)));
    d.plan();
    for id in [any, ok] {
        d.cancel(&JobRef::job(id)).unwrap();
        requeue(&mut d, id, &[]);
        assert_eq!((d.state(id), d.reason(id)), (JobState::Pending, Reason::Dependency));
    }
    d.exit(target, 1);
    assert_eq!((d.state(any), d.reason(ok)), (JobState::Running, Reason::DependencyNeverSatisfied));
    // Only the store knows a target that has left the memory.
    d.exit(any, 0);
    d.wait(10);
    assert!(d.core.job(target).is_none());
    for (is_ok, state) in [(false, JobState::Pending), (true, JobState::Running)] {
        d.cancel(&JobRef::job(ok)).unwrap();
        let fact = EndedJob { id: target, array: None, ok: is_ok, start: None, ended: d.now };
        requeue(&mut d, ok, &[fact]);
        assert_eq!(d.state(ok), state);
    }
    // Once it has begun, the dependency does not matter any more.
    requeue(&mut d, ok, &[]);
    d.end(ok, EndCause::Stopped, ExitCode::OK);
    d.plan();
    assert_eq!(d.state(ok), JobState::Running);
}

#[test]
fn a_requeued_singleton_goes_before_a_started_array_of_its_name() {
    let mut d = Double::new(2, 1000, 0);
    let first = d.submit(ask().name("one").singleton());
    let array = d.submit(ask().name("one").singleton().cpus(2).array(0, 1, None));
    d.plan();
    d.exit(first, 0);
    let [task] = d.started()[1..] else { panic!("{:?}", d.started()) };
    d.act(|core, cx| core.requeue(&JobRef::job(first), None, &[], cx)).unwrap();
    d.plan();
    for waiting in [first, array] {
        assert_eq!((d.state(waiting), d.reason(waiting)), (JobState::Pending, Reason::Dependency));
    }
    d.exit(task, 0);
    assert_eq!(d.state(first), JobState::Running);
    d.exit(first, 0);
    assert_eq!(d.core.jobs().filter(|job| job.run.state == JobState::Running).count(), 1);
}

#[test]
fn a_singleton_starts_when_the_job_ahead_of_it_is_renamed() {
    let mut d = Double::new(4, 1000, 0);
    let first = d.submit(ask().name("one").held());
    let second = d.submit(ask().name("one").singleton());
    d.plan();
    assert_eq!(d.reason(second), Reason::Dependency);
    d.act(|core, cx| core.update(&JobRef::job(first), &[Update::JobName("x".into())], &[], cx))
        .unwrap();
    d.plan();
    assert_eq!(d.state(second), JobState::Running);
}

#[test]
fn one_counterpart_is_enough_with_a_question_mark() {
    let mut d = Double::new(4, 1000, 0);
    let (bad, open) = (d.submit(ask().array(0, 1, None)), d.submit(ask().array(0, 1, None).held()));
    let either = |d: &mut Double, kinds: [DependencyKind; 2]| {
        let terms = vec![on(kinds[0], bad), on(kinds[1], open)];
        let ask = ask().array(0, 1, None).dependency(Dependency { terms, any: true });
        d.submit(ask.with(|r| r.kill_on_invalid_dep = Some(true)))
    };
    let waiting = [either(&mut d, [AfterCorr, AfterCorr]), either(&mut d, [AfterCorr, AfterOk])];
    d.plan();
    d.started().into_iter().for_each(|id| d.exit(id, 1));
    for id in waiting {
        assert_eq!((d.state(id), d.reason(id)), (JobState::Pending, Reason::Dependency));
    }
    d.act(|core, cx| core.release(&JobRef::job(open), cx)).unwrap();
    d.plan();
    d.started().into_iter().for_each(|id| d.exit(id, 0));
    assert_eq!(d.started().len(), 4);
}

#[test]
fn circular_dependencies_are_refused() {
    let mut d = Double::new(4, 1000, 0);
    let first = d.submit(ask().held());
    let second = d.submit(ask().array(0, 1, None).after(AfterOk, first));
    let third = d.submit(ask().after(AfterAny, second));
    let key =
        |target| Update::Dependency(Dependency { terms: vec![on(AfterOk, target)], any: false });
    for (target, between) in [(third, second), (second, second)] {
        let done = d.act(|core, cx| core.update(&JobRef::job(first), &[key(target)], &[], cx));
        assert_eq!(done.err(), Some(Refusal::CircularDependency(between)));
    }
    d.act(|core, cx| core.update(&JobRef::job(third), &[key(first)], &[], cx)).unwrap();
}
