//! The records: every job that has not ended, those that ended lately, and the indexes over them.
//!
//! A record is changed by [`Records::edit`] alone, which compares what the indexes go by before and
//! after. So they are true whatever is changed, and no caller has to know them.

mod array;
pub mod depend;
mod find;
mod gates;
mod gpu_usage;
mod index;
#[cfg(test)]
mod invariants;
mod outlook;
mod requests;
pub mod steps;
mod waits;

pub use array::{ArrayGroup, covers};
pub use waits::{Outlook, Status, Waits};

use super::ending::Ending;
use super::line::queue::Place;
use super::types::Cx;
use crate::model::change::{Change, Texts};
use crate::model::job::ClientProcess;
use crate::model::{ClockBase, Job, JobId, JobRequest, JobState, Timestamp};
use index::{Facts, NameGroup};
use requests::Requests;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Ended records that stay in memory at most. The store has them all; a large array must not fill
/// the memory with tasks that have ended.
pub const ENDED_IN_MEMORY: usize = 10_000;

/// A job record with what the core derives from it.
#[derive(Debug, Clone, Default)]
pub struct Record {
    pub job: Job,
    /// Of a pending job with a dependency.
    pub waits: Option<Box<Waits>>,
    /// Its places in the queue, while nothing but resources is missing: one for each partition that
    /// it may go to.
    pub places: Box<[Place]>,
    /// Of a running job: how many had started before it.
    pub start_order: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Records {
    /// Each in a place of its own: a tree of large records is half empty.
    jobs: BTreeMap<JobId, Box<Record>>,
    last_id: u32,
    /// Starts so far.
    starts: u64,
    /// Records that hold resources.
    active: BTreeSet<JobId>,
    arrays: HashMap<JobId, ArrayGroup>,
    /// Who waits for whom: target to dependents.
    dependents: HashMap<JobId, BTreeSet<JobId>>,
    names: HashMap<u32, HashMap<String, NameGroup>>,
    /// The records by the process that submitted them, or that stands for their allocation now.
    clients: BTreeSet<(ClientProcess, JobId)>,
    /// Of each partition: the jobs that run, and the jobs and array tasks that wait.
    loads: HashMap<String, (u64, u64)>,
    /// Records whose state has changed and whose dependents have not been told yet.
    changed: VecDeque<JobId>,
    /// When ended records leave the memory. These wake nobody.
    purges: BTreeSet<(Timestamp, JobId)>,
    /// The records that were forgotten since [`Records::take_forgotten`] said so.
    forgotten: usize,
    requests: Requests,
    /// How the clocks stand to each other.
    clock: ClockBase,
}

impl Records {
    pub fn get(&self, id: JobId) -> Option<&Record> {
        self.jobs.get(&id).map(|record| &**record)
    }

    /// A record that is in memory.
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).map(|record| &record.job)
    }

    /// All records in memory, by number.
    pub fn all(&self) -> impl Iterator<Item = &Record> {
        self.jobs.values().map(|record| &**record)
    }

    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.all().map(|record| &record.job)
    }

    /// The numbers of the pending ones.
    pub fn pending(&self) -> Vec<JobId> {
        let pending = self.jobs().filter(|job| job.run.state == JobState::Pending);
        pending.map(|job| job.id).collect()
    }

    /// The records that hold resources.
    pub fn active(&self) -> impl Iterator<Item = &Record> {
        self.active.iter().filter_map(|id| self.get(*id))
    }

    pub fn active_jobs(&self) -> impl Iterator<Item = &Job> {
        self.active().map(|record| &record.job)
    }

    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether a job or an array with this number is in memory.
    pub fn has(&self, id: JobId) -> bool {
        self.jobs.contains_key(&id) || self.arrays.contains_key(&id)
    }

    pub fn array(&self, id: JobId) -> Option<&ArrayGroup> {
        self.arrays.get(&id)
    }

    /// The array that a record belongs to.
    pub fn array_of(&self, job: &Job) -> Option<&ArrayGroup> {
        self.array(job.array_job_id()?)
    }

    /// The submission that a record is of.
    pub fn submission(&self, id: JobId) -> JobId {
        self.job(id).and_then(Job::array_job_id).unwrap_or(id)
    }

    /// The records of an array, or that of another job.
    pub fn of_submission(&self, submission: JobId) -> impl Iterator<Item = JobId> {
        let tasks = self.array(submission).map(|group| &group.records);
        let alone = if tasks.is_none() { Some(submission) } else { None };
        tasks.into_iter().flatten().copied().chain(alone)
    }

    /// Whether a job, or any task of an array, has not ended.
    pub fn is_live(&self, submission: JobId) -> bool {
        match self.array(submission) {
            Some(group) => group.live > 0,
            None => self.job(submission).is_some_and(|job| !job.run.state.is_terminal()),
        }
    }

    /// Whether every record has ended.
    pub fn are_all_over(&self) -> bool {
        self.names.values().all(HashMap::is_empty)
    }

    /// The jobs of a partition that run, and the jobs and array tasks that wait.
    pub fn load(&self, partition: &str) -> (u64, u64) {
        self.loads.get(partition).copied().unwrap_or_default()
    }

    /// The number that the next record gets.
    pub fn next_id(&self) -> JobId {
        JobId(self.last_id.saturating_add(1))
    }

    /// No record gets a number below this one.
    pub fn count_from(&mut self, next: JobId) {
        self.last_id = self.last_id.max(next.0.saturating_sub(1));
    }

    pub fn allot_id(&mut self) -> JobId {
        let id = self.next_id();
        self.last_id = id.0;
        id
    }

    /// The request, as an earlier job has it, where one of the last ones is the same.
    pub fn share(&mut self, request: JobRequest) -> Arc<JobRequest> {
        self.requests.share(request)
    }

    pub fn add(&mut self, job: Job, waits: Option<Box<Waits>>) {
        let id = job.id;
        self.count_from(JobId(id.0.saturating_add(1)));
        let facts = Facts::of(&job);
        self.jobs.insert(id, Box::new(Record { job, ..Record::default() }));
        self.put_waits(id, waits);
        self.enter(id, &facts);
    }

    pub fn remove(&mut self, id: JobId) -> Option<Box<Record>> {
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

    /// Changes a record. `None` where it is not there.
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

    /// Notes as what a job ends.
    pub fn set_end(&mut self, id: JobId, ending: &Ending, ended: Timestamp) {
        self.edit(id, |job| {
            job.run.reason = ending.reason;
            job.run.exit = ending.exit;
            job.run.cancelled_by = ending.by;
            job.run.end_at(ended);
        });
    }

    /// Changes a job's state, if it may go there. The state that it was in; `None` where the state
    /// machine forbids it: nothing has changed then.
    #[must_use]
    pub fn transition(&mut self, id: JobId, to: JobState, now: Timestamp) -> Option<JobState> {
        let from = self.job(id).map(|job| job.run.state).filter(|from| from.can_become(to))?;
        self.edit(id, |job| {
            if let Some(since) = job.run.suspended_at.filter(|_| from == JobState::Suspended) {
                job.run.suspended_us += u64::try_from(now.since(since).as_micros()).unwrap_or(0);
                job.steps
                    .iter_mut()
                    .filter(|step| step.end.is_none())
                    .for_each(|step| step.stood_still(since, now));
                job.run.suspended_at = None;
            }
            job.run.state = to;
        });
        self.note_in_array(id, from, now);
        self.changed.push_back(id);
        Some(from)
    }

    /// A record whose state has changed, once for each change.
    pub fn take_changed(&mut self) -> Option<JobId> {
        self.changed.pop_front()
    }

    /// Starts so far.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// Counts a start.
    pub fn note_start(&mut self, id: JobId) {
        self.starts += 1;
        if let Some(record) = self.jobs.get_mut(&id) {
            record.start_order = self.starts;
        }
    }

    /// The places that a record has in the queue from now on; those that it had.
    pub fn set_places(&mut self, id: JobId, places: Vec<Place>) -> Box<[Place]> {
        let record = self.jobs.get_mut(&id);
        record
            .map(|record| std::mem::replace(&mut record.places, places.into()))
            .unwrap_or_default()
    }

    pub fn clock(&self) -> ClockBase {
        self.clock
    }

    /// The clocks stand so to each other from now on: at the start, and whenever the wall clock was
    /// set or the machine slept. No time has passed by that for those that run.
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

    /// A copy of the record for the store, which keeps steps apart.
    pub fn stored(&mut self, id: JobId) -> Option<Box<Job>> {
        let job = &mut self.jobs.get_mut(&id)?.job;
        let steps = std::mem::take(&mut job.steps);
        let copy = Box::new(job.clone());
        job.steps = steps;
        Some(copy)
    }

    pub fn save(&mut self, id: JobId, cx: &mut Cx) {
        if let Some(job) = self.stored(id) {
            cx.out.changes.push(Change::Update(job));
        }
    }

    /// Saves a record that has just left the compact record `from`, and that one. They may be the
    /// same.
    pub fn save_split(&mut self, id: JobId, from: JobId, cx: &mut Cx) {
        if id != from
            && let Some(job) = self.stored(id)
        {
            let texts = Texts::SameAs(job.array_job_id().unwrap_or(from));
            cx.out.changes.push(Change::Insert { job, texts });
        }
        self.save(from, cx);
    }

    /// An ended record may leave the memory when it is old enough, counted from its end or from
    /// when that was `known`.
    pub fn forget_later(&mut self, id: JobId, known: Timestamp, age_secs: u64) {
        if let Some(job) = self.job(id).filter(|job| job.run.state.is_terminal()) {
            let end = job.run.end.unwrap_or(job.submit).max(known);
            self.purges.insert((end.plus_secs(age_secs), id));
        }
    }

    /// When the next record that has ended leaves the memory.
    pub fn next_forgetting(&self) -> Option<Timestamp> {
        self.purges.first().map(|(at, _)| *at)
    }

    /// A record that has ended long enough ago to be forgotten, or an old one where there are very
    /// many.
    pub fn take_overdue(&mut self, age_secs: u64, now: Timestamp) -> Option<JobId> {
        while let Some(&(at, id)) = self.purges.first() {
            let is_crowded = self.purges.len() > ENDED_IN_MEMORY;
            if at > now && !is_crowded {
                break;
            }
            self.purges.pop_first();
            // The entry is out of date where the job was requeued since.
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

    /// True if at least this number of records was forgotten since the last time: their memory is
    /// worth giving back.
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
