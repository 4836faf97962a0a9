//! Parsers of user input, one module per grammar.
//!
//! This module is pure: it does not access files, processes, sockets, the environment or the clock.
//! The current time and the time zone are arguments. Parsers only check syntax; `sched` decides
//! whether the host can satisfy a request.

// A bug in the handling of one request must not end the daemon, which owns the queue.
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![warn(unreachable_pub)]

pub mod acct_time;
pub mod acctg_freq;
pub mod age;
pub mod array;
pub mod begin;
pub mod capacity;
pub mod cluster;
pub mod constraint;
pub mod count;
pub mod cpu_bind;
pub mod cpu_freq;
pub mod cron;
pub mod crontab;
pub mod dependency;
pub mod directive;
pub mod distribution;
pub mod env_file;
pub mod error;
pub mod export;
pub mod filename;
pub mod gpu_bind;
pub mod gpu_freq;
pub mod gres;
pub mod hostlist;
pub mod hours;
pub mod ids;
pub mod mem;
pub mod mem_bind;
pub mod moment;
pub mod multi_prog;
pub mod node_parts;
pub mod nodes;
mod number;
pub mod partition;
mod preempt;
pub mod profile;
pub mod propagate;
pub mod qos;
pub mod script;
pub mod script_tasks;
pub mod shell_command;
pub mod signal;
pub mod states;
pub mod suggest;
pub mod time;
pub mod web_address;

pub use error::SpecError;
