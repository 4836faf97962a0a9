//! Answers to sdiag.

use super::SchedulerActor;
use crate::actors::messages::QueryDiagnostics;
use actix::prelude::*;
use slotd_model::diagnostics::Diagnostics;
use std::time::Instant;

/// The number of clock readings over which to measure the cost of one.
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
            // The session fills in its own counters.
            ..Diagnostics::default()
        };
        if reset {
            self.counters.reset(now);
        }
        MessageResult(answer)
    }
}
