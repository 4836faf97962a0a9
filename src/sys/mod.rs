//! Facts of this machine: memory, CPUs, GPUs, users, paths. Every probe has a pure `parse` and a `probe` that reads
//! what it parses. Nothing here reads slotd's settings: overrides are the caller's.

pub mod cpus;
pub mod gpus;
pub mod memory;
pub mod paths;
pub mod system;
pub mod user;
pub mod zone;

pub use paths::Paths;
