//! Attempts to run a step: start, time limit, end and retry.

use super::{Core, Due, Effect, Halt, Phase, SIGTERM, StepOutcome};
use crate::def::Warning;
use slotd_model::tres::Allocation;
use slotd_model::{End, ExitCode, Outcome};
use std::time::Duration;

const SIGKILL: i32 = 9;

/// A running attempt.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub step: u32,
    pub alloc: Allocation,
    pub(super) stopped: Option<Stopped>,
    /// Its pending timers.
    dues: Vec<(Duration, Due)>,
}

/// The reason a running attempt was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// It reached its time limit.
    Limit,
    /// A user cancelled it. `by`: the UID, if the daemon passed the request on.
    User { by: Option<u32> },
    /// The manager or the job is ending. The next manager runs the step again.
    Halt,
    /// The journal could not record the start, so the attempt was never launched.
    Unstarted,
    /// Its CPUs or GPUs went out of use. The step runs again elsewhere.
    Moved,
}

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptEnd {
    pub step: u32,
    /// The state to record.
    pub state: End,
    /// Whether the attempt was stopped because the manager or job is ending, or because its CPUs or
    /// GPUs went out of use. The step is then started again.
    pub is_interrupted: bool,
    /// The UID of the user who cancelled it through the daemon.
    pub cancelled_by: Option<u32>,
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

    /// Handles the exit of an attempt's last process. Returns `None` if it was not running.
    pub fn on_ended(&mut self, number: u32, exit: ExitCode, now: Duration) -> Option<AttemptEnd> {
        let attempt = self.running.remove(&number)?;
        let (step, stopped) = (attempt.step, attempt.stopped);
        let settings = std::sync::Arc::clone(&self.steps.get(step as usize)?.settings);
        self.resources.give_back(&attempt.alloc, &settings.ask);
        for (at, due) in attempt.dues {
            self.timers.remove(&(at, step, due));
        }
        let state = Core::state_of(exit, stopped);
        let cancelled_by = match stopped {
            Some(Stopped::User { by }) => by,
            _ => None,
        };
        let is_interrupted = match stopped {
            Some(Stopped::Halt | Stopped::Unstarted) => state == End::Cancelled,
            Some(Stopped::Moved) => state == End::NodeFail,
            Some(Stopped::Limit | Stopped::User { .. }) | None => false,
        };
        if is_interrupted && stopped == Some(Stopped::Halt) {
            // This manager will not run it again, so its exit code counts.
            self.count_exit(exit, StepOutcome::Cancelled);
        }
        let entry = self.steps.get_mut(step as usize)?;
        if is_interrupted {
            entry.phase = Phase::Waiting;
            entry.attempts = entry.attempts.saturating_sub(1);
            self.make_ready(step);
            return Some(AttemptEnd { step, state, is_interrupted, cancelled_by });
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
        Some(AttemptEnd { step, state, is_interrupted, cancelled_by })
    }

    /// Fires all timers that are due.
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
                    // A signal may already have stopped the steps. Their grace period runs from
                    // then.
                    if self.halt != Halt::Stop {
                        self.stop(now);
                    }
                    self.effects.push(Effect::OutOfTime);
                }
                Due::Kill(number) => self.effects.push(Effect::Signal { number, signal: SIGKILL }),
            }
        }
    }

    /// Sets the total time for which the job was suspended. Suspended time does not count towards
    /// the limits of running steps.
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

    /// Sends SIGTERM, then SIGKILL after the grace period.
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

    /// Moves a step away from resources that are out of use. It gets the signal and the time that
    /// it (or else the job) asked for, then SIGTERM.
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
