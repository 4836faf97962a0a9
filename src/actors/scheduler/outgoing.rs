//! Outgoing notifications. They are numbered, and stored until they are sent.

use crate::actors::messages::Notify;
use slotd_model::JobId;
use slotd_model::change::Change;
use slotd_sched::Effect;

/// A notification that is sent once it is durable.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The job that it is about, if any.
    pub job: Option<JobId>,
    pub notify: Notify,
}

/// Assigns numbers to notifications.
pub(super) struct Notices {
    next: u64,
    /// The log already mentions that email cannot be sent.
    pub is_mail_missed: bool,
}

impl Notices {
    pub fn from(next: u64) -> Notices {
        Notices { next, is_mail_missed: false }
    }

    /// Moves the notifications out of the effects, and adds changes that store them.
    pub fn take(&mut self, effects: &mut Vec<Effect>, changes: &mut Vec<Change>) -> Vec<Outgoing> {
        let mut outgoing = Vec::new();
        for effect in effects.extract_if(.., |effect| matches!(effect, Effect::Notify { .. })) {
            let Effect::Notify { job, notice } = effect else { continue };
            let number = self.next;
            self.next += 1;
            changes.push(Change::PutNotice { number, job, notice: notice.clone() });
            outgoing.push(Outgoing { job, notify: Notify { number, notice: *notice } });
        }
        outgoing
    }
}
