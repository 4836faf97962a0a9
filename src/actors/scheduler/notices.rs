//! What people are to be told: kept with what it is about, until it was told.

use super::SchedulerActor;
use crate::actors::messages::{NoticeGiven, Notify};
use crate::model::JobId;
use crate::model::change::Change;
use crate::sched::{Effect, Outbox};
use actix::prelude::*;

/// A notice that is told when it is durable.
#[derive(Debug)]
pub(super) struct Told {
    /// The job that it is about, if it is about one.
    pub job: Option<JobId>,
    pub notify: Notify,
}

/// The numbers of notices.
pub(super) struct Notices {
    next: u64,
}

impl Notices {
    pub fn from(next: u64) -> Notices {
        Notices { next }
    }

    /// Takes the notices out of what is to be done, and has them kept.
    pub fn take(&mut self, effects: &mut Vec<Effect>, changes: &mut Vec<Change>) -> Vec<Told> {
        let mut told = Vec::new();
        for effect in effects.extract_if(.., |effect| matches!(effect, Effect::Tell { .. })) {
            let Effect::Tell { job, notice } = effect else { continue };
            let number = self.next;
            self.next += 1;
            changes.push(Change::PutNotice { number, job, notice: notice.clone() });
            told.push(Told { job, notify: Notify { number, notice: *notice } });
        }
        told
    }
}

impl Handler<NoticeGiven> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, NoticeGiven(number): NoticeGiven, _: &mut Self::Context) {
        let out = Outbox { changes: vec![Change::DropNotice { number }], ..Outbox::default() };
        self.commit_then(out, None);
    }
}
