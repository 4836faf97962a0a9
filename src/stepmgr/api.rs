//! The protocol of the manager's socket: one JSON object per line. An object without the key
//! `request` is a step.

use super::core::Row;
pub use seconds::Seconds;
use serde::{Deserialize, Serialize};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase", deny_unknown_fields)]
pub enum Ask {
    /// Send the events of all steps from now on, not only those of the steps submitted here.
    Watch,
    /// Submit the steps of a file, all or none. Answered by one `accepted` per step, then
    /// `changed`.
    Submit {
        /// The file name to show in error messages. Its extension determines the format.
        file: String,
        text: String,
        /// The working directory for steps that set none.
        dir: String,
    },
    /// List the steps with these names, or all steps if empty. Answered by `list`.
    List {
        #[serde(default)]
        names: Vec<String>,
    },
    /// Answered by `status`.
    Status,
    /// Wait until these steps have ended, or all steps if empty. Answered by `waited`.
    Wait {
        #[serde(default)]
        names: Vec<String>,
    },
    /// Cancel steps. This and the next three take names or patterns and are answered by `changed`.
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

/// An answer or event from the manager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    Accepted {
        name: String,
    },
    /// The line is not a valid request or step, or the request cannot be carried out.
    Refused {
        error: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    Started {
        name: String,
        /// The step number within the job.
        step: u32,
        /// Counted from 1.
        attempt: u32,
    },
    /// An attempt ended.
    Ended {
        name: String,
        step: u32,
        attempt: u32,
        /// The state as `sacct` prints it.
        state: String,
        exit_code: i32,
        signal: i32,
        /// Seconds since 1970.
        start: Seconds,
        end: Seconds,
        max_rss_kb: u64,
        /// CPU time in microseconds.
        user_us: u64,
        system_us: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The step reached its final state: COMPLETED, FAILED, CANCELLED or SKIPPED.
    Done {
        name: String,
        state: String,
    },
    /// The manager's share of the job changed.
    Resources {
        cpus: u32,
        mem_mb: u64,
        gpus: u32,
        /// The part that will be given back as steps end.
        #[serde(default, skip_serializing_if = "Owed::is_nothing")]
        owed: Owed,
        /// The cause of the change.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// The CPUs and GPUs of the job that are out of use now (the whole list). Their steps are
    /// moved.
    Out {
        cpus: Vec<u32>,
        gpus: Vec<u32>,
        /// The reason given for the outage.
        why: String,
    },
    List {
        steps: Vec<Row>,
    },
    Status(Box<Status>),
    Waited {
        /// The exit code of the worst step, as a shell reports it.
        exit_code: i32,
    },
    Changed {
        /// The number of steps affected.
        steps: u32,
    },
    /// The client did not read fast enough: events were dropped and the connection is closed.
    Lost {
        error: String,
    },
}

/// Resources that a manager still has to give back.
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

/// The answer to `sjobmgr status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub job: u32,
    /// The process ID of the manager.
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
    /// Whether the manager has stopped starting steps.
    pub halted: bool,
    /// Steps whose records have not reached the daemon yet.
    pub undelivered: u32,
}

/// Timestamps that serialize as fractional seconds.
mod seconds {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use slotd_model::Timestamp;

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
