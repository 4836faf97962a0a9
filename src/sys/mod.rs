//! Access to this machine: memory, CPUs, GPUs, users, processes, clocks, locks, limits, sockets,
//! and paths. Each probe has a pure `parse` function, and a `probe` function that reads its input.
//! Nothing here reads slotd's settings; callers apply overrides.
//!
//! A few lines of our own code read `/proc`: slotd needs a dozen numbers, and a crate for it would
//! add three dependencies and read whole files for each number.

// A bug in the handling of one request must not end the daemon, which owns the queue.
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![warn(unreachable_pub)]

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
mod job_of;
pub mod limits;
pub mod lock;
pub mod machine;
pub mod memory;
pub mod mount;
pub mod ownership;
pub mod paths;
pub mod proc;
pub mod program;
pub mod root_dirs;
pub mod slice;
pub mod socket;
pub mod start;
pub mod system;
pub mod tcp_peer;
pub mod uevents;
pub mod umask;
pub mod user;
pub mod work_tree;
pub mod zone;
