//! The host and its partitions, which are views of it.

use crate::model::gpu::{Gpu, GpuShare};
use crate::model::topology::Topology;
use crate::model::{Constraint, Refusal, Tres, is_default};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    pub name: String,
    /// Jobs in it get a GPU unless they say otherwise, and it is shown with the GPUs.
    pub is_gpu: bool,
    pub is_default: bool,
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
