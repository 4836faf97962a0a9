//! What travels over the daemon's socket: frames, and the requests, answers and news in them.
//!
//! One protocol version: a client and a daemon of different versions say so instead of guessing. It
//! does no I/O.

pub mod answer;
pub mod frame;
pub mod request;

/// The version of the protocol. Raised whenever a request or an answer changes its meaning.
pub const VERSION: u16 = 6;
