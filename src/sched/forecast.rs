//! When pending jobs are expected to start: the plan itself, carried out in thought.
//!
//! Every running job is taken to use its time limit to the full, and nothing new to come. The same [`Round`] decides
//! as in the plan, in the same order, so `squeue --start` shows what the plan says.

use super::backfill::{Round, Running, Verdict};
use super::core::Core;
use super::plan::BACKFILL_DEPTH;
use super::queue::QueueKey;
use super::room::{Room, Want};
use crate::model::{Job, JobId, JobState, Reason, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

/// How far a forecast goes: so many starts, and looks at so many moments.
const MAX_STARTS: usize = 2000;
const MAX_MOMENTS: usize = 2000;

impl Core {
    /// When the plan would start the pending jobs. A compact record has the start of its first task. Jobs whose start
    /// can't be told (held, waiting for others, behind a job without a time limit, too far back in a long queue) are not
    /// in the answer.
    pub fn expected_starts(&self, now: Timestamp) -> BTreeMap<JobId, Timestamp> {
        Forecast::new(self, now).run()
    }
}

/// A pending record.
struct Candidate<'a> {
    job: &'a Job,
    tasks: usize,
}

struct Forecast<'a> {
    core: &'a Core,
    now: Timestamp,
    room: Room,
    running: Vec<(Running, Option<JobId>)>,
    /// Running tasks of each array.
    array_load: HashMap<JobId, u32>,
    candidates: HashMap<JobId, Candidate<'a>>,
    /// Those that could start now, in the order of the queue.
    order: BTreeSet<QueueKey>,
    /// Those whose time has not come.
    later: BTreeSet<(Timestamp, QueueKey)>,
    turn: u32,
    /// Starts so far, real ones included.
    started: u64,
    starts: BTreeMap<JobId, Timestamp>,
}

impl<'a> Forecast<'a> {
    fn new(core: &'a Core, now: Timestamp) -> Self {
        let holders = core.active.iter().filter_map(|id| core.job(*id)).filter(|job| job.run.alloc.is_some());
        let arrays = holders.map(Job::array_job_id);
        let mut forecast = Forecast {
            core,
            now,
            room: core.ledger.room().clone(),
            running: core.running_jobs(now).into_iter().zip(arrays).collect(),
            array_load: core.arrays.iter().map(|(id, group)| (*id, group.active)).collect(),
            candidates: HashMap::new(),
            order: BTreeSet::new(),
            later: BTreeSet::new(),
            turn: core.next_id,
            started: core.starts,
            starts: BTreeMap::new(),
        };
        forecast.gather();
        forecast
    }

    /// Those in the queue, those that only wait for their time, and those that only wait for their own array.
    fn gather(&mut self) {
        for record in self.core.jobs.values() {
            let job = &record.job;
            if job.run.state != JobState::Pending {
                continue;
            }
            let key = self.core.queue_key(job);
            match (self.core.gate(record, self.now), job.request.begin) {
                (None | Some(Reason::JobArrayTaskLimit), _) => {
                    self.order.insert(key);
                }
                (Some(Reason::BeginTime), Some(begin)) => {
                    self.later.insert((begin, key));
                }
                (Some(_), _) => continue,
            }
            self.candidates.insert(job.id, Candidate { job, tasks: job.pending_tasks() });
        }
    }

    fn run(mut self) -> BTreeMap<JobId, Timestamp> {
        let mut starts = 0;
        for _ in 0..MAX_MOMENTS {
            starts += self.one_round();
            if starts >= MAX_STARTS || !self.advance() {
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
            next = self.order.range((Bound::Excluded(key), Bound::Unbounded)).next().copied();
        }
        started
    }

    fn is_startable(&self, id: JobId) -> bool {
        let limit = self.core.group_of(id).and_then(|group| group.limit);
        let array = self.candidates.get(&id).and_then(|candidate| candidate.job.array_job_id());
        let load = array.and_then(|array| self.array_load.get(&array)).copied().unwrap_or(0);
        limit.is_none_or(|limit| load < limit)
    }

    fn start(&mut self, key: QueueKey, want: &Want, limit: Option<u64>) {
        let host = &self.core.config.host;
        let Some(gpus) = self.room.take(want, host) else { return };
        let Some(candidate) = self.candidates.get_mut(&key.id) else { return };
        let array = candidate.job.array_job_id();
        self.starts.entry(key.id).or_insert(self.now);
        self.started += 1;
        let running = Running {
            end: limit.map(|limit| self.now.plus_secs(limit.max(1))),
            order: self.started,
            tres: want.taken(host),
            gpus,
            exclusive: want.exclusive,
        };
        self.running.push((running, array));
        if let Some(array) = array {
            *self.array_load.entry(array).or_default() += 1;
        }
        candidate.tasks = candidate.tasks.saturating_sub(1);
        self.order.remove(&key);
        if candidate.tasks > 0 {
            self.order.insert(QueueKey { turn: self.turn, ..key });
            self.turn = self.turn.saturating_add(1);
        }
    }

    /// To the next moment at which something changes; false where nothing does any more.
    fn advance(&mut self) -> bool {
        let end = self.running.iter().filter_map(|(running, _)| running.end).min();
        let begin = self.later.first().map(|(at, _)| *at);
        // Without anybody left in line it does not matter who ends.
        let end = end.filter(|_| !self.order.is_empty());
        let Some(next) = end.into_iter().chain(begin).min() else { return false };
        self.now = next.max(self.now);
        while let Some((_, key)) = self.later.first().copied().filter(|(at, _)| *at <= next) {
            self.later.pop_first();
            self.order.insert(key);
        }
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
