//! What the notify hook is to be told: kept with the end of the job, until a hook for it has started.

use super::SchedulerActor;
use super::in_flight::Ended;
use crate::actors::messages::NoticeGiven;
use crate::model::JobId;
use crate::model::change::Change;
use crate::model::notice::Notice;
use crate::model::view::JobView;
use crate::sched::{Effect, Outbox};
use actix::prelude::*;
use std::collections::HashMap;

/// The numbers of notices.
pub(super) struct Notices {
    /// Of the next one; `None` without a hook: then nothing is kept.
    next: Option<u64>,
}

impl Notices {
    pub fn from(next: Option<u64>) -> Notices {
        Notices { next }
    }

    fn number(&mut self) -> Option<u64> {
        let number = self.next?;
        self.next = Some(number + 1);
        Some(number)
    }
}

impl SchedulerActor {
    /// The jobs that these effects end, whose notices are added to the changes of their commit.
    pub(super) fn ends(&mut self, effects: &[Effect], changes: &mut Vec<Change>) -> HashMap<JobId, Ended> {
        let mut ended = HashMap::new();
        for effect in effects {
            let Effect::Ended(id) = effect else { continue };
            let Some(view) = self.view(*id) else { continue };
            let notice = self.notices.number();
            changes.extend(notice.map(|number| put(number, &view)));
            ended.insert(*id, Ended { view, notice });
        }
        ended
    }
}

fn put(number: u64, view: &JobView) -> Change {
    Change::PutNotice { number, job: view.id, notice: Box::new(Notice::of(view)) }
}

impl Handler<NoticeGiven> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, NoticeGiven(number): NoticeGiven, _: &mut Self::Context) {
        let out = Outbox { changes: vec![Change::DropNotice { number }], ..Outbox::default() };
        self.commit_then(out, None);
    }
}
