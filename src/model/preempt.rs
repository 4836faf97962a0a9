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
    /// It is suspended, and resumed when its CPUs are free again.
    Suspend,
    /// It ends and is queued again.
    Requeue,
    /// It ends.
    Cancel,
}

impl PreemptMode {
    pub const ALL: [PreemptMode; 4] =
        [PreemptMode::Off, PreemptMode::Suspend, PreemptMode::Requeue, PreemptMode::Cancel];

    /// Returns the name that scontrol shows.
    pub const fn name(self) -> &'static str {
        match self {
            PreemptMode::Off => "OFF",
            PreemptMode::Suspend => "SUSPEND",
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

impl Means {
    /// Returns whether the job keeps everything but its CPUs.
    pub fn suspends(&self) -> bool {
        self.mode == PreemptMode::Suspend
    }
}

/// How a job that is suspended for another one continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resumption {
    /// As soon as its CPUs are free.
    ByItself,
    /// At the request of its user, who suspended it, too.
    OnRequest,
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
    /// How it continues, while it is suspended and more important jobs may use its CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<Resumption>,
}

impl Preempted {
    /// Returns when its grace time ends; `None` if the job only has to wait.
    pub fn grace_end(&self) -> Option<Timestamp> {
        (self.mode != PreemptMode::Suspend).then_some(self.until)
    }

    /// Returns the comment on the job.
    pub fn comment(&self) -> String {
        format!("preempted by job {} (PreemptMode={})", self.by, self.mode)
    }
}
