//! Running jobs whose size changes, as the managers of their steps hear of it.

use crate::model::node::NodeParts;
use crate::model::tres::Allocation;
use crate::model::{JobId, Tres, is_default};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What the manager of a job's steps has of the job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ManagersPart {
    /// What no other step of the job has.
    pub alloc: Allocation,
    /// So much of it is to be given back, as soon as no step uses it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub owed: Tres,
    /// What the whole job has.
    pub whole: Allocation,
    /// When the time limit ends the job, by the monotonic clock, microseconds.
    pub end_us: Option<u64>,
    /// For how long the job was suspended, microseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspended_us: u64,
}

/// Why a manager has another part than before, or another time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartChange {
    /// A step that the manager did not start has ended.
    StepEnded,
    TimeLimit,
    /// A user wants another size (`scontrol update`).
    Update,
    /// What it gave back is the job's no more.
    GivenBack,
    /// Others were given for what is out of use.
    Replaced,
    /// The resources of this job were transferred to it (`--dependency=expand`).
    Expanded(JobId),
}

impl fmt::Display for PartChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartChange::StepEnded => f.write_str("a step of srun has ended"),
            PartChange::TimeLimit => f.write_str("the time limit of the job was changed"),
            PartChange::Update => f.write_str("the size of the job was changed"),
            PartChange::GivenBack => f.write_str("resources were given back"),
            PartChange::Replaced => f.write_str("what is out of use was replaced"),
            PartChange::Expanded(job) => write!(f, "job {job} has expanded the job"),
        }
    }
}

/// Resources of a job that no step of its manager uses, or will.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GivenBack {
    pub cpu_ids: Vec<u32>,
    pub mem_mb: u64,
    pub gpu_ids: Vec<u32>,
}

impl GivenBack {
    pub fn parts(&self) -> NodeParts {
        NodeParts {
            cpus: self.cpu_ids.iter().copied().collect(),
            gpus: self.gpu_ids.iter().copied().collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.cpu_ids.is_empty() && self.mem_mb == 0 && self.gpu_ids.is_empty()
    }
}
