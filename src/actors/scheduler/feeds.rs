//! Who keeps a picture of the queue, and is told where to look again.

use super::SchedulerActor;
use crate::actors::messages::WatchChanges;
use crate::model::change::Change;
use crate::model::changed::Changed;
use crate::sched::Effect;
use actix::prelude::*;

impl SchedulerActor {
    /// Nobody is waited for, and with nobody there it costs nothing.
    pub(super) fn tell_changed(&mut self, changed: impl FnOnce() -> Changed) {
        if self.feeds.is_empty() {
            return;
        }
        let changed = changed();
        if !changed.is_empty() {
            self.feeds.retain(|feed| feed.add(&changed));
        }
    }

    /// What a decision changes. Who is told may ask for it at once: it need not be durable to be
    /// seen.
    pub(super) fn tell_decided(&mut self, changes: &[Change], effects: &[Effect]) {
        self.tell_changed(|| {
            let mut changed = Changed::by(changes);
            for effect in effects {
                if let Effect::Gone(id) = effect {
                    changed.add(&Changed::gone(*id));
                }
            }
            changed
        });
    }
}

impl Handler<WatchChanges> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, WatchChanges(feed): WatchChanges, _: &mut Self::Context) {
        self.feeds.push(feed);
    }
}
