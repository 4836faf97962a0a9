//! Who has which CPU, which GPU and how much memory.
//!
//! A CPU that is given is in nobody else's hands, but for those of partitions whose jobs share
//! them; how GPUs are shared is told in `gpu_pool`. The ledger decides nothing: whether a job may have
//! something is the plan's business, and which CPUs it gets that of `cpu_pick`.

use super::capacity::{Capacity, Part};
use super::gpu_pool::Elsewhere;
use crate::model::{JobId, Tres};
use crate::sched::types::Config;
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq)]
pub struct Ledger {
    held: BTreeMap<JobId, Part>,
    capacity: Capacity,
    /// The host with nobody on it.
    whole: Capacity,
    /// The same with what is no job's, where something is.
    without_jobs: Option<Capacity>,
    /// The same with what its owner has taken out of use.
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

    /// What is free now.
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// What would be free with nobody on the host.
    pub fn whole(&self) -> &Capacity {
        &self.whole
    }

    /// What would be free on an empty host of which nothing is out of use.
    pub fn undrained(&self) -> &Capacity {
        &self.undrained
    }

    /// What is in use, which may be more than a host that has shrunk has.
    pub fn used(&self) -> Tres {
        self.capacity.used()
    }

    /// What a job holds.
    pub fn held(&self, job: JobId) -> Option<&Part> {
        self.held.get(&job)
    }

    /// What each job holds.
    pub fn holders(&self) -> impl Iterator<Item = (JobId, &Part)> {
        self.held.iter().map(|(id, part)| (*id, part))
    }

    /// Whether a job has what it is in to itself.
    pub fn is_exclusive(&self) -> bool {
        self.held.values().any(|part| part.place.exclusive)
    }

    /// Notes what others than jobs have of the GPUs.
    pub fn set_elsewhere(&mut self, elsewhere: &BTreeMap<u32, Elsewhere>) {
        self.capacity.gpus.set_elsewhere(elsewhere);
    }

    /// What would be free of CPUs without any job. `None`: all.
    pub fn without_jobs(&self) -> Option<&Capacity> {
        self.without_jobs.as_ref()
    }

    /// Notes that so many CPUs are taken by what is no job's: those with the fewest jobs, and among
    /// them those that `busy` names first.
    pub fn set_cpus_elsewhere(&mut self, count: u32, busy: &[u32]) {
        self.capacity.set_cpus_elsewhere(count, busy);
        self.without_jobs = (count > 0).then(|| {
            let mut capacity = self.whole.clone();
            capacity.set_as_elsewhere(&self.capacity);
            capacity
        });
    }

    /// Notes what a job gets, or has already, whether it is free or not.
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
