//! Decides which jobs start now.

use super::choice::Choice;
use super::core::Core;
use super::line::backfill::{Round, Verdict};
use super::line::preempt::Bid;
use super::line::queue::QueueKey;
use super::resources::capacity::{CpuSharing, Part};
use super::types::{Cx, Effect};
use slotd_model::request::JobKind;
use slotd_model::{JobId, JobState, Reason, Timestamp, reservation};
use std::sync::Arc;

/// The most jobs of the queue to examine for one that can be tried.
const PROBE_DEPTH: usize = 1000;

impl Core {
    /// Runs one scheduling round: every job that can start does. Call it after facts and commands;
    /// the result depends on the state and the time alone.
    pub fn plan(&mut self, cx: &mut Cx) {
        self.plan_by(Core::one_pass, cx);
    }

    /// Like [`Core::plan`], with any pass over the queue.
    pub(super) fn plan_by(&mut self, pass: fn(&mut Core, &mut Cx), cx: &mut Cx) {
        self.line.begin_round();
        self.purge(cx);
        // The timer of a reservation may be late.
        self.follow_reservations(cx);
        // A start may unblock others (`after:12`), and so may the end of a job with `--immediate`.
        let capacity = self.resources.ledger().capacity();
        let queue = self.line.queue();
        let repeats_after_start = queue.start_may_unblock(capacity) || queue.names_cpus();
        let seen = |core: &Core| {
            (core.line.queue().arrivals(), core.records.starts() * u64::from(repeats_after_start))
        };
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
                return self.notify_never(cx);
            }
        }
    }

    fn one_pass(&mut self, cx: &mut Cx) {
        if !self.resources.node().takes_starts() {
            self.probe(cx);
            return self.resume_preempted(&self.round(cx.now), cx);
        }
        let mut round = self.round(cx.now);
        while let Some(key) =
            round.next(self.line.queue(), self.resources.ledger().capacity(), self.resources.host())
        {
            self.consider(key, &mut round, cx);
        }
        self.resume_preempted(&round, cx);
    }

    /// Begins a pass over the queue.
    pub(super) fn round(&self, now: Timestamp) -> Round {
        let (config, ledger) = (self.resources.config(), self.resources.ledger());
        let running = || self.line.running(&self.records, ledger, now);
        Round::new(now, config, ledger.capacity(), running).with_victims(self.victims())
    }

    /// Starts one job of a drained node if it is time: the first one of the queue that has not
    /// failed, or else the first one.
    fn probe(&mut self, cx: &mut Cx) {
        let Some(failed) = self.resources.node().due_probe(cx.now) else { return };
        let mut keys = Vec::new();
        let mut next = self.line.queue().first();
        while let Some(key) = next.filter(|_| keys.len() < PROBE_DEPTH) {
            keys.push(key);
            next = self.line.queue().after(key);
        }
        let submission = |id: JobId| self.records.submission(id);
        keys.sort_by_key(|key| failed.contains(&submission(key.id)));
        let starts = self.records.starts();
        let round = self.round(cx.now);
        for key in keys {
            let Some(record) = self.records.get(key.id) else { continue };
            let Some(choice) = self.open_choice(record, key, cx.now) else { continue };
            let want = choice.want();
            let (capacity, host) = (self.resources.ledger().capacity(), self.resources.host());
            let (job, limit_secs) = (Some(key.id), choice.limit_secs);
            let part = round.passing(&Bid { job, want: &want, limit_secs, capacity, host });
            let lacks = self.resources.lacks_readings(&want, cx.now);
            if lacks.is_any() {
                // The answer triggers a round.
                self.resources.want_readings(lacks);
                continue;
            }
            if part.is_some_and(|part| self.start(key.id, part, cx)) {
                break;
            }
        }
        let started = (self.records.starts() > starts).then(|| cx.out.effects.last()).flatten();
        let probe = started.and_then(|effect| match effect {
            Effect::Launch(job) => Some(job.id),
            Effect::Granted(id) => Some(*id),
            _ => None,
        });
        self.resources.node_mut().note_probe(probe, cx.now);
    }

    /// Considers a record of the queue and starts it if possible.
    pub(super) fn consider(&mut self, key: QueueKey, round: &mut Round, cx: &mut Cx) {
        let is_behind = round.is_blocked();
        let outcome = self.try_start(key, round, cx);
        match outcome {
            Tried::Started => self.line.count_try(true, is_behind),
            Tried::Waits => self.line.count_try(false, is_behind),
            Tried::Stale => {
                self.refresh(key.id, cx.now);
                self.arm(key.id, cx.now);
            }
        }
    }

    fn try_start(&mut self, key: QueueKey, round: &mut Round, cx: &mut Cx) -> Tried {
        let Some(record) = self.records.get(key.id) else { return Tried::Stale };
        let Some(choice) = self.open_choice(record, key, cx.now) else { return Tried::Stale };
        let (capacity, host) = (self.resources.ledger().capacity(), self.resources.host());
        let lacks = self.resources.lacks_readings(&choice.want(), cx.now);
        match round.consider(key, &record.places, capacity, host, || {
            self.line.running(&self.records, self.resources.ledger(), cx.now)
        }) {
            Verdict::Wait if lacks.is_any() => Tried::Waits,
            Verdict::Wait => match self.make_room(key, round, cx) {
                Some(part) => self.start_in(key, part, round, cx),
                None => Tried::Waits,
            },
            Verdict::Start(part) if lacks.is_any() => {
                // It will start in a moment; reserve its resources until then.
                round.hold(key.id, &part, capacity);
                self.resources.want_readings(lacks);
                Tried::Waits
            }
            Verdict::Start(part) => self.start_in(key, part, round, cx),
        }
    }

    fn start_in(&mut self, key: QueueKey, part: Part, round: &mut Round, cx: &mut Cx) -> Tried {
        if !self.start(key.id, part, cx) {
            return Tried::Waits;
        }
        let places = self.records.get(key.id).map_or(&[][..], |record| &record.places);
        round.moved(key.id, places);
        Tried::Started
    }

    /// Starts a pending record, or one task of a compact record, with this part of the free
    /// resources.
    pub(super) fn start(&mut self, id: JobId, mut part: Part, cx: &mut Cx) -> bool {
        let Some(record) = self.records.get(id) else { return false };
        if self.limit_of_expanded(id, &part.alloc.tres, |_| ()).is_some() {
            return false;
        }
        if record.places.len() > 1 {
            // A job that it kept from starting in another line may start now.
            self.line.request_round();
        }
        let task = self.records.next_task(&record.job, record.waits.as_deref(), cx.now);
        let own = match task {
            Some(task) => match self.records.split_task(id, task) {
                Some(own) => {
                    self.records.single_out_last(id);
                    own
                }
                None => return false,
            },
            None => id,
        };
        self.go_to(own, &part.place);
        if let Some(target) = self.records.expanded_by(own) {
            return self.expand(target, own, id, part.alloc, cx);
        }
        part.alloc.gpu_uuids = self.resources.host().gpu_uuids(&part.alloc.gpu_ids);
        let alloc = part.alloc.clone();
        self.resources.take(own, part);
        self.records.note_start(own);
        let clock = self.records.clock();
        self.records.edit(own, |job| {
            job.run.alloc = Some(alloc.into());
            job.run.start = Some(cx.now);
            (job.run.clock, job.run.stepped_us) = (Some(Box::new(clock)), 0);
            job.run.end = None;
            job.run.reason = Reason::None;
            job.run.eligible.get_or_insert(cx.now);
        });
        if !self.transition(own, JobState::Running, cx.now) {
            return false;
        }
        // The array has had its turn.
        self.refresh_compact(own, cx.now);
        self.save_start(own, id, cx);
        self.arm(own, cx.now);
        true
    }

    /// Fixes the partition and the reservation of a job that may use several.
    fn go_to(&mut self, id: JobId, to: &CpuSharing) {
        let Some(job) = self.job(id) else { return };
        let is_settled = !job.has_several_partitions();
        if is_settled && reservation::names(&job.request).nth(1).is_none() {
            return;
        }
        let is_chosen = |choice: &Choice| {
            let place = choice.want().place;
            (place.partition, place.limits.reservation()) == (to.partition, to.limits.reservation())
        };
        let chosen = Choice::all(job, self.resources.config()).find(is_chosen);
        let Some(Choice { partition: Some(partition), tres, limit_secs, reservation, .. }) = chosen
        else {
            return;
        };
        let (name, reservation) =
            (partition.name.clone(), reservation.flatten().map(|known| known.name.clone()));
        self.records.edit(id, |job| {
            (job.partition, job.tres) = (name.into(), tres);
            let request = &job.request;
            if request.time_limit_secs != limit_secs || request.reservation != reservation {
                let request = Arc::make_mut(&mut job.request);
                (request.time_limit_secs, request.reservation) = (limit_secs, reservation);
            }
        });
    }

    fn save_start(&mut self, own: JobId, from: JobId, cx: &mut Cx) {
        self.records.save_split(own, from, cx);
        let Some(job) = self.job(own) else { return };
        match job.request.kind {
            JobKind::Batch | JobKind::Run => {
                let job = Box::new(job.clone());
                cx.out.effects.push(Effect::Launch(job));
            }
            JobKind::Allocation => {
                cx.out.effects.push(Effect::Granted(own));
                self.record_first_step(own, cx);
            }
        }
    }
}

enum Tried {
    Started,
    Waits,
    /// The queue entry was out of date.
    Stale,
}
