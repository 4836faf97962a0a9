//! User actions on steps.

use super::{Core, Due, Effect, Halt, Phase, StepOutcome, Stopped, shape_of};
use slotd_model::ExitCode;
use std::time::Duration;

const SIGKILL: i32 = 9;

impl Core {
    /// Cancels pending steps and terminates running ones. Returns how many there were.
    pub fn cancel(&mut self, steps: &[u32], now: Duration) -> u32 {
        let mut done = 0;
        for step in steps {
            match self.entry(*step).map(|entry| entry.phase) {
                Some(phase @ (Phase::Waiting | Phase::Ready | Phase::Backoff(_))) => {
                    if let Phase::Backoff(at) = phase {
                        self.timers.remove(&(at, *step, Due::Retry));
                    }
                    self.end(*step, StepOutcome::Cancelled);
                    done += 1;
                }
                Some(Phase::Running(number)) => {
                    self.stop_attempt(number, Stopped::User { by: None }, now);
                    done += 1;
                }
                Some(Phase::Ended(_)) | None => {}
            }
        }
        done
    }

    /// Handles `scancel JOB.STEP`: sends the signal, or terminates the step if none is given.
    /// `by`: the UID of the user who requested it.
    pub fn signal(&mut self, number: u32, signal: Option<i32>, by: Option<u32>, now: Duration) {
        match signal {
            None => self.stop_attempt(number, Stopped::User { by }, now),
            Some(signal) => {
                if let Some(attempt) = self.running.get_mut(&number) {
                    if signal == SIGKILL {
                        attempt.stopped.get_or_insert(Stopped::User { by });
                    }
                    self.effects.push(Effect::Signal { number, signal });
                }
            }
        }
    }

    /// Holds steps that have not started. Returns how many there were.
    pub fn hold(&mut self, steps: &[u32]) -> u32 {
        let mut done = 0;
        for step in steps {
            self.unready(*step);
            if let Some(entry) = self.steps.get_mut(*step as usize)
                && matches!(entry.phase, Phase::Waiting | Phase::Ready | Phase::Backoff(_))
            {
                entry.is_held = true;
                done += 1;
            }
        }
        done
    }

    /// Releases held steps. Returns how many there were.
    pub fn release(&mut self, steps: &[u32]) -> u32 {
        let mut done = 0;
        for step in steps {
            let Some(entry) = self.steps.get_mut(*step as usize).filter(|entry| entry.is_held)
            else {
                continue;
            };
            entry.is_held = false;
            done += 1;
            if entry.phase == Phase::Ready {
                self.ready.insert(entry.priority, shape_of(&entry.settings), *step);
            }
        }
        done
    }

    /// Moves steps that have not started ahead of all others. Returns how many there were.
    pub fn top(&mut self, steps: &[u32]) -> u32 {
        let above =
            self.steps.iter().map(|entry| entry.priority).max().unwrap_or(0).saturating_add(1);
        let mut done = 0;
        for step in steps {
            self.unready(*step);
            let Some(entry) = self.steps.get_mut(*step as usize) else { continue };
            if matches!(entry.phase, Phase::Waiting | Phase::Ready | Phase::Backoff(_)) {
                entry.priority = above;
                done += 1;
                if entry.phase == Phase::Ready && !entry.is_held {
                    self.ready.insert(above, shape_of(&entry.settings), *step);
                }
            }
        }
        done
    }

    /// Cancels a launch that was never carried out. The step waits again.
    pub fn cancel_launch(&mut self, number: u32, now: Duration) {
        if let Some(attempt) = self.running.get_mut(&number) {
            attempt.stopped = Some(Stopped::Unstarted);
            self.on_ended(number, ExitCode::signal(SIGKILL), now);
        }
    }

    /// Stops starting steps.
    pub fn drain(&mut self) {
        self.halt = self.halt.max(Halt::Drain);
    }

    /// Stops starting steps and terminates running ones. A second call kills them at once.
    pub fn stop(&mut self, now: Duration) {
        let again = self.halt == Halt::Stop;
        self.halt = Halt::Stop;
        let numbers: Vec<u32> = self.running.keys().copied().collect();
        for number in numbers {
            if again {
                self.effects.push(Effect::Signal { number, signal: SIGKILL })
            } else {
                self.stop_attempt(number, Stopped::Halt, now)
            }
        }
    }
}
