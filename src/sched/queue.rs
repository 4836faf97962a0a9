//! The order in which pending jobs are looked at.
//!
//! Higher priority first. Among equals the one that was served longest ago: a job that has never run was "served"
//! when it was submitted, an array each time one of its tasks starts. So plain jobs go in the order of their
//! submission, arrays take turns, and no job starves: whoever comes later has a later turn.
//!
//! Job numbers are handed out in order, to submissions and to tasks that start, so the number of the last task that
//! started says when an array had its turn. That survives a restart without being written down.

use crate::model::{JobId, JobRequest};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Bound;

/// The priority of a job that asked for none. Low, so that an explicit priority overrides the order of
/// submission, and not 0, which in Slurm means held.
pub const DEFAULT_PRIORITY: u32 = 1;

/// The place of a record in the queue; the smallest is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    pub priority: Reverse<i64>,
    /// The number of the job or of the array's last started task.
    pub turn: u32,
    /// The task of an array, where it has a record of its own: tasks with one turn start in their order.
    pub task: u32,
    pub id: JobId,
}

/// What the order goes by: the priority less the nice value, which may be below zero.
pub fn rank(request: &JobRequest) -> i64 {
    i64::from(request.priority.unwrap_or(DEFAULT_PRIORITY)).saturating_sub(request.nice)
}

/// The same as a user sees it: never 0, which would mean held.
pub fn shown_priority(request: &JobRequest) -> u32 {
    u32::try_from(rank(request).clamp(1, i64::from(u32::MAX) - 1)).unwrap_or(1)
}

/// The records that only wait for resources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queue {
    keys: BTreeSet<QueueKey>,
    arrivals: u64,
}

impl Queue {
    /// Puts a record in that was not in the queue.
    pub fn insert(&mut self, key: QueueKey) {
        self.keys.insert(key);
        self.arrivals += 1;
    }

    /// Gives a record that is in the queue another place.
    pub fn shift(&mut self, old: &QueueKey, new: QueueKey) {
        self.keys.remove(old);
        self.keys.insert(new);
    }

    /// How often something has come in: tells whether a round has to be repeated.
    pub fn arrivals(&self) -> u64 {
        self.arrivals
    }

    pub fn remove(&mut self, key: &QueueKey) {
        self.keys.remove(key);
    }

    pub fn first(&self) -> Option<QueueKey> {
        self.keys.first().copied()
    }

    /// The next record after `key`.
    pub fn after(&self, key: QueueKey) -> Option<QueueKey> {
        self.keys.range((Bound::Excluded(key), Bound::Unbounded)).next().copied()
    }

    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = QueueKey> + '_ {
        self.keys.iter().copied()
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }
}
