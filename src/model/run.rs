//! A run of a job that went back to the queue.

use crate::model::tres::{Allocation, Usage};
use crate::model::{ExitCode, Job, JobState, Reason, Step, Timestamp};
use serde::{Deserialize, Serialize};

/// How an earlier run of a job went: what its record said then and says no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// How often the job had been restarted before.
    pub number: u32,
    /// It was ended for the requeue; otherwise it had ended before. Slurm's state for it is REQUEUED.
    #[serde(default)]
    pub requeued: bool,
    /// How it ended. CANCELLED where it was ended for the requeue.
    pub state: JobState,
    pub reason: Reason,
    pub eligible: Option<Timestamp>,
    pub start: Option<Timestamp>,
    pub end: Timestamp,
    #[serde(default)]
    pub suspended_us: u64,
    pub exit: ExitCode,
    #[serde(default)]
    pub derived_exit: ExitCode,
    pub alloc: Option<Allocation>,
    #[serde(default)]
    pub usage: Usage,
    #[serde(default)]
    pub cancelled_by: Option<u32>,
    #[serde(default)]
    pub system_comment: Option<String>,
    #[serde(default)]
    pub steps: Vec<Step>,
}

impl Run {
    /// The present run of a job, without its steps. One that has no end has ended `now`.
    pub fn of(job: &Job, now: Timestamp) -> Run {
        Run {
            number: job.restarts,
            requeued: false,
            state: job.state,
            reason: job.reason,
            eligible: job.eligible,
            start: job.start,
            end: job.end.unwrap_or(now),
            suspended_us: job.suspended_us,
            exit: job.exit,
            derived_exit: job.derived_exit,
            alloc: job.alloc.clone(),
            usage: job.usage,
            cancelled_by: job.cancelled_by,
            system_comment: job.system_comment.clone(),
            steps: Vec::new(),
        }
    }

    /// The same, where the record does not say yet how its processes ended.
    pub fn ended_as(self, exit: ExitCode, usage: Usage, end: Timestamp) -> Run {
        // The clock may have been set back while it ran.
        Run { exit, usage: self.usage.merge(usage), end: end.max(self.start.unwrap_or(end)), ..self }
    }

    /// The record as it was at the end of this run. What the user changed since then is as it is now.
    pub fn record(self, job: &Job) -> Job {
        Job {
            state: self.state,
            reason: self.reason,
            eligible: self.eligible,
            start: self.start,
            end: Some(self.end),
            suspended_at: None,
            suspended_us: self.suspended_us,
            exit: self.exit,
            derived_exit: self.derived_exit,
            restarts: self.number,
            alloc: self.alloc,
            usage: self.usage,
            cancelled_by: self.cancelled_by,
            system_comment: self.system_comment,
            steps: self.steps,
            ..job.without_steps()
        }
    }
}
