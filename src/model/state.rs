//! Job states and the transitions between them.
//!
//! ```text
//! PENDING ──► RUNNING ──► COMPLETING ──► COMPLETED | FAILED | CANCELLED | TIMEOUT | OUT_OF_MEMORY | NODE_FAIL | PREEMPTED
//!    │  ▲      │  ▲  └──────────────────────▲
//!    │  │      ▼  │  (requeue: back to PENDING)
//!    │  │  SUSPENDED
//!    └──┴────► CANCELLED | FAILED
//! ```

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// The broad outcome that an [`End`] amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// Cancelled by a user, or no longer needed.
    Cancelled,
    Failure,
}

/// Lists each state once, with its name, its compact code and its meaning for the documentation. An
/// end also has an outcome and a flag that says whether the end comes before the exit code.
macro_rules! states {
    (
        live { $($(#[$attr:meta])* $state:ident => $name:literal, $code:literal, $meaning:literal;)* }
        ended { $(
            $end:ident =>
                $end_name:literal, $end_code:literal, $outcome:ident, $precedes_exit:literal,
                $end_meaning:literal;
        )* }
    ) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, PartialOrd, Ord)]
        pub enum JobState { $($(#[$attr])* #[doc = $meaning] $state,)* Ended(End) }

        /// How a job or a step ended.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum End { $(#[doc = $end_meaning] #[serde(rename = $end_name)] $end,)* }

        impl JobState {
            const NAMES: &[&str] = &[$($name,)* $($end_name,)*];

            pub const ALL: [JobState; Self::NAMES.len()] =
                [$(JobState::$state,)* $(JobState::Ended(End::$end),)*];

            /// The long name: `PENDING`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(JobState::$state => $name,)*
                    JobState::Ended(end) => end.name(),
                }
            }

            /// The compact name: `PD`.
            pub const fn code(self) -> &'static str {
                match self {
                    $(JobState::$state => $code,)*
                    JobState::Ended(end) => end.code(),
                }
            }

            /// A sentence for the documentation.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(JobState::$state => $meaning,)*
                    $(JobState::Ended(End::$end) => $end_meaning,)*
                }
            }
        }

        impl End {
            pub const ALL: &[End] = &[$(End::$end,)*];

            /// The long name: `COMPLETED`.
            pub const fn name(self) -> &'static str {
                match self { $(End::$end => $end_name,)* }
            }

            /// The compact name: `CD`.
            pub const fn code(self) -> &'static str {
                match self { $(End::$end => $end_code,)* }
            }

            pub const fn outcome(self) -> Outcome {
                match self { $(End::$end => Outcome::$outcome,)* }
            }

            /// Returns whether Slurm records this end before the processes exit. The exit code then
            /// has no effect on the job's state.
            pub const fn precedes_exit(self) -> bool {
                match self { $(End::$end => $precedes_exit,)* }
            }
        }
    };
}

states! {
    live {
        #[default]
        Pending => "PENDING", "PD",
            "The job is in the queue and has not started. Its reason says why.";
        Running => "RUNNING", "R", "The job has its allocation, and its script or command runs.";
        Suspended => "SUSPENDED", "S",
            "The processes of the job are stopped. It keeps its memory and GPUs, and its CPUs unless it was preempted.";
        Completing => "COMPLETING", "CG",
            "The job is ending: processes of it still run, or its end is not recorded yet.";
    }
    ended {
        Completed => "COMPLETED", "CD", Success, false,
            "The script or command ended with exit code 0.";
        Failed => "FAILED", "F", Failure, false,
            "The script or command ended with another exit code or by a signal, or could not be \
             launched.";
        Cancelled => "CANCELLED", "CA", Cancelled, true,
            "The job was cancelled by its user, or by slotd if it could not start or end in time.";
        Timeout => "TIMEOUT", "TO", Failure, true, "The job reached its time limit.";
        OutOfMemory => "OUT_OF_MEMORY", "OOM", Failure, false,
            "The kernel killed a process of the job at its memory limit.";
        NodeFail => "NODE_FAIL", "NF", Failure, false,
            "The machine went down while the job ran.";
        Preempted => "PREEMPTED", "PR", Failure, true,
            "The job was ended to make room for a more important one.";
    }
}

impl End {
    /// Returns whether the job neither completed nor was cancelled.
    pub fn is_failure(self) -> bool {
        self.outcome() == Outcome::Failure
    }
}

impl JobState {
    /// Returns whether the job ended, and neither completed nor was cancelled.
    pub fn is_failure(self) -> bool {
        self.end().is_some_and(End::is_failure)
    }

    /// Returns how the job ended, or `None` if it has not.
    pub const fn end(self) -> Option<End> {
        match self {
            JobState::Ended(end) => Some(end),
            JobState::Pending | JobState::Running | JobState::Suspended | JobState::Completing => {
                None
            }
        }
    }

    /// Returns whether the job has ended.
    pub const fn is_terminal(self) -> bool {
        matches!(self, JobState::Ended(_))
    }

    /// Returns the states of jobs that have not ended.
    pub fn live() -> impl Iterator<Item = JobState> {
        Self::ALL.into_iter().filter(|state| !state.is_terminal())
    }

    /// Returns whether a job in this state holds resources.
    pub const fn is_active(self) -> bool {
        match self {
            JobState::Running | JobState::Suspended | JobState::Completing => true,
            JobState::Pending | JobState::Ended(_) => false,
        }
    }

    /// Returns whether a job may move from this state to `next`.
    pub fn can_become(self, next: JobState) -> bool {
        match self {
            JobState::Pending => match next {
                JobState::Running
                | JobState::Ended(End::Cancelled | End::Failed | End::Timeout) => true,
                JobState::Pending
                | JobState::Suspended
                | JobState::Completing
                | JobState::Ended(
                    End::Completed | End::OutOfMemory | End::NodeFail | End::Preempted,
                ) => false,
            },
            JobState::Running => next != JobState::Running,
            JobState::Suspended => next != JobState::Suspended,
            JobState::Completing => next.is_terminal() || next == JobState::Pending,
            JobState::Ended(_) => next == JobState::Pending,
        }
    }
}

impl From<End> for JobState {
    fn from(end: End) -> JobState {
        JobState::Ended(end)
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for JobState {
    type Err = ();
    /// Parses the long name only. `parse::states` parses user input.
    fn from_str(s: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|state| state.name() == s).ok_or(())
    }
}

/// Serializes as the name, like [`End`].
impl Serialize for JobState {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for JobState {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<JobState, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = JobState;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a job state")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<JobState, E> {
                name.parse().map_err(|()| E::unknown_variant(name, JobState::NAMES))
            }
        }
        from.deserialize_str(Name)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_to_the_same_state() {
        for state in JobState::ALL {
            assert_eq!(state.name().parse(), Ok(state));
        }
    }

    #[test]
    fn states_and_ends_serialize_as_their_names() {
        for state in JobState::ALL {
            let text = serde_json::to_string(&state).expect("every state has a name");
            assert_eq!(text, format!("\"{}\"", state.name()));
            assert_eq!(serde_json::from_str::<JobState>(&text).expect("a known state"), state);
            let end = serde_json::from_str::<End>(&text).ok();
            assert_eq!((end, end.map(End::name)), (state.end(), state.end().map(|_| state.name())));
        }
        let why = serde_json::from_str::<JobState>("\"OVER\"").expect_err("unknown").to_string();
        assert!(why.starts_with("unknown variant `OVER`, expected one of `PENDING`, "), "{why}");
    }

    #[test]
    fn states_are_in_table_order() {
        assert!(JobState::ALL.is_sorted());
        let ends = JobState::ALL.into_iter().filter_map(JobState::end);
        assert!(ends.eq(End::ALL.iter().copied()));
    }

    #[test]
    fn only_a_requeue_leaves_a_terminal_state() {
        for from in JobState::ALL.into_iter().filter(|s| s.is_terminal()) {
            for to in JobState::ALL {
                assert_eq!(from.can_become(to), to == JobState::Pending, "{from} -> {to}");
            }
        }
    }
}
