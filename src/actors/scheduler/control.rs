//! The commands of scontrol and scancel, each for a list of jobs.

use super::SchedulerActor;
use crate::actors::messages::{CancelJobs, ControlJobs, RunnerCommand};
use actix::prelude::*;
use slotd_exec::StepCommand;
use slotd_model::job::Hold;
use slotd_model::query::JobQuery;
use slotd_model::{JobId, JobRef, Refusal, StepId, Timestamp, Tres};
use slotd_protocol::answer::Outcome;
use slotd_protocol::request::{CancelAsk, ControlAction};
use slotd_sched::{Cx, SignalTarget};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

impl Handler<ControlJobs> for SchedulerActor {
    type Result = ResponseFuture<Vec<Outcome>>;

    fn handle(&mut self, m: ControlJobs, ctx: &mut Self::Context) -> Self::Result {
        let mut cx = Cx::at(self.now());
        let mut outcomes = Vec::with_capacity(m.jobs.len());
        for job in m.recalled {
            self.core.recall(job);
        }
        for job in &m.jobs {
            let result = match &m.action {
                ControlAction::Hold => self.core.hold(job, Hold::User, &mut cx),
                ControlAction::Release => self.core.release(job, &mut cx),
                ControlAction::Requeue(hold) => self.core.requeue(job, *hold, &m.ended, &mut cx),
                ControlAction::Suspend => self.core.suspend(job, &mut cx),
                ControlAction::Resume => self.core.resume(job, &mut cx),
                ControlAction::Notify(text) => self.notify_job(job, text),
                ControlAction::Top => self.core.top(job, &mut cx),
                ControlAction::Update(updates) => self.core.update(job, updates, &m.ended, &mut cx),
            };
            outcomes.push(Outcome { target: job.clone(), result });
        }
        let asks_for_state = !matches!(m.action, ControlAction::Notify(_));
        if let [Outcome { result: Err(Refusal::NoRoom { job, more, .. }), .. }] = &*outcomes {
            return self.answer_with_time_until_fit(*job, *more, outcomes, cx.now);
        }
        let reply = self.answer_command(cx.out, outcomes, asks_for_state);
        self.ask_round(ctx);
        reply
    }
}

impl Handler<CancelJobs> for SchedulerActor {
    type Result = ResponseFuture<Vec<Outcome>>;

    fn handle(&mut self, CancelJobs(ask): CancelJobs, ctx: &mut Self::Context) -> Self::Result {
        let mut cx = Cx::at(self.now());
        // Each job that is named gets an outcome, even if it is unknown. A filter merely matches
        // nothing.
        let is_named_only = ask.query == JobQuery::of(ask.query.jobs.clone());
        let targets = if is_named_only {
            ask.query.jobs.clone()
        } else {
            self.core.records().targets(&ask.query)
        };
        let outcomes: Vec<Outcome> =
            targets.iter().map(|target| self.cancel_one(target, &ask, &mut cx)).collect();
        let asked = self.ask_managers(&outcomes, &ask);
        let reply = self.answer_command(cx.out, outcomes, ask.signal.is_none());
        self.ask_round(ctx);
        if asked.is_empty() {
            return reply;
        }
        Box::pin(async move {
            let mut outcomes = reply.await;
            for Asked { place, job, runs } in asked {
                // A suspended manager signals its step once it is resumed. A manager that has
                // exited has no steps.
                if matches!(timeout(PATIENCE, runs).await, Ok(Ok(true)) | Err(_))
                    && let Some(outcome) = outcomes.get_mut(place)
                {
                    match &mut outcome.result {
                        Ok(jobs) => jobs.push(job),
                        Err(_) => outcome.result = Ok(vec![job]),
                    }
                }
            }
            outcomes
        })
    }
}

/// The longest wait for a manager's answer about a signalled step.
const PATIENCE: Duration = Duration::from_secs(5);

/// A pending answer of a manager about one of its steps.
struct Asked {
    /// The index of the outcome that depends on it.
    place: usize,
    job: JobId,
    runs: oneshot::Receiver<bool>,
}

impl SchedulerActor {
    /// Returns the outcomes for a job that cannot grow now and was not changed, with the time until
    /// it is expected to fit.
    fn answer_with_time_until_fit(
        &self,
        job: JobId,
        more: Tres,
        mut outcomes: Vec<Outcome>,
        now: Timestamp,
    ) -> ResponseFuture<Vec<Outcome>> {
        let forecast = self.core.growth_forecast(job, &more, now);
        let starts = forecast.map(|(number, forecast)| (number, self.forecasts.once(forecast)));
        Box::pin(async move {
            let Some((number, starts)) = starts else { return outcomes };
            let wait_secs = starts.await.get(&number).map(|start| start.at.since(now).as_secs());
            for outcome in &mut outcomes {
                if let Err(Refusal::NoRoom { in_secs, .. }) = &mut outcome.result {
                    *in_secs = wait_secs;
                }
            }
            outcomes
        })
    }

    /// Writes a line to the standard error of a running batch job.
    fn notify_job(&self, job: &JobRef, text: &str) -> Result<Vec<JobId>, Refusal> {
        let running: Vec<JobId> = self
            .core
            .records()
            .resolve(job)
            .into_iter()
            .filter(|id| self.runners.contains_key(id))
            .collect();
        if running.is_empty() {
            return Err(Refusal::UnknownJob);
        }
        for id in &running {
            if let Some(runner) = self.runners.get(id) {
                let line = format!("slurmstepd: message: {text}");
                runner.do_send(RunnerCommand::ToStep(StepId::Batch, StepCommand::Notice(line)));
            }
        }
        Ok(running)
    }

    /// Signals steps that their managers may have started but not reported yet: starts are reported
    /// in batches.
    fn ask_managers(&mut self, outcomes: &[Outcome], ask: &CancelAsk) -> Vec<Asked> {
        let mut asked = Vec::new();
        for (place, outcome) in outcomes.iter().enumerate() {
            for (job, step) in self.core.may_run_step(&outcome.target) {
                let runs = self.managers.signal(job, step, ask.signal, ask.uid);
                asked.push(Asked { place, job, runs });
            }
        }
        asked
    }

    fn cancel_one(&mut self, target: &JobRef, ask: &CancelAsk, cx: &mut Cx) -> Outcome {
        let result = match ask.signal {
            None => self.core.cancel(target, ask.uid, cx),
            Some(signal) => {
                let whom = match target.step {
                    Some(step) => SignalTarget::Step(step),
                    None if ask.full => SignalTarget::Full,
                    None if ask.batch => SignalTarget::Batch,
                    None => SignalTarget::Steps,
                };
                self.core.signal(target, whom, signal, ask.uid, cx)
            }
        };
        Outcome { target: target.clone(), result }
    }
}
