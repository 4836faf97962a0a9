//! Steps that a job's own manager starts (`sjobmgr`): nobody asks here for each of them. The
//! manager is told what it has of the job and which numbers its steps may have, and tells what
//! became of them, some at a time.
//!
//! A record counts once, by its number: it replaces what was known of the step. Those that have
//! ended are not kept in memory, for there may be very many: they are in the database.

use super::core::Core;
use super::types::Cx;
use crate::model::job::ClientProcess;
use crate::model::resize::ManagersPart;
use crate::model::tres::Allocation;
use crate::model::{Job, JobId, JobRef, JobState, Refusal, Step, StepId, Tres};
use std::time::Duration;

/// Numbers that a manager may ask for at once.
const MOST_NUMBERS: u32 = 10_000_000;

impl Core {
    /// This process manages the job from now on. Other steps that want resources for themselves
    /// wait until it is gone. `within` is the step that it is a process of, if it is one. Asked
    /// again, it gets more numbers. The first of them, and how many.
    ///
    /// # Errors
    /// The job does not run, or another process manages it.
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
            // The numbers are given once, whatever becomes of the manager.
            self.records.save(id, cx);
        }
        Ok((first, count))
    }

    /// The manager has ended, and the numbers from `unused` on were not used, if it says so.
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

    /// As [`Records::record_steps`].
    pub fn record_steps(
        &mut self,
        id: JobId,
        run: u32,
        steps: Vec<Step>,
        cx: &mut Cx,
    ) -> Result<(), Refusal> {
        self.records.record_steps(id, run, steps, cx)
    }

    /// The jobs of which this may name a step that their managers have started, and not told of
    /// yet.
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

    /// What the manager of a job has now; `None` where it has none.
    pub fn managers_part(&self, id: JobId) -> Option<ManagersPart> {
        let (_, within) = self.resources.managers().get(id)?;
        let job = self.job(id)?;
        Some(ManagersPart {
            alloc: left_for_manager(job, within),
            owed: self.records.owed(id),
            whole: job.run.alloc.as_deref().cloned().unwrap_or_default(),
            end_us: self.end_of_time(id).and_then(|end| u64::try_from(end.as_micros()).ok()),
            suspended_us: job.run.suspended_us,
        })
    }

    /// When the time limit of a running job ends it, by the monotonic clock.
    fn end_of_time(&self, id: JobId) -> Option<Duration> {
        let job = self.job(id)?;
        let limit = Duration::from_secs(job.request.time_limit_secs?);
        Some(job.run.started_at()? + limit + Duration::from_micros(job.run.suspended_us))
    }
}

/// What of a job no step of another client has for itself.
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
