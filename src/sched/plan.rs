//! Which jobs start now, and when the others are expected to.

use super::backfill::{Round, Running, Verdict};
use super::core::Core;
use super::queue::QueueKey;
use super::room::{Room, Want};
use super::types::{Effect, LaunchJob, Outbox};
use crate::model::request::{JobKind, Sharing};
use crate::model::{Job, JobId, JobState, Reason, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// How many jobs behind the first blocked one are tried each round. A bound on the work of one round; Slurm has one
/// too (`bf_max_job_test`).
pub const BACKFILL_DEPTH: usize = 1000;

/// How far a forecast goes: so many starts, and looks at so many moments.
const FORECAST_STARTS: usize = 2000;
const FORECAST_MOMENTS: usize = 2000;

/// When a job that holds resources gives them back by its time limit. One that is overdue, or is ending already, is
/// expected to be gone in a moment; one that is suspended stays for ever.
pub fn expected_end(job: &Job, now: Timestamp) -> Option<Timestamp> {
    let soon = Timestamp(now.0.saturating_add(1_000_000));
    match job.state {
        JobState::Completing => Some(soon),
        JobState::Running => {
            let suspended = std::time::Duration::from_micros(job.suspended_us);
            let end = job.start?.plus_secs(job.request.time_limit_secs?).plus(suspended);
            Some(end.max(soon))
        }
        JobState::Suspended => None,
        JobState::Pending
        | JobState::Completed
        | JobState::Failed
        | JobState::Cancelled
        | JobState::Timeout
        | JobState::OutOfMemory => Some(now),
    }
}

impl Core {
    /// One scheduling round: whatever can start, starts. To be called after facts and commands; what it does depends on
    /// the state and the time alone.
    pub fn plan(&mut self, now: Timestamp, out: &mut Outbox) {
        self.purge(now, out);
        let host = self.config.host.clone();
        let mut round = Round::new(&host, now);
        let mut tried = 0;
        let mut next = self.queue.first();
        while let Some(key) = next {
            // Every job needs a CPU: with none left the rest of the queue need not be looked at.
            if self.ledger.room().cpus == 0 || tried > BACKFILL_DEPTH {
                break;
            }
            // A start may change keys, but only to later ones: the place in the queue is found again by its key.
            match self.try_start(key, &mut round, now, out) {
                Tried::Started => {}
                Tried::Waits => tried += 1,
                Tried::Stale => self.refresh_and_arm(key.id, now),
            }
            next = self.queue.after(key);
        }
        self.expire_immediate(now, out);
        self.settle(now, out);
    }

    fn refresh_and_arm(&mut self, id: JobId, now: Timestamp) {
        self.refresh(id, now);
        self.arm(id, now);
    }

    fn try_start(&mut self, key: QueueKey, round: &mut Round, now: Timestamp, out: &mut Outbox) -> Tried {
        let Some(record) = self.jobs.get(&key.id) else { return Tried::Stale };
        if self.gate(record, now).is_some() {
            return Tried::Stale;
        }
        let job = &record.job;
        let want = Want::of(job);
        let verdict = round.consider(&want, job.request.time_limit_secs, self.ledger.room(), || self.running_jobs(now));
        match verdict {
            Verdict::Wait => Tried::Waits,
            Verdict::Start if self.start(key.id, now, out) => Tried::Started,
            Verdict::Start => Tried::Waits,
        }
    }

    /// Starts a pending record, or one task of a compact one. False: what it needs is not free.
    fn start(&mut self, id: JobId, now: Timestamp, out: &mut Outbox) -> bool {
        let Some(record) = self.jobs.get(&id) else { return false };
        let task = self.next_task(&record.job, record.waits.as_deref(), now);
        let request = Arc::clone(&record.job.request);
        let want = Want {
            tres: record.job.tres,
            gpu_model: request.gpu.model.as_deref(),
            exclusive: request.sharing == Sharing::Exclusive,
        };
        if !self.ledger.room().fits(&want, &self.config.host) {
            return false;
        }
        let own = match task {
            Some(task) => match self.split_task(id, task) {
                Some(own) => own,
                None => return false,
            },
            None => id,
        };
        let Some(alloc) = self.ledger.take(own, &want, &self.config.host) else { return false };
        if let Some(record) = self.jobs.get_mut(&own) {
            let job = &mut record.job;
            job.alloc = Some(alloc);
            job.start = Some(now);
            job.end = None;
            job.reason = Reason::None;
            job.eligible.get_or_insert(now);
        }
        if !self.transition(own, JobState::Running, now) {
            return false;
        }
        if own != id {
            // The array has had its turn.
            self.refresh_array(own, now);
        }
        self.save_start(own, id, out);
        self.arm(own, now);
        true
    }

    fn save_start(&mut self, own: JobId, from: JobId, out: &mut Outbox) {
        self.save_split(own, from, out);
        let Some(job) = self.job(own) else { return };
        match job.request.kind {
            JobKind::Batch | JobKind::Run => {
                let launch = LaunchJob {
                    job: job.clone(),
                    batch_ranks: self.batch_ranks(&job.request),
                    is_restart: job.restarts > 0,
                };
                out.effects.push(Effect::Launch(Box::new(launch)));
            }
            JobKind::Allocation => out.effects.push(Effect::Granted(own)),
        }
    }

    /// The jobs that hold resources, as others wait for them.
    pub(super) fn running_jobs(&self, now: Timestamp) -> Vec<Running> {
        self.active
            .iter()
            .filter_map(|id| self.job(*id))
            .filter_map(|job| {
                let alloc = job.alloc.as_ref()?;
                Some(Running {
                    end: expected_end(job, now),
                    start: job.start.unwrap_or(job.submit),
                    tres: alloc.tres,
                    gpus: alloc.gpu_ids.clone(),
                    exclusive: job.request.sharing == Sharing::Exclusive,
                })
            })
            .collect()
    }

    /// When the plan would start the pending jobs, if every running job used its time limit to the full and nothing else
    /// came: the plan itself, carried out in thought. A compact record has the start of its first task. Jobs whose start
    /// can't be told (held, waiting for others, behind a job without a limit) are not in the answer.
    pub fn expected_starts(&self, now: Timestamp) -> BTreeMap<JobId, Timestamp> {
        Forecast::new(self, now).run()
    }
}

enum Tried {
    Started,
    Waits,
    /// The queue was out of date about it.
    Stale,
}

/// A pending record in the forecast.
struct Candidate<'a> {
    job: &'a Job,
    ready: Timestamp,
    tasks: usize,
}

/// The plan carried out in thought.
struct Forecast<'a> {
    core: &'a Core,
    now: Timestamp,
    room: Room,
    running: Vec<(Running, Option<JobId>)>,
    /// Running tasks of each array with a limit.
    array_load: HashMap<JobId, u32>,
    candidates: HashMap<JobId, Candidate<'a>>,
    order: BTreeSet<QueueKey>,
    turn: u32,
    starts: BTreeMap<JobId, Timestamp>,
}

impl<'a> Forecast<'a> {
    fn new(core: &'a Core, now: Timestamp) -> Self {
        let running = core
            .active
            .iter()
            .filter_map(|id| core.job(*id))
            .filter_map(|job| {
                let alloc = job.alloc.as_ref()?;
                let running = Running {
                    end: expected_end(job, now),
                    start: job.start.unwrap_or(job.submit),
                    tres: alloc.tres,
                    gpus: alloc.gpu_ids.clone(),
                    exclusive: job.request.sharing == Sharing::Exclusive,
                };
                Some((running, job.array_job_id()))
            })
            .collect();
        let mut forecast = Forecast {
            core,
            now,
            room: core.ledger.room().clone(),
            running,
            array_load: core.arrays.iter().map(|(id, group)| (*id, group.active)).collect(),
            candidates: HashMap::new(),
            order: BTreeSet::new(),
            turn: core.next_id,
            starts: BTreeMap::new(),
        };
        forecast.gather();
        forecast
    }

    /// Those in the queue, those that only wait for their time, and those that only wait for their own array.
    fn gather(&mut self) {
        for record in self.core.jobs.values() {
            let job = &record.job;
            if job.state != JobState::Pending {
                continue;
            }
            let ready = match self.core.gate(record, self.now) {
                None | Some(Reason::JobArrayTaskLimit) => self.now,
                Some(Reason::BeginTime) => match job.request.begin {
                    Some(begin) => begin,
                    None => continue,
                },
                Some(_) => continue,
            };
            let key = self.core.queue_key(job);
            self.order.insert(key);
            self.candidates.insert(job.id, Candidate { job, ready, tasks: job.pending_tasks() });
        }
    }

    fn run(mut self) -> BTreeMap<JobId, Timestamp> {
        let mut starts = 0;
        for _ in 0..FORECAST_MOMENTS {
            starts += self.one_round();
            if self.order.is_empty() || starts >= FORECAST_STARTS || !self.advance() {
                break;
            }
        }
        self.starts
    }

    fn one_round(&mut self) -> usize {
        let host = &self.core.config.host;
        let mut round = Round::new(host, self.now);
        let (mut tried, mut started) = (0, 0);
        let mut next = self.order.first().copied();
        while let Some(key) = next {
            if self.room.cpus == 0 || tried > BACKFILL_DEPTH {
                break;
            }
            if self.is_startable(key.id)
                && let Some(candidate) = self.candidates.get(&key.id)
            {
                let job = candidate.job;
                let (want, limit) = (Want::of(job), job.request.time_limit_secs);
                let running = || self.running.iter().map(|(running, _)| running.clone()).collect();
                match round.consider(&want, limit, &self.room, running) {
                    Verdict::Start => {
                        self.start(key, &want, limit);
                        started += 1;
                    }
                    Verdict::Wait => tried += 1,
                }
            }
            next = self.order.range((std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded)).next().copied();
        }
        started
    }

    fn is_startable(&self, id: JobId) -> bool {
        let Some(candidate) = self.candidates.get(&id) else { return false };
        let limit = self.core.group_of(id).and_then(|group| group.limit);
        let load = candidate.job.array_job_id().and_then(|array| self.array_load.get(&array)).copied().unwrap_or(0);
        candidate.ready <= self.now && limit.is_none_or(|limit| load < limit)
    }

    fn start(&mut self, key: QueueKey, want: &Want, limit: Option<u64>) {
        let host = &self.core.config.host;
        let Some(gpus) = self.room.take(want, host) else { return };
        let Some(candidate) = self.candidates.get_mut(&key.id) else { return };
        let array = candidate.job.array_job_id();
        self.starts.entry(key.id).or_insert(self.now);
        self.running.push((
            Running {
                end: limit.map(|limit| self.now.plus_secs(limit.max(1))),
                start: self.now,
                tres: want.taken(host),
                gpus,
                exclusive: want.exclusive,
            },
            array,
        ));
        if let Some(array) = array {
            *self.array_load.entry(array).or_default() += 1;
        }
        candidate.tasks -= 1;
        self.order.remove(&key);
        if candidate.tasks > 0 {
            self.order.insert(QueueKey { turn: self.turn, ..key });
            self.turn = self.turn.saturating_add(1);
        }
    }

    /// To the next moment at which something changes; false where nothing does any more.
    fn advance(&mut self) -> bool {
        let ends = self.running.iter().filter_map(|(running, _)| running.end);
        let begins = self.order.iter().filter_map(|key| self.candidates.get(&key.id)).map(|candidate| candidate.ready);
        let Some(next) = ends.chain(begins).filter(|at| *at > self.now).min() else { return false };
        self.now = next;
        let (gone, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(|(running, _)| running.end.is_some_and(|end| end <= next));
        self.running = left;
        for (running, array) in gone {
            self.room.give(&running.tres, &running.gpus, running.exclusive);
            if let Some(load) = array.and_then(|array| self.array_load.get_mut(&array)) {
                *load = load.saturating_sub(1);
            }
        }
        true
    }
}
