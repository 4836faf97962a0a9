//! The double of the database: stored data, waiting commits, and temporary disk faults.
//!
//! A crash loses all uncommitted changes. A write that failed only in its fsync may still be on
//! disk: the next daemon then finds it, although its clients got the answer that it was not stored.

use crate::actors::messages::{Commit, Committed, StoreWell, Unstored};
use crate::actors::scheduler::SchedulerActor;
use crate::actors::store::backlog::Backlog;
use actix::prelude::*;
use slotd_model::change::{Change, LaunchTexts};
use slotd_model::{JobId, StoreFault};
use slotd_sched::testing::Stored;
use slotd_store::StoreError;
use std::collections::BTreeSet;

const FAULTS: [StoreFault; 4] =
    [StoreFault::Full, StoreFault::Locked, StoreFault::Io, StoreFault::ReadOnly];

/// A message from the store to the scheduler.
pub enum StoreMessage {
    Committed(Committed),
    Unstored(Unstored),
    Well,
}

impl StoreMessage {
    pub fn to(self, daemon: &Addr<SchedulerActor>) {
        match self {
            StoreMessage::Committed(m) => daemon.do_send(m),
            StoreMessage::Unstored(m) => daemon.do_send(m),
            StoreMessage::Well => daemon.do_send(StoreWell),
        }
    }
}

#[derive(Default)]
pub struct Disk {
    pub stored: Stored,
    backlog: Backlog,
    pub fault: Option<StoreFault>,
    /// The changes in the last write, if its fsync failed.
    unsynced: Vec<Change>,
}

impl Disk {
    /// The number of waiting commits.
    pub fn waiting(&self) -> usize {
        self.backlog.len()
    }

    /// The store has met a fault and waits for it to be resolved.
    pub fn is_known_faulty(&self) -> bool {
        self.backlog.fault().is_some()
    }

    /// Starts a random fault.
    pub fn break_down(&mut self, rng: &mut fastrand::Rng) {
        self.fault = rng.choice(FAULTS);
    }

    pub fn push(&mut self, commit: Commit) -> Option<StoreMessage> {
        self.backlog.push(commit);
        let error = self.backlog.fault().cloned()?;
        self.backlog.fail(error).map(StoreMessage::Unstored)
    }

    /// Commits the first `most` waiting commits, or as many of them as the disk can hold.
    pub fn commit(&mut self, most: usize, rng: &mut fastrand::Rng) -> Vec<StoreMessage> {
        // After a fault, all waiting commits are tried at once.
        let most = if self.is_known_faulty() { self.waiting() } else { most.min(self.waiting()) };
        let stored = match self.fault {
            None => most,
            // The first few may still fit.
            Some(StoreFault::Full) => rng.usize(0..=most),
            Some(_) => 0,
        };
        let mut commits = self.backlog.take().into_iter();
        let mut messages: Vec<StoreMessage> =
            commits.by_ref().take(stored).map(|commit| self.store(commit)).collect();
        let left: Vec<Commit> = commits.collect();
        if most > 0 {
            self.unsynced.clear();
        }
        if self.fault == Some(StoreFault::Io) {
            self.unsynced =
                left.iter().take(most).flat_map(|commit| commit.changes.clone()).collect();
        }
        left.into_iter().for_each(|commit| self.backlog.push(commit));
        match self.fault {
            Some(fault) if stored < most => {
                let error =
                    StoreError::Fault { doing: "commit", fault, message: fault.to_string() };
                messages.extend(self.backlog.fail(error).map(StoreMessage::Unstored));
            }
            Some(_) => {}
            None => messages.extend(self.backlog.recover().then_some(StoreMessage::Well)),
        }
        messages
    }

    fn store(&mut self, commit: Commit) -> StoreMessage {
        commit.changes.into_iter().for_each(|change| self.stored.apply(change));
        let texts = commit.texts_for.into_iter().map(|job| (job, LaunchTexts::default())).collect();
        StoreMessage::Committed(Committed { seq: commit.seq, result: Ok(texts) })
    }

    /// Crashes the daemon. Commits that were being written may have reached the disk. Returns the
    /// number of lost commits and the jobs that the next daemon finds although they were refused.
    pub fn crash(&mut self, rng: &mut fastrand::Rng) -> (usize, BTreeSet<JobId>) {
        let waiting = self.waiting();
        if self.fault.is_none() {
            self.commit(rng.usize(0..=waiting), rng);
        }
        let mut found = BTreeSet::new();
        if rng.bool() {
            for change in std::mem::take(&mut self.unsynced) {
                found.extend(
                    matches!(change, Change::Insert { .. }).then(|| change.job()).flatten(),
                );
                self.stored.apply(change);
            }
        }
        self.unsynced.clear();
        let lost = self.waiting();
        self.backlog = Backlog::default();
        (lost, found)
    }
}
