//! What `scontrol update job` may change.

use crate::model::batch_tasks::ScriptTasks;
use crate::model::dependency::Dependency;
use crate::model::request::{GpuRequest, KeptText};
use crate::model::{Constraint, Timestamp};
use serde::{Deserialize, Serialize};

/// One `KEY=VALUE` of `scontrol update`, from the command line to the scheduler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Update {
    JobName(String),
    /// One or several, with commas: the first that can take the job is its partition.
    Partition(String),
    /// Seconds; `None` is unlimited.
    TimeLimit(Option<u64>),
    /// `TimeLimit=+10`, `TimeLimit=-10`: seconds more or less than the limit of each job.
    TimeLimitBy(i64),
    /// Seconds.
    TimeMin(Option<u64>),
    /// 0 holds the job, as in Slurm; any other number releases it.
    Priority(u32),
    /// As if no priority had ever been set; a hold is released by it.
    PriorityReset,
    Nice(i64),
    /// Empty: none any more.
    Dependency(Dependency),
    NumCpus(u32),
    NumTasks(u32),
    CpusPerTask(u32),
    /// The fewest nodes that are asked for: every job has one.
    NumNodes(u32),
    /// MB.
    MinMemoryNode(u64),
    /// MB.
    MinMemoryCpu(u64),
    /// How many GPUs, counted by job, node or task, and of which model.
    Gpus(GpuRequest),
    StartTime(Timestamp),
    Deadline(Timestamp),
    /// At most so many tasks of the array at once; `None` or 0: no limit.
    ArrayTaskThrottle(Option<u32>),
    Requeue(bool),
    /// `None`: any host will do.
    Features(Option<Constraint>),
    /// Shuts other jobs out, or lets them in.
    Exclusive(bool),
    /// Absolute.
    WorkDir(String),
    StdOut(String),
    StdErr(String),
    StdIn(String),
    /// An empty text takes what was there away.
    Text(KeptText, String),
    /// The batch script, and what it tells of its tasks.
    Script {
        text: String,
        tasks: ScriptTasks,
    },
}
