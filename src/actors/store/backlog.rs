//! Commits that wait for the database, and submissions withdrawn from them while it cannot be
//! written.

use crate::actors::messages::{Commit, Unstored};
use slotd_model::JobId;
use slotd_store::StoreError;
use std::collections::HashSet;

/// The waiting commits.
#[derive(Default)]
pub struct Backlog {
    waiting: Vec<Commit>,
    /// The fault of the last attempt. Commits wait until a retry succeeds.
    fault: Option<StoreError>,
    /// Submissions that were withdrawn. The scheduler may still send changes to them until it
    /// learns of it.
    withdrawn: HashSet<JobId>,
}

impl Backlog {
    pub fn fault(&self) -> Option<&StoreError> {
        self.fault.as_ref()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the waiting commits contain no changes.
    pub fn changes_nothing(&self) -> bool {
        self.waiting.iter().all(|commit| commit.changes.is_empty())
    }

    /// Adds a commit, without its changes to withdrawn jobs.
    pub fn push(&mut self, mut commit: Commit) {
        strip(&mut commit, &mut self.withdrawn);
        self.waiting.push(commit);
    }

    /// Takes all waiting commits. The caller must push back, in order, any that cannot be
    /// committed.
    pub fn take(&mut self) -> Vec<Commit> {
        std::mem::take(&mut self.waiting)
    }

    /// Records a failure to write and withdraws waiting submissions. Returns the message to send,
    /// if it contains anything new.
    pub fn fail(&mut self, error: StoreError) -> Option<Unstored> {
        let fault = error.fault()?;
        let withdrawn = self.withdraw();
        let is_news = !withdrawn.is_empty() || self.fault.as_ref() != Some(&error);
        let message = error.to_string();
        self.fault = Some(error);
        is_news.then_some(Unstored { fault, message, withdrawn })
    }

    /// Records a successful write. Returns true if writes failed before.
    pub fn recover(&mut self) -> bool {
        self.fault.take().is_some()
    }

    /// Withdraws the waiting submissions. Returns the numbers of their commits.
    fn withdraw(&mut self) -> Vec<u64> {
        let mut seqs = Vec::new();
        for commit in &mut self.waiting {
            if let Some(submitted) = commit.submission.take() {
                self.withdrawn.insert(submitted.job);
                seqs.push(commit.seq);
            }
        }
        if !seqs.is_empty() {
            self.waiting.iter_mut().for_each(|commit| strip(commit, &mut self.withdrawn));
        }
        seqs
    }
}

/// Removes changes to withdrawn jobs, including tasks of withdrawn arrays.
fn strip(commit: &mut Commit, withdrawn: &mut HashSet<JobId>) {
    if withdrawn.is_empty() {
        return;
    }
    commit.changes.retain(|change| {
        let Some(job) = change.job() else { return true };
        if change.array().is_some_and(|array| withdrawn.contains(&array)) {
            withdrawn.insert(job);
        }
        !withdrawn.contains(&job)
    });
    commit.texts_for.retain(|job| !withdrawn.contains(job));
}
