//! The indices over the records: by name, by array, and which of them hold resources.

use super::array::ArrayGroup;
use super::core::Core;
use crate::model::dependency::DependencyTerm;
use crate::model::{ArrayRole, Job, JobId, JobState, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Jobs of one name and user, for `singleton`: how many records each submission has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NameGroup {
    pub live: BTreeMap<JobId, u32>,
    pub active: BTreeMap<JobId, u32>,
    /// Pending singletons, by submission and record.
    pub singletons: BTreeSet<(JobId, JobId)>,
}

impl Core {
    /// Enters a record into the indices.
    pub(super) fn index(&mut self, id: JobId) {
        let Some(record) = self.jobs.get(&id) else { return };
        let job = &record.job;
        let group_id = job.array_job_id().unwrap_or(id);
        let is_pending = job.run.state == JobState::Pending;
        let is_singleton =
            is_pending && job.request.dependency.terms.contains(&DependencyTerm::Singleton);
        if !job.run.state.is_terminal() {
            let names = self.names.entry(job.request.uid).or_default();
            if !names.contains_key(&job.request.name) {
                names.insert(job.request.name.clone(), NameGroup::default());
            }
            if let Some(name) = names.get_mut(&job.request.name) {
                *name.live.entry(group_id).or_default() += 1;
                if job.run.state.is_active() {
                    *name.active.entry(group_id).or_default() += 1;
                }
                if is_singleton {
                    name.singletons.insert((group_id, id));
                }
            }
        }
        let (running, pending) = load_of(job);
        for name in job.partitions().filter(|_| running + pending > 0) {
            if !self.loads.contains_key(name) {
                self.loads.insert(name.to_owned(), (0, 0));
            }
            if let Some(load) = self.loads.get_mut(name) {
                *load = (load.0 + running, load.1 + pending);
            }
        }
        if job.run.state.is_active() {
            self.active.insert(id);
        }
        if job.array_job_id().is_some() {
            let group = self.arrays.entry(group_id).or_insert_with(|| ArrayGroup {
                total: job.request.array.as_ref().map_or(0, |array| array.tasks.len()),
                limit: job.request.array.as_ref().and_then(|array| array.limit),
                ..ArrayGroup::default()
            });
            group.records.insert(id);
            if !job.run.state.is_terminal() {
                group.live += 1;
                // The limit may have been changed: every record that has not ended has the present one.
                group.limit = job.request.array.as_ref().and_then(|array| array.limit);
            }
            if is_pending {
                group.waiting.insert(id);
            }
            match &job.role {
                ArrayRole::Task { task, .. } => {
                    group.tasks.insert(*task, id);
                    group.active += u32::from(job.run.state.is_active());
                }
                ArrayRole::Rest { .. } | ArrayRole::Part { .. } => {
                    group.compact.insert(id);
                }
                ArrayRole::None => {}
            }
        }
    }

    /// Takes a record out of the indices: before anything changes that they go by.
    pub(super) fn unindex(&mut self, id: JobId) {
        let Some(record) = self.jobs.get(&id) else { return };
        let job = &record.job;
        let group_id = job.array_job_id().unwrap_or(id);
        if !job.run.state.is_terminal()
            && let Some(names) = self.names.get_mut(&job.request.uid)
            && let Some(name) = names.get_mut(&job.request.name)
        {
            take_one(&mut name.live, group_id);
            if job.run.state.is_active() {
                take_one(&mut name.active, group_id);
            }
            name.singletons.remove(&(group_id, id));
            if name.live.is_empty() {
                names.remove(&job.request.name);
            }
        }
        let (running, pending) = load_of(job);
        for name in job.partitions() {
            if let Some(load) = self.loads.get_mut(name) {
                *load = (load.0.saturating_sub(running), load.1.saturating_sub(pending));
            }
        }
        self.active.remove(&id);
        if job.array_job_id().is_some()
            && let Some(group) = self.arrays.get_mut(&group_id)
        {
            if group.records.remove(&id) && !job.run.state.is_terminal() {
                group.live = group.live.saturating_sub(1);
            }
            group.waiting.remove(&id);
            group.compact.remove(&id);
            if let ArrayRole::Task { task, .. } = &job.role {
                group.tasks.remove(task);
                if job.run.state.is_active() {
                    group.active = group.active.saturating_sub(1);
                }
            }
        }
    }

    /// Tells the array of a task that its state is another now than `from`.
    pub(super) fn note_in_array(&mut self, id: JobId, from: JobState, now: Timestamp) {
        let Some(job) = self.jobs.get(&id).map(|record| &record.job) else { return };
        let Some(group) = job.array_job_id().and_then(|array| self.arrays.get_mut(&array)) else {
            return;
        };
        match &job.role {
            ArrayRole::Task { task, .. } => {
                if job.run.state.is_active() && !from.is_active() {
                    group.note_begun(*task, now);
                    group.last_served = group.last_served.max(id.0);
                } else if job.run.state.is_terminal() {
                    group.note_ended(*task, job.run.state == JobState::Completed);
                } else if job.run.state == JobState::Pending && from.is_terminal() {
                    group.note_requeued(*task);
                }
            }
            ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => {
                if job.run.state.is_terminal() {
                    tasks.iter().for_each(|task| group.note_ended(task, false));
                } else if from.is_terminal() {
                    tasks.iter().for_each(|task| group.note_requeued(task));
                }
            }
            ArrayRole::None => {}
        }
    }

    /// What an array has to know of a record that was terminal when it came in.
    pub(super) fn note_terminal(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id).map(|record| &record.job) else { return };
        let Some(group) = job.array_job_id().and_then(|array| self.arrays.get_mut(&array)) else {
            return;
        };
        match &job.role {
            ArrayRole::Task { task, .. } => {
                group.note_ended(*task, job.run.state == JobState::Completed);
                if job.run.start.is_some() || job.run.restarts > 0 {
                    group.last_served = group.last_served.max(id.0);
                }
                group.last_begun = group.last_begun.max(job.run.start);
            }
            ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => {
                tasks.iter().for_each(|task| group.note_ended(task, false));
            }
            ArrayRole::None => {}
        }
    }
}

/// What a record adds to the running and to the waiting jobs of each of its partitions.
pub(super) fn load_of(job: &Job) -> (u64, u64) {
    (u64::from(job.run.state.is_active()), job.pending_tasks() as u64)
}

fn take_one(counts: &mut BTreeMap<JobId, u32>, id: JobId) {
    if let Some(count) = counts.get_mut(&id) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&id);
        }
    }
}
