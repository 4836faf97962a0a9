//! The ladder of a runner: warning signal, notice and SIGTERM, grace, SIGKILL. All of it on timers that are computed
//! from the time that the job has run, so that neither a suspension nor a wall clock that is set changes the limit.

use super::RunnerActor;
use crate::actors::messages::{LimitReached, StepStopping};
use crate::exec::launch_spec::{SignalScope, StepCommand};
use crate::exec::step_handle::StepCommands;
use crate::model::request::WarnSignal;
use crate::model::{ExitCode, ExitRecord, StepId, StepKey, Timestamp};
use crate::sched::{EndCause, StopCause};
use actix::prelude::*;
use std::time::{Duration, Instant};

/// Without a grace SIGKILL is the first signal, so that nothing is told to have ended by another one.
fn end(commands: &StepCommands, grace: Duration) {
    if grace.is_zero() {
        commands.send(StepCommand::KillAll);
        return;
    }
    // A stopped process would not see the signal.
    commands.send(StepCommand::Resume);
    commands.send(StepCommand::Signal { signal: libc::SIGTERM, target: SignalScope::Processes });
}

/// How long the processes of a client that is gone, or of an allocation that was given back, may take to end.
const ORPHAN_GRACE: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct Ladder {
    pub limit_secs: Option<u64>,
    /// How long the job has run before `runs_since`, without the time it was suspended.
    ran: Duration,
    /// Since when it runs, by a clock that nobody sets; `None` before its start and while it is suspended.
    runs_since: Option<Instant>,
    pub warn: Option<WarnSignal>,
    pub warned: bool,
    pub timed_out: bool,
    pub stopping: Option<StopCause>,
    /// How many of the job's processes had been killed for their memory when its end began.
    pub ooms_before: u64,
    /// How the batch script or the run's command came to its end.
    pub main_cause: Option<EndCause>,
    limit_timer: Option<SpawnHandle>,
    warn_timer: Option<SpawnHandle>,
    kill_timer: Option<SpawnHandle>,
}

/// What the records say of a job's time so far.
#[derive(Clone, Copy)]
pub struct Life {
    pub start: Option<Timestamp>,
    pub suspended_at: Option<Timestamp>,
    /// In suspensions that are over.
    pub suspended: Duration,
}

impl Ladder {
    /// Starts the job's clock. What it ran before this moment, under an earlier daemon, only the wall clock tells.
    pub fn begin(&mut self, life: &Life, now: Timestamp, instant: Instant) {
        let until = life.suspended_at.unwrap_or(now);
        self.ran = until.since(life.start.unwrap_or(until)).saturating_sub(life.suspended);
        self.runs_since = life.suspended_at.is_none().then_some(instant);
    }

    /// The clock stands still until `resume`.
    pub fn suspend(&mut self, instant: Instant) {
        if let Some(since) = self.runs_since.take() {
            self.ran += instant.saturating_duration_since(since);
        }
    }

    pub fn resume(&mut self, instant: Instant) {
        self.runs_since.get_or_insert(instant);
    }

    /// How far the time limit is away; `None` without one, and while the job is suspended.
    fn left(&self, instant: Instant) -> Option<Duration> {
        let (since, limit) = (self.runs_since?, self.limit_secs?);
        let ran = self.ran + instant.saturating_duration_since(since);
        Some(Duration::from_secs(limit).saturating_sub(ran))
    }
}

impl RunnerActor {
    /// Sets the timers of the time limit and its warning anew.
    pub(super) fn arm_limit(&mut self, ctx: &mut Context<Self>) {
        for timer in [self.ladder.limit_timer.take(), self.ladder.warn_timer.take()].into_iter().flatten() {
            ctx.cancel_future(timer);
        }
        let Some(left) = self.ladder.left(Instant::now()) else { return };
        if self.ladder.stopping.is_some() {
            return;
        }
        self.ladder.limit_timer = Some(ctx.run_later(left, |actor, ctx| actor.limit_reached(ctx)));
        if let Some(warn) = self.ladder.warn
            && !self.ladder.warned
        {
            let before = Duration::from_secs(u64::from(warn.before_secs));
            let wait = left.saturating_sub(before);
            self.ladder.warn_timer = Some(ctx.run_later(wait, |actor, _| actor.send_warning()));
        }
    }

    /// A timer fired: it may have been set for another limit.
    fn limit_reached(&mut self, ctx: &mut Context<Self>) {
        match self.ladder.left(Instant::now()) {
            Some(Duration::ZERO) => {}
            Some(_) => return self.arm_limit(ctx),
            None => return,
        }
        self.setup.outputs.limit_reached.do_send(LimitReached { job: self.id });
        self.stop(StopCause::TimeLimit, ctx);
    }

    /// `--signal`: `B:` the batch shell alone; otherwise the steps and not the batch shell. A job without steps, where
    /// Slurm would tell nobody, has those of its processes told that have a handler.
    fn send_warning(&mut self) {
        let Some(WarnSignal { signal, batch_only, .. }) = self.ladder.warn else { return };
        self.ladder.warned = true;
        let own_steps = self.steps.keys().any(|step| *step != StepId::Batch);
        for (step, live) in &self.steps {
            let target = match (*step == StepId::Batch, batch_only) {
                (true, true) => SignalScope::BatchShell,
                (true, false) if own_steps => continue,
                (true, false) => SignalScope::Handlers,
                (false, true) => continue,
                (false, false) => SignalScope::Processes,
            };
            live.commands.send(StepCommand::Warn { signal, target });
        }
    }

    pub(super) fn stop(&mut self, cause: StopCause, ctx: &mut Context<Self>) {
        let harder = matches!(cause, StopCause::Killed { .. });
        if self.ladder.stopping.is_some() && !harder {
            return;
        }
        self.ladder.stopping = Some(cause);
        self.ladder.timed_out |= cause == StopCause::TimeLimit;
        let (suffix, grace) = match cause {
            StopCause::Cancelled { .. } | StopCause::Deadline => ("", self.setup.kill_wait),
            StopCause::Killed { .. } => ("", Duration::ZERO),
            StopCause::Requeue => (" DUE TO JOB REQUEUE", self.setup.kill_wait),
            StopCause::TimeLimit => (" DUE TO TIME LIMIT", self.setup.kill_wait),
            StopCause::ClientLost | StopCause::Released => ("", ORPHAN_GRACE),
        };
        self.terminate(suffix, grace, ctx);
        // A job whose launch has not been asked for yet ends there: the commit order guarantees that it comes.
        if self.job.is_some() {
            self.end_if_empty(ctx);
        }
    }

    pub(super) fn stop_step(&mut self, step: StepId, cause: StopCause, ctx: &mut Context<Self>) {
        let now = (self.setup.clock)();
        let line = self.notice(Some(step), "", now);
        let Some(live) = self.steps.get_mut(&step) else {
            // It was decided on, but its client went away before it was launched.
            let record = ExitRecord::gone(ExitCode::OK, now);
            return self.step_over(step, record, Some(EndCause::Stopped), ctx);
        };
        live.stopped = Some(cause);
        live.commands.send(StepCommand::Notice(line));
        let grace = match cause {
            StopCause::ClientLost | StopCause::Released => ORPHAN_GRACE,
            StopCause::Killed { .. } => Duration::ZERO,
            StopCause::Cancelled { .. } | StopCause::Requeue | StopCause::Deadline | StopCause::TimeLimit => {
                self.setup.kill_wait
            }
        };
        end(&live.commands, grace);
        self.tell_stopping(step);
        ctx.run_later(grace, move |actor, _| {
            if let Some(live) = actor.steps.get(&step) {
                live.commands.send(StepCommand::KillAll);
            }
        });
    }

    /// Tells every step why, sends SIGTERM, and SIGKILL after `grace`. A second call may only shorten the grace.
    fn terminate(&mut self, suffix: &str, grace: Duration, ctx: &mut Context<Self>) {
        let now = (self.setup.clock)();
        if self.ladder.kill_timer.is_none() {
            self.ladder.ooms_before = self.ooms();
        }
        for (step, live) in &self.steps {
            let told = if *step == StepId::Batch { None } else { Some(*step) };
            // Of the command of salloc its client says what became of the allocation.
            if *step != StepId::Interactive {
                live.commands.send(StepCommand::Notice(self.notice(told, suffix, now)));
            }
            if let Some(step) = told {
                self.tell_stopping(step);
            }
            end(&live.commands, grace);
        }
        if let Some(timer) = self.ladder.kill_timer.take() {
            ctx.cancel_future(timer);
        }
        self.ladder.kill_timer = Some(ctx.run_later(grace, |actor, _| {
            for live in actor.steps.values() {
                live.commands.send(StepCommand::KillAll);
            }
        }));
    }

    /// The step's client is told how long it may take, as Slurm counts it: the grace, and two seconds for the rest.
    fn tell_stopping(&self, step: StepId) {
        let wait_secs = self.setup.kill_wait.as_secs() + 2;
        let step = StepKey { job: self.id, step };
        self.setup.outputs.step_stopping.do_send(StepStopping { step, wait_secs });
    }

    /// Slurm's line in the output of what is being ended.
    fn notice(&self, step: Option<StepId>, suffix: &str, now: Timestamp) -> String {
        let what = match step {
            None => format!("JOB {}", self.id),
            Some(step) => format!("STEP {}.{step}", self.id),
        };
        let at = crate::actors::launch_plan::local_iso(now);
        format!("slurmstepd: error: *** {what} ON {} CANCELLED AT {at}{suffix} ***", self.host.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    /// A job with a limit of ten seconds that started at second 100, as its runner sees it at second `now`.
    fn ladder(now: i64, suspended_at: Option<i64>, suspended: Duration) -> (Ladder, Instant) {
        let life = Life { start: Some(at(100)), suspended_at: suspended_at.map(at), suspended };
        let (mut ladder, begin) = (Ladder { limit_secs: Some(10), ..Ladder::default() }, Instant::now());
        ladder.begin(&life, at(now), begin);
        (ladder, begin)
    }

    #[test]
    fn a_wall_clock_that_is_set_does_not_move_the_limit() {
        let (ladder, begin) = ladder(100, None, Duration::ZERO);
        // Whatever the wall clock says by now, nobody asks it.
        assert_eq!(ladder.left(begin + SECOND * 4), Some(SECOND * 6));
        assert_eq!(ladder.left(begin + SECOND * 11), Some(Duration::ZERO));
    }

    #[test]
    fn an_adopted_job_has_run_since_its_start() {
        let (adopted, begin) = ladder(107, None, Duration::ZERO);
        assert_eq!(adopted.left(begin + SECOND), Some(SECOND * 2));
        // Adopted after the clock was set back: it has not run less than nothing.
        let (adopted, begin) = ladder(50, None, Duration::ZERO);
        assert_eq!(adopted.left(begin), Some(SECOND * 10));
    }

    #[test]
    fn time_in_suspension_does_not_count() {
        let (mut job, begin) = ladder(100, None, Duration::ZERO);
        job.suspend(begin + SECOND * 2);
        assert_eq!(job.left(begin + SECOND * 3), None);
        job.resume(begin + SECOND * 100);
        assert_eq!(job.left(begin + SECOND * 101), Some(SECOND * 7));
        let (mut adopted, begin) = ladder(500, Some(105), SECOND);
        adopted.resume(begin);
        assert_eq!(adopted.left(begin), Some(SECOND * 6));
    }
}
