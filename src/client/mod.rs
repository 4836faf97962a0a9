//! The client's side of the socket: connecting, asking, waiting for news, and running tasks in the
//! foreground.
//!
//! Blocking and without a runtime: a command lives for a millisecond. Nothing here parses options
//! or prints results.

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
