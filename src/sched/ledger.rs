//! Who has which CPU, which GPU and how much memory.
//!
//! A CPU that is given is in nobody else's hands; how GPUs are shared is told in `cards`. The ledger decides nothing:
//! whether a job may have something is the plan's business, and which CPUs it gets that of `seats`.

use super::cards::Cards;
use super::room::{Part, Room};
use super::seats;
use crate::model::partition::Host;
use crate::model::tres::Allocation;
use crate::model::{JobId, Tres};
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    free_cpus: BTreeSet<u32>,
    used_cpus: BTreeSet<u32>,
    used: Tres,
    gpus: Cards,
    holders: u32,
    exclusive: Option<JobId>,
    room: Room,
    /// The host with nobody on it.
    whole: Room,
}

impl Ledger {
    pub fn new(host: &Host) -> Self {
        Ledger {
            free_cpus: host.cpu_ids.iter().copied().collect(),
            used_cpus: BTreeSet::new(),
            used: Tres::ZERO,
            gpus: Cards::of(host),
            holders: 0,
            exclusive: None,
            room: Room::whole(host),
            whole: Room::whole(host),
        }
    }

    /// What is free now.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// What would be free with nobody on the host.
    pub fn whole(&self) -> &Room {
        &self.whole
    }

    /// What is in use, which may be more than a host that has shrunk has.
    pub fn used(&self) -> Tres {
        self.used
    }

    pub fn exclusive(&self) -> Option<JobId> {
        self.exclusive
    }

    /// Gives a part of what is free to `job`.
    pub fn take(&mut self, job: JobId, part: Part, host: &Host) -> Allocation {
        let Part { tres, gpu_ids, gpu_share, exclusive } = part;
        let cpu_ids = seats::pick(tres.cpus as usize, &self.free_cpus, &host.cpu_ids, &host.topology);
        let allocation = Allocation { tres, cpu_ids, gpu_ids, gpu_share };
        self.adopt(job, &allocation, exclusive, host);
        allocation
    }

    /// Notes what a job has already, whether it is free or not: after a restart of the daemon.
    pub fn adopt(&mut self, job: JobId, allocation: &Allocation, exclusive: bool, host: &Host) {
        for cpu in &allocation.cpu_ids {
            self.free_cpus.remove(cpu);
            self.used_cpus.insert(*cpu);
        }
        self.gpus.take(&allocation.gpu_ids, allocation.gpu_share);
        self.used = self.used.plus(&allocation.tres);
        self.holders += 1;
        if exclusive {
            self.exclusive = Some(job);
        }
        self.update_room(host);
    }

    pub fn give_back(&mut self, job: JobId, allocation: &Allocation, host: &Host) {
        for cpu in &allocation.cpu_ids {
            self.used_cpus.remove(cpu);
            if host.cpu_ids.contains(cpu) {
                self.free_cpus.insert(*cpu);
            }
        }
        self.gpus.give(&allocation.gpu_ids, allocation.gpu_share);
        self.used = self.used.minus(&allocation.tres);
        self.holders = self.holders.saturating_sub(1);
        if self.exclusive == Some(job) {
            self.exclusive = None;
        }
        self.update_room(host);
    }

    fn update_room(&mut self, host: &Host) {
        let free_cpus = (host.cpu_ids.len() as u32).saturating_sub(self.used.cpus).min(self.free_cpus.len() as u32);
        self.room = Room {
            cpus: free_cpus,
            mem_mb: host.mem_mb.saturating_sub(self.used.mem_mb),
            gpus: self.gpus.clone(),
            holders: self.holders,
            exclusive: self.exclusive.is_some(),
        };
    }
}
