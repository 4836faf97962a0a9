//! Preemption by suspension: what a suspended job lends and keeps, and when it is resumed.

use super::*;
use slotd_model::preempt::Resumption;

/// Returns the effects of a round on processes, in order.
fn round(d: &mut Double) -> Vec<Effect> {
    d.effects.clear();
    d.plan();
    let is_meant = |effect: &Effect| {
        matches!(
            effect,
            Effect::Launch(_) | Effect::Suspend(_) | Effect::Resume(_) | Effect::Stop { .. }
        )
    };
    d.effects.iter().filter(|effect| is_meant(effect)).cloned().collect()
}

fn running(d: &Double, ids: &[JobId]) -> bool {
    ids.iter().all(|id| d.state(*id) == JobState::Running)
}

fn suspended(d: &Double, id: JobId) -> Option<Resumption> {
    let run = &d.core.job(id).unwrap().run;
    run.preempted.as_ref().and_then(|by| by.suspended).filter(|_| run.state == JobState::Suspended)
}

/// Suspends a job with all CPUs for one with `cpus`. Returns both.
fn pair(d: &mut Double, cpus: u32) -> (JobId, JobId) {
    d.effects.clear();
    let victim = started(d, &[to("low").cpus(4).limit(1000)])[0];
    let urgent = d.submit(to("high").cpus(cpus).limit(100));
    d.plan();
    assert_eq!(d.started(), [urgent]);
    assert_eq!(suspended(d, victim), Some(Resumption::ByItself));
    d.now = d.now.plus_secs(1);
    (victim, urgent)
}

#[test]
fn a_suspended_job_lends_its_cpus_and_goes_on_afterwards() {
    let mut d = tiers(PreemptMode::Suspend, 60);
    let victim = started(&mut d, &[to("low").cpus(4).limit(1000)])[0];
    let cpus = d.core.job(victim).unwrap().run.alloc.clone();
    let urgent = d.submit(to("high").cpus(2));
    // No grace time passes, and the stop comes before the start.
    let effects = round(&mut d);
    let [Effect::Suspend(first), Effect::Launch(second)] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((*first, second.id), (victim, urgent));
    let run = d.core.job(victim).unwrap().run.clone();
    assert_eq!((run.state, run.reason), (JobState::Suspended, Reason::None));
    assert_eq!(run.preempted.as_ref().unwrap().by, urgent);
    assert_eq!(
        run.system_comment,
        Some(format!("preempted by job {urgent} (PreemptMode=SUSPEND)"))
    );
    assert_eq!(d.core.resources.allocated().cpus, 4);
    assert_eq!(round(&mut d), []);
    d.wait(50);
    d.exit(urgent, 0);
    let run = &d.core.job(victim).unwrap().run;
    assert_eq!((run.state, run.suspended_us), (JobState::Running, 50_000_000));
    assert_eq!((&run.alloc, &run.preempted, &run.system_comment), (&cpus, &None, &None));
    assert!(d.effects.contains(&Effect::Resume(victim)));
    d.exit(victim, 0);
    assert_eq!(d.state(victim), JobState::Ended(End::Completed));
}

#[test]
fn nobody_is_suspended_for_anything_but_cpus() {
    let mut d = tiers(PreemptMode::Suspend, 0);
    d.set_licenses(&[("disk", 1)]);
    let ask = to("low").cpus(2).mem(800).gpus(2).licenses("disk");
    let victim = started(&mut d, &[ask])[0];
    for ask in
        [to("high").cpus(4).mem(300), to("high").cpus(3).gpus(1), to("high").licenses("disk")]
    {
        let waiting = d.submit(ask);
        assert_eq!(round(&mut d), []);
        assert!(matches!(d.reason(waiting), Reason::Resources | Reason::Licenses));
        d.cancel(&JobRef::job(waiting)).unwrap();
    }
    let urgent = d.submit(to("high").cpus(4).mem(200));
    d.plan();
    assert_eq!((d.state(victim), d.started()), (JobState::Suspended, vec![urgent]));
}

#[test]
fn limits_count_a_suspended_job() {
    let mut d = tiers(PreemptMode::Suspend, 0);
    d.set_qos(&[Qos {
        grp_tres: TresLimit { cpus: Some(4), ..TresLimit::default() },
        ..qos("few")
    }]);
    started(&mut d, &[to("low").cpus(3).qos("few")]);
    let urgent = d.submit(to("high").cpus(2).qos("few"));
    assert_eq!(round(&mut d), []);
    assert!(d.reason(urgent).is_limit());
}

#[test]
fn the_cpus_are_lent_only_to_jobs_that_may_preempt() {
    let mut d = tiers(PreemptMode::Suspend, 0);
    let (victim, urgent) = pair(&mut d, 1);
    // Three of its CPUs are idle.
    let equal = d.submit(to("low").limit(1));
    let above = d.submit(to("mid"));
    d.plan();
    assert_eq!((d.started(), d.reason(equal)), (vec![above], Reason::Resources));
    d.exit(above, 0);
    assert_eq!(suspended(&d, victim), Some(Resumption::ByItself));
    d.exit(urgent, 0);
    assert!(running(&d, &[victim]));
    assert_eq!(d.reason(equal), Reason::Resources);
}

#[test]
fn a_job_that_may_preempt_goes_before_the_resumption() {
    let mut d = tiers(PreemptMode::Suspend, 0);
    let (victim, first) = pair(&mut d, 4);
    let second = d.submit(to("mid").cpus(3));
    let other = d.submit(to("low"));
    d.plan();
    assert_eq!(d.started(), []);
    d.exit(first, 0);
    assert_eq!((d.started(), d.state(victim)), (vec![second], JobState::Suspended));
    d.exit(second, 0);
    assert!(running(&d, &[victim]) && d.state(other) == JobState::Pending);
}

#[test]
fn suspended_jobs_are_resumed_in_order_of_importance() {
    let mut d = tiers(PreemptMode::Suspend, 0);
    let low = started(&mut d, &[to("low").cpus(4)])[0];
    let mid = started(&mut d, &[to("mid").cpus(4)])[0];
    let high = started(&mut d, &[to("high").cpus(4)])[0];
    assert!(running(&d, &[high]) && suspended(&d, low).is_some() && suspended(&d, mid).is_some());
    d.exit(high, 0);
    assert!(running(&d, &[mid]) && suspended(&d, low).is_some());
    d.exit(mid, 0);
    assert!(running(&d, &[low]));
}

/// Without the rule that let one take the CPUs of the other, both would wait for each other.
#[test]
fn suspended_jobs_do_not_wait_for_each_other() {
    let mut d = tiers(PreemptMode::Suspend, 0);
    let low = started(&mut d, &[to("low").cpus(4)])[0];
    let mid = started(&mut d, &[to("mid").cpus(4)])[0];
    let high = started(&mut d, &[to("high").cpus(4)])[0];
    let mut config = d.core.config().clone();
    config.set_partitions(vec![
        partition("low", 1, None),
        partition("mid", 1, None),
        partition("high", 1, None),
    ]);
    d.set_config(config);
    d.plan();
    assert!(running(&d, &[high]));
    d.exit(high, 0);
    let all = [low, mid];
    assert_eq!(all.iter().filter(|id| d.state(**id) == JobState::Running).count(), 1);
    let first = *all.iter().find(|id| d.state(**id) == JobState::Running).unwrap();
    d.exit(first, 0);
    assert!(all.iter().all(|id| *id == first || d.state(*id) == JobState::Running));
}

#[test]
fn a_job_is_suspended_when_the_others_that_make_room_have_gone() {
    let mut d = Double::with(|config| {
        config.set_partitions(vec![
            partition("low", 1, Some(PreemptMode::Suspend)),
            partition("cancel", 1, Some(PreemptMode::Cancel)),
            partition("high", 3, None),
        ]);
    });
    let ids = started(&mut d, &[to("low").cpus(2), to("cancel").cpus(2).mem(900)]);
    let urgent = d.submit(to("high").cpus(4).mem(500));
    assert_eq!(round(&mut d), [Effect::Stop { job: ids[1], cause: CANCEL }]);
    assert!(running(&d, &[ids[0]]));
    assert_eq!(round(&mut d), []);
    d.end(ids[1], EndCause::Stopped, ExitCode::signal(15));
    d.plan();
    assert_eq!((d.started(), d.state(ids[0])), (vec![urgent], JobState::Suspended));
}

#[test]
fn a_suspended_job_can_still_be_made_to_end() {
    let cancel = Qos { preempt_mode: Some(PreemptMode::Cancel), ..qos("low") };
    let mut d = with_urgent(&[cancel]);
    let mut config = d.core.config().clone();
    config.set_partitions(vec![
        partition("low", 1, Some(PreemptMode::Suspend)),
        partition("high", 3, None),
    ]);
    d.set_config(config);
    let victim = started(&mut d, &[to("low").qos("low").cpus(4).mem(900)])[0];
    let first = started(&mut d, &[to("high").cpus(2)])[0];
    assert!(suspended(&d, victim).is_some());
    // It needs the memory, too.
    let second = d.submit(to("high").qos("urgent").mem(500));
    assert_eq!(round(&mut d), [Effect::Stop { job: victim, cause: CANCEL }]);
    die(&mut d, victim);
    assert_eq!(d.state(victim), JobState::Ended(End::Preempted));
    assert!(running(&d, &[first, second]));
}

#[test]
fn a_users_suspension_stays() {
    let mut d = tiers(PreemptMode::Suspend, 0);
    let (victim, urgent) = pair(&mut d, 4);
    let sel = JobRef::job(victim);
    let refused = d.act(|core, cx| core.resume(&sel, cx)).unwrap_err();
    assert_eq!(refused.to_string(), "Requested nodes are busy");
    assert_eq!(d.act(|core, cx| core.suspend(&sel, cx)), Ok(vec![victim]));
    assert_eq!(suspended(&d, victim), Some(Resumption::OnRequest));
    d = d.restarted();
    d.exit(urgent, 0);
    assert_eq!(suspended(&d, victim), Some(Resumption::OnRequest));
    // It lends its CPUs again.
    let again = d.submit(to("high"));
    d.plan();
    assert_eq!(d.started(), [again]);
    assert!(d.act(|core, cx| core.resume(&sel, cx)).is_err());
    d.exit(again, 0);
    d.act(|core, cx| core.resume(&sel, cx)).unwrap();
    assert!(running(&d, &[victim]));
    assert_eq!(d.core.job(victim).unwrap().run.preempted, None);
}

#[test]
fn a_job_that_its_user_has_suspended_lends_its_cpus() {
    let mut d = tiers(PreemptMode::Suspend, 0);
    let victim = started(&mut d, &[to("low").cpus(4)])[0];
    d.act(|core, cx| core.suspend(&JobRef::job(victim), cx)).unwrap();
    let urgent = d.submit(to("high"));
    d.effects.clear();
    d.plan();
    assert_eq!((d.started(), suspended(&d, victim)), (vec![urgent], Some(Resumption::OnRequest)));
    d.exit(urgent, 0);
    assert_eq!(d.state(victim), JobState::Suspended);
}

#[test]
fn a_restart_changes_nothing() {
    let mut d = tiers(PreemptMode::Suspend, 0);
    let (victim, urgent) = pair(&mut d, 2);
    let ledger = d.core.resources.ledger().clone();
    d = d.restarted();
    assert_eq!(*d.core.resources.ledger(), ledger);
    assert_eq!(round(&mut d), []);
    assert_eq!(suspended(&d, victim), Some(Resumption::ByItself));
    // Its processes had ended before the restart.
    d.end(urgent, EndCause::Exited, ExitCode::OK);
    d = d.restarted();
    assert_eq!(round(&mut d), [Effect::Resume(victim)]);
    assert!(running(&d, &[victim]));
}

#[test]
fn a_suspended_job_that_ends_leaves_the_cpus_to_the_other() {
    let mut d = tiers(PreemptMode::Suspend, 0);
    let (victim, urgent) = pair(&mut d, 4);
    d.cancel(&JobRef::job(victim)).unwrap();
    d.plan();
    assert_eq!((d.state(victim), d.state(urgent)), (JobState::Completing, JobState::Running));
    d.end(victim, EndCause::Stopped, ExitCode::signal(15));
    let waiting = d.submit(to("low"));
    d.plan();
    assert_eq!(
        (d.state(victim), d.state(waiting)),
        (JobState::Ended(End::Cancelled), JobState::Pending)
    );
    assert_eq!(d.core.resources.allocated().cpus, 4);
    let (victim, _) = {
        d.exit(urgent, 0);
        d.exit(waiting, 0);
        pair(&mut d, 4)
    };
    d.end(victim, EndCause::Exited, ExitCode::status(1));
    assert_eq!(d.state(victim), JobState::Ended(End::Failed));
}

#[test]
fn the_rules_may_end_while_a_job_is_suspended() {
    let mut d = tiers(PreemptMode::Suspend, 0);
    let (victim, urgent) = pair(&mut d, 4);
    let mut config = d.core.config().clone();
    config.set_partitions(vec![partition("low", 1, None), partition("high", 3, None)]);
    d.set_config(config);
    d.plan();
    assert_eq!(suspended(&d, victim), Some(Resumption::ByItself));
    d.exit(urgent, 0);
    assert!(running(&d, &[victim]));
}

#[test]
fn predictions_wait_for_the_end_of_the_suspended_job() {
    let mut d = tiers(PreemptMode::Suspend, 0);
    let victim = started(&mut d, &[to("low").cpus(4).limit(1000)])[0];
    let waiting = d.submit(to("low").cpus(4));
    let before = d.expected_start(waiting).unwrap();
    d.now = d.now.plus_secs(99);
    let urgent = d.submit(to("high").limit(300));
    d.plan();
    assert_eq!(d.started(), [urgent]);
    assert_eq!(d.expected_start(waiting), Some(before.plus_secs(300)));
    d.wait(100);
    assert_eq!(d.expected_start(waiting), Some(before.plus_secs(300)));
    assert_eq!(d.state(victim), JobState::Suspended);
}

#[test]
fn a_suspended_job_names_those_on_its_cpus() {
    let mut d = tiers(PreemptMode::Suspend, 0);
    let (victim, urgent) = pair(&mut d, 3);
    let mut view = d.core.view(victim, d.now).unwrap();
    d.core.add_blockers(&mut view, d.now);
    let texts: Vec<&str> = view.blockers.iter().map(|blocker| blocker.text.as_str()).collect();
    let [text] = texts[..] else { panic!("{texts:?}") };
    let expected = format!("waits for 4 CPUs, of which 1 CPU is free; job {urgent} holds 3 CPUs ");
    assert!(text.starts_with(&expected), "{text}");
    assert_eq!(view.blockers[0].remedy, None);
    d.exit(urgent, 0);
    let mut view = d.core.view(victim, d.now).unwrap();
    d.core.add_blockers(&mut view, d.now);
    assert_eq!(view.blockers, []);
}

#[test]
fn the_size_of_a_job_that_lends_its_cpus_is_fixed() {
    let mut d = tiers(PreemptMode::Suspend, 0);
    let (victim, urgent) = pair(&mut d, 2);
    let had = d.core.job(victim).unwrap().run.alloc.clone();
    for by_user in [false, true] {
        if by_user {
            d.act(|core, cx| core.suspend(&JobRef::job(victim), cx)).unwrap();
        }
        for update in [Update::NumCpus(2), Update::NumCpus(8)] {
            let resize = |core: &mut Core, cx: &mut Cx| {
                core.update(&JobRef::job(victim), std::slice::from_ref(&update), &[], cx)
            };
            assert_eq!(d.act(resize), Err(Refusal::Suspended), "{update:?}");
        }
    }
    assert_eq!(d.core.job(victim).unwrap().run.alloc, had);
    d.exit(urgent, 0);
    d.act(|core, cx| core.resume(&JobRef::job(victim), cx)).unwrap();
    let resize = |core: &mut Core, cx: &mut Cx| {
        core.update(&JobRef::job(victim), &[Update::NumCpus(2)], &[], cx)
    };
    assert_eq!(d.act(resize), Ok(vec![victim]));
    assert_eq!(d.core.job(victim).unwrap().run.alloc.as_ref().unwrap().tres.cpus, 2);
}

/// The bounds of a partition hold for the jobs that run in it.
#[test]
fn a_job_waits_for_the_bounds_of_its_partition() {
    let mut d = with_urgent(&[Qos { preempt_mode: Some(PreemptMode::Suspend), ..qos("low") }]);
    let mut config = d.core.config().clone();
    let bound = Partition { max_cpus: Some(2), is_default: true, ..partition("all", 1, None) };
    config.set_partitions(vec![bound]);
    d.set_config(config);
    let victim = started(&mut d, &[ask().qos("low").cpus(2)])[0];
    let urgent = d.submit(ask().qos("urgent").cpus(2));
    d.plan();
    assert_eq!((d.started(), d.state(victim)), (vec![urgent], JobState::Suspended));
    d.exit(urgent, 0);
    assert!(running(&d, &[victim]));
}

#[test]
fn a_job_on_whose_end_a_reservation_counts_is_not_suspended() {
    let mut d = tiers(PreemptMode::Suspend, 0);
    let victim = started(&mut d, &[to("low").cpus(4).limit(100)])[0];
    reserve(&mut d, None, 200);
    let urgent = d.submit(to("high").limit(50));
    assert_eq!((round(&mut d), d.reason(urgent)), (vec![], Reason::Resources));
    d.exit(victim, 0);
    assert_eq!(d.started(), [urgent]);
}

/// A reservation of the owner does not count on CPUs that a suspended job takes again.
#[test]
fn reservations_count_a_suspended_job_as_running() {
    let mut d = tiers(PreemptMode::Suspend, 0);
    let victim = started(&mut d, &[to("low").cpus(2)])[0];
    let urgent = d.submit(to("high").cpus(4).limit(100));
    d.plan();
    assert_eq!((d.started(), d.state(victim)), (vec![urgent], JobState::Suspended));
    reserve(&mut d, Some(2), 200);
    d.exit(urgent, 0);
    // The reservation keeps the two CPUs that the resumed job does not have.
    assert!(running(&d, &[victim]));
    let long = d.submit(to("low"));
    let short = d.submit(to("low").limit(100));
    d.plan();
    assert_eq!((d.started(), d.state(long)), (vec![short], JobState::Pending));
}
