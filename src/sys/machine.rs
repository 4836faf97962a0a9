//! What the machine has of what may come and go under a running system.

use crate::model::partition::Machine;
use crate::sys::{cpus, memory};
use std::io;

/// The CPUs that jobs may run on, and the memory.
///
/// # Errors
/// What there is cannot be read.
pub fn probe() -> io::Result<Machine> {
    Ok(Machine { topology: cpus::probe()?, mem_mb: memory::probe_total_mb()? })
}
