//! The indexes over the records: by name, array, partition and client, and the records that hold
//! resources.

use super::{ArrayGroup, Records};
use compact_str::CompactString;
use slotd_model::dependency::DependencyTerm;
use slotd_model::job::ClientProcess;
use slotd_model::qos;
use slotd_model::{ArrayRole, End, Job, JobId, JobRequest, JobState, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Jobs of one name and user, for `singleton`: the number of records of each submission.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NameGroup {
    pub live: BTreeMap<JobId, u32>,
    pub active: BTreeMap<JobId, u32>,
    /// Pending singletons, by submission and record.
    pub singletons: BTreeSet<(JobId, JobId)>,
}

/// The indexed facts of a record. Holding the request makes an edit copy it, so that a change shows
/// as a different request.
#[derive(PartialEq)]
pub struct Facts {
    state: JobState,
    request: Arc<JobRequest>,
    partition: CompactString,
    client: Option<ClientProcess>,
    array: Option<JobId>,
    task: Option<u32>,
    pending_tasks: usize,
    is_requeued: bool,
}

impl Facts {
    pub fn of(job: &Job) -> Self {
        Facts {
            state: job.run.state,
            request: Arc::clone(&job.request),
            partition: job.partition.clone(),
            client: job.client.map(|client| client.process),
            array: job.array_job_id(),
            task: if let ArrayRole::Task { task, .. } = job.role { Some(task) } else { None },
            pending_tasks: job.pending_tasks(),
            is_requeued: job.run.restarts > 0,
        }
    }

    fn is_pending(&self) -> bool {
        self.state == JobState::Pending
    }

    /// Returns whether it waits for its next time, or for resources to recur.
    fn recurs(&self) -> bool {
        self.is_pending() && self.request.recurrence.is_some()
    }

    /// Returns the record's share of the running and pending counts of each of its partitions.
    pub fn load(&self) -> (u64, u64) {
        (u64::from(self.state.is_active()), self.pending_tasks as u64)
    }
}

impl Records {
    /// Adds a record to the indexes.
    pub fn enter(&mut self, id: JobId, facts: &Facts) {
        let (state, request) = (facts.state, &facts.request);
        let group_id = facts.array.unwrap_or(id);
        if !state.is_terminal() {
            self.live += 1;
            self.recurring += usize::from(facts.recurs());
            let names = self.names.entry(request.uid).or_default();
            let name = names.entry(CompactString::new(&request.name)).or_default();
            *name.live.entry(group_id).or_default() += 1;
            if state.is_active() {
                *name.active.entry(group_id).or_default() += 1;
            }
            let is_singleton = request.dependency.terms.contains(&DependencyTerm::Singleton);
            if facts.is_pending() && is_singleton {
                name.singletons.insert((group_id, id));
            }
        }
        let (running, pending) = facts.load();
        for name in facts.partition.split(',').filter(|_| running + pending > 0) {
            if !self.loads.contains_key(name) {
                self.loads.insert(name.into(), (0, 0));
            }
            if let Some(load) = self.loads.get_mut(name) {
                *load = (load.0 + running, load.1 + pending);
            }
        }
        let own = qos::of(request);
        match self.submitted.get_mut(own) {
            Some(count) => *count += running + pending,
            None => drop(self.submitted.insert(own.to_owned(), running + pending)),
        }
        if state.is_active() {
            self.active.insert(id);
        }
        self.clients.extend(facts.client.map(|client| client_key(client, id)));
        let Some(array) = facts.array else { return };
        let spec = request.array.as_ref();
        let group = self.arrays.entry(array).or_insert_with(|| ArrayGroup {
            total: spec.map_or(0, |array| array.tasks.len()),
            limit: spec.and_then(|array| array.limit),
            ..ArrayGroup::default()
        });
        group.records.insert(id);
        if !state.is_terminal() {
            group.live += 1;
            // The limit may have changed. Every record that has not ended has the current one.
            group.limit = spec.and_then(|array| array.limit);
        }
        if facts.is_pending() {
            group.waiting.insert(id);
        }
        let Some(task) = facts.task else {
            group.compact.insert(id);
            return;
        };
        group.tasks.insert(task, id);
        group.active += u32::from(state.is_active());
        // A requeued task's record does not show whether the task had started, so assume it had.
        if facts.is_pending() && facts.is_requeued {
            group.last_served = group.last_served.max(id.0);
        }
    }

    /// Removes a record from the indexes.
    pub fn leave(&mut self, id: JobId, facts: &Facts) {
        let (state, request) = (facts.state, &facts.request);
        let group_id = facts.array.unwrap_or(id);
        if !state.is_terminal() {
            self.live -= 1;
            self.recurring -= usize::from(facts.recurs());
        }
        if !state.is_terminal()
            && let Some(names) = self.names.get_mut(&request.uid)
            && let Some(name) = names.get_mut(request.name.as_str())
        {
            take_one(&mut name.live, group_id);
            if state.is_active() {
                take_one(&mut name.active, group_id);
            }
            name.singletons.remove(&(group_id, id));
            if name.live.is_empty() {
                names.remove(request.name.as_str());
            }
        }
        let (running, pending) = facts.load();
        for name in facts.partition.split(',') {
            if let Some(load) = self.loads.get_mut(name) {
                *load = (load.0.saturating_sub(running), load.1.saturating_sub(pending));
            }
        }
        if let Some(count) = self.submitted.get_mut(qos::of(request)) {
            *count = count.saturating_sub(running + pending);
        }
        self.active.remove(&id);
        if let Some(client) = facts.client {
            self.clients.remove(&client_key(client, id));
        }
        let Some(group) = facts.array.and_then(|array| self.arrays.get_mut(&array)) else { return };
        group.records.remove(&id);
        group.live -= usize::from(!state.is_terminal());
        group.waiting.remove(&id);
        group.compact.remove(&id);
        if let Some(task) = facts.task {
            group.tasks.remove(&task);
            group.active -= u32::from(state.is_active());
        }
    }

    /// Updates the array of a task whose state has changed from `from`.
    pub(crate) fn note_in_array(&mut self, id: JobId, from: JobState, now: Timestamp) {
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
                    group.note_ended(*task, job.run.state == JobState::Ended(End::Completed));
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

    /// Updates the array of a record that was restored from the store.
    pub(crate) fn note_restored(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id).map(|record| &record.job) else { return };
        let Some(group) = job.array_job_id().and_then(|array| self.arrays.get_mut(&array)) else {
            return;
        };
        let run = &job.run;
        let has_started = run.start.is_some() || run.restarts > 0;
        match &job.role {
            ArrayRole::Task { task, .. } => {
                if run.state.is_terminal() {
                    group.note_ended(*task, run.state == JobState::Ended(End::Completed));
                    group.last_begun = group.last_begun.max(run.start);
                } else if has_started {
                    group.note_begun(*task, run.start.unwrap_or(job.submit));
                }
                if has_started {
                    group.last_served = group.last_served.max(id.0);
                }
            }
            ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => {
                if run.state.is_terminal() {
                    tasks.iter().for_each(|task| group.note_ended(task, false));
                } else if has_started {
                    // They were cancelled before they began, and then requeued together.
                    tasks.iter().for_each(|task| group.begun.set(task, true));
                }
            }
            ArrayRole::None => {}
        }
    }
}

/// A record by the PID that submitted it. The rest of the process is left out, to keep the index
/// small: few records have the same PID.
pub(super) type ClientKey = (u32, JobId);

pub(super) fn client_key(client: ClientProcess, id: JobId) -> ClientKey {
    (client.pid, id)
}

fn take_one(counts: &mut BTreeMap<JobId, u32>, id: JobId) {
    if let Some(count) = counts.get_mut(&id) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&id);
        }
    }
}
