//! The double of the database: what is stored, what waits, and a disk that fails for a while.
//!
//! A crash loses what was not committed. A write that failed may be on the disk nevertheless, where
//! only its fsync failed: then the next daemon finds it, although those who waited for it were told
//! that it was not stored.

use crate::actors::messages::{Commit, Committed, StoreWell, Unstored};
use crate::actors::scheduler::SchedulerActor;
use crate::actors::store::backlog::Backlog;
use crate::model::change::{Change, LaunchTexts};
use crate::model::{JobId, StoreFault};
use crate::sched::testing::Stored;
use crate::store::StoreError;
use actix::prelude::*;
use std::collections::BTreeSet;

const FAULTS: [StoreFault; 4] =
    [StoreFault::Full, StoreFault::Locked, StoreFault::Io, StoreFault::ReadOnly];

/// What the store says to the scheduler.
pub enum Said {
    Committed(Committed),
    Unstored(Unstored),
    Well,
}

impl Said {
    pub fn to(self, daemon: &Addr<SchedulerActor>) {
        match self {
            Said::Committed(m) => daemon.do_send(m),
            Said::Unstored(m) => daemon.do_send(m),
            Said::Well => daemon.do_send(StoreWell),
        }
    }
}

#[derive(Default)]
pub struct Disk {
    pub stored: Stored,
    backlog: Backlog,
    pub fault: Option<StoreFault>,
    /// What the last write held whose fsync failed.
    unsynced: Vec<Change>,
}

impl Disk {
    /// How many commits wait.
    pub fn waiting(&self) -> usize {
        self.backlog.len()
    }

    /// The store has met a fault and waits for its end.
    pub fn is_known_faulty(&self) -> bool {
        self.backlog.fault().is_some()
    }

    /// Fails from now on.
    pub fn break_down(&mut self, rng: &mut fastrand::Rng) {
        self.fault = rng.choice(FAULTS);
    }

    pub fn push(&mut self, commit: Commit) -> Option<Said> {
        self.backlog.push(commit);
        let error = self.backlog.fault().cloned()?;
        self.backlog.fail(error).map(Said::Unstored)
    }

    /// Commits the first `most` of what waits: all or some of them, as the disk can.
    pub fn commit(&mut self, most: usize, rng: &mut fastrand::Rng) -> Vec<Said> {
        // After a fault all that waits is tried at once.
        let most = if self.is_known_faulty() { self.waiting() } else { most.min(self.waiting()) };
        let stored = match self.fault {
            None => most,
            // There is room for the first of them.
            Some(StoreFault::Full) => rng.usize(0..=most),
            Some(_) => 0,
        };
        let mut commits = self.backlog.take().into_iter();
        let mut said: Vec<Said> =
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
                said.extend(self.backlog.fail(error).map(Said::Unstored));
            }
            Some(_) => {}
            None => said.extend(self.backlog.recover().then_some(Said::Well)),
        }
        said
    }

    fn store(&mut self, commit: Commit) -> Said {
        commit.changes.into_iter().for_each(|change| self.stored.apply(change));
        let texts = commit.texts_for.into_iter().map(|job| (job, LaunchTexts::default())).collect();
        Said::Committed(Committed { seq: commit.seq, result: Ok(texts) })
    }

    /// The daemon dies. What of the last commits was on its way may have reached the disk. How many
    /// commits are lost, and the jobs that the next daemon finds although they were refused.
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
