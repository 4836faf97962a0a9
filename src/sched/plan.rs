//! Which jobs start now.

use super::backfill::{Round, Running, Verdict};
use super::choice::Choice;
use super::core::Core;
use super::queue::QueueKey;
use super::room::Part;
use super::types::{Cx, Effect};
use crate::model::diagnostics::RoundFacts;
use crate::model::request::JobKind;
use crate::model::{Job, JobId, JobState, Reason, Timestamp};
use std::sync::Arc;

/// When a job that holds resources gives them back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedEnd {
    /// It has no time limit, or is suspended.
    Unknown,
    /// By its time limit. One that is overdue, or is ending already, is expected to be gone in a moment.
    ByLimit(Timestamp),
    /// As earlier jobs of its name took. One that takes longer already may take for ever.
    AsEarlier(Timestamp),
}

impl ExpectedEnd {
    pub fn at(self) -> Option<Timestamp> {
        match self {
            ExpectedEnd::Unknown => None,
            ExpectedEnd::ByLimit(at) | ExpectedEnd::AsEarlier(at) => Some(at),
        }
    }

    pub fn is_estimate(self) -> bool {
        matches!(self, ExpectedEnd::AsEarlier(_))
    }
}

/// `usual_secs`: how long jobs of its name took.
pub fn expected_end(job: &Job, usual_secs: Option<u64>, now: Timestamp) -> ExpectedEnd {
    let soon = Timestamp(now.0.saturating_add(1_000_000));
    let after = |secs| {
        let suspended = std::time::Duration::from_micros(job.run.suspended_us);
        Some(job.run.start?.plus_secs(secs).plus(suspended).plus_us(job.run.stepped_us))
    };
    match job.run.state {
        JobState::Completing => ExpectedEnd::ByLimit(soon),
        JobState::Running => match job.request.time_limit_secs {
            Some(limit) => {
                after(limit).map_or(ExpectedEnd::Unknown, |end| ExpectedEnd::ByLimit(end.max(soon)))
            }
            None => {
                let end = usual_secs.and_then(after).filter(|end| *end >= soon);
                end.map_or(ExpectedEnd::Unknown, ExpectedEnd::AsEarlier)
            }
        },
        JobState::Suspended => ExpectedEnd::Unknown,
        JobState::Pending
        | JobState::Completed
        | JobState::Failed
        | JobState::Cancelled
        | JobState::Timeout
        | JobState::OutOfMemory
        | JobState::NodeFail => ExpectedEnd::ByLimit(now),
    }
}

impl Core {
    /// One scheduling round: whatever can start, starts. To be called after facts and commands; what it does depends on
    /// the state and the time alone.
    pub fn plan(&mut self, cx: &mut Cx) {
        self.plan_by(Core::one_pass, cx);
    }

    /// The same with any pass over the queue.
    pub(super) fn plan_by(&mut self, pass: fn(&mut Core, &mut Cx), cx: &mut Cx) {
        self.last_round = RoundFacts::default();
        self.purge(cx);
        // A start may let others go (`after:12`), and so may the end of one that could not wait.
        let looks_again = self.ledger.room().is_shown_by_starts();
        let seen = |core: &Core| (core.queue.arrivals(), core.starts * u64::from(looks_again));
        loop {
            let before = seen(self);
            pass(self, cx);
            self.settle(cx);
            if seen(self) == before {
                self.expire_immediate(cx);
                self.settle(cx);
            }
            if seen(self) == before {
                self.replace_spares(cx);
                return self.tell_never(cx);
            }
        }
    }

    fn one_pass(&mut self, cx: &mut Cx) {
        if !self.takes_starts() {
            return self.probe(cx);
        }
        let mut round = Round::new(cx.now);
        while let Some(key) = round.next(&self.queue, self.ledger.room(), &self.config.host) {
            self.look_at(key, &mut round, cx);
        }
    }

    /// Starts a record of the queue, if it may.
    pub(super) fn look_at(&mut self, key: QueueKey, round: &mut Round, cx: &mut Cx) {
        let is_behind = round.is_blocked();
        let outcome = self.try_start(key, round, cx);
        self.count_try(&outcome, is_behind);
        if let Tried::Stale = outcome {
            self.refresh(key.id, cx.now);
            self.arm(key.id, cx.now);
        }
    }

    fn count_try(&mut self, outcome: &Tried, is_behind: bool) {
        let facts = &mut self.last_round;
        let started = match outcome {
            Tried::Started => true,
            Tried::Waits => false,
            Tried::Stale => return,
        };
        facts.tried += 1;
        facts.behind += u64::from(is_behind);
        facts.backfilled += u64::from(is_behind && started);
    }

    fn try_start(&mut self, key: QueueKey, round: &mut Round, cx: &mut Cx) -> Tried {
        let Some(record) = self.jobs.get(&key.id) else { return Tried::Stale };
        let Some(choice) = self.open_choice(record, key, cx.now) else { return Tried::Stale };
        let (room, host) = (self.ledger.room(), &self.config.host);
        let lacks = self.lacks_readings(&choice.want(), cx.now);
        match round.consider(key, &record.places, room, host, || self.running_jobs(cx.now)) {
            Verdict::Wait => Tried::Waits,
            Verdict::Start(part) if lacks.is_any() => {
                // It will start in a moment, and nobody else takes its place until then.
                round.hold(key.id, &part, room);
                self.want_readings(lacks);
                Tried::Waits
            }
            Verdict::Start(part) => match self.start(key.id, part, cx) {
                true => {
                    let places = self.jobs.get(&key.id).map_or(&[][..], |record| &record.places);
                    round.moved(key.id, places);
                    Tried::Started
                }
                false => Tried::Waits,
            },
        }
    }

    /// Starts a pending record, or one task of a compact one, with this part of what is free.
    pub(super) fn start(&mut self, id: JobId, part: Part, cx: &mut Cx) -> bool {
        let Some(record) = self.jobs.get(&id) else { return false };
        if self.limit_of_expanded(id, part.alloc.tres.cpus, |_| ()).is_some() {
            return false;
        }
        if record.places.len() > 1 {
            // What it kept from starting in another line may start now.
            self.queue.look_again();
        }
        let task = self.next_task(&record.job, record.waits.as_deref(), cx.now);
        let own = match task {
            Some(task) => match self.split_task(id, task) {
                Some(own) => own,
                None => return false,
            },
            None => id,
        };
        self.go_to(own, part.place.partition);
        if let Some(target) = self.expanded_by(own) {
            return self.expand(target, own, id, part.alloc, cx);
        }
        let alloc = part.alloc.clone();
        self.ledger.take(own, part);
        self.starts += 1;
        if let Some(record) = self.jobs.get_mut(&own) {
            record.start_order = self.starts;
            let job = &mut record.job;
            job.run.alloc = Some(alloc.into());
            job.run.start = Some(cx.now);
            (job.run.clock, job.run.stepped_us) = (Some(self.clock), 0);
            job.run.end = None;
            job.run.reason = Reason::None;
            job.run.eligible.get_or_insert(cx.now);
        }
        if !self.transition(own, JobState::Running, cx.now) {
            return false;
        }
        // The array has had its turn.
        for compact in self.pending_compact_of(own) {
            self.refresh(compact, cx.now);
        }
        self.save_start(own, id, cx);
        self.arm(own, cx.now);
        true
    }

    /// Of the partitions that a job may go to, it takes this one.
    fn go_to(&mut self, id: JobId, partition: Option<usize>) {
        let Some(job) = self.job(id).filter(|job| job.has_several_partitions()) else { return };
        let place = |choice: &Choice| choice.want().place.partition;
        let chosen = Choice::all(job, &self.config).find(|choice| place(choice) == partition);
        let Some(Choice { partition: Some(partition), tres, limit_secs, .. }) = chosen else {
            return;
        };
        let name = partition.name.clone();
        self.reshape(id, |job| {
            (job.partition, job.tres) = (name, tres);
            if job.request.time_limit_secs != limit_secs {
                Arc::make_mut(&mut job.request).time_limit_secs = limit_secs;
            }
        });
    }

    fn save_start(&mut self, own: JobId, from: JobId, cx: &mut Cx) {
        self.save_split(own, from, cx);
        let Some(job) = self.job(own) else { return };
        match job.request.kind {
            JobKind::Batch | JobKind::Run => {
                let job = Box::new(job.clone());
                cx.out.effects.push(Effect::Launch(job));
            }
            JobKind::Allocation => cx.out.effects.push(Effect::Granted(own)),
        }
    }

    /// The jobs that hold resources, as others wait for them.
    pub(super) fn running_jobs(&self, now: Timestamp) -> Vec<Running> {
        self.active
            .iter()
            .filter_map(|id| self.jobs.get(id))
            .filter_map(|record| {
                let job = &record.job;
                let part = self.ledger.held(job.id)?.clone();
                let end = expected_end(job, self.experience.expected_secs(&job.request), now);
                Some(Running { id: job.id, end, order: record.start_order, part })
            })
            .collect()
    }
}

enum Tried {
    Started,
    Waits,
    /// The queue was out of date about it.
    Stale,
}
