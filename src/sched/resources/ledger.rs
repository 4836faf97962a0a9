//! The allocations: the CPUs, GPUs and memory that each job holds.
//!
//! An allocated CPU belongs to one job only, except in partitions whose jobs share CPUs; see
//! `gpu_pool` for shared GPUs. The ledger decides nothing: the plan decides whether a job may have
//! a resource, and `cpu_pick` which CPUs it gets.

use super::capacity::{Capacity, Part};
use super::gpu_pool::Elsewhere;
use crate::types::Config;
use slotd_model::{JobId, Tres};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq)]
pub struct Ledger {
    held: BTreeMap<JobId, Part>,
    capacity: Capacity,
    /// The empty host.
    whole: Capacity,
    /// The empty host with the usage by processes outside jobs, if there is any.
    without_jobs: Option<Capacity>,
    /// The empty host, including the drained parts.
    undrained: Capacity,
}

impl Ledger {
    pub fn new(config: &Config) -> Self {
        let undrained = Capacity::whole(config);
        let whole = undrained.clone().without(&config.host.drained);
        Ledger {
            held: BTreeMap::new(),
            capacity: whole.clone(),
            whole,
            undrained,
            without_jobs: None,
        }
    }

    /// Returns the resources that are free now.
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// Returns the resources that would be free on the empty host.
    pub fn whole(&self) -> &Capacity {
        &self.whole
    }

    /// Returns the resources that would be free on the empty host with nothing drained.
    pub(crate) fn undrained(&self) -> &Capacity {
        &self.undrained
    }

    /// Returns the resources in use, which may exceed those of a host that has shrunk.
    pub fn used(&self) -> Tres {
        self.capacity.used()
    }

    /// Returns the part that a job holds.
    pub fn held(&self, job: JobId) -> Option<&Part> {
        self.held.get(&job)
    }

    /// Returns the jobs and the parts that they hold.
    pub fn holders(&self) -> impl Iterator<Item = (JobId, &Part)> {
        self.held.iter().map(|(id, part)| (*id, part))
    }

    /// Returns whether any job is exclusive.
    pub fn is_exclusive(&self) -> bool {
        self.held.values().any(|part| part.place.exclusive)
    }

    /// Records the usage of the GPUs by processes outside jobs.
    pub(crate) fn set_elsewhere(&mut self, elsewhere: &BTreeMap<u32, Elsewhere>) {
        self.capacity.gpus.set_elsewhere(elsewhere);
    }

    /// Returns the CPUs that would be free without any job, or `None` if all would.
    pub(crate) fn without_jobs(&self) -> Option<&Capacity> {
        self.without_jobs.as_ref()
    }

    /// Marks `count` CPUs as used by processes outside jobs: those with the fewest jobs, and among
    /// them those listed first in `busy`.
    pub(crate) fn set_cpus_elsewhere(&mut self, count: u32, busy: &[u32]) {
        self.capacity.set_cpus_elsewhere(count, busy);
        self.without_jobs = (count > 0).then(|| {
            let mut capacity = self.whole.clone();
            capacity.set_as_elsewhere(&self.capacity);
            capacity
        });
    }

    /// Records the part that a job gets or already has, whether or not it is free.
    pub fn take(&mut self, job: JobId, part: Part) {
        self.capacity.take(&part);
        self.held.insert(job, part);
    }

    pub fn give_back(&mut self, job: JobId) {
        if let Some(part) = self.held.remove(&job) {
            self.capacity.give(&part);
        }
    }
}
