//! What slotd remembers: one SQLite file, written and read through diesel.
//!
//! The store knows rows and how they become jobs. It decides nothing about jobs: the scheduler
//! hands it changes in order, and it makes them durable. It asks no clock and starts nothing.

pub mod accounting;
pub mod diffs;
pub mod error;
mod files;
mod history;
mod intern;
mod load;
mod memos;
mod migrate;
mod notices;
mod open;
mod row;
mod runs;
mod schema;
mod sources;
#[cfg(test)]
pub(crate) mod testing;
pub mod upkeep;
pub mod write;

pub use accounting::Reader;
pub use error::StoreError;
pub use files::OpenFiles;
pub use write::Store;
