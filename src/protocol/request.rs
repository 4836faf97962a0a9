//! What clients ask.

use crate::model::job::{Client, ClientProcess};
use crate::model::node::NodeOrder;
use crate::model::query::JobQuery;
use crate::model::resize::GivenBack;
use crate::model::rlimits::Rlimits;
use crate::model::tres::Usage;
use crate::model::{JobId, JobRef, JobRequest, Step, StepId, StepRequest, Timestamp};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One request. The raw part of its frame is empty but for [`Request::Submit`],
/// [`Request::SubmitMany`] and [`Request::LaunchStep`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// Is the daemon there? Answered by `Pong`.
    Ping,
    /// A job. Raw part: the script (`script_len` bytes), then the environment (`KEY=VALUE\0`
    /// entries).
    Submit(Box<Submit>),
    /// Many batch jobs. Raw part: the environment that they share (`env_len` bytes), then their
    /// scripts in the same order.
    SubmitMany(SubmitMany),
    /// Jobs that wait, run or have lately ended; of those that are named, and of a window, older
    /// ones too.
    Jobs(JobQuery),
    /// Records of the database.
    Accounting(JobQuery),
    Node,
    Config,
    /// Read the configuration again.
    Reconfigure,
    /// Keys and values as `parse::partition` reads them.
    UpdatePartition {
        name: String,
        settings: Vec<(String, String)>,
    },
    UpdateNode(NodeOrder),
    /// Hold, release, update and the like, on each job in turn.
    Control {
        jobs: Vec<JobRef>,
        action: ControlAction,
    },
    Cancel(CancelAsk),
    /// Tells of the end of a job: answered by `Ended` once it is over, at once if it is.
    WaitEnd(JobId),
    /// Tells what has changed since the last of these on this connection, once something has:
    /// answered by one `Changed`. The first is answered at once, with everything: whoever takes a
    /// picture of the queue after it misses nothing. What changes while nobody asks is told
    /// together later. It ends with the connection.
    Watch,
    /// A client comes back to its allocation after a restart of the daemon.
    Attach {
        job: JobId,
        client: ClientProcess,
        /// The step whose end the client waits for, if it had started.
        step: Option<StepId>,
        /// The allocation is this client's own, and ends with it.
        holds: bool,
    },
    /// A launch inside an allocation. Raw part: the environment. Descriptors travel with the frame.
    LaunchStep(Box<StepLaunch>),
    /// The command of salloc or srun is over, and with it the allocation.
    Release {
        job: JobId,
        exit: crate::model::ExitCode,
    },
    /// The process manages the job's steps from now on (`sjobmgr`), or wants more numbers for them.
    /// Answered by `Managed`; news of the job follow.
    ManageSteps {
        job: JobId,
        client: ClientProcess,
        /// The step that it is a process of.
        within: Option<StepId>,
        /// How many numbers it wants.
        numbers: u32,
    },
    /// What became of steps of the manager of a job, in this run of the job, each as it is now.
    /// Answered by `Recorded` when it is durable.
    RecordSteps {
        job: JobId,
        run: u32,
        steps: Vec<Step>,
    },
    /// The manager of a job gives back what none of its steps uses. It has no answer;
    /// `ManagerChanged` tells what the manager has after it.
    GiveBack {
        job: JobId,
        client: ClientProcess,
        given_back: GivenBack,
    },
    /// The manager ends: the first of the numbers that it did not use, and how many. Answered by
    /// `Recorded`.
    LeaveSteps {
        job: JobId,
        client: ClientProcess,
        unused: (u32, u32),
    },
    /// The answer to `MeasureStep`. It has none.
    StepMeasured {
        ticket: u64,
        usage: Usage,
        pids: Vec<i32>,
    },
    /// The answer to `SignalStep` with a ticket: whether this step runs. It has none.
    StepSignalled {
        ticket: u64,
        runs: bool,
    },
    BatchScript(JobId),
    /// The environment that a batch job was submitted with. Answered by `Script`.
    BatchEnv(JobId),
    /// What running steps use at this moment (sstat). Answered by `Usage`.
    Usage(UsageAsk),
    /// What the steps of these jobs used over time, in their last run. Answered by `OverTime`.
    OverTime(Vec<JobRef>),
    /// What the host used from this instant on, while jobs ran. Answered by `HostOverTime`.
    HostOverTime(Timestamp),
    /// Where a job comes from. Answered by `Source`.
    Source {
        job: JobRef,
        /// The raw part of the answer is how the work tree differed from its commit.
        with_diff: bool,
    },
    /// The client makes a copy of a work tree for a job (`sbatch --snapshot`). The descriptor that
    /// locks its directory travels with the frame. Answered by `Recorded`. When the connection
    /// ends, the daemon deletes the copy unless a job names it.
    HoldCopy {
        name: String,
    },
    /// Remove the jobs that ended before this instant (`slotd clean`). Answered by `Cleaned`.
    Clean(Clean),
    /// What the daemon has done (sdiag).
    Diagnostics {
        /// Set the counters to zero afterwards.
        reset: bool,
    },
}

impl Request {
    /// Whether `may` holds for each user for whom this starts a script or a command, with an
    /// environment. Requests that carry none pass.
    pub fn submits_only_for(&self, may: impl Fn(u32) -> bool) -> bool {
        match self {
            // Script and environment are the daemon's own.
            Request::Submit(submit) => submit.texts_of.is_some() || may(submit.request.uid),
            Request::SubmitMany(many) => many.jobs.iter().all(|job| may(job.request.uid)),
            Request::LaunchStep(launch) => may(launch.uid),
            _ => true,
        }
    }

    /// The name and the number by which sdiag counts requests. Slurm's where it has a message for
    /// it; numbers from 9000 on are slotd's own.
    pub fn message_type(&self) -> (&'static str, u32) {
        match self {
            Request::Ping => ("REQUEST_PING", 1008),
            Request::Submit(submit) if submit.test_only => ("REQUEST_JOB_WILL_RUN", 4012),
            Request::Submit(submit) if submit.client.holds => ("REQUEST_RESOURCE_ALLOCATION", 4001),
            Request::Submit(_) => ("REQUEST_SUBMIT_BATCH_JOB", 4003),
            Request::SubmitMany(_) => ("REQUEST_SUBMIT_BATCH_JOBS", 9007),
            Request::Jobs(_) => ("REQUEST_JOB_INFO", 2003),
            Request::Accounting(_) => ("DBD_GET_JOBS_COND", 1444),
            Request::Node => ("REQUEST_NODE_INFO", 2007),
            Request::Config => ("REQUEST_BUILD_INFO", 2001),
            Request::Reconfigure => ("REQUEST_RECONFIGURE", 1003),
            Request::UpdatePartition { .. } => ("REQUEST_UPDATE_PARTITION", 3005),
            Request::UpdateNode(_) => ("REQUEST_UPDATE_NODE", 3002),
            Request::Control { action, .. } => match action {
                ControlAction::Hold
                | ControlAction::Release
                | ControlAction::Top
                | ControlAction::Update(_) => ("REQUEST_UPDATE_JOB", 3001),
                ControlAction::Requeue | ControlAction::RequeueHold => {
                    ("REQUEST_JOB_REQUEUE", 5023)
                }
                ControlAction::Suspend | ControlAction::Resume => ("REQUEST_SUSPEND", 5014),
                ControlAction::Notify(_) => ("REQUEST_JOB_NOTIFY", 4022),
            },
            Request::Cancel(_) => ("REQUEST_KILL_JOB", 5032),
            Request::LaunchStep(_) => ("REQUEST_JOB_STEP_CREATE", 5001),
            Request::Release { .. } => ("REQUEST_COMPLETE_JOB_ALLOCATION", 5017),
            Request::BatchScript(_) => ("REQUEST_BATCH_SCRIPT", 2051),
            Request::Diagnostics { .. } => ("REQUEST_STATS_INFO", 2035),
            Request::WaitEnd(_) => ("REQUEST_WAIT_END", 9001),
            Request::Attach { .. } => ("REQUEST_ATTACH_CLIENT", 9002),
            Request::BatchEnv(_) => ("REQUEST_BATCH_ENVIRONMENT", 9003),
            Request::Usage(_) => ("REQUEST_STEP_USAGE", 9004),
            Request::Clean(_) => ("REQUEST_CLEAN", 9006),
            Request::ManageSteps { .. } => ("REQUEST_MANAGE_STEPS", 9008),
            Request::RecordSteps { .. } => ("REQUEST_RECORD_STEPS", 9009),
            Request::LeaveSteps { .. } => ("REQUEST_LEAVE_STEPS", 9010),
            Request::StepMeasured { .. } => ("RESPONSE_STEP_USAGE", 9011),
            Request::GiveBack { .. } => ("REQUEST_GIVE_BACK", 9012),
            Request::Watch => ("REQUEST_WATCH", 9013),
            Request::StepSignalled { .. } => ("RESPONSE_STEP_SIGNALLED", 9014),
            Request::OverTime(_) => ("REQUEST_USE_OVER_TIME", 9015),
            Request::HostOverTime(_) => ("REQUEST_HOST_USE_OVER_TIME", 9016),
            Request::Source { .. } => ("REQUEST_SOURCE", 9017),
            Request::HoldCopy { .. } => ("REQUEST_HOLD_COPY", 9018),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Submit {
    pub request: JobRequest,
    pub script_len: usize,
    /// Script and environment are those that this job was submitted with, and the raw part is empty
    /// (`slotd retry`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub texts_of: Option<JobId>,
    /// Stay connected and tell of the end (`sbatch -W`).
    pub wait: bool,
    /// Decide, but submit nothing (`--test-only`).
    pub test_only: bool,
    /// The process that submits. If it will hold the allocation its connection gets the
    /// allocation's news.
    pub client: Client,
    /// It has been asked before, and the answer got lost with the daemon: if that was carried out,
    /// nothing is done but to answer.
    #[serde(default)]
    pub again: bool,
}

/// Jobs of one process, each of which is taken or refused by itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubmitMany {
    pub jobs: Vec<OneOfMany>,
    pub env_len: usize,
    pub client: ClientProcess,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OneOfMany {
    pub request: JobRequest,
    pub script_len: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ControlAction {
    Hold,
    Release,
    Requeue,
    RequeueHold,
    Suspend,
    Resume,
    /// `scontrol top`.
    Top,
    /// A line in the job's standard error (`scontrol notify`).
    Notify(String),
    /// `KEY=VALUE` pairs, as `parse::update` understood them.
    Update(Vec<crate::model::update::Update>),
}

/// Which ended jobs `slotd clean` removes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clean {
    /// Those that ended before this instant.
    pub before: Timestamp,
    /// But not these: the user was told that they are left, whatever has become of them since.
    pub except: Vec<JobId>,
    /// Tell what it would free, and remove nothing.
    pub dry_run: bool,
}

/// Which running steps `sstat` is about.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageAsk {
    pub steps: Vec<JobRef>,
    /// Of a job that is named without a step: all its running steps, rather than the first.
    pub all_steps: bool,
}

/// scancel's request.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CancelAsk {
    /// Jobs and steps that are named and nothing else: each is answered for. Otherwise what matches
    /// is cancelled.
    pub query: JobQuery,
    /// Send this signal instead of cancelling.
    pub signal: Option<i32>,
    /// `-b`: the batch shell alone.
    pub batch: bool,
    /// `-f`: the batch shell and its children.
    pub full: bool,
    pub uid: u32,
}

/// Where a stream of a task comes from or goes to. Indices count the descriptors that came with the
/// frame.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Stream {
    #[default]
    Null,
    Fd(usize),
    /// Opened by the step: missing parent directories of an output file are made, and it is written
    /// at its end in any case, truncated first unless `append`. A file that is named twice is
    /// opened once. A client may use the patterns of `parse::filename` and a path relative to the
    /// working directory.
    File {
        path: PathBuf,
        append: bool,
    },
    /// Standard error goes where standard output goes.
    SameAsStdout,
}

/// One task of a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskStreams {
    pub stdin: Stream,
    pub stdout: Stream,
    pub stderr: Stream,
}

/// What srun or salloc's command asks for inside an allocation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepLaunch {
    pub job: JobId,
    /// The process that asks. It asks for one step.
    pub client: ClientProcess,
    /// The user whose command and environment these are.
    #[serde(default)]
    pub uid: u32,
    /// It has asked before, and the daemon went away before the step was known to run: if that was
    /// carried out, nothing is done but to tell what became of it.
    pub again: bool,
    pub request: StepRequest,
    /// One argument vector a task, or one for all.
    pub argv: Vec<Vec<String>>,
    pub work_dir: String,
    pub umask: Option<u32>,
    /// Of the client (`--propagate`).
    #[serde(default)]
    pub rlimits: Rlimits,
    /// By rank: one for each task of the request.
    pub streams: Vec<TaskStreams>,
    /// Task 0 gets its standard input as its controlling terminal.
    pub pty: bool,
    /// Index of the socket whose other end the client holds: the step ends with the client, who
    /// tells its watcher of signals there and hears of its end.
    pub client_line: Option<usize>,
    /// Lines are labelled by the client: `SLURM_LABELIO`.
    pub label: bool,
}

impl StepLaunch {
    /// How many descriptors come with it.
    pub fn descriptors(&self) -> usize {
        let of_stream = |stream: &Stream| {
            if let Stream::Fd(place) = stream { place.saturating_add(1) } else { 0 }
        };
        let of_task = |task: &TaskStreams| [&task.stdin, &task.stdout, &task.stderr].map(of_stream);
        let streams = self.streams.iter().flat_map(of_task).max().unwrap_or(0);
        streams.max(self.client_line.map_or(0, |place| place.saturating_add(1)))
    }
}
