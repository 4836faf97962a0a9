//! What stands between a pending job and its start: the scheduler's own reasons, with their
//! figures.
//!
//! Times are written as whole seconds since 1970, for whoever reads this as JSON.

use crate::model::partition::PartitionState;
use crate::model::{JobId, JobState, Reason, Timestamp, Tres, is_default};
use serde::{Deserialize, Serialize};

/// One thing that keeps a pending job from starting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// As squeue names it.
    pub reason: Reason,
    /// In a sentence, for people: what it says is also in `what`.
    pub text: String,
    /// What would end it: a command, mostly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    pub what: What,
}

/// What kind of thing it is, and its figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Hold {
        by_admin: bool,
    },
    /// Of these conditions one is enough (`any`), or all must hold.
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
    /// A partition that is not there, or starts no jobs now.
    Partition {
        partition: String,
        /// `None`: there is no such partition.
        state: Option<PartitionState>,
        /// When its hours begin.
        #[serde(with = "maybe_secs")]
        opens: Option<Timestamp>,
    },
    /// `None`: no limit.
    TimeLimit {
        partition: String,
        asked_secs: Option<u64>,
        most_secs: Option<u64>,
    },
    /// A limit of the owner on jobs of an account, or with such a name.
    Limit {
        limit: String,
        jobs: u32,
        cpus: u32,
    },
    /// It asks for more than there is, even with nobody else on the host.
    TooLarge {
        partition: String,
        needs: Tres,
        most: Tres,
    },
    /// What is no job's uses the CPUs or GPUs.
    Elsewhere {
        partition: String,
    },
    /// The node takes no jobs.
    Node {
        #[serde(with = "secs")]
        since: Timestamp,
    },
    Shortage(Shortage),
}

/// Too little is free for a job, or others go before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    pub partition: String,
    pub needs: Tres,
    pub free: Tres,
    /// Of what it needs, that of which too little is free. Nothing: there is room, and others go
    /// before it.
    pub lacks: Tres,
    /// The CPUs that it needs by their numbers and that are not free, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks_cpus: Vec<u32>,
    /// The jobs that have to end for it, in the order in which they are expected to.
    pub holders: Vec<Holder>,
    /// Who comes first of those that wait for the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<String>,
    /// With a time limit below this it would delay nobody, and start now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_secs: Option<u64>,
}

/// A running job that has what another one waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub id: JobId,
    /// As users name it.
    pub job: String,
    /// What it has of that which is lacking.
    pub holds: Tres,
    pub until: Until,
}

/// When a running job is expected to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// It is about to.
    Ending,
    Suspended,
    /// It has no time limit.
    Unknown,
    /// By its time limit, at the latest.
    ByLimit(#[serde(with = "secs")] Timestamp),
    /// If it takes as long as earlier jobs of its name.
    AsEarlier(#[serde(with = "secs")] Timestamp),
}

/// A condition of a dependency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// As sbatch reads it: `afterok:12`.
    pub term: String,
    pub standing: Standing,
    /// The state of the job that it is about, while that is in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// When that job is expected to end, if it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// Of an array: how many tasks have ended, and how many there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<(usize, usize)>,
    /// Of `singleton`: the jobs of its name that go before it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub jobs: Vec<JobId>,
}

/// How a condition stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    Open,
    /// It holds from this moment on.
    MetAt(#[serde(with = "secs")] Timestamp),
    Met,
    /// It can never hold.
    Never,
}

mod secs {
    use crate::model::Timestamp;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(at: &Timestamp, s: S) -> Result<S::Ok, S::Error> {
        at.as_secs().serialize(s)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Timestamp, D::Error> {
        i64::deserialize(d).map(Timestamp::from_secs)
    }
}

mod maybe_secs {
    use crate::model::Timestamp;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(at: &Option<Timestamp>, s: S) -> Result<S::Ok, S::Error> {
        at.map(Timestamp::as_secs).serialize(s)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<i64>::deserialize(d)?.map(Timestamp::from_secs))
    }
}
