//! What the scheduler has done so far, for sdiag.

use super::SchedulerActor;
use crate::actors::messages::QueryDiagnostics;
use crate::model::diagnostics::{Backfill, Diagnostics, JobCounts, Tally};
use crate::model::{End, Outcome, Timestamp};
use crate::sched::{Core, Effect, Outbox};
use actix::prelude::*;
use std::time::{Duration, Instant};

/// Everything counts from `since` on.
#[derive(Debug, Clone, Copy)]
pub struct Counters {
    since: Timestamp,
    pub jobs: JobCounts,
    pub commits: Tally,
    cycles: Tally,
    depth: u64,
    backfill: Backfill,
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

    /// Back to zero, but for what counts for the daemon's whole life.
    fn reset(&mut self, now: Timestamp) {
        let jobs_ever = self.backfill.jobs_ever;
        *self = Counters::since(now);
        self.backfill.jobs_ever = jobs_ever;
    }

    /// A scheduling round is over.
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

    /// A job is over.
    pub fn end(&mut self, end: End) {
        match end.outcome() {
            Outcome::Success => self.jobs.completed += 1,
            Outcome::Cancelled => self.jobs.cancelled += 1,
            Outcome::Failure => self.jobs.failed += 1,
        }
    }
}

/// How often the clock is read to tell what that costs.
const READINGS: u32 = 1000;

impl Handler<QueryDiagnostics> for SchedulerActor {
    type Result = MessageResult<QueryDiagnostics>;

    fn handle(
        &mut self,
        QueryDiagnostics { reset }: QueryDiagnostics,
        _: &mut Self::Context,
    ) -> Self::Result {
        let now = self.now();
        let began = Instant::now();
        for _ in 0..READINGS {
            std::hint::black_box(self.now());
        }
        let clock = began.elapsed();
        let c = self.counters;
        let loads = self.core.partition_loads();
        let answer = Diagnostics {
            now,
            daemon_start: self.outputs.daemon_start,
            since: c.since,
            in_memory: self.core.records().len() as u64,
            runners: self.runners.len() as u64,
            commits_in_flight: self.in_flight.sent() as u64,
            jobs: c.jobs,
            pending: loads.iter().map(|load| load.pending).sum(),
            running: loads.iter().map(|load| load.running).sum(),
            cycles: c.cycles,
            depth: c.depth,
            queue_length: self.core.line().queue().len() as u64,
            backfill: c.backfill,
            commits: c.commits,
            trouble: self.trouble.clone(),
            clock_us: u64::try_from(clock.as_micros()).unwrap_or(u64::MAX),
            // What the sessions count.
            ..Diagnostics::default()
        };
        if reset {
            self.counters.reset(now);
        }
        MessageResult(answer)
    }
}
