//! Notices on their way: numbered, and kept with what they are about until they were told.

use crate::actors::messages::Notify;
use crate::model::JobId;
use crate::model::change::Change;
use crate::sched::Effect;

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
    /// The log says that no mail is sent.
    pub is_mail_missed: bool,
}

impl Notices {
    pub fn from(next: u64) -> Notices {
        Notices { next, is_mail_missed: false }
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
