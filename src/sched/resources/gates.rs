//! The conditions that keep a pending job from running in a partition, regardless of free
//! resources: one predicate for each.

use super::Resources;
use super::capacity::{CpuSharing, Want};
use super::limits::LimitSet;
use crate::choice::Choice;
use slotd_model::partition::PartitionState;
use slotd_model::{Job, Reason, Timestamp};
use std::iter::once_with;

/// Checks whether the partition refuses to start jobs with this time limit.
fn time_limit_blocker(choice: &Choice) -> Option<Reason> {
    let most = choice.partition?.max_time_secs?;
    (choice.limit_secs.unwrap_or(u64::MAX) > most).then_some(Reason::PartitionTimeLimit)
}

/// Checks whether the reservation has not begun, or no longer exists.
fn reservation_blocker(choice: &Choice, now: Timestamp) -> Option<Reason> {
    let is_open = choice.reservation?.is_some_and(|reservation| reservation.is_open(now));
    (!is_open).then_some(Reason::Reservation)
}

impl Resources {
    /// Checks whether the job requests more than the empty host has, more tasks than a step may
    /// have, or drained resources.
    fn too_large(&self, choice: &Choice) -> Option<Reason> {
        if self.awaits_gpus(choice) {
            return None;
        }
        let (want, host) = (choice.want(), self.host());
        let has_tasks = choice.job.request.task_count() <= self.config.max_tasks;
        // Limits and licenses do not matter here.
        let want = Want { place: CpuSharing { limits: LimitSet::default(), ..want.place }, ..want };
        if has_tasks && self.ledger.whole().fits(&want, host) {
            return None;
        }
        let is_drained = has_tasks && self.ledger.undrained().fits(&want, host);
        Some(if is_drained { Reason::ReqNodeNotAvail } else { Reason::BadConstraints })
    }

    /// Checks whether a limit on its account, name or QOS never lets the job start, its QOS no
    /// longer exists, or there are never enough licenses.
    fn above_limit(&self, choice: &Choice) -> Option<Reason> {
        let want = choice.want();
        Some(self.ledger.whole().limit_reached(&want.place, &want.tres, self.host())?.reason())
    }

    /// Checks whether the partition no longer exists, or does not start jobs now.
    fn partition_blocker(&self, choice: &Choice, now: Timestamp) -> Option<Reason> {
        let Some(partition) = choice.partition else { return Some(Reason::PartitionConfig) };
        let is_closed =
            partition.allowed_hours.is_some_and(|hours| !self.config.zone.is_within(hours, now));
        match partition.state {
            PartitionState::Inactive => Some(Reason::PartitionInactive),
            PartitionState::Down => Some(Reason::PartitionDown),
            PartitionState::Up | PartitionState::Drain if is_closed => Some(Reason::PartitionDown),
            PartitionState::Up | PartitionState::Drain => None,
        }
    }

    /// Returns when the first of the job's closed partitions opens.
    pub fn opens(&self, job: &Job, now: Timestamp) -> Option<Timestamp> {
        Choice::all(job, self.config()).filter_map(|choice| self.opens_in(&choice, now)).min()
    }

    /// Returns when the partition opens next if it is closed now.
    pub(crate) fn opens_in(&self, choice: &Choice, now: Timestamp) -> Option<Timestamp> {
        let hours = choice
            .partition?
            .allowed_hours
            .filter(|hours| !self.config.zone.is_within(*hours, now))?;
        self.config.zone.next_begin(hours, now)
    }

    /// Returns everything except free resources that keeps a job from starting in one partition.
    pub(crate) fn gates_in(&self, choice: &Choice, now: Timestamp) -> impl Iterator<Item = Reason> {
        once_with(move || self.partition_blocker(choice, now))
            .chain(once_with(move || reservation_blocker(choice, now)))
            .chain(once_with(|| time_limit_blocker(choice)))
            .chain(once_with(|| choice.qos?.time_limit_blocker(choice.limit_secs)))
            .chain(once_with(|| self.above_limit(choice)))
            .chain(once_with(|| self.too_large(choice)))
            .chain(once_with(|| self.gpus_in_use(choice).map(|_| Reason::Resources)))
            .chain(once_with(|| self.cpus_in_use(choice).map(|_| Reason::Resources)))
            .flatten()
    }

    /// Describes how processes outside jobs keep a job from starting.
    pub(crate) fn used_by_others(&self, job: &Job) -> Option<String> {
        let in_use =
            |choice: Choice| self.gpus_in_use(&choice).or_else(|| self.cpus_in_use(&choice));
        Choice::all(job, self.config()).find_map(in_use)
    }

    /// Returns the first of [`Self::gates_in`].
    pub(crate) fn gate_in(&self, choice: &Choice, now: Timestamp) -> Option<Reason> {
        self.gates_in(choice, now).next()
    }
}
