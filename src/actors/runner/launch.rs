//! Launches: the job's own, those of its steps, and finding again what an earlier daemon or a dead
//! launcher left.

use super::{LiveStep, Retry, RunnerActor, StepNews};
use crate::actors::launch_plan;
use crate::actors::messages::{AdoptJob, CgroupsChecked, LaunchJob, LaunchStep, OpenAllocation};
use crate::exec::cgroup::JobCgroup;
use crate::exec::launch_spec::StepCommand;
use crate::exec::{
    Adoption, LaunchError, LaunchFault, LaunchSpec, StepHandle, adopt, host_fault, job_dirs,
};
use crate::model::tres::Allocation;
use crate::model::{ExitCode, ExitRecord, StepId};
use crate::sched::EndCause;
use crate::sys::{break_point, clock};
use actix::prelude::*;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// A launch that got lost with a dying launcher is tried so often.
const LAUNCH_TRIES: u32 = 3;

/// A host that has no descriptors or no memory to look at a step with is asked again after so long.
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
            // A limit that this job cannot have says nothing of the others.
            Err(e) if base.is_bad() => {
                self.setup.outputs.cgroups_checked.do_send(CgroupsChecked(Err(e.to_string())))
            }
            _ if was_bad => self.setup.outputs.cgroups_checked.do_send(CgroupsChecked(Ok(()))),
            _ => {}
        }
        self.cgroup = Some(made?);
        Ok(())
    }

    /// The job has this from now on: its limits are those, and what runs on all of it follows.
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

    /// Sets the limits of the job's cgroup. Where the kernel refuses them the job keeps those that
    /// it had.
    fn limit(&self, alloc: &Allocation) {
        let (Some(base), Some(cgroup)) = (&self.setup.cgroups, &self.cgroup) else { return };
        if let Err(e) = base.limit(cgroup, alloc) {
            log::error!("job {}: {e}", self.id);
        }
    }

    /// A directory that is in the way of the job's first launch must not fail it.
    fn clear_way(&self) {
        if self.run() > 0 {
            return;
        }
        let job_dir = self.setup.paths.job_dir(self.id);
        match job_dirs::clear_way(&job_dir) {
            Ok(None) => {}
            Ok(Some(aside)) => log::warn!(
                "job {}: {} was there before the job, and is {} now",
                self.id,
                job_dir.display(),
                aside.display()
            ),
            Err(e) => log::error!("job {}: {} is in the way: {e}", self.id, job_dir.display()),
        }
    }

    /// Names the step's cgroup, where there are cgroups.
    fn place(&self, spec: &mut LaunchSpec, mem_mb: Option<u64>) -> Result<(), LaunchError> {
        if let Some(cgroup) = &self.cgroup {
            let as_one = self.setup.cgroups.as_ref().is_some_and(|base| base.kills_steps());
            spec.cgroup = Some(cgroup.create_step(spec.step.step, mem_mb, as_one)?);
        }
        Ok(())
    }

    fn launch(&mut self, mut spec: LaunchSpec, fds: Vec<OwnedFd>, ctx: &mut Context<Self>) {
        let step = spec.step.step;
        spec.oom_score_adj = self.setup.oom_score_adj;
        let copies = fds.iter().map(OwnedFd::try_clone).collect::<Result<Vec<_>, _>>();
        break_point::reach("launch begins");
        break_point::hang_at("launch hangs");
        let launched = self.setup.launcher.launch(&spec, fds);
        break_point::reach("launch sent");
        match launched {
            Ok(handle) => {
                let tries = self.steps.get(&step).map_or(0, |live| live.tries) + 1;
                self.follow(step, handle, ctx);
                if let Some(live) = self.steps.get_mut(&step) {
                    live.tries = tries;
                    live.retry = copies.ok().map(|fds| Box::new(Retry { spec, fds }));
                }
            }
            Err(e) => self.launch_failed(step, &e, ctx),
        }
    }

    /// Listens to a step from now on.
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

    /// What became of a step whose connection is gone, or that an earlier daemon had launched.
    pub(super) fn look_again(&mut self, step: StepId, at_start: bool, ctx: &mut Context<Self>) {
        let job_dir = self.setup.paths.job_dir(self.id);
        match adopt::inspect(&job_dir, step, self.run()) {
            Ok(Adoption::Running(handle)) => self.follow(step, handle, ctx),
            Ok(Adoption::Ended(record)) => self.step_over(step, *record, None, ctx),
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
            // It may run: that the host cannot look now says nothing of it.
            Err(e) if host_fault(&e).is_some() => {
                log::warn!("job {}: {e}; it is looked at again", self.key(step));
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

    fn lost(&mut self, step: StepId, ctx: &mut Context<Self>) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.step(step).kill();
        }
        let killed = adopt::kill_leftovers(self.setup.paths.root(), self.key(step));
        log::error!(
            "job {}: the process that watched it is gone; {killed} processes of it were killed",
            self.key(step)
        );
        // Nobody knows how it would have ended: what was left of it was killed, and whoever waits
        // for it is told so.
        let record = ExitRecord::gone(ExitCode::signal(libc::SIGKILL), (self.setup.clock)());
        self.step_over(step, record, Some(EndCause::RunnerLost), ctx);
    }

    pub(super) fn launch_job(&mut self, m: LaunchJob, ctx: &mut Context<Self>) {
        self.begin(m.job, m.host, ctx);
        if self.ladder.stopping.is_some() {
            return self.end_if_empty(ctx);
        }
        let mark = Arc::clone(&self.setup.mark);
        let _underway = mark.begin(self.key(StepId::Batch));
        self.clear_way();
        let made = self.make_cgroup();
        let Some(job) = &self.job else { return };
        let mut spec =
            launch_plan::batch_launch(job, &self.host, &self.setup.paths, m.texts, m.ranks);
        if let Err(e) = made.and_then(|()| self.place(&mut spec, None)) {
            // Nobody waits for a batch job: the watcher tells it where its user looks.
            spec.broken = Some(e.to_string());
        }
        self.launch(spec, Vec::new(), ctx);
    }

    pub(super) fn open_allocation(&mut self, m: OpenAllocation, ctx: &mut Context<Self>) {
        self.begin(m.job, m.host, ctx);
        self.clear_way();
        if let Err(e) = self.make_cgroup() {
            log::error!("job {}: {e}", self.id);
            if self.job.as_ref().is_some_and(|job| job.holder().is_some()) {
                // Its client is about to launch something, and is told then.
                self.broken = Some(e.to_string());
                return;
            }
            let record = ExitRecord::launch_failed(e.to_string(), (self.setup.clock)());
            self.finish(record, EndCause::LaunchFailed, ctx);
        }
    }

    pub(super) fn adopt_job(&mut self, m: AdoptJob, ctx: &mut Context<Self>) {
        // Of its manager's steps the manager tells.
        let live: Vec<StepId> = m
            .job
            .steps
            .iter()
            .filter(|s| !s.state.is_terminal() && !s.managed)
            .map(|s| s.id)
            .collect();
        self.ladder.adopt(&m.job.run, (self.setup.clock)(), clock::monotonic());
        self.take(m.job, m.host, ctx);
        // Where it was made, whatever the base is by now.
        let noted = job_dirs::cgroup(&self.setup.paths.job_dir(self.id)).map(JobCgroup::at);
        self.cgroup = noted.or_else(|| self.setup.cgroups.as_ref()?.job(self.id).ok());
        // The daemon before may have died between the record of another size and its limits.
        if let Some(alloc) = self.job.as_ref().and_then(|job| job.run.alloc.clone()) {
            self.limit(&alloc);
        }
        // The script last: where all has ended, the job is over with it.
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
