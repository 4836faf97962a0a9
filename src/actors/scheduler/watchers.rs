//! Clients that wait for events of jobs, and the announcement of ends.

use super::SchedulerActor;
use crate::actors::messages::WatchJob;
use crate::actors::news::NewsSender;
use actix::prelude::*;
use slotd_model::view::JobView;
use slotd_model::{ArrayRole, JobId, JobRef, JobState};
use slotd_protocol::answer::Answer;
use slotd_sched::Effect;
use std::collections::HashMap;

/// The clients that wait for events of one job.
#[derive(Default)]
pub(super) struct Watch {
    senders: Vec<NewsSender>,
    /// For an array, the task with the worst end so far.
    worst: Option<Box<JobView>>,
}

impl SchedulerActor {
    pub(super) fn notify(&mut self, job: JobId, news: Answer) {
        if let Some(watch) = self.watchers.get_mut(&job) {
            watch.senders.retain(|watcher| watcher.send(news.clone()).is_ok());
        }
    }

    /// Announces the end of an array once its last task has ended, with the exit code of the worst
    /// task.
    pub(super) fn notify_array_watchers(&mut self, array: JobId, ended: &JobView) {
        let Some(watch) = self.watchers.get_mut(&array) else { return };
        let worse = |worst: &Option<Box<JobView>>, view: &JobView| {
            worst.as_ref().is_none_or(|worst| view.run.exit.as_shell() > worst.run.exit.as_shell())
        };
        if worse(&watch.worst, ended) {
            watch.worst = Some(Box::new(ended.clone()));
        }
        if !self.core.records().is_array_over(array) {
            return;
        }
        let ids = self.core.records().resolve(&JobRef::job(array));
        // An end counts once it is durable. The announcement of an end that is still in flight
        // checks this again.
        if self.in_flight.ends_one_of(&ids) {
            return;
        }
        let all: Vec<JobView> = ids.into_iter().filter_map(|id| self.view(id)).collect();
        // Tasks that ended in the same commit are announced one by one, but the worst end is chosen
        // among all of them.
        let Some(mut watch) = self.watchers.remove(&array) else { return };
        for view in all {
            if worse(&watch.worst, &view) {
                watch.worst = Some(Box::new(view));
            }
        }
        if let Some(worst) = watch.worst {
            for watcher in watch.senders {
                let _ = watcher.send(Answer::Ended { view: worst.clone() });
            }
        }
    }

    /// Returns the current views of the jobs that these effects end.
    pub(super) fn ends(&self, effects: &[Effect]) -> HashMap<JobId, JobView> {
        let ended = effects.iter().filter_map(|effect| match effect {
            Effect::Ended(id) => Some((*id, self.view(*id)?)),
            _ => None,
        });
        ended.collect()
    }

    pub(super) fn announce_end(&mut self, view: JobView) {
        let id = view.id;
        if let Some(end) = view.run.state.end() {
            self.counters.end(end);
        }
        match &view.role {
            ArrayRole::None => {
                self.notify(id, Answer::Ended { view: Box::new(view.clone()) });
                self.watchers.remove(&id);
            }
            role => {
                if let Some(array) = role.array_job(id) {
                    self.notify_array_watchers(array, &view);
                }
            }
        }
        // The ends of these steps were not reported: their runner was lost with the job.
        self.running_steps.retain(|step, _| step.job != id);
        for (_, news) in self.step_news.extract_if(|step, _| step.job == id) {
            let _ = news.send(Answer::Ended { view: Box::new(view.clone()) });
        }
    }

    pub(super) fn watch(&mut self, job: JobId, news: NewsSender) {
        let watch = self.watchers.entry(job).or_default();
        watch.senders.retain(|watcher| !watcher.is_closed());
        watch.senders.push(news);
    }

    /// Reconnects a client of an earlier daemon to the job that it submitted.
    pub(super) fn rejoin_job(&mut self, id: JobId, holds: bool, news: Option<NewsSender>) {
        let (Some(news), Some(view)) = (news, self.view(id)) else { return };
        let state = view.run.state;
        if state.is_terminal() {
            let _ = news.send(Answer::Ended { view: Box::new(view) });
            return;
        }
        if state.is_active() && holds {
            let _ = news.send(Answer::Granted { view: Box::new(view) });
        }
        self.watch(id, news);
        if holds && state == JobState::Pending {
            self.newcomers.push(id);
            if !self.round_queued {
                self.notify_newcomers();
            }
        }
    }

    /// Notifies the clients whose allocations the last round did not start.
    pub(super) fn notify_newcomers(&mut self) {
        for id in std::mem::take(&mut self.newcomers) {
            if self.core.job(id).is_some_and(|job| job.run.state == JobState::Pending) {
                self.notify(id, Answer::Waits);
            }
        }
    }

    pub(super) fn is_watched(&self, job: JobId) -> bool {
        self.watchers.get(&job).is_some_and(|watch| watch.senders.iter().any(|w| !w.is_closed()))
    }
}

impl Handler<WatchJob> for SchedulerActor {
    type Result = Option<JobView>;

    fn handle(&mut self, m: WatchJob, _: &mut Self::Context) -> Self::Result {
        let mut views: Vec<JobView> = self
            .core
            .records()
            .resolve(&JobRef::job(m.job))
            .into_iter()
            .filter_map(|id| self.view(id))
            .collect();
        let live = views.iter().filter(|view| !view.run.state.is_terminal());
        if let Some(live) = live.max_by_key(|view| view.run.state.is_active()).cloned() {
            self.watch(m.job, m.news);
            // For an array, tasks that have already ended count too: the watch keeps the worst of
            // them.
            if let Some(watch) = self.watchers.get_mut(&m.job) {
                views.retain(|view| view.run.state.is_terminal());
                watch.worst =
                    views.into_iter().max_by_key(|view| view.run.exit.as_shell()).map(Box::new);
            }
            return Some(live);
        }
        views.into_iter().max_by_key(|view| view.run.exit.as_shell())
    }
}
