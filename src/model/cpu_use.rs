//! CPU use by processes that do not belong to any job.

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// One sample.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuReading {
    /// The CPUs that those processes used, times 100.
    pub used_centi: u32,
    /// The load of each CPU from all processes: its number and percent.
    pub busy: Vec<(u32, u32)>,
}

impl CpuReading {
    /// Returns the CPU numbers, busiest first.
    pub fn busiest(&self) -> Vec<u32> {
        let mut order = self.busy.clone();
        order.sort_by_key(|(cpu, percent)| (Reverse(*percent), *cpu));
        order.into_iter().map(|(cpu, _)| cpu).collect()
    }
}

/// The figures to show if this CPU use affects scheduling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpusElsewhere {
    /// The CPUs that those processes used in the last sample, times 100. `None` if there is no
    /// sample.
    pub used_centi: Option<u32>,
    /// The CPUs withheld from jobs because of it.
    pub taken: u32,
}
