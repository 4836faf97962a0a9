//! How jobs end, and which come back.
//!
//! A state that says how a job ended is never overwritten: what was decided first (cancelled, given back, requeued) is
//! kept in the record's reason while the job is COMPLETING, so that it also survives a restart of the daemon. Only
//! OUT_OF_MEMORY is preferred to CANCELLED.

use super::admit::Admitted;
use super::core::Core;
use super::depend::Known;
use super::types::{Cx, Effect, EndCause, StopCause};
use super::waits::Outlook;
use crate::model::change::Change;
use crate::model::dependency::{DependencyKind, DependencyTerm};
use crate::model::job::{Client, ClientProcess};
use crate::model::request::JobKind;
use crate::model::run::{Run, RunState};
use crate::model::tres::Usage;
use crate::model::{ExitCode, ExitRecord, Job, JobId, JobState, Reason, Step, Timestamp};
use std::sync::Arc;
use std::time::Duration;

const SIGTERM: i32 = 15;

/// A launch that comes so long after its decision is late. What is less does not show.
const LATE: Duration = Duration::from_secs(1);

/// A terminal state with what is told about it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    pub state: JobState,
    pub reason: Reason,
    pub exit: ExitCode,
    pub by: Option<u32>,
}

impl Ending {
    pub(super) fn cancelled(reason: Reason, by: Option<u32>) -> Self {
        Ending { state: JobState::Cancelled, reason, exit: ExitCode::OK, by }
    }

    /// Of processes that ended on their own.
    fn exited(exit: ExitCode) -> Self {
        let (state, reason) = match exit {
            ExitCode { status: 0, signal: 0 } => (JobState::Completed, Reason::None),
            // A client tells how its step ended; a process cannot end so.
            ExitCode::OUT_OF_MEMORY => (JobState::OutOfMemory, Reason::OutOfMemory),
            ExitCode { signal: 0, .. } => (JobState::Failed, Reason::NonZeroExitCode),
            ExitCode { .. } => (JobState::Failed, Reason::RaisedSignal),
        };
        Ending { state, reason, exit, by: None }
    }

    /// Of a running job, by what its processes came to.
    pub(super) fn of_running(exit: ExitCode, cause: EndCause) -> Self {
        let ending = |state, reason| Ending { state, reason, exit, by: None };
        match cause {
            EndCause::Exited => Ending::exited(exit),
            EndCause::TimeLimit => ending(JobState::Timeout, Reason::TimeLimit),
            EndCause::OutOfMemory => Ending::exited(ExitCode::OUT_OF_MEMORY),
            EndCause::LaunchFailed | EndCause::HostFault => {
                ending(JobState::Failed, Reason::JobLaunchFailure)
            }
            EndCause::RunnerLost => ending(JobState::Failed, Reason::RunnerLost),
            EndCause::NodeFailed => ending(JobState::NodeFail, Reason::NodeDown),
            // Nobody here asked for it, yet a ladder ran: the request was lost with an earlier daemon.
            EndCause::Stopped | EndCause::NeverLaunched => {
                ending(JobState::Cancelled, Reason::None)
            }
        }
    }

    /// Of a job that was stopped: cancelled, given back, or its client was lost.
    fn of_stopped(job: &Job, exit: ExitCode, cause: EndCause) -> Self {
        let by = job.run.cancelled_by;
        let reason = match job.run.reason {
            // It was cancelled before it was back in the queue.
            Reason::Requeued => Reason::CancelledByUser,
            reason => reason,
        };
        if cause == EndCause::OutOfMemory {
            return Ending { by, ..Ending::exited(ExitCode::OUT_OF_MEMORY) };
        }
        if by.is_none()
            && !matches!(reason, Reason::CancelledByUser | Reason::ClientLost | Reason::DeadLine)
        {
            // An allocation that was given back: it ended as its command did.
            return Ending::exited(job.run.exit);
        }
        // Of a script that never ran, or whose end nobody saw, the signal is what is known.
        let is_unseen = matches!(
            cause,
            EndCause::NeverLaunched
                | EndCause::HostFault
                | EndCause::RunnerLost
                | EndCause::NodeFailed
        );
        let exit = match job.request.kind {
            JobKind::Batch | JobKind::Run if is_unseen => ExitCode::signal(SIGTERM),
            JobKind::Allocation if is_unseen => ExitCode::OK,
            JobKind::Batch | JobKind::Run | JobKind::Allocation => exit,
        };
        Ending { state: JobState::Cancelled, reason, exit, by }
    }
}

/// How the command of an allocation ended that its client ran, if this step was that command and its client lived to see
/// its end.
pub(super) fn end_of_command(job: &Job, step: &Step) -> Option<ExitCode> {
    let is_command = step.client.is_some() && step.client == job.holder();
    (is_command && step.state.is_terminal() && !step.client_gone).then_some(step.exit)
}

impl Core {
    /// All processes of a job are gone, or it never had any.
    pub fn on_job_ended(&mut self, id: JobId, record: ExitRecord, cause: EndCause, cx: &mut Cx) {
        if let (EndCause::HostFault, Some(fault)) = (cause, record.host_fault) {
            self.launch_failed_by_host(
                id,
                fault,
                record.launch_error.as_deref().unwrap_or_default(),
                cx.now,
            );
        }
        let Some(known) = self.jobs.get_mut(&id).map(|known| &mut known.job) else { return };
        if let Some(clock) = record.clock {
            known.run.catch_up(clock);
        }
        let job = &*known;
        match job.run.state {
            JobState::Completing
                if job.run.reason == Reason::Requeued && job.run.cancelled_by.is_none() =>
            {
                let run = job.run.clone().ended_as(record.exit, record.usage, record.ended);
                let run = RunState { state: JobState::Cancelled, reason: Reason::None, ..run };
                self.back_to_queue(id, Some(Run { requeued: true, run, steps: Vec::new() }), cx);
            }
            // However its processes took SIGTERM.
            JobState::Completing if job.run.reason == Reason::NodeDown => {
                let record = ExitRecord { exit: ExitCode::NODE_FAILED, ..record };
                self.end_running(id, record, EndCause::NodeFailed, cx);
            }
            JobState::Completing if job.run.reason != Reason::TimeLimit => {
                let ending = Ending::of_stopped(job, record.exit, cause);
                self.finish(id, ending, record.usage, record.ended, cx);
            }
            // The limit was reached, however its processes ended then, and whether a daemon saw it or not.
            JobState::Completing
                if matches!(cause, EndCause::Exited | EndCause::Stopped | EndCause::NodeFailed) =>
            {
                self.end_running(id, record, EndCause::TimeLimit, cx);
            }
            JobState::Running | JobState::Suspended | JobState::Completing => {
                self.end_running(id, record, cause, cx)
            }
            JobState::Pending
            | JobState::Completed
            | JobState::Failed
            | JobState::Cancelled
            | JobState::Timeout
            | JobState::OutOfMemory
            | JobState::NodeFail => {}
        }
        self.settle(cx);
    }

    /// A job that nobody stopped, except for its time limit, is over: for good, or to run again.
    fn end_running(&mut self, id: JobId, record: ExitRecord, cause: EndCause, cx: &mut Cx) {
        let Some(job) = self.jobs.get_mut(&id).map(|known| &mut known.job) else { return };
        let is_unbegun = matches!(cause, EndCause::NeverLaunched | EndCause::HostFault);
        if is_unbegun && job.request.kind != JobKind::Allocation {
            self.launch_came_to_nothing(id);
            return self.back_to_queue(id, None, cx);
        }
        let ending = Ending::of_running(record.exit, cause);
        let is_failure = match ending.state {
            JobState::Failed | JobState::Timeout | JobState::OutOfMemory | JobState::NodeFail => {
                true
            }
            JobState::Completed | JobState::Cancelled => false,
            JobState::Pending | JobState::Running | JobState::Suspended | JobState::Completing => {
                false
            }
        };
        job.run.system_comment = record.left_over_in_words().or(record.launch_error);
        if is_failure && job.runs_again() {
            let run = job.run.clone().ended_as(ending.exit, record.usage, record.ended);
            let run = RunState { state: ending.state, reason: ending.reason, ..run };
            self.back_to_queue(id, Some(Run { requeued: false, run, steps: Vec::new() }), cx);
        } else {
            self.finish(id, ending, record.usage, record.ended, cx);
        }
    }

    /// The command of an allocation has ended: the resources come back, with its exit code.
    pub fn release_allocation(&mut self, id: JobId, exit: ExitCode, cx: &mut Cx) {
        let Some(job) = self.job(id) else { return };
        let has_steps = job.steps.iter().any(|step| !step.state.is_terminal());
        match job.run.state {
            JobState::Pending => {
                self.end_pending(id, Ending::cancelled(Reason::ClientLost, None), cx);
            }
            JobState::Running | JobState::Suspended if has_steps => {
                if let Some(record) = self.jobs.get_mut(&id) {
                    record.job.run.exit = exit;
                }
                self.stop(id, Reason::None, StopCause::Released, cx);
            }
            JobState::Running | JobState::Suspended => {
                let ending = Ending::exited(exit);
                self.finish(id, ending, Usage::default(), cx.now, cx);
            }
            JobState::Completing
            | JobState::Completed
            | JobState::Failed
            | JobState::Cancelled
            | JobState::Timeout
            | JobState::OutOfMemory
            | JobState::NodeFail => {}
        }
        self.settle(cx);
    }

    /// The client that an allocation was made for is gone without giving it back. One whose command has ended had no
    /// daemon to give it back to.
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
            JobState::Completing
            | JobState::Completed
            | JobState::Failed
            | JobState::Cancelled
            | JobState::Timeout
            | JobState::OutOfMemory
            | JobState::NodeFail => {}
        }
        self.settle(cx);
    }

    /// This process stands for the allocation now.
    pub fn set_holder(&mut self, id: JobId, process: ClientProcess, cx: &mut Cx) {
        let until_granted =
            self.job(id).and_then(|job| job.client).is_some_and(|client| client.until_granted);
        let client = Some(Client { process, holds: true, until_granted });
        if let Some(record) = self.jobs.get_mut(&id)
            && record.job.client != client
        {
            let old = std::mem::replace(&mut record.job.client, client);
            if let Some(old) = old {
                self.clients.remove(&(old.process, id));
            }
            self.clients.insert((process, id));
            self.save(id, cx);
        }
    }

    /// The job that this process has submitted, of those in memory: of an array its number.
    pub fn submitted_by(&self, process: ClientProcess) -> Option<JobId> {
        let own = (process, JobId(0))..=(process, JobId(u32::MAX));
        let job = self.clients.range(own).next().and_then(|(_, id)| self.job(*id))?;
        Some(job.array_job_id().unwrap_or(job.id))
    }

    /// The job is about to be launched. Where that comes long after the decision, since its commit had to wait for the disk,
    /// the job starts now: its time is its own.
    pub fn launches(&mut self, id: JobId, cx: &mut Cx) {
        let clock = self.clock;
        let Some(run) = self.jobs.get_mut(&id).map(|record| &mut record.job.run) else { return };
        let waited =
            run.started_at().map(|decided| clock.monotonic(cx.now).saturating_sub(decided));
        let is_as_decided = run.state == JobState::Running && run.suspended_us == 0;
        if is_as_decided && waited.is_some_and(|waited| waited >= LATE) {
            (run.start, run.clock, run.stepped_us) = (Some(cx.now), Some(clock), 0);
            self.save(id, cx);
        }
    }

    /// RUNNING or SUSPENDED to COMPLETING, and the ladder is set up. The reason says what it is to end as.
    pub(super) fn stop(&mut self, id: JobId, reason: Reason, cause: StopCause, cx: &mut Cx) {
        if !self.transition(id, JobState::Completing, cx.now) {
            return;
        }
        if let Some(record) = self.jobs.get_mut(&id) {
            record.job.run.reason = reason;
            record.job.run.stopped_at.get_or_insert(cx.now);
            match cause {
                StopCause::Cancelled { by } | StopCause::Killed { by } => {
                    record.job.run.cancelled_by = Some(by)
                }
                StopCause::Requeue
                | StopCause::ClientLost
                | StopCause::Released
                | StopCause::Deadline
                | StopCause::TimeLimit
                | StopCause::NodeDown => {}
            }
        }
        self.save(id, cx);
        self.refuse_waiting_steps(id, cx);
        cx.out.effects.push(Effect::Stop { job: id, cause });
    }

    /// The ladder of the time limit is under way: its runner has begun it, since a limit holds whether the database can
    /// be written or not.
    pub fn limit_reached(&mut self, id: JobId, cx: &mut Cx) {
        if self.job(id).is_some_and(|job| job.run.state == JobState::Running)
            && self.transition(id, JobState::Completing, cx.now)
        {
            if let Some(record) = self.jobs.get_mut(&id) {
                record.job.run.reason = Reason::TimeLimit;
                record.job.run.stopped_at.get_or_insert(cx.now);
            }
            self.tell_limit_reached(id, cx.now);
            self.save(id, cx);
            self.refuse_waiting_steps(id, cx);
            self.say(cx);
        }
    }

    /// Ends a record that never started.
    pub(super) fn end_pending(&mut self, id: JobId, ending: Ending, cx: &mut Cx) {
        self.set_end(id, &ending, cx.now);
        if self.transition(id, ending.state, cx.now) {
            self.save(id, cx);
            cx.out.effects.push(Effect::Ended(id));
        }
    }

    pub(super) fn set_end(&mut self, id: JobId, ending: &Ending, ended: Timestamp) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        let job = &mut record.job;
        job.run.reason = ending.reason;
        job.run.exit = ending.exit;
        job.run.cancelled_by = ending.by;
        job.run.end_at(ended);
    }

    pub(super) fn finish(
        &mut self,
        id: JobId,
        ending: Ending,
        usage: Usage,
        ended: Timestamp,
        cx: &mut Cx,
    ) {
        self.close_steps(id, ending.state, ended, cx);
        self.set_end(id, &ending, ended);
        if let Some(record) = self.jobs.get_mut(&id) {
            record.job.run.usage = record.job.run.usage.merge(usage);
        }
        if self.transition(id, ending.state, cx.now) {
            self.save(id, cx);
            self.refuse_waiting_steps(id, cx);
            self.note_length(id);
            cx.out.effects.push(Effect::Ended(id));
        }
    }

    /// What is expected of later jobs of the name.
    fn note_length(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id).map(|record| &record.job) else { return };
        if job.run.state == JobState::Completed && job.run.start.is_some() {
            self.experience
                .note(&job.request, job.elapsed(job.run.end.unwrap_or_default()).as_secs());
        }
    }

    /// What an earlier daemon saw: jobs that ended well, the latest last.
    pub fn remember(&mut self, ended: &[Job]) {
        for job in ended {
            self.experience
                .note(&job.request, job.elapsed(job.run.end.unwrap_or_default()).as_secs());
        }
    }

    /// Steps that nobody will report on any more end with their job.
    fn close_steps(&mut self, id: JobId, state: JobState, ended: Timestamp, cx: &mut Cx) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        let step_state = match state {
            JobState::Completed | JobState::Cancelled | JobState::Pending => JobState::Cancelled,
            JobState::Failed | JobState::Timeout | JobState::OutOfMemory | JobState::NodeFail => {
                state
            }
            JobState::Running | JobState::Suspended | JobState::Completing => JobState::Cancelled,
        };
        let suspended_at = record.job.run.suspended_at;
        for step in record.job.steps.iter_mut().filter(|step| !step.state.is_terminal()) {
            step.state = step_state;
            if let Some(since) = suspended_at {
                step.stood_still(since, ended);
            }
            step.end_at(ended);
            cx.out.changes.push(Change::PutStep { job: id, step: Box::new(Step::clone(step)) });
        }
    }

    /// A job that named several partitions may go to each of them again.
    fn choose_anew(&mut self, id: JobId) {
        let Some(job) = self.job(id) else { return };
        let names_several = job.request.partition.as_ref().is_some_and(|names| names.contains(','));
        let partitions = names_several.then(|| self.partitions_for(&job.request).ok()).flatten();
        let admitted =
            partitions.and_then(|partitions| self.readmit(&job.request, &partitions).ok());
        if let Some(Admitted { partition, tres, .. }) = admitted {
            self.reshape(id, |job| (job.partition, job.tres) = (partition, tres));
        }
    }

    /// A job that ran, or has ended, is PENDING again with its number. `run` is what is remembered of the run; without
    /// one there was none.
    pub(super) fn back_to_queue(&mut self, id: JobId, run: Option<Run>, cx: &mut Cx) {
        self.close_steps(id, JobState::Pending, cx.now, cx);
        self.take_over_limit(id);
        if !self.transition(id, JobState::Pending, cx.now) {
            return;
        }
        if run.is_some() {
            self.tell_requeue(id, cx.now);
        }
        self.refuse_waiting_steps(id, cx);
        self.keep_only_singleton(id);
        self.choose_anew(id);
        if let Some(record) = self.jobs.get_mut(&id) {
            let job = &mut record.job;
            if let Some(mut run) = run {
                job.run.restarts += 1;
                run.steps = std::mem::take(&mut job.steps);
                job.next_step = job.first_step();
                cx.out.changes.push(Change::EndRun { job: id, run: Box::new(run) });
            }
            let RunState { restarts, system_comment, .. } = std::mem::take(&mut job.run);
            job.run = RunState { restarts, system_comment, ..RunState::default() };
        }
        self.refresh(id, cx.now);
        self.arm(id, cx.now);
        self.save(id, cx);
        cx.out.effects.push(Effect::Requeued(id));
        self.drop_if_late(id, cx);
    }

    /// The limit of an array may have been changed after one of its tasks had ended, which comes back now.
    fn take_over_limit(&mut self, id: JobId) {
        let Some(group) = self.group_of(id) else { return };
        let limit = group.limit;
        let is_live =
            |other: &JobId| self.job(*other).is_some_and(|job| !job.run.state.is_terminal());
        let has_company = group.records.iter().any(is_live);
        if let Some(record) = self.jobs.get_mut(&id)
            && has_company
            && record.job.request.array.as_ref().is_some_and(|array| array.limit != limit)
            && let Some(array) = &mut Arc::make_mut(&mut record.job.request).array
        {
            array.limit = limit;
        }
    }

    /// A job that comes back has met its dependency once and does not wait for it again, as in Slurm. That it is to be
    /// alone with its name is as true as before.
    fn keep_only_singleton(&mut self, id: JobId) {
        if self.job(id).is_none_or(|job| job.request.dependency.is_empty()) {
            return;
        }
        self.reshape(id, |job| {
            let dependency = &mut Arc::make_mut(&mut job.request).dependency;
            let is_any = dependency.any;
            // A job that was to expand another one is for nothing else.
            let expands = |term: &DependencyTerm| {
                matches!(term, DependencyTerm::On { kind: DependencyKind::Expand, .. })
            };
            dependency
                .terms
                .retain(|term| expands(term) || (*term == DependencyTerm::Singleton && !is_any));
        });
        self.set_waits(id, &Known::default());
    }

    /// `--kill-on-invalid-dep`: a job whose dependency can never be met is cancelled, and single tasks of an array.
    pub(super) fn drop_if_hopeless(&mut self, id: JobId, cx: &mut Cx) {
        let Some(record) = self.jobs.get(&id) else { return };
        if record.job.run.state != JobState::Pending || !record.job.request.kill_on_invalid_dep {
            return;
        }
        let Some(waits) = record.waits.as_deref() else { return };
        let ending = Ending::cancelled(Reason::DependencyNeverSatisfied, None);
        if self.dependency_outlook(&record.job, waits, cx.now) == Outlook::Never {
            self.end_pending(id, ending, cx);
            return;
        }
        // Together, as those that a user cancels: many tasks make one record.
        let hopeless = self.hopeless_tasks(&record.job, waits);
        if let Some(own) = self.split_set(id, &hopeless) {
            self.save_split(own, id, cx);
            self.end_pending(own, ending, cx);
        }
    }
}
