//! Trackable resources: what is asked for, what is given, what the host has.

use serde::{Deserialize, Serialize};

/// An amount of each resource. Memory is in MB (2^20 bytes), as everywhere in Slurm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct Tres {
    pub cpus: u32,
    pub mem_mb: u64,
    pub gpus: u32,
}

impl Tres {
    pub const ZERO: Tres = Tres { cpus: 0, mem_mb: 0, gpus: 0 };

    /// Whether `self` has room for `want`.
    pub fn fits(&self, want: &Tres) -> bool {
        want.cpus <= self.cpus && want.mem_mb <= self.mem_mb && want.gpus <= self.gpus
    }

    pub fn plus(&self, other: &Tres) -> Tres {
        Tres {
            cpus: self.cpus.saturating_add(other.cpus),
            mem_mb: self.mem_mb.saturating_add(other.mem_mb),
            gpus: self.gpus.saturating_add(other.gpus),
        }
    }

    /// What is left of `self` after `other` is taken; never below zero.
    pub fn minus(&self, other: &Tres) -> Tres {
        Tres {
            cpus: self.cpus.saturating_sub(other.cpus),
            mem_mb: self.mem_mb.saturating_sub(other.mem_mb),
            gpus: self.gpus.saturating_sub(other.gpus),
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
}

impl Usage {
    /// The use of two process trees side by side: times add up, the peak is the larger one.
    pub fn merge(self, other: Usage) -> Usage {
        Usage {
            max_rss_kb: self.max_rss_kb.max(other.max_rss_kb),
            user_us: self.user_us + other.user_us,
            system_us: self.system_us + other.system_us,
        }
    }
}
