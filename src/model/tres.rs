//! Trackable resources: amounts, allocations and usage.

use crate::gpu::GpuShare;
use crate::is_default;
use crate::node::NodeParts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An amount of each resource. Memory is in MB (2^20 bytes), as everywhere in Slurm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct Tres {
    pub cpus: u32,
    pub mem_mb: u64,
    /// Whole GPUs.
    pub gpus: u32,
    /// Memory of GPUs that are shared by memory, MB.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpu_mem_mb: u64,
    /// Shards of GPUs that are divided into shards.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shards: u32,
}

impl Tres {
    pub const ZERO: Tres = Tres { cpus: 0, mem_mb: 0, gpus: 0, gpu_mem_mb: 0, shards: 0 };

    /// Returns the amount without GPUs and shares of GPUs.
    #[must_use]
    pub fn without_gpus(self) -> Tres {
        Tres { gpus: 0, gpu_mem_mb: 0, shards: 0, ..self }
    }

    pub fn plus(&self, other: &Tres) -> Tres {
        Tres {
            cpus: self.cpus.saturating_add(other.cpus),
            mem_mb: self.mem_mb.saturating_add(other.mem_mb),
            gpus: self.gpus.saturating_add(other.gpus),
            gpu_mem_mb: self.gpu_mem_mb.saturating_add(other.gpu_mem_mb),
            shards: self.shards.saturating_add(other.shards),
        }
    }

    /// Subtracts `other`; no amount goes below zero.
    pub fn minus(&self, other: &Tres) -> Tres {
        Tres {
            cpus: self.cpus.saturating_sub(other.cpus),
            mem_mb: self.mem_mb.saturating_sub(other.mem_mb),
            gpus: self.gpus.saturating_sub(other.gpus),
            gpu_mem_mb: self.gpu_mem_mb.saturating_sub(other.gpu_mem_mb),
            shards: self.shards.saturating_sub(other.shards),
        }
    }
}

/// The resources that a job or a step holds: the amounts, and the CPU and GPU numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Allocation {
    pub tres: Tres,
    /// Logical CPU numbers of the host. Empty if the host's CPUs are not tracked individually.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_ids: Vec<u32>,
    /// GPU numbers as `nvidia-smi` counts them, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_ids: Vec<u32>,
    /// The share of each GPU.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpu_share: GpuShare,
    /// The UUIDs of the GPUs that have one. A number is only valid for the daemon that assigned it;
    /// a UUID never changes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gpu_uuids: BTreeMap<u32, String>,
}

impl Allocation {
    /// Returns its CPUs and GPUs.
    pub fn parts(&self) -> NodeParts {
        NodeParts {
            cpus: self.cpu_ids.iter().copied().collect(),
            gpus: self.gpu_ids.iter().copied().collect(),
        }
    }
}

/// The resource use of a job or a step. Zero means "not measured".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Peak resident memory in KiB.
    pub max_rss_kb: u64,
    /// CPU time in user mode, microseconds.
    pub user_us: u64,
    /// CPU time in the kernel, microseconds.
    pub system_us: u64,
    /// Samples of its GPUs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpu: GpuUsage,
    /// If it ended by SIGKILL: the number of processes that the kernel's OOM killer ended in the
    /// meantime, in its cgroup or, without a cgroup, on the whole host. `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ooms: Option<u64>,
    /// The use per task.
    #[serde(default, skip_serializing_if = "TaskUsage::is_unmeasured")]
    pub tasks: TaskUsage,
}

/// Utilization and memory of all GPUs of a job or step together, summed over samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuUsage {
    pub readings: u64,
    /// Percent of one GPU.
    pub busy_max: u64,
    pub busy_sum: u64,
    pub mem_max_mb: u64,
    pub mem_sum_mb: u64,
}

impl GpuUsage {
    pub fn once(busy: u64, mem_mb: u64) -> GpuUsage {
        GpuUsage {
            readings: 1,
            busy_max: busy,
            busy_sum: busy,
            mem_max_mb: mem_mb,
            mem_sum_mb: mem_mb,
        }
    }

    /// Combines the samples of both.
    #[must_use]
    pub fn merge(self, other: GpuUsage) -> GpuUsage {
        GpuUsage {
            readings: self.readings.saturating_add(other.readings),
            busy_max: self.busy_max.max(other.busy_max),
            busy_sum: self.busy_sum.saturating_add(other.busy_sum),
            mem_max_mb: self.mem_max_mb.max(other.mem_max_mb),
            mem_sum_mb: self.mem_sum_mb.saturating_add(other.mem_sum_mb),
        }
    }
}

/// The use of a step's tasks, including their children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskUsage {
    /// Peak virtual memory in KiB.
    pub vm_kb: Spread,
    /// Page faults that had to wait for a disk.
    pub pages: Spread,
    /// Bytes read.
    pub read: Spread,
    /// Bytes written.
    pub written: Spread,
}

/// The distribution of an amount over the tasks of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spread {
    /// The largest amount of a single task.
    pub max: u64,
    /// The rank of that task.
    pub task: u32,
    /// The sum over all tasks.
    pub total: u64,
}

impl TaskUsage {
    /// Returns whether nothing was measured.
    pub fn is_unmeasured(&self) -> bool {
        *self == TaskUsage::default()
    }

    fn merge(self, other: TaskUsage) -> TaskUsage {
        TaskUsage {
            vm_kb: self.vm_kb.merge(other.vm_kb),
            pages: self.pages.merge(other.pages),
            read: self.read.merge(other.read),
            written: self.written.merge(other.written),
        }
    }
}

impl Spread {
    /// Builds the spread from (rank, amount) pairs.
    pub fn over(tasks: impl IntoIterator<Item = (u32, u64)>) -> Spread {
        tasks.into_iter().fold(Spread::default(), |seen, (task, amount)| {
            seen.merge(Spread { max: amount, task, total: amount })
        })
    }

    fn merge(self, other: Spread) -> Spread {
        let most = if other.max > self.max { other } else { self };
        Spread { total: self.total.saturating_add(other.total), ..most }
    }
}

impl Usage {
    /// Combines the use of two process trees that ran side by side: times add up, and the peak is
    /// the larger one.
    pub fn merge(self, other: Usage) -> Usage {
        Usage {
            max_rss_kb: self.max_rss_kb.max(other.max_rss_kb),
            user_us: self.user_us + other.user_us,
            system_us: self.system_us + other.system_us,
            gpu: self.gpu.merge(other.gpu),
            host_ooms: self.host_ooms.max(other.host_ooms),
            tasks: self.tasks.merge(other.tasks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_names_the_first_task_with_the_maximum() {
        assert_eq!(Spread::over([(0, 3), (1, 9), (2, 9)]), Spread { max: 9, task: 1, total: 21 });
        assert_eq!(Spread::over([]), Spread::default());
    }

    #[test]
    fn a_usage_without_tasks_reads_as_unmeasured() {
        let old: Usage =
            serde_json::from_str(r#"{"max_rss_kb":1,"user_us":2,"system_us":3}"#).unwrap();
        assert_eq!(old, Usage { max_rss_kb: 1, user_us: 2, system_us: 3, ..Usage::default() });
        assert!(!serde_json::to_string(&old).unwrap().contains("tasks"));
    }
}
