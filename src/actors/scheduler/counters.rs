//! Counters of the scheduler.

use slotd_model::diagnostics::{Backfill, JobCounts, Tally};
use slotd_model::{End, Outcome, Timestamp};
use slotd_sched::{Core, Effect, Outbox};
use std::time::Duration;

/// Counters that started at `since`.
#[derive(Debug, Clone, Copy)]
pub struct Counters {
    pub since: Timestamp,
    pub jobs: JobCounts,
    pub commits: Tally,
    pub cycles: Tally,
    pub depth: u64,
    pub backfill: Backfill,
}

impl Counters {
    pub fn since(since: Timestamp) -> Counters {
        Counters {
            since,
            jobs: JobCounts::default(),
            commits: Tally::default(),
            cycles: Tally::default(),
            depth: 0,
            backfill: Backfill::default(),
        }
    }

    /// Resets all counters except those for the lifetime of the daemon.
    pub fn reset(&mut self, now: Timestamp) {
        let jobs_ever = self.backfill.jobs_ever;
        *self = Counters::since(now);
        self.backfill.jobs_ever = jobs_ever;
    }

    /// Counts a scheduling round.
    pub fn round(&mut self, took: Duration, core: &Core, now: Timestamp, out: &Outbox) {
        let starts = |effect: &&Effect| matches!(effect, Effect::Launch(_) | Effect::Granted(_));
        self.jobs.started += out.effects.iter().filter(starts).count() as u64;
        let facts = core.line().last_round();
        self.cycles.add(took);
        self.depth += facts.tried;
        if facts.behind > 0 {
            let length = core.line().queue().len() as u64;
            let backfill = &mut self.backfill;
            backfill.cycles.add(took);
            backfill.last_at = Some(now);
            backfill.last_depth = facts.behind;
            backfill.depth += facts.behind;
            backfill.last_queue_length = length;
            backfill.queue_length += length;
            backfill.jobs += facts.backfilled;
            backfill.jobs_ever += facts.backfilled;
        }
    }

    /// Counts the end of a job.
    pub fn end(&mut self, end: End) {
        match end.outcome() {
            Outcome::Success => self.jobs.completed += 1,
            Outcome::Cancelled => self.jobs.cancelled += 1,
            Outcome::Failure => self.jobs.failed += 1,
        }
    }
}
