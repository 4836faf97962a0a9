//! Launches: the job's own, those of its steps, and finding again what an earlier daemon or a dead launcher left.

use super::{LiveStep, RunnerActor, StepNews};
use crate::actors::launch_plan;
use crate::actors::messages::{AdoptJob, LaunchJob, LaunchStep, OpenAllocation};
use crate::exec::{Adoption, LaunchError, LaunchSpec, StepHandle, adopt};
use crate::model::{ExitCode, ExitRecord, StepId};
use crate::sched::EndCause;
use actix::prelude::*;
use std::os::fd::OwnedFd;

/// A launch that got lost with a dying launcher is tried so often.
const LAUNCH_TRIES: u32 = 3;

impl RunnerActor {
    fn make_cgroup(&mut self) -> Result<(), LaunchError> {
        if let (Some(base), Some(job), None) = (&self.setup.cgroups, &self.job, &self.cgroup) {
            let tres = job.run.alloc.as_ref().map_or(job.tres, |alloc| alloc.tres);
            self.cgroup = Some(base.create_job(self.id, &tres)?);
        }
        Ok(())
    }

    /// Names the step's cgroup, where there are cgroups.
    fn place(&self, spec: &mut LaunchSpec, mem_mb: Option<u64>) -> Result<(), LaunchError> {
        if let Some(cgroup) = &self.cgroup {
            spec.cgroup = Some(cgroup.create_step(spec.step.step, mem_mb)?);
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

    pub(super) fn launch_failed(&mut self, step: StepId, why: &str, ctx: &mut Context<Self>) {
        let record = ExitRecord::launch_failed(why.to_owned(), (self.setup.clock)());
        self.step_over(step, record, None, ctx);
    }

    /// What became of a step whose connection is gone, or that an earlier daemon had launched.
    pub(super) fn look_again(&mut self, step: StepId, at_start: bool, ctx: &mut Context<Self>) {
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
}

impl Handler<LaunchJob> for RunnerActor {
    type Result = ();

    fn handle(&mut self, m: LaunchJob, ctx: &mut Self::Context) {
        self.begin(m.job, m.host, ctx);
        if self.ladder.stopping.is_some() {
            return self.end_if_empty(ctx);
        }
        if let Err(e) = self.make_cgroup() {
            return self.launch_failed(StepId::Batch, &e.to_string(), ctx);
        }
        let Some(job) = &self.job else { return };
        let mut spec = launch_plan::batch_launch(job, &self.host, &self.setup.paths, m.texts, m.ranks);
        match self.place(&mut spec, None) {
            Ok(()) => self.launch(spec, Vec::new(), ctx),
            Err(e) => self.launch_failed(StepId::Batch, &e.to_string(), ctx),
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
                self.broken = Some(e.to_string());
                return;
            }
            let record = ExitRecord::launch_failed(e.to_string(), (self.setup.clock)());
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
            Err(e) => self.launch_failed(step, &e.to_string(), ctx),
        }
    }
}
