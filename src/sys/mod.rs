//! This machine: memory, CPUs, GPUs, users, processes, clock, locks, limits, sockets, paths. Every
//! probe has a pure `parse` and a `probe` that reads what it parses. Nothing here reads slotd's
//! settings: overrides are the caller's.
//!
//! `/proc` is read by a few lines of our own: slotd wants a dozen numbers, and the crate for it
//! would bring three crates and read whole files for each.

pub mod aside;
pub mod beneath;
pub mod break_point;
pub mod clock;
pub mod cpu_use;
pub mod cpus;
pub mod extents;
pub mod files;
pub mod fork;
pub mod fresh;
pub mod git;
pub mod gpus;
pub mod guard;
pub mod host_use;
pub mod job_of;
pub mod limits;
pub mod lock;
pub mod machine;
pub mod memory;
pub mod ownership;
pub mod paths;
pub mod proc;
pub mod program;
pub mod root_dirs;
pub mod socket;
pub mod start;
pub mod system;
pub mod tcp_peer;
pub mod uevents;
pub mod user;
pub mod work_tree;
pub mod zone;
