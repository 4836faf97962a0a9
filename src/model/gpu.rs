//! GPUs of the host, and the share of a GPU that a job may use.

use crate::{JobId, Tres, is_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A GPU of the host, or a MIG slice, which counts as a GPU of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// The GPU's number, in PCI bus order.
    pub id: u32,
    /// The model as one feature word: `nvidia_h200`. `None` if only the number of GPUs is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Memory in MB; 0 if unknown.
    #[serde(skip_serializing_if = "is_default")]
    pub mem_mb: u64,
    /// The name that stays the same when the GPU's number changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub maker: Maker,
    /// The identifier that programs select it by, if that is not its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
}

/// The vendor, which decides the libraries that programs use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Maker {
    #[default]
    Nvidia,
    Amd,
}

/// A sample of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GpuReading {
    pub id: u32,
    /// Memory in MB that a new process cannot get.
    pub used_mb: u64,
    /// Utilization in percent.
    pub busy: Option<u32>,
    /// The processes on the GPU; `None` if they cannot be listed.
    pub processes: Option<Vec<GpuProcess>>,
}

/// A process on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuProcess {
    /// The job that the process claims to belong to.
    pub job: Option<JobId>,
    pub mem_mb: Option<u64>,
}

impl Gpu {
    /// Returns the identifier that programs select the GPU by.
    pub fn visible_as(&self) -> String {
        self.handle.clone().unwrap_or_else(|| self.id.to_string())
    }

    /// Returns whether both are the same GPU, possibly detected at different times.
    pub fn is_same_as(&self, other: &Gpu) -> bool {
        match (&self.uuid, &other.uuid) {
            (Some(own), Some(other)) => own == other,
            _ => self.id == other.id && self.maker == other.maker,
        }
    }
}

/// Gives detected GPUs the numbers that they had before, so that a GPU that vanishes does not shift
/// the others: a number keeps its meaning until the machine reboots. A GPU whose number is no
/// longer its index is passed to programs by UUID.
pub fn keep_numbers(known: &[Gpu], mut found: Vec<Gpu>) -> Vec<Gpu> {
    let mut taken: BTreeSet<u32> = known.iter().map(|gpu| gpu.id).collect();
    for gpu in &mut found {
        let place = gpu.id;
        match known.iter().find(|known| known.is_same_as(gpu)) {
            Some(known) => gpu.id = known.id,
            None if taken.contains(&place) => {
                gpu.id = (0..=u32::MAX).find(|id| !taken.contains(id)).unwrap_or(place)
            }
            None => {}
        }
        taken.insert(gpu.id);
        if gpu.id != place && gpu.handle.is_none() {
            gpu.handle.clone_from(&gpu.uuid);
        }
    }
    found.sort_by_key(|gpu| gpu.id);
    found
}

/// The share of each of its GPUs that a job gets.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum GpuShare {
    #[default]
    Whole,
    /// This many MB of the GPU's memory; other jobs may use the rest.
    MemMb(u64),
    /// This many of the shards that the settings divide a GPU into.
    Shards(u32),
}

impl GpuShare {
    /// Returns the resources that this share of `gpus` GPUs amounts to.
    pub fn of(self, gpus: u32) -> Tres {
        match self {
            GpuShare::Whole => Tres { gpus, ..Tres::ZERO },
            GpuShare::MemMb(mb) => {
                Tres { gpu_mem_mb: mb.saturating_mul(u64::from(gpus)), ..Tres::ZERO }
            }
            GpuShare::Shards(shards) => Tres { shards: shards.saturating_mul(gpus), ..Tres::ZERO },
        }
    }

    /// Returns the number of GPUs that add up to `tres`: the inverse of [`GpuShare::of`].
    pub fn gpus_in(self, tres: &Tres) -> u32 {
        match self {
            GpuShare::Whole => tres.gpus,
            GpuShare::MemMb(mb) => tres
                .gpu_mem_mb
                .checked_div(mb)
                .and_then(|gpus| u32::try_from(gpus).ok())
                .unwrap_or(0),
            GpuShare::Shards(shards) => tres.shards.checked_div(shards).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_keeps_its_number_when_another_one_vanishes() {
        let gpu = |id, uuid: &str| Gpu { id, uuid: Some(uuid.to_owned()), ..Gpu::default() };
        let seen =
            |gpus: Vec<Gpu>| gpus.iter().map(|gpu| (gpu.id, gpu.visible_as())).collect::<Vec<_>>();
        let known = [gpu(0, "a"), gpu(1, "b")];
        assert_eq!(seen(keep_numbers(&known, vec![gpu(0, "b")])), [(1, "b".to_owned())]);
        let back = keep_numbers(&known, vec![gpu(0, "a"), gpu(1, "b"), gpu(2, "c")]);
        assert_eq!(seen(back), [(0, "0".to_owned()), (1, "1".to_owned()), (2, "2".to_owned())]);
        let new = keep_numbers(&known, vec![gpu(0, "c"), gpu(1, "b")]);
        assert_eq!(seen(new), [(1, "1".to_owned()), (2, "c".to_owned())]);
        let unnamed = keep_numbers(&[Gpu::default()], vec![Gpu::default()]);
        assert_eq!(seen(unnamed), [(0, "0".to_owned())]);
    }

    #[test]
    fn gpus_in_is_the_inverse_of_of() {
        for share in [GpuShare::Whole, GpuShare::MemMb(300), GpuShare::Shards(2)] {
            assert_eq!(share.gpus_in(&share.of(3)), 3, "{share:?}");
        }
        assert_eq!(GpuShare::MemMb(0).gpus_in(&Tres::ZERO), 0);
    }
}
