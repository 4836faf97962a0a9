//! Arrays: one compact record for all untouched tasks, and how tasks leave it.
//!
//! A pending array is one `Rest` record. A task gets its own record when it starts or is changed
//! alone. Tasks that are changed together become one `Part`, so that cancelling or holding a
//! million tasks does not create a million records. The last task of a compact record keeps the
//! record's ID, as in Slurm, where the last task to start has the array's ID.

use super::Records;
use slotd_model::array::TaskSet;
use slotd_model::{ArrayRole, Job, JobId, JobState, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A growable bit set that caches its size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
    count: usize,
}

impl Bits {
    pub fn contains(&self, n: u32) -> bool {
        self.words.get(n as usize / 64).is_some_and(|word| word & (1 << (n % 64)) != 0)
    }

    pub fn set(&mut self, n: u32, is_in: bool) {
        let (index, bit) = (n as usize / 64, 1u64 << (n % 64));
        if is_in {
            if self.words.len() <= index {
                self.words.resize(index + 1, 0);
            }
            if self.words[index] & bit == 0 {
                self.words[index] |= bit;
                self.count += 1;
            }
        } else if self.contains(n) {
            self.words[index] &= !bit;
            self.count -= 1;
        }
    }

    pub fn len(&self) -> usize {
        self.count
    }
}

/// The state of an array beyond its records; kept while any of them is in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArrayGroup {
    /// The number of tasks at submission.
    pub total: usize,
    /// The most tasks that may run at once.
    pub limit: Option<u32>,
    /// All records in memory.
    pub records: BTreeSet<JobId>,
    /// The number of records that have not ended.
    pub live: usize,
    /// The pending records.
    pub waiting: BTreeSet<JobId>,
    /// The compact records, in any state.
    pub compact: BTreeSet<JobId>,
    /// The tasks that have their own record in memory.
    pub tasks: BTreeMap<u32, JobId>,
    /// The number of tasks that hold resources.
    pub active: u32,
    /// The job ID of the task that started last; 0 if none has.
    pub last_served: u32,
    /// The tasks that started or were cancelled; those that ended; those that ended with exit code
    /// 0.
    pub begun: Bits,
    pub ended: Bits,
    pub ok: Bits,
    /// The latest start time, for `after:id+minutes`.
    pub last_begun: Option<Timestamp>,
}

impl ArrayGroup {
    pub(crate) fn is_at_limit(&self) -> bool {
        self.limit.is_some_and(|limit| self.active >= limit)
    }

    pub(crate) fn note_ended(&mut self, task: u32, ok: bool) {
        self.begun.set(task, true);
        self.ended.set(task, true);
        self.ok.set(task, ok);
    }

    pub(crate) fn note_begun(&mut self, task: u32, at: Timestamp) {
        self.begun.set(task, true);
        self.last_begun = self.last_begun.max(Some(at));
    }

    pub(crate) fn note_requeued(&mut self, task: u32) {
        self.ended.set(task, false);
        self.ok.set(task, false);
    }
}

/// Returns whether this is the last task of its array, which has not run and has the record of the
/// array.
pub(crate) fn is_last(job: &Job) -> bool {
    let is_arrays = matches!(job.role, ArrayRole::Task { array_job, .. } if array_job == job.id);
    is_arrays && job.run.restarts == 0
}

/// Returns whether every member of `inner` is in `outer`, comparing ranges where possible.
pub(crate) fn covers(outer: &TaskSet, inner: &TaskSet) -> bool {
    inner.ranges().iter().all(|r| {
        outer.ranges().iter().any(|o| o.step == 1 && o.first <= r.first && r.last <= o.last)
            || (r.first..=r.last).step_by(r.step as usize).all(|task| outer.contains(task))
    })
}

impl Records {
    /// Splits a task off the compact record `id` and returns the ID of its record, or `None` if
    /// `id` has no such task. The caller saves both records.
    pub(crate) fn split_task(&mut self, id: JobId, task: u32) -> Option<JobId> {
        let job = &self.jobs.get(&id)?.job;
        let tasks = job.compact_tasks()?;
        let array_job = job.array_job_id()?;
        if !tasks.contains(task) {
            return None;
        }
        if tasks.single().is_some() {
            self.edit(id, |job| job.role = ArrayRole::Task { array_job, task });
            if let Some(waits) = self.jobs.get(&id).and_then(|record| record.waits.as_deref()) {
                let waits = waits.narrowed(&TaskSet::one(task), false);
                self.put_waits(id, Some(Box::new(waits)));
            }
            return Some(id);
        }
        Some(self.split_off(id, TaskSet::one(task), ArrayRole::Task { array_job, task }))
    }

    /// Turns the compact record of an array into the record of its last task if no others are left.
    /// As in Slurm, it is then listed like a task that was split off: `12_3` instead of `12_[3]`.
    pub(crate) fn single_out_last(&mut self, id: JobId) {
        let Some(job) = self.job(id) else { return };
        if let ArrayRole::Rest { tasks, .. } = &job.role
            && job.run.restarts == 0
            && let Some(task) = tasks.single()
        {
            self.split_task(id, task);
        }
    }

    /// Splits the tasks in `wanted` off the compact record `id` and returns the ID of their record,
    /// or `None` if `id` has none of them. The caller saves both records.
    pub(crate) fn split_set(&mut self, id: JobId, wanted: &TaskSet) -> Option<JobId> {
        let job = &self.jobs.get(&id)?.job;
        let tasks = job.compact_tasks()?;
        let array_job = job.array_job_id()?;
        if covers(wanted, tasks) {
            return Some(id);
        }
        let common = tasks.intersection(wanted);
        if let Some(task) = common.single() {
            return self.split_task(id, task);
        }
        if common.is_empty() {
            return None;
        }
        Some(self.split_off(id, common.clone(), ArrayRole::Part { array_job, tasks: common }))
    }

    /// Creates a record for tasks that leave `id`, with the same array, request and state.
    fn split_off(&mut self, id: JobId, gone: TaskSet, role: ArrayRole) -> JobId {
        let new_id = self.allot_id();
        self.edit(id, |job| match &mut job.role {
            ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => match gone.single() {
                Some(task) => {
                    tasks.remove(task);
                }
                None => *tasks = tasks.difference(&gone),
            },
            ArrayRole::None | ArrayRole::Task { .. } => {}
        });
        let Some(record) = self.jobs.get_mut(&id) else { return new_id };
        let is_compact = gone.single().is_none();
        let waits = record.waits.as_ref().map(|waits| Box::new(waits.narrowed(&gone, is_compact)));
        if let Some(waits) = &mut record.waits {
            waits.drop_tasks(&gone);
        }
        let job = Job { id: new_id, role, ..Job::clone(&record.job) };
        self.add(job.into(), waits);
        new_id
    }

    /// Returns the pending compact records of the array that `id` belongs to, or its last task: the
    /// records whose turn comes after a task of the array has started.
    pub(crate) fn pending_compact_of(&self, id: JobId) -> Vec<JobId> {
        let Some(array) = self.job(id).and_then(Job::array_job_id) else { return Vec::new() };
        let Some(group) = self.array(array) else { return Vec::new() };
        let is_last = |id: &JobId| group.waiting.contains(id) && self.job(*id).is_some_and(is_last);
        let compact = group.compact.intersection(&group.waiting).copied();
        compact.chain(Some(array).filter(is_last)).collect()
    }

    /// Returns the pending records of the array that `id` belongs to.
    pub(crate) fn pending_of_array(&self, id: JobId) -> Vec<JobId> {
        let group = self.job(id).and_then(|job| self.array_of(job));
        group.map(|group| group.waiting.iter().copied().collect()).unwrap_or_default()
    }

    /// Returns whether the record's array already runs as many tasks as it may.
    pub(crate) fn is_array_at_limit(&self, id: JobId) -> bool {
        self.job(id).and_then(|job| self.array_of(job)).is_some_and(ArrayGroup::is_at_limit)
    }

    /// Applies the array's current task limit to a task that returns to the queue, because the
    /// limit may have changed after the task ended.
    pub(crate) fn take_over_limit(&mut self, id: JobId) {
        let Some(group) = self.job(id).and_then(|job| self.array_of(job)) else { return };
        let limit = group.limit;
        if group.live == 0 {
            return;
        }
        self.edit(id, |job| {
            if job.request.array.as_ref().is_some_and(|array| array.limit != limit)
                && let Some(array) = &mut Arc::make_mut(&mut job.request).array
            {
                array.limit = limit;
            }
        });
    }

    /// Returns the compact record that contains the task, preferably a pending one.
    pub(crate) fn compact_with(&self, array_job: JobId, task: u32) -> Option<JobId> {
        let group = self.arrays.get(&array_job)?;
        let has = |id: &&JobId| {
            self.jobs
                .get(id)
                .is_some_and(|r| r.job.compact_tasks().is_some_and(|tasks| tasks.contains(task)))
        };
        group
            .compact
            .iter()
            .filter(|id| self.jobs.get(id).is_some_and(|r| r.job.run.state == JobState::Pending))
            .find(has)
            .or_else(|| group.compact.iter().find(has))
            .copied()
    }
}
