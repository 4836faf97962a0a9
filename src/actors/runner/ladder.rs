//! The ladder of a runner: warning signal, notice and SIGTERM, grace, SIGKILL. All of it on timers that are computed
//! from timestamps, so that a restart of the daemon or a suspension changes nothing.

use super::RunnerActor;
use crate::actors::messages::StepStopping;
use crate::exec::launch_spec::{SignalTarget as Whom, StepCommand};
use crate::exec::step_handle::StepCommands;
use crate::model::request::WarnSignal;
use crate::model::{StepId, StepKey, Timestamp};
use crate::sched::{EndCause, StopCause};
use actix::prelude::*;
use std::time::Duration;

/// Without a grace SIGKILL is the first signal, so that nothing is told to have ended by another one.
fn end(commands: &StepCommands, grace: Duration) {
    if grace.is_zero() {
        commands.send(StepCommand::KillAll);
        return;
    }
    // A stopped process would not see the signal.
    commands.send(StepCommand::Resume);
    commands.send(StepCommand::Signal { signal: libc::SIGTERM, target: Whom::Processes });
}

/// How long the processes of a client that is gone, or of an allocation that was given back, may take to end.
const ORPHAN_GRACE: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct Ladder {
    pub start: Option<Timestamp>,
    pub limit_secs: Option<u64>,
    pub suspended_us: u64,
    pub suspended_at: Option<Timestamp>,
    pub warn: Option<WarnSignal>,
    pub warned: bool,
    pub timed_out: bool,
    pub stopping: Option<StopCause>,
    /// How the batch script or the run's command came to its end.
    pub main_cause: Option<EndCause>,
    limit_timer: Option<SpawnHandle>,
    warn_timer: Option<SpawnHandle>,
    kill_timer: Option<SpawnHandle>,
}

impl Ladder {
    /// When the time limit is reached; `None` without one, and while the job is suspended.
    fn deadline(&self) -> Option<Timestamp> {
        let (start, limit) = (self.start?, self.limit_secs?);
        if self.suspended_at.is_some() {
            return None;
        }
        Some(start.plus_secs(limit).plus(Duration::from_micros(self.suspended_us)))
    }
}

impl RunnerActor {
    /// Sets the timers of the time limit and its warning anew.
    pub(super) fn arm_limit(&mut self, ctx: &mut Context<Self>) {
        for timer in [self.ladder.limit_timer.take(), self.ladder.warn_timer.take()].into_iter().flatten() {
            ctx.cancel_future(timer);
        }
        let Some(deadline) = self.ladder.deadline() else { return };
        if self.ladder.timed_out || self.ladder.stopping.is_some() {
            return;
        }
        let now = (self.setup.clock)();
        self.ladder.limit_timer = Some(ctx.run_later(deadline.since(now), |actor, ctx| actor.limit_reached(ctx)));
        if let Some(warn) = self.ladder.warn
            && !self.ladder.warned
        {
            let before = Duration::from_secs(u64::from(warn.before_secs));
            let wait = deadline.since(now).saturating_sub(before);
            self.ladder.warn_timer = Some(ctx.run_later(wait, |actor, _| actor.send_warning()));
        }
    }

    /// A timer fired: the deadline may have moved since it was set, by the wall clock or by scontrol.
    fn limit_reached(&mut self, ctx: &mut Context<Self>) {
        let now = (self.setup.clock)();
        match self.ladder.deadline() {
            Some(deadline) if deadline > now => return self.arm_limit(ctx),
            Some(_) => {}
            None => return,
        }
        self.ladder.timed_out = true;
        self.terminate(" DUE TO TIME LIMIT", self.setup.kill_wait, ctx);
        self.end_if_empty(ctx);
    }

    /// `--signal`: `B:` the batch shell alone; otherwise the steps and not the batch shell. A job without steps, where
    /// Slurm would tell nobody, has those of its processes told that have a handler.
    fn send_warning(&mut self) {
        let Some(WarnSignal { signal, batch_only, .. }) = self.ladder.warn else { return };
        self.ladder.warned = true;
        let own_steps = self.steps.keys().any(|step| *step != StepId::Batch);
        for (step, live) in &self.steps {
            let target = match (*step == StepId::Batch, batch_only) {
                (true, true) => Whom::BatchShell,
                (true, false) if own_steps => continue,
                (true, false) => Whom::Handlers,
                (false, true) => continue,
                (false, false) => Whom::Processes,
            };
            live.commands.send(StepCommand::Signal { signal, target });
        }
    }

    pub(super) fn stop(&mut self, cause: StopCause, ctx: &mut Context<Self>) {
        let harder = matches!(cause, StopCause::Killed { .. });
        if self.ladder.stopping.is_some() && !harder {
            return;
        }
        self.ladder.stopping = Some(cause);
        let (suffix, grace) = match cause {
            StopCause::Cancelled { .. } | StopCause::Deadline => ("", self.setup.kill_wait),
            StopCause::Killed { .. } => ("", Duration::ZERO),
            StopCause::Requeue => (" DUE TO JOB REQUEUE", self.setup.kill_wait),
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
            let record = crate::exec::ExitRecord { started: now, ended: now, ..Default::default() };
            return self.step_over(step, record, Some(EndCause::Stopped), ctx);
        };
        live.stopped = Some(cause);
        live.commands.send(StepCommand::Notice(line));
        let grace = match cause {
            StopCause::ClientLost | StopCause::Released => ORPHAN_GRACE,
            StopCause::Killed { .. } => Duration::ZERO,
            StopCause::Cancelled { .. } | StopCause::Requeue | StopCause::Deadline => self.setup.kill_wait,
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

    /// The step's client is told how long it may take, in Slurm's reckoning: the grace, and two seconds for the rest.
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
