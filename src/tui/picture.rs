//! The queue as it was last told of: a record each, with more of those that are looked at.

use crate::model::host_use::HostSpan;
use crate::model::series::StepSeries;
use crate::model::tres::Usage;
use crate::model::view::{JobList, JobView, NodeView};
use crate::model::{Job, JobId, JobRef, JobState, Progress, StepId, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a running job uses at the moment.
#[derive(Debug, Clone, Default)]
pub struct Now {
    at: Timestamp,
    steps: HashMap<StepId, Usage>,
    /// CPUs that were busy with it between the last two readings; `None` before there are two.
    pub cpus: Option<f64>,
    /// The most memory that a step of it has had, KiB.
    pub mem_kb: u64,
    /// How busy its GPUs were when last read, percent of one.
    pub gpu: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Picture {
    /// What listings tell of each record.
    pub jobs: BTreeMap<JobId, JobView>,
    /// All of those that were looked at more closely.
    pub details: HashMap<JobId, JobView>,
    pub usage: HashMap<JobId, Now>,
    pub node: Option<NodeView>,
    /// What the host used in the last hour, and when that was told.
    pub host_use: Option<(Timestamp, Vec<HostSpan>)>,
    /// What one job used over time.
    pub over_time: Option<(JobId, Vec<StepSeries>)>,
    running: BTreeSet<JobId>,
    arrays: HashMap<JobId, Array>,
    touched: Touched,
}

/// What of the picture is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    Records(BTreeSet<JobId>),
    /// It is another picture.
    All,
}

impl Default for Touched {
    fn default() -> Touched {
        Touched::Records(BTreeSet::new())
    }
}

/// What is known of an array.
#[derive(Debug, Default)]
struct Array {
    records: BTreeSet<JobId>,
    progress: Progress,
}

/// Where a record is shown.
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

impl Picture {
    pub fn take(&mut self, list: JobList) {
        for view in list.whole().jobs {
            self.put(view);
        }
    }

    fn put(&mut self, view: JobView) {
        self.take_out(view.id);
        if view.run.state.is_active() {
            self.running.insert(view.id);
        }
        if let Some(id) = view.array_job_id() {
            let array = self.arrays.entry(id).or_default();
            array.records.insert(view.id);
            array.progress += Progress::of(&view);
        }
        self.jobs.insert(view.id, view);
    }

    fn take_out(&mut self, id: JobId) {
        if let Touched::Records(touched) = &mut self.touched {
            touched.insert(id);
        }
        let Some(known) = self.jobs.remove(&id) else { return };
        self.running.remove(&id);
        let Some(of) = known.array_job_id() else { return };
        if let Some(array) = self.arrays.get_mut(&of) {
            array.records.remove(&id);
            array.progress -= Progress::of(&known);
            if array.records.is_empty() {
                self.arrays.remove(&of);
            }
        }
    }

    /// Of a record that is no more.
    pub fn drop(&mut self, id: JobId) {
        self.take_out(id);
        self.details.remove(&id);
        self.usage.remove(&id);
    }

    /// Has the queue of another picture, and what is known already of its jobs.
    pub fn become_as(&mut self, other: Picture) {
        (self.jobs, self.running, self.arrays) = (other.jobs, other.running, other.arrays);
        self.details.retain(|id, _| self.jobs.contains_key(id));
        self.usage.retain(|id, _| self.jobs.contains_key(id));
        let whole: Vec<(JobId, usize)> = self.details.values().filter_map(tasks_of_array).collect();
        whole.into_iter().for_each(|(array, tasks)| self.note_total(array, tasks));
        self.touched = Touched::All;
    }

    /// What is not as it was when this was last asked.
    pub fn touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }

    fn note_total(&mut self, array: JobId, tasks: usize) {
        if let Some(array) = self.arrays.get_mut(&array) {
            array.progress.total = tasks;
        }
    }

    /// The first record of an array.
    pub fn first_of(&self, array: JobId) -> Option<JobId> {
        self.arrays.get(&array)?.records.first().copied()
    }

    pub fn take_details(&mut self, list: JobList) {
        for view in list.jobs {
            let Some(known) = self.jobs.get_mut(&view.id) else { continue };
            if known.run.reason != view.run.reason {
                // It may wait for another reason, which no change of its record told of.
                known.run.reason = view.run.reason;
                if let Touched::Records(touched) = &mut self.touched {
                    touched.insert(view.id);
                }
            }
            if let Some((array, tasks)) = tasks_of_array(&view) {
                self.note_total(array, tasks);
            }
            self.details.insert(view.id, view);
        }
    }

    /// What running steps use now.
    pub fn take_usage(&mut self, list: &JobList) {
        for job in &list.jobs {
            let steps: HashMap<StepId, Usage> =
                job.steps.iter().map(|step| (step.id, step.usage)).collect();
            let known = self.usage.get(&job.id);
            let now = reading(known, list.now, steps);
            self.usage.insert(job.id, now);
        }
    }

    /// What a job used over time, as far as it is known.
    pub fn series(&self, id: JobId) -> &[StepSeries] {
        self.over_time.as_ref().filter(|(of, _)| *of == id).map_or(&[], |(_, steps)| steps)
    }

    /// With all that is known of it.
    pub fn detailed(&self, id: JobId) -> Option<&JobView> {
        self.details.get(&id).or_else(|| self.jobs.get(&id))
    }

    pub fn running(&self) -> impl Iterator<Item = &JobView> {
        self.running.iter().filter_map(|id| self.jobs.get(id))
    }

    /// How far this array is.
    pub fn progress(&self, array: JobId) -> Progress {
        self.arrays.get(&array).map(|array| array.progress).unwrap_or_default()
    }
}

/// The array of a record, and how many tasks it was submitted with.
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

/// The name by which commands mean this record.
pub fn named(picture: &Picture, id: JobId) -> JobRef {
    picture.jobs.get(&id).map_or_else(|| JobRef::job(id), |job| job.own_ref())
}

/// `12`, `12_3`, `12_[4-99]`.
pub fn label(job: &Job) -> String {
    job.full_label()
}
