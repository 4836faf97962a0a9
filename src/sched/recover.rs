//! Rebuilds the state after a restart of the daemon from the records alone.
//!
//! No decision is made again: running jobs keep their CPUs and GPUs, COMPLETING jobs stay
//! COMPLETING, and the dependencies of pending jobs are evaluated with the store's records of their
//! targets.

use super::core::Core;
use super::records::depend::Known;
use super::resources::capacity::Part;
use super::types::{Config, EndedJob};
use slotd_model::memo::{MemoBody, MemoKey};
use slotd_model::{Job, JobId, JobState, StepId, Timestamp};

impl Core {
    /// Rebuilds the state. `jobs`: every record that has not ended, and those that ended within
    /// `min_job_age_secs`, with their steps. `ended`: the store's records of the
    /// `dependency_targets` of the pending jobs. `next_id`: the ID that the store would assign
    /// next.
    pub fn recover(
        config: Config,
        jobs: Vec<impl Into<Box<Job>>>,
        ended: Vec<EndedJob>,
        next_id: JobId,
        now: Timestamp,
    ) -> Core {
        let mut core = Core::new(config);
        let known = Known::new(&ended);
        core.records.count_from(next_id);
        let mut ids = Vec::with_capacity(jobs.len());
        let (mut to_readopt, mut dependent) = (Vec::new(), Vec::new());
        for job in jobs.into_iter().map(Into::<Box<Job>>::into) {
            ids.push(job.id);
            if job.run.state != JobState::Pending || job.array_job_id().is_some() {
                to_readopt.push(job.id);
            }
            if !job.request.dependency.is_empty() {
                dependent.push(job.id);
            }
            core.restore(job);
        }
        ids.sort_unstable();
        to_readopt.sort_unstable();
        for id in to_readopt {
            core.readopt(id);
        }
        let mut running: Vec<_> =
            core.records.active_jobs().map(|job| (job.run.start, job.id)).collect();
        running.sort_unstable();
        for (_, id) in running {
            core.records.note_start(id);
        }
        core.records.learn(&known);
        dependent.sort_unstable();
        for id in dependent {
            core.records.set_waits(id, &known);
        }
        for id in &ids {
            core.refresh(*id, now);
            core.arm(*id, now);
        }
        core
    }

    /// Restores the reservations, counters and sent notifications of an earlier daemon. Call it once, after the
    /// recovery.
    pub fn recall_memos(&mut self, memos: Vec<(MemoKey, MemoBody)>, now: Timestamp) {
        let mut reservations = Vec::new();
        let (mut others, mut last) = (Vec::new(), 0);
        for (key, body) in memos {
            match body {
                MemoBody::Reservation(reservation) => reservations.push(*reservation),
                MemoBody::Number(number) => last = number,
                body => others.push((key, body)),
            }
        }
        reservations.sort_by_key(|reservation| reservation.number);
        self.recall_reservations(reservations, last, now);
        self.notifications.recall(&self.records, others, now);
    }

    /// Loads an ended job back into memory for a command on it. It leaves again when timers are
    /// next processed, unless it is requeued before.
    pub fn recall(&mut self, job: Job) {
        if job.run.state.is_terminal() && self.job(job.id).is_none() {
            let id = job.id;
            self.restore(job.into());
            self.readopt(id);
        }
    }

    /// Adds a record from the store. The number of its next step follows from its steps.
    fn restore(&mut self, mut job: Box<Job>) {
        let numbered = job.steps.iter().filter_map(|step| match step.id {
            StepId::Num(number) => Some(number.saturating_add(1)),
            StepId::Batch | StepId::Interactive => None,
        });
        job.next_step = job.next_step.max(numbered.max().unwrap_or(0)).max(job.first_step());
        // For a job that has not ended, nothing needs the ended steps of its manager.
        job.steps.retain(|step| {
            !step.managed || !step.state.is_terminal() || job.run.state.is_terminal()
        });
        self.records.add(job, None);
    }

    fn readopt(&mut self, id: JobId) {
        let Some(job) = self.records.job(id) else { return };
        let (state, submitted) = (job.run.state, job.submit);
        if state.is_active()
            && let Some(part) = Part::of(job, self.resources.config())
        {
            self.resources.take(id, part);
        }
        self.records.note_restored(id);
        self.records.forget_later(id, submitted, self.resources.config().min_job_age_secs);
    }
}
