//! What queries answer: everything that is known of a job, step, partition or node at one moment.
//!
//! `render` turns these into text. A view is data on its own: it needs no clock but `now`, which it carries.

use crate::model::partition::Host;
use crate::model::request::JobRequest;
use crate::model::tres::{Allocation, Usage};
use crate::model::{ArrayRole, ExitCode, JobId, JobState, Partition, Reason, Step, Timestamp, Tres};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A job record as queries see it. Paths are absolute and their patterns are filled in where the ids are known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    pub id: JobId,
    pub role: ArrayRole,
    #[serde(with = "arc")]
    pub request: Arc<JobRequest>,
    pub partition: String,
    /// Requested: what it reserves when it runs.
    pub tres: Tres,
    pub priority: u32,
    pub state: JobState,
    pub reason: Reason,
    /// The dependency as it stands now: satisfied terms are gone. Empty: none left.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dependency: String,
    pub submit: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eligible: Option<Timestamp>,
    /// Of a pending job: `None`, see `expected_start`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    /// When the plan would start a pending job (`squeue --start`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub expected_start: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspended_us: u64,
    pub exit: ExitCode,
    #[serde(default, skip_serializing_if = "is_default")]
    pub derived_exit: ExitCode,
    pub restarts: u32,
    /// An earlier run, which was ended for a requeue.
    #[serde(default, skip_serializing_if = "is_default")]
    pub requeued: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alloc: Option<Allocation>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage: Usage,
    #[serde(default, skip_serializing_if = "is_default")]
    pub steps: Vec<Step>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<u32>,
    /// What slotd has to say about it: why its launch failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_comment: Option<String>,
    /// Absolute paths. `/dev/null` for input where none was given. Empty for an allocation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub std_out: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub std_err: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub std_in: String,
    /// The job launches one process a rank (the book), rather than its script once (Slurm).
    pub batch_ranks: bool,
}

impl JobView {
    /// Time it has run, without suspension; zero for a job that has not started.
    pub fn elapsed(&self, now: Timestamp) -> std::time::Duration {
        let Some(start) = self.start else { return std::time::Duration::ZERO };
        let until = self.end.or(self.suspended_at).unwrap_or(now);
        until.since(start).saturating_sub(std::time::Duration::from_micros(self.suspended_us))
    }

    /// Time that a step of it has run, without suspension.
    pub fn step_elapsed(&self, step: &Step, now: Timestamp) -> std::time::Duration {
        let until = step.end.or(self.suspended_at).unwrap_or(now);
        until.since(step.start).saturating_sub(std::time::Duration::from_micros(step.suspended_us))
    }
}

/// A partition with what is going on in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartitionView {
    pub partition: Partition,
    /// Jobs, not tasks; a pending array counts each of its tasks.
    pub running: u64,
    pub pending: u64,
}

/// The host with its partitions: the answer to sinfo and `scontrol show node|partition`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    pub host: Host,
    pub allocated: Tres,
    /// An exclusive job has the host.
    pub exclusive: bool,
    pub partitions: Vec<PartitionView>,
    pub daemon_start: Timestamp,
    /// Load of the last minute times 100, as Slurm's `CPULoad` prints it.
    pub load_centi: u32,
    /// MB not in use now.
    pub free_mem_mb: u64,
    pub now: Timestamp,
}

/// The answer to a job query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobList {
    pub jobs: Vec<JobView>,
    /// The daemon's clock when it answered.
    pub now: Timestamp,
    /// Ids that were asked for and are not known.
    #[serde(default)]
    pub unknown: Vec<JobId>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

mod arc {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::sync::Arc;

    pub fn serialize<T: Serialize, S: Serializer>(value: &Arc<T>, s: S) -> Result<S::Ok, S::Error> {
        T::serialize(value, s)
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D) -> Result<Arc<T>, D::Error> {
        T::deserialize(d).map(Arc::new)
    }
}
