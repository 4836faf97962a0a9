//! The resources of the host, their allocation to jobs, and their usage by processes outside jobs.
//!
//! Only the [`Ledger`] records allocations; everything that is allocated, released or lost goes
//! through here.

pub(crate) mod capacity;
pub(crate) mod cpu_pick;
pub(crate) mod cpu_use;
mod gates;
pub(crate) mod gpu_pool;
pub(crate) mod gpu_use;
pub(crate) mod ledger;
pub(crate) mod limits;
pub(crate) mod machine;
pub(crate) mod managers;
pub(crate) mod node;
mod outages;
pub(crate) mod readings;

use super::records::Records;
use super::types::Config;
use capacity::Part;
use cpu_use::{CpuUse, Lacks};
use gpu_use::GpuUse;
use ledger::Ledger;
use managers::Managers;
use node::Node;
use slotd_model::license::LicenseUse;
use slotd_model::partition::Host;
use slotd_model::reservation::Reservation;
use slotd_model::tres::Allocation;
use slotd_model::{Job, JobId, Partition, Timestamp, Tres};
use std::collections::BTreeSet;

#[derive(Debug, Clone)]
pub struct Resources {
    config: Config,
    ledger: Ledger,
    gpu_use: GpuUse,
    cpu_use: CpuUse,
    /// Whether the node accepts jobs.
    node: Node,
    managers: Managers,
    /// The numbers of the reservations whose jobs may start.
    open: BTreeSet<u32>,
}

impl Resources {
    pub fn new(config: Config) -> Self {
        Resources {
            ledger: Ledger::new(&config),
            config,
            gpu_use: GpuUse::default(),
            cpu_use: CpuUse::default(),
            node: Node::default(),
            managers: Managers::default(),
            open: BTreeSet::new(),
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn host(&self) -> &Host {
        &self.config.host
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn node(&self) -> &Node {
        &self.node
    }

    pub fn node_mut(&mut self) -> &mut Node {
        &mut self.node
    }

    pub fn managers(&self) -> &Managers {
        &self.managers
    }

    pub(crate) fn managers_mut(&mut self) -> &mut Managers {
        &mut self.managers
    }

    /// Records the part that a job gets, or already has.
    pub fn take(&mut self, job: JobId, part: Part) {
        self.ledger.take(job, part);
    }

    /// Replaces the allocation of a job.
    pub fn replace(&mut self, job: JobId, alloc: Allocation) {
        if let Some(place) = self.ledger.held(job).map(|held| held.place.clone()) {
            self.ledger.give_back(job);
            self.ledger.take(job, Part { alloc, place });
        }
    }

    /// Counts what a running job holds again, after a change of its request.
    pub(crate) fn recount(&mut self, job: &Job) {
        if let Some(part) = Part::of(job, &self.config)
            && self.ledger.held(job.id).is_some()
        {
            self.ledger.give_back(job.id);
            self.ledger.take(job.id, part);
        }
    }

    /// Returns the licenses and their use.
    pub fn licenses(&self) -> impl Iterator<Item = LicenseUse> {
        self.ledger.capacity().licenses()
    }

    /// Releases everything that a job holds.
    pub fn release(&mut self, job: JobId) {
        self.ledger.give_back(job);
        self.managers.remove(job);
    }

    /// Records whether a pending job waits for GPUs, or for CPUs, that processes outside jobs use.
    pub(crate) fn note_wait(&mut self, job: JobId, for_gpus: bool, for_cpus: bool) {
        self.gpu_use.readings.note_wait(job, for_gpus);
        self.cpu_use.readings.note_wait(job, for_cpus);
    }

    /// Requests the readings that a job lacks to start.
    pub(crate) fn want_readings(&mut self, lacks: Lacks) {
        if lacks.gpus {
            self.gpu_use.readings.want();
        }
        if lacks.cpus {
            self.cpu_use.readings.want();
        }
    }

    /// Returns the resources that jobs hold.
    pub fn allocated(&self) -> Tres {
        let used = self.ledger.used();
        // A CPU that jobs share counts once for each job, but not a suspended one.
        let cpus = used.cpus.saturating_sub(self.ledger.capacity().lent_cpus());
        Tres { cpus: cpus.min(self.host().tres().cpus), ..used }
    }

    /// Returns whether one job has the whole host to itself.
    pub fn is_exclusive(&self) -> bool {
        self.ledger.is_exclusive() && self.allocated().cpus >= self.host().tres().cpus
    }

    /// Replaces the GPUs, the memory and the partitions. Running jobs keep their resources.
    pub fn set_host(
        &mut self,
        host: Host,
        all_partitions: Vec<Partition>,
        records: &Records,
        now: Timestamp,
    ) {
        self.config.host = host;
        self.note_losses(now);
        self.config.set_partitions(all_partitions);
        self.ledger = Ledger::new(&self.config);
        for job in records.active_jobs() {
            if let Some(part) = Part::of(job, &self.config) {
                self.ledger.take(job.id, part);
            }
        }
        self.note_elsewhere();
        self.note_cpus_elsewhere();
    }

    /// Replaces the reservations. Running jobs keep their resources.
    pub(crate) fn set_reservations(
        &mut self,
        all: Vec<Reservation>,
        records: &Records,
        now: Timestamp,
    ) {
        self.config.reservations = all;
        self.note_open_reservations(now);
        let (host, partitions) = (self.host().clone(), self.config.all_partitions.clone());
        self.set_host(host, partitions, records, now);
    }

    /// Notes which reservations let jobs start now. Returns whether they are others than before.
    pub(crate) fn note_open_reservations(&mut self, now: Timestamp) -> bool {
        let open = self.config.reservations.iter().filter(|known| known.is_open(now));
        let open: BTreeSet<u32> = open.map(|known| known.number).collect();
        std::mem::replace(&mut self.open, open) != self.open
    }

    /// Returns the reservations that were open when they were last looked at.
    pub(crate) fn open_reservations(&self) -> &BTreeSet<u32> {
        &self.open
    }

    /// Applies a changed configuration. Facts about the machine are kept, because they are more
    /// recent here, and so are the parts out of use, which are not configured.
    pub fn set_config(&mut self, config: Config, records: &Records, now: Timestamp) {
        let known = self.host().clone();
        let mut host = Host {
            gpus: known.gpus,
            lost_gpus: known.lost_gpus,
            detects_gpus: known.detects_gpus,
            topology: known.topology,
            lost_cpus: known.lost_cpus,
            machine_mem_mb: known.machine_mem_mb,
            lost_mem_mb: known.lost_mem_mb,
            drained: known.drained,
            ..config.host.clone()
        };
        config.capacities.give(&mut host);
        if !config.avoids_used_cpus {
            self.cpu_use = CpuUse::default();
        }
        let all_partitions = config.all_partitions.clone();
        let reservations = std::mem::take(&mut self.config.reservations);
        self.config = Config { reservations, ..config };
        self.set_host(host, all_partitions, records, now);
    }
}
