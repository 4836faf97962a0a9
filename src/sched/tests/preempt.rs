//! Preemption: who makes room for whom, how, and for whose benefit.

mod suspended;

use super::*;
use crate::types::Config;
use slotd_model::preempt::PreemptMode;
use slotd_model::qos::{Qos, TresLimit};
use slotd_model::reservation::{Flag, How, Length, ReservationAsk, ReservationOrder, Share};

fn partition(name: &str, tier: u32, mode: Option<PreemptMode>) -> Partition {
    let (priority_tier, preempt_mode) = (Some(tier), mode);
    Partition { name: name.to_owned(), priority_tier, preempt_mode, ..Partition::default() }
}

/// Creates a host with 4 CPUs and the partitions low, mid and high.
fn tiers(mode: PreemptMode, grace_secs: u64) -> Double {
    Double::with(|config| {
        let low = Partition { grace_secs, ..partition("low", 1, Some(mode)) };
        let mid = Partition { grace_secs, ..partition("mid", 2, Some(mode)) };
        config.set_partitions(vec![low, mid, partition("high", 3, None)]);
    })
}

fn to(partition: &str) -> Ask {
    ask().with(|request| request.partition = Some(partition.to_owned()))
}

fn qos(name: &str) -> Qos {
    Qos { name: name.to_owned(), ..Qos::default() }
}

/// Adds the QOS urgent, which preempts low and normal.
fn with_urgent(all: &[Qos]) -> Double {
    let preempt = vec!["low".to_owned(), "normal".to_owned()];
    let mut d = Double::new(4, 1000, 2);
    d.set_qos(&[&[Qos { preempt, priority: 10, ..qos("urgent") }], all].concat());
    d
}

const CANCEL: StopCause = StopCause::Preempted;

/// Ends the processes of a job that is being stopped.
fn die(d: &mut Double, id: JobId) {
    d.end(id, EndCause::Stopped, ExitCode::signal(15));
    d.plan();
}

/// Starts these jobs, a second ago.
fn started(d: &mut Double, asks: &[Ask]) -> Vec<JobId> {
    let start = |ask: &Ask| {
        let id = d.submit(ask.clone());
        d.plan();
        assert_eq!(d.started(), [id]);
        id
    };
    let ids = asks.iter().map(start).collect();
    d.now = d.now.plus_secs(1);
    ids
}

#[test]
fn a_job_of_a_higher_tier_ends_one_of_a_lower_tier() {
    let mut d = tiers(PreemptMode::Cancel, 0);
    let victim = started(&mut d, &[to("low").cpus(4)])[0];
    let urgent = d.submit(to("high").cpus(2));
    d.plan();
    assert_eq!(d.stops(), [(victim, CANCEL)]);
    assert_eq!((d.state(victim), d.started()), (JobState::Completing, vec![]));
    assert_eq!(d.reason(urgent), Reason::Resources);
    // Another round stops no other job.
    d.plan();
    assert_eq!(d.stops(), []);
    die(&mut d, victim);
    assert_eq!(d.started(), [urgent]);
    let run = &d.core.job(victim).unwrap().run;
    assert_eq!((run.state, run.reason), (JobState::Ended(End::Preempted), Reason::Preempted));
    assert_eq!(run.preempted.as_ref().unwrap().by, urgent);
}

#[test]
fn equal_and_higher_tiers_and_protected_partitions_are_left_alone() {
    for (mode, of_victim, of_waiting) in [
        (PreemptMode::Cancel, "low", "low"),
        (PreemptMode::Cancel, "mid", "low"),
        (PreemptMode::Cancel, "high", "mid"),
        (PreemptMode::Off, "low", "high"),
    ] {
        let mut d = tiers(mode, 0);
        started(&mut d, &[to(of_victim).cpus(4)]);
        let waiting = d.submit(to(of_waiting).cpus(1));
        d.plan();
        assert_eq!(d.stops(), [], "{mode} {of_victim} {of_waiting}");
        assert_eq!(d.reason(waiting), Reason::Resources);
    }
}

#[test]
fn the_fewest_and_least_important_jobs_go() {
    let mut d = tiers(PreemptMode::Cancel, 0);
    let ids = started(
        &mut d,
        &[to("low").priority(5), to("low").priority(3), to("low").priority(3), to("mid")],
    );
    let one = d.submit(to("high"));
    d.plan();
    assert_eq!(d.stops(), [(ids[2], CANCEL)]);
    die(&mut d, ids[2]);
    assert_eq!(d.started(), [one]);
    let two = d.submit(to("high").cpus(2));
    d.plan();
    assert_eq!(d.stops(), [(ids[1], CANCEL), (ids[0], CANCEL)]);
    die(&mut d, ids[1]);
    assert_eq!(d.started(), []);
    die(&mut d, ids[0]);
    assert_eq!(d.started(), [two]);
    assert_eq!(d.state(ids[3]), JobState::Running);
}

#[test]
fn a_job_whose_end_would_not_help_is_spared() {
    let mut d = tiers(PreemptMode::Cancel, 0);
    let ids = started(&mut d, &[to("low").mem(100), to("low").mem(800).priority(9)]);
    d.submit(to("high").mem(500));
    d.plan();
    assert_eq!(d.stops(), [(ids[1], CANCEL)]);
}

#[test]
fn nothing_is_preempted_in_vain() {
    // Too little would be free.
    let mut d = tiers(PreemptMode::Cancel, 0);
    started(&mut d, &[to("low"), to("high").cpus(3)]);
    d.submit(to("high").cpus(2));
    d.plan();
    assert_eq!(d.stops(), []);
    // Something else keeps the job waiting.
    let mut d = tiers(PreemptMode::Cancel, 0);
    let low = started(&mut d, &[to("low").cpus(4)])[0];
    d.submit(to("high").held());
    d.submit(to("high").after(DependencyKind::AfterOk, low));
    d.submit(to("high").with(|request| request.immediate_secs = Some(60)));
    let begin = d.now.plus_secs(100);
    d.submit(to("high").with(|request| request.begin = Some(begin)));
    d.plan();
    assert_eq!(d.stops(), []);
    // Its QOS has reached a limit.
    let preempt = vec!["normal".to_owned()];
    let mut d = Double::new(4, 1000, 2);
    d.set_qos(&[Qos { preempt, max_jobs: Some(1), priority: 1, ..qos("urgent") }]);
    started(&mut d, &[ask().qos("urgent"), ask().cpus(3)]);
    d.submit(ask().qos("urgent"));
    d.plan();
    assert_eq!(d.stops(), []);
}

#[test]
fn a_job_ahead_that_would_take_the_room_keeps_others_from_preempting() {
    let mut d = with_urgent(&[qos("low")]);
    started(&mut d, &[ask().qos("low").cpus(4)]);
    let first = d.submit(ask().qos("normal").priority(50).cpus(2));
    let urgent = d.submit(ask().qos("urgent").cpus(2));
    d.plan();
    assert_eq!(d.stops(), []);
    assert_eq!((d.reason(first), d.reason(urgent)), (Reason::Resources, Reason::Priority));
    d.cancel(&JobRef::job(first)).unwrap();
    d.plan();
    assert_eq!(d.stops().len(), 1);
}

#[test]
fn the_room_goes_to_the_preemptor() {
    let mut d = tiers(PreemptMode::Cancel, 0);
    let ids = started(&mut d, &[to("low").cpus(2), to("low").cpus(2)]);
    let urgent = d.submit(to("high").cpus(4));
    let small = d.submit(to("low").cpus(1).limit(1));
    d.plan();
    assert_eq!(d.stops().len(), 2);
    die(&mut d, ids[0]);
    assert_eq!((d.started(), d.reason(small)), (vec![], Reason::Priority));
    die(&mut d, ids[1]);
    assert_eq!(d.started(), [urgent]);
}

#[test]
fn several_jobs_preempt_in_one_round() {
    let mut d = tiers(PreemptMode::Cancel, 0);
    let ids = started(&mut d, &[to("low"), to("low"), to("low"), to("low")]);
    let urgent = [to("high"), to("high"), to("mid")].map(|ask| d.submit(ask));
    d.plan();
    assert_eq!(d.stops().len(), 3);
    for id in &ids[1..] {
        die(&mut d, *id);
    }
    assert_eq!(d.started(), urgent);
    assert_eq!(d.state(ids[0]), JobState::Running);
}

#[test]
fn jobs_that_are_ending_anyway_are_awaited() {
    let mut d = tiers(PreemptMode::Cancel, 0);
    let ids = started(&mut d, &[to("low").cpus(2), to("high").cpus(2)]);
    d.cancel(&JobRef::job(ids[1])).unwrap();
    let urgent = d.submit(to("high").cpus(2));
    d.plan();
    assert_eq!(d.stops().len(), 1);
    die(&mut d, ids[1]);
    assert_eq!((d.started(), d.stops()), (vec![urgent], vec![]));
}

#[test]
fn a_requeued_job_waits_two_minutes_and_does_not_push_out_the_other() {
    let mut d = tiers(PreemptMode::Requeue, 0);
    let victim = started(&mut d, &[to("low").cpus(4)])[0];
    let urgent = d.submit(to("high").cpus(4));
    d.plan();
    d.stops();
    die(&mut d, victim);
    assert_eq!((d.started(), d.reason(victim)), (vec![urgent], Reason::BeginTime));
    let job = d.core.job(victim).unwrap();
    assert_eq!((job.run.restarts, job.run.preempted.clone()), (1, None));
    let (_, run) = d.store.runs.last().expect("the run is stored");
    assert_eq!((run.run.state, run.requeued), (JobState::Ended(End::Preempted), false));
    d.wait(119);
    assert_eq!(d.reason(victim), Reason::BeginTime);
    let mut sooner = d.clone();
    let now = Update::StartTime(d.now);
    sooner.act(|core, cx| core.update(&JobRef::job(victim), &[now], &[], cx)).unwrap();
    assert_eq!(sooner.reason(victim), Reason::Resources);
    d.wait(1);
    assert_eq!((d.reason(victim), d.stops()), (Reason::Resources, vec![]));
    d.exit(urgent, 0);
    assert_eq!(d.started(), [victim]);
}

#[test]
fn a_users_requeue_ends_the_consequences_of_a_preemption() {
    // The job was suspended.
    let mut d = tiers(PreemptMode::Suspend, 0);
    let victim = started(&mut d, &[to("low").cpus(4)])[0];
    started(&mut d, &[to("high").cpus(2)]);
    let requeue = |d: &mut Double, id| {
        d.act(|core, cx| core.requeue(&JobRef::job(id), None, &[], cx)).unwrap();
    };
    requeue(&mut d, victim);
    die(&mut d, victim);
    let comment = |d: &Double, id| d.core.job(id).unwrap().run.system_comment.clone();
    assert_eq!((d.reason(victim), comment(&d, victim)), (Reason::Resources, None));
    // The job has ended.
    let mut d = tiers(PreemptMode::Cancel, 0);
    let victim = started(&mut d, &[to("low").cpus(4)])[0];
    let urgent = d.submit(to("high").cpus(4));
    d.plan();
    die(&mut d, victim);
    assert!(comment(&d, victim).is_some());
    d.started();
    requeue(&mut d, victim);
    d.plan();
    assert_eq!((d.reason(victim), comment(&d, victim)), (Reason::Resources, None));
    d.exit(urgent, 0);
    assert_eq!(d.started(), [victim]);
}

#[test]
fn jobs_that_cannot_be_requeued_are_cancelled() {
    let mut d = tiers(PreemptMode::Requeue, 0);
    let no_requeue = to("low").cpus(2).with(|request| request.no_requeue = true);
    let ids = started(&mut d, &[no_requeue, to("low").allocation(), to("low")]);
    let urgent = d.submit(to("high").cpus(4));
    d.plan();
    assert_eq!(d.stops().len(), 3);
    ids.iter().for_each(|id| die(&mut d, *id));
    let preempted = JobState::Ended(End::Preempted);
    assert_eq!(ids.map_states(&d), [preempted, preempted, JobState::Pending]);
    assert_eq!(d.started(), [urgent]);
}

trait States {
    fn map_states(&self, d: &Double) -> Vec<JobState>;
}

impl States for Vec<JobId> {
    fn map_states(&self, d: &Double) -> Vec<JobState> {
        self.iter().map(|id| d.state(*id)).collect()
    }
}

#[test]
fn a_user_may_cancel_or_hold_a_job_that_is_being_requeued() {
    let mut d = tiers(PreemptMode::Requeue, 0);
    let ids = started(&mut d, &[to("low").cpus(2), to("low").cpus(2)]);
    d.submit(to("high").cpus(4));
    d.plan();
    d.cancel(&JobRef::job(ids[0])).unwrap();
    d.act(|core, cx| core.hold(&JobRef::job(ids[1]), Hold::User, cx)).unwrap();
    ids.iter().for_each(|id| die(&mut d, *id));
    assert_eq!(ids.map_states(&d), [JobState::Ended(End::Cancelled), JobState::Pending]);
    assert_eq!(d.reason(ids[1]), Reason::JobHeldUser);
}

#[test]
fn a_grace_time_warns_first_and_ends_the_job_later() {
    let mut d = tiers(PreemptMode::Cancel, 60);
    let victim = started(&mut d, &[to("low").cpus(4)])[0];
    let urgent = d.submit(to("high").cpus(4));
    d.plan();
    assert_eq!(d.effects.iter().filter(|e| **e == Effect::Preempt(victim)).count(), 1);
    assert_eq!((d.stops(), d.state(victim)), (vec![], JobState::Running));
    assert_eq!(d.expected_start(urgent), Some(d.now.plus_secs(60)));
    // The state survives a restart of the daemon, and nobody is warned twice.
    let mut d = d.restarted();
    d.plan();
    d.wait(59);
    assert_eq!((d.stops(), d.effects.contains(&Effect::Preempt(victim))), (vec![], false));
    d.wait(1);
    assert_eq!(d.stops(), [(victim, CANCEL)]);
    die(&mut d, victim);
    assert_eq!(d.started(), [urgent]);
}

#[test]
fn a_job_that_ends_in_its_grace_time_is_preempted_only_if_it_fails() {
    for (status, mode, expected) in [
        (0, PreemptMode::Cancel, JobState::Ended(End::Completed)),
        (1, PreemptMode::Cancel, JobState::Ended(End::Preempted)),
        (0, PreemptMode::Requeue, JobState::Ended(End::Completed)),
        (1, PreemptMode::Requeue, JobState::Pending),
    ] {
        let mut d = tiers(mode, 60);
        let victim = started(&mut d, &[to("low").cpus(4)])[0];
        let urgent = d.submit(to("high").cpus(4));
        d.plan();
        d.exit(victim, status);
        assert_eq!((d.state(victim), d.started()), (expected, vec![urgent]), "{status} {mode}");
    }
}

/// It may have ended while no daemon ran, or while the disk was writing the decision.
#[test]
fn a_job_that_had_ended_before_it_was_stopped_is_not_preempted() {
    for mode in [PreemptMode::Cancel, PreemptMode::Requeue] {
        for (code, end) in [(0, End::Completed), (3, End::Failed)] {
            let mut d = tiers(mode, 0);
            let victim = started(&mut d, &[to("low").cpus(4)])[0];
            let urgent = d.submit(to("high").cpus(2));
            d.plan();
            assert_eq!(d.stops(), [(victim, CANCEL)]);
            d.exit(victim, code);
            d.plan();
            assert_eq!((d.state(victim), d.started()), (JobState::Ended(end), vec![urgent]));
            let run = &d.core.job(victim).unwrap().run;
            assert_eq!((run.exit, &run.preempted), (ExitCode::status(code), &None));
        }
    }
}

#[test]
fn a_job_that_was_cancelled_by_an_earlier_daemon_is_not_requeued_for_a_preemption() {
    let mut d = tiers(PreemptMode::Requeue, 0);
    let victim = started(&mut d, &[to("low").cpus(4)])[0];
    d.submit(to("high").cpus(2));
    d.plan();
    let ended = ExitRecord::gone(ExitCode::signal(15), d.now);
    let record = ExitRecord { stopped: true, cancelled_by: Some(1001), ..ended };
    d.act(|core, cx| core.on_job_ended(victim, record, EndCause::Stopped, cx));
    assert_eq!(d.state(victim), JobState::Ended(End::Cancelled));
    assert_eq!(d.core.job(victim).unwrap().run.cancelled_by, Some(1001));
}

#[test]
fn a_job_goes_on_if_the_one_that_needed_its_room_no_longer_waits() {
    let mut d = tiers(PreemptMode::Cancel, 60);
    let victim = started(&mut d, &[to("low").cpus(4)])[0];
    let urgent = d.submit(to("high").cpus(4));
    d.plan();
    d.cancel(&JobRef::job(urgent)).unwrap();
    d.wait(60);
    assert_eq!((d.stops(), d.state(victim)), (vec![], JobState::Running));
    let again = d.submit(to("high").cpus(4));
    d.plan();
    d.wait(60);
    assert_eq!(d.stops(), [(victim, CANCEL)]);
    die(&mut d, victim);
    assert_eq!(d.started(), [again]);
}

#[test]
fn a_job_goes_on_if_a_new_configuration_protects_it_in_its_grace_time() {
    let mut d = tiers(PreemptMode::Cancel, 60);
    let victim = started(&mut d, &[to("low").cpus(4)])[0];
    let urgent = d.submit(to("high").cpus(4));
    d.plan();
    let mut config = d.core.config().clone();
    let low = Partition { grace_secs: 60, ..partition("low", 1, Some(PreemptMode::Off)) };
    config.set_partitions(vec![low, partition("high", 3, None)]);
    d.set_config(config);
    d.wait(60);
    assert_eq!((d.stops(), d.state(victim)), (vec![], JobState::Running));
    assert_eq!((d.reason(urgent), d.core.next_due()), (Reason::Resources, None));
}

#[test]
fn the_qos_of_the_victim_says_how_it_makes_room() {
    let low = Qos { preempt_mode: Some(PreemptMode::Cancel), ..qos("low") };
    for (own, all, expected) in [
        ("low", vec![low.clone()], Some(JobState::Ended(End::Preempted))),
        ("normal", vec![low.clone()], Some(JobState::Pending)),
        ("low", vec![Qos { preempt_mode: Some(PreemptMode::Off), ..low.clone() }], None),
        ("other", vec![low, qos("other")], None),
    ] {
        let mut d = with_urgent(&all);
        let victim = started(&mut d, &[ask().qos(own).cpus(4)])[0];
        let urgent = d.submit(ask().qos("urgent").cpus(4));
        d.plan();
        assert_eq!(d.stops().len(), usize::from(expected.is_some()), "{own}");
        if let Some(expected) = expected {
            die(&mut d, victim);
            assert_eq!((d.state(victim), d.started()), (expected, vec![urgent]), "{own}");
        }
    }
}

#[test]
fn a_qos_preempts_no_job_of_a_higher_tier() {
    let mut d = Double::with(|config| {
        config.set_partitions(vec![partition("low", 1, None), partition("high", 2, None)]);
    });
    d.set_qos(&[Qos { preempt: vec!["normal".to_owned()], ..qos("urgent") }]);
    started(&mut d, &[to("high").cpus(4)]);
    d.submit(to("low").qos("urgent"));
    d.plan();
    assert_eq!(d.stops(), []);
    d.submit(to("high").qos("urgent"));
    d.plan();
    assert_eq!(d.stops().len(), 1);
}

#[test]
fn a_job_that_can_start_in_another_partition_preempts_nobody() {
    let mut d = Double::with(|config| {
        let own = |cpus: [u32; 2]| Some(cpus.into_iter().collect());
        let low = Partition { cpus: own([0, 1]), ..partition("low", 1, Some(PreemptMode::Cancel)) };
        let high = Partition { cpus: own([0, 1]), ..partition("high", 2, None) };
        config.set_partitions(vec![
            low,
            high,
            Partition { cpus: own([2, 3]), ..partition("free", 1, None) },
        ]);
    });
    started(&mut d, &[to("low").cpus(2)]);
    let both = d.submit(to("high,free").cpus(2));
    d.plan();
    assert_eq!((d.stops(), d.started()), (vec![], vec![both]));
}

#[test]
fn the_tasks_of_an_array_preempt_one_after_the_other() {
    let mut d = tiers(PreemptMode::Cancel, 0);
    let ids = started(&mut d, &[to("low"), to("low"), to("high").cpus(2)]);
    d.submit(to("high").array(0, 2, None));
    d.plan();
    assert_eq!(d.stops(), [(ids[1], CANCEL)]);
    die(&mut d, ids[1]);
    assert_eq!((d.started().len(), d.stops()), (1, vec![(ids[0], CANCEL)]));
    die(&mut d, ids[0]);
    assert_eq!((d.started().len(), d.stops()), (1, vec![]));
}

/// Reserves these CPUs, or the node, for the user lab.
fn reserve(d: &mut Double, cpus: Option<u32>, begins: u64) {
    let share = cpus.map_or(Share::Node, |cpus| {
        Share::Parts(TresLimit { cpus: Some(cpus), ..TresLimit::default() })
    });
    let ask = ReservationAsk {
        name: Some("course".to_owned()),
        start: Some(d.now.plus_secs(begins)),
        length: Some(Length::Secs(1000)),
        users: Some((How::Set, vec!["lab".to_owned()])),
        share: Some(share),
        flags: Some((How::Set, vec![Flag::IgnoreJobs])),
        ..ReservationAsk::default()
    };
    let order = ReservationOrder::Create(Box::new(ask));
    d.act(|core, cx| core.order_reservation(&order, cx)).expect("it fits");
}

#[test]
fn jobs_in_a_reservation_make_room_only_for_its_own_jobs() {
    let inside = |ask: Ask| ask.with(|request| request.reservation = Some("course".to_owned()));
    let mut d = tiers(PreemptMode::Cancel, 0);
    reserve(&mut d, Some(2), 0);
    let victim = started(&mut d, &[inside(to("low").cpus(2)), to("high").cpus(2)])[0];
    let outside = d.submit(to("high").cpus(2));
    d.plan();
    assert_eq!(d.stops(), []);
    d.submit(inside(to("high").cpus(2)));
    d.cancel(&JobRef::job(outside)).unwrap();
    d.plan();
    assert_eq!(d.stops(), [(victim, CANCEL)]);
}

#[test]
fn a_job_that_would_run_into_a_reservation_preempts_nobody() {
    let mut d = tiers(PreemptMode::Cancel, 0);
    started(&mut d, &[to("low").cpus(4)]);
    reserve(&mut d, None, 100);
    d.submit(to("high").cpus(4).limit(101));
    d.plan();
    assert_eq!(d.stops(), []);
    d.submit(to("high").cpus(4).limit(99));
    d.plan();
    assert_eq!(d.stops().len(), 1);
}

#[test]
fn a_job_that_was_launched_this_moment_is_preempted_a_moment_later() {
    let mut d = with_urgent(&[qos("low")]);
    let low = d.submit(ask().qos("low").priority(50).cpus(4));
    let urgent = d.submit(ask().qos("urgent").cpus(4));
    d.plan();
    assert_eq!((d.started(), d.stops()), (vec![low], vec![]));
    assert_eq!(d.core.next_due(), Some(d.now.plus_secs(1)));
    d.wait(1);
    assert_eq!(d.stops(), [(low, CANCEL)]);
    die(&mut d, low);
    assert_eq!(d.started(), [urgent]);
}

#[test]
fn licenses_and_gpus_are_freed_by_preemption() {
    let mut d = tiers(PreemptMode::Cancel, 0);
    d.set_licenses(&[("disk", 1)]);
    let ids = started(&mut d, &[to("low"), to("low").gpus(2), to("low").licenses("disk")]);
    d.submit(to("high").gpus(1));
    d.plan();
    assert_eq!(d.stops(), [(ids[1], CANCEL)]);
    d.submit(to("high").licenses("disk"));
    d.plan();
    assert_eq!(d.stops(), [(ids[2], CANCEL)]);
    assert_eq!(d.state(ids[0]), JobState::Running);
}

#[test]
fn a_suspended_job_makes_room_too() {
    let mut d = tiers(PreemptMode::Requeue, 0);
    let victim = started(&mut d, &[to("low").cpus(4)])[0];
    d.act(|core, cx| core.suspend(&JobRef::job(victim), cx)).unwrap();
    d.submit(to("high"));
    d.plan();
    assert_eq!(d.stops(), [(victim, CANCEL)]);
}

#[test]
fn a_job_behind_another_one_of_its_line_preempts_nobody() {
    let mut d = tiers(PreemptMode::Cancel, 0);
    started(&mut d, &[to("low").cpus(2), to("high").cpus(2)]);
    let wide = d.submit(to("high").cpus(4));
    let small = d.submit(to("high").cpus(2));
    d.plan();
    assert_eq!(d.stops(), []);
    assert_eq!((d.reason(wide), d.reason(small)), (Reason::Resources, Reason::Priority));
}

/// The end of the preempted job would bring the start of the first job forward, so that the other
/// one would then delay it.
#[test]
fn a_short_job_behind_a_blocked_one_preempts_nobody() {
    let mut d = tiers(PreemptMode::Cancel, 0);
    started(&mut d, &[to("low").cpus(2).limit(100), to("high").cpus(2).limit(50)]);
    d.submit(to("high").cpus(4));
    d.submit(to("high").cpus(2).limit(90));
    d.plan();
    assert_eq!(d.stops(), []);
}

#[test]
fn a_job_ahead_without_a_reservation_keeps_its_turn() {
    let lazy = Qos { reserves_nothing: true, ..qos("lazy") };
    let mut d = with_urgent(&[qos("low"), lazy]);
    started(&mut d, &[ask().qos("low").cpus(4)]);
    let first = d.submit(ask().qos("lazy").priority(50).cpus(4));
    d.submit(ask().qos("urgent").cpus(4));
    d.plan();
    assert_eq!(d.stops(), []);
    d.cancel(&JobRef::job(first)).unwrap();
    d.plan();
    assert_eq!(d.stops().len(), 1);
}

#[test]
fn a_new_configuration_decides_about_running_jobs() {
    let mut d = tiers(PreemptMode::Off, 0);
    let victim = started(&mut d, &[to("low").cpus(4)])[0];
    d.submit(to("high").cpus(4));
    d.plan();
    assert_eq!(d.stops(), []);
    let mut config = d.core.config().clone();
    config.set_partitions(vec![
        partition("low", 1, Some(PreemptMode::Cancel)),
        partition("high", 3, None),
    ]);
    d.set_config(Config { ..config });
    d.plan();
    assert_eq!(d.stops(), [(victim, CANCEL)]);
}
