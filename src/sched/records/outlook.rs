//! Whether the dependency of a pending job is met, may still be met, or never will be.

use super::Records;
use super::index::NameGroup;
use super::waits::{Outlook, Status, Waits};
use slotd_model::array::TaskSet;
use slotd_model::dependency::DependencyTerm;
use slotd_model::{Job, JobId, Reason, Timestamp};

impl Records {
    fn namesakes(&self, name: &str, uid: u32) -> Option<&NameGroup> {
        self.names.get(&uid)?.get(name)
    }

    /// Returns the jobs of the same name and user that a singleton has to wait for.
    pub(crate) fn before_singleton(&self, job: &Job) -> Vec<JobId> {
        let own = job.array_job_id().unwrap_or(job.id);
        let Some(group) = self.namesakes(&job.request.name, job.request.uid) else {
            return Vec::new();
        };
        let mut before: Vec<JobId> = group.live.range(..own).map(|(id, _)| *id).collect();
        before.extend(group.active.keys().filter(|id| **id > own));
        before
    }

    /// Returns the singletons of a name that may have become free to start, or blocked. Only those
    /// of the earliest submission can be free. Singletons that were free before directly follow it,
    /// possibly after others that returned to the queue. So the search ends at the first one that
    /// has only waited.
    pub(crate) fn moved_singletons(&self, name: &str, uid: u32) -> Vec<JobId> {
        let Some(group) = self.namesakes(name, uid) else { return Vec::new() };
        let Some((first, _)) = group.singletons.first() else { return Vec::new() };
        let is_moved = |id: JobId| {
            self.get(id).is_some_and(|record| {
                !record.places.is_empty() || self.is_singleton_free(&record.job)
            })
        };
        let has_come_back = |id| self.job(id).is_some_and(|job| job.run.restarts > 0);
        let goes_on = |&&(submission, id): &&(JobId, JobId)| {
            submission == *first || has_come_back(id) || is_moved(id)
        };
        let near = group.singletons.iter().take_while(goes_on);
        near.map(|(_, id)| *id).filter(|id| is_moved(*id)).collect()
    }

    /// Returns whether a singleton may run: no other job of its name and user was submitted earlier
    /// or is running.
    pub(crate) fn is_singleton_free(&self, job: &Job) -> bool {
        let own = job.array_job_id().unwrap_or(job.id);
        let Some(group) = self.namesakes(&job.request.name, job.request.uid) else { return true };
        group.live.range(..own).next().is_none() && !group.active.keys().any(|id| *id != own)
    }

    pub(crate) fn dependency_outlook(&self, job: &Job, waits: &Waits, now: Timestamp) -> Outlook {
        let has_singleton = waits.terms.iter().any(|(term, _)| *term == DependencyTerm::Singleton);
        let outlook = waits.outlook(now, has_singleton && self.is_singleton_free(job));
        match (&waits.corr, job.compact_tasks(), outlook) {
            // With `?`, another term may suffice, and then the counterparts do not matter.
            (Some(corr), Some(tasks), Outlook::Clear)
                if !(waits.any && self.is_clear_without_corr(job, waits, now)) =>
            {
                if !corr.ready.is_empty() {
                    Outlook::Clear
                } else if corr.failed.len() >= tasks.len()
                    && !(waits.any && Self::may_clear_without_corr(waits))
                {
                    Outlook::Never
                } else {
                    Outlook::Waiting
                }
            }
            (_, _, outlook) => outlook,
        }
    }

    fn may_clear_without_corr(waits: &Waits) -> bool {
        waits
            .terms
            .iter()
            .any(|(term, status)| !waits.is_for_corr(term) && *status != Status::Failed)
    }

    fn is_clear_without_corr(&self, job: &Job, waits: &Waits, now: Timestamp) -> bool {
        waits.terms.iter().any(|(term, status)| match (term, status) {
            (DependencyTerm::Singleton, _) => self.is_singleton_free(job),
            (DependencyTerm::On { .. }, Status::Met) => true,
            (DependencyTerm::On { .. }, Status::MetAt(at)) => *at <= now,
            (DependencyTerm::On { .. }, Status::Open | Status::Failed) => false,
        })
    }

    /// Returns the task of a compact record that starts next.
    pub(crate) fn next_task(
        &self,
        job: &Job,
        waits: Option<&Waits>,
        now: Timestamp,
    ) -> Option<u32> {
        let tasks = job.compact_tasks()?;
        match waits.and_then(|waits| waits.corr.as_ref().map(|corr| (waits, corr))) {
            Some((waits, corr)) if !(waits.any && self.is_clear_without_corr(job, waits, now)) => {
                corr.ready.iter().copied().find(|task| tasks.contains(*task))
            }
            Some(_) | None => tasks.first(),
        }
    }

    /// Returns the tasks of a compact record that can never start and must be cancelled
    /// (`--kill-on-invalid-dep`).
    pub(crate) fn hopeless_tasks(&self, job: &Job, waits: &Waits) -> TaskSet {
        match (&waits.corr, waits.any) {
            (Some(corr), false) if job.request.is_killed_on_invalid_dep() => {
                TaskSet::from_sorted(&corr.failed.iter().copied().collect::<Vec<_>>())
            }
            (Some(_) | None, _) => TaskSet::default(),
        }
    }

    /// Formats the remaining dependency as squeue `%E` shows it:
    /// `afterok:12(unfulfilled),afterany:13_*(unfulfilled)`.
    pub(crate) fn dependency_text(&self, job: &Job, waits: &Waits, now: Timestamp) -> String {
        let mut text = String::new();
        for (term, status) in &waits.terms {
            let mark = match (term, status) {
                (DependencyTerm::Singleton, _) if self.is_singleton_free(job) => continue,
                (DependencyTerm::On { .. }, _) if waits.is_for_corr(term) => {
                    let hopeless = waits.corr.as_ref().map_or(0, |corr| corr.failed.len());
                    if hopeless >= job.pending_tasks() { "(failed)" } else { "(unfulfilled)" }
                }
                (DependencyTerm::On { .. }, Status::Met) => continue,
                (DependencyTerm::On { .. }, Status::MetAt(at)) if *at <= now => continue,
                (DependencyTerm::On { .. }, Status::Failed) => "(failed)",
                (DependencyTerm::Singleton, _) | (_, Status::Open | Status::MetAt(_)) => {
                    "(unfulfilled)"
                }
            };
            if !text.is_empty() {
                text.push(if waits.any { '?' } else { ',' });
            }
            match term {
                DependencyTerm::On { kind, job: target, delay_minutes }
                    if target.tasks.is_none() && self.arrays.contains_key(&target.job) =>
                {
                    text.push_str(&format!("{}:{}_*", kind.name(), target.job));
                    if *delay_minutes > 0 {
                        text.push_str(&format!("+{delay_minutes}"));
                    }
                }
                DependencyTerm::On { .. } | DependencyTerm::Singleton => {
                    text.push_str(&term.to_string())
                }
            }
            text.push_str(mark);
        }
        text
    }

    /// Returns the reason of a pending job whose dependency keeps it from running.
    pub(crate) fn dependency_blocker(
        &self,
        job: &Job,
        waits: Option<&Waits>,
        now: Timestamp,
    ) -> Option<Reason> {
        match self.dependency_outlook(job, waits?, now) {
            Outlook::Clear => None,
            Outlook::Waiting => Some(Reason::Dependency),
            Outlook::Never => Some(Reason::DependencyNeverSatisfied),
        }
    }
}
