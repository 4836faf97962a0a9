//! The messages between the daemon and a step's watcher: the launch, its events and commands.
//!
//! Data only. `wire` encodes them; `launcher` and `watcher` describe who sends them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use slotd_model::rlimits::Rlimits;
use slotd_model::series::Series;
use slotd_model::step_request::Mpi;
use slotd_model::tres::Usage;
use slotd_model::{ExitCode, ExitRecord, Job, JobId, StepId, StepKey, Timestamp};
use slotd_protocol::request::Stream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Everything that is needed to launch a step. All paths are absolute and contain no patterns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LaunchSpec {
    pub step: StepKey,
    /// The number of times the job was requeued. The same step in another run is another launch.
    pub run: u32,
    /// `<root>/lib/jobs/<id>`. Created if it is missing.
    pub job_dir: PathBuf,
    /// The batch script. It is written to `<job_dir>/script.sh` and run with the arguments `argv`.
    /// Sent separately from the JSON, since it may be large and need not be UTF-8.
    #[serde(skip)]
    pub script: Option<Vec<u8>>,
    /// The environment of all tasks: `KEY=VALUE` entries, each name once, each entry terminated by
    /// a null byte (`environment::merge`). Sent separately from the JSON.
    #[serde(skip)]
    pub env: Vec<u8>,
    /// The arguments of the script, or without a script, the command and its arguments.
    pub argv: Vec<String>,
    /// If it cannot be entered, the launch fails.
    pub work_dir: PathBuf,
    pub umask: Option<u32>,
    pub rlimits: Rlimits,
    /// The tasks by rank. There is at least one.
    pub tasks: Vec<TaskSpec>,
    /// Task 0 leads its own session, and its standard input becomes its controlling terminal.
    pub pty: bool,
    /// The step's cgroup v2 directory. The tasks join it, and the launch fails if they cannot. The
    /// watcher removes it. Sent with [`StepCommand::Begin`].
    #[serde(skip)]
    pub cgroup: Option<PathBuf>,
    /// `oom_score_adj` of the tasks, if higher than the watcher's. If the host runs out of memory,
    /// they are killed first.
    pub oom_score_adj: u32,
    /// End the whole step when a task exits with anything but 0 (`srun --kill-on-bad-exit`).
    pub kill_on_bad_exit: bool,
    /// The tasks are ranks of an MPI program, and the watcher connects them to each other.
    pub mpi: Mpi,
    /// The step's own time limit in seconds from its start, not counting suspension (`srun --time`
    /// inside a job). The watcher enforces it even while the daemon is down. The job's time limit
    /// is left to the daemon.
    pub time_limit_secs: Option<u64>,
    /// The settings for a watcher that ends its step on its own.
    pub own_end: OwnEnd,
    /// The job, for the first launch in its directory. It is written to `<job_dir>/job.json` or to
    /// the exit record, so that it is known without the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobText>,
    /// The reason why the daemon found that the step cannot be launched. The watcher writes it to
    /// the step's output. Sent with [`StepCommand::Begin`].
    #[serde(skip)]
    pub broken: Option<String>,
    /// A line for the standard error of task 0 before the tasks start, if that is a regular file. A
    /// newline is added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_line: Option<String>,
    /// Write `<job_dir>/runner.sh`, a script that repeats this launch by hand.
    pub write_runner: bool,
    /// The index of a passed socket: the connection to the step's client (`exec::client_line`).
    /// When it closes, the step is ended.
    pub client_fd: Option<usize>,
}

impl LaunchSpec {
    /// Returns the command that follows the launch.
    pub(crate) fn begin(&self) -> StepCommand {
        StepCommand::Begin { cgroup: self.cgroup.clone(), broken: self.broken.clone() }
    }
}

impl Default for LaunchSpec {
    fn default() -> Self {
        LaunchSpec {
            step: StepKey { job: JobId(0), step: StepId::Batch },
            run: 0,
            job_dir: PathBuf::new(),
            script: None,
            env: Vec::new(),
            argv: Vec::new(),
            work_dir: PathBuf::from("/"),
            umask: None,
            rlimits: Rlimits::default(),
            tasks: Vec::new(),
            pty: false,
            cgroup: None,
            oom_score_adj: 0,
            kill_on_bad_exit: false,
            mpi: Mpi::None,
            time_limit_secs: None,
            own_end: OwnEnd::default(),
            job: None,
            broken: None,
            first_line: None,
            write_runner: false,
            client_fd: None,
        }
    }
}

/// A job as JSON. The watcher writes it to files without reading it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobText(Box<RawValue>);

impl JobText {
    /// Returns the text of a job without its steps, or `None` if it has none.
    pub fn of(job: &Job) -> Option<JobText> {
        serde_json::value::to_raw_value(&job.without_steps()).ok().map(JobText)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.get().as_bytes()
    }
}

impl PartialEq for JobText {
    fn eq(&self, other: &JobText) -> bool {
        self.0.get() == other.0.get()
    }
}

/// How a watcher ends its step on its own: at the step's time limit, after a task failed, or when
/// the client has exited. It writes Slurm's line to the output, sends SIGTERM, and after the grace
/// period SIGKILL.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnEnd {
    /// The time between SIGTERM and SIGKILL (Slurm's `KillWait`), in milliseconds.
    pub grace_ms: u64,
    /// The name of the host, for the line.
    pub node: String,
    /// The offset of local time from UTC in seconds, for the line.
    pub utc_offset_secs: i32,
}

/// A task: one process with a rank.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskSpec {
    pub rank: u32,
    pub stdin: Stream,
    pub stdout: Stream,
    pub stderr: Stream,
    /// Variables of this task only, on top of the step's. Later ones replace earlier ones.
    /// `SLURM_TASK_PID` is added automatically.
    pub env: Vec<(String, String)>,
    /// The logical CPUs that the task may use; empty means all.
    pub cpus: Vec<u32>,
    /// The CPUs were requested explicitly: fail the launch if the task cannot be bound to them.
    pub must_bind: bool,
    /// The NUMA nodes from which the task's memory is allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryNodes>,
    /// A command that replaces the step's (`srun --multi-prog`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Print a line with the task's CPUs to standard error before the command starts
    /// (`srun --cpu-bind=verbose`). This is its text before the process ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_binding: Option<String>,
}

/// The NUMA nodes from which the memory of a task is allocated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryNodes {
    /// Never empty.
    pub nodes: Vec<u32>,
    /// Allocate from other nodes when these are full.
    pub prefers: bool,
    /// The text before the process ID in the line that reports the binding, if it is to be printed.
    pub report: Option<String>,
}

/// A report from the watcher of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepEvent {
    /// All tasks are running. Sent again, updated, to each daemon that connects.
    Started {
        /// The PID of the watcher.
        pid: i32,
        /// Its start time in clock ticks since boot (field 22 of `/proc/<pid>/stat`). PID and start
        /// time identify the process uniquely.
        start_ticks: u64,
        /// By rank.
        task_pids: Vec<i32>,
        started: Timestamp,
        /// The same on the monotonic clock, in microseconds. Not sent by watchers of earlier
        /// versions.
        #[serde(default)]
        started_us: Option<u64>,
        /// A daemon has suspended its processes.
        #[serde(default)]
        suspended: bool,
    },
    TaskEnded {
        rank: u32,
        exit: ExitCode,
    },
    /// The response to `StepCommand::Usage`.
    Usage(StepUsage),
    /// Sent just before `Ended`: the watcher stays, and accepts another launch on the same
    /// connection.
    Stays,
    /// No process of the step is left. The last event.
    Ended(ExitRecord),
    /// Nothing was launched, because this step was already launched in this run. The last event.
    Refused(String),
}

/// The current usage of a running step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StepUsage {
    /// Usage since the start. The peaks are the largest sums of any sample.
    pub total: Usage,
    /// The resident memory of all its processes now, in KiB.
    pub rss_kb: u64,
    /// Its current processes.
    pub pids: Vec<i32>,
    /// From the start until now.
    #[serde(skip_serializing_if = "Series::is_empty")]
    pub over_time: Series,
}

/// The recipients of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalScope {
    /// Every process of the step.
    Processes,
    /// The process groups of the tasks.
    Tasks,
    /// Only the tasks' first processes: the batch shell, but not its children (`scancel -b`,
    /// `--signal=B:`).
    BatchShell,
    /// Every process with a handler for the signal, so that a warning kills nothing.
    Handlers,
    /// The process group of one task.
    Rank(u32),
}

/// Commands to a running step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepCommand {
    /// Start the tasks of the launch that precedes this command.
    Begin {
        cgroup: Option<PathBuf>,
        broken: Option<String>,
    },
    Signal {
        signal: i32,
        target: SignalScope,
    },
    /// The warning before the time limit. A step gets this signal only once, even if several
    /// daemons send it.
    Warn {
        signal: i32,
        target: SignalScope,
    },
    /// A line for the standard error of task 0. A newline is added.
    Notice(String),
    /// The daemon is ending the step (`timed_out`: because of the job's time limit), which the
    /// watcher enters into the record in case no daemon is there to do so. The processes are not
    /// signalled yet. If they have already had a SIGTERM for another reason, the SIGTERM that
    /// follows is skipped. The notice is a line for the standard error of task 0; only the first
    /// one is written, even if several daemons end the step.
    Ends {
        timed_out: bool,
        /// The UID of the user who cancelled the job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        notice: Option<String>,
    },
    /// The step has this time left, not counting suspensions, or no limit of its own.
    TimeLimit {
        left: Option<Duration>,
    },
    /// Send SIGSTOP to every process.
    Suspend,
    /// Send SIGCONT to every stopped process.
    Resume,
    /// Send SIGKILL to every process until none is left.
    KillAll,
    /// The CPUs of the job have changed. No process of the step may stay on a CPU outside `to`.
    /// Processes that may run on all of `from` may now run on all of `to`.
    Move {
        from: Vec<u32>,
        to: Vec<u32>,
    },
    /// The GPU usage of the step as sampled by the daemon: the load of all its GPUs together, in
    /// percent of one, and their memory.
    Gpus {
        busy_percent: u64,
        mem_mb: u64,
    },
    /// Request a `StepEvent::Usage`.
    Usage,
}

/// Returns `<job_dir>/exit_status` for the batch step, `<job_dir>/<step>.exit` for the others.
pub(crate) fn exit_path(job_dir: &Path, step: StepId) -> PathBuf {
    match step {
        StepId::Batch => job_dir.join("exit_status"),
        StepId::Interactive | StepId::Num(_) => job_dir.join(format!("{step}.exit")),
    }
}

/// Returns `<step>.<run>.sock`, the name of the step's socket in the job directory. It exists from
/// before the first task starts until the exit record is in place.
pub(crate) fn socket_name(step: StepId, run: u32) -> String {
    format!("{step}.{run}.sock")
}
