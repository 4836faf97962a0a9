//! EASY backfill: the first blocked job holds a reservation, and later ones may only pass it if
//! they do not delay it.
//!
//! Running jobs are assumed to end at their time limits. A job without a limit is assumed to take
//! as long as earlier jobs of its name; without either, it is assumed to end after all others, the
//! oldest first. The blocked job is expected to start when enough of them have ended; the resources
//! then left over are spare. A later job may start if it ends, by its own limit, before that
//! moment, or if it takes only spare resources. So the blocked job always waits for the same
//! running jobs, and starts no later than reserved.
//!
//! Partitions with separate parts of the host have separate lines, and the first blocked job of
//! each line holds a reservation: a job that passes must not delay any of them. Partitions with the
//! same part of the host share one line.
//!
//! A job that may run in several partitions is in several lines. Its reservation is in the line
//! where it is expected to start first, and does not keep the job itself from starting elsewhere.
//!
//! The reservations that the owner makes come first of all; see `reserved`. A blocked job that would
//! run into one holds no reservation itself.
//!
//! The plan and the forecast for `squeue --start` use the same [`Round`], so they cannot disagree.

use super::preempt::{Bid, Victims};
use super::queue::{Place, Queue, QueueKey, Shape};
use super::reserved::{self, Moment};
use super::run_times::ExpectedEnd;
use crate::resources::capacity::{Capacity, Part, Want};
use crate::types::Config;
use slotd_model::partition::Host;
use slotd_model::{JobId, Timestamp};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;

/// A running job, reduced to the facts that reservations need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    pub id: JobId,
    pub end: ExpectedEnd,
    /// The order of starts, also of jobs that started at the same time.
    pub order: u64,
    pub part: Part,
}

impl Running {
    /// Returns the sort key of the expected order of ends.
    pub(crate) fn turn(&self) -> impl Ord + use<> {
        (self.end.at().is_none(), self.end.at(), self.order)
    }
}

/// The reservation of the first blocked job of a line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reservation {
    /// The latest start; `None` if the job waits for one without a time limit.
    pub at: Option<Timestamp>,
    /// The resources that others may use beyond that moment; `None` for none.
    pub(super) spare: Option<Moment>,
}

/// A reservation and its owner.
#[derive(Debug)]
pub(super) struct Kept {
    pub line: usize,
    pub job: JobId,
    pub reservation: Reservation,
    /// The part with which the job starts as soon as jobs that are ending have ended.
    pub claim: Option<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub(crate) enum Verdict {
    /// Start with this part of the host.
    Start(Part),
    /// The job does not fit, or would delay a blocked one.
    Wait,
}

/// One pass over a queue at one moment: [`Round::next`] and [`Round::consider`] in turn, until
/// `next` returns `None`.
///
/// During a pass free resources only decrease, and a record that starts or moves gets a later
/// place. So a shape that has to wait does so until the end of the pass and need not be considered
/// again. The result is the same as if every record were considered.
#[derive(Debug)]
pub(crate) struct Round {
    pub(super) now: Timestamp,
    /// The spare resources at the starts of the owner's reservations.
    pub(super) moments: Vec<Moment>,
    /// One for each line with a blocked job, and one for each job with a claim.
    pub(super) reservations: Vec<Kept>,
    /// The running jobs that may have to make room for others.
    pub(super) victims: Victims,
    /// The places of blocked jobs in other lines that have not been considered yet.
    elsewhere: Vec<Place>,
    /// Whether any record had to wait. From then on, all records of a shape that has to wait are
    /// skipped.
    by_shape: bool,
    /// The record that was considered last.
    at: Option<QueueKey>,
    /// The shape of that record, once `by_shape` is set, unless the shape has to wait.
    pub(super) shape: Option<Arc<Shape>>,
    /// The next record of each other shape that is worth considering. `None` until a record had to
    /// wait.
    heads: Option<BinaryHeap<Reverse<Head>>>,
}

/// The next record of a shape. `IsAlone`: no other record of its shape is worth considering.
type Head = (QueueKey, Arc<Shape>, IsAlone);
type IsAlone = bool;

impl Round {
    /// Begins a pass. `running` is called if there are reservations of the owner.
    pub(crate) fn new(
        now: Timestamp,
        config: &Config,
        capacity: &Capacity,
        running: impl FnOnce() -> Vec<Running>,
    ) -> Self {
        Round {
            now,
            moments: reserved::moments(config, now, capacity, running),
            reservations: Vec::new(),
            victims: Victims::default(),
            elsewhere: Vec::new(),
            by_shape: false,
            at: None,
            shape: None,
            heads: None,
        }
    }

    /// Lets these running jobs make room for others.
    #[must_use]
    pub(crate) fn with_victims(self, victims: Victims) -> Self {
        Round { victims, ..self }
    }

    /// Returns whether a job was found blocked. All records considered from then on are behind it.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.reservations.is_empty()
    }

    /// Returns the reservation of the first job that this round found blocked.
    #[cfg(test)]
    pub(crate) fn reservation(&self) -> Option<&Reservation> {
        self.reservations.first().map(|kept| &kept.reservation)
    }

    /// Returns the next record to consider: the first one that might start, or that is the first
    /// blocked one of its line.
    pub(crate) fn next(
        &mut self,
        queue: &Queue,
        capacity: &Capacity,
        host: &Host,
    ) -> Option<QueueKey> {
        let most = capacity.most_cpus();
        if most == 0 && self.victims.is_empty() {
            return None;
        }
        if !self.by_shape {
            self.at = self.at.map_or_else(|| queue.first(), |at| queue.after(at));
            return self.at;
        }
        let from = self.at?;
        let (heads, last, elsewhere) =
            (self.heads.take(), self.shape.take(), std::mem::take(&mut self.elsewhere));
        let is_worth = |shape: &Shape| {
            let want = shape.want();
            let bid = Bid { job: None, want: &want, limit_secs: shape.limit, capacity, host };
            let is_first =
                !self.has_reservation(&want, capacity) && may_reserve(&want, capacity, host);
            is_first || self.passing(&bid).is_some() || self.enough(&bid).is_some()
        };
        let next_of = |shape: Arc<Shape>, at| {
            queue.after_of(&shape, at).map(|key| Reverse((key, shape, false)))
        };
        let mut heads = heads.unwrap_or_else(|| {
            let is_wide_enough = |shape: &&Arc<Shape>| {
                shape.needs_cpus() <= most
                    || !self.victims.is_empty()
                    || capacity.lines() > self.reservations.len()
            };
            let shapes = queue.shapes().take_while(is_wide_enough).filter(|shape| is_worth(shape));
            shapes.filter_map(|shape| next_of(Arc::clone(shape), from)).collect()
        });
        heads.extend(last.and_then(|shape| next_of(shape, from)));
        heads.extend(elsewhere.into_iter().map(|Place { key, shape }| Reverse((key, shape, true))));
        let found = loop {
            let Some(Reverse((key, shape, is_alone))) = heads.pop() else { break None };
            match (is_worth(&shape), queue.contains(&key)) {
                // It is considered along with the rest of its shape anyway.
                (true, _) if is_alone => {}
                (false, true) if is_alone => break Some((key, None)),
                (true, true) => break Some((key, Some(shape))),
                // The record has moved, or has left the queue.
                (true, false) => heads.extend(next_of(shape, key)),
                (false, _) => {}
            }
        };
        self.heads = Some(heads);
        let (key, shape) = found?;
        (self.at, self.shape) = (Some(key), shape);
        self.at
    }

    pub(super) fn has_reservation(&self, want: &Want, capacity: &Capacity) -> bool {
        let line = capacity.line(want.place.partition);
        self.reservations.iter().any(|kept| kept.line == line && kept.claim.is_none())
    }

    /// Decides whether the record that [`Round::next`] returned may start in `capacity`. `places`
    /// lists all places of the record. `running` is called if the job is the first of its line and
    /// blocked; it must include the jobs that this round has started.
    pub(crate) fn consider(
        &mut self,
        key: QueueKey,
        places: &[Place],
        capacity: &Capacity,
        host: &Host,
        running: impl FnOnce() -> Vec<Running>,
    ) -> Verdict {
        let Some(Place { shape, .. }) = places.iter().find(|place| place.key == key) else {
            return self.wait();
        };
        let (want, limit_secs) = (shape.want(), shape.limit);
        let is_first = !self.has_reservation(&want, capacity) && may_reserve(&want, capacity, host);
        let (has_room, fits) = match self.free_now(&want, capacity).filter(|_| is_first) {
            Some(free) => (true, free.fits(&want, host)),
            None => (false, false),
        };
        if is_first && !fits {
            if has_room && self.reservations.iter().all(|kept| kept.job != key.id) {
                let kept = self.earliest(key, places, capacity, host, &running());
                self.reservations.extend(kept);
            }
            self.elsewhere.extend(places.iter().filter(|place| place.key > key).cloned());
            return self.wait();
        }
        let bid = Bid { job: Some(key.id), want: &want, limit_secs, capacity, host };
        let Some(part) = self.passing(&bid) else { return self.wait() };
        self.note_start(&part, &bid);
        Verdict::Start(part)
    }

    /// Notes that a job starts.
    pub(super) fn note_start(&mut self, part: &Part, bid: &Bid) {
        let Bid { want, capacity, host, .. } = *bid;
        // The job's own reservation stays until the end of the pass: nothing becomes free in
        // between.
        let (now, limit_secs) = (self.now, self.limit(want, bid.limit_secs, capacity));
        let later = self.moments.iter_mut().filter(|moment| !ends_by(now, moment.at(), limit_secs));
        later.for_each(|moment| moment.take(part, host));
        let delayed = self
            .reservations
            .iter_mut()
            .filter(|kept| !ends_before(now, &kept.reservation, limit_secs));
        delayed
            .filter_map(|kept| kept.reservation.spare.as_mut())
            .for_each(|spare| spare.take(part, host));
    }

    /// Returns the reservation that a blocked job gets: the one with the earliest start, among the
    /// lines where it is the first blocked job.
    fn earliest(
        &self,
        key: QueueKey,
        places: &[Place],
        capacity: &Capacity,
        host: &Host,
        running: &[Running],
    ) -> Option<Kept> {
        let own = places.iter().filter(|place| place.key >= key && place.key.tier == key.tier);
        let kept = own.filter_map(|place| {
            let want = place.shape.want();
            let free = self.free_now(&want, capacity)?;
            let is_blocked = !self.has_reservation(&want, capacity)
                && may_reserve(&want, capacity, host)
                && !free.fits(&want, host);
            if !is_blocked {
                return None;
            }
            let (running, lenders) = self.as_seen_by(&want.place, running.to_vec());
            let mut reservation = reserve(&want, &free, running, host);
            if let Some(spare) = &mut reservation.spare {
                spare.note_gone(lenders);
                if let Some(present) = self.present() {
                    spare.keep_as(present, want.place.limits.reservation());
                }
            }
            let line = capacity.line(want.place.partition);
            let limit = self.limit(&want, place.shape.limit, capacity);
            self.may_run_from(&reservation, &want, limit, host).then_some(Kept {
                line,
                job: key.id,
                reservation,
                claim: None,
            })
        });
        kept.min_by_key(|kept| kept.reservation.at.map_or(i64::MAX, |at| at.0))
    }

    /// Returns the owner's reservations that have begun.
    fn present(&self) -> Option<&Moment> {
        self.moments.iter().find(|moment| moment.at() == self.now)
    }

    /// Returns what a job may use now beside the owner's reservations and the claims of other jobs;
    /// `None` for nothing.
    fn free_now<'a>(&'a self, want: &Want, capacity: &'a Capacity) -> Option<Cow<'a, Capacity>> {
        let free = match self.present() {
            Some(moment) => moment.spare_for(want.place.limits.reservation())?,
            None => Cow::Borrowed(capacity),
        };
        let mut free = self.with_lent(free, &want.place);
        let claims = self.reservations.iter().filter_map(|kept| kept.claim.as_ref());
        claims.for_each(|part| free.to_mut().take(part));
        Some(free)
    }

    /// Returns how long a job runs at most: until the end of its reservation.
    pub(super) fn limit(
        &self,
        want: &Want,
        limit_secs: Option<u64>,
        capacity: &Capacity,
    ) -> Option<u64> {
        let end = capacity.job_end(&want.place).map(|end| end.since(self.now).as_secs());
        limit_secs.into_iter().chain(end).min()
    }

    /// Returns whether a job could use what it has reserved, and would not run into a reservation
    /// of the owner. Otherwise it keeps no other job waiting.
    fn may_run_from(
        &self,
        reserved: &Reservation,
        want: &Want,
        limit_secs: Option<u64>,
        host: &Host,
    ) -> bool {
        let from = reserved.at.unwrap_or(self.now);
        let later = self.moments.iter().filter(|moment| moment.at() > self.now);
        later.filter(|moment| !ends_by(from, moment.at(), limit_secs)).all(|moment| {
            moment
                .spare_for(want.place.limits.reservation())
                .is_some_and(|spare| spare.fits(want, host) || moment.at() <= from)
        })
    }

    /// Makes all records of this shape wait.
    fn wait(&mut self) -> Verdict {
        (self.by_shape, self.shape) = (true, None);
        Verdict::Wait
    }

    /// Notes that a task of this array has just started, and that the array is now at these places.
    /// The array's reservation must not keep its own next task from starting, though it may keep
    /// other records of the same shape from it.
    pub(crate) fn moved(&mut self, array: JobId, places: &[Place]) {
        if self.reservations.iter().any(|kept| kept.job == array) {
            self.elsewhere.extend_from_slice(places);
        }
    }

    /// Reserves for a job the part that it could start with, because it may not start yet.
    pub(crate) fn hold(&mut self, job: JobId, part: &Part, capacity: &Capacity) {
        let line = capacity.line(part.place.partition);
        if self.reservations.iter().all(|kept| kept.line != line) {
            let mut spare = capacity.clone();
            spare.take(part);
            let spare = Moment::alone(self.now, spare, BTreeSet::new());
            let reservation = Reservation { at: Some(self.now), spare: Some(spare) };
            self.reservations.push(Kept { line, job, reservation, claim: None });
            self.by_shape = true;
        }
    }

    /// Returns the part that a job gets if it may start: it fits, and does not delay the blocked
    /// jobs before it.
    pub(crate) fn passing(&self, bid: &Bid) -> Option<Part> {
        self.part_without(&[], bid.job.as_slice(), bid)
    }
}

/// Returns whether the job may hold a reservation. A job at a limit may not, and neither may one
/// whose QOS reserves nothing.
fn may_reserve(want: &Want, capacity: &Capacity, host: &Host) -> bool {
    capacity.reserves(&want.place)
        && capacity.limit_reached(&want.place, &want.tres, host).is_none()
}

/// Returns whether a job that starts at `from` ends by `at`.
pub(super) fn ends_by(from: Timestamp, at: Timestamp, limit_secs: Option<u64>) -> bool {
    limit_secs.is_some_and(|limit| from.plus_secs(limit) <= at)
}

pub(super) fn ends_before(
    now: Timestamp,
    reservation: &Reservation,
    limit_secs: Option<u64>,
) -> bool {
    match (limit_secs, reservation.at) {
        (Some(limit), Some(at)) => now.plus_secs(limit) <= at,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// Returns the reservation of a job that does not fit into the free resources.
fn reserve(want: &Want, now: &Capacity, running: Vec<Running>, host: &Host) -> Reservation {
    let mut capacity = now.clone();
    let gone = end_until_it_fits(want, &mut capacity, running, host);
    let at = gone.last().and_then(|last| last.end.at());
    let gone = gone.iter().map(|running| running.id).collect();
    // A job that does not fit even then waits for the host to change: nothing is spare, and its
    // start is unknown.
    let Some(part) = capacity.pick_beside(now, want, host) else {
        return Reservation { at: None, spare: None };
    };
    capacity.take(&part);
    // Without an expected time, the moment does not matter.
    let spare = Moment::alone(at.unwrap_or_default(), capacity, gone);
    Reservation { at, spare: Some(spare) }
}

/// Returns the latest start of a job that does not fit into `now`, or `None` if it is unknown.
pub(crate) fn latest_start(
    want: &Want,
    now: &Capacity,
    running: Vec<Running>,
    host: &Host,
) -> Option<Timestamp> {
    reserve(want, now, running, host).at.filter(|_| !now.fits(want, host))
}

/// Returns the running jobs that have to end first, in their expected order; all of them if that is
/// not enough.
fn end_until_it_fits(
    want: &Want,
    capacity: &mut Capacity,
    mut running: Vec<Running>,
    host: &Host,
) -> Vec<Running> {
    running.sort_by_key(Running::turn);
    for at in 0..running.len() {
        let (r, next) = (&running[at], running.get(at + 1));
        capacity.give(&r.part);
        // Jobs that end at the same time release their resources together.
        if r.end.at().is_some() && next.is_some_and(|next| next.end.at() == r.end.at()) {
            continue;
        }
        if capacity.fits(want, host) {
            running.truncate(at + 1);
            break;
        }
    }
    running
}

/// Returns the running jobs that a job not fitting into `now` waits for, in their expected order.
/// Jobs whose resources it does not need are left out.
pub(crate) fn waits_for(
    want: &Want,
    now: &Capacity,
    running: Vec<Running>,
    host: &Host,
) -> Vec<Running> {
    let mut capacity = now.clone();
    let gone = end_until_it_fits(want, &mut capacity, running, host);
    let is_needed = |r: &Running| {
        capacity.take(&r.part);
        let is_needed = !capacity.fits(want, host);
        if is_needed {
            capacity.give(&r.part);
        }
        is_needed
    };
    // Backwards, so that the first to start remain of jobs that end at the same time.
    let mut gone: Vec<Running> = gone.into_iter().rev().filter(is_needed).collect();
    gone.reverse();
    gone
}
