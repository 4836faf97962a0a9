//! How the CPUs are used by processes that no job started.

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// What was seen in a moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuReading {
    /// CPUs that those processes used, times 100.
    pub used_centi: u32,
    /// How busy each CPU was, by whomsoever: its number and per cent.
    pub busy: Vec<(u32, u32)>,
}

impl CpuReading {
    /// The numbers of the CPUs, the busiest first.
    pub fn busiest(&self) -> Vec<u32> {
        let mut order = self.busy.clone();
        order.sort_by_key(|(cpu, percent)| (Reverse(*percent), *cpu));
        order.into_iter().map(|(cpu, _)| cpu).collect()
    }
}

/// What is told of it where it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpusElsewhere {
    /// CPUs that those processes used when that was read last, times 100. `None`: it was not.
    pub used_centi: Option<u32>,
    /// CPUs that are given to no job therefore.
    pub taken: u32,
}
