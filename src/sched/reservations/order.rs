//! The changes that an order makes to a reservation, and the checks that there is room for it.

use super::MINUTE_SECS;
use crate::core::Core;
use crate::recurrence;
use crate::resources::capacity::{Capacity, CpuSharing, Want};
use crate::resources::gpu_pool::GpuWant;
use crate::resources::limits::LimitSet;
use crate::types::Config;
use slotd_model::license;
use slotd_model::reservation::{
    Flag, FlagChange, How, Length, ListChange, Reservation, ReservationAsk, ReservationFault, Share,
};
use slotd_model::{JobRequest, Timestamp, Tres};
use std::collections::BTreeSet;

impl Core {
    /// Checks a new or changed reservation against the others, and against running jobs.
    pub(super) fn check_new(
        &self,
        new: &Reservation,
        now: Timestamp,
    ) -> Result<(), ReservationFault> {
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
        let stays = |one: &&crate::line::backfill::Running| {
            let is_own = one.part.place.limits.reservation() == Some(new.number);
            let is_reserved = one.part.place.limits.reservation().is_some();
            let ends = one.end.at().is_some_and(|end| end <= at) && !one.end.is_estimate();
            !is_own && !is_reserved && !ends
        };
        let left: Vec<_> = running.iter().filter(stays).collect();
        left.iter().for_each(|one| capacity.take(&one.part));
        new.share != Share::Node || left.is_empty()
    }
}

impl Config {
    pub(super) fn check_node(&self, names: Option<&str>) -> Result<(), ReservationFault> {
        let is_this = |name: &str| name == self.host.name || name == "localhost";
        match names {
            Some(names) if !names.split(',').all(is_this) => Err(ReservationFault::Node),
            _ => Ok(()),
        }
    }
}

/// Applies the keys of a command.
pub(super) fn change(
    reservation: &mut Reservation,
    ask: &ReservationAsk,
) -> Result<(), ReservationFault> {
    let times = |one: &Reservation| (one.start, one.end, one.repeat());
    let before = times(reservation);
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
    reservation.purge_after = ask.purge_after.or(reservation.purge_after);
    change_list(&mut reservation.users, ask.users.as_ref());
    change_list(&mut reservation.accounts, ask.accounts.as_ref());
    if let Some(flags) = &ask.flags {
        change_flags(&mut reservation.flags, flags);
    }
    if times(reservation) != before {
        reservation.first = None;
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
        mem_per_cpu_mb: 0,
        limits: LimitSet::of_licenses(text, &config.licenses),
    };
    let gpu = GpuWant { count: tres.gpus, ..GpuWant::default() };
    let want = Want { tres, gpu, named_cpus: &[], place };
    let part = capacity.pick(&want, &config.host);
    part.inspect(|part| capacity.take(part)).is_some()
}
