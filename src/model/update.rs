//! What `scontrol update job` and `slotd edit` may change: when, and what comes of it in the
//! request. The texts that a user writes for it are those of `commands::changes`.

use crate::model::batch_tasks::ScriptTasks;
use crate::model::dependency::Dependency;
use crate::model::request::{GpuRequest, KeptText, MemRequest, Sharing};
use crate::model::{Constraint, HostList, JobRequest, Refusal, Timestamp};
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
    /// 0 holds the job; any other number is refused for a held one, as in Slurm.
    Priority(u32),
    /// As if no priority had ever been set. A hold stays.
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
    /// `--prefer`; `None`: any host is as good.
    Prefer(Option<Constraint>),
    Contiguous(bool),
    /// The host that it asks for by name.
    NodeList(HostList),
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

/// In which states of a job an update is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Pending,
    /// While it waits or runs.
    Size,
    Always,
}

impl Update {
    pub fn stage(&self) -> Stage {
        match self {
            Update::NumCpus(_)
            | Update::NumTasks(_)
            | Update::CpusPerTask(_)
            | Update::MinMemoryNode(_)
            | Update::MinMemoryCpu(_) => Stage::Size,
            // A hold is for what waits.
            Update::Priority(0)
            | Update::Partition(_)
            | Update::Dependency(_)
            | Update::Gpus(_)
            | Update::StartTime(_)
            | Update::Features(_)
            | Update::Prefer(_)
            | Update::Contiguous(_)
            | Update::Exclusive(_)
            | Update::Script { .. } => Stage::Pending,
            // Paths count for the next run, if the job is requeued.
            Update::JobName(_)
            | Update::Priority(1..)
            | Update::PriorityReset
            | Update::Nice(_)
            | Update::TimeMin(_)
            | Update::WorkDir(_)
            | Update::StdOut(_)
            | Update::StdErr(_)
            | Update::StdIn(_)
            | Update::TimeLimit(_)
            | Update::TimeLimitBy(_)
            | Update::NumNodes(_)
            | Update::Deadline(_)
            | Update::NodeList(_)
            | Update::Text(..)
            | Update::ArrayTaskThrottle(_)
            | Update::Requeue(_) => Stage::Always,
        }
    }

    /// Writes it into a request.
    ///
    /// # Errors
    /// No request can have it, or this one has nothing that it could change.
    pub fn write(&self, request: &mut JobRequest) -> Result<(), Refusal> {
        match self {
            Update::JobName(name) => request.name.clone_from(name),
            Update::Partition(names) => request.partition = Some(names.clone()),
            Update::TimeLimit(limit) => request.time_limit_secs = *limit,
            Update::TimeLimitBy(by) => {
                let limit = request.time_limit_secs.ok_or(Refusal::NoTimeLimit)?;
                request.time_limit_secs = Some(limit.saturating_add_signed(*by));
            }
            Update::TimeMin(secs) => request.time_min_secs = *secs,
            // It holds the job, and leaves the priority for its release.
            Update::Priority(0) => {}
            // What is asked for last is what the job has: in Slurm too a new priority ends the nice
            // value.
            Update::Priority(priority) => (request.priority, request.nice) = (Some(*priority), 0),
            Update::PriorityReset => request.priority = None,
            Update::Nice(nice) => request.nice = *nice,
            Update::Dependency(dependency) => request.dependency.clone_from(dependency),
            Update::NumCpus(cpus) => set_cpus(request, *cpus),
            Update::NumTasks(tasks) => (request.ntasks, request.mincpus) = (Some(*tasks), None),
            Update::CpusPerTask(cpus) => {
                (request.cpus_per_task, request.mincpus) = (Some(*cpus), None)
            }
            Update::NumNodes(0 | 1) => {}
            Update::NumNodes(_) => return Err(Refusal::OneNodeOnly),
            Update::MinMemoryNode(mb) => request.mem = MemRequest::PerNode(*mb),
            Update::MinMemoryCpu(mb) => request.mem = MemRequest::PerCpu(*mb),
            Update::Gpus(gpu) => {
                request.gpu = GpuRequest { cpus_per_gpu: request.gpu.cpus_per_gpu, ..gpu.clone() };
            }
            Update::StartTime(begin) => request.begin = Some(*begin),
            Update::Deadline(deadline) => request.deadline = Some(*deadline),
            Update::ArrayTaskThrottle(limit) => match &mut request.array {
                Some(array) => array.limit = limit.filter(|limit| *limit > 0),
                None => return Err(Refusal::NotAnArray),
            },
            Update::Requeue(yes) => (request.requeue, request.no_requeue) = (*yes, !*yes),
            Update::Features(wanted) => request.constraint.clone_from(wanted),
            Update::Prefer(wanted) => request.prefer.clone_from(wanted),
            Update::Contiguous(yes) => request.contiguous = *yes,
            Update::NodeList(hosts) => request.nodelist.clone_from(hosts),
            Update::Exclusive(yes) => {
                request.sharing = if *yes { Sharing::Exclusive } else { Sharing::Default }
            }
            Update::WorkDir(path) => request.work_dir.clone_from(path),
            Update::StdOut(path) => request.std_out = Some(path.clone()),
            Update::StdErr(path) => request.std_err = Some(path.clone()),
            Update::StdIn(path) => request.std_in = Some(path.clone()),
            Update::Script { tasks, .. } => request.script_tasks.clone_from(tasks),
            Update::Text(KeptText::Reservation, name) if !name.is_empty() => {
                return Err(Refusal::UnknownReservation(name.clone()));
            }
            Update::Text(KeptText::Licenses, name) if !name.is_empty() => {
                return Err(Refusal::UnknownLicense(name.clone()));
            }
            // An empty text takes what was there away, as in Slurm.
            Update::Text(which, text) => {
                *which.of_mut(request) = Some(text.clone()).filter(|text| !text.is_empty())
            }
        }
        Ok(())
    }
}

/// Spreads a number of CPUs over the tasks: the tasks stay as many as they are where that is
/// possible.
pub fn set_cpus(request: &mut JobRequest, cpus: u32) {
    let tasks = request.task_count().max(1);
    request.mincpus = None;
    if (cpus as usize) < request.named_cpus.len() {
        request.named_cpus.clear();
    }
    if cpus < tasks {
        request.ntasks = Some(cpus);
        request.cpus_per_task = Some(1);
    } else {
        request.cpus_per_task = Some(cpus / tasks);
        request.mincpus = (!cpus.is_multiple_of(tasks)).then_some(cpus);
    }
}
