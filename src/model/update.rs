//! What `scontrol update job` may change.

use crate::model::dependency::Dependency;
use crate::model::{Constraint, Timestamp};
use serde::{Deserialize, Serialize};

/// One `KEY=VALUE` (book, "Job Control: update job", and Slurm's keys beyond it).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Update {
    JobName(String),
    Partition(String),
    /// Seconds; `None` is unlimited.
    TimeLimit(Option<u64>),
    /// 0 holds the job, as in Slurm.
    Priority(u32),
    Nice(i64),
    Dependency(Dependency),
    NumCpus(u32),
    NumTasks(u32),
    CpusPerTask(u32),
    /// MB.
    MinMemoryNode(u64),
    /// MB.
    MinMemoryCpu(u64),
    Gpus(u32),
    /// `None`: now.
    StartTime(Option<Timestamp>),
    Deadline(Option<Timestamp>),
    Comment(String),
    Account(String),
    Qos(String),
    WorkDir(String),
    StdOut(String),
    StdErr(String),
    StdIn(String),
    /// `None` or 0: no limit.
    ArrayTaskThrottle(Option<u32>),
    Requeue(bool),
    /// `None`: any host will do.
    Features(Option<Constraint>),
    WcKey(String),
    Reservation(String),
    Licenses(String),
    MailType(String),
    MailUser(String),
    /// Seconds.
    TimeMin(Option<u64>),
    /// As if no priority had ever been set.
    PriorityReset,
    /// GPUs for each task.
    GpusPerTask(u32),
    /// Shuts other jobs out, or lets them in.
    Exclusive(bool),
    /// `NumNodes=1`: what every job has here.
    Nodes,
}
