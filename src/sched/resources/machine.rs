//! The share of the machine that jobs may use.

use super::cpu_pick::count_out;
use slotd_model::partition::Host;
use slotd_parse::capacity::Capacity;

/// The share of the machine's CPUs and memory (MB) that jobs may use. `None`: all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capacities {
    pub cpus: Option<Capacity>,
    pub mem_mb: Option<Capacity>,
}

impl Capacities {
    /// Sets the CPUs and memory of `host` to the jobs' share of the machine as it is now.
    pub fn give(self, host: &mut Host) {
        let Host { topology, lost_cpus, machine_mem_mb, lost_mem_mb, .. } = &*host;
        let (there, lost) = (topology.cpus().len() as u64, lost_cpus.len() as u64);
        let count = self.cpus.map_or(there, |cpus| cpus.of_rest(there, lost));
        let mem_mb =
            self.mem_mb.map_or(*machine_mem_mb, |mem| mem.of_rest(*machine_mem_mb, *lost_mem_mb));
        // Numbers beyond the real CPUs are allocated like any other, but nothing is bound to them.
        let cpu_ids = count_out(u32::try_from(count).unwrap_or(u32::MAX), topology, lost_cpus);
        (host.cpu_ids, host.mem_mb) = (cpu_ids, mem_mb);
    }
}
