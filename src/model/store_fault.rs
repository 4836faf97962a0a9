//! Why the daemon's database cannot be written at present. What is to be committed waits until it
//! can.

use crate::model::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The kind of a fault that may pass. The text is a clause of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StoreFault {
    /// No space, or no quota.
    Full,
    /// Another process holds a lock on the file for longer than the daemon waits for it at a time.
    Locked,
    /// The file system, or the file, was made read-only.
    ReadOnly,
    /// The file cannot be opened again after a fault.
    Unopenable,
    /// Its file is not where the daemon has opened it.
    Moved,
    /// The same of its log, or of the index of the log.
    MovedLog,
    /// A write or an fsync failed.
    Io,
    NoMemory,
}

impl StoreFault {
    /// What helps.
    pub fn remedy(self) -> &'static str {
        match self {
            StoreFault::Full => "make room",
            StoreFault::Locked => "end that program",
            StoreFault::ReadOnly => "make it writable",
            StoreFault::Unopenable => "see that it is there and the daemon's own",
            StoreFault::Moved => {
                "put that file back, or `slotd daemon stop` and `slotd db restore` a copy,"
            }
            StoreFault::MovedLog => "restart the daemon, which loses nothing,",
            StoreFault::Io => "see the log of the kernel",
            StoreFault::NoMemory => "free some",
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
            StoreFault::Io => "the disk of the daemon's database fails",
            StoreFault::NoMemory => "there is no memory for the daemon's database",
        })
    }
}

/// A fault that lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreTrouble {
    pub fault: StoreFault,
    /// In the words of SQLite or the system.
    pub message: String,
    pub since: Timestamp,
}
