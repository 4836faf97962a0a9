//! The records: all live jobs, the recently ended ones, and the indexes over them.
//!
//! Only [`Records::edit`] changes a record. It compares the indexed facts before and after, so the
//! indexes are always correct and no caller has to know about them.

mod array;
pub(crate) mod depend;
mod find;
mod gates;
mod gpu_usage;
mod index;
#[cfg(any(test, feature = "test-support"))]
mod invariants;
mod outlook;
mod requests;
pub(crate) mod steps;
mod waits;

pub(crate) use array::{ArrayGroup, covers, is_last};
pub(crate) use waits::{Outlook, Status, Waits};

use super::ending::Ending;
use super::line::queue::Place;
use super::types::Cx;
use compact_str::CompactString;
use foldhash::HashMap;
use index::{ClientKey, Facts, NameGroup};
use requests::Requests;
use slotd_model::change::{Change, Texts};
use slotd_model::{ClockBase, Job, JobId, JobRequest, JobState, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The most ended records kept in memory. The store has them all; a large array must not fill the
/// memory with ended tasks.
pub(crate) const ENDED_IN_MEMORY: usize = 10_000;

/// A job record, and the data that the core derives from it.
#[derive(Debug, Clone)]
pub struct Record {
    /// Boxed, because a B-tree of large records would be half empty.
    pub job: Box<Job>,
    /// For a pending job with a dependency.
    pub waits: Option<Box<Waits>>,
    /// Its places in the queue while it lacks only resources: one for each partition in which it
    /// may run.
    pub places: Box<[Place]>,
    /// For a running job, the ordinal of its start.
    pub start_order: u64,
}

impl Record {
    /// Returns the record of a job that waits for nothing yet.
    pub fn new(job: Box<Job>) -> Record {
        Record { job, waits: None, places: Box::default(), start_order: 0 }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Records {
    jobs: BTreeMap<JobId, Record>,
    last_id: u32,
    /// The number of starts so far.
    starts: u64,
    /// Records that hold resources.
    active: BTreeSet<JobId>,
    arrays: HashMap<JobId, ArrayGroup>,
    /// The reverse of the dependencies: target to dependents.
    dependents: HashMap<JobId, BTreeSet<JobId>>,
    names: HashMap<u32, HashMap<CompactString, NameGroup>>,
    /// The number of records that have not ended, and of those that are pending and recur.
    live: usize,
    recurring: usize,
    /// The records by the process that submitted them, or that holds their allocation now.
    clients: BTreeSet<ClientKey>,
    /// For each partition, the running jobs, and the pending jobs and array tasks.
    loads: HashMap<CompactString, (u64, u64)>,
    /// For each QOS, the running and pending jobs and array tasks.
    submitted: BTreeMap<String, u64>,
    /// Records whose state has changed and whose dependents have not been re-evaluated yet.
    changed: VecDeque<JobId>,
    /// When ended records leave the memory.
    purges: BTreeSet<(Timestamp, JobId)>,
    /// Records forgotten since [`Records::take_forgotten`] last returned true.
    forgotten: usize,
    requests: Requests,
    /// The relation between the wall clock and the boot clock.
    clock: ClockBase,
}

impl Records {
    pub fn get(&self, id: JobId) -> Option<&Record> {
        self.jobs.get(&id)
    }

    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).map(|record| &*record.job)
    }

    /// Returns all records in memory, ordered by ID.
    pub fn all(&self) -> impl Iterator<Item = &Record> {
        self.jobs.values()
    }

    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.all().map(|record| &*record.job)
    }

    pub fn pending(&self) -> Vec<JobId> {
        let pending = self.jobs().filter(|job| job.run.state == JobState::Pending);
        pending.map(|job| job.id).collect()
    }

    /// Returns the records that hold resources.
    pub fn active(&self) -> impl Iterator<Item = &Record> {
        self.active.iter().filter_map(|id| self.get(*id))
    }

    pub(crate) fn active_jobs(&self) -> impl Iterator<Item = &Job> {
        self.active().map(|record| &*record.job)
    }

    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Returns whether a job or an array with this ID is in memory.
    pub fn has(&self, id: JobId) -> bool {
        self.jobs.contains_key(&id) || self.arrays.contains_key(&id)
    }

    pub fn array(&self, id: JobId) -> Option<&ArrayGroup> {
        self.arrays.get(&id)
    }

    /// Returns the array that a record belongs to.
    pub(crate) fn array_of(&self, job: &Job) -> Option<&ArrayGroup> {
        self.array(job.array_job_id()?)
    }

    /// Returns the ID of the submission that a record belongs to.
    pub fn submission(&self, id: JobId) -> JobId {
        self.job(id).and_then(Job::array_job_id).unwrap_or(id)
    }

    /// Returns the records of an array, or the single record of any other job.
    pub(crate) fn of_submission(&self, submission: JobId) -> impl Iterator<Item = JobId> {
        let tasks = self.array(submission).map(|group| &group.records);
        let alone = if tasks.is_none() { Some(submission) } else { None };
        tasks.into_iter().flatten().copied().chain(alone)
    }

    /// Returns whether a job, or any task of an array, has not ended.
    pub fn is_live(&self, submission: JobId) -> bool {
        match self.array(submission) {
            Some(group) => group.live > 0,
            None => self.job(submission).is_some_and(|job| !job.run.state.is_terminal()),
        }
    }

    /// Returns whether every record has ended, or recurs and waits for its next time.
    pub(crate) fn is_queue_empty(&self) -> bool {
        self.live == self.recurring
    }

    /// Returns the number of running jobs in a partition, and of pending jobs and array tasks.
    pub fn load(&self, partition: &str) -> (u64, u64) {
        self.loads.get(partition).copied().unwrap_or_default()
    }

    /// Returns the number of running and pending jobs and array tasks of a QOS.
    pub(crate) fn submitted(&self, qos: &str) -> u64 {
        self.submitted.get(qos).copied().unwrap_or_default()
    }

    /// Returns the ID of the next record.
    pub fn next_id(&self) -> JobId {
        JobId(self.last_id.saturating_add(1))
    }

    /// Ensures that no new record gets an ID below `next`.
    pub(crate) fn count_from(&mut self, next: JobId) {
        self.last_id = self.last_id.max(next.0.saturating_sub(1));
    }

    pub(crate) fn allot_id(&mut self) -> JobId {
        let id = self.next_id();
        self.last_id = id.0;
        id
    }

    /// Returns a shared copy of the request if a recent job has the same one.
    pub fn share(&mut self, request: JobRequest) -> Arc<JobRequest> {
        self.requests.share(request)
    }

    pub fn add(&mut self, job: Box<Job>, waits: Option<Box<Waits>>) {
        let id = job.id;
        self.count_from(JobId(id.0.saturating_add(1)));
        let facts = Facts::of(&job);
        self.jobs.insert(id, Record::new(job));
        if waits.is_some() {
            self.put_waits(id, waits);
        }
        self.enter(id, &facts);
    }

    pub fn remove(&mut self, id: JobId) -> Option<Record> {
        self.clear_waits(id);
        let record = self.jobs.remove(&id)?;
        self.leave(id, &Facts::of(&record.job));
        if let Some(array) = record.job.array_job_id()
            && self.array(array).is_some_and(|group| group.records.is_empty())
        {
            self.arrays.remove(&array);
        }
        self.forgotten += 1;
        Some(record)
    }

    /// Changes a record. Returns `None` if it does not exist.
    pub fn edit<T>(&mut self, id: JobId, change: impl FnOnce(&mut Job) -> T) -> Option<T> {
        let job = &mut self.jobs.get_mut(&id)?.job;
        let before = Facts::of(job);
        let result = change(job);
        let after = Facts::of(job);
        if before != after {
            self.leave(id, &before);
            self.enter(id, &after);
        }
        Some(result)
    }

    /// Records how and when a job ended.
    pub fn set_end(&mut self, id: JobId, ending: &Ending, ended: Timestamp) {
        self.edit(id, |job| {
            job.run.reason = ending.reason;
            job.run.exit = ending.exit;
            job.run.cancelled_by = ending.by;
            job.run.end_at(ended);
        });
    }

    /// Changes a job's state and returns the previous one. Returns `None` and changes nothing if
    /// the state machine forbids the transition.
    #[must_use]
    pub(crate) fn transition(
        &mut self,
        id: JobId,
        to: JobState,
        now: Timestamp,
    ) -> Option<JobState> {
        let from = self.job(id).map(|job| job.run.state).filter(|from| from.can_become(to))?;
        self.edit(id, |job| {
            if let Some(since) = job.run.suspended_at.filter(|_| from == JobState::Suspended) {
                job.run.suspended_us += u64::try_from(now.since(since).as_micros()).unwrap_or(0);
                job.steps
                    .iter_mut()
                    .filter(|step| step.end.is_none())
                    .for_each(|step| step.add_suspension(since, now));
                job.run.suspended_at = None;
            }
            job.run.state = to;
        });
        self.note_in_array(id, from, now);
        self.changed.push_back(id);
        Some(from)
    }

    /// Returns a record whose state has changed, once for each change.
    pub(crate) fn take_changed(&mut self) -> Option<JobId> {
        self.changed.pop_front()
    }

    /// Returns the number of starts so far.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// Counts a start.
    pub(crate) fn note_start(&mut self, id: JobId) {
        self.starts += 1;
        if let Some(record) = self.jobs.get_mut(&id) {
            record.start_order = self.starts;
        }
    }

    /// Replaces the queue places of a record and returns the previous ones.
    pub(crate) fn set_places(&mut self, id: JobId, places: Vec<Place>) -> Box<[Place]> {
        let record = self.jobs.get_mut(&id);
        record
            .map(|record| std::mem::replace(&mut record.places, places.into()))
            .unwrap_or_default()
    }

    pub fn clock(&self) -> ClockBase {
        self.clock
    }

    /// Updates the relation between the clocks: at startup, and whenever the wall clock was set or
    /// the machine slept. The jump does not count as run time of running jobs.
    pub fn set_clock(&mut self, clock: ClockBase) {
        if self.clock.boot == clock.boot && self.clock.jump_to(clock) == 0 {
            return;
        }
        self.clock = clock;
        for id in &self.active {
            if let Some(record) = self.jobs.get_mut(id) {
                record.job.catch_up(clock);
            }
        }
    }

    /// Returns a copy of the record without its steps, which the store keeps separately.
    pub fn stored(&mut self, id: JobId) -> Option<Box<Job>> {
        let job = &mut self.jobs.get_mut(&id)?.job;
        let steps = std::mem::take(&mut job.steps);
        let copy = job.clone();
        job.steps = steps;
        Some(copy)
    }

    pub fn save(&mut self, id: JobId, cx: &mut Cx) {
        if let Some(job) = self.stored(id) {
            cx.out.changes.push(Change::Update(job));
        }
    }

    /// Saves a record that was just split from the compact record `from`, and `from` itself. They
    /// may be the same record.
    pub(crate) fn save_split(&mut self, id: JobId, from: JobId, cx: &mut Cx) {
        if id != from
            && let Some(job) = self.stored(id)
        {
            let texts = Texts::SameAs(job.array_job_id().unwrap_or(from));
            cx.out.changes.push(Change::Insert { job, texts });
        }
        self.save(from, cx);
    }

    /// Schedules an ended record for removal from memory, `age_secs` after its end or after
    /// `known`, whichever is later.
    pub(crate) fn forget_later(&mut self, id: JobId, known: Timestamp, age_secs: u64) {
        if let Some(job) = self.job(id).filter(|job| job.run.state.is_terminal()) {
            let end = job.run.end.unwrap_or(job.submit).max(known);
            self.purges.insert((end.plus_secs(age_secs), id));
        }
    }

    /// Returns when the next ended record leaves the memory.
    pub(crate) fn next_forgetting(&self) -> Option<Timestamp> {
        self.purges.first().map(|(at, _)| *at)
    }

    /// Returns a record that ended long enough ago to be forgotten, or an old one if there are too
    /// many.
    pub(crate) fn take_overdue(&mut self, age_secs: u64, now: Timestamp) -> Option<JobId> {
        while let Some(&(at, id)) = self.purges.first() {
            let is_crowded = self.purges.len() > ENDED_IN_MEMORY;
            if at > now && !is_crowded {
                break;
            }
            self.purges.pop_first();
            // The entry is stale if the job was requeued in the meantime.
            let is_over = self.job(id).is_some_and(|job| {
                let is_old = job.run.end.is_none_or(|end| end.plus_secs(age_secs) <= now);
                job.run.state.is_terminal() && (is_old || is_crowded)
            });
            if is_over {
                return Some(id);
            }
        }
        None
    }

    /// Returns true if at least `least` records were forgotten since the last time, so that
    /// returning their memory to the system is worthwhile.
    pub fn take_forgotten(&mut self, least: usize) -> bool {
        if self.forgotten < least {
            return false;
        }
        self.forgotten = 0;
        self.arrays.shrink_to_fit();
        self.dependents.shrink_to_fit();
        self.names.shrink_to_fit();
        true
    }
}
