//! slotd: Slurm for one machine.
//!
//! A pure scheduling core decides, thin actix actors carry its decisions out, diesel remembers, and the
//! command line asks over a Unix socket and prints. `tests/architecture.rs` holds the table of layers.

pub mod actors;
pub mod args;
pub mod client;
pub mod commands;
pub mod daemon;
pub mod exec;
pub mod model;
pub mod protocol;
pub mod render;
pub mod sched;
pub mod spec;
pub mod store;
pub mod sys;

/// The cluster's name, where Slurm's tools ask for one.
pub const CLUSTER: &str = "slotd";

/// The version of Slurm whose command lines and output slotd follows.
pub const SLURM_VERSION: &str = "22.05.8";
