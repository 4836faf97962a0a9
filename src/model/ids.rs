//! Job and step IDs.

use crate::array::TaskSet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The ID of a job record. An array has one, and so does each task that was split off.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct JobId(pub u32);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A step of a job, printed after the dot: `12.0`, `12.batch`, `12.interactive`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StepId {
    /// The batch script.
    Batch,
    /// The command or shell that salloc runs.
    Interactive,
    /// A step started by srun, numbered from 0.
    Num(u32),
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepId::Batch => f.pad("batch"),
            StepId::Interactive => f.pad("interactive"),
            StepId::Num(n) => n.fmt(f),
        }
    }
}

impl std::str::FromStr for StepId {
    type Err = ();
    fn from_str(s: &str) -> Result<Self, ()> {
        match s {
            "batch" => Ok(StepId::Batch),
            "interactive" => Ok(StepId::Interactive),
            n => n.parse().map(StepId::Num).map_err(|_| ()),
        }
    }
}

/// A step and the job record it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StepKey {
    pub job: JobId,
    pub step: StepId,
}

impl fmt::Display for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.step)
    }
}

/// A job or step as the user writes it: `12`, `12_3`, `12_[3-9]`, `12.0`, `12_3.batch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRef {
    pub job: JobId,
    /// The array tasks, if any were named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskSet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepId>,
}

impl JobRef {
    /// Refers to the whole job with this ID.
    pub fn job(job: JobId) -> Self {
        JobRef { job, tasks: None, step: None }
    }
}

impl fmt::Display for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.job)?;
        if let Some(tasks) = &self.tasks {
            match tasks.single() {
                Some(one) => write!(f, "_{one}")?,
                None => write!(f, "_[{tasks}]")?,
            }
        }
        match self.step {
            Some(step) => write!(f, ".{step}"),
            None => Ok(()),
        }
    }
}
