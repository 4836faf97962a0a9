//! A job record with its life so far.

use crate::model::array::TaskSet;
use crate::model::tres::{Allocation, Usage};
use crate::model::{ExitCode, JobId, JobRequest, JobState, Reason, Step, Timestamp, Tres};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a record has to do with an array.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ArrayRole {
    #[default]
    None,
    /// All tasks of the array that have not been split off yet, as one record.
    Rest {
        tasks: TaskSet,
        /// At most so many tasks of the array at once.
        limit: Option<u32>,
    },
    /// One task with a record of its own.
    Task { array_job: JobId, task: u32 },
    /// Several tasks that were held, changed or cancelled together before they started: a compact record like
    /// `Rest`, with a number of its own.
    Part { array_job: JobId, tasks: TaskSet },
}

/// Who holds a pending job back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub enum Hold {
    #[default]
    No,
    User,
    Admin,
}

/// A process, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClientProcess {
    pub pid: u32,
    /// Field 22 of `/proc/pid/stat`: tells a later process with the same pid apart.
    pub start_ticks: u64,
}

/// The process that made a submission. Its name is also that of the submission: one process makes one, so that a
/// submission that is made again, since no answer came to the first, is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Client {
    #[serde(flatten)]
    pub process: ClientProcess,
    /// The allocation lives and dies with it (salloc, srun), rather than being left to itself (sbatch).
    #[serde(default = "yes")]
    pub holds: bool,
}

/// Records that an earlier slotd wrote have clients that hold their allocation, and no others.
fn yes() -> bool {
    true
}

/// A job record: a plain job, the rest of an array, an array task, or an allocation.
///
/// `request` is shared by all records of an array, so that a task costs little more than its own state.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub id: JobId,
    pub role: ArrayRole,
    /// The array as submitted: for `SLURM_ARRAY_TASK_COUNT` and its like.
    pub request: Arc<JobRequest>,
    /// The partition that was chosen.
    pub partition: String,
    /// What is reserved while it runs.
    pub tres: Tres,
    pub priority: u32,
    pub hold: Hold,
    pub state: JobState,
    /// Of a terminal or running record. Why a pending job waits is worked out when it is asked for.
    pub reason: Reason,
    pub submit: Timestamp,
    pub eligible: Option<Timestamp>,
    pub start: Option<Timestamp>,
    pub end: Option<Timestamp>,
    /// When it was suspended, while it is.
    pub suspended_at: Option<Timestamp>,
    /// Time spent suspended earlier, microseconds.
    pub suspended_us: u64,
    pub exit: ExitCode,
    /// The worst exit code of its steps (sacct `DerivedExitCode`).
    pub derived_exit: ExitCode,
    pub restarts: u32,
    pub alloc: Option<Allocation>,
    pub usage: Usage,
    pub steps: Vec<Step>,
    pub next_step: u32,
    pub client: Option<Client>,
    /// Who cancelled it (uid), for `CANCELLED by 0`.
    pub cancelled_by: Option<u32>,
    /// What slotd has to say about it, as Slurm's `SystemComment`: why its launch failed.
    pub system_comment: Option<String>,
}

impl ArrayRole {
    /// The number of the array that the record `own` belongs to.
    pub fn array_job(&self, own: JobId) -> Option<JobId> {
        match self {
            ArrayRole::None => None,
            ArrayRole::Rest { .. } => Some(own),
            ArrayRole::Task { array_job, .. } | ArrayRole::Part { array_job, .. } => Some(*array_job),
        }
    }
}

impl Job {
    /// The number that the user knows the job by: the array's for array records.
    pub fn array_job_id(&self) -> Option<JobId> {
        self.role.array_job(self.id)
    }

    /// The record as a launch needs it: a copy of a thousand steps for each of them would cost more than the launch.
    pub fn without_steps(&self) -> Job {
        Job {
            id: self.id,
            role: self.role.clone(),
            request: Arc::clone(&self.request),
            partition: self.partition.clone(),
            tres: self.tres,
            priority: self.priority,
            hold: self.hold,
            state: self.state,
            reason: self.reason,
            submit: self.submit,
            eligible: self.eligible,
            start: self.start,
            end: self.end,
            suspended_at: self.suspended_at,
            suspended_us: self.suspended_us,
            exit: self.exit,
            derived_exit: self.derived_exit,
            restarts: self.restarts,
            alloc: self.alloc.clone(),
            usage: self.usage,
            steps: Vec::new(),
            next_step: self.next_step,
            client: self.client,
            cancelled_by: self.cancelled_by,
            system_comment: self.system_comment.clone(),
        }
    }

    /// The process that the allocation lives and dies with.
    pub fn holder(&self) -> Option<ClientProcess> {
        self.client.filter(|client| client.holds).map(|client| client.process)
    }

    /// The array tasks of a compact record.
    pub fn compact_tasks(&self) -> Option<&TaskSet> {
        match &self.role {
            ArrayRole::None | ArrayRole::Task { .. } => None,
            ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => Some(tasks),
        }
    }

    /// Tasks that may still start from this record: 1 but for the rest of an array.
    pub fn pending_tasks(&self) -> usize {
        match &self.role {
            ArrayRole::None | ArrayRole::Task { .. } => usize::from(self.state == JobState::Pending),
            ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => {
                if self.state == JobState::Pending {
                    tasks.len()
                } else {
                    0
                }
            }
        }
    }
}
