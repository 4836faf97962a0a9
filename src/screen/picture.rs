//! The queue as it was last told of: a record each, with more of those that are looked at.

use crate::model::series::StepSeries;
use crate::model::tres::Usage;
use crate::model::view::{JobList, JobView, NodeView};
use crate::model::{ArrayRole, Job, JobId, JobRef, JobState, StepId, Timestamp};
use std::collections::{BTreeMap, HashMap};

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
    /// What one job used over time.
    pub over_time: Option<(JobId, Vec<StepSeries>)>,
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
            JobState::Completed
            | JobState::Failed
            | JobState::Cancelled
            | JobState::Timeout
            | JobState::OutOfMemory
            | JobState::NodeFail => Place::Ended,
        }
    }
}

/// How far an array is, in tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    pub waiting: usize,
    pub running: usize,
    pub ended: usize,
    pub failed: usize,
    /// All that there were, where it is known.
    pub total: Option<usize>,
}

impl Progress {
    /// Of all its tasks those that are over.
    pub fn done(&self) -> usize {
        self.total.map_or(self.ended, |total| total.saturating_sub(self.waiting + self.running))
    }

    pub fn all(&self) -> usize {
        self.total.unwrap_or(self.waiting + self.running + self.ended)
    }
}

impl Picture {
    pub fn take(&mut self, list: JobList) {
        for view in list.whole().jobs {
            self.jobs.insert(view.id, view);
        }
    }

    /// Of a record that is no more.
    pub fn drop(&mut self, id: JobId) {
        self.jobs.remove(&id);
        self.details.remove(&id);
        self.usage.remove(&id);
    }

    pub fn take_details(&mut self, list: JobList) {
        for view in list.jobs {
            if let Some(known) = self.jobs.get_mut(&view.id) {
                // It may wait for another reason, which no change of its record told of.
                known.run.reason = view.run.reason;
                self.details.insert(view.id, view);
            }
        }
    }

    /// What running steps use now.
    pub fn take_usage(&mut self, list: &JobList) {
        for job in &list.jobs {
            let steps: HashMap<StepId, Usage> = job.steps.iter().map(|step| (step.id, step.usage)).collect();
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
        self.jobs.values().filter(|job| job.run.state.is_active())
    }

    /// How far this array is.
    pub fn progress(&self, array: JobId) -> Progress {
        let mut progress = Progress::default();
        for job in self.jobs.values().filter(|job| job.array_job_id() == Some(array)) {
            match Place::of(job.run.state) {
                Place::Waiting => progress.waiting += job.pending_tasks(),
                Place::Running => progress.running += 1,
                Place::Ended => {
                    let tasks = job.compact_tasks().map_or(1, crate::model::TaskSet::len);
                    progress.ended += tasks;
                    progress.failed += if job.run.state == JobState::Completed { 0 } else { tasks };
                }
            }
            let whole = self.details.get(&job.id).and_then(|job| job.request.array.as_ref());
            progress.total = progress.total.or(whole.map(|array| array.tasks.len()));
        }
        progress
    }
}

fn reading(known: Option<&Now>, at: Timestamp, steps: HashMap<StepId, Usage>) -> Now {
    let busy = |usage: &Usage| usage.user_us.saturating_add(usage.system_us);
    let cpus = known.and_then(|known| {
        let passed = at.since(known.at).as_micros();
        let spent: u64 =
            steps.iter().filter_map(|(id, now)| Some(busy(now).saturating_sub(busy(known.steps.get(id)?)))).sum();
        (passed > 0 && !known.steps.is_empty()).then(|| spent as f64 / passed as f64)
    });
    let gpu = steps.iter().filter_map(|(id, usage)| {
        let before = known.and_then(|known| known.steps.get(id)).map(|usage| usage.gpu).unwrap_or_default();
        let readings = usage.gpu.readings.saturating_sub(before.readings);
        usage.gpu.busy_sum.saturating_sub(before.busy_sum).checked_div(readings)
    });
    let gpu = gpu.max().or(known.and_then(|known| known.gpu));
    Now { at, cpus, mem_kb: steps.values().map(|usage| usage.max_rss_kb).max().unwrap_or(0), gpu, steps }
}

/// The name by which commands mean this record.
pub fn named(picture: &Picture, id: JobId) -> JobRef {
    picture.jobs.get(&id).map_or_else(|| JobRef::job(id), |job| job.own_ref())
}

/// `12`, `12_3`, `12_[4-99]`.
pub fn label(job: &Job) -> String {
    match &job.role {
        ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => {
            let array = job.array_job_id().unwrap_or(job.id);
            match tasks.single() {
                Some(task) => format!("{array}_{task}"),
                None => format!("{array}_[{tasks}]"),
            }
        }
        ArrayRole::None | ArrayRole::Task { .. } => job.label(),
    }
}
