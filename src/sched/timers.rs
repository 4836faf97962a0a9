//! Events that depend on the clock alone: begin times, `after:id+minutes`, deadlines,
//! `--immediate`, and removing records from memory.
//!
//! A core without records has no timers.

use super::core::Core;
use super::ending::Ending;
use super::types::{Cx, StopCause};
use slotd_model::{JobId, JobState, Reason, Timestamp};

impl Core {
    /// Returns the earliest time at which `on_due` has something to do. With `None`, sleep until
    /// the next fact.
    pub fn next_due(&self) -> Option<Timestamp> {
        let readings = self.next_readings();
        let probe =
            self.resources.node().next_probe().filter(|_| self.line.queue().first().is_some());
        let node = probe.into_iter().chain(self.resources.node().next_cgroup_check());
        let forgetting = self.records.next_forgetting();
        let timer = self.line.next_timer();
        let period = self.next_period();
        timer.into_iter().chain(period).chain(forgetting).chain(node).chain(readings).min()
    }

    /// Handles everything that is due by now. The caller plans afterwards.
    pub fn on_due(&mut self, cx: &mut Cx) {
        self.follow_clock(cx);
        self.follow_reservations(cx);
        while let Some(id) = self.line.take_due(cx.now) {
            self.due(id, cx);
        }
        self.purge(cx);
        self.ask_by_clock(cx.now);
        self.settle(cx);
    }

    fn due(&mut self, id: JobId, cx: &mut Cx) {
        let Some(job) = self.job(id) else { return };
        let is_late = job.is_late(cx.now);
        let is_impatient =
            job.request.immediate_secs.is_some_and(|secs| job.submit.plus_secs(secs) <= cx.now);
        match job.run.state {
            JobState::Pending if is_late => {
                self.end_pending(id, Ending::cancelled(Reason::DeadLine, None), cx);
            }
            JobState::Pending => {
                if is_impatient {
                    self.line.expire(id);
                }
                self.refresh(id, cx.now);
                let record = self.records.get(id);
                let depends = record.and_then(|record| record.waits.as_ref()?.next_due(cx.now));
                let opens = record.and_then(|record| self.resources.opens(&record.job, cx.now));
                [depends, opens].into_iter().flatten().for_each(|at| self.line.wake(id, at));
            }
            JobState::Running | JobState::Suspended if is_late => {
                self.stop(id, Reason::DeadLine, StopCause::Deadline, cx);
            }
            JobState::Running | JobState::Suspended if self.is_grace_over(id, cx.now) => {
                self.end_grace(id, cx);
            }
            JobState::Running => {
                let Some(job) = self.records.job(id) else { return };
                self.notifications.notify_limit_by_clock(job, cx.now);
                if let Some(at) = self.notifications.limit_mail_due(job) {
                    self.line.wake(id, at);
                }
            }
            JobState::Suspended | JobState::Completing | JobState::Ended(_) => {}
        }
    }

    /// Ends the jobs with `--immediate` that could not start at once. Called at the end of a round.
    pub(super) fn expire_immediate(&mut self, cx: &mut Cx) {
        for id in self.line.take_expiring() {
            if self.job(id).is_some_and(|job| job.run.state == JobState::Pending) {
                let reason = match self.reason(id, cx.now) {
                    Reason::Licenses => Reason::Licenses,
                    _ => Reason::Resources,
                };
                self.end_pending(id, Ending::cancelled(reason, None), cx);
            }
        }
    }

    /// Notes that the end of a record is in the database, so that the record may leave the memory
    /// when it is old enough. Until then nobody else knows of its end.
    pub fn end_is_stored(&mut self, id: JobId, cx: &mut Cx) {
        // The end may be reported late: a reader that has just read an older record still finds the
        // job here.
        self.forget_later(id, cx.now);
        self.purge(cx);
    }

    pub(super) fn forget_later(&mut self, id: JobId, known: Timestamp) {
        self.records.forget_later(id, known, self.resources.config().min_job_age_secs);
    }

    /// Forgets the records that ended long enough ago, and the oldest ones if there are too many.
    pub(super) fn purge(&mut self, cx: &mut Cx) {
        while let Some(id) =
            self.records.take_overdue(self.resources.config().min_job_age_secs, cx.now)
        {
            self.forget(id, cx);
        }
    }
}
