//! The queue, the timers, the steps that wait inside a job, and expected run times.

pub(crate) mod backfill;
pub(crate) mod preempt;
pub(crate) mod queue;
pub(crate) mod reserved;
pub(crate) mod run_times;

use super::choice::Choice;
use super::records::{Record, Records, is_last};
use super::resources::ledger::Ledger;
use super::types::StepAsker;
use backfill::Running;
use queue::{Place, Queue, QueueKey, rank};
use run_times::{ExpectedEnd, RunTimes, end_if_resumed, expected_end};
use slotd_model::diagnostics::RoundFacts;
use slotd_model::{ArrayRole, Job, JobId, JobRequest, Partition, StepId, StepRequest, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A step that waits for resources.
#[derive(Debug, Clone)]
pub(crate) struct StepWait {
    pub request: StepRequest,
    pub asker: StepAsker,
}

/// The step that the holder of an allocation has not launched yet.
#[derive(Debug, Clone)]
pub(crate) struct FirstStep {
    pub request: Box<StepRequest>,
    /// Its record, once the allocation has started.
    pub recorded: Option<StepId>,
}

#[derive(Debug, Clone, Default)]
pub struct Line {
    queue: Queue,
    /// When to re-evaluate each record; an entry may be stale.
    timers: BTreeSet<(Timestamp, JobId)>,
    /// Pending jobs with `--immediate` that fail unless the next plan starts them.
    expiring: BTreeSet<JobId>,
    step_waits: BTreeMap<JobId, VecDeque<StepWait>>,
    first_steps: BTreeMap<JobId, FirstStep>,
    run_times: RunTimes,
    last_round: RoundFacts,
}

impl Line {
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Moves a record to other places in the queue.
    pub fn move_to(&mut self, old: &[Place], new: &[Place]) {
        self.queue.replace(old, new);
    }

    /// Requests another round, because a job in the queue may be able to start now.
    pub(crate) fn request_round(&mut self) {
        self.queue.request_round();
    }

    /// Removes a record that no longer waits for resources.
    pub fn leave(&mut self, id: JobId, places: &[Place]) {
        self.queue.replace(places, &[]);
        self.expiring.remove(&id);
    }

    pub fn place_of(&self, choice: &Choice, records: &Records) -> Place {
        let job = choice.job;
        let turn = match (&job.role, records.array_of(job)) {
            (ArrayRole::Rest { .. } | ArrayRole::Part { .. }, Some(group)) => {
                group.last_served.max(job.id.0)
            }
            (ArrayRole::Task { .. }, Some(group)) if is_last(job) => {
                group.last_served.max(job.id.0)
            }
            (ArrayRole::Rest { .. } | ArrayRole::Part { .. }, None) => job.id.0,
            // A requeued task gets the turn of its submission, as a plain job does by keeping its
            // ID.
            (ArrayRole::Task { array_job, .. }, _) if job.run.restarts > 0 => array_job.0,
            (ArrayRole::None | ArrayRole::Task { .. }, _) => job.id.0,
        };
        let key = QueueKey {
            tier: Reverse(choice.partition.map_or(1, Partition::tier)),
            priority: Reverse(rank(&job.request, choice.qos)),
            turn,
            task: if let ArrayRole::Task { task, .. } = job.role { task } else { 0 },
            id: job.id,
            choice: choice.at,
        };
        Place { key, shape: self.queue.known(choice.shape()) }
    }

    /// Schedules a record to be re-evaluated at this time.
    pub fn wake(&mut self, id: JobId, at: Timestamp) {
        self.timers.insert((at, id));
    }

    pub(crate) fn next_timer(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Returns a record that is due for re-evaluation.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<JobId> {
        self.next_timer().filter(|at| *at <= now)?;
        self.timers.pop_first().map(|(_, id)| id)
    }

    /// Returns the records with timers, earliest first.
    pub fn later(&self) -> impl Iterator<Item = JobId> {
        self.timers.iter().map(|(_, id)| *id)
    }

    /// Marks a pending job with `--immediate` to fail unless the next plan starts it.
    pub fn expire(&mut self, id: JobId) {
        self.expiring.insert(id);
    }

    pub(crate) fn take_expiring(&mut self) -> BTreeSet<JobId> {
        std::mem::take(&mut self.expiring)
    }

    /// Stores the step that the holder of an allocation will launch first.
    pub(crate) fn set_first_step(&mut self, job: JobId, first: FirstStep) {
        self.first_steps.insert(job, first);
    }

    pub(crate) fn first_step(&self, job: JobId) -> Option<&FirstStep> {
        self.first_steps.get(&job)
    }

    pub(crate) fn take_first_step(&mut self, job: JobId) -> Option<FirstStep> {
        self.first_steps.remove(&job)
    }

    pub(crate) fn add_step_wait(&mut self, job: JobId, wait: StepWait) {
        self.step_waits.entry(job).or_default().push_back(wait);
    }

    /// Removes and returns the waiting steps of a job, in the order of their requests.
    pub(crate) fn take_step_waits(&mut self, job: JobId) -> VecDeque<StepWait> {
        self.step_waits.remove(&job).unwrap_or_default()
    }

    /// Stores the steps that are still waiting.
    pub(crate) fn set_step_waits(&mut self, job: JobId, waits: VecDeque<StepWait>) {
        if !waits.is_empty() {
            self.step_waits.insert(job, waits);
        }
    }

    /// Returns the jobs with a step that waits under this ticket.
    pub(crate) fn jobs_with_ticket(&self, ticket: u64) -> Vec<JobId> {
        let has = |waits: &VecDeque<StepWait>| waits.iter().any(|wait| wait.asker.ticket == ticket);
        self.step_waits.iter().filter(|(_, waits)| has(waits)).map(|(job, _)| *job).collect()
    }

    /// Returns how many seconds jobs like this usually take, or `None` if none has ended yet.
    pub(crate) fn usual_secs(&self, request: &JobRequest) -> Option<u64> {
        self.run_times.expected_secs(request)
    }

    /// Returns when a job is expected to release its resources.
    pub(crate) fn expected_end(&self, job: &Job, now: Timestamp) -> ExpectedEnd {
        expected_end(job, self.usual_secs(&job.request), now)
    }

    /// Records the run time of a job that ended well, to predict later jobs of its name.
    pub(crate) fn note_length(&mut self, job: &Job) {
        let took = job.elapsed(job.run.end.unwrap_or_default());
        self.run_times.note(&job.request, took.as_secs());
    }

    /// Returns the statistics of the last round.
    pub fn last_round(&self) -> RoundFacts {
        self.last_round
    }

    pub(crate) fn begin_round(&mut self) {
        self.last_round = RoundFacts::default();
    }

    /// Counts a record that was considered. `is_behind`: a job ahead of it is blocked.
    pub(crate) fn count_try(&mut self, has_started: bool, is_behind: bool) {
        let facts = &mut self.last_round;
        facts.tried += 1;
        facts.behind += u64::from(is_behind);
        facts.backfilled += u64::from(is_behind && has_started);
    }

    /// Returns the jobs that hold resources, for the reservations of others.
    pub fn running(&self, records: &Records, ledger: &Ledger, now: Timestamp) -> Vec<Running> {
        let running = |record: &Record| {
            let Record { job, start_order, .. } = record;
            let part = ledger.held(job.id)?.clone();
            let of_reservation = ledger.capacity().job_end(&part.place);
            let end = self.expected_end(job, now).by(of_reservation.map(|end| end.max(now)));
            Some(Running { id: job.id, end, order: *start_order, part })
        };
        let mut all: Vec<Running> = records.active().filter_map(running).collect();
        let waits = |job: &&Job| job.run.waits_for_its_cpus();
        let waiting = all.iter().enumerate().filter_map(|(at, one)| {
            let job = records.job(one.id).filter(waits)?;
            Some((at, self.end_of_suspended(job, one, &all, now)))
        });
        let waiting: Vec<(usize, ExpectedEnd)> = waiting.collect();
        waiting.into_iter().for_each(|(at, end)| all[at].end = end);
        all
    }

    /// Returns the expected end of a suspended job, which is resumed when those on its CPUs end.
    fn end_of_suspended(
        &self,
        job: &Job,
        own: &Running,
        all: &[Running],
        now: Timestamp,
    ) -> ExpectedEnd {
        let cpus = &own.part.alloc.cpu_ids;
        let is_there = |one: &&Running| {
            one.id != own.id && one.part.alloc.cpu_ids.iter().any(|cpu| cpus.contains(cpu))
        };
        let ends: Option<Vec<Timestamp>> =
            all.iter().filter(is_there).map(|one| one.end.at()).collect();
        let resumed = ends.map(|ends| ends.into_iter().max().unwrap_or(now));
        let usual_secs = self.usual_secs(&job.request);
        resumed.map_or(ExpectedEnd::Unknown, |at| end_if_resumed(job, usual_secs, at))
    }
}
