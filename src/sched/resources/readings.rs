//! When something is read that changes by itself: how GPUs and CPUs are used. It is read when
//! somebody could start by it, and after a pause while somebody waits for it; whoever asks
//! meanwhile has the same answer.

use crate::model::{JobId, Timestamp};
use std::collections::BTreeSet;

/// A reading decides for so long.
const FRESH_SECS: u64 = 2;

/// Between two readings while a job waits for what others have.
const PAUSE_SECS: u64 = 2;

#[derive(Debug, Clone, Default)]
pub struct Readings {
    last: Option<Timestamp>,
    /// Why nothing could be read.
    failure: Option<String>,
    /// Who waits for others than jobs.
    waiting: BTreeSet<JobId>,
    request: Request,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Request {
    #[default]
    None,
    Wanted,
    /// An answer will come.
    Made,
}

impl Readings {
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.last.is_some_and(|last| last <= now && now <= last.plus_secs(FRESH_SECS))
    }

    /// It is to be read.
    pub fn want(&mut self) {
        if self.request == Request::None {
            self.request = Request::Wanted;
        }
    }

    /// Whether it has to be read. Asked for once, then answered.
    pub fn take_request(&mut self) -> bool {
        let is_wanted = self.request == Request::Wanted;
        if is_wanted {
            self.request = Request::Made;
        }
        is_wanted
    }

    pub fn answered(&mut self, failure: Option<String>, now: Timestamp) {
        (self.request, self.last, self.failure) = (Request::None, Some(now), failure);
    }

    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub fn last(&self) -> Option<Timestamp> {
        self.last
    }

    /// Whether an answer is on its way.
    pub fn is_asked_for(&self) -> bool {
        self.request != Request::None
    }

    /// Notes whether a pending job waits for others than jobs.
    pub fn note_wait(&mut self, id: JobId, waits: bool) {
        if waits {
            self.waiting.insert(id);
        } else {
            self.waiting.remove(&id);
        }
    }

    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When it is read again for who waits for it.
    pub fn after_pause(&self) -> Timestamp {
        self.last.unwrap_or_default().plus_secs(PAUSE_SECS)
    }
}
