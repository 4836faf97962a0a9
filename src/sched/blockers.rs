//! What keeps a pending job from running: one predicate for each blocker, each with its reason.
//!
//! These look at one job and the state as it is. Whether the resources that are free now are enough is the plan's
//! question, and comes last.

use super::array::ArrayGroup;
use super::choice::Choice;
use super::core::{Core, Record};
use super::limits::LimitSet;
use super::queue::{Lane, QueueKey};
use super::room::{Seating, Want};
use crate::model::job::Hold;
use crate::model::partition::PartitionState;
use crate::model::{Job, JobId, JobState, Reason, Timestamp};
use std::iter::once_with;

/// The user or an administrator holds it.
pub fn held(job: &Job) -> Option<Reason> {
    match job.hold {
        Hold::No => None,
        Hold::User => Some(Reason::JobHeldUser),
        Hold::Admin => Some(Reason::JobHeldAdmin),
    }
}

/// Its begin time has not come. The clock is asked each time: it may have been set back.
fn too_early(job: &Job, now: Timestamp) -> Option<Reason> {
    job.request.begin.filter(|begin| *begin > now).map(|_| Reason::BeginTime)
}

/// The array has as many tasks running as it may.
fn array_full(group: Option<&ArrayGroup>) -> Option<Reason> {
    group.filter(|group| group.is_at_limit()).map(|_| Reason::JobArrayTaskLimit)
}

/// The partition starts no jobs with such a time limit.
fn time_limit_blocker(choice: &Choice) -> Option<Reason> {
    let most = choice.partition?.max_time_secs?;
    (choice.limit_secs.unwrap_or(u64::MAX) > most).then_some(Reason::PartitionTimeLimit)
}

impl Core {
    /// It asks for more than the host has now, even with nobody else on it, or for more tasks than a step may have; or
    /// for what the owner has taken out of use.
    fn too_large(&self, choice: &Choice) -> Option<Reason> {
        let (want, host) = (choice.want(), &self.config.host);
        let has_tasks = choice.job.request.task_count() <= self.config.max_tasks;
        // Whether it would be over a limit is no matter here.
        let want = Want { place: Seating { limits: LimitSet::default(), ..want.place }, ..want };
        if has_tasks && self.ledger.whole().fits(&want, host) {
            return None;
        }
        let is_drained = has_tasks && self.ledger.undrained().fits(&want, host);
        Some(if is_drained { Reason::ReqNodeNotAvail } else { Reason::BadConstraints })
    }

    /// A limit on its account or its name lets it never start.
    fn above_limit(&self, choice: &Choice) -> Option<Reason> {
        let want = choice.want();
        Some(
            self.ledger
                .whole()
                .limit_reached(&want.place, want.tres.cpus, &self.config.host)?
                .reason,
        )
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
    pub(super) fn opens(&self, job: &Job, now: Timestamp) -> Option<Timestamp> {
        Choice::all(job, &self.config).filter_map(|choice| self.opens_in(&choice, now)).min()
    }

    /// When a partition opens next, if it is closed now.
    pub(super) fn opens_in(&self, choice: &Choice, now: Timestamp) -> Option<Timestamp> {
        let hours = choice
            .partition?
            .allowed_hours
            .filter(|hours| !self.config.zone.is_within(*hours, now))?;
        self.config.zone.next_begin(hours, now)
    }

    /// All that keeps a record from starting and is neither a matter of free resources nor of its partition, each worked
    /// out when it is asked for.
    pub(super) fn gates_anywhere(
        &self,
        record: &Record,
        now: Timestamp,
    ) -> impl Iterator<Item = Reason> {
        let job = &record.job;
        let group = || job.array_job_id().and_then(|array| self.arrays.get(&array));
        once_with(|| held(job))
            .chain(once_with(move || self.dependency_blocker(job, record.waits.as_deref(), now)))
            .chain(once_with(move || too_early(job, now)))
            .chain(once_with(move || array_full(group())))
            .flatten()
    }

    /// The first of them.
    pub(super) fn gate_anywhere(&self, record: &Record, now: Timestamp) -> Option<Reason> {
        self.gates_anywhere(record, now).next()
    }

    /// All that keeps a job from starting in one partition and is not a matter of free resources.
    pub(super) fn gates_in(&self, choice: &Choice, now: Timestamp) -> impl Iterator<Item = Reason> {
        once_with(move || self.partition_blocker(choice, now))
            .chain(once_with(|| time_limit_blocker(choice)))
            .chain(once_with(|| self.above_limit(choice)))
            .chain(once_with(|| self.too_large(choice)))
            .chain(once_with(|| self.gpus_in_use(choice).map(|_| Reason::Resources)))
            .chain(once_with(|| self.cpus_in_use(choice).map(|_| Reason::Resources)))
            .flatten()
    }

    /// The first of them.
    pub(super) fn gate_in(&self, choice: &Choice, now: Timestamp) -> Option<Reason> {
        self.gates_in(choice, now).next()
    }

    /// The first blocker that is not a matter of free resources. Of several partitions, one that is open is enough.
    pub(super) fn gate(&self, record: &Record, now: Timestamp) -> Option<Reason> {
        let everywhere = || {
            let mut reasons =
                Choice::all(&record.job, &self.config).map(|choice| self.gate_in(&choice, now));
            let first = reasons.next().flatten()?;
            reasons.all(|reason| reason.is_some()).then_some(first)
        };
        self.gate_anywhere(record, now).or_else(everywhere)
    }

    /// What a record of the queue is about, if it still only waits for resources.
    pub(super) fn open_choice<'a>(
        &'a self,
        record: &'a Record,
        key: QueueKey,
        now: Timestamp,
    ) -> Option<Choice<'a>> {
        let choice =
            Choice::all(&record.job, &self.config).find(|choice| choice.at == key.choice)?;
        let is_open =
            self.gate_anywhere(record, now).is_none() && self.gate_in(&choice, now).is_none();
        is_open.then_some(choice)
    }

    /// Why a job waits, or why it ended as it did; worked out now.
    pub fn reason(&self, id: JobId, now: Timestamp) -> Reason {
        self.jobs.get(&id).map_or(Reason::None, |record| self.reason_of(record, now))
    }

    /// The same of its record.
    pub(super) fn reason_of(&self, record: &Record, now: Timestamp) -> Reason {
        if record.job.run.state != JobState::Pending {
            return record.job.run.reason;
        }
        if let Some(reason) = self.gate(record, now) {
            return reason;
        }
        if !self.takes_starts() {
            return Reason::ReqNodeNotAvail;
        }
        self.waits_in(record, now).map_or(Reason::None, |(_, reason)| reason)
    }

    /// The partition in which a job that only waits for resources comes first, and why it waits there.
    pub(super) fn waits_in<'a>(
        &'a self,
        record: &'a Record,
        now: Timestamp,
    ) -> Option<(Choice<'a>, Reason)> {
        let open = Choice::all(&record.job, &self.config)
            .filter(|choice| self.gate_in(choice, now).is_none());
        open.map(|choice| (choice, self.reason_in(&choice))).min_by_key(
            |(_, reason)| match reason {
                Reason::None => 0,
                Reason::Priority => 2,
                _ => 1,
            },
        )
    }

    /// Who comes first of those that wait for the same resources. Who is at a limit keeps nobody waiting.
    pub(super) fn first_in_line(&self, choice: &Choice) -> Option<QueueKey> {
        let (room, host) = (self.ledger.room(), &self.config.host);
        let line = room.line(choice.want().place.partition);
        self.queue.first_of(|Lane { place, cpus }| {
            room.line(place.partition) == line && room.limit_reached(place, *cpus, host).is_none()
        })
    }

    /// Why a job waits in this partition, where it only waits for resources.
    ///
    /// Among those that wait for the same resources the first one is told so (Resources, or Exclusive where the host is not
    /// to be shared), and the others that it goes before them (Priority), as in Slurm.
    fn reason_in(&self, choice: &Choice) -> Reason {
        let (id, want) = (choice.job.id, choice.want());
        let (room, host) = (self.ledger.room(), &self.config.host);
        let own_limit =
            room.limit_reached(&want.place, want.tres.cpus, host).map(|reached| reached.reason);
        let of_expanded = || self.limit_of_expanded(id, want.tres.cpus, |reached| reached.reason);
        if let Some(reason) = own_limit.or_else(of_expanded) {
            return reason;
        }
        if self.first_in_line(choice).is_some_and(|first| first.id != id) {
            return Reason::Priority;
        }
        if room.fits(&want, host) {
            // The next plan starts it, unless that would delay the first of another line.
            if self.queue.first().is_some_and(|first| first.id != id) {
                Reason::Priority
            } else {
                Reason::None
            }
        } else if self.ledger.is_exclusive() || want.place.exclusive {
            Reason::Exclusive
        } else {
            Reason::Resources
        }
    }
}
