//! Reasons why the daemon refuses a request.
//!
//! A refusal is a value; a command prints it in Slurm's words. All texts are defined here, and a
//! client never has to parse one to learn what happened. The prefix of the text ("Batch job
//! submission failed") belongs to the command.

use crate::array::ArraySpec;
use crate::dependency::DependencyTerm;
use crate::gpu::GpuShare;
use crate::license::LicenseFault;
use crate::node::{NodeParts, ranges};
use crate::partition::PartitionState;
use crate::reservation::ReservationFault;
use crate::{JobId, JobRef, StepId, StoreFault, Tres, is_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The setting that divides GPUs into shards.
pub const SHARDS_SETTING: &str = "SLOTD_GPU_SHARDS";

/// The setting that limits the tasks of a step.
pub const MAX_TASKS_SETTING: &str = "SLOTD_MAX_TASKS_PER_NODE";

/// The largest value of that setting, like that of Slurm's `MaxTasksPerNode`. No daemon accepts
/// more tasks, so clients can check this without asking.
pub const MOST_TASKS: u32 = 65_533;

/// The scope in which a requested resource is short.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Place {
    #[default]
    Host,
    /// The host has enough, but its owner gives this partition less.
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

/// A refusal, with the values that its text contains. Memory sizes are in MB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    // Existing and missing jobs and steps.
    UnknownJob,
    UnknownStep,
    /// Only a job that has not ended can be held, released or changed.
    AlreadyFinished,
    /// scancel of a job that is ending or has ended, or a step in one.
    AlreadyDone,
    /// The job is still pending.
    Pending,
    /// The job's state does not allow this, or the job itself does not (`--no-requeue`).
    Disabled,
    /// The key can only be changed while the job is pending.
    NotPending,
    /// The key can only be changed while the job is running.
    NotRunning,
    /// The new end of a job is this long ago.
    EndHasPassed {
        secs: u64,
    },
    /// A new script for only some tasks of an array, or after tasks of the array have started.
    ScriptOfArray,
    /// A new script for a job of srun or salloc.
    NoScript,
    /// A change to a job that a crontab defines.
    CrontabJob,
    /// `scontrol top` of a held job.
    Held,
    /// A signal to a job that is not running.
    NotNow,
    /// A new size for a job that is suspended and lends its CPUs.
    Suspended,
    NotAnArray,
    /// A relative change of the time limit of a job that has none.
    NoTimeLimit,
    /// A relative change of the time limit that would make it negative.
    DecrementTooLarge {
        by_secs: u64,
        limit_secs: u64,
    },
    /// A change to something that the host can never provide, with the reason if known.
    ConfigNotAvailable(Option<Box<Refusal>>),
    /// A running job holds its whole partition exclusively, or shares its CPUs with other jobs.
    FixedSize {
        job: JobId,
        exclusive: bool,
    },
    /// A running job would exceed a limit on its account or name. Contains the reason that a
    /// pending job would show.
    OverLimit {
        reason: String,
    },
    /// A running job cannot grow now. Contains the additional resources it needs, the free ones,
    /// and the time until enough are free, if it can be predicted.
    NoRoom {
        job: JobId,
        more: Tres,
        free: Tres,
        in_secs: Option<u64>,
    },

    // Requests that the host can never satisfy.
    UnknownPartition {
        name: String,
        known: Vec<String>,
        /// The partition is configured, but hidden because the host has no GPUs.
        #[serde(default, skip_serializing_if = "is_default")]
        lacks_gpus: bool,
    },
    /// The partition currently accepts no jobs.
    PartitionNotAvailable {
        name: String,
        state: PartitionState,
    },
    /// More than one node, or none.
    NodeCount,
    /// More than one node for an existing job.
    OneNodeOnly,
    UnknownNode(String),
    UnknownReservation(String),
    /// The reservation does not admit the user or the account.
    NoAccessToReservation(String),
    /// An order about a reservation.
    Reservation(ReservationFault),
    InvalidLicenses(LicenseFault),
    UnknownQos {
        name: String,
        known: Vec<String>,
    },
    /// The job would exceed a limit of its QOS. Contains Slurm's name of the limit.
    QosLimit(String),
    NodeExcluded(String),
    MissingFeature {
        /// The constraint as the user wrote it.
        wanted: String,
        known: Vec<String>,
    },
    /// A feature of `--prefer` that the host does not have.
    UnknownPreference {
        wanted: String,
        known: Vec<String>,
    },
    /// A GPU model that the host does not have. The models of its GPUs are known.
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
    /// A CPU number that does not exist, and the ones that do.
    NoSuchCpu {
        asked: u32,
        there: BTreeSet<u32>,
        place: Place,
    },
    /// More sockets, cores per socket or threads per core than the host has.
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
    /// A larger share of each GPU than any GPU has; `most` is 0 if GPUs cannot be shared this way.
    TooMuchOfGpu {
        share: GpuShare,
        most: u64,
    },
    /// A text of the request that is too long: its name, its length and the maximum, in bytes.
    TooLong {
        what: String,
        len: usize,
        max: usize,
    },
    /// `--time-min` is above the time limit.
    TimeMin,
    UnknownDependency(DependencyTerm),
    /// A job that cannot be expanded, or not by this one, and why.
    CannotExpand {
        job: JobRef,
        why: String,
    },
    DependsOnItself(JobId),
    /// The awaited job already waits for this one.
    CircularDependency(JobId),

    // Steps that do not fit into their job.
    StepTooManyCpus,
    StepTooMuchMemory,
    StepTooManyGpus,
    /// Some GPUs of the job are out of use.
    StepGpusOut {
        out: NodeParts,
    },
    /// The step would have to wait, but `--immediate` was given.
    Busy,

    // The daemon.
    /// The job cannot run again: its environment is no longer stored.
    EnvironmentDropped(JobId),
    /// The copy of the work tree that the job was to run in is missing.
    SnapshotGone(String),
    /// A client reconnected to a job or a step that is no longer in memory.
    Forgotten {
        job: JobId,
        step: Option<StepId>,
    },
    /// Another process already manages the steps of the job.
    Managed {
        pid: u32,
    },
    /// Nothing was done: the database cannot be written.
    NotStored(StoreFault),
    /// It was done but is not on disk yet.
    Unrecorded(StoreFault),
    /// The daemon is configured to enforce limits but cannot: the path and the reason.
    NoCgroups(String),
    /// The owner's configuration is invalid, or cannot be stored.
    Configuration(String),
    ShuttingDown,
    /// Other clients do not read their answers.
    Crowded,
    /// The daemon already serves its maximum of clients: this many.
    TooManyClients(usize),
    /// The daemon has reached its limit of open files: this many.
    NoDescriptors(u64),
    /// The daemon that was started for this client cannot serve it, and why.
    CannotStart(String),
    WrongUser {
        daemon: u32,
        client: u32,
    },
    /// A frame that is not a valid request.
    Malformed(String),
    /// The answer does not fit into a frame.
    Unsendable(String),
    /// The database could not be read.
    Database(String),
}

impl Refusal {
    /// Returns the offending value, printed on its own line before the text.
    pub fn detail(&self) -> Option<String> {
        Some(match self {
            Refusal::UnknownPartition { name, .. } => {
                format!("invalid partition specified: {name}")
            }
            Refusal::PartitionNotAvailable { name, state } => {
                format!("partition {name} is {}", state.name())
            }
            Refusal::UnknownNode(name) => format!("no such node: {name}"),
            Refusal::UnknownReservation(name) => format!("no such reservation: {name}"),
            Refusal::NoAccessToReservation(name) => {
                format!("reservation {name} does not admit the user or the account of the job")
            }
            Refusal::InvalidLicenses(fault) => fault.to_string(),
            Refusal::UnknownQos { name, .. } => format!("no such QOS: {name}"),
            Refusal::QosLimit(limit) => limit.clone(),
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
                    "CPU count per node can not be satisfied: {} requested, {there} {place}",
                    count(*asked, "CPU")
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
            Refusal::DecrementTooLarge { by_secs, limit_secs } => format!(
                "TimeLimit decrement larger than current time limit ({} > {} minutes)",
                by_secs / 60,
                limit_secs / 60
            ),
            Refusal::EndHasPassed { secs } => format!(
                "the new end time is {} in the past: to end a job now, use scancel",
                crate::counted(*secs, "second")
            ),
            Refusal::TooLong { what, len, max } => format!("{what} of {len} bytes, {max} at most"),
            Refusal::UnknownDependency(term @ DependencyTerm::On { job, .. }) => {
                format!("no job {job} for dependency {term}")
            }
            Refusal::CannotExpand { job, why } => {
                format!("job {job} cannot be expanded by this one: {why}")
            }
            Refusal::StepGpusOut { out } => {
                format!(
                    "too few GPUs are left for this step; out of use in its job: {out} (see sinfo -R)"
                )
            }
            Refusal::DependsOnItself(job) => format!("job {job} would wait for itself"),
            Refusal::CircularDependency(job) => {
                format!("the jobs would wait for each other: job {job} depends on this one")
            }
            Refusal::FixedSize { job, exclusive: true } => {
                format!(
                    "job {job} holds all CPUs of its partition exclusively: its size cannot be changed"
                )
            }
            Refusal::FixedSize { job, exclusive: false } => {
                format!("job {job} shares its CPUs with other jobs: it cannot grow")
            }
            Refusal::OverLimit { reason } => format!("the job would exceed a limit: {reason}"),
            Refusal::NoRoom { job, more, free, in_secs } => no_room(*job, more, free, *in_secs),
            _ => return None,
        })
    }

    /// Returns the specific refusal behind one that Slurm words in general terms.
    pub fn cause(&self) -> &Refusal {
        match self {
            Refusal::ConfigNotAvailable(Some(cause)) => cause,
            other => other,
        }
    }

    /// Returns whether the text is complete without a command's prefix, because the prefix would be
    /// wrong or because Slurm prints none.
    fn is_complete(&self) -> bool {
        match self {
            // On a host without GPUs, Slurm rejects the gres name itself; otherwise it rejects the
            // count.
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

    /// Returns the lines to print, each still without `sbatch: error: `. `what` is the action that
    /// failed: `Batch job submission failed`, `Unable to create step for job 12`.
    pub fn lines(&self, what: &str) -> Vec<String> {
        let text = if self.is_complete() { self.to_string() } else { format!("{what}: {self}") };
        self.detail().into_iter().chain([text]).collect()
    }
}

fn no_room(job: JobId, more: &Tres, free: &Tres, in_secs: Option<u64>) -> String {
    let words = |tres: &Tres| {
        let amounts = [
            (
                u64::from(more.cpus),
                u64::from(tres.cpus),
                if tres.cpus == 1 { "CPU" } else { "CPUs" },
            ),
            (more.mem_mb, tres.mem_mb, "MB"),
        ];
        let asked = amounts.iter().filter(|(more, _, _)| *more > 0);
        asked.map(|(_, amount, unit)| format!("{amount} {unit}")).collect::<Vec<_>>().join(" and ")
    };
    let fits = more.minus(free) == Tres::ZERO;
    let kept = if fits { ", but reserved for pending jobs" } else { "" };
    let when = match in_secs {
        // The holder is about to end.
        Some(0) => "enough will be free at any moment".to_owned(),
        Some(secs) => {
            format!("enough will be free in {}:{:02}:{:02}", secs / 3600, secs / 60 % 60, secs % 60)
        }
        None => "it is not known when enough will be free".to_owned(),
    };
    let left = words(free);
    let are = if left == "1 CPU" { "is" } else { "are" };
    format!(
        "job {job} needs {} more; {left} {are} free{kept}; {when}; to wait for it: sbatch --dependency=expand:{job}",
        words(more)
    )
}

fn gpus(asked: u32, there: u32, place: &Place, model: Option<&str>) -> String {
    let kind = model.map(|model| format!("{model} ")).unwrap_or_default();
    format!("{} requested, {there} {place}", count(asked, &format!("{kind}GPU")))
}

fn count(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
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
            "the GPU memory of this host is unknown: request gpu without gpumem".to_owned()
        }
        (GpuShare::MemMb(mb), _) => {
            format!("{mb} MB of each GPU requested, {most} MB on the largest GPU of this host")
        }
        (GpuShare::Whole, _) => String::new(),
    }
}

/// Prints the text without the detail: Slurm's own (`slurm_strerror`), if Slurm has one.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::UnknownJob | Refusal::UnknownStep => "Invalid job id specified",
            Refusal::AlreadyFinished => "Job has already finished",
            Refusal::AlreadyDone => "Job/step already completing or completed",
            Refusal::Pending => "Job is pending execution",
            Refusal::Disabled => "Requested operation is presently disabled",
            Refusal::NotPending => "Job is no longer pending execution",
            Refusal::NotRunning => "Job is not running",
            Refusal::EndHasPassed { .. } => "Invalid time specified",
            Refusal::ScriptOfArray => {
                "All tasks of an array share one script, which can only be changed for the whole array before its first task starts"
            }
            Refusal::NoScript => "The job has no batch script",
            Refusal::CrontabJob => "Cannot modify scrontab jobs through scontrol",
            Refusal::Held => "Job is in held state, pending scheduler release",
            Refusal::Suspended => "Job is current suspended, requested operation disabled",
            Refusal::NotNow => "Job can not be altered now, try again later",
            Refusal::NotAnArray => "Job is not an array",
            Refusal::NoTimeLimit => "Job has no time limit to increase or decrease",
            Refusal::DecrementTooLarge { .. } => "Requested time limit is invalid (missing or exceeds some limit)",
            Refusal::FixedSize { .. } => "Requested operation is presently disabled",
            Refusal::OverLimit { .. } | Refusal::QosLimit(_) => {
                "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
            }
            Refusal::NoRoom { .. } => "Requested nodes are busy",
            Refusal::ConfigNotAvailable(_) => "Requested partition configuration not available now",
            Refusal::UnknownPartition { .. } => "Invalid partition name specified",
            Refusal::PartitionNotAvailable { .. } => "Required partition not available (inactive or drain)",
            Refusal::NodeCount => "Node count specification invalid",
            Refusal::UnknownNode(_) => "Invalid node name specified",
            Refusal::UnknownReservation(_) => "Requested reservation is invalid",
            Refusal::NoAccessToReservation(_) => "Access denied to requested reservation",
            Refusal::Reservation(fault) => return write!(f, "{fault}"),
            Refusal::InvalidLicenses(_) => "Invalid license specification",
            Refusal::UnknownQos { .. } => "Invalid qos specification",
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
            Refusal::TimeMin => "Invalid time-min specification (exceeds job's time or other limits)",
            Refusal::TooManyTasks { .. } => "Task count specification invalid",
            Refusal::Busy => "Requested nodes are busy",
            Refusal::Forgotten { job, step: Some(step) } => {
                return write!(f, "the daemon no longer knows step {job}.{step}");
            }
            Refusal::Managed { pid } => return write!(f, "process {pid} already manages the steps of this job"),
            Refusal::Forgotten { job, step: None } => return write!(f, "the daemon no longer knows job {job}"),
            Refusal::NotStored(fault) => return write!(f, "{fault}: {} and try again", fault.remedy()),
            Refusal::Unrecorded(fault) => {
                return write!(f, "done, but lost if the daemon dies before it can record it: {fault}");
            }
            Refusal::SnapshotGone(name) => {
                return write!(f, "the copy {name} of the work tree (--snapshot) is no longer stored: submit the job again");
            }
            Refusal::EnvironmentDropped(job) => {
                return write!(f, "the environment of job {job} is no longer stored: submit it again");
            }
            Refusal::NoCgroups(why) => return write!(f, "SLOTD_CGROUP_BASE cannot be used: {why}"),
            Refusal::ShuttingDown => "the daemon is shutting down",
            Refusal::Crowded => "the daemon is buffering long answers for clients that do not read them: try again",
            Refusal::TooManyClients(there) => {
                return write!(f, "the daemon already serves {there} clients, the most it accepts: try again");
            }
            Refusal::NoDescriptors(limit) => {
                return write!(
                    f,
                    "the daemon has no file descriptors left (limit: {limit}): try again, or raise its limit \
                     (LimitNOFILE= of its unit, ulimit -Hn)"
                );
            }
            Refusal::CannotStart(why) => return write!(f, "the daemon cannot start: {why}"),
            Refusal::WrongUser { daemon, client } => {
                return write!(f, "this daemon serves only user {daemon}, not user {client}");
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
    fn the_offending_value_is_on_its_own_line() {
        let refusal = Refusal::UnknownPartition {
            name: "nope".to_owned(),
            known: Vec::new(),
            lacks_gpus: false,
        };
        let lines =
            ["invalid partition specified: nope", "It failed: Invalid partition name specified"];
        assert_eq!(refusal.lines("It failed"), lines);
        assert_eq!(
            Refusal::NodeCount.lines("It failed"),
            ["It failed: Node count specification invalid"]
        );
    }

    #[test]
    fn daemon_faults_are_printed_without_the_commands_prefix() {
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
    fn an_oversized_gpu_share_is_refused_with_the_maximum() {
        let detail = |share, most| {
            Refusal::TooMuchOfGpu { share, most }.detail().expect("it names the value")
        };
        assert_eq!(
            detail(GpuShare::MemMb(9), 8),
            "9 MB of each GPU requested, 8 MB on the largest GPU of this host"
        );
        assert!(detail(GpuShare::MemMb(9), 0).ends_with("request gpu without gpumem"));
        assert_eq!(detail(GpuShare::Shards(9), 8), "9 shards requested, a GPU of this host has 8");
        assert!(detail(GpuShare::Shards(9), 0).ends_with("set SLOTD_GPU_SHARDS"));
    }

    #[test]
    fn a_refusal_survives_the_wire() {
        let refusal = Refusal::TooManyCpus { asked: 8, there: 4, place: Place::Host };
        let text = serde_json::to_string(&refusal).expect("plain data");
        assert_eq!(serde_json::from_str::<Refusal>(&text).expect("round trip"), refusal);
    }
}
