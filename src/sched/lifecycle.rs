//! How jobs end, and which return to the queue.
//!
//! A final state is never overwritten. While the job is COMPLETING, the record's reason keeps the
//! first decision (cancelled, released, requeued), so that it also survives a restart of the
//! daemon. Only OUT_OF_MEMORY takes precedence over CANCELLED.

use super::admit::Admitted;
use super::core::Core;
use super::ending::Ending;
use super::preempt::PREEMPTED_PAUSE_SECS;
use super::records::Outlook;
use super::records::depend::Known;
use super::records::steps::end_of_command;
use super::types::{Cx, Effect, EndCause, StopCause};
use slotd_model::change::Change;
use slotd_model::job::{Client, ClientProcess};
use slotd_model::request::JobKind;
use slotd_model::run::{Run, RunState};
use slotd_model::tres::Usage;
use slotd_model::{ArrayRole, End, ExitCode, ExitRecord, Job, JobId, JobState, Reason, Timestamp};

impl Core {
    /// Re-evaluates the dependents of all jobs whose state has changed, the dependents of those
    /// that change in turn, and so on.
    pub(super) fn settle(&mut self, cx: &mut Cx) {
        while let Some(id) = self.records.take_changed() {
            let Some(job) = self.job(id) else { continue };
            let (array, name) = (job.array_job_id(), (job.request.uid, job.request.name.clone()));
            let task = match &job.role {
                ArrayRole::Task { task, .. } => Some(*task),
                ArrayRole::None | ArrayRole::Rest { .. } | ArrayRole::Part { .. } => None,
            };
            let mut others = Vec::new();
            if let Some(array) = array {
                others = self.records.reconsider_dependents(array, task, cx);
            }
            if array != Some(id) {
                others.extend(self.records.reconsider_dependents(id, None, cx));
            }
            for other in others {
                self.refresh(other, cx.now);
                self.arm(other, cx.now);
                self.drop_if_hopeless(other, cx);
            }
            self.refresh_singletons(&name.1, name.0, cx.now);
        }
        self.notifications.emit(&self.records, cx);
    }

    /// Handles the end of all processes of a job, or of a job that never had any.
    pub fn on_job_ended(&mut self, id: JobId, record: ExitRecord, cause: EndCause, cx: &mut Cx) {
        if let (EndCause::HostFault, Some(fault)) = (cause, record.host_fault) {
            self.launch_failed_by_host(
                id,
                fault,
                record.launch_error.as_deref().unwrap_or_default(),
                cx,
            );
        }
        if let Some(clock) = record.clock {
            self.records.edit(id, |job| job.run.catch_up(clock));
        }
        if let Some(by) = record.cancelled_by
            && self.job(id).is_some_and(|job| job.run.state.is_active())
        {
            // The daemon that cancelled it may not have stored that.
            self.records.edit(id, |job| *job.run.cancelled_by.get_or_insert(by));
        }
        let Some(job) = self.job(id) else { return };
        match job.run.state {
            JobState::Completing
                if job.run.reason == Reason::Requeued && job.run.cancelled_by.is_none() =>
            {
                self.end_for_requeue(id, &record, End::Cancelled, cx);
            }
            JobState::Running | JobState::Suspended | JobState::Completing
                if self.ends_preempted(job, &record, cause) =>
            {
                self.end_preempted(id, &record, cx);
            }
            JobState::Completing if ended_before_its_stop(job, cause) => {
                self.records.edit(id, |job| job.run.preempted = None);
                self.end_running(id, record, cause, cx);
            }
            // Regardless of how its processes responded to SIGTERM.
            JobState::Completing if job.run.reason == Reason::NodeDown => {
                let record = ExitRecord { exit: ExitCode::NODE_FAILED, ..record };
                self.end_running(id, record, EndCause::NodeFailed, cx);
            }
            JobState::Completing if job.run.reason != Reason::TimeLimit => {
                let ending = Ending::of_stopped(job, record.exit, cause);
                self.finish(id, ending, record.usage, record.ended, cx);
            }
            // The limit was reached, regardless of how the processes then ended, and of whether a
            // daemon saw it. A job that had ended before, while no daemon ran, did not reach it.
            JobState::Completing
                if matches!(cause, EndCause::Exited | EndCause::Stopped | EndCause::NodeFailed)
                    && !(cause == EndCause::Exited && job.run.stopped_at > Some(record.ended)) =>
            {
                self.end_running(id, record, EndCause::TimeLimit, cx);
            }
            JobState::Running | JobState::Suspended | JobState::Completing => {
                self.end_running(id, record, cause, cx)
            }
            JobState::Pending | JobState::Ended(_) => {}
        }
        self.settle(cx);
    }

    /// Returns a job that was stopped for it to the queue. `end`: the state of the run.
    pub(super) fn end_for_requeue(
        &mut self,
        id: JobId,
        record: &ExitRecord,
        end: End,
        cx: &mut Cx,
    ) {
        let Some(job) = self.job(id) else { return };
        let run = job.run.clone().ended_as(record.exit, record.usage, record.ended);
        let run = RunState { state: JobState::Ended(end), reason: Reason::None, ..run };
        // Slurm's state is REQUEUED if nothing else ended the run.
        let requeued = end == End::Cancelled;
        let run = Run { requeued, submit: None, run, steps: Vec::new() };
        self.back_to_queue(id, Some(run), None, &Known::default(), cx);
    }

    /// Ends a job that nothing but its time limit has stopped: for good, or to run again.
    fn end_running(&mut self, id: JobId, record: ExitRecord, cause: EndCause, cx: &mut Cx) {
        let Some(job) = self.job(id) else { return };
        let is_unbegun = matches!(cause, EndCause::NeverLaunched | EndCause::HostFault);
        if is_unbegun && job.request.kind != JobKind::Allocation {
            self.count_lost_launch(id);
            return self.back_to_queue(id, None, None, &Known::default(), cx);
        }
        let ending = Ending::of_record(&record, cause);
        let is_rerun = match ending.state {
            End::NodeFail => true,
            End::Failed | End::Timeout | End::OutOfMemory => self.resources.config().reruns_failed,
            End::Completed | End::Cancelled | End::Preempted => false,
        };
        // If it was cancelled, the request was lost with an earlier daemon.
        let recurs = ending.state != End::Cancelled && self.next_recurrence(job, cx.now).is_some();
        let runs_again = recurs || (is_rerun && job.runs_again());
        let comment = record.left_over_in_words().or(record.launch_error);
        self.records.edit(id, |job| job.run.system_comment = comment);
        let Some(job) = self.job(id).filter(|_| runs_again) else {
            return self.finish(id, ending, record.usage, record.ended, cx);
        };
        let run = job.run.clone().ended_as(ending.exit, record.usage, record.ended);
        let state = JobState::Ended(ending.state);
        let run = RunState { state, reason: ending.reason, ..run };
        let run = Run { requeued: recurs, submit: None, run, steps: Vec::new() };
        let rerun_after = Some(ending.state).filter(|_| !recurs);
        self.back_to_queue(id, Some(run), rerun_after, &Known::default(), cx);
    }

    /// Releases an allocation whose command ended with this exit code.
    pub fn release_allocation(&mut self, id: JobId, exit: ExitCode, cx: &mut Cx) {
        let Some(job) = self.job(id) else { return };
        let has_steps = job.steps.iter().any(|step| !step.state.is_terminal());
        match job.run.state {
            JobState::Pending => {
                self.end_pending(id, Ending::cancelled(Reason::ClientLost, None), cx);
            }
            JobState::Running | JobState::Suspended if has_steps => {
                self.records.edit(id, |job| job.run.exit = exit);
                self.stop(id, Reason::None, StopCause::Released, cx);
            }
            JobState::Running | JobState::Suspended => {
                let ending = Ending::exited(exit);
                self.finish(id, ending, Usage::default(), cx.now, cx);
            }
            JobState::Completing | JobState::Ended(_) => {}
        }
        self.settle(cx);
    }

    /// Handles an allocation whose client has exited without releasing it. If its command has
    /// ended, the client could not release it because no daemon was running.
    pub fn client_lost(&mut self, id: JobId, cx: &mut Cx) {
        let Some(job) = self.job(id) else { return };
        if let Some(exit) = job.steps.iter().find_map(|step| end_of_command(job, step)) {
            return self.release_allocation(id, exit, cx);
        }
        match job.run.state {
            JobState::Pending => {
                self.end_pending(id, Ending::cancelled(Reason::ClientLost, None), cx);
            }
            JobState::Running | JobState::Suspended => {
                self.stop(id, Reason::ClientLost, StopCause::ClientLost, cx);
            }
            JobState::Completing | JobState::Ended(_) => {}
        }
        self.settle(cx);
    }

    /// Makes this process the holder of the allocation.
    pub fn set_holder(&mut self, id: JobId, process: ClientProcess, cx: &mut Cx) {
        let until_granted =
            self.job(id).and_then(|job| job.client).is_some_and(|client| client.until_granted);
        let client = Some(Client { process, holds: true, until_granted });
        if self.job(id).is_some_and(|job| job.client != client) {
            self.records.edit(id, |job| job.client = client);
            self.records.save(id, cx);
        }
    }

    /// Moves a RUNNING or SUSPENDED job to COMPLETING and requests its kill ladder. The reason
    /// determines how it will end.
    pub(super) fn stop(&mut self, id: JobId, reason: Reason, cause: StopCause, cx: &mut Cx) {
        if !self.transition(id, JobState::Completing, cx.now) {
            return;
        }
        self.records.edit(id, |job| {
            job.run.reason = reason;
            job.run.stopped_at.get_or_insert(cx.now);
            match cause {
                StopCause::Cancelled { by } | StopCause::Killed { by } => {
                    job.run.cancelled_by = Some(by)
                }
                StopCause::Requeue
                | StopCause::ClientLost
                | StopCause::Released
                | StopCause::Deadline
                | StopCause::TimeLimit
                | StopCause::Preempted
                | StopCause::NodeDown => {}
            }
        });
        self.records.save(id, cx);
        self.refuse_waiting_steps(id, cx);
        cx.out.effects.push(Effect::Stop { job: id, cause });
    }

    /// Ends all running jobs because the host is shutting down, as NODE_FAIL or back in the queue,
    /// and starts no more.
    pub fn host_goes_down(&mut self, cx: &mut Cx) {
        self.resources.node_mut().goes_down(cx.now);
        let is_running =
            |job: &&Job| matches!(job.run.state, JobState::Running | JobState::Suspended);
        let running = self.records.active_jobs().filter(is_running);
        let running: Vec<JobId> = running.map(|job| job.id).collect();
        for id in running {
            self.stop(id, Reason::NodeDown, StopCause::NodeDown, cx);
        }
        self.settle(cx);
    }

    /// Records that a job has reached its time limit. Its runner has already started the ladder,
    /// since a limit applies whether or not the database can be written.
    pub fn limit_reached(&mut self, id: JobId, cx: &mut Cx) {
        if self.job(id).is_some_and(|job| job.run.state == JobState::Running)
            && self.transition(id, JobState::Completing, cx.now)
        {
            self.records.edit(id, |job| {
                job.run.reason = Reason::TimeLimit;
                job.run.stopped_at.get_or_insert(cx.now);
            });
            if let Some(job) = self.records.job(id) {
                self.notifications.notify_limit_reached(job, cx.now);
            }
            self.records.save(id, cx);
            self.refuse_waiting_steps(id, cx);
            self.notifications.emit(&self.records, cx);
        }
    }

    /// Ends a record that never started.
    pub(super) fn end_pending(&mut self, id: JobId, ending: Ending, cx: &mut Cx) {
        self.drop_first_step(id, cx);
        self.records.set_end(id, &ending, cx.now);
        if self.transition(id, JobState::Ended(ending.state), cx.now) {
            self.records.save(id, cx);
            cx.out.effects.push(Effect::Ended(id));
        }
    }

    pub(super) fn finish(
        &mut self,
        id: JobId,
        ending: Ending,
        usage: Usage,
        ended: Timestamp,
        cx: &mut Cx,
    ) {
        self.drop_first_step(id, cx);
        self.records.close_steps(id, ending.state, ended, cx);
        self.records.set_end(id, &ending, ended);
        self.records.edit(id, |job| job.run.add_usage(usage));
        if self.transition(id, JobState::Ended(ending.state), cx.now) {
            self.records.save(id, cx);
            self.refuse_waiting_steps(id, cx);
            self.note_length(id);
            cx.out.effects.push(Effect::Ended(id));
        }
    }

    /// Records the run time of a completed job, to predict later jobs of its name.
    fn note_length(&mut self, id: JobId) {
        let is_meant = |job: &&Job| {
            job.run.state == JobState::Ended(End::Completed) && job.run.start.is_some()
        };
        if let Some(job) = self.records.job(id).filter(is_meant) {
            self.line.note_length(job);
        }
    }

    /// Records the run times of jobs that ended well under earlier daemons, oldest first.
    pub fn remember(&mut self, ended: &[Job]) {
        ended.iter().for_each(|job| self.line.note_length(job));
    }

    /// Lets a job that named several partitions choose among all of them again.
    fn choose_anew(&mut self, id: JobId) {
        let Some(job) = self.job(id) else { return };
        let names_several = job.request.partition.as_ref().is_some_and(|names| names.contains(','));
        let partitions = names_several
            .then(|| self.resources.config().partitions_for(&job.request).ok())
            .flatten();
        let admitted = partitions
            .and_then(|partitions| self.resources.readmit(&job.request, &partitions).ok());
        if let Some(Admitted { partition, tres, .. }) = admitted {
            self.records.edit(id, |job| (job.partition, job.tres) = (partition.into(), tres));
        }
    }

    /// Returns a job that ran or has ended to the queue, PENDING under the same ID. `run` is the
    /// run to record, if there was one. `rerun_after` is how that run ended if only `--requeue`
    /// makes the job run again. A job that recurs waits for its next time. `known`: what the store
    /// knows of the targets of its dependency, for a job that never began.
    pub(super) fn back_to_queue(
        &mut self,
        id: JobId,
        run: Option<Run>,
        rerun_after: Option<End>,
        known: &Known,
        cx: &mut Cx,
    ) {
        let has_run = run.is_some();
        self.records.close_steps(id, End::Cancelled, cx.now, cx);
        self.records.take_over_limit(id);
        let has_held = self.job(id).is_some_and(|job| job.run.state.is_active());
        if !self.transition(id, JobState::Pending, cx.now) {
            return;
        }
        // The times since its end were missed if no daemon saw it.
        let ended = run.as_ref().map(|run| run.run.end.unwrap_or(cx.now).min(cx.now));
        let next = ended.and_then(|ended| self.next_recurrence(self.records.job(id)?, ended));
        // Not if its user requeues it later.
        let is_preempted = has_held
            && run.as_ref().is_some_and(|run| run.run.state == JobState::Ended(End::Preempted));
        let pause = is_preempted.then(|| cx.now.plus_secs(PREEMPTED_PAUSE_SECS));
        if let (Some(job), Some(run)) = (self.records.job(id), &run) {
            if next.is_some() && run.run.state != JobState::Ended(End::Cancelled) {
                self.notifications.notify_end_of_run(&run.clone().record(job), cx.now);
            } else {
                self.notifications.notify_requeue(job, cx.now);
            }
        }
        self.refuse_waiting_steps(id, cx);
        if run.as_ref().is_none_or(|run| run.run.start.is_some()) {
            self.records.keep_only_singleton(id);
        } else {
            self.records.learn(known);
            self.records.set_waits(id, known);
        }
        self.choose_anew(id);
        self.records.edit(id, |job| {
            // A job that was not launched is tried again unchanged.
            let rerun_after = if run.is_some() { rerun_after } else { job.run.rerun_after };
            if let Some(mut run) = run {
                job.run.restarts += 1;
                run.steps = std::mem::take(&mut job.steps);
                run.submit = next.map(|_| job.submit);
                job.next_step = job.first_step();
                cx.out.changes.push(Change::EndRun { job: id, run: Box::new(run) });
            }
            let RunState { restarts, system_comment, begin, preempted, .. } =
                std::mem::take(&mut job.run);
            let system_comment = system_comment.filter(|_| is_preempted || preempted.is_none());
            let begin = pause.or(begin);
            job.run =
                RunState { restarts, system_comment, rerun_after, begin, ..RunState::default() };
        });
        if let Some(next) = next {
            self.begin_at(id, next, cx.now);
        }
        self.refresh_compact(id, cx.now);
        self.refresh(id, cx.now);
        self.arm(id, cx.now);
        self.records.save(id, cx);
        cx.out.effects.push(Effect::Requeued(id));
        self.drop_if_late(id, cx);
        if !has_run {
            self.drop_if_removed(id, cx);
        }
    }

    /// Cancels a pending job that can no longer end before its deadline.
    pub(super) fn drop_if_late(&mut self, id: JobId, cx: &mut Cx) {
        if self.job(id).is_some_and(|job| job.run.state == JobState::Pending && job.is_late(cx.now))
        {
            self.end_pending(id, Ending::cancelled(Reason::DeadLine, None), cx);
        }
    }

    /// Implements `--kill-on-invalid-dep`: cancels a job, or single tasks of an array, whose
    /// dependency can never be met.
    pub(super) fn drop_if_hopeless(&mut self, id: JobId, cx: &mut Cx) {
        let Some(record) = self.records.get(id) else { return };
        if record.job.run.state != JobState::Pending
            || !record.job.request.is_killed_on_invalid_dep()
        {
            return;
        }
        let Some(waits) = record.waits.as_deref() else { return };
        let ending = Ending::cancelled(Reason::DependencyNeverSatisfied, None);
        if self.records.dependency_outlook(&record.job, waits, cx.now) == Outlook::Never {
            self.end_pending(id, ending, cx);
            return;
        }
        // Cancel them together, as for a user, so that many tasks make one record.
        let hopeless = self.records.hopeless_tasks(&record.job, waits);
        if let Some(own) = self.records.split_set(id, &hopeless) {
            self.records.save_split(own, id, cx);
            self.end_pending(own, ending, cx);
        }
    }
}

/// Returns whether a job that was to be stopped for its preemption or at its deadline had ended by
/// itself before.
fn ended_before_its_stop(job: &Job, cause: EndCause) -> bool {
    match job.run.reason {
        _ if job.run.cancelled_by.is_some() => false,
        // See `Core::ends_preempted`.
        Reason::Preempted => true,
        Reason::DeadLine => cause == EndCause::Exited,
        _ => false,
    }
}
