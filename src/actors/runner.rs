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

use crate::actors::launch_plan;
use crate::actors::messages::*;
use crate::exec::cgroup::{CgroupBase, JobCgroup};
use crate::exec::launch_spec::{SignalTarget as Whom, StepCommand, StepEvent, StepUsage};
use crate::exec::step_handle::StepCommands;
use crate::exec::{Adoption, LaunchSpec, Launcher, StepHandle, adopt};
use crate::model::partition::Host;
use crate::model::request::JobKind;
use crate::model::{ExitCode, ExitRecord, Job, JobId, StepId, StepKey, Timestamp};
use crate::sched::{EndCause, SignalTarget, StopCause};
use crate::sys::paths::Paths;
use actix::prelude::*;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

mod ladder;

use ladder::{Ladder, Life};

/// A launch that got lost with a dying launcher is tried so often.
const LAUNCH_TRIES: u32 = 3;

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

    fn make_cgroup(&mut self) -> Result<(), String> {
        if let (Some(base), Some(job), None) = (&self.setup.cgroups, &self.job, &self.cgroup) {
            let tres = job.run.alloc.as_ref().map_or(job.tres, |alloc| alloc.tres);
            self.cgroup = Some(base.create_job(self.id, &tres).map_err(|e| e.to_string())?);
        }
        Ok(())
    }

    /// Names the step's cgroup, where there are cgroups.
    fn place(&self, spec: &mut LaunchSpec, mem_mb: Option<u64>) -> Result<(), String> {
        if let Some(cgroup) = &self.cgroup {
            spec.cgroup = Some(cgroup.create_step(spec.step.step, mem_mb).map_err(|e| e.to_string())?);
        }
        Ok(())
    }

    fn launch(&mut self, spec: LaunchSpec, fds: Vec<OwnedFd>, ctx: &mut Context<Self>) {
        let step = spec.step.step;
        let can_retry = fds.is_empty();
        match self.setup.launcher.launch(&spec, fds) {
            Ok(handle) => {
                let tries = self.steps.get(&step).map_or(0, |live| live.tries) + 1;
                self.follow(step, handle, ctx);
                if let Some(live) = self.steps.get_mut(&step) {
                    live.tries = tries;
                    live.retry = can_retry.then(|| Box::new(spec));
                }
            }
            Err(e) => self.launch_failed(step, &e.to_string(), ctx),
        }
    }

    /// Listens to a step from now on.
    fn follow(&mut self, step: StepId, handle: StepHandle, ctx: &mut Context<Self>) {
        let (commands, mut events) = handle.split();
        self.steps.insert(step, LiveStep { commands, retry: None, tries: 0, stopped: None, measured_for: Vec::new() });
        let me = ctx.address();
        actix::spawn(async move {
            loop {
                let event = events.next_event().await;
                let last = event.is_none();
                me.do_send(StepNews { step, event });
                if last {
                    break;
                }
            }
        });
    }

    fn launch_failed(&mut self, step: StepId, why: &str, ctx: &mut Context<Self>) {
        let record = ExitRecord::launch_failed(why.to_owned(), (self.setup.clock)());
        self.step_over(step, record, None, ctx);
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
        let now = (self.setup.clock)();
        let had_main = self.main.is_some();
        let (record, mut cause) = match self.main.take() {
            Some(record) => {
                let cause = self.ladder.main_cause.unwrap_or_else(|| self.cause_of(&record, false));
                (record, cause)
            }
            // It was stopped before its script was launched; an allocation has none.
            None => {
                let exit = if self.is_allocation() { ExitCode::OK } else { ExitCode::signal(libc::SIGTERM) };
                let cause = if self.ladder.timed_out { EndCause::TimeLimit } else { EndCause::Stopped };
                (ExitRecord::gone(exit, now), cause)
            }
        };
        if let Some(cgroup) = self.cgroup.take() {
            let is_oom = match had_main {
                true => cgroup.limit_ooms() > 0,
                // What its steps suffered before is theirs, and told by their clients.
                false => cgroup.oom_kills() > self.ladder.ooms_before,
            };
            if is_oom {
                cause = EndCause::OutOfMemory;
            }
            self.discard(cgroup);
        }
        self.finish(record, cause, ctx);
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

    /// What became of a step whose connection is gone, or that an earlier daemon had launched.
    fn look_again(&mut self, step: StepId, at_start: bool, ctx: &mut Context<Self>) {
        let job_dir = self.setup.paths.job_dir(self.id);
        match adopt::inspect(&job_dir, step, self.run()) {
            Ok(Adoption::Running(handle)) => self.follow(step, handle, ctx),
            Ok(Adoption::Ended(record)) => self.step_over(step, record, None, ctx),
            Ok(Adoption::NeverLaunched) if at_start => {
                let record = ExitRecord::gone(ExitCode::OK, (self.setup.clock)());
                self.step_over(step, record, Some(EndCause::NeverLaunched), ctx);
            }
            Ok(Adoption::NeverLaunched) => match self.steps.get_mut(&step) {
                Some(LiveStep { retry: Some(spec), tries, .. }) if *tries < LAUNCH_TRIES => {
                    let spec = spec.clone();
                    self.launch(*spec, Vec::new(), ctx);
                }
                _ => self.launch_failed(step, "the launcher died before it started anything", ctx),
            },
            Ok(Adoption::Lost) => self.lost(step, ctx),
            Err(e) => {
                log::error!("job {}: {e}", self.key(step));
                self.lost(step, ctx);
            }
        }
    }

    fn lost(&mut self, step: StepId, ctx: &mut Context<Self>) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.step(step).kill();
        }
        let killed = adopt::kill_leftovers(self.setup.paths.root(), self.key(step));
        log::error!(
            "job {}: the process that watched it is gone; {killed} processes of it were killed",
            self.key(step)
        );
        // Nobody knows how it would have ended: what was left of it was killed, and whoever waits for it is told so.
        let record = ExitRecord::gone(ExitCode::signal(libc::SIGKILL), (self.setup.clock)());
        self.step_over(step, record, Some(EndCause::RunnerLost), ctx);
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

impl Handler<LaunchJob> for RunnerActor {
    type Result = ();

    fn handle(&mut self, m: LaunchJob, ctx: &mut Self::Context) {
        self.begin(m.job, m.host, ctx);
        if self.ladder.stopping.is_some() {
            return self.end_if_empty(ctx);
        }
        if let Err(e) = self.make_cgroup() {
            return self.launch_failed(StepId::Batch, &e, ctx);
        }
        let Some(job) = &self.job else { return };
        let mut spec = launch_plan::batch_launch(job, &self.host, &self.setup.paths, m.texts, m.ranks);
        match self.place(&mut spec, None) {
            Ok(()) => self.launch(spec, Vec::new(), ctx),
            Err(e) => self.launch_failed(StepId::Batch, &e, ctx),
        }
    }
}

impl Handler<OpenAllocation> for RunnerActor {
    type Result = ();

    fn handle(&mut self, m: OpenAllocation, ctx: &mut Self::Context) {
        self.begin(m.job, m.host, ctx);
        if let Err(e) = self.make_cgroup() {
            log::error!("job {}: {e}", self.id);
            if self.job.as_ref().is_some_and(|job| job.holder().is_some()) {
                // Its client is about to launch something, and is told then.
                self.broken = Some(e);
                return;
            }
            let record = ExitRecord::launch_failed(e, (self.setup.clock)());
            self.finish(record, EndCause::LaunchFailed, ctx);
        }
    }
}

impl Handler<AdoptJob> for RunnerActor {
    type Result = ();

    fn handle(&mut self, m: AdoptJob, ctx: &mut Self::Context) {
        let live: Vec<StepId> = m.job.steps.iter().filter(|s| !s.state.is_terminal()).map(|s| s.id).collect();
        self.begin(m.job, m.host, ctx);
        if let Some(base) = &self.setup.cgroups {
            self.cgroup = Some(base.open_job(self.id));
        }
        if !self.is_allocation() {
            self.look_again(StepId::Batch, true, ctx);
        }
        for step in live {
            self.look_again(step, true, ctx);
        }
    }
}

impl Handler<LaunchStep> for RunnerActor {
    type Result = ();

    fn handle(&mut self, m: LaunchStep, ctx: &mut Self::Context) {
        let step = m.step.step;
        if self.ladder.stopping.is_some() || self.done {
            let record = ExitRecord::gone(ExitCode::signal(libc::SIGTERM), (self.setup.clock)());
            return self.step_over(step, record, Some(EndCause::Stopped), ctx);
        }
        if let Some(why) = self.broken.clone() {
            return self.launch_failed(step, &why, ctx);
        }
        let mem_mb = m.alloc.tres.mem_mb;
        let own_mem = m.job.run.alloc.as_ref().is_some_and(|whole| mem_mb < whole.tres.mem_mb).then_some(mem_mb);
        let spec = launch_plan::step_launch(&m, &self.setup.paths, self.setup.kill_wait);
        match spec.and_then(|mut spec| self.place(&mut spec, own_mem).map(|()| spec)) {
            Ok(spec) => self.launch(spec, m.fds, ctx),
            Err(e) => self.launch_failed(step, &e, ctx),
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
        let to = |live: &LiveStep, target: Whom| {
            live.commands.send(StepCommand::Signal { signal, target });
        };
        let own_steps = self.steps.keys().any(|step| *step != StepId::Batch);
        for (step, live) in &self.steps {
            match target {
                SignalTarget::Steps if *step == StepId::Batch && own_steps => {}
                SignalTarget::Steps | SignalTarget::Full => to(live, Whom::Processes),
                SignalTarget::Batch if *step == StepId::Batch => to(live, Whom::BatchShell),
                SignalTarget::Step(wanted) if self.launched_as(wanted) == *step => to(live, Whom::Processes),
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
