//! The interface between the core and its caller: facts and commands in, changes and effects out.

use super::resources::machine::Capacities;
use slotd_model::batch_tasks::BatchTasks;
use slotd_model::change::{Change, LaunchTexts};
use slotd_model::job::{Client, ClientProcess};
use slotd_model::license::License;
use slotd_model::limit::Limit;
use slotd_model::notice::{Audience, Notice};
use slotd_model::partition::Host;
use slotd_model::qos::Qos;
use slotd_model::reservation::{self, Reservation};
use slotd_model::resize::PartChange;
use slotd_model::tres::Allocation;
use slotd_model::{
    ArrayRole, End, ExitRecord, Job, JobId, JobRequest, JobState, Partition, Refusal, StepId,
    StepKey, StepRequest, Timestamp,
};
use slotd_parse::hours::Zone;
use std::time::Duration;

/// Facts about the host, and its settings.
#[derive(Debug, Clone)]
pub struct Config {
    pub host: Host,
    /// The share of the machine's CPUs and memory that jobs may use.
    pub capacities: Capacities,
    /// In configuration order, with the default marked. GPU partitions are left out on a host
    /// without GPUs.
    pub partitions: Vec<Partition>,
    /// All partitions, including those left out of `partitions`.
    pub all_partitions: Vec<Partition>,
    /// Joint limits on the jobs of an account or with a given name.
    pub limits: Vec<Limit>,
    /// The licenses, ordered by name.
    pub licenses: Vec<License>,
    /// The QOS, the default one first.
    pub qos: Vec<Qos>,
    /// The reservations, ordered by number. They are not configured, but kept here.
    pub reservations: Vec<Reservation>,
    /// The time zone of the partitions' allowed hours.
    pub zone: Zone,
    /// The memory of a job that requests none, in MB.
    pub default_mem_mb: u64,
    pub batch_tasks: BatchTasks,
    /// With `--requeue`, also rerun a job once after its own failure, not only after a node
    /// failure.
    pub reruns_failed: bool,
    /// The time that an ended job stays in memory, in seconds (Slurm `MinJobAge`: 300).
    pub min_job_age_secs: u64,
    pub cluster: String,
    /// The largest array task ID plus one (Slurm `MaxArraySize`).
    pub max_array_size: u32,
    /// The most tasks per step (Slurm `MaxTasksPerNode`).
    pub max_tasks: u32,
    /// Whether GPU usage can be read.
    pub reads_gpus: bool,
    /// Allocate no GPU that is used by processes outside jobs.
    pub avoids_used_gpus: bool,
    /// Allocate no CPUs that are used by processes outside jobs.
    pub avoids_used_cpus: bool,
    /// The recipients of notifications about the queue.
    pub audience: Audience,
}

impl Config {
    /// Replaces the partitions. GPU partitions are visible if the host has GPUs, or may turn out to
    /// have some.
    pub fn set_partitions(&mut self, all: Vec<Partition>) {
        let may_have_gpus = self.host.has_gpus() || self.host.detects_gpus;
        self.partitions =
            all.iter().filter(|partition| may_have_gpus || !partition.is_gpu).cloned().collect();
        // Without an explicit default, the first one is the default.
        if !self.partitions.iter().any(|partition| partition.is_default)
            && let Some(first) = self.partitions.first_mut()
        {
            first.is_default = true;
        }
        self.all_partitions = all;
    }

    /// Returns the priority of a job's QOS, or 0 if the job requests a priority.
    pub(crate) fn qos_priority(&self, request: &JobRequest) -> u32 {
        let qos = self.qos_of(request).filter(|_| request.priority.is_none());
        qos.map_or(0, |qos| qos.priority)
    }

    /// Returns the time limit of a job in this partition. The longest time that its QOS allows is
    /// the limit of a job that requests none.
    pub(crate) fn limit_for(&self, request: &JobRequest, partition: &Partition) -> Option<u64> {
        let own = partition.limit_for(request.time_limit_secs);
        let most = self.qos_of(request).and_then(|qos| qos.max_wall_secs);
        match request.time_limit_secs {
            None => own.into_iter().chain(most).min(),
            Some(_) => own,
        }
    }

    /// Returns whether the owner has defined QOS. Otherwise a job may name any, which is only
    /// stored and shown, as in Slurm without `AccountingStorageEnforce=qos`.
    pub fn enforces_qos(&self) -> bool {
        !self.qos.iter().all(Qos::is_plain_default)
    }

    /// Returns the index of a job's QOS, or `None` if it does not exist.
    pub(crate) fn qos_index(&self, request: &JobRequest) -> Option<usize> {
        let default = (!self.qos.is_empty()).then_some(0);
        match &request.qos {
            Some(name) if self.enforces_qos() => self.qos.iter().position(|qos| qos.name == *name),
            Some(_) | None => default,
        }
    }

    /// Returns the first reservation that a job names, or `None` if it does not exist.
    pub(crate) fn reservation_of(&self, request: &JobRequest) -> Option<&Reservation> {
        self.reservation(reservation::names(request).next()?)
    }

    /// Returns the index of a partition, by default of the default one.
    pub(crate) fn partition_index(&self, name: Option<&str>) -> Option<usize> {
        self.partitions.iter().position(|known| match name {
            Some(name) => known.name == name,
            None => known.is_default,
        })
    }

    pub fn reservation(&self, name: &str) -> Option<&Reservation> {
        self.reservations.iter().find(|known| known.name == name)
    }

    /// Returns a job's QOS, or `None` if it does not exist.
    pub(crate) fn qos_of(&self, request: &JobRequest) -> Option<&Qos> {
        self.qos.get(self.qos_index(request)?)
    }
}

/// The result of a fact or a command. `changes` are committed first. `effects` are carried out
/// after the commit, except those that end or signal running processes, which need not wait.
#[derive(Debug, Default)]
pub struct Outbox {
    pub changes: Vec<Change>,
    pub effects: Vec<Effect>,
}

/// The context of one decision: the time at which it is made, and its results.
#[derive(Debug)]
pub struct Cx {
    pub now: Timestamp,
    pub out: Outbox,
}

impl Cx {
    pub fn at(now: Timestamp) -> Cx {
        Cx { now, out: Outbox::default() }
    }
}

/// An action for the caller. The core relies on each one being answered by the fact named here.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Start the processes of a batch or run job, which is RUNNING with its allocation. Answer:
    /// `on_job_ended`, also when the launch fails.
    Launch(Box<Job>),
    /// An allocation is running: create its runner and notify its client. Answer:
    /// `release_allocation`, `client_lost` or `on_job_ended`.
    Granted(JobId),
    /// Run the kill ladder on all processes of the job. Answer: `on_job_ended`, even if there was
    /// nothing left to kill.
    Stop { job: JobId, cause: StopCause },
    /// Run the kill ladder on one step. Answer: `on_step_ended`.
    StopStep { step: StepKey, cause: StopCause },
    /// Send a signal. No answer.
    Signal { job: JobId, target: SignalTarget, signal: i32 },
    /// Stop the job's processes and its clock. No answer.
    Suspend(JobId),
    /// Continue the job's processes and its clock. No answer.
    Resume(JobId),
    /// The time limit of a running job has changed. `limit_secs` counts from `start`, excluding
    /// suspended time (`suspended_us` so far); `None` is unlimited.
    SetTimeLimit { job: JobId, limit_secs: Option<u64>, start: Timestamp, suspended_us: u64 },
    /// The time limit of a running step has changed: it has this time left, or no limit of its own.
    /// No answer.
    SetStepLimit { step: StepKey, left: Option<Duration> },
    /// A waiting step has its resources. The session keeps its launch data under this ticket.
    LaunchStep { step: StepKey, ticket: u64, alloc: Allocation },
    /// The resources or the time limit of a job with a step manager have changed.
    ManagerChanged(JobId, PartChange),
    /// The resources of a running job have changed: confine its processes to the new ones.
    Resized(JobId),
    /// The set of the job's resources that are out of use has changed: its step manager must stop
    /// using them.
    PartsOut(JobId),
    /// Part of the job's resources is out of use: send the signal requested with `--signal`. No
    /// answer.
    Warn(JobId),
    /// The grace time of a preempted job begins: send it SIGCONT and SIGTERM. No answer.
    Preempt(JobId),
    /// A waiting step can never start, because its job is ending.
    StepRefused { ticket: u64, refusal: Refusal },
    /// A record, possibly an array task, reached a terminal state: notify its waiters. A runner
    /// that still exists for it has nothing left to do.
    Ended(JobId),
    /// A job that ran is PENDING again, and its runner is finished with it.
    Requeued(JobId),
    /// Send a notification, usually about a job (for an array, the array's ID). No answer.
    Notify { job: Option<JobId>, notice: Box<Notice> },
    /// The record left the core's memory; it is still in the store.
    Gone(JobId),
}

impl Effect {
    /// Returns the effect that sets the job's current time limit, or `None` if it has not started.
    pub(crate) fn set_time_limit(job: &Job) -> Option<Effect> {
        let (limit_secs, suspended_us) = (job.request.time_limit_secs, job.run.suspended_us);
        Some(Effect::SetTimeLimit { job: job.id, limit_secs, start: job.run.start?, suspended_us })
    }

    /// Returns the job that the effect is about, if it names one.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Effect::Launch(job) => Some(job.id),
            Effect::Granted(job) | Effect::Suspend(job) | Effect::Resume(job) => Some(*job),
            Effect::ManagerChanged(job, _) | Effect::Resized(job) => Some(*job),
            Effect::PartsOut(job) | Effect::Warn(job) | Effect::Preempt(job) => Some(*job),
            Effect::Stop { job, .. }
            | Effect::Signal { job, .. }
            | Effect::SetTimeLimit { job, .. } => Some(*job),
            Effect::LaunchStep { step, .. }
            | Effect::StopStep { step, .. }
            | Effect::SetStepLimit { step, .. } => Some(step.job),
            Effect::Ended(job) | Effect::Requeued(job) | Effect::Gone(job) => Some(*job),
            Effect::Notify { job, .. } => *job,
            Effect::StepRefused { .. } => None,
        }
    }
}

/// The reason for stopping processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopCause {
    /// `scancel` by this user.
    Cancelled { by: u32 },
    /// `scancel -s KILL`: no grace period.
    Killed { by: u32 },
    /// `scontrol requeue`.
    Requeue,
    /// The client that held the allocation has exited.
    ClientLost,
    /// The allocation was released while steps were running in it.
    Released,
    /// `--deadline` has passed.
    Deadline,
    /// Its time limit was reached.
    TimeLimit,
    /// The host is shutting down.
    NodeDown,
    /// It makes room for a more important job.
    Preempted,
}

impl StopCause {
    /// Returns the UID of the user who cancelled the job or step.
    pub fn by(self) -> Option<u32> {
        match self {
            StopCause::Cancelled { by } | StopCause::Killed { by } => Some(by),
            _ => None,
        }
    }
}

/// The processes that receive a signal (scancel man page: plain, `--batch`, `--full`, and a step
/// ID).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignalTarget {
    /// The steps, or the whole job if it has no steps.
    Steps,
    Batch,
    Full,
    Step(StepId),
}

/// A job to be submitted to the queue.
#[derive(Debug, Clone, Default)]
pub struct Submission {
    pub request: JobRequest,
    pub texts: LaunchTexts,
    pub client: Option<Client>,
    /// The store's records of the jobs that the dependency names (see [`dependency_targets`]). Jobs
    /// that are still in memory may be omitted.
    ///
    /// [`dependency_targets`]: crate::dependency_targets
    pub ended: Vec<EndedJob>,
    /// The step that the holder of an allocation will launch first.
    pub first_step: Option<Box<StepRequest>>,
}

/// An ended job, as the store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedJob {
    pub id: JobId,
    /// For an array task, the array and the task ID.
    pub array: Option<(JobId, u32)>,
    /// COMPLETED with exit code 0.
    pub ok: bool,
    /// When it began to run; `None` if it never did.
    pub start: Option<Timestamp>,
    pub ended: Timestamp,
}

impl EndedJob {
    /// Returns the facts in a record, with one entry per array task; none if it has not ended. Tasks
    /// that ended together before they started share a record.
    pub fn of(job: &Job) -> Vec<EndedJob> {
        let Some(ended) = job.run.end.filter(|_| job.run.state.is_terminal()) else {
            return Vec::new();
        };
        let fact = EndedJob {
            id: job.id,
            array: None,
            ok: job.run.state == JobState::Ended(End::Completed),
            start: job.run.start,
            ended,
        };
        let array = job.array_job_id().unwrap_or(job.id);
        let of_task = |task| EndedJob { array: Some((array, task)), ..fact };
        match (&job.role, job.compact_tasks()) {
            (ArrayRole::Task { task, .. }, _) => vec![of_task(*task)],
            (_, Some(tasks)) => tasks.iter().map(of_task).collect(),
            (_, None) => vec![fact],
        }
    }
}

/// How the processes of a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndCause {
    /// They exited on their own, with this exit code.
    Exited,
    /// The kill ladder ran because of the time limit.
    TimeLimit,
    OutOfMemory,
    /// Files could not be opened, the cgroup could not be created, …: no user process ran.
    LaunchFailed,
    /// The host could not start them (out of disk space, out of processes). No user process ran,
    /// and the job is not at fault. The record names the fault.
    HostFault,
    /// The process that watched them died, so it is unknown how they ended.
    RunnerLost,
    /// The machine went down: processes of an earlier boot no longer run.
    NodeFailed,
    /// The daemon restarted between its decision and the launch: nothing ran, and nothing will
    /// without a new launch.
    NeverLaunched,
    /// The kill ladder of an [`Effect::Stop`] ran.
    Stopped,
}

impl EndCause {
    /// Returns the cause recorded by the process that watched the job.
    pub fn of(record: &ExitRecord) -> EndCause {
        if record.host_fault.is_some() {
            EndCause::HostFault
        } else if record.launch_error.is_some() {
            EndCause::LaunchFailed
        } else if record.oom {
            EndCause::OutOfMemory
        } else if record.timed_out {
            EndCause::TimeLimit
        } else if record.stopped || record.client_gone {
            EndCause::Stopped
        } else {
            EndCause::Exited
        }
    }
}

/// The origin of a step request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepAsker {
    /// The caller's ID for the request, in case it has to wait.
    pub ticket: u64,
    pub client: Option<ClientProcess>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum StepStart {
    Now(StepKey, Allocation),
    /// The step was recorded with the start of its allocation.
    Recorded(StepKey, Allocation),
    /// The resources are in use. [`Effect::LaunchStep`] or [`Effect::StepRefused`] follows with the
    /// ticket.
    Waits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedStart {
    pub at: Timestamp,
    /// The index of the partition, among those that the job names.
    pub choice: u16,
    /// It is based on the run times of earlier jobs.
    pub is_estimate: bool,
}

/// The planned start of a job (`sbatch --test-only`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Estimate {
    /// The ID that the job would get.
    pub id: JobId,
    /// `None` if it cannot be predicted, because jobs without a time limit are ahead.
    pub start: Option<Timestamp>,
    pub cpus: u32,
    pub partition: String,
}

impl Estimate {
    /// Fills in the forecast.
    pub fn with(self, start: Option<ExpectedStart>) -> Estimate {
        // A choice is a partition and a reservation; see `Choice::all`.
        let count = self.partition.split(',').count();
        let chosen = start
            .and_then(|start| self.partition.split(',').nth(usize::from(start.choice) % count));
        let partition = chosen.map_or_else(|| self.partition.clone(), str::to_owned);
        Estimate { start: start.map(|start| start.at), partition, ..self }
    }
}

/// The current load of a partition, for sinfo and similar commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionLoad {
    pub partition: Partition,
    pub running: u64,
    pub pending: u64,
}
