//! A job record with its life so far.

use crate::model::array::TaskSet;
use crate::model::request::JobKind;
use crate::model::run::RunState;
use crate::model::{
    BootId, ClockBase, JobId, JobRequest, JobState, Step, StepId, Timestamp, Tres, is_default,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a record has to do with an array.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ArrayRole {
    #[default]
    None,
    /// All tasks of the array that have not been split off yet, as one record.
    Rest {
        tasks: TaskSet,
        /// At most so many tasks of the array at once.
        limit: Option<u32>,
    },
    /// One task with a record of its own.
    Task { array_job: JobId, task: u32 },
    /// Several tasks that were held, changed or cancelled together before they started: a compact
    /// record like `Rest`, with a number of its own.
    Part { array_job: JobId, tasks: TaskSet },
}

/// Who holds a pending job back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub enum Hold {
    #[default]
    No,
    User,
    Admin,
}

/// A process, for ever.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize,
)]
pub struct ClientProcess {
    pub pid: u32,
    /// Field 22 of `/proc/pid/stat`: tells a later process with the same pid apart.
    pub start_ticks: u64,
    /// Both of them begin anew with each boot.
    #[serde(default, skip_serializing_if = "is_default")]
    pub boot: BootId,
}

/// The process that made a submission. Its name is also that of the submission: one process makes
/// one, so that a submission that is made again, since no answer came to the first, is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct Client {
    #[serde(flatten)]
    pub process: ClientProcess,
    /// The allocation lives and dies with it (salloc, srun), rather than being left to itself
    /// (sbatch).
    #[serde(default = "yes")]
    pub holds: bool,
    /// But only while it waits: once it runs, it is left to itself (`salloc --no-shell`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub until_granted: bool,
}

/// Records that an earlier slotd wrote have clients that hold their allocation, and no others.
fn yes() -> bool {
    true
}

/// Launches that came to nothing through no fault that is known to be the job's. They count until
/// one works, or the job is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FailedLaunches {
    /// The daemon died meanwhile.
    pub deaths: u32,
    /// The host could not do it, though it could before.
    pub faults: u32,
}

/// A job record: a plain job, the rest of an array, an array task, or an allocation.
///
/// `request` is shared by all records of an array, so that a task costs little more than its own
/// state.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    pub role: ArrayRole,
    /// The array as submitted: for `SLURM_ARRAY_TASK_COUNT` and its like.
    #[serde(default, with = "arc", skip_serializing_if = "is_default")]
    pub request: Arc<JobRequest>,
    /// Where it runs, or all that it waits for, with commas between them.
    pub partition: String,
    /// What is reserved while it runs.
    pub tres: Tres,
    pub priority: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub hold: Hold,
    pub submit: Timestamp,
    /// The number that its next step gets.
    #[serde(default, skip_serializing_if = "is_default")]
    pub next_step: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Client>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed_launches: FailedLaunches,
    /// How its present run goes, or its last one went.
    pub run: RunState,
    #[serde(default, skip_serializing_if = "is_default")]
    pub steps: Vec<Step>,
}

impl ArrayRole {
    /// The number of the array that the record `own` belongs to.
    pub fn array_job(&self, own: JobId) -> Option<JobId> {
        match self {
            ArrayRole::None => None,
            ArrayRole::Rest { .. } => Some(own),
            ArrayRole::Task { array_job, .. } | ArrayRole::Part { array_job, .. } => {
                Some(*array_job)
            }
        }
    }

    /// The array tasks that a record with this role stands for.
    pub fn tasks(&self) -> TaskSet {
        match self {
            ArrayRole::None => TaskSet::new(),
            ArrayRole::Task { task, .. } => TaskSet::one(*task),
            ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => tasks.clone(),
        }
    }
}

impl Job {
    /// The step that stands for the script (`12.batch`) or the command of `srun --no-wait`
    /// (`12.0`), which begins and ends with the job. `None` for allocations.
    pub fn own_step_id(&self) -> Option<StepId> {
        match self.request.kind {
            JobKind::Batch => Some(StepId::Batch),
            JobKind::Run => Some(StepId::Num(0)),
            JobKind::Allocation => None,
        }
    }

    /// The number of the first step that srun makes in it.
    pub fn first_step(&self) -> u32 {
        u32::from(self.request.kind == JobKind::Run)
    }

    /// The partitions that it may go to: one, once it runs.
    pub fn partitions(&self) -> impl Iterator<Item = &str> {
        self.partition.split(',')
    }

    /// Whether it is open which partition it goes to.
    pub fn has_several_partitions(&self) -> bool {
        self.partition.contains(',')
    }

    /// The number that the user knows the job by: the array's for array records.
    pub fn array_job_id(&self) -> Option<JobId> {
        self.role.array_job(self.id)
    }

    /// As users name it: `12`, or `12_3` for an array task.
    pub fn label(&self) -> String {
        match &self.role {
            ArrayRole::Task { array_job, task } => format!("{array_job}_{task}"),
            ArrayRole::None | ArrayRole::Rest { .. } | ArrayRole::Part { .. } => {
                self.id.to_string()
            }
        }
    }

    /// The same with the tasks of a record that stands for several: `12_[4-99]`.
    pub fn full_label(&self) -> String {
        match &self.role {
            ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => {
                let array = self.array_job_id().unwrap_or(self.id);
                match tasks.single() {
                    Some(task) => format!("{array}_{task}"),
                    None => format!("{array}_[{tasks}]"),
                }
            }
            ArrayRole::None | ArrayRole::Task { .. } => self.label(),
        }
    }

    /// The record without its steps: a copy of a thousand steps for a launch or a query that does
    /// not look at them would cost more than the rest.
    pub fn without_steps(&self) -> Job {
        Job {
            id: self.id,
            role: self.role.clone(),
            request: Arc::clone(&self.request),
            partition: self.partition.clone(),
            tres: self.tres,
            priority: self.priority,
            hold: self.hold,
            submit: self.submit,
            next_step: self.next_step,
            client: self.client,
            failed_launches: self.failed_launches,
            run: self.run.clone(),
            steps: Vec::new(),
        }
    }

    /// Takes note of the clocks as they stand now, for its run and the steps that are not over.
    pub fn catch_up(&mut self, clock: ClockBase) {
        self.run.catch_up(clock);
        self.steps
            .iter_mut()
            .filter(|step| step.end.is_none())
            .for_each(|step| step.catch_up(clock));
    }

    /// Whether `--requeue` lets it run again, once. Neither an allocation does, nor a job that was
    /// cancelled. After which ends it does so is a setting of the daemon.
    pub fn runs_again(&self) -> bool {
        let request = &self.request;
        let is_asked = request.requeue && !request.no_requeue;
        let is_wanted = is_asked && self.run.cancelled_by.is_none();
        is_wanted && request.kind != JobKind::Allocation && self.run.restarts == 0
    }

    /// When a pending job has to have started, or a running one to have ended, because of
    /// `--deadline`. A pending job whose least time no longer fits before the deadline has missed
    /// it already (sbatch man page).
    pub fn deadline(&self) -> Option<Timestamp> {
        let deadline = self.request.deadline?;
        if self.run.state != JobState::Pending {
            return Some(deadline);
        }
        let needs = self.request.time_min_secs.or(self.request.time_limit_secs).unwrap_or(0);
        let micros = i64::try_from(needs).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        Some(deadline.plus_us(micros.saturating_neg()))
    }

    /// Whether its `--deadline` can no longer be kept.
    pub fn is_late(&self, now: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// The process that the allocation lives and dies with now.
    pub fn holder(&self) -> Option<ClientProcess> {
        let holds = |client: &Client| {
            client.holds && (!client.until_granted || self.run.state == JobState::Pending)
        };
        self.client.filter(holds).map(|client| client.process)
    }

    /// The array tasks of a compact record.
    pub fn compact_tasks(&self) -> Option<&TaskSet> {
        match &self.role {
            ArrayRole::None | ArrayRole::Task { .. } => None,
            ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => Some(tasks),
        }
    }

    /// How many jobs the record stands for: 1, or the array tasks of a compact one.
    pub fn weight(&self) -> usize {
        self.compact_tasks().map_or(1, TaskSet::len)
    }

    /// Tasks that may still start from this record: 1 but for the rest of an array.
    pub fn pending_tasks(&self) -> usize {
        if self.run.state == JobState::Pending { self.weight() } else { 0 }
    }
}

mod arc {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::sync::Arc;

    pub fn serialize<T: Serialize, S: Serializer>(value: &Arc<T>, s: S) -> Result<S::Ok, S::Error> {
        T::serialize(value, s)
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(d).map(Arc::new)
    }
}
