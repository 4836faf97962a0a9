//! What the daemon says: answers to requests, and news on a connection that waits.

use crate::model::changed::Changed;
use crate::model::diagnostics::Diagnostics;
use crate::model::host_use::HostSpan;
use crate::model::node::NodeParts;
use crate::model::partition::Host;
use crate::model::resize::{ManagersPart, PartChange};
use crate::model::series::StepSeries;
use crate::model::source::JobSource;
use crate::model::view::{JobList, JobView, NodeView};
use crate::model::{ExitCode, ExitRecord, JobId, JobRef, Refusal, StepId, StepKey, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Answer {
    Pong {
        version: String,
        pid: u32,
    },
    Submitted {
        job: JobId,
    },
    /// In the order of the jobs that were handed in.
    SubmittedMany(Vec<Result<JobId, Refusal>>),
    /// `--test-only`.
    WouldStart {
        job: JobId,
        at: Option<Timestamp>,
        cpus: u32,
        partition: String,
    },
    Jobs(JobList),
    /// A part of a long answer: more of these follow, and `Jobs` is the last.
    SomeJobs(JobList),
    Node(Box<NodeView>),
    Config(Vec<(String, String)>),
    /// The partitions, the node or the configuration are as was asked for, with what is to be told
    /// of it.
    SiteChanged(Vec<String>),
    /// One outcome for each job that was named, in order.
    Done(Vec<Outcome>),
    /// The raw part is the script, or the environment as `KEY=VALUE\0` entries.
    Script,
    Diagnostics(Box<Diagnostics>),
    Cleaned(Cleaned),
    /// Jobs with those of their steps that were asked for and run, each with its use up to now.
    Usage {
        list: JobList,
        /// The processes of each step.
        processes: Vec<(StepKey, Vec<i32>)>,
    },
    /// By job, and by the start of the step. A step that was over before it was first looked at is
    /// not among them.
    OverTime(Vec<StepSeries>),
    /// By time. Where no job ran there is none.
    HostOverTime {
        now: Timestamp,
        spans: Vec<HostSpan>,
    },
    Source(Box<JobSource>),
    /// The process manages the job's steps.
    Managed(Box<ManagedJob>),
    Recorded,
    /// The request is not carried out.
    Refused(Refusal),

    // News.
    /// The allocation is in the queue: the first look at it did not start it.
    Waits,
    /// The allocation runs.
    Granted {
        view: Box<JobView>,
    },
    /// The job is over.
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
    /// The step was told to end, and is killed if it has not ended by then.
    StepStopping {
        wait_secs: u64,
    },
    TaskEnded {
        task: u32,
        exit: ExitCode,
    },
    /// The daemon died before it started anything of the step: the launch is to be asked for again.
    StepLost,
    /// The step is over.
    StepEnded(Box<ExitRecord>),
    /// For the manager of the job: what it has of it has changed, or when the job ends, and why.
    ManagerChanged {
        part: Box<ManagersPart>,
        why: PartChange,
    },
    /// For the manager of the job: these of the job's CPUs and GPUs are out of use now, and no
    /// others. No step is to use them.
    PartsOut {
        parts: NodeParts,
        why: String,
    },
    /// For the manager of the job: send a signal to this step or to all; without a signal it is to
    /// be ended.
    SignalStep {
        step: Option<u32>,
        signal: Option<i32>,
        /// The daemon does not know whether this step runs: the manager tells, by `StepSignalled`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ticket: Option<u64>,
    },
    /// For the manager of the job: tell what this step uses, by `StepMeasured`.
    MeasureStep {
        ticket: u64,
        step: u32,
    },
}

/// What the manager of a job's steps has to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ManagedJob {
    pub view: JobView,
    pub host: Host,
    /// What it has of the job.
    pub part: ManagersPart,
    /// Those of the job's CPUs and GPUs that are out of use.
    #[serde(default)]
    pub out: NodeParts,
    /// The first number that its steps may have, and how many.
    pub numbers: (u32, u32),
    /// Between SIGTERM and SIGKILL (Slurm's `KillWait`), milliseconds.
    pub grace_ms: u64,
}

/// The jobs that `slotd clean` has deleted, or would delete.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cleaned {
    /// Jobs that ended before this instant.
    pub before: Timestamp,
    pub jobs: u64,
    /// When the first and the last of them ended.
    pub ends: Option<(Timestamp, Timestamp)>,
    /// Of their directories.
    pub bytes: u64,
    /// Left, since they are in memory: squeue still shows them.
    pub recent: Vec<JobId>,
    /// Left, since a pending job depends on them, or an array of theirs has tasks that have not
    /// ended.
    pub needed: Vec<JobId>,
}

/// What became of one job of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub target: JobRef,
    /// The records that were touched.
    pub result: Result<Vec<JobId>, Refusal>,
}
