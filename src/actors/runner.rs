//! RunnerActor: one for each started job.
//!
//! Owns the connections to the job's steps (their process groups belong to the steps' watchers),
//! the job's cgroup, and the timers of its time limit and of the kill ladder. Receives the
//! scheduler's commands for this job and the steps' events. Sends the facts [`StepStarted`],
//! [`TaskEnded`], [`StepStopping`], [`LimitReached`], [`StepEnded`] and, once nothing of the job is
//! left, [`JobEnded`]. It is made idle and launches when the commit that makes the job RUNNING is
//! acknowledged. It stops after [`JobEnded`]; if it dies before, a drop guard says so
//! ([`RunnerDied`]).
//!
//! ```text
//! idle ──LaunchJob/OpenAllocation/AdoptJob──► running ──last step ended──► done
//!                                               │                           ▲
//!                              StopJob or limit ▼                           │
//!                        stopping: notice, SIGTERM ──grace──► SIGKILL ──────┘
//! ```

use crate::actors::messages::*;
use crate::exec::cgroup::{CgroupBase, JobCgroup};
use crate::exec::launch_mark::LaunchMark;
use crate::exec::launch_spec::{SignalScope, StepCommand, StepEvent, StepUsage};
use crate::exec::step_handle::StepCommands;
use crate::exec::step_journal;
use crate::exec::{LaunchError, LaunchSpec, Launcher, job_dirs};
use crate::model::partition::Host;
use crate::model::request::JobKind;
use crate::model::{ExitCode, ExitRecord, Job, JobId, StepId, StepKey, Timestamp};
use crate::sched::{EndCause, SignalTarget, StopCause};
use crate::sys::paths::Paths;
use crate::sys::{aside, clock};
use actix::prelude::*;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

mod ladder;
mod launch;

use ladder::Ladder;

/// Where a runner's facts go.
#[derive(Clone)]
pub struct RunnerOutputs {
    pub step_started: Recipient<StepStarted>,
    pub task_ended: Recipient<TaskEnded>,
    pub step_stopping: Recipient<StepStopping>,
    pub limit_reached: Recipient<LimitReached>,
    pub step_ended: Recipient<StepEnded>,
    /// Steps of a manager that could not tell of them itself.
    pub steps_found: Recipient<RecordSteps>,
    pub job_ended: Recipient<JobEnded>,
    pub died: Recipient<RunnerDied>,
    pub cgroups_checked: Recipient<CgroupsChecked>,
}

/// What every runner needs.
#[derive(Clone)]
pub struct RunnerSetup {
    pub outputs: RunnerOutputs,
    pub launcher: Arc<Launcher>,
    /// Of the launches of all runners, which share a thread.
    pub mark: Arc<LaunchMark>,
    pub paths: Arc<Paths>,
    pub cgroups: Option<Arc<CgroupBase>>,
    pub kill_wait: Duration,
    /// Of the processes of jobs, for the host's own lack of memory.
    pub oom_score_adj: u32,
    pub clock: fn() -> Timestamp,
}

/// Makes the runner of a job, idle, and says where its commands go.
pub type RunnerSeed = Box<dyn Fn(JobId) -> Recipient<RunnerCommand>>;

/// Runners on this arbiter.
pub fn runners_on(arbiter: ArbiterHandle, setup: RunnerSetup) -> RunnerSeed {
    Box::new(move |job| {
        let setup = setup.clone();
        RunnerActor::start_in_arbiter(&arbiter, move |_| RunnerActor::new(job, setup)).recipient()
    })
}

/// What another try of a launch needs.
struct Retry {
    spec: LaunchSpec,
    fds: Vec<OwnedFd>,
}

/// A step that has been launched and is not over.
struct LiveStep {
    commands: StepCommands,
    /// What was launched, until it is known to have started: for another try.
    retry: Option<Box<Retry>>,
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

/// Removes the cgroup of a job that has processes still: killed ones that were not reaped yet, or
/// that cannot die.
async fn remove_later(job: JobId, cgroup: JobCgroup, job_dir: PathBuf) {
    cgroup.kill();
    let emptied = cgroup.emptied().await;
    if emptied.is_err() || !cgroup.remove() {
        log::warn!("job {job}: its cgroup {} could not be removed", cgroup.dir().display());
    } else {
        job_dirs::forget_cgroup(&job_dir);
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
    fn step_over(
        &mut self,
        step: StepId,
        record: ExitRecord,
        cause: Option<EndCause>,
        ctx: &mut Context<Self>,
    ) {
        let live = self.steps.remove(&step);
        let stopped = live.is_some_and(|live| live.stopped.is_some());
        let cause = cause.unwrap_or_else(|| self.cause_of(&record, stopped));
        if let Some(why) = &record.launch_error {
            log::warn!("job {}: the launch failed: {why}", self.key(step));
        }
        if let Some(words) = record.left_over_in_words() {
            log::info!("job {}: {words}", self.key(step));
        }
        if step == StepId::Batch {
            self.main = Some(record);
            self.ladder.main_cause = Some(cause);
            // What the batch script leaves behind ends with it, as in Slurm.
            if self.ladder.stopping.is_none() && !self.steps.is_empty() {
                self.terminate("", self.setup.kill_wait, ctx);
            }
        } else {
            self.setup.outputs.step_ended.do_send(StepEnded {
                step: self.key(step),
                record,
                cause,
            });
        }
        self.end_if_empty(ctx);
    }

    fn cause_of(&self, record: &ExitRecord, stopped: bool) -> EndCause {
        match EndCause::of(record) {
            EndCause::Exited | EndCause::Stopped if self.ladder.timed_out => EndCause::TimeLimit,
            EndCause::Exited if stopped || self.ladder.stopping.is_some() => EndCause::Stopped,
            told => told,
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
        let exit =
            if self.is_allocation() { ExitCode::OK } else { ExitCode::signal(libc::SIGTERM) };
        let cause = if self.ladder.timed_out { EndCause::TimeLimit } else { EndCause::Stopped };
        (ExitRecord::gone(exit, (self.setup.clock)()), cause)
    }

    fn discard(&self, cgroup: JobCgroup) {
        let job_dir = self.setup.paths.job_dir(self.id);
        if cgroup.remove() {
            job_dirs::forget_cgroup(&job_dir);
        } else {
            actix::spawn(remove_later(self.id, cgroup, job_dir));
        }
    }

    fn finish(&mut self, record: ExitRecord, cause: EndCause, ctx: &mut Context<Self>) {
        self.done = true;
        let (job, run, job_dir) = (self.id, self.run(), self.setup.paths.job_dir(self.id));
        let outputs = self.setup.outputs.clone();
        let end = move || outputs.job_ended.do_send(JobEnded { job, record, cause });
        if !step_journal::path(&job_dir, run).exists() {
            end();
            return ctx.stop();
        }
        // What the manager of its steps wrote down and could not tell is told before.
        let recorded = self.setup.outputs.steps_found.clone();
        let what = format!("reading the journal of job {job}");
        let read =
            aside::run(what, aside::PATIENCE, move || step_journal::undelivered(&job_dir, run));
        ctx.wait(read.into_actor(self).map(move |steps, _, ctx| {
            match steps {
                Ok(Ok(steps)) => recorded.do_send(RecordSteps { job, run, steps }),
                Ok(Err(why)) => {
                    log::error!("job {job}: the journal of its steps cannot be read: {why}")
                }
                Err(why) => log::error!("job {job}: the journal of its steps was not read: {why}"),
            }
            end();
            ctx.stop();
        }));
    }

    /// A step whose connection is gone has ended.
    fn command_all(&self, command: StepCommand) {
        for live in self.steps.values() {
            live.commands.send(command.clone());
        }
    }

    fn signal(&self, target: SignalTarget, signal: i32) {
        let to = |live: &LiveStep, target: SignalScope| {
            live.commands.send(StepCommand::Signal { signal, target });
        };
        let own_steps = self.steps.keys().any(|step| *step != StepId::Batch);
        for (step, live) in &self.steps {
            match target {
                SignalTarget::Steps if *step == StepId::Batch && own_steps => {}
                SignalTarget::Steps | SignalTarget::Full => to(live, SignalScope::Processes),
                SignalTarget::Batch if *step == StepId::Batch => to(live, SignalScope::BatchShell),
                SignalTarget::Step(wanted) if self.launched_as(wanted) == *step => {
                    to(live, SignalScope::Processes)
                }
                SignalTarget::Batch | SignalTarget::Step(_) => {}
            }
        }
    }

    /// An earlier daemon has suspended or resumed this step, and died before that was recorded: the
    /// record counts.
    fn set_right(&self, step: StepId, suspended: bool) {
        let command = match (suspended, self.ladder.is_suspended()) {
            (true, false) => StepCommand::Resume,
            (false, true) => StepCommand::Suspend,
            (true, true) | (false, false) => return,
        };
        if let Some(live) = self.steps.get(&step).filter(|_| self.ladder.stopping.is_none()) {
            live.commands.send(command);
        }
    }

    /// A job that was decided to start: it is launched now.
    fn begin(&mut self, job: Box<Job>, host: Host, ctx: &mut Context<Self>) {
        self.ladder.start(clock::monotonic());
        self.take(job, host, ctx);
    }

    fn take(&mut self, job: Box<Job>, host: Host, ctx: &mut Context<Self>) {
        self.ladder.limit_secs = job.request.time_limit_secs;
        self.ladder.warn = job.request.signal;
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
            Some(StepEvent::Started { task_pids, started_us, suspended, .. }) => {
                self.set_right(step, suspended);
                if let (StepId::Batch, Some(at)) = (step, started_us) {
                    // The watcher knows best, and tells each daemon the same.
                    self.ladder.start(Duration::from_micros(at));
                    self.arm_limit(ctx);
                }
                if let Some(live) = self.steps.get_mut(&step) {
                    live.retry = None;
                }
                let pids =
                    task_pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect();
                self.setup.outputs.step_started.do_send(StepStarted { step: self.key(step), pids });
            }
            Some(StepEvent::TaskEnded { rank, exit }) => {
                self.setup.outputs.task_ended.do_send(TaskEnded {
                    step: self.key(step),
                    rank,
                    exit,
                });
            }
            Some(StepEvent::Ended(record)) => self.step_over(step, record, None, ctx),
            Some(StepEvent::Refused(why)) => {
                self.launch_failed(step, &LaunchError::Broken(why), ctx)
            }
            Some(StepEvent::Usage(usage)) => {
                let waiting =
                    self.steps.get_mut(&step).map(|live| std::mem::take(&mut live.measured_for));
                for asker in waiting.unwrap_or_default() {
                    // Whoever asked may have gone.
                    let _ = asker.send(usage.clone());
                }
            }
            None if self.steps.contains_key(&step) => self.look_again(step, false, ctx),
            // Of the watcher and not of the step.
            Some(StepEvent::Stays) | None => {}
        }
    }
}

impl Handler<RunnerCommand> for RunnerActor {
    type Result = ();

    fn handle(&mut self, command: RunnerCommand, ctx: &mut Self::Context) {
        match command {
            RunnerCommand::Launch(m) => self.launch_job(m, ctx),
            RunnerCommand::Open(m) => self.open_allocation(m, ctx),
            RunnerCommand::Adopt(m) => self.adopt_job(m, ctx),
            RunnerCommand::LaunchStep(m) => self.launch_step(m, ctx),
            RunnerCommand::Signal { target, signal } => self.signal(target, signal),
            RunnerCommand::Stop(cause) => self.stop(cause, ctx),
            RunnerCommand::StopStep(step, cause) => {
                self.stop_step(self.launched_as(step), cause, ctx)
            }
            RunnerCommand::Tell(step, command) => {
                if let Some(live) = self.steps.get(&self.launched_as(step)) {
                    live.commands.send(command);
                }
            }
            RunnerCommand::Measure(step, answer) => {
                let step = self.launched_as(step);
                if let Some(live) = self.steps.get_mut(&step) {
                    // A step that ends before it answers drops the sender.
                    live.measured_for.push(answer);
                    live.commands.send(StepCommand::Usage);
                }
            }
            RunnerCommand::Suspend => {
                self.ladder.suspend(clock::monotonic());
                self.arm_limit(ctx);
                self.command_all(StepCommand::Suspend);
            }
            RunnerCommand::Resume => {
                self.ladder.resume(clock::monotonic());
                self.arm_limit(ctx);
                self.command_all(StepCommand::Resume);
            }
            RunnerCommand::Warn => self.warn(),
            RunnerCommand::SetTimeLimit(limit_secs) => {
                self.ladder.limit_secs = limit_secs;
                self.arm_limit(ctx);
            }
            RunnerCommand::Resize { alloc, sharing, is_managed } => {
                self.resize(alloc, &sharing, is_managed)
            }
            RunnerCommand::Dismiss => {
                if let Some(cgroup) = self.cgroup.take() {
                    self.discard(cgroup);
                }
                self.done = true;
                ctx.stop();
            }
        }
    }
}
