//! The kill ladder of a runner: warning signal, notice and SIGTERM, grace period, SIGKILL. Its
//! timers depend on the job's run time on the monotonic clock, whose start is in the job's record.
//! Neither suspension, changes of the wall clock, sleep of the machine nor a daemon restart changes
//! the limit.

use super::{LiveStep, RunnerActor};
use crate::actors::messages::{LimitReached, StepStopping};
use actix::prelude::*;
use slotd_exec::launch_spec::{SignalScope, StepCommand};
use slotd_exec::step_handle::StepCommands;
use slotd_model::request::WarnSignal;
use slotd_model::run::RunState;
use slotd_model::{ExitCode, ExitRecord, StepId, StepKey, Timestamp};
use slotd_sched::{EndCause, StopCause};
use slotd_sys::{aside, clock};
use std::sync::Arc;
use std::time::Duration;

/// Begins to stop a step. Without a grace period, SIGKILL is the first signal, so that the step is
/// not reported as ended by SIGTERM.
fn end(
    commands: &StepCommands,
    notice: Option<String>,
    grace: Duration,
    timed_out: bool,
    by: Option<u32>,
) {
    commands.send(StepCommand::Ends { timed_out, by, notice });
    if grace.is_zero() {
        commands.send(StepCommand::KillAll);
        return;
    }
    // A stopped process would not receive the signal.
    commands.send(StepCommand::Resume);
    commands.send(StepCommand::Signal { signal: libc::SIGTERM, target: SignalScope::Processes });
}

/// The time from the start of a stop to the first search for stopped watchers. It doubles with each
/// search, since a job that has not ended by then is usually waiting for a disk.
const STOPPED_CHECK: Duration = Duration::from_secs(1);

/// The longest time between two searches.
const STOPPED_CHECK_MAX: Duration = Duration::from_secs(60);

/// The grace period for processes in an allocation that was released or lost its client.
const ORPHAN_GRACE: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct Ladder {
    pub limit_secs: Option<u64>,
    /// When the job was launched, by the monotonic clock like all times here. `None` before the
    /// launch.
    started: Option<Duration>,
    /// When it was suspended, if it is suspended.
    suspended_at: Option<Duration>,
    /// The total time in earlier suspensions.
    suspended: Duration,
    /// When an earlier daemon began to stop the job.
    stop_began: Option<Duration>,
    pub warn: Option<WarnSignal>,
    pub warned: bool,
    pub timed_out: bool,
    pub stopping: Option<StopCause>,
    /// The reservation whose end ends the job.
    pub ended_reservation: Option<String>,
    /// The number of OOM kills in the job when its end began.
    pub ooms_before: u64,
    /// How the batch script or the command of the run ended.
    pub main_cause: Option<EndCause>,
    limit_timer: Option<SpawnHandle>,
    warn_timer: Option<SpawnHandle>,
    kill_timer: Option<SpawnHandle>,
    stopped_timer: Option<SpawnHandle>,
}

impl Ladder {
    /// Starts the job's clock at the time of its launch.
    pub fn start(&mut self, at: Duration) {
        self.started = Some(at);
    }

    /// Continues the clock of a job that an earlier daemon launched. Records written by earlier
    /// versions of slotd lack the monotonic clock. For those, `wall`, the current wall clock time,
    /// is used.
    pub fn adopt(&mut self, run: &RunState, wall: Timestamp, now: Duration) {
        let by_wall = |at: Timestamp| now.saturating_sub(wall.since(at));
        let at = |at: Timestamp| {
            run.clock.as_deref().map_or_else(|| by_wall(at), |clock| clock.monotonic(at)).min(now)
        };
        self.started = run.started_at().or(run.start.map(by_wall));
        self.suspended_at = run.suspended_at.map(at);
        self.suspended = Duration::from_micros(run.suspended_us);
        self.stop_began = run.stopped_at.map(at);
    }

    /// Stops the clock until `resume`.
    pub fn suspend(&mut self, now: Duration) {
        self.suspended_at.get_or_insert(now);
    }

    pub fn is_suspended(&self) -> bool {
        self.suspended_at.is_some()
    }

    pub fn resume(&mut self, now: Duration) {
        if let Some(since) = self.suspended_at.take() {
            self.suspended += now.saturating_sub(since);
        }
    }

    /// Returns the time left until the limit. `None` without a limit, and while the job is
    /// suspended.
    fn left(&self, now: Duration) -> Option<Duration> {
        let (started, limit) =
            (self.started.filter(|_| self.suspended_at.is_none())?, self.limit_secs?);
        let ran = now.saturating_sub(started).saturating_sub(self.suspended);
        Some(Duration::from_secs(limit).saturating_sub(ran))
    }

    /// Returns the remaining time of a grace period that an earlier daemon may have started.
    fn left_of(&self, grace: Duration, now: Duration) -> Duration {
        self.stop_began.map_or(grace, |since| grace.saturating_sub(now.saturating_sub(since)))
    }
}

impl RunnerActor {
    /// Resets the timers of the time limit and of the warning.
    pub(super) fn arm_limit(&mut self, ctx: &mut Context<Self>) {
        for timer in
            [self.ladder.limit_timer.take(), self.ladder.warn_timer.take()].into_iter().flatten()
        {
            ctx.cancel_future(timer);
        }
        let Some(left) = self.ladder.left(clock::monotonic()) else { return };
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

    /// Handles the limit timer. The limit may have changed since it was set.
    fn limit_reached(&mut self, ctx: &mut Context<Self>) {
        match self.ladder.left(clock::monotonic()) {
            Some(Duration::ZERO) => {}
            Some(_) => return self.arm_limit(ctx),
            None => return,
        }
        self.setup.outputs.limit_reached.do_send(LimitReached { job: self.id });
        self.stop(StopCause::TimeLimit, ctx);
    }

    fn send_warning(&mut self) {
        self.ladder.warned = self.ladder.warn.is_some();
        self.warn();
    }

    /// Sends the signal of `--signal`: with `B:` to the batch shell only, otherwise to all steps
    /// except the batch shell. In a job without steps, Slurm would signal no process. Here, its
    /// processes that handle the signal get it.
    pub(super) fn warn(&mut self) {
        let Some(WarnSignal { signal, batch_only, .. }) = self.ladder.warn else { return };
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

    /// Sends SIGCONT and SIGTERM to all steps except the batch shell, as Slurm does when a grace
    /// time begins. In a job without steps, Slurm would signal no process. Here, its processes that
    /// handle SIGTERM get it.
    pub(super) fn begin_grace(&self) {
        let has_own_steps = self.steps.keys().any(|step| *step != StepId::Batch);
        for (step, live) in &self.steps {
            let target = match (*step == StepId::Batch, has_own_steps) {
                (true, true) => continue,
                (true, false) => SignalScope::Handlers,
                (false, _) => SignalScope::Processes,
            };
            // A suspended job gets the signal when it is resumed.
            if !self.ladder.is_suspended() {
                live.commands.send(StepCommand::Resume);
            }
            live.commands.send(StepCommand::Signal { signal: libc::SIGTERM, target });
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
            StopCause::Preempted => (" DUE TO PREEMPTION", self.setup.kill_wait),
            StopCause::NodeDown => {
                (" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", self.setup.kill_wait)
            }
            StopCause::ClientLost | StopCause::Released => ("", ORPHAN_GRACE),
        };
        self.terminate(suffix, grace, ctx);
        // If the launch has not been requested yet, its request will end the job. The commit order
        // guarantees that it follows.
        if self.job.is_some() {
            self.end_if_empty(ctx);
        }
    }

    pub(super) fn stop_step(&mut self, step: StepId, cause: StopCause, ctx: &mut Context<Self>) {
        if self.lost.contains(&step) {
            // Its processes are being killed, and its end is reported afterwards.
            return;
        }
        let now = (self.setup.clock)();
        let line = self.notice(Some(step), "", now);
        let Some(live) = self.steps.get_mut(&step) else {
            // It was started, but its client disconnected before the launch.
            let record = ExitRecord::gone(ExitCode::OK, now);
            return self.step_over(step, record, Some(EndCause::Stopped), ctx);
        };
        live.stopped = Some(cause);
        let grace = match cause {
            StopCause::Killed { .. } => Duration::ZERO,
            StopCause::Cancelled { .. }
            | StopCause::ClientLost
            | StopCause::Released
            | StopCause::Requeue
            | StopCause::Deadline
            | StopCause::TimeLimit
            | StopCause::Preempted
            | StopCause::NodeDown => self.setup.kill_wait,
        };
        // As in Slurm: the CPUs of a suspended job may be another's.
        let grace = if self.ladder.is_suspended() { Duration::ZERO } else { grace };
        end(&live.commands, Some(line), grace, cause == StopCause::TimeLimit, None);
        self.report_stopping(step);
        ctx.run_later(grace, move |actor, _| {
            if let Some(live) = actor.steps.get(&step) {
                live.commands.send(StepCommand::KillAll);
            }
        });
        self.watch_for_stopped(ctx);
    }

    /// Sends SIGCONT to stopped watchers until the launched steps have started and the steps being
    /// stopped have ended: a stopped watcher executes no commands. The daemon is not notified if a
    /// process that is not its child is stopped.
    pub(super) fn watch_for_stopped(&mut self, ctx: &mut Context<Self>) {
        if self.ladder.stopped_timer.is_none() {
            self.search_for_stopped(STOPPED_CHECK, ctx);
        }
    }

    /// Cancels the search for stopped watchers if no step needs it any more.
    pub(super) fn end_search_for_stopped(&mut self, ctx: &mut Context<Self>) {
        if !self.needs_watchers()
            && let Some(timer) = self.ladder.stopped_timer.take()
        {
            ctx.cancel_future(timer);
        }
    }

    /// Returns whether a step is starting or being stopped.
    fn needs_watchers(&self) -> bool {
        let is_in_between = |live: &LiveStep| live.retry.is_some() || live.stopped.is_some();
        !self.steps.is_empty()
            && (self.ladder.kill_timer.is_some() || self.steps.values().any(is_in_between))
    }

    fn search_for_stopped(&mut self, after: Duration, ctx: &mut Context<Self>) {
        let timer = ctx.run_later(after, move |actor, ctx| {
            actor.ladder.stopped_timer = None;
            if actor.needs_watchers() {
                let launcher = Arc::clone(&actor.setup.launcher);
                let work = move || launcher.resume_stopped();
                actix::spawn(aside::run("the search for stopped processes", aside::PATIENCE, work));
                actor.search_for_stopped((after * 2).min(STOPPED_CHECK_MAX), ctx);
            }
        });
        self.ladder.stopped_timer = Some(timer);
    }

    /// Sends every step the notice and SIGTERM, and SIGKILL after `grace`. A second call can only
    /// shorten the grace period.
    pub(super) fn terminate(&mut self, suffix: &str, grace: Duration, ctx: &mut Context<Self>) {
        let now = (self.setup.clock)();
        if self.ladder.kill_timer.is_none() {
            self.ladder.ooms_before = self.ooms();
        }
        let by = match self.ladder.stopping {
            Some(StopCause::Cancelled { by } | StopCause::Killed { by }) => Some(by),
            _ => None,
        };
        // The batch script comes last, because an srun in it forwards signals to its step, which
        // must get the cause of its end first.
        for (step, live) in self.steps.iter().rev() {
            let named = if *step == StepId::Batch { None } else { Some(*step) };
            // The command of salloc gets no notice, since the client prints why the allocation
            // ended.
            let line = (*step != StepId::Interactive).then(|| self.notice(named, suffix, now));
            if let Some(step) = named {
                self.report_stopping(step);
            }
            end(&live.commands, line, grace, self.ladder.timed_out, by);
        }
        if let Some(timer) = self.ladder.kill_timer.take() {
            ctx.cancel_future(timer);
        }
        let left = self.ladder.left_of(grace, clock::monotonic());
        self.ladder.kill_timer = Some(ctx.run_later(left, |actor, _| {
            for live in actor.steps.values() {
                live.commands.send(StepCommand::KillAll);
            }
        }));
        self.watch_for_stopped(ctx);
    }

    /// Reports to the step's client how long the end may take. As in Slurm, that is the grace
    /// period plus two seconds.
    fn report_stopping(&self, step: StepId) {
        let wait_secs = self.setup.kill_wait.as_secs() + 2;
        let step = StepKey { job: self.id, step };
        self.setup.outputs.step_stopping.do_send(StepStopping { step, wait_secs });
    }

    /// Returns Slurm's notice, which is written to the output of a job or step being stopped. If
    /// its reservation has ended, a second line says so.
    fn notice(&self, step: Option<StepId>, suffix: &str, now: Timestamp) -> String {
        let what = match step {
            None => format!("JOB {}", self.id),
            Some(step) => format!("STEP {}.{step}", self.id),
        };
        let at = crate::actors::launch_plan::local_iso(now);
        let reason = self.ladder.ended_reservation.as_ref().map(|name| {
            format!(
                "\nslurmstepd: error: *** REASON: Reservation {name}, which this job was running \
                 under, has ended ***"
            )
        });
        format!(
            "slurmstepd: error: *** {what} ON {} CANCELLED AT {at}{suffix} ***{}",
            self.host.name,
            reason.unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use slotd_model::{BootId, ClockBase};

    const SECOND: Duration = Duration::from_secs(1);

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    /// Returns a clock base in which second 0 of the monotonic clock is second `zero` of the wall
    /// clock.
    fn base(zero: i64) -> ClockBase {
        ClockBase { boot: BootId(1), zero: at(zero) }
    }

    /// Returns a job that started at second 100 of the monotonic clock, which was second 1100 of
    /// the wall clock.
    fn run() -> RunState {
        RunState { start: Some(at(1100)), clock: Some(Box::new(base(1000))), ..RunState::default() }
    }

    /// Returns the job's ladder with a limit of 10 s, in a daemon that adopts it at second `now` of
    /// the monotonic clock.
    fn adopted(run: &RunState, now: u32) -> Ladder {
        let mut ladder = Ladder { limit_secs: Some(10), ..Ladder::default() };
        // The wall clock must not matter.
        ladder.adopt(run, at(5), SECOND * now);
        ladder
    }

    #[test]
    fn limit_counts_from_the_launch() {
        let mut ladder = Ladder { limit_secs: Some(10), ..Ladder::default() };
        assert_eq!(ladder.left(SECOND * 7), None, "not launched yet");
        ladder.start(SECOND * 50);
        assert_eq!(ladder.left(SECOND * 54), Some(SECOND * 6));
        assert_eq!(ladder.left(SECOND * 61), Some(Duration::ZERO));
    }

    #[test]
    fn adopted_job_has_run_since_its_start() {
        assert_eq!(adopted(&run(), 107).left(SECOND * 108), Some(SECOND * 2));
        // A record without the monotonic clock: by the wall clock, the job was launched 7 s ago.
        let mut ladder = Ladder { limit_secs: Some(10), ..Ladder::default() };
        ladder.adopt(&RunState { clock: None, ..run() }, at(1107), SECOND * 500);
        assert_eq!(ladder.left(SECOND * 501), Some(SECOND * 2));
    }

    #[test]
    fn suspended_time_does_not_count() {
        let mut job = adopted(&run(), 100);
        job.suspend(SECOND * 102);
        assert_eq!(job.left(SECOND * 103), None);
        job.resume(SECOND * 200);
        assert_eq!(job.left(SECOND * 201), Some(SECOND * 7));
        let suspended = RunState { suspended_at: Some(at(1105)), suspended_us: 1_000_000, ..run() };
        let mut job = adopted(&suspended, 500);
        job.resume(SECOND * 500);
        assert_eq!(job.left(SECOND * 500), Some(SECOND * 6));
    }

    #[test]
    fn grace_period_continues_after_a_daemon_restart() {
        let stopped = RunState { stopped_at: Some(at(1110)), ..run() };
        assert_eq!(adopted(&stopped, 112).left_of(SECOND * 30, SECOND * 115), SECOND * 25);
        assert_eq!(adopted(&stopped, 200).left_of(SECOND * 30, SECOND * 200), Duration::ZERO);
        assert_eq!(adopted(&run(), 112).left_of(SECOND * 30, SECOND * 115), SECOND * 30);
    }

    proptest! {
        #[test]
        fn setting_the_wall_clock_does_not_move_the_deadline(
            steps in proptest::collection::vec((0u32..3, -100_000i64..100_000), 0..8),
            suspended_before in 0u32..5,
        ) {
            // A job with a limit of 10 s was suspended for a while. Then time passes and the wall
            // clock is set in turn.
            let mut run = run();
            run.suspended_us = u64::from(suspended_before) * 1_000_000;
            let (mut up, mut zero) = (100 + suspended_before, 1000);
            for (secs, jump) in steps {
                up += secs;
                zero += jump;
                run.catch_up(base(zero));
                let ran = up - 100 - suspended_before;
                let left = adopted(&run, up).left(SECOND * up);
                prop_assert_eq!(left, Some(SECOND * 10u32.saturating_sub(ran)));
                let now = at(zero + i64::from(up));
                let job = slotd_model::Job { run: run.clone(), ..Default::default() };
                prop_assert_eq!(job.elapsed(now), SECOND * ran);
            }
        }
    }
}
