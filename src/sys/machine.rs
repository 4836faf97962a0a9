//! The resources of the machine that may change while it runs.

use crate::{cpus, memory};
use slotd_model::partition::Machine;
use std::io;

/// Returns the CPUs that jobs may use, and the memory.
///
/// # Errors
/// Fails if they cannot be read.
pub fn probe() -> io::Result<Machine> {
    Ok(Machine { topology: cpus::probe()?, mem_mb: memory::probe_total_mb()? })
}
