//! What keeps the node from taking jobs, as sinfo and scontrol tell it.

use crate::model::{StepKey, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What the host lacked when a process could not be started: no fault of the job, which waits until it is mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostFault {
    /// ENOSPC: no room or no inodes.
    Space,
    /// EDQUOT.
    Quota,
    /// EROFS.
    ReadOnly,
    /// EIO.
    Disk,
    /// EAGAIN of a fork.
    Processes,
    /// ENOMEM.
    Memory,
    /// ENFILE, or EMFILE of the daemon.
    Descriptors,
    /// The process that starts the jobs cannot be started, or dies.
    Launcher,
}

impl HostFault {
    /// As a task writes it to its watcher.
    pub const ALL: [HostFault; 8] = [
        HostFault::Space,
        HostFault::Quota,
        HostFault::ReadOnly,
        HostFault::Disk,
        HostFault::Processes,
        HostFault::Memory,
        HostFault::Descriptors,
        HostFault::Launcher,
    ];
}

/// The beginning of the node's reason: sinfo shows 20 characters of it.
impl fmt::Display for HostFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            HostFault::Space => "no space on disk",
            HostFault::Quota => "over disk quota",
            HostFault::ReadOnly => "read-only disk",
            HostFault::Disk => "disk error",
            HostFault::Processes => "no processes left",
            HostFault::Memory => "no memory left",
            HostFault::Descriptors => "no descriptors left",
            HostFault::Launcher => "no launcher",
        })
    }
}

/// The step that was being launched when a daemon died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchAtDeath {
    pub step: StepKey,
    /// How many daemons died of it one after the other.
    pub deaths: u32,
}

/// What the owner of the host tells the node (`scontrol update NodeName=…`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeOrder {
    /// Take no more jobs, for this reason.
    Drain(String),
    Resume,
}

/// Why the node is drained, since when, and by whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReason {
    pub text: String,
    pub since: Timestamp,
    /// The name of a user: the daemon's own where it drained the node itself.
    pub user: String,
    pub uid: u32,
}
