//! What waits for the database, in its order, and what is taken back from it while the database
//! cannot be written.

use crate::actors::messages::{Commit, Unstored};
use crate::model::JobId;
use crate::store::StoreError;
use std::collections::HashSet;

/// Commits that were not made yet.
#[derive(Default)]
pub struct Backlog {
    waiting: Vec<Commit>,
    /// Of the last try: what waits is tried again later, and whatever comes waits behind it.
    fault: Option<StoreError>,
    /// Jobs that were submitted and taken back. The scheduler may have spoken of them before it
    /// heard.
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

    /// Whether nothing that waits changes anything.
    pub fn changes_nothing(&self) -> bool {
        self.waiting.iter().all(|commit| commit.changes.is_empty())
    }

    /// Puts a commit behind the others, without what it says of jobs that were taken back.
    pub fn push(&mut self, mut commit: Commit) {
        strip(&mut commit, &mut self.withdrawn);
        self.waiting.push(commit);
    }

    /// All that waits, to be committed. What cannot be is pushed again, in its order.
    pub fn take(&mut self) -> Vec<Commit> {
        std::mem::take(&mut self.waiting)
    }

    /// The database could not be written: submissions that wait are taken back. What is to be told,
    /// if it is news.
    pub fn fail(&mut self, error: StoreError) -> Option<Unstored> {
        let fault = error.fault()?;
        let withdrawn = self.withdraw();
        let is_news = !withdrawn.is_empty() || self.fault.as_ref() != Some(&error);
        let message = error.to_string();
        self.fault = Some(error);
        is_news.then_some(Unstored { fault, message, withdrawn })
    }

    /// The database was written. True where it could not be before.
    pub fn recover(&mut self) -> bool {
        self.fault.take().is_some()
    }

    /// Takes the submissions back that wait: the numbers of their commits.
    fn withdraw(&mut self) -> Vec<u64> {
        let mut seqs = Vec::new();
        for commit in &mut self.waiting {
            if let Some(job) = commit.submission.take() {
                self.withdrawn.insert(job);
                seqs.push(commit.seq);
            }
        }
        if !seqs.is_empty() {
            self.waiting.iter_mut().for_each(|commit| strip(commit, &mut self.withdrawn));
        }
        seqs
    }
}

/// Leaves out what is about jobs that are not there, the tasks of arrays included.
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
