//! The protocol of the daemon's socket: frames, and the requests, answers and notifications in
//! them.
//!
//! There is one protocol version. A client and a daemon with different versions report the mismatch
//! instead of guessing. This module does no I/O.

// A bug in the handling of one request must not end the daemon, which owns the queue.
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![warn(unreachable_pub)]

pub mod answer;
pub mod frame;
pub mod request;

/// The protocol version. Raised when requests or answers change that srun and salloc use while their
/// jobs run. An upgrade of the daemon then ends those jobs, so other changes leave it alone: commands
/// that do not understand an answer report this.
pub const VERSION: u16 = 12;
