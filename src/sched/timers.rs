//! What becomes due by the clock alone: begin times, `after:id+minutes`, deadlines, `--immediate`, and forgetting.
//!
//! An idle core is never due: ended records leave the memory at the next round, whenever that is.

use super::core::Core;
use super::lifecycle::Ending;
use super::types::{Cx, StopCause};
use crate::model::{Job, JobId, JobState, Reason, Timestamp};

/// Ended records that stay in memory at most. The store has them all; a large array must not fill the memory with
/// tasks that have ended.
pub const ENDED_IN_MEMORY: usize = 10_000;

/// Whether its `--deadline` can no longer be kept.
pub(super) fn is_late(job: &Job, now: Timestamp) -> bool {
    job.deadline().is_some_and(|deadline| deadline <= now)
}

impl Core {
    /// The earliest moment at which `on_due` has something to do; `None`: sleep until a fact comes.
    pub fn next_due(&self) -> Option<Timestamp> {
        let readings = self.next_gpu_reading().into_iter().chain(self.next_cpu_reading());
        self.timers
            .first()
            .map(|(at, _)| *at)
            .into_iter()
            .chain(self.next_probe())
            .chain(readings)
            .min()
    }

    /// What has become due by `now`. The caller plans afterwards.
    pub fn on_due(&mut self, cx: &mut Cx) {
        while let Some(&(at, id)) = self.timers.first() {
            if at > cx.now {
                break;
            }
            self.timers.pop_first();
            self.due(id, cx);
        }
        self.ask_gpus_by_clock(cx.now);
        self.ask_cpus_by_clock(cx.now);
        self.settle(cx);
    }

    /// Sets the timers of a record.
    pub(super) fn arm(&mut self, id: JobId, now: Timestamp) {
        let Some(record) = self.jobs.get(&id) else { return };
        let job = &record.job;
        let is_pending = job.run.state == JobState::Pending;
        let begin = job.request.begin.filter(|begin| is_pending && *begin > now);
        let depends = record.waits.as_ref().and_then(|waits| waits.next_due(now));
        let deadline = job
            .deadline()
            .filter(|_| !job.run.state.is_terminal() && job.run.state != JobState::Completing);
        let immediate = job
            .request
            .immediate_secs
            .filter(|_| is_pending)
            .map(|secs| job.submit.plus_secs(secs));
        let opens = self.opens(job, now).filter(|_| is_pending);
        let mail = self.limit_mail_due(job);
        for at in [begin, depends, deadline, immediate, opens, mail].into_iter().flatten() {
            if at > now {
                self.timers.insert((at, id));
            } else if Some(at) == immediate {
                self.expiring.insert(id);
            } else {
                // A deadline that has passed already: the next look at the clock finds it.
                self.timers.insert((now, id));
            }
        }
    }

    fn due(&mut self, id: JobId, cx: &mut Cx) {
        let Some(job) = self.job(id) else { return };
        let is_late = is_late(job, cx.now);
        let is_impatient =
            job.request.immediate_secs.is_some_and(|secs| job.submit.plus_secs(secs) <= cx.now);
        match job.run.state {
            JobState::Pending if is_late => {
                self.end_pending(id, Ending::cancelled(Reason::DeadLine, None), cx);
            }
            JobState::Pending => {
                if is_impatient {
                    self.expiring.insert(id);
                }
                self.refresh(id, cx.now);
                let record = self.jobs.get(&id);
                let depends = record.and_then(|record| record.waits.as_ref()?.next_due(cx.now));
                let opens = record.and_then(|record| self.opens(&record.job, cx.now));
                self.timers.extend([depends, opens].into_iter().flatten().map(|at| (at, id)));
            }
            JobState::Running | JobState::Suspended if is_late => {
                self.stop(id, Reason::DeadLine, StopCause::Deadline, cx);
            }
            JobState::Running => {
                self.tell_limit_by_clock(id, cx.now);
                let next = self.job(id).and_then(|job| self.limit_mail_due(job));
                self.timers.extend(next.map(|at| (at, id)));
            }
            JobState::Suspended
            | JobState::Completing
            | JobState::Completed
            | JobState::Failed
            | JobState::Cancelled
            | JobState::Timeout
            | JobState::OutOfMemory
            | JobState::NodeFail => {}
        }
    }

    /// A pending job that can no longer end before its deadline is cancelled rather than started.
    pub(super) fn drop_if_late(&mut self, id: JobId, cx: &mut Cx) {
        if self
            .job(id)
            .is_some_and(|job| job.run.state == JobState::Pending && is_late(job, cx.now))
        {
            self.end_pending(id, Ending::cancelled(Reason::DeadLine, None), cx);
        }
    }

    /// Ends the jobs that were to start at once or not at all, and have not. Called at the end of a round.
    pub(super) fn expire_immediate(&mut self, cx: &mut Cx) {
        for id in std::mem::take(&mut self.expiring) {
            if self.job(id).is_some_and(|job| job.run.state == JobState::Pending) {
                self.end_pending(id, Ending::cancelled(Reason::Resources, None), cx);
            }
        }
    }

    /// The end of a record is in the database: it may leave the memory when it is old enough. Until then nobody else
    /// knows of it.
    pub fn end_is_stored(&mut self, id: JobId, cx: &mut Cx) {
        // An end may be learnt of late: whoever has just read an older record still finds it here.
        self.forget_later(id, cx.now);
        self.purge(cx);
    }

    pub(super) fn forget_later(&mut self, id: JobId, known: Timestamp) {
        if let Some(job) = self.job(id).filter(|job| job.run.state.is_terminal()) {
            let end = job.run.end.unwrap_or(job.submit).max(known);
            let gone = end.plus_secs(self.config.min_job_age_secs);
            self.purges.insert((gone, id));
        }
    }

    /// Forgets the records that have ended long enough ago, and the oldest ones where there are very many.
    pub(super) fn purge(&mut self, cx: &mut Cx) {
        while let Some(&(at, id)) = self.purges.first() {
            let is_crowded = self.purges.len() > ENDED_IN_MEMORY;
            if at > cx.now && !is_crowded {
                break;
            }
            self.purges.pop_first();
            // The entry is out of date where the job was requeued since.
            let age = self.config.min_job_age_secs;
            let is_over = self.job(id).is_some_and(|job| {
                let is_old = job.run.end.is_none_or(|end| end.plus_secs(age) <= cx.now);
                job.run.state.is_terminal() && (is_old || is_crowded)
            });
            if is_over {
                self.forget(id, cx);
            }
        }
    }
}
