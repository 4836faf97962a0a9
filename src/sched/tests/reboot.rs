//! Jobs that were running when the machine went down.

use super::*;

const OTHER: ClockBase = ClockBase { boot: BootId(2), zero: Timestamp(0) };

/// Returns a core of the next boot with the contents of the store.
fn rebooted(d: &Double) -> Core {
    let jobs: Vec<Job> = d.store.jobs.values().cloned().collect();
    let mut core =
        Core::recover(d.core.config().clone(), jobs, Vec::new(), d.core.next_id(), d.now);
    core.set_clock(OTHER);
    core
}

fn double(cpus: u32) -> Double {
    let mut d = Double::new(cpus, 1000, 0);
    d.core.set_clock(ClockBase { boot: BootId(1), zero: Timestamp(0) });
    d
}

/// Returns the remains of a job for which only the end of its own processes was recorded, if
/// anything.
fn remains(job: JobId, own: Option<ExitRecord>, last_sign: Timestamp) -> Interrupted {
    Interrupted { job, own, steps: Vec::new(), last_sign }
}

fn run(core: &Core, id: JobId) -> (JobState, Reason, ExitCode) {
    let run = &core.job(id).unwrap().run;
    (run.state, run.reason, run.exit)
}

#[test]
fn jobs_running_at_a_reboot_are_node_fail_and_free_their_resources() {
    let mut d = double(2);
    let (job, allocation) = (d.submit(ask()), d.submit(ask().allocation()));
    let waiting = d.submit(ask().cpus(2));
    d.plan();
    let StepStart::Now(step, _) = create(&mut d, allocation, step(1), 1).unwrap() else {
        panic!("the step starts")
    };
    let mut core = rebooted(&d);
    assert_eq!(core.records().ran_before(None), [job, allocation]);
    let mut cx = Cx::at(d.now.plus_secs(3600));
    let last = d.now.plus_secs(60);
    for id in [job, allocation] {
        core.node_failed(remains(id, None, last), &mut cx);
        assert_eq!(
            run(&core, id),
            (JobState::Ended(End::NodeFail), Reason::NodeDown, ExitCode::NODE_FAILED)
        );
        let ended = core.job(id).unwrap();
        assert_eq!(
            ended.elapsed(cx.now).as_secs(),
            60,
            "the time that the machine was off does not count"
        );
        assert!(cx.out.effects.contains(&Effect::Ended(id)));
    }
    let step =
        core.job(allocation).unwrap().steps.iter().find(|known| known.id == step.step).unwrap();
    assert_eq!((step.state, step.end), (JobState::Ended(End::NodeFail), Some(last)));
    core.plan(&mut cx);
    assert_eq!(core.job(waiting).unwrap().run.state, JobState::Running);
    assert_eq!(core.records().ran_before(None), [], "the new job runs under the new boot");
    core.check_invariants().unwrap();
}

#[test]
fn an_end_recorded_before_a_reboot_is_final() {
    let mut d = double(1);
    let job = d.submit(ask());
    d.plan();
    let mut core = rebooted(&d);
    let ended = d.now.plus_secs(5);
    let record =
        ExitRecord { exit: ExitCode::status(3), started: d.now, ended, ..ExitRecord::default() };
    core.node_failed(
        remains(job, Some(record), d.now.plus_secs(60)),
        &mut Cx::at(d.now.plus_secs(3600)),
    );
    assert_eq!(
        run(&core, job),
        (JobState::Ended(End::Failed), Reason::NonZeroExitCode, ExitCode::status(3))
    );
    assert_eq!(core.job(job).unwrap().run.end, Some(ended));
}

#[test]
fn a_late_end_is_not_forgotten_before_it_is_stored() {
    let mut d = double(1);
    let job = d.submit(ask());
    d.plan();
    let mut core = rebooted(&d);
    let mut cx = Cx::at(d.now.plus_secs(24 * 3600));
    core.node_failed(remains(job, None, d.now), &mut cx);
    let mut later = Cx::at(cx.now.plus_secs(d.core.config().min_job_age_secs));
    core.plan(&mut later);
    assert!(core.job(job).is_some(), "its end is not stored yet");
    core.end_is_stored(job, &mut later);
    assert!(core.job(job).is_some(), "a reader may have seen it running");
    core.plan(&mut Cx::at(later.now.plus_secs(d.core.config().min_job_age_secs)));
    assert!(core.job(job).is_none());
}

#[test]
fn a_job_with_requeue_runs_again_once_after_a_reboot() {
    let mut d = double(2);
    let asked = d.submit(ask().with(|r| r.requeue = true));
    d.plan();
    for restarts in [0, 1] {
        let mut core = rebooted(&d);
        assert_eq!(core.job(asked).unwrap().run.restarts, restarts);
        let mut cx = Cx::at(d.now);
        core.node_failed(remains(asked, None, d.now), &mut cx);
        let expected =
            if restarts == 0 { JobState::Pending } else { JobState::Ended(End::NodeFail) };
        assert_eq!(core.job(asked).unwrap().run.state, expected);
        core.plan(&mut cx);
        d.store.jobs.insert(asked, core.job(asked).unwrap().clone());
        if let Some(job) = d.store.jobs.get_mut(&asked) {
            // Each boot has another ID.
            if let Some(clock) = job.run.clock.as_deref_mut() {
                clock.boot = BootId(1);
            }
        }
    }
}

#[test]
fn with_slurms_meaning_of_requeue_only_a_node_failure_reruns_a_job() {
    let mut d = double(2);
    d.act(|core, cx| {
        core.set_config(Config { reruns_failed: false, ..core.config().clone() }, cx.now)
    });
    let asked = d.submit(ask().with(|r| r.requeue = true));
    d.plan();
    let mut core = rebooted(&d);
    let mut cx = Cx::at(d.now);
    core.set_config(Config { reruns_failed: false, ..core.config().clone() }, cx.now);
    core.node_failed(remains(asked, None, d.now), &mut cx);
    let run = &core.job(asked).unwrap().run;
    assert_eq!(
        (run.state, run.restarts, run.rerun_after),
        (JobState::Pending, 1, Some(End::NodeFail))
    );
}

#[test]
fn jobs_being_stopped_at_a_reboot_end_as_intended() {
    let mut d = double(4);
    let ids: Vec<JobId> = (0..4).map(|_| d.submit(ask())).collect();
    d.plan();
    d.cancel(&JobRef::job(ids[0])).unwrap();
    d.act(|core, cx| core.limit_reached(ids[1], cx));
    d.act(|core, cx| core.requeue(&JobRef::job(ids[2]), None, &[], cx)).unwrap();
    let mut core = rebooted(&d);
    let mut cx = Cx::at(d.now);
    for id in core.records().ran_before(None) {
        core.node_failed(remains(id, None, d.now), &mut cx);
    }
    let states: Vec<JobState> = ids.iter().map(|id| core.job(*id).unwrap().run.state).collect();
    assert_eq!(
        states,
        [
            JobState::Ended(End::Cancelled),
            JobState::Ended(End::Timeout),
            JobState::Pending,
            JobState::Ended(End::NodeFail)
        ]
    );
}

#[test]
fn the_boot_of_an_old_record_follows_from_its_start() {
    let mut d = double(1);
    let job = d.submit(ask());
    d.plan();
    d.store.jobs.get_mut(&job).unwrap().run.clock = None;
    let core = rebooted(&d);
    assert_eq!(core.records().ran_before(Some(d.now.plus_secs(1))), [job]);
    assert_eq!(core.records().ran_before(Some(d.now)), []);
    assert_eq!(core.records().ran_before(None), []);
}
