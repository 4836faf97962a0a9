//! Running jobs that grow and shrink.

use super::*;
use slotd_model::limit::Limit;
use slotd_model::node::{Drains, NodeParts, NodeReason, Outage};
use slotd_model::resize::{GivenBack, ManagersPart, PartChange};
use slotd_model::step::Step;
use slotd_model::time::Timestamp;
use slotd_model::tres::Allocation;

fn resize(d: &mut Double, id: JobId, keys: &[Update]) -> Result<(), Refusal> {
    d.act(|core, cx| core.update(&JobRef::job(id), keys, &[], cx)).map(drop)
}

/// Starts a job with this many CPUs and this much memory.
fn running(d: &mut Double, cpus: u32, mem_mb: u64) -> JobId {
    let id = d.submit(ask().allocation().cpus(cpus).mem(mem_mb));
    d.plan();
    assert_eq!(d.state(id), JobState::Running);
    d.effects.clear();
    id
}

/// Returns the CPUs and memory that a job has, and checks that the database agrees.
fn has(d: &Double, id: JobId) -> (Vec<u32>, u64) {
    let alloc = |job: &Job| {
        job.run.alloc.as_deref().map(|alloc| (alloc.cpu_ids.clone(), alloc.tres.mem_mb))
    };
    let known = alloc(d.core.job(id).unwrap());
    assert_eq!(alloc(&d.store.jobs[&id]), known, "the database agrees");
    known.unwrap()
}

fn narrow(cpus: u32) -> StepRequest {
    StepRequest { cpus_per_task: Some(cpus), ..step(1) }
}

#[test]
fn a_shrinking_job_releases_unused_resources_at_once() {
    let mut d = Double::new(4, 1000, 0);
    let id = running(&mut d, 4, 800);
    let next = d.submit(ask().cpus(2).mem(500));
    d.plan();
    assert_eq!(d.state(next), JobState::Pending);
    resize(&mut d, id, &[Update::NumCpus(2), Update::MinMemoryNode(300)]).unwrap();
    assert_eq!(has(&d, id), (vec![0, 1], 300));
    assert_eq!(d.effects, [Effect::Resized(id)]);
    let job = d.core.job(id).unwrap();
    assert_eq!((job.tres.cpus, job.request.cpus_per_task, job.run.shrinks), (2, Some(2), false));
    d.plan();
    assert_eq!(d.state(next), JobState::Running, "freed CPUs are allocated again at once");
    assert_eq!(has(&d, next).0, [2, 3]);
}

#[test]
fn resources_of_steps_are_released_as_they_end() {
    let mut d = Double::new(4, 1000, 0);
    let id = running(&mut d, 4, 800);
    let mem = |mb| StepRequest { mem: MemRequest::PerNode(mb), ..narrow(1) };
    let StepStart::Now(a, _) = create(&mut d, id, mem(500), 1).unwrap() else { panic!() };
    let StepStart::Now(b, _) = create(&mut d, id, narrow(1), 2).unwrap() else { panic!() };
    let StepStart::Now(_, c) = create(&mut d, id, narrow(1), 3).unwrap() else { panic!() };
    assert_eq!(create(&mut d, id, narrow(2), 4).unwrap(), StepStart::Waits);
    d.effects.clear();
    resize(&mut d, id, &[Update::NumCpus(1), Update::MinMemoryNode(100)]).unwrap();
    let refused = Effect::StepRefused { ticket: 4, refusal: Refusal::StepTooManyCpus };
    assert_eq!(d.effects, [refused, Effect::Resized(id)]);
    assert_eq!(has(&d, id), (vec![0, 1, 2], 500), "the fourth CPU was idle");
    assert_eq!((d.core.records().owed(id).cpus, d.core.records().owed(id).mem_mb), (2, 400));
    assert_eq!(create(&mut d, id, narrow(2), 5), Err(Refusal::StepTooManyCpus));
    assert_eq!(create(&mut d, id, narrow(1), 6).unwrap(), StepStart::Waits);
    d.effects.clear();
    end_step(&mut d, a, ExitCode::OK);
    assert_eq!(has(&d, id), (vec![1, 2], 100));
    // The next daemon continues to shrink the job.
    let jobs = d.store.jobs.values().cloned().collect();
    d.core = Core::recover(d.core.config().clone(), jobs, Vec::new(), d.core.next_id(), d.now);
    assert_eq!(d.core.records().owed(id).cpus, 1);
    end_step(&mut d, b, ExitCode::OK);
    assert_eq!((has(&d, id), c.cpu_ids), ((vec![2], 100), vec![2]), "the third step keeps its CPU");
    assert_eq!(
        (d.core.records().owed(id), d.core.job(id).unwrap().run.shrinks),
        (Tres::ZERO, false)
    );
    assert_eq!(
        d.effects,
        [Effect::Resized(id), Effect::Resized(id)],
        "no step waits in the new daemon"
    );
}

#[test]
fn a_job_grows_into_free_unreserved_resources() {
    let mut d = Double::new(4, 1000, 0);
    let id = running(&mut d, 1, 100);
    resize(&mut d, id, &[Update::NumCpus(3), Update::MinMemoryNode(700)]).unwrap();
    assert_eq!(has(&d, id), (vec![0, 1, 2], 700));
    assert_eq!(d.effects, [Effect::Resized(id)]);
    let other = d.submit(ask().cpus(1).limit(100));
    d.plan();
    assert_eq!(d.state(other), JobState::Running);
    let more = Tres { cpus: 1, ..Tres::ZERO };
    let free = Tres { cpus: 0, mem_mb: 299, ..Tres::ZERO };
    let busy = resize(&mut d, id, &[Update::NumCpus(4)]);
    assert_eq!(busy, Err(Refusal::NoRoom { job: id, more, free, in_secs: None }));
    assert_eq!(has(&d, id).0, [0, 1, 2], "nothing has changed");
    assert_eq!(d.core.job(id).unwrap().tres.cpus, 3);
    // Freed resources are reserved for a job that was submitted earlier.
    let waits = d.submit(ask().cpus(4));
    d.exit(other, 0);
    d.plan();
    assert_eq!(d.state(waits), JobState::Pending);
    assert!(matches!(resize(&mut d, id, &[Update::NumCpus(4)]), Err(Refusal::NoRoom { .. })));
    d.cancel(&JobRef::job(waits)).unwrap();
    resize(&mut d, id, &[Update::NumCpus(4)]).unwrap();
    assert_eq!(has(&d, id).0, [0, 1, 2, 3]);
}

#[test]
fn a_refusal_to_grow_reports_the_free_resources() {
    let refusal = |more: Tres, free: Tres, in_secs| {
        let refusal = Refusal::NoRoom { job: JobId(7), more, free, in_secs };
        refusal.lines("update").join("\n")
    };
    let (two, one) =
        (Tres { cpus: 2, mem_mb: 100, ..Tres::ZERO }, Tres { cpus: 1, mem_mb: 50, ..Tres::ZERO });
    assert_eq!(
        refusal(two, one, Some(3725)),
        "job 7 needs 2 CPUs and 100 MB more; 1 CPU and 50 MB are free; enough will be free in 1:02:05; to wait \
         for it: sbatch --dependency=expand:7\nupdate: Requested nodes are busy"
    );
    assert!(refusal(two, one, Some(0)).contains("; enough will be free at any moment; to wait"));
    assert!(
        refusal(one, two, None)
            .contains("2 CPUs and 100 MB are free, but reserved for pending jobs; it is not known")
    );
}

#[test]
fn impossible_sizes_are_refused() {
    let mut d = Double::with(|config| {
        config.partitions[1].over_subscribe = slotd_model::partition::OverSubscribe::Force(2);
        config.partitions[1].is_gpu = false;
        config.limits =
            vec![Limit { account: Some("few".to_owned()), cpus: Some(2), ..Limit::default() }];
    });
    let id = running(&mut d, 1, 100);
    let lines = |refused: Result<(), Refusal>| refused.unwrap_err().lines("x").join(" / ");
    let much = lines(resize(&mut d, id, &[Update::NumCpus(99)]));
    assert_eq!(
        much,
        "CPU count per node can not be satisfied: 99 CPUs requested, 4 on this host / x: More processors requested than \
         permitted"
    );
    assert!(
        lines(resize(&mut d, id, &[Update::MinMemoryNode(5000)]))
            .contains("5000 MB requested, 1000 MB")
    );
    // A key for pending jobs in the same command makes it fail.
    assert_eq!(
        resize(&mut d, id, &[Update::NumCpus(2), Update::Exclusive(false)]),
        Err(Refusal::NotPending)
    );
    d.act(|core, cx| core.cancel(&JobRef::job(id), 1001, cx)).unwrap();
    assert_eq!(resize(&mut d, id, &[Update::NumCpus(2)]), Err(Refusal::AlreadyDone));
    d.end(id, EndCause::Stopped, ExitCode::OK);
    assert_eq!(resize(&mut d, id, &[Update::NumCpus(2)]), Err(Refusal::AlreadyFinished));

    let alone = d.submit(ask().exclusive());
    d.plan();
    let fixed = |exclusive| Err(Refusal::FixedSize { job: alone, exclusive });
    assert_eq!(resize(&mut d, alone, &[Update::NumCpus(2)]), fixed(true));
    d.exit(alone, 0);

    let few = d.submit(ask().with(|r| r.account = Some("few".to_owned())));
    d.plan();
    let over = Err(Refusal::OverLimit { reason: "AssocGrpCpuLimit".to_owned() });
    assert_eq!(resize(&mut d, few, &[Update::NumCpus(3)]), over);
    resize(&mut d, few, &[Update::NumCpus(2)]).unwrap();

    let shares = d.submit(ask().cpus(2).with(|r| r.partition = Some("gpu".to_owned())));
    d.plan();
    let fixed = Err(Refusal::FixedSize { job: shares, exclusive: false });
    assert_eq!(resize(&mut d, shares, &[Update::NumCpus(3)]), fixed);
    resize(&mut d, shares, &[Update::NumCpus(1)]).unwrap();
    assert_eq!(has(&d, shares).0.len(), 1);
}

#[test]
fn resizing_an_array_changes_pending_tasks_and_named_running_ones() {
    let mut d = Double::new(4, 1000, 0);
    let array = d.submit(ask().cpus(3).array(0, 2, None));
    d.plan();
    resize(&mut d, array, &[Update::NumCpus(2)]).unwrap();
    let cpus = |d: &Double| {
        let jobs = d.core.jobs().map(|job| (job.run.state, job.tres.cpus));
        jobs.collect::<Vec<_>>()
    };
    assert_eq!(cpus(&d), [(JobState::Pending, 2), (JobState::Running, 3)]);
    let task = tasks_of(array, &[0]);
    d.act(|core, cx| core.update(&task, &[Update::NumTasks(2), Update::CpusPerTask(1)], &[], cx))
        .unwrap();
    assert_eq!(cpus(&d), [(JobState::Pending, 2), (JobState::Running, 2)]);
    d.plan();
    assert_eq!(d.core.jobs().filter(|job| job.run.state == JobState::Running).count(), 2);
}

#[test]
fn a_manager_is_notified_and_chooses_what_to_release() {
    let mut d = Double::new(4, 1000, 0);
    let id = running(&mut d, 4, 800);
    let process = ClientProcess { pid: 7, start_ticks: 70, ..ClientProcess::default() };
    d.act(|core, cx| core.manage(id, process, None, 10, cx)).unwrap();
    resize(&mut d, id, &[Update::NumCpus(2), Update::MinMemoryNode(300)]).unwrap();
    assert_eq!(
        has(&d, id),
        (vec![0, 1, 2, 3], 800),
        "only its manager knows which resources are idle"
    );
    assert_eq!(d.effects, [Effect::ManagerChanged(id, PartChange::Update)]);
    let ManagersPart { alloc, owed, .. } = d.core.managers_part(id).unwrap();
    assert_eq!((alloc.tres.cpus, owed.cpus, owed.mem_mb), (4, 2, 500));
    let give = |d: &mut Double, process, cpu_ids: &[u32], mem_mb| {
        d.effects.clear();
        let given_back = GivenBack { cpu_ids: cpu_ids.to_vec(), mem_mb, gpu_ids: vec![] };
        d.act(|core, cx| core.take_back_from_manager(id, process, &given_back, cx));
    };
    give(&mut d, ClientProcess { pid: 8, ..process }, &[0], 0);
    assert_eq!(d.effects, [], "another process is not trusted");
    give(&mut d, process, &[1], 100);
    assert_eq!(has(&d, id), (vec![0, 2, 3], 700));
    assert_eq!(d.effects, [Effect::Resized(id), Effect::ManagerChanged(id, PartChange::GivenBack)]);
    give(&mut d, process, &[1, 0, 3], 900);
    assert_eq!(has(&d, id), (vec![2, 3], 300), "no more than the job owes");
    give(&mut d, process, &[2], 10);
    assert_eq!((has(&d, id), d.effects.len()), ((vec![2, 3], 300), 0));
    // Added resources are the manager's too. When the manager ends, the job itself releases the
    // rest.
    resize(&mut d, id, &[Update::NumCpus(3)]).unwrap();
    assert_eq!(d.core.managers_part(id).unwrap().alloc.tres.cpus, 3);
    resize(&mut d, id, &[Update::NumCpus(1)]).unwrap();
    d.act(|core, cx| core.manager_gone(id, process, None, cx));
    assert_eq!(has(&d, id).0.len(), 1);
}

#[test]
fn growing_again_cancels_an_unfinished_shrink() {
    let mut d = Double::new(4, 1000, 0);
    let id = running(&mut d, 4, 800);
    let StepStart::Now(step, _) = create(&mut d, id, narrow(3), 1).unwrap() else { panic!() };
    resize(&mut d, id, &[Update::NumCpus(1)]).unwrap();
    assert_eq!((has(&d, id).0, d.core.records().owed(id).cpus), (vec![0, 1, 2], 2));
    resize(&mut d, id, &[Update::NumCpus(4)]).unwrap();
    assert_eq!((has(&d, id).0, d.core.records().owed(id)), (vec![0, 1, 2, 3], Tres::ZERO));
    end_step(&mut d, step, ExitCode::OK);
    assert_eq!(has(&d, id).0, [0, 1, 2, 3]);
}

#[test]
fn steps_that_share_the_jobs_memory_get_its_new_size() {
    let mut d = Double::new(4, 1000, 0);
    let id = running(&mut d, 2, 800);
    create(&mut d, id, narrow(1), 1).unwrap();
    create(&mut d, id, StepRequest { mem: MemRequest::PerNode(200), ..narrow(1) }, 2).unwrap();
    for mem_mb in [900, 250] {
        resize(&mut d, id, &[Update::MinMemoryNode(mem_mb)]).unwrap();
        let of_step = |job: &Job, number| {
            let step = job.steps.iter().find(|step| step.id == StepId::Num(number));
            step.map(|step| step.alloc.tres.mem_mb)
        };
        for job in [d.core.job(id).unwrap(), &d.store.jobs[&id]] {
            assert_eq!((of_step(job, 0), of_step(job, 1)), (Some(mem_mb), Some(200)));
        }
    }
}

#[test]
fn an_expanding_job_transfers_its_resources_and_is_completed() {
    let mut d = Double::new(4, 1000, 2);
    let id = running(&mut d, 1, 100);
    let other = d.submit(ask().cpus(3).mem(1).limit(100));
    d.plan();
    let grow = |cpus| ask().cpus(cpus).mem(50).gpus(1).after(Expand, id);
    let (first, second) = (d.submit(grow(1)), d.submit(grow(2)));
    d.plan();
    assert_eq!((d.reason(first), d.reason(second)), (Reason::Resources, Reason::Priority));
    assert_eq!(d.expected_start(first), Some(d.now.plus_secs(100)), "as squeue --start shows");
    assert_eq!(
        d.core.job(first).unwrap().request.time_limit_secs,
        None,
        "it lasts as long as the other job"
    );
    d.end(other, EndCause::Exited, ExitCode::OK);
    d.effects.clear();
    d.plan();
    let ended: Vec<&Effect> =
        d.effects.iter().filter(|effect| matches!(effect, Effect::Ended(_))).collect();
    assert_eq!(ended, [&Effect::Ended(first), &Effect::Ended(second)]);
    assert!(
        !d.effects.iter().any(|effect| matches!(effect, Effect::Launch(_))),
        "it launches nothing"
    );
    assert_eq!(has(&d, id), (vec![0, 1, 2, 3], 200));
    let job = d.core.job(id).unwrap();
    assert_eq!(
        (job.tres.cpus, job.tres.gpus, job.run.alloc.as_ref().unwrap().gpu_ids.clone()),
        (4, 2, vec![0, 1])
    );
    assert_eq!((job.request.cpus_per_task, job.request.gpu.total), (Some(4), Some(2)));
    let done = &d.store.jobs[&first];
    assert_eq!(
        (done.run.state, done.run.start, done.run.end),
        (JobState::Ended(End::Completed), Some(d.now), Some(d.now))
    );
    assert_eq!(done.run.system_comment.as_deref(), Some("its resources were transferred to job 1"));
}

#[test]
fn a_job_is_expanded_only_while_running() {
    let mut d = Double::new(4, 1000, 0);
    let id = d.submit(ask().cpus(2).held());
    let more = d.submit(ask().cpus(1).after(Expand, id));
    d.plan();
    assert_eq!(d.reason(more), Reason::Dependency);
    d.act(|core, cx| core.release(&JobRef::job(id), cx)).unwrap();
    let full = d.submit(ask().cpus(2).priority(u32::MAX));
    d.plan();
    assert_eq!(
        (d.state(id), d.state(full), d.reason(more)),
        (JobState::Running, JobState::Running, Reason::Resources)
    );
    d.act(|core, cx| core.cancel(&JobRef::job(id), 1001, cx)).unwrap();
    assert_eq!(d.reason(more), Reason::Dependency, "the job may still be requeued");
    d.end(id, EndCause::Stopped, ExitCode::OK);
    assert_eq!(d.reason(more), Reason::DependencyNeverSatisfied);
    let late = d.submit(ask().after(Expand, id));
    assert_eq!(d.reason(late), Reason::DependencyNeverSatisfied);
    d.plan();
    assert_eq!(d.state(more), JobState::Pending);
}

#[test]
fn impossible_expansions_are_refused() {
    let mut d = Double::new(4, 1000, 2);
    let id = running(&mut d, 1, 100);
    let array = d.submit(ask().array(0, 3, None).held());
    let alone = d.submit(ask().exclusive().held());
    for (ask, why) in [
        (ask().after(Expand, id).allocation(), "only a batch job"),
        (ask().after(Expand, array), "it is an array"),
        (ask().after(Expand, id).with(|r| r.uid = 7), "another user"),
        (
            ask().after(Expand, id).with(|r| r.partition = Some("gpu".to_owned())),
            "in another partition",
        ),
        (ask().after(Expand, alone), "cannot be resized"),
        (ask().after(Expand, id).exclusive(), "cannot be resized"),
    ] {
        let lines = refusal(&mut d, ask);
        assert!(
            lines[0].contains(why) && lines[1].ends_with("Job dependency problem"),
            "{lines:?}"
        );
    }
}

#[test]
fn parts_out_of_use_that_a_manager_releases_are_replaced() {
    let mut d = Double::new(4, 1000, 0);
    let id = running(&mut d, 2, 800);
    let process = ClientProcess { pid: 7, start_ticks: 70, ..ClientProcess::default() };
    d.act(|core, cx| core.manage(id, process, None, 10, cx)).unwrap();
    let others = d.submit(ask().cpus(2));
    d.plan();
    let parts = NodeParts { cpus: [0].into(), ..NodeParts::default() };
    let reason =
        NodeReason { text: "dust".to_owned(), since: d.now, user: "lab".to_owned(), uid: 1001 };
    let drains = Drains { node: None, parts: vec![Outage { parts, reason }] };
    d.act(|core, cx| core.set_drains(drains, cx.now));
    let give = |d: &mut Double, cpu_ids: &[u32]| {
        let given_back = GivenBack { cpu_ids: cpu_ids.to_vec(), ..GivenBack::default() };
        d.act(|core, cx| core.take_back_from_manager(id, process, &given_back, cx));
        d.plan();
    };
    give(&mut d, &[0, 1]);
    assert_eq!(has(&d, id).0, [0, 1], "there is no replacement yet");
    d.effects.clear();
    d.exit(others, 0);
    d.plan();
    assert_eq!(has(&d, id).0, [1, 2], "usable CPUs stay");
    let news = [Effect::ManagerChanged(id, PartChange::Replaced), Effect::PartsOut(id)];
    assert!(news.iter().all(|effect| d.effects.contains(effect)), "{:?}", d.effects);
}

#[test]
fn a_newer_limit_also_applies_to_an_expansion() {
    let mut d = Double::new(4, 1000, 0);
    let id = d.submit(ask().cpus(2).with(|r| r.account = Some("few".to_owned())));
    let other = d.submit(ask().cpus(2));
    d.plan();
    let more = d.submit(ask().cpus(1).after(Expand, id));
    d.plan();
    assert_eq!(d.reason(more), Reason::Resources);
    let limit = |d: &mut Double, cpus| {
        let limits =
            vec![Limit { account: Some("few".to_owned()), cpus: Some(cpus), ..Limit::default() }];
        d.act(|core, cx| core.set_config(Config { limits, ..core.config().clone() }, cx.now));
        d.plan();
    };
    limit(&mut d, 2);
    d.exit(other, 0);
    d.plan();
    assert_eq!((has(&d, id).0, d.reason(more)), (vec![0, 1], Reason::AssocGrpCpuLimit));
    limit(&mut d, 3);
    assert_eq!((has(&d, id).0.len(), d.state(more)), (3, JobState::Ended(End::Completed)));
}

fn managed_step(number: u32, state: JobState, start: Timestamp, alloc: Allocation) -> Step {
    Step {
        name: "a".to_owned(),
        state,
        alloc,
        managed: true,
        ..Step::started(StepId::Num(number), start)
    }
}

#[test]
fn suspended_time_does_not_count_for_managed_steps() {
    let mut d = Double::new(4, 1000, 0);
    let id = running(&mut d, 4, 800);
    let process = ClientProcess { pid: 7, start_ticks: 70, ..ClientProcess::default() };
    d.act(|core, cx| core.manage(id, process, None, 10, cx)).unwrap();
    let started = d.now;
    let told = |d: &mut Double, number, state, end| {
        let alloc = d.core.job(id).unwrap().run.alloc.as_deref().cloned().unwrap();
        let step = managed_step(number, state, started, alloc);
        d.act(|core, cx| core.record_steps(id, 0, vec![Step { end, ..step }], cx)).unwrap();
    };
    told(&mut d, 0, JobState::Running, None);
    told(&mut d, 1, JobState::Running, None);
    d.act(|core, cx| core.suspend(&JobRef::job(id), cx)).unwrap();
    d.now = d.now.plus_secs(50);
    let ended = Some(d.now);
    told(&mut d, 0, JobState::Ended(End::Failed), ended);
    d.act(|core, cx| core.resume(&JobRef::job(id), cx)).unwrap();
    d.now = d.now.plus_secs(10);
    let ended = Some(d.now);
    // After a restart of the daemon, the manager reports the step again, unaware of the suspension.
    told(&mut d, 1, JobState::Running, None);
    told(&mut d, 1, JobState::Ended(End::Completed), ended);
    let suspended: Vec<u64> =
        d.store.jobs[&id].steps.iter().map(|step| step.suspended_us).collect();
    assert_eq!(suspended, [50_000_000; 2]);
}
