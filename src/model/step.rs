//! A launch inside an allocation.

use crate::job::ClientProcess;
use crate::tres::{Allocation, Usage};
use crate::{ClockBase, ExitCode, JobState, StepId, Timestamp, is_default};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub id: StepId,
    pub name: String,
    pub ntasks: u32,
    pub state: JobState,
    pub start: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    pub exit: ExitCode,
    pub alloc: Allocation,
    pub usage: Usage,
    /// The command line that created the step.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub submit_line: String,
    /// `--overlap`: the step takes nothing from other steps.
    #[serde(default)]
    pub overlap: bool,
    /// The step's own time limit in seconds; `None` means that of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_secs: Option<u64>,
    /// The process that requested the step. A process requests only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientProcess>,
    /// The step was ended because that process disappeared.
    #[serde(default, skip_serializing_if = "is_default")]
    pub client_gone: bool,
    /// The UID of the user who cancelled the step itself, for `CANCELLED by 0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<u32>,
    /// Time spent in suspensions of the job that have ended, microseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspended_us: u64,
    /// See [`RunState::clock`](crate::run::RunState::clock).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockBase>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub stepped_us: i64,
    /// The job's step manager (`sjobmgr`) runs the step and reports on it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub managed: bool,
}

impl Step {
    /// Returns a running step with one task, no name and no resources.
    pub fn started(id: StepId, start: Timestamp) -> Step {
        Step {
            id,
            name: String::new(),
            ntasks: 1,
            state: JobState::Running,
            start,
            end: None,
            exit: ExitCode::OK,
            alloc: Allocation::default(),
            usage: Usage::default(),
            submit_line: String::new(),
            overlap: false,
            time_limit_secs: None,
            client: None,
            client_gone: false,
            cancelled_by: None,
            suspended_us: 0,
            clock: None,
            stepped_us: 0,
            managed: false,
        }
    }

    /// Adds a suspension of the job from `since` to `now`. Only the part after the step's start
    /// counts.
    pub fn add_suspension(&mut self, since: Timestamp, now: Timestamp) {
        let still = now.since(since.max(self.start)).as_micros();
        self.suspended_us = self.suspended_us.saturating_add(u64::try_from(still).unwrap_or(0));
    }

    /// Records the end: see [`RunState::end_at`](crate::run::RunState::end_at).
    pub fn end_at(&mut self, ended: Timestamp) {
        let end = ended.max(self.start);
        self.stepped_us = self.stepped_us.saturating_add(end.0.saturating_sub(ended.0));
        self.end = Some(end);
    }

    /// Updates the step with the current clocks: see
    /// [`RunState::catch_up`](crate::run::RunState::catch_up).
    pub fn catch_up(&mut self, clock: ClockBase) {
        let jump = self.clock.map_or(0, |known| known.jump_to(clock));
        if jump != 0 {
            self.clock = Some(clock);
            self.stepped_us = self.stepped_us.saturating_add(jump);
        }
    }
}
