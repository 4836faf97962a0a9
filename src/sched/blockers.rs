//! What keeps a pending job from running: one predicate for each blocker, each with its reason.
//!
//! These look at one job and the state as it is. Whether the resources that are free now are enough is the plan's
//! question, and comes last.

use super::array::ArrayGroup;
use super::choice::Choice;
use super::core::{Core, Record};
use super::queue::{Lane, QueueKey};
use crate::model::job::Hold;
use crate::model::partition::PartitionState;
use crate::model::{Job, JobId, JobState, Reason, Timestamp};

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

impl Core {
    /// It asks for more than the host has now, even with nobody else on it, or for more tasks than a step may have.
    fn too_large(&self, choice: &Choice) -> Option<Reason> {
        let is_possible = self.ledger.whole().fits(&choice.want(), &self.config.host);
        let is_possible = is_possible && choice.job.request.task_count() <= self.config.max_tasks;
        (!is_possible).then_some(Reason::BadConstraints)
    }

    /// A limit on its account or its name lets it never start.
    fn above_limit(&self, choice: &Choice) -> Option<Reason> {
        let want = choice.want();
        self.ledger.whole().limit_reached(&want.place, want.tres.cpus, &self.config.host)
    }

    /// The partition is not there any more, starts no jobs now, or none with such a time limit.
    fn partition_blocker(&self, choice: &Choice, now: Timestamp) -> Option<Reason> {
        let Some(partition) = choice.partition else { return Some(Reason::PartitionConfig) };
        let is_closed = partition.allowed_hours.is_some_and(|hours| !self.config.zone.is_within(hours, now));
        match partition.state {
            PartitionState::Inactive => Some(Reason::PartitionInactive),
            PartitionState::Down => Some(Reason::PartitionDown),
            PartitionState::Up | PartitionState::Drain if is_closed => Some(Reason::PartitionDown),
            PartitionState::Up | PartitionState::Drain => {
                let limit = choice.limit_secs.unwrap_or(u64::MAX);
                partition.max_time_secs.filter(|most| limit > *most).map(|_| Reason::PartitionTimeLimit)
            }
        }
    }

    /// When the first partition of a job opens that is closed now.
    pub(super) fn opens(&self, job: &Job, now: Timestamp) -> Option<Timestamp> {
        Choice::all(job, &self.config).filter_map(|choice| self.opens_in(&choice, now)).min()
    }

    /// When a partition opens next, if it is closed now.
    pub(super) fn opens_in(&self, choice: &Choice, now: Timestamp) -> Option<Timestamp> {
        let hours = choice.partition?.allowed_hours.filter(|hours| !self.config.zone.is_within(*hours, now))?;
        self.config.zone.next_begin(hours, now)
    }

    /// What keeps a record from starting that is neither a matter of free resources nor of its partition.
    pub(super) fn gate_anywhere(&self, record: &Record, now: Timestamp) -> Option<Reason> {
        let job = &record.job;
        held(job)
            .or_else(|| self.dependency_blocker(job, record.waits.as_deref(), now))
            .or_else(|| too_early(job, now))
            .or_else(|| array_full(job.array_job_id().and_then(|array| self.arrays.get(&array))))
    }

    /// What keeps a job from starting in one partition that is not a matter of free resources.
    pub(super) fn gate_in(&self, choice: &Choice, now: Timestamp) -> Option<Reason> {
        self.partition_blocker(choice, now)
            .or_else(|| self.above_limit(choice))
            .or_else(|| self.too_large(choice))
            .or_else(|| self.gpus_in_use(choice).map(|_| Reason::Resources))
    }

    /// The first blocker that is not a matter of free resources. Of several partitions, one that is open is enough.
    pub(super) fn gate(&self, record: &Record, now: Timestamp) -> Option<Reason> {
        let everywhere = || {
            let mut reasons = Choice::all(&record.job, &self.config).map(|choice| self.gate_in(&choice, now));
            let first = reasons.next().flatten()?;
            reasons.all(|reason| reason.is_some()).then_some(first)
        };
        self.gate_anywhere(record, now).or_else(everywhere)
    }

    /// What a record of the queue is about, if it still only waits for resources.
    pub(super) fn open_choice<'a>(&'a self, record: &'a Record, key: QueueKey, now: Timestamp) -> Option<Choice<'a>> {
        let choice = Choice::all(&record.job, &self.config).find(|choice| choice.at == key.choice)?;
        let is_open = self.gate_anywhere(record, now).is_none() && self.gate_in(&choice, now).is_none();
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
    pub(super) fn waits_in<'a>(&'a self, record: &'a Record, now: Timestamp) -> Option<(Choice<'a>, Reason)> {
        let open = Choice::all(&record.job, &self.config).filter(|choice| self.gate_in(choice, now).is_none());
        open.map(|choice| (choice, self.reason_in(&choice))).min_by_key(|(_, reason)| match reason {
            Reason::None => 0,
            Reason::Priority => 2,
            _ => 1,
        })
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
        if let Some(reason) = room.limit_reached(&want.place, want.tres.cpus, host) {
            return reason;
        }
        if self.first_in_line(choice).is_some_and(|first| first.id != id) {
            return Reason::Priority;
        }
        if room.fits(&want, host) {
            // The next plan starts it, unless that would delay the first of another line.
            if self.queue.first().is_some_and(|first| first.id != id) { Reason::Priority } else { Reason::None }
        } else if self.ledger.is_exclusive() || want.place.exclusive {
            Reason::Exclusive
        } else {
            Reason::Resources
        }
    }
}
