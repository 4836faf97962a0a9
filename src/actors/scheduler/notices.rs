//! Notifications about jobs.

use super::SchedulerActor;
use crate::actors::messages::NoticeGiven;
use actix::prelude::*;
use slotd_model::change::Change;
use slotd_model::mail::MailKind;
use slotd_model::notice::Channel;
use slotd_sched::{Effect, Outbox};

impl SchedulerActor {
    /// Adds the path of standard error to emails about failed jobs: they include its last lines.
    pub(super) fn name_std_err(&self, effects: &mut [Effect]) {
        for effect in effects {
            if let Effect::Notify { job: Some(job), notice } = effect
                && matches!(notice.channel, Channel::Mail(MailKind::Fail | MailKind::End))
                && notice.state.is_failure()
                && let (Some(view), Some(run)) = (self.view(*job), notice.run.as_deref_mut())
            {
                run.std_err = view.std_err;
            }
        }
    }

    /// When a job requests email but none can be sent, logs that once.
    pub(super) fn note_mail_asked(&mut self, mail_type: Option<&str>) {
        let is_asked = mail_type.is_some_and(|types| !types.eq_ignore_ascii_case("NONE"));
        if is_asked
            && !self.core.config().audience.mail
            && !std::mem::replace(&mut self.notices.is_mail_missed, true)
        {
            log::warn!(
                "a job requests mail, but none can be sent: no sendmail was found, or SLOTD_SENDMAIL is off"
            );
        }
    }
}

impl Handler<NoticeGiven> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, NoticeGiven(number): NoticeGiven, _: &mut Self::Context) {
        let out = Outbox { changes: vec![Change::DropNotice { number }], ..Outbox::default() };
        self.commit_then(out, None);
    }
}
