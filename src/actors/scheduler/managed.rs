//! The step managers of jobs: messages to and from them.

use super::SchedulerActor;
use super::asker::Asker;
use crate::actors::messages::*;
use crate::actors::news::NewsSender;
use actix::prelude::*;
use slotd_exec::launch_spec::StepUsage;
use slotd_model::job::ClientProcess;
use slotd_model::resize::PartChange;
use slotd_model::{JobId, Refusal, StepId};
use slotd_protocol::answer::{Answer, ManagedJob};
use slotd_sched::{Cx, SignalTarget, StopCause};
use slotd_sys::proc;
use std::collections::HashMap;
use tokio::sync::oneshot;

/// The step managers.
#[derive(Default)]
pub(super) struct Managers {
    news: HashMap<JobId, NewsSender>,
    /// Messages for disconnected managers, which reconnect after a restart of the daemon.
    unheard: HashMap<JobId, Vec<Answer>>,
    /// Receivers of usage measurements, by ticket.
    measured_for: HashMap<u64, (JobId, oneshot::Sender<StepUsage>)>,
    /// Receivers of answers to signals, by ticket.
    signalled_for: HashMap<u64, (JobId, oneshot::Sender<bool>)>,
    next_ticket: u64,
}

impl Managers {
    fn is_there(&self, job: JobId) -> bool {
        self.news.get(&job).is_some_and(|sender| !sender.is_closed())
    }

    fn notify(&mut self, job: JobId, news: Answer) {
        match self.news.get(&job).filter(|sender| !sender.is_closed()) {
            Some(sender) => drop(sender.send(news)),
            None => self.unheard.entry(job).or_default().push(news),
        }
    }

    /// Removes a job whose processes have all ended.
    pub(super) fn forget(&mut self, job: JobId) {
        self.news.remove(&job);
        self.unheard.remove(&job);
        self.forget_askers(job);
    }

    /// Drops the receivers that wait for a manager that will not answer.
    fn forget_askers(&mut self, job: JobId) {
        self.measured_for.retain(|_, (of, _)| *of != job);
        self.signalled_for.retain(|_, (of, _)| *of != job);
    }

    /// Asks a manager for the usage of a step. The sender is dropped if no manager answers.
    pub(super) fn measure(&mut self, job: JobId, step: u32) -> oneshot::Receiver<StepUsage> {
        let (answer, measured) = oneshot::channel();
        if let Some(sender) = self.news.get(&job) {
            self.next_ticket += 1;
            let ticket = self.next_ticket;
            if sender.send(Answer::MeasureStep { ticket, step }).is_ok() {
                self.measured_for.insert(ticket, (job, answer));
            }
        }
        measured
    }

    /// Signals a step that its manager may not have reported yet; without a signal, ends it. The
    /// sender is dropped if no manager answers whether the step was running. `by`: the UID of the
    /// user who requested it.
    pub(super) fn signal(
        &mut self,
        job: JobId,
        step: u32,
        signal: Option<i32>,
        by: u32,
    ) -> oneshot::Receiver<bool> {
        let (answer, signalled) = oneshot::channel();
        if let Some(sender) = self.news.get(&job) {
            self.next_ticket += 1;
            let ticket = Some(self.next_ticket);
            let by = Some(by);
            if sender.send(Answer::SignalStep { step: Some(step), signal, by, ticket }).is_ok() {
                self.signalled_for.insert(self.next_ticket, (job, answer));
            }
        }
        signalled
    }
}

impl SchedulerActor {
    /// Ends a step of a manager. Returns false if it is not a manager's step.
    pub(super) fn stop_managed(&mut self, job: JobId, step: StepId, cause: StopCause) -> bool {
        let StepId::Num(number) = step else { return false };
        if !self.core.records().is_managed_step(job, step) {
            return false;
        }
        let signal = matches!(cause, StopCause::Killed { .. }).then_some(libc::SIGKILL);
        let (step, by) = (Some(number), cause.by());
        self.managers.notify(job, Answer::SignalStep { step, signal, by, ticket: None });
        true
    }

    /// Sends a signal to a manager's steps. Returns false if other processes must also receive it.
    pub(super) fn signal_managed(&mut self, job: JobId, target: SignalTarget, signal: i32) -> bool {
        let steps = self.core.job(job).map_or(&[][..], |job| &job.steps);
        let has_managed = steps.iter().any(|step| step.managed);
        match target {
            SignalTarget::Step(StepId::Num(number))
                if self.core.records().is_managed_step(job, StepId::Num(number)) =>
            {
                let (step, signal) = (Some(number), Some(signal));
                self.managers
                    .notify(job, Answer::SignalStep { step, signal, by: None, ticket: None });
                true
            }
            SignalTarget::Steps if has_managed => {
                let others: Vec<StepId> = steps
                    .iter()
                    .filter(|step| !step.managed && !step.state.is_terminal())
                    .map(|s| s.id)
                    .collect();
                self.managers.notify(
                    job,
                    Answer::SignalStep { step: None, signal: Some(signal), by: None, ticket: None },
                );
                for step in others {
                    self.send_to_runner(
                        job,
                        RunnerCommand::Signal { target: SignalTarget::Step(step), signal },
                    );
                }
                true
            }
            SignalTarget::Steps
            | SignalTarget::Batch
            | SignalTarget::Full
            | SignalTarget::Step(_) => false,
        }
    }

    /// Reports the current allocation and its end to the manager. A disconnected manager gets them
    /// when it reconnects.
    pub(super) fn notify_manager(&mut self, job: JobId, why: PartChange) {
        if let (Some(part), true) = (self.core.managers_part(job), self.managers.is_there(job)) {
            self.managers.notify(job, Answer::ManagerChanged { part: Box::new(part), why });
        }
    }

    /// Reports to the manager which resources of its job are out of use.
    pub(super) fn report_parts_out(&mut self, job: JobId) {
        let (parts, why) =
            (self.core.resources().parts_out(job), self.core.resources().node().why_out());
        self.managers.notify(job, Answer::PartsOut { parts, why });
    }
}

/// Returns whether the process is still running, and its PID was not reused.
fn is_there(process: ClientProcess) -> bool {
    let stat = i32::try_from(process.pid).ok().and_then(proc::stat);
    stat.is_some_and(|stat| {
        stat.start_ticks == process.start_ticks && !matches!(stat.state, b'Z' | b'X')
    })
}

impl Handler<ManageSteps> for SchedulerActor {
    type Result = ResponseFuture<Result<Box<ManagedJob>, Refusal>>;

    fn handle(&mut self, m: ManageSteps, _: &mut Self::Context) -> Self::Result {
        let mut cx = Cx::at(self.now());
        // A new manager may register before this actor has noticed that the previous one exited.
        let before = self
            .core
            .resources()
            .managers()
            .process(m.job)
            .filter(|known| *known != m.client && !is_there(*known));
        if let Some(before) = before {
            self.core.manager_gone(m.job, before, None, &mut cx);
        }
        let granted = self.core.manage(m.job, m.client, m.within, m.numbers, &mut cx);
        let (numbers, view, part) =
            match (granted, self.view(m.job), self.core.managers_part(m.job)) {
                (Ok(numbers), Some(mut view), Some(part)) => {
                    view.job.steps.clear();
                    (numbers, view, part)
                }
                (Err(why), ..) => return Box::pin(async move { Err(why) }),
                (Ok(_), ..) => return Box::pin(async move { Err(Refusal::UnknownJob) }),
            };
        for news in self.managers.unheard.remove(&m.job).unwrap_or_default() {
            let _ = m.news.send(news);
        }
        // The manager also gets the end of the job.
        self.watch(m.job, m.news.clone());
        self.managers.news.insert(m.job, m.news);
        let host = self.core.config().host.clone();
        let out = self.core.resources().parts_out(m.job);
        let managed = ManagedJob { view, host, part, out, numbers, grace_ms: 0 };
        let committed = self.commit_command(cx.out);
        Box::pin(async move {
            committed.await;
            Ok(Box::new(managed))
        })
    }
}

impl Handler<RecordSteps> for SchedulerActor {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, m: RecordSteps, _: &mut Self::Context) -> Self::Result {
        let mut cx = Cx::at(self.now());
        if let Err(why) = self.core.record_steps(m.job, m.run, m.steps, &mut cx) {
            return Box::pin(async move { Err(why) });
        }
        // These are facts: while the database cannot be written, they wait, and so does their
        // manager.
        let (sender, sent) = oneshot::channel();
        let answer = move || {
            // The manager may have exited.
            let _ = sender.send(());
        };
        self.commit_then(cx.out, Some(Asker::News(Box::new(answer))));
        Box::pin(async move { sent.await.map_err(|_| Refusal::ShuttingDown) })
    }
}

impl Handler<GiveBack> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, m: GiveBack, ctx: &mut Self::Context) {
        self.decide(ctx, |core, cx| {
            core.take_back_from_manager(m.job, m.client, &m.given_back, cx)
        });
    }
}

impl Handler<LeaveSteps> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, m: LeaveSteps, ctx: &mut Self::Context) {
        // A manager that has reconnected stays registered.
        let is_gone = m.unused.is_some()
            || self.managers.news.get(&m.job).is_none_or(|news| news.is_closed());
        if is_gone {
            self.managers.news.remove(&m.job);
            self.managers.forget_askers(m.job);
            self.decide(ctx, |core, cx| core.manager_gone(m.job, m.client, m.unused, cx));
        }
    }
}

impl Handler<StepMeasured> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, m: StepMeasured, _: &mut Self::Context) {
        if let Some((_, asker)) = self.managers.measured_for.remove(&m.ticket) {
            // The client may have disconnected.
            let _ = asker.send(m.usage);
        }
    }
}

impl Handler<StepSignalled> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, m: StepSignalled, _: &mut Self::Context) {
        if let Some((_, asker)) = self.managers.signalled_for.remove(&m.ticket) {
            // The client may have disconnected.
            let _ = asker.send(m.runs);
        }
    }
}
