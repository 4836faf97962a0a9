//! The schedule for sampling values that change by themselves: GPU and CPU usage. They are read
//! when a job could start because of them, and again after a pause while a job waits for them.
//! Requests made in the meantime share the answer.

use slotd_model::unread::Unread;
use slotd_model::{JobId, Timestamp};
use std::collections::BTreeSet;

/// The time for which a reading is valid for decisions.
const FRESH_SECS: u64 = 2;

/// The pause between readings while a job waits for resources that processes outside jobs use.
const PAUSE_SECS: u64 = 2;

#[derive(Debug, Clone, Default)]
pub(crate) struct Readings {
    last: Option<Timestamp>,
    /// The reason why the last reading failed.
    failure: Option<Unread>,
    /// The jobs that wait for resources that processes outside jobs use.
    waiting: BTreeSet<JobId>,
    request: Request,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Request {
    #[default]
    None,
    Wanted,
    /// The request was sent and has not been answered.
    Made,
}

impl Readings {
    pub(crate) fn is_fresh(&self, now: Timestamp) -> bool {
        self.last.is_some_and(|last| last <= now && now <= last.plus_secs(FRESH_SECS))
    }

    /// Requests a reading.
    pub(crate) fn want(&mut self) {
        if self.request == Request::None {
            self.request = Request::Wanted;
        }
    }

    /// Returns whether a reading has to be taken. True once per request.
    pub(crate) fn take_request(&mut self) -> bool {
        let is_wanted = self.request == Request::Wanted;
        if is_wanted {
            self.request = Request::Made;
        }
        is_wanted
    }

    pub(crate) fn answered(&mut self, failure: Option<Unread>, now: Timestamp) {
        (self.request, self.last, self.failure) = (Request::None, Some(now), failure);
    }

    pub(crate) fn failure(&self) -> Option<&Unread> {
        self.failure.as_ref()
    }

    pub(crate) fn last(&self) -> Option<Timestamp> {
        self.last
    }

    /// Returns whether a reading was requested and not yet answered.
    pub(crate) fn is_asked_for(&self) -> bool {
        self.request != Request::None
    }

    /// Records whether a pending job waits for resources that processes outside jobs use.
    pub(crate) fn note_wait(&mut self, id: JobId, waits: bool) {
        if waits {
            self.waiting.insert(id);
        } else {
            self.waiting.remove(&id);
        }
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns when to read again for the waiting jobs.
    pub(crate) fn after_pause(&self) -> Timestamp {
        self.last.unwrap_or_default().plus_secs(PAUSE_SECS)
    }
}
