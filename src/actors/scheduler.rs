//! SchedulerActor: the shell around the scheduling core.
//!
//! Owns the core, the runners of active jobs, and who waits for news of which job. Receives the sessions' commands
//! and the runners' facts. Sends [`Commit`] to the store, and after each commit's acknowledgement carries the effects
//! out: launches and signals to the runners, replies, then notifications. It awaits nothing. An idle one has no timer;
//! the alarm is set for what is due next, if anything is. Stops with the daemon; if it dies the daemon ends.

use crate::actors::launch_plan::fill_paths;
use crate::actors::messages::*;
use crate::actors::news::NewsSender;
use crate::actors::runner::{RunnerActor, RunnerSeed};
use crate::model::change::LaunchTexts;
use crate::model::job::ClientProcess;
use crate::model::view::JobView;
use crate::model::{ExitCode, ExitRecord, Job, JobId, JobRef, Partition, Refusal, StepKey, Timestamp};
use crate::protocol::answer::Answer;
use crate::sched::{Core, Cx, Effect, EndCause, Outbox};
use actix::prelude::*;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;
use tokio::sync::{oneshot, watch};

mod control;
mod diagnostics;
mod node;
mod query;
mod steps;
#[cfg(test)]
mod tests;
mod watchers;

use diagnostics::Counters;
use steps::Ticket;
use watchers::Watch;

/// Messages that may wait before senders have to.
const MAILBOX: usize = 4096;

/// Where the scheduler's decisions go.
pub struct SchedulerOutputs {
    pub store: Recipient<Commit>,
    pub notifier: Recipient<NotifyEnd>,
    /// Makes the runner of a job.
    pub runners: RunnerSeed,
    /// When to send [`Due`] next.
    pub alarm: watch::Sender<Option<Timestamp>>,
    /// The wall clock.
    pub clock: fn() -> Timestamp,
    pub daemon_start: Timestamp,
    /// The partitions, given whether there are GPUs.
    pub partitions: Box<dyn Fn(bool) -> Vec<Partition>>,
}

/// Something has become due.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Due;

/// Look at the queue. Sent to itself once for any number of facts, so that a thousand submissions cost few rounds.
#[derive(Message)]
#[rtype(result = "()")]
struct Round;

/// What happens once a commit is durable.
struct InFlight {
    seq: u64,
    effects: Vec<Effect>,
    /// The jobs that these effects end, as they are at their end: a commit may take longer than they stay in memory.
    ended: Vec<JobView>,
    /// When it was sent to the store; `None` for one that changes nothing there.
    sent: Option<Instant>,
    then: Option<Box<dyn FnOnce()>>,
}

pub struct SchedulerActor {
    core: Core,
    outputs: SchedulerOutputs,
    seq: u64,
    in_flight: VecDeque<InFlight>,
    round_queued: bool,
    runners: HashMap<JobId, Addr<RunnerActor>>,
    watchers: HashMap<JobId, Watch>,
    step_news: HashMap<StepKey, NewsSender>,
    /// Steps whose processes are known to exist, and those processes.
    running_steps: HashMap<StepKey, Vec<u32>>,
    tickets: HashMap<u64, Ticket>,
    /// Running jobs of an earlier daemon, to be taken over at the start.
    adopt: Vec<Job>,
    counters: Counters,
    /// Commits wait for room on the disk.
    disk_is_full: bool,
}

impl SchedulerActor {
    /// `adopt`: the active jobs of the recovered core.
    pub fn new(core: Core, outputs: SchedulerOutputs, adopt: Vec<Job>) -> Self {
        let daemon_start = outputs.daemon_start;
        SchedulerActor {
            core,
            outputs,
            seq: 0,
            in_flight: VecDeque::new(),
            round_queued: false,
            runners: HashMap::new(),
            watchers: HashMap::new(),
            step_news: HashMap::new(),
            running_steps: HashMap::new(),
            tickets: HashMap::new(),
            adopt,
            counters: Counters::since(daemon_start),
            disk_is_full: false,
        }
    }

    fn now(&self) -> Timestamp {
        (self.outputs.clock)()
    }

    /// Sends the changes to the store; effects and `then` follow their acknowledgement. Everything takes this way,
    /// so that no effect overtakes an earlier one.
    fn commit_then(&mut self, out: Outbox, then: Option<Box<dyn FnOnce()>>) {
        let Outbox { changes, effects } = out;
        if changes.is_empty() && effects.is_empty() && then.is_none() {
            return;
        }
        self.seq += 1;
        let texts_for = effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Launch(job) => Some(job.id),
                _ => None,
            })
            .collect();
        let ended = effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Ended(id) => self.view(*id),
                _ => None,
            })
            .collect();
        let sent = (!changes.is_empty()).then(Instant::now);
        self.outputs.store.do_send(Commit { seq: self.seq, changes, texts_for });
        self.in_flight.push_back(InFlight { seq: self.seq, effects, ended, sent, then });
    }

    /// Lets the core decide, sends what comes of it to the store, and asks for a round.
    fn decide(&mut self, ctx: &mut Context<Self>, decision: impl FnOnce(&mut Core, &mut Cx)) {
        let mut cx = Cx::at(self.now());
        decision(&mut self.core, &mut cx);
        self.commit(cx.out, ctx);
    }

    /// As [`Self::commit_then`], and asks for a round.
    fn commit(&mut self, out: Outbox, ctx: &mut Context<Self>) {
        self.commit_then(out, None);
        self.ask_round(ctx);
    }

    fn ask_round(&mut self, ctx: &mut Context<Self>) {
        if !self.round_queued {
            self.round_queued = true;
            ctx.notify(Round);
        }
    }

    /// A reply that is sent when everything so far is durable.
    fn reply_after<T: 'static>(&mut self, out: Outbox, value: T) -> ResponseFuture<T> {
        let (tx, rx) = oneshot::channel();
        self.commit_then(
            out,
            Some(Box::new(move || {
                let _ = tx.send(value);
            })),
        );
        Box::pin(async move {
            match rx.await {
                Ok(value) => value,
                // The daemon is going down: the session is dropped before anybody could read an answer.
                Err(_) => std::future::pending().await,
            }
        })
    }

    fn set_alarm(&mut self) {
        let due = self.core.next_due();
        self.outputs.alarm.send_if_modified(|current| {
            let changed = *current != due;
            *current = due;
            changed
        });
    }

    fn view(&self, id: JobId) -> Option<JobView> {
        let mut view = self.core.view(id, self.now())?;
        fill_paths(&mut view, &self.core.config().host.name);
        Some(view)
    }

    fn runner(&mut self, job: JobId) -> Addr<RunnerActor> {
        let seed = &self.outputs.runners;
        self.runners.entry(job).or_insert_with(|| seed.start(job)).clone()
    }

    /// `ended`: a view for each [`Effect::Ended`], in the same order.
    fn carry_out_all(&mut self, effects: Vec<Effect>, ended: Vec<JobView>, mut texts: HashMap<JobId, LaunchTexts>) {
        let mut ended = ended.into_iter().peekable();
        for effect in effects {
            let Effect::Ended(id) = effect else {
                self.carry_out(effect, &mut texts);
                continue;
            };
            if let Some(runner) = self.runners.remove(&id) {
                // That of an allocation that was given back has not reported an end.
                runner.do_send(Dismiss);
            }
            if let Some(view) = ended.next_if(|view| view.id == id) {
                self.announce_end(view);
            }
        }
    }

    fn carry_out(&mut self, effect: Effect, texts: &mut HashMap<JobId, LaunchTexts>) {
        match effect {
            Effect::Launch(job) => {
                let id = job.id;
                let texts = texts.remove(&id).unwrap_or_default();
                let config = self.core.config();
                let (host, ranks) = (config.host.clone(), job.request.task_rule(config.batch_tasks).ranks);
                self.runner(id).do_send(LaunchJob { job, ranks, texts, host });
                self.tell_start(id);
            }
            Effect::Granted(id) => {
                let Some(job) = self.core.job(id).cloned() else { return };
                let host = self.core.config().host.clone();
                self.runner(id).do_send(OpenAllocation { job: Box::new(job), host });
                if let Some(view) = self.view(id) {
                    self.tell(id, Answer::Granted { view: Box::new(view) });
                }
            }
            Effect::Stop { job, cause } => self.runner(job).do_send(StopJob { cause }),
            Effect::StopStep { step, cause } => self.runner(step.job).do_send(StopStep { step: step.step, cause }),
            Effect::Signal { job, target, signal } => self.runner(job).do_send(SignalJob { target, signal }),
            Effect::Suspend(job) => self.runner(job).do_send(SuspendJob),
            Effect::Resume(job) => self.runner(job).do_send(ResumeJob),
            Effect::SetTimeLimit { job, limit_secs, .. } => self.runner(job).do_send(SetTimeLimit { limit_secs }),
            Effect::LaunchStep { step, ticket, alloc } => self.launch_step(step, ticket, alloc),
            Effect::StepRefused { ticket, refusal } => {
                if let Some(ticket) = self.tickets.remove(&ticket) {
                    let _ = ticket.news.send(Answer::Refused(refusal));
                }
            }
            // Announced with the view of their commit.
            Effect::Ended(_) => {}
            Effect::Requeued(id) => {
                self.runners.remove(&id);
            }
            // One task of an array has the array's number, and may be gone long before the others.
            Effect::Gone(id) => {
                if self.core.resolve(&JobRef::job(id)).is_empty() {
                    self.watchers.remove(&id);
                }
            }
        }
    }
}

impl Actor for SchedulerActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        for job in std::mem::take(&mut self.adopt) {
            let host = self.core.config().host.clone();
            self.runner(job.id).do_send(AdoptJob { job: Box::new(job), host });
        }
        for (job, cause) in self.core.unfinished_stops() {
            self.runner(job).do_send(StopJob { cause });
        }
        self.ask_round(ctx);
    }
}

impl Handler<Round> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, _: Round, _: &mut Self::Context) {
        self.round_queued = false;
        let mut cx = Cx::at(self.now());
        let began = Instant::now();
        self.core.plan(&mut cx);
        self.counters.round(began.elapsed(), &self.core, cx.now, &cx.out);
        self.commit_then(cx.out, None);
        self.set_alarm();
    }
}

impl Handler<Due> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, _: Due, ctx: &mut Self::Context) {
        self.decide(ctx, |core, cx| core.on_due(cx));
    }
}

impl Handler<Committed> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, Committed { seq, result }: Committed, _: &mut Self::Context) {
        let texts = result.unwrap_or_else(|e| {
            // What was promised can no longer be kept in step with what is remembered: start again from the disk.
            log::error!("the database refused a change, the daemon ends: {e}");
            crate::actors::fatal();
        });
        let Some(done) = self.in_flight.pop_front() else { return };
        debug_assert_eq!(done.seq, seq);
        if let Some(sent) = done.sent {
            self.counters.commits.add(sent.elapsed());
        }
        self.carry_out_all(done.effects, done.ended, texts.into_iter().collect());
        done.then.into_iter().for_each(|then| then());
    }
}

impl Handler<DiskFull> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, DiskFull(is_full): DiskFull, _: &mut Self::Context) {
        self.disk_is_full = is_full;
        if is_full {
            log::error!("the disk of the database is full: no jobs are taken or started until it has room");
        } else {
            log::info!("the disk of the database has room again");
        }
    }
}

impl Handler<SubmitJob> for SchedulerActor {
    type Result = ResponseFuture<Result<JobId, Refusal>>;

    fn handle(&mut self, m: SubmitJob, ctx: &mut Self::Context) -> Self::Result {
        if self.disk_is_full {
            return Box::pin(async { Err(Refusal::DiskFull) });
        }
        if m.again
            && let Some(client) = m.submission.client
            && let Some(id) = self.core.submitted_by(client.process)
        {
            self.rejoin_job(id, client.holds, m.news);
            return self.reply_after(Outbox::default(), Ok(id));
        }
        let mut cx = Cx::at(self.now());
        let id = match self.core.submit(m.submission, &mut cx) {
            Ok(id) => id,
            Err(refusal) => return Box::pin(async move { Err(refusal) }),
        };
        self.counters.jobs.submitted += 1;
        m.news.into_iter().for_each(|news| self.watch(id, news));
        self.ask_round(ctx);
        self.reply_after(cx.out, Ok(id))
    }
}

impl Handler<TestSubmission> for SchedulerActor {
    type Result = Result<crate::sched::Estimate, Refusal>;

    fn handle(&mut self, TestSubmission(submission): TestSubmission, _: &mut Self::Context) -> Self::Result {
        self.core.test_only(&submission, self.now())
    }
}

impl Handler<RefreshLive> for SchedulerActor {
    type Result = MessageResult<RefreshLive>;

    fn handle(&mut self, RefreshLive(mut jobs): RefreshLive, _: &mut Self::Context) -> Self::Result {
        for job in jobs.iter_mut().filter(|job| !job.run.state.is_terminal()) {
            if let Some(live) = self.view(job.id) {
                *job = live;
            }
        }
        MessageResult(jobs)
    }
}

impl Handler<ReleaseAllocation> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, m: ReleaseAllocation, ctx: &mut Self::Context) {
        self.decide(ctx, |core, cx| core.release_allocation(m.job, m.exit, cx));
    }
}

impl Handler<ClientGone> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, m: ClientGone, ctx: &mut Self::Context) {
        // A client that came back on another connection has taken the allocation over.
        if self.core.job(m.job).and_then(Job::holder) == Some(m.client) && !self.is_watched(m.job) {
            self.decide(ctx, |core, cx| core.client_lost(m.job, cx));
        }
    }
}

impl Handler<LimitReached> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, LimitReached { job }: LimitReached, ctx: &mut Self::Context) {
        self.decide(ctx, |core, cx| core.limit_reached(job, cx));
    }
}

impl Handler<JobEnded> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, m: JobEnded, ctx: &mut Self::Context) {
        self.decide(ctx, |core, cx| core.on_job_ended(m.job, m.record, m.cause, cx));
    }
}

impl Handler<RunnerDied> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, RunnerDied { job }: RunnerDied, ctx: &mut Self::Context) {
        let mut cx = Cx::at(self.now());
        let record = ExitRecord::gone(ExitCode::OK, cx.now);
        self.core.on_job_ended(job, record, EndCause::RunnerLost, &mut cx);
        self.commit(cx.out, ctx);
    }
}

impl Handler<GpusChanged> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, GpusChanged(gpus): GpusChanged, ctx: &mut Self::Context) {
        let mut host = self.core.config().host.clone();
        host.gpus = gpus;
        let partitions = (self.outputs.partitions)(!host.gpus.is_empty());
        self.core.set_host(host, partitions, self.now());
        self.ask_round(ctx);
    }
}

/// The client that an allocation of an earlier daemon belongs to, for those that may still come back.
pub fn clients_to_expect(jobs: &[Job]) -> Vec<(JobId, ClientProcess)> {
    jobs.iter().filter(|job| !job.run.state.is_terminal()).filter_map(|job| Some((job.id, job.holder()?))).collect()
}
