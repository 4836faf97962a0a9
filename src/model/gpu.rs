//! GPUs: what the host has, and how much of one a job may have.

use crate::model::{JobId, Tres, is_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

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
    /// The name that it keeps whatever its place is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub maker: Maker,
    /// How programs are told of it, where that is not its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
}

/// Whose libraries programs use it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Maker {
    #[default]
    Nvidia,
    Amd,
}

/// How a GPU is used at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GpuReading {
    pub id: u32,
    /// MB of its memory that a new process cannot have.
    pub used_mb: u64,
    /// How busy it is, percent.
    pub busy: Option<u32>,
    /// The processes on it; `None` where they cannot be told.
    pub processes: Option<Vec<GpuProcess>>,
}

/// A process on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuProcess {
    /// The job that it says it is of.
    pub job: Option<JobId>,
    pub mem_mb: Option<u64>,
}

impl Gpu {
    /// How programs are told of it.
    pub fn visible_as(&self) -> String {
        self.handle.clone().unwrap_or_else(|| self.id.to_string())
    }

    /// Whether they are one GPU, seen at different times.
    pub fn is_same_as(&self, other: &Gpu) -> bool {
        match (&self.uuid, &other.uuid) {
            (Some(own), Some(other)) => own == other,
            _ => self.id == other.id && self.maker == other.maker,
        }
    }
}

/// Gives what was found the numbers under which it is known, so that a GPU that vanishes does not
/// shift the others: a number says one thing as long as the machine runs. One that has another
/// place now is told to programs by its UUID.
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

/// How much of each of its GPUs a job has.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize,
)]
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
            GpuShare::MemMb(mb) => {
                Tres { gpu_mem_mb: mb.saturating_mul(u64::from(gpus)), ..Tres::ZERO }
            }
            GpuShare::Shards(shards) => Tres { shards: shards.saturating_mul(gpus), ..Tres::ZERO },
        }
    }

    /// Of how many GPUs this amount is made up: the other way round.
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
    fn what_a_share_comes_to_tells_the_number_of_gpus() {
        for share in [GpuShare::Whole, GpuShare::MemMb(300), GpuShare::Shards(2)] {
            assert_eq!(share.gpus_in(&share.of(3)), 3, "{share:?}");
        }
        assert_eq!(GpuShare::MemMb(0).gpus_in(&Tres::ZERO), 0);
    }
}
