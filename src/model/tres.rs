//! Trackable resources: what is asked for, what is given, what the host has.

use crate::model::gpu::GpuShare;
use crate::model::is_default;
use crate::model::node::NodeParts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An amount of each resource. Memory is in MB (2^20 bytes), as everywhere in Slurm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct Tres {
    pub cpus: u32,
    pub mem_mb: u64,
    /// Whole GPUs.
    pub gpus: u32,
    /// Memory of GPUs that are shared by it, MB.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpu_mem_mb: u64,
    /// Parts of GPUs that are shared by parts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shards: u32,
}

impl Tres {
    pub const ZERO: Tres = Tres { cpus: 0, mem_mb: 0, gpus: 0, gpu_mem_mb: 0, shards: 0 };

    /// The same without GPUs and parts of them.
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

    /// What is left of `self` after `other` is taken; never below zero.
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

/// What a job or a step holds: the amount and which CPUs and GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Allocation {
    pub tres: Tres,
    /// Logical CPU numbers of the host. Empty where the host's CPUs are not told apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_ids: Vec<u32>,
    /// GPU numbers as `nvidia-smi` counts them, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_ids: Vec<u32>,
    /// How much it has of each of them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpu_share: GpuShare,
    /// The names of those that have one: numbers mean what a daemon counted, and names the same for
    /// each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gpu_uuids: BTreeMap<u32, String>,
}

impl Allocation {
    /// Its CPUs and GPUs.
    pub fn parts(&self) -> NodeParts {
        NodeParts {
            cpus: self.cpu_ids.iter().copied().collect(),
            gpus: self.gpu_ids.iter().copied().collect(),
        }
    }
}

/// What a job or a step has used. Zero means "nothing measured".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Peak resident memory in KiB.
    pub max_rss_kb: u64,
    /// CPU time in user mode, microseconds.
    pub user_us: u64,
    /// CPU time in the kernel, microseconds.
    pub system_us: u64,
    /// What was seen of its GPUs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpu: GpuUsage,
    /// If it ended by SIGKILL: how many processes the kernel ended for lack of memory on this host
    /// meanwhile, whichever they were; with a cgroup, how many of its own. `None` if that is not
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ooms: Option<u64>,
    /// What its tasks used, each for itself.
    #[serde(default, skip_serializing_if = "TaskUsage::is_unmeasured")]
    pub tasks: TaskUsage,
}

/// How busy GPUs were, and how much of their memory was used: all GPUs of a job or step together,
/// over some readings.
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

    /// Of the readings of both.
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

/// What the tasks of a step used, with their children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskUsage {
    /// Peak virtual memory in KiB.
    pub vm_kb: Spread,
    /// Page faults that had to wait for a disk.
    pub pages: Spread,
    /// Bytes of all reads.
    pub read: Spread,
    /// Bytes of all writes.
    pub written: Spread,
}

/// An amount over the tasks of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spread {
    /// Of the task that has the most.
    pub max: u64,
    /// The rank of that task.
    pub task: u32,
    /// Of all tasks together.
    pub total: u64,
}

impl TaskUsage {
    /// Whether nothing of it is known.
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
    /// Over tasks with their amounts.
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
    /// The use of two process trees side by side: times add up, the peak is the larger one.
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
    fn a_spread_names_the_first_task_that_has_the_most() {
        assert_eq!(Spread::over([(0, 3), (1, 9), (2, 9)]), Spread { max: 9, task: 1, total: 21 });
        assert_eq!(Spread::over([]), Spread::default());
    }

    #[test]
    fn a_usage_without_tasks_is_read_as_one_where_none_was_measured() {
        let old: Usage =
            serde_json::from_str(r#"{"max_rss_kb":1,"user_us":2,"system_us":3}"#).unwrap();
        assert_eq!(old, Usage { max_rss_kb: 1, user_us: 2, system_us: 3, ..Usage::default() });
        assert!(!serde_json::to_string(&old).unwrap().contains("tasks"));
    }
}
