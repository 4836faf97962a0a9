//! The state of the manager and its decisions.
//!
//! Time is monotonic and always an argument. A step is identified by its position in submission
//! order. Each attempt to run it is a job step with its own step number.

use super::def::{Command, OnFailure, Settings, StepDef, Warning};
use super::graph::{Graph, Refused};
use super::ready::{Fit, Ready, Shape};
use super::resources::Resources;
use slotd_model::node::NodeParts;
use slotd_model::resize::GivenBack;
use slotd_model::tres::Allocation;
use slotd_model::{End, ExitCode, Tres};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

mod attempts;
mod control;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
mod why;

pub use attempts::{Attempt, Stopped};
pub use why::Row;

/// The final result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepOutcome {
    /// It succeeded.
    Ok,
    Failed,
    /// Cancelled by the user.
    Cancelled,
    /// Its dependencies can never be satisfied.
    Skipped,
}

impl StepOutcome {
    pub fn name(self) -> &'static str {
        match self {
            StepOutcome::Ok => "COMPLETED",
            StepOutcome::Failed => "FAILED",
            StepOutcome::Cancelled => "CANCELLED",
            StepOutcome::Skipped => "SKIPPED",
        }
    }
}

/// The current phase of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for other steps to end.
    Waiting,
    /// Waiting only for resources.
    Ready,
    /// Failed; retried at this time.
    Backoff(Duration),
    /// Running with this step number.
    Running(u32),
    Ended(StepOutcome),
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub name: Arc<str>,
    pub command: Command,
    pub settings: Arc<Settings>,
    pub phase: Phase,
    pub attempts: u32,
    pub is_held: bool,
    priority: i64,
}

/// An action for the caller to carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Launch {
        step: u32,
        number: u32,
        alloc: Allocation,
    },
    /// Send a signal to all processes of the step with this number.
    Signal {
        number: u32,
        signal: i32,
    },
    /// A step reached its final state.
    Ended {
        step: u32,
        outcome: StepOutcome,
    },
    /// The job's time is up. Running steps are being terminated; the rest will not start.
    OutOfTime,
}

/// Settings from the command line that apply to all steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// Overrides the setting of each step (`--keep-going`, `--halt-on-failure`).
    pub on_failure: Option<OnFailure>,
    /// The job's `--signal`. Steps without their own get it when they are moved.
    pub warning: Option<Warning>,
    /// The most steps that may run at once.
    pub most_running: Option<u32>,
    /// The time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// The longest argument or environment variable that the kernel accepts, including its null
    /// byte; `None` if unknown.
    pub longest_word: Option<usize>,
}

/// Whether the manager still starts steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Halt {
    #[default]
    No,
    /// Starts no more steps; running ones continue.
    Drain,
    /// Starts no more steps and terminates running ones.
    Stop,
}

/// The number of steps in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub all: u32,
    pub running: u32,
    pub ok: u32,
    pub failed: u32,
    pub cancelled: u32,
    pub skipped: u32,
}

impl Counts {
    pub fn ended(&self) -> u32 {
        self.ok + self.failed + self.cancelled + self.skipped
    }

    pub fn waiting(&self) -> u32 {
        self.all - self.ended() - self.running
    }
}

/// A timer for a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Retry,
    Warn(u32),
    Limit(u32),
    /// The time that a step had to leave its CPUs or GPUs has passed.
    Move(u32),
    Kill(u32),
    /// The job ends soon. Not tied to a step.
    JobEnd,
}

const SIGTERM: i32 = 15;

/// The limit on all arguments of a program together. Linux enforces it whatever the stack limit.
const MOST_BYTES: usize = 6 << 20;

/// The time before the end of the job at which the manager ends its steps, so that it still sees
/// them exit.
const BEFORE_JOB_END: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Default)]
pub struct Core {
    steps: Vec<Entry>,
    graph: Graph,
    ready: Ready,
    resources: Resources,
    policy: Policy,
    halt: Halt,
    running: BTreeMap<u32, Attempt>,
    timers: BTreeSet<(Duration, u32, Due)>,
    /// Unused step numbers.
    numbers: std::ops::Range<u32>,
    job_end: Option<Duration>,
    /// The total time for which the job was suspended.
    suspended: Duration,
    counts: Counts,
    /// The worst exit code of steps that failed for good, were cancelled, or were ended with the
    /// manager.
    worst: ExitCode,
    pub effects: Vec<Effect>,
}

fn shape_of(settings: &Settings) -> Shape {
    Shape { ask: settings.ask, time_secs: settings.time_secs }
}

impl Core {
    /// Creates a manager without steps. `job_end` is the time at which the job's time limit ends
    /// it.
    pub fn new(whole: Allocation, policy: Policy, job_end: Option<Duration>) -> Core {
        let mut core = Core { resources: Resources::new(whole), policy, ..Core::default() };
        core.on_job_end_moved(job_end);
        core
    }

    pub fn entry(&self, step: u32) -> Option<&Entry> {
        self.steps.get(step as usize)
    }

    pub fn counts(&self) -> Counts {
        Counts { running: u32::try_from(self.running.len()).unwrap_or(u32::MAX), ..self.counts }
    }

    pub fn worst(&self) -> ExitCode {
        self.worst
    }

    pub fn resources(&self) -> &Resources {
        &self.resources
    }

    pub fn halt(&self) -> Halt {
        self.halt
    }

    /// Returns the running attempts with their step numbers.
    pub fn running(&self) -> impl Iterator<Item = (u32, &Attempt)> {
        self.running.iter().map(|(number, attempt)| (*number, attempt))
    }

    /// Returns the names of the steps that have not ended.
    pub fn unended(&self) -> impl Iterator<Item = &str> {
        self.steps
            .iter()
            .filter(|entry| !matches!(entry.phase, Phase::Ended(_)))
            .map(|entry| &*entry.name)
    }

    pub fn attempt(&self, number: u32) -> Option<&Attempt> {
        self.running.get(&number)
    }

    /// Returns the steps that match a name or pattern.
    pub fn find(&self, pattern: &str) -> Vec<u32> {
        self.graph.matching(pattern)
    }

    /// Adds steps, all or none, and returns the index of the first.
    ///
    /// # Errors
    /// Fails if a step asks for more than the job has, or if its name or dependencies are invalid.
    pub fn add(&mut self, defs: Vec<StepDef>) -> Result<u32, Refused> {
        for def in &defs {
            self.check_size(def)?;
            self.check_lengths(def)?;
        }
        let followed = self.graph.add(&defs)?;
        let first = u32::try_from(self.steps.len()).unwrap_or(u32::MAX);
        self.counts.all += u32::try_from(defs.len()).unwrap_or(u32::MAX);
        self.steps.extend(defs.into_iter().map(|def| Entry {
            name: def.name,
            command: def.command,
            priority: def.settings.priority,
            settings: def.settings,
            phase: Phase::Waiting,
            attempts: 0,
            is_held: false,
        }));
        followed.unblocked.into_iter().for_each(|step| self.make_ready(step));
        self.skip(followed.unsatisfiable);
        Ok(first)
    }

    fn check_size(&self, def: &StepDef) -> Result<(), Refused> {
        let ask = &def.settings.ask;
        if self.resources.could_hold(ask) {
            return Ok(());
        }
        let text = format!("step {:?} {}", def.name, self.resources.too_little_for(ask));
        let hint = "request less, or submit a larger job (sbatch -c, --mem, --gpus)".to_owned();
        Err(Refused { line: def.line, text, hint: Some(hint) })
    }

    /// Refuses commands and variables that are too long for the kernel.
    fn check_lengths(&self, def: &StepDef) -> Result<(), Refused> {
        let Some(most) = self.policy.longest_word else { return Ok(()) };
        let refuse = |what: &str, bytes: usize, most: usize, hint: &str| {
            let text = format!("step {:?}: {what} of {bytes} bytes is too long", def.name);
            Err(Refused {
                line: def.line,
                text,
                hint: Some(format!("at most {most} bytes: {hint}")),
            })
        };
        let bytes = def.command.len();
        // Most commands are too short to contain a word over the limit.
        let longest = || def.command.argv().iter().map(String::len).max().unwrap_or(0);
        if bytes > most
            && let longest = longest()
            && longest >= most
        {
            return refuse("an argument", longest, most - 1, "put it in a file");
        }
        if bytes > MOST_BYTES {
            return refuse("a command line", bytes, MOST_BYTES, "put the arguments in a file");
        }
        let variables = def.settings.env.iter().map(|(name, value)| name.len() + value.len() + 1);
        match variables.max().filter(|longest| *longest >= most) {
            Some(longest) => {
                refuse("a variable (env)", longest, most - 1, "put the value in a file")
            }
            None => Ok(()),
        }
    }

    fn make_ready(&mut self, step: u32) {
        let Some(entry) = self.steps.get_mut(step as usize) else { return };
        if !matches!(entry.phase, Phase::Waiting | Phase::Backoff(_)) {
            return;
        }
        entry.phase = Phase::Ready;
        if !entry.is_held {
            self.ready.insert(entry.priority, shape_of(&entry.settings), step);
        }
    }

    /// Removes a step from the ready queue if it is there.
    fn unready(&mut self, step: u32) {
        if let Some(entry) =
            self.steps.get(step as usize).filter(|entry| entry.phase == Phase::Ready)
        {
            self.ready.remove(entry.priority, shape_of(&entry.settings), step);
        }
    }

    /// Skips steps whose dependencies can never be satisfied, and in turn their dependents.
    fn skip(&mut self, unsatisfiable: Vec<u32>) {
        for step in unsatisfiable {
            let waits = self.entry(step).is_some_and(|entry| entry.phase == Phase::Waiting);
            if waits {
                self.end(step, StepOutcome::Skipped);
            }
        }
    }

    /// Records the final outcome of a step and updates its dependents.
    fn end(&mut self, step: u32, outcome: StepOutcome) {
        let mut ends = vec![(step, outcome)];
        while let Some((step, outcome)) = ends.pop() {
            self.unready(step);
            let Some(entry) = self.steps.get_mut(step as usize) else { continue };
            if matches!(entry.phase, Phase::Ended(_)) {
                continue;
            }
            entry.phase = Phase::Ended(outcome);
            let on_failure = self.policy.on_failure.unwrap_or(entry.settings.on_failure);
            match outcome {
                StepOutcome::Ok => self.counts.ok += 1,
                StepOutcome::Failed => self.counts.failed += 1,
                StepOutcome::Cancelled => self.counts.cancelled += 1,
                StepOutcome::Skipped => self.counts.skipped += 1,
            }
            self.effects.push(Effect::Ended { step, outcome });
            if outcome == StepOutcome::Failed && on_failure == OnFailure::Stop {
                self.halt = self.halt.max(Halt::Drain);
            }
            let counts_as_well = outcome == StepOutcome::Ok
                || (outcome == StepOutcome::Failed && on_failure == OnFailure::Continue);
            let followed = self.graph.end(step, counts_as_well);
            followed.unblocked.into_iter().for_each(|step| self.make_ready(step));
            let waiting =
                |step: &u32| self.entry(*step).is_some_and(|entry| entry.phase == Phase::Waiting);
            ends.extend(
                followed
                    .unsatisfiable
                    .into_iter()
                    .filter(waiting)
                    .map(|step| (step, StepOutcome::Skipped)),
            );
        }
    }

    /// Restores a step that ended for good under an earlier manager. It is not run again.
    pub fn restore_end(&mut self, step: u32, outcome: StepOutcome, exit: ExitCode, attempts: u32) {
        if let Some(entry) = self.steps.get_mut(step as usize) {
            entry.attempts = attempts;
        }
        self.count_exit(exit, outcome);
        self.end(step, outcome);
    }

    /// Adds the exit code of a step that did not succeed to the worst one.
    fn count_exit(&mut self, exit: ExitCode, outcome: StepOutcome) {
        // It exited with 0, but after its time limit.
        let is_late = outcome == StepOutcome::Failed && exit.is_success();
        self.worst = self.worst.worse(if is_late { ExitCode::signal(SIGTERM) } else { exit });
    }

    /// Restores the number of attempts that earlier managers made.
    pub fn restore_attempts(&mut self, step: u32, attempts: u32) {
        if let Some(entry) = self.steps.get_mut(step as usize) {
            entry.attempts = attempts;
        }
    }

    /// Updates the job's resources.
    pub fn on_resources(&mut self, whole: Allocation, owed: Tres) {
        self.resources.resize(whole, owed);
    }

    /// Returns resources that can be given back now. Call this before [`Core::decide`], which would
    /// allocate them again.
    pub fn given_back(&mut self) -> Option<GivenBack> {
        self.resources.given_back()
    }

    /// Sets which CPUs and GPUs are out of use (the whole list). No step is placed on them, and
    /// steps that run on them are moved.
    pub fn on_parts_out(&mut self, out: NodeParts, now: Duration) {
        self.resources.set_out(out);
        let is_on_it =
            |attempt: &&Attempt| attempt.stopped.is_none() && self.resources.is_out(&attempt.alloc);
        let moved: Vec<u32> = self
            .running
            .iter()
            .filter(|(_, attempt)| is_on_it(attempt))
            .map(|(number, _)| *number)
            .collect();
        moved.into_iter().for_each(|number| self.move_away(number, now));
    }

    /// Sets a new end time for the job.
    pub fn on_job_end_moved(&mut self, job_end: Option<Duration>) {
        let due = |end: Duration| (end.saturating_sub(BEFORE_JOB_END), u32::MAX, Due::JobEnd);
        if let Some(old) = self.job_end {
            self.timers.remove(&due(old));
        }
        self.timers.extend(job_end.map(due));
        self.job_end = job_end;
    }

    /// Sets the range of unused step numbers.
    pub fn on_numbers(&mut self, numbers: std::ops::Range<u32>) {
        self.numbers = numbers;
    }

    /// Returns the step numbers that were not used.
    pub fn numbers_left(&self) -> std::ops::Range<u32> {
        self.numbers.clone()
    }

    /// Returns whether a step could start but no step numbers are left.
    pub fn wants_numbers(&self, now: Duration) -> bool {
        self.halt == Halt::No
            && self.numbers.is_empty()
            && self.ready.first(|shape| self.fit(shape, now)).is_some()
    }

    fn fit(&self, shape: &Shape, now: Duration) -> Fit {
        let left = self.job_end.map(|end| end.saturating_sub(now).as_secs());
        if left.zip(shape.time_secs).is_some_and(|(left, wanted)| wanted > left) || left == Some(0)
        {
            return Fit::Never;
        }
        if self.resources.fits(&shape.ask) { Fit::Now } else { Fit::Later }
    }

    /// Starts every step that can start now.
    pub fn decide(&mut self, now: Duration) {
        while self.halt == Halt::No
            && !self.numbers.is_empty()
            && self.policy.most_running.is_none_or(|most| self.running.len() < most as usize)
        {
            let Some((priority, shape, step)) = self.ready.first(|shape| self.fit(shape, now))
            else {
                break;
            };
            let Some(alloc) = self.resources.take(&shape.ask) else { break };
            let Some(number) = self.numbers.next() else { break };
            self.ready.remove(priority, shape, step);
            self.launch(step, number, alloc, now);
        }
    }

    /// Returns whether nothing runs and nothing will start without user action.
    pub fn is_over(&self, now: Duration) -> bool {
        let waits_for_retry = || self.timers.iter().any(|(_, _, due)| *due == Due::Retry);
        let may_start = || self.ready.has_any(|shape| self.fit(shape, now)) || self.has_held();
        self.running.is_empty() && (self.halt != Halt::No || !(waits_for_retry() || may_start()))
    }

    fn has_held(&self) -> bool {
        let waiting = self.counts.all > self.counts.ended();
        waiting
            && self
                .steps
                .iter()
                .any(|entry| entry.is_held && !matches!(entry.phase, Phase::Ended(_)))
    }

    /// Returns the time of the next [`Core::on_due`] call.
    pub fn next_due(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _, _)| *at)
    }

    /// Returns the state to record for an attempt with this exit code.
    fn state_of(exit: ExitCode, stopped: Option<Stopped>) -> End {
        match stopped {
            _ if exit == ExitCode::OUT_OF_MEMORY => End::OutOfMemory,
            Some(Stopped::Limit) => End::Timeout,
            Some(Stopped::Moved) if !exit.is_success() => End::NodeFail,
            Some(Stopped::User { .. } | Stopped::Halt | Stopped::Unstarted)
                if !exit.is_success() =>
            {
                End::Cancelled
            }
            Some(_) | None if exit.is_success() => End::Completed,
            Some(_) | None => End::Failed,
        }
    }
}
