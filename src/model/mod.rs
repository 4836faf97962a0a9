//! The vocabulary of slotd: jobs, steps, states, reasons and resources.
//!
//! Pure data: no files, processes, sockets, environment variables or clocks. Every other layer may
//! use it; it uses none of them.

// A bug in the handling of one request must not end the daemon, which owns the queue.
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![warn(unreachable_pub)]

pub mod array;
pub mod batch_tasks;
pub mod binding;
pub mod brief;
pub mod change;
pub mod changed;
pub mod constraint;
pub mod counted;
pub mod cpu_use;
pub mod cron;
pub mod dependency;
pub mod diagnostics;
pub mod environ;
pub mod exit;
pub mod gpu;
pub mod host_use;
pub mod hostlist;
pub mod ids;
pub mod job;
pub mod late;
pub mod license;
pub mod limit;
pub mod mail;
pub mod memo;
pub mod node;
pub mod notice;
pub mod partition;
pub mod placement;
pub mod preempt;
pub mod progress;
pub mod qos;
pub mod query;
pub mod read;
pub mod reason;
pub mod refusal;
pub mod request;
pub mod reservation;
pub mod resize;
pub mod rlimits;
pub mod run;
pub mod series;
pub mod source;
pub mod state;
pub mod step;
pub mod step_request;
mod store_fault;
pub mod time;
pub mod topology;
pub mod tres;
pub mod unread;
pub mod update;
pub mod view;
pub mod why;

pub use array::TaskSet;
pub use constraint::Constraint;
pub use counted::counted;
pub use exit::{ExitCode, ExitRecord};
pub use hostlist::HostList;
pub use ids::{JobId, JobRef, StepId, StepKey};
pub use job::{ArrayRole, Job};
pub use partition::Partition;
pub use progress::Progress;
pub use reason::Reason;
pub use refusal::Refusal;
pub use request::JobRequest;
pub use state::{End, JobState, Outcome};
pub use step::Step;
pub use step_request::StepRequest;
pub use store_fault::{StoreFault, StoreTrouble};
pub use time::{BootId, ClockBase, Moment, Timestamp};
pub use tres::Tres;

/// The cluster name that Slurm's tools show.
pub const CLUSTER: &str = "slotd";

/// The default runtime root, below the home directory.
pub const DEFAULT_ROOT: &str = ".local/share/slotd";

/// The daemon's socket, below its runtime root.
pub const SOCKET: &str = "run/slotd.sock";

/// The version of Slurm whose command lines and output slotd imitates.
pub const SLURM_VERSION: &str = "22.05.8";

/// For serde's `skip_serializing_if`.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
