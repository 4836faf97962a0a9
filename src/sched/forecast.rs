//! When pending jobs are expected to start: runs the scheduler on a copy of the queue.
//!
//! Every running job is assumed to use up its time limit, or, without one, to take as long as
//! earlier jobs of its name; no new jobs are assumed to arrive. The same [`Round`] decides in the
//! same order as in the plan, so `squeue --start` agrees with the plan.
//!
//! A [`Forecast`] is a copy of the state that this needs. It is quick to take, and can be evaluated
//! on another thread.

use super::choice::Choice;
use super::core::Core;
use super::line::backfill::{Round, Running, Verdict};
use super::line::queue::{Place, Queue, QueueKey};
use super::line::run_times::ExpectedEnd;
use super::records::Record;
use super::resources::capacity::{Capacity, Part};
use super::types::{Config, Estimate, ExpectedStart};
use crate::recurrence;
use slotd_model::{Job, JobId, JobState, Reason, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The extent of a forecast: the most starts, and the most points in time to examine.
const MAX_STARTS: usize = 2000;
const MAX_MOMENTS: usize = 2000;

/// The most jobs that a forecast takes from the head of the queue, and the most that it takes from
/// those with later begin times.
const MAX_JOBS: usize = 5000;

/// The state from which starts are predicted.
#[derive(Debug, Clone)]
pub struct Forecast {
    now: Timestamp,
    config: Config,
    capacity: Capacity,
    /// The running jobs, each with its array.
    running: Vec<(Running, Option<JobId>)>,
    waiting: Vec<Waiting>,
    /// The ID of the next record, and the number of starts so far.
    turn: u32,
    started: u64,
}

/// A pending record that waits only for resources, its begin time, or other tasks of its array.
#[derive(Debug, Clone)]
struct Waiting {
    id: JobId,
    /// One for each partition in which it may run.
    places: Vec<Place>,
    /// The earliest start in each partition; `None` means now.
    begins: Vec<Option<Timestamp>>,
    /// The usual run time of jobs of its name.
    usual_secs: Option<u64>,
    tasks: usize,
    /// The job that receives its resources and releases them at its end.
    expands: Option<JobId>,
    /// The array, and the most tasks of it that may run at once.
    array: Option<(JobId, Option<u32>)>,
}

/// The expected result of a submission.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Without the start, which takes time to compute from the forecast.
    pub estimate: Estimate,
    pub forecast: Forecast,
}

/// The expected starts of records.
pub type Starts = BTreeMap<JobId, ExpectedStart>;

impl Core {
    /// Returns the state for a forecast. The cost depends on the jobs that the forecast covers, not
    /// on how many wait behind them.
    pub fn forecast(&self, now: Timestamp) -> Forecast {
        let holders = self.records.active_jobs().filter(|job| job.run.alloc.is_some());
        let arrays: Vec<Option<JobId>> = holders.map(Job::array_job_id).collect();
        // Only an array with running tasks can be at its limit.
        let full: BTreeSet<JobId> = arrays.iter().copied().flatten().collect();
        let full = full
            .iter()
            .filter_map(|array| self.records.array(*array))
            .filter(|group| group.is_at_limit());
        let in_line = self.line.queue().iter().map(|key| key.id);
        let later = self.line.later();
        let ids = in_line
            .take(MAX_JOBS)
            .chain(later.take(MAX_JOBS))
            .chain(full.flat_map(|group| &group.waiting).copied());
        let mut seen = BTreeSet::new();
        let records = ids.filter(|id| seen.insert(*id)).filter_map(|id| self.records.get(id));
        Forecast {
            now,
            config: self.resources.config().clone(),
            capacity: self.resources.ledger().capacity().clone(),
            running: self
                .line
                .running(&self.records, self.resources.ledger(), now)
                .into_iter()
                .zip(arrays)
                .collect(),
            waiting: records.filter_map(|record| self.waiting(record, now)).collect(),
            turn: self.records.next_id().0,
            started: self.records.starts(),
        }
    }

    fn waiting(&self, record: &Record, now: Timestamp) -> Option<Waiting> {
        let job = &record.job;
        // It is unknown when a drained node will be resumed.
        if job.run.state != JobState::Pending || self.resources.node().trouble().is_some() {
            return None;
        }
        let begin = match self.records.gate_anywhere(record, now) {
            None | Some(Reason::JobArrayTaskLimit) => None,
            Some(Reason::BeginTime) => Some(job.begin()?),
            Some(_) => return None,
        };
        let (mut places, mut begins) = (Vec::new(), Vec::new());
        for choice in Choice::all(job, self.resources.config()) {
            let opens = match self.resources.gate_in(&choice, now) {
                None => None,
                Some(Reason::PartitionDown) => Some(self.resources.opens_in(&choice, now)),
                Some(_) => Some(None),
            };
            match opens {
                None => begins.push(begin),
                Some(Some(opens)) => begins.push(begin.max(Some(opens))),
                Some(None) => continue,
            }
            places.push(self.line.place_of(&choice, &self.records));
        }
        let limit = job.request.array.as_ref().and_then(|array| array.limit);
        let array = job.array_job_id().map(|array| (array, limit));
        let usual_secs = self.line.usual_secs(&job.request);
        (!places.is_empty()).then(|| Waiting {
            id: job.id,
            places,
            begins,
            usual_secs,
            tasks: job.pending_tasks(),
            expands: self.records.expanded_by(job.id),
            array,
        })
    }

    /// Returns the state for a forecast in which this record is submitted next.
    pub(super) fn forecast_with(&self, record: &Record, now: Timestamp) -> Forecast {
        let mut forecast = self.forecast(now);
        forecast.turn = forecast.turn.saturating_add(1);
        if !record.job.is_late(now) {
            forecast.waiting.extend(self.waiting(record, now));
        }
        forecast
    }
}

impl Forecast {
    /// Predicts when the plan would start the pending jobs. A compact record has the start of its
    /// first task. Jobs without a predictable start (held, with an unmet dependency, behind a job
    /// without a time limit, too far back in a long queue) are missing from the result.
    pub fn starts(self) -> Starts {
        Future::new(self).run()
    }
}

/// The simulated future.
struct Future {
    now: Timestamp,
    config: Config,
    capacity: Capacity,
    running: Vec<(Running, Option<JobId>)>,
    waiting: HashMap<JobId, Waiting>,
    /// The records of each array, and the number of its running tasks.
    arrays: HashMap<JobId, (Vec<JobId>, u32)>,
    /// The records that could start now.
    queue: Queue,
    /// The records with a later begin time.
    later: BTreeSet<(Timestamp, JobId)>,
    turn: u32,
    started: u64,
    starts: Starts,
    /// Whether the end of any job so far was estimated from earlier run times.
    is_estimate: bool,
}

impl Future {
    fn new(forecast: Forecast) -> Self {
        let Forecast { now, config, capacity, running, waiting, turn, started } = forecast;
        let mut arrays: HashMap<JobId, (Vec<JobId>, u32)> = HashMap::new();
        for array in running.iter().filter_map(|(_, array)| *array) {
            arrays.entry(array).or_default().1 += 1;
        }
        for Waiting { id, array, .. } in &waiting {
            if let Some((array, _)) = array {
                arrays.entry(*array).or_default().0.push(*id);
            }
        }
        let later = waiting
            .iter()
            .flat_map(|one| one.begins.iter().filter_map(|begin| Some(((*begin)?, one.id))));
        let later = later.collect();
        let ids: Vec<JobId> = waiting.iter().map(|one| one.id).collect();
        let waiting = waiting.into_iter().map(|one| (one.id, one)).collect();
        let (queue, starts) = (Queue::default(), Starts::new());
        let mut future = Future {
            now,
            config,
            capacity,
            running,
            waiting,
            arrays,
            queue,
            later,
            turn,
            started,
            starts,
            is_estimate: false,
        };
        ids.into_iter().for_each(|id| future.enter(id));
        future
    }

    /// Adds a record to the queue at the places whose begin time has come, unless its array is at
    /// its task limit.
    fn enter(&mut self, id: JobId) {
        let Some(Waiting { places, array, begins, .. }) = self.waiting.get(&id) else { return };
        let is_full = array.is_some_and(|(array, limit)| {
            let load = self.arrays.get(&array).map_or(0, |(_, load)| *load);
            limit.is_some_and(|limit| load >= limit)
        });
        for (place, begin) in places.iter().zip(begins).filter(|_| !is_full) {
            if begin.is_none_or(|begin| begin <= self.now) && !self.queue.contains(&place.key) {
                self.queue.insert(place);
            }
        }
    }

    fn run(mut self) -> Starts {
        let mut starts = 0;
        for _ in 0..MAX_MOMENTS {
            // As in the plan, a start may unblock a job considered earlier.
            loop {
                let (started, has_chosen) = self.one_round();
                starts += started;
                if started == 0 || !(has_chosen || self.queue.start_may_unblock(&self.capacity)) {
                    break;
                }
            }
            if starts >= MAX_STARTS || !self.advance() {
                break;
            }
        }
        self.starts
    }

    /// Runs one round. Returns how many records have started, and whether any of them had several
    /// lines to choose from.
    fn one_round(&mut self) -> (usize, bool) {
        let running = || self.running.iter().map(|(running, _)| running.clone()).collect();
        let mut round = Round::new(self.now, &self.config, &self.capacity, running);
        let (mut started, mut has_chosen) = (0, false);
        while let Some(key) = round.next(&self.queue, &self.capacity, &self.config.host) {
            let Some(Waiting { places, .. }) = self.waiting.get(&key.id) else { continue };
            let running = || self.running.iter().map(|(running, _)| running.clone()).collect();
            match round.consider(key, places, &self.capacity, &self.config.host, running) {
                Verdict::Start(part) => {
                    has_chosen |= places.len() > 1;
                    self.start(key, part);
                    round.moved(key.id, self.waiting.get(&key.id).map_or(&[], |rest| &rest.places));
                    started += 1;
                }
                Verdict::Wait => {}
            }
        }
        (started, has_chosen)
    }

    fn start(&mut self, key: QueueKey, part: Part) {
        self.capacity.take(&part);
        let id = key.id;
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        self.starts.entry(id).or_insert(ExpectedStart {
            at: self.now,
            choice: key.choice,
            is_estimate: self.is_estimate,
        });
        self.started += 1;
        let limit = waiting
            .places
            .iter()
            .find(|place| place.key == key)
            .and_then(|place| place.shape.limit);
        let after = |secs: u64| self.now.plus_secs(secs.max(1));
        let expanded = waiting
            .expands
            .and_then(|id| self.running.iter().find(|(running, _)| running.id == id));
        let end = match (limit, waiting.usual_secs) {
            _ if let Some((expanded, _)) = expanded => expanded.end,
            (Some(limit), _) => ExpectedEnd::ByLimit(after(limit)),
            (None, Some(usual)) => ExpectedEnd::AsEarlier(after(usual)),
            (None, None) => ExpectedEnd::Unknown,
        };
        let end = end.by(self.capacity.job_end(&part.place));
        let running = Running { id, end, order: self.started, part };
        let array = waiting.array.map(|(array, _)| array);
        self.running.push((running, array));
        self.queue.replace(&waiting.places, &[]);
        // The rest of the array has its next turn behind all other records.
        waiting.tasks = waiting.tasks.saturating_sub(1);
        waiting.places.iter_mut().for_each(|place| place.key.turn = self.turn);
        if waiting.tasks == 0 {
            self.waiting.remove(&id);
        } else {
            self.turn = self.turn.saturating_add(1);
            self.enter(id);
        }
        self.change_load(array, 1);
    }

    /// Changes the number of running tasks of an array.
    fn change_load(&mut self, array: Option<JobId>, by: i32) {
        let Some((records, load)) = array.and_then(|array| self.arrays.get_mut(&array)) else {
            return;
        };
        *load = load.saturating_add_signed(by);
        let (records, load) = (std::mem::take(records), *load);
        for id in &records {
            let Some(Waiting { places, array, .. }) = self.waiting.get(id) else { continue };
            match array.and_then(|(_, limit)| limit) {
                Some(limit) if load >= limit => self.queue.replace(places, &[]),
                Some(_) => self.enter(*id),
                None => {}
            }
        }
        if let Some((own, _)) = array.and_then(|array| self.arrays.get_mut(&array)) {
            *own = records;
        }
    }

    /// Returns when a reservation begins or ends next.
    fn next_period(&self) -> Option<Timestamp> {
        let config = &self.config;
        let periods = config
            .reservations
            .iter()
            .filter_map(|reservation| recurrence::from(reservation, self.now, &config.zone));
        let bounds = periods.flat_map(|there| [Some(there.start), there.end]);
        let next = bounds.flatten().filter(|at| *at > self.now).min();
        // Without jobs that could start, nothing changes any more.
        next.filter(|_| self.queue.first().is_some())
    }

    /// Removes records from the queue after the end of their reservation: their start is unknown.
    fn leave_reservations(&mut self) {
        let now = self.now;
        let over = self.config.reservations.iter().filter(|reservation| reservation.is_over(now));
        let over: Vec<u32> = over.map(|reservation| reservation.number).collect();
        if over.is_empty() {
            return;
        }
        let is_over = |place: &Place| {
            place.shape.want().place.limits.reservation().is_some_and(|own| over.contains(&own))
        };
        for waiting in self.waiting.values() {
            let gone: Vec<Place> =
                waiting.places.iter().filter(|place| is_over(place)).cloned().collect();
            self.queue.replace(&gone, &[]);
        }
    }

    /// Advances to the next moment at which something changes. Returns false if nothing will
    /// change.
    fn advance(&mut self) -> bool {
        let end = self.running.iter().filter_map(|(running, _)| running.end.at()).min();
        let begin = self.later.first().map(|(at, _)| *at);
        // If all remaining records have a later begin time, it does not matter which jobs end.
        let is_due = |begin: &Option<Timestamp>| begin.is_none_or(|begin| begin <= self.now);
        let end = end.filter(|_| self.waiting.values().any(|one| one.begins.iter().any(is_due)));
        let Some(next) = end.into_iter().chain(begin).chain(self.next_period()).min() else {
            return false;
        };
        self.now = next.max(self.now);
        self.leave_reservations();
        let (gone, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(|(running, _)| running.end.at().is_some_and(|end| end <= next));
        self.running = left;
        for (running, array) in gone {
            self.is_estimate |= running.end.is_estimate();
            self.capacity.give(&running.part);
            self.change_load(array, -1);
            // Jobs that would have expanded it are too late.
            let late = self.waiting.extract_if(|_, one| one.expands == Some(running.id));
            late.for_each(|(_, one)| self.queue.replace(&one.places, &[]));
        }
        while let Some((_, id)) = self.later.first().copied().filter(|(at, _)| *at <= next) {
            self.later.pop_first();
            self.enter(id);
        }
        true
    }
}
