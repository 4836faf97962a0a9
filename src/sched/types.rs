//! The words between the core and its caller: facts and commands in, changes and effects out.

use super::resources::machine::Capacities;
use crate::model::batch_tasks::BatchTasks;
use crate::model::change::{Change, LaunchTexts};
use crate::model::job::{Client, ClientProcess};
use crate::model::limit::Limit;
use crate::model::notice::{Audience, Notice};
use crate::model::partition::Host;
use crate::model::resize::PartChange;
use crate::model::tres::Allocation;
use crate::model::{
    ExitRecord, Job, JobId, JobRequest, Partition, Refusal, StepId, StepKey, Timestamp,
};
use crate::parse::hours::Zone;

/// What the core has to know about the host and its settings.
#[derive(Debug, Clone)]
pub struct Config {
    pub host: Host,
    /// How much of what the machine has is the host's.
    pub capacities: Capacities,
    /// In the order of the configuration; the default one is marked. Without those for GPUs where
    /// there are none.
    pub partitions: Vec<Partition>,
    /// With them.
    pub all_partitions: Vec<Partition>,
    /// What jobs of an account, or with such a name, may have together.
    pub limits: Vec<Limit>,
    /// By whose clock partitions open.
    pub zone: Zone,
    /// Memory of a job that asked for none, MB.
    pub default_mem_mb: u64,
    pub batch_tasks: BatchTasks,
    /// `--requeue` has a job run once more after its own failure too, and not only after one of the
    /// node.
    pub reruns_failed: bool,
    /// How long a job that has ended stays in memory, seconds (Slurm `MinJobAge`: 300).
    pub min_job_age_secs: u64,
    pub cluster: String,
    /// The largest array task id plus one (Slurm `MaxArraySize`).
    pub max_array_size: u32,
    /// Tasks of a step at most (Slurm `MaxTasksPerNode`).
    pub max_tasks: u32,
    /// Whether it can be told how the GPUs are used.
    pub reads_gpus: bool,
    /// No job gets a GPU on which there are processes that no job started.
    pub avoids_used_gpus: bool,
    /// The CPUs that processes use that no job started are given to no job.
    pub avoids_used_cpus: bool,
    /// Who is told of what happens to the queue.
    pub audience: Audience,
}

impl Config {
    /// With other partitions; those for GPUs show if there are some, or if that is not known yet.
    pub fn set_partitions(&mut self, all: Vec<Partition>) {
        let may_have_gpus = self.host.has_gpus() || self.host.detects_gpus;
        self.partitions =
            all.iter().filter(|partition| may_have_gpus || !partition.is_gpu).cloned().collect();
        // The first is the default where no other is.
        if !self.partitions.iter().any(|partition| partition.is_default)
            && let Some(first) = self.partitions.first_mut()
        {
            first.is_default = true;
        }
        self.all_partitions = all;
    }
}

/// What comes of a fact or a command. `changes` are committed first; `effects` are carried out
/// after the commit, but for those that end or signal running processes, which need not wait.
#[derive(Debug, Default)]
pub struct Outbox {
    pub changes: Vec<Change>,
    pub effects: Vec<Effect>,
}

/// One decision: the moment in which it is made, and what comes of it.
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

/// What the caller must do. The core relies on each being answered by the fact named here.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Start the processes of a batch or run job, which is RUNNING with its allocation. Answer:
    /// `on_job_ended`, also when the launch fails.
    Launch(Box<Job>),
    /// An allocation runs now: its runner is created, its client is told. Answer:
    /// `release_allocation`, `client_lost` or `on_job_ended`.
    Granted(JobId),
    /// Run the kill ladder on everything of the job. Answer: `on_job_ended`, also when nothing was
    /// left to kill.
    Stop { job: JobId, cause: StopCause },
    /// Run the kill ladder on one step. Answer: `on_step_ended`.
    StopStep { step: StepKey, cause: StopCause },
    /// Send a signal. No answer.
    Signal { job: JobId, target: SignalTarget, signal: i32 },
    /// Stop the processes of the job and its clock. No answer.
    Suspend(JobId),
    /// Let them go on. No answer.
    Resume(JobId),
    /// The time limit of a running job is another now. `limit_secs` counts from `start`, without
    /// the time it was suspended (`suspended_us` so far); `None` is unlimited.
    SetTimeLimit { job: JobId, limit_secs: Option<u64>, start: Timestamp, suspended_us: u64 },
    /// A step that waited has its resources; the session holds what it needs under this ticket.
    LaunchStep { step: StepKey, ticket: u64, alloc: Allocation },
    /// The manager of the job's steps has other resources, or another time.
    ManagerChanged(JobId, PartChange),
    /// A running job has other resources: those of its processes that are to may use them, and no
    /// others.
    Resized(JobId),
    /// Other parts of what a job has are out of use than before: the manager of its steps uses them
    /// no longer.
    PartsOut(JobId),
    /// Part of what a job has is out of use: send the signal that it asked for before its end. No
    /// answer.
    Warn(JobId),
    /// A step that waited can never start: its job is ending.
    StepRefused { ticket: u64, refusal: Refusal },
    /// A record reached a terminal state: waiters are told (of array tasks too). A runner that
    /// still exists for it has nothing left to do.
    Ended(JobId),
    /// A job that ran is PENDING again: its runner is done with it.
    Requeued(JobId),
    /// Somebody wants to know this, which is mostly about a job (of an array its number). No
    /// answer.
    Tell { job: Option<JobId>, notice: Box<Notice> },
    /// The record left the memory of the core; the store still has it.
    Gone(JobId),
}

impl Effect {
    /// The time limit of a job, as it is now. `None`: it has not started.
    pub fn set_time_limit(job: &Job) -> Option<Effect> {
        let (limit_secs, suspended_us) = (job.request.time_limit_secs, job.run.suspended_us);
        Some(Effect::SetTimeLimit { job: job.id, limit_secs, start: job.run.start?, suspended_us })
    }

    /// The job that it is about, as far as it says so.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Effect::Launch(job) => Some(job.id),
            Effect::Granted(job) | Effect::Suspend(job) | Effect::Resume(job) => Some(*job),
            Effect::ManagerChanged(job, _) | Effect::Resized(job) => Some(*job),
            Effect::PartsOut(job) | Effect::Warn(job) => Some(*job),
            Effect::Stop { job, .. }
            | Effect::Signal { job, .. }
            | Effect::SetTimeLimit { job, .. } => Some(*job),
            Effect::LaunchStep { step, .. } | Effect::StopStep { step, .. } => Some(step.job),
            Effect::Ended(job) | Effect::Requeued(job) | Effect::Gone(job) => Some(*job),
            Effect::Tell { job, .. } => *job,
            Effect::StepRefused { .. } => None,
        }
    }
}

/// Why processes are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopCause {
    /// scancel, by this user.
    Cancelled { by: u32 },
    /// `scancel -s KILL`: no grace.
    Killed { by: u32 },
    /// `scontrol requeue`.
    Requeue,
    /// The client that held the allocation is gone.
    ClientLost,
    /// The allocation was given back while steps ran in it.
    Released,
    /// `--deadline` has passed.
    Deadline,
    /// Its time limit was reached.
    TimeLimit,
    /// The host goes down in order.
    NodeDown,
}

/// Which processes a signal is for (scancel man page: plain, `--batch`, `--full`, and a step id).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignalTarget {
    /// The steps; where there are none, the whole job.
    Steps,
    Batch,
    Full,
    Step(StepId),
}

/// A job to be taken into the queue.
#[derive(Debug, Clone, Default)]
pub struct Submission {
    pub request: JobRequest,
    pub texts: LaunchTexts,
    pub client: Option<Client>,
    /// What the store knows of the jobs that the dependency names (see [`dependency_targets`]).
    /// Those that are in memory too may be left out or not.
    ///
    /// [`dependency_targets`]: crate::sched::dependency_targets
    pub ended: Vec<EndedJob>,
}

/// A job, known from the store, that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedJob {
    pub id: JobId,
    /// The array and the task number, of an array task.
    pub array: Option<(JobId, u32)>,
    /// COMPLETED with exit code 0.
    pub ok: bool,
    /// When it began to run; `None` where it never did.
    pub start: Option<Timestamp>,
    pub ended: Timestamp,
}

/// How the processes of a job came to their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndCause {
    /// On their own, with this exit code.
    Exited,
    /// The ladder of the time limit ran.
    TimeLimit,
    OutOfMemory,
    /// Files could not be opened, the cgroup could not be made, …: no process of the user ran.
    LaunchFailed,
    /// The host could not start them (no space, no processes): no process of the user ran, and the
    /// job is not at fault. The record names the fault.
    HostFault,
    /// The process that watched them died: how they ended is not known.
    RunnerLost,
    /// The machine went down: what ran under its earlier boot cannot run any more.
    NodeFailed,
    /// The daemon was restarted between its decision and the launch: nothing ran, and nothing will
    /// by itself.
    NeverLaunched,
    /// The ladder of an [`Effect::Stop`] ran.
    Stopped,
}

impl EndCause {
    /// What the watcher of the processes wrote down.
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

/// Who asks for a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepAsker {
    /// The caller's name for the request, should it have to wait.
    pub ticket: u64,
    pub client: Option<ClientProcess>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum StepStart {
    Now(StepKey, Allocation),
    /// The resources are in use: [`Effect::LaunchStep`] or [`Effect::StepRefused`] comes with the
    /// ticket.
    Waits,
}

/// What became of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    pub job: JobId,
    /// It runs already: its launch is on its way.
    pub runs: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedStart {
    pub at: Timestamp,
    /// In which of the partitions that the job names.
    pub choice: u16,
    /// It goes by how long earlier jobs took.
    pub is_estimate: bool,
}

/// What the plan would give a job (`sbatch --test-only`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Estimate {
    /// The number that the job would get.
    pub id: JobId,
    /// `None`: it can't be told, since jobs without a time limit are before it.
    pub start: Option<Timestamp>,
    pub cpus: u32,
    pub partition: String,
}

impl Estimate {
    /// With what the forecast says.
    pub fn with(self, start: Option<ExpectedStart>) -> Estimate {
        let chosen =
            start.and_then(|start| self.partition.split(',').nth(usize::from(start.choice)));
        let partition = chosen.map_or_else(|| self.partition.clone(), str::to_owned);
        Estimate { start: start.map(|start| start.at), partition, ..self }
    }
}

/// What sinfo and the like want to know about the present load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionLoad {
    pub partition: Partition,
    pub running: u64,
    pub pending: u64,
}
