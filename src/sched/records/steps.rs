//! The steps of the records: how they start and end.

use super::Records;
use crate::types::{Cx, EndCause};
use slotd_model::change::Change;
use slotd_model::job::ClientProcess;
use slotd_model::step_request::StepKind;
use slotd_model::tres::{Allocation, Usage};
use slotd_model::{
    ClockBase, End, ExitCode, ExitRecord, Job, JobId, JobState, Reason, Refusal, Step, StepId,
    StepKey, StepRequest, Timestamp, Tres,
};
use std::time::Duration;

impl Records {
    /// Returns whether this step of the job exists and has not ended.
    pub fn has_live_step(&self, job: JobId, step: StepId) -> bool {
        let Some(job) = self.job(job) else { return false };
        // The batch script or command has no entry of its own: it lives as long as the job.
        let is_own = job.own_step_id() == Some(step) && job.run.state.is_active();
        is_own || job.steps.iter().any(|known| known.id == step && !known.state.is_terminal())
    }

    /// Returns the step that this process requested.
    pub fn step_of(&self, job: JobId, client: ClientProcess) -> Option<&Step> {
        self.job(job)?.steps.iter().rev().find(|step| step.client == Some(client))
    }

    /// Returns whether this is a running step of the job's manager.
    pub fn is_managed_step(&self, id: JobId, step: StepId) -> bool {
        self.job(id)
            .is_some_and(|job| job.steps.iter().any(|known| known.id == step && known.managed))
    }

    /// Returns the running steps that share their resources with other steps.
    pub fn sharing_steps(&self, id: JobId) -> Vec<StepId> {
        let Some(job) = self.job(id) else { return Vec::new() };
        let shares = job
            .steps
            .iter()
            .filter(|step| step.overlap && !step.managed && !step.state.is_terminal());
        shares.map(|step| step.id).collect()
    }

    /// Returns the resources that a shrinking job still has to give up.
    pub fn owed(&self, id: JobId) -> Tres {
        let Some(job) = self.job(id).filter(|job| job.run.shrinks) else { return Tres::ZERO };
        job.run.alloc.as_ref().map_or(Tres::ZERO, |alloc| alloc.tres.minus(&job.tres))
    }

    /// Adds a step to a running job.
    pub(crate) fn add_step(
        &mut self,
        id: JobId,
        ask: &StepRequest,
        client: Option<ClientProcess>,
        alloc: Allocation,
        cx: &mut Cx,
    ) -> Option<StepKey> {
        let clock = self.clock();
        let step = self.edit(id, |job| new_step(job, ask, client, alloc, clock, cx.now))?;
        let key = StepKey { job: id, step: step.id };
        // The next step number is restored from the steps, so the record need not be written.
        cx.out.changes.push(Change::PutStep { job: id, step: Box::new(step) });
        Some(key)
    }

    /// Notes who cancelled a step. It is stored with the step's end; a daemon that dies before that
    /// forgets it.
    pub(crate) fn note_canceller(&mut self, key: StepKey, by: Option<u32>) {
        self.edit(key.job, |job| {
            let is_it = |step: &&mut Step| step.id == key.step && !step.state.is_terminal();
            if let Some(step) = job.steps.iter_mut().rev().find(is_it) {
                step.cancelled_by = step.cancelled_by.or(by);
            }
        });
    }

    /// Sets the time limit of a running step. Returns the time that it leaves, or `None` if there is
    /// no such step. `Some(None)` means no limit of its own.
    pub(crate) fn set_step_limit(
        &mut self,
        key: StepKey,
        limit_secs: Option<u64>,
        cx: &mut Cx,
    ) -> Option<Option<Duration>> {
        let (step, elapsed) = self.edit(key.job, |job| {
            let is_it = |step: &&mut Step| step.id == key.step && !step.state.is_terminal();
            let step = job.steps.iter_mut().rev().find(is_it)?;
            step.time_limit_secs = limit_secs;
            let step = step.clone();
            let elapsed = job.step_elapsed(&step, cx.now);
            Some((step, elapsed))
        })??;
        cx.out.changes.push(Change::PutStep { job: key.job, step: Box::new(step) });
        Some(limit_secs.map(|secs| Duration::from_secs(secs).saturating_sub(elapsed)))
    }

    /// Records the end of a step. Returns false if no such step is running.
    pub fn end_step(
        &mut self,
        key: StepKey,
        ended: &ExitRecord,
        cause: EndCause,
        cx: &mut Cx,
    ) -> bool {
        let end = |job: &mut Job| end_step(job, key.step, ended, cause);
        let Some((step, is_job_changed)) = self.edit(key.job, end).flatten() else { return false };
        cx.out.changes.push(step);
        if is_job_changed {
            self.save(key.job, cx);
        }
        true
    }

    /// Ends the job's remaining steps, for which no report will arrive any more.
    pub(crate) fn close_steps(&mut self, id: JobId, end: End, ended: Timestamp, cx: &mut Cx) {
        let step_end = if end.is_failure() { end } else { End::Cancelled };
        self.edit(id, |job| {
            for step in job.steps.iter_mut().filter(|step| !step.state.is_terminal()) {
                step.state = JobState::Ended(step_end);
                if let Some(since) = job.run.suspended_at {
                    step.add_suspension(since, ended);
                }
                step.end_at(ended);
                cx.out.changes.push(Change::PutStep { job: id, step: Box::new(Step::clone(step)) });
            }
        });
    }

    /// Records the current state of steps that the job's manager runs, in this run of the job.
    ///
    /// # Errors
    /// Fails if the job does not exist or has ended, or if the report is from an earlier run of it.
    pub fn record_steps(
        &mut self,
        id: JobId,
        run: u32,
        steps: Vec<Step>,
        cx: &mut Cx,
    ) -> Result<(), Refusal> {
        let job = self.job(id).ok_or(Refusal::UnknownJob)?;
        if !job.run.state.is_active() || job.run.restarts != run {
            return Err(Refusal::AlreadyDone);
        }
        let derived = job.run.derived_exit;
        let derived_now = self.edit(id, |job| {
            for step in steps {
                record_step(job, step, cx);
            }
            job.run.derived_exit
        });
        if derived_now != Some(derived) {
            self.save(id, cx);
        }
        Ok(())
    }
}

/// Returns the exit code of the command that an allocation's client ran, if `step` is that command
/// and the client was still alive when it ended.
pub(crate) fn end_of_command(job: &Job, step: &Step) -> Option<ExitCode> {
    let is_command = step.client.is_some() && step.client == job.holder();
    (is_command && step.state.is_terminal() && !step.client_gone).then_some(step.exit)
}

fn new_step(
    job: &mut Job,
    ask: &StepRequest,
    client: Option<ClientProcess>,
    alloc: Allocation,
    clock: ClockBase,
    now: Timestamp,
) -> Step {
    let id = match ask.kind {
        StepKind::Interactive => StepId::Interactive,
        StepKind::Numbered => {
            job.next_step += 1;
            StepId::Num(job.next_step - 1)
        }
    };
    let step = Step {
        name: ask.name.clone(),
        ntasks: ask.tasks(&job.request),
        alloc,
        submit_line: ask.submit_line.clone(),
        overlap: ask.is_shared(),
        time_limit_secs: ask.time_limit_secs,
        client,
        clock: Some(clock),
        ..Step::started(id, now)
    };
    // A new interactive step replaces the previous one.
    if id == StepId::Interactive {
        job.steps.retain(|old| old.id != id);
    }
    job.add_step(step.clone());
    step
}

/// Ends a step. Returns the change to record and whether the job has changed with it, or `None` if
/// no such step is running.
fn end_step(
    job: &mut Job,
    id: StepId,
    ended: &ExitRecord,
    cause: EndCause,
) -> Option<(Change, bool)> {
    // A step that ended before its client did was not stopped because of the client.
    let is_orphaned = job.run.reason == Reason::ClientLost;
    let is_stopping = job.run.state == JobState::Completing && (!is_orphaned || ended.client_gone);
    let step = job
        .steps
        .iter_mut()
        .rev()
        .find(|step| step.id == id)
        .filter(|step| !step.state.is_terminal())?;
    if cause == EndCause::NeverLaunched {
        // The step never existed: its client requests it again, and nobody else has seen it.
        job.steps.retain(|step| step.id != id);
        if id == StepId::Num(job.next_step.saturating_sub(1)) {
            job.next_step -= 1;
        }
        return Some((Change::DropStep { job: job.id, step: id }, false));
    }
    let end = match cause {
        // As in Slurm: a step that a signal ended, whoever sent it, is CANCELLED, and one that
        // catches the signal and exits with a code of its own is FAILED.
        EndCause::Exited | EndCause::Stopped if ended.exit.signal != 0 => End::Cancelled,
        EndCause::Exited | EndCause::Stopped if ended.exit.is_success() => End::Completed,
        EndCause::Exited
        | EndCause::Stopped
        | EndCause::LaunchFailed
        | EndCause::HostFault
        | EndCause::RunnerLost => End::Failed,
        EndCause::TimeLimit => End::Timeout,
        EndCause::OutOfMemory => End::OutOfMemory,
        EndCause::NodeFailed => End::NodeFail,
        EndCause::NeverLaunched => End::Cancelled,
    };
    step.state = JobState::Ended(end);
    step.exit = ended.exit;
    step.client_gone = ended.client_gone;
    step.usage = Usage { gpu: step.usage.gpu, ..ended.usage };
    if let Some(clock) = ended.clock {
        step.catch_up(clock);
    }
    if let Some(since) = job.run.suspended_at {
        step.add_suspension(since, ended.ended);
    }
    step.end_at(ended.ended);
    let step = step.clone();
    let command = end_of_command(job, &step).filter(|_| is_orphaned);
    if let Some(exit) = command {
        // The client had finished with the allocation, but no daemon was running to be notified.
        (job.run.reason, job.run.exit) = (Reason::None, exit);
    }
    let derived = job.run.derived_exit;
    if !is_stopping {
        job.run.derived_exit = derived.derived_with(ended.exit);
    }
    let is_job_changed = command.is_some() || job.run.derived_exit != derived;
    Some((Change::PutStep { job: job.id, step: Box::new(step) }, is_job_changed))
}

/// Records a manager's report about one of its steps.
fn record_step(job: &mut Job, step: Step, cx: &mut Cx) {
    let StepId::Num(number) = step.id else { return };
    let place = job.steps.iter().position(|known| known.id == step.id);
    let is_others = place.is_some_and(|at| !job.steps[at].managed);
    if number >= job.next_step || is_others {
        return;
    }
    let mut step = Step { managed: true, client: None, ..step };
    // The manager is suspended together with its step, and cannot measure for how long.
    if let Some(at) = place {
        step.suspended_us = job.steps[at].suspended_us;
        step.cancelled_by = step.cancelled_by.or(job.steps[at].cancelled_by);
    }
    if let (Some(since), Some(end)) = (job.run.suspended_at, step.end) {
        step.add_suspension(since, end);
    }
    if step.state.is_terminal() {
        if let Some(at) = place {
            job.steps.swap_remove(at);
        }
        if job.run.state != JobState::Completing {
            job.run.derived_exit = job.run.derived_exit.derived_with(step.exit);
        }
    } else {
        match place {
            Some(at) => job.steps[at] = step.clone(),
            None => job.add_step(step.clone()),
        }
    }
    cx.out.changes.push(Change::PutStep { job: job.id, step: Box::new(step) });
}
