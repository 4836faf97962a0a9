//! How jobs end.

use super::*;

#[test]
fn exit_codes_and_causes_determine_the_final_state() {
    use EndCause::*;
    let ended = |cause, exit| {
        let mut d = Double::new(1, 1000, 0);
        let id = d.submit(ask());
        d.plan();
        d.end(id, cause, exit);
        let job = d.core.job(id).unwrap().clone();
        assert_eq!(d.store.jobs[&id], job, "the end is stored");
        (job.run.state, job.run.reason)
    };
    assert_eq!(ended(Exited, ExitCode::OK), (JobState::Ended(End::Completed), Reason::None));
    assert_eq!(
        ended(Exited, ExitCode::status(3)),
        (JobState::Ended(End::Failed), Reason::NonZeroExitCode)
    );
    assert_eq!(
        ended(Exited, ExitCode::signal(9)),
        (JobState::Ended(End::Failed), Reason::RaisedSignal)
    );
    assert_eq!(
        ended(TimeLimit, ExitCode::signal(15)),
        (JobState::Ended(End::Timeout), Reason::TimeLimit)
    );
    assert_eq!(
        ended(OutOfMemory, ExitCode::signal(9)),
        (JobState::Ended(End::OutOfMemory), Reason::OutOfMemory)
    );
    assert_eq!(
        ended(LaunchFailed, ExitCode::LAUNCH_FAILED),
        (JobState::Ended(End::Failed), Reason::JobLaunchFailure)
    );
    assert_eq!(ended(RunnerLost, ExitCode::OK), (JobState::Ended(End::Failed), Reason::RunnerLost));
}

#[test]
fn a_terminal_state_is_never_overwritten() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    d.plan();
    d.end(id, EndCause::TimeLimit, ExitCode::signal(15));
    d.end(id, EndCause::Exited, ExitCode::OK);
    assert_eq!(d.cancel(&JobRef::job(id)), Err(Refusal::AlreadyDone));
    assert_eq!(d.state(id), JobState::Ended(End::Timeout));
}

#[test]
fn a_failed_job_is_requeued_once_and_a_completed_or_cancelled_one_never() {
    for (cause, exit) in [
        (EndCause::Exited, ExitCode::status(1)),
        (EndCause::TimeLimit, ExitCode::signal(15)),
        (EndCause::OutOfMemory, ExitCode::signal(9)),
    ] {
        let mut d = Double::new(1, 1000, 0);
        let id = d.submit(ask().with(|r| r.requeue = true));
        d.plan();
        d.end(id, cause, exit);
        assert_eq!((d.state(id), d.core.job(id).unwrap().run.restarts), (JobState::Pending, 1));
        d.plan();
        let Some(Effect::Launch(launch)) = d.effects.last() else { panic!("{:?}", d.effects) };
        assert_eq!(launch.run.restarts, 1);
        d.end(id, cause, exit);
        assert!(d.state(id).is_terminal());
    }
    let mut d = Double::new(2, 1000, 0);
    let good = d.submit(ask().with(|r| r.requeue = true));
    let cancelled = d.submit(ask().with(|r| r.requeue = true));
    d.plan();
    d.end(good, EndCause::Exited, ExitCode::OK);
    d.cancel(&JobRef::job(cancelled)).unwrap();
    d.end(cancelled, EndCause::Stopped, ExitCode::signal(15));
    assert_eq!(
        (d.state(good), d.state(cancelled)),
        (JobState::Ended(End::Completed), JobState::Ended(End::Cancelled))
    );
}

#[test]
fn a_job_that_was_never_launched_is_pending_again_without_a_restart() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    d.plan();
    d.end(id, EndCause::NeverLaunched, ExitCode::OK);
    let job = d.core.job(id).unwrap();
    assert_eq!(
        (job.run.state, job.run.restarts, job.run.start, &job.run.alloc),
        (JobState::Pending, 0, None, &None)
    );
    d.plan();
    assert_eq!(d.started(), [id, id]);
}

#[test]
fn cancelling_goes_through_completing_and_records_the_user() {
    let mut d = Double::new(1, 1000, 0);
    let running = d.submit(ask());
    let pending = d.submit(ask());
    d.plan();
    d.cancel(&JobRef::job(pending)).unwrap();
    d.cancel(&JobRef::job(running)).unwrap();
    assert_eq!(
        (d.state(pending), d.reason(pending)),
        (JobState::Ended(End::Cancelled), Reason::CancelledByUser)
    );
    assert_eq!(d.state(running), JobState::Completing);
    assert_eq!(d.stops(), [(running, StopCause::Cancelled { by: 1001 })]);
    assert_eq!(d.cancel(&JobRef::job(running)), Err(Refusal::AlreadyDone));
    d.end(running, EndCause::Stopped, ExitCode::signal(15));
    let job = d.core.job(running).unwrap();
    assert_eq!(
        (job.run.state, job.run.cancelled_by, job.run.exit),
        (JobState::Ended(End::Cancelled), Some(1001), ExitCode::signal(15))
    );
    assert_eq!(d.cancel(&JobRef::job(JobId(99))), Err(Refusal::UnknownJob));
}

#[test]
fn a_cancelled_job_that_ran_out_of_memory_is_out_of_memory() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    d.plan();
    d.cancel(&JobRef::job(id)).unwrap();
    d.end(id, EndCause::OutOfMemory, ExitCode::signal(9));
    assert_eq!(d.state(id), JobState::Ended(End::OutOfMemory));
}

#[test]
fn resources_stay_allocated_until_the_processes_have_ended() {
    let mut d = Double::new(1, 1000, 0);
    let first = d.submit(ask());
    let next = d.submit(ask());
    d.plan();
    d.cancel(&JobRef::job(first)).unwrap();
    d.plan();
    assert_eq!(d.state(next), JobState::Pending);
    d.end(first, EndCause::Stopped, ExitCode::signal(15));
    d.plan();
    assert_eq!(d.state(next), JobState::Running);
}

#[test]
fn losing_its_client_ends_an_allocation() {
    let mut d = Double::new(1, 1000, 0);
    let running = d.submit(ask().allocation());
    let pending = d.submit(ask().allocation());
    d.plan();
    for id in [running, pending] {
        d.act(|core, cx| core.client_lost(id, cx));
    }
    assert_eq!(
        (d.state(pending), d.reason(pending)),
        (JobState::Ended(End::Cancelled), Reason::ClientLost)
    );
    assert_eq!(d.stops(), [(running, StopCause::ClientLost)]);
    d.end(running, EndCause::Stopped, ExitCode::OK);
    assert_eq!(
        (d.state(running), d.reason(running)),
        (JobState::Ended(End::Cancelled), Reason::ClientLost)
    );
}

/// Returns how an allocation ends if signal 11 ends its command and its client is lost.
fn orphaned(is_known_first: bool, client_gone: bool) -> (JobState, i32, Reason) {
    let process = ClientProcess { pid: 7, start_ticks: 1, ..ClientProcess::default() };
    let mut d = Double::new(1, 1000, 0);
    let job = d.submit(ask().allocation());
    d.plan();
    d.act(|core, cx| core.set_holder(job, process, cx));
    d.act(|core, cx| {
        core.create_step(job, step(1), StepAsker { ticket: 1, client: Some(process) }, cx)
    })
    .unwrap();
    let record = ExitRecord { client_gone, ..ExitRecord::gone(ExitCode::signal(11), d.now) };
    let cause = if client_gone { EndCause::Stopped } else { EndCause::Exited };
    let key = StepKey { job, step: StepId::Num(0) };
    if is_known_first {
        d.act(|core, cx| core.on_step_ended(key, &record, cause, cx));
    }
    d.act(|core, cx| core.client_lost(job, cx));
    if !is_known_first {
        d.act(|core, cx| core.on_step_ended(key, &record, cause, cx));
    }
    d.end(job, EndCause::Stopped, ExitCode::OK);
    let run = &d.core.job(job).unwrap().run;
    (run.state, run.exit.signal, run.reason)
}

#[test]
fn an_allocation_ends_as_a_command_that_ended_before_its_client() {
    for is_known_first in [true, false] {
        assert_eq!(
            orphaned(is_known_first, false),
            (JobState::Ended(End::Failed), 11, Reason::RaisedSignal),
            "{is_known_first}"
        );
        assert_eq!(
            orphaned(is_known_first, true),
            (JobState::Ended(End::Cancelled), 0, Reason::ClientLost),
            "{is_known_first}"
        );
    }
}

#[test]
fn a_released_allocation_ends_as_its_command_did_after_its_steps() {
    let mut d = Double::new(2, 1000, 0);
    let plain = d.submit(ask().allocation());
    let with_steps = d.submit(ask().allocation());
    d.plan();
    d.act(|core, cx| core.create_step(with_steps, step(1), StepAsker::default(), cx)).unwrap();
    for id in [plain, with_steps] {
        d.act(|core, cx| core.release_allocation(id, ExitCode::status(3), cx));
    }
    assert_eq!(
        (d.state(plain), d.core.job(plain).unwrap().run.exit),
        (JobState::Ended(End::Failed), ExitCode::status(3))
    );
    assert_eq!(d.state(with_steps), JobState::Completing);
    assert_eq!(d.stops(), [(with_steps, StopCause::Released)]);
    d.end(with_steps, EndCause::Stopped, ExitCode::signal(9));
    let job = d.core.job(with_steps).unwrap();
    assert_eq!((job.run.state, job.run.exit), (JobState::Ended(End::Failed), ExitCode::status(3)));
    assert!(job.steps.iter().all(|step| step.state.is_terminal()));
}

#[test]
fn ended_jobs_leave_the_memory_after_a_while() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    d.plan();
    d.exit(id, 0);
    d.wait(299);
    assert!(d.core.job(id).is_some());
    d.wait(1);
    assert!(d.core.job(id).is_none());
    assert_eq!(d.effects.last(), Some(&Effect::Gone(id)));
}

#[test]
fn a_job_cancelled_in_the_grace_period_of_its_limit_does_not_return() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask().limit(60).with(|r| r.requeue = true));
    d.plan();
    d.act(|core, cx| core.limit_reached(id, cx));
    assert_eq!(d.cancel(&JobRef::job(id)), Ok(vec![id]));
    assert_eq!(d.cancel(&JobRef::job(id)), Err(Refusal::AlreadyDone));
    d.end(id, EndCause::TimeLimit, ExitCode::signal(15));
    assert_eq!(d.state(id), JobState::Ended(End::Timeout));
}

#[test]
fn a_requeue_in_the_grace_period_of_the_limit_returns_the_job_unless_cancelled() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask().limit(60));
    let requeue = |d: &mut Double| d.act(|core, cx| core.requeue(&JobRef::job(id), None, &[], cx));
    d.plan();
    d.act(|core, cx| core.limit_reached(id, cx));
    assert_eq!(requeue(&mut d), Ok(vec![id]));
    assert_eq!(requeue(&mut d), Err(Refusal::Disabled));
    assert_eq!(
        (d.state(id), d.stops()),
        (JobState::Completing, Vec::new()),
        "it is already ending"
    );
    d.end(id, EndCause::TimeLimit, ExitCode::signal(15));
    assert_eq!((d.state(id), d.core.job(id).unwrap().run.restarts), (JobState::Pending, 1));
    let run = d.store.runs.pop().unwrap().1;
    assert_eq!((run.requeued, run.run.exit), (true, ExitCode::signal(15)));
    d.plan();
    d.act(|core, cx| core.limit_reached(id, cx));
    assert_eq!(d.cancel(&JobRef::job(id)), Err(Refusal::AlreadyDone));
    assert_eq!(requeue(&mut d), Err(Refusal::Disabled));
    d.end(id, EndCause::TimeLimit, ExitCode::signal(15));
    assert_eq!((d.state(id), d.reason(id)), (JobState::Ended(End::Timeout), Reason::TimeLimit));
}

#[test]
fn a_job_being_requeued_can_be_held_and_released() {
    let by_hold = |core: &mut Core, id, cx: &mut Cx| core.hold(&JobRef::job(id), Hold::User, cx);
    let by_requeue = |core: &mut Core, id, cx: &mut Cx| {
        core.requeue(&JobRef::job(id), Some(Hold::User), &[], cx)
    };
    for hold in [by_hold as fn(&mut Core, _, &mut Cx) -> _, by_requeue] {
        let mut d = Double::new(1, 1000, 0);
        let id = d.submit(ask());
        d.plan();
        d.act(|core, cx| core.requeue(&JobRef::job(id), None, &[], cx)).unwrap();
        d.stops();
        assert_eq!(d.act(|core, cx| hold(core, id, cx)), Ok(vec![id]));
        assert_eq!(d.stops(), Vec::new(), "it is already being stopped");
        d.end(id, EndCause::Stopped, ExitCode::signal(15));
        d.plan();
        assert_eq!((d.state(id), d.reason(id)), (JobState::Pending, Reason::JobHeldUser));
        d.act(|core, cx| core.release(&JobRef::job(id), cx)).unwrap();
        d.plan();
        assert_eq!(d.state(id), JobState::Running);
    }
}

#[test]
fn a_job_being_requeued_can_be_cancelled_and_killed() {
    let mut d = Double::new(2, 1000, 0);
    let [requeued, late] = [(); 2].map(|()| d.submit(ask().with(|r| r.requeue = true)));
    d.plan();
    d.act(|core, cx| core.requeue(&JobRef::job(requeued), None, &[], cx)).unwrap();
    d.act(|core, cx| core.limit_reached(late, cx));
    assert_eq!(d.stops(), [(requeued, StopCause::Requeue)]);
    // The stop for the requeue may still wait for its commit.
    let cancelled = (requeued, StopCause::Cancelled { by: 1001 });
    for (id, stops) in [(requeued, vec![cancelled]), (late, Vec::new())] {
        assert_eq!(d.cancel(&JobRef::job(id)), Ok(vec![id]));
        assert_eq!((d.stops(), d.cancel(&JobRef::job(id))), (stops, Err(Refusal::AlreadyDone)));
        assert_eq!(d.stops(), []);
        let kill = |core: &mut Core, cx: &mut Cx| {
            core.signal(&JobRef::job(id), SignalTarget::Steps, 9, 1001, cx)
        };
        assert_eq!(d.act(kill), Ok(vec![id]));
        assert_eq!(d.stops(), [(id, StopCause::Killed { by: 1001 })], "without a grace period");
        d.end(id, EndCause::Stopped, ExitCode::signal(9));
    }
    let ended = |id| (d.state(id), d.reason(id));
    assert_eq!(ended(requeued), (JobState::Ended(End::Cancelled), Reason::CancelledByUser));
    assert_eq!(ended(late), (JobState::Ended(End::Timeout), Reason::TimeLimit));
}

#[test]
fn a_job_being_requeued_can_be_killed_at_once() {
    let mut d = Double::new(1, 1000, 0);
    let id = d.submit(ask());
    d.plan();
    d.act(|core, cx| core.requeue(&JobRef::job(id), None, &[], cx)).unwrap();
    d.act(|core, cx| core.signal(&JobRef::job(id), SignalTarget::Steps, 9, 1001, cx)).unwrap();
    assert_eq!(d.stops(), [(id, StopCause::Requeue), (id, StopCause::Killed { by: 1001 })]);
    d.end(id, EndCause::Stopped, ExitCode::signal(9));
    assert_eq!(d.state(id), JobState::Ended(End::Cancelled));
}
