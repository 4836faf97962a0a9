//! Who waits, for what, and until when: the queue, the timers, the steps that wait inside a job, and
//! how long jobs are expected to run.

pub mod backfill;
pub mod queue;
pub mod run_times;

use super::choice::Choice;
use super::records::{Record, Records};
use super::resources::ledger::Ledger;
use super::types::StepAsker;
use crate::model::diagnostics::RoundFacts;
use crate::model::{ArrayRole, Job, JobId, JobRequest, Partition, StepRequest, Timestamp};
use backfill::Running;
use queue::{Place, Queue, QueueKey, rank};
use run_times::{ExpectedEnd, RunTimes, expected_end};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A step that waits for its turn.
#[derive(Debug, Clone)]
pub struct StepWait {
    pub request: StepRequest,
    pub asker: StepAsker,
}

#[derive(Debug, Clone, Default)]
pub struct Line {
    queue: Queue,
    /// What becomes due for which record; an entry may be out of date.
    timers: BTreeSet<(Timestamp, JobId)>,
    /// Pending jobs with `--immediate` whose time is up unless the next plan starts them.
    expiring: BTreeSet<JobId>,
    step_waits: BTreeMap<JobId, VecDeque<StepWait>>,
    run_times: RunTimes,
    last_round: RoundFacts,
}

impl Line {
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// A record has other places in the queue now.
    pub fn move_to(&mut self, old: &[Place], new: &[Place]) {
        self.queue.replace(old, new);
    }

    /// What is in the queue may start though it could not before: the round has to be repeated.
    pub fn look_again(&mut self) {
        self.queue.look_again();
    }

    /// A record waits for resources no more.
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
            (ArrayRole::Rest { .. } | ArrayRole::Part { .. }, None) => job.id.0,
            // What comes back has the turn of its submission, as a plain job with its number.
            (ArrayRole::Task { array_job, .. }, _) if job.run.restarts > 0 => array_job.0,
            (ArrayRole::None | ArrayRole::Task { .. }, _) => job.id.0,
        };
        let key = QueueKey {
            tier: Reverse(choice.partition.map_or(1, Partition::tier)),
            priority: Reverse(rank(&job.request)),
            turn,
            task: if let ArrayRole::Task { task, .. } = job.role { task } else { 0 },
            id: job.id,
            choice: choice.at,
        };
        Place { key, shape: self.queue.known(choice.shape()) }
    }

    /// A record is looked at again at this moment.
    pub fn wake(&mut self, id: JobId, at: Timestamp) {
        self.timers.insert((at, id));
    }

    pub fn next_timer(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// A record that is to be looked at by now.
    pub fn take_due(&mut self, now: Timestamp) -> Option<JobId> {
        self.next_timer().filter(|at| *at <= now)?;
        self.timers.pop_first().map(|(_, id)| id)
    }

    /// The records that are looked at later, the next one first.
    pub fn later(&self) -> impl Iterator<Item = JobId> {
        self.timers.iter().map(|(_, id)| *id)
    }

    /// The time of a pending job with `--immediate` is up, unless the next plan starts it.
    pub fn expire(&mut self, id: JobId) {
        self.expiring.insert(id);
    }

    pub fn take_expiring(&mut self) -> BTreeSet<JobId> {
        std::mem::take(&mut self.expiring)
    }

    pub fn add_step_wait(&mut self, job: JobId, wait: StepWait) {
        self.step_waits.entry(job).or_default().push_back(wait);
    }

    /// The steps of a job that wait, in the order of asking.
    pub fn take_step_waits(&mut self, job: JobId) -> VecDeque<StepWait> {
        self.step_waits.remove(&job).unwrap_or_default()
    }

    /// Those that still wait.
    pub fn set_step_waits(&mut self, job: JobId, waits: VecDeque<StepWait>) {
        if !waits.is_empty() {
            self.step_waits.insert(job, waits);
        }
    }

    /// The jobs of which a step waits with this ticket.
    pub fn jobs_with_ticket(&self, ticket: u64) -> Vec<JobId> {
        let has = |waits: &VecDeque<StepWait>| waits.iter().any(|wait| wait.asker.ticket == ticket);
        self.step_waits.iter().filter(|(_, waits)| has(waits)).map(|(job, _)| *job).collect()
    }

    /// How many seconds such a job takes; `None`: none ended yet.
    pub fn usual_secs(&self, request: &JobRequest) -> Option<u64> {
        self.run_times.expected_secs(request)
    }

    /// When a job that holds resources is expected to give them back.
    pub fn expected_end(&self, job: &Job, now: Timestamp) -> ExpectedEnd {
        expected_end(job, self.usual_secs(&job.request), now)
    }

    /// A job has ended well: so long later ones of its name are expected to take.
    pub fn note_length(&mut self, job: &Job) {
        let took = job.elapsed(job.run.end.unwrap_or_default());
        self.run_times.note(&job.request, took.as_secs());
    }

    /// What the last round looked at.
    pub fn last_round(&self) -> RoundFacts {
        self.last_round
    }

    pub fn begin_round(&mut self) {
        self.last_round = RoundFacts::default();
    }

    /// A record was looked at. `is_behind`: of a job that is blocked.
    pub fn count_try(&mut self, has_started: bool, is_behind: bool) {
        let facts = &mut self.last_round;
        facts.tried += 1;
        facts.behind += u64::from(is_behind);
        facts.backfilled += u64::from(is_behind && has_started);
    }

    /// The jobs that hold resources, as others wait for them.
    pub fn running(&self, records: &Records, ledger: &Ledger, now: Timestamp) -> Vec<Running> {
        let running = |record: &Record| {
            let Record { job, start_order, .. } = record;
            let (end, part) = (self.expected_end(job, now), ledger.held(job.id)?.clone());
            Some(Running { id: job.id, end, order: *start_order, part })
        };
        records.active().filter_map(running).collect()
    }
}
