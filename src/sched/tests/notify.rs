//! Notifications, and the counters stored so that each is sent once.

use super::*;
use slotd_model::mail::MailKind;
use slotd_model::notice::{Audience, Channel, Event, Events};

fn audience(events: &[Event]) -> Audience {
    let command = events.iter().fold(Events::NONE, |all, event| all.with(*event));
    Audience { command, url: Events::NONE, mail: true }
}

fn queue_of(events: &[Event]) -> Double {
    Double::with(|config| config.audience = audience(events))
}

/// Returns the command notifications since the last call.
fn texts(d: &mut Double) -> Vec<String> {
    let told = d.effects.iter().filter_map(|effect| match effect {
        Effect::Notify { notice, .. } if notice.channel == Channel::Command => {
            Some(notice.text.clone())
        }
        _ => None,
    });
    let told = told.collect();
    d.effects.clear();
    told
}

/// Returns the emails since the last call, with the job ID of each.
fn mails(d: &mut Double) -> Vec<(MailKind, String)> {
    let told = d.effects.iter().filter_map(|effect| match effect {
        Effect::Notify { notice, .. } => match notice.channel {
            Channel::Mail(kind) => Some((kind, notice.job_id.clone())),
            Channel::Command | Channel::Url => None,
        },
        _ => None,
    });
    let told = told.collect();
    d.effects.clear();
    told
}

fn mail(types: &str) -> Ask {
    ask().with(|request| request.mail_type = Some(types.to_owned()))
}

/// Starts a new daemon with the contents of the store.
fn restart(d: &mut Double) {
    let (config, jobs) = (d.core.config().clone(), d.store.jobs.values().cloned().collect());
    d.core = Core::recover(config, jobs, d.store.ended(), d.core.next_id(), d.now);
    d.core.recall_memos(d.store.memos.clone().into_iter().collect(), d.now);
    d.wait(0);
}

#[test]
fn each_end_is_reported_and_nothing_is_stored_for_it() {
    let mut d = queue_of(&[Event::Job]);
    let good = d.submit(ask().name("good"));
    let bad = d.submit(ask().name("bad"));
    let gone = d.submit(ask().name("gone").held());
    d.plan();
    d.exit(good, 0);
    d.exit(bad, 3);
    d.cancel(&JobRef::job(gone)).unwrap();
    assert_eq!(
        texts(&mut d),
        [
            "job 1 (good) has ended: COMPLETED",
            "job 2 (bad) has ended: FAILED (NonZeroExitCode), exit code 3",
            "job 3 (gone) has ended: CANCELLED (CancelledByUser)",
        ]
    );
    assert!(d.store.memos.is_empty());
}

#[test]
fn an_array_is_reported_when_its_last_task_has_ended() {
    let mut d = queue_of(&[Event::Array]);
    let array = d.submit(ask().array(0, 4, None).name("sweep"));
    d.plan();
    let tasks = d.started();
    assert_eq!(tasks.len(), 4);
    for (task, code) in tasks.iter().zip([0, 0, 2]) {
        d.exit(*task, code);
        assert_eq!(texts(&mut d), [""; 0]);
    }
    restart(&mut d);
    // The last two tasks: counting continues after the restart.
    d.cancel(&JobRef::job(array)).unwrap();
    for id in d
        .core
        .jobs()
        .filter(|job| job.run.state == JobState::Completing)
        .map(|job| job.id)
        .collect::<Vec<_>>()
    {
        d.end(id, EndCause::Stopped, ExitCode::signal(15));
    }
    assert_eq!(
        texts(&mut d),
        ["array 1 (sweep) has ended: 5 tasks: 2 COMPLETED, 1 FAILED, 2 CANCELLED"]
    );
    assert!(d.store.memos.is_empty(), "{:?}", d.store.memos);
}

#[test]
fn a_task_requeued_after_its_end_is_counted_once() {
    let mut d = queue_of(&[Event::Array, Event::Queue]);
    let array = d.submit(ask().array(0, 1, None));
    d.plan();
    let tasks = d.started();
    d.exit(tasks[0], 1);
    let again = JobRef { job: array, tasks: Some(TaskSet::one(0)), step: None };
    d.act(|core, cx| core.requeue(&again, None, &[], cx)).unwrap();
    d.plan();
    d.exit(tasks[0], 0);
    d.exit(tasks[1], 0);
    let told = texts(&mut d);
    assert_eq!(
        told,
        [
            "array 1 (wrap) has ended: 2 tasks: 2 COMPLETED",
            "the queue is empty: 2 jobs: 2 COMPLETED"
        ]
    );
}

#[test]
fn a_chain_has_ended_when_all_linked_jobs_have() {
    let mut d = queue_of(&[Event::Chain]);
    let first = d.submit(ask().name("prepare"));
    d.plan();
    // The first job ends before the others are submitted.
    d.exit(first, 0);
    let left = d.submit(ask().after(AfterOk, first));
    let right = d.submit(ask().after(AfterAny, first));
    let alone = d.submit(ask());
    d.plan();
    let last = d.submit(ask().name("report").after(AfterAny, left).after(AfterOk, right));
    let hopeless = d.submit(
        ask().after(AfterNotOk, last).with(|request| request.kill_on_invalid_dep = Some(true)),
    );
    d.exit(left, 1);
    d.exit(alone, 0);
    restart(&mut d);
    d.exit(right, 0);
    assert_eq!(texts(&mut d), [""; 0]);
    d.exit(last, 0);
    assert_eq!(d.state(hopeless), JobState::Ended(End::Cancelled));
    assert_eq!(
        texts(&mut d),
        [
            "the chain of jobs from 1 (prepare) to 6 (wrap) has ended: 5 jobs: 3 COMPLETED, 1 FAILED, 1 CANCELLED"
        ]
    );
    assert!(d.store.memos.is_empty(), "{:?}", d.store.memos);
}

#[test]
fn later_links_merge_chains() {
    let mut d = queue_of(&[Event::Chain]);
    let array = d.submit(ask().array(0, 2, None).held());
    let after = d.submit(ask().after(AfterOk, array));
    let other = d.submit(ask().held());
    let join = d.submit(ask().after(AfterOk, other));
    let both = Dependency { terms: vec![on(AfterOk, other), on(AfterAny, after)], any: false };
    d.act(|core, cx| core.update(&JobRef::job(join), &[Update::Dependency(both)], &[], cx))
        .unwrap();
    for id in [array, other] {
        d.cancel(&JobRef::job(id)).unwrap();
    }
    for id in [after, join] {
        assert_eq!(texts(&mut d), [""; 0]);
        d.cancel(&JobRef::job(id)).unwrap();
    }
    assert_eq!(
        texts(&mut d),
        ["the chain of jobs from 1 (wrap) to 4 (wrap) has ended: 6 jobs: 6 CANCELLED"]
    );
    assert!(d.store.memos.is_empty(), "{:?}", d.store.memos);
}

#[test]
fn an_endless_chain_stores_only_jobs_in_memory() {
    let mut d = queue_of(&[Event::Chain]);
    let mut last = d.submit(ask());
    d.plan();
    for _ in 0..50 {
        let next = d.submit(ask().after(AfterAny, last));
        d.exit(last, 0);
        d.wait(400);
        last = next;
    }
    assert!(d.store.memos.len() <= 4, "{:?}", d.store.memos.keys());
    d.exit(last, 0);
    assert_eq!(
        texts(&mut d),
        ["the chain of jobs from 1 (wrap) to 51 (wrap) has ended: 51 jobs: 51 COMPLETED"]
    );
}

#[test]
fn the_queue_is_reported_each_time_it_becomes_empty() {
    let mut d = queue_of(&[Event::Queue]);
    for (id, codes) in [(1, [0, 0]), (3, [0, 9])] {
        let jobs = [d.submit(ask()), d.submit(ask())];
        d.plan();
        assert_eq!(jobs[0], JobId(id));
        d.exit(jobs[0], codes[0]);
        assert_eq!(texts(&mut d), [""; 0]);
        restart(&mut d);
        d.exit(jobs[1], codes[1]);
        let told = [
            "the queue is empty: 2 jobs: 2 COMPLETED",
            "the queue is empty: 2 jobs: 1 COMPLETED, 1 FAILED",
        ];
        assert_eq!(texts(&mut d), [told[usize::from(id == 3)]]);
    }
    assert!(d.store.memos.is_empty());
}

#[test]
fn a_job_that_can_never_start_is_reported_once_per_reason() {
    let mut d = queue_of(&[Event::Never]);
    let first = d.submit(ask().held());
    let after = d.submit(ask().name("late").after(AfterOk, first));
    let held = d.submit(ask().held());
    d.plan();
    assert_eq!(texts(&mut d), [""; 0], "a hold by the user is not reported");
    d.cancel(&JobRef::job(first)).unwrap();
    d.plan();
    let told = texts(&mut d);
    assert_eq!(told.len(), 1, "{told:?}");
    let want = "job 2 (late) can never start: it waits for afterok:1, which can never be satisfied: it is CANCELLED";
    assert_eq!(told, [want]);
    restart(&mut d);
    d.plan();
    assert_eq!(texts(&mut d), [""; 0], "the next daemon does not repeat it");
    // The host now has less than the job needs, which is another reason.
    let large = d.submit(ask().cpus(4));
    d.act(|core, cx| {
        let partitions = core.config().all_partitions.clone();
        core.set_host(host(2, 1000, 0), partitions, cx.now);
    });
    d.plan();
    let told = texts(&mut d);
    assert_eq!(
        told,
        [format!(
            "job {large} (wrap) can never start: it needs 4 CPUs and 1 MB of memory; partition cpu has 2 CPUs and 1000 MB of memory in total"
        )]
    );
    d.cancel(&JobRef::job(after)).unwrap();
    d.cancel(&JobRef::job(held)).unwrap();
    d.cancel(&JobRef::job(large)).unwrap();
    assert!(d.store.memos.is_empty(), "{:?}", d.store.memos);
}

#[test]
fn mail_types_select_the_emails() {
    use MailKind::{Begin, End, Fail, InvalidDepend, Requeue};
    let fail = ExitCode::status(1);
    let cases: [(&str, ExitCode, &[MailKind]); 6] = [
        ("ALL", ExitCode::OK, &[Begin, End]),
        ("ALL", fail, &[Begin, Fail]),
        ("END", fail, &[End]),
        ("FAIL", ExitCode::OK, &[]),
        ("NONE", fail, &[]),
        ("BEGIN", fail, &[Begin]),
    ];
    for (types, exit, want) in cases {
        let mut d = queue_of(&[]);
        let job = d.submit(mail(types));
        d.plan();
        d.end(job, EndCause::Exited, exit);
        let kinds: Vec<MailKind> = mails(&mut d).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(kinds, want, "{types} {exit}");
    }
    let mut d = queue_of(&[]);
    let first = d.submit(mail("REQUEUE").with(|request| request.requeue = true));
    let after = d.submit(mail("INVALID_DEPEND").after(AfterOk, first));
    d.plan();
    d.exit(first, 1);
    assert_eq!(mails(&mut d), [(Requeue, first.to_string())]);
    d.exit(first, 1);
    assert_eq!(mails(&mut d), [(InvalidDepend, after.to_string())]);
}

#[test]
fn an_array_gets_one_email_unless_array_tasks_is_set() {
    for (types, want) in [
        ("BEGIN,END", vec![(MailKind::Begin, "1"), (MailKind::End, "1")]),
        ("FAIL", vec![(MailKind::Fail, "1")]),
        ("BEGIN", vec![(MailKind::Begin, "1")]),
        ("END,ARRAY_TASKS", vec![(MailKind::End, "1_0"), (MailKind::End, "1_1")]),
    ] {
        let mut d = queue_of(&[]);
        d.submit(mail(types).array(0, 1, None));
        d.plan();
        let tasks = d.started();
        let mut told = mails(&mut d);
        restart(&mut d);
        for (task, code) in tasks.iter().zip([1, 0]) {
            d.exit(*task, code);
        }
        told.extend(mails(&mut d));
        let told: Vec<(MailKind, &str)> =
            told.iter().map(|(kind, id)| (*kind, id.as_str())).collect();
        assert_eq!(told, want, "{types}");
        assert!(d.store.memos.is_empty(), "{:?}", d.store.memos);
    }
}

#[test]
fn time_limit_emails_follow_the_clock() {
    let mut d = queue_of(&[]);
    let job = d.submit(mail("TIME_LIMIT_50,TIME_LIMIT_90,TIME_LIMIT").limit(1000));
    d.plan();
    d.submit(ask().limit(1000));
    d.plan();
    d.effects.clear();
    assert_eq!(
        d.core.next_due(),
        Some(d.now.plus_secs(500)),
        "only for the job that requested mail"
    );
    d.wait(499);
    assert_eq!(mails(&mut d), []);
    d.wait(1);
    assert_eq!(mails(&mut d), [(MailKind::TimeLimit(50), job.to_string())]);
    restart(&mut d);
    assert_eq!(d.core.next_due(), Some(d.now.plus_secs(400)), "the email for 50% was sent");
    // Suspended time does not count.
    d.act(|core, cx| core.suspend(&JobRef::job(job), cx)).unwrap();
    d.wait(600);
    assert_eq!(mails(&mut d), []);
    d.act(|core, cx| core.resume(&JobRef::job(job), cx)).unwrap();
    assert_eq!(d.core.next_due(), Some(d.now.plus_secs(400)));
    d.wait(400);
    assert_eq!(mails(&mut d), [(MailKind::TimeLimit(90), job.to_string())]);
    d.act(|core, cx| core.limit_reached(job, cx));
    assert_eq!(mails(&mut d), [(MailKind::TimeLimit(100), job.to_string())]);
    d.end(job, EndCause::TimeLimit, ExitCode::signal(15));
    assert_eq!(
        (d.state(job), mails(&mut d)),
        (JobState::Ended(End::Timeout), Vec::new()),
        "the email was already sent"
    );
    assert!(d.store.memos.is_empty());
}

#[test]
fn nothing_is_counted_without_a_recipient() {
    let mut d = Double::new(4, 1000, 0);
    let first = d.submit(ask());
    let array = d.submit(mail("ALL").array(0, 3, None).after(AfterOk, first));
    d.plan();
    d.exit(first, 1);
    assert_eq!(d.reason(array), Reason::DependencyNeverSatisfied);
    assert!(d.store.memos.is_empty());
    assert!(!d.effects.iter().any(|effect| matches!(effect, Effect::Notify { .. })));
}
