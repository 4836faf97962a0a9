//! What keeps a pending job from running in a partition, whatever is free now: one predicate for
//! each blocker.

use super::Resources;
use super::capacity::{CpuSharing, Want};
use super::limits::LimitSet;
use crate::model::partition::PartitionState;
use crate::model::{Job, Reason, Timestamp};
use crate::sched::choice::Choice;
use std::iter::once_with;

/// The partition starts no jobs with such a time limit.
fn time_limit_blocker(choice: &Choice) -> Option<Reason> {
    let most = choice.partition?.max_time_secs?;
    (choice.limit_secs.unwrap_or(u64::MAX) > most).then_some(Reason::PartitionTimeLimit)
}

impl Resources {
    /// It asks for more than the host has now, even with nobody else on it, or for more tasks than
    /// a step may have; or for what the owner has taken out of use.
    fn too_large(&self, choice: &Choice) -> Option<Reason> {
        if self.awaits_gpus(choice) {
            return None;
        }
        let (want, host) = (choice.want(), self.host());
        let has_tasks = choice.job.request.task_count() <= self.config.max_tasks;
        // Whether it would be over a limit is no matter here.
        let want = Want { place: CpuSharing { limits: LimitSet::default(), ..want.place }, ..want };
        if has_tasks && self.ledger.whole().fits(&want, host) {
            return None;
        }
        let is_drained = has_tasks && self.ledger.undrained().fits(&want, host);
        Some(if is_drained { Reason::ReqNodeNotAvail } else { Reason::BadConstraints })
    }

    /// A limit on its account or its name lets it never start.
    fn above_limit(&self, choice: &Choice) -> Option<Reason> {
        let want = choice.want();
        Some(self.ledger.whole().limit_reached(&want.place, want.tres.cpus, self.host())?.reason)
    }

    /// The partition is not there any more, or starts no jobs now.
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

    /// When the first partition of a job opens that is closed now.
    pub fn opens(&self, job: &Job, now: Timestamp) -> Option<Timestamp> {
        Choice::all(job, self.config()).filter_map(|choice| self.opens_in(&choice, now)).min()
    }

    /// When a partition opens next, if it is closed now.
    pub fn opens_in(&self, choice: &Choice, now: Timestamp) -> Option<Timestamp> {
        let hours = choice
            .partition?
            .allowed_hours
            .filter(|hours| !self.config.zone.is_within(*hours, now))?;
        self.config.zone.next_begin(hours, now)
    }

    /// All that keeps a job from starting in one partition and is not a matter of free resources.
    pub fn gates_in(&self, choice: &Choice, now: Timestamp) -> impl Iterator<Item = Reason> {
        once_with(move || self.partition_blocker(choice, now))
            .chain(once_with(|| time_limit_blocker(choice)))
            .chain(once_with(|| self.above_limit(choice)))
            .chain(once_with(|| self.too_large(choice)))
            .chain(once_with(|| self.gpus_in_use(choice).map(|_| Reason::Resources)))
            .chain(once_with(|| self.cpus_in_use(choice).map(|_| Reason::Resources)))
            .flatten()
    }

    /// What others than jobs have of what a job waits for, in words.
    pub fn used_by_others(&self, job: &Job) -> Option<String> {
        let in_use =
            |choice: Choice| self.gpus_in_use(&choice).or_else(|| self.cpus_in_use(&choice));
        Choice::all(job, self.config()).find_map(in_use)
    }

    /// The first of them.
    pub fn gate_in(&self, choice: &Choice, now: Timestamp) -> Option<Reason> {
        self.gates_in(choice, now).next()
    }
}
