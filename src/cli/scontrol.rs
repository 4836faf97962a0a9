//! `scontrol`: look at one thing closely, and change it.

use crate::cli::squeue::Machine;
use crate::model::dependency::Dependency;
use crate::model::request::GpuRequest;
use crate::model::{JobRef, Timestamp};

/// Jobs named by number or by name (`jobname=x`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Jobs(Vec<JobRef>),
    Name(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Show {
    /// `None`: all jobs.
    Jobs(Option<Vec<JobRef>>),
    Steps(Option<Vec<JobRef>>),
    Node(Option<String>),
    Partition(Option<String>),
    Config,
    /// The names in a host list; `None`: of `SLURM_NODELIST`, already looked up.
    Hostnames(String),
    /// Names joined to a host list; sorted or as given.
    Hostlist {
        names: String,
        sorted: bool,
    },
    Daemons,
    /// Something that one host never has any of: `reservation`, `licenses`, `burstbuffer`, `topology`, …
    Nothing(String),
}

/// A change of one key of a job; times in seconds, memory in MB.
#[derive(Debug, Clone, PartialEq)]
pub enum JobChange {
    Name(String),
    Partition(String),
    /// `None` is unlimited.
    TimeLimit(Option<u64>),
    /// `TimeLimit=+10`, `TimeLimit=-10`: seconds more or less.
    TimeLimitBy(i64),
    TimeMin(Option<u64>),
    Priority(u32),
    Nice(i64),
    Dependency(Dependency),
    NumCpus(u32),
    NumTasks(u32),
    CpusPerTask(u32),
    NumNodes(u32, u32),
    MemPerNode(u64),
    MemPerCpu(u64),
    Gpus(GpuRequest),
    Begin(Timestamp),
    Deadline(Timestamp),
    /// At most so many tasks of the array at once; `None` is no limit.
    ArrayThrottle(Option<u32>),
    Requeue(bool),
    Comment(String),
    Account(String),
    Qos(String),
    WcKey(String),
    Reservation(String),
    Licenses(String),
    Features(String),
    StdOut(String),
    StdErr(String),
    StdIn(String),
    WorkDir(String),
    MailType(String),
    MailUser(String),
    Exclusive(bool),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    Show(Show),
    Hold(Vec<Target>),
    /// A hold that the job's owner may release.
    UserHold(Vec<Target>),
    Release(Vec<Target>),
    Requeue(Vec<JobRef>),
    RequeueHold(Vec<JobRef>),
    Suspend(Vec<Target>),
    Resume(Vec<Target>),
    /// `update JobId=…`: the changes with the words they came from, for messages.
    Update {
        target: Target,
        changes: Vec<(String, JobChange)>,
    },
    Top(Vec<JobRef>),
    /// `write batch_script`; the file is `-` for standard output, `None` for `slurm-<id>.sh`.
    WriteScript {
        job: JobRef,
        file: Option<String>,
    },
    Notify {
        job: JobRef,
        message: String,
    },
    /// `listpids`: of one job or step, or all.
    ListPids(Option<JobRef>),
    WaitJob(JobRef),
    Ping,
    Version,
    /// No words at all: commands come from standard input, a line each.
    Interactive,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Scontrol {
    pub command: Command,
    pub oneliner: bool,
    pub details: bool,
    pub machine: Option<Machine>,
    /// `-Q`: no messages on failure, only the exit code.
    pub quiet: bool,
    pub verbose: u8,
}
