//! What srun asks of an allocation: a step.

use crate::model::HostList;
use crate::model::binding::{CpuBind, GpuBind};
use crate::model::is_default;
use crate::model::placement::Placement;
use crate::model::request::{GpuRequest, JobRequest, MemRequest, NodeCount};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// srun: `12.0`, `12.1`, …
    #[default]
    Numbered,
    /// The command or shell of salloc (`12.interactive`).
    Interactive,
}

/// How the ranks of an MPI program find each other (srun man page, `--mpi`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mpi {
    /// Not by slotd.
    #[default]
    None,
    /// By the process management interface, version 2 or 1.
    Pmi2,
}

/// A step inside an allocation. `None`: as the allocation has it.
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
    /// `--relative`: how many of the allocation's nodes to leave out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relative: Option<u32>,
    pub nodelist: HostList,
    pub exclude: HostList,
    pub mem: MemRequest,
    pub gpu: GpuRequest,
    /// `--exact`, `--exclusive` or `-c` in a step: its CPUs are what its tasks are told that there
    /// are, rather than those of the job.
    pub exact: bool,
    /// `--overlap`: takes nothing from the other steps, and never waits.
    pub overlap: bool,
    /// `-O/--overcommit`: more tasks than CPUs.
    pub overcommit: bool,
    pub cpu_bind: CpuBind,
    #[serde(skip_serializing_if = "is_default")]
    pub placement: Placement,
    /// `--cpu-bind=verbose`: a line on each task's standard error that tells its CPUs.
    pub report_cpu_bind: bool,
    pub gpu_bind: GpuBind,
    pub kill_on_bad_exit: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub mpi: Mpi,
    /// The step's own limit, seconds; `None` is as long as the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit_secs: Option<u64>,
    /// `--immediate`: refuse rather than wait.
    pub immediate: bool,
    /// The command line.
    pub submit_line: String,
}

impl StepRequest {
    /// Whether other steps are not kept from what this one uses.
    pub fn is_shared(&self) -> bool {
        self.overlap || self.kind == StepKind::Interactive
    }

    /// The tasks in a job with this request: those of the job where nothing is said.
    pub fn tasks(&self, job: &JobRequest) -> u32 {
        self.ntasks.or(self.ntasks_per_node).unwrap_or_else(|| job.task_count()).max(1)
    }

    /// CPUs of each task. A step that says nothing of its size has that of its job; one that does
    /// has no `-c` from it (SLURM_CPUS_PER_TASK is not read by srun since Slurm 22.05).
    pub fn cpus_per_task(&self, job: &JobRequest) -> Option<u32> {
        let says_nothing = self.ntasks.is_none() && self.ntasks_per_node.is_none();
        self.cpus_per_task.or(job.cpus_per_task.filter(|_| says_nothing))
    }

    /// The CPUs that its tasks keep busy.
    pub fn cpus(&self, job: &JobRequest) -> u32 {
        self.tasks(job).saturating_mul(self.cpus_per_task(job).unwrap_or(1).max(1))
    }

    /// `None`: those of the job that no other step has claimed for itself, shared with other steps
    /// that say nothing.
    pub fn gpus(&self, job: &JobRequest) -> Option<u32> {
        self.gpu.count(self.tasks(job))
    }

    /// MB; `None`: all of the job's.
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
