//! Size changes of running jobs, as the managers of their steps see them.

use crate::node::NodeParts;
use crate::tres::Allocation;
use crate::{JobId, Tres, is_default};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The resources and the time that the manager of a job's steps has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ManagersPart {
    /// The resources that no other step of the job uses.
    pub alloc: Allocation,
    /// The amount of `alloc` to give back as soon as no step uses it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub owed: Tres,
    /// The resources of the whole job.
    pub whole: Allocation,
    /// When the time limit ends the job, in microseconds of the monotonic clock.
    pub end_us: Option<u64>,
    /// Total time the job has been suspended, microseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspended_us: u64,
}

/// The reason for a change of a manager's resources or time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartChange {
    /// A step that the manager did not start has ended.
    StepEnded,
    TimeLimit,
    /// A user changed the size (`scontrol update`).
    Update,
    /// Resources that the manager gave back have left the job.
    GivenBack,
    /// Resources that are out of use were replaced.
    Replaced,
    /// The resources of this job were transferred to the manager's job (`--dependency=expand`).
    Expanded(JobId),
}

impl fmt::Display for PartChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartChange::StepEnded => f.write_str("an srun step has ended"),
            PartChange::TimeLimit => f.write_str("the job's time limit was changed"),
            PartChange::Update => f.write_str("the job's size was changed"),
            PartChange::GivenBack => f.write_str("resources were given back"),
            PartChange::Replaced => f.write_str("resources that are out of use were replaced"),
            PartChange::Expanded(job) => write!(f, "job {job} expanded the job"),
        }
    }
}

/// Resources of a job that no step of its manager uses or will use.
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
