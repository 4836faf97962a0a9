//! Every message of the daemon, by receiver. Commands are imperative and have an answer; facts are
//! in the past tense and have none.

use crate::actors::feed::{Feed, FeedSender};
use crate::actors::news::NewsSender;
use crate::exec::launch_spec::{StepCommand, StepUsage};
use crate::model::change::{Change, LaunchTexts};
use crate::model::diagnostics::Diagnostics;
use crate::model::gpu::{Gpu, GpuReading};
use crate::model::job::ClientProcess;
use crate::model::node::{Drains, NodeParts};
use crate::model::notice::Notice;
use crate::model::partition::{Host, Machine};
use crate::model::query::JobQuery;
use crate::model::resize::GivenBack;
use crate::model::source::{Kept, Source};
use crate::model::tres::Allocation;
use crate::model::view::{JobList, JobView, NodeView};
use crate::model::{
    ExitCode, ExitRecord, Job, JobId, JobRef, Refusal, Step, StepId, StepKey, StoreFault, Timestamp,
};
use crate::protocol::answer::{ManagedJob, Outcome};
use crate::protocol::request::{CancelAsk, ControlAction, StepLaunch, UsageAsk};
use crate::sched::{
    Config, EndCause, EndedJob, Estimate, SignalTarget, StopCause, Submission, Submitted,
};
use crate::store::StoreError;
use crate::store::diffs::PackedDiff;
use actix::Message;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::oneshot;

// ---- SchedulerActor: commands ----

/// A submission. Answered when it is durable.
#[derive(Message)]
#[rtype(result = "Result<Submitted, Refusal>")]
pub struct SubmitJob {
    pub submission: Submission,
    /// It may be in the queue already.
    pub again: bool,
    /// Where the news of the job go, if anybody waits for them.
    pub news: Option<NewsSender>,
}

/// What would become of a submission.
#[derive(Message)]
#[rtype(result = "Result<Estimate, Refusal>")]
pub struct TestSubmission(pub Submission);

#[derive(Message)]
#[rtype(result = "JobList")]
pub struct QueryJobs {
    pub query: Arc<JobQuery>,
    /// Some of those that were found.
    pub ids: Vec<JobId>,
    /// For the last part of an answer that is to be of one moment.
    pub since: Option<Since>,
}

/// The parts of an answer that were sent before its last one.
pub struct Since {
    /// All records of the answer that are in memory.
    pub ids: Vec<JobId>,
    /// Changes since before the first part was read.
    pub changes: Feed,
}

/// Which records in memory answer the question: all that it names, or the first of those with
/// higher numbers than `after`.
#[derive(Message)]
#[rtype(result = "FoundJobs")]
pub struct FindJobs {
    pub query: Arc<JobQuery>,
    pub after: Option<JobId>,
}

/// The answer to [`FindJobs`].
pub struct FoundJobs {
    /// By number.
    pub ids: Vec<JobId>,
    /// The numbers that are named and nobody knows.
    pub unknown: Vec<JobId>,
    /// After which number to go on; `None` where that is all.
    pub next: Option<JobId>,
}

/// The running steps of these jobs with their present use, and what their watchers told.
#[derive(Message)]
#[rtype(result = "(JobList, Vec<(StepKey, StepUsage)>)")]
pub struct QueryUsage(pub UsageAsk);

#[derive(Message)]
#[rtype(result = "NodeView")]
pub struct QueryNode;

/// What the owner of the host changes. The answer is what is to be told of it.
#[derive(Message)]
#[rtype(result = "Result<Vec<String>, Refusal>")]
pub struct ChangeSite(pub SiteChange);

pub enum SiteChange {
    /// The configuration, as it was read again.
    Configured(Box<Config>),
    Partition {
        name: String,
        settings: Vec<(String, String)>,
    },
    /// What of the node is out of use.
    Drains(Drains),
}

/// This is what the machine has now. The answer is the host as it is known from now on.
#[derive(Message)]
#[rtype(result = "Box<Host>")]
pub struct NoteMachine(pub Machine);

/// Refused where the host does not have these.
#[derive(Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct CheckParts(pub NodeParts);

#[derive(Message)]
#[rtype(result = "Diagnostics")]
pub struct QueryDiagnostics {
    /// Set the counters to zero afterwards.
    pub reset: bool,
}

/// Puts what is in memory in the place of database records that are not over: memory knows more of
/// them.
#[derive(Message)]
#[rtype(result = "Vec<JobView>")]
pub struct RefreshLive(pub Vec<JobView>);

/// Answered when all of it is durable, one outcome for each job named.
#[derive(Message)]
#[rtype(result = "Vec<Outcome>")]
pub struct ControlJobs {
    pub jobs: Vec<JobRef>,
    pub action: ControlAction,
    /// What the database knows of the targets of an updated dependency.
    pub ended: Vec<EndedJob>,
    /// Those of the jobs that ended too long ago to be in memory.
    pub recalled: Vec<Job>,
}

#[derive(Message)]
#[rtype(result = "Vec<Outcome>")]
pub struct CancelJobs(pub CancelAsk);

/// Send this job's news to `news` from now on. True if the job is known and not over.
#[derive(Message)]
#[rtype(result = "Option<JobView>")]
pub struct WatchJob {
    pub job: JobId,
    pub news: NewsSender,
}

/// Say from now on what has changed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct WatchChanges(pub FeedSender);

/// A client is back at its allocation.
#[derive(Message)]
#[rtype(result = "Result<JobView, Refusal>")]
pub struct AttachClient {
    pub job: JobId,
    pub client: ClientProcess,
    /// The step whose end it waits for.
    pub step: Option<StepId>,
    /// It holds the allocation, rather than being a guest with a step in it.
    pub holds: bool,
    pub news: NewsSender,
}

/// A launch inside an allocation. Answered when it has been decided whether it starts, waits or is
/// refused.
#[derive(Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct CreateStep {
    pub launch: Box<StepLaunch>,
    pub env: Vec<u8>,
    pub fds: Vec<OwnedFd>,
    pub news: NewsSender,
    /// Names the request while it waits.
    pub ticket: u64,
}

/// A process manages the steps of a job, or wants more numbers for them.
#[derive(Message)]
#[rtype(result = "Result<Box<ManagedJob>, Refusal>")]
pub struct ManageSteps {
    pub job: JobId,
    pub client: ClientProcess,
    pub within: Option<StepId>,
    pub numbers: u32,
    pub news: NewsSender,
}

/// What became of steps of the manager of a job. Answered when it is durable.
#[derive(Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct RecordSteps {
    pub job: JobId,
    pub run: u32,
    pub steps: Vec<Step>,
}

/// The manager of a job gives back what none of its steps uses.
#[derive(Message)]
#[rtype(result = "()")]
pub struct GiveBack {
    pub job: JobId,
    pub client: ClientProcess,
    pub given_back: GivenBack,
}

/// The manager of a job has ended, or its connection has. Numbers that it did not use can be given
/// again.
#[derive(Message)]
#[rtype(result = "()")]
pub struct LeaveSteps {
    pub job: JobId,
    pub client: ClientProcess,
    pub unused: Option<(u32, u32)>,
}

/// What a manager says that a step of it uses.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StepMeasured {
    pub ticket: u64,
    pub usage: StepUsage,
}

/// What a manager says of a step that was to be signalled: whether it runs.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StepSignalled {
    pub ticket: u64,
    pub runs: bool,
}

/// The client of a waiting step went away.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AbandonStep {
    pub ticket: u64,
}

/// The command of an allocation is over.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ReleaseAllocation {
    pub job: JobId,
    pub exit: ExitCode,
}

/// Records that are to be removed from the database. Answered with those that are not in memory.
#[derive(Message)]
#[rtype(result = "Vec<JobId>")]
pub struct LeaveMemory(pub Vec<JobId>);

/// Hands all that was decided to the store: the daemon stops.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SendCommits;

// ---- SchedulerActor: facts ----

/// The process that held an allocation is gone.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ClientGone {
    pub job: JobId,
    pub client: ClientProcess,
}

/// Whether cgroups of jobs can be made, and why not.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CgroupsChecked(pub Result<(), String>);

/// The host goes down: the jobs are ended, and the answer comes when all that is known of their
/// ends is durable.
#[derive(Message)]
#[rtype(result = "()")]
pub struct HostGoesDown;

/// The changes of [`Commit`] `seq` are durable, or were refused by the database.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Committed {
    pub seq: u64,
    pub result: Result<Vec<(JobId, LaunchTexts)>, StoreError>,
}

/// The database cannot be written: what is to be committed waits. `withdrawn`: submissions that do
/// not, and never will be stored, by the numbers of their commits, which are acknowledged in their
/// turn nevertheless.
#[derive(Debug, Clone, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct Unstored {
    pub fault: StoreFault,
    /// In SQLite's words.
    pub message: String,
    pub withdrawn: Vec<u64>,
}

/// The database can be written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub struct StoreWell;

/// A step's processes exist.
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

/// A ladder runs on a step: it was told to end, and is killed if it does not.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StepStopping {
    pub step: StepKey,
    /// It is over by then, as a rule.
    pub wait_secs: u64,
}

/// The time limit of a running job is over: its processes are told to end.
#[derive(Message)]
#[rtype(result = "()")]
pub struct LimitReached {
    pub job: JobId,
}

/// A numbered or interactive step is over.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StepEnded {
    pub step: StepKey,
    pub record: ExitRecord,
    pub cause: EndCause,
}

/// Nothing of the job is left.
#[derive(Message)]
#[rtype(result = "()")]
pub struct JobEnded {
    pub job: JobId,
    /// Of its script or command. Of an allocation: no use; its steps have theirs.
    pub record: ExitRecord,
    pub cause: EndCause,
}

/// The actor that ran a job went away without a word.
#[derive(Message)]
#[rtype(result = "()")]
pub struct RunnerDied {
    pub job: JobId,
}

/// The host has other GPUs than before.
#[derive(Message)]
#[rtype(result = "()")]
pub struct GpusChanged {
    pub gpus: Vec<Gpu>,
    /// Those that were there.
    pub lost: Vec<Gpu>,
}

/// How the GPUs are used, or why that cannot be told.
#[derive(Message)]
#[rtype(result = "()")]
pub struct GpusRead(pub Result<Vec<GpuReading>, String>);

// ---- StoreActor ----

/// What is to be committed, in this order and with one write to the disk. Answered by a
/// [`Committed`] for each.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Commits(pub Vec<Commit>);

/// Changes of one decision. Its [`Committed`] has the same number.
pub struct Commit {
    pub seq: u64,
    pub changes: Vec<Change>,
    /// Jobs that are launched after this commit: their scripts and environments come with the
    /// answer.
    pub texts_for: Vec<JobId>,
    /// The job that these changes submit: nobody knows its number yet. All of them are about it.
    pub submission: Option<JobId>,
}

/// Removes the records of these jobs, which have ended. Answered with their number.
#[derive(Message)]
#[rtype(result = "Result<usize, StoreError>")]
pub struct RemoveRecords(pub Vec<JobId>);

/// Keeps what git told of the work tree of these submissions at that time, and how it differed from
/// its commit.
#[derive(Message)]
#[rtype(result = "Result<(), StoreError>")]
pub struct PutSource {
    pub jobs: Vec<JobId>,
    pub at: Timestamp,
    pub source: Source,
    pub diff: Option<PackedDiff>,
    /// The bytes that the differences of all submissions may have together.
    pub most_diffs: Option<u64>,
}

/// Drops the environments of these submissions.
#[derive(Message)]
#[rtype(result = "Result<(), StoreError>")]
pub struct DropEnvironments(pub Vec<JobId>);

/// Gives some free pages of the database back. Answered with whether there may be more.
#[derive(Message)]
#[rtype(result = "Result<bool, StoreError>")]
pub struct Shrink;

/// Empties the log of the database, which holds copies of what was deleted. False: readers are in
/// the way, and it is tried again by itself.
#[derive(Message)]
#[rtype(result = "Result<bool, StoreError>")]
pub struct OverwriteDeleted;

/// Commits what waits and writes everything into the database: the daemon stops.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CloseStore;

// ---- ReaderActor ----

/// The first job that is named and has no environment any more: it cannot run again.
#[derive(Message)]
#[rtype(result = "Result<Option<JobId>, ReadError>")]
pub struct WithoutEnvironment(pub JobRef);

/// The database could not answer.
#[derive(Debug, Clone)]
pub struct ReadError(pub String);

impl From<StoreError> for ReadError {
    fn from(e: StoreError) -> Self {
        ReadError(e.to_string())
    }
}

#[derive(Message)]
#[rtype(result = "Result<Vec<JobView>, ReadError>")]
pub struct PastJobs {
    /// What of them is asked for.
    pub query: Arc<JobQuery>,
    /// Some of the candidates.
    pub ids: Vec<JobId>,
}

/// The records that may answer the question, in the order in which sacct shows them.
#[derive(Message)]
#[rtype(result = "Result<Vec<JobId>, ReadError>")]
pub struct PastCandidates(pub Arc<JobQuery>);

/// The records of these jobs, as they are in the database.
#[derive(Message)]
#[rtype(result = "Result<Vec<Job>, ReadError>")]
pub struct PastRecords(pub Vec<JobRef>);

#[derive(Message)]
#[rtype(result = "Result<Vec<EndedJob>, ReadError>")]
pub struct EndedFacts(pub Vec<JobId>);

#[derive(Message)]
#[rtype(result = "Result<Option<LaunchTexts>, ReadError>")]
pub struct BatchTexts(pub JobId);

/// What git told of the work tree of a submission, and how it differed from its commit.
#[derive(Message)]
#[rtype(result = "Result<Option<Kept>, ReadError>")]
pub struct ReadSource {
    pub submission: JobId,
    pub with_diff: bool,
}

// ---- RunnerActor ----

/// What a runner is told: one message, so that whoever tells it need not know what a runner is.
#[derive(Message)]
#[rtype(result = "()")]
pub enum RunnerCommand {
    Launch(LaunchJob),
    Open(OpenAllocation),
    Adopt(AdoptJob),
    LaunchStep(LaunchStep),
    Signal {
        target: SignalTarget,
        signal: i32,
    },
    /// SIGTERM, grace, SIGKILL to everything of the job.
    Stop(StopCause),
    /// The same to one step.
    StopStep(StepId, StopCause),
    /// Hand something to the watcher of a step.
    Tell(StepId, StepCommand),
    /// What a step uses now. The answer is dropped where it has just ended.
    Measure(StepId, oneshot::Sender<StepUsage>),
    /// The processes stop, and with them the clock of the time limit.
    Suspend,
    /// They go on.
    Resume,
    /// Send the signal that the job asked for before its end (`--signal`), though that is not near.
    Warn,
    /// Seconds; `None` is no limit.
    SetTimeLimit(Option<u64>),
    /// The job has this now. `sharing`: the steps that use all of it, beside the batch step; where
    /// a manager shares it out, none does that of its own.
    Resize {
        alloc: Box<Allocation>,
        sharing: Vec<StepId>,
        is_managed: bool,
    },
    /// The job has ended, and nothing will be asked of its runner any more.
    Dismiss,
}

/// Start the batch script or the command of the job.
pub struct LaunchJob {
    pub job: Box<Job>,
    /// One process a rank, rather than the script once.
    pub ranks: bool,
    pub texts: LaunchTexts,
    pub host: Host,
}

/// Make ready for the steps of an allocation.
pub struct OpenAllocation {
    pub job: Box<Job>,
    pub host: Host,
}

/// Take over what an earlier daemon started.
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

/// Tell this to whom it is for.
#[derive(Message, Debug, Clone)]
#[rtype(result = "()")]
pub struct Notify {
    pub number: u64,
    pub notice: Notice,
}

/// The notice of this number was told, or never will be.
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
