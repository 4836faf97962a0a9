//! Why something that was asked for is not done.
//!
//! The daemon refuses with a value, and a command tells it in Slurm's words: all texts are made
//! here, and a client needs no text to know what happened. What a command puts before the text
//! ("Batch job submission failed") is the command's.

use crate::model::array::ArraySpec;
use crate::model::dependency::DependencyTerm;
use crate::model::gpu::GpuShare;
use crate::model::node::{NodeParts, ranges};
use crate::model::partition::PartitionState;
use crate::model::{JobId, JobRef, StepId, StoreFault, Tres};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The setting that divides GPUs into shards.
pub const SHARDS_SETTING: &str = "SLOTD_GPU_SHARDS";

/// The setting that bounds the tasks of a step.
pub const MAX_TASKS_SETTING: &str = "SLOTD_MAX_TASKS_PER_NODE";

/// What that setting may be at most, as Slurm's `MaxTasksPerNode`: no daemon takes more, so that no
/// client need ask.
pub const MOST_TASKS: u32 = 65_533;

/// Where there is less than was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Place {
    #[default]
    Host,
    /// The host has more of it than its owner gives to this partition.
    Partition(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host => f.write_str("on this host"),
            Place::Partition(name) => write!(f, "in partition {name}"),
        }
    }
}

/// A refusal, with the values that its text names. Sizes of memory are in MB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    // A job or step that exists, or does not.
    UnknownJob,
    UnknownStep,
    /// Only a job that has not ended can be held, released or changed.
    AlreadyFinished,
    /// scancel of a job that is ending or has ended; a step in one.
    AlreadyDone,
    /// It does not run yet.
    Pending,
    /// The job is not in a state in which this can be done to it, or it does not allow it
    /// (`--no-requeue`).
    Disabled,
    /// The key can only be changed while the job is pending.
    NotPending,
    /// Another script, for some tasks of an array or while others of its tasks have started.
    ScriptOfArray,
    /// Another script for a job of srun or salloc.
    NoScript,
    /// top of a held job.
    Held,
    /// A signal to a job that does not run.
    NotNow,
    NotAnArray,
    /// A time limit that is to change by a difference, of a job that has none.
    NoTimeLimit,
    /// A change to what the host can never give: why it cannot, if that is known.
    ConfigNotAvailable(Option<Box<Refusal>>),
    /// A running job has all of its partition to itself, or shares its CPUs with others.
    FixedSize {
        job: JobId,
        exclusive: bool,
    },
    /// A running job would pass a limit of its account or name: the reason for which a pending one
    /// would wait.
    OverLimit {
        reason: String,
    },
    /// A running job cannot grow now: what it would need more, what is free, and when there is room
    /// for it, if that can be told.
    NoRoom {
        job: JobId,
        more: Tres,
        free: Tres,
        in_secs: Option<u64>,
    },

    // A request that the host can never meet.
    UnknownPartition {
        name: String,
        known: Vec<String>,
    },
    /// A partition that takes no jobs now.
    PartitionNotAvailable {
        name: String,
        state: PartitionState,
    },
    /// More than one node, or none.
    NodeCount,
    /// More than one node for a job that exists.
    OneNodeOnly,
    UnknownNode(String),
    /// One host has no reservations.
    UnknownReservation(String),
    /// One host has no licenses.
    UnknownLicense(String),
    NodeExcluded(String),
    MissingFeature {
        /// The constraint as it was written.
        wanted: String,
        known: Vec<String>,
    },
    /// A feature of `--prefer` that the host does not know.
    UnknownPreference {
        wanted: String,
        known: Vec<String>,
    },
    /// The host has GPUs, and knows their models.
    UnknownGpuModel {
        model: String,
        known: Vec<String>,
    },
    ArrayTooLarge {
        array: ArraySpec,
        last: u32,
        max: u32,
    },
    TooManyCpus {
        asked: u32,
        there: u32,
        #[serde(default)]
        place: Place,
    },
    /// A CPU by its number that there is none of. Those that there are.
    NoSuchCpu {
        asked: u32,
        there: BTreeSet<u32>,
        place: Place,
    },
    /// More sockets, cores of a socket or threads of a core than the host has.
    HostShape {
        what: String,
        asked: u32,
        there: u32,
    },
    /// More tasks than a step may have.
    TooManyTasks {
        asked: u32,
        max: u32,
    },
    TooMuchMemory {
        asked: u64,
        there: u64,
        #[serde(default)]
        place: Place,
    },
    TooManyGpus {
        asked: u32,
        there: u32,
        #[serde(default)]
        place: Place,
        model: Option<String>,
        /// GPUs of any model on the host.
        host: u32,
    },
    /// More of each GPU than any of them has; `most` is 0 where they are not shared so.
    TooMuchOfGpu {
        share: GpuShare,
        most: u64,
    },
    /// A text of a request: which, its length and the most that is taken, in bytes.
    TooLong {
        what: String,
        len: usize,
        max: usize,
    },
    UnknownDependency(DependencyTerm),
    /// A job that cannot be expanded, or not by this one, and why.
    CannotExpand {
        job: JobRef,
        why: String,
    },
    DependsOnItself(JobId),
    /// The job that it is to wait for waits for it already, through this one.
    CircularDependency(JobId),

    // A step that its job cannot give room to.
    StepTooManyCpus,
    StepTooMuchMemory,
    StepTooManyGpus,
    /// Some of those of its job are out of use.
    StepGpusOut {
        out: NodeParts,
    },
    /// With `--immediate`.
    Busy,

    // The daemon.
    /// It cannot run again: its environment is not kept any more.
    EnvironmentDropped(JobId),
    /// The copy of the work tree that the job is to run in is not there.
    SnapshotGone(String),
    /// A client came back to a job, or a step, that is not in memory any more.
    Forgotten {
        job: JobId,
        step: Option<StepId>,
    },
    /// Another process manages the steps of the job.
    Managed {
        pid: u32,
    },
    /// Nothing of it was done: the database cannot be written.
    NotStored(StoreFault),
    /// It was done, and is not on disk yet.
    Unrecorded(StoreFault),
    /// Limits cannot be enforced, which the daemon is set to do: the path and the reason.
    NoCgroups(String),
    /// What the owner of the host says makes no sense, or cannot be kept.
    Configuration(String),
    ShuttingDown,
    /// Other clients do not read their answers.
    Crowded,
    /// So many clients are connected.
    TooManyClients(usize),
    /// The daemon has as many open files as it may have: this number.
    NoDescriptors(u64),
    /// The daemon that was started for this client cannot serve, and why.
    CannotStart(String),
    WrongUser {
        daemon: u32,
        client: u32,
    },
    /// A frame that is no request.
    Malformed(String),
    /// The answer does not fit in a frame.
    Unsendable(String),
    /// The database could not be read.
    Database(String),
}

impl Refusal {
    /// The offending value, as a line of its own before the text.
    pub fn detail(&self) -> Option<String> {
        Some(match self {
            Refusal::UnknownPartition { name, .. } => {
                format!("invalid partition specified: {name}")
            }
            Refusal::PartitionNotAvailable { name, state } => {
                format!("partition {name} is {}", state.name())
            }
            Refusal::UnknownNode(name) => format!("no such node: {name}"),
            Refusal::UnknownReservation(name) => {
                format!("no such reservation, slotd has none: {name}")
            }
            Refusal::UnknownLicense(name) => format!("no such license, slotd has none: {name}"),
            Refusal::NodeExcluded(name) => format!("the only node is excluded: {name}"),
            Refusal::MissingFeature { wanted, .. } | Refusal::UnknownPreference { wanted, .. } => {
                format!("no such features on this host: {wanted}")
            }
            Refusal::UnknownGpuModel { model, .. } => {
                format!("no such GPU model on this host: {model}")
            }
            Refusal::ArrayTooLarge { array, last, max } => {
                format!("array task {last} of {array}, {max} at most")
            }
            Refusal::TooManyCpus { asked, there, place } => {
                format!(
                    "CPU count per node can not be satisfied: {asked} CPUs requested, {there} {place}"
                )
            }
            Refusal::NoSuchCpu { asked, there, place } => {
                format!("CPU {asked} requested by --cpu-bind, CPUs {} {place}", ranges(there))
            }
            Refusal::HostShape { what, asked, there } => {
                format!(
                    "Socket, core and/or thread specification can not be satisfied: {asked} {what} requested, {there} there"
                )
            }
            Refusal::TooManyTasks { asked, max } => {
                format!("{asked} tasks requested, {max} at most on a node ({MAX_TASKS_SETTING})")
            }
            Refusal::TooMuchMemory { asked, there, place } => {
                format!(
                    "Memory specification can not be satisfied: {asked} MB requested, {there} MB {place}"
                )
            }
            Refusal::TooManyGpus { asked, there, place, model, host } if *host > 0 => {
                format!(
                    "GPU count per node can not be satisfied: {}",
                    gpus(*asked, *there, place, model.as_deref())
                )
            }
            Refusal::TooMuchOfGpu { share, most } => too_much_of_gpu(*share, *most),
            Refusal::TooLong { what, len, max } => format!("{what} of {len} bytes, {max} at most"),
            Refusal::UnknownDependency(term @ DependencyTerm::On { job, .. }) => {
                format!("no job {job} for dependency {term}")
            }
            Refusal::CannotExpand { job, why } => {
                format!("job {job} cannot be expanded by this one: {why}")
            }
            Refusal::StepGpusOut { out } => {
                format!(
                    "{out} out of use in this job (sinfo -R tells why): too few are left for this step"
                )
            }
            Refusal::DependsOnItself(job) => format!("job {job} would wait for itself"),
            Refusal::CircularDependency(job) => {
                format!("the jobs would wait for each other: job {job} depends on this one")
            }
            Refusal::FixedSize { job, exclusive: true } => {
                format!(
                    "job {job} has all CPUs of its partition to itself: its size cannot be changed"
                )
            }
            Refusal::FixedSize { job, exclusive: false } => {
                format!("job {job} shares its CPUs with other jobs: it cannot grow")
            }
            Refusal::OverLimit { reason } => format!("the job would be over a limit: {reason}"),
            Refusal::NoRoom { job, more, free, in_secs } => no_room(*job, more, free, *in_secs),
            _ => return None,
        })
    }

    /// The refusal behind one that Slurm words in general.
    pub fn cause(&self) -> &Refusal {
        match self {
            Refusal::ConfigNotAvailable(Some(cause)) => cause,
            other => other,
        }
    }

    /// The text says it all: what a command puts before it would be wrong, or is not what Slurm
    /// prints.
    fn stands_alone(&self) -> bool {
        match self {
            // Slurm does not know the word where there are no GPUs, and knows too few where there
            // are some.
            Refusal::TooManyGpus { host, .. } => *host == 0,
            Refusal::Forgotten { .. }
            | Refusal::Managed { .. }
            | Refusal::ShuttingDown
            | Refusal::Crowded
            | Refusal::TooManyClients(_)
            | Refusal::NoDescriptors(_)
            | Refusal::CannotStart(_)
            | Refusal::WrongUser { .. }
            | Refusal::Malformed(_)
            | Refusal::Unsendable(_)
            | Refusal::Database(_) => true,
            _ => false,
        }
    }

    /// The lines to print, each still without `sbatch: error: `. `what` is what failed:
    /// `Batch job submission failed`, `Unable to create step for job 12`.
    pub fn lines(&self, what: &str) -> Vec<String> {
        let text = if self.stands_alone() { self.to_string() } else { format!("{what}: {self}") };
        self.detail().into_iter().chain([text]).collect()
    }
}

fn no_room(job: JobId, more: &Tres, free: &Tres, in_secs: Option<u64>) -> String {
    let words = |tres: &Tres| {
        let amounts = [
            (u64::from(more.cpus), u64::from(tres.cpus), "CPUs"),
            (more.mem_mb, tres.mem_mb, "MB"),
        ];
        let asked = amounts.iter().filter(|(more, _, _)| *more > 0);
        asked.map(|(_, amount, unit)| format!("{amount} {unit}")).collect::<Vec<_>>().join(" and ")
    };
    let fits = more.minus(free) == Tres::ZERO;
    let kept = if fits { ", kept for jobs that wait" } else { "" };
    let when = match in_secs {
        Some(secs) => {
            format!("there is room in {}:{:02}:{:02}", secs / 3600, secs / 60 % 60, secs % 60)
        }
        None => "it cannot be told when there is room".to_owned(),
    };
    format!(
        "job {job} would need {} more, and {} are free{kept}; {when}: sbatch --dependency=expand:{job} waits for it",
        words(more),
        words(free)
    )
}

fn gpus(asked: u32, there: u32, place: &Place, model: Option<&str>) -> String {
    let kind = model.map(|model| format!("{model} ")).unwrap_or_default();
    format!("{asked} {kind}GPUs requested, {there} {place}")
}

fn too_much_of_gpu(share: GpuShare, most: u64) -> String {
    match (share, most) {
        (GpuShare::Shards(_), 0) => {
            format!("GPUs of this host are not divided into shards: set {SHARDS_SETTING}")
        }
        (GpuShare::Shards(shards), _) => {
            format!("{shards} shards requested, a GPU of this host has {most}")
        }
        (GpuShare::MemMb(_), 0) => {
            "the memory of the GPUs of this host is not known: ask for gpu, without gpumem"
                .to_owned()
        }
        (GpuShare::MemMb(mb), _) => {
            format!("{mb} MB of each GPU requested, {most} MB on the largest GPU of this host")
        }
        (GpuShare::Whole, _) => String::new(),
    }
}

/// The text without the detail: Slurm's own (`slurm_strerror`), where Slurm has one.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::UnknownJob | Refusal::UnknownStep => "Invalid job id specified",
            Refusal::AlreadyFinished => "Job has already finished",
            Refusal::AlreadyDone => "Job/step already completing or completed",
            Refusal::Pending => "Job is pending execution",
            Refusal::Disabled => "Requested operation is presently disabled",
            Refusal::NotPending => "Job is no longer pending execution",
            Refusal::ScriptOfArray => {
                "All tasks of an array have one script, which can be changed for all of them before the first one starts"
            }
            Refusal::NoScript => "The job has no batch script",
            Refusal::Held => "Job is in held state, pending scheduler release",
            Refusal::NotNow => "Job can not be altered now, try again later",
            Refusal::NotAnArray => "Job is not an array",
            Refusal::NoTimeLimit => "No time limit that a difference could change",
            Refusal::FixedSize { .. } => "Requested operation is presently disabled",
            Refusal::OverLimit { .. } => {
                "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
            }
            Refusal::NoRoom { .. } => "Requested nodes are busy",
            Refusal::ConfigNotAvailable(_) => "Requested partition configuration not available now",
            Refusal::UnknownPartition { .. } => "Invalid partition name specified",
            Refusal::PartitionNotAvailable { .. } => "Required partition not available (inactive or drain)",
            Refusal::NodeCount => "Node count specification invalid",
            Refusal::UnknownNode(_) => "Invalid node name specified",
            Refusal::UnknownReservation(_) => "Requested reservation is invalid",
            Refusal::UnknownLicense(_) => "Invalid license specification",
            Refusal::MissingFeature { .. } => "Invalid feature specification",
            Refusal::UnknownPreference { .. } => "Invalid preferred feature specification",
            Refusal::ArrayTooLarge { .. } => "Invalid job array specification",
            Refusal::TooManyCpus { .. } | Refusal::StepTooManyCpus => "More processors requested than permitted",
            Refusal::TooManyGpus { asked, there, place, model, host: 0 } => {
                let asked = gpus(*asked, *there, place, model.as_deref());
                return write!(f, "Invalid generic resource (gres) specification: {asked}");
            }
            Refusal::NoSuchCpu { .. } => "Unable to satisfy cpu bind request",
            Refusal::OneNodeOnly
            | Refusal::NodeExcluded(_)
            | Refusal::TooMuchMemory { .. }
            | Refusal::TooMuchOfGpu { .. }
            | Refusal::HostShape { .. }
            | Refusal::TooManyGpus { .. } => "Requested node configuration is not available",
            Refusal::UnknownDependency(_) | Refusal::DependsOnItself(_) | Refusal::CannotExpand { .. } => {
                "Job dependency problem"
            }
            Refusal::CircularDependency(_) => "Circular job dependency",
            Refusal::StepTooMuchMemory => "Memory required by task is not available",
            Refusal::StepTooManyGpus | Refusal::StepGpusOut { .. } | Refusal::UnknownGpuModel { .. } => {
                "Invalid generic resource (gres) specification"
            }
            Refusal::TooLong { .. } => "Pathname of a file, directory or other parameter too long",
            Refusal::TooManyTasks { .. } => "Task count specification invalid",
            Refusal::Busy => "Requested nodes are busy",
            Refusal::Forgotten { job, step: Some(step) } => {
                return write!(f, "the daemon knows no step {job}.{step} any more");
            }
            Refusal::Managed { pid } => return write!(f, "process {pid} manages the steps of this job already"),
            Refusal::Forgotten { job, step: None } => return write!(f, "the daemon knows no job {job} any more"),
            Refusal::NotStored(fault) => return write!(f, "{fault}: {} and try again", fault.remedy()),
            Refusal::Unrecorded(fault) => {
                return write!(f, "done, but undone if the daemon dies before it can write that down: {fault}");
            }
            Refusal::SnapshotGone(name) => {
                return write!(f, "the copy {name} of the work tree (--snapshot) is not kept any more: submit the job anew");
            }
            Refusal::EnvironmentDropped(job) => {
                return write!(f, "the environment of job {job} is not kept any more: submit it again");
            }
            Refusal::NoCgroups(why) => return write!(f, "SLOTD_CGROUP_BASE cannot be used: {why}"),
            Refusal::ShuttingDown => "the daemon is shutting down",
            Refusal::Crowded => "the daemon holds long answers for clients that do not read them: try again",
            Refusal::TooManyClients(there) => {
                return write!(f, "{there} clients are connected to the daemon, and it takes no more: try again");
            }
            Refusal::NoDescriptors(limit) => {
                return write!(
                    f,
                    "the daemon has no descriptors left, it may have {limit} open files: try again, or raise its limit \
                     (LimitNOFILE= of its unit, ulimit -Hn)"
                );
            }
            Refusal::CannotStart(why) => return write!(f, "the daemon cannot start: {why}"),
            Refusal::WrongUser { daemon, client } => {
                return write!(f, "this daemon serves user {daemon} alone, not user {client}");
            }
            Refusal::Unsendable(why) => return write!(f, "the answer could not be sent: {why}"),
            Refusal::Malformed(why) | Refusal::Database(why) | Refusal::Configuration(why) => why,
        })
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offending_value_has_a_line_of_its_own() {
        let refusal = Refusal::UnknownPartition { name: "nope".to_owned(), known: Vec::new() };
        let lines =
            ["invalid partition specified: nope", "It failed: Invalid partition name specified"];
        assert_eq!(refusal.lines("It failed"), lines);
        assert_eq!(
            Refusal::NodeCount.lines("It failed"),
            ["It failed: Node count specification invalid"]
        );
    }

    #[test]
    fn a_fault_of_the_daemon_is_no_fault_of_the_request() {
        assert_eq!(Refusal::ShuttingDown.lines("It failed"), ["the daemon is shutting down"]);
        let gpus = |host| Refusal::TooManyGpus {
            asked: 2,
            there: 0,
            place: Place::Host,
            model: Some("a100".to_owned()),
            host,
        };
        let asked = "2 a100 GPUs requested, 0 on this host";
        assert_eq!(
            gpus(0).lines("No"),
            [format!("Invalid generic resource (gres) specification: {asked}")]
        );
        let detail = format!("GPU count per node can not be satisfied: {asked}");
        assert_eq!(
            gpus(4).lines("No"),
            [detail.as_str(), "No: Requested node configuration is not available"]
        );
    }

    #[test]
    fn a_share_that_no_gpu_has_is_told_with_what_there_is() {
        let detail = |share, most| {
            Refusal::TooMuchOfGpu { share, most }.detail().expect("it names the value")
        };
        assert_eq!(
            detail(GpuShare::MemMb(9), 8),
            "9 MB of each GPU requested, 8 MB on the largest GPU of this host"
        );
        assert!(detail(GpuShare::MemMb(9), 0).ends_with("ask for gpu, without gpumem"));
        assert_eq!(detail(GpuShare::Shards(9), 8), "9 shards requested, a GPU of this host has 8");
        assert!(detail(GpuShare::Shards(9), 0).ends_with("set SLOTD_GPU_SHARDS"));
    }

    #[test]
    fn a_refusal_survives_the_wire() {
        let refusal = Refusal::TooManyCpus { asked: 8, there: 4, place: Place::Host };
        let text = serde_json::to_string(&refusal).expect("plain data");
        assert_eq!(serde_json::from_str::<Refusal>(&text).expect("what was written"), refusal);
    }
}
