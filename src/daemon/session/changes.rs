//! Changes to jobs, both those in memory and those that ended too long ago.

use super::{Replied, Session, plain, refused};
use crate::actors::messages::*;
use slotd_model::dependency::Dependency;
use slotd_model::query::names_record;
use slotd_model::update::Update;
use slotd_model::{JobRef, Refusal};
use slotd_protocol::answer::{Answer, Outcome};
use slotd_protocol::request::{CancelAsk, ControlAction};
use slotd_sched::dependency_targets;

impl Session {
    pub(super) async fn control(&self, jobs: Vec<JobRef>, action: ControlAction) -> Replied {
        let _in_use = self.hub.past_in_use.read().await;
        if matches!(action, ControlAction::Requeue(_)) {
            return self.requeue(jobs, action).await;
        }
        let outcomes = match self.change(jobs, action).await? {
            Ok(outcomes) => outcomes,
            Err(why) => return Ok(refused(why)),
        };
        Ok(plain(Answer::Done(outcomes)))
    }

    /// Requeues jobs. Refuses those without an environment, which cannot run again.
    async fn requeue(&self, jobs: Vec<JobRef>, action: ControlAction) -> Replied {
        let mut outcomes = Vec::with_capacity(jobs.len());
        for target in jobs {
            let dropped =
                match self.hub.readers.facts().send(WithoutEnvironment(target.clone())).await? {
                    Ok(dropped) => dropped,
                    Err(e) => return Ok(refused(Refusal::Database(e.0))),
                };
            match dropped {
                Some(job) => {
                    outcomes.push(Outcome { target, result: Err(Refusal::EnvironmentDropped(job)) })
                }
                None => match self.change(vec![target], action.clone()).await? {
                    Ok(done) => outcomes.extend(done),
                    Err(why) => return Ok(refused(why)),
                },
            }
        }
        Ok(plain(Answer::Done(outcomes)))
    }

    /// Returns one outcome per job, in order. Jobs that ended too long ago to be in memory are read
    /// from the database.
    async fn change(
        &self,
        jobs: Vec<JobRef>,
        action: ControlAction,
    ) -> Result<Result<Vec<Outcome>, Refusal>, actix::MailboxError> {
        let ended = match &action {
            ControlAction::Update(updates) => {
                self.facts_of(dependency_targets(updates.iter().filter_map(dependency_of))).await?
            }
            ControlAction::Requeue(_) => {
                let past = match self.past(jobs.clone()).await? {
                    Ok(past) => past,
                    Err(why) => return Ok(Err(why)),
                };
                self.facts_of(dependency_targets(past.iter().map(|job| &job.request.dependency)))
                    .await?
            }
            _ => Vec::new(),
        };
        let first = ControlJobs {
            jobs,
            action: action.clone(),
            ended: ended.clone(),
            recalled: Vec::new(),
        };
        let mut outcomes = self.hub.scheduler.send(first).await?;
        let is_unknown = |outcome: &&mut Outcome| outcome.result == Err(Refusal::UnknownJob);
        let jobs: Vec<JobRef> =
            outcomes.iter_mut().filter(is_unknown).map(|outcome| outcome.target.clone()).collect();
        if !jobs.is_empty() {
            let recalled = match self.past(jobs.clone()).await? {
                Ok(recalled) => recalled,
                Err(why) => return Ok(Err(why)),
            };
            let again = ControlJobs { jobs, action, ended, recalled };
            let again = self.hub.scheduler.send(again).await?;
            outcomes
                .iter_mut()
                .filter(is_unknown)
                .zip(again)
                .for_each(|(outcome, known)| *outcome = known);
        }
        Ok(Ok(outcomes))
    }

    /// Cancels jobs. A job that ended too long ago to be in memory counts as done, like one that
    /// has just ended.
    pub(super) async fn cancel(&self, ask: CancelAsk) -> Replied {
        let is_plain = ask.signal.is_none();
        let mut outcomes = self.hub.scheduler.send(CancelJobs(ask)).await?;
        let is_unknown = |outcome: &&mut Outcome| {
            is_plain && outcome.target.step.is_none() && outcome.result == Err(Refusal::UnknownJob)
        };
        let named: Vec<JobRef> =
            outcomes.iter_mut().filter(is_unknown).map(|outcome| outcome.target.clone()).collect();
        let past = match self.past(named).await? {
            Ok(past) => past,
            Err(why) => return Ok(refused(why)),
        };
        for outcome in outcomes.iter_mut().filter(is_unknown) {
            if past.iter().any(|job| names_record(&outcome.target, job.id, &job.role)) {
                outcome.result = Err(Refusal::AlreadyDone);
            }
        }
        Ok(plain(Answer::Done(outcomes)))
    }
}

fn dependency_of(update: &Update) -> Option<&Dependency> {
    match update {
        Update::Dependency(dependency) => Some(dependency),
        _ => None,
    }
}
