//! Durable changes that the scheduler hands to the store, in order.
//!
//! One decision produces a few of them. They are committed together before the decision takes any
//! other effect.

use crate::cron::Crontab;
use crate::memo::{MemoBody, MemoKey};
use crate::notice::Notice;
use crate::run::Run;
use crate::{Job, JobId, Step, StepId};

/// One change to the database.
#[derive(Debug, Clone)]
pub enum Change {
    /// A new record, with the script and environment that only its launch needs. A task that splits
    /// off an array shares them with the array: `texts` is `Texts::SameAs(array)`.
    Insert {
        job: Box<Job>,
        texts: Texts,
    },
    /// Replaces the stored record, including its request. Steps are left alone.
    Update(Box<Job>),
    /// Replaces the script of a pending job or of all tasks of a pending array.
    PutScript {
        job: JobId,
        script: Vec<u8>,
    },
    /// Inserts or replaces a step.
    PutStep {
        job: JobId,
        step: Box<Step>,
    },
    /// Deletes a step that never started a process.
    DropStep {
        job: JobId,
        step: StepId,
    },
    /// Ends a run of a job that is requeued. The job's steps move into the run.
    EndRun {
        job: JobId,
        run: Box<Run>,
    },
    /// Queues a notification, mostly about a job.
    PutNotice {
        number: u64,
        job: Option<JobId>,
        notice: Box<Notice>,
    },
    /// Deletes a notification that was delivered or given up.
    DropNotice {
        number: u64,
    },
    /// Stores state that later notifications depend on.
    PutMemo {
        key: MemoKey,
        body: MemoBody,
    },
    DropMemo {
        key: MemoKey,
    },
    /// Replaces the crontab of a user. `None` removes it.
    PutCrontab {
        uid: u32,
        crontab: Option<Box<Crontab>>,
    },
}

impl Change {
    /// Returns the job that the change affects, if any.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Change::Insert { job, .. } | Change::Update(job) => Some(job.id),
            Change::PutScript { job, .. }
            | Change::PutStep { job, .. }
            | Change::DropStep { job, .. }
            | Change::EndRun { job, .. } => Some(*job),
            Change::PutNotice { job, .. } => *job,
            Change::DropNotice { .. }
            | Change::PutMemo { .. }
            | Change::DropMemo { .. }
            | Change::PutCrontab { .. } => None,
        }
    }

    /// Returns the array that an inserted or updated record belongs to.
    pub fn array(&self) -> Option<JobId> {
        match self {
            Change::Insert { job, .. } | Change::Update(job) => job.array_job_id(),
            Change::PutScript { .. }
            | Change::PutStep { .. }
            | Change::DropStep { .. }
            | Change::EndRun { .. }
            | Change::PutNotice { .. }
            | Change::DropNotice { .. }
            | Change::PutMemo { .. }
            | Change::DropMemo { .. }
            | Change::PutCrontab { .. } => None,
        }
    }
}

/// The source of a new record's script and environment.
#[derive(Debug, Clone)]
pub enum Texts {
    /// Sent with the submission.
    New(LaunchTexts),
    /// Shared with this record.
    SameAs(JobId),
    /// The script of a job recovered from its directory. Its environment is lost.
    Script(Vec<u8>),
    /// The record is an allocation, which has no script.
    None,
}

/// The bulky part of a submission, which is needed to launch the job but not to schedule it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaunchTexts {
    /// The batch script, byte for byte.
    pub script: Vec<u8>,
    /// The job's environment before `SLURM_*` variables are added, as `KEY=VALUE` entries that each
    /// end with a zero byte. Values need not be UTF-8.
    pub env: Vec<u8>,
}
