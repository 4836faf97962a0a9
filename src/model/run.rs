//! A run of a job: from when it may start to its end. A job that goes back to the queue has
//! several.

use crate::model::tres::{Allocation, Usage};
use crate::model::{ClockBase, End, ExitCode, Job, JobState, Reason, Step, Timestamp, is_default};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How a run goes, or went.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunState {
    pub state: JobState,
    /// Of a terminal or running record. Why a pending job waits is worked out when it is asked for.
    pub reason: Reason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eligible: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    /// The clocks as they stood when the times here were last brought up to them: under which boot
    /// it runs, and by which wall clock it was suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockBase>,
    /// How far the wall clock has jumped since the start, microseconds: set by hand, or while the
    /// machine slept. By so much the time that has passed is less than the time that was shown.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stepped_us: i64,
    /// When it was suspended, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_at: Option<Timestamp>,
    /// Time spent suspended earlier, microseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspended_us: u64,
    /// When its processes were first told to end: their grace counts from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<Timestamp>,
    pub exit: ExitCode,
    /// The worst exit code of its steps (sacct `DerivedExitCode`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub derived_exit: ExitCode,
    /// How often the job had been restarted before this run.
    pub restarts: u32,
    /// How the run before this one ended, if `--requeue` alone had the job run once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun_after: Option<End>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alloc: Option<Box<Allocation>>,
    /// It is to have less than it has, and gives the rest back as its steps end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shrinks: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage: Usage,
    /// Who cancelled it (uid), for `CANCELLED by 0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<u32>,
    /// What slotd has to say about it, as Slurm's `SystemComment`: why its launch failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_comment: Option<String>,
}

/// An earlier run of a job that went back to the queue: what its record said then and says no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// It was ended for the requeue, with the state CANCELLED; otherwise it had ended before.
    /// Slurm's state for it is REQUEUED.
    #[serde(default, skip_serializing_if = "is_default")]
    pub requeued: bool,
    pub run: RunState,
    #[serde(default, skip_serializing_if = "is_default")]
    pub steps: Vec<Step>,
}

impl RunState {
    /// The same, ended. Where the record does not say yet how its processes ended, `exit` and
    /// `usage` do.
    #[must_use]
    pub fn ended_as(self, exit: ExitCode, usage: Usage, end: Timestamp) -> RunState {
        let mut run = RunState { exit, usage: self.usage.merge(usage), ..self };
        run.end_at(end);
        run
    }

    /// Notes the end. It is shown at the start at the earliest, though the clock may have been set
    /// back while it ran; how long it ran is not touched by that.
    pub fn end_at(&mut self, ended: Timestamp) {
        if let Some(since) = self.suspended_at.take() {
            let still = u64::try_from(ended.since(since).as_micros()).unwrap_or(0);
            self.suspended_us = self.suspended_us.saturating_add(still);
        }
        let end = ended.max(self.start.unwrap_or(ended));
        self.stepped_us = self.stepped_us.saturating_add(end.0.saturating_sub(ended.0));
        self.end = Some(end);
    }

    /// Takes note of the clocks as they stand now. A wall clock that has jumped since the last time
    /// does not count as time that has passed, nor as time of a suspension.
    pub fn catch_up(&mut self, clock: ClockBase) {
        let jump = self.clock.map_or(0, |known| known.jump_to(clock));
        if jump != 0 {
            self.clock = Some(clock);
            self.stepped_us = self.stepped_us.saturating_add(jump);
            for at in [&mut self.suspended_at, &mut self.stopped_at].into_iter().flatten() {
                *at = at.plus_us(jump);
            }
        }
    }

    /// Why it runs once more, if `--requeue` alone has it do so, without the subject:
    /// `run was FAILED; …`.
    pub fn rerun_in_words(&self) -> Option<String> {
        let state = self.rerun_after?.name();
        Some(format!(
            "run was {state}; --requeue runs the job once more (the setting SLOTD_REQUEUE=slurm turns this off)"
        ))
    }

    /// The monotonic clock at the start; `None` where it was not kept.
    pub fn started_at(&self) -> Option<Duration> {
        Some(self.clock?.monotonic(self.start?.plus_us(self.stepped_us)))
    }
}

impl Run {
    /// The record as it was at the end of this run. What the user changed since then is as it is
    /// now.
    pub fn record(self, job: &Job) -> Job {
        Job { run: self.run, steps: self.steps, ..job.without_steps() }
    }
}
