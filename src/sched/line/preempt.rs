//! Preemption: which running jobs have to make room so that a waiting job can start.
//!
//! A job preempts others only if it could start now without them, and if no job ahead of it could
//! use the room instead. Jobs that are ending anyway count as gone. The room that they leave is
//! claimed for the job, so that no later one takes it. All this follows from the state of the jobs:
//! nothing about it is stored.

use super::backfill::{Kept, Reservation, Round, ends_before, ends_by};
use super::queue::{Place, Queue, QueueKey};
use super::reserved::Moment;
use crate::resources::capacity::{Capacity, CpuSharing, Part, Want};
use crate::types::Config;
use slotd_model::partition::Host;
use slotd_model::preempt::{Means, PreemptMode};
use slotd_model::{JobId, Partition};
use std::borrow::Cow;
use std::cmp::Reverse;

/// A running job that others may preempt, or that is ending.
#[derive(Debug, Clone)]
pub(crate) struct Victim {
    pub id: JobId,
    /// The part of the host that it holds.
    pub part: Part,
    /// The tier of its partition, and its QOS.
    pub tier: u32,
    pub qos: Option<usize>,
    /// How it makes room for jobs of a higher tier.
    pub by_tier: Option<Means>,
    /// How it makes room for jobs of a QOS that preempts its own.
    pub by_qos: Option<Means>,
    /// The least important job has the smallest priority and the latest start.
    pub priority: i64,
    pub order: u64,
    /// It is ending, or its grace time has begun.
    pub is_going: bool,
}

/// The running jobs that may have to make room, the least important first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Victims {
    all: Vec<Victim>,
    /// The tier of each partition.
    tiers: Vec<u32>,
    /// For each QOS, those that its jobs may preempt.
    preempts: Vec<Vec<usize>>,
}

/// A job that might start, and what is free.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bid<'a> {
    /// The job whose own reservation does not count; `None` for any job with these needs.
    pub job: Option<JobId>,
    pub want: &'a Want<'a>,
    pub limit_secs: Option<u64>,
    pub capacity: &'a Capacity,
    pub host: &'a Host,
}

/// The room for a job that cannot start yet.
#[derive(Debug)]
pub(crate) struct Room {
    /// The part of the host that the job gets.
    part: Part,
    /// The resources that are free without the jobs that are going.
    capacity: Capacity,
    /// The jobs that have to make room, and how.
    pub victims: Vec<(JobId, Means)>,
}

impl Victims {
    pub(crate) fn new(mut all: Vec<Victim>, config: &Config) -> Self {
        all.sort_by_key(|victim| (victim.tier, victim.priority, Reverse(victim.order)));
        let at = |name: &String| config.qos.iter().position(|qos| qos.name == *name);
        let preempts = config.qos.iter().map(|qos| qos.preempt.iter().filter_map(at).collect());
        Victims {
            all,
            tiers: config.partitions.iter().map(Partition::tier).collect(),
            preempts: preempts.collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn going(&self) -> impl Iterator<Item = &Victim> {
        self.all.iter().filter(|victim| victim.is_going)
    }

    /// Returns how a running job would make room for one in this place; `None` if it need not. A
    /// job never preempts one of a higher tier, so no two jobs preempt each other.
    fn means(&self, victim: &Victim, place: &CpuSharing) -> Option<Means> {
        let tier = self.tiers.get(place.partition?).copied()?;
        let own = place.limits.reservation();
        let theirs = victim.part.place.limits.reservation();
        // The room of a job in a reservation stays with the reservation.
        if tier < victim.tier || theirs.is_some() && theirs != own {
            return None;
        }
        let preempts = place.limits.qos().and_then(|at| self.preempts.get(at));
        let by_qos = preempts
            .zip(victim.qos)
            .and_then(|(preempts, qos)| victim.by_qos.filter(|_| preempts.contains(&qos)));
        let by_tier = victim.by_tier.filter(|_| tier > victim.tier);
        by_qos.or(by_tier).filter(|means| means.mode != PreemptMode::Off)
    }

    /// Notes that these jobs are going.
    fn note(&mut self, gone: &[(JobId, Means)]) {
        let is_gone = |victim: &&mut Victim| gone.iter().any(|(id, _)| *id == victim.id);
        self.all.iter_mut().filter(is_gone).for_each(|victim| victim.is_going = true);
    }
}

impl Round {
    /// Returns the room that a job could start in if other jobs were gone. `None` if it may preempt
    /// no running job, or if it could not start even then, or only later than a job before it.
    pub(crate) fn room(&self, bid: &Bid) -> Option<Room> {
        let going: Vec<&Victim> = self.victims.going().collect();
        let mut gone = self.enough(bid)?;
        let fits = |gone: &[&Victim]| {
            let all = [&going, gone].concat();
            self.part_without(&all, bid.job.as_slice(), bid)
        };
        let count = (0..=gone.len()).find(|count| fits(&gone[..*count]).is_some())?;
        gone.truncate(count);
        // The most important ones are spared first.
        for at in (0..gone.len()).rev() {
            let mut fewer = gone.clone();
            fewer.remove(at);
            if fits(&fewer).is_some() {
                gone = fewer;
            }
        }
        let part = fits(&gone)?;
        let capacity = without(Cow::Borrowed(bid.capacity), going.iter().chain(&gone).copied());
        let means = |victim: &Victim| self.victims.means(victim, &bid.want.place);
        let victims = gone.iter().filter_map(|victim| Some((victim.id, means(victim)?))).collect();
        Some(Room { part, capacity: capacity.into_owned(), victims })
    }

    /// Returns all jobs that a job may preempt if it could start without them; none if those that
    /// are going leave enough.
    pub(crate) fn enough(&self, bid: &Bid) -> Option<Vec<&Victim>> {
        let may_preempt = |one: &&Victim| self.victims.means(one, &bid.want.place).is_some();
        let own: Vec<&Victim> = self.victims.all.iter().filter(may_preempt).collect();
        if own.is_empty() || self.is_behind(bid) {
            return None;
        }
        let fits = |gone: &[&Victim]| self.part_without(gone, bid.job.as_slice(), bid);
        let going: Vec<&Victim> = self.victims.going().collect();
        if fits(&going).is_some() {
            return Some(Vec::new());
        }
        let open: Vec<&Victim> = own.into_iter().filter(|victim| !victim.is_going).collect();
        fits(&[&going[..], &open[..]].concat()).map(|_| open)
    }

    /// Returns whether another job of the line is blocked, and will not start in a moment.
    fn is_behind(&self, bid: &Bid) -> bool {
        let line = bid.capacity.line(bid.want.place.partition);
        let is_other = |kept: &&Kept| kept.line == line && Some(kept.job) != bid.job;
        self.reservations.iter().filter(is_other).any(|kept| kept.claim.is_none())
    }

    /// Returns the part that a job would get without these running jobs. The reservations of `own`
    /// do not count.
    pub(super) fn part_without(
        &self,
        gone: &[&Victim],
        own: &[JobId],
        bid: &Bid,
    ) -> Option<Part> {
        let Bid { want, capacity, host, .. } = *bid;
        let limit_secs = self.limit(want, bid.limit_secs, capacity);
        let others = self.reservations.iter().filter(|kept| !own.contains(&kept.job));
        let kept = others
            .map(|kept| &kept.reservation)
            .filter(|reservation| !ends_before(self.now, reservation, limit_secs))
            .map(|reservation| reservation.spare.as_ref());
        let moments =
            self.moments.iter().filter(|moment| !ends_by(self.now, moment.at(), limit_secs));
        let mut spares = Vec::new();
        for moment in kept.chain(moments.map(Some)) {
            let moment = moment?;
            let spare = moment.spare_for(want.place.limits.reservation())?;
            let still = gone.iter().filter(|one| !moment.is_gone(one.id));
            spares.push(without(spare, still.copied()));
        }
        let spares: Vec<&Capacity> = spares.iter().map(Cow::as_ref).collect();
        let capacity = without(Cow::Borrowed(capacity), gone.iter().copied());
        capacity.pick_in_all(&spares, want, host)
    }

    /// Returns whether a job before this one could start in the room instead.
    pub(crate) fn is_for_others(
        &self,
        room: &Room,
        key: QueueKey,
        queue: &Queue,
        capacity: &Capacity,
        host: &Host,
    ) -> bool {
        let is_gone = |victim: &&Victim| {
            victim.is_going || room.victims.iter().any(|(id, _)| *id == victim.id)
        };
        let gone: Vec<&Victim> = self.victims.all.iter().filter(is_gone).collect();
        let has_claim = |id: JobId| {
            let own = self.reservations.iter().find(|kept| kept.job == id);
            id == key.id || own.is_some_and(|kept| kept.claim.is_some())
        };
        queue.shapes().any(|shape| {
            let first = queue.all_of(shape).find(|other| !has_claim(other.id));
            let Some(first) = first.filter(|first| *first < key) else { return false };
            let want = shape.want();
            let bid = Bid { job: None, want: &want, limit_secs: shape.limit, capacity, host };
            self.part_without(&gone, &[key.id, first.id], &bid).is_some()
        })
    }

    /// Claims the room for a job until the jobs that are going have ended.
    pub(crate) fn claim(&mut self, place: &Place, room: Room, capacity: &Capacity) {
        let Room { part, capacity: mut spare, victims } = room;
        self.victims.note(&victims);
        spare.take(&part);
        let line = capacity.line(part.place.partition);
        let gone = self.victims.going().map(|victim| victim.id).collect();
        let spare = Moment::alone(self.now, spare, gone);
        let reservation = Reservation { at: Some(self.now), spare: Some(spare) };
        self.reservations.retain(|kept| kept.job != place.key.id);
        let (job, claim) = (place.key.id, Some(part));
        self.reservations.push(Kept { line, job, reservation, claim });
        // The next job of this shape may preempt others.
        self.shape = Some(std::sync::Arc::clone(&place.shape));
    }
}

/// Returns the resources that are free without these jobs.
fn without<'a, 'b>(
    mut capacity: Cow<'a, Capacity>,
    gone: impl Iterator<Item = &'b Victim>,
) -> Cow<'a, Capacity> {
    gone.for_each(|victim| capacity.to_mut().give(&victim.part));
    capacity
}
