//! Starts, watches and stops processes.
//!
//! A small `launcher` process serves the daemon. For each step it forks a `watcher`, which starts
//! the tasks, outlives the daemon and records how the tasks ended. A new daemon finds the watchers
//! through `adopt`. This module does not decide when something runs and does not use the database.

// A bug in the handling of one request must not end the daemon, which owns the queue.
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![warn(unreachable_pub)]

pub mod adopt;
pub mod affinity;
pub mod cgroup;
mod claim;
pub mod client_line;
pub mod earlier_boot;
pub mod environment;
mod error;
mod idle_watchers;
pub mod job_dirs;
mod job_files;
mod launch_lock;
pub mod launch_mark;
pub mod launch_spec;
#[cfg(test)]
mod launch_tests;
pub mod launcher;
pub mod messenger;
mod meter;
mod peer;
mod pmi;
mod prepared_dir;
mod reap;
mod runner_script;
pub mod snapshots;
pub mod started;
pub mod step_handle;
pub mod step_journal;
pub mod step_launcher;
mod stopped;
mod task;
pub mod watcher;
pub mod wire;

pub use adopt::Adoption;
pub use error::{LaunchError, LaunchFault, host_fault};
pub use job_files::read_record;
pub use launch_spec::{LaunchSpec, StepCommand};
pub use launcher::Launcher;
pub use step_handle::StepHandle;
