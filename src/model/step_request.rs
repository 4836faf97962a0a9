//! A step request: what srun asks for inside an allocation.

use crate::HostList;
use crate::binding::{CpuBind, GpuBind};
use crate::is_default;
use crate::placement::Placement;
use crate::request::{GpuRequest, JobRequest, MemRequest, NodeCount};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// A step of srun: `12.0`, `12.1`, …
    #[default]
    Numbered,
    /// The command or shell that salloc runs (`12.interactive`).
    Interactive,
}

/// The protocol by which the ranks of an MPI program find each other (srun man page, `--mpi`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mpi {
    /// Without slotd's help.
    #[default]
    None,
    /// Through the process management interface, version 2 or 1.
    Pmi2,
}

/// A step inside an allocation. `None` means the allocation's value.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StepRequest {
    pub kind: StepKind,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ntasks: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ntasks_per_node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_per_task: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCount>,
    /// `--relative`: the number of the allocation's nodes to skip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relative: Option<u32>,
    pub nodelist: HostList,
    pub exclude: HostList,
    pub mem: MemRequest,
    pub gpu: GpuRequest,
    /// `--exact`, `--exclusive` or `-c` in a step: its tasks see the step's CPUs in their
    /// environment instead of the job's.
    pub exact: bool,
    /// `--overlap`: takes nothing from other steps and never waits.
    pub overlap: bool,
    /// `-O/--overcommit`: allows more tasks than CPUs.
    pub overcommit: bool,
    pub cpu_bind: CpuBind,
    #[serde(skip_serializing_if = "is_default")]
    pub placement: Placement,
    /// `--cpu-bind=verbose`: print the CPUs of each task on its standard error.
    pub report_cpu_bind: bool,
    pub gpu_bind: GpuBind,
    pub kill_on_bad_exit: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub mpi: Mpi,
    /// The step's own time limit in seconds; `None` means that of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit_secs: Option<u64>,
    /// `--immediate`: refuse instead of waiting.
    pub immediate: bool,
    /// The command line.
    pub submit_line: String,
}

impl StepRequest {
    /// Returns whether other steps may use this step's resources.
    pub fn is_shared(&self) -> bool {
        self.overlap || self.kind == StepKind::Interactive
    }

    /// Returns the number of tasks, which defaults to the job's.
    pub fn tasks(&self, job: &JobRequest) -> u32 {
        self.ntasks.or(self.ntasks_per_node).unwrap_or_else(|| job.task_count()).max(1)
    }

    /// Returns the CPUs per task. A step without a task count uses the job's value. One with a task
    /// count does not: since Slurm 22.05, srun ignores SLURM_CPUS_PER_TASK.
    pub fn cpus_per_task(&self, job: &JobRequest) -> Option<u32> {
        let says_nothing = self.ntasks.is_none() && self.ntasks_per_node.is_none();
        self.cpus_per_task.or(job.cpus_per_task.filter(|_| says_nothing))
    }

    /// Returns the number of CPUs that its tasks keep busy.
    pub fn cpus(&self, job: &JobRequest) -> u32 {
        self.tasks(job).saturating_mul(self.cpus_per_task(job).unwrap_or(1).max(1))
    }

    /// Returns the number of GPUs. `None` means all GPUs of the job that no other step has claimed,
    /// shared with other steps without a GPU request.
    pub fn gpus(&self, job: &JobRequest) -> Option<u32> {
        self.gpu.count(self.tasks(job))
    }

    /// Returns the memory in MB. `None` means all of the job's.
    pub fn mem_mb(&self, job: &JobRequest) -> Option<u64> {
        match self.mem {
            MemRequest::Default | MemRequest::None | MemRequest::PerNode(0) => None,
            MemRequest::PerNode(mb) => Some(mb),
            MemRequest::PerCpu(mb) => Some(mb.saturating_mul(u64::from(self.cpus(job)))),
            MemRequest::PerGpu(mb) => {
                Some(mb.saturating_mul(u64::from(self.gpus(job).unwrap_or(1))))
            }
        }
    }
}
