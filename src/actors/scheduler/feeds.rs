//! The clients that mirror the queue, and the changes reported to them.

use super::SchedulerActor;
use crate::actors::messages::WatchChanges;
use actix::prelude::*;
use slotd_model::change::Change;
use slotd_model::changed::Changed;
use slotd_sched::Effect;

impl SchedulerActor {
    /// Reports a change to watching clients without waiting for them. If no client watches,
    /// `changed` is not called.
    pub(super) fn publish(&mut self, changed: impl FnOnce() -> Changed) {
        if self.feeds.is_empty() {
            return;
        }
        let changed = changed();
        if !changed.is_empty() {
            self.feeds.retain(|feed| feed.add(&changed));
        }
    }

    /// Reports the changes of a decision. Clients may query them immediately, since a decision is
    /// visible before it is durable.
    pub(super) fn publish_decision(&mut self, changes: &[Change], effects: &[Effect]) {
        self.publish(|| {
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
