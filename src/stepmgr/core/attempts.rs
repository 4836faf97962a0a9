//! An attempt to run a step: its start, its limit, its end, and what comes after a failure.

use super::{Core, Due, Effect, Halt, Phase, SIGTERM, StepOutcome};
use crate::model::tres::Allocation;
use crate::model::{End, ExitCode, Outcome};
use crate::stepmgr::def::Warning;
use std::time::Duration;

const SIGKILL: i32 = 9;

/// A step of the job that runs.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub step: u32,
    pub alloc: Allocation,
    pub(super) stopped: Option<Stopped>,
    /// Its timers.
    dues: Vec<(Duration, Due)>,
}

/// Who ended a running step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Its time limit.
    Limit,
    User,
    /// The manager ends, or the job does: the step is to be run again by the next manager.
    Halt,
    /// It could not be written down that it was about to start: it did not.
    Unstarted,
    /// What it runs on is out of use: it is to be run again elsewhere.
    Moved,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptEnd {
    pub step: u32,
    /// As it is recorded.
    pub state: End,
    /// The step was ended since the manager or the job ends, or since what it ran on is out of use:
    /// it is started again.
    pub is_interrupted: bool,
}

impl Core {
    pub(super) fn launch(&mut self, step: u32, number: u32, alloc: Allocation, now: Duration) {
        let Some(entry) = self.steps.get_mut(step as usize) else { return };
        entry.attempts += 1;
        entry.phase = Phase::Running(number);
        let limit = entry.settings.time_secs.map(|secs| now + Duration::from_secs(secs));
        let end = [limit, self.job_end].into_iter().flatten().min();
        let mut dues = Vec::new();
        if let (Some(Warning { before_secs, .. }), Some(end)) = (entry.settings.warning, end) {
            dues.push((end.saturating_sub(Duration::from_secs(before_secs)), Due::Warn(number)));
        }
        dues.extend(limit.map(|limit| (limit, Due::Limit(number))));
        self.timers.extend(dues.iter().map(|(at, due)| (*at, step, *due)));
        self.running.insert(number, Attempt { step, alloc: alloc.clone(), stopped: None, dues });
        self.effects.push(Effect::Launch { step, number, alloc });
    }

    /// All processes of a step are gone. `None`: it did not run.
    pub fn on_ended(&mut self, number: u32, exit: ExitCode, now: Duration) -> Option<AttemptEnd> {
        let attempt = self.running.remove(&number)?;
        let (step, stopped) = (attempt.step, attempt.stopped);
        let settings = std::sync::Arc::clone(&self.steps.get(step as usize)?.settings);
        self.resources.give_back(&attempt.alloc, &settings.ask);
        for (at, due) in attempt.dues {
            self.timers.remove(&(at, step, due));
        }
        let state = Core::state_of(exit, stopped);
        let is_interrupted = match stopped {
            Some(Stopped::Halt | Stopped::Unstarted) => state == End::Cancelled,
            Some(Stopped::Moved) => state == End::NodeFail,
            Some(Stopped::Limit | Stopped::User) | None => false,
        };
        if is_interrupted && stopped == Some(Stopped::Halt) {
            // This manager does not run it again.
            self.count_exit(exit, StepOutcome::Cancelled);
        }
        let entry = self.steps.get_mut(step as usize)?;
        if is_interrupted {
            entry.phase = Phase::Waiting;
            entry.attempts = entry.attempts.saturating_sub(1);
            self.make_ready(step);
            return Some(AttemptEnd { step, state, is_interrupted });
        }
        match state.outcome() {
            Outcome::Success => self.end(step, StepOutcome::Ok),
            Outcome::Cancelled => {
                self.count_exit(exit, StepOutcome::Cancelled);
                self.end(step, StepOutcome::Cancelled);
            }
            Outcome::Failure
                if entry.attempts <= settings.retry.times && self.halt != Halt::Stop =>
            {
                let at = now + Duration::from_secs(settings.retry.delay_after(entry.attempts));
                entry.phase = Phase::Backoff(at);
                self.timers.insert((at, step, Due::Retry));
            }
            Outcome::Failure => {
                self.count_exit(exit, StepOutcome::Failed);
                self.end(step, StepOutcome::Failed);
            }
        }
        Some(AttemptEnd { step, state, is_interrupted })
    }

    /// Retries, warnings and limits whose time has come.
    pub fn on_due(&mut self, now: Duration) {
        while let Some((at, step, due)) =
            self.timers.first().copied().filter(|(at, _, _)| *at <= now)
        {
            self.timers.remove(&(at, step, due));
            match due {
                Due::Retry => self.make_ready(step),
                Due::Warn(number) => {
                    let warning = self.entry(step).and_then(|entry| entry.settings.warning);
                    if let Some(Warning { signal, .. }) = warning {
                        self.effects.push(Effect::Signal { number, signal });
                    }
                }
                Due::Limit(number) => self.stop_attempt(number, Stopped::Limit, now),
                Due::Move(number) => self.terminate(number, now),
                Due::JobEnd => {
                    // Whoever ends the job may have been heard before, and the steps have their
                    // grace from then on.
                    if self.halt != Halt::Stop {
                        self.stop(now);
                    }
                    self.effects.push(Effect::OutOfTime);
                }
                Due::Kill(number) => self.effects.push(Effect::Signal { number, signal: SIGKILL }),
            }
        }
    }

    /// The job was suspended for so long in all. That counts towards no limit of the steps that
    /// run.
    pub fn on_suspended(&mut self, suspended: Duration) {
        let by = suspended.saturating_sub(self.suspended);
        self.suspended = suspended;
        for attempt in self.running.values_mut() {
            for (at, due) in &mut attempt.dues {
                if self.timers.remove(&(*at, attempt.step, *due)) {
                    *at += by;
                    self.timers.insert((*at, attempt.step, *due));
                }
            }
        }
    }

    /// SIGTERM, and after the grace SIGKILL.
    pub(super) fn stop_attempt(&mut self, number: u32, by: Stopped, now: Duration) {
        let Some(attempt) = self.running.get_mut(&number) else { return };
        if matches!(attempt.stopped, None | Some(Stopped::Moved)) {
            attempt.stopped = Some(by);
            self.terminate(number, now);
        }
    }

    fn terminate(&mut self, number: u32, now: Duration) {
        self.set_due(number, now + self.policy.grace, Due::Kill(number));
        self.effects.push(Effect::Signal { number, signal: SIGTERM });
    }

    fn set_due(&mut self, number: u32, at: Duration, due: Due) {
        if let Some(attempt) = self.running.get_mut(&number) {
            attempt.dues.push((at, due));
            self.timers.insert((at, attempt.step, due));
        }
    }

    /// A step leaves what is out of use: it gets the signal that it, or the job, asked for and so
    /// much time, and then SIGTERM.
    pub(super) fn move_away(&mut self, number: u32, now: Duration) {
        let Some(attempt) = self.running.get_mut(&number) else { return };
        attempt.stopped = Some(Stopped::Moved);
        let settings = self.steps.get(attempt.step as usize).map(|entry| &entry.settings);
        match settings.and_then(|settings| settings.warning).or(self.policy.warning) {
            Some(Warning { signal, before_secs }) => {
                self.effects.push(Effect::Signal { number, signal });
                self.set_due(number, now + Duration::from_secs(before_secs), Due::Move(number));
            }
            None => self.terminate(number, now),
        }
    }
}
