//! Steps inside an allocation.

use super::*;
use slotd_model::job::Client;
use slotd_model::node::{Drains, NodeParts, NodeReason, Outage};

#[test]
fn a_job_that_reached_its_limit_is_a_timeout_regardless_of_its_exit() {
    for cause in [EndCause::Exited, EndCause::Stopped, EndCause::TimeLimit] {
        let mut d = Double::new(4, 1000, 0);
        let id = d.submit(ask());
        d.plan();
        d.act(|core, cx| core.limit_reached(id, cx));
        assert_eq!(d.state(id), JobState::Completing);
        let jobs = d.store.jobs.values().cloned().collect();
        let again = Core::recover(d.core.config().clone(), jobs, Vec::new(), JobId(2), d.now);
        assert_eq!(again.records().unfinished_stops(), [(id, StopCause::TimeLimit)]);
        d.end(id, cause, ExitCode::OK);
        assert_eq!(
            (d.state(id), d.core.job(id).unwrap().run.reason),
            (JobState::Ended(End::Timeout), Reason::TimeLimit)
        );
    }
}

#[test]
fn a_step_that_was_never_launched_leaves_no_trace() {
    let mut d = Double::new(2, 1000, 0);
    let id = d.submit(ask().allocation().cpus(2));
    d.plan();
    let client = ClientProcess { pid: 7, start_ticks: 70, ..ClientProcess::default() };
    let asker = StepAsker { ticket: 7, client: Some(client) };
    let start = d.act(|core, cx| core.create_step(id, step(1), asker, cx)).unwrap();
    let StepStart::Now(key, _) = start else { panic!("{start:?}") };
    assert_eq!(d.core.records().step_of(id, client).map(|step| step.id), Some(key.step));
    assert_eq!(d.core.records().step_of(id, ClientProcess { start_ticks: 71, ..client }), None);
    d.act(|core, cx| {
        core.on_step_ended(
            key,
            &ExitRecord::gone(ExitCode::OK, cx.now),
            EndCause::NeverLaunched,
            cx,
        );
    });
    assert_eq!(d.core.records().step_of(id, client), None);
    assert_eq!(d.store.jobs[&id].steps, []);
    let again = d.act(|core, cx| core.create_step(id, step(1), asker, cx)).unwrap();
    let StepStart::Now(next, _) = again else { panic!("its CPUs are free: {again:?}") };
    assert_eq!(next, key, "its step number is free as well");
}

#[test]
fn steps_get_disjoint_cpus_and_wait_while_the_allocation_is_full() {
    let mut d = Double::new(4, 1000, 0);
    let job = d.submit(ask().allocation().cpus(2));
    d.plan();
    let narrow = || StepRequest { cpus_per_task: Some(1), ..step(1) };
    let StepStart::Now(first, a) = create(&mut d, job, narrow(), 1).unwrap() else { panic!() };
    let StepStart::Now(_, b) = create(&mut d, job, narrow(), 2).unwrap() else { panic!() };
    assert_eq!((a.cpu_ids, b.cpu_ids), (vec![0], vec![1]));
    assert_eq!(create(&mut d, job, narrow(), 3).unwrap(), StepStart::Waits);
    let overlapping = StepRequest { overlap: true, ..narrow() };
    let StepStart::Now(third, _) = create(&mut d, job, overlapping, 4).unwrap() else { panic!() };
    assert_eq!(third.step, StepId::Num(2));
    end_step(&mut d, first, ExitCode::status(4));
    let Some(Effect::LaunchStep { step, ticket: 3, alloc }) = d.effects.last() else {
        panic!("{:?}", d.effects)
    };
    assert_eq!((step.step, alloc.cpu_ids.clone()), (StepId::Num(3), vec![0]));
    assert_eq!(d.core.job(job).unwrap().run.derived_exit, ExitCode::status(4));
}

#[test]
fn a_large_waiting_step_does_not_block_one_that_fits() {
    let mut d = Double::new(4, 1000, 0);
    let job = d.submit(ask().allocation().cpus(3));
    d.plan();
    let StepStart::Now(first, _) = create(&mut d, job, step(2), 1).unwrap() else { panic!() };
    assert_eq!(create(&mut d, job, step(3), 2).unwrap(), StepStart::Waits);
    assert!(
        matches!(create(&mut d, job, step(1), 3).unwrap(), StepStart::Now(..)),
        "it fits beside the first"
    );
    assert_eq!(create(&mut d, job, step(1), 4).unwrap(), StepStart::Waits);
    end_step(&mut d, first, ExitCode::OK);
    let Some(Effect::LaunchStep { ticket, .. }) = d.effects.last() else {
        panic!("{:?}", d.effects)
    };
    assert_eq!(*ticket, 4, "all three CPUs are not free yet");
}

#[test]
fn a_step_does_not_inherit_cpus_per_task() {
    let mut d = Double::new(4, 1000, 0);
    let job = d.submit(ask().allocation().cpus(2));
    d.plan();
    let two = d.act(|core, cx| core.create_step(job, step(2), StepAsker::default(), cx));
    assert!(matches!(two, Ok(StepStart::Now(..))), "{two:?}");
}

#[test]
fn a_step_that_asks_for_more_than_its_job_has_is_refused() {
    let mut d = Double::new(4, 1000, 0);
    let job = d.submit(ask().allocation().cpus(2).mem(100));
    let refused = |d: &mut Double, request| create(d, job, request, 7).unwrap_err();
    assert_eq!(refused(&mut d, step(1)), Refusal::Pending);
    d.plan();
    assert_eq!(refused(&mut d, step(3)), Refusal::StepTooManyCpus);
    let large = StepRequest { mem: MemRequest::PerNode(5000), ..step(1) };
    assert_eq!(refused(&mut d, large), Refusal::StepTooMuchMemory);
}

#[test]
fn steps_that_name_gpus_get_different_ones() {
    let mut d = Double::new(4, 1000, 2);
    let job = d.submit(ask().allocation().cpus(4).gpus(2));
    d.plan();
    let gpu = || GpuRequest { total: Some(1), ..GpuRequest::default() };
    let one = || StepRequest { gpu: gpu(), cpus_per_task: Some(1), ..step(1) };
    let mut gpus = |request| match create(&mut d, job, request, 7).unwrap() {
        StepStart::Now(_, alloc) | StepStart::Recorded(_, alloc) => Some(alloc.gpu_ids),
        StepStart::Waits => None,
    };
    assert_eq!([gpus(one()), gpus(one()), gpus(one())], [Some(vec![0]), Some(vec![1]), None]);
}

#[test]
fn steps_that_wait_are_refused_when_their_job_ends() {
    let mut d = Double::new(1, 1000, 0);
    let job = d.submit(ask().allocation());
    d.plan();
    for _ in 0..2 {
        d.act(|core, cx| core.create_step(job, step(1), StepAsker { ticket: 7, client: None }, cx))
            .unwrap();
    }
    d.cancel(&JobRef::job(job)).unwrap();
    assert!(d.effects.iter().any(|effect| matches!(effect, Effect::StepRefused { ticket: 7, .. })));
    assert_eq!(d.core.view(job, d.now).unwrap().steps.len(), 1);
}

#[test]
fn nothing_starts_in_a_suspended_job_until_it_is_resumed() {
    let mut d = Double::new(2, 1000, 0);
    let job = d.submit(ask().with(|r| r.ntasks = Some(2)).allocation());
    d.plan();
    let Ok(StepStart::Now(first, _)) = create(&mut d, job, step(1), 1) else {
        panic!("the job has free CPUs")
    };
    d.act(|core, cx| core.suspend(&JobRef::job(job), cx)).unwrap();
    assert_eq!(create(&mut d, job, step(1), 2), Ok(StepStart::Waits));
    let hurried = StepRequest { immediate: true, ..step(1) };
    assert_eq!(create(&mut d, job, hurried, 3), Err(Refusal::Busy));
    // Not even when one of its steps ends.
    end_step(&mut d, first, ExitCode::OK);
    let launched =
        |d: &Double| d.effects.iter().any(|e| matches!(e, Effect::LaunchStep { ticket: 2, .. }));
    assert!(!launched(&d));
    d.act(|core, cx| core.resume(&JobRef::job(job), cx)).unwrap();
    assert!(launched(&d));
}

#[test]
fn cancelling_and_signalling_a_step_leaves_its_job_alone() {
    let mut d = Double::new(1, 1000, 0);
    let job = d.submit(ask().allocation());
    d.plan();
    d.act(|core, cx| core.create_step(job, step(1), StepAsker::default(), cx)).unwrap();
    let sel = JobRef { job, tasks: None, step: Some(StepId::Num(0)) };
    d.cancel(&sel).unwrap();
    let key = StepKey { job, step: StepId::Num(0) };
    assert_eq!(
        d.effects.last(),
        Some(&Effect::StopStep { step: key, cause: StopCause::Cancelled { by: 1001 } })
    );
    assert_eq!(d.state(job), JobState::Running);
    end_step(&mut d, key, ExitCode::signal(15));
    let step = d.core.job(job).unwrap().steps[0].clone();
    assert_eq!(
        (step.state, step.cancelled_by),
        (JobState::Ended(End::Cancelled), Some(1001)),
        "CANCELLED by 1001"
    );
    let unknown = JobRef { step: Some(StepId::Num(9)), ..sel };
    assert_eq!(d.cancel(&unknown), Err(Refusal::UnknownStep));
}

#[test]
fn steps_get_no_drained_gpu() {
    let mut d = Double::new(4, 1000, 2);
    let job = d.submit(ask().allocation().cpus(4).gpus(2));
    d.plan();
    let drain = |d: &mut Double, gpus: &[u32]| {
        let reason =
            NodeReason { text: "dust".to_owned(), since: d.now, user: "lab".to_owned(), uid: 1001 };
        let parts = NodeParts { gpus: gpus.iter().copied().collect(), ..NodeParts::default() };
        let outages = (!gpus.is_empty()).then_some(Outage { parts, reason });
        d.act(|core, cx| {
            core.set_drains(Drains { node: None, parts: outages.into_iter().collect() }, cx.now);
            core.notify_of_outages(cx);
        });
    };
    let with = |count, overlap| {
        let gpu = GpuRequest { total: count, ..GpuRequest::default() };
        StepRequest { gpu, cpus_per_task: Some(1), overlap, ..step(1) }
    };
    let gpus = |d: &mut Double, request| match create(d, job, request, 7).unwrap() {
        StepStart::Now(_, alloc) | StepStart::Recorded(_, alloc) => Some(alloc.gpu_ids),
        StepStart::Waits => None,
    };
    drain(&mut d, &[0]);
    let refused = create(&mut d, job, with(Some(2), true), 7).unwrap_err().lines("srun");
    assert_eq!(
        refused,
        [
            "too few GPUs are left for this step; out of use in its job: GPU 0 (see sinfo -R)",
            "srun: Invalid generic resource (gres) specification"
        ]
    );
    assert_eq!(
        [gpus(&mut d, with(Some(1), true)), gpus(&mut d, with(None, false))],
        [Some(vec![1]), Some(vec![1])]
    );
    assert_eq!(
        [gpus(&mut d, with(Some(1), false)), gpus(&mut d, with(Some(1), false))],
        [Some(vec![1]), None]
    );
    d.effects.clear();
    drain(&mut d, &[]);
    let launched = |effect: &Effect| matches!(effect, Effect::LaunchStep { alloc, .. } if alloc.gpu_ids == [0]);
    assert!(d.effects.iter().any(launched), "{:?}", d.effects);
}

/// Submits an allocation together with its first step. Returns the requester of that step.
fn with_first_step(d: &mut Double, ask: Ask, request: StepRequest) -> (JobId, StepAsker) {
    let process = ClientProcess { pid: 7, start_ticks: 70, ..ClientProcess::default() };
    let client = Some(Client { process, holds: true, ..Client::default() });
    let first_step = Some(Box::new(request));
    let submission = Submission { request: ask.0, client, first_step, ..Submission::default() };
    let id = d.act(|core, cx| core.submit(submission, cx)).unwrap();
    (id, StepAsker { ticket: 7, client: Some(process) })
}

fn launch(d: &mut Double, id: JobId, request: StepRequest, asker: StepAsker) -> StepStart {
    d.act(|core, cx| core.create_step(id, request, asker, cx)).unwrap()
}

#[test]
fn the_first_step_is_recorded_with_the_start_of_its_allocation() {
    let mut d = Double::new(2, 1000, 0);
    let other = d.submit(ask().cpus(2));
    d.plan();
    let (id, asker) = with_first_step(&mut d, ask().allocation().cpus(2), step(2));
    d.plan();
    assert_eq!(d.store.jobs[&id].steps, [], "its allocation waits");
    d.exit(other, 0);
    let stored = d.store.jobs[&id].steps.clone();
    assert_eq!((stored.len(), stored[0].id, stored[0].client), (1, StepId::Num(0), asker.client));
    let is_launch = |effect: &Effect| matches!(effect, Effect::LaunchStep { .. });
    assert!(!d.effects.iter().any(is_launch), "{:?}", d.effects);

    // Another process of the job does not get it.
    assert!(!d.core.awaits_launch(id, None));
    assert_eq!(create(&mut d, id, step(1), 8).unwrap(), StepStart::Waits);
    assert!(d.core.awaits_launch(id, asker.client));
    let StepStart::Recorded(key, alloc) = launch(&mut d, id, step(2), asker) else { panic!() };
    assert_eq!((key.step, alloc), (StepId::Num(0), stored[0].alloc.clone()));
    assert!(!d.core.awaits_launch(id, asker.client));
    assert_eq!(launch(&mut d, id, step(2), asker), StepStart::Waits, "it is launched once");
}

#[test]
fn another_step_than_the_recorded_one_replaces_it() {
    let mut d = Double::new(2, 1000, 0);
    let (id, asker) = with_first_step(&mut d, ask().allocation().cpus(2), step(1));
    d.plan();
    let StepStart::Now(key, _) = launch(&mut d, id, step(2), asker) else { panic!() };
    let stored: Vec<_> = d.store.jobs[&id].steps.iter().map(|s| (s.id, s.ntasks)).collect();
    assert_eq!((key.step, stored), (StepId::Num(0), vec![(StepId::Num(0), 2)]));
}

#[test]
fn a_first_step_that_is_not_launched_leaves_no_trace() {
    let mut d = Double::new(2, 1000, 0);
    let (id, _) = with_first_step(&mut d, ask().allocation(), step(1));
    d.plan();
    assert_eq!(d.store.jobs[&id].steps.len(), 1);
    // Until its client launches it, it does not exist for users.
    let sel = JobRef { step: Some(StepId::Num(0)), ..JobRef::job(id) };
    let limit = [Update::TimeLimit(Some(60))];
    assert_eq!(d.cancel(&sel), Err(Refusal::UnknownStep));
    assert_eq!(d.core.view(id, d.now).unwrap().steps.len(), 0);
    let updated = d.act(|core, cx| core.update(&sel, &limit, &[], cx));
    assert_eq!(updated, Err(Refusal::UnknownStep));
    d.cancel(&JobRef::job(id)).unwrap();
    assert_eq!(d.store.jobs[&id].steps, []);
    d.end(id, EndCause::Stopped, ExitCode::signal(15));
    let (ended, _) = with_first_step(&mut d, ask().allocation(), step(1));
    d.plan();
    d.end(ended, EndCause::LaunchFailed, ExitCode::status(1));
    assert_eq!(d.store.jobs[&ended].steps, []);

    let (pending, asker) = with_first_step(&mut d, ask().allocation(), step(1));
    d.cancel(&JobRef::job(pending)).unwrap();
    assert!(!d.core.awaits_launch(pending, asker.client));
}

#[test]
fn a_first_step_that_does_not_fit_is_refused_when_it_is_launched() {
    let mut d = Double::new(2, 1000, 0);
    let (id, asker) = with_first_step(&mut d, ask().allocation(), step(3));
    d.plan();
    assert_eq!(d.store.jobs[&id].steps, []);
    let refused = d.act(|core, cx| core.create_step(id, step(3), asker, cx));
    assert_eq!(refused, Err(Refusal::StepTooManyCpus));
}
