//! Steps that a job's own manager (`sjobmgr`) starts without asking for each of them. The manager
//! receives its part of the job and the step numbers to use, and reports on its steps in batches.
//!
//! A report replaces the known state of the step with its number. Ended steps are not kept in
//! memory, because there may be very many; the database has them.

use super::core::Core;
use super::types::Cx;
use slotd_model::job::ClientProcess;
use slotd_model::resize::ManagersPart;
use slotd_model::tres::Allocation;
use slotd_model::{Job, JobId, JobRef, JobState, Refusal, Step, StepId, Tres};
use std::time::Duration;

/// The most step numbers that a manager may request at once.
const MOST_NUMBERS: u32 = 10_000_000;

impl Core {
    /// Makes this process the manager of the job. Other steps that need exclusive resources wait
    /// until the manager has ended. `within` is the step that the process belongs to, if any. A
    /// repeated call assigns more numbers. Returns the first number and the count.
    ///
    /// # Errors
    /// Fails if the job is not running, or if another process manages it.
    pub fn manage(
        &mut self,
        id: JobId,
        process: ClientProcess,
        within: Option<StepId>,
        count: u32,
        cx: &mut Cx,
    ) -> Result<(u32, u32), Refusal> {
        let job = self.job(id).ok_or(Refusal::UnknownJob)?;
        match job.run.state {
            JobState::Running | JobState::Suspended => {}
            JobState::Pending => return Err(Refusal::Pending),
            JobState::Completing | JobState::Ended(_) => return Err(Refusal::AlreadyDone),
        }
        if let Some(other) = self.resources.managers().process(id).filter(|known| *known != process)
        {
            return Err(Refusal::Managed { pid: other.pid });
        }
        let count = count.min(MOST_NUMBERS);
        let first = job.next_step;
        self.records.edit(id, |job| job.next_step = first.saturating_add(count));
        self.resources.managers_mut().set(id, process, within);
        if count > 0 {
            // Numbers are assigned only once, even if the manager dies.
            self.records.save(id, cx);
        }
        Ok((first, count))
    }

    /// Handles the end of the manager. `unused`, if reported, are the first unused step number and
    /// the count.
    pub fn manager_gone(
        &mut self,
        id: JobId,
        process: ClientProcess,
        unused: Option<(u32, u32)>,
        cx: &mut Cx,
    ) {
        if self.resources.managers().process(id) != Some(process) {
            return;
        }
        self.resources.managers_mut().remove(id);
        if let (Some((first, count)), Some(job)) = (unused, self.job(id))
            && job.next_step == first.saturating_add(count)
            && count > 0
        {
            self.records.edit(id, |job| job.next_step = first);
            self.records.save(id, cx);
        }
        self.give_back_idle(id, cx);
        self.start_waiting_steps(id, cx);
    }

    /// See `Records::record_steps`.
    pub fn record_steps(
        &mut self,
        id: JobId,
        run: u32,
        steps: Vec<Step>,
        cx: &mut Cx,
    ) -> Result<(), Refusal> {
        self.records.record_steps(id, run, steps, cx)
    }

    /// Returns the jobs and the number of a step that `sel` may mean, if their managers may have
    /// started it without reporting it yet.
    pub fn may_run_step(&self, sel: &JobRef) -> Vec<(JobId, u32)> {
        let Some(StepId::Num(number)) = sel.step else { return Vec::new() };
        let may_run = |id: &JobId| {
            self.resources.managers().has(*id)
                && self.job(*id).is_some_and(|job| number < job.next_step)
                && !self.records.has_live_step(*id, StepId::Num(number))
        };
        let jobs = self.records.resolve(&JobRef { step: None, ..sel.clone() });
        jobs.into_iter().filter(may_run).map(|id| (id, number)).collect()
    }

    /// Returns the manager's current part of a job, or `None` if the job has no manager.
    pub fn managers_part(&self, id: JobId) -> Option<ManagersPart> {
        let (_, within) = self.resources.managers().get(id)?;
        let job = self.job(id)?;
        Some(ManagersPart {
            alloc: left_for_manager(job, within),
            owed: self.records.owed(id),
            whole: job.run.alloc.as_deref().cloned().unwrap_or_default(),
            end_us: self.end_by_limit(id).and_then(|end| u64::try_from(end.as_micros()).ok()),
            suspended_us: job.run.suspended_us,
        })
    }

    /// Returns when a running job reaches its time limit, by the monotonic clock.
    fn end_by_limit(&self, id: JobId) -> Option<Duration> {
        let job = self.job(id)?;
        let limit = Duration::from_secs(job.request.time_limit_secs?);
        Some(job.run.started_at()? + limit + Duration::from_micros(job.run.suspended_us))
    }
}

/// Returns the part of a job that no step of another client holds exclusively.
pub(super) fn left_for_manager(job: &Job, within: Option<StepId>) -> Allocation {
    let Some(whole) = &job.run.alloc else { return Allocation::default() };
    let is_others = |step: &&Step| {
        !step.state.is_terminal() && !step.overlap && !step.managed && Some(step.id) != within
    };
    let mut left = Allocation::clone(whole);
    for step in job.steps.iter().filter(is_others) {
        let had = &step.alloc;
        left.cpu_ids.retain(|id| !had.cpu_ids.contains(id));
        left.tres.cpus = left.tres.cpus.saturating_sub(had.tres.cpus);
        if had.tres.mem_mb < whole.tres.mem_mb {
            left.tres.mem_mb = left.tres.mem_mb.saturating_sub(had.tres.mem_mb);
        }
        if had.gpu_share.gpus_in(&had.tres) > 0 {
            left.gpu_ids.retain(|id| !had.gpu_ids.contains(id));
            left.tres = left.tres.minus(&Tres { cpus: 0, mem_mb: 0, ..had.tres });
        }
    }
    left
}
