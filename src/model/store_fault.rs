//! Faults that keep the daemon from writing its database. Commits wait until it can be written
//! again.

use crate::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A fault that may pass. It is printed as a clause of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StoreFault {
    /// No space or quota is left.
    Full,
    /// Another process has held a lock on the file for longer than the daemon waits for it.
    Locked,
    /// The file system or the file was made read-only.
    ReadOnly,
    /// The file cannot be reopened after a fault.
    Unopenable,
    /// The file is no longer where the daemon opened it.
    Moved,
    /// The write-ahead log, or its index, is no longer where the daemon opened it.
    MovedLog,
    /// A write or fsync failed.
    Io,
    NoMemory,
}

impl StoreFault {
    /// Returns the action that fixes the fault, as an imperative clause.
    pub fn remedy(self) -> &'static str {
        match self {
            StoreFault::Full => "free some space",
            StoreFault::Locked => "end that program",
            StoreFault::ReadOnly => "make it writable",
            StoreFault::Unopenable => "check that it exists and belongs to the daemon's user",
            StoreFault::Moved => {
                "put that file back, or run `slotd daemon stop` and restore a copy with `slotd db restore`,"
            }
            StoreFault::MovedLog => "restart the daemon (nothing is lost)",
            StoreFault::Io => "check the kernel log",
            StoreFault::NoMemory => "free some memory",
        }
    }
}

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StoreFault::Full => "the disk of the daemon's database is full",
            StoreFault::Locked => "another program has locked the daemon's database",
            StoreFault::ReadOnly => "the daemon's database is read-only",
            StoreFault::Unopenable => "the daemon's database cannot be opened",
            StoreFault::Moved => "the daemon's database lib/state.db was moved, deleted or replaced",
            StoreFault::MovedLog => {
                "the log of the daemon's database (lib/state.db-wal, -shm) was moved, deleted or replaced"
            }
            StoreFault::Io => "the disk of the daemon's database is failing",
            StoreFault::NoMemory => "the daemon's database is out of memory",
        })
    }
}

/// A persisting fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreTrouble {
    pub fault: StoreFault,
    /// The message from SQLite or the operating system.
    pub message: String,
    pub since: Timestamp,
}
