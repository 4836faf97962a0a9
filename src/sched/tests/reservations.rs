//! The owner's reservations: what they keep from other jobs, and what they give their own.

use super::double::Double;
use crate::EndCause;
use crate::testing::{Ask, T0, ask};
use crate::types::Effect;
use slotd_model::job::Hold;
use slotd_model::qos::TresLimit;
use slotd_model::reservation::{
    Flag, How, Length, ReservationAsk, ReservationFault, ReservationOrder, Share,
};
use slotd_model::{End, ExitCode, ExitRecord, JobId, JobRef, JobState, Reason, Refusal, Timestamp};

fn after(secs: u64) -> Timestamp {
    Timestamp::from_secs(T0).plus_secs(secs)
}

fn cpus(count: u32) -> Share {
    Share::Parts(TresLimit { cpus: Some(count), ..TresLimit::default() })
}

/// Asks for a reservation of user `lab` from `start` on, in seconds.
fn asked(name: &str, start: u64, secs: u64, share: Share) -> ReservationAsk {
    ReservationAsk {
        name: Some(name.to_owned()),
        start: Some(after(start)),
        length: Some(Length::Secs(secs)),
        users: Some((How::Set, vec!["lab".to_owned()])),
        share: Some(share),
        ..ReservationAsk::default()
    }
}

fn with_flags(ask: ReservationAsk, flags: &[Flag]) -> ReservationAsk {
    ReservationAsk { flags: Some((How::Set, flags.to_vec())), ..ask }
}

fn order(d: &mut Double, order: ReservationOrder) -> Result<String, Refusal> {
    let done = d.act(|core, cx| core.order_reservation(&order, cx));
    d.plan();
    done
}

fn create(d: &mut Double, ask: ReservationAsk) -> Result<String, ReservationFault> {
    order(d, ReservationOrder::Create(Box::new(ask))).map_err(|why| match why {
        Refusal::Reservation(fault) => fault,
        other => panic!("{other}"),
    })
}

fn inside(ask: Ask, name: &str) -> Ask {
    ask.with(|request| request.reservation = Some(name.to_owned()))
}

fn at(d: &mut Double, secs: u64) {
    d.now = after(secs);
    d.act(|core, cx| core.on_due(cx));
    d.plan();
}

fn stopped(d: &Double, id: JobId) -> bool {
    d.effects.iter().any(|effect| matches!(effect, Effect::Stop { job, .. } if *job == id))
}

#[test]
fn only_jobs_that_end_before_a_reservation_start_beside_it() {
    let mut d = Double::new(4, 1000, 0);
    create(&mut d, asked("soon", 120, 300, Share::Node)).unwrap();
    let short = d.submit(ask().limit(120));
    let long = d.submit(ask().limit(121));
    let endless = d.submit(ask());
    let own = d.submit(inside(ask().limit(60), "soon"));
    d.plan();
    assert_eq!(d.started(), vec![short]);
    for (id, reason) in [
        (long, Reason::ReservedForMaintenance),
        (endless, Reason::ReservedForMaintenance),
        (own, Reason::Reservation),
    ] {
        assert_eq!(d.reason(id), reason, "job {id}");
    }
    assert_eq!(d.expected_start(long), Some(after(420)));
    assert_eq!(d.expected_start(own), None);
    assert_eq!(d.core.next_due(), Some(after(120)));
    d.exit(short, 0);
    at(&mut d, 120);
    assert_eq!(d.state(own), JobState::Running);
    assert_eq!(d.state(long), JobState::Pending);
    d.exit(own, 0);
    at(&mut d, 419);
    assert_eq!(d.state(long), JobState::Pending);
    at(&mut d, 420);
    assert_eq!([d.state(long), d.state(endless)], [JobState::Running; 2]);
    assert!(d.core.config().reservations.is_empty());
    // Only the last number is kept.
    assert_eq!(d.store.memos.len(), 1);
}

#[test]
fn a_job_that_is_launched_too_late_for_a_reservation_waits_for_its_end() {
    let mut d = Double::new(4, 1000, 0);
    create(&mut d, asked("soon", 120, 300, Share::Node)).unwrap();
    let [early, late] = [100, 110].map(|limit| d.submit(ask().limit(limit)));
    d.plan();
    assert_eq!(d.started(), vec![early, late]);
    // The commit of their starts waited for the disk.
    d.now = after(15);
    assert!(d.act(|core, cx| core.launches(early, cx)));
    assert_eq!(d.core.job(early).and_then(|job| job.run.start), Some(after(15)));
    assert!(!d.act(|core, cx| core.launches(late, cx)));
    d.plan();
    assert_eq!(
        (d.state(late), d.reason(late)),
        (JobState::Pending, Reason::ReservedForMaintenance)
    );
    at(&mut d, 420);
    assert_eq!(d.started(), vec![late]);
}

#[test]
fn a_reservation_of_some_cpus_leaves_the_others() {
    let mut d = Double::new(8, 1000, 0);
    create(&mut d, asked("half", 0, 3600, cpus(6))).unwrap();
    let two = d.submit(ask().cpus(2));
    let more = d.submit(ask().cpus(1));
    let own = d.submit(inside(ask().cpus(6), "half"));
    let wide = d.submit(inside(ask().cpus(7), "half"));
    d.plan();
    let running = [two, own].map(|id| d.state(id));
    assert_eq!(running, [JobState::Running; 2]);
    assert_eq!([d.reason(more), d.reason(wide)], [Reason::Resources; 2]);
    assert_eq!(d.expected_start(wide), None);
    d.exit(two, 0);
    d.plan();
    assert_eq!(d.state(more), JobState::Running);
}

#[test]
fn a_blocked_job_outside_does_not_keep_the_jobs_of_a_reservation_waiting() {
    let mut d = Double::new(6, 1000, 0);
    create(&mut d, asked("own", 0, 5000, cpus(2))).unwrap();
    let first = d.submit(ask().cpus(3).limit(1000));
    let blocked = d.submit(ask().cpus(3));
    d.plan();
    assert_eq!((d.started(), d.reason(blocked)), (vec![first], Reason::Resources));
    // One CPU is left beside the blocked job and the reservation.
    let [spare, too_many] = [(); 2].map(|()| d.submit(ask()));
    let member = d.submit(inside(ask().cpus(2), "own"));
    d.plan();
    let states = [spare, too_many, member].map(|id| d.state(id));
    assert_eq!(states, [JobState::Running, JobState::Pending, JobState::Running]);
    d.exit(first, 0);
    assert_eq!(d.state(blocked), JobState::Running);
}

#[test]
fn reservations_at_the_same_time_add_up() {
    let mut d = Double::new(8, 1000, 0);
    create(&mut d, asked("two", 100, 1000, cpus(2))).unwrap();
    create(&mut d, asked("four", 200, 1000, cpus(4))).unwrap();
    assert_eq!(
        create(&mut d, asked("three", 300, 10, cpus(3))),
        Err(ReservationFault::Busy { of_partition: true })
    );
    let four = d.submit(ask().cpus(4));
    let two = d.submit(ask().cpus(2));
    let own = d.submit(inside(ask().cpus(2), "two"));
    at(&mut d, 100);
    let states = [four, two, own].map(|id| d.state(id));
    assert_eq!(states, [JobState::Pending, JobState::Running, JobState::Running]);
}

#[test]
fn the_end_stops_jobs_inside_and_holds_those_that_wait() {
    let mut d = Double::new(4, 1000, 0);
    create(&mut d, asked("half", 0, 60, cpus(2))).unwrap();
    create(&mut d, asked("next", 120, 60, cpus(2))).unwrap();
    let runs = d.submit(inside(ask().cpus(2).limit(1800), "half"));
    let waits = d.submit(inside(ask().cpus(2), "half"));
    let other = d.submit(inside(ask().cpus(2), "half,next"));
    d.plan();
    assert_eq!(d.started(), vec![runs]);
    assert_eq!(d.core.next_due(), Some(after(60)));
    at(&mut d, 60);
    assert!(stopped(&d, runs));
    let job = d.core.job(runs).unwrap();
    assert_eq!((job.run.state, job.run.reason), (JobState::Completing, Reason::TimeLimit));
    assert_eq!(job.run.ended_reservation.as_deref(), Some("half"));
    let job = d.core.job(waits).unwrap();
    assert_eq!((job.hold, job.request.reservation.clone()), (Hold::Reservation, None));
    assert_eq!(d.reason(waits), Reason::ReservationDeleted);
    let job = d.core.job(other).unwrap();
    assert_eq!(job.request.reservation.as_deref(), Some("next"));
    assert_eq!(d.reason(other), Reason::Reservation);
    at(&mut d, 120);
    assert_eq!(d.state(other), JobState::Running);
}

#[test]
fn a_job_that_ended_before_its_reservation_is_completed_whenever_that_is_learned() {
    let (early, late) = (JobState::Ended(End::Completed), JobState::Ended(End::Timeout));
    for (ended, state) in [(59, early), (61, late)] {
        let mut d = Double::new(4, 1000, 0);
        create(&mut d, asked("half", 0, 60, cpus(2))).unwrap();
        let job = d.submit(inside(ask().cpus(2), "half"));
        d.plan();
        at(&mut d, 60);
        assert!(stopped(&d, job));
        let record = ExitRecord::gone(ExitCode::OK, after(ended));
        d.act(|core, cx| core.on_job_ended(job, record, EndCause::Exited, cx));
        assert_eq!(d.state(job), state, "ended after {ended} s");
        assert_eq!(d.core.job(job).unwrap().run.system_comment, None);
    }
}

#[test]
fn the_reservation_that_ended_a_run_stays_with_that_run() {
    let mut d = Double::new(4, 1000, 0);
    create(&mut d, asked("half", 0, 60, cpus(2))).unwrap();
    let job = d.submit(inside(ask().cpus(2), "half"));
    d.plan();
    at(&mut d, 60);
    d.end(job, EndCause::Stopped, ExitCode::signal(15));
    let ended_by = |d: &Double| d.core.job(job).unwrap().run.ended_reservation.clone();
    assert_eq!(d.state(job), JobState::Ended(End::Timeout));
    assert_eq!(ended_by(&d).as_deref(), Some("half"));
    d.act(|core, cx| core.requeue(&JobRef::job(job), None, &[], cx)).unwrap();
    assert_eq!((d.state(job), ended_by(&d)), (JobState::Pending, None));
}

#[test]
fn without_hold_and_with_flex_jobs_go_on() {
    let mut d = Double::new(4, 1000, 0);
    let flags = [Flag::Flex, Flag::NoHoldJobsAfter];
    create(&mut d, with_flags(asked("flex", 3600, 60, cpus(1)), &flags)).unwrap();
    let early = d.submit(inside(ask().cpus(3), "flex"));
    let waits = d.submit(inside(ask().cpus(3), "flex"));
    d.plan();
    assert_eq!(d.started(), vec![early]);
    at(&mut d, 3660);
    assert_eq!(d.state(early), JobState::Running);
    assert_eq!(d.core.job(waits).unwrap().request.reservation, None);
    d.exit(early, 0);
    d.plan();
    assert_eq!(d.state(waits), JobState::Running);
}

#[test]
fn a_daily_reservation_moves_on_and_survives_a_restart() {
    let mut d = Double::new(4, 1000, 0);
    create(&mut d, with_flags(asked("day", 60, 60, Share::Node), &[Flag::Daily])).unwrap();
    at(&mut d, 120);
    let starts = |d: &Double| d.core.config().reservations.iter().map(|r| r.start).collect();
    let starts: [Vec<Timestamp>; 1] = [starts(&d)];
    assert_eq!(starts, [vec![after(60 + 86_400)]]);
    let long = d.submit(ask().limit(86_400));
    restart(&mut d);
    d.plan();
    assert_eq!(d.reason(long), Reason::ReservedForMaintenance);
    // The clock is set forward, beyond two repetitions.
    at(&mut d, 3 * 86_400);
    let now = d.core.config().reservations[0].start;
    assert_eq!(now, after(60 + 3 * 86_400));
}

#[test]
fn a_reservation_that_is_changed_repeats_from_its_current_period() {
    let mut d = Double::new(4, 1000, 0);
    create(&mut d, with_flags(asked("day", 60, 60, cpus(1)), &[Flag::Daily])).unwrap();
    at(&mut d, 120);
    let weekly = ReservationAsk {
        name: Some("day".to_owned()),
        flags: Some((How::Add, vec![Flag::Weekly])),
        ..ReservationAsk::default()
    };
    order(&mut d, ReservationOrder::Update(Box::new(weekly))).unwrap();
    at(&mut d, 86_400 + 120);
    assert_eq!(d.core.config().reservations[0].start, after(60 + 8 * 86_400));
}

fn slotd_without(core: &crate::Core) -> crate::Config {
    crate::Config { reservations: Vec::new(), ..core.config().clone() }
}

#[test]
fn orders_are_checked_as_in_slurm() {
    let mut d = Double::new(8, 1000, 0);
    let job = d.submit(ask().cpus(2).limit(600));
    d.plan();
    let busy = Err(ReservationFault::Busy { of_partition: true });
    let made = |name: &str| Ok(name.to_owned());
    let maint = with_flags(asked("m", 800, 60, Share::Node), &[Flag::Maint]);
    for (ask, result) in [
        (asked("a", 500, 60, Share::Node), busy.clone()),
        (asked("a", 600, 60, Share::Node), made("a")),
        (asked("a", 6000, 60, Share::Node), Err(ReservationFault::Duplicate)),
        (asked("b", 600, 60, Share::Node), Err(ReservationFault::Overlaps)),
        (asked("b", 660, 40, Share::Node), made("b")),
        (maint, made("m")),
        (asked("c", 800, 60, Share::Node), made("c")),
        (asked("d", 0, 60, cpus(7)), busy.clone()),
        (with_flags(asked("d", 0, 60, cpus(7)), &[Flag::IgnoreJobs]), made("d")),
        (asked("e", 5000, 60, cpus(9)), busy),
        (
            ReservationAsk { users: None, ..asked("e", 0, 60, cpus(1)) },
            Err(ReservationFault::Users),
        ),
    ] {
        assert_eq!(create(&mut d, ask.clone()), result, "{ask:?}");
    }
    assert_eq!(d.state(job), JobState::Running);
    let unnamed = ReservationAsk { name: None, ..asked("", 9000, 60, cpus(1)) };
    assert_eq!(create(&mut d, unnamed), made("lab_6"));
    let waits = d.submit(inside(ask(), "a"));
    let delete = |name: &str| ReservationOrder::Delete(name.to_owned());
    let refused = |fault| Err(Refusal::Reservation(fault));
    assert_eq!(order(&mut d, delete("a")), refused(ReservationFault::InUse));
    assert_eq!(order(&mut d, delete("nosuch")), refused(ReservationFault::Unknown));
    d.cancel(&JobRef::job(waits)).unwrap();
    assert_eq!(order(&mut d, delete("a")), Ok("a".to_owned()));
    let moved = ReservationAsk {
        name: Some("b".to_owned()),
        start: Some(after(1000)),
        ..ReservationAsk::default()
    };
    assert!(order(&mut d, ReservationOrder::Update(Box::new(moved))).is_ok());
    let known = d.core.config().reservation("b").unwrap().clone();
    assert_eq!((known.start, known.end), (after(1000), Some(after(1060))));
}

#[test]
fn numbers_of_deleted_reservations_do_not_come_back() {
    let mut d = Double::new(8, 1000, 0);
    let unnamed = || ReservationAsk { name: None, ..asked("", 100, 60, cpus(1)) };
    assert_eq!(create(&mut d, unnamed()), Ok("lab_1".to_owned()));
    assert_eq!(create(&mut d, asked("other", 100, 60, cpus(1))), Ok("other".to_owned()));
    assert_eq!(create(&mut d, asked("lab_5", 100, 60, cpus(1))), Ok("lab_5".to_owned()));
    assert_eq!(create(&mut d, unnamed()), Ok("lab_4".to_owned()));
    assert_eq!(create(&mut d, unnamed()), Ok("lab_6".to_owned()));
    for name in ["lab_6", "lab_4", "lab_1", "lab_5", "other"] {
        order(&mut d, ReservationOrder::Delete(name.to_owned())).unwrap();
    }
    restart(&mut d);
    assert_eq!(create(&mut d, unnamed()), Ok("lab_6".to_owned()));
    assert_eq!(d.core.config().reservations[0].number, 6);
    let odd = ReservationAsk {
        users: None,
        accounts: Some((How::Set, vec!["a/b c".to_owned()])),
        ..unnamed()
    };
    assert_eq!(create(&mut d, odd), Ok("a_b_c_7".to_owned()));
}

fn restart(d: &mut Double) {
    let memos = d.store.memos.clone();
    d.act(|core, cx| {
        let mut again = crate::Core::recover(
            slotd_without(core),
            core.jobs().cloned().collect(),
            Vec::new(),
            core.next_id(),
            cx.now,
        );
        again.recall_memos(memos.into_iter().collect(), cx.now);
        *core = again;
    });
}

#[test]
fn an_idle_reservation_with_purge_comp_ends_early() {
    let mut d = Double::new(4, 1000, 0);
    let purged = |name: &str, start, share, flags: &[Flag]| ReservationAsk {
        purge_after: Some(30),
        ..with_flags(asked(name, start, 600, share), &[&[Flag::PurgeComp], flags].concat())
    };
    create(&mut d, purged("once", 100, cpus(2), &[])).unwrap();
    create(&mut d, purged("day", 100, cpus(2), &[Flag::Daily])).unwrap();
    let names = |d: &Double| {
        d.core.config().reservations.iter().map(|one| one.name.clone()).collect::<Vec<_>>()
    };
    let own = d.submit(inside(ask().cpus(2).limit(1000), "once"));
    at(&mut d, 99);
    assert_eq!(names(&d), ["once", "day"]);
    at(&mut d, 100);
    assert_eq!(d.state(own), JobState::Running);
    assert_eq!(d.core.next_due(), Some(after(130)));
    at(&mut d, 129);
    assert_eq!(d.core.config().reservations[1].start, after(100));
    at(&mut d, 130);
    let day = &d.core.config().reservations[1];
    assert_eq!((day.start, day.idle_since), (after(100 + 86_400), None));
    // The wait begins when the last job ends, and goes on through a restart.
    d.now = after(200);
    d.exit(own, 0);
    assert_eq!(d.core.next_due(), Some(after(230)));
    restart(&mut d);
    at(&mut d, 210);
    let next = d.submit(inside(ask().cpus(2).limit(1000), "once"));
    at(&mut d, 240);
    d.exit(next, 0);
    at(&mut d, 269);
    assert_eq!(names(&d), ["once", "day"]);
    at(&mut d, 270);
    assert_eq!(names(&d), ["day"]);
    // By default after five minutes, also one that never ends.
    let endless = ReservationAsk {
        length: Some(Length::Forever),
        purge_after: None,
        ..purged("endless", 300, cpus(2), &[])
    };
    create(&mut d, endless).unwrap();
    at(&mut d, 300);
    at(&mut d, 599);
    assert_eq!(names(&d), ["day", "endless"]);
    at(&mut d, 600);
    assert_eq!(names(&d), ["day"]);
}

#[test]
fn jobs_of_maintenance_and_overlapping_reservations_pass_the_others() {
    let mut d = Double::new(4, 1000, 0);
    create(&mut d, asked("plain", 0, 600, Share::Node)).unwrap();
    create(&mut d, with_flags(asked("over", 0, 600, Share::Node), &[Flag::Overlap])).unwrap();
    let [plain, over] = ["plain", "over"].map(|name| d.submit(inside(ask(), name)));
    d.plan();
    assert_eq!([plain, over].map(|id| d.state(id)), [JobState::Pending, JobState::Running]);
    assert_eq!(d.reason(plain), Reason::ReservedForMaintenance);
    create(&mut d, with_flags(asked("maint", 0, 300, Share::Node), &[Flag::Maint])).unwrap();
    let [late, maint] = ["over", "maint"].map(|name| d.submit(inside(ask(), name)));
    d.plan();
    assert_eq!([late, maint].map(|id| d.state(id)), [JobState::Pending, JobState::Running]);
    at(&mut d, 300);
    assert_eq!([plain, late].map(|id| d.state(id)), [JobState::Pending, JobState::Running]);
}

#[test]
fn others_are_refused() {
    let mut d = Double::new(4, 1000, 0);
    let ann = Some((How::Set, vec!["ann".to_owned()]));
    create(&mut d, ReservationAsk { users: ann, ..asked("hers", 0, 60, cpus(1)) }).unwrap();
    let why = d.try_submit(inside(ask(), "hers")).unwrap_err();
    assert_eq!(why.to_string(), "Access denied to requested reservation");
    let why = d.try_submit(inside(ask(), "nosuch")).unwrap_err();
    assert_eq!(why.to_string(), "Requested reservation is invalid");
    assert!(d.try_submit(inside(ask(), "")).is_ok());
}

#[test]
fn absurd_orders_are_refused() {
    let mut d = Double::new(4, 1000, 0);
    let (first, last) = (Timestamp::from_secs(i64::MIN), Timestamp::from_secs(i64::MAX));
    let ask = || asked("a", 10, 60, cpus(1));
    for (absurd, fault) in [
        (ReservationAsk { start: Some(last), ..ask() }, ReservationFault::Time),
        (ReservationAsk { start: Some(first), ..ask() }, ReservationFault::Time),
        (asked("a", 10, u64::MAX, cpus(1)), ReservationFault::Time),
        (asked("a", 10, 0, cpus(1)), ReservationFault::Time),
        (ReservationAsk { length: None, end: Some(first), ..ask() }, ReservationFault::Time),
        (asked("a", 10, 60, cpus(u32::MAX)), ReservationFault::Busy { of_partition: true }),
        (asked("a,b", 10, 60, cpus(1)), ReservationFault::Name),
    ] {
        assert_eq!(create(&mut d, absurd.clone()), Err(fault), "{absurd:?}");
    }
    for number in 0..64 {
        create(&mut d, asked(&format!("r{number}"), 1000 * (number + 1), 60, cpus(1))).unwrap();
    }
    assert_eq!(create(&mut d, ask()), Err(ReservationFault::TooMany));
    let gone = order(&mut d, ReservationOrder::Delete("r7".to_owned()));
    assert_eq!(gone, Ok("r7".to_owned()));
    assert_eq!(create(&mut d, ask()), Ok("a".to_owned()));
}
