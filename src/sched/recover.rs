//! The state after a restart of the daemon, from the records alone.
//!
//! Nothing is decided anew: running jobs keep their CPUs and GPUs, what was COMPLETING still is, and what pending jobs
//! wait for is worked out from what the store knows of their targets.

use super::core::Core;
use super::depend::Known;
use super::room::Part;
use super::types::{Config, EndedJob, StopCause};
use crate::model::{ArrayRole, Job, JobId, JobState, Reason, StepId, Timestamp};

impl Core {
    /// `jobs`: every record that has not ended, and those that ended within `min_job_age_secs`, with their steps.
    /// `ended`: what the store knows of the `dependency_targets` of the pending ones. `next_id`: the number that the
    /// store would give next.
    pub fn recover(
        config: Config,
        jobs: Vec<Job>,
        ended: Vec<EndedJob>,
        next_id: JobId,
        now: Timestamp,
    ) -> Core {
        let mut core = Core::new(config);
        let known = Known::new(&ended);
        core.next_id = next_id.0.max(1);
        let mut ids = Vec::with_capacity(jobs.len());
        for job in jobs {
            core.next_id = core.next_id.max(job.id.0.saturating_add(1));
            ids.push(job.id);
            core.restore(job);
        }
        ids.sort_unstable();
        for id in &ids {
            core.readopt(*id);
        }
        let start = |core: &Core, id: &JobId| core.job(*id).and_then(|job| job.run.start);
        let mut running: Vec<JobId> = core.active.iter().copied().collect();
        running.sort_by_key(|id| (start(&core, id), *id));
        for id in running {
            core.starts += 1;
            if let Some(record) = core.jobs.get_mut(&id) {
                record.start_order = core.starts;
            }
        }
        core.learn(&known);
        for id in &ids {
            core.set_waits(*id, &known);
        }
        for id in &ids {
            core.refresh(*id, now);
            core.arm(*id, now);
        }
        core
    }

    /// A job that ended too long ago to be in memory is there again, for what is to be done to it now. It leaves at the
    /// next look at what is due, unless it is queued again meanwhile.
    pub fn recall(&mut self, job: Job) {
        if job.run.state.is_terminal() && !self.jobs.contains_key(&job.id) {
            let id = job.id;
            self.restore(job);
            self.readopt(id);
        }
    }

    /// A record of the store. The number of its next step is found from the steps.
    fn restore(&mut self, mut job: Job) {
        let numbered = job.steps.iter().filter_map(|step| match step.id {
            StepId::Num(number) => Some(number.saturating_add(1)),
            StepId::Batch | StepId::Interactive => None,
        });
        job.next_step = job.next_step.max(numbered.max().unwrap_or(0)).max(job.first_step());
        // Of a job that has not ended: its end says nothing of them.
        job.steps.retain(|step| {
            !step.managed || !step.state.is_terminal() || job.run.state.is_terminal()
        });
        self.add_record(job, None);
    }

    /// The jobs that were being stopped when the daemon went, and why: their ladders have to be run again.
    pub fn unfinished_stops(&self) -> Vec<(JobId, StopCause)> {
        let completing = |job: &&Job| job.run.state == JobState::Completing;
        let jobs = self.active.iter().filter_map(|id| self.job(*id)).filter(completing);
        jobs.map(|job| {
            let cause = match (job.run.cancelled_by, job.run.reason) {
                (Some(by), _) => StopCause::Cancelled { by },
                (None, Reason::Requeued) => StopCause::Requeue,
                (None, Reason::ClientLost) => StopCause::ClientLost,
                (None, Reason::DeadLine) => StopCause::Deadline,
                (None, Reason::TimeLimit) => StopCause::TimeLimit,
                (None, Reason::NodeDown) => StopCause::NodeDown,
                (None, _) => StopCause::Released,
            };
            (job.id, cause)
        })
        .collect()
    }

    fn readopt(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id).map(|record| &record.job) else { return };
        if job.run.state.is_active() {
            if let Some(part) = Part::of(job, &self.config) {
                self.ledger.take(id, part);
            }
        } else if job.run.state.is_terminal() {
            let submitted = job.submit;
            self.forget_later(id, submitted);
            self.note_terminal(id);
            return;
        }
        let has_begun = job.run.start.is_some() || job.run.restarts > 0;
        let (ArrayRole::Task { array_job, task }, true) = (&job.role, has_begun) else { return };
        let begun = job.run.start.unwrap_or(job.submit);
        if let Some(group) = self.arrays.get_mut(array_job) {
            group.note_begun(*task, begun);
            group.last_served = group.last_served.max(id.0);
        }
    }
}
