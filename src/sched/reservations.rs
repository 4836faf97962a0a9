//! The owner's reservations: creating, changing and deleting them, and what happens at their
//! beginning and end.
//!
//! `line::reserved` keeps other jobs away from them. The amounts that their own jobs may hold
//! together are limits like those of a QOS.

use super::core::Core;
use super::line::reserved::{self, Moment};
use super::recurrence;
use super::resources::capacity::{Capacity, CpuSharing, Want};
use super::resources::gpu_pool::GpuWant;
use super::resources::limits::LimitSet;
use super::types::{Config, Cx, StopCause};
use slotd_model::change::Change;
use slotd_model::job::Hold;
use slotd_model::license;
use slotd_model::memo::{MemoBody, MemoKey};
use slotd_model::reservation::{
    self, Flag, FlagChange, How, Length, ListChange, MOST_RESERVATIONS, Reservation,
    ReservationAsk, ReservationFault, ReservationOrder, ReservationView, Share,
};
use slotd_model::{Job, JobId, JobRequest, JobState, Reason, Refusal, Timestamp, Tres};
#[cfg(test)]
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

const MINUTE_SECS: u64 = 60;

impl Config {
    /// Fails if a request names a reservation that does not exist or does not admit it.
    pub(crate) fn check_reservation(&self, request: &JobRequest) -> Result<(), Refusal> {
        for name in reservation::names(request) {
            match self.reservation(name) {
                None => return Err(Refusal::UnknownReservation(name.to_owned())),
                Some(known) if !known.admits(request) => {
                    return Err(Refusal::NoAccessToReservation(name.to_owned()));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl Core {
    /// Carries out an order of the owner, and returns the name of the reservation. It holds once
    /// the changes are committed.
    pub fn order_reservation(
        &mut self,
        order: &ReservationOrder,
        cx: &mut Cx,
    ) -> Result<String, Refusal> {
        self.follow_reservations(cx);
        let done = match order {
            ReservationOrder::Create(ask) => self.create_reservation(ask, cx),
            ReservationOrder::Update(ask) => self.update_reservation(ask, cx),
            ReservationOrder::Delete(name) => self.delete_reservation(name, cx),
        };
        done.map_err(Refusal::Reservation)
    }

    fn create_reservation(
        &mut self,
        ask: &ReservationAsk,
        cx: &mut Cx,
    ) -> Result<String, ReservationFault> {
        let config = self.resources.config();
        if config.reservations.len() >= MOST_RESERVATIONS {
            return Err(ReservationFault::TooMany);
        }
        let number = config.reservations.last().map_or(0, |last| last.number).saturating_add(1);
        let mut new = Reservation { number, ..Reservation::default() };
        change(&mut new, ask)?;
        let first = new.users.iter().chain(&new.accounts).next();
        let first = first.ok_or(ReservationFault::Users)?.trim_start_matches('-').to_owned();
        new.name = match &ask.name {
            Some(name) => name.clone(),
            None => unused_name(&first, config),
        };
        new.check_bounds()?;
        if config.reservation(&new.name).is_some() {
            return Err(ReservationFault::Duplicate);
        }
        config.check_node(ask.nodes.as_deref())?;
        // The start may be given as `now`, and the clock has gone on since.
        if new.start.plus_secs(MINUTE_SECS) < cx.now || new.is_over(cx.now) {
            return Err(ReservationFault::Time);
        }
        self.check_new(&new, cx.now)?;
        let mut all = self.resources.config().reservations.clone();
        all.push(new.clone());
        self.store(&new, cx);
        self.set_reservations(all, cx.now);
        Ok(new.name)
    }

    fn update_reservation(
        &mut self,
        ask: &ReservationAsk,
        cx: &mut Cx,
    ) -> Result<String, ReservationFault> {
        let config = self.resources.config();
        let name = ask.name.clone().unwrap_or_default();
        let known = config.reservation(&name).ok_or(ReservationFault::Unknown)?;
        let mut new = known.clone();
        change(&mut new, ask)?;
        new.check_bounds()?;
        config.check_node(ask.nodes.as_deref())?;
        if new.users.is_empty() && new.accounts.is_empty() {
            return Err(ReservationFault::Users);
        }
        if let (Some(Share::Parts(_)), Share::Node) = (ask.share, known.share) {
            return Err(ReservationFault::CoreBased);
        }
        let is_moved = new.start != known.start;
        let is_late = is_moved && (known.is_active(cx.now) || new.start < cx.now);
        if is_late || new.is_over(cx.now) {
            return Err(ReservationFault::Time);
        }
        let takes_more = is_moved
            || new.end != known.end
            || new.share != known.share
            || new.licenses != known.licenses
            || new.flags != known.flags;
        if takes_more {
            self.check_new(&new, cx.now)?;
        }
        let mut all = self.resources.config().reservations.clone();
        all.iter_mut().filter(|other| other.number == new.number).for_each(|other| {
            other.clone_from(&new);
        });
        self.store(&new, cx);
        self.set_reservations(all, cx.now);
        Ok(name)
    }

    fn delete_reservation(&mut self, name: &str, cx: &mut Cx) -> Result<String, ReservationFault> {
        let known =
            self.resources.config().reservation(name).ok_or(ReservationFault::Unknown)?.clone();
        let is_user = |job: &Job| !job.run.state.is_terminal() && known.is_named_by(&job.request);
        if self.jobs().any(is_user) {
            return Err(ReservationFault::InUse);
        }
        self.remove_reservation(&known, cx);
        Ok(known.name)
    }

    fn remove_reservation(&mut self, gone: &Reservation, cx: &mut Cx) {
        let mut all = self.resources.config().reservations.clone();
        all.retain(|other| other.number != gone.number);
        cx.out.changes.push(Change::DropMemo { key: MemoKey::Reservation(gone.number) });
        self.set_reservations(all, cx.now);
    }

    fn store(&self, reservation: &Reservation, cx: &mut Cx) {
        let (key, body) = (
            MemoKey::Reservation(reservation.number),
            MemoBody::Reservation(Box::new(reservation.clone())),
        );
        cx.out.changes.push(Change::PutMemo { key, body });
    }

    /// Replaces the reservations, and counts again what jobs hold.
    pub(super) fn set_reservations(&mut self, all: Vec<Reservation>, now: Timestamp) {
        self.resources.set_reservations(all, &self.records, now);
        self.refresh_pending(now);
        self.line.request_round();
    }

    /// Ends or renews the reservations whose end has come, and re-evaluates the jobs of those that
    /// have begun.
    pub(super) fn follow_reservations(&mut self, cx: &mut Cx) {
        let over: Vec<Reservation> = self
            .resources
            .config()
            .reservations
            .iter()
            .filter(|reservation| reservation.is_over(cx.now))
            .cloned()
            .collect();
        for reservation in over {
            self.end_reservation(&reservation, cx);
        }
        if self.resources.note_open_reservations(cx.now) {
            let is_in_one = |id: &JobId| {
                self.records.job(*id).is_some_and(|job| job.request.reservation.is_some())
            };
            let members: Vec<JobId> =
                self.records.pending().into_iter().filter(is_in_one).collect();
            for id in members {
                self.refresh(id, cx.now);
                self.arm(id, cx.now);
            }
            self.line.request_round();
        }
    }

    fn end_reservation(&mut self, over: &Reservation, cx: &mut Cx) {
        let is_inside = |job: &&Job| {
            matches!(job.run.state, JobState::Running | JobState::Suspended)
                && over.is_named_by(&job.request)
        };
        let inside: Vec<JobId> = if over.has(Flag::Flex) {
            Vec::new()
        } else {
            self.records.active_jobs().filter(is_inside).map(|job| job.id).collect()
        };
        for id in inside {
            let text = format!("reservation {}, in which the job ran, has ended", over.name);
            self.records.edit(id, |job| job.run.system_comment = Some(text));
            self.stop(id, Reason::TimeLimit, StopCause::TimeLimit, cx);
        }
        match recurrence::from(over, cx.now, &self.resources.config().zone) {
            Some(next) => {
                let mut all = self.resources.config().reservations.clone();
                all.iter_mut().filter(|other| other.number == next.number).for_each(|other| {
                    other.clone_from(&next);
                });
                self.store(&next, cx);
                self.set_reservations(all, cx.now);
            }
            None => {
                self.leave_reservation(over, cx);
                self.remove_reservation(over, cx);
            }
        }
    }

    /// Takes the pending jobs out of a reservation that has ended. Those that name no other are
    /// held.
    fn leave_reservation(&mut self, over: &Reservation, cx: &mut Cx) {
        let is_waiting =
            |id: &JobId| self.records.job(*id).is_some_and(|job| over.is_named_by(&job.request));
        let waiting: Vec<JobId> = self.records.pending().into_iter().filter(is_waiting).collect();
        for id in waiting {
            self.records.edit(id, |job| {
                let left: Vec<&str> =
                    reservation::names(&job.request).filter(|name| *name != over.name).collect();
                let left = Some(left.join(",")).filter(|left| !left.is_empty());
                if left.is_none() && !over.has(Flag::NoHoldJobsAfter) && job.hold == Hold::No {
                    job.hold = Hold::Reservation;
                    job.run.system_comment = Some(format!("Reservation {} was deleted", over.name));
                }
                Arc::make_mut(&mut job.request).reservation = left;
            });
            self.refresh(id, cx.now);
            self.arm(id, cx.now);
            self.records.save(id, cx);
        }
    }

    /// Checks a new or changed reservation against the others, and against running jobs.
    fn check_new(&self, new: &Reservation, now: Timestamp) -> Result<(), ReservationFault> {
        let config = self.resources.config();
        if let Some(name) = &new.partition
            && config.partition_index(Some(name)).is_none()
        {
            return Err(ReservationFault::Partition);
        }
        if let Some(text) = &new.licenses {
            let request = JobRequest { licenses: Some(text.clone()), ..JobRequest::default() };
            let is_empty = license::parse(text).is_none_or(|all| all.is_empty());
            if is_empty || config.check_licenses(&request).is_err() {
                return Err(ReservationFault::Licenses);
            }
        }
        let lifts = |other: &Reservation| other.has(Flag::Maint) || other.has(Flag::Overlap);
        let others = || {
            config.reservations.iter().filter(|other| {
                other.number != new.number && !lifts(other) && overlap(new, other, config)
            })
        };
        let is_node = |one: &Reservation| one.share == Share::Node;
        if !lifts(new) {
            let clashes = |other: &Reservation| {
                is_node(other) && new.share != Share::Licenses
                    || is_node(new) && other.share != Share::Licenses
            };
            if others().any(clashes) {
                return Err(ReservationFault::Overlaps);
            }
        }
        let of_partition = !new.has(Flag::SpecNodes) && new.share != Share::Licenses;
        let busy = ReservationFault::Busy { of_partition };
        let mut capacity = self.resources.ledger().whole().clone();
        if !new.has(Flag::IgnoreJobs)
            && !new.has(Flag::Maint)
            && !self.leave_room(new, &mut capacity, now)
        {
            return Err(busy);
        }
        let besides: Vec<&Reservation> = if lifts(new) { Vec::new() } else { others().collect() };
        for other in besides.into_iter().chain([new]) {
            if !take_share(other, &mut capacity, config) {
                return Err(busy);
            }
        }
        Ok(())
    }

    /// Takes what jobs outside a reservation may still hold at its start. Returns false if it needs
    /// the whole node and there are any.
    fn leave_room(&self, new: &Reservation, capacity: &mut Capacity, now: Timestamp) -> bool {
        let at = new.start.max(now);
        let ledger = self.resources.ledger();
        let running = self.line.running(&self.records, ledger, now);
        let stays = |one: &&super::line::backfill::Running| {
            let is_own = one.part.place.limits.reservation() == Some(new.number);
            let is_reserved = one.part.place.limits.reservation().is_some();
            let ends = one.end.at().is_some_and(|end| end <= at) && !one.end.is_estimate();
            !is_own && !is_reserved && !ends
        };
        let left: Vec<_> = running.iter().filter(stays).collect();
        left.iter().for_each(|one| capacity.take(&one.part));
        new.share != Share::Node || left.is_empty()
    }

    /// Returns the reservations, each with the CPUs that it has now.
    pub fn reservations(&self, now: Timestamp) -> Vec<ReservationView> {
        let moments = self.moments(now);
        let all = self.resources.config().reservations.iter();
        all.map(|reservation| {
            let is_own = |part: &&super::resources::capacity::Part| {
                part.place.limits.reservation() == Some(reservation.number)
            };
            let held = self.resources.ledger().holders().map(|(_, part)| part).filter(is_own);
            let mut cpus: BTreeSet<u32> =
                held.flat_map(|part| part.alloc.cpu_ids.iter().copied()).collect();
            cpus.extend(reserved::kept_cpus(&moments, now, reservation.number));
            let cpus = if reservation.is_active(now) { cpus } else { BTreeSet::new() };
            let cpus = cpus.into_iter().collect();
            ReservationView { reservation: reservation.clone(), cpus }
        })
        .collect()
    }

    fn moments(&self, now: Timestamp) -> Vec<Moment> {
        let (config, ledger) = (self.resources.config(), self.resources.ledger());
        reserved::moments(config, now, ledger.capacity(), || {
            self.line.running(&self.records, ledger, now)
        })
    }

    /// Returns the next beginning or end of a reservation.
    pub(super) fn next_period(&self) -> Option<Timestamp> {
        let open = self.resources.open_reservations();
        let all = self.resources.config().reservations.iter();
        all.filter_map(|reservation| {
            if open.contains(&reservation.number) {
                reservation.end
            } else {
                Some(reservation.opens())
            }
        })
        .min()
    }

    /// Returns all memos. Fails if some were not emitted.
    #[cfg(test)]
    pub(crate) fn memos(&self) -> Result<BTreeMap<MemoKey, MemoBody>, String> {
        let mut all = self.notifications.memos()?;
        let own = self.resources.config().reservations.iter();
        all.extend(own.map(|one| {
            (MemoKey::Reservation(one.number), MemoBody::Reservation(Box::new(one.clone())))
        }));
        Ok(all)
    }

    /// Restores the reservations of an earlier daemon.
    pub(super) fn recall_reservations(&mut self, all: Vec<Reservation>, now: Timestamp) {
        if !all.is_empty() {
            self.set_reservations(all, now);
        }
    }
}

impl Config {
    fn check_node(&self, names: Option<&str>) -> Result<(), ReservationFault> {
        let is_this = |name: &str| name == self.host.name || name == "localhost";
        match names {
            Some(names) if !names.split(',').all(is_this) => Err(ReservationFault::Node),
            _ => Ok(()),
        }
    }
}

/// Returns a name that no reservation has: the user's or account's, and a number.
fn unused_name(first: &str, config: &Config) -> String {
    let names = (1u32..).map(|count| format!("{first}_{count}"));
    let mut free = names.skip_while(|name| config.reservation(name).is_some());
    free.next().unwrap_or_default()
}

/// Applies the keys of a command.
fn change(reservation: &mut Reservation, ask: &ReservationAsk) -> Result<(), ReservationFault> {
    let length = reservation.end.map(|end| end.since(reservation.start).as_secs());
    if let Some(start) = ask.start {
        // The reservation moves as a whole.
        reservation.end = length.map(|secs| start.plus_secs(secs));
        reservation.start = start;
    }
    match (ask.length, ask.end) {
        // The resolution is a minute.
        (Some(Length::Secs(secs)), _) => {
            let secs = secs.div_ceil(MINUTE_SECS).saturating_mul(MINUTE_SECS);
            reservation.end = Some(reservation.start.plus_secs(secs));
        }
        (Some(Length::Forever), _) => reservation.end = None,
        (None, Some(end)) => reservation.end = Some(end),
        (None, None) => {}
    }
    if reservation.end.is_some_and(|end| end <= reservation.start) {
        return Err(ReservationFault::Time);
    }
    change_list(&mut reservation.users, ask.users.as_ref());
    change_list(&mut reservation.accounts, ask.accounts.as_ref());
    if let Some(flags) = &ask.flags {
        change_flags(&mut reservation.flags, flags);
    }
    reservation.share = ask.share.unwrap_or(reservation.share);
    if ask.licenses.is_some() {
        reservation.licenses = ask.licenses.clone().filter(|text| !text.is_empty());
    }
    if ask.partition.is_some() {
        reservation.partition.clone_from(&ask.partition);
    }
    Ok(())
}

fn change_list(list: &mut Vec<String>, change: Option<&ListChange>) {
    match change {
        None => {}
        Some((How::Set, names)) => list.clone_from(names),
        Some((How::Add, names)) => {
            let new = names.iter().filter(|name| !list.contains(name)).cloned();
            let new: Vec<String> = new.collect();
            list.extend(new);
        }
        Some((How::Remove, names)) => list.retain(|name| !names.contains(name)),
    }
}

fn change_flags(flags: &mut BTreeSet<Flag>, (how, named): &FlagChange) {
    match how {
        How::Set | How::Add => {
            // It repeats in one way.
            if named.iter().any(|flag| flag.repeats()) {
                flags.retain(|flag| !flag.repeats());
            }
            flags.extend(named);
        }
        How::Remove => flags.retain(|flag| flag.is_permanent() || !named.contains(flag)),
    }
}

/// How far ahead the repetitions of two reservations are compared, as in Slurm: a week.
const COMPARED_SECS: u64 = 7 * 86_400;

/// Returns whether two reservations, or their next repetitions, share a moment.
fn overlap(one: &Reservation, other: &Reservation, config: &Config) -> bool {
    let meets = |one: &Reservation, other: &Reservation| {
        !one.is_over(other.start) && !other.is_over(one.start)
    };
    let first = one.start.min(other.start);
    let until = first.plus_secs(COMPARED_SECS);
    let periods = |reservation: &Reservation| {
        let zone = config.zone.clone();
        let next = move |known: &Reservation| recurrence::from(known, known.end?, &zone);
        std::iter::successors(Some(reservation.clone()), next)
            .take_while(move |period| period.start < until.max(first))
            .collect::<Vec<_>>()
    };
    let (mut own, mut others) = (periods(one), periods(other));
    // The first period counts, however far away it is.
    if own.is_empty() {
        own.push(one.clone());
    }
    if others.is_empty() {
        others.push(other.clone());
    }
    own.iter().any(|period| others.iter().any(|other| meets(period, other)))
}

/// Takes the share of a reservation from an otherwise free host. Returns false if it does not fit.
fn take_share(reservation: &Reservation, capacity: &mut Capacity, config: &Config) -> bool {
    let tres = match reservation.share {
        Share::Node => return true,
        Share::Parts(amounts) => amounts.tres(),
        Share::Licenses => Tres::ZERO,
    };
    let text = reservation.licenses.as_deref().unwrap_or_default();
    let place = CpuSharing {
        partition: config.partition_index(reservation.partition.as_deref()),
        jobs_per_cpu: 1,
        exclusive: false,
        limits: LimitSet::of_licenses(text, &config.licenses),
    };
    let gpu = GpuWant { count: tres.gpus, ..GpuWant::default() };
    let want = Want { tres, gpu, named_cpus: &[], place };
    let part = capacity.pick(&want, &config.host);
    part.inspect(|part| capacity.take(part)).is_some()
}
