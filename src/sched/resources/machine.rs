//! How much of what the machine has jobs get.

use super::cpu_pick::count_out;
use crate::model::partition::Host;
use crate::parse::capacity::Capacity;

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
