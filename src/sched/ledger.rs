//! Who has which CPU, which GPU and how much memory.
//!
//! A CPU or GPU that is given is in nobody else's hands. The ledger decides nothing: whether a job may have something
//! is the plan's business, and which CPUs it gets that of `seats`.

use super::room::{Room, Want};
use super::seats;
use crate::model::partition::Host;
use crate::model::tres::Allocation;
use crate::model::{JobId, Tres};
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    free_cpus: BTreeSet<u32>,
    used_cpus: BTreeSet<u32>,
    used_gpus: BTreeSet<u32>,
    used: Tres,
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
            used_gpus: BTreeSet::new(),
            used: Tres::ZERO,
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

    /// Gives `want` to `job`, if it is free.
    pub fn take(&mut self, job: JobId, want: &Want, host: &Host) -> Option<Allocation> {
        if !self.room.fits(want, host) {
            return None;
        }
        let gpu_ids = self.room.pick_gpus(want, host)?;
        let tres = want.taken(host);
        let cpu_ids = seats::pick(tres.cpus as usize, &self.free_cpus, &host.cpu_ids, &host.topology);
        let allocation = Allocation { tres, cpu_ids, gpu_ids };
        self.adopt(job, &allocation, want.exclusive, host);
        Some(allocation)
    }

    /// Notes what a job has already, whether it is free or not: after a restart of the daemon.
    pub fn adopt(&mut self, job: JobId, allocation: &Allocation, exclusive: bool, host: &Host) {
        for cpu in &allocation.cpu_ids {
            self.free_cpus.remove(cpu);
            self.used_cpus.insert(*cpu);
        }
        self.used_gpus.extend(&allocation.gpu_ids);
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
        for gpu in &allocation.gpu_ids {
            self.used_gpus.remove(gpu);
        }
        self.used = self.used.minus(&allocation.tres);
        self.holders = self.holders.saturating_sub(1);
        if self.exclusive == Some(job) {
            self.exclusive = None;
        }
        self.update_room(host);
    }

    fn update_room(&mut self, host: &Host) {
        let free_cpus = (host.cpu_ids.len() as u32).saturating_sub(self.used.cpus).min(self.free_cpus.len() as u32);
        let mut gpus: Vec<u32> = host.gpus.iter().map(|gpu| gpu.id).filter(|id| !self.used_gpus.contains(id)).collect();
        gpus.sort_unstable();
        self.room = Room {
            cpus: free_cpus,
            mem_mb: host.mem_mb.saturating_sub(self.used.mem_mb),
            gpus,
            holders: self.holders,
            exclusive: self.exclusive.is_some(),
        };
    }
}
