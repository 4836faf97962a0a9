//! The daemon: wiring and life cycle. It decides nothing and prints nothing but its log.

pub mod alarm;
pub mod client_watch;
pub mod config;
pub mod listener;
mod requests;
pub mod run;
pub mod service;
pub mod session;
pub mod wire;

pub use run::{DaemonError, run};
