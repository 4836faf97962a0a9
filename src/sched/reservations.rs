//! The owner's reservations: creating, changing and deleting them, and what happens at their
//! beginning and end.
//!
//! `line::reserved` keeps other jobs away from them. The amounts that their own jobs may hold
//! together are limits like those of a QOS.

use self::order::change;
use super::core::Core;
use super::line::reserved::{self, Moment};
use super::recurrence;
use super::types::{Config, Cx, StopCause};
use slotd_model::change::Change;
use slotd_model::job::Hold;
use slotd_model::memo::{MemoBody, MemoKey};
use slotd_model::reservation::{
    self, Flag, MOST_RESERVATIONS, Reservation, ReservationAsk, ReservationFault, ReservationOrder,
    ReservationView, Share,
};
use slotd_model::{Job, JobId, JobRequest, JobState, Reason, Refusal, Timestamp};
#[cfg(test)]
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

mod order;

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
        // As in Slurm, no number comes back, and with it no name that slotd has chosen.
        let number = self.last_reservation.checked_add(1).ok_or(ReservationFault::TooMany)?;
        let mut new = Reservation { number, ..Reservation::default() };
        change(&mut new, ask)?;
        let first = new.users.iter().chain(&new.accounts).next();
        let first = first.ok_or(ReservationFault::Users)?.trim_start_matches('-').to_owned();
        new.name = match &ask.name {
            Some(name) => name.clone(),
            None => unused_name(&first, number, config),
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
        self.last_reservation = number;
        let (key, body) = (MemoKey::LastReservation, MemoBody::Number(number));
        cx.out.changes.push(Change::PutMemo { key, body });
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
        self.replace_reservation(new, cx);
        Ok(name)
    }

    fn delete_reservation(&mut self, name: &str, cx: &mut Cx) -> Result<String, ReservationFault> {
        let known =
            self.resources.config().reservation(name).ok_or(ReservationFault::Unknown)?.clone();
        if self.is_used(&known) {
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
            self.end_reservation(&reservation, cx.now, cx);
        }
        self.purge_idle(cx);
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

    /// Ends reservations with PURGE_COMP that have begun and that no job has named for long enough.
    fn purge_idle(&mut self, cx: &mut Cx) {
        let all = self.resources.config().reservations.iter();
        let active = all.filter(|one| one.purge_secs().is_some() && one.is_open(cx.now));
        let active: Vec<Reservation> = active.cloned().collect();
        for known in active {
            // A clock that is set back restarts the wait.
            let since = match known.idle_since.filter(|since| *since <= cx.now) {
                _ if self.is_used(&known) => None,
                since => since.or(Some(cx.now)),
            };
            let idle = Reservation { idle_since: since, ..known.clone() };
            if idle.purged_at().is_some_and(|at| at <= cx.now) {
                let end = known.end.unwrap_or(cx.now).max(cx.now);
                self.end_reservation(&known, end, cx);
            } else if since != known.idle_since {
                self.replace_reservation(idle, cx);
            }
        }
    }

    /// Returns whether a job that has not ended names a reservation.
    fn is_used(&self, known: &Reservation) -> bool {
        let is_user = |job: &Job| !job.run.state.is_terminal() && known.is_named_by(&job.request);
        self.jobs().any(is_user)
    }

    fn replace_reservation(&mut self, new: Reservation, cx: &mut Cx) {
        self.store(&new, cx);
        let mut all = self.resources.config().reservations.clone();
        if let Some(known) = all.iter_mut().find(|other| other.number == new.number) {
            *known = new;
        }
        self.set_reservations(all, cx.now);
    }

    /// Ends a reservation. One that repeats goes on in the first period that ends after `after`.
    fn end_reservation(&mut self, over: &Reservation, after: Timestamp, cx: &mut Cx) {
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
            self.records.edit(id, |job| job.run.ended_reservation = Some(over.name.clone()));
            self.stop(id, Reason::TimeLimit, StopCause::TimeLimit, cx);
        }
        let next =
            over.end.and_then(|_| recurrence::from(over, after, &self.resources.config().zone));
        match next {
            Some(next) => {
                self.replace_reservation(Reservation { idle_since: None, ..next }, cx);
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
                reservation.end.into_iter().chain(reservation.purged_at()).min()
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
        if self.last_reservation > 0 {
            all.insert(MemoKey::LastReservation, MemoBody::Number(self.last_reservation));
        }
        Ok(all)
    }

    /// Restores the reservations of an earlier daemon. `last` is the last number that it gave.
    pub(super) fn recall_reservations(&mut self, all: Vec<Reservation>, last: u32, now: Timestamp) {
        let known = all.iter().map(|reservation| reservation.number).max();
        self.last_reservation = last.max(known.unwrap_or(0));
        if !all.is_empty() {
            self.set_reservations(all, now);
        }
    }
}

/// Returns a name that no reservation has: the user's or account's, and a number from this one on.
/// Characters that a name can't have are replaced.
fn unused_name(first: &str, number: u32, config: &Config) -> String {
    let names = (number..).map(|count| reservation::numbered_name(first, count));
    let mut free = names.skip_while(|name| config.reservation(name).is_some());
    free.next().unwrap_or_default()
}
