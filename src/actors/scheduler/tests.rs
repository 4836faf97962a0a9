//! The order of effects: nothing is answered, and nothing started, before its commit is acknowledged.

use super::*;
use crate::model::JobRequest;
use crate::model::array::ArraySpec;
use crate::model::job::Client;
use crate::model::partition::Host;
use crate::model::query::JobQuery;
use crate::model::{Refusal, TaskSet};
use crate::sched::Submission;
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc;

/// A store that acknowledges when it is told to.
struct SlowStore {
    commits: mpsc::UnboundedSender<Commit>,
}

impl Actor for SlowStore {
    type Context = Context<Self>;
}

impl Handler<Commit> for SlowStore {
    type Result = ();

    fn handle(&mut self, commit: Commit, _: &mut Self::Context) {
        let _ = self.commits.send(commit);
    }
}

fn client(pid: u32) -> Client {
    Client { process: ClientProcess { pid, start_ticks: 1 }, holds: false }
}

struct Deaf;

impl Actor for Deaf {
    type Context = Context<Self>;
}

impl Handler<NotifyEnd> for Deaf {
    type Result = ();

    fn handle(&mut self, _: NotifyEnd, _: &mut Self::Context) {}
}

const NOON: Timestamp = Timestamp::from_secs(1_795_176_000);

fn partitions() -> Vec<Partition> {
    vec![Partition { name: "cpu".to_owned(), is_gpu: false, is_default: true }]
}

struct Lab {
    scheduler: Addr<SchedulerActor>,
    commits: mpsc::UnboundedReceiver<Commit>,
    alarm: watch::Receiver<Option<Timestamp>>,
}

impl Lab {
    fn new() -> Lab {
        let config = crate::sched::Config {
            host: Host { name: "vm".to_owned(), cpu_ids: vec![0, 1], mem_mb: 4096, ..Host::default() },
            partitions: partitions(),
            default_mem_mb: 512,
            batch_tasks: Default::default(),
            min_job_age_secs: 300,
            cluster: "lab".to_owned(),
            max_array_size: 1001,
        };
        let (sender, commits) = mpsc::unbounded_channel();
        let (set, alarm) = watch::channel(None);
        let store = SlowStore { commits: sender }.start();
        let outputs = SchedulerOutputs {
            store: store.recipient(),
            notifier: Deaf.start().recipient(),
            // No job of these tests gets as far as a runner.
            runners: RunnerSeed { arbiter: Arbiter::current(), setup: Arc::new(OnceLock::new()) },
            alarm: set,
            clock: || NOON,
            daemon_start: NOON,
            partitions: Box::new(|_| partitions()),
        };
        let scheduler = SchedulerActor::new(Core::new(config), outputs, Vec::new()).start();
        Lab { scheduler, commits, alarm }
    }

    fn submit(&self, change: impl FnOnce(&mut JobRequest)) -> actix::prelude::Request<SchedulerActor, SubmitJob> {
        let mut request =
            JobRequest { name: "t".to_owned(), work_dir: "/".to_owned(), hold: true, ..JobRequest::default() };
        change(&mut request);
        self.scheduler.send(SubmitJob {
            submission: Submission { request, client: Some(client(1)), ..Submission::default() },
            again: false,
            news: None,
        })
    }

    async fn acknowledge(&mut self) -> Commit {
        let commit = self.commits.recv().await.expect("a commit");
        self.scheduler.do_send(Committed { seq: commit.seq, result: Ok(Vec::new()) });
        commit
    }
}

#[actix_rt::test]
async fn a_number_is_told_only_when_the_job_is_durable() {
    let mut lab = Lab::new();
    let mut answer = Box::pin(lab.submit(|_| {}));
    let commit = tokio::select! {
        biased;
        answer = &mut answer => panic!("answered {answer:?} before the commit"),
        commit = lab.commits.recv() => commit.expect("a commit"),
    };
    assert_eq!(commit.changes.len(), 1);
    lab.scheduler.do_send(Committed { seq: commit.seq, result: Ok(Vec::new()) });
    assert_eq!(answer.await.expect("an answer"), Ok(JobId(1)));
}

#[actix_rt::test]
async fn a_submission_that_is_made_again_counts_once() {
    let mut lab = Lab::new();
    let first = lab.submit(|_| {});
    lab.acknowledge().await;
    let id = first.await.expect("an answer").expect("a job");
    let again = |pid, again| {
        let request =
            JobRequest { name: "t".to_owned(), work_dir: "/".to_owned(), hold: true, ..JobRequest::default() };
        lab.scheduler.send(SubmitJob {
            submission: Submission { request, client: Some(client(pid)), ..Submission::default() },
            again,
            news: None,
        })
    };
    let (known, unknown, other) = (again(1, true), again(2, true), again(1, false));
    assert!(lab.acknowledge().await.changes.is_empty());
    assert_eq!(known.await.expect("an answer"), Ok(id));
    assert_eq!(lab.acknowledge().await.changes.len(), 1);
    assert_eq!(unknown.await.expect("an answer"), Ok(JobId(2)), "nobody has it: it is made now");
    assert_eq!(lab.acknowledge().await.changes.len(), 1);
    assert_eq!(other.await.expect("an answer"), Ok(JobId(3)), "a first submission is never an old one");
}

#[actix_rt::test]
async fn a_refused_submission_changes_nothing() {
    let mut lab = Lab::new();
    let refused = lab.submit(|request| request.partition = Some("nosuch".to_owned())).await.expect("an answer");
    assert_eq!(refused, Err(Refusal::UnknownPartition { name: "nosuch".to_owned(), known: vec!["cpu".to_owned()] }));
    assert!(lab.commits.try_recv().is_err());
}

#[actix_rt::test]
async fn the_alarm_is_set_for_the_next_begin_time_and_for_nothing_else() {
    let mut lab = Lab::new();
    let held = lab.submit(|_| {});
    lab.acknowledge().await;
    held.await.expect("an answer").expect("a job");
    assert_eq!(*lab.alarm.borrow(), None);
    let later = NOON.plus_secs(3600);
    let begins = lab.submit(|request| {
        request.hold = false;
        request.begin = Some(later);
    });
    lab.acknowledge().await;
    begins.await.expect("an answer").expect("a job");
    lab.alarm.wait_for(|at| *at == Some(later)).await.expect("the alarm");
}

#[actix_rt::test]
async fn who_waits_for_an_array_hears_of_its_last_task() {
    let mut lab = Lab::new();
    let array = lab.submit(|request| {
        request.array = Some(ArraySpec { tasks: TaskSet::from_sorted(&[1, 2, 3]), limit: None });
    });
    lab.acknowledge().await;
    let id = array.await.expect("an answer").expect("a job");
    let (news, mut heard) = mpsc::unbounded_channel();
    assert!(lab.scheduler.send(WatchJob { job: id, start: false, news }).await.expect("an answer").is_some());
    let cancel = crate::protocol::request::CancelAsk {
        query: JobQuery::of(vec![JobRef { job: id, tasks: Some(TaskSet::one(2)), step: None }]),
        ..Default::default()
    };
    let one = lab.scheduler.send(CancelJobs(cancel.clone()));
    lab.acknowledge().await;
    assert!(one.await.expect("an answer")[0].result.is_ok());
    assert!(heard.try_recv().is_err(), "two tasks are left");
    let rest = crate::protocol::request::CancelAsk { query: JobQuery::of(vec![JobRef::job(id)]), ..cancel };
    let rest = lab.scheduler.send(CancelJobs(rest));
    lab.acknowledge().await;
    rest.await.expect("an answer");
    assert!(matches!(heard.recv().await, Some(Answer::Ended { .. })));
}

#[actix_rt::test]
async fn the_end_of_an_array_is_told_only_when_all_of_it_is_durable() {
    let mut lab = Lab::new();
    let array = lab.submit(|request| {
        request.array = Some(ArraySpec { tasks: TaskSet::from_sorted(&[1, 2]), limit: None });
    });
    lab.acknowledge().await;
    let id = array.await.expect("an answer").expect("a job");
    let (news, mut heard) = mpsc::unbounded_channel();
    assert!(lab.scheduler.send(WatchJob { job: id, start: false, news }).await.expect("an answer").is_some());
    let cancel = |tasks: Option<TaskSet>| {
        CancelJobs(crate::protocol::request::CancelAsk {
            query: JobQuery::of(vec![JobRef { job: id, tasks, step: None }]),
            ..Default::default()
        })
    };
    let one = lab.scheduler.send(cancel(Some(TaskSet::one(2))));
    let rest = lab.scheduler.send(cancel(None));
    let first = lab.commits.recv().await.expect("a commit");
    let second = lab.commits.recv().await.expect("a commit");
    lab.scheduler.do_send(Committed { seq: first.seq, result: Ok(Vec::new()) });
    one.await.expect("an answer");
    assert!(heard.try_recv().is_err(), "the second end is not durable yet");
    lab.scheduler.do_send(Committed { seq: second.seq, result: Ok(Vec::new()) });
    rest.await.expect("an answer");
    assert!(matches!(heard.recv().await, Some(Answer::Ended { .. })));
}
