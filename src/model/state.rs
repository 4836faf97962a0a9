//! Job states and the ways between them.
//!
//! ```text
//! PENDING ──► RUNNING ──► COMPLETING ──► COMPLETED | FAILED | CANCELLED | TIMEOUT | OUT_OF_MEMORY | NODE_FAIL
//!    │  ▲      │  ▲  └──────────────────────▲
//!    │  │      ▼  │  (requeue: back to PENDING)
//!    │  │  SUSPENDED
//!    └──┴────► CANCELLED | FAILED
//! ```

use serde::{Deserialize, Serialize};
use std::fmt;

/// Each state once: its name, its code, and whether nothing happens to the job any more.
macro_rules! states {
    ($($(#[$attr:meta])* $state:ident => $name:literal, $code:literal, $terminal:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum JobState { $($(#[$attr])* #[serde(rename = $name)] $state,)* }

        impl JobState {
            pub const ALL: [JobState; [$($name),*].len()] = [$(JobState::$state,)*];

            /// The long name: `PENDING`.
            pub const fn name(self) -> &'static str {
                match self { $(JobState::$state => $name,)* }
            }

            /// The compact name: `PD`.
            pub const fn code(self) -> &'static str {
                match self { $(JobState::$state => $code,)* }
            }

            /// Nothing happens to the job any more.
            pub const fn is_terminal(self) -> bool {
                match self { $(JobState::$state => $terminal,)* }
            }
        }
    };
}

states! {
    #[default]
    Pending => "PENDING", "PD", false;
    Running => "RUNNING", "R", false;
    Suspended => "SUSPENDED", "S", false;
    Completing => "COMPLETING", "CG", false;
    Completed => "COMPLETED", "CD", true;
    Failed => "FAILED", "F", true;
    Cancelled => "CANCELLED", "CA", true;
    Timeout => "TIMEOUT", "TO", true;
    OutOfMemory => "OUT_OF_MEMORY", "OOM", true;
    /// The machine went down while it ran.
    NodeFail => "NODE_FAIL", "NF", true;
}

impl JobState {
    /// It ended neither well nor by being cancelled.
    pub fn is_failure(self) -> bool {
        self.is_terminal() && !matches!(self, JobState::Completed | JobState::Cancelled)
    }

    /// The states of jobs that are not over.
    pub fn live() -> impl Iterator<Item = JobState> {
        Self::ALL.into_iter().filter(|state| !state.is_terminal())
    }

    /// The job holds resources.
    pub const fn is_active(self) -> bool {
        match self {
            JobState::Running | JobState::Suspended | JobState::Completing => true,
            JobState::Pending
            | JobState::Completed
            | JobState::Failed
            | JobState::Cancelled
            | JobState::Timeout
            | JobState::OutOfMemory
            | JobState::NodeFail => false,
        }
    }

    /// Whether a job may go from this state to `next`.
    pub fn can_become(self, next: JobState) -> bool {
        match self {
            JobState::Pending => {
                matches!(
                    next,
                    JobState::Running | JobState::Cancelled | JobState::Failed | JobState::Timeout
                )
            }
            JobState::Running => next != JobState::Running,
            JobState::Suspended => next != JobState::Suspended,
            JobState::Completing => next.is_terminal() || next == JobState::Pending,
            JobState::Completed
            | JobState::Failed
            | JobState::Cancelled
            | JobState::Timeout
            | JobState::OutOfMemory
            | JobState::NodeFail => next == JobState::Pending,
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for JobState {
    type Err = ();
    /// Reads the long name only; `spec::states` reads what users write.
    fn from_str(s: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|state| state.name() == s).ok_or(())
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
    fn a_terminal_state_can_only_be_left_by_requeue() {
        for from in JobState::ALL.into_iter().filter(|s| s.is_terminal()) {
            for to in JobState::ALL {
                assert_eq!(from.can_become(to), to == JobState::Pending, "{from} -> {to}");
            }
        }
    }
}
