//! Which records are meant: by a reference, a query, a process, or how they stand.

use super::Records;
use super::array::covers;
use crate::model::job::ClientProcess;
use crate::model::query::{JobQuery, names_record};
use crate::model::{
    BootId, Job, JobId, JobRef, JobState, Reason, Refusal, StepKey, TaskSet, Timestamp,
};
use crate::sched::types::StopCause;
use std::ops::Bound;

/// The job runs, as far as its record goes, but the machine was started again since. A record of an
/// earlier slotd, which did not keep the boot, tells by its start.
fn ran_before(job: &Job, boot: BootId, booted: Option<Timestamp>) -> bool {
    job.run.state.is_active()
        && match job.run.clock {
            Some(clock) => clock.boot.differs(boot),
            None => booted.zip(job.run.start).is_some_and(|(booted, start)| start < booted),
        }
}

impl Records {
    /// The records in memory that a reference names, by number. A task that is still in a compact
    /// record names that.
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

    /// Whether nothing of an array is left to run, or runs.
    pub fn is_array_over(&self, array: JobId) -> bool {
        self.arrays.get(&array).is_none_or(|group| group.live == 0)
    }

    /// The records in memory that answer a question, by number.
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

    /// As [`Self::find`], in parts: of a question that names no jobs only so many records are
    /// looked at, those with higher numbers than `after`. After which number to go on; `None` where
    /// that is all.
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

    /// What scancel means by a question: each record that answers it, and of tasks that wait
    /// together those that are named.
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

    /// The running steps that `12.0` or `12_3.0` names.
    pub fn live_steps(&self, sel: &JobRef) -> Result<Vec<StepKey>, Refusal> {
        let Some(step) = sel.step else { return Err(Refusal::UnknownStep) };
        let jobs = self.resolve(&JobRef { step: None, ..sel.clone() });
        let keys: Vec<StepKey> = jobs
            .into_iter()
            .filter(|id| self.has_live_step(*id, step))
            .map(|job| StepKey { job, step })
            .collect();
        if keys.is_empty() { Err(Refusal::UnknownStep) } else { Ok(keys) }
    }

    /// The records of a reference that are in this one of the two running states.
    pub fn running_for(&self, sel: &JobRef, wanted: JobState) -> Result<Vec<JobId>, Refusal> {
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

    /// The job that this process has submitted, of those in memory: of an array its number.
    pub fn submitted_by(&self, process: ClientProcess) -> Option<JobId> {
        let own = (process, JobId(0))..=(process, JobId(u32::MAX));
        let job = self.clients.range(own).next().and_then(|(_, id)| self.job(*id))?;
        Some(job.array_job_id().unwrap_or(job.id))
    }

    /// The jobs that ran under an earlier boot than this one, which was at `booted`, where that is
    /// known.
    pub fn ran_before(&self, booted: Option<Timestamp>) -> Vec<JobId> {
        self.active
            .iter()
            .copied()
            .filter(|id| {
                self.job(*id).is_some_and(|job| ran_before(job, self.clock().boot, booted))
            })
            .collect()
    }

    /// Whether some job has processes, as far as is known.
    pub fn has_active(&self) -> bool {
        self.active().next().is_some()
    }

    /// The jobs that were being stopped when the daemon went, and why: their ladders have to be run
    /// again.
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
