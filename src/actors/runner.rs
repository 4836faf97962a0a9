//! RunnerActor: one for each started job.
//!
//! Owns the connections to the job's steps (their process groups belong to the watchers of the
//! steps), the job's cgroup, and the timers of its time limit and of the kill ladder. Receives the
//! scheduler's commands for this job and the events of its steps. Sends the facts [`StepStarted`],
//! [`TaskEnded`], [`StepStopping`], [`LimitReached`], [`StepEnded`] and, once no process of the job
//! is left, [`JobEnded`]. It is created idle, and launches once the commit that makes the job
//! RUNNING is acknowledged. It stops after [`JobEnded`]; if it dies earlier, a drop guard sends
//! [`RunnerDied`].
//!
//! ```text
//! idle ──LaunchJob/OpenAllocation/AdoptJob──► running ──last step ended──► done
//!                                               │                           ▲
//!                              StopJob or limit ▼                           │
//!                        stopping: notice, SIGTERM ──grace──► SIGKILL ──────┘
//! ```

use crate::actors::messages::*;
use actix::prelude::*;
use slotd_exec::cgroup::{CgroupBase, JobCgroup};
use slotd_exec::launch_mark::LaunchMark;
use slotd_exec::launch_spec::{SignalScope, StepCommand, StepEvent, StepUsage};
use slotd_exec::started::StartedRuns;
use slotd_exec::step_handle::StepCommands;
use slotd_exec::step_journal;
use slotd_exec::{LaunchError, LaunchSpec, Launcher, StepHandle, job_dirs};
use slotd_model::partition::Host;
use slotd_model::request::JobKind;
use slotd_model::{ExitCode, ExitRecord, Job, JobId, StepId, StepKey, Timestamp};
use slotd_sched::{EndCause, SignalTarget, StopCause};
use slotd_sys::paths::Paths;
use slotd_sys::{aside, clock};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

mod ladder;
mod launch;

use ladder::Ladder;

/// The recipients of a runner's facts.
#[derive(Clone)]
pub struct RunnerOutputs {
    pub step_started: Recipient<StepStarted>,
    pub task_ended: Recipient<TaskEnded>,
    pub step_stopping: Recipient<StepStopping>,
    pub limit_reached: Recipient<LimitReached>,
    pub step_ended: Recipient<StepEnded>,
    /// Steps that their manager recorded but did not report before it ended.
    pub steps_found: Recipient<RecordSteps>,
    pub job_ended: Recipient<JobEnded>,
    pub died: Recipient<RunnerDied>,
    pub cgroups_checked: Recipient<CgroupsChecked>,
}

/// The dependencies that all runners share.
#[derive(Clone)]
pub struct RunnerSetup {
    pub outputs: RunnerOutputs,
    pub launcher: Arc<Launcher>,
    /// Records the launch in progress. All runners share it, since they share a thread.
    pub mark: Arc<LaunchMark>,
    pub started: Arc<StartedRuns>,
    pub paths: Arc<Paths>,
    pub cgroups: Option<Arc<CgroupBase>>,
    pub kill_wait: Duration,
    /// The `oom_score_adj` of jobs' processes, for when the host itself runs out of memory.
    pub oom_score_adj: u32,
    pub clock: fn() -> Timestamp,
}

/// Creates an idle runner for a job and returns the recipient of its commands.
pub type RunnerSeed = Box<dyn Fn(JobId) -> Recipient<RunnerCommand>>;

/// Returns a seed that starts runners on this arbiter.
pub fn runners_on(arbiter: ArbiterHandle, setup: RunnerSetup) -> RunnerSeed {
    Box::new(move |job| {
        let setup = setup.clone();
        RunnerActor::start_in_arbiter(&arbiter, move |_| RunnerActor::new(job, setup)).recipient()
    })
}

/// The data for a repeated launch.
struct Retry {
    spec: LaunchSpec,
    fds: Vec<OwnedFd>,
}

/// A launch whose watcher waits for the command to begin.
struct Prepared {
    /// The start of the job for which it was prepared.
    start: Option<Timestamp>,
    spec: LaunchSpec,
    handle: StepHandle,
}

/// A step that was launched and has not ended.
struct LiveStep {
    commands: StepCommands,
    /// The launch, kept for a retry until it is known to have started.
    retry: Option<Box<Retry>>,
    tries: u32,
    /// Why this step alone is being stopped.
    stopped: Option<StopCause>,
    /// The recipients of its next usage measurement.
    measured_for: Vec<oneshot::Sender<StepUsage>>,
}

pub struct RunnerActor {
    id: JobId,
    setup: RunnerSetup,
    job: Option<Box<Job>>,
    host: Host,
    prepared: Option<Prepared>,
    steps: BTreeMap<StepId, LiveStep>,
    /// Steps whose watcher died and whose processes are being killed.
    lost: BTreeSet<StepId>,
    cgroup: Option<JobCgroup>,
    ladder: Ladder,
    /// How the batch script or the command of the run ended.
    main: Option<ExitRecord>,
    /// Why nothing can be launched in this allocation.
    broken: Option<String>,
    done: bool,
}

/// Removes the cgroup of a job that still has processes: killed ones that are not reaped yet, or
/// ones that cannot die.
async fn remove_later(job: JobId, cgroup: JobCgroup, job_dir: PathBuf) {
    cgroup.kill();
    let emptied = cgroup.emptied().await;
    if emptied.is_err() || !cgroup.remove() {
        log::warn!("job {job}: could not remove its cgroup {}", cgroup.dir().display());
    } else {
        job_dirs::forget_cgroup(&job_dir);
    }
}

/// The next event of a step, or `None` if its connection closed.
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
            prepared: None,
            steps: BTreeMap::new(),
            lost: BTreeSet::new(),
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

    /// Maps step 0 of `srun --no-wait` to the batch step, since its command is launched like a
    /// batch script.
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

    /// Handles the end of a step. `cause` overrides the cause in the record.
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
            // As in Slurm, processes that the batch script leaves behind are terminated.
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
            cause => cause,
        }
    }

    /// Reports the end of the job once no step is left and none can start.
    fn end_if_empty(&mut self, ctx: &mut Context<Self>) {
        let over = self.main.is_some() || self.ladder.stopping.is_some();
        if self.done || !over || !self.steps.is_empty() || !self.lost.is_empty() {
            return;
        }
        let (record, mut cause) = self.ended_as();
        if let Some(cgroup) = self.cgroup.take() {
            let is_oom = match self.main {
                Some(_) => cgroup.limit_ooms() > 0,
                // Earlier OOM kills belong to its steps, and their clients report them.
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
        // It was stopped before its script was launched, or it is an allocation, which has no
        // script.
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
        // Steps that the manager recorded but could not report are reported first.
        let recorded = self.setup.outputs.steps_found.clone();
        let what = format!("reading the journal of job {job}");
        let read =
            aside::run(what, aside::PATIENCE, move || step_journal::undelivered(&job_dir, run));
        ctx.wait(read.into_actor(self).map(move |steps, _, ctx| {
            match steps {
                Ok(Ok(steps)) => recorded.do_send(RecordSteps { job, run, steps }),
                Ok(Err(why)) => {
                    log::error!("job {job}: cannot read the journal of its steps: {why}")
                }
                Err(why) => {
                    log::error!("job {job}: could not read the journal of its steps: {why}")
                }
            }
            end();
            ctx.stop();
        }));
    }

    /// Sends a command to all steps. A step whose connection has closed has ended.
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

    /// Applies the recorded state to a step that an earlier daemon suspended or resumed without
    /// recording it.
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

    /// Launches a job that the scheduler has started.
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
                    // The watcher's time is authoritative, and every daemon gets the same one.
                    self.ladder.start(Duration::from_micros(at));
                    self.setup.started.note(self.id, self.start_of_run());
                    self.arm_limit(ctx);
                }
                if let Some(live) = self.steps.get_mut(&step) {
                    live.retry = None;
                }
                self.end_search_for_stopped(ctx);
                let pids =
                    task_pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect();
                self.setup.outputs.step_started.do_send(StepStarted { step: self.key(step), pids });
            }
            // The receiver is the client of a step. A batch script has none.
            Some(StepEvent::TaskEnded { .. }) if step == StepId::Batch => {}
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
                    // The client may have disconnected.
                    let _ = asker.send(usage.clone());
                }
            }
            None if self.steps.contains_key(&step) => self.look_again(step, false, ctx),
            // `Stays` is an event of the watcher, not of the step.
            Some(StepEvent::Stays) | None => {}
        }
    }
}

impl Handler<RunnerCommand> for RunnerActor {
    type Result = ();

    fn handle(&mut self, command: RunnerCommand, ctx: &mut Self::Context) {
        match command {
            RunnerCommand::Prepare(m) => self.prepare(m),
            RunnerCommand::Launch(m) => self.launch_job(m, ctx),
            RunnerCommand::Open(m) => self.open_allocation(m, ctx),
            RunnerCommand::Adopt(m) => self.adopt_job(m, ctx),
            RunnerCommand::LaunchStep(m) => self.launch_step(m, ctx),
            RunnerCommand::Signal { target, signal } => self.signal(target, signal),
            RunnerCommand::Stop { cause, reservation } => {
                self.ladder.ended_reservation = reservation;
                self.stop(cause, ctx);
            }
            RunnerCommand::StopStep(step, cause) => {
                self.stop_step(self.launched_as(step), cause, ctx)
            }
            RunnerCommand::ToStep(step, command) => {
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
            RunnerCommand::Preempt => self.begin_grace(),
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
