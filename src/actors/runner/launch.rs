//! Launches of the job and of its steps, and adoption of steps left by an earlier daemon or a dead
//! launcher.

use super::{LiveStep, Prepared, Retry, RunnerActor, StepNews};
use crate::actors::launch_plan;
use crate::actors::messages::{AdoptJob, CgroupsChecked, LaunchJob, LaunchStep, OpenAllocation};
use actix::prelude::*;
use slotd_exec::adopt::Leftovers;
use slotd_exec::cgroup::JobCgroup;
use slotd_exec::launch_spec::StepCommand;
use slotd_exec::{
    Adoption, LaunchError, LaunchFault, LaunchSpec, StepHandle, adopt, host_fault, job_dirs,
};
use slotd_model::tres::Allocation;
use slotd_model::{ExitCode, ExitRecord, Job, StepId, Timestamp};
use slotd_sched::EndCause;
use slotd_sys::{aside, break_point, clock};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of launch attempts if the launcher dies during each of them.
const LAUNCH_TRIES: u32 = 3;

/// The delay before inspecting a step again, if the host lacked the descriptors or memory for it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl RunnerActor {
    fn make_cgroup(&mut self) -> Result<(), LaunchError> {
        let (Some(base), Some(job), None) = (&self.setup.cgroups, &self.job, &self.cgroup) else {
            return Ok(());
        };
        let alloc = job
            .run
            .alloc
            .as_deref()
            .cloned()
            .unwrap_or_else(|| Allocation { tres: job.tres, ..Allocation::default() });
        let was_bad = base.is_bad();
        let made = base.job(self.id).map_err(LaunchError::from).and_then(|cgroup| {
            job_dirs::note_cgroup(&self.setup.paths.job_dir(self.id), cgroup.dir())?;
            Ok(base.create_job(self.id, &alloc)?)
        });
        match &made {
            // A bad base affects all jobs. A limit that only this job cannot have does not.
            Err(LaunchError::Cgroup(e)) if base.is_bad() => {
                self.setup.outputs.cgroups_checked.do_send(CgroupsChecked(Err(e.clone().into())))
            }
            _ if was_bad && !base.is_bad() => {
                self.setup.outputs.cgroups_checked.do_send(CgroupsChecked(Ok(())))
            }
            _ => {}
        }
        self.cgroup = Some(made?);
        Ok(())
    }

    /// Changes the job's resources: sets new limits, and moves the steps that use all of them.
    pub(super) fn resize(&mut self, alloc: Box<Allocation>, sharing: &[StepId], is_managed: bool) {
        let Some(job) = &mut self.job else { return };
        let had = job.run.alloc.replace(alloc.clone()).map(|had| had.cpu_ids).unwrap_or_default();
        self.limit(&alloc);
        for (step, live) in &self.steps {
            if had != alloc.cpu_ids && (*step == StepId::Batch || sharing.contains(step)) {
                let from = if is_managed { Vec::new() } else { had.clone() };
                live.commands.send(StepCommand::Move { from, to: alloc.cpu_ids.clone() });
            }
        }
    }

    /// Sets the limits of the job's cgroup. If the kernel refuses them, the job keeps its old ones.
    fn limit(&self, alloc: &Allocation) {
        let (Some(base), Some(cgroup)) = (&self.setup.cgroups, &self.cgroup) else { return };
        if let Err(e) = base.limit(cgroup, alloc) {
            log::error!("job {}: {e}", self.id);
        }
    }

    /// Moves an existing directory out of the way, so that it does not fail the job's first launch.
    fn clear_way(&self, job: &Job) {
        if job.run.restarts > 0 {
            return;
        }
        let job_dir = self.setup.paths.job_dir(self.id);
        match job_dirs::clear_way(&job_dir) {
            Ok(None) => {}
            Ok(Some(aside)) => log::warn!(
                "job {}: {} already existed and was moved to {}",
                self.id,
                job_dir.display(),
                aside.display()
            ),
            Err(e) => log::error!(
                "job {}: cannot move the existing {} out of the way: {e}",
                self.id,
                job_dir.display()
            ),
        }
    }

    /// Creates the step's cgroup if cgroups are available.
    fn place(&self, spec: &mut LaunchSpec, mem_mb: Option<u64>) -> Result<(), LaunchError> {
        if let Some(cgroup) = &self.cgroup {
            let as_one = self.setup.cgroups.as_ref().is_some_and(|base| base.kills_steps());
            spec.cgroup = Some(cgroup.create_step(spec.step.step, mem_mb, as_one)?);
        }
        Ok(())
    }

    fn launch(&mut self, spec: LaunchSpec, fds: Vec<OwnedFd>, ctx: &mut Context<Self>) {
        self.launch_with(spec, fds, None, ctx);
    }

    /// Launches a step, with the watcher that has prepared it if there is one.
    fn launch_with(
        &mut self,
        mut spec: LaunchSpec,
        fds: Vec<OwnedFd>,
        prepared: Option<StepHandle>,
        ctx: &mut Context<Self>,
    ) {
        let step = spec.step.step;
        spec.oom_score_adj = self.setup.oom_score_adj;
        let copies = fds.iter().map(OwnedFd::try_clone).collect::<Result<Vec<_>, _>>();
        break_point::reach("launch begins");
        break_point::hang_at("launch hangs");
        let launched = match prepared {
            Some(handle) => {
                handle.begin(&spec);
                Ok(handle)
            }
            None => self.setup.launcher.launch(&spec, fds),
        };
        break_point::reach("launch sent");
        match launched {
            Ok(handle) => {
                let tries = self.steps.get(&step).map_or(0, |live| live.tries) + 1;
                self.follow(step, handle, ctx);
                if let Some(live) = self.steps.get_mut(&step) {
                    live.tries = tries;
                    live.retry = copies.ok().map(|fds| Box::new(Retry { spec, fds }));
                }
                self.watch_for_stopped(ctx);
            }
            Err(e) => self.launch_failed(step, &e, ctx),
        }
    }

    /// Processes the events of a step from now on.
    fn follow(&mut self, step: StepId, handle: StepHandle, ctx: &mut Context<Self>) {
        let (commands, mut events) = handle.split();
        self.steps.insert(
            step,
            LiveStep { commands, retry: None, tries: 0, stopped: None, measured_for: Vec::new() },
        );
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

    pub(super) fn launch_failed(
        &mut self,
        step: StepId,
        why: &LaunchError,
        ctx: &mut Context<Self>,
    ) {
        let fault = match why.fault(&self.setup.paths.job_dir(self.id)) {
            LaunchFault::Host(fault) => Some(fault),
            LaunchFault::Job => None,
        };
        let record =
            ExitRecord::launch_failed(why.to_string(), (self.setup.clock)()).by_host(fault);
        self.step_over(step, record, None, ctx);
    }

    /// Determines the state of a step whose connection closed, or that an earlier daemon launched.
    pub(super) fn look_again(&mut self, step: StepId, at_start: bool, ctx: &mut Context<Self>) {
        let job_dir = self.setup.paths.job_dir(self.id);
        match adopt::inspect(&job_dir, step, self.run()) {
            Ok(Adoption::Running(handle)) => self.follow(step, handle, ctx),
            Ok(Adoption::Ended(record)) => self.step_over(step, *record, None, ctx),
            // Somebody has deleted its directory, or the socket in it.
            Ok(Adoption::NeverLaunched) if at_start && self.has_started(step) => {
                self.lost(step, ctx)
            }
            Ok(Adoption::NeverLaunched) if at_start => {
                let record = ExitRecord::gone(ExitCode::OK, (self.setup.clock)());
                self.step_over(step, record, Some(EndCause::NeverLaunched), ctx);
            }
            Ok(Adoption::NeverLaunched) => match self.steps.get_mut(&step) {
                Some(LiveStep { retry, tries, .. }) if retry.is_some() && *tries < LAUNCH_TRIES => {
                    if let Some(again) = retry.take() {
                        self.launch(again.spec, again.fds, ctx);
                    }
                }
                _ => self.launch_failed(step, &LaunchError::LauncherDied(LAUNCH_TRIES), ctx),
            },
            Ok(Adoption::Lost) => self.lost(step, ctx),
            // The host failed to inspect the step, which may still be running.
            Err(e) if host_fault(&e).is_some() => {
                log::warn!("job {}: {e}; retrying", self.key(step));
                ctx.run_later(LOOK_AGAIN, move |runner, ctx| {
                    runner.look_again(step, at_start, ctx)
                });
            }
            Err(e) => {
                log::error!("job {}: {e}", self.key(step));
                self.lost(step, ctx);
            }
        }
    }

    pub(super) fn start_of_run(&self) -> Timestamp {
        self.job.as_ref().and_then(|job| job.run.start).unwrap_or_default()
    }

    /// Returns whether a step has started that has neither a socket nor a record, so that it does
    /// not run twice: its script is known to have started, or it has processes. To find these, reads
    /// the environment of every process of the machine.
    fn has_started(&self, step: StepId) -> bool {
        let start = self.start_of_run();
        (step == StepId::Batch && self.setup.started.knows(self.id, start))
            || adopt::has_processes(self.setup.paths.root(), self.key(step), start)
    }

    fn lost(&mut self, step: StepId, ctx: &mut Context<Self>) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.step(step).kill();
        }
        self.lost.insert(step);
        let (key, paths) = (self.key(step), Arc::clone(&self.setup.paths));
        let start = self.start_of_run();
        let work = move || adopt::kill_leftovers(paths.root(), key, start);
        let search = aside::run(format!("killing the processes of job {key}"), aside::LONG, work);
        ctx.spawn(search.into_actor(self).map(move |killed, runner, ctx| {
            match killed {
                Ok(Leftovers { killed, is_incomplete: false }) => log::error!(
                    "job {key}: its watcher died without a record; {killed} of its processes \
                     were killed"
                ),
                Ok(Leftovers { killed, is_incomplete: true }) => log::error!(
                    "job {key}: its watcher died without a record; {killed} of its processes \
                     were killed, but they kept starting others, which may still be running"
                ),
                Err(why) => log::error!(
                    "job {key}: its watcher died without a record, and some of its processes \
                     may still be running: {why}"
                ),
            }
            runner.lost.remove(&step);
            // The real exit is unknown: report SIGKILL.
            let killed = ExitCode::signal(libc::SIGKILL);
            let record = ExitRecord::gone(killed, (runner.setup.clock)());
            runner.step_over(step, record, Some(EndCause::RunnerLost), ctx);
        }));
    }

    /// Prepares the launch of a job whose start is not durable yet. Any failure is left to the
    /// launch.
    pub(super) fn prepare(&mut self, m: LaunchJob) {
        self.clear_way(&m.job);
        let start = m.job.run.start;
        let paths = &self.setup.paths;
        let mut spec = launch_plan::batch_launch(&m.job, &m.host, paths, m.texts, m.ranks);
        spec.oom_score_adj = self.setup.oom_score_adj;
        let handle = self.setup.launcher.prepare(&spec).ok();
        self.prepared = handle.map(|handle| Prepared { start, spec, handle });
    }

    pub(super) fn launch_job(&mut self, m: LaunchJob, ctx: &mut Context<Self>) {
        // If it has waited for long, it starts later than planned, and its environment says so.
        let prepared = self.prepared.take().filter(|it| it.start == m.job.run.start);
        self.begin(m.job, m.host, ctx);
        if self.ladder.stopping.is_some() {
            return self.end_if_empty(ctx);
        }
        let mark = Arc::clone(&self.setup.mark);
        let _underway = mark.begin(self.key(StepId::Batch));
        let Some(job) = &self.job else { return };
        let (mut spec, handle) = match prepared {
            Some(Prepared { spec, handle, .. }) => (spec, Some(handle)),
            None => {
                self.clear_way(job);
                let paths = &self.setup.paths;
                (launch_plan::batch_launch(job, &self.host, paths, m.texts, m.ranks), None)
            }
        };
        let made = self.make_cgroup();
        if let Err(e) = made.and_then(|()| self.place(&mut spec, None)) {
            // A batch job has no client, so the watcher reports the error in the job's output.
            spec.broken = Some(e.to_string());
        }
        self.launch_with(spec, Vec::new(), handle, ctx);
    }

    pub(super) fn open_allocation(&mut self, m: OpenAllocation, ctx: &mut Context<Self>) {
        self.clear_way(&m.job);
        self.begin(m.job, m.host, ctx);
        if let Err(e) = self.make_cgroup() {
            log::error!("job {}: {e}", self.id);
            if self.job.as_ref().is_some_and(|job| job.holder().is_some()) {
                // Its client will launch a step soon, and gets the error then.
                self.broken = Some(e.to_string());
                return;
            }
            let record = ExitRecord::launch_failed(e.to_string(), (self.setup.clock)());
            self.finish(record, EndCause::LaunchFailed, ctx);
        }
    }

    pub(super) fn adopt_job(&mut self, m: AdoptJob, ctx: &mut Context<Self>) {
        // The steps of a manager are reported by the manager.
        let live: Vec<StepId> = m
            .job
            .steps
            .iter()
            .filter(|s| !s.state.is_terminal() && !s.managed)
            .map(|s| s.id)
            .collect();
        self.ladder.adopt(&m.job.run, (self.setup.clock)(), clock::monotonic());
        self.take(m.job, m.host, ctx);
        // The cgroup stays where it was created, even if the base has changed since.
        let noted = job_dirs::cgroup(&self.setup.paths.job_dir(self.id)).map(JobCgroup::at);
        self.cgroup = noted.or_else(|| self.setup.cgroups.as_ref()?.job(self.id).ok());
        // The previous daemon may have died between recording a new size and setting its limits.
        if let Some(alloc) = self.job.as_ref().and_then(|job| job.run.alloc.clone()) {
            self.limit(&alloc);
        }
        // The script comes last: if everything has ended, its end is also the job's.
        for step in live {
            self.look_again(step, true, ctx);
        }
        if !self.is_allocation() {
            self.look_again(StepId::Batch, true, ctx);
        }
    }

    pub(super) fn launch_step(&mut self, m: LaunchStep, ctx: &mut Context<Self>) {
        let step = m.step.step;
        if self.ladder.stopping.is_some() || self.done {
            let record = ExitRecord::gone(ExitCode::signal(libc::SIGTERM), (self.setup.clock)());
            return self.step_over(step, record, Some(EndCause::Stopped), ctx);
        }
        if let Some(why) = self.broken.clone() {
            return self.launch_failed(step, &LaunchError::Broken(why), ctx);
        }
        let mark = Arc::clone(&self.setup.mark);
        let _underway = mark.begin(m.step);
        let mem_mb = m.alloc.tres.mem_mb;
        let own_mem = m
            .job
            .run
            .alloc
            .as_ref()
            .is_some_and(|whole| mem_mb < whole.tres.mem_mb)
            .then_some(mem_mb);
        let spec = launch_plan::step_launch(&m, &self.setup.paths, self.setup.kill_wait);
        match spec.and_then(|mut spec| self.place(&mut spec, own_mem).map(|()| spec)) {
            Ok(spec) => self.launch(spec, m.fds, ctx),
            Err(e) => self.launch_failed(step, &e, ctx),
        }
    }
}
