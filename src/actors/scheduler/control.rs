//! The commands of scontrol and scancel, each on a list of jobs.

use super::SchedulerActor;
use crate::actors::messages::{CancelJobs, CommandStep, ControlJobs};
use crate::exec::StepCommand;
use crate::model::job::Hold;
use crate::model::update::Update;
use crate::model::{ArrayRole, Job, JobId, JobRef, JobState, Refusal, StepId};
use crate::protocol::answer::Outcome;
use crate::protocol::request::{CancelAsk, CancelFilter, ControlAction};
use crate::sched::EndedJob;
use crate::sched::{Cx, SignalTarget, Update as Change};
use actix::prelude::*;

impl Handler<ControlJobs> for SchedulerActor {
    type Result = ResponseFuture<Vec<Outcome>>;

    fn handle(&mut self, m: ControlJobs, ctx: &mut Self::Context) -> Self::Result {
        let mut cx = Cx::at(self.now());
        let mut outcomes = Vec::with_capacity(m.jobs.len());
        let updates = match &m.action {
            ControlAction::Update(updates) => self.translate(updates, &m.ended),
            _ => Vec::new(),
        };
        for job in &m.jobs {
            let result = match &m.action {
                ControlAction::Hold => self.core.hold(job, Hold::User, &mut cx),
                ControlAction::Release => self.core.release(job, &mut cx),
                ControlAction::Requeue => self.core.requeue(job, false, &mut cx),
                ControlAction::RequeueHold => self.core.requeue(job, true, &mut cx),
                ControlAction::Suspend => self.core.suspend(job, &mut cx),
                ControlAction::Resume => self.core.resume(job, &mut cx),
                ControlAction::Notify(text) => self.notify_job(job, text),
                ControlAction::Top => self.core.top(job, &mut cx),
                ControlAction::Update(_) => self.core.update(job, &updates, &mut cx),
            };
            outcomes.push(Outcome { target: job.clone(), result });
        }
        let reply = self.reply_after(cx.out, outcomes);
        self.ask_round(ctx);
        reply
    }
}

impl Handler<CancelJobs> for SchedulerActor {
    type Result = ResponseFuture<Vec<Outcome>>;

    fn handle(&mut self, CancelJobs(ask): CancelJobs, ctx: &mut Self::Context) -> Self::Result {
        let mut cx = Cx::at(self.now());
        let targets = self.targets(&ask);
        let outcomes = targets.iter().map(|target| self.cancel_one(target, &ask, &mut cx)).collect();
        let reply = self.reply_after(cx.out, outcomes);
        self.ask_round(ctx);
        reply
    }
}

impl SchedulerActor {
    /// The updates with what only the daemon knows: the fate of a dependency's targets.
    fn translate(&self, updates: &[Update], ended: &[EndedJob]) -> Vec<Change> {
        updates
            .iter()
            .cloned()
            .filter_map(|update| {
                Some(match update {
                    Update::Nodes => return None,
                    Update::JobName(name) => Change::JobName(name),
                    Update::Partition(name) => Change::Partition(name),
                    Update::TimeLimit(secs) => Change::TimeLimit(secs),
                    Update::Priority(n) => Change::Priority(n),
                    Update::Nice(n) => Change::Nice(n),
                    Update::Dependency(d) => Change::Dependency(d, ended.to_vec()),
                    Update::NumCpus(n) => Change::NumCpus(n),
                    Update::NumTasks(n) => Change::NumTasks(n),
                    Update::CpusPerTask(n) => Change::CpusPerTask(n),
                    Update::MinMemoryNode(mb) => Change::MinMemoryNode(mb),
                    Update::MinMemoryCpu(mb) => Change::MinMemoryCpu(mb),
                    Update::Gpus(n) => Change::Gpus(n),
                    Update::StartTime(at) => Change::StartTime(at),
                    Update::Deadline(at) => Change::Deadline(at),
                    Update::Comment(text) => Change::Comment(text),
                    Update::Account(text) => Change::Account(text),
                    Update::Qos(text) => Change::Qos(text),
                    Update::WorkDir(path) => Change::WorkDir(path),
                    Update::StdOut(path) => Change::StdOut(path),
                    Update::StdErr(path) => Change::StdErr(path),
                    Update::StdIn(path) => Change::StdIn(path),
                    Update::ArrayTaskThrottle(n) => Change::ArrayTaskThrottle(n),
                    Update::Requeue(yes) => Change::Requeue(yes),
                    Update::Features(constraint) => Change::Features(constraint),
                    Update::WcKey(text) => Change::WcKey(text),
                    Update::Reservation(text) => Change::Reservation(text),
                    Update::Licenses(text) => Change::Licenses(text),
                    Update::MailType(text) => Change::MailType(text),
                    Update::MailUser(text) => Change::MailUser(text),
                    Update::TimeMin(secs) => Change::TimeMin(secs),
                    Update::PriorityReset => Change::PriorityReset,
                    Update::GpusPerTask(n) => Change::GpusPerTask(n),
                    Update::Exclusive(yes) => Change::Exclusive(yes),
                })
            })
            .collect()
    }

    /// A line in the standard error of a running batch job.
    fn notify_job(&self, job: &JobRef, text: &str) -> Result<Vec<JobId>, Refusal> {
        let running: Vec<JobId> =
            self.core.resolve(job).into_iter().filter(|id| self.runners.contains_key(id)).collect();
        if running.is_empty() {
            return Err(Refusal::UnknownJob);
        }
        for id in &running {
            if let Some(runner) = self.runners.get(id) {
                let line = format!("slurmstepd: message: {text}");
                runner.do_send(CommandStep { step: StepId::Batch, command: StepCommand::Notice(line) });
            }
        }
        Ok(running)
    }

    /// The named jobs that the filter takes, or all live jobs that it takes.
    fn targets(&self, ask: &CancelAsk) -> Vec<JobRef> {
        if !ask.refs.is_empty() {
            if ask.filter.is_empty() {
                return ask.refs.clone();
            }
            let taken = |r: &&JobRef| {
                self.core.resolve(r).iter().any(|id| {
                    self.core.job(*id).is_some_and(|job| takes(&ask.filter, job, &self.core.config().host.name))
                })
            };
            return ask.refs.iter().filter(taken).cloned().collect();
        }
        let mut ids: Vec<JobId> = self
            .core
            .jobs()
            .filter(|job| !job.run.state.is_terminal() && takes(&ask.filter, job, &self.core.config().host.name))
            .map(|j| j.id)
            .collect();
        ids.sort_unstable();
        ids.into_iter()
            .filter_map(|id| self.core.job(id))
            .map(|job| match &job.role {
                ArrayRole::None => JobRef::job(job.id),
                // The rest of an array, not the tasks that have left it: those have their own records.
                ArrayRole::Rest { tasks, .. } => JobRef { job: job.id, tasks: Some(tasks.clone()), step: None },
                _ => JobRef::job(job.id),
            })
            .collect()
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

/// Whether scancel's filter options name this job. Account, qos, reservation and wckey are kept words here.
fn takes(filter: &CancelFilter, job: &Job, host: &str) -> bool {
    let request = &job.request;
    let is = |wanted: &[String], have: &str| wanted.is_empty() || wanted.iter().any(|w| w == have);
    let may_be = |wanted: &[String], have: &Option<String>| {
        wanted.is_empty() || have.as_ref().is_some_and(|h| wanted.contains(h))
    };
    let state = if job.run.state == JobState::Completing { JobState::Running } else { job.run.state };
    is(&filter.users, &request.user)
        && is(&filter.names, &request.name)
        && is(&filter.partitions, &job.partition)
        && may_be(&filter.accounts, &request.account)
        && may_be(&filter.qos, &request.qos)
        && may_be(&filter.reservations, &request.reservation)
        && may_be(&filter.wckeys, &request.wckey)
        && (filter.states.is_empty() || filter.states.contains(&state))
        && (filter.nodes.is_empty() || (job.run.state.is_active() && is(&filter.nodes, host)))
}
