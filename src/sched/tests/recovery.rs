//! Changes of the host, views, and the state after a restart.

use super::*;

#[test]
fn a_shrinking_host_leaves_running_jobs_alone_and_blocks_pending_ones() {
    let mut d = Double::new(2, 1000, 2);
    let running = d.submit(ask().gpus(1));
    d.plan();
    let large = d.submit(ask().gpus(2));
    let mut smaller = d.core.config().host.clone();
    smaller.gpus.truncate(1);
    let partitions = d.core.config().partitions.clone();
    d.act(|core, cx| core.set_host(smaller, partitions, cx.now));
    d.plan();
    assert_eq!((d.state(running), d.reason(large)), (JobState::Running, Reason::BadConstraints));
}

#[test]
fn the_script_of_a_cancelled_job_is_shown_as_a_cancelled_step() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    d.plan();
    d.cancel(&JobRef::job(id)).unwrap();
    d.end(id, EndCause::Stopped, ExitCode::signal(15));
    let step = own_step(d.core.job(id).unwrap()).unwrap();
    assert_eq!(
        (step.id, step.state, step.exit),
        (StepId::Batch, JobState::Ended(End::Cancelled), ExitCode::signal(15))
    );
}

#[test]
fn a_process_that_catches_the_signal_fails_with_its_exit_code() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    d.plan();
    let request = StepRequest { overlap: true, ..step(1) };
    let StepStart::Now(catches, _) = create(&mut d, id, request.clone(), 7).unwrap() else {
        panic!()
    };
    let StepStart::Now(dies, _) = create(&mut d, id, request, 7).unwrap() else { panic!() };
    d.cancel(&JobRef::job(id)).unwrap();
    end_step(&mut d, catches, ExitCode::status(3));
    end_step(&mut d, dies, ExitCode::signal(15));
    d.end(id, EndCause::Stopped, ExitCode::status(9));
    let job = d.core.job(id).unwrap();
    assert_eq!(
        job.run.derived_exit,
        ExitCode::OK,
        "steps that end while the job is being stopped do not count"
    );
    let steps: Vec<_> = own_step(job)
        .into_iter()
        .chain(job.steps.iter().cloned())
        .map(|s| (s.state, s.exit))
        .collect();
    assert_eq!(job.run.state, JobState::Ended(End::Cancelled));
    assert_eq!(
        steps,
        [
            (JobState::Ended(End::Failed), ExitCode::status(9)),
            (JobState::Ended(End::Failed), ExitCode::status(3)),
            (JobState::Ended(End::Cancelled), ExitCode::signal(15)),
        ]
    );
}

#[test]
fn a_script_that_catches_the_signal_and_ends_well_is_completed() {
    for (cause, exit, expected) in [
        (EndCause::Stopped, ExitCode::OK, (JobState::Ended(End::Completed), ExitCode::OK)),
        (
            EndCause::NeverLaunched,
            ExitCode::OK,
            (JobState::Ended(End::Cancelled), ExitCode::signal(15)),
        ),
        (
            EndCause::RunnerLost,
            ExitCode::OK,
            (JobState::Ended(End::Cancelled), ExitCode::signal(15)),
        ),
    ] {
        let mut d = Double::new(1, 1000, 0);
        let id = d.submit(ask());
        d.plan();
        d.cancel(&JobRef::job(id)).unwrap();
        d.end(id, cause, exit);
        let job = d.core.job(id).unwrap();
        assert_eq!(job.run.state, JobState::Ended(End::Cancelled), "{cause:?}");
        let script = own_step(job).unwrap();
        assert_eq!((script.state, script.exit), expected, "{cause:?}");
    }
}

#[test]
fn partitions_count_running_jobs_and_pending_tasks() {
    let mut d = Double::new(1, 1000, 1);
    d.submit(ask());
    d.submit(ask().array(0, 99, None));
    d.submit(ask().with(|r| r.partition = Some("gpu".into())));
    d.plan();
    let loads: Vec<(u64, u64)> =
        d.core.partition_loads().iter().map(|l| (l.running, l.pending)).collect();
    assert_eq!(loads, [(1, 100), (0, 1)]);
}

#[test]
fn jobs_keep_their_resources_and_dependencies_across_a_restart() {
    let mut d = Double::new(2, 1000, 1);
    let running = d.submit(ask().gpus(1));
    let ok = d.submit(ask().after(AfterOk, running));
    let array = d.submit(ask().array(0, 9, Some(1)));
    d.plan();
    let jobs: Vec<Job> = d.store.jobs.values().cloned().collect();
    let next = d.core.next_id();
    let mut core = Core::recover(d.core.config().clone(), jobs, Vec::new(), next, d.now);
    core.check_invariants().unwrap();
    assert_eq!(core.resources().allocated(), d.core.resources().allocated());
    assert_eq!(
        [ok, array].map(|id| core.reason(id, d.now)),
        [Reason::Dependency, Reason::JobArrayTaskLimit]
    );
    let mut cx = Cx::at(d.now);
    core.plan(&mut cx);
    assert!(
        cx.out.changes.is_empty() && cx.out.effects.is_empty(),
        "nothing runs twice: {:?}",
        cx.out
    );
    core.on_job_ended(running, ExitRecord::gone(ExitCode::OK, d.now), EndCause::Exited, &mut cx);
    core.plan(&mut cx);
    assert_eq!(core.job(ok).unwrap().run.state, JobState::Running);
}

#[test]
fn unfinished_stops_are_known_after_a_restart() {
    let mut d = Double::new(4, 1000, 0);
    let ids: Vec<JobId> = (0..4).map(|_| d.submit(ask())).collect();
    d.plan();
    d.cancel(&JobRef::job(ids[0])).unwrap();
    d.act(|core, cx| core.requeue(&JobRef::job(ids[1]), None, &[], cx)).unwrap();
    d.act(|core, cx| core.client_lost(ids[2], cx));
    let jobs: Vec<Job> = d.store.jobs.values().cloned().collect();
    let core = Core::recover(d.core.config().clone(), jobs, Vec::new(), d.core.next_id(), d.now);
    assert_eq!(
        core.records().unfinished_stops(),
        [
            (ids[0], StopCause::Cancelled { by: 1001 }),
            (ids[1], StopCause::Requeue),
            (ids[2], StopCause::ClientLost)
        ]
    );
}

#[test]
fn an_array_needs_valid_tasks_and_a_batch_job() {
    let mut d = Double::new(1, 1000, 0);
    let is_invalid =
        |d: &mut Double, ask: Ask| matches!(d.try_submit(ask), Err(Refusal::ArrayTooLarge { .. }));
    assert!(is_invalid(&mut d, ask().array(0, 5_000_000, None)));
    assert!(is_invalid(&mut d, ask().array(0, 5, None).allocation()));
    let empty = ask().with(|r| r.array = Some(ArraySpec { tasks: TaskSet::new(), limit: None }));
    assert!(is_invalid(&mut d, empty));
}
