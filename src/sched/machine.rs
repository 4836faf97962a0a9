//! How much of what the machine has jobs get, and what of it is not there any more.

use super::core::Core;
use super::seats::count_out;
use crate::model::Timestamp;
use crate::model::partition::{Host, Machine};
use crate::model::topology::Place;
use crate::spec::capacity::Capacity;

/// How much of the CPUs and of the memory (MB) of the machine jobs get. `None`: all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capacities {
    pub cpus: Option<Capacity>,
    pub mem_mb: Option<Capacity>,
}

impl Capacities {
    /// Gives jobs their part of what the machine has now.
    pub fn give(self, host: &mut Host) {
        let Host { topology, lost_cpus, machine_mem_mb, lost_mem_mb, .. } = &*host;
        let (there, lost) = (topology.cpus().len() as u64, lost_cpus.len() as u64);
        let count = self.cpus.map_or(there, |cpus| cpus.of_rest(there, lost));
        let mem_mb =
            self.mem_mb.map_or(*machine_mem_mb, |mem| mem.of_rest(*machine_mem_mb, *lost_mem_mb));
        // Numbers beyond the real ones are booked like any other, and never bound to.
        let cpu_ids = count_out(u32::try_from(count).unwrap_or(u32::MAX), topology, lost_cpus);
        (host.cpu_ids, host.mem_mb) = (cpu_ids, mem_mb);
    }
}

impl Core {
    /// The machine has this now. What it had and has no more is lost until it is back.
    pub fn on_machine_seen(&mut self, Machine { topology, mem_mb }: Machine, now: Timestamp) {
        let known = &self.config.host;
        if topology == known.topology && mem_mb == known.machine_mem_mb {
            return;
        }
        let all = known.topology.places().iter().chain(&known.lost_cpus);
        let mut lost_cpus: Vec<Place> =
            all.filter(|place| !topology.has_all(&[place.cpu])).copied().collect();
        lost_cpus.sort_unstable();
        let lost_mem_mb =
            known.machine_mem_mb.saturating_add(known.lost_mem_mb).saturating_sub(mem_mb);
        let mut host =
            Host { topology, lost_cpus, machine_mem_mb: mem_mb, lost_mem_mb, ..known.clone() };
        self.config.capacities.give(&mut host);
        self.set_host(host, self.config.all_partitions.clone(), now);
    }
}
