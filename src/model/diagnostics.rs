//! What the daemon has done so far and how long it took: the answer to sdiag.

use crate::model::{StoreTrouble, Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How often something was done, and how long it took, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub count: u64,
    pub last_us: u64,
    pub max_us: u64,
    pub total_us: u64,
}

impl Tally {
    /// It was done once more.
    pub fn add(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.count += 1;
        self.last_us = us;
        self.max_us = self.max_us.max(us);
        self.total_us = self.total_us.saturating_add(us);
    }

    /// Zero where it was never done.
    pub fn mean_us(&self) -> u64 {
        mean(self.total_us, self.count)
    }
}

/// The rounded-down mean; zero of nothing.
pub fn mean(total: u64, count: u64) -> u64 {
    total.checked_div(count).unwrap_or(0)
}

/// What one scheduling round looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoundFacts {
    /// Records of the queue that were tried.
    pub tried: u64,
    /// Of these, the ones behind the first that has to wait.
    pub behind: u64,
    /// Of these, the ones that started.
    pub backfilled: u64,
}

/// Jobs counted by what became of them. An array task counts when it has ended, an array once when
/// it was submitted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCounts {
    pub submitted: u64,
    pub started: u64,
    pub completed: u64,
    pub cancelled: u64,
    /// Timeouts and jobs that ran out of memory too.
    pub failed: u64,
}

/// The rounds that looked past a job that has to wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backfill {
    pub cycles: Tally,
    pub last_at: Option<Timestamp>,
    pub last_depth: u64,
    pub depth: u64,
    pub last_queue_length: u64,
    pub queue_length: u64,
    pub jobs: u64,
    /// As `jobs`, and never set back.
    pub jobs_ever: u64,
}

/// Requests of one kind.
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

/// Everything that sdiag shows. Counters count since `since`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostics {
    pub now: Timestamp,
    pub daemon_start: Timestamp,
    /// When the counters were last set to zero, at the start of the daemon at the latest.
    pub since: Timestamp,
    /// Clients that are connected.
    pub connections: u64,
    /// Work that has not ended in its time, and since when.
    #[serde(default)]
    pub hung: Vec<String>,
    /// The work trees in which git took too long when it was asked last.
    #[serde(default)]
    pub slow_trees: Vec<String>,
    /// Jobs in memory, those that have ended and are shown still included.
    #[serde(default)]
    pub in_memory: u64,
    /// Jobs that are looked after.
    pub runners: u64,
    /// Commits that were sent to the database and are not durable yet.
    pub commits_in_flight: u64,
    pub jobs: JobCounts,
    /// Jobs and array tasks that wait and that hold resources now.
    pub pending: u64,
    pub running: u64,
    /// Scheduling rounds.
    pub cycles: Tally,
    /// Records that all rounds together tried.
    pub depth: u64,
    /// Records that wait for nothing but resources, after the last round.
    pub queue_length: u64,
    pub backfill: Backfill,
    /// From a decision to its being durable.
    pub commits: Tally,
    /// Why commits wait.
    pub trouble: Option<StoreTrouble>,
    /// What a thousand readings of the clock take.
    pub clock_us: u64,
    /// From a request's arrival to its answer.
    pub requests: Vec<RequestTally>,
    pub users: Vec<UserTally>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_knows_the_last_the_longest_and_the_mean() {
        let mut tally = Tally::default();
        assert_eq!(tally.mean_us(), 0);
        for us in [10, 31, 20] {
            tally.add(Duration::from_micros(us));
        }
        assert_eq!((tally.count, tally.last_us, tally.max_us, tally.total_us), (3, 20, 31, 61));
        assert_eq!(tally.mean_us(), 20);
    }
}
