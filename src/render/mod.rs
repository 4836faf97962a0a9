//! Renders views as text: the output of `squeue`, `sacct`, `sinfo` and `scontrol show`, for people
//! and for programs.
//!
//! Pure: nothing here reads a file, a clock, the environment or a socket. The time, the time zone,
//! the host name and the user's output settings come from a [`Ctx`]. The query decides which jobs
//! are shown.
//!
//! Without an explicit format, tables have slotd's own layout (`A | B | C`) or Slurm's
//! ([`Columns`]). An explicit format follows Slurm to the letter. A listing is a [`layout`] over a
//! table of [`field`]s: squeue, sinfo, sacct, sprio, sstat and sacctmgr each define one table and
//! choose the rows.

// A bug in the handling of one request must not end the daemon, which owns the queue.
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![warn(unreachable_pub)]

pub mod accounts;
pub mod array;
pub mod cause;
pub mod ctx;
pub mod field;
pub mod host_use;
pub mod job;
mod job_facts;
pub mod json;
pub mod layout;
pub mod moment;
pub mod notice;
pub mod pids;
pub mod plan;
pub mod report;
pub mod sacct;
pub mod sdiag;
pub mod seff;
pub mod series;
pub mod show;
pub mod sinfo;
pub mod size;
pub mod sort;
pub mod source;
pub mod sprio;
pub mod squeue;
pub mod text;
pub mod time;
mod tone;
pub mod tres;
pub mod value;
pub mod why;

#[cfg(any(test, feature = "test-support"))]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "only tests use it")]
pub mod fixture;

pub use ctx::{Columns, Ctx, Screen};
pub use field::FormatError;
pub use time::TimeFormat;
