//! GPUs: what the host has, and how much of one a job may have.

use crate::model::{Tres, is_default};
use serde::{Deserialize, Serialize};

/// One GPU of the host, or a slice of one that is a GPU of its own (MIG).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// Its number, in the order of the PCI bus.
    pub id: u32,
    /// The model as one feature word: `nvidia_h200`. `None` where only the count is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its memory in MB; 0 where it is not known.
    #[serde(skip_serializing_if = "is_default")]
    pub mem_mb: u64,
    /// The name that it keeps whatever its number is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
}

/// How much of each of its GPUs a job has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuShare {
    #[default]
    Whole,
    /// So many MB of its memory; the others may have the rest.
    MemMb(u64),
    /// So many of the parts that the settings divide it into.
    Shards(u32),
}

impl GpuShare {
    /// What this much of so many GPUs comes to.
    pub fn of(self, gpus: u32) -> Tres {
        match self {
            GpuShare::Whole => Tres { gpus, ..Tres::ZERO },
            GpuShare::MemMb(mb) => Tres { gpu_mem_mb: mb.saturating_mul(u64::from(gpus)), ..Tres::ZERO },
            GpuShare::Shards(shards) => Tres { shards: shards.saturating_mul(gpus), ..Tres::ZERO },
        }
    }

    /// Of how many GPUs this amount is made up: the other way round.
    pub fn gpus_in(self, tres: &Tres) -> u32 {
        match self {
            GpuShare::Whole => tres.gpus,
            GpuShare::MemMb(mb) => {
                tres.gpu_mem_mb.checked_div(mb).and_then(|gpus| u32::try_from(gpus).ok()).unwrap_or(0)
            }
            GpuShare::Shards(shards) => tres.shards.checked_div(shards).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_share_comes_to_tells_the_number_of_gpus() {
        for share in [GpuShare::Whole, GpuShare::MemMb(300), GpuShare::Shards(2)] {
            assert_eq!(share.gpus_in(&share.of(3)), 3, "{share:?}");
        }
        assert_eq!(GpuShare::MemMb(0).gpus_in(&Tres::ZERO), 0);
    }
}
