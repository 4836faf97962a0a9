//! A run of a job: from when it may start to its end. A job that goes back to the queue has several.

use crate::model::tres::{Allocation, Usage};
use crate::model::{ExitCode, Job, JobState, Reason, Step, Timestamp, is_default};
use serde::{Deserialize, Serialize};

/// How a run goes, or went.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunState {
    pub state: JobState,
    /// Of a terminal or running record. Why a pending job waits is worked out when it is asked for.
    pub reason: Reason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eligible: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    /// When it was suspended, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_at: Option<Timestamp>,
    /// Time spent suspended earlier, microseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspended_us: u64,
    pub exit: ExitCode,
    /// The worst exit code of its steps (sacct `DerivedExitCode`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub derived_exit: ExitCode,
    /// How often the job had been restarted before this run.
    pub restarts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alloc: Option<Allocation>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage: Usage,
    /// Who cancelled it (uid), for `CANCELLED by 0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<u32>,
    /// What slotd has to say about it, as Slurm's `SystemComment`: why its launch failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_comment: Option<String>,
}

/// An earlier run of a job that went back to the queue: what its record said then and says no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// It was ended for the requeue, with the state CANCELLED; otherwise it had ended before. Slurm's state for it is
    /// REQUEUED.
    #[serde(default, skip_serializing_if = "is_default")]
    pub requeued: bool,
    pub run: RunState,
    #[serde(default, skip_serializing_if = "is_default")]
    pub steps: Vec<Step>,
}

impl RunState {
    /// The same, ended. Where the record does not say yet how its processes ended, `exit` and `usage` do.
    #[must_use]
    pub fn ended_as(self, exit: ExitCode, usage: Usage, end: Timestamp) -> RunState {
        // The clock may have been set back while it ran.
        let end = Some(end.max(self.start.unwrap_or(end)));
        RunState { exit, usage: self.usage.merge(usage), end, suspended_at: None, ..self }
    }
}

impl Run {
    /// The record as it was at the end of this run. What the user changed since then is as it is now.
    pub fn record(self, job: &Job) -> Job {
        Job { run: self.run, steps: self.steps, ..job.without_steps() }
    }
}
