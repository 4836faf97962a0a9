//! What the scheduler has done so far, for sdiag.

use super::SchedulerActor;
use crate::actors::messages::QueryDiagnostics;
use crate::sched::{Effect, Outbox};
use actix::prelude::*;
use std::time::Duration;

#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    pub submitted: u64,
    pub started: u64,
    pub ended: u64,
    rounds: u64,
    last_round: Duration,
    longest_round: Duration,
    all_rounds: Duration,
}

impl Counters {
    pub fn round(&mut self, took: Duration, out: &Outbox) {
        self.rounds += 1;
        self.last_round = took;
        self.longest_round = self.longest_round.max(took);
        self.all_rounds += took;
        let starts = |effect: &&Effect| matches!(effect, Effect::Launch(_) | Effect::Granted(_));
        self.started += out.effects.iter().filter(starts).count() as u64;
    }
}

impl Handler<QueryDiagnostics> for SchedulerActor {
    type Result = MessageResult<QueryDiagnostics>;

    fn handle(&mut self, _: QueryDiagnostics, _: &mut Self::Context) -> Self::Result {
        let c = self.counters;
        let mean = c.all_rounds.checked_div(u32::try_from(c.rounds).unwrap_or(u32::MAX)).unwrap_or_default();
        let loads = self.core.partition_loads();
        let pairs = [
            ("Jobs submitted", c.submitted),
            ("Jobs started", c.started),
            ("Jobs ended", c.ended),
            ("Jobs pending", loads.iter().map(|l| l.pending).sum()),
            ("Jobs running", loads.iter().map(|l| l.running).sum()),
            ("Total cycles", c.rounds),
            ("Last cycle", c.last_round.as_micros() as u64),
            ("Max cycle", c.longest_round.as_micros() as u64),
            ("Mean cycle", mean.as_micros() as u64),
            ("Commits in flight", self.in_flight.len() as u64),
            ("Runners", self.runners.len() as u64),
        ];
        MessageResult(pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect())
    }
}
