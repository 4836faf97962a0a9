//! The runs of a job. A run lasts from when the job becomes eligible until it ends. A requeued job
//! has several.

use crate::preempt::{Preempted, Resumption};
use crate::tres::{Allocation, Usage};
use crate::{ClockBase, End, ExitCode, Job, JobState, Reason, Step, Timestamp, is_default};
use serde::{Deserialize, Deserializer, Serialize};
use std::time::Duration;

/// The state of a run, present or past.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunState {
    pub state: JobState,
    /// Set for running and ended records. The reason of a pending job is computed when it is
    /// queried.
    pub reason: Reason,
    /// The time of the run, for a job that recurs. That of its first run is in the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eligible: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    /// The clocks at the last update of these times: see [`Self::catch_up`]. They identify the boot
    /// that the job runs under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Box<ClockBase>>,
    /// Total jump of the wall clock since the start, in microseconds, because it was set or the
    /// machine slept. The elapsed time excludes it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stepped_us: i64,
    /// When the job was suspended, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_at: Option<Timestamp>,
    /// Time spent in earlier suspensions, microseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspended_us: u64,
    /// When its processes were first asked to end. Their grace period starts then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<Timestamp>,
    /// The reservation that it ran in, if the end of the reservation ended the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_reservation: Option<String>,
    /// Its preemption, while its grace time passes or it is suspended, and afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted: Option<Box<Preempted>>,
    pub exit: ExitCode,
    /// The highest exit code of its steps (sacct `DerivedExitCode`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub derived_exit: ExitCode,
    /// The number of restarts before this run.
    pub restarts: u32,
    /// How the previous run ended, if `--requeue` alone caused this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun_after: Option<End>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alloc: Option<Box<Allocation>>,
    /// The job is shrinking: it gives resources back as its steps end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shrinks: bool,
    /// Only present once there is any, since it is large and pending jobs have none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "usage_if_any")]
    pub usage: Option<Box<Usage>>,
    /// The UID of the user who cancelled it, for `CANCELLED by 0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<u32>,
    /// slotd's comment, shown as Slurm's `SystemComment`: why a launch failed, for example.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_comment: Option<String>,
}

/// An earlier run of a requeued job: the values that the job's record no longer has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The requeue itself ended the run, with the state CANCELLED. Slurm's state for it is
    /// REQUEUED. Otherwise the run had already ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub requeued: bool,
    /// When the run was queued, for a job that recurs: its record has the time of the next run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submit: Option<Timestamp>,
    pub run: RunState,
    #[serde(default, skip_serializing_if = "is_default")]
    pub steps: Vec<Step>,
}

/// Older versions stored the usage of a run that had used nothing.
fn usage_if_any<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Box<Usage>>, D::Error> {
    let usage = Usage::deserialize(d)?;
    Ok((usage != Usage::default()).then(|| Box::new(usage)))
}

impl RunState {
    /// Ends the run. `exit` and `usage` come from its processes.
    #[must_use]
    pub fn ended_as(self, exit: ExitCode, usage: Usage, end: Timestamp) -> RunState {
        let mut run = RunState { exit, ..self };
        run.add_usage(usage);
        run.end_at(end);
        run
    }

    /// Returns the resources that the run has used so far.
    pub fn usage(&self) -> Usage {
        self.usage.as_deref().copied().unwrap_or_default()
    }

    pub fn add_usage(&mut self, more: Usage) {
        if more != Usage::default() {
            self.usage = Some(Box::new(self.usage().merge(more)));
        }
    }

    /// Records the end. The end is never shown before the start, even if the clock was set back
    /// during the run. The elapsed time is not affected.
    pub fn end_at(&mut self, ended: Timestamp) {
        if let Some(since) = self.suspended_at.take() {
            let still = u64::try_from(ended.since(since).as_micros()).unwrap_or(0);
            self.suspended_us = self.suspended_us.saturating_add(still);
        }
        let end = ended.max(self.start.unwrap_or(ended));
        self.stepped_us = self.stepped_us.saturating_add(end.0.saturating_sub(ended.0));
        self.end = Some(end);
    }

    /// Updates the run with the current clocks. A jump of the wall clock since the last update
    /// counts neither as elapsed time nor as suspended time.
    pub fn catch_up(&mut self, clock: ClockBase) {
        let jump = self.clock.as_deref().map_or(0, |known| known.jump_to(clock));
        if jump != 0 {
            self.clock = Some(Box::new(clock));
            self.stepped_us = self.stepped_us.saturating_add(jump);
            let grace = self.preempted.as_deref_mut().map(|by| &mut by.until);
            let own = [self.suspended_at.as_mut(), self.stopped_at.as_mut(), grace];
            for at in own.into_iter().flatten() {
                *at = at.plus_us(jump);
            }
        }
    }

    /// Returns how the run continues if it is suspended and lends its CPUs to more important jobs.
    /// `None` if it does not lend them.
    pub fn lends_cpus(&self) -> Option<Resumption> {
        let suspended = self.preempted.as_ref().and_then(|by| by.suspended);
        suspended.filter(|_| self.state.is_active())
    }

    /// Returns whether the run is suspended until its CPUs are free.
    pub fn waits_for_its_cpus(&self) -> bool {
        self.state == JobState::Suspended && self.lends_cpus() == Some(Resumption::ByItself)
    }

    /// Explains why `--requeue` runs the job once more, without the subject: `run was FAILED; …`.
    /// `None` if `--requeue` did not cause this run.
    pub fn rerun_in_words(&self) -> Option<String> {
        let state = self.rerun_after?.name();
        Some(format!(
            "run was {state}; --requeue runs the job once more (the setting SLOTD_REQUEUE=slurm turns this off)"
        ))
    }

    /// Returns the monotonic clock at the start; `None` if it was not recorded.
    pub fn started_at(&self) -> Option<Duration> {
        Some(self.clock.as_deref()?.monotonic(self.start?.plus_us(self.stepped_us)))
    }
}

impl Run {
    /// Returns the record as it was at the end of this run. Values that the user changed since then
    /// are the current ones.
    pub fn record(self, job: &Job) -> Job {
        let submit = self.submit.unwrap_or(job.submit);
        Job { run: self.run, steps: self.steps, submit, ..job.without_steps() }
    }
}
