//! slotd: Slurm for one machine.
//!
//! A pure scheduling core decides, thin actix actors carry its decisions out, diesel remembers, and the
//! command line asks over a Unix socket and prints. `tests/architecture.rs` holds the table of layers.

pub mod model;
pub mod sched;
