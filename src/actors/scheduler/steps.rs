//! Steps: requests for them, their clients, and what becomes of them.

use super::SchedulerActor;
use crate::actors::messages::*;
use crate::actors::news::NewsSender;
use crate::model::tres::Allocation;
use crate::model::view::JobView;
use crate::model::{ExitRecord, Job, Refusal, StepKey};
use crate::protocol::answer::Answer;
use crate::protocol::request::StepLaunch;
use crate::sched::{Cx, Effect, EndCause, Outbox, StepAsker, StepStart, StopCause};
use actix::prelude::*;
use std::os::fd::OwnedFd;

/// A step that waits for its resources, or for its commit.
pub(super) struct Ticket {
    pub launch: Box<StepLaunch>,
    pub env: Vec<u8>,
    pub fds: Vec<OwnedFd>,
    pub news: NewsSender,
}

impl SchedulerActor {
    pub(super) fn launch_step(&mut self, step: StepKey, ticket: u64, alloc: Allocation) {
        let Some(Ticket { launch, env, fds, news, .. }) = self.tickets.remove(&ticket) else {
            // Its client went away between the decision and the commit: the step ends before it began.
            self.runner(step.job).do_send(StopStep { step: step.step, cause: StopCause::ClientLost });
            return;
        };
        self.step_news.insert(step, news);
        let Some(job) = self.core.job(step.job).map(Job::without_steps) else { return };
        let host = self.core.config().host.clone();
        self.runner(step.job).do_send(LaunchStep { step, job: Box::new(job), host, alloc, launch, env, fds });
    }

    /// A client that an earlier daemon had is back for its step: it hears what became of it, now or later.
    fn rejoin(&mut self, key: StepKey, news: NewsSender) {
        let Some(step) = self.core.job(key.job).and_then(|job| job.steps.iter().find(|step| step.id == key.step))
        else {
            return;
        };
        if step.state.is_terminal() {
            let ended = Answer::StepEnded(Box::new(ExitRecord::gone(step.exit, step.end.unwrap_or(step.start))));
            // After the commit of that end, should it be under way.
            return self.commit_then(Outbox::default(), Some(Box::new(move || drop(news.send(ended)))));
        }
        // Of a step that has not been found running yet the runner will tell: it runs, it has ended, or it never began.
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
                return Box::pin(async move { Err(Refusal::Forgotten { job: m.job, step: Some(step) }) });
            }
            (_, Some(step)) => self.rejoin(StepKey { job: m.job, step: step.id }, m.news),
            (None, None) => {}
        }
        self.reply_after(cx.out, Ok(view))
    }
}

impl Handler<CreateStep> for SchedulerActor {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, m: CreateStep, ctx: &mut Self::Context) -> Self::Result {
        let CreateStep { launch, ticket, env, fds, news } = m;
        let (job, client) = (launch.job, launch.client);
        if let Some(step) = self.core.step_of(job, client).map(|step| step.id).filter(|_| launch.again) {
            self.rejoin(StepKey { job, step }, news);
            return self.reply_after(Outbox::default(), Ok(()));
        }
        let mut cx = Cx::at(self.now());
        let asker = StepAsker { ticket, client: Some(client) };
        match self.core.create_step(job, launch.request.clone(), asker, &mut cx) {
            Err(refusal) => return Box::pin(async move { Err(refusal) }),
            Ok(StepStart::Now(step, alloc)) => cx.out.effects.push(Effect::LaunchStep { step, ticket, alloc }),
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

impl Handler<TellStep> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, TellStep { step, command }: TellStep, _: &mut Self::Context) {
        if let Some(runner) = self.runners.get(&step.job) {
            runner.do_send(CommandStep { step: step.step, command });
        }
    }
}

impl Handler<StepStarted> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, m: StepStarted, _: &mut Self::Context) {
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
        let mut cx = Cx::at(self.now());
        self.core.on_step_ended(m.step, &m.record, m.cause, &mut cx);
        self.running_steps.remove(&m.step);
        let news = self.step_news.remove(&m.step);
        let told = match m.cause {
            EndCause::NeverLaunched => Answer::StepLost,
            _ => Answer::StepEnded(Box::new(m.record)),
        };
        self.commit_then(
            cx.out,
            Some(Box::new(move || {
                if let Some(news) = news {
                    let _ = news.send(told);
                }
            })),
        );
        self.ask_round(ctx);
    }
}
