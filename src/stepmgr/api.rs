//! What goes over the manager's socket, one JSON object a line. An object without the key `request`
//! is a step.

use super::core::Row;
pub use seconds::Seconds;
use serde::{Deserialize, Serialize};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase", deny_unknown_fields)]
pub enum Ask {
    /// The events of all steps from now on, and not only of those that were submitted here.
    Watch,
    /// The steps of a text, all or none. Answered by `accepted` for each, and `changed`.
    Submit {
        /// Names the text in errors, and tells by its end what it is.
        file: String,
        text: String,
        /// The working directory of its steps, where they name none.
        dir: String,
    },
    /// Answered by `list`. Without names: all steps.
    List {
        #[serde(default)]
        names: Vec<String>,
    },
    /// Answered by `status`.
    Status,
    /// Answered by `waited` when these steps have ended; without names, when all have.
    Wait {
        #[serde(default)]
        names: Vec<String>,
    },
    /// Answered by `changed`, as the three that follow. Names may be patterns.
    Cancel {
        names: Vec<String>,
    },
    Hold {
        names: Vec<String>,
    },
    Release {
        names: Vec<String>,
    },
    Top {
        names: Vec<String>,
    },
}

/// What the manager says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    Accepted {
        name: String,
    },
    /// The line was not understood, or cannot be done.
    Refused {
        error: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    Started {
        name: String,
        /// The number of the step of the job.
        step: u32,
        /// Counted from 1.
        attempt: u32,
    },
    /// An attempt has ended.
    Ended {
        name: String,
        step: u32,
        attempt: u32,
        /// As sacct shows it.
        state: String,
        exit_code: i32,
        signal: i32,
        /// Seconds since 1970.
        start: Seconds,
        end: Seconds,
        max_rss_kb: u64,
        /// CPU time, microseconds.
        user_us: u64,
        system_us: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Nothing happens to the step any more: COMPLETED, FAILED, CANCELLED or SKIPPED.
    Done {
        name: String,
        state: String,
    },
    /// The manager has this of its job now.
    Resources {
        cpus: u32,
        mem_mb: u64,
        gpus: u32,
        /// So much of it is given back as its steps end.
        #[serde(default, skip_serializing_if = "Owed::is_nothing")]
        owed: Owed,
        /// What has changed it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// These of the job's CPUs and GPUs are out of use now, and no others: steps on them are moved.
    Out {
        cpus: Vec<u32>,
        gpus: Vec<u32>,
        /// Why parts of the host are.
        why: String,
    },
    List {
        steps: Vec<Row>,
    },
    Status(Box<Status>),
    Waited {
        /// The exit code of the worst of them, as a shell shows it.
        exit_code: i32,
    },
    Changed {
        /// How many steps it was done to.
        steps: u32,
    },
    /// The reader did not read: events were dropped, and the connection is closed.
    Lost {
        error: String,
    },
}

/// What a manager is to give back of its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Owed {
    pub cpus: u32,
    pub mem_mb: u64,
    pub gpus: u32,
}

impl Owed {
    fn is_nothing(&self) -> bool {
        *self == Owed::default()
    }
}

/// `sjobmgr status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub job: u32,
    /// The process of the manager.
    pub pid: u32,
    pub steps: u32,
    pub waiting: u32,
    pub running: u32,
    pub completed: u32,
    pub failed: u32,
    pub cancelled: u32,
    pub skipped: u32,
    pub cpus: u32,
    pub mem_mb: u64,
    pub gpus: u32,
    /// No other step is started.
    pub halted: bool,
    /// Steps that the daemon does not know of yet.
    pub undelivered: u32,
}

/// Times as numbers with a fraction.
mod seconds {
    use crate::model::Timestamp;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Seconds since 1970, to the microsecond.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Seconds(pub Timestamp);

    impl Serialize for Seconds {
        fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            s.serialize_f64(self.0.0 as f64 / 1e6)
        }
    }

    impl<'de> Deserialize<'de> for Seconds {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            f64::deserialize(d).map(|secs| Seconds(Timestamp((secs * 1e6).round() as i64)))
        }
    }
}
