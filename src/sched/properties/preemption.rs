//! Properties of preemption.

use super::*;
use slotd_model::preempt::PreemptMode;
use std::collections::BTreeSet;

/// Returns a host whose partitions have tiers, and whose jobs make room.
fn tiered(modes: [PreemptMode; 2], grace_secs: u64) -> Double {
    let mut d = host_of(false);
    let mut config = d.core.config().clone();
    let named = |name: &str, tier| {
        let (name, priority_tier) = (name.to_owned(), Some(tier));
        Partition { name, priority_tier, grace_secs, ..Partition::default() }
    };
    let low = Partition { preempt_mode: Some(modes[0]), ..named("low", 1) };
    let mid = Partition { preempt_mode: Some(modes[1]), ..named("mid", 2) };
    let more = Partition { cpus: Some([0, 1].into()), ..low.clone() };
    let more = Partition { name: "more".to_owned(), ..more };
    config.set_partitions(vec![low, mid, named("high", 3), more]);
    d.set_config(config);
    d
}

fn mode() -> impl Strategy<Value = PreemptMode> {
    prop::sample::select(PreemptMode::ALL.to_vec())
}

/// Returns an event without jobs that the end of another one releases: these may take any room.
fn without_followers(event: Event) -> Event {
    match event {
        Event::Submit(shape) => {
            let array = shape.array.map(|(last, _)| (last, None));
            Event::Submit(Shape { depends: None, singleton: false, array, ..shape })
        }
        Event::Throttle { .. } => Event::Plan,
        event => event,
    }
}

/// Returns an event without what ties jobs to certain CPUs. There, another job that may preempt too
/// can start on a CPU that was made free for the first one, which then waits on.
fn without_ties(event: Event) -> Event {
    match event {
        Event::Submit(shape) => Event::Submit(Shape { named_cpus: Vec::new(), ..shape }),
        Event::Reserve(_) | Event::Resize { .. } => Event::Plan,
        event => event,
    }
}

/// Returns the jobs that end to make room now, and those that they make room for.
fn victims(d: &Double) -> Vec<(Job, JobId)> {
    let is_going = |job: &&Job| match job.run.state {
        JobState::Completing => job.run.reason == Reason::Preempted,
        JobState::Running | JobState::Suspended => {
            job.run.preempted.as_ref().is_some_and(|by| by.grace_end().is_some())
        }
        JobState::Pending | JobState::Ended(_) => false,
    };
    let all = d.core.jobs().filter(is_going);
    all.filter_map(|job| Some((job.clone(), job.run.preempted.as_ref()?.by))).collect()
}

/// Checks that a job had the right to preempt another.
fn check_right(d: &Double, victim: &Job, by: JobId) {
    let config = d.core.config();
    let of = |job: &Job| {
        let tier = job.partitions().filter_map(|name| {
            config.partitions.iter().find(|known| known.name == name).map(Partition::tier)
        });
        (tier.max(), config.qos_of(&job.request).cloned().unwrap_or_default())
    };
    let ((tier, qos), (own_tier, own_qos)) = (of(victim), of(d.core.job(by).expect("it waits")));
    assert!(own_tier >= tier, "{victim:?} makes room for job {by} of a lower tier");
    assert!(own_tier > tier || own_qos.preempt.contains(&qos.name), "{victim:?} by {by}");
}

/// Checks that a job starts when all jobs that are going have gone. Jobs that their user requeues
/// return to the queue, perhaps ahead of it, so they are cancelled.
fn check_room(d: &Double, by: JobId) {
    if d.state(by) == JobState::Running {
        // Only the owner's reservation kept it waiting: that counts on the end of the others.
        return;
    }
    let mut d = d.clone();
    let going: Vec<JobId> = victims(&d).into_iter().map(|(job, _)| job.id).collect();
    let ending = d.core.jobs().filter(|job| job.run.state == JobState::Completing);
    let all: BTreeSet<JobId> = ending.map(|job| job.id).chain(going.iter().copied()).collect();
    for id in all {
        d.end(id, EndCause::Exited, ExitCode::status(1));
        if d.state(id) == JobState::Pending && !going.contains(&id) {
            let _ = d.cancel(&JobRef::job(id));
        }
    }
    d.started();
    d.plan();
    let started = d.started();
    let job = d.core.job(by).expect("it is in memory");
    let is_own = |id: &JobId| {
        let own = d.core.job(*id).and_then(Job::array_job_id);
        *id == by || own.is_some() && own == job.array_job_id()
    };
    assert!(started.iter().any(is_own), "{job:?} did not start, but {started:?}");
}

/// Returns the suspended jobs that lend their CPUs, and those for which they were suspended.
fn lenders(d: &Double) -> Vec<(Job, JobId)> {
    let is_lender =
        |job: &&Job| job.run.state == JobState::Suspended && job.run.lends_cpus().is_some();
    let all = d.core.jobs().filter(is_lender);
    all.filter_map(|job| Some((job.clone(), job.run.preempted.as_ref()?.by))).collect()
}

/// Checks that a job, or a task of its array, was started at once.
fn check_started(d: &Double, started: &[JobId], by: JobId) {
    let array = |id: JobId| d.core.job(id).and_then(Job::array_job_id);
    let is_own = |id: &JobId| *id == by || array(by).is_some() && array(*id) == array(by);
    assert!(started.iter().any(is_own), "a job was suspended for {by}, but {started:?} started");
}

/// Checks that every job that was suspended for another one is resumed when the others have ended.
fn check_resumption(d: &Double) {
    let mut d = d.clone();
    loop {
        let waits = |job: &&Job| job.run.waits_for_its_cpus();
        let before = d.core.jobs().filter(waits).count();
        if before == 0 {
            return;
        }
        let others = d.core.jobs().filter(|job| job.run.state.is_active() && !waits(job));
        let others: Vec<JobId> = others.map(|job| job.id).collect();
        for id in others {
            d.end(id, EndCause::Exited, ExitCode::OK);
        }
        for id in d.core.records.pending() {
            let _ = d.cancel(&JobRef::job(id));
        }
        d.now = d.now.plus_secs(1);
        d.plan();
        let after: Vec<Job> = d.core.jobs().filter(waits).cloned().collect();
        assert!(after.len() < before, "{after:?} stay suspended");
    }
}

/// Carries out these events, each with a round, and checks what the rounds do.
fn check_all(mut d: Double, events: Vec<Event>) -> Result<(), TestCaseError> {
    let mut known: Vec<JobId> = Vec::new();
    for event in events {
        // A job that was launched this moment is not preempted yet.
        d.now = d.now.plus_secs(1);
        happen(&mut d, event);
        // The plan is compared before it is carried out.
        let lent: Vec<JobId> = lenders(&d).into_iter().map(|(job, _)| job.id).collect();
        d.effects.clear();
        let (mut core, mut slow, mut fast) = (d.core.clone(), Cx::at(d.now), Cx::at(d.now));
        core.plan_by(one_by_one, &mut slow);
        d.core.plan(&mut fast);
        prop_assert_eq!(&fast.out.effects, &slow.out.effects);
        d.act(|_, cx| cx.out = fast.out);
        let started = d.started();
        for (lender, by) in lenders(&d).iter().filter(|(job, _)| !lent.contains(&job.id)) {
            check_right(&d, lender, *by);
            check_started(&d, &started, *by);
        }
        let all = victims(&d);
        for (victim, by) in all.iter().filter(|(victim, _)| !known.contains(&victim.id)) {
            check_right(&d, victim, *by);
            check_room(&d, *by);
        }
        known = all.into_iter().map(|(victim, _)| victim.id).collect();
        d.effects.clear();
        d.plan();
        prop_assert!(d.effects.is_empty(), "a second round found {:?}", d.effects);
        let core = recovered(&d);
        prop_assert_eq!(core.resources.ledger(), d.core.resources.ledger());
    }
    check_resumption(&d);
    Ok(())
}

proptest! {
    #![proptest_config(settings())]

    /// Only jobs that may be preempted are, each for a job that starts as soon as they are gone.
    #[test]
    fn jobs_make_room_only_for_jobs_that_then_start(
        modes in (mode(), mode()).prop_map(|(low, mid)| [low, mid]),
        grace_secs in prop_oneof![Just(0u64), 1u64..100],
        events in prop::collection::vec(event().prop_map(without_followers), 1..50),
    ) {
        let events = events.into_iter().map(without_ties).collect();
        check_all(tiered(modes, grace_secs), events)?;
    }

    /// A job is suspended only for one that starts in the same round, and is resumed in the end.
    #[test]
    fn jobs_are_suspended_only_for_jobs_that_start_at_once(
        events in prop::collection::vec(event().prop_map(without_followers), 1..50),
    ) {
        let without_qos = |event| if matches!(event, Event::Qos(_)) { Event::Plan } else { event };
        let events = events.into_iter().map(without_qos).collect();
        check_all(tiered([PreemptMode::Suspend; 2], 0), events)?;
    }
}
