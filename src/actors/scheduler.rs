//! SchedulerActor: runs the scheduling core.
//!
//! Owns the core, the runners of active jobs, and the clients that wait for events of jobs.
//! Receives the sessions' commands and the runners' facts. Sends [`Commits`] to the store. Once a
//! commit is acknowledged, it carries out the effects in this order: launches, replies,
//! notifications. Effects that end or signal running processes do not wait for the commit
//! (`in_flight`). Its handlers never await. It has no timers of its own: the alarm is set to the
//! next time at which something is due, if any. It stops with the daemon; if it dies, the daemon
//! exits.

use crate::actors::activity::{self, Activity};
use crate::actors::feed::FeedSender;
use crate::actors::launch_plan::fill_paths;
use crate::actors::messages::*;
use crate::actors::news::NewsSender;
use crate::actors::runner::RunnerSeed;
use actix::prelude::*;
use slotd_exec::cgroup::CgroupBase;
use slotd_exec::launch_spec::StepCommand;
use slotd_model::change::Change;
use slotd_model::changed::Changed;
use slotd_model::job::ClientProcess;
use slotd_model::view::JobView;
use slotd_model::{ExitCode, ExitRecord, Job, JobId, Moment, StepKey, StoreTrouble, Timestamp};
use slotd_sched::{Core, Cx, Effect, EndCause, Outbox};
use slotd_sys::{aside, break_point, clock, memory};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot, watch};

mod asker;
mod control;
mod counters;
mod crontab;
mod diagnostics;
mod effects;
mod feeds;
mod forecasts;
mod in_flight;
mod managed;
mod node;
mod notices;
mod outgoing;
mod query;
mod steps;
mod submit;
#[cfg(test)]
pub mod tests;
mod trouble;
mod watchers;

use asker::{Asker, CommitResult};
use counters::Counters;
use forecasts::Forecasts;
use in_flight::{InFlight, Waiting};
use managed::Managers;
use outgoing::Notices;
use steps::Ticket;
use watchers::Watch;

/// After this many records have been dropped, their memory, a few megabytes, is returned to the
/// system.
const MANY_FORGOTTEN: usize = 1000;

/// The capacity of the mailbox. If it is full, senders wait.
const MAILBOX: usize = 4096;

/// Commits wait for the next round if the last one took no more CPU time than this, so that a start
/// is committed together with the request that caused it. Another write to the disk would take as
/// long. On a busy machine, a round that was interrupted is not slow.
const QUICK_ROUND: Duration = Duration::from_millis(1);

/// The number of unsent commits that are sent without waiting for a round.
const MOST_UNSENT: usize = 64;

/// The signal in the exit code of a step that was stopped before it started.
const SIGTERM: i32 = 15;

/// The recipients of the scheduler's decisions.
pub struct SchedulerOutputs {
    pub store: Recipient<Commits>,
    pub notifier: Recipient<Notify>,
    /// The number of the next notification.
    pub next_notice: u64,
    /// Reads the GPU usage.
    pub gpus: Recipient<ReadGpus>,
    /// The root directory of the daemon, to distinguish its jobs from other processes.
    pub root: PathBuf,
    /// Creates the runner of a job.
    pub runners: RunnerSeed,
    /// The base directory for the cgroups of jobs.
    pub cgroups: Option<Arc<CgroupBase>>,
    /// The time of the next [`Due`].
    pub alarm: watch::Sender<Option<Timestamp>>,
    pub clock: fn() -> Moment,
    pub daemon_start: Timestamp,
    /// Needed for the history of host usage.
    pub activity: watch::Sender<Activity>,
    /// A permit is needed to compute a forecast.
    pub forecasts: Arc<Semaphore>,
}

/// A timer of the core has expired.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Due;

/// Plan the queue. The actor sends this to itself once for any number of facts, so that a thousand
/// submissions need only a few rounds.
#[derive(Message)]
#[rtype(result = "()")]
struct Round;

pub struct SchedulerActor {
    core: Core,
    outputs: SchedulerOutputs,
    seq: u64,
    in_flight: InFlight<Asker>,
    /// Commits that are sent to the store after the next round.
    unsent: Vec<Commit>,
    round_queued: bool,
    is_round_quick: bool,
    /// A waiting launch was cancelled since the last round.
    has_called_off: bool,
    runners: HashMap<JobId, Recipient<RunnerCommand>>,
    watchers: HashMap<JobId, Watch>,
    /// New allocations that no round has considered yet, and whose clients wait.
    newcomers: Vec<JobId>,
    /// The clients that watch for any change.
    feeds: Vec<FeedSender>,
    step_news: HashMap<StepKey, NewsSender>,
    /// Steps known to be running, and their processes.
    running_steps: HashMap<StepKey, Vec<u32>>,
    tickets: HashMap<u64, Ticket>,
    managers: Managers,
    /// Running jobs of an earlier daemon, to be adopted at startup.
    adopt: Vec<Job>,
    /// Decisions made before startup, not yet committed.
    opening: Outbox,
    counters: Counters,
    forecasts: Forecasts,
    notices: Notices,
    /// Set while the database cannot be written and commits wait.
    trouble: Option<StoreTrouble>,
    /// The last logged problem of the node.
    logged_trouble: Option<String>,
    /// The host is shutting down, and this receiver waits for the end of all jobs.
    going_down: Option<oneshot::Sender<()>>,
}

impl SchedulerActor {
    /// `adopt` are the active jobs of the recovered core, `opening` the decisions made during
    /// recovery.
    pub fn new(core: Core, outputs: SchedulerOutputs, adopt: Vec<Job>, opening: Outbox) -> Self {
        let daemon_start = outputs.daemon_start;
        let notices = Notices::from(outputs.next_notice);
        let forecasts = Forecasts::new(Arc::clone(&outputs.forecasts));
        SchedulerActor {
            core,
            outputs,
            seq: 0,
            in_flight: InFlight::default(),
            unsent: Vec::new(),
            round_queued: false,
            is_round_quick: true,
            has_called_off: false,
            runners: HashMap::new(),
            watchers: HashMap::new(),
            newcomers: Vec::new(),
            feeds: Vec::new(),
            step_news: HashMap::new(),
            running_steps: HashMap::new(),
            tickets: HashMap::new(),
            managers: Managers::default(),
            adopt,
            opening,
            counters: Counters::since(daemon_start),
            forecasts,
            notices,
            trouble: None,
            logged_trouble: None,
            going_down: None,
        }
    }

    /// Returns the current time. Also detects that the wall clock was set or that the machine
    /// slept.
    fn now(&mut self) -> Timestamp {
        let Moment { wall, base } = (self.outputs.clock)();
        self.core.set_clock(base);
        wall
    }

    /// Sends the changes to the store. Effects that end or signal processes are carried out now.
    /// The other effects and the answer to `asker` follow the acknowledgement. All decisions pass
    /// through here, so that no effect overtakes an earlier one on the same job.
    fn commit_then(&mut self, out: Outbox, mut asker: Option<Asker>) {
        let Outbox { mut changes, mut effects } = out;
        if changes.is_empty() && effects.is_empty() && asker.is_none() {
            return;
        }
        self.seq += 1;
        self.publish_decision(&changes, &effects);
        self.name_std_err(&mut effects);
        let outgoing = self.notices.take(&mut effects, &mut changes);
        let sorted = self.in_flight.sort(effects);
        let texts_for = sorted
            .later
            .iter()
            .filter_map(|effect| match effect {
                Effect::Launch(job) => Some(job.id),
                _ => None,
            })
            .collect();
        let ended = self.ends(&sorted.later);
        let sent = (!changes.is_empty()).then(Instant::now);
        if sent.is_some() {
            self.forecasts.outdate();
        }
        let submission = match &mut asker {
            Some(Asker::Submission { job, answer, .. }) => {
                Some(Submitted { job: *job, answer: answer.take() })
            }
            _ => None,
        };
        let changed = changes.iter().filter_map(Change::job).collect();
        let seq = self.seq;
        self.unsent.push(Commit { seq, changes, texts_for, submission });
        self.in_flight.push(Waiting {
            seq: self.seq,
            effects: sorted.later,
            ended,
            outgoing,
            changed,
            sent,
            asker,
        });
        if !(self.round_queued && self.is_round_quick) || self.unsent.len() >= MOST_UNSENT {
            self.send_commits();
        }
        for effect in sorted.at_once {
            self.carry_out(effect);
        }
        self.has_called_off |= !sorted.called_off.is_empty();
        for launch in sorted.called_off {
            self.end_unlaunched(launch);
        }
    }

    /// Sends all unsent commits as one message, so that a single write to disk covers them: a
    /// submission and its start, or the end of a job and the start of the next one.
    fn send_commits(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        let commits = std::mem::take(&mut self.unsent);
        let soon = self.launches_of_new_jobs(&commits);
        self.outputs.store.do_send(Commits(commits));
        for launch in soon {
            self.send_to_runner(launch.job.id, RunnerCommand::Prepare(launch));
        }
    }

    /// Runs a decision in the core, commits its results, and requests a round.
    fn decide(&mut self, ctx: &mut Context<Self>, decision: impl FnOnce(&mut Core, &mut Cx)) {
        let mut cx = Cx::at(self.now());
        decision(&mut self.core, &mut cx);
        self.commit(cx.out, ctx);
    }

    /// Like [`Self::commit_then`], and also requests a round.
    fn commit(&mut self, out: Outbox, ctx: &mut Context<Self>) {
        self.ask_round(ctx);
        self.commit_then(out, None);
    }

    fn ask_round(&mut self, ctx: &mut Context<Self>) {
        if !self.round_queued {
            self.round_queued = true;
            ctx.notify(Round);
        }
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
        let mut view = self.core.view(id, (self.outputs.clock)().wall)?;
        fill_paths(&mut view, &self.core.config().host.name);
        Some(view)
    }
}

impl Actor for SchedulerActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        let opening = std::mem::take(&mut self.opening);
        self.commit_then(opening, None);
        self.log_beyond();
        for job in std::mem::take(&mut self.adopt) {
            let host = self.core.config().host.clone();
            self.send_to_runner(
                job.id,
                RunnerCommand::Adopt(AdoptJob { job: Box::new(job), host }),
            );
        }
        for (job, cause) in self.core.records().unfinished_stops() {
            self.stop(job, cause);
        }
        self.ask_round(ctx);
    }
}

impl Handler<Round> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, _: Round, ctx: &mut Self::Context) {
        self.round_queued = false;
        let mut cx = Cx::at(self.now());
        let (began, cpu_before) = (Instant::now(), clock::thread_cpu());
        self.core.plan(&mut cx);
        let (took, worked) = (began.elapsed(), clock::thread_cpu().saturating_sub(cpu_before));
        self.log_node();
        self.counters.round(took, &self.core, cx.now, &cx.out);
        self.is_round_quick = worked <= QUICK_ROUND;
        self.commit_then(cx.out, None);
        self.send_commits();
        if std::mem::take(&mut self.has_called_off) {
            // A preempted job whose launch was still waiting has made room already.
            self.ask_round(ctx);
        }
        self.notify_newcomers();
        if self.core.take_gpu_request() {
            self.outputs.gpus.do_send(ReadGpus);
        }
        if self.core.take_cpu_request() {
            self.read_cpus(ctx);
        }
        if self.core.node_mut().take_cgroup_request(cx.now) {
            self.check_cgroups(ctx);
        }
        if self.core.take_forgotten(MANY_FORGOTTEN) {
            actix::spawn(aside::run("returning free memory", aside::PATIENCE, memory::give_back));
        }
        activity::publish_runs(&self.outputs.activity, self.core.records().has_active());
        self.set_alarm();
    }
}

impl Handler<SendCommits> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, _: SendCommits, _: &mut Self::Context) {
        self.send_commits();
    }
}

impl Handler<Due> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, _: Due, ctx: &mut Self::Context) {
        self.decide(ctx, |core, cx| core.on_due(cx));
        // The timer may change what pending jobs wait for.
        self.publish(Changed::queue);
    }
}

impl Handler<Committed> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, Committed { seq, result }: Committed, ctx: &mut Self::Context) {
        let texts = result.unwrap_or_else(|e| {
            // Memory and database no longer agree: restart from the state on disk.
            log::error!("the database refused a change, exiting: {e}");
            crate::actors::fatal();
        });
        break_point::reach("commit known");
        let Some(done) = self.in_flight.pop() else { return };
        debug_assert_eq!(done.seq, seq);
        if let Some(sent) = done.sent {
            self.counters.commits.add(sent.elapsed());
        }
        if self.carry_out_all(done.effects, done.ended, texts.into_iter().collect()) {
            self.ask_round(ctx);
        }
        for outgoing in done.outgoing {
            self.outputs.notifier.do_send(outgoing.notify);
        }
        if let Some(asker) = done.asker {
            asker.answer(CommitResult::Durable);
        }
        self.answer_shutdown();
    }
}

impl Handler<LeaveMemory> for SchedulerActor {
    type Result = Vec<JobId>;

    fn handle(
        &mut self,
        LeaveMemory(mut ids): LeaveMemory,
        ctx: &mut Self::Context,
    ) -> Self::Result {
        self.decide(ctx, |core, cx| core.on_due(cx));
        ids.retain(|id| self.core.job(*id).is_none());
        ids
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
        // If the client has reconnected, the new connection holds the allocation.
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
        break_point::reach("end heard");
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

    fn handle(&mut self, GpusChanged { gpus, lost }: GpusChanged, ctx: &mut Self::Context) {
        let mut host = self.core.config().host.clone();
        (host.gpus, host.lost_gpus, host.detects_gpus) = (gpus, lost, false);
        let partitions = self.core.config().all_partitions.clone();
        let now = self.now();
        self.core.set_host(host, partitions, now);
        self.publish(Changed::node);
        self.forecasts.outdate();
        self.decide(ctx, Core::notify_of_outages);
    }
}

impl Handler<GpusRead> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, GpusRead(read): GpusRead, ctx: &mut Self::Context) {
        if let Ok(read) = &read {
            activity::publish_gpus(&self.outputs.activity, read);
        }
        self.decide(ctx, |core, cx| core.on_gpus_read(read, cx.now));
        // The watcher of a step records its usage over time.
        for (key, gpu) in self.core.gpu_use_of_steps() {
            let command = StepCommand::Gpus { busy_percent: gpu.busy_sum, mem_mb: gpu.mem_sum_mb };
            if let Some(runner) = self.runners.get(&key.job) {
                runner.do_send(RunnerCommand::ToStep(key.step, command));
            }
        }
    }
}

/// Returns the clients that hold allocations of an earlier daemon and may still reconnect.
pub fn clients_to_expect<'a>(jobs: impl Iterator<Item = &'a Job>) -> Vec<(JobId, ClientProcess)> {
    jobs.filter(|job| !job.run.state.is_terminal())
        .filter_map(|job| Some((job.id, job.holder()?)))
        .collect()
}
