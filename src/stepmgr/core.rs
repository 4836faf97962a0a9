//! The state of the manager and its decisions.
//!
//! The clock is the monotonic one, and an argument. A step is known by its place in the order of
//! acceptance; each attempt to run it is a step of the job with a number of its own.

use super::def::{Command, OnFailure, Settings, StepDef, Warning};
use super::graph::{Graph, Refused};
use super::ready::{Fit, Ready, Shape};
use super::resources::Resources;
use crate::model::node::NodeParts;
use crate::model::resize::GivenBack;
use crate::model::tres::Allocation;
use crate::model::{End, ExitCode, Tres};
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

/// How a step came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepOutcome {
    /// It ended well.
    Ok,
    Failed,
    /// By its user.
    Cancelled,
    /// What it waited for could never be.
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

/// Where a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Other steps have to end first.
    Waiting,
    /// It waits for nothing but resources.
    Ready,
    /// It has failed, and is started again then.
    Backoff(Duration),
    /// With this number.
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

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Launch {
        step: u32,
        number: u32,
        alloc: Allocation,
    },
    /// To all processes of the step with this number.
    Signal {
        number: u32,
        signal: i32,
    },
    /// A step is over for good.
    Ended {
        step: u32,
        fate: StepOutcome,
    },
    /// The time of the job is over: steps that run are told to end, and others are left.
    OutOfTime,
}

/// What the user said about all steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// In the place of what each step says (`--keep-going`, `--halt-on-failure`).
    pub on_failure: Option<OnFailure>,
    /// What steps get that are to end early and ask for no signal of their own (the job's
    /// `--signal`).
    pub warning: Option<Warning>,
    /// At most so many steps at once.
    pub most_running: Option<u32>,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// The kernel hands no longer argument or variable to a program, its final zero byte included;
    /// `None`: nobody knows.
    pub longest_word: Option<usize>,
}

/// Whether steps are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Halt {
    #[default]
    No,
    /// No more; those that run go on.
    Drain,
    /// No more, and those that run are ended.
    Stop,
}

/// How many steps stand where.
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

/// What becomes due for a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Retry,
    Warn(u32),
    Limit(u32),
    /// A step that is moved has had its time.
    Move(u32),
    Kill(u32),
    /// Of no step: the job ends soon.
    JobEnd,
}

const SIGTERM: i32 = 15;

/// All arguments of a program together: Linux takes no more, however large its stack may be.
const MOST_BYTES: usize = 6 << 20;

/// So long before its job the manager ends its steps, so that it sees their ends.
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
    /// Numbers for steps of the job that are not used yet.
    numbers: std::ops::Range<u32>,
    job_end: Option<Duration>,
    /// For how long the job was suspended.
    suspended: Duration,
    counts: Counts,
    /// The worst exit code of steps that failed for good, or were ended by their user or with the
    /// manager.
    worst: ExitCode,
    pub effects: Vec<Effect>,
}

fn shape_of(settings: &Settings) -> Shape {
    Shape { ask: settings.ask, time_secs: settings.time_secs }
}

impl Core {
    /// `job_end`: when the job's time limit ends it.
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

    /// The running steps of the job, by number.
    pub fn running(&self) -> impl Iterator<Item = (u32, &Attempt)> {
        self.running.iter().map(|(number, attempt)| (*number, attempt))
    }

    /// The names of the steps that have not ended.
    pub fn unended(&self) -> impl Iterator<Item = &str> {
        self.steps
            .iter()
            .filter(|entry| !matches!(entry.phase, Phase::Ended(_)))
            .map(|entry| &*entry.name)
    }

    pub fn attempt(&self, number: u32) -> Option<&Attempt> {
        self.running.get(&number)
    }

    /// The steps with this name or pattern.
    pub fn find(&self, pattern: &str) -> Vec<u32> {
        self.graph.matching(pattern)
    }

    /// Takes steps in, all or none, and says where they begin.
    ///
    /// # Errors
    /// One asks for more than there is, or has no place in the graph.
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
        followed.free.into_iter().for_each(|step| self.make_ready(step));
        self.skip(followed.hopeless);
        Ok(first)
    }

    fn check_size(&self, def: &StepDef) -> Result<(), Refused> {
        let ask = &def.settings.ask;
        if self.resources.could_hold(ask) {
            return Ok(());
        }
        let text = format!("step {:?} {}", def.name, self.resources.too_little_for(ask));
        let hint = "ask for less, or submit a larger job (sbatch -c, --mem, --gpus)".to_owned();
        Err(Refused { line: def.line, text, hint: Some(hint) })
    }

    /// What no program could be started with.
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
        // Most commands are so short that their words need not be looked at.
        let longest = || def.command.argv().iter().map(String::len).max().unwrap_or(0);
        if bytes > most
            && let longest = longest()
            && longest >= most
        {
            return refuse(
                "a word of its command",
                longest,
                most - 1,
                "write it into a file, and run that or read it",
            );
        }
        if bytes > MOST_BYTES {
            return refuse("a command", bytes, MOST_BYTES, "write its words into a file");
        }
        let variables = def.settings.env.iter().map(|(name, value)| name.len() + value.len() + 1);
        match variables.max().filter(|longest| *longest >= most) {
            Some(longest) => {
                refuse("a variable (env)", longest, most - 1, "write its value into a file")
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

    /// Takes a step out of the queue, if it is there.
    fn unready(&mut self, step: u32) {
        if let Some(entry) =
            self.steps.get(step as usize).filter(|entry| entry.phase == Phase::Ready)
        {
            self.ready.remove(entry.priority, shape_of(&entry.settings), step);
        }
    }

    /// Steps whose dependencies can never be met, and those that depend on them in turn.
    fn skip(&mut self, hopeless: Vec<u32>) {
        for step in hopeless {
            let waits = self.entry(step).is_some_and(|entry| entry.phase == Phase::Waiting);
            if waits {
                self.end(step, StepOutcome::Skipped);
            }
        }
    }

    /// A step is over for good, and what follows from it.
    fn end(&mut self, step: u32, fate: StepOutcome) {
        let mut ends = vec![(step, fate)];
        while let Some((step, fate)) = ends.pop() {
            self.unready(step);
            let Some(entry) = self.steps.get_mut(step as usize) else { continue };
            if matches!(entry.phase, Phase::Ended(_)) {
                continue;
            }
            entry.phase = Phase::Ended(fate);
            let on_failure = self.policy.on_failure.unwrap_or(entry.settings.on_failure);
            match fate {
                StepOutcome::Ok => self.counts.ok += 1,
                StepOutcome::Failed => self.counts.failed += 1,
                StepOutcome::Cancelled => self.counts.cancelled += 1,
                StepOutcome::Skipped => self.counts.skipped += 1,
            }
            self.effects.push(Effect::Ended { step, fate });
            if fate == StepOutcome::Failed && on_failure == OnFailure::Stop {
                self.halt = self.halt.max(Halt::Drain);
            }
            let counts_as_well = fate == StepOutcome::Ok
                || (fate == StepOutcome::Failed && on_failure == OnFailure::Continue);
            let followed = self.graph.end(step, counts_as_well);
            followed.free.into_iter().for_each(|step| self.make_ready(step));
            let waiting =
                |step: &u32| self.entry(*step).is_some_and(|entry| entry.phase == Phase::Waiting);
            ends.extend(
                followed
                    .hopeless
                    .into_iter()
                    .filter(waiting)
                    .map(|step| (step, StepOutcome::Skipped)),
            );
        }
    }

    /// A step that an earlier manager has seen ending for good: it is not started.
    pub fn restore_end(&mut self, step: u32, fate: StepOutcome, exit: ExitCode, attempts: u32) {
        if let Some(entry) = self.steps.get_mut(step as usize) {
            entry.attempts = attempts;
        }
        self.count_exit(exit, fate);
        self.end(step, fate);
    }

    /// A step that did not end well had this exit code at last.
    fn count_exit(&mut self, exit: ExitCode, fate: StepOutcome) {
        // Its end was not in time.
        let is_late = fate == StepOutcome::Failed && exit.is_success();
        self.worst = self.worst.worse(if is_late { ExitCode::signal(SIGTERM) } else { exit });
    }

    /// An earlier manager has tried so often.
    pub fn restore_attempts(&mut self, step: u32, attempts: u32) {
        if let Some(entry) = self.steps.get_mut(step as usize) {
            entry.attempts = attempts;
        }
    }

    /// The job has other resources now.
    pub fn on_resources(&mut self, whole: Allocation, owed: Tres) {
        self.resources.resize(whole, owed);
    }

    /// What goes back to the job's owner now. To be asked for before [`Core::decide`], which would
    /// use it.
    pub fn given_back(&mut self) -> Option<GivenBack> {
        self.resources.given_back()
    }

    /// These of what the job has are out of use now, and no others: no step gets them, and steps on
    /// them are moved.
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

    /// The job ends at another time.
    pub fn on_job_end_moved(&mut self, job_end: Option<Duration>) {
        let due = |end: Duration| (end.saturating_sub(BEFORE_JOB_END), u32::MAX, Due::JobEnd);
        if let Some(old) = self.job_end {
            self.timers.remove(&due(old));
        }
        self.timers.extend(job_end.map(due));
        self.job_end = job_end;
    }

    /// More numbers for steps of the job.
    pub fn on_numbers(&mut self, numbers: std::ops::Range<u32>) {
        self.numbers = numbers;
    }

    /// Numbers that were not used.
    pub fn numbers_left(&self) -> std::ops::Range<u32> {
        self.numbers.clone()
    }

    /// Whether there are steps that need numbers, and none left.
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

    /// Starts what may start now.
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

    /// Nothing runs, and nothing will unless somebody does something.
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

    /// When [`Core::on_due`] is to be called next.
    pub fn next_due(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _, _)| *at)
    }

    /// How a step with this exit code is recorded.
    fn state_of(exit: ExitCode, stopped: Option<Stopped>) -> End {
        match stopped {
            Some(Stopped::Limit) => End::Timeout,
            Some(Stopped::Moved) if !exit.is_success() => End::NodeFail,
            Some(Stopped::User | Stopped::Halt | Stopped::Unstarted) if !exit.is_success() => {
                End::Cancelled
            }
            Some(_) | None if exit.is_success() => End::Completed,
            Some(_) | None => End::Failed,
        }
    }
}
