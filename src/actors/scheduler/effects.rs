//! Carries out the effects of decisions: launches, grants and events after their commit, stops and
//! signals at once.

use super::SchedulerActor;
use crate::actors::messages::*;
use slotd_exec::StepCommand;
use slotd_model::change::{Change, LaunchTexts, Texts};
use slotd_model::resize::PartChange;
use slotd_model::view::JobView;
use slotd_model::{Job, JobId, JobRef};
use slotd_protocol::answer::Answer;
use slotd_sched::{Cx, Effect, StopCause};
use std::collections::{HashMap, HashSet};

/// The largest script and environment of a launch that is prepared, in bytes. Others are rare.
const MOST_PREPARED: usize = 256 << 10;

impl SchedulerActor {
    pub(super) fn send_to_runner(&mut self, job: JobId, command: RunnerCommand) {
        let make = &self.outputs.runners;
        self.runners.entry(job).or_insert_with(|| make(job)).do_send(command);
    }

    pub(super) fn stop(&mut self, job: JobId, cause: StopCause) {
        let reservation = self.core.job(job).and_then(|job| job.run.ended_reservation.clone());
        self.send_to_runner(job, RunnerCommand::Stop { cause, reservation });
    }

    /// `ended` contains the view to announce for each [`Effect::Ended`]. Returns whether a job went
    /// back to the queue instead of being launched.
    pub(super) fn carry_out_all(
        &mut self,
        effects: Vec<Effect>,
        mut ended: HashMap<JobId, JobView>,
        mut texts: HashMap<JobId, LaunchTexts>,
    ) -> bool {
        let mut has_returned = false;
        for effect in effects {
            let id = match effect {
                Effect::Ended(id) => id,
                Effect::Launch(job) => {
                    let texts = texts.remove(&job.id).unwrap_or_default();
                    has_returned |= !self.launch(job, texts);
                    continue;
                }
                effect => {
                    self.carry_out(effect);
                    continue;
                }
            };
            self.managers.forget(id);
            if let Some(runner) = self.runners.remove(&id) {
                // The runner of a released allocation has not reported an end.
                runner.do_send(RunnerCommand::Dismiss);
            }
            if let Some(view) = ended.remove(&id) {
                self.announce_end(view);
            }
            let mut cx = Cx::at(self.now());
            self.core.end_is_stored(id, &mut cx);
            self.commit_then(cx.out, None);
        }
        has_returned
    }

    /// Records that a job whose start is durable is being launched. Returns false if it is too late
    /// for the launch.
    fn note_launch(&mut self, id: JobId) -> bool {
        let mut cx = Cx::at(self.now());
        let goes = self.core.launches(id, &mut cx);
        self.commit_then(cx.out, None);
        goes
    }

    /// Launches a batch job. Returns false if it is too late for that.
    fn launch(&mut self, mut job: Box<Job>, texts: LaunchTexts) -> bool {
        let id = job.id;
        if !self.note_launch(id) {
            // It may have prepared the launch.
            self.runners.remove(&id);
            return false;
        }
        if let Some(known) = self.core.job(id) {
            job.run.start = known.run.start;
        }
        let launch = self.launch_of(job, texts);
        self.send_to_runner(id, RunnerCommand::Launch(launch));
        true
    }

    fn launch_of(&self, job: Box<Job>, texts: LaunchTexts) -> LaunchJob {
        let config = self.core.config();
        let (host, ranks) = (config.host.clone(), job.request.task_rule(config.batch_tasks).ranks);
        LaunchJob { job, ranks, texts, host }
    }

    /// Returns the launches of the jobs that these commits both submit and start, so that they are
    /// prepared while the disk writes. The texts of other jobs are in the database.
    pub(super) fn launches_of_new_jobs(&self, commits: &[Commit]) -> Vec<LaunchJob> {
        // Without a CPU that no job uses, the preparation would only delay the commit.
        let resources = self.core.resources();
        let has_idle_cpu = resources.allocated().cpus < resources.host().tres().cpus;
        // In trouble it may take long until the disk writes, and the submissions may be withdrawn.
        if self.trouble.is_some() || !has_idle_cpu {
            return Vec::new();
        }
        let starts: HashSet<JobId> =
            commits.iter().flat_map(|commit| &commit.texts_for).copied().collect();
        let is_small = |texts: &LaunchTexts| texts.script.len() + texts.env.len() <= MOST_PREPARED;
        let launch = |change: &Change| match change {
            Change::Insert { job, texts: Texts::New(texts) }
                if starts.contains(&job.id) && is_small(texts) =>
            {
                let job = self.in_flight.launch_of(job.id)?.clone();
                Some(self.launch_of(Box::new(job), texts.clone()))
            }
            _ => None,
        };
        commits.iter().flat_map(|commit| &commit.changes).filter_map(launch).collect()
    }

    pub(super) fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Granted(id) => {
                self.note_launch(id);
                let Some(job) = self.core.job(id).cloned() else { return };
                let host = self.core.config().host.clone();
                self.send_to_runner(
                    id,
                    RunnerCommand::Open(OpenAllocation { job: Box::new(job), host }),
                );
                if let Some(view) = self.view(id) {
                    self.notify(id, Answer::Granted { view: Box::new(view) });
                }
            }
            Effect::Stop { job, cause } => self.stop(job, cause),
            Effect::StopStep { step, cause } => {
                if !self.stop_managed(step.job, step.step, cause) {
                    self.send_to_runner(step.job, RunnerCommand::StopStep(step.step, cause));
                }
            }
            Effect::Signal { job, target, signal } => {
                if !self.signal_managed(job, target, signal) {
                    self.send_to_runner(job, RunnerCommand::Signal { target, signal });
                }
            }
            Effect::ManagerChanged(job, why) => self.notify_manager(job, why),
            Effect::Resized(job) => {
                if let Some(alloc) = self.core.job(job).and_then(|job| job.run.alloc.clone()) {
                    let (sharing, is_managed) =
                        (self.core.records().sharing_steps(job), self.core.is_shared_out(job));
                    self.send_to_runner(job, RunnerCommand::Resize { alloc, sharing, is_managed });
                }
            }
            Effect::PartsOut(job) => self.report_parts_out(job),
            Effect::Warn(job) => self.send_to_runner(job, RunnerCommand::Warn),
            Effect::Preempt(job) => self.send_to_runner(job, RunnerCommand::Preempt),
            Effect::Suspend(job) => self.send_to_runner(job, RunnerCommand::Suspend),
            Effect::Resume(job) => self.send_to_runner(job, RunnerCommand::Resume),
            Effect::SetTimeLimit { job, limit_secs, .. } => {
                self.send_to_runner(job, RunnerCommand::SetTimeLimit(limit_secs));
                self.notify_manager(job, PartChange::TimeLimit);
            }
            Effect::SetStepLimit { step, left } => {
                let command = StepCommand::TimeLimit { left };
                self.send_to_runner(step.job, RunnerCommand::ToStep(step.step, command));
            }
            Effect::LaunchStep { step, ticket, alloc } => self.launch_step(step, ticket, alloc),
            Effect::StepRefused { ticket, refusal } => {
                if let Some(ticket) = self.tickets.remove(&ticket) {
                    let _ = ticket.news.send(Answer::Refused(refusal));
                }
            }
            // `carry_out_all` has what these need from the commit.
            Effect::Launch(_) | Effect::Ended(_) => {}
            Effect::Requeued(id) => {
                self.runners.remove(&id);
                self.managers.forget(id);
                self.end_forgotten_steps(id);
            }
            // Removed from the effects before the commit.
            Effect::Notify { .. } => {}
            // One task of an array has the array's own ID, and may be removed long before the
            // others.
            Effect::Gone(id) => {
                if self.core.records().resolve(&JobRef::job(id)).is_empty() {
                    self.watchers.remove(&id);
                }
            }
        }
    }
}
