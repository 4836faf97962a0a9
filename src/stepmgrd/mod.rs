//! The job step manager, carried out: one process that owns a `stepmgr::core::Core`, and the small
//! one that starts the steps for it (`exec::step_launcher`).
//!
//! Everything happens in one loop that sleeps until somebody has something to say: the launcher (a
//! step has ended), the daemon (a record is kept, a signal for a step, other resources), a client
//! of the socket, the terminal, the clock. Nothing is asked of the daemon for a step. What happens
//! is written into the journal of the job first (`exec::step_journal`), then it is carried out,
//! then it is told.

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
pub use progress::Manner;
pub use run::{RunError, Setup, Source, check, step_within, text_of};
