//! The client's side of the socket: connecting, sending requests, waiting for changes, and running
//! tasks in the foreground.
//!
//! Everything is blocking and needs no async runtime, since a command runs for only a millisecond.
//! Nothing here parses options or prints results.

pub mod attach;
pub mod connection;
pub mod follow;
pub mod foreground;
pub mod logs;
pub mod relay;
pub mod share;
pub mod tail;
pub mod terminal;
pub mod watch;
