//! Why a pending job does not start: the scheduler's own reasons, with their figures.
//!
//! Times are serialized as whole seconds since 1970, for readers of the JSON output.

use crate::license::LicenseShortage;
use crate::partition::PartitionState;
use crate::qos::Limited;
use crate::{JobId, JobState, Reason, Timestamp, Tres, is_default};
use serde::{Deserialize, Serialize};

/// One thing that keeps a pending job from starting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// The reason that squeue shows.
    pub reason: Reason,
    /// A sentence for people. All its information is also in `what`.
    pub text: String,
    /// A command, or another action, that would resolve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    pub what: What,
}

/// The kind of blocker, with its figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Hold {
        by_admin: bool,
    },
    /// One of the conditions must hold (`any`), or all of them.
    Dependency {
        any: bool,
        on: Vec<Awaited>,
    },
    Begin {
        #[serde(with = "secs")]
        at: Timestamp,
    },
    ArrayLimit {
        limit: u32,
        running: u32,
    },
    /// A partition that does not exist, or currently starts no jobs.
    Partition {
        partition: String,
        /// `None` if the partition does not exist.
        state: Option<PartitionState>,
        /// When its allowed hours begin.
        #[serde(with = "maybe_secs")]
        opens: Option<Timestamp>,
    },
    /// `None` means no limit.
    TimeLimit {
        partition: String,
        asked_secs: Option<u64>,
        most_secs: Option<u64>,
    },
    /// The owner's limit on the jobs of an account or name.
    Limit {
        limit: String,
        jobs: u32,
        cpus: u32,
    },
    /// A limit of its QOS on running jobs or on their resources.
    Qos(QosShortage),
    /// The longest time limit of its QOS. `None` means that the job has no time limit.
    QosTimeLimit {
        qos: String,
        asked_secs: Option<u64>,
        most_secs: u64,
    },
    /// Its QOS no longer exists.
    NoQos {
        qos: String,
    },
    /// Other jobs hold a license that it needs, or there are not that many.
    License(LicenseShortage),
    /// Its own reservation, or one of others.
    Reservation(ReservationBlock),
    /// The job needs more than an empty host has.
    TooLarge {
        partition: String,
        needs: Tres,
        most: Tres,
    },
    /// Processes that do not belong to any job use the CPUs or GPUs.
    Elsewhere {
        partition: String,
    },
    /// The node is drained.
    Node {
        #[serde(with = "secs")]
        since: Timestamp,
    },
    Shortage(Shortage),
}

/// A reservation that keeps a pending job from starting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationBlock {
    pub reservation: String,
    pub how: ReservationBlocks,
    pub users: Vec<String>,
    pub accounts: Vec<String>,
    #[serde(with = "secs")]
    pub start: Timestamp,
    /// `None` means never.
    #[serde(with = "maybe_secs")]
    pub end: Option<Timestamp>,
}

/// How a reservation keeps a job from starting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationBlocks {
    /// It is the job's own, and has not begun.
    NotBegun,
    /// It is the job's own, and its jobs hold all of it.
    Full,
    /// It is that of others, and the job would run into it.
    OfOthers,
    /// It was the job's own, and no longer exists.
    Gone,
}

/// A limit of a QOS that lets a pending job not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QosShortage {
    pub qos: String,
    /// Slurm's name of the limit: `MaxJobsPU`, `MaxTRESPU` or `GrpTRES`.
    pub limit: String,
    /// The limited resource; `None` for the number of jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Limited>,
    /// Jobs, CPUs, MB of memory or GPUs.
    pub most: u64,
    pub used: u64,
    pub needs: u64,
    /// The jobs that must end first, in the order in which they are expected to.
    pub holders: Vec<Holder>,
}

/// Too few resources are free, or other jobs go first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    pub partition: String,
    pub needs: Tres,
    pub free: Tres,
    /// The resources that are short. Zero if there is enough but other jobs go first.
    pub lacks: Tres,
    /// The CPUs that the job requests by number and that are not free, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks_cpus: Vec<u32>,
    /// The jobs that must end first, in the order in which they are expected to.
    pub holders: Vec<Holder>,
    /// The first job that waits for the same resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<String>,
    /// With a time limit shorter than this, the job would delay no other job and could start now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_secs: Option<u64>,
}

/// A running job that holds resources another job waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub id: JobId,
    /// The job ID as users write it.
    pub job: String,
    /// Its share of the missing resources.
    pub holds: Tres,
    pub until: Until,
}

/// When a running job is expected to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// It is ending now.
    Ending,
    Suspended,
    /// Its grace time ends then, because another job preempts it.
    Preempted(#[serde(with = "secs")] Timestamp),
    /// It has no time limit.
    Unknown,
    /// At its time limit, at the latest.
    ByLimit(#[serde(with = "secs")] Timestamp),
    /// At this time, if it runs as long as earlier jobs of the same name did.
    AsEarlier(#[serde(with = "secs")] Timestamp),
}

/// A condition of a dependency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// The term in sbatch's syntax: `afterok:12`.
    pub term: String,
    pub standing: Standing,
    /// The state of the other job, as long as it is in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// When the other job is expected to end, if it is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// For an array: the number of ended tasks and of all tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<(usize, usize)>,
    /// For `singleton`: the jobs of the same name that go first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub jobs: Vec<JobId>,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    Open,
    /// It will hold from this instant on.
    MetAt(#[serde(with = "secs")] Timestamp),
    Met,
    /// It can never hold.
    Never,
}

mod secs {
    use crate::Timestamp;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(at: &Timestamp, s: S) -> Result<S::Ok, S::Error> {
        at.as_secs().serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Timestamp, D::Error> {
        i64::deserialize(d).map(Timestamp::from_secs)
    }
}

mod maybe_secs {
    use crate::Timestamp;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        at: &Option<Timestamp>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        at.map(Timestamp::as_secs).serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<i64>::deserialize(d)?.map(Timestamp::from_secs))
    }
}
