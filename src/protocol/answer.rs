//! Messages from the daemon: answers to requests, and notifications on connections that wait.

use serde::{Deserialize, Serialize};
use slotd_model::changed::Changed;
use slotd_model::diagnostics::Diagnostics;
use slotd_model::host_use::HostSpan;
use slotd_model::node::NodeParts;
use slotd_model::partition::Host;
use slotd_model::resize::{ManagersPart, PartChange};
use slotd_model::series::StepSeries;
use slotd_model::source::JobSource;
use slotd_model::view::{JobList, JobView, NodeView};
use slotd_model::{ExitCode, ExitRecord, JobId, JobRef, Refusal, StepId, StepKey, Timestamp};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Answer {
    Pong {
        version: String,
        pid: u32,
    },
    Submitted {
        job: JobId,
    },
    /// A plain command line was carried out. The raw part is what the program prints, at most
    /// [`MOST_PRINTED`](crate::request::MOST_PRINTED) bytes.
    Printed,
    /// The job of a plain `sbatch` was not submitted, because the script is needed. The raw part is
    /// its path, with a final zero byte.
    ScriptWanted,
    /// The command line is not plain: nothing was submitted, and the program has to run.
    NotPlain,
    /// In the order of the submitted jobs.
    SubmittedMany(Vec<Result<JobId, Refusal>>),
    /// The raw part is the text, in which the entries that were cancelled are commented out.
    Crontab {
        /// Whether the user has a crontab.
        exists: bool,
    },
    /// The jobs of the entries, in their order.
    CrontabInstalled(Vec<JobId>),
    /// An entry was refused, and the old crontab is unchanged.
    CrontabRefused {
        entry: usize,
        why: Refusal,
    },
    /// `--test-only`.
    WouldStart {
        job: JobId,
        at: Option<Timestamp>,
        cpus: u32,
        partition: String,
    },
    Jobs(JobList),
    /// A part of a long answer. More of these follow; `Jobs` is the last.
    SomeJobs(JobList),
    Node(Box<NodeView>),
    Config(Vec<(String, String)>),
    /// The partitions, the node or the configuration were changed as requested. Contains notes
    /// about the change.
    SiteChanged(Vec<String>),
    /// A reservation was created, changed or deleted. Contains its name.
    Reservation(String),
    /// One outcome per requested job, in order.
    Done(Vec<Outcome>),
    /// The raw part is the script, or the environment as `KEY=VALUE\0` entries.
    Script,
    Diagnostics(Box<Diagnostics>),
    Cleaned(Cleaned),
    /// Jobs with their requested steps that are running, and the resource use of these so far.
    Usage {
        list: JobList,
        /// The PIDs of each step's processes.
        processes: Vec<(StepKey, Vec<i32>)>,
    },
    /// Ordered by job and by the start of the step. Steps that ended before their first sample are
    /// missing.
    OverTime(Vec<StepSeries>),
    /// Ordered by time. There are no spans for times when no job ran.
    HostOverTime {
        now: Timestamp,
        spans: Vec<HostSpan>,
    },
    Source(Box<JobSource>),
    /// The process now manages the job's steps.
    Managed(Box<ManagedJob>),
    Recorded,
    /// The request was not carried out.
    Refused(Refusal),

    // Notifications.
    /// The allocation is queued: it could not start immediately.
    Waits,
    /// The allocation is running.
    Granted {
        view: Box<JobView>,
    },
    /// The job has ended.
    Ended {
        view: Box<JobView>,
    },
    /// The answer to `Watch`.
    Changed(Changed),
    StepWaits,
    StepStarted {
        step: StepId,
        pids: Vec<u32>,
    },
    /// The step was asked to end. It is killed if it is still running after this time.
    StepStopping {
        wait_secs: u64,
    },
    TaskEnded {
        task: u32,
        exit: ExitCode,
    },
    /// The daemon died before it started any process of the step. The client must request the
    /// launch again.
    StepLost,
    /// The step has ended.
    StepEnded(Box<ExitRecord>),
    /// For the job's step manager: its share of the job or the end time of the job has changed, and
    /// why.
    ManagerChanged {
        part: Box<ManagersPart>,
        why: PartChange,
    },
    /// For the job's step manager: exactly these CPUs and GPUs of the job are out of use now. No
    /// step may use them.
    PartsOut {
        parts: NodeParts,
        why: String,
    },
    /// For the job's step manager: send a signal to this step or to all steps. Without a signal,
    /// end them.
    SignalStep {
        step: Option<u32>,
        signal: Option<i32>,
        /// The UID of the user who cancels it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<u32>,
        /// Set if the daemon does not know whether this step is running. The manager replies with
        /// `StepSignalled`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ticket: Option<u64>,
    },
    /// For the job's step manager: report the step's resource use with `StepMeasured`.
    MeasureStep {
        ticket: u64,
        step: u32,
    },
}

/// Everything that the manager of a job's steps needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ManagedJob {
    pub view: JobView,
    pub host: Host,
    /// The manager's share of the job.
    pub part: ManagersPart,
    /// CPUs and GPUs of the job that are out of use.
    #[serde(default)]
    pub out: NodeParts,
    /// The first number for its steps, and how many numbers it gets.
    pub numbers: (u32, u32),
    /// The time between SIGTERM and SIGKILL (Slurm's `KillWait`), in milliseconds.
    pub grace_ms: u64,
}

/// The jobs that `slotd clean` deleted or would delete.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cleaned {
    /// The cutoff: only jobs that ended before this instant.
    pub before: Timestamp,
    pub jobs: u64,
    /// Earlier runs of jobs that have not ended.
    #[serde(default)]
    pub runs: u64,
    /// The times at which the first and the last of them ended.
    pub ends: Option<(Timestamp, Timestamp)>,
    /// The total size of their directories.
    pub bytes: u64,
    /// Jobs kept because they are still in memory, where squeue shows them.
    pub recent: Vec<JobId>,
    /// Jobs kept because a pending job depends on them, or because their array has tasks that have
    /// not ended.
    pub needed: Vec<JobId>,
}

/// The outcome for one job of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub target: JobRef,
    /// The affected records.
    pub result: Result<Vec<JobId>, Refusal>,
}
