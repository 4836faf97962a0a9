//! The order of effects: nothing is answered or started before its commit is acknowledged.

use super::*;
use crate::actors::feed::Feed;
use crate::actors::gpu_inventory::NoGpus;
use slotd_model::JobRequest;
use slotd_model::Partition;
use slotd_model::array::ArraySpec;
use slotd_model::change::Change;
use slotd_model::job::Client;
use slotd_model::notice::{Audience, Event, Events};
use slotd_model::partition::Host;
use slotd_model::preempt::PreemptMode;
use slotd_model::qos::Qos;
use slotd_model::query::JobQuery;
use slotd_model::request::JobKind;
use slotd_model::{JobRef, Refusal, StoreFault, TaskSet};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::ControlAction;
use slotd_sched::Submission;
use std::cell::Cell;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Answered with the active jobs, or with the violated invariant.
#[derive(Message)]
#[rtype(result = "Result<Vec<JobId>, String>")]
pub struct CheckInvariants;

impl Handler<CheckInvariants> for SchedulerActor {
    type Result = Result<Vec<JobId>, String>;

    fn handle(&mut self, _: CheckInvariants, _: &mut Self::Context) -> Self::Result {
        self.core.check_invariants()?;
        let exceeded = self.core.exceeded();
        if !exceeded.is_empty() {
            return Err(format!("more than allowed is in use: {exceeded:?}"));
        }
        Ok(self.core.jobs().filter(|job| job.run.state.is_active()).map(|job| job.id).collect())
    }
}

/// A store that acknowledges commits only when the test does.
struct SlowStore {
    commits: mpsc::UnboundedSender<Commit>,
    /// The number of commits in each message.
    together: mpsc::UnboundedSender<usize>,
}

impl Actor for SlowStore {
    type Context = Context<Self>;
}

impl Handler<Commits> for SlowStore {
    type Result = ();

    fn handle(&mut self, Commits(commits): Commits, _: &mut Self::Context) {
        let _ = self.together.send(commits.len());
        commits.into_iter().for_each(|commit| drop(self.commits.send(commit)));
    }
}

fn client(pid: u32) -> Client {
    Client {
        process: ClientProcess { pid, start_ticks: 1, ..ClientProcess::default() },
        ..Client::default()
    }
}

/// Forwards the notifications.
struct Hook(mpsc::UnboundedSender<Notify>);

impl Actor for Hook {
    type Context = Context<Self>;
}

impl Handler<Notify> for Hook {
    type Result = ();

    fn handle(&mut self, end: Notify, _: &mut Self::Context) {
        let _ = self.0.send(end);
    }
}

/// An event of a runner.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ran {
    Prepared(JobId),
    Launched(JobId),
    Gone(JobId),
}

/// A runner that reports its commands and its end.
struct Reporter {
    job: JobId,
    to: mpsc::UnboundedSender<Ran>,
}

impl Actor for Reporter {
    type Context = Context<Self>;
}

impl Drop for Reporter {
    fn drop(&mut self) {
        let _ = self.to.send(Ran::Gone(self.job));
    }
}

impl Handler<RunnerCommand> for Reporter {
    type Result = ();

    fn handle(&mut self, command: RunnerCommand, ctx: &mut Self::Context) {
        match command {
            RunnerCommand::Prepare(_) => drop(self.to.send(Ran::Prepared(self.job))),
            RunnerCommand::Dismiss => ctx.stop(),
            _ => drop(self.to.send(Ran::Launched(self.job))),
        }
    }
}

const NOON: Timestamp = Timestamp::from_secs(1_795_176_000);

thread_local! {
    /// The time of a test and its actors.
    static CLOCK: Cell<Timestamp> = const { Cell::new(NOON) };
}

fn partitions() -> Vec<Partition> {
    vec![Partition { name: "cpu".to_owned(), is_default: true, ..Partition::default() }]
}

fn config() -> slotd_sched::Config {
    slotd_sched::Config {
        host: Host { name: "vm".to_owned(), cpu_ids: vec![0, 1], mem_mb: 4096, ..Host::default() },
        capacities: Default::default(),
        partitions: partitions(),
        all_partitions: partitions(),
        limits: Vec::new(),
        licenses: Vec::new(),
        qos: slotd_model::qos::with_default(vec![
            Qos {
                name: "low".to_owned(),
                preempt_mode: Some(PreemptMode::Requeue),
                ..Qos::default()
            },
            Qos { name: "urgent".to_owned(), preempt: vec!["low".to_owned()], ..Qos::default() },
        ]),
        reservations: Vec::new(),
        zone: Default::default(),
        default_mem_mb: 512,
        batch_tasks: Default::default(),
        reruns_failed: true,
        min_job_age_secs: 300,
        cluster: "lab".to_owned(),
        max_array_size: 1001,
        max_tasks: 512,
        reads_gpus: false,
        avoids_used_gpus: false,
        avoids_used_cpus: false,
        audience: Default::default(),
    }
}

struct Lab {
    scheduler: Addr<SchedulerActor>,
    commits: mpsc::UnboundedReceiver<Commit>,
    together: mpsc::UnboundedReceiver<usize>,
    notices: mpsc::UnboundedReceiver<Notify>,
    alarm: watch::Receiver<Option<Timestamp>>,
    forecasts: Arc<Semaphore>,
    runners: mpsc::UnboundedReceiver<Ran>,
}

impl Lab {
    fn new() -> Lab {
        Lab::with(Audience::default())
    }

    fn with(audience: Audience) -> Lab {
        let (to, runners) = mpsc::unbounded_channel();
        let seed = move |job| Reporter { job, to: to.clone() }.start().recipient();
        Lab { runners, ..Lab::of(audience, Box::new(seed)) }
    }

    fn of(audience: Audience, runners: RunnerSeed) -> Lab {
        let (sender, commits) = mpsc::unbounded_channel();
        let (counter, together) = mpsc::unbounded_channel();
        let (hook, notices) = mpsc::unbounded_channel();
        let (set, alarm) = watch::channel(None);
        let forecasts = Arc::new(Semaphore::new(1));
        let store = SlowStore { commits: sender, together: counter }.start();
        let outputs = SchedulerOutputs {
            store: store.recipient(),
            notifier: Hook(hook).start().recipient(),
            next_notice: 7,
            gpus: NoGpus.start().recipient(),
            root: PathBuf::new(),
            runners,
            alarm: set,
            clock: || Moment { wall: CLOCK.get(), ..Moment::default() },
            daemon_start: NOON,
            forecasts: Arc::clone(&forecasts),
            cgroups: None,
            activity: watch::Sender::default(),
        };
        let scheduler = SchedulerActor::new(
            Core::new(slotd_sched::Config { audience, ..config() }),
            outputs,
            Vec::new(),
            Outbox::default(),
        )
        .start();
        let runners = mpsc::unbounded_channel().1;
        Lab { scheduler, commits, together, notices, alarm, forecasts, runners }
    }

    fn submit(
        &self,
        change: impl FnOnce(&mut JobRequest),
    ) -> actix::prelude::Request<SchedulerActor, SubmitJob> {
        let mut request = JobRequest {
            name: "t".to_owned(),
            work_dir: "/".to_owned(),
            hold: true,
            ..JobRequest::default()
        };
        change(&mut request);
        self.scheduler.send(SubmitJob {
            submission: Submission { request, client: Some(client(1)), ..Submission::default() },
            answer: None,
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
async fn job_id_is_returned_only_when_the_job_is_durable() {
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
async fn submission_and_its_start_are_committed_together() {
    let mut lab = Lab::new();
    let _answer = lab.submit(|request| request.hold = false);
    assert_eq!(lab.together.recv().await, Some(2));
}

#[actix_rt::test]
async fn decisions_are_sent_to_the_store_before_the_daemon_stops() {
    let mut lab = Lab::new();
    let _answer = lab.submit(|_| {});
    lab.scheduler.send(SendCommits).await.expect("an answer");
    // A round would send two commits.
    assert_eq!(lab.together.recv().await, Some(1));
}

#[actix_rt::test]
async fn client_learns_that_its_allocation_waits_if_the_first_round_does_not_start_it() {
    let mut lab = Lab::new();
    let submit = |pid, hold, holds| {
        let (news, events) = mpsc::unbounded_channel();
        let request = JobRequest {
            work_dir: "/".to_owned(),
            kind: JobKind::Allocation,
            hold,
            ..JobRequest::default()
        };
        let client = Client { holds, ..client(pid) };
        lab.scheduler.do_send(SubmitJob {
            submission: Submission { request, client: Some(client), ..Submission::default() },
            answer: None,
            again: false,
            news: Some(news),
        });
        events
    };
    let mut starts = submit(1, false, true);
    let mut waits = submit(2, true, true);
    let mut is_left_to_itself = submit(3, true, false);
    assert!(matches!(waits.recv().await, Some(Answer::Waits)));
    assert!(starts.try_recv().is_err() && is_left_to_itself.try_recv().is_err());
    assert!(waits.try_recv().is_err(), "reported once");
    assert_eq!(lab.together.recv().await, Some(4));
}

#[actix_rt::test]
async fn repeated_submission_counts_once() {
    let mut lab = Lab::new();
    let first = lab.submit(|_| {});
    lab.acknowledge().await;
    let id = first.await.expect("an answer").expect("a job");
    let again = |pid, again| {
        let request = JobRequest {
            name: "t".to_owned(),
            work_dir: "/".to_owned(),
            hold: true,
            ..JobRequest::default()
        };
        lab.scheduler.send(SubmitJob {
            submission: Submission { request, client: Some(client(pid)), ..Submission::default() },
            answer: None,
            again,
            news: None,
        })
    };
    let (known, unknown, other) = (again(1, true), again(2, true), again(1, false));
    assert_eq!(known.await.expect("an answer"), Ok(id));
    assert_eq!(lab.acknowledge().await.changes.len(), 1);
    assert_eq!(unknown.await.expect("an answer"), Ok(JobId(2)), "unknown, so it is created now");
    assert_eq!(lab.acknowledge().await.changes.len(), 1);
    assert_eq!(
        other.await.expect("an answer"),
        Ok(JobId(3)),
        "a first submission is never an old one"
    );
}

#[actix_rt::test]
async fn refused_submission_changes_nothing() {
    let mut lab = Lab::new();
    let refused = lab
        .submit(|request| request.partition = Some("nosuch".to_owned()))
        .await
        .expect("an answer");
    assert_eq!(
        refused,
        Err(Refusal::UnknownPartition {
            name: "nosuch".to_owned(),
            known: vec!["cpu".to_owned()],
            lacks_gpus: false
        })
    );
    assert!(lab.commits.try_recv().is_err());
}

#[actix_rt::test]
async fn alarm_is_set_only_for_the_next_begin_time() {
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
async fn array_watcher_gets_the_end_of_the_last_task() {
    let mut lab = Lab::new();
    let array = lab.submit(|request| {
        request.array = Some(ArraySpec { tasks: TaskSet::from_sorted(&[1, 2, 3]), limit: None });
    });
    lab.acknowledge().await;
    let id = array.await.expect("an answer").expect("a job");
    let (news, mut events) = mpsc::unbounded_channel();
    assert!(lab.scheduler.send(WatchJob { job: id, news }).await.expect("an answer").is_some());
    let cancel = slotd_protocol::request::CancelAsk {
        query: JobQuery::of(vec![JobRef { job: id, tasks: Some(TaskSet::one(2)), step: None }]),
        ..Default::default()
    };
    let one = lab.scheduler.send(CancelJobs(cancel.clone()));
    lab.acknowledge().await;
    assert!(one.await.expect("an answer")[0].result.is_ok());
    assert!(events.try_recv().is_err(), "two tasks are left");
    let rest =
        slotd_protocol::request::CancelAsk { query: JobQuery::of(vec![JobRef::job(id)]), ..cancel };
    let rest = lab.scheduler.send(CancelJobs(rest));
    lab.acknowledge().await;
    rest.await.expect("an answer");
    assert!(matches!(events.recv().await, Some(Answer::Ended { .. })));
}

#[actix_rt::test]
async fn array_end_is_announced_only_when_all_task_ends_are_durable() {
    let mut lab = Lab::new();
    let array = lab.submit(|request| {
        request.array = Some(ArraySpec { tasks: TaskSet::from_sorted(&[1, 2]), limit: None });
    });
    lab.acknowledge().await;
    let id = array.await.expect("an answer").expect("a job");
    let (news, mut events) = mpsc::unbounded_channel();
    assert!(lab.scheduler.send(WatchJob { job: id, news }).await.expect("an answer").is_some());
    let cancel = |tasks: Option<TaskSet>| {
        CancelJobs(slotd_protocol::request::CancelAsk {
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
    assert!(events.try_recv().is_err(), "the second end is not durable yet");
    lab.scheduler.do_send(Committed { seq: second.seq, result: Ok(Vec::new()) });
    rest.await.expect("an answer");
    assert!(matches!(events.recv().await, Some(Answer::Ended { .. })));
}

fn cancel(id: JobId) -> CancelJobs {
    let query = JobQuery::of(vec![JobRef::job(id)]);
    CancelJobs(slotd_protocol::request::CancelAsk { query, ..Default::default() })
}

#[actix_rt::test]
async fn job_cancelled_before_its_start_is_durable_never_starts() {
    let mut lab = Lab::new();
    let answer = lab.submit(|request| request.hold = false);
    lab.acknowledge().await;
    let id = answer.await.expect("an answer").expect("a job");
    let start = lab.commits.recv().await.expect("a commit");
    assert_eq!(start.texts_for, [id]);
    let answer = lab.scheduler.send(cancel(id));
    let rest = [lab.commits.recv().await, lab.commits.recv().await]
        .map(|commit| commit.expect("a commit").seq);
    for seq in [start.seq, rest[0], rest[1]] {
        lab.scheduler.do_send(Committed { seq, result: Ok(Vec::new()) });
    }
    assert_eq!(answer.await.expect("an answer")[0].result, Ok(vec![id]));
    let jobs = lab.scheduler.send(of(JobQuery::default(), id)).await.expect("an answer").jobs;
    assert_eq!(
        (jobs[0].run.state, jobs[0].run.exit),
        (slotd_model::JobState::Ended(slotd_model::End::Cancelled), ExitCode::signal(15))
    );
    assert_eq!(lab.runners.recv().await, Some(Ran::Prepared(id)));
    assert_eq!(lab.runners.recv().await, Some(Ran::Gone(id)));
}

/// Nothing else causes a round before the preempted job may start again.
#[actix_rt::test]
async fn a_job_that_is_preempted_before_its_launch_makes_room_at_once() {
    let mut lab = Lab::new();
    let submit = |lab: &Lab, qos: &'static str| {
        lab.submit(move |request| {
            request.hold = false;
            request.cpus_per_task = Some(2);
            request.qos = Some(qos.to_owned());
        })
    };
    let low = submit(&lab, "low");
    while lab.commits.recv().await.expect("a commit").texts_for != [JobId(1)] {}
    // Its start is not acknowledged.
    CLOCK.set(NOON.plus_secs(1));
    let urgent = submit(&lab, "urgent");
    let other =
        async { while lab.commits.recv().await.expect("a commit").texts_for != [JobId(2)] {} };
    timeout(Duration::from_secs(20), other).await.expect("it starts");
    drop((low, urgent));
}

#[actix_rt::test]
async fn no_launch_is_prepared_without_an_idle_cpu() {
    let mut lab = Lab::new();
    let answer = lab.submit(|request| {
        request.hold = false;
        request.cpus_per_task = Some(2);
    });
    lab.acknowledge().await;
    lab.acknowledge().await;
    let job = answer.await.expect("an answer").expect("a job");
    assert_eq!(lab.runners.recv().await, Some(Ran::Launched(job)));
}

#[actix_rt::test]
async fn only_the_launch_of_a_new_job_is_prepared_and_only_a_durable_start_is_launched() {
    let mut lab = Lab::new();
    let waiting = lab.submit(|_| {});
    lab.acknowledge().await;
    let waiting = waiting.await.expect("an answer").expect("a job");
    let answer = lab.submit(|request| request.hold = false);
    assert_eq!(lab.runners.recv().await, Some(Ran::Prepared(JobId(2))));
    lab.scheduler.send(CheckInvariants).await.expect("an answer").expect("none is violated");
    assert_eq!(lab.runners.try_recv().ok(), None);
    lab.acknowledge().await;
    lab.acknowledge().await;
    let new = answer.await.expect("an answer").expect("a job");
    assert_eq!(lab.runners.recv().await, Some(Ran::Launched(new)));
    // The script of this one is in the database.
    let (jobs, action) = (vec![JobRef::job(waiting)], ControlAction::Release);
    let release =
        lab.scheduler.send(ControlJobs { jobs, action, ended: Vec::new(), recalled: Vec::new() });
    lab.acknowledge().await;
    lab.acknowledge().await;
    release.await.expect("an answer");
    assert_eq!(lab.runners.recv().await, Some(Ran::Launched(waiting)));
}

fn of(query: JobQuery, id: JobId) -> QueryJobs {
    QueryJobs { query: Arc::new(query), ids: vec![id], again: false, since: None }
}

#[actix_rt::test]
async fn a_record_that_came_after_the_search_is_in_a_short_answer() {
    let mut lab = Lab::new();
    let job = lab.submit(|_| {});
    lab.acknowledge().await;
    let id = job.await.expect("an answer").expect("a job");
    let query = JobQuery::of(vec![slotd_model::JobRef::job(id)]);
    for again in [false, true] {
        // The search was made before the submission.
        let ask = QueryJobs { ids: Vec::new(), again, ..of(query.clone(), id) };
        let jobs = lab.scheduler.send(ask).await.expect("an answer").jobs;
        assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), vec![id; again.into()]);
    }
}

#[actix_rt::test]
async fn other_queries_are_answered_during_a_forecast() {
    let mut lab = Lab::new();
    let job = lab.submit(|request| {
        request.hold = false;
        request.begin = Some(NOON.plus_secs(3600));
    });
    lab.acknowledge().await;
    let id = job.await.expect("an answer").expect("a job");
    let turn = Arc::clone(&lab.forecasts).acquire_owned().await.expect("it is open");
    let starts = JobQuery { expected_starts: true, ..JobQuery::default() };
    let forecast = lab.scheduler.send(of(starts, id));
    let submission = Submission {
        request: JobRequest { name: "t".to_owned(), ..JobRequest::default() },
        ..Submission::default()
    };
    let trial = lab.scheduler.send(TestSubmission(submission));
    let mut waiting =
        Box::pin(
            async move { (forecast.await.expect("an answer"), trial.await.expect("an answer")) },
        );
    let plain = tokio::select! {
        biased;
        early = &mut waiting => panic!("answered without a forecast: {early:?}"),
        plain = lab.scheduler.send(of(JobQuery::default(), id)) => plain.expect("an answer"),
    };
    assert_eq!(plain.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [id]);
    drop(turn);
    let (list, estimate) = waiting.await;
    assert_eq!(list.jobs[0].expected_start, Some(NOON.plus_secs(3600)));
    assert_eq!(estimate.map(|estimate| estimate.start), Ok(Some(NOON)));
}

#[actix_rt::test]
async fn forecast_is_shared_until_a_change_or_for_one_second() {
    let core = Core::new(config());
    let mut forecasts = Forecasts::new(Arc::new(Semaphore::new(1)));
    let first = forecasts.present(&core, NOON);
    let almost = Timestamp(NOON.plus_secs(1).0 - 1);
    assert!(Arc::ptr_eq(&first, &forecasts.present(&core, almost)));
    let later = forecasts.present(&core, NOON.plus_secs(1));
    assert!(!Arc::ptr_eq(&first, &later));
    forecasts.outdate();
    let changed = forecasts.present(&core, NOON.plus_secs(1));
    assert!(!Arc::ptr_eq(&later, &changed));
    assert!(!Arc::ptr_eq(&changed, &forecasts.present(&core, NOON)), "the clock was set back");
}

impl Lab {
    fn fault(&self, withdrawn: Vec<u64>) {
        let message = "disk I/O error".to_owned();
        self.scheduler.do_send(Unstored { fault: StoreFault::Io, message, withdrawn });
    }

    async fn known(&self) -> Vec<JobId> {
        self.scheduler
            .send(FindJobs { query: Arc::default(), after: None })
            .await
            .expect("an answer")
            .ids
    }
}

const NOT_STORED: Refusal = Refusal::NotStored(StoreFault::Io);

#[actix_rt::test]
async fn submission_that_cannot_be_stored_is_withdrawn_and_refused() {
    let mut lab = Lab::new();
    let first = lab.submit(|request| request.hold = false);
    let commit = lab.commits.recv().await.expect("a commit");
    assert_eq!(commit.submission.as_ref().map(|submitted| submitted.job), Some(JobId(1)));
    let start = lab.commits.recv().await.expect("a commit");
    assert_eq!(start.texts_for, [JobId(1)], "it would run by now");
    lab.fault(vec![commit.seq]);
    assert_eq!(first.await.expect("an answer"), Err(NOT_STORED));
    assert_eq!(lab.known().await, []);
    assert_eq!(
        lab.submit(|_| {}).await.expect("an answer"),
        Err(NOT_STORED),
        "no submissions are accepted meanwhile"
    );
    assert_eq!(lab.runners.recv().await, Some(Ran::Prepared(JobId(1))));
    assert_eq!(lab.runners.recv().await, Some(Ran::Gone(JobId(1))));
    for seq in [commit.seq, start.seq] {
        lab.scheduler.do_send(Committed { seq, result: Ok(Vec::new()) });
    }
    lab.scheduler.do_send(StoreWell);
    let next = lab.submit(|_| {});
    lab.acknowledge().await;
    assert_eq!(next.await.expect("an answer"), Ok(JobId(2)));
}

#[actix_rt::test]
async fn reconnected_client_gets_the_same_answer() {
    let mut lab = Lab::new();
    let (first, _) = (lab.submit(|_| {}), lab.commits.recv().await);
    let request = JobRequest {
        name: "t".to_owned(),
        work_dir: "/".to_owned(),
        hold: true,
        ..JobRequest::default()
    };
    let submission = Submission { request, client: Some(client(1)), ..Submission::default() };
    let again = lab.scheduler.send(SubmitJob { submission, answer: None, again: true, news: None });
    lab.fault(vec![1]);
    assert_eq!(
        [first.await.expect("an answer"), again.await.expect("an answer")],
        [Err(NOT_STORED), Err(NOT_STORED)]
    );
}

#[actix_rt::test]
async fn commands_are_answered_while_the_database_cannot_be_written() {
    let mut lab = Lab::new();
    let ids = [lab.submit(|_| {}), lab.submit(|_| {})];
    for id in ids {
        lab.acknowledge().await;
        id.await.expect("an answer").expect("a job");
    }
    let unrecorded = Err(Refusal::Unrecorded(StoreFault::Io));
    let before = lab.scheduler.send(cancel(JobId(1)));
    let commit = lab.commits.recv().await.expect("a commit");
    lab.fault(Vec::new());
    assert_eq!(before.await.expect("an answer")[0].result, unrecorded);
    assert_eq!(
        lab.scheduler.send(cancel(JobId(2))).await.expect("an answer")[0].result,
        unrecorded
    );
    let unknown = lab.scheduler.send(cancel(JobId(3))).await.expect("an answer");
    assert_eq!(unknown[0].result, Err(Refusal::UnknownJob));
    let later = lab.commits.recv().await.expect("a commit");
    assert_eq!([commit.changes.len(), later.changes.len()], [1, 1], "both wait to be written");
}

/// Starts nothing and reports nothing.
struct Idler;

impl Actor for Idler {
    type Context = Context<Self>;
}

impl Handler<RunnerCommand> for Idler {
    type Result = ();

    fn handle(&mut self, _: RunnerCommand, _: &mut Self::Context) {}
}

#[actix_rt::test]
async fn unstored_cancel_of_a_requeued_job_is_reported_as_unstored() {
    let mut lab = Lab::of(Audience::default(), Box::new(|_| Idler.start().recipient()));
    let requeue = |job| {
        let (jobs, action) =
            (vec![JobRef::job(job)], slotd_protocol::request::ControlAction::Requeue(None));
        ControlJobs { jobs, action, ended: Vec::new(), recalled: Vec::new() }
    };
    for id in [1, 2].map(JobId) {
        let answer = lab.submit(|request| (request.hold, request.requeue) = (false, true));
        lab.acknowledge().await;
        assert_eq!(answer.await.expect("an answer"), Ok(id));
        lab.acknowledge().await;
    }
    // The first job runs again after its time limit, the second because its user requeues it.
    lab.scheduler.do_send(LimitReached { job: JobId(1) });
    lab.acknowledge().await;
    lab.fault(Vec::new());
    let unrecorded = Err(Refusal::Unrecorded(StoreFault::Io));
    assert_eq!(
        lab.scheduler.send(requeue(JobId(2))).await.expect("an answer")[0].result,
        unrecorded
    );
    for id in [1, 2].map(JobId) {
        for again in [false, true] {
            let answers = lab.scheduler.send(cancel(id)).await.expect("an answer");
            assert_eq!(answers[0].result, unrecorded, "job {id}, again: {again}");
        }
    }
}

#[actix_rt::test]
async fn answer_reports_that_the_change_is_not_on_disk() {
    let mut lab = Lab::new();
    let ids = [lab.submit(|_| {}), lab.submit(|_| {})];
    for id in ids {
        lab.acknowledge().await;
        id.await.expect("an answer").expect("a job");
    }
    let control = |id, action: ControlAction| {
        let jobs = vec![JobRef::job(JobId(id))];
        lab.scheduler.send(ControlJobs { jobs, action, ended: Vec::new(), recalled: Vec::new() })
    };
    let [first, again] = [control(1, ControlAction::Release), control(1, ControlAction::Release)];
    lab.commits.recv().await.expect("a commit");
    lab.fault(Vec::new());
    let unrecorded = Err(Refusal::Unrecorded(StoreFault::Io));
    for answer in [first, again, control(1, ControlAction::Release)] {
        assert_eq!(answer.await.expect("an answer")[0].result, unrecorded);
    }
    let held = control(2, ControlAction::Hold).await.expect("an answer");
    assert_eq!(held[0].result, Ok(vec![JobId(2)]), "it was held on disk");
}

#[actix_rt::test]
async fn job_whose_start_cannot_be_stored_is_pending_again() {
    let mut lab = Lab::new();
    let answer = lab.submit(|request| request.hold = false);
    lab.acknowledge().await;
    let id = answer.await.expect("an answer").expect("a job");
    let start = lab.commits.recv().await.expect("a commit");
    assert_eq!(start.texts_for, [id]);
    lab.fault(Vec::new());
    let back = lab.commits.recv().await.expect("a commit");
    let state =
        |jobs: slotd_model::view::JobList| (jobs.jobs[0].run.state, jobs.jobs[0].run.restarts);
    let jobs = lab.scheduler.send(of(JobQuery::default(), id)).await.expect("an answer");
    assert_eq!(state(jobs), (slotd_model::JobState::Pending, 0));
    assert_eq!(lab.runners.recv().await, Some(Ran::Prepared(id)));
    assert_eq!(lab.runners.recv().await, Some(Ran::Gone(id)));
    for seq in [start.seq, back.seq] {
        lab.scheduler.do_send(Committed { seq, result: Ok(Vec::new()) });
    }
    lab.scheduler.do_send(StoreWell);
    assert_eq!(
        lab.commits.recv().await.expect("a commit").texts_for,
        [id],
        "it starts once the database can be written"
    );
}

#[actix_rt::test]
async fn hook_runs_for_stored_ends_but_not_for_withdrawn_jobs() {
    let mut lab =
        Lab::with(Audience { command: Events::NONE.with(Event::Job), ..Audience::default() });
    let first = lab.submit(|_| {});
    lab.acknowledge().await;
    let first = first.await.expect("an answer").expect("a job");
    let second = lab.submit(|_| {});
    let submission = lab.commits.recv().await.expect("a commit");
    let mut ends = Vec::new();
    for job in [first, JobId(2)] {
        lab.scheduler.do_send(cancel(job));
        ends.push(lab.commits.recv().await.expect("a commit"));
    }
    for (end, (of, number)) in ends.iter().zip([(1, 7), (2, 8)]) {
        let kept = end.changes.iter().any(
            |change| matches!(change, Change::PutNotice { number: n, job, .. } if (*n, *job) == (number, Some(JobId(of)))),
        );
        assert!(kept, "in the commit of the end: {:?}", end.changes);
    }
    assert!(lab.notices.try_recv().is_err(), "the end is not durable yet");
    lab.fault(vec![submission.seq]);
    assert_eq!(second.await.expect("an answer"), Err(NOT_STORED));
    for seq in [submission.seq, ends[0].seq, ends[1].seq] {
        lab.scheduler.do_send(Committed { seq, result: Ok(Vec::new()) });
    }
    assert_eq!(lab.known().await, [first]);
    assert_eq!(
        lab.notices.recv().await.map(|end| (end.number, end.notice.job_id)),
        Some((7, "1".to_owned()))
    );
    assert!(lab.notices.try_recv().is_err(), "the second job was withdrawn");
    lab.scheduler.do_send(NoticeGiven(7));
    let given = lab.commits.recv().await.expect("a commit");
    assert!(matches!(given.changes[..], [Change::DropNotice { number: 7 }]), "{:?}", given.changes);
}

#[actix_rt::test]
async fn feed_reports_each_decision_at_once_and_nothing_else() {
    let mut lab = Lab::new();
    let feed = Feed::new();
    lab.scheduler.send(WatchChanges(feed.sender())).await.expect("an answer");
    assert_eq!(feed.next().await, Changed::everything());
    let _answer = lab.submit(|_| {});
    let changed = feed.next().await;
    assert_eq!((changed.jobs, changed.queue, changed.node), ([JobId(1)].into(), true, false));
    lab.acknowledge().await;
    lab.scheduler.do_send(Due);
    assert_eq!(feed.next().await, Changed::queue());
    let unchecked = slotd_sys::aside::Unfinished::Panicked("the check".to_owned());
    lab.scheduler.do_send(CgroupsChecked(Err(unchecked.into())));
    assert_eq!(feed.next().await, Changed::node());
    // The answer shows that all earlier messages were handled.
    lab.known().await;
    assert!(timeout(Duration::ZERO, feed.next()).await.is_err());
}

#[actix_rt::test]
async fn feed_reports_a_withdrawn_submission() {
    let mut lab = Lab::new();
    let feed = Feed::new();
    lab.scheduler.send(WatchChanges(feed.sender())).await.expect("an answer");
    let answer = lab.submit(|_| {});
    let commit = lab.commits.recv().await.expect("a commit");
    assert_eq!(feed.next().await, Changed::everything());
    lab.fault(vec![commit.seq]);
    assert_eq!(answer.await.expect("an answer"), Err(NOT_STORED));
    assert!(lab.known().await.is_empty());
    let changed = timeout(Duration::ZERO, feed.next()).await.expect("something has changed");
    assert!(changed.jobs.contains(&JobId(1)), "{changed:?}");
}
