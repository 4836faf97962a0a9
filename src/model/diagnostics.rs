//! The daemon's counters and timings: the answer to sdiag.

use crate::{StoreTrouble, Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The count of an operation and how long it took, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub count: u64,
    pub last_us: u64,
    pub max_us: u64,
    pub total_us: u64,
}

impl Tally {
    /// Records one more operation.
    pub fn add(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.count += 1;
        self.last_us = us;
        self.max_us = self.max_us.max(us);
        self.total_us = self.total_us.saturating_add(us);
    }

    /// Returns the mean, or zero if there were no operations.
    pub fn mean_us(&self) -> u64 {
        mean(self.total_us, self.count)
    }
}

/// Returns the mean, rounded down; zero if `count` is zero.
pub fn mean(total: u64, count: u64) -> u64 {
    total.checked_div(count).unwrap_or(0)
}

/// The figures of one scheduling round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoundFacts {
    /// Pending records tried.
    pub tried: u64,
    /// Records tried after the first one that has to wait.
    pub behind: u64,
    /// Records started after the first one that has to wait.
    pub backfilled: u64,
}

/// Job counters. An array counts once when it is submitted, and each of its tasks once when it
/// ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCounts {
    pub submitted: u64,
    pub started: u64,
    pub completed: u64,
    pub cancelled: u64,
    /// Includes timeouts and jobs that ran out of memory.
    pub failed: u64,
}

/// Rounds that considered jobs behind one that has to wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backfill {
    pub cycles: Tally,
    pub last_at: Option<Timestamp>,
    pub last_depth: u64,
    pub depth: u64,
    pub last_queue_length: u64,
    pub queue_length: u64,
    pub jobs: u64,
    /// Like `jobs`, but never reset.
    pub jobs_ever: u64,
}

/// Requests of one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTally {
    pub name: String,
    pub id: u32,
    pub tally: Tally,
}

/// Requests of one user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserTally {
    pub name: String,
    pub uid: u32,
    pub tally: Tally,
}

/// Everything that sdiag prints. The counters count from `since` on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostics {
    pub now: Timestamp,
    pub daemon_start: Timestamp,
    /// When the counters were last reset, or when the daemon started.
    pub since: Timestamp,
    /// Connected clients.
    pub connections: u64,
    /// Work that has run past its time limit, and since when.
    #[serde(default)]
    pub hung: Vec<String>,
    /// Work trees in which the last git command took too long.
    #[serde(default)]
    pub slow_trees: Vec<String>,
    /// Jobs in memory, including ended ones that are still shown.
    #[serde(default)]
    pub in_memory: u64,
    /// Jobs that have a runner.
    pub runners: u64,
    /// Commits sent to the database that are not durable yet.
    pub commits_in_flight: u64,
    pub jobs: JobCounts,
    /// Jobs and array tasks that are pending.
    pub pending: u64,
    pub running: u64,
    /// Scheduling rounds.
    pub cycles: Tally,
    /// Records tried by all rounds together.
    pub depth: u64,
    /// Records that waited for nothing but resources after the last round.
    pub queue_length: u64,
    pub backfill: Backfill,
    /// Time from a decision until it is durable.
    pub commits: Tally,
    /// The reason why commits are waiting.
    pub trouble: Option<StoreTrouble>,
    /// Time that a thousand clock readings take, in microseconds.
    pub clock_us: u64,
    /// Time from a request's arrival to its answer, per type.
    pub requests: Vec<RequestTally>,
    pub users: Vec<UserTally>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_records_last_max_and_mean() {
        let mut tally = Tally::default();
        assert_eq!(tally.mean_us(), 0);
        for us in [10, 31, 20] {
            tally.add(Duration::from_micros(us));
        }
        assert_eq!((tally.count, tally.last_us, tally.max_us, tally.total_us), (3, 20, 31, 61));
        assert_eq!(tally.mean_us(), 20);
    }
}
