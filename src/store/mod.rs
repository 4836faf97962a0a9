//! Persistent storage: one SQLite file, read and written through diesel.
//!
//! The store converts between rows and jobs and makes no decisions about jobs. The scheduler hands
//! it changes in order, and the store makes them durable. It reads no clock and starts nothing.

// A bug in the handling of one request must not end the daemon, which owns the queue.
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![warn(unreachable_pub)]

pub mod accounting;
mod commit;
mod crontabs;
pub mod diffs;
pub mod error;
mod files;
mod history;
mod intern;
mod load;
mod memos;
mod migrate;
mod notices;
mod old_runs;
mod open;
mod row;
mod runs;
mod schema;
mod sources;
#[cfg(any(test, feature = "test-support"))]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "only tests use it")]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod upkeep;
pub mod write;

pub use accounting::Reader;
pub use error::StoreError;
pub use files::OpenFiles;
pub use load::LiveJobs;
pub use write::Store;
