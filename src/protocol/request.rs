//! Requests from clients.

use serde::{Deserialize, Serialize};
use slotd_model::cron::Recurrence;
use slotd_model::job::{Client, ClientProcess, Hold};
use slotd_model::node::NodeOrder;
use slotd_model::query::JobQuery;
use slotd_model::reservation::ReservationOrder;
use slotd_model::resize::GivenBack;
use slotd_model::rlimits::Rlimits;
use slotd_model::tres::Usage;
use slotd_model::{JobId, JobRef, JobRequest, Step, StepId, StepRequest, Timestamp};
use std::path::PathBuf;

/// A request. The raw part of its frame is empty except for [`Request::Submit`],
/// [`Request::Plain`], [`Request::SubmitMany`], [`Request::InstallCrontab`] and [`Request::LaunchStep`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// Check whether the daemon is running. Answered by `Pong`.
    Ping,
    /// Submit a job. Raw part: the script (`script_len` bytes), then the environment (`KEY=VALUE\0`
    /// entries).
    Submit(Box<Submit>),
    /// Carry out a plain command line, which the daemon parses. Raw part: the words of the command
    /// line and the environment, each with a final zero byte, then the path of the working
    /// directory, then the script. Answered by `Printed`, `ScriptWanted` or `NotPlain`.
    Plain(PlainCommand),
    /// Submit many batch jobs. Raw part: the environment that they share (`env_len` bytes), then
    /// their scripts in the same order.
    SubmitMany(SubmitMany),
    /// Fetch the client's crontab. Answered by `Crontab`.
    Crontab,
    /// Replace the client's crontab. Raw part: the text (`text_len` bytes), then the script and
    /// the environment of each job. Answered by `CrontabInstalled` or `CrontabRefused`.
    InstallCrontab(InstallCrontab),
    /// Remove the client's crontab. Answered by `Recorded`, also if there is none.
    RemoveCrontab,
    /// Query pending, running and recently ended jobs. A query by job or by time window includes
    /// older ones too.
    Jobs(JobQuery),
    /// Query the accounting records in the database.
    Accounting(JobQuery),
    Node,
    Config,
    /// Read the configuration again.
    Reconfigure,
    /// Update a partition. `parse::partition` parses the keys and values.
    UpdatePartition {
        name: String,
        settings: Vec<(String, String)>,
    },
    UpdateNode(NodeOrder),
    /// Create, change or delete a reservation. Answered by `Reservation` once it is durable.
    Reservation(ReservationOrder),
    /// Hold, release, update and so on, for each job in turn.
    Control {
        jobs: Vec<JobRef>,
        action: ControlAction,
    },
    Cancel(CancelAsk),
    /// Wait for a job to end. Answered by `Ended`, immediately if it already has.
    WaitEnd(JobId),
    /// Wait for changes since the last `Watch` on this connection. Answered by one `Changed`. The
    /// first is answered immediately and reports that everything changed, so that a client that
    /// then reads the queue misses nothing. Changes between two requests are merged. The watch ends
    /// with the connection.
    Watch,
    /// Reattach a client to its allocation after a restart of the daemon.
    Attach {
        job: JobId,
        client: ClientProcess,
        /// The step that the client waits for, if it had started.
        step: Option<StepId>,
        /// The allocation belongs to this client and ends with it.
        holds: bool,
    },
    /// Launch a step inside an allocation. Raw part: the environment. Descriptors are sent with the
    /// frame.
    LaunchStep(Box<StepLaunch>),
    /// End an allocation: the command of salloc or srun has exited.
    Release {
        job: JobId,
        exit: slotd_model::ExitCode,
    },
    /// Make the process the manager of the job's steps (`sjobmgr`), or reserve more step numbers
    /// for it. Answered by `Managed`; notifications about the job follow.
    ManageSteps {
        job: JobId,
        client: ClientProcess,
        /// The step that the process belongs to.
        within: Option<StepId>,
        /// The number of step numbers to reserve.
        numbers: u32,
    },
    /// Record steps of the job's manager in this run of the job, each in its current state.
    /// Answered by `Recorded` once they are durable.
    RecordSteps {
        job: JobId,
        run: u32,
        steps: Vec<Step>,
    },
    /// Give back resources that none of the manager's steps uses. There is no answer; a
    /// `ManagerChanged` contains the remaining ones.
    GiveBack {
        job: JobId,
        client: ClientProcess,
        given_back: GivenBack,
    },
    /// Stop managing steps. Contains the first unused step number and how many are unused. Answered
    /// by `Recorded`.
    LeaveSteps {
        job: JobId,
        client: ClientProcess,
        unused: (u32, u32),
    },
    /// The reply to `MeasureStep`. There is no answer.
    StepMeasured {
        ticket: u64,
        usage: Usage,
        pids: Vec<i32>,
    },
    /// The reply to a `SignalStep` with a ticket: whether this step is running. There is no answer.
    StepSignalled {
        ticket: u64,
        runs: bool,
    },
    BatchScript(JobId),
    /// Fetch the environment that a batch job was submitted with. Answered by `Script`.
    BatchEnv(JobId),
    /// Sample the resource use of running steps (sstat). Answered by `Usage`.
    Usage(UsageAsk),
    /// Fetch the resource use of these jobs' steps over time, for the last run. Answered by
    /// `OverTime`.
    OverTime(Vec<JobRef>),
    /// Fetch the host's resource use since this instant, while jobs ran. Answered by
    /// `HostOverTime`.
    HostOverTime(Timestamp),
    /// Fetch the source of a job. Answered by `Source`.
    Source {
        job: JobRef,
        /// Send the work tree's diff in the raw part of the answer.
        with_diff: bool,
    },
    /// Hold a copy of a work tree that the client makes for a job (`sbatch --snapshot`). The
    /// descriptor that locks the copy's directory is sent with the frame. Answered by `Recorded`.
    /// When the connection ends, the daemon deletes the copy unless a job uses it.
    HoldCopy {
        name: String,
    },
    /// Delete the jobs that ended before this instant (`slotd clean`). Answered by `Cleaned`.
    Clean(Clean),
    /// Fetch the daemon's counters (sdiag).
    Diagnostics {
        /// Reset the counters afterwards.
        reset: bool,
    },
}

/// The types of the requests that plain command lines stand for.
const SUBMIT: (&str, u32) = ("REQUEST_SUBMIT_BATCH_JOB", 4003);
const JOBS: (&str, u32) = ("REQUEST_JOB_INFO", 2003);
const NODE: (&str, u32) = ("REQUEST_NODE_INFO", 2007);
const ACCOUNTING: (&str, u32) = ("DBD_GET_JOBS_COND", 1444);

impl Request {
    /// Returns whether `may` accepts every user whose script or command this request starts.
    /// Requests that start none pass.
    pub fn submits_only_for(&self, may: impl Fn(u32) -> bool) -> bool {
        match self {
            // The script and the environment come from the daemon.
            Request::Submit(submit) => submit.texts_of.is_some() || may(submit.request.uid),
            Request::SubmitMany(many) => many.jobs.iter().all(|job| may(job.request.uid)),
            Request::InstallCrontab(crontab) => {
                crontab.entries.iter().all(|entry| may(entry.job.request.uid))
            }
            Request::LaunchStep(launch) => may(launch.uid),
            _ => true,
        }
    }

    /// Returns the name and the number under which sdiag counts the request. They are Slurm's if
    /// Slurm has such a message; numbers from 9000 up are slotd's own.
    pub fn message_type(&self) -> (&'static str, u32) {
        match self {
            Request::Ping => ("REQUEST_PING", 1008),
            Request::Submit(submit) if submit.test_only => ("REQUEST_JOB_WILL_RUN", 4012),
            Request::Submit(submit) if submit.client.holds => ("REQUEST_RESOURCE_ALLOCATION", 4001),
            Request::Submit(_) => SUBMIT,
            Request::Plain(command) => command.program.message_type(),
            Request::SubmitMany(_) => ("REQUEST_SUBMIT_BATCH_JOBS", 9007),
            Request::Crontab => ("REQUEST_CRONTAB", 2200),
            Request::InstallCrontab(_) | Request::RemoveCrontab => ("REQUEST_UPDATE_CRONTAB", 2202),
            Request::Jobs(_) => JOBS,
            Request::Accounting(_) => ACCOUNTING,
            Request::Node => NODE,
            Request::Config => ("REQUEST_BUILD_INFO", 2001),
            Request::Reconfigure => ("REQUEST_RECONFIGURE", 1003),
            Request::UpdatePartition { .. } => ("REQUEST_UPDATE_PARTITION", 3005),
            Request::UpdateNode(_) => ("REQUEST_UPDATE_NODE", 3002),
            Request::Reservation(ReservationOrder::Create(_)) => {
                ("REQUEST_CREATE_RESERVATION", 3006)
            }
            Request::Reservation(ReservationOrder::Delete(_)) => {
                ("REQUEST_DELETE_RESERVATION", 3008)
            }
            Request::Reservation(ReservationOrder::Update(_)) => {
                ("REQUEST_UPDATE_RESERVATION", 3009)
            }
            Request::Control { action, .. } => match action {
                ControlAction::Hold
                | ControlAction::Release
                | ControlAction::Top
                | ControlAction::Update(_) => ("REQUEST_UPDATE_JOB", 3001),
                ControlAction::Requeue(_) => ("REQUEST_JOB_REQUEUE", 5023),
                ControlAction::Suspend | ControlAction::Resume => ("REQUEST_SUSPEND", 5014),
                ControlAction::Notify(_) => ("REQUEST_JOB_NOTIFY", 4022),
            },
            Request::Cancel(_) => ("REQUEST_KILL_JOB", 5032),
            Request::LaunchStep(_) => ("REQUEST_JOB_STEP_CREATE", 5001),
            Request::Release { .. } => ("REQUEST_COMPLETE_JOB_ALLOCATION", 5017),
            Request::BatchScript(_) => ("REQUEST_BATCH_SCRIPT", 2051),
            Request::Diagnostics { .. } => ("REQUEST_STATS_INFO", 2035),
            Request::WaitEnd(_) => ("REQUEST_WAIT_END", 9001),
            Request::Attach { .. } => ("REQUEST_ATTACH_CLIENT", 9002),
            Request::BatchEnv(_) => ("REQUEST_BATCH_ENVIRONMENT", 9003),
            Request::Usage(_) => ("REQUEST_STEP_USAGE", 9004),
            Request::Clean(_) => ("REQUEST_CLEAN", 9006),
            Request::ManageSteps { .. } => ("REQUEST_MANAGE_STEPS", 9008),
            Request::RecordSteps { .. } => ("REQUEST_RECORD_STEPS", 9009),
            Request::LeaveSteps { .. } => ("REQUEST_LEAVE_STEPS", 9010),
            Request::StepMeasured { .. } => ("RESPONSE_STEP_USAGE", 9011),
            Request::GiveBack { .. } => ("REQUEST_GIVE_BACK", 9012),
            Request::Watch => ("REQUEST_WATCH", 9013),
            Request::StepSignalled { .. } => ("RESPONSE_STEP_SIGNALLED", 9014),
            Request::OverTime(_) => ("REQUEST_USE_OVER_TIME", 9015),
            Request::HostOverTime(_) => ("REQUEST_HOST_USE_OVER_TIME", 9016),
            Request::Source { .. } => ("REQUEST_SOURCE", 9017),
            Request::HoldCopy { .. } => ("REQUEST_HOLD_COPY", 9018),
        }
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Submit {
    pub request: JobRequest,
    pub script_len: usize,
    /// Use the script and the environment of this job; the raw part is empty (`slotd retry`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub texts_of: Option<JobId>,
    /// Keep the connection open and report the job's end (`sbatch -W`).
    pub wait: bool,
    /// Decide, but submit nothing (`--test-only`).
    pub test_only: bool,
    /// The process that submits the job. If it holds the allocation, its connection receives the
    /// allocation's notifications.
    pub client: Client,
    /// The client is repeating the request because the daemon died before it answered. If the first
    /// request was carried out, only the answer is repeated.
    #[serde(default)]
    pub again: bool,
    /// The first request was a [`Request::Plain`], for which the daemon identified the client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_shortcut: bool,
    /// The step that the holder of the allocation launches once it is granted
    /// ([`Request::LaunchStep`]). It is then recorded already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_step: Option<Box<StepRequest>>,
}

/// The largest command line of a [`PlainCommand`] with its environment, in bytes, and the most words.
/// Other clients wait while the daemon parses them.
pub const MOST_PLAIN_BYTES: usize = 64 << 10;
pub const MOST_PLAIN_ARGS: usize = 64;

/// The longest text that a plain command line prints, in bytes.
pub const MOST_PRINTED: usize = 8 << 10;

/// The surroundings of a process, on which the meaning of names depends: those of users, files and
/// the host. In another namespace or container, at least one of them differs.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// The real user and group, as the process itself sees them. A user namespace may number them
    /// differently.
    pub user: u32,
    pub group: u32,
    /// The number of the mount of `/`. A mount namespace has mounts of its own, and no two mounts
    /// of a kernel have the same number at the same time.
    pub root_mount: u64,
    /// The device and the inode of `/`, since another directory on the same mount may be the root.
    /// Subvolumes of btrfs have the same inode, but each has its own device.
    pub root_device: u64,
    pub root_inode: u64,
    /// The host name.
    pub host: &'a [u8],
}

impl Surroundings<'_> {
    /// Returns a number that is the same for the same surroundings.
    #[inline]
    pub fn checksum(&self) -> u64 {
        let Surroundings { user, group, root_mount, root_device, root_inode, host } = *self;
        let sum = add_to(checksum(host), &user.to_le_bytes());
        let sum = add_to(sum, &group.to_le_bytes());
        let sum = add_to(sum, &root_mount.to_le_bytes());
        let sum = add_to(sum, &root_device.to_le_bytes());
        add_to(sum, &root_inode.to_le_bytes())
    }
}

/// Returns a checksum of these bytes (FNV-1a).
#[inline]
pub fn checksum(bytes: &[u8]) -> u64 {
    add_to(0xcbf2_9ce4_8422_2325, bytes)
}

#[inline]
fn add_to(sum: u64, bytes: &[u8]) -> u64 {
    let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(sum, add)
}

/// A program with plain command lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    #[serde(rename = "sbatch")]
    Sbatch,
    #[serde(rename = "squeue")]
    Squeue,
    #[serde(rename = "sinfo")]
    Sinfo,
    #[serde(rename = "sacct")]
    Sacct,
    #[serde(rename = "scontrol")]
    Scontrol,
}

impl Program {
    pub const ALL: [Program; 5] =
        [Program::Sbatch, Program::Squeue, Program::Sinfo, Program::Sacct, Program::Scontrol];

    pub const fn name(self) -> &'static str {
        match self {
            Program::Sbatch => "sbatch",
            Program::Squeue => "squeue",
            Program::Sinfo => "sinfo",
            Program::Sacct => "sacct",
            Program::Scontrol => "scontrol",
        }
    }

    /// Returns the type of the request that the program itself would send.
    fn message_type(self) -> (&'static str, u32) {
        match self {
            Program::Sbatch => SUBMIT,
            Program::Squeue | Program::Scontrol => JOBS,
            Program::Sinfo => NODE,
            Program::Sacct => ACCOUNTING,
        }
    }
}

/// A plain command line, and facts about its process that the daemon cannot read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlainCommand {
    pub program: Program,
    /// The number of words of the command line, including the name of the program.
    pub args: usize,
    pub words_len: usize,
    pub dir_len: usize,
    /// 0 if no script is sent.
    pub script_len: usize,
    /// The word that names the script if the client sends it unasked, or 0 if the daemon has asked
    /// for it.
    pub script_word: usize,
    pub pid: u32,
    /// The [`checksum`](Surroundings::checksum) of the process's surroundings.
    pub surroundings: u64,
    pub umask: u32,
    /// The working directory or one above it contains `.git`.
    pub may_be_in_tree: bool,
    /// Standard error is a terminal.
    pub is_on_terminal: bool,
}

/// Jobs submitted by one process. Each is accepted or refused separately.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubmitMany {
    pub jobs: Vec<OneOfMany>,
    pub env_len: usize,
    pub client: ClientProcess,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OneOfMany {
    pub request: JobRequest,
    pub script_len: usize,
}

/// A crontab, of which either all entries are accepted or none.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InstallCrontab {
    pub text_len: usize,
    pub entries: Vec<CrontabJob>,
    pub client: ClientProcess,
}

/// The job of an entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CrontabJob {
    pub job: OneOfMany,
    pub env_len: usize,
    pub recurrence: Recurrence,
    /// The line numbers of its first `#SCRON` line and of its command, starting at 1.
    pub lines: (usize, usize),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ControlAction {
    Hold,
    Release,
    /// With this hold, if any.
    Requeue(Option<Hold>),
    Suspend,
    Resume,
    /// `scontrol top`.
    Top,
    /// Write a line to the job's standard error (`scontrol notify`).
    Notify(String),
    /// `KEY=VALUE` pairs as parsed by `parse::update`.
    Update(Vec<slotd_model::update::Update>),
}

/// The ended jobs that `slotd clean` deletes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clean {
    /// Delete jobs that ended before this instant.
    pub before: Timestamp,
    /// Keep these jobs, even if they could be deleted by now, because the user saw them listed as
    /// kept.
    pub except: Vec<JobId>,
    /// Report what would be freed, and delete nothing.
    pub dry_run: bool,
}

/// The running steps that `sstat` queries.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageAsk {
    pub steps: Vec<JobRef>,
    /// For a job named without a step, include all its running steps instead of only the first.
    pub all_steps: bool,
}

/// A request of scancel.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CancelAsk {
    /// If only jobs and steps are named, there is an outcome for each of them. Otherwise all
    /// matching jobs are cancelled.
    pub query: JobQuery,
    /// Send this signal instead of cancelling.
    pub signal: Option<i32>,
    /// `-b`: signal only the batch shell.
    pub batch: bool,
    /// `-f`: signal the batch shell and its children.
    pub full: bool,
    pub uid: u32,
}

/// The source or target of one of a task's streams. Indices count the descriptors sent with the
/// frame.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Stream {
    #[default]
    Null,
    Fd(usize),
    /// A file that the step opens. Missing parent directories of an output file are created. Output
    /// is always appended; without `append` the file is truncated first. A file named twice is
    /// opened once. Clients may use the patterns of `parse::filename` and paths relative to the
    /// working directory.
    File {
        path: PathBuf,
        append: bool,
    },
    /// Standard error uses the target of standard output.
    SameAsStdout,
}

/// The streams of one task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskStreams {
    pub stdin: Stream,
    pub stdout: Stream,
    pub stderr: Stream,
}

/// A step that srun or salloc's command launches inside an allocation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StepLaunch {
    pub job: JobId,
    /// The process that requests the step. A process requests only one.
    pub client: ClientProcess,
    /// The user that the command and the environment belong to.
    #[serde(default)]
    pub uid: u32,
    /// The client is repeating the request because the daemon died before the step was known to
    /// run. If the first request was carried out, only its result is reported.
    pub again: bool,
    pub request: StepRequest,
    /// One argument vector per task, or one for all tasks.
    pub argv: Vec<Vec<String>>,
    pub work_dir: String,
    pub umask: Option<u32>,
    /// The client's resource limits (`--propagate`).
    #[serde(default)]
    pub rlimits: Rlimits,
    /// By rank: one entry per requested task.
    pub streams: Vec<TaskStreams>,
    /// Task 0 gets its standard input as its controlling terminal.
    pub pty: bool,
    /// Index of the socket whose other end the client holds. The step ends when the client closes
    /// it. The client sends signals through it and is notified of the step's end.
    pub client_line: Option<usize>,
    /// The client labels output lines: `SLURM_LABELIO`.
    pub label: bool,
}

impl StepLaunch {
    /// Returns the number of descriptors sent with it.
    pub fn descriptors(&self) -> usize {
        let of_stream = |stream: &Stream| {
            if let Stream::Fd(place) = stream { place.saturating_add(1) } else { 0 }
        };
        let of_task = |task: &TaskStreams| [&task.stdin, &task.stdout, &task.stderr].map(of_stream);
        let streams = self.streams.iter().flat_map(of_task).max().unwrap_or(0);
        streams.max(self.client_line.map_or(0, |place| place.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fact_counts_for_the_surroundings() {
        let own = Surroundings {
            user: 1,
            group: 1,
            root_mount: 1,
            root_device: 1,
            root_inode: 1,
            host: b"a",
        };
        let others = [
            Surroundings { user: 2, ..own },
            Surroundings { group: 2, ..own },
            Surroundings { root_mount: 2, ..own },
            Surroundings { root_device: 2, ..own },
            Surroundings { root_inode: 2, ..own },
            Surroundings { host: b"b", ..own },
        ];
        let mut sums: Vec<u64> = others.iter().map(Surroundings::checksum).collect();
        sums.push(own.checksum());
        sums.sort_unstable();
        sums.dedup();
        assert_eq!(sums.len(), others.len() + 1);
        assert_eq!(Surroundings { ..own }.checksum(), own.checksum());
    }
}
