//! EASY backfill: the first blocked job holds a reservation, and later ones may only pass it if
//! they do not delay it.
//!
//! The reservation: running jobs are assumed to end at their time limits, or after as long as
//! earlier jobs of their name took where they have none, in that order, and those of which nothing
//! is known after all others, the oldest first. The job is expected to start when enough of them
//! have ended; what is then left over is spare. A later job may start if it ends, by its own limit,
//! before that moment, or if it takes no more than what is spare. So whatever starts, the jobs that
//! the blocked one waits for stay the same, and it starts no later than reserved.
//!
//! Partitions that have parts of the host of their own have lines of their own, and the first
//! blocked job of each line holds a reservation: whoever passes must not delay any of them. Jobs of
//! partitions that have the same part stand in one line.
//!
//! A job that may go to several partitions stands in several lines. What is kept for it is kept
//! where it is expected to start first, and does not keep itself from starting elsewhere.
//!
//! One [`Round`] serves the plan itself and the forecast for `squeue --start`: they can't disagree.

use super::queue::{Place, Queue, QueueKey, Shape};
use super::run_times::ExpectedEnd;
use crate::model::partition::Host;
use crate::model::{JobId, Timestamp};
use crate::sched::resources::capacity::{Capacity, Part, Want};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// A running job, as far as others wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    pub id: JobId,
    pub end: ExpectedEnd,
    /// Who started before whom, also within one moment.
    pub order: u64,
    pub part: Part,
}

/// What is kept for the first blocked job of a line.
#[derive(Debug, Clone, PartialEq)]
pub struct Reservation {
    /// When it starts at the latest; `None`: it waits for a job without a time limit.
    pub at: Option<Timestamp>,
    /// What others may use beyond that moment; `None`: nothing.
    spare: Option<Capacity>,
}

/// A reservation, and for whom.
#[derive(Debug)]
struct Kept {
    line: usize,
    job: JobId,
    reservation: Reservation,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// With this.
    Start(Part),
    /// It does not fit, or would delay the first blocked job.
    Wait,
}

/// One pass over a queue at one moment: [`Round::next`] and [`Round::consider`] in turn, until
/// there is none.
///
/// Meanwhile resources only become fewer, and a record that starts or moves gets a later place. So
/// a shape that has to wait has to until the end of the pass, and need not be looked at again; what
/// comes out is the same as if every record were considered.
#[derive(Debug)]
pub struct Round {
    now: Timestamp,
    /// One for each line with a blocked job.
    reservations: Vec<Kept>,
    /// Of the blocked jobs, the places that they have in other lines and that were not looked at
    /// yet.
    elsewhere: Vec<Place>,
    /// Whether a record had to wait: from then on whole shapes are passed over.
    by_shape: bool,
    /// What was considered last.
    at: Option<QueueKey>,
    /// Its shape, behind the first that had to wait, while it does not have to.
    shape: Option<Arc<Shape>>,
    /// Of the other shapes that are worth a look, the record that is next. `None`: none had to wait
    /// yet.
    heads: Option<BinaryHeap<Reverse<Head>>>,
}

/// A record that is next. `IsAlone`: of its shape only this one is worth a look.
type Head = (QueueKey, Arc<Shape>, IsAlone);
type IsAlone = bool;

impl Round {
    pub fn new(now: Timestamp) -> Self {
        Round {
            now,
            reservations: Vec::new(),
            elsewhere: Vec::new(),
            by_shape: false,
            at: None,
            shape: None,
            heads: None,
        }
    }

    /// Whether a job was found blocked: what is considered from now on stands behind it.
    pub fn is_blocked(&self) -> bool {
        !self.reservations.is_empty()
    }

    /// What this round keeps for the first job that it found blocked.
    #[cfg(test)]
    pub fn reservation(&self) -> Option<&Reservation> {
        self.reservations.first().map(|kept| &kept.reservation)
    }

    /// The next record that is to be considered: the first one that might start, or is the first
    /// blocked one of its line.
    pub fn next(&mut self, queue: &Queue, capacity: &Capacity, host: &Host) -> Option<QueueKey> {
        let most = capacity.most_cpus();
        if most == 0 {
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
            let is_first =
                !self.has_reservation(&want, capacity) && is_below_limits(&want, capacity, host);
            is_first || self.passing(None, &want, shape.limit, capacity, host).is_some()
        };
        let next_of = |shape: Arc<Shape>, at| {
            queue.after_of(&shape, at).map(|key| Reverse((key, shape, false)))
        };
        let mut heads = heads.unwrap_or_else(|| {
            let is_wide_enough = |shape: &&Arc<Shape>| {
                shape.needs_cpus() <= most || capacity.lines() > self.reservations.len()
            };
            let shapes = queue.shapes().take_while(is_wide_enough).filter(|shape| is_worth(shape));
            shapes.filter_map(|shape| next_of(Arc::clone(shape), from)).collect()
        });
        heads.extend(last.and_then(|shape| next_of(shape, from)));
        heads.extend(elsewhere.into_iter().map(|Place { key, shape }| Reverse((key, shape, true))));
        let found = loop {
            let Some(Reverse((key, shape, is_alone))) = heads.pop() else { break None };
            match (is_worth(&shape), queue.contains(&key)) {
                // With all others of its shape it is looked at anyway.
                (true, _) if is_alone => {}
                (false, true) if is_alone => break Some((key, None)),
                (true, true) => break Some((key, Some(shape))),
                // It has moved, or has left.
                (true, false) => heads.extend(next_of(shape, key)),
                (false, _) => {}
            }
        };
        self.heads = Some(heads);
        let (key, shape) = found?;
        (self.at, self.shape) = (Some(key), shape);
        self.at
    }

    fn has_reservation(&self, want: &Want, capacity: &Capacity) -> bool {
        let line = capacity.line(want.place.partition);
        self.reservations.iter().any(|kept| kept.line == line)
    }

    /// Whether the record that [`Round::next`] gave may start in `capacity`; `places` are all that it
    /// has. `running` is asked for when a job is found blocked as the first of its line; it must
    /// include what this round has started.
    pub fn consider(
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
        let is_first =
            !self.has_reservation(&want, capacity) && is_below_limits(&want, capacity, host);
        if is_first && !capacity.fits(&want, host) {
            if self.reservations.iter().all(|kept| kept.job != key.id) {
                let kept = self.earliest(key, places, capacity, host, &running());
                self.reservations.extend(kept);
            }
            self.elsewhere.extend(places.iter().filter(|place| place.key > key).cloned());
            return self.wait();
        }
        let Some(part) = self.passing(Some(key.id), &want, limit_secs, capacity, host) else {
            return self.wait();
        };
        // What was kept for itself stays so to the end of the pass: nothing becomes free meanwhile.
        let now = self.now;
        let delayed = self
            .reservations
            .iter_mut()
            .filter(|kept| !ends_before(now, &kept.reservation, limit_secs));
        delayed
            .filter_map(|kept| kept.reservation.spare.as_mut())
            .for_each(|spare| spare.take(&part));
        Verdict::Start(part)
    }

    /// What is kept for a blocked job: where it is expected to start first, of the lines in which
    /// it is the first too.
    fn earliest(
        &self,
        key: QueueKey,
        places: &[Place],
        capacity: &Capacity,
        host: &Host,
        running: &[Running],
    ) -> Option<Kept> {
        let own = places.iter().filter(|place| place.key >= key && place.key.tier == key.tier);
        let blocked = own.filter(|place| {
            let want = place.shape.want();
            !self.has_reservation(&want, capacity)
                && is_below_limits(&want, capacity, host)
                && !capacity.fits(&want, host)
        });
        let kept = blocked.map(|place| {
            let want = place.shape.want();
            let reservation = reserve(&want, capacity, running.to_vec(), host);
            Kept { line: capacity.line(want.place.partition), job: key.id, reservation }
        });
        kept.min_by_key(|kept| kept.reservation.at.map_or(i64::MAX, |at| at.0))
    }

    /// All of its shape have to.
    fn wait(&mut self) -> Verdict {
        (self.by_shape, self.shape) = (true, None);
        Verdict::Wait
    }

    /// A task of this array has just started, and the array stands in these places now. What is
    /// kept for it does not keep its next task from starting, as it may keep others of the same
    /// shape.
    pub fn moved(&mut self, array: JobId, places: &[Place]) {
        if self.reservations.iter().any(|kept| kept.job == array) {
            self.elsewhere.extend_from_slice(places);
        }
    }

    /// Keeps for a job what it could start with, since it may not start yet.
    pub fn hold(&mut self, job: JobId, part: &Part, capacity: &Capacity) {
        let line = capacity.line(part.place.partition);
        if self.reservations.iter().all(|kept| kept.line != line) {
            let mut spare = capacity.clone();
            spare.take(part);
            let reservation = Reservation { at: Some(self.now), spare: Some(spare) };
            self.reservations.push(Kept { line, job, reservation });
            self.by_shape = true;
        }
    }

    /// What a job gets, if it may start: it fits, and does not delay the blocked ones before it.
    /// `None`: any job.
    pub fn passing(
        &self,
        job: Option<JobId>,
        want: &Want,
        limit_secs: Option<u64>,
        capacity: &Capacity,
        host: &Host,
    ) -> Option<Part> {
        let others = self
            .reservations
            .iter()
            .filter(|kept| Some(kept.job) != job)
            .map(|kept| &kept.reservation);
        let kept = others.filter(|kept| !ends_before(self.now, kept, limit_secs));
        let spares: Option<Vec<&Capacity>> = kept.map(|kept| kept.spare.as_ref()).collect();
        capacity.pick_in_all(&spares?, want, host)
    }
}

/// Who is at a limit of its account or name holds no reservation.
fn is_below_limits(want: &Want, capacity: &Capacity, host: &Host) -> bool {
    capacity.limit_reached(&want.place, want.tres.cpus, host).is_none()
}

fn ends_before(now: Timestamp, reservation: &Reservation, limit_secs: Option<u64>) -> bool {
    match (limit_secs, reservation.at) {
        (Some(limit), Some(at)) => now.plus_secs(limit) <= at,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// The reservation of a job that does not fit into what is free now.
fn reserve(want: &Want, now: &Capacity, running: Vec<Running>, host: &Host) -> Reservation {
    let mut capacity = now.clone();
    let at =
        end_until_it_fits(want, &mut capacity, running, host).last().and_then(|last| last.end.at());
    // A job that fits not even then waits for the host to change: nothing is spare, and its start
    // is unknown.
    let Some(part) = capacity.pick_beside(now, want, host) else {
        return Reservation { at: None, spare: None };
    };
    capacity.take(&part);
    Reservation { at, spare: Some(capacity) }
}

/// When a job starts at the latest that does not fit into `now`. `None`: nobody can tell.
pub fn latest_start(
    want: &Want,
    now: &Capacity,
    running: Vec<Running>,
    host: &Host,
) -> Option<Timestamp> {
    reserve(want, now, running, host).at.filter(|_| !now.fits(want, host))
}

/// The running jobs that have to end, in the order in which they are expected to; all of them where
/// that is not enough.
fn end_until_it_fits(
    want: &Want,
    capacity: &mut Capacity,
    mut running: Vec<Running>,
    host: &Host,
) -> Vec<Running> {
    running.sort_by_key(|r| (r.end.at().is_none(), r.end.at(), r.order));
    for at in 0..running.len() {
        let (r, next) = (&running[at], running.get(at + 1));
        capacity.give(&r.part);
        // Jobs that end together are all gone at that moment.
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

/// The running jobs whose end a job waits for that does not fit into `now`, in the order in which
/// they are expected to end. Those whose part it can do without are left out.
pub fn waits_for(want: &Want, now: &Capacity, running: Vec<Running>, host: &Host) -> Vec<Running> {
    let mut capacity = now.clone();
    let mut gone = end_until_it_fits(want, &mut capacity, running, host);
    gone.retain(|r| {
        capacity.take(&r.part);
        let is_needed = !capacity.fits(want, host);
        if is_needed {
            capacity.give(&r.part);
        }
        is_needed
    });
    gone
}
