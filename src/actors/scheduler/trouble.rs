//! Commits, and the clients waiting for them, while the database cannot be written.
//!
//! Decisions wait in order until it can be written. Meanwhile, nothing new is promised: submissions
//! and steps that are not yet durable, including the one that first met the fault, are withdrawn
//! and refused with the cause. Commands take effect, and their answer states that the effect is not
//! on disk. Nothing starts, and a job whose start is not durable is pending again.

use super::SchedulerActor;
use super::asker::{Asker, CommitResult, answer_submission, result_of, send_result};
use crate::actors::messages::{StoreWell, Unstored};
use actix::prelude::*;
use slotd_model::changed::Changed;
use slotd_model::{ExitRecord, Job, JobId, JobState, Reason, Refusal, StoreFault, StoreTrouble};
use slotd_protocol::answer::{Answer, Outcome};
use slotd_sched::{Cx, EndCause, Outbox};
use std::collections::HashSet;
use std::future::Future;
use tokio::sync::oneshot;

/// Returns the outcomes of a command. Those marked in `unrecorded` are reported as not stored,
/// because a restart of the daemon would undo them.
fn while_unstored(outcomes: Vec<Outcome>, unrecorded: &[bool], fault: StoreFault) -> Vec<Outcome> {
    let of = |(outcome, is_unrecorded): (Outcome, &bool)| {
        let refused = || Err(Refusal::Unrecorded(fault));
        if *is_unrecorded { Outcome { result: refused(), ..outcome } } else { outcome }
    };
    outcomes.into_iter().zip(unrecorded).map(of).collect()
}

impl SchedulerActor {
    /// Returns the fault that prevents commits, if any.
    pub(super) fn fault(&self) -> Option<StoreFault> {
        self.trouble.as_ref().map(|trouble| trouble.fault)
    }

    /// Commits the changes of a command. If the database cannot be written, the client gets its
    /// answer immediately.
    pub(super) fn commit_command(
        &mut self,
        out: Outbox,
    ) -> impl Future<Output = CommitResult> + use<> {
        let (client, answer) = oneshot::channel();
        match self.fault() {
            None => self.commit_then(out, Some(Asker::Command(client))),
            Some(fault) => {
                self.commit_then(out, None);
                send_result(client, CommitResult::Unstored(fault));
            }
        }
        result_of(answer)
    }

    /// Commits the changes of a command to each of its jobs. While the database cannot be written,
    /// the answer is immediate. It reports changes that are not on disk, except ends and signals,
    /// which survive a crash of the daemon. This includes commands that change nothing because an
    /// earlier, unstored command already did. `asks_for_state` is true for commands that set a
    /// state, and false for one-time actions such as signals.
    pub(super) fn answer_command(
        &mut self,
        out: Outbox,
        outcomes: Vec<Outcome>,
        asks_for_state: bool,
    ) -> ResponseFuture<Vec<Outcome>> {
        let rests_on_record = asks_for_state || !out.changes.is_empty();
        let committed = self.commit_command(out);
        let unrecorded: Vec<bool> = outcomes
            .iter()
            .map(|outcome| match &outcome.result {
                Ok(ids) if rests_on_record => {
                    ids.iter().any(|id| self.in_flight.is_unrecorded(*id) && !self.is_ending(*id))
                }
                Ok(_) => false,
                Err(Refusal::AlreadyDone) => self
                    .core
                    .records()
                    .resolve(&outcome.target)
                    .into_iter()
                    .any(|id| self.would_start(id)),
                Err(_) => false,
            })
            .collect();
        Box::pin(async move {
            match committed.await {
                CommitResult::Durable => outcomes,
                CommitResult::Unstored(fault) => while_unstored(outcomes, &unrecorded, fault),
            }
        })
    }

    /// Whether the next daemon would start the job because its end is not recorded.
    fn would_start(&self, id: JobId) -> bool {
        let is_undone = |job: &Job| {
            job.run.start.is_none() || (job.run.state.is_active() && !self.is_ending(id))
        };
        self.in_flight.is_unrecorded(id) && self.core.job(id).is_some_and(is_undone)
    }

    /// Whether its processes are being stopped for good. No daemon will start the job again, even
    /// if none of this is on disk.
    fn is_ending(&self, id: JobId) -> bool {
        let comes_back = |job: &Job| match job.run.reason {
            // The stop may still wait for its commit.
            Reason::Requeued | Reason::Preempted => true,
            Reason::TimeLimit => job.request.requeue || job.request.recurrence.is_some(),
            _ => false,
        };
        self.core
            .job(id)
            .is_some_and(|job| job.run.state == JobState::Completing && !comes_back(job))
    }

    /// Answers a client that asks again for a job it has submitted. The answer comes together with
    /// the first one.
    pub(super) fn answer_again(&mut self, id: JobId) -> ResponseFuture<Result<JobId, Refusal>> {
        let (client, answer) = oneshot::channel();
        let waiting = self.in_flight.askers().find_map(|(_, asker)| match asker {
            Some(Asker::Submission { job, clients, .. }) if *job == id => Some(clients),
            _ => None,
        });
        match waiting {
            Some(clients) => clients.push(client),
            None => send_result(client, CommitResult::Durable),
        }
        answer_submission(id, result_of(answer))
    }

    /// Withdraws the submissions of these commits and all their waiting effects.
    fn withdraw(&mut self, commits: &[u64], fault: StoreFault, cx: &mut Cx) {
        let mut askers = Vec::new();
        for (seq, asker) in self.in_flight.askers() {
            if commits.contains(&seq) {
                askers.extend(asker.take());
            }
        }
        let mut gone = HashSet::new();
        for asker in &askers {
            let Asker::Submission { job, .. } = asker else { continue };
            gone.insert(*job);
            gone.extend(self.core.withdraw(*job, cx));
            self.watchers.remove(job);
            // It may have prepared the launch.
            self.runners.remove(job);
            self.counters.jobs.submitted = self.counters.jobs.submitted.saturating_sub(1);
        }
        gone.iter().for_each(|job| self.publish(|| Changed::gone(*job)));
        self.in_flight.remove_jobs(&gone);
        self.forecasts.outdate();
        askers.into_iter().for_each(|asker| asker.answer(CommitResult::Unstored(fault)));
    }

    /// Returns jobs whose start is not durable to the queue: their time limit must not run before
    /// they do.
    fn withdraw_starts(&mut self, cx: &mut Cx) {
        for job in self.in_flight.take_launches() {
            self.runners.remove(&job);
            let record = ExitRecord::gone(Default::default(), cx.now);
            self.core.on_job_ended(job, record, EndCause::NeverLaunched, cx);
        }
    }

    /// Withdraws steps that are not durable, and sends their clients a refusal.
    fn withdraw_steps(&mut self, fault: StoreFault, cx: &mut Cx) {
        for (step, ticket) in self.in_flight.take_step_launches() {
            let record = ExitRecord::gone(Default::default(), cx.now);
            self.core.on_step_ended(step, &record, EndCause::NeverLaunched, cx);
            if let Some(ticket) = self.tickets.remove(&ticket) {
                let _ = ticket.news.send(Answer::Refused(Refusal::NotStored(fault)));
            }
        }
    }
}

impl Handler<Unstored> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, m: Unstored, ctx: &mut Self::Context) {
        let Unstored { fault, message, withdrawn } = m;
        let now = self.now();
        if self.fault() != Some(fault) {
            log::error!(
                "{fault} ({message}): no jobs are accepted or started until the database \
                 can be written"
            );
            let since = self.trouble.as_ref().map_or(now, |trouble| trouble.since);
            self.trouble = Some(StoreTrouble { fault, message, since });
            self.core.node_mut().set_store_trouble(Some(fault.to_string()), now);
        }
        let mut cx = Cx::at(now);
        self.withdraw(&withdrawn, fault, &mut cx);
        self.withdraw_starts(&mut cx);
        self.withdraw_steps(fault, &mut cx);
        let commands: Vec<Asker> = self
            .in_flight
            .askers()
            .filter_map(|(_, asker)| asker.take_if(|asker| matches!(asker, Asker::Command(_))))
            .collect();
        commands.into_iter().for_each(|asker| asker.answer(CommitResult::Unstored(fault)));
        self.commit(cx.out, ctx);
    }
}

impl Handler<StoreWell> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, _: StoreWell, ctx: &mut Self::Context) {
        if self.trouble.take().is_some() {
            let now = self.now();
            self.core.node_mut().set_store_trouble(None, now);
            log::info!("the daemon's database can be written again");
            self.ask_round(ctx);
        }
    }
}
