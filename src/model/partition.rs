//! The host and its partitions, which are views of it.

use crate::model::gpu::{Gpu, GpuShare};
use crate::model::node::NodeParts;
use crate::model::topology::{Place, Topology};
use crate::model::{Constraint, Refusal, Tres, is_default};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

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
    /// The longest time limit, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_time_secs: Option<u64>,
    /// The time limit of a job that names none, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_time_secs: Option<u64>,
    /// Memory for each CPU of a job that names none, MB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub def_mem_per_cpu_mb: Option<u64>,
    /// `PriorityTier`: jobs of a higher one go first, whatever their priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_tier: Option<u32>,
    /// When it starts jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_hours: Option<Hours>,
    #[serde(skip_serializing_if = "is_default")]
    pub state: PartitionState,
}

/// What a partition does with jobs (scontrol man page, `State`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PartitionState {
    /// It takes and starts them.
    #[default]
    Up,
    /// It takes them and starts none.
    Down,
    /// It takes none and starts those that wait.
    Drain,
    /// Neither.
    Inactive,
}

impl PartitionState {
    pub const ALL: [PartitionState; 4] =
        [PartitionState::Up, PartitionState::Down, PartitionState::Drain, PartitionState::Inactive];

    /// As scontrol shows it.
    pub const fn name(self) -> &'static str {
        match self {
            PartitionState::Up => "UP",
            PartitionState::Down => "DOWN",
            PartitionState::Drain => "DRAIN",
            PartitionState::Inactive => "INACTIVE",
        }
    }

    /// As sinfo shows it.
    pub const fn code(self) -> &'static str {
        match self {
            PartitionState::Up => "up",
            PartitionState::Down => "down",
            PartitionState::Drain => "drain",
            PartitionState::Inactive => "inact",
        }
    }
}

/// Hours of each day, in minutes since midnight. The end is not one of them, and may be before the
/// begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hours {
    pub from: u16,
    pub until: u16,
}

/// `18:00-08:00`
impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hours { from, until } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, until / 60, until % 60)
    }
}

/// `NO`, `EXCLUSIVE`, `YES:4`, `FORCE:2`.
impl fmt::Display for OverSubscribe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OverSubscribe::No => f.write_str("NO"),
            OverSubscribe::Exclusive => f.write_str("EXCLUSIVE"),
            OverSubscribe::Yes(jobs) => write!(f, "YES:{jobs}"),
            OverSubscribe::Force(jobs) => write!(f, "FORCE:{jobs}"),
        }
    }
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
        is_unbounded
            && bounds(other) == bounds(self)
            && self.cpus == other.cpus
            && self.gpus == other.gpus
    }

    /// `PriorityTier`
    pub fn tier(&self) -> u32 {
        self.priority_tier.unwrap_or(1)
    }

    /// The time limit in it of a job that asks for this one.
    pub fn limit_for(&self, asked_secs: Option<u64>) -> Option<u64> {
        asked_secs.or(self.default_time_secs).or(self.max_time_secs)
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

    /// What it was given that this host does not have, in words. Its jobs do without, until the
    /// host has it.
    pub fn beyond(&self, host: &Host) -> Vec<String> {
        let Partition { name, .. } = self;
        let there: BTreeSet<u32> = host.gpus.iter().map(|gpu| gpu.id).collect();
        let gpus = self
            .gpus
            .iter()
            .flatten()
            .filter(|id| !there.contains(id))
            .map(|id| format!("GPU {id}"));
        let gpus = gpus.filter(|_| !host.detects_gpus);
        let more = |what: &str, own: Option<u64>, there: u64| {
            own.filter(|own| *own > there).map(|own| format!("{own} {what} (there are {there})"))
        };
        let amounts = [
            more("CPUs", self.max_cpus.map(u64::from), host.cpu_ids.len() as u64),
            more("MB of memory", self.max_mem_mb, host.mem_mb),
            more(
                "GPUs",
                self.max_gpus.map(u64::from).filter(|_| !host.detects_gpus),
                there.len() as u64,
            ),
        ];
        let missing = gpus.chain(amounts.into_iter().flatten());
        missing
            .map(|what| format!("partition {name} may use {what}, which this host does not have"))
            .collect()
    }

    /// Its CPUs of a host.
    pub fn cpus_of<'a>(&self, host: &'a Host) -> impl Iterator<Item = &'a u32> {
        host.cpu_ids.iter().filter(|cpu| self.cpus.as_ref().is_none_or(|own| own.contains(cpu)))
    }

    /// Its GPUs of a host.
    pub fn gpus_of<'a>(&self, host: &'a Host) -> impl Iterator<Item = &'a Gpu> {
        host.gpus.iter().filter(|gpu| self.gpus.as_ref().is_none_or(|own| own.contains(&gpu.id)))
    }

    /// What it may use of a host with nobody on it.
    pub fn capacity(&self, host: &Host) -> Tres {
        let (bounds, gpus) = (self.bounds(), self.gpus_of(host).count() as u32);
        Tres {
            cpus: (self.cpus_of(host).count() as u32).min(bounds.cpus),
            mem_mb: host.mem_mb.min(bounds.mem_mb),
            gpus: gpus.min(bounds.gpus),
            gpu_mem_mb: self.gpus_of(host).fold(0, |sum, gpu| gpu.mem_mb.saturating_add(sum)),
            shards: GpuShare::Shards(host.gpu_shards).of(gpus).shards,
        }
    }
}

/// What the machine was seen to have of what may come and go under a running system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The CPUs that are online and that jobs may run on.
    pub topology: Topology,
    pub mem_mb: u64,
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
    /// What jobs may have of the memory, MB.
    pub mem_mb: u64,
    /// What the machine has of it, MB.
    #[serde(default)]
    pub machine_mem_mb: u64,
    /// Those that jobs may have, by number.
    pub gpus: Vec<Gpu>,
    /// Those that were there and are not found any more: jobs that have one go on, and no other
    /// gets it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_gpus: Vec<Gpu>,
    /// The GPUs are being detected: nobody knows yet which there are. `lost_gpus` has those of the
    /// daemon before.
    #[serde(default, skip_serializing_if = "is_default")]
    pub detects_gpus: bool,
    /// CPUs that were there and are not, where they sat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_cpus: Vec<Place>,
    /// Memory that was there and is not, MB.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lost_mem_mb: u64,
    /// Those of the CPUs and GPUs that the owner gives to no job: jobs that have one go on.
    #[serde(default, skip_serializing_if = "NodeParts::is_empty")]
    pub drained: NodeParts,
    /// Into how many parts each GPU is divided for jobs that ask for parts; 0: such jobs are
    /// refused.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpu_shards: u32,
    /// Jobs that have no GPU see them all the same.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpus_open: bool,
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

    /// Whether there are GPUs, though they may be out of order.
    pub fn has_gpus(&self) -> bool {
        !self.gpus.is_empty() || !self.lost_gpus.is_empty()
    }

    /// A GPU that a job may have, or has though it is not there any more.
    pub fn gpu(&self, id: u32) -> Option<&Gpu> {
        self.gpus.iter().chain(&self.lost_gpus).find(|gpu| gpu.id == id)
    }

    /// The names of these GPUs, of those that have one.
    pub fn gpu_uuids(&self, ids: &[u32]) -> BTreeMap<u32, String> {
        ids.iter().filter_map(|id| Some((*id, self.gpu(*id)?.uuid.clone()?))).collect()
    }

    /// Its CPUs and GPUs, and those that were there.
    pub fn parts(&self) -> NodeParts {
        let gpus = self.gpus.iter().chain(&self.lost_gpus).map(|gpu| gpu.id).collect();
        let cpus = self
            .cpu_ids
            .iter()
            .copied()
            .chain(self.lost_cpus.iter().map(|place| place.cpu))
            .collect();
        NodeParts { cpus, gpus }
    }

    /// CPUs that jobs may have now.
    pub fn open_cpus(&self) -> u32 {
        self.cpu_ids.iter().filter(|cpu| !self.drained.cpus.contains(cpu)).count() as u32
    }

    /// The models of the GPUs as feature words; `generic_gpu` where only their number is known.
    pub fn gpu_models(&self) -> impl Iterator<Item = &str> {
        self.gpus.iter().map(|gpu| gpu.model.as_deref().unwrap_or("generic_gpu"))
    }

    /// What `--constraint` may ask for: the configured features, `cpu`, and with GPUs `gpu` and
    /// their models. All that sinfo lists is among them.
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
        // One of them may be the model of a GPU.
        if self.detects_gpus || wanted.is_met(&known) {
            return Ok(());
        }
        let known = known.into_iter().map(str::to_owned).collect();
        Err(Refusal::MissingFeature { wanted: wanted.to_string(), known })
    }

    /// Refuses a `--prefer` that names a feature which this host does not know.
    pub fn check_preference(&self, wanted: &Constraint) -> Result<(), Refusal> {
        let known = self.known_features();
        if self.detects_gpus || wanted.names().iter().all(|name| known.contains(name)) {
            return Ok(());
        }
        let known = known.into_iter().map(str::to_owned).collect();
        Err(Refusal::UnknownPreference { wanted: wanted.to_string(), known })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_does_not_have_is_told() {
        let gpus = [0, 1].map(|id| Gpu { id, ..Gpu::default() }).to_vec();
        let host = Host { cpu_ids: vec![0, 1], mem_mb: 100, gpus, ..Host::default() };
        let own = Partition {
            name: "a".to_owned(),
            gpus: Some([1, 7].into()),
            max_mem_mb: Some(101),
            ..Partition::default()
        };
        let told = ["GPU 7", "101 MB of memory (there are 100)"]
            .map(|what| format!("partition a may use {what}, which this host does not have"));
        assert_eq!(own.beyond(&host), told);
        assert_eq!(own.capacity(&host).mem_mb, 100);
        let whole = Partition { max_cpus: Some(2), max_gpus: Some(2), ..Partition::default() };
        assert_eq!(whole.beyond(&host), Vec::<String>::new());
    }
}
