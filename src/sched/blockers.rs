//! The conditions that keep a pending job from running: one predicate for each, with its reason.
//!
//! These predicates examine one job in the current state. Whether enough resources are free now is
//! up to the plan, and comes last.

use super::choice::Choice;
use super::core::Core;
use super::line::queue::{Lane, QueueKey};
use super::records::Record;
use super::resources::limits::Reached;
use slotd_model::reservation::{Reservation, Share};
use slotd_model::{JobId, JobState, Reason, Timestamp, Tres};

impl Core {
    /// Returns the first reason, apart from free resources, that keeps a record from starting. A
    /// job with several partitions needs only one that is open.
    pub(super) fn gate(&self, record: &Record, now: Timestamp) -> Option<Reason> {
        let everywhere = || {
            let mut reasons = Choice::all(&record.job, self.resources.config())
                .map(|choice| self.resources.gate_in(&choice, now));
            let first = reasons.next().flatten()?;
            reasons.all(|reason| reason.is_some()).then_some(first)
        };
        self.records.gate_anywhere(record, now).or_else(everywhere)
    }

    /// Returns the choice behind a queue key, if the record still waits only for resources.
    pub(super) fn open_choice<'a>(
        &'a self,
        record: &'a Record,
        key: QueueKey,
        now: Timestamp,
    ) -> Option<Choice<'a>> {
        let choice = Choice::all(&record.job, self.resources.config())
            .find(|choice| choice.at == key.choice)?;
        let is_open = self.records.gate_anywhere(record, now).is_none()
            && self.resources.gate_in(&choice, now).is_none();
        is_open.then_some(choice)
    }

    /// Returns why a job waits, or why it ended as it did, as of now.
    pub fn reason(&self, id: JobId, now: Timestamp) -> Reason {
        self.records.get(id).map_or(Reason::None, |record| self.reason_of(record, now))
    }

    /// Like [`Self::reason`], for a record.
    pub(super) fn reason_of(&self, record: &Record, now: Timestamp) -> Reason {
        if record.job.run.state != JobState::Pending {
            return record.job.run.reason;
        }
        if let Some(reason) = self.gate(record, now) {
            return reason;
        }
        if !self.resources.node().takes_starts() {
            return Reason::ReqNodeNotAvail;
        }
        self.waits_in(record, now).map_or(Reason::None, |(_, reason)| reason)
    }

    /// Returns the partition in which a job that waits only for resources is closest to starting,
    /// and its reason there.
    pub(super) fn waits_in<'a>(
        &'a self,
        record: &'a Record,
        now: Timestamp,
    ) -> Option<(Choice<'a>, Reason)> {
        let open = Choice::all(&record.job, self.resources.config())
            .filter(|choice| self.resources.gate_in(choice, now).is_none());
        open.map(|choice| {
            let reason = self.reason_in(&choice, now);
            (choice, reason)
        })
        .min_by_key(|(_, reason)| match reason {
            Reason::None => 0,
            Reason::Priority => 2,
            _ => 1,
        })
    }

    /// Returns the first record among those that wait for the same resources. A job at a limit
    /// keeps no other job waiting, and neither does one of another QOS that reserves nothing.
    pub(super) fn first_in_line(&self, choice: &Choice) -> Option<QueueKey> {
        let (capacity, host) = (self.resources.ledger().capacity(), self.resources.host());
        let line = capacity.line(choice.want().place.partition);
        let own = choice.want().place;
        self.line.queue().first_of(|lane @ Lane { place, .. }| {
            capacity.line(place.partition) == line
                && capacity.limit_reached(place, &lane.tres(), host).is_none()
                && (*place == own || capacity.reserves(place))
        })
    }

    /// Returns why a job that waits only for resources waits in this partition.
    ///
    /// Among the jobs that wait for the same resources, the first one has the reason Resources (or
    /// Exclusive if the host is not to be shared), and the others have Priority, as in Slurm.
    fn reason_in(&self, choice: &Choice, now: Timestamp) -> Reason {
        let (id, want) = (choice.job.id, choice.want());
        let (capacity, host) = (self.resources.ledger().capacity(), self.resources.host());
        let own_limit =
            capacity.limit_reached(&want.place, &want.tres, host).map(|reached| reached.reason());
        let of_expanded = || self.limit_of_expanded(id, &want.tres, |reached| reached.reason());
        if let Some(reason) = own_limit.or_else(of_expanded) {
            return reason;
        }
        if self.reserved_node(choice, now).is_some() {
            return Reason::ReservedForMaintenance;
        }
        if self.first_in_line(choice).is_some_and(|first| first.id != id) {
            return Reason::Priority;
        }
        if capacity.fits(&want, host) {
            // The next plan starts it, unless that would delay the first job of another line.
            if self.line.queue().first().is_some_and(|first| first.id != id) {
                Reason::Priority
            } else if self.reserved_parts(choice, now).is_some() {
                Reason::Resources
            } else {
                Reason::None
            }
        } else if self.resources.ledger().is_exclusive() || want.place.exclusive {
            Reason::Exclusive
        } else {
            Reason::Resources
        }
    }

    /// Returns the first reservation of the whole node that a job would run into if it started now.
    pub(super) fn reserved_node(&self, choice: &Choice, now: Timestamp) -> Option<&Reservation> {
        self.ahead(choice, now).find(|reservation| reservation.share == Share::Node)
    }

    /// Returns the first reservation of some resources that a job would run into.
    pub(super) fn reserved_parts(&self, choice: &Choice, now: Timestamp) -> Option<&Reservation> {
        self.ahead(choice, now).find(|reservation| reservation.share != Share::Node)
    }

    /// Returns the reservations, other than its own, that begin before a job would end.
    fn ahead(&self, choice: &Choice, now: Timestamp) -> impl Iterator<Item = &Reservation> {
        let own = choice.reservation.flatten();
        let end = choice.reservation.flatten().and_then(Reservation::job_end);
        let limit = choice.limit_secs.map(|secs| now.plus_secs(secs));
        let end = limit.into_iter().chain(end).min();
        let all = self.resources.config().reservations.iter();
        all.filter(move |reservation| {
            let is_met = end.is_none_or(|end| end > reservation.start.max(now));
            let is_open =
                own.is_some_and(|own| own.number == reservation.number || own.passes(reservation));
            !is_open && !reservation.is_over(now) && is_met
        })
    }

    /// Returns the limit that the job to be expanded would exceed with these resources more. The
    /// limit may be newer than the submission of the expanding job.
    pub(super) fn limit_of_expanded<T>(
        &self,
        id: JobId,
        more: &Tres,
        describe: impl FnOnce(Reached) -> T,
    ) -> Option<T> {
        let held = self.resources.ledger().held(self.records.expanded_by(id)?)?;
        let mut capacity = self.resources.ledger().capacity().clone();
        capacity.give(held);
        capacity
            .limit_reached(
                &held.place.with_its_licenses(),
                &held.alloc.tres.plus(more),
                self.resources.host(),
            )
            .map(describe)
    }
}
