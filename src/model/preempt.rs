//! Preemption: how a job makes room for another one.

use crate::{JobId, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a preempted job makes room (slurm.conf man page, `PreemptMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreemptMode {
    /// It is not preempted.
    Off,
    /// It ends and is queued again.
    Requeue,
    /// It ends.
    Cancel,
}

impl PreemptMode {
    pub const ALL: [PreemptMode; 3] = [PreemptMode::Off, PreemptMode::Requeue, PreemptMode::Cancel];

    /// Returns the name that scontrol shows.
    pub const fn name(self) -> &'static str {
        match self {
            PreemptMode::Off => "OFF",
            PreemptMode::Requeue => "REQUEUE",
            PreemptMode::Cancel => "CANCEL",
        }
    }
}

impl fmt::Display for PreemptMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How jobs of a partition or QOS make room for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Means {
    pub mode: PreemptMode,
    /// The time from the warning to the end, in seconds.
    pub grace_secs: u64,
}

/// The preemption of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preempted {
    /// When it was decided (`PreemptTime`).
    pub at: Timestamp,
    /// When its grace time ends.
    pub until: Timestamp,
    /// The job that it makes room for.
    pub by: JobId,
    pub mode: PreemptMode,
}

impl Preempted {
    /// Returns the comment on the job.
    pub fn comment(&self) -> String {
        format!("preempted by job {} (PreemptMode={})", self.by, self.mode)
    }
}
