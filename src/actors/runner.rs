//! RunnerActor: one for each started job.
//!
//! Owns the connections to the job's steps (their process groups belong to the steps' watchers), the job's cgroup, and
//! the timers of its time limit and of the kill ladder. Receives the scheduler's commands for this job and the steps'
//! events. Sends the facts [`StepStarted`], [`TaskEnded`], [`StepStopping`], [`LimitReached`], [`StepEnded`] and, once nothing of the job is left,
//! [`JobEnded`]. It is made idle and launches when the commit that makes the job RUNNING is acknowledged. It stops after
//! [`JobEnded`]; if it dies before, a drop guard says so ([`RunnerDied`]).
//!
//! ```text
//! idle ──LaunchJob/OpenAllocation/AdoptJob──► running ──last step ended──► done
//!                                               │                           ▲
//!                              StopJob or limit ▼                           │
//!                        stopping: notice, SIGTERM ──grace──► SIGKILL ──────┘
//! ```

use crate::actors::messages::*;
use crate::exec::cgroup::{CgroupBase, JobCgroup};
use crate::exec::launch_spec::{SignalScope, StepCommand, StepEvent, StepUsage};
use crate::exec::step_handle::StepCommands;
use crate::exec::{LaunchSpec, Launcher};
use crate::model::partition::Host;
use crate::model::request::JobKind;
use crate::model::{ExitCode, ExitRecord, Job, JobId, StepId, StepKey, Timestamp};
use crate::sched::{EndCause, SignalTarget, StopCause};
use crate::sys::paths::Paths;
use actix::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

mod ladder;
mod launch;

use ladder::{Ladder, Life};

/// Where a runner's facts go.
#[derive(Clone)]
pub struct RunnerOutputs {
    pub step_started: Recipient<StepStarted>,
    pub task_ended: Recipient<TaskEnded>,
    pub step_stopping: Recipient<StepStopping>,
    pub limit_reached: Recipient<LimitReached>,
    pub step_ended: Recipient<StepEnded>,
    pub job_ended: Recipient<JobEnded>,
    pub died: Recipient<RunnerDied>,
}

/// What every runner needs.
#[derive(Clone)]
pub struct RunnerSetup {
    pub outputs: RunnerOutputs,
    pub launcher: Arc<Launcher>,
    pub paths: Arc<Paths>,
    pub cgroups: Option<Arc<CgroupBase>>,
    pub kill_wait: Duration,
    pub clock: fn() -> Timestamp,
}

/// Makes runners on their arbiter.
pub struct RunnerSeed {
    pub arbiter: ArbiterHandle,
    /// Filled in once the scheduler, to which the facts go, has an address.
    pub setup: Arc<std::sync::OnceLock<RunnerSetup>>,
}

impl RunnerSeed {
    /// The runner of `job`, idle.
    pub fn start(&self, job: JobId) -> Addr<RunnerActor> {
        let Some(setup) = self.setup.get().cloned() else {
            log::error!("job {job} is to start before the runners' setup is there, the daemon ends");
            crate::actors::fatal()
        };
        RunnerActor::start_in_arbiter(&self.arbiter, move |_| RunnerActor::new(job, setup))
    }
}

/// A step that has been launched and is not over.
struct LiveStep {
    commands: StepCommands,
    /// What was launched, until it is known to have started: for another try.
    retry: Option<Box<LaunchSpec>>,
    tries: u32,
    /// A ladder runs on this step alone.
    stopped: Option<StopCause>,
    /// Who waits to hear what it uses.
    measured_for: Vec<oneshot::Sender<StepUsage>>,
}

pub struct RunnerActor {
    id: JobId,
    setup: RunnerSetup,
    job: Option<Box<Job>>,
    host: Host,
    steps: BTreeMap<StepId, LiveStep>,
    cgroup: Option<JobCgroup>,
    ladder: Ladder,
    /// How the batch script or the run's command ended.
    main: Option<ExitRecord>,
    /// Why nothing can be launched in this allocation.
    broken: Option<String>,
    done: bool,
}

/// Removes the cgroup of a job that has processes still: killed ones that were not reaped yet, or that cannot die.
async fn remove_later(job: JobId, cgroup: JobCgroup) {
    cgroup.kill();
    let emptied = cgroup.emptied().await;
    if emptied.is_err() || !cgroup.remove() {
        log::warn!("job {job}: its cgroup {} could not be removed", cgroup.dir().display());
    }
}

/// The next event of a step; `None` when its connection is closed.
#[derive(Message)]
#[rtype(result = "()")]
struct StepNews {
    step: StepId,
    event: Option<StepEvent>,
}

impl RunnerActor {
    fn new(id: JobId, setup: RunnerSetup) -> Self {
        RunnerActor {
            id,
            setup,
            job: None,
            host: Host::default(),
            steps: BTreeMap::new(),
            cgroup: None,
            ladder: Ladder::default(),
            main: None,
            broken: None,
            done: false,
        }
    }

    fn key(&self, step: StepId) -> StepKey {
        StepKey { job: self.id, step }
    }

    /// The command of `srun --no-wait` is known as step 0, and launched in the place of a script.
    fn launched_as(&self, step: StepId) -> StepId {
        let own = self.job.as_ref().and_then(|job| job.own_step_id());
        if own == Some(step) { StepId::Batch } else { step }
    }

    fn run(&self) -> u32 {
        self.job.as_ref().map_or(0, |job| job.run.restarts)
    }

    fn ooms(&self) -> u64 {
        self.cgroup.as_ref().map_or(0, JobCgroup::oom_kills)
    }

    fn is_allocation(&self) -> bool {
        self.job.as_ref().is_none_or(|job| job.request.kind == JobKind::Allocation)
    }

    /// A step is over. `cause` overrides what the record says.
    fn step_over(&mut self, step: StepId, record: ExitRecord, cause: Option<EndCause>, ctx: &mut Context<Self>) {
        let live = self.steps.remove(&step);
        let stopped = live.is_some_and(|live| live.stopped.is_some());
        let cause = cause.unwrap_or_else(|| self.cause_of(&record, stopped));
        if let Some(why) = &record.launch_error {
            log::warn!("job {}: the launch failed: {why}", self.key(step));
        }
        if step == StepId::Batch {
            self.main = Some(record);
            // What the batch script leaves behind ends with it, as in Slurm.
            for live in self.steps.values() {
                live.commands.send(StepCommand::KillAll);
            }
            self.ladder.main_cause = Some(cause);
        } else {
            self.setup.outputs.step_ended.do_send(StepEnded { step: self.key(step), record, cause });
        }
        self.end_if_empty(ctx);
    }

    fn cause_of(&self, record: &ExitRecord, stopped: bool) -> EndCause {
        if record.launch_error.is_some() {
            EndCause::LaunchFailed
        } else if record.oom {
            EndCause::OutOfMemory
        } else if self.ladder.timed_out || record.timed_out {
            EndCause::TimeLimit
        } else if stopped || record.stopped || self.ladder.stopping.is_some() {
            EndCause::Stopped
        } else {
            EndCause::Exited
        }
    }

    /// Reports the end of the job once nothing of it is left and nothing more can come.
    fn end_if_empty(&mut self, ctx: &mut Context<Self>) {
        let over = self.main.is_some() || self.ladder.stopping.is_some();
        if self.done || !over || !self.steps.is_empty() {
            return;
        }
        let (record, mut cause) = self.ended_as();
        if let Some(cgroup) = self.cgroup.take() {
            let is_oom = match self.main {
                Some(_) => cgroup.limit_ooms() > 0,
                // What its steps suffered before is theirs, and told by their clients.
                None => cgroup.oom_kills() > self.ladder.ooms_before,
            };
            if is_oom {
                cause = EndCause::OutOfMemory;
            }
            self.discard(cgroup);
        }
        self.finish(record, cause, ctx);
    }

    fn ended_as(&self) -> (ExitRecord, EndCause) {
        if let Some(record) = &self.main {
            let cause = self.ladder.main_cause.unwrap_or_else(|| self.cause_of(record, false));
            return (record.clone(), cause);
        }
        // It was stopped before its script was launched; an allocation has none.
        let exit = if self.is_allocation() { ExitCode::OK } else { ExitCode::signal(libc::SIGTERM) };
        let cause = if self.ladder.timed_out { EndCause::TimeLimit } else { EndCause::Stopped };
        (ExitRecord::gone(exit, (self.setup.clock)()), cause)
    }

    fn discard(&self, cgroup: JobCgroup) {
        if !cgroup.remove() {
            actix::spawn(remove_later(self.id, cgroup));
        }
    }

    fn finish(&mut self, record: ExitRecord, cause: EndCause, ctx: &mut Context<Self>) {
        self.done = true;
        self.setup.outputs.job_ended.do_send(JobEnded { job: self.id, record, cause });
        ctx.stop();
    }

    fn begin(&mut self, job: Box<Job>, host: Host, ctx: &mut Context<Self>) {
        self.ladder.limit_secs = job.request.time_limit_secs;
        self.ladder.warn = job.request.signal;
        let suspended = Duration::from_micros(job.run.suspended_us);
        let life = Life { start: job.run.start, suspended_at: job.run.suspended_at, suspended };
        self.ladder.begin(&life, (self.setup.clock)(), Instant::now());
        self.host = host;
        self.job = Some(job);
        self.arm_limit(ctx);
    }
}

impl Actor for RunnerActor {
    type Context = Context<Self>;
}

impl Drop for RunnerActor {
    fn drop(&mut self) {
        if !self.done && self.job.is_some() {
            self.setup.outputs.died.do_send(RunnerDied { job: self.id });
        }
    }
}

impl Handler<StepNews> for RunnerActor {
    type Result = ();

    fn handle(&mut self, StepNews { step, event }: StepNews, ctx: &mut Self::Context) {
        match event {
            Some(StepEvent::Started { task_pids, .. }) => {
                if let Some(live) = self.steps.get_mut(&step) {
                    live.retry = None;
                }
                let pids = task_pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect();
                self.setup.outputs.step_started.do_send(StepStarted { step: self.key(step), pids });
            }
            Some(StepEvent::TaskEnded { rank, exit }) => {
                self.setup.outputs.task_ended.do_send(TaskEnded { step: self.key(step), rank, exit });
            }
            Some(StepEvent::Ended(record)) => self.step_over(step, record, None, ctx),
            Some(StepEvent::Refused(why)) => self.launch_failed(step, &why, ctx),
            Some(StepEvent::Usage(usage)) => {
                let waiting = self.steps.get_mut(&step).map(|live| std::mem::take(&mut live.measured_for));
                for asker in waiting.unwrap_or_default() {
                    // Whoever asked may have gone.
                    let _ = asker.send(usage.clone());
                }
            }
            None if self.steps.contains_key(&step) => self.look_again(step, false, ctx),
            None => {}
        }
    }
}

impl Handler<CommandStep> for RunnerActor {
    type Result = ();

    fn handle(&mut self, m: CommandStep, _: &mut Self::Context) {
        if let Some(live) = self.steps.get(&self.launched_as(m.step)) {
            live.commands.send(m.command);
        }
    }
}

impl Handler<MeasureStep> for RunnerActor {
    type Result = ResponseFuture<Option<StepUsage>>;

    fn handle(&mut self, m: MeasureStep, _: &mut Self::Context) -> Self::Result {
        let step = self.launched_as(m.step);
        let Some(live) = self.steps.get_mut(&step) else { return Box::pin(async { None }) };
        let (tx, rx) = oneshot::channel();
        live.measured_for.push(tx);
        live.commands.send(StepCommand::Usage);
        // A step that ends before it answers drops the sender.
        Box::pin(async move { rx.await.ok() })
    }
}

impl Handler<SignalJob> for RunnerActor {
    type Result = ();

    fn handle(&mut self, SignalJob { target, signal }: SignalJob, _: &mut Self::Context) {
        let to = |live: &LiveStep, target: SignalScope| {
            live.commands.send(StepCommand::Signal { signal, target });
        };
        let own_steps = self.steps.keys().any(|step| *step != StepId::Batch);
        for (step, live) in &self.steps {
            match target {
                SignalTarget::Steps if *step == StepId::Batch && own_steps => {}
                SignalTarget::Steps | SignalTarget::Full => to(live, SignalScope::Processes),
                SignalTarget::Batch if *step == StepId::Batch => to(live, SignalScope::BatchShell),
                SignalTarget::Step(wanted) if self.launched_as(wanted) == *step => to(live, SignalScope::Processes),
                SignalTarget::Batch | SignalTarget::Step(_) => {}
            }
        }
    }
}

impl Handler<StopJob> for RunnerActor {
    type Result = ();

    fn handle(&mut self, StopJob { cause }: StopJob, ctx: &mut Self::Context) {
        self.stop(cause, ctx);
    }
}

impl Handler<Dismiss> for RunnerActor {
    type Result = ();

    fn handle(&mut self, _: Dismiss, ctx: &mut Self::Context) {
        if let Some(cgroup) = self.cgroup.take() {
            self.discard(cgroup);
        }
        self.done = true;
        ctx.stop();
    }
}

impl Handler<StopStep> for RunnerActor {
    type Result = ();

    fn handle(&mut self, StopStep { step, cause }: StopStep, ctx: &mut Self::Context) {
        self.stop_step(self.launched_as(step), cause, ctx);
    }
}

impl Handler<SuspendJob> for RunnerActor {
    type Result = ();

    fn handle(&mut self, _: SuspendJob, ctx: &mut Self::Context) {
        self.ladder.suspend(Instant::now());
        self.arm_limit(ctx);
        for live in self.steps.values() {
            live.commands.send(StepCommand::Suspend);
        }
    }
}

impl Handler<ResumeJob> for RunnerActor {
    type Result = ();

    fn handle(&mut self, _: ResumeJob, ctx: &mut Self::Context) {
        self.ladder.resume(Instant::now());
        self.arm_limit(ctx);
        for live in self.steps.values() {
            live.commands.send(StepCommand::Resume);
        }
    }
}

impl Handler<SetTimeLimit> for RunnerActor {
    type Result = ();

    fn handle(&mut self, SetTimeLimit { limit_secs }: SetTimeLimit, ctx: &mut Self::Context) {
        self.ladder.limit_secs = limit_secs;
        self.arm_limit(ctx);
    }
}
