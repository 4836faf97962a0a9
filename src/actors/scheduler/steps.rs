//! Steps: requests, clients, and ends.

use super::asker::Asker;
use super::in_flight::CalledOff;
use super::{SIGTERM, SchedulerActor};
use crate::actors::messages::*;
use crate::actors::news::NewsSender;
use actix::prelude::*;
use slotd_model::tres::Allocation;
use slotd_model::view::JobView;
use slotd_model::{ExitCode, ExitRecord, Job, JobId, JobState, Refusal, StepKey};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::StepLaunch;
use slotd_sched::{Cx, Effect, EndCause, Outbox, StepAsker, StepStart, StopCause};
use std::os::fd::OwnedFd;

/// A step that waits for its resources or its commit.
pub(super) struct Ticket {
    pub launch: Box<StepLaunch>,
    pub env: Vec<u8>,
    pub fds: Vec<OwnedFd>,
    pub news: NewsSender,
}

impl SchedulerActor {
    pub(super) fn launch_step(&mut self, step: StepKey, ticket: u64, alloc: Allocation) {
        let Some(Ticket { launch, env, fds, news, .. }) = self.tickets.remove(&ticket) else {
            // Its client disconnected between the decision and the commit, so the step ends before
            // it starts.
            self.send_to_runner(
                step.job,
                RunnerCommand::StopStep(step.step, StopCause::ClientLost),
            );
            return;
        };
        let is_live = self.core.records().has_live_step(step.job, step.step);
        let Some(job) = self.core.job(step.job).filter(|_| is_live).map(Job::without_steps) else {
            // Its job was stopped during the commit, and may have ended.
            let record = ExitRecord::gone(ExitCode::signal(SIGTERM), self.now());
            let _ = news.send(Answer::StepEnded(Box::new(record)));
            return;
        };
        self.step_news.insert(step, news);
        let (host, is_suspended) =
            (self.core.config().host.clone(), job.run.state == JobState::Suspended);
        let command = LaunchStep { step, job: Box::new(job), host, alloc, launch, env, fds };
        self.send_to_runner(step.job, RunnerCommand::LaunchStep(command));
        if is_suspended {
            // The rest of the job is already suspended.
            self.send_to_runner(step.job, RunnerCommand::Suspend);
        }
    }

    /// Ends a step. Its client is notified once the end is durable.
    pub(super) fn end_step(
        &mut self,
        key: StepKey,
        record: ExitRecord,
        cause: EndCause,
        mut cx: Cx,
    ) {
        let nothing = (cause == EndCause::NeverLaunched)
            .then(|| self.core.resources().node().failed_step_launch(key, cx.now))
            .flatten();
        let (record, cause) =
            nothing.map_or((record, cause), |failed| (failed, EndCause::LaunchFailed));
        self.core.on_step_ended(key, &record, cause, &mut cx);
        self.running_steps.remove(&key);
        let news = self.step_news.remove(&key);
        let answer = match cause {
            EndCause::NeverLaunched => Answer::StepLost,
            _ => Answer::StepEnded(Box::new(record)),
        };
        self.commit_then(
            cx.out,
            Some(Asker::News(Box::new(move || {
                if let Some(news) = news {
                    let _ = news.send(answer);
                }
            }))),
        );
    }

    /// Reports the end of a cancelled launch, since no runner will.
    pub(super) fn end_unlaunched(&mut self, launch: CalledOff) {
        let mut cx = Cx::at(self.now());
        match launch {
            CalledOff::Job(job) => {
                let record = ExitRecord::gone(ExitCode::OK, cx.now);
                self.core.on_job_ended(job, record, EndCause::NeverLaunched, &mut cx);
                self.commit_then(cx.out, None);
            }
            CalledOff::Step(step, ticket) => {
                if let Some(ticket) = self.tickets.remove(&ticket) {
                    self.step_news.insert(step, ticket.news);
                }
                let record = ExitRecord::gone(ExitCode::signal(SIGTERM), cx.now);
                self.end_step(step, record, EndCause::Stopped, cx);
            }
        }
    }

    /// Reports the ends of steps whose runner has ended without reporting them.
    pub(super) fn end_forgotten_steps(&mut self, job: JobId) {
        self.running_steps.retain(|step, _| step.job != job);
        let record = ExitRecord::gone(ExitCode::signal(SIGTERM), self.now());
        for (_, news) in self.step_news.extract_if(|step, _| step.job == job) {
            let _ = news.send(Answer::StepEnded(Box::new(record.clone())));
        }
    }

    /// Reconnects a client of an earlier daemon to its step. It gets the end of the step, now or
    /// later.
    fn rejoin(&mut self, key: StepKey, news: NewsSender) {
        let Some(step) = self
            .core
            .job(key.job)
            .and_then(|job| job.steps.iter().find(|step| step.id == key.step))
        else {
            return;
        };
        if step.state.is_terminal() {
            let end = step.end.unwrap_or(step.start);
            let failed = self.core.resources().node().failed_step_launch(key, end);
            let ended = Answer::StepEnded(Box::new(
                failed.unwrap_or_else(|| ExitRecord::gone(step.exit, end)),
            ));
            // The commit of the end may still be in flight, so answer after it.
            return self.commit_then(
                Outbox::default(),
                Some(Asker::News(Box::new(move || drop(news.send(ended))))),
            );
        }
        // If the step is not known to be running yet, the runner will report it as running, ended
        // or never launched.
        if let Some(pids) = self.running_steps.get(&key) {
            let _ = news.send(Answer::StepStarted { step: key.step, pids: pids.clone() });
        }
        self.step_news.insert(key, news);
    }
}

impl Handler<AttachClient> for SchedulerActor {
    type Result = ResponseFuture<Result<JobView, Refusal>>;

    fn handle(&mut self, m: AttachClient, _: &mut Self::Context) -> Self::Result {
        let Some(view) = self.view(m.job) else {
            return Box::pin(async move { Err(Refusal::Forgotten { job: m.job, step: None }) });
        };
        let mut cx = Cx::at(self.now());
        if !view.run.state.is_terminal() {
            self.watch(m.job, m.news.clone());
            if m.holds {
                self.core.set_holder(m.job, m.client, &mut cx);
            }
        }
        let known = m.step.and_then(|step| view.steps.iter().find(|known| known.id == step));
        match (m.step, known) {
            (Some(step), None) => {
                return Box::pin(async move {
                    Err(Refusal::Forgotten { job: m.job, step: Some(step) })
                });
            }
            (_, Some(step)) => self.rejoin(StepKey { job: m.job, step: step.id }, m.news),
            (None, None) => {}
        }
        // If the new holder is not stored, the client attaches again.
        let committed = self.commit_command(cx.out);
        Box::pin(async move {
            committed.await;
            Ok(view)
        })
    }
}

impl Handler<CreateStep> for SchedulerActor {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, m: CreateStep, ctx: &mut Self::Context) -> Self::Result {
        let CreateStep { launch, ticket, env, fds, news } = m;
        let (job, client) = (launch.job, launch.client);
        let is_known = launch.again && !self.core.awaits_launch(job, Some(client));
        if let Some(step) =
            self.core.records().step_of(job, client).map(|step| step.id).filter(|_| is_known)
        {
            self.rejoin(StepKey { job, step }, news);
            return Box::pin(async { Ok(()) });
        }
        if let Some(fault) = self.fault() {
            return Box::pin(async move { Err(Refusal::NotStored(fault)) });
        }
        let mut cx = Cx::at(self.now());
        let asker = StepAsker { ticket, client: Some(client) };
        match self.core.create_step(job, launch.request.clone(), asker, &mut cx) {
            Err(refusal) => return Box::pin(async move { Err(refusal) }),
            Ok(StepStart::Now(step, alloc)) => {
                cx.out.effects.push(Effect::LaunchStep { step, ticket, alloc })
            }
            Ok(StepStart::Recorded(step, alloc)) => {
                self.tickets.insert(ticket, Ticket { launch, env, fds, news });
                self.launch_step(step, ticket, alloc);
                return Box::pin(async { Ok(()) });
            }
            Ok(StepStart::Waits) => drop(news.send(Answer::StepWaits)),
        }
        self.tickets.insert(ticket, Ticket { launch, env, fds, news });
        self.commit(cx.out, ctx);
        Box::pin(async { Ok(()) })
    }
}

impl Handler<AbandonStep> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, AbandonStep { ticket }: AbandonStep, ctx: &mut Self::Context) {
        let mut cx = Cx::at(self.now());
        self.core.cancel_step_wait(ticket, &mut cx);
        self.tickets.remove(&ticket);
        self.commit(cx.out, ctx);
    }
}

impl Handler<StepStarted> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, m: StepStarted, ctx: &mut Self::Context) {
        let was_drained = self.core.resources().node().trouble().is_some();
        self.core.on_launched(m.step.job);
        if was_drained {
            self.ask_round(ctx);
        }
        if let Some(news) = self.step_news.get(&m.step) {
            let _ = news.send(Answer::StepStarted { step: m.step.step, pids: m.pids.clone() });
        }
        self.running_steps.insert(m.step, m.pids);
    }
}

impl Handler<TaskEnded> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, m: TaskEnded, _: &mut Self::Context) {
        if let Some(news) = self.step_news.get(&m.step) {
            let _ = news.send(Answer::TaskEnded { task: m.rank, exit: m.exit });
        }
    }
}

impl Handler<StepStopping> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, m: StepStopping, _: &mut Self::Context) {
        if let Some(news) = self.step_news.get(&m.step) {
            let _ = news.send(Answer::StepStopping { wait_secs: m.wait_secs });
        }
    }
}

impl Handler<StepEnded> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, m: StepEnded, ctx: &mut Self::Context) {
        let cx = Cx::at(self.now());
        self.end_step(m.step, m.record, m.cause, cx);
        self.ask_round(ctx);
    }
}
