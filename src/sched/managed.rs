//! Steps that a job's own manager starts (`sjobmgr`): nobody asks here for each of them. The manager is told what it has of
//! the job and which numbers its steps may have, and tells what became of them, some at a time.
//!
//! A record counts once, by its number: it replaces what was known of the step. Those that have ended are not kept in
//! memory, for there may be very many: they are in the database.

use super::core::Core;
use super::types::{Cx, Effect};
use crate::model::change::Change;
use crate::model::job::ClientProcess;
use crate::model::resize::{ManagersPart, PartChange};
use crate::model::tres::Allocation;
use crate::model::{Job, JobId, JobRef, JobState, Refusal, Step, StepId, Tres};
use std::time::Duration;

/// Numbers that a manager may ask for at once.
const MOST_NUMBERS: u32 = 10_000_000;

impl Core {
    /// This process manages the job from now on. Other steps that want resources for themselves wait until it is gone.
    /// `within` is the step that it is a process of, if it is one. Asked again, it gets more numbers. The first of them, and
    /// how many.
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
        let record = self.jobs.get_mut(&id).ok_or(Refusal::UnknownJob)?;
        match record.job.run.state {
            JobState::Running | JobState::Suspended => {}
            JobState::Pending => return Err(Refusal::Pending),
            JobState::Completing
            | JobState::Completed
            | JobState::Failed
            | JobState::Cancelled
            | JobState::Timeout
            | JobState::OutOfMemory
            | JobState::NodeFail => return Err(Refusal::AlreadyDone),
        }
        if let Some((other, _)) = self.managers.get(&id).filter(|(known, _)| *known != process) {
            return Err(Refusal::Managed { pid: other.pid });
        }
        let count = count.min(MOST_NUMBERS);
        let first = record.job.next_step;
        record.job.next_step = first.saturating_add(count);
        self.managers.insert(id, (process, within));
        if count > 0 {
            // The numbers are given once, whatever becomes of the manager.
            self.save(id, cx);
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
        if self.managers.get(&id).is_none_or(|(known, _)| *known != process) {
            return;
        }
        self.managers.remove(&id);
        // The next one says itself what its steps do not use.
        self.spares.remove(&id);
        if let (Some((first, count)), Some(record)) = (unused, self.jobs.get_mut(&id))
            && record.job.next_step == first.saturating_add(count)
            && count > 0
        {
            record.job.next_step = first;
            self.save(id, cx);
        }
        self.give_back_idle(id, cx);
        self.start_waiting_steps(id, cx);
    }

    /// Who manages the job, if somebody does.
    pub fn manager(&self, id: JobId) -> Option<ClientProcess> {
        self.managers.get(&id).map(|(process, _)| *process)
    }

    /// Whether a step of this job could not have anything for itself, since all is its manager's.
    pub(super) fn is_managed(&self, id: JobId) -> bool {
        self.managers.contains_key(&id)
    }

    /// Whether this is a running step of the job's manager.
    pub fn is_managed_step(&self, id: JobId, step: StepId) -> bool {
        self.job(id)
            .is_some_and(|job| job.steps.iter().any(|known| known.id == step && known.managed))
    }

    /// The jobs of which this may name a step that their managers have started, and not told of yet.
    pub fn may_run_step(&self, sel: &JobRef) -> Vec<(JobId, u32)> {
        let Some(StepId::Num(number)) = sel.step else { return Vec::new() };
        let may_run = |id: &JobId| {
            self.is_managed(*id)
                && self.job(*id).is_some_and(|job| number < job.next_step)
                && !self.has_live_step(*id, StepId::Num(number))
        };
        let jobs = self.resolve(&JobRef { step: None, ..sel.clone() });
        jobs.into_iter().filter(may_run).map(|id| (id, number)).collect()
    }

    /// What the manager of a job has now; `None` where it has none.
    pub fn managers_part(&self, id: JobId) -> Option<ManagersPart> {
        let (_, within) = self.managers.get(&id)?;
        let job = self.job(id)?;
        Some(ManagersPart {
            alloc: left_for_manager(job, *within),
            owed: self.owed(id),
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

    /// The manager hears of it where it has more of the job than before, or less.
    pub(super) fn tell_manager(&self, id: JobId, why: PartChange, cx: &mut Cx) {
        if self.is_managed(id) {
            cx.out.effects.push(Effect::ManagerChanged(id, why));
        }
    }

    /// What became of steps of the job's manager in this run of the job, each as it is now.
    ///
    /// # Errors
    /// The job is not there or has ended, or this was an earlier run of it.
    pub fn record_steps(
        &mut self,
        id: JobId,
        run: u32,
        steps: Vec<Step>,
        cx: &mut Cx,
    ) -> Result<(), Refusal> {
        let job = &mut self.jobs.get_mut(&id).ok_or(Refusal::UnknownJob)?.job;
        if !job.run.state.is_active() || job.run.restarts != run {
            return Err(Refusal::AlreadyDone);
        }
        let is_stopping = job.run.state == JobState::Completing;
        let derived = job.run.derived_exit;
        for step in steps {
            let StepId::Num(number) = step.id else { continue };
            let place = job.steps.iter().position(|known| known.id == step.id);
            let is_others = place.is_some_and(|at| !job.steps[at].managed);
            if number >= job.next_step || is_others {
                continue;
            }
            let mut step = Step { managed: true, client: None, ..step };
            // Its manager stands still with it, and does not see for how long.
            if let Some(at) = place {
                step.suspended_us = job.steps[at].suspended_us;
            }
            if let (Some(since), Some(end)) = (job.run.suspended_at, step.end) {
                step.stood_still(since, end);
            }
            if step.state.is_terminal() {
                if let Some(at) = place {
                    job.steps.swap_remove(at);
                }
                if !is_stopping {
                    job.run.derived_exit = job.run.derived_exit.worse(step.exit);
                }
            } else {
                match place {
                    Some(at) => job.steps[at] = step.clone(),
                    None => job.steps.push(step.clone()),
                }
            }
            cx.out.changes.push(Change::PutStep { job: id, step: Box::new(step) });
        }
        if job.run.derived_exit != derived {
            self.save(id, cx);
        }
        Ok(())
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
