//! The protocol of the daemon's socket: frames, and the requests, answers and notifications in
//! them.
//!
//! There is one protocol version. A client and a daemon with different versions report the mismatch
//! instead of guessing. This module does no I/O.

pub mod answer;
pub mod frame;
pub mod request;

/// The protocol version. Raised whenever the meaning of a request or an answer changes.
pub const VERSION: u16 = 6;
