//! Crontabs: jobs that recur.
//!
//! An entry is an ordinary job. Its request contains its recurrence, and its next time is its begin
//! time. When it ends, it is requeued for the time after that. It recurs only while the crontab of
//! its user lists it. Any number of missed times leads to one late run.

use super::core::Core;
use super::ending::Ending;
use super::types::{Cx, Submission};
use slotd_model::change::Change;
use slotd_model::cron::{CronEntry, Crontab, Recurrence};
use slotd_model::{Job, JobId, JobState, Reason, Refusal, Timestamp, qos};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An entry to install: a job, and its lines in the file.
#[derive(Debug, Clone, Default)]
pub struct EntryToInstall {
    pub submission: Submission,
    pub recurrence: Recurrence,
    /// See [`CronEntry::lines`].
    pub lines: (usize, usize),
}

/// If the clock is set back by less than this, entries keep their next time, so that none runs
/// twice for one. As in cron, a larger step is not a correction: the times come again.
const CORRECTION_SECS: u64 = 3 * 3600;

/// The same for entries with `*` for the hour, which would otherwise wait for hours.
const SMALL_CORRECTION_SECS: u64 = 5 * 60;

/// The crontabs by UID.
#[derive(Debug, Clone, Default)]
pub(super) struct Crontabs(BTreeMap<u32, Crontab>);

impl Crontabs {
    fn entries(&self) -> impl Iterator<Item = &CronEntry> {
        self.0.values().flat_map(|crontab| &crontab.entries)
    }

    fn lists(&self, id: JobId) -> bool {
        self.entries().any(|entry| entry.job == id)
    }
}

impl Core {
    /// Restores the crontabs of an earlier daemon. Call it once, before any job ends.
    pub fn recall_crontabs(&mut self, crontabs: Vec<(u32, Crontab)>) {
        self.crontabs.0.extend(crontabs);
    }

    /// Returns the crontab of a user as `scrontab -l` shows it. `None`: there is none.
    pub fn crontab(&self, uid: u32) -> Option<Vec<u8>> {
        let is_over = |job: &Job| job.run.state.is_terminal() || job.run.cancelled_by.is_some();
        let has_ended = |id| self.job(id).is_none_or(is_over);
        self.crontabs.0.get(&uid).map(|crontab| crontab.shown(has_ended))
    }

    /// Replaces the crontab of a user, and returns the jobs of its entries. The old entries end as
    /// in [`Self::remove_crontab`].
    ///
    /// # Errors
    /// Fails if an entry is refused, with its index. Nothing is changed then.
    pub fn install_crontab(
        &mut self,
        uid: u32,
        text: Vec<u8>,
        mut entries: Vec<EntryToInstall>,
        cx: &mut Cx,
    ) -> Result<Vec<JobId>, (usize, Refusal)> {
        let mut admitted = Vec::with_capacity(entries.len());
        for (at, EntryToInstall { submission, recurrence, .. }) in entries.iter_mut().enumerate() {
            let next = self.resources.config().zone.next_of(recurrence, cx.now);
            let never = || Refusal::Malformed(format!("the time {recurrence} never comes"));
            submission.request.begin = Some(next.ok_or_else(|| (at, never()))?);
            submission.request.recurrence = Some(Box::new(*recurrence));
            admitted.push(self.admitted(submission).map_err(|why| (at, why))?);
        }
        self.check_submit_limits(uid, &entries)?;
        self.end_crontab(uid, cx);
        let mut listed = Vec::with_capacity(entries.len());
        for (entry, admitted) in entries.into_iter().zip(admitted) {
            let job = self.enqueue(entry.submission, admitted, cx);
            listed.push(CronEntry { lines: entry.lines, job });
        }
        let ids = listed.iter().map(|entry| entry.job).collect();
        let crontab = Crontab { text, entries: listed };
        self.crontabs.0.insert(uid, crontab.clone());
        cx.out.changes.push(Change::PutCrontab { uid, crontab: Some(Box::new(crontab)) });
        self.settle(cx);
        Ok(ids)
    }

    /// Fails for the first entry that exceeds the number of jobs that its QOS accepts. The waiting
    /// jobs of the old crontab no longer count.
    fn check_submit_limits(
        &self,
        uid: u32,
        entries: &[EntryToInstall],
    ) -> Result<(), (usize, Refusal)> {
        let old = self.crontabs.0.get(&uid).into_iter().flat_map(|crontab| &crontab.entries);
        let mut leaving: BTreeMap<&str, usize> = BTreeMap::new();
        let waiting = old
            .filter_map(|entry| self.job(entry.job))
            .filter(|job| job.run.state == JobState::Pending);
        waiting.for_each(|job| *leaving.entry(qos::of(&job.request)).or_default() += 1);
        let mut more: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, entry) in entries.iter().enumerate() {
            let request = &entry.submission.request;
            let name = qos::of(request);
            let more = more.entry(name).or_default();
            *more += 1;
            let leaving = leaving.get(name).copied().unwrap_or_default();
            self.check_submit_limit(request, *more, leaving).map_err(|why| (at, why))?;
        }
        Ok(())
    }

    /// Removes the crontab of a user, if there is one. The waiting jobs of its entries are
    /// cancelled. Running ones finish and do not recur.
    pub fn remove_crontab(&mut self, uid: u32, cx: &mut Cx) {
        if self.crontabs.0.contains_key(&uid) {
            self.end_crontab(uid, cx);
            cx.out.changes.push(Change::PutCrontab { uid, crontab: None });
        }
        self.settle(cx);
    }

    fn end_crontab(&mut self, uid: u32, cx: &mut Cx) {
        let Some(crontab) = self.crontabs.0.remove(&uid) else { return };
        // The user has replaced the job, so its end is no news.
        self.notifications.set_quiet(true);
        for CronEntry { job: id, .. } in crontab.entries {
            if self.job(id).is_some_and(|job| job.run.state == JobState::Pending) {
                let ending = Ending::cancelled(Reason::CancelledByUser, Some(uid));
                self.end_pending(id, ending, cx);
            }
        }
        self.notifications.set_quiet(false);
    }

    /// Makes an entry that no crontab lists an ordinary job.
    pub(super) fn forget_recurrence(&mut self, id: JobId) {
        let recurs = self.job(id).is_some_and(|job| job.request.recurrence.is_some());
        if recurs && !self.crontabs.lists(id) {
            self.records.edit(id, |job| Arc::make_mut(&mut job.request).recurrence = None);
        }
    }

    /// Cancels a waiting entry that no crontab lists: it was about to start when it was removed, and
    /// was not launched.
    pub(super) fn drop_if_removed(&mut self, id: JobId, cx: &mut Cx) {
        let Some(job) = self.job(id) else { return };
        let (owner, is_entry) = (job.request.uid, job.request.recurrence.is_some());
        if is_entry && job.run.state == JobState::Pending && !self.crontabs.lists(id) {
            let ending = Ending::cancelled(Reason::CancelledByUser, Some(owner));
            self.end_pending(id, ending, cx);
        }
    }

    /// Returns when the job runs next, if it recurs after the current run.
    pub(super) fn next_recurrence(&self, job: &Job, now: Timestamp) -> Option<Timestamp> {
        let recurrence = job.request.recurrence.as_ref()?;
        let recurs = job.run.cancelled_by.is_none() && self.crontabs.lists(job.id);
        recurs.then(|| self.resources.config().zone.next_of(recurrence, now)).flatten()
    }

    /// Sets the begin time of a pending job that recurs.
    pub(super) fn begin_at(&mut self, id: JobId, next: Timestamp, now: Timestamp) {
        self.records.edit(id, |job| {
            (job.run.begin, job.run.eligible) = (Some(next), None);
            job.submit = now;
        });
    }

    /// Computes the begin times of waiting entries again if the clock was set back far. Otherwise
    /// they would wait until it shows the old time again.
    pub fn follow_clock(&mut self, cx: &mut Cx) {
        let was_set_back = |job: &&Job| {
            let is_for_all_hours =
                job.request.recurrence.as_ref().is_some_and(|it| it.hour.is_none());
            let least = if is_for_all_hours { SMALL_CORRECTION_SECS } else { CORRECTION_SECS };
            job.run.state == JobState::Pending && job.submit > cx.now.plus_secs(least)
        };
        let waiting = self.crontabs.entries().filter_map(|entry| self.job(entry.job));
        let late: Vec<(JobId, Timestamp)> = waiting
            .filter(was_set_back)
            .filter_map(|job| Some((job.id, self.next_recurrence(job, cx.now)?)))
            .collect();
        for (id, next) in late {
            self.begin_at(id, next, cx.now);
            self.refresh(id, cx.now);
            self.arm(id, cx.now);
            self.records.save(id, cx);
        }
    }

    /// Refuses a change to a job that a crontab defines.
    pub(super) fn check_no_crontab_job(&self, jobs: &[JobId]) -> Result<(), Refusal> {
        let is_entry = |id: &JobId| {
            self.job(*id)
                .is_some_and(|job| job.request.recurrence.is_some() && !job.run.state.is_terminal())
        };
        if jobs.iter().any(is_entry) { Err(Refusal::CrontabJob) } else { Ok(()) }
    }
}
