//! The job step manager's I/O: one process that owns a `stepmgr::core::Core`, and a small one that
//! starts the steps for it (`exec::step_launcher`).
//!
//! A single loop sleeps until there is an event from the launcher (a step ended), the daemon (a
//! record was stored, a signal for a step, other resources), a client, the terminal or a timer.
//! Starting a step takes no request to the daemon. Each event is written to the job's journal first
//! (`exec::step_journal`), then carried out, then reported.

mod api;
mod client;
pub mod ended;
mod launches;
mod link;
mod past;
mod process;
mod progress;
mod records;
mod run;
mod shell;

pub use client::{Client, begin, socket_path};
pub use link::Identity;
pub use process::manage;
pub use progress::Verbosity;
pub use run::{RunError, Setup, Source, check, read_steps, step_within, text_of};
