//! The last known state of the queue: a brief record of each job, and details of the jobs on the
//! screen.

use super::sorted::Sorted;
use slotd_model::host_use::HostSpan;
use slotd_model::series::StepSeries;
use slotd_model::tres::Usage;
use slotd_model::view::{JobList, JobView, NodeView};
use slotd_model::{Job, JobId, JobRef, JobState, Progress, Reason, StepId, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum number of ended records to keep. The daemon still answers queries for the others.
const MOST_ENDED: usize = 4096;

/// The current usage of a running job.
#[derive(Debug, Clone, Default)]
pub struct Now {
    at: Timestamp,
    /// The usage of each running step so far.
    pub steps: HashMap<StepId, Usage>,
    /// CPUs used between the last two readings; `None` before the second one.
    pub cpus: Option<f64>,
    /// The largest peak memory of a step, KiB.
    pub mem_kb: u64,
    /// The last reading of its GPU load, in percent of one GPU.
    pub gpu: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Picture {
    /// The brief record of each job.
    pub jobs: BTreeMap<JobId, JobView>,
    /// The full records of jobs whose details were requested.
    pub details: HashMap<JobId, JobView>,
    pub usage: HashMap<JobId, Now>,
    pub node: Option<NodeView>,
    /// The usage of the host in the last hour, and the time of that answer.
    pub host_use: Option<(Timestamp, Vec<HostSpan>)>,
    /// The usage of one job over time.
    pub over_time: Option<(JobId, Vec<StepSeries>)>,
    /// The records of each [`Place`], in order.
    lists: [Sorted<(Order, JobId)>; 3],
    arrays: HashMap<JobId, Array>,
    touched: Touched,
}

/// The changes since the last call of [`Picture::touched`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    Records(BTreeSet<JobId>),
    /// The whole picture was replaced.
    All,
}

impl Default for Touched {
    fn default() -> Touched {
        Touched::Records(BTreeSet::new())
    }
}

/// The stored facts about an array.
#[derive(Debug, Default)]
struct Array {
    records: BTreeSet<JobId>,
    progress: Progress,
}

/// The list in which a record is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Running,
    Waiting,
    Ended,
}

impl Place {
    pub const ALL: [Place; 3] = [Place::Running, Place::Waiting, Place::Ended];

    pub fn of(state: JobState) -> Place {
        match state {
            JobState::Pending => Place::Waiting,
            JobState::Running | JobState::Suspended | JobState::Completing => Place::Running,
            JobState::Ended(_) => Place::Ended,
        }
    }
}

/// The sort key of a record in its list.
pub type Order = [i64; 3];

/// Returns the sort key of a job. Running jobs are sorted by start time. Pending jobs are sorted by
/// turn, and those that wait for something else come last. The latest ended job comes first.
pub fn order(job: &Job) -> Order {
    let time = |at: Option<Timestamp>| at.map_or(i64::MAX, |at| at.0);
    let id = i64::from(job.id.0);
    match Place::of(job.run.state) {
        Place::Running => [time(job.run.start), id, 0],
        Place::Waiting => [i64::from(!waits_for_its_turn(job)), -i64::from(job.priority), id],
        Place::Ended => [-time(job.run.end), -id, 0],
    }
}

/// Returns whether a pending job waits for resources or other jobs, not for something else such as
/// a hold or a dependency.
pub fn waits_for_its_turn(job: &Job) -> bool {
    let is_for_turn = matches!(
        job.run.reason,
        Reason::None | Reason::Resources | Reason::Priority | Reason::Exclusive
    );
    job.run.state == JobState::Pending && is_for_turn
}

impl Picture {
    pub fn take(&mut self, list: JobList) {
        for view in list.whole().jobs {
            self.put(view);
        }
    }

    fn put(&mut self, view: JobView) {
        self.take_out(view.id);
        self.lists[Place::of(view.run.state) as usize].insert((order(&view), view.id));
        count(&mut self.arrays, &view);
        self.jobs.insert(view.id, view);
        let ended = &self.lists[Place::Ended as usize];
        if let Some((_, oldest)) = ended.get(MOST_ENDED) {
            self.drop(*oldest);
        }
    }

    fn take_out(&mut self, id: JobId) {
        if let Touched::Records(touched) = &mut self.touched {
            touched.insert(id);
        }
        let Some(known) = self.jobs.remove(&id) else { return };
        self.lists[Place::of(known.run.state) as usize].remove(&(order(&known), id));
        let Some(of) = known.array_job_id() else { return };
        if let Some(array) = self.arrays.get_mut(&of) {
            array.records.remove(&id);
            array.progress -= Progress::of(&known);
            if array.records.is_empty() {
                self.arrays.remove(&of);
            }
        }
    }

    /// Removes a deleted record.
    pub fn drop(&mut self, id: JobId) {
        self.take_out(id);
        self.details.remove(&id);
        self.usage.remove(&id);
    }

    /// Replaces the queue with these records, and keeps the details of jobs that still exist.
    pub fn replace(&mut self, jobs: Vec<JobView>) {
        self.jobs = jobs.into_iter().map(|job| (job.id, job)).collect();
        self.arrays.clear();
        let mut lists: [Vec<(Order, JobId)>; 3] = Default::default();
        for job in self.jobs.values() {
            lists[Place::of(job.run.state) as usize].push((order(job), job.id));
            count(&mut self.arrays, job);
        }
        self.lists = lists.map(Sorted::of);
        self.details.retain(|id, _| self.jobs.contains_key(id));
        self.usage.retain(|id, _| self.jobs.contains_key(id));
        let whole: Vec<(JobId, usize)> = self.details.values().filter_map(tasks_of_array).collect();
        whole.into_iter().for_each(|(array, tasks)| self.note_total(array, tasks));
        self.touched = Touched::All;
    }

    /// Returns the changes since the last call.
    pub fn touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }

    fn note_total(&mut self, array: JobId, tasks: usize) {
        if let Some(array) = self.arrays.get_mut(&array) {
            array.progress.total = tasks;
        }
    }

    /// Returns the first record of an array.
    pub fn first_of(&self, array: JobId) -> Option<JobId> {
        self.arrays.get(&array)?.records.first().copied()
    }

    pub fn take_details(&mut self, list: JobList) {
        for view in list.jobs {
            let Some(known) = self.jobs.get(&view.id) else { continue };
            if known.run.reason != view.run.reason {
                // The reason can change without a notified change of the record.
                let mut known = known.clone();
                known.run.reason = view.run.reason;
                self.put(known);
            }
            if let Some((array, tasks)) = tasks_of_array(&view) {
                self.note_total(array, tasks);
            }
            self.details.insert(view.id, view);
        }
    }

    /// Stores the current usage of running steps.
    pub fn take_usage(&mut self, list: &JobList) {
        for job in &list.jobs {
            let steps: HashMap<StepId, Usage> =
                job.steps.iter().map(|step| (step.id, step.usage)).collect();
            let known = self.usage.get(&job.id);
            let now = reading(known, list.now, steps);
            self.usage.insert(job.id, now);
        }
    }

    /// Returns the usage of a job over time, if it is known.
    pub fn series(&self, id: JobId) -> &[StepSeries] {
        self.over_time.as_ref().filter(|(of, _)| *of == id).map_or(&[], |(_, steps)| steps)
    }

    /// Returns the full record of a job if it is known, and otherwise the brief one.
    pub fn detailed(&self, id: JobId) -> Option<&JobView> {
        self.details.get(&id).or_else(|| self.jobs.get(&id))
    }

    /// Returns the records of a list, in order.
    pub fn list(&self, place: Place) -> impl ExactSizeIterator<Item = &JobView> {
        self.lists[place as usize].iter().map(|(_, id)| &self.jobs[id])
    }

    pub fn running(&self) -> impl Iterator<Item = &JobView> {
        self.list(Place::Running)
    }

    /// Returns the position of a job among the pending jobs, from 1; `None` unless it waits for its
    /// turn.
    pub fn turn(&self, id: JobId) -> Option<usize> {
        let job = self.jobs.get(&id).filter(|job| waits_for_its_turn(job))?;
        Some(self.lists[Place::Waiting as usize].place(&(order(job), id))? + 1)
    }

    /// Returns the progress of an array.
    pub fn progress(&self, array: JobId) -> Progress {
        self.arrays.get(&array).map(|array| array.progress).unwrap_or_default()
    }
}

fn count(arrays: &mut HashMap<JobId, Array>, job: &JobView) {
    if let Some(id) = job.array_job_id() {
        let array = arrays.entry(id).or_default();
        array.records.insert(job.id);
        array.progress += Progress::of(job);
        if let Some(spec) = &job.request.array {
            array.progress.total = spec.tasks.len();
        }
    }
}

/// Returns the array of a record and the number of tasks at submission.
fn tasks_of_array(job: &JobView) -> Option<(JobId, usize)> {
    Some((job.array_job_id()?, job.request.array.as_ref()?.tasks.len()))
}

fn reading(known: Option<&Now>, at: Timestamp, steps: HashMap<StepId, Usage>) -> Now {
    let busy = |usage: &Usage| usage.user_us.saturating_add(usage.system_us);
    let cpus = known.and_then(|known| {
        let passed = at.since(known.at).as_micros();
        let spent: u64 = steps
            .iter()
            .filter_map(|(id, now)| Some(busy(now).saturating_sub(busy(known.steps.get(id)?))))
            .sum();
        (passed > 0 && !known.steps.is_empty()).then(|| spent as f64 / passed as f64)
    });
    let gpu = steps.iter().filter_map(|(id, usage)| {
        let before =
            known.and_then(|known| known.steps.get(id)).map(|usage| usage.gpu).unwrap_or_default();
        let readings = usage.gpu.readings.saturating_sub(before.readings);
        usage.gpu.busy_sum.saturating_sub(before.busy_sum).checked_div(readings)
    });
    let gpu = gpu.max().or(known.and_then(|known| known.gpu));
    Now {
        at,
        cpus,
        mem_kb: steps.values().map(|usage| usage.max_rss_kb).max().unwrap_or(0),
        gpu,
        steps,
    }
}

/// Returns the job or array task by which commands refer to this record.
pub fn named(picture: &Picture, id: JobId) -> JobRef {
    picture.jobs.get(&id).map_or_else(|| JobRef::job(id), |job| job.own_ref())
}

/// Returns the label of a job: `12`, `12_3`, `12_[4-99]`.
pub fn label(job: &Job) -> String {
    job.full_label()
}
