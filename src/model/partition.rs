//! The host and its partitions, which are views of the host.

use crate::gpu::{Gpu, GpuShare};
use crate::node::NodeParts;
use crate::preempt::PreemptMode;
use crate::topology::{Place, Topology};
use crate::{Constraint, Refusal, Tres, is_default};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A partition and its limits on the host's resources. Limits that are not set do not apply.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Partition {
    pub name: String,
    /// Jobs in this partition get a GPU by default, and the partition is listed with the GPUs.
    pub is_gpu: bool,
    pub is_default: bool,
    /// The CPUs that its jobs may use, by number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<BTreeSet<u32>>,
    /// The GPUs that its jobs may use, by number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<BTreeSet<u32>>,
    /// Maximum number of CPUs for all its jobs together (`MaxCPUsPerNode`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpus: Option<u32>,
    /// Maximum memory for all its jobs together, MB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_mem_mb: Option<u64>,
    /// Maximum number of GPUs for all its jobs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpus: Option<u32>,
    #[serde(skip_serializing_if = "is_default")]
    pub over_subscribe: OverSubscribe,
    /// The longest time limit, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_time_secs: Option<u64>,
    /// The time limit of a job that requests none, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_time_secs: Option<u64>,
    /// The memory per CPU of a job that requests no memory, MB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub def_mem_per_cpu_mb: Option<u64>,
    /// `PriorityTier`: jobs in a higher tier go first, regardless of priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_tier: Option<u32>,
    /// How its jobs make room for those of a higher tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempt_mode: Option<PreemptMode>,
    /// The time from the warning of a preempted job to its end, in seconds.
    #[serde(skip_serializing_if = "is_default")]
    pub grace_secs: u64,
    /// The hours in which it starts jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_hours: Option<Hours>,
    #[serde(skip_serializing_if = "is_default")]
    pub state: PartitionState,
}

/// Whether a partition accepts and starts jobs (scontrol man page, `State`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PartitionState {
    /// It accepts jobs and starts them.
    #[default]
    Up,
    /// It accepts jobs but starts none.
    Down,
    /// It accepts no jobs but starts pending ones.
    Drain,
    /// It neither accepts nor starts jobs.
    Inactive,
}

impl PartitionState {
    pub const ALL: [PartitionState; 4] =
        [PartitionState::Up, PartitionState::Down, PartitionState::Drain, PartitionState::Inactive];

    /// Returns the name that scontrol shows.
    pub const fn name(self) -> &'static str {
        match self {
            PartitionState::Up => "UP",
            PartitionState::Down => "DOWN",
            PartitionState::Drain => "DRAIN",
            PartitionState::Inactive => "INACTIVE",
        }
    }

    /// Returns the name that sinfo shows.
    pub const fn code(self) -> &'static str {
        match self {
            PartitionState::Up => "up",
            PartitionState::Down => "down",
            PartitionState::Drain => "drain",
            PartitionState::Inactive => "inact",
        }
    }
}

/// Hours of each day, in minutes since midnight. The end is exclusive and may be earlier than the
/// start, for hours past midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hours {
    pub from: u16,
    pub until: u16,
}

/// Prints `18:00-08:00`.
impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hours { from, until } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, until / 60, until % 60)
    }
}

/// Prints `NO`, `EXCLUSIVE`, `YES:4` or `FORCE:2`.
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

/// The number of jobs that may share a CPU, in the words of slurm.conf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverSubscribe {
    /// One job per CPU.
    #[default]
    No,
    /// One job at a time, which gets everything that the partition may use.
    Exclusive,
    /// This many of the jobs that ask for it (`--oversubscribe`).
    Yes(u32),
    /// This many jobs, whether they ask for it or not.
    Force(u32),
}

impl Partition {
    /// Returns whether its jobs and those of `other` compete for exactly the same resources.
    pub fn is_like(&self, other: &Partition) -> bool {
        let bounds = |p: &Partition| (p.max_cpus, p.max_mem_mb, p.max_gpus);
        let is_unbounded = bounds(self) == (None, None, None);
        is_unbounded
            && bounds(other) == bounds(self)
            && self.cpus == other.cpus
            && self.gpus == other.gpus
    }

    /// Returns the `PriorityTier`.
    pub fn tier(&self) -> u32 {
        self.priority_tier.unwrap_or(1)
    }

    /// Returns the time limit of a job in this partition that requests `asked_secs`.
    pub fn limit_for(&self, asked_secs: Option<u64>) -> Option<u64> {
        asked_secs.or(self.default_time_secs).or(self.max_time_secs)
    }

    /// Returns the maximum that all its jobs together may use.
    pub fn bounds(&self) -> Tres {
        Tres {
            cpus: self.max_cpus.unwrap_or(u32::MAX),
            mem_mb: self.max_mem_mb.unwrap_or(u64::MAX),
            gpus: self.max_gpus.unwrap_or(u32::MAX),
            gpu_mem_mb: u64::MAX,
            shards: u32::MAX,
        }
    }

    /// Describes configured resources that this host does not have. Jobs run without them until
    /// they appear.
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
            own.filter(|own| *own > there).map(|own| format!("{own} {what} ({there} available)"))
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

    /// Returns the host's CPUs that the partition may use.
    pub fn cpus_of<'a>(&self, host: &'a Host) -> impl Iterator<Item = &'a u32> {
        host.cpu_ids.iter().filter(|cpu| self.cpus.as_ref().is_none_or(|own| own.contains(cpu)))
    }

    /// Returns the host's GPUs that the partition may use.
    pub fn gpus_of<'a>(&self, host: &'a Host) -> impl Iterator<Item = &'a Gpu> {
        host.gpus.iter().filter(|gpu| self.gpus.as_ref().is_none_or(|own| own.contains(&gpu.id)))
    }

    /// Returns the resources that the partition may use on an empty host.
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

/// The machine's resources that can change while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The CPUs that are online and that jobs may run on.
    pub topology: Topology,
    pub mem_mb: u64,
}

/// The host's resources as the daemon found them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Host {
    /// The short host name, which is also the node's name.
    pub name: String,
    /// Logical CPUs that jobs may use, by number.
    pub cpu_ids: Vec<u32>,
    /// The locations of the CPUs that the machine actually has.
    #[serde(default)]
    pub topology: Topology,
    /// The memory that jobs may use, MB.
    pub mem_mb: u64,
    /// The machine's memory, MB.
    #[serde(default)]
    pub machine_mem_mb: u64,
    /// The GPUs that jobs may use, by number.
    pub gpus: Vec<Gpu>,
    /// GPUs that are no longer found. Jobs that have one continue; no other job gets it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_gpus: Vec<Gpu>,
    /// GPU detection is still running and the GPUs are not known yet. `lost_gpus` holds those
    /// of the previous daemon.
    #[serde(default, skip_serializing_if = "is_default")]
    pub detects_gpus: bool,
    /// CPUs that have disappeared, and where they were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_cpus: Vec<Place>,
    /// Memory that has disappeared, MB.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lost_mem_mb: u64,
    /// CPUs and GPUs that the owner has drained. Jobs that have one continue.
    #[serde(default, skip_serializing_if = "NodeParts::is_empty")]
    pub drained: NodeParts,
    /// The number of shards per GPU. If it is 0, jobs that request shards are refused.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpu_shards: u32,
    /// Jobs without a GPU can still see all GPUs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpus_open: bool,
    /// `SLOTD_FEATURES`: what `--constraint` may ask for, besides the detected GPU models.
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

    /// Returns whether the host has GPUs, including ones that are no longer found.
    pub fn has_gpus(&self) -> bool {
        !self.gpus.is_empty() || !self.lost_gpus.is_empty()
    }

    /// Finds a GPU by number, including ones that are no longer found.
    pub fn gpu(&self, id: u32) -> Option<&Gpu> {
        self.gpus.iter().chain(&self.lost_gpus).find(|gpu| gpu.id == id)
    }

    /// Returns the UUIDs of these GPUs, as far as they have one.
    pub fn gpu_uuids(&self, ids: &[u32]) -> BTreeMap<u32, String> {
        ids.iter().filter_map(|id| Some((*id, self.gpu(*id)?.uuid.clone()?))).collect()
    }

    /// Returns its CPUs and GPUs, including ones that are no longer found.
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

    /// Returns the number of CPUs that are not drained.
    pub fn open_cpus(&self) -> u32 {
        self.cpu_ids.iter().filter(|cpu| !self.drained.cpus.contains(cpu)).count() as u32
    }

    /// Returns the GPU models as feature words; `generic_gpu` if only their number is known.
    pub fn gpu_models(&self) -> impl Iterator<Item = &str> {
        self.gpus.iter().map(|gpu| gpu.model.as_deref().unwrap_or("generic_gpu"))
    }

    /// Returns the features that `--constraint` may ask for: the configured ones, `cpu`, and on a
    /// host with GPUs `gpu` and their models. They include every feature that sinfo lists.
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

    /// Refuses a `--constraint` that this host does not satisfy.
    pub fn check_features(&self, wanted: &Constraint) -> Result<(), Refusal> {
        let known = self.known_features();
        // A missing feature may turn out to be a GPU model.
        if self.detects_gpus || wanted.is_met(&known) {
            return Ok(());
        }
        let known = known.into_iter().map(str::to_owned).collect();
        Err(Refusal::MissingFeature { wanted: wanted.to_string(), known })
    }

    /// Refuses a `--prefer` that names a feature unknown to this host.
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
    fn resources_that_the_host_lacks_are_listed() {
        let gpus = [0, 1].map(|id| Gpu { id, ..Gpu::default() }).to_vec();
        let host = Host { cpu_ids: vec![0, 1], mem_mb: 100, gpus, ..Host::default() };
        let own = Partition {
            name: "a".to_owned(),
            gpus: Some([1, 7].into()),
            max_mem_mb: Some(101),
            ..Partition::default()
        };
        let want = ["GPU 7", "101 MB of memory (100 available)"]
            .map(|what| format!("partition a may use {what}, which this host does not have"));
        assert_eq!(own.beyond(&host), want);
        assert_eq!(own.capacity(&host).mem_mb, 100);
        let whole = Partition { max_cpus: Some(2), max_gpus: Some(2), ..Partition::default() };
        assert_eq!(whole.beyond(&host), Vec::<String>::new());
    }
}
