//! User commands on existing jobs: cancel, signal, hold, release, requeue, suspend, resume.
//!
//! A reference names a job, a whole array, some of its tasks, or a step. Tasks in a compact record
//! are split off it when a command affects them. Refusals are worded as in Slurm.

use super::core::Core;
use super::ending::Ending;
use super::preempt::is_preempted_to_requeue;
use super::records::covers;
use super::records::depend::Known;
use super::types::{Cx, Effect, EndedJob, SignalTarget, StopCause};
use slotd_model::change::Change;
use slotd_model::job::{FailedLaunches, Hold};
use slotd_model::preempt::Resumption;
use slotd_model::request::JobKind;
use slotd_model::run::Run;
use slotd_model::{Job, JobId, JobRef, JobState, Reason, Refusal};

const SIGKILL: i32 = 9;

impl Core {
    /// Returns the records that a command affects as a whole. A pending compact record is split and
    /// saved if the command names only some of its tasks.
    fn pick(&mut self, sel: &JobRef, cx: &mut Cx) -> Result<Vec<JobId>, Refusal> {
        let found = self.records.resolve(sel);
        if found.is_empty() {
            return Err(Refusal::UnknownJob);
        }
        let Some(tasks) = &sel.tasks else { return Ok(found) };
        let mut picked = Vec::with_capacity(found.len());
        for id in found {
            let splits = self.job(id).is_some_and(|job| {
                job.run.state == JobState::Pending
                    && job.compact_tasks().is_some_and(|own| !covers(tasks, own))
            });
            if !splits {
                picked.push(id);
            } else if let Some(own) = self.records.split_set(id, tasks) {
                // Without the split-off tasks, the outlook of the others may have changed.
                self.refresh(id, cx.now);
                self.refresh(own, cx.now);
                self.refresh_compact(own, cx.now);
                self.records.save_split(own, id, cx);
                picked.push(own);
            }
        }
        Ok(picked)
    }

    /// Cancels jobs (scancel) and returns the cancelled records. Pending jobs are CANCELLED at
    /// once; running ones are COMPLETING until their processes have ended.
    pub fn cancel(
        &mut self,
        sel: &JobRef,
        by_uid: u32,
        cx: &mut Cx,
    ) -> Result<Vec<JobId>, Refusal> {
        if sel.step.is_some() {
            return self.cancel_step(sel, StopCause::Cancelled { by: by_uid }, cx);
        }
        self.end_by_user(sel, StopCause::Cancelled { by: by_uid }, by_uid, cx)
    }

    fn end_by_user(
        &mut self,
        sel: &JobRef,
        cause: StopCause,
        by_uid: u32,
        cx: &mut Cx,
    ) -> Result<Vec<JobId>, Refusal> {
        let mut done = Vec::new();
        for id in self.pick(sel, cx)? {
            let Some(job) = self.job(id) else { continue };
            match job.run.state {
                JobState::Pending => {
                    let ending = Ending::cancelled(Reason::CancelledByUser, Some(by_uid));
                    self.end_pending(id, ending, cx);
                    done.push(id);
                }
                JobState::Running | JobState::Suspended => {
                    self.stop(id, Reason::CancelledByUser, cause, cx);
                    done.push(id);
                }
                JobState::Completing => {
                    // It is already being stopped, for a requeue or at its time limit: just keep it
                    // from returning to the queue.
                    let is_first = job.run.cancelled_by.is_none();
                    let is_requeued = is_being_requeued(job);
                    let may_wait = matches!(job.run.reason, Reason::Requeued | Reason::Preempted);
                    // Its manager may still request a requeue.
                    let may_come_back = job.run.reason == Reason::TimeLimit && is_first;
                    let recurs = self.next_recurrence(job, cx.now).is_some();
                    let comes_back = is_requeued || recurs || job.runs_again();
                    if comes_back || may_come_back {
                        self.records.edit(id, |job| job.run.cancelled_by = Some(by_uid));
                        self.records.save(id, cx);
                    }
                    // A second, harder request, or one in place of a stop that waits for its commit.
                    let is_harder = matches!(cause, StopCause::Killed { .. });
                    if is_harder || is_first && may_wait {
                        cx.out.effects.push(Effect::Stop { job: id, cause });
                    }
                    done.extend((comes_back || is_harder).then_some(id));
                }
                JobState::Ended(_) => {}
            }
        }
        self.settle(cx);
        if done.is_empty() { Err(Refusal::AlreadyDone) } else { Ok(done) }
    }

    fn cancel_step(
        &mut self,
        sel: &JobRef,
        cause: StopCause,
        cx: &mut Cx,
    ) -> Result<Vec<JobId>, Refusal> {
        let keys = self.launched_steps(sel)?;
        for key in &keys {
            self.records.note_canceller(*key, cause.by());
            cx.out.effects.push(Effect::StopStep { step: *key, cause });
        }
        Ok(keys.into_iter().map(|key| key.job).collect())
    }

    /// Sends a signal (scancel -s). SIGKILL to a job cancels it without a grace period; other
    /// signals are passed on. An ended job counts as unknown, as in Slurm; only scancel without a
    /// signal reports it as already done.
    pub fn signal(
        &mut self,
        sel: &JobRef,
        target: SignalTarget,
        signal: i32,
        by_uid: u32,
        cx: &mut Cx,
    ) -> Result<Vec<JobId>, Refusal> {
        if sel.step.is_some() {
            if signal == SIGKILL {
                return self.cancel_step(sel, StopCause::Killed { by: by_uid }, cx);
            }
            let keys = self.launched_steps(sel)?;
            for key in &keys {
                let target = SignalTarget::Step(key.step);
                cx.out.effects.push(Effect::Signal { job: key.job, target, signal });
            }
            return Ok(keys.into_iter().map(|key| key.job).collect());
        }
        if signal == SIGKILL && target != SignalTarget::Batch {
            let ended = self.end_by_user(sel, StopCause::Killed { by: by_uid }, by_uid, cx);
            return ended.map_err(|_| Refusal::UnknownJob);
        }
        let found = self.records.resolve(sel);
        if found.is_empty() {
            return Err(Refusal::UnknownJob);
        }
        let mut signalled = Vec::new();
        let mut refused = Refusal::UnknownJob;
        for id in found {
            let Some(job) = self.job(id) else { continue };
            match job.run.state {
                JobState::Running | JobState::Suspended | JobState::Completing => {
                    cx.out.effects.push(Effect::Signal { job: id, target, signal });
                    signalled.push(id);
                }
                JobState::Pending => refused = Refusal::NotNow,
                JobState::Ended(_) => {}
            }
        }
        if signalled.is_empty() { Err(refused) } else { Ok(signalled) }
    }

    /// Holds jobs (scontrol hold): pending jobs stay PENDING with the reason JobHeldUser (or
    /// JobHeldAdmin). Running jobs go on, and are held when they return to the queue, as in Slurm.
    pub fn hold(&mut self, sel: &JobRef, hold: Hold, cx: &mut Cx) -> Result<Vec<JobId>, Refusal> {
        self.set_hold(sel, hold, cx)
    }

    /// Releases held jobs (scontrol release).
    pub fn release(&mut self, sel: &JobRef, cx: &mut Cx) -> Result<Vec<JobId>, Refusal> {
        self.set_hold(sel, Hold::No, cx)
    }

    fn set_hold(&mut self, sel: &JobRef, hold: Hold, cx: &mut Cx) -> Result<Vec<JobId>, Refusal> {
        let mut changed = Vec::new();
        self.check_no_crontab_job(&self.records.resolve(sel))?;
        for id in self.pick_live(sel, cx)? {
            let Some(job) = self.job(id) else { continue };
            let waits = job.run.state == JobState::Pending;
            if job.hold != hold {
                self.records.edit(id, |job| {
                    job.hold = hold;
                    if hold == Hold::No {
                        job.failed_launches = FailedLaunches::default();
                    }
                });
                if waits {
                    self.refresh(id, cx.now);
                    self.arm(id, cx.now);
                }
                self.records.save(id, cx);
            }
            changed.push(id);
        }
        Ok(changed)
    }

    /// Like [`Self::pick`], without ended jobs. Fails if none is left.
    pub(super) fn pick_live(&mut self, sel: &JobRef, cx: &mut Cx) -> Result<Vec<JobId>, Refusal> {
        let mut picked = self.pick(sel, cx)?;
        picked.retain(|id| self.job(*id).is_some_and(|job| !job.run.state.is_terminal()));
        if picked.is_empty() { Err(Refusal::AlreadyFinished) } else { Ok(picked) }
    }

    /// Requeues jobs (scontrol requeue and requeuehold): a batch job that is running or has ended
    /// is PENDING again, under the same ID. A `hold` replaces its own. Slurm delays it for two
    /// minutes; here it may start at once. A job that was cancelled before it began waits for its
    /// dependency again: `ended` is what the store knows of the jobs that it names.
    pub fn requeue(
        &mut self,
        sel: &JobRef,
        hold: Option<Hold>,
        ended: &[EndedJob],
        cx: &mut Cx,
    ) -> Result<Vec<JobId>, Refusal> {
        let found = self.records.resolve(sel);
        if found.is_empty() {
            return Err(Refusal::UnknownJob);
        }
        self.check_no_crontab_job(&found)?;
        let known = Known::new(ended);
        let mut done = Vec::new();
        let mut refused = Refusal::Disabled;
        for id in found {
            let Some(id) = self.ended_part(id, sel, cx) else { continue };
            let Some(job) = self.job(id) else { continue };
            if job.request.no_requeue || job.request.kind == JobKind::Allocation {
                continue;
            }
            let (is_held, hold) = (hold.is_some(), hold.unwrap_or(job.hold));
            match job.run.state {
                JobState::Pending => {
                    refused = Refusal::Pending;
                    continue;
                }
                // Its time limit is already ending it, so just let it return afterwards. Its step
                // manager may request this when it is late itself.
                JobState::Completing
                    if job.run.reason == Reason::TimeLimit && job.run.cancelled_by.is_none() =>
                {
                    self.records.edit(id, |job| {
                        job.hold = hold;
                        job.run.reason = Reason::Requeued;
                    });
                    self.records.save(id, cx);
                }
                JobState::Completing if is_held && is_being_requeued(job) => {
                    self.records.edit(id, |job| job.hold = hold);
                    self.records.save(id, cx);
                }
                JobState::Completing => continue,
                JobState::Running | JobState::Suspended => {
                    self.records.edit(id, |job| job.hold = hold);
                    self.stop(id, Reason::Requeued, StopCause::Requeue, cx);
                }
                JobState::Ended(_) => {
                    let run = Run {
                        requeued: false,
                        submit: None,
                        run: job.run.clone(),
                        steps: Vec::new(),
                    };
                    self.records.edit(id, |job| job.hold = hold);
                    self.forget_recurrence(id);
                    self.back_to_queue(id, Some(run), None, &known, cx);
                }
            }
            done.push(id);
        }
        self.settle(cx);
        if done.is_empty() { Err(refused) } else { Ok(done) }
    }

    /// Splits the named tasks off a record of tasks that ended together before they started.
    /// Returns any other record as it is.
    fn ended_part(&mut self, id: JobId, sel: &JobRef, cx: &mut Cx) -> Option<JobId> {
        let Some(tasks) = &sel.tasks else { return Some(id) };
        let job = self.job(id)?;
        if !job.run.state.is_terminal() || job.compact_tasks().is_none_or(|own| covers(tasks, own))
        {
            return Some(id);
        }
        let own = self.records.split_set(id, tasks)?;
        self.records.save_split(own, id, cx);
        Some(own)
    }

    /// Suspends jobs (scontrol suspend): stops their processes and clocks. They keep their
    /// resources. Those that were suspended for other jobs are no longer resumed by themselves.
    pub fn suspend(&mut self, sel: &JobRef, cx: &mut Cx) -> Result<Vec<JobId>, Refusal> {
        let waits = |id: &JobId| self.job(*id).is_some_and(|job| job.run.waits_for_its_cpus());
        let waiting: Vec<JobId> = self.records.resolve(sel).into_iter().filter(waits).collect();
        let running = self.records.running_for(sel, JobState::Running);
        let running = if waiting.is_empty() { running? } else { running.unwrap_or_default() };
        for id in &waiting {
            self.records.edit(*id, |job| {
                if let Some(by) = &mut job.run.preempted {
                    by.suspended = Some(Resumption::OnRequest);
                }
            });
            self.records.save(*id, cx);
        }
        for id in &running {
            self.halt(*id, cx);
        }
        self.settle(cx);
        Ok([waiting, running].concat())
    }

    /// Stops the processes and the clock of a running job. Returns false if it does not run.
    pub(super) fn halt(&mut self, id: JobId, cx: &mut Cx) -> bool {
        if !self.transition(id, JobState::Suspended, cx.now) {
            return false;
        }
        self.records.edit(id, |job| job.run.suspended_at = Some(cx.now));
        self.records.save(id, cx);
        cx.out.effects.push(Effect::Suspend(id));
        true
    }

    /// Resumes jobs (scontrol resume). Suspended time does not count towards the time limit. Fails
    /// if more important jobs use the CPUs of all of them.
    pub fn resume(&mut self, sel: &JobRef, cx: &mut Cx) -> Result<Vec<JobId>, Refusal> {
        let mut done = Vec::new();
        for id in self.records.running_for(sel, JobState::Suspended)? {
            if self.has_its_cpus(id) {
                self.go_on(id, cx);
                done.push(id);
            }
        }
        self.settle(cx);
        if done.is_empty() { Err(Refusal::Busy) } else { Ok(done) }
    }

    /// Continues the processes and the clock of a suspended job.
    pub(super) fn go_on(&mut self, id: JobId, cx: &mut Cx) {
        if !self.transition(id, JobState::Running, cx.now) {
            return;
        }
        self.end_lending(id);
        self.records.save(id, cx);
        let steps = self.job(id).map_or(&[][..], |job| &job.steps);
        let steps = steps.iter().filter(|step| step.end.is_none());
        cx.out
            .changes
            .extend(steps.map(|step| Change::PutStep { job: id, step: Box::new(step.clone()) }));
        cx.out.effects.push(Effect::Resume(id));
        cx.out.effects.extend(self.job(id).and_then(Effect::set_time_limit));
        self.start_waiting_steps(id, cx);
    }
}

/// Returns whether the job is being stopped for a requeue.
fn is_being_requeued(job: &Job) -> bool {
    job.run.state == JobState::Completing
        && (job.run.reason == Reason::Requeued || is_preempted_to_requeue(job))
        && job.run.cancelled_by.is_none()
}
