//! Every message of the daemon, by receiver. Commands are named in the imperative and have an
//! answer. Facts are named in the past tense and have none.

use crate::actors::feed::{Feed, FeedSender};
use crate::actors::news::NewsSender;
use actix::Message;
use slotd_exec::cgroup::CgroupError;
use slotd_exec::launch_spec::{StepCommand, StepUsage};
use slotd_model::brief::BriefJob;
use slotd_model::change::{Change, LaunchTexts};
use slotd_model::diagnostics::Diagnostics;
use slotd_model::gpu::{Gpu, GpuReading};
use slotd_model::job::ClientProcess;
use slotd_model::node::{Drains, NodeParts};
use slotd_model::notice::Notice;
use slotd_model::partition::{Host, Machine};
use slotd_model::query::JobQuery;
use slotd_model::reservation::ReservationOrder;
use slotd_model::resize::GivenBack;
use slotd_model::source::{Kept, Source};
use slotd_model::tres::Allocation;
use slotd_model::unread::Unread;
use slotd_model::view::{JobList, JobView, NodeView};
use slotd_model::{
    ExitCode, ExitRecord, Job, JobId, JobRef, Refusal, Step, StepId, StepKey, StoreFault, Timestamp,
};
use slotd_protocol::answer::{ManagedJob, Outcome};
use slotd_protocol::request::{CancelAsk, ControlAction, StepLaunch, UsageAsk};
use slotd_sched::{
    Config, EndCause, EndedJob, EntryToInstall, Estimate, SignalTarget, StopCause, Submission,
};
use slotd_store::StoreError;
use slotd_store::diffs::PackedDiff;
use slotd_sys::aside::Unfinished;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::oneshot;

// ---- SchedulerActor: commands ----

/// Answers a submission that is durable.
pub type AnswerAtCommit = Box<dyn FnOnce(JobId) + Send>;

/// Submit a job. Answered once it is durable.
#[derive(Message)]
#[rtype(result = "Result<JobId, Refusal>")]
pub struct SubmitJob {
    pub submission: Submission,
    /// Answers the client on the thread that commits the job. It then has its answer before another
    /// thread wakes up.
    pub answer: Option<AnswerAtCommit>,
    /// Set for a repeated submission: the job may be in the queue already.
    pub again: bool,
    /// The recipient of the job's events, if a client waits for them.
    pub news: Option<NewsSender>,
}

/// Return the crontab of a user.
#[derive(Message)]
#[rtype(result = "Option<Vec<u8>>")]
pub struct QueryCrontab {
    pub uid: u32,
}

/// Replace the crontab of a user. Answered with its jobs once they are durable, or with the index
/// of the entry that was refused, if an entry is at fault.
#[derive(Message)]
#[rtype(result = "Result<Vec<JobId>, (Option<usize>, Refusal)>")]
pub struct ReplaceCrontab {
    pub uid: u32,
    pub text: Vec<u8>,
    pub entries: Vec<EntryToInstall>,
}

/// Remove the crontab of a user. Answered once that is durable.
#[derive(Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct RemoveCrontab {
    pub uid: u32,
}

/// Estimate what would happen to a submission.
#[derive(Message)]
#[rtype(result = "Result<Estimate, Refusal>")]
pub struct TestSubmission(pub Submission);

#[derive(Message)]
#[rtype(result = "JobList")]
pub struct QueryJobs {
    pub query: Arc<JobQuery>,
    /// Some of the jobs found.
    pub ids: Vec<JobId>,
    /// Search again and read everything that is found: a task that has started since the first
    /// search has a record of its own. Set if the whole answer is one part.
    pub again: bool,
    /// Set for the last part of an answer that must be consistent.
    pub since: Option<Since>,
}

/// The parts of an answer that were sent before the last one.
pub struct Since {
    /// The IDs of all records of the answer that are in memory.
    pub ids: Vec<JobId>,
    /// Changes since just before the first part was read.
    pub changes: Feed,
}

/// Find the records in memory that match: every job that the query names, or else the first ones
/// with an ID above `after`.
#[derive(Message)]
#[rtype(result = "FoundJobs")]
pub struct FindJobs {
    pub query: Arc<JobQuery>,
    pub after: Option<JobId>,
}

/// The answer to [`FindJobs`].
pub struct FoundJobs {
    /// In ascending order.
    pub ids: Vec<JobId>,
    /// The IDs named in the query that do not exist.
    pub unknown: Vec<JobId>,
    /// The ID to continue after, or `None` at the end.
    pub next: Option<JobId>,
}

/// Get the running steps of these jobs with their current usage, as measured by their watchers.
#[derive(Message)]
#[rtype(result = "(JobList, Vec<(StepKey, StepUsage)>)")]
pub struct QueryUsage(pub UsageAsk);

#[derive(Message)]
#[rtype(result = "NodeView")]
pub struct QueryNode;

/// Apply a change by the owner of the host. The answer lists what to report to the owner.
#[derive(Message)]
#[rtype(result = "Result<Vec<String>, Refusal>")]
pub struct ChangeSite(pub SiteChange);

pub enum SiteChange {
    /// The configuration was reloaded.
    Configured(Box<Config>),
    Partition {
        name: String,
        settings: Vec<(String, String)>,
    },
    /// The parts of the node that are out of use.
    Drains(Drains),
}

/// Create, change or delete a reservation. Answered with its name once it is durable.
#[derive(Message)]
#[rtype(result = "Result<String, Refusal>")]
pub struct OrderReservation(pub ReservationOrder);

/// Record the current state of the machine. The answer is the updated host.
#[derive(Message)]
#[rtype(result = "Box<Host>")]
pub struct NoteMachine(pub Machine);

/// Check that the host has these parts. Refused if it does not.
#[derive(Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct CheckParts(pub NodeParts);

#[derive(Message)]
#[rtype(result = "Diagnostics")]
pub struct QueryDiagnostics {
    /// Set the counters to zero afterwards.
    pub reset: bool,
}

/// Get brief accounting records of those of these jobs that have never run, if they match the query,
/// and the IDs of the others. Memory has all of a job that has never run.
#[derive(Message)]
#[rtype(result = "(Vec<BriefJob>, Vec<JobId>)")]
pub struct FindNeverRun {
    pub query: Arc<JobQuery>,
    pub ids: Vec<JobId>,
}

/// Replace database records of unfinished jobs with the records in memory, which are more recent.
#[derive(Message)]
#[rtype(result = "Vec<JobView>")]
pub struct RefreshLive(pub Vec<JobView>);

/// Answered once everything is durable, with one outcome per named job.
#[derive(Message)]
#[rtype(result = "Vec<Outcome>")]
pub struct ControlJobs {
    pub jobs: Vec<JobRef>,
    pub action: ControlAction,
    /// Facts from the database about the targets of an updated dependency.
    pub ended: Vec<EndedJob>,
    /// The named jobs that ended too long ago to be in memory.
    pub recalled: Vec<Job>,
}

#[derive(Message)]
#[rtype(result = "Vec<Outcome>")]
pub struct CancelJobs(pub CancelAsk);

/// Send the events of this job to `news` from now on. Answered with the job if it exists and has
/// not ended.
#[derive(Message)]
#[rtype(result = "Option<JobView>")]
pub struct WatchJob {
    pub job: JobId,
    pub news: NewsSender,
}

/// Report changes from now on.
#[derive(Message)]
#[rtype(result = "()")]
pub struct WatchChanges(pub FeedSender);

/// Reattach a client to its allocation.
#[derive(Message)]
#[rtype(result = "Result<JobView, Refusal>")]
pub struct AttachClient {
    pub job: JobId,
    pub client: ClientProcess,
    /// The step whose end the client waits for.
    pub step: Option<StepId>,
    /// The client holds the allocation. Otherwise it only runs a step in it.
    pub holds: bool,
    pub news: NewsSender,
}

/// Launch a step inside an allocation. Answered once it is decided whether the step starts, waits
/// or is refused.
#[derive(Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct CreateStep {
    pub launch: Box<StepLaunch>,
    pub env: Vec<u8>,
    pub fds: Vec<OwnedFd>,
    pub news: NewsSender,
    /// Identifies the waiting request.
    pub ticket: u64,
}

/// Register a process as the manager of a job's steps, or reserve more step IDs for it.
#[derive(Message)]
#[rtype(result = "Result<Box<ManagedJob>, Refusal>")]
pub struct ManageSteps {
    pub job: JobId,
    pub client: ClientProcess,
    pub within: Option<StepId>,
    pub numbers: u32,
    pub news: NewsSender,
}

/// Record steps reported by the manager of a job. Answered once they are durable.
#[derive(Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct RecordSteps {
    pub job: JobId,
    pub run: u32,
    pub steps: Vec<Step>,
}

/// Free the resources that none of the manager's steps uses.
#[derive(Message)]
#[rtype(result = "()")]
pub struct GiveBack {
    pub job: JobId,
    pub client: ClientProcess,
    pub given_back: GivenBack,
}

/// The manager of a job has exited or disconnected. Unused step IDs are free again.
#[derive(Message)]
#[rtype(result = "()")]
pub struct LeaveSteps {
    pub job: JobId,
    pub client: ClientProcess,
    pub unused: Option<(u32, u32)>,
}

/// A manager's report of a step's usage.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StepMeasured {
    pub ticket: u64,
    pub usage: StepUsage,
}

/// A manager's answer to a signal for one of its steps: whether the step is running.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StepSignalled {
    pub ticket: u64,
    pub runs: bool,
}

/// The client of a waiting step has disconnected.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AbandonStep {
    pub ticket: u64,
}

/// The command of an allocation has ended.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ReleaseAllocation {
    pub job: JobId,
    pub exit: ExitCode,
}

/// Drop records from memory before they are deleted from the database. Answered with those that are
/// not in memory.
#[derive(Message)]
#[rtype(result = "Vec<JobId>")]
pub struct LeaveMemory(pub Vec<JobId>);

/// Send all decisions to the store, because the daemon is stopping.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SendCommits;

// ---- SchedulerActor: facts ----

/// The process that held an allocation has exited.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ClientGone {
    pub job: JobId,
    pub client: ClientProcess,
}

/// Whether cgroups can be created for jobs, and if not, why.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CgroupsChecked(pub Result<(), CgroupsUnusable>);

#[derive(Debug, thiserror::Error)]
pub enum CgroupsUnusable {
    #[error(transparent)]
    Refused(#[from] CgroupError),
    #[error(transparent)]
    Unchecked(#[from] Unfinished),
}

/// The host is shutting down. Ends all jobs. Answered once everything about their ends is durable.
#[derive(Message)]
#[rtype(result = "()")]
pub struct HostGoesDown;

/// The changes of [`Commit`] `seq` are durable, or the database refused them.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Committed {
    pub seq: u64,
    pub result: Result<Vec<(JobId, LaunchTexts)>, StoreError>,
}

/// The database cannot be written, so commits wait. `withdrawn` lists, by commit number, the
/// submissions that do not wait and will never be stored. They are still acknowledged in order.
#[derive(Debug, Clone, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct Unstored {
    pub fault: StoreFault,
    /// SQLite's message.
    pub message: String,
    pub withdrawn: Vec<u64>,
}

/// The database can be written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct StoreWell;

/// The processes of a step have been created.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StepStarted {
    pub step: StepKey,
    pub pids: Vec<u32>,
}

#[derive(Message)]
#[rtype(result = "()")]
pub struct TaskEnded {
    pub step: StepKey,
    pub rank: u32,
    pub exit: ExitCode,
}

/// A step is being stopped: it has been signalled, and is killed if it does not end.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StepStopping {
    pub step: StepKey,
    /// The number of seconds within which it should end.
    pub wait_secs: u64,
}

/// A running job has reached its time limit, and its processes are being stopped.
#[derive(Message)]
#[rtype(result = "()")]
pub struct LimitReached {
    pub job: JobId,
}

/// A numbered or interactive step has ended.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StepEnded {
    pub step: StepKey,
    pub record: ExitRecord,
    pub cause: EndCause,
}

/// No process of the job is left.
#[derive(Message)]
#[rtype(result = "()")]
pub struct JobEnded {
    pub job: JobId,
    /// The exit of its script or command. Unused for an allocation: its steps have their own.
    pub record: ExitRecord,
    pub cause: EndCause,
}

/// The runner of a job has died without reporting the job's end.
#[derive(Message)]
#[rtype(result = "()")]
pub struct RunnerDied {
    pub job: JobId,
}

/// The set of GPUs on the host has changed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct GpusChanged {
    pub gpus: Vec<Gpu>,
    /// GPUs that have disappeared.
    pub lost: Vec<Gpu>,
}

/// The usage of the GPUs, or why it cannot be read.
#[derive(Message)]
#[rtype(result = "()")]
pub struct GpusRead(pub Result<Vec<GpuReading>, Unread>);

// ---- StoreActor ----

/// Commit these in order, with a single write to disk. Answered by one [`Committed`] each.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Commits(pub Vec<Commit>);

/// The changes of one decision. Its [`Committed`] has the same number.
pub struct Commit {
    pub seq: u64,
    pub changes: Vec<Change>,
    /// Jobs to launch after this commit. The answer contains their scripts and environments.
    pub texts_for: Vec<JobId>,
    /// The job that these changes submit. All changes concern this job.
    pub submission: Option<Submitted>,
}

/// A submitted job whose client does not have the ID yet.
pub struct Submitted {
    pub job: JobId,
    /// Called as soon as the changes are durable.
    pub answer: Option<AnswerAtCommit>,
}

/// Delete the records of these jobs, which have ended. Answered with the number of deleted records.
#[derive(Message)]
#[rtype(result = "Result<usize, StoreError>")]
pub struct RemoveRecords(pub Vec<JobId>);

/// Delete up to `most` earlier runs of unended jobs that ended before `before`. Answered with their
/// number.
#[derive(Message)]
#[rtype(result = "Result<usize, StoreError>")]
pub struct RemoveRuns {
    pub before: Timestamp,
    pub most: usize,
}

/// Store what git reported about the work tree of these submissions at the time `at`, and the diff
/// of the tree against the commit.
#[derive(Message)]
#[rtype(result = "Result<(), StoreError>")]
pub struct PutSource {
    pub jobs: Vec<JobId>,
    pub at: Timestamp,
    pub source: Source,
    pub diff: Option<PackedDiff>,
    /// The maximum total size of all stored diffs, in bytes.
    pub most_diffs: Option<u64>,
}

/// Delete the environments of these submissions.
#[derive(Message)]
#[rtype(result = "Result<(), StoreError>")]
pub struct DropEnvironments(pub Vec<JobId>);

/// Return some free pages of the database to the file system. Answered with whether more may be
/// left.
#[derive(Message)]
#[rtype(result = "Result<bool, StoreError>")]
pub struct Shrink;

/// Empty the write-ahead log, which holds copies of deleted data. Answered with false if readers
/// prevent it; it is then retried automatically.
#[derive(Message)]
#[rtype(result = "Result<bool, StoreError>")]
pub struct OverwriteDeleted;

/// Commit everything that waits, and move the write-ahead log into the database: the daemon is
/// stopping.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CloseStore;

// ---- ReaderActor ----

/// Get the first named job whose environment was deleted, so that it cannot run again.
#[derive(Message)]
#[rtype(result = "Result<Option<JobId>, ReadError>")]
pub struct WithoutEnvironment(pub JobRef);

/// The database query failed.
#[derive(Debug, Clone)]
pub struct ReadError(pub String);

impl From<StoreError> for ReadError {
    fn from(e: StoreError) -> Self {
        ReadError(e.to_string())
    }
}

#[derive(Message)]
#[rtype(result = "Result<PastFound, ReadError>")]
pub struct PastJobs {
    /// The filter, and the fields to return.
    pub query: Arc<JobQuery>,
    /// Some of the candidates.
    pub ids: Vec<JobId>,
}

/// Records from the database.
#[derive(Default)]
pub struct PastFound {
    pub jobs: Vec<JobView>,
    /// Used instead of `jobs` for ended jobs if the query was brief.
    pub brief: Vec<BriefJob>,
}

/// Get the records that may match, in the order in which sacct shows them.
#[derive(Message)]
#[rtype(result = "Result<Vec<JobId>, ReadError>")]
pub struct PastCandidates(pub Arc<JobQuery>);

/// Like [`PastCandidates`], and get the first of them like [`PastJobs`]: an answer about one job
/// needs no second message.
#[derive(Message)]
#[rtype(result = "Result<(Vec<JobId>, PastFound), ReadError>")]
pub struct PastBegin {
    pub query: Arc<JobQuery>,
    /// The most records to get.
    pub first: usize,
}

/// Get the records of these jobs from the database.
#[derive(Message)]
#[rtype(result = "Result<Vec<Job>, ReadError>")]
pub struct PastRecords(pub Vec<JobRef>);

#[derive(Message)]
#[rtype(result = "Result<Vec<EndedJob>, ReadError>")]
pub struct EndedFacts(pub Vec<JobId>);

#[derive(Message)]
#[rtype(result = "Result<Option<LaunchTexts>, ReadError>")]
pub struct BatchTexts(pub JobId);

/// Get what git reported about the work tree of a submission, and its diff against the commit.
#[derive(Message)]
#[rtype(result = "Result<Option<Kept>, ReadError>")]
pub struct ReadSource {
    pub submission: JobId,
    pub with_diff: bool,
}

// ---- RunnerActor ----

/// All commands to a runner in one message, so that senders need not depend on the runner.
#[derive(Message)]
#[rtype(result = "()")]
pub enum RunnerCommand {
    /// The job starts as soon as that is durable. Prepare its launch meanwhile.
    Prepare(LaunchJob),
    Launch(LaunchJob),
    Open(OpenAllocation),
    Adopt(AdoptJob),
    LaunchStep(LaunchStep),
    Signal {
        target: SignalTarget,
        signal: i32,
    },
    /// Send SIGTERM and, after the grace period, SIGKILL to all processes of the job.
    Stop {
        cause: StopCause,
        /// The reservation whose end ends the job.
        reservation: Option<String>,
    },
    /// Do the same for one step.
    StopStep(StepId, StopCause),
    /// Forward a command to the watcher of a step.
    ToStep(StepId, StepCommand),
    /// Measure the current usage of a step. The sender is dropped if the step has just ended.
    Measure(StepId, oneshot::Sender<StepUsage>),
    /// Stop the processes and the clock of the time limit.
    Suspend,
    /// Resume both.
    Resume,
    /// Send the signal that the job requested before its end (`--signal`), even if the end is not
    /// near.
    Warn,
    /// Send SIGCONT and SIGTERM, because the grace time of a preempted job begins.
    Preempt,
    /// Seconds, or `None` for no limit.
    SetTimeLimit(Option<u64>),
    /// Change the job's resources. `sharing` are the steps, besides the batch step, that use all of
    /// them. If a step manager divides the resources (`is_managed`), no process is moved to the
    /// added CPUs.
    Resize {
        alloc: Box<Allocation>,
        sharing: Vec<StepId>,
        is_managed: bool,
    },
    /// The job has ended, and the runner gets no further commands.
    Dismiss,
}

/// Start the batch script or the command of the job.
pub struct LaunchJob {
    pub job: Box<Job>,
    /// Start one process per rank instead of running the script once.
    pub ranks: bool,
    pub texts: LaunchTexts,
    pub host: Host,
}

/// Prepare an allocation for its steps.
pub struct OpenAllocation {
    pub job: Box<Job>,
    pub host: Host,
}

/// Adopt the processes that an earlier daemon started.
pub struct AdoptJob {
    pub job: Box<Job>,
    pub host: Host,
}

/// Start a step in the allocation of the job.
pub struct LaunchStep {
    pub step: StepKey,
    pub job: Box<Job>,
    pub host: Host,
    pub alloc: Allocation,
    pub launch: Box<StepLaunch>,
    pub env: Vec<u8>,
    pub fds: Vec<OwnedFd>,
}

// ---- NotifierActor ----

/// Send this notification to its recipient.
#[derive(Message, Debug, Clone)]
#[rtype(result = "()")]
pub struct Notify {
    pub number: u64,
    pub notice: Notice,
}

/// This notification was sent, or was abandoned.
#[derive(Message)]
#[rtype(result = "()")]
pub struct NoticeGiven(pub u64);

// ---- GpuInventoryActor ----

#[derive(Message)]
#[rtype(result = "Vec<Gpu>")]
pub struct ProbeGpus;

/// Answered by [`GpusRead`].
#[derive(Message)]
#[rtype(result = "()")]
pub struct ReadGpus;
