//! Updates that `scontrol update job` and `slotd edit` can make: when they are allowed, and their
//! effect on the request. `commands::changes` parses the user's text.

use crate::batch_tasks::ScriptTasks;
use crate::dependency::Dependency;
use crate::request::{GpuRequest, KeptText, MemRequest, NodeCount, Sharing, Switches};
use crate::{Constraint, HostList, JobRequest, Refusal, Timestamp};
use serde::{Deserialize, Serialize};

/// One `KEY=VALUE` of `scontrol update`, from the command line to the scheduler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Update {
    JobName(String),
    /// One or several, separated by commas. The first that can take the job becomes its partition.
    Partition(String),
    /// Seconds; `None` means unlimited.
    TimeLimit(Option<u64>),
    /// `TimeLimit=+10`, `TimeLimit=-10`: seconds to add to each job's own limit.
    TimeLimitBy(i64),
    /// The end of a running job: its time limit becomes the run time that it has until then.
    EndTime(Timestamp),
    /// Seconds.
    TimeMin(Option<u64>),
    /// 0 holds the job. Any other number is refused for a held job, as in Slurm.
    Priority(u32),
    /// Reverts to the default priority. A hold stays.
    PriorityReset,
    Nice(i64),
    /// Empty removes the dependency.
    Dependency(Dependency),
    NumCpus(u32),
    NumTasks(u32),
    CpusPerTask(u32),
    /// Every job has one node, but the requested range is shown.
    NumNodes(NodeCount),
    /// MB.
    MinMemoryNode(u64),
    /// MB.
    MinMemoryCpu(u64),
    /// The number of GPUs per job, node or task, and their model.
    Gpus(GpuRequest),
    StartTime(Timestamp),
    Deadline(Timestamp),
    /// Maximum number of tasks of the array to run at once; `None` or 0 means no limit.
    ArrayTaskThrottle(Option<u32>),
    Requeue(bool),
    /// `None` accepts any host.
    Features(Option<Box<Constraint>>),
    /// `--prefer`; `None` means no preference.
    Prefer(Option<Box<Constraint>>),
    Contiguous(bool),
    /// `--switches`; `None` means any number.
    Switches(Option<Switches>),
    /// Seconds.
    DelayBoot(u64),
    /// MB.
    MinTmpDisk(u64),
    /// `--mincpus`; 0 means no minimum.
    MinCpus(u32),
    /// The host that the job requests by name.
    NodeList(HostList),
    /// Whether the job excludes other jobs.
    Exclusive(bool),
    /// Absolute.
    WorkDir(String),
    StdOut(String),
    StdErr(String),
    StdIn(String),
    /// An empty string removes the old value.
    Text(KeptText, String),
    /// The batch script, and the hints it contains about its tasks.
    Script {
        text: String,
        tasks: ScriptTasks,
    },
}

/// The job states in which an update is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Pending,
    Running,
    /// While the job is pending or running.
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
            // Only pending jobs can be held.
            Update::Priority(0)
            | Update::Partition(_)
            | Update::Dependency(_)
            | Update::Gpus(_)
            | Update::StartTime(_)
            | Update::Features(_)
            | Update::Prefer(_)
            | Update::Contiguous(_)
            | Update::MinTmpDisk(_)
            | Update::MinCpus(_)
            | Update::Exclusive(_)
            // The files of a running job are open, and its record must say where they are.
            | Update::WorkDir(_)
            | Update::StdOut(_)
            | Update::StdErr(_)
            | Update::StdIn(_)
            // The limits on the jobs of an account count a running job.
            | Update::Text(KeptText::Qos | KeptText::Account | KeptText::WcKey, _)
            | Update::Script { .. } => Stage::Pending,
            // A job that has not started has no end to move.
            Update::EndTime(_) => Stage::Running,
            Update::JobName(_)
            | Update::Priority(1..)
            | Update::PriorityReset
            | Update::Nice(_)
            | Update::TimeMin(_)
            | Update::TimeLimit(_)
            | Update::TimeLimitBy(_)
            | Update::Switches(_)
            | Update::DelayBoot(_)
            | Update::NumNodes(_)
            | Update::Deadline(_)
            | Update::NodeList(_)
            | Update::Text(..)
            | Update::ArrayTaskThrottle(_)
            | Update::Requeue(_) => Stage::Always,
        }
    }

    /// Returns the time limit of a step with this one after the update.
    ///
    /// # Errors
    /// Fails if there is no such limit, or if the update is not one of a time limit.
    pub fn step_limit(&self, limit_secs: Option<u64>) -> Result<Option<u64>, Refusal> {
        match self {
            Update::TimeLimit(limit) => Ok(*limit),
            Update::TimeLimitBy(by) => changed_by(limit_secs, *by).map(Some),
            _ => Err(Refusal::Disabled),
        }
    }

    /// Applies the update to a request.
    ///
    /// # Errors
    /// Fails if no request can have the value, or if this request has nothing to change.
    pub fn write(&self, request: &mut JobRequest) -> Result<(), Refusal> {
        match self {
            Update::JobName(name) => request.name.clone_from(name),
            Update::Partition(names) => request.partition = Some(names.clone()),
            Update::TimeLimit(limit) => request.time_limit_secs = *limit,
            Update::TimeLimitBy(by) => {
                request.time_limit_secs = Some(changed_by(request.time_limit_secs, *by)?);
            }
            // The limit also depends on the start and the suspensions of the job.
            Update::EndTime(_) => {}
            Update::TimeMin(secs) => request.time_min_secs = *secs,
            // Holds the job and keeps its priority for the release.
            Update::Priority(0) => {}
            // The latest request wins: in Slurm too, a new priority resets the nice value.
            Update::Priority(priority) => (request.priority, request.nice) = (Some(*priority), 0),
            Update::PriorityReset => request.priority = None,
            Update::Nice(nice) => request.nice = *nice,
            Update::Dependency(dependency) => request.dependency.clone_from(dependency),
            Update::NumCpus(cpus) => set_cpus(request, *cpus),
            Update::NumTasks(tasks) => (request.ntasks, request.mincpus) = (Some(*tasks), None),
            Update::CpusPerTask(cpus) => {
                (request.cpus_per_task, request.mincpus) = (Some(*cpus), None)
            }
            Update::NumNodes(NodeCount { min: 0, .. }) => {}
            Update::NumNodes(nodes @ NodeCount { min: 1, .. }) => request.nodes = Some(*nodes),
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
            Update::Switches(switches) => request.switches = *switches,
            Update::DelayBoot(secs) => request.delay_boot_secs = Some(*secs),
            Update::MinTmpDisk(mb) => request.tmp_disk_mb = Some(*mb),
            Update::MinCpus(cpus) => request.mincpus = Some(*cpus).filter(|cpus| *cpus > 0),
            Update::NodeList(hosts) => request.nodelist.clone_from(hosts),
            Update::Exclusive(yes) => {
                request.sharing = if *yes { Sharing::Exclusive } else { Sharing::Default }
            }
            Update::WorkDir(path) => request.work_dir.clone_from(path),
            Update::StdOut(path) => request.std_out = Some(path.clone()),
            Update::StdErr(path) => request.std_err = Some(path.clone()),
            Update::StdIn(path) => request.std_in = Some(path.clone()),
            Update::Script { tasks, .. } => request.script_tasks.clone_from(tasks),
            // An empty string removes the old value, as in Slurm.
            Update::Text(which, text) => {
                *which.of_mut(request) = Some(text.clone()).filter(|text| !text.is_empty())
            }
        }
        Ok(())
    }
}

/// Distributes CPUs over the tasks. The number of tasks stays the same if possible.
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

/// Returns a time limit, in seconds, that has grown or shrunk.
fn changed_by(limit_secs: Option<u64>, by_secs: i64) -> Result<u64, Refusal> {
    let limit_secs = limit_secs.ok_or(Refusal::NoTimeLimit)?;
    let by = by_secs.unsigned_abs();
    if by_secs < 0 {
        limit_secs.checked_sub(by).ok_or(Refusal::DecrementTooLarge { by_secs: by, limit_secs })
    } else {
        Ok(limit_secs.saturating_add(by))
    }
}
