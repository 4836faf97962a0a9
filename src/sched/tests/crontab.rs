//! Jobs that recur.

use super::*;
use crate::crontab::EntryToInstall;
use proptest::prelude::*;
use slotd_model::job::Hold;
use slotd_model::notice::{Audience, Channel, Event, Events};
use slotd_model::qos::Qos;

const USER: u32 = 1001;

/// Entries with these times and requests, on lines 1, 2, ….
fn entries(list: &[(&str, Ask)]) -> Vec<EntryToInstall> {
    let entry = |(line, (time, ask)): (usize, &(&str, Ask))| {
        let timed = format!("{time} true");
        EntryToInstall {
            submission: Submission { request: ask.0.clone(), ..Submission::default() },
            recurrence: slotd_parse::cron::parse(&timed).expect("a valid time").recurrence,
            lines: (line, line),
        }
    };
    (1..).zip(list).map(entry).collect()
}

fn text(list: &[(&str, Ask)]) -> Vec<u8> {
    list.iter().flat_map(|(time, _)| format!("{time} true\n").into_bytes()).collect()
}

fn install(d: &mut Double, list: &[(&str, Ask)]) -> Vec<JobId> {
    d.act(|core, cx| core.install_crontab(USER, text(list), entries(list), cx))
        .expect("the crontab is accepted")
}

fn shown(d: &Double) -> Option<String> {
    d.core.crontab(USER).map(|text| String::from_utf8(text).expect("UTF-8"))
}

/// Returns the seconds from the first moment of the tests to the job's begin time. `T0` is
/// 2027-01-15 08:00:00.
fn begin(d: &Double, id: JobId) -> i64 {
    d.core.job(id).and_then(|job| job.begin()).expect("a begin time").as_secs() - T0
}

/// Rebuilds the core from the store, as a new daemon does.
fn restart(d: &mut Double) {
    let is_known = |job: &&Job| d.core.job(job.id).is_some();
    let jobs = d.store.jobs.values().filter(is_known).cloned().collect();
    let mut core =
        Core::recover(d.core.config().clone(), jobs, d.store.ended(), d.core.next_id(), d.now);
    core.recall_crontabs(d.store.crontabs.clone().into_iter().collect());
    d.core = core;
    d.act(|core, cx| core.follow_clock(cx));
}

#[test]
fn the_queue_is_empty_although_entries_wait_for_their_next_time() {
    let told = |d: &mut Double| {
        let told =
            d.effects.iter().filter(|effect| matches!(effect, Effect::Notify { .. })).count();
        d.effects.clear();
        told
    };
    let mut d = Double::with(|config| {
        config.audience =
            Audience { command: Events::NONE.with(Event::Queue), ..Audience::default() };
    });
    let [entry] = *install(&mut d, &[("* * * * *", ask())]) else { panic!("one entry") };
    let first = d.submit(ask());
    d.plan();
    d.exit(first, 0);
    assert_eq!(told(&mut d), 1);
    let second = d.submit(ask());
    d.wait(60);
    assert_eq!([d.state(entry), d.state(second)], [JobState::Running; 2]);
    d.exit(second, 0);
    assert_eq!(told(&mut d), 0, "the entry is running");
    d.exit(entry, 0);
    assert_eq!(told(&mut d), 1);
    // Its runs alone are not worth a message.
    d.wait(60);
    d.exit(entry, 0);
    assert_eq!(told(&mut d), 0);
}

#[test]
fn an_entry_keeps_its_id_and_waits_for_its_next_time() {
    let mut d = Double::new(4, 1000, 0);
    let [job] = *install(&mut d, &[("* * * * *", ask())]) else { panic!("one entry") };
    d.plan();
    assert_eq!((d.state(job), d.reason(job)), (JobState::Pending, Reason::BeginTime));
    assert_eq!(begin(&d, job), 60);
    let next_run = |d: &Double| {
        d.core.view(job, d.now).and_then(|view| view.next_run).map(|at| at.as_secs() - T0)
    };
    assert_eq!(next_run(&d), Some(60));
    for (run, status) in [(1, 0), (2, 3), (3, 0)] {
        d.wait(60);
        assert_eq!(d.started(), [job], "run {run}");
        assert_eq!(next_run(&d), Some(60 * (run + 1)), "the run after this one");
        d.now = d.now.plus_secs(3);
        d.exit(job, status);
        assert_eq!((d.state(job), d.reason(job)), (JobState::Pending, Reason::BeginTime));
        assert_eq!(begin(&d, job), 60 * (run + 1));
        assert_eq!(d.core.job(job).map(|job| i64::from(job.run.restarts)), Some(run));
        d.now = d.now.plus_us(-3_000_000);
    }
    let runs: Vec<_> =
        d.store.runs.iter().map(|(id, run)| (*id, run.requeued, run.run.exit)).collect();
    let ok = ExitCode::OK;
    assert_eq!(runs, [(job, true, ok), (job, true, ExitCode::status(3)), (job, true, ok)]);
    let submitted = d.store.runs.iter().map(|(_, run)| run.submit.map(|at| at.as_secs() - T0));
    assert_eq!(submitted.collect::<Vec<_>>(), [Some(0), Some(63), Some(123)]);
}

#[test]
fn missed_times_run_once() {
    let mut d = Double::new(4, 1000, 0);
    let [job] = *install(&mut d, &[("* * * * *", ask())]) else { panic!("one entry") };
    // It runs longer than the time between two of them.
    d.wait(60);
    d.now = d.now.plus_secs(150);
    d.exit(job, 0);
    assert_eq!(begin(&d, job), 240);
    // The machine sleeps.
    assert_eq!(d.started(), [job]);
    d.wait(86_400);
    assert_eq!(d.started(), [job]);
    d.exit(job, 0);
    assert_eq!((d.started(), begin(&d, job)), (vec![], 86_640));
    // It ends while no daemon runs.
    d.wait(60);
    assert_eq!(d.started(), [job]);
    let ended = d.now;
    d.now = d.now.plus_secs(7200);
    d.act(|core, cx| {
        core.on_job_ended(job, ExitRecord::gone(ExitCode::OK, ended), EndCause::Exited, cx);
    });
    d.plan();
    assert_eq!((begin(&d, job), d.started()), (86_700, vec![job]));
    d.exit(job, 0);
    // No daemon runs.
    d.now = d.now.plus_secs(7200);
    restart(&mut d);
    d.plan();
    assert_eq!(d.started(), [job]);
}

#[test]
fn each_end_but_a_cancellation_leads_to_the_next_run() {
    let causes = [
        EndCause::Exited,
        EndCause::TimeLimit,
        EndCause::OutOfMemory,
        EndCause::LaunchFailed,
        EndCause::RunnerLost,
        EndCause::NodeFailed,
    ];
    let mut d = Double::new(4, 1000, 0);
    let no_requeue = ask().with(|r| r.no_requeue = true);
    let [job] = *install(&mut d, &[("* * * * *", no_requeue)]) else { panic!("one entry") };
    for cause in causes {
        d.wait(60);
        assert_eq!(d.state(job), JobState::Running, "before {cause:?}");
        d.end(job, cause, ExitCode::status(1));
        assert_eq!(d.state(job), JobState::Pending, "after {cause:?}");
        assert!(begin(&d, job) > d.now.as_secs() - T0, "after {cause:?}");
    }
    // A launch that never happened is not a run: the job keeps its time.
    d.wait(60);
    let due = begin(&d, job);
    d.end(job, EndCause::NeverLaunched, ExitCode::OK);
    assert_eq!((d.state(job), begin(&d, job)), (JobState::Pending, due));
}

#[test]
fn a_refused_entry_leaves_the_old_crontab() {
    let mut d = Double::new(4, 1000, 0);
    let old = install(&mut d, &[("@daily", ask())]);
    let before = d.store.clone();
    let elsewhere = ask().with(|r| r.partition = Some("nosuch".to_owned()));
    let list = [("@hourly", ask()), ("@hourly", elsewhere)];
    let refused = d.act(|core, cx| core.install_crontab(USER, text(&list), entries(&list), cx));
    let (at, why) = refused.expect_err("an entry is refused");
    assert_eq!((at, why.detail().as_deref()), (1, Some("invalid partition specified: nosuch")));
    assert_eq!((d.store.jobs.len(), &d.store.crontabs), (1, &before.crontabs));
    assert_eq!((d.state(old[0]), shown(&d).as_deref()), (JobState::Pending, Some("@daily true\n")));
}

#[test]
fn a_new_crontab_ends_the_entries_of_the_old_one() {
    let mut d = Double::new(4, 1000, 0);
    let [running, waiting] = *install(&mut d, &[("* * * * *", ask()), ("@daily", ask())]) else {
        panic!("two entries")
    };
    d.wait(60);
    let new = install(&mut d, &[("@daily", ask())]);
    assert!(!new.contains(&running) && !new.contains(&waiting));
    assert_eq!(d.state(waiting), JobState::Ended(End::Cancelled));
    assert_eq!(d.state(running), JobState::Running);
    d.exit(running, 0);
    assert_eq!(d.state(running), JobState::Ended(End::Completed));
    // Requeued by hand, it runs once more, but does not recur.
    d.act(|core, cx| core.requeue(&JobRef::job(running), None, &[], cx)).expect("it has ended");
    d.plan();
    d.end(running, EndCause::NeverLaunched, ExitCode::OK);
    assert_eq!(d.state(running), JobState::Pending);
    d.plan();
    d.exit(running, 0);
    assert_eq!(d.state(running), JobState::Ended(End::Completed));
    d.act(|core, cx| core.remove_crontab(USER, cx));
    assert_eq!((shown(&d), d.state(new[0])), (None, JobState::Ended(End::Cancelled)));
    assert!(d.store.crontabs.is_empty());
    d.act(|core, cx| core.remove_crontab(USER, cx));
}

#[test]
fn an_entry_that_was_removed_before_its_launch_does_not_run() {
    let mut d = Double::new(4, 1000, 0);
    let [job] = *install(&mut d, &[("* * * * *", ask())]) else { panic!("one entry") };
    d.wait(60);
    assert_eq!(d.state(job), JobState::Running);
    d.act(|core, cx| core.remove_crontab(USER, cx));
    d.end(job, EndCause::NeverLaunched, ExitCode::OK);
    assert_eq!(d.state(job), JobState::Ended(End::Cancelled));
}

#[test]
fn a_cancellation_disables_the_entry() {
    let mut d = Double::new(4, 1000, 0);
    let [waiting, running, limited] =
        *install(&mut d, &[("@daily", ask()), ("* * * * *", ask()), ("* * * * *", ask())])
    else {
        panic!("three entries")
    };
    d.wait(60);
    d.cancel(&JobRef::job(waiting)).expect("it waits");
    d.cancel(&JobRef::job(running)).expect("it runs");
    d.end(running, EndCause::Stopped, ExitCode::signal(15));
    assert_eq!(d.state(running), JobState::Ended(End::Cancelled));
    // Its time limit has just been reached.
    d.act(|core, cx| core.limit_reached(limited, cx));
    d.cancel(&JobRef::job(limited)).expect("it would come back");
    d.end(limited, EndCause::TimeLimit, ExitCode::signal(15));
    assert!(d.state(limited).is_terminal());
    let all = "#DISABLED: @daily true\n#DISABLED: * * * * * true\n#DISABLED: * * * * * true\n";
    assert_eq!(shown(&d).as_deref(), Some(all));
    // They are still disabled when nobody remembers their jobs.
    d.wait(100_000);
    restart(&mut d);
    assert_eq!((d.core.job(waiting), shown(&d).as_deref()), (None, Some(all)));
}

#[test]
fn scontrol_cannot_change_an_entry() {
    let mut d = Double::new(4, 1000, 0);
    let [job] = *install(&mut d, &[("* * * * *", ask())]) else { panic!("one entry") };
    let named = JobRef::job(job);
    let refused = Err(Refusal::CrontabJob);
    let mut view = d.core.view(job, d.now).expect("it waits");
    d.core.add_blockers(&mut view, d.now);
    let remedies: Vec<_> = view.blockers.into_iter().map(|blocker| blocker.remedy).collect();
    assert_eq!(remedies, [Some("scrontab -e".to_owned())]);
    let limit = [Update::Priority(7)];
    for _ in ["pending", "running"] {
        assert_eq!(d.act(|core, cx| core.hold(&named, Hold::User, cx)), refused);
        assert_eq!(d.act(|core, cx| core.release(&named, cx)), refused);
        assert_eq!(d.act(|core, cx| core.update(&named, &limit, &[], cx)), refused);
        assert_eq!(d.act(|core, cx| core.top(&named, cx)), refused);
        // It would wait for its next time, and the current run would be lost.
        for hold in [None, Some(Hold::User)] {
            assert_eq!(d.act(|core, cx| core.requeue(&named, hold, &[], cx)), refused);
        }
        d.wait(60);
    }
    assert_eq!(d.state(job), JobState::Running);
}

#[test]
fn only_a_crontab_makes_a_job_recur() {
    let mut d = Double::new(4, 1000, 0);
    let recurrence = slotd_parse::cron::parse("* * * * * true").expect("valid").recurrence;
    let job = d.submit(ask().with(|r| r.recurrence = Some(Box::new(recurrence))));
    d.plan();
    d.exit(job, 0);
    assert_eq!(d.state(job), JobState::Ended(End::Completed));
}

#[test]
fn times_come_again_if_the_clock_is_set_back_far() {
    let mut d = Double::new(4, 1000, 0);
    let [minutely, daily] = *install(&mut d, &[("* * * * *", ask()), ("0 9 * * *", ask())]) else {
        panic!("two entries")
    };
    let at_nine = 3600;
    d.wait(at_nine);
    d.exit(minutely, 0);
    d.exit(daily, 0);
    assert_eq!((begin(&d, minutely), begin(&d, daily)), (3660, 90_000));
    // A correction: no time comes twice.
    d.now = d.now.plus_us(-2_000_000);
    d.act(|core, cx| core.follow_clock(cx));
    assert_eq!((begin(&d, minutely), begin(&d, daily)), (3660, 90_000));
    d.now = d.now.plus_us(-3_000_000_000);
    d.act(|core, cx| core.on_due(cx));
    assert_eq!((begin(&d, minutely), begin(&d, daily)), (600, 90_000));
    d.now = Timestamp::from_secs(T0 - 10_000);
    restart(&mut d);
    assert_eq!((begin(&d, minutely), begin(&d, daily)), (-9960, at_nine as i64));
}

#[test]
fn each_run_is_reported_when_it_ends() {
    let mut d = Double::with(|config| {
        let command = Events::NONE.with(Event::Job);
        config.audience = Audience { command, ..Audience::default() };
    });
    let [job] = *install(&mut d, &[("* * * * *", ask())]) else { panic!("one entry") };
    let told = |d: &mut Double| {
        let mut told = Vec::new();
        d.effects.retain(|effect| match effect {
            Effect::Notify { notice, .. } => {
                told.extend((notice.channel == Channel::Command).then_some(notice.clone()));
                false
            }
            _ => true,
        });
        told.len()
    };
    for status in [0, 1] {
        d.wait(60);
        d.exit(job, status);
        assert_eq!(told(&mut d), 1, "status {status}");
    }
    // Its owner has replaced it.
    install(&mut d, &[]);
    assert_eq!(told(&mut d), 0);
}

#[derive(Debug, Clone)]
enum Happens {
    TimePasses(u32),
    ClockIsSet(i32),
    Ends(usize, EndCause),
    Restart,
    Requeue(usize),
    Reached(usize),
    Cancel(usize),
    Install,
}

fn happens() -> impl Strategy<Value = Happens> {
    let cause = prop::sample::select(vec![
        EndCause::Exited,
        EndCause::OutOfMemory,
        EndCause::LaunchFailed,
        EndCause::HostFault,
        EndCause::NeverLaunched,
        EndCause::NodeFailed,
        EndCause::Stopped,
    ]);
    prop_oneof![
        4 => (0_u32..200_000).prop_map(Happens::TimePasses),
        1 => (-200_000..200_000).prop_map(Happens::ClockIsSet),
        6 => (0_usize..3, cause).prop_map(|(which, cause)| Happens::Ends(which, cause)),
        1 => Just(Happens::Restart),
        1 => (0_usize..3).prop_map(Happens::Requeue),
        1 => (0_usize..3).prop_map(Happens::Reached),
        1 => (0_usize..3).prop_map(Happens::Cancel),
        1 => Just(Happens::Install),
    ]
}

proptest! {
    /// After anything that happens, an entry that nobody cancelled has exactly one pending or
    /// running job, which begins at the next time of the entry or is due.
    #[test]
    fn an_enabled_entry_has_exactly_one_job(list in prop::collection::vec(happens(), 1..40)) {
        let crontab = [("* * * * *", ask().cpus(3)), ("@daily", ask()), ("*/7 2-5 * * mon", ask())];
        let mut d = Double::new(4, 1000, 0);
        let mut jobs = install(&mut d, &crontab);
        let mut cancelled = Vec::new();
        for event in list {
            match event {
                Happens::TimePasses(secs) => d.wait(u64::from(secs)),
                Happens::ClockIsSet(secs) => {
                    d.now = d.now.plus_us(i64::from(secs) * 1_000_000);
                    d.wait(0);
                }
                Happens::Ends(which, cause) => {
                    if d.core.job(jobs[which]).is_some_and(|job| job.run.state.is_active()) {
                        // An uncancelled job whose ladder ran unseen was cancelled.
                        let is_stopped = cause == EndCause::Stopped
                            && d.state(jobs[which]) == JobState::Running;
                        cancelled.extend(is_stopped.then_some(jobs[which]));
                        d.end(jobs[which], cause, ExitCode::status(1));
                    }
                    d.plan();
                }
                Happens::Restart => restart(&mut d),
                Happens::Requeue(which) => {
                    let named = JobRef::job(jobs[which]);
                    if d.act(|core, cx| core.requeue(&named, None, &[], cx)).is_ok() {
                        cancelled.retain(|job| *job != jobs[which]);
                    }
                }
                Happens::Reached(which) => d.act(|core, cx| core.limit_reached(jobs[which], cx)),
                Happens::Cancel(which) => {
                    if d.cancel(&JobRef::job(jobs[which])).is_ok() {
                        cancelled.push(jobs[which]);
                    }
                }
                Happens::Install => {
                    jobs = install(&mut d, &crontab);
                    cancelled.clear();
                }
            }
            prop_assert_eq!(d.store.crontabs[&USER].entries.len(), jobs.len());
            for (job, (time, _)) in jobs.iter().zip(&crontab) {
                if cancelled.contains(job) {
                    continue;
                }
                let Some(record) = d.core.job(*job) else {
                    return Err(TestCaseError::fail(format!("the job of {time} is gone")));
                };
                prop_assert!(!record.run.state.is_terminal(), "{}: {:?}", time, record.run);
                if record.run.state == JobState::Pending {
                    let due = record.begin().expect("a begin time");
                    let recurrence = record.request.recurrence.as_deref().expect("a recurrence");
                    let next = d.core.config().zone.next_of(recurrence, d.now);
                    let is_next = Some(due) <= next || record.submit > d.now;
                    prop_assert!(is_next, "{}: {:?} instead of {:?}", time, due, next);
                }
            }
            let live = d.core.jobs().filter(|job| job.run.state == JobState::Pending).count();
            prop_assert!(live <= jobs.len(), "{} jobs wait", live);
        }
    }
}

#[test]
fn a_crontab_counts_towards_the_submit_limit_of_its_qos() {
    let mut d = Double::new(4, 1000, 0);
    d.set_qos(&[Qos { name: "two".to_owned(), max_submit: Some(2), ..Qos::default() }]);
    let list = |count: usize| vec![("@daily", ask().qos("two")); count];
    let try_install = |d: &mut Double, count| {
        let list = list(count);
        d.act(|core, cx| core.install_crontab(USER, text(&list), entries(&list), cx))
    };
    let refused = || Refusal::QosLimit("QOSMaxSubmitJobPerUserLimit".to_owned());
    assert_eq!(try_install(&mut d, 3), Err((2, refused())));
    assert_eq!(shown(&d), None);
    // The entries that are replaced make room.
    for _ in 0..2 {
        assert_eq!(try_install(&mut d, 2).map(|jobs| jobs.len()), Ok(2));
    }
    assert_eq!(try_install(&mut d, 3), Err((2, refused())));
    assert_eq!(try_install(&mut d, 1).map(|jobs| jobs.len()), Ok(1));
    d.submit(ask().qos("two"));
    assert_eq!(try_install(&mut d, 2), Err((1, refused())));
}
