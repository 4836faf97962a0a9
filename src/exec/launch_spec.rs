//! What the daemon and a step's watcher tell each other: the launch, its events, the commands, the
//! exit record.
//!
//! Data only. How it travels is `wire`; who sends what is told in `launcher` and `watcher`.

use crate::model::rlimits::Rlimits;
use crate::model::series::Series;
use crate::model::step_request::Mpi;
use crate::model::tres::Usage;
use crate::model::{ExitCode, ExitRecord, Job, JobId, StepId, StepKey, Timestamp};
use crate::protocol::request::Stream;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Everything that is needed to launch one step. All paths are absolute and free of patterns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LaunchSpec {
    pub step: StepKey,
    /// How often the job was requeued before: the same step of another run is another launch.
    pub run: u32,
    /// `<root>/lib/jobs/<id>`; made where it is missing.
    pub job_dir: PathBuf,
    /// The batch script. It is written to `<job_dir>/script.sh` and run with `argv` as its
    /// arguments. Travels beside the JSON, since it may be large and need not be UTF-8.
    #[serde(skip)]
    pub script: Option<Vec<u8>>,
    /// The environment before `set_env`: `KEY=VALUE` entries, each ended by a zero byte. Travels
    /// beside the JSON.
    #[serde(skip)]
    pub env: Vec<u8>,
    /// Variables for names that `env` does not hold (`TMPDIR`).
    pub default_env: Vec<(String, String)>,
    /// Variables on top of `env`; a later one replaces an earlier one.
    pub set_env: Vec<(String, String)>,
    /// Names that are taken out of `env` before `set_env` is applied.
    pub unset_env: Vec<String>,
    /// With a script its arguments, otherwise the command and its arguments.
    pub argv: Vec<String>,
    /// Where it cannot be entered, nothing is launched.
    pub work_dir: PathBuf,
    pub umask: Option<u32>,
    pub rlimits: Rlimits,
    /// At least one, by rank.
    pub tasks: Vec<TaskSpec>,
    /// Task 0 leads a session of its own and its standard input becomes its controlling terminal.
    pub pty: bool,
    /// The step's cgroup v2 directory, which the tasks join. A failure is a failure of the launch.
    /// The watcher removes it.
    pub cgroup: Option<PathBuf>,
    /// `oom_score_adj` of the tasks, where that is more than the watcher's: the host's own lack of
    /// memory ends them first.
    pub oom_score_adj: u32,
    /// The whole step ends when a task ends with anything but 0 (`srun --kill-on-bad-exit`).
    pub kill_on_bad_exit: bool,
    /// The tasks are ranks of an MPI program, which the watcher introduces to each other.
    pub mpi: Mpi,
    /// The step's own time limit, seconds from its start, suspension not counted (`srun --time`
    /// inside a job). That of the job is the daemon's business; this one holds whether a daemon
    /// runs or not.
    pub time_limit_secs: Option<u64>,
    /// What a watcher needs to know to end its step by itself.
    pub own_end: OwnEnd,
    /// The job of the first launch in its directory, for `<job_dir>/job.json` or the exit record:
    /// what is known of it without the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<Box<Job>>,
    /// Why it cannot be launched, as the daemon found: the watcher tells it in the step's output.
    pub broken: Option<String>,
    /// A line for the standard error of task 0 before the tasks start, if that is a regular file; a
    /// newline is added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_line: Option<String>,
    /// Write `<job_dir>/runner.sh`, which reproduces this launch by hand.
    pub write_runner: bool,
    /// Index of a handed-over socket, the line to the step's client (`exec::client_line`): at its end the
    /// step is ended.
    pub tie_fd: Option<usize>,
}

impl Default for LaunchSpec {
    fn default() -> Self {
        LaunchSpec {
            step: StepKey { job: JobId(0), step: StepId::Batch },
            run: 0,
            job_dir: PathBuf::new(),
            script: None,
            env: Vec::new(),
            default_env: Vec::new(),
            set_env: Vec::new(),
            unset_env: Vec::new(),
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
            tie_fd: None,
        }
    }
}

/// How a watcher ends its step by itself, at the step's time limit, after a task that failed or
/// when the client is gone: with Slurm's line in its output, SIGTERM, and SIGKILL after the grace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnEnd {
    /// Between SIGTERM and SIGKILL (Slurm's `KillWait`), milliseconds.
    pub grace_ms: u64,
    /// The host's name, for the line.
    pub node: String,
    /// Local time against UTC, seconds, for the line.
    pub utc_offset_secs: i32,
}

/// One process with a rank.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskSpec {
    pub rank: u32,
    pub stdin: Stream,
    pub stdout: Stream,
    pub stderr: Stream,
    /// Variables of this task alone, on top of the step's. `SLURM_TASK_PID` comes by itself.
    pub env: Vec<(String, String)>,
    /// Logical CPUs that the task may use. Empty: all.
    pub cpus: Vec<u32>,
    /// They were asked for: where the task cannot be bound to them, nothing is launched.
    pub must_bind: bool,
    /// The NUMA nodes that the task has its memory from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryNodes>,
    /// Another command than the step's (`srun --multi-prog`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Before the command starts, a line on standard error that tells the CPUs it may use
    /// (`srun --cpu-bind=verbose`): what stands before the process id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_binding: Option<String>,
}

/// From which NUMA nodes a task has its memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryNodes {
    /// Never empty.
    pub nodes: Vec<u32>,
    /// Other memory is taken where theirs is full.
    pub prefers: bool,
    /// What stands before the process id in the line that tells the binding, if it is to be told.
    pub report: Option<String>,
}

/// What a step reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepEvent {
    /// All tasks run. Told again, with what is known by then, to each daemon that connects.
    Started {
        /// The process that watches the step.
        pid: i32,
        /// Its start time in clock ticks since boot (field 22 of `/proc/<pid>/stat`): pid and ticks
        /// name it for ever.
        start_ticks: u64,
        /// By rank.
        task_pids: Vec<i32>,
        started: Timestamp,
        /// The same by the monotonic clock, microseconds. A watcher of an earlier slotd does not
        /// tell.
        #[serde(default)]
        started_us: Option<u64>,
        /// Its processes stand still, since a daemon has suspended them.
        #[serde(default)]
        suspended: bool,
    },
    TaskEnded {
        rank: u32,
        exit: ExitCode,
    },
    /// The answer to `StepCommand::Usage`.
    Usage(StepUsage),
    /// Comes just before `Ended`: the watcher stays after it, and takes another launch over the
    /// same line.
    Stays,
    /// No process of the step is left. The last event.
    Ended(ExitRecord),
    /// Nothing was launched: this step of this run was launched before. The last event.
    Refused(String),
}

/// What a running step uses at this moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StepUsage {
    /// Since its start; its peaks are the largest sums that were seen.
    pub total: Usage,
    /// Resident memory of all its processes now, KiB.
    pub rss_kb: u64,
    /// Its processes now.
    pub pids: Vec<i32>,
    /// From its start up to now.
    #[serde(skip_serializing_if = "Series::is_empty")]
    pub over_time: Series,
}

/// Whom a signal is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalScope {
    /// Every process of the step.
    Processes,
    /// The process groups of the tasks.
    Tasks,
    /// The tasks' first processes alone: the batch shell, not its children (`scancel -b`,
    /// `--signal=B:`).
    BatchShell,
    /// Every process that has a handler for this signal, so that nothing dies of a warning.
    Handlers,
    /// The process group of one task.
    Rank(u32),
}

/// What the daemon asks of a running step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepCommand {
    Signal {
        signal: i32,
        target: SignalScope,
    },
    /// The warning before the time limit: a signal that a step gets once, however many daemons send
    /// it.
    Warn {
        signal: i32,
        target: SignalScope,
    },
    /// A line for the standard error of task 0; a newline is added.
    Notice(String),
    /// The daemon ends the step, `timed_out` because of the job's time limit: the record says so,
    /// should no daemon be there to say it. Nothing happens to the processes, and a SIGTERM that
    /// follows is for those that have not had one for another such reason. The notice is a line for
    /// the standard error of task 0: only the first one, however many daemons end the step.
    Ends {
        timed_out: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        notice: Option<String>,
    },
    /// SIGSTOP to every process.
    Suspend,
    /// SIGCONT to every process that is stopped.
    Resume,
    /// SIGKILL to every process until none is left.
    KillAll,
    /// The job has these CPUs now, and had others: no process of the step stays on one that is not
    /// there any more. Those that may run on all of `from` may run on all of `to`.
    Move {
        from: Vec<u32>,
        to: Vec<u32>,
    },
    /// What the step uses of its GPUs, as the daemon has read it: how busy they are together,
    /// percent of one, and their memory.
    Gpus {
        busy_percent: u64,
        mem_mb: u64,
    },
    /// Asks for `StepEvent::Usage`.
    Usage,
}

/// `<job_dir>/exit_status` for the batch step, `<job_dir>/<step>.exit` for the others.
pub fn exit_path(job_dir: &Path, step: StepId) -> PathBuf {
    match step {
        StepId::Batch => job_dir.join("exit_status"),
        StepId::Interactive | StepId::Num(_) => job_dir.join(format!("{step}.exit")),
    }
}

/// `<job_dir>/<step>.<run>.sock`: it exists from before the first task of the step starts until its
/// exit record does.
pub fn socket_name(step: StepId, run: u32) -> String {
    format!("{step}.{run}.sock")
}
