//! The host and its partitions, which are views of it.

use crate::model::gpu::{Gpu, GpuShare};
use crate::model::topology::Topology;
use crate::model::{Constraint, Refusal, Tres, is_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A partition, and what its jobs may have of the host. What is not said is not bounded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Partition {
    pub name: String,
    /// Jobs in it get a GPU unless they say otherwise, and it is shown with the GPUs.
    pub is_gpu: bool,
    pub is_default: bool,
    /// The CPUs that its jobs may use, by number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<BTreeSet<u32>>,
    /// The GPUs that its jobs may use, by number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<BTreeSet<u32>>,
    /// CPUs of all its jobs together (`MaxCPUsPerNode`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpus: Option<u32>,
    /// Memory of all its jobs together, MB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_mem_mb: Option<u64>,
    /// GPUs of all its jobs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpus: Option<u32>,
    #[serde(skip_serializing_if = "is_default")]
    pub over_subscribe: OverSubscribe,
}

/// How many jobs may use one CPU at a time, in the words of slurm.conf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverSubscribe {
    /// One.
    #[default]
    No,
    /// One, and each job has all that the partition may use to itself.
    Exclusive,
    /// So many of those that ask for it (`--oversubscribe`).
    Yes(u32),
    /// So many, whether they ask for it or not.
    Force(u32),
}

impl Partition {
    /// Whether its jobs and those of the other one wait for the very same resources.
    pub fn is_like(&self, other: &Partition) -> bool {
        let bounds = |p: &Partition| (p.max_cpus, p.max_mem_mb, p.max_gpus);
        let is_unbounded = bounds(self) == (None, None, None);
        is_unbounded && bounds(other) == bounds(self) && self.cpus == other.cpus && self.gpus == other.gpus
    }

    /// What all its jobs together may have.
    pub fn bounds(&self) -> Tres {
        Tres {
            cpus: self.max_cpus.unwrap_or(u32::MAX),
            mem_mb: self.max_mem_mb.unwrap_or(u64::MAX),
            gpus: self.max_gpus.unwrap_or(u32::MAX),
            gpu_mem_mb: u64::MAX,
            shards: u32::MAX,
        }
    }

    /// Its GPUs of a host.
    pub fn gpus_of<'a>(&self, host: &'a Host) -> impl Iterator<Item = &'a Gpu> {
        host.gpus.iter().filter(|gpu| self.gpus.as_ref().is_none_or(|own| own.contains(&gpu.id)))
    }

    /// What it may use of a host with nobody on it.
    pub fn capacity(&self, host: &Host) -> Tres {
        let is_own = |cpu: &&u32| self.cpus.as_ref().is_none_or(|own| own.contains(cpu));
        let (bounds, gpus) = (self.bounds(), self.gpus_of(host).count() as u32);
        Tres {
            cpus: (host.cpu_ids.iter().filter(is_own).count() as u32).min(bounds.cpus),
            mem_mb: host.mem_mb.min(bounds.mem_mb),
            gpus: gpus.min(bounds.gpus),
            gpu_mem_mb: self.gpus_of(host).fold(0, |sum, gpu| gpu.mem_mb.saturating_add(sum)),
            shards: GpuShare::Shards(host.gpu_shards).of(gpus).shards,
        }
    }
}

/// What the host has, as the daemon found it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Host {
    /// The short host name: the node's name.
    pub name: String,
    /// Logical CPUs that jobs may use, by number.
    pub cpu_ids: Vec<u32>,
    /// Where those of them sit that are really there.
    #[serde(default)]
    pub topology: Topology,
    pub mem_mb: u64,
    /// Those that jobs may have, by number.
    pub gpus: Vec<Gpu>,
    /// Those that were there and are not found any more: jobs that have one go on, and no other gets it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_gpus: Vec<Gpu>,
    /// Into how many parts each GPU is divided for jobs that ask for parts; 0: such jobs are refused.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpu_shards: u32,
    /// `SLOTD_FEATURES`: what `--constraint` may ask for, beside the detected GPU models.
    pub features: Vec<String>,
    /// System, release and version: `Linux 6.1.0 #1 SMP`.
    pub kernel: String,
    pub arch: String,
    /// When the machine booted, in seconds since 1970.
    pub boot_secs: i64,
}

impl Host {
    pub fn tres(&self) -> Tres {
        let gpus = self.gpus.len() as u32;
        Tres {
            cpus: self.cpu_ids.len() as u32,
            mem_mb: self.mem_mb,
            gpus,
            gpu_mem_mb: self.gpus.iter().fold(0, |sum, gpu| gpu.mem_mb.saturating_add(sum)),
            shards: GpuShare::Shards(self.gpu_shards).of(gpus).shards,
        }
    }

    /// The models of the GPUs as feature words; `generic_gpu` where only their number is known.
    pub fn gpu_models(&self) -> impl Iterator<Item = &str> {
        self.gpus.iter().map(|gpu| gpu.model.as_deref().unwrap_or("generic_gpu"))
    }

    /// What `--constraint` may ask for: the configured features, `cpu`, and with GPUs `gpu` and their models. All that
    /// sinfo lists is among them.
    pub fn known_features(&self) -> Vec<&str> {
        let kinds = ["cpu"].into_iter().chain((!self.gpus.is_empty()).then_some("gpu"));
        let mut known = Vec::new();
        for name in self.features.iter().map(String::as_str).chain(self.gpu_models()).chain(kinds) {
            if !known.contains(&name) {
                known.push(name);
            }
        }
        known
    }

    /// Refuses a `--constraint` that asks for something that this host does not have.
    pub fn check_features(&self, wanted: &Constraint) -> Result<(), Refusal> {
        let known = self.known_features();
        if wanted.is_met(&known) {
            return Ok(());
        }
        let known = known.into_iter().map(str::to_owned).collect();
        Err(Refusal::MissingFeature { wanted: wanted.to_string(), known })
    }
}
