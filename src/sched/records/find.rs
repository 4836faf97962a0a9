//! Lookups of records: by reference, query, process, or state.

use super::Records;
use super::array::covers;
use super::index::client_key;
use crate::types::StopCause;
use slotd_model::job::ClientProcess;
use slotd_model::query::{JobQuery, names_record};
use slotd_model::{
    BootId, Job, JobId, JobRef, JobState, Reason, Refusal, StepKey, TaskSet, Timestamp,
};
use std::ops::Bound;

/// Returns whether a job that is active by its record ran under an earlier boot. Records of older
/// slotd versions have no boot ID; there the start time decides.
fn ran_before(job: &Job, boot: BootId, booted: Option<Timestamp>) -> bool {
    job.run.state.is_active()
        && match &job.run.clock {
            Some(clock) => clock.boot.differs(boot),
            None => booted.zip(job.run.start).is_some_and(|(booted, start)| start < booted),
        }
}

impl Records {
    /// Returns the records in memory that a reference names, ordered by ID. A task that is still
    /// part of a compact record selects that record.
    pub fn resolve(&self, sel: &JobRef) -> Vec<JobId> {
        let mut found = match (&sel.tasks, self.arrays.get(&sel.job)) {
            (None, Some(group)) => group.records.iter().copied().collect(),
            (None, None) => {
                self.jobs.contains_key(&sel.job).then_some(sel.job).into_iter().collect()
            }
            (Some(_), None) => Vec::new(),
            (Some(tasks), Some(group)) => {
                let mut found: Vec<JobId> = if tasks.len() <= group.tasks.len() {
                    tasks.iter().filter_map(|task| group.tasks.get(&task)).copied().collect()
                } else {
                    group
                        .tasks
                        .iter()
                        .filter(|(task, _)| tasks.contains(**task))
                        .map(|(_, id)| *id)
                        .collect()
                };
                let has_some = |id: &&JobId| {
                    let own = self.job(**id).and_then(|job| job.compact_tasks());
                    own.is_some_and(|own| overlap(own, tasks))
                };
                found.extend(group.compact.iter().filter(has_some));
                found
            }
        };
        found.sort_unstable();
        found
    }

    /// Returns whether no task of an array is running or left to run.
    pub fn is_array_over(&self, array: JobId) -> bool {
        self.arrays.get(&array).is_none_or(|group| group.live == 0)
    }

    /// Returns the records in memory that match a query, ordered by ID.
    pub fn find(&self, query: &JobQuery) -> Vec<JobId> {
        if query.jobs.is_empty() {
            return self.jobs().filter(|job| query.matches(job)).map(|job| job.id).collect();
        }
        let matches = |id: &JobId| self.job(*id).is_some_and(|job| query.matches(job));
        let mut found: Vec<JobId> =
            query.jobs.iter().flat_map(|named| self.resolve(named)).filter(matches).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Like [`Self::find`], but in batches: a query that names no jobs examines at most `most`
    /// records with IDs above `after`. Also returns the ID to continue after, or `None` at the end.
    pub fn find_some(
        &self,
        query: &JobQuery,
        after: Option<JobId>,
        most: usize,
    ) -> (Vec<JobId>, Option<JobId>) {
        if !query.jobs.is_empty() {
            return (self.find(query), None);
        }
        let mut records =
            self.jobs.range((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded));
        let (mut found, mut last) = (Vec::new(), None);
        for (id, record) in records.by_ref().take(most) {
            last = Some(*id);
            if query.matches(&record.job) {
                found.push(*id);
            }
        }
        (found, last.filter(|_| records.next().is_some()))
    }

    /// Returns the jobs that an `scancel` query selects: each matching record, and of a compact
    /// record only the named tasks.
    pub fn targets(&self, query: &JobQuery) -> Vec<JobRef> {
        let of = |job: &Job| -> Vec<JobRef> {
            let naming = query.jobs.iter().filter(|named| names_record(named, job.id, &job.role));
            if query.jobs.is_empty() {
                vec![job.own_ref()]
            } else {
                naming.map(|named| job.part_named(named)).collect()
            }
        };
        self.find(query).into_iter().filter_map(|id| self.job(id)).flat_map(of).collect()
    }

    /// Returns the running steps that a reference such as `12.0` or `12_3.0` names.
    pub(crate) fn live_steps(&self, sel: &JobRef) -> Result<Vec<StepKey>, Refusal> {
        let Some(step) = sel.step else { return Err(Refusal::UnknownStep) };
        let jobs = self.resolve(&JobRef { step: None, ..sel.clone() });
        let keys: Vec<StepKey> = jobs
            .into_iter()
            .filter(|id| self.has_live_step(*id, step))
            .map(|job| StepKey { job, step })
            .collect();
        if keys.is_empty() { Err(Refusal::UnknownStep) } else { Ok(keys) }
    }

    /// Returns the records of a reference that are in `wanted`, which is one of the two running
    /// states.
    pub(crate) fn running_for(
        &self,
        sel: &JobRef,
        wanted: JobState,
    ) -> Result<Vec<JobId>, Refusal> {
        let found = self.resolve(sel);
        let mut refused = Refusal::UnknownJob;
        let mut fit = Vec::new();
        for job in found.into_iter().filter_map(|id| self.job(id)) {
            match job.run.state {
                JobState::Running | JobState::Suspended if job.run.state == wanted => {
                    fit.push(job.id)
                }
                JobState::Running | JobState::Suspended | JobState::Completing => {
                    refused = Refusal::Disabled
                }
                JobState::Pending => refused = Refusal::Pending,
                JobState::Ended(_) => refused = Refusal::AlreadyFinished,
            }
        }
        if fit.is_empty() { Err(refused) } else { Ok(fit) }
    }

    /// Returns the job in memory that this process submitted (for an array, the array's ID).
    pub fn submitted_by(&self, process: ClientProcess) -> Option<JobId> {
        let own = client_key(process, JobId(0))..=client_key(process, JobId(u32::MAX));
        let mut jobs = self.clients.range(own).filter_map(|(_, id)| self.job(*id));
        let job = jobs.find(|job| job.client.is_some_and(|client| client.process == process))?;
        Some(job.array_job_id().unwrap_or(job.id))
    }

    /// Returns the jobs that ran under an earlier boot than the current one, which started at
    /// `booted`, if known.
    pub fn ran_before(&self, booted: Option<Timestamp>) -> Vec<JobId> {
        self.active
            .iter()
            .copied()
            .filter(|id| {
                self.job(*id).is_some_and(|job| ran_before(job, self.clock().boot, booted))
            })
            .collect()
    }

    /// Returns whether any job may have processes.
    pub fn has_active(&self) -> bool {
        self.active().next().is_some()
    }

    /// Returns the jobs that were being stopped when the daemon ended, and why. Their kill ladders
    /// must run again.
    pub fn unfinished_stops(&self) -> Vec<(JobId, StopCause)> {
        let completing = |job: &&Job| job.run.state == JobState::Completing;
        let jobs = self.active.iter().filter_map(|id| self.job(*id)).filter(completing);
        jobs.map(|job| {
            let cause = match (job.run.cancelled_by, job.run.reason) {
                (Some(by), _) => StopCause::Cancelled { by },
                (None, Reason::Requeued) => StopCause::Requeue,
                (None, Reason::ClientLost) => StopCause::ClientLost,
                (None, Reason::DeadLine) => StopCause::Deadline,
                (None, Reason::TimeLimit) => StopCause::TimeLimit,
                (None, Reason::NodeDown) => StopCause::NodeDown,
                (None, Reason::Preempted) => StopCause::Preempted,
                (None, _) => StopCause::Released,
            };
            (job.id, cause)
        })
        .collect()
    }
}

fn overlap(a: &TaskSet, b: &TaskSet) -> bool {
    if covers(a, b) || covers(b, a) {
        return true;
    }
    let (small, large) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    small.iter().any(|task| large.contains(task))
}
