//! Begin times, deadlines and `--immediate`.

use super::*;

#[test]
fn a_begin_time_is_kept_and_wakes_the_core_once() {
    let mut d = Double::new(1, 1000, 0);
    let begin = d.now.plus_secs(600);
    let id = d.submit(ask().with(|r| r.begin = Some(begin)));
    d.plan();
    assert_eq!((d.state(id), d.reason(id)), (JobState::Pending, Reason::BeginTime));
    assert_eq!(d.core.next_due(), Some(begin));
    d.wait(599);
    assert_eq!(d.state(id), JobState::Pending);
    d.wait(1);
    assert_eq!(d.state(id), JobState::Running);
    assert_eq!(d.core.next_due(), None, "an idle core is never due");
}

#[test]
fn a_clock_that_is_set_back_reinstates_a_begin_time() {
    let mut d = Double::new(1, 1000, 0);
    let blocker = d.submit(ask());
    let begin = d.now.plus_secs(600);
    let id = d.submit(ask().with(|r| r.begin = Some(begin)));
    d.plan();
    d.wait(600);
    d.now = Timestamp::from_secs(T0);
    d.exit(blocker, 0);
    assert_eq!((d.state(id), d.reason(id)), (JobState::Pending, Reason::BeginTime));
    // The blocker is removed from memory before that.
    d.wait(300);
    assert_eq!((d.core.next_due(), d.state(id)), (Some(begin), JobState::Pending));
    d.wait(300);
    assert_eq!(d.state(id), JobState::Running);
}

#[test]
fn a_missed_deadline_cancels() {
    let mut d = Double::new(1, 1000, 0);
    let deadline = d.now.plus_secs(600);
    let running = d.submit(ask().with(|r| r.deadline = Some(deadline)));
    let hopeless = d.submit(ask().limit(100).with(|r| r.deadline = Some(deadline)));
    d.plan();
    d.wait(500);
    assert_eq!(
        (d.state(hopeless), d.reason(hopeless)),
        (JobState::Ended(End::Cancelled), Reason::DeadLine)
    );
    assert_eq!(d.state(running), JobState::Running);
    d.wait(100);
    assert_eq!(d.stops(), [(running, StopCause::Deadline)]);
    d.end(running, EndCause::Stopped, ExitCode::signal(15));
    assert_eq!(
        (d.state(running), d.reason(running)),
        (JobState::Ended(End::Cancelled), Reason::DeadLine)
    );
}

#[test]
fn a_job_that_cannot_end_by_its_deadline_is_never_started() {
    let mut d = Double::new(1, 1000, 0);
    let deadline = d.now.plus_secs(600);
    let late = d.submit(ask().limit(1200).with(|r| r.deadline = Some(deadline)));
    let shorter = d.submit(ask().limit(1200).with(|r| {
        r.deadline = Some(deadline);
        r.time_min_secs = Some(60);
    }));
    assert_eq!(
        (d.state(late), d.reason(late)),
        (JobState::Ended(End::Cancelled), Reason::DeadLine)
    );
    d.plan();
    assert_eq!(d.state(shorter), JobState::Running);
}

#[test]
fn immediate_means_now_or_never() {
    let mut d = Double::new(1, 1000, 0);
    let first = d.submit(ask().allocation().with(|r| r.immediate_secs = Some(0)));
    d.plan();
    let second = d.submit(ask().allocation().with(|r| r.immediate_secs = Some(0)));
    let patient = d.submit(ask().allocation().with(|r| r.immediate_secs = Some(5)));
    d.plan();
    assert_eq!(
        [first, second, patient].map(|id| d.state(id)),
        [JobState::Running, JobState::Ended(End::Cancelled), JobState::Pending]
    );
    d.wait(5);
    assert_eq!(d.state(patient), JobState::Ended(End::Cancelled));
    assert_eq!(d.effects, [Effect::Granted(first), Effect::Ended(second), Effect::Ended(patient)]);
}

#[test]
fn a_record_is_forgotten_on_time_without_any_other_event() {
    let mut d = Double::with(|config| config.min_job_age_secs = 300);
    let jobs = [0, 1].map(|_| d.submit(ask()));
    d.plan();
    d.exit(jobs[0], 0);
    let first = d.now.plus_secs(300);
    d.wait(100);
    d.exit(jobs[1], 0);
    assert_eq!((d.core.next_due(), d.core.records().len()), (Some(first), 2));
    d.wait(199);
    assert_eq!(d.core.records().len(), 2);
    d.wait(1);
    assert_eq!((d.core.next_due(), d.core.records().len()), (Some(first.plus_secs(100)), 1));
    d.wait(100);
    assert_eq!((d.core.next_due(), d.core.records().len()), (None, 0));
    assert!(!d.core.take_forgotten(3) && d.core.take_forgotten(2) && !d.core.take_forgotten(1));
}
