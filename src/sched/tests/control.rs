//! Hold, requeue, suspend, signal.

use super::*;
use slotd_model::query::JobQuery;

#[test]
fn a_held_job_stays_pending_until_it_is_released() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask().held());
    d.plan();
    assert_eq!((d.state(id), d.reason(id)), (JobState::Pending, Reason::JobHeldUser));
    assert_eq!(d.core.view(id, d.now).unwrap().priority, 0);
    d.act(|core, cx| core.release(&JobRef::job(id), cx)).unwrap();
    d.plan();
    assert_eq!(d.state(id), JobState::Running);
    d.act(|core, cx| core.hold(&JobRef::job(id), Hold::User, cx)).unwrap();
    assert_eq!(d.state(id), JobState::Running);
    d.exit(id, 0);
    let hold = d.act(|core, cx| core.hold(&JobRef::job(id), Hold::User, cx));
    assert_eq!(hold.unwrap_err().to_string(), "Job has already finished");
}

#[test]
fn a_hold_of_a_running_or_suspended_job_takes_effect_when_it_is_requeued() {
    for is_suspended in [false, true] {
        let mut d = Double::new(1, 1000, 0);
        let id = d.submit(ask());
        d.plan();
        if is_suspended {
            d.act(|core, cx| core.suspend(&JobRef::job(id), cx)).unwrap();
        }
        let state = d.state(id);
        d.act(|core, cx| core.hold(&JobRef::job(id), Hold::User, cx)).unwrap();
        assert_eq!((d.state(id), d.stops()), (state, Vec::new()));
        assert_eq!(d.core.view(id, d.now).unwrap().priority, 0);
        d.act(|core, cx| core.requeue(&JobRef::job(id), None, &[], cx)).unwrap();
        d.end(id, EndCause::Stopped, ExitCode::signal(15));
        d.plan();
        assert_eq!((d.state(id), d.reason(id)), (JobState::Pending, Reason::JobHeldUser));
        d.act(|core, cx| core.release(&JobRef::job(id), cx)).unwrap();
        d.plan();
        assert_eq!(d.state(id), JobState::Running);
    }
}

#[test]
fn a_gpu_update_sets_count_and_model() {
    let mut d = Double::new(1, 1000, 0);
    let mut host = d.core.config().host.clone();
    host.gpus =
        vec![gpu::Gpu { id: 0, model: Some("nvidia_t4".to_string()), ..gpu::Gpu::default() }];
    let partitions = d.core.config().partitions.clone();
    d.act(|core, cx| core.set_host(host, partitions, cx.now));
    let id = d.submit(ask().held().with(|r| r.gpu.cpus_per_gpu = Some(1)));
    for (count, model) in [(1, Some("t4".to_string())), (0, None)] {
        let gpu = GpuRequest { per_node: Some(count), model, ..GpuRequest::default() };
        d.act(|core, cx| core.update(&JobRef::job(id), &[Update::Gpus(gpu.clone())], &[], cx))
            .unwrap();
        let job = d.core.job(id).unwrap();
        assert_eq!(
            (job.tres.gpus, &job.request.gpu),
            (count, &GpuRequest { cpus_per_gpu: Some(1), ..gpu })
        );
    }
    let gpu =
        GpuRequest { per_node: Some(1), model: Some("none_such".into()), ..GpuRequest::default() };
    let refused = d.act(|core, cx| core.update(&JobRef::job(id), &[Update::Gpus(gpu)], &[], cx));
    let known = vec!["nvidia_t4".to_owned()];
    assert_eq!(
        refused,
        Err(Refusal::UnknownGpuModel { model: "none_such".into(), known }),
        "the model is checked"
    );
}

#[test]
fn top_leaves_a_held_job_held() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask().held());
    let top = d.act(|core, cx| core.top(&JobRef::job(id), cx));
    assert_eq!(top.unwrap_err().to_string(), "Job is in held state, pending scheduler release");
    d.plan();
    assert_eq!((d.state(id), d.reason(id)), (JobState::Pending, Reason::JobHeldUser));
}

#[test]
fn requeue_returns_a_running_or_ended_job_under_its_id() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    let requeue =
        |d: &mut Double, hold| d.act(|core, cx| core.requeue(&JobRef::job(id), hold, &[], cx));
    assert_eq!(requeue(&mut d, None), Err(Refusal::Pending));
    d.plan();
    requeue(&mut d, None).unwrap();
    assert_eq!(d.stops(), [(id, StopCause::Requeue)]);
    d.end(id, EndCause::Stopped, ExitCode::signal(15));
    assert_eq!((d.state(id), d.core.job(id).unwrap().run.restarts), (JobState::Pending, 1));
    d.plan();
    d.exit(id, 0);
    requeue(&mut d, Some(Hold::User)).unwrap();
    d.plan();
    assert_eq!((d.state(id), d.reason(id)), (JobState::Pending, Reason::JobHeldUser));
    assert_eq!(d.core.job(id).unwrap().run.restarts, 2);
    assert_eq!(requeue(&mut d, None).unwrap_err().to_string(), "Job is pending execution");
    let fixed = d.submit(ask().with(|r| r.no_requeue = true));
    d.plan();
    let refused = d.act(|core, cx| core.requeue(&JobRef::job(fixed), None, &[], cx));
    assert_eq!(refused.unwrap_err().to_string(), "Requested operation is presently disabled");
}

#[test]
fn a_requeued_job_leaves_a_record_of_its_run() {
    let mut d = Double::new(2, 1000, 0);
    let id = d.submit(ask().with(|r| r.requeue = true));
    d.plan();
    let first = d.now;
    let StepStart::Now(key, _) =
        d.act(|core, cx| core.create_step(id, step(1), StepAsker::default(), cx)).unwrap()
    else {
        panic!()
    };
    d.act(|core, cx| core.requeue(&JobRef::job(id), None, &[], cx)).unwrap();
    end_step(&mut d, key, ExitCode::signal(15));
    d.end(id, EndCause::Stopped, ExitCode::status(3));
    let (of, run) = d.store.runs.pop().unwrap();
    assert_eq!(
        (of, run.run.restarts, run.requeued, run.run.state),
        (id, 0, true, JobState::Ended(End::Cancelled))
    );
    assert_eq!(
        (run.run.exit, run.run.start, run.run.end),
        (ExitCode::status(3), Some(first), Some(d.now))
    );
    assert_eq!(
        run.steps.iter().map(|step| (step.id, step.exit)).collect::<Vec<_>>(),
        [(key.step, ExitCode::signal(15))]
    );
    let job = d.core.job(id).unwrap();
    assert_eq!(
        (job.run.restarts, job.next_step, job.steps.len()),
        (1, 0, 0),
        "the next run starts from zero"
    );
    let script = own_step(&run.clone().record(job)).unwrap();
    assert_eq!((script.state, script.exit), (JobState::Ended(End::Failed), ExitCode::status(3)));

    d.plan();
    d.exit(id, 0);
    d.act(|core, cx| core.requeue(&JobRef::job(id), None, &[], cx)).unwrap();
    let run = d.store.runs.pop().unwrap().1;
    assert_eq!(
        (run.run.restarts, run.requeued, run.run.state),
        (1, false, JobState::Ended(End::Completed))
    );

    d.plan();
    d.end(id, EndCause::NeverLaunched, ExitCode::OK);
    assert_eq!((d.state(id), d.store.runs.len()), (JobState::Pending, 0), "nothing ran");
}

#[test]
fn an_automatic_rerun_leaves_a_record_of_the_failure() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask().with(|r| r.requeue = true));
    d.plan();
    d.exit(id, 5);
    let run = d.store.runs.pop().unwrap().1;
    assert_eq!(
        (run.run.restarts, run.requeued, run.run.state),
        (0, false, JobState::Ended(End::Failed))
    );
    assert_eq!((run.run.exit, run.run.reason), (ExitCode::status(5), Reason::NonZeroExitCode));
}

#[test]
fn a_job_cancelled_while_being_requeued_does_not_return() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    d.plan();
    d.act(|core, cx| core.requeue(&JobRef::job(id), None, &[], cx)).unwrap();
    d.cancel(&JobRef::job(id)).unwrap();
    d.end(id, EndCause::Stopped, ExitCode::signal(15));
    assert_eq!(d.state(id), JobState::Ended(End::Cancelled));
}

#[test]
fn suspending_a_job_stops_its_clock() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask().limit(100));
    let sel = JobRef::job(id);
    let suspend = |d: &mut Double| d.act(|core, cx| core.suspend(&sel, cx));
    assert_eq!(suspend(&mut d).unwrap_err().to_string(), "Job is pending execution");
    d.plan();
    let start = d.now;
    d.wait(10);
    suspend(&mut d).unwrap();
    d.wait(50);
    d.act(|core, cx| core.resume(&sel, cx)).unwrap();
    assert_eq!(d.core.job(id).unwrap().run.suspended_us, 50_000_000);
    let view = d.core.view(id, d.now).unwrap();
    let batch = view.steps.iter().find(|step| step.id == StepId::Batch).unwrap();
    assert_eq!(view.step_elapsed(batch, d.now).as_secs(), 10);
    let limit =
        Effect::SetTimeLimit { job: id, limit_secs: Some(100), start, suspended_us: 50_000_000 };
    assert_eq!(d.effects[1..], [Effect::Suspend(id), Effect::Resume(id), limit]);
    let end = line::run_times::expected_end(d.core.job(id).unwrap(), None, d.now);
    assert_eq!(end, line::run_times::ExpectedEnd::ByLimit(start.plus_secs(150)));
}

#[test]
fn a_signal_reaches_running_jobs_and_sigkill_cancels() {
    let mut d = Double::new(1, 1000, 0);
    let running = d.submit(ask());
    let pending = d.submit(ask());
    d.plan();
    let signal = |d: &mut Double, id, n| {
        d.act(|core, cx| core.signal(&JobRef::job(id), SignalTarget::Steps, n, 1001, cx))
    };
    signal(&mut d, running, 10).unwrap();
    assert_eq!(
        d.effects.last(),
        Some(&Effect::Signal { job: running, target: SignalTarget::Steps, signal: 10 })
    );
    assert_eq!(
        signal(&mut d, pending, 10).unwrap_err().to_string(),
        "Job can not be altered now, try again later"
    );
    signal(&mut d, pending, 9).unwrap();
    signal(&mut d, running, 9).unwrap();
    assert_eq!(d.state(pending), JobState::Ended(End::Cancelled));
    assert_eq!(d.stops(), [(running, StopCause::Killed { by: 1001 })]);
    for n in [9, 10] {
        assert_eq!(
            signal(&mut d, pending, n).unwrap_err().to_string(),
            "Invalid job id specified",
            "the job has ended"
        );
    }
}

#[test]
fn a_long_queue_is_searched_in_batches() {
    let mut d = Double::new(1, 1000, 0);
    for n in 0..10 {
        d.submit(ask().with(|r| r.name = if n % 3 == 0 { "wanted" } else { "other" }.to_owned()));
    }
    let query = JobQuery { names: vec!["wanted".to_owned()], ..JobQuery::default() };
    for most in [1, 3, 10, 100] {
        let (mut found, mut next) = d.core.records().find_some(&query, None, most);
        while let Some(after) = next {
            let more = d.core.records().find_some(&query, Some(after), most);
            assert!(more.0.len() <= most);
            found.extend(more.0);
            next = more.1;
        }
        assert_eq!(found, d.core.records().find(&query), "{most} at a time");
        assert_eq!(found.len(), 4);
    }
}
