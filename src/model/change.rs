//! What has to be remembered: the changes that the scheduler hands to the store, in order.
//!
//! One decision makes a few of these; they are committed together before anything else happens
//! because of it.

use crate::model::memo::{MemoBody, MemoKey};
use crate::model::notice::Notice;
use crate::model::run::Run;
use crate::model::{Job, JobId, Step, StepId};

/// One change of the durable copy.
#[derive(Debug, Clone)]
pub enum Change {
    /// A new record, with the texts that only its launch needs. A task that splits off an array
    /// shares the texts of the array: `texts` is `Texts::SameAs(array)`.
    Insert {
        job: Box<Job>,
        texts: Texts,
    },
    /// The record's present state, request included, replaces the stored one. Steps are not
    /// touched.
    Update(Box<Job>),
    /// Another script for a job that waits, or for all tasks of an array that does.
    PutScript {
        job: JobId,
        script: Vec<u8>,
    },
    /// A step as it is now: inserted or replaced.
    PutStep {
        job: JobId,
        step: Box<Step>,
    },
    /// A step of which no process was ever started.
    DropStep {
        job: JobId,
        step: StepId,
    },
    /// A run of a job that comes back is over. Its steps are in it, and are the job's no more.
    EndRun {
        job: JobId,
        run: Box<Run>,
    },
    /// Somebody is to be told something, mostly of a job.
    PutNotice {
        number: u64,
        job: Option<JobId>,
        notice: Box<Notice>,
    },
    /// That was done, or given up.
    DropNotice {
        number: u64,
    },
    /// What has to be known for what is told next.
    PutMemo {
        key: MemoKey,
        body: MemoBody,
    },
    DropMemo {
        key: MemoKey,
    },
}

impl Change {
    /// The job that it is about, if it is about one.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Change::Insert { job, .. } | Change::Update(job) => Some(job.id),
            Change::PutScript { job, .. }
            | Change::PutStep { job, .. }
            | Change::DropStep { job, .. }
            | Change::EndRun { job, .. } => Some(*job),
            Change::PutNotice { job, .. } => *job,
            Change::DropNotice { .. } | Change::PutMemo { .. } | Change::DropMemo { .. } => None,
        }
    }

    /// The array that the record belongs to, where the change is of a record of one.
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
            | Change::DropMemo { .. } => None,
        }
    }
}

/// Where the script and the environment of a new record come from.
#[derive(Debug, Clone)]
pub enum Texts {
    /// They came with the submission.
    New(LaunchTexts),
    /// The same as those of this record.
    SameAs(JobId),
    /// The script of a job of which nothing else was found: its environment is lost.
    Script(Vec<u8>),
    /// An allocation has none.
    None,
}

/// The bulky part of a submission: needed to launch the job, not to decide about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaunchTexts {
    /// The batch script, byte for byte.
    pub script: Vec<u8>,
    /// The environment of the job before `SLURM_*` variables are added: `KEY=VALUE` entries, each
    /// ended by a zero byte. Bytes, since values need not be UTF-8.
    pub env: Vec<u8>,
}
