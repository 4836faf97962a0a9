//! Job states and the ways between them.
//!
//! ```text
//! PENDING ──► RUNNING ──► COMPLETING ──► COMPLETED | FAILED | CANCELLED | TIMEOUT | OUT_OF_MEMORY | NODE_FAIL
//!    │  ▲      │  ▲  └──────────────────────▲
//!    │  │      ▼  │  (requeue: back to PENDING)
//!    │  │  SUSPENDED
//!    └──┴────► CANCELLED | FAILED
//! ```

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// How well a job ended: what most of the ends have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// Somebody ended it, or nobody wanted it any more.
    Cancelled,
    Failure,
}

/// Each state once: its name and its code; of an end also how well the job ended, and whether the
/// end precedes the exit code.
macro_rules! states {
    (
        live { $($(#[$attr:meta])* $state:ident => $name:literal, $code:literal;)* }
        ended { $(
            $(#[$end_attr:meta])*
            $end:ident =>
                $end_name:literal, $end_code:literal, $outcome:ident, $precedes_exit:literal;
        )* }
    ) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, PartialOrd, Ord)]
        pub enum JobState { $($(#[$attr])* $state,)* Ended(End) }

        /// How a job or a step ended.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum End { $($(#[$end_attr])* #[serde(rename = $end_name)] $end,)* }

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

            /// Slurm records this end before the processes have ended: whatever they make of the
            /// signal, it is nothing to the job.
            pub const fn precedes_exit(self) -> bool {
                match self { $(End::$end => $precedes_exit,)* }
            }
        }
    };
}

states! {
    live {
        #[default]
        Pending => "PENDING", "PD";
        Running => "RUNNING", "R";
        Suspended => "SUSPENDED", "S";
        Completing => "COMPLETING", "CG";
    }
    ended {
        Completed => "COMPLETED", "CD", Success, false;
        Failed => "FAILED", "F", Failure, false;
        Cancelled => "CANCELLED", "CA", Cancelled, true;
        Timeout => "TIMEOUT", "TO", Failure, true;
        OutOfMemory => "OUT_OF_MEMORY", "OOM", Failure, false;
        /// The machine went down while it ran.
        NodeFail => "NODE_FAIL", "NF", Failure, false;
    }
}

impl End {
    /// Neither well nor by being cancelled.
    pub fn is_failure(self) -> bool {
        self.outcome() == Outcome::Failure
    }
}

impl JobState {
    /// It ended neither well nor by being cancelled.
    pub fn is_failure(self) -> bool {
        self.end().is_some_and(End::is_failure)
    }

    /// How it ended, if it did.
    pub const fn end(self) -> Option<End> {
        match self {
            JobState::Ended(end) => Some(end),
            JobState::Pending | JobState::Running | JobState::Suspended | JobState::Completing => {
                None
            }
        }
    }

    /// Nothing happens to the job any more.
    pub const fn is_terminal(self) -> bool {
        matches!(self, JobState::Ended(_))
    }

    /// The states of jobs that are not over.
    pub fn live() -> impl Iterator<Item = JobState> {
        Self::ALL.into_iter().filter(|state| !state.is_terminal())
    }

    /// The job holds resources.
    pub const fn is_active(self) -> bool {
        match self {
            JobState::Running | JobState::Suspended | JobState::Completing => true,
            JobState::Pending | JobState::Ended(_) => false,
        }
    }

    /// Whether a job may go from this state to `next`.
    pub fn can_become(self, next: JobState) -> bool {
        match self {
            JobState::Pending => match next {
                JobState::Running
                | JobState::Ended(End::Cancelled | End::Failed | End::Timeout) => true,
                JobState::Pending
                | JobState::Suspended
                | JobState::Completing
                | JobState::Ended(End::Completed | End::OutOfMemory | End::NodeFail) => false,
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
    /// Reads the long name only; `parse::states` reads what users write.
    fn from_str(s: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|state| state.name() == s).ok_or(())
    }
}

/// Its name, like that of an [`End`].
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
    fn names_read_back_as_the_same_state() {
        for state in JobState::ALL {
            assert_eq!(state.name().parse(), Ok(state));
        }
    }

    #[test]
    fn a_state_and_an_end_are_kept_as_their_name() {
        for state in JobState::ALL {
            let text = serde_json::to_string(&state).expect("it has a name");
            assert_eq!(text, format!("\"{}\"", state.name()));
            assert_eq!(serde_json::from_str::<JobState>(&text).expect("a state"), state);
            let end = serde_json::from_str::<End>(&text).ok();
            assert_eq!((end, end.map(End::name)), (state.end(), state.end().map(|_| state.name())));
        }
        let why = serde_json::from_str::<JobState>("\"OVER\"").expect_err("no state").to_string();
        assert!(why.starts_with("unknown variant `OVER`, expected one of `PENDING`, "), "{why}");
    }

    #[test]
    fn states_are_in_the_order_of_the_table() {
        assert!(JobState::ALL.is_sorted());
        let ends = JobState::ALL.into_iter().filter_map(JobState::end);
        assert!(ends.eq(End::ALL.iter().copied()));
    }

    #[test]
    fn a_terminal_state_can_only_be_left_by_requeue() {
        for from in JobState::ALL.into_iter().filter(|s| s.is_terminal()) {
            for to in JobState::ALL {
                assert_eq!(from.can_become(to), to == JobState::Pending, "{from} -> {to}");
            }
        }
    }
}
