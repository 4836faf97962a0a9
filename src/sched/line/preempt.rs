//! Preemption: which running jobs have to make room so that a waiting job can start.
//!
//! A job preempts others only if it could start now without them, and if no job ahead of it could
//! use the room instead. Jobs that are ending anyway count as gone. The room that they leave is
//! claimed for the job, so that no later one takes it. All this follows from the state of the jobs:
//! nothing about it is stored.
//!
//! A suspended job lends its CPUs: only jobs that may preempt it see them as free. For all others
//! it runs on. So its CPUs are free for it as soon as no such job uses or claims them.

use super::backfill::{Kept, Reservation, Round, Running, ends_before, ends_by};
use super::queue::{Place, Queue, QueueKey};
use super::reserved::Moment;
use crate::resources::capacity::{Capacity, CpuSharing, Part, Want};
use crate::types::Config;
use slotd_model::partition::Host;
use slotd_model::preempt::{Means, PreemptMode};
use slotd_model::{JobId, Partition};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeSet;

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
    /// It is suspended for another job, and lends its CPUs.
    pub is_lender: bool,
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

/// The preemption that lets a job start, and the resources that it gets.
#[derive(Debug)]
pub(crate) struct Preemption {
    /// The part of the host that the job gets.
    part: Part,
    /// The resources that are free without the jobs that are going.
    capacity: Capacity,
    /// The jobs that have to make room, and how.
    pub victims: Vec<(JobId, Means)>,
    /// The part that the job gets at once if all of them can be suspended for it.
    pub open: Option<Part>,
    /// The jobs whose CPUs or whole parts are free in `capacity`.
    gone: BTreeSet<JobId>,
}

/// A job that makes room, or would.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gone<'a> {
    victim: &'a Victim,
    /// Its whole part becomes free. Otherwise only its CPUs do, and only for jobs that may preempt
    /// it.
    wholly: bool,
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

    fn going(&self) -> impl Iterator<Item = Gone<'_>> {
        let going = self.all.iter().filter(|victim| victim.is_going);
        going.map(|victim| Gone { victim, wholly: true })
    }

    /// Returns the suspended jobs whose CPUs a job in this place may use.
    fn lenders(&self, place: &CpuSharing) -> impl Iterator<Item = &Victim> {
        let lenders = self.all.iter().filter(|victim| victim.is_lender);
        lenders.filter(move |victim| self.means(victim, place).is_some())
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

    /// Returns whether a job in this place may preempt this one.
    pub(crate) fn may_preempt(&self, id: JobId, place: &CpuSharing) -> bool {
        let victim = self.all.iter().find(|victim| victim.id == id);
        victim.is_some_and(|victim| self.means(victim, place).is_some())
    }

    /// Notes that those of these jobs are going that are not suspended.
    fn note(&mut self, gone: &[(JobId, Means)]) {
        let is_going = |victim: &&mut Victim| {
            gone.iter().any(|(id, means)| *id == victim.id && !means.suspends())
        };
        self.all.iter_mut().filter(is_going).for_each(|victim| victim.is_going = true);
    }

    /// Notes that these jobs are suspended.
    fn note_suspended(&mut self, all: &[(JobId, Means)]) {
        let is_meant = |victim: &&mut Victim| all.iter().any(|(id, _)| *id == victim.id);
        self.all.iter_mut().filter(is_meant).for_each(|victim| victim.is_lender = true);
    }
}

impl Round {
    /// Returns the room that a job could start in if other jobs made room. `None` if it may preempt
    /// no running job, or if it could not start even then, or only later than a job before it.
    pub(crate) fn preemption(&self, bid: &Bid) -> Option<Preemption> {
        let place = &bid.want.place;
        let going: Vec<Gone> = self.victims.going().collect();
        let mut gone = self.enough(bid)?;
        let fits =
            |gone: &[Gone]| self.part_without(&[&going, gone].concat(), bid.job.as_slice(), bid);
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
        let suspended: Vec<Gone> = gone.iter().filter(|one| !one.wholly).copied().collect();
        let open = if suspended.is_empty() {
            None
        } else {
            self.part_without(&suspended, bid.job.as_slice(), bid)
        };
        let means = |one: &Gone| Some((one.victim.id, self.victims.means(one.victim, place)?));
        let victims = gone.iter().filter_map(means).collect();
        let all = [going, gone].concat();
        let capacity = self.left_by(&all, Cow::Borrowed(bid.capacity), place, |_| false);
        let lenders = self.victims.lenders(place).map(|lender| lender.id);
        let gone = all.iter().map(|one| one.victim.id).chain(lenders).collect();
        Some(Preemption { part, capacity: capacity.into_owned(), victims, open, gone })
    }

    /// Returns all jobs that a job may preempt if it could start without them; none if those that
    /// are going leave enough.
    pub(super) fn enough(&self, bid: &Bid) -> Option<Vec<Gone<'_>>> {
        let own = self.victims.all.iter().filter_map(|victim| {
            let means = self.victims.means(victim, &bid.want.place)?;
            Some(Gone { victim, wholly: !means.suspends() })
        });
        let own: Vec<Gone> = own.collect();
        if own.is_empty() || self.is_behind(bid) {
            return None;
        }
        let fits = |gone: &[Gone]| self.part_without(gone, bid.job.as_slice(), bid);
        let going: Vec<Gone> = self.victims.going().collect();
        if fits(&going).is_some() {
            return Some(Vec::new());
        }
        // A suspended job has already lent its CPUs. A reservation of the owner may count on the end
        // of a job, which must then not move.
        let is_awaited =
            |victim: &Victim| self.moments.iter().any(|moment| moment.is_gone(victim.id));
        let is_open = |one: &Gone| {
            let may_stay = !one.victim.is_lender && !is_awaited(one.victim);
            !one.victim.is_going && (one.wholly || may_stay)
        };
        let open: Vec<Gone> = own.into_iter().filter(is_open).collect();
        fits(&[&going[..], &open[..]].concat()).map(|_| open)
    }

    /// Returns whether another job of the line is blocked, and will not start in a moment.
    fn is_behind(&self, bid: &Bid) -> bool {
        let line = bid.capacity.line(bid.want.place.partition);
        let is_other = |kept: &&Kept| kept.line == line && Some(kept.job) != bid.job;
        self.reservations.iter().filter(is_other).any(|kept| kept.claim.is_none())
    }

    /// Returns the part that a job would get if these jobs made room. The reservations of `own` do
    /// not count.
    pub(super) fn part_without(&self, gone: &[Gone], own: &[JobId], bid: &Bid) -> Option<Part> {
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
            spares.push(self.left_by(gone, spare, &want.place, |id| moment.is_gone(id)));
        }
        let spares: Vec<&Capacity> = spares.iter().map(Cow::as_ref).collect();
        let capacity = self.left_by(gone, Cow::Borrowed(capacity), &want.place, |_| false);
        capacity.pick_in_all(&spares, want, host)
    }

    /// Returns the resources that are free to a job in this place if these jobs made room, beside
    /// those that `has_gone` already. The CPUs of suspended jobs that it may preempt are free, too.
    fn left_by<'a>(
        &self,
        gone: &[Gone],
        mut capacity: Cow<'a, Capacity>,
        place: &CpuSharing,
        has_gone: impl Fn(JobId) -> bool,
    ) -> Cow<'a, Capacity> {
        let wholly = gone.iter().filter(|one| one.wholly && !has_gone(one.victim.id));
        let wholly: Vec<&Victim> = wholly.map(|one| one.victim).collect();
        let is_left = |id: JobId| has_gone(id) || wholly.iter().any(|victim| victim.id == id);
        let suspended = gone.iter().filter(|one| !one.wholly && !one.victim.is_lender);
        let suspended = suspended.map(|one| one.victim);
        let suspended = suspended.filter(|victim| self.victims.means(victim, place).is_some());
        for victim in self.victims.lenders(place).chain(suspended) {
            if !is_left(victim.id) {
                capacity.to_mut().give_cpus(&victim.part);
            }
        }
        wholly.iter().for_each(|victim| capacity.to_mut().give(&victim.part));
        capacity
    }

    /// Returns what a job may use at once, regardless of reservations: also the CPUs of suspended
    /// jobs that it may preempt.
    pub(super) fn with_lent<'a>(
        &self,
        capacity: Cow<'a, Capacity>,
        place: &CpuSharing,
    ) -> Cow<'a, Capacity> {
        self.left_by(&[], capacity, place, |_| false)
    }

    /// Returns the running jobs as a job in this place sees them: suspended ones that it may preempt
    /// have no CPUs. Their IDs come second.
    pub(super) fn as_seen_by(
        &self,
        place: &CpuSharing,
        mut running: Vec<Running>,
    ) -> (Vec<Running>, Vec<JobId>) {
        let lenders: Vec<JobId> = self.victims.lenders(place).map(|lender| lender.id).collect();
        for one in running.iter_mut().filter(|one| lenders.contains(&one.id)) {
            one.part.alloc.cpu_ids.clear();
            one.part.alloc.tres.cpus = 0;
        }
        (running, lenders)
    }

    /// Returns whether a suspended job may be on its CPUs again, beside the jobs that are about to
    /// start. `lenders`: all suspended jobs that lend their CPUs, itself included.
    pub(crate) fn may_resume(&self, part: &Part, lenders: &[(JobId, Part)]) -> bool {
        let soon = self.reservations.iter().filter(|kept| kept.reservation.at == Some(self.now));
        soon.filter_map(|kept| kept.reservation.spare.as_ref()).all(|spare| {
            let mut left = spare.spare().clone();
            let still = lenders.iter().filter(|(id, _)| !spare.is_gone(*id));
            still.for_each(|(_, part)| left.give_cpus(part));
            left.has_cpus_again(part)
        })
    }

    /// Returns whether a job before this one could start in the room instead.
    pub(crate) fn is_for_others(
        &self,
        preemption: &Preemption,
        key: QueueKey,
        queue: &Queue,
        capacity: &Capacity,
        host: &Host,
    ) -> bool {
        let gone = self.victims.all.iter().filter_map(|victim| {
            let means = preemption.victims.iter().find(|(id, _)| *id == victim.id);
            let wholly = victim.is_going || means.is_some_and(|(_, means)| !means.suspends());
            (wholly || means.is_some()).then_some(Gone { victim, wholly })
        });
        let gone: Vec<Gone> = gone.collect();
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

    /// Notes that these jobs are suspended for a job that starts with this part.
    pub(crate) fn enter(
        &mut self,
        place: &Place,
        part: &Part,
        suspended: &[(JobId, Means)],
        bid: &Bid,
    ) {
        self.victims.note_suspended(suspended);
        self.note_start(part, bid);
        // The next job of this shape may preempt others.
        self.shape = Some(std::sync::Arc::clone(&place.shape));
    }

    /// Claims the room for a job until the jobs that are going have ended.
    pub(crate) fn claim(&mut self, place: &Place, preemption: Preemption, capacity: &Capacity) {
        let Preemption { part, capacity: mut spare, victims, gone, .. } = preemption;
        self.victims.note(&victims);
        spare.take(&part);
        let line = capacity.line(part.place.partition);
        let spare = Moment::alone(self.now, spare, gone);
        let reservation = Reservation { at: Some(self.now), spare: Some(spare) };
        self.reservations.retain(|kept| kept.job != place.key.id);
        let (job, claim) = (place.key.id, Some(part));
        self.reservations.push(Kept { line, job, reservation, claim });
        // The next job of this shape may preempt others.
        self.shape = Some(std::sync::Arc::clone(&place.shape));
    }
}
