//! What users do to jobs that exist: cancel, signal, hold, release, requeue, suspend, resume.
//!
//! A reference names a job, a whole array, some of its tasks, or a step. Tasks that are still in a compact record leave
//! it when they are touched. The texts of refusals are Slurm's.

use super::array::covers;
use super::core::Core;
use super::lifecycle::Ending;
use super::types::{Cx, Effect, SignalTarget, StopCause};
use crate::model::change::Change;
use crate::model::job::{FailedLaunches, Hold};
use crate::model::query::{JobQuery, names_record};
use crate::model::request::JobKind;
use crate::model::run::Run;
use crate::model::update::Update;
use crate::model::{Job, JobId, JobRef, JobState, Reason, Refusal, StepKey};
use std::ops::Bound;

const SIGKILL: i32 = 9;

impl Core {
    /// The records in memory that a reference names, by number. A task that is still in a compact record names that.
    pub fn resolve(&self, sel: &JobRef) -> Vec<JobId> {
        let mut found = match (&sel.tasks, self.arrays.get(&sel.job)) {
            (None, Some(group)) => group.records.iter().copied().collect(),
            (None, None) => {
                self.jobs.contains_key(&sel.job).then_some(sel.job).into_iter().collect()
            }
            (Some(_), None) => Vec::new(),
            (Some(tasks), Some(group)) => {
                let mut found: Vec<JobId> = if tasks.len() <= group.tasks.len() {
                    tasks.iter().filter_map(|task| group.tasks.get(&task)).copied().collect()
                } else {
                    group
                        .tasks
                        .iter()
                        .filter(|(task, _)| tasks.contains(**task))
                        .map(|(_, id)| *id)
                        .collect()
                };
                let has_some = |id: &&JobId| {
                    let own = self.job(**id).and_then(|job| job.compact_tasks());
                    own.is_some_and(|own| overlap(own, tasks))
                };
                found.extend(group.compact.iter().filter(has_some));
                found
            }
        };
        found.sort_unstable();
        found
    }

    /// Whether nothing of an array is left to run, or runs.
    pub fn is_array_over(&self, array: JobId) -> bool {
        self.arrays.get(&array).is_none_or(|group| group.live == 0)
    }

    /// The records in memory that answer a question, by number.
    pub fn find(&self, query: &JobQuery) -> Vec<JobId> {
        if query.jobs.is_empty() {
            return self.jobs().filter(|job| query.matches(job)).map(|job| job.id).collect();
        }
        let matches = |id: &JobId| self.job(*id).is_some_and(|job| query.matches(job));
        let mut found: Vec<JobId> =
            query.jobs.iter().flat_map(|named| self.resolve(named)).filter(matches).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// As [`Self::find`], in parts: of a question that names no jobs only so many records are looked at, those with higher
    /// numbers than `after`. After which number to go on; `None` where that is all.
    pub fn find_some(
        &self,
        query: &JobQuery,
        after: Option<JobId>,
        most: usize,
    ) -> (Vec<JobId>, Option<JobId>) {
        if !query.jobs.is_empty() {
            return (self.find(query), None);
        }
        let mut records =
            self.jobs.range((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded));
        let (mut found, mut last) = (Vec::new(), None);
        for (id, record) in records.by_ref().take(most) {
            last = Some(*id);
            if query.matches(&record.job) {
                found.push(*id);
            }
        }
        (found, last.filter(|_| records.next().is_some()))
    }

    /// What scancel means by a question: each record that answers it, and of tasks that wait together those that are
    /// named.
    pub fn targets(&self, query: &JobQuery) -> Vec<JobRef> {
        let of = |job: &Job| -> Vec<JobRef> {
            let naming = query.jobs.iter().filter(|named| names_record(named, job.id, &job.role));
            match query.jobs.is_empty() {
                true => vec![job.own_ref()],
                false => naming.map(|named| job.part_named(named)).collect(),
            }
        };
        self.find(query).into_iter().filter_map(|id| self.job(id)).flat_map(of).collect()
    }

    /// The records that a command is about, each wholly meant: pending compact records are split where only some of
    /// their tasks are named, and saved.
    fn pick(&mut self, sel: &JobRef, cx: &mut Cx) -> Result<Vec<JobId>, Refusal> {
        let found = self.resolve(sel);
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
            } else if let Some(own) = self.split_set(id, tasks) {
                // What is left may have other prospects without them.
                self.refresh(id, cx.now);
                self.refresh(own, cx.now);
                self.save_split(own, id, cx);
                picked.push(own);
            }
        }
        Ok(picked)
    }

    /// scancel. Pending jobs are CANCELLED at once; running ones are COMPLETING until their processes are gone. The
    /// records that were cancelled.
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
                    // It is being stopped already, for a requeue or at its time limit: it only does not come back.
                    let is_requeued =
                        job.run.reason == Reason::Requeued && job.run.cancelled_by.is_none();
                    let comes_back = is_requeued || job.runs_again();
                    if let Some(record) = self.jobs.get_mut(&id).filter(|_| comes_back) {
                        record.job.run.cancelled_by = Some(by_uid);
                        self.save(id, cx);
                    }
                    // A second, harder request.
                    let is_harder = matches!(cause, StopCause::Killed { .. });
                    if is_harder {
                        cx.out.effects.push(Effect::Stop { job: id, cause });
                    }
                    done.extend((comes_back || is_harder).then_some(id));
                }
                JobState::Completed
                | JobState::Failed
                | JobState::Cancelled
                | JobState::Timeout
                | JobState::OutOfMemory
                | JobState::NodeFail => {}
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
        let keys = self.live_steps(sel)?;
        for key in &keys {
            cx.out.effects.push(Effect::StopStep { step: *key, cause });
        }
        Ok(keys.into_iter().map(|key| key.job).collect())
    }

    /// The running steps that `12.0` or `12_3.0` names.
    fn live_steps(&self, sel: &JobRef) -> Result<Vec<StepKey>, Refusal> {
        let Some(step) = sel.step else { return Err(Refusal::UnknownStep) };
        let jobs = self.resolve(&JobRef { step: None, ..sel.clone() });
        let keys: Vec<StepKey> = jobs
            .into_iter()
            .filter(|id| self.has_live_step(*id, step))
            .map(|job| StepKey { job, step })
            .collect();
        if keys.is_empty() { Err(Refusal::UnknownStep) } else { Ok(keys) }
    }

    /// scancel -s. SIGKILL to a job ends it as scancel does, without grace; other signals are only passed on. A job that
    /// has ended is as good as unknown, as in Slurm: only scancel without a signal takes it for done.
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
            let keys = self.live_steps(sel)?;
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
        let found = self.resolve(sel);
        if found.is_empty() {
            return Err(Refusal::UnknownJob);
        }
        let mut told = Vec::new();
        let mut refused = Refusal::UnknownJob;
        for id in found {
            let Some(job) = self.job(id) else { continue };
            match job.run.state {
                JobState::Running | JobState::Suspended | JobState::Completing => {
                    cx.out.effects.push(Effect::Signal { job: id, target, signal });
                    told.push(id);
                }
                JobState::Pending => refused = Refusal::NotNow,
                JobState::Completed
                | JobState::Failed
                | JobState::Cancelled
                | JobState::Timeout
                | JobState::OutOfMemory
                | JobState::NodeFail => {}
            }
        }
        if told.is_empty() { Err(refused) } else { Ok(told) }
    }

    /// scontrol hold: pending jobs stay PENDING with the reason JobHeldUser (or JobHeldAdmin). Running ones are left
    /// alone, without complaint, as in Slurm.
    pub fn hold(&mut self, sel: &JobRef, hold: Hold, cx: &mut Cx) -> Result<Vec<JobId>, Refusal> {
        self.set_hold(sel, hold, cx)
    }

    /// scontrol release.
    pub fn release(&mut self, sel: &JobRef, cx: &mut Cx) -> Result<Vec<JobId>, Refusal> {
        self.set_hold(sel, Hold::No, cx)
    }

    fn set_hold(&mut self, sel: &JobRef, hold: Hold, cx: &mut Cx) -> Result<Vec<JobId>, Refusal> {
        let mut changed = Vec::new();
        for id in self.pick_live(sel, cx)? {
            let Some(record) = self.jobs.get_mut(&id) else { continue };
            if record.job.run.state == JobState::Pending && record.job.hold != hold {
                record.job.hold = hold;
                if hold == Hold::No {
                    record.job.failed_launches = FailedLaunches::default();
                }
                self.refresh(id, cx.now);
                self.arm(id, cx.now);
                self.save(id, cx);
            }
            changed.push(id);
        }
        Ok(changed)
    }

    /// Like `pick`, without what has ended; an error where nothing is left.
    pub(super) fn pick_live(&mut self, sel: &JobRef, cx: &mut Cx) -> Result<Vec<JobId>, Refusal> {
        let mut picked = self.pick(sel, cx)?;
        picked.retain(|id| self.job(*id).is_some_and(|job| !job.run.state.is_terminal()));
        if picked.is_empty() { Err(Refusal::AlreadyFinished) } else { Ok(picked) }
    }

    /// scontrol requeue and requeuehold: a batch job that runs or has ended is PENDING again, with its number. Slurm
    /// lets it wait two minutes; here it may start at once.
    pub fn requeue(
        &mut self,
        sel: &JobRef,
        and_hold: bool,
        cx: &mut Cx,
    ) -> Result<Vec<JobId>, Refusal> {
        let found = self.resolve(sel);
        if found.is_empty() {
            return Err(Refusal::UnknownJob);
        }
        let mut done = Vec::new();
        let mut refused = Refusal::Disabled;
        for id in found {
            let Some(id) = self.ended_part(id, sel, cx) else { continue };
            let Some(record) = self.jobs.get_mut(&id) else { continue };
            let job = &mut record.job;
            if job.request.no_requeue || job.request.kind == JobKind::Allocation {
                continue;
            }
            let hold = if and_hold { Hold::User } else { job.hold };
            match job.run.state {
                JobState::Pending => {
                    refused = Refusal::Pending;
                    continue;
                }
                JobState::Completing => continue,
                JobState::Running | JobState::Suspended => {
                    job.hold = hold;
                    self.stop(id, Reason::Requeued, StopCause::Requeue, cx);
                }
                JobState::Completed
                | JobState::Failed
                | JobState::Cancelled
                | JobState::Timeout
                | JobState::OutOfMemory
                | JobState::NodeFail => {
                    job.hold = hold;
                    let run = Run { requeued: false, run: job.run.clone(), steps: Vec::new() };
                    self.back_to_queue(id, Some(run), cx);
                }
            }
            done.push(id);
        }
        self.settle(cx);
        if done.is_empty() { Err(refused) } else { Ok(done) }
    }

    /// Of tasks of an array that ended together before they started, those that are named, as a record of their own; any
    /// other record as it is.
    fn ended_part(&mut self, id: JobId, sel: &JobRef, cx: &mut Cx) -> Option<JobId> {
        let Some(tasks) = &sel.tasks else { return Some(id) };
        let job = self.job(id)?;
        if !job.run.state.is_terminal() || job.compact_tasks().is_none_or(|own| covers(tasks, own))
        {
            return Some(id);
        }
        let own = self.split_set(id, tasks)?;
        self.save_split(own, id, cx);
        Some(own)
    }

    /// scontrol suspend: the processes stop, and so does the job's clock. It keeps its resources.
    pub fn suspend(&mut self, sel: &JobRef, cx: &mut Cx) -> Result<Vec<JobId>, Refusal> {
        let found = self.running_for(sel, JobState::Running)?;
        for id in &found {
            if self.transition(*id, JobState::Suspended, cx.now) {
                if let Some(record) = self.jobs.get_mut(id) {
                    record.job.run.suspended_at = Some(cx.now);
                }
                self.save(*id, cx);
                cx.out.effects.push(Effect::Suspend(*id));
            }
        }
        self.settle(cx);
        Ok(found)
    }

    /// scontrol resume. The time it was suspended does not count towards the time limit.
    pub fn resume(&mut self, sel: &JobRef, cx: &mut Cx) -> Result<Vec<JobId>, Refusal> {
        let found = self.running_for(sel, JobState::Suspended)?;
        for id in &found {
            if self.transition(*id, JobState::Running, cx.now) {
                self.save(*id, cx);
                let steps = self
                    .job(*id)
                    .map_or(&[][..], |job| &job.steps)
                    .iter()
                    .filter(|step| step.end.is_none());
                cx.out.changes.extend(
                    steps.map(|step| Change::PutStep { job: *id, step: Box::new(step.clone()) }),
                );
                cx.out.effects.push(Effect::Resume(*id));
                self.tell_limit(*id, cx);
                self.start_waiting_steps(*id, cx);
            }
        }
        self.settle(cx);
        Ok(found)
    }

    /// The records of a reference that are in this one of the two running states.
    fn running_for(&self, sel: &JobRef, wanted: JobState) -> Result<Vec<JobId>, Refusal> {
        let found = self.resolve(sel);
        let mut refused = Refusal::UnknownJob;
        let mut fit = Vec::new();
        for job in found.into_iter().filter_map(|id| self.job(id)) {
            match job.run.state {
                JobState::Running | JobState::Suspended if job.run.state == wanted => {
                    fit.push(job.id)
                }
                JobState::Running | JobState::Suspended | JobState::Completing => {
                    refused = Refusal::Disabled
                }
                JobState::Pending => refused = Refusal::Pending,
                JobState::Completed
                | JobState::Failed
                | JobState::Cancelled
                | JobState::Timeout
                | JobState::OutOfMemory
                | JobState::NodeFail => refused = Refusal::AlreadyFinished,
            }
        }
        if fit.is_empty() { Err(refused) } else { Ok(fit) }
    }

    /// scontrol top: before all pending jobs. A held job stays held, as in Slurm.
    pub fn top(&mut self, sel: &JobRef, cx: &mut Cx) -> Result<Vec<JobId>, Refusal> {
        let named = self.resolve(sel).into_iter().filter_map(|id| self.job(id));
        if named.into_iter().any(|job| job.run.state == JobState::Pending && job.hold != Hold::No) {
            return Err(Refusal::Held);
        }
        let highest = self
            .jobs
            .values()
            .filter(|r| r.job.run.state == JobState::Pending)
            .map(|r| r.job.priority)
            .max();
        let above = highest.unwrap_or(0).saturating_add(1);
        self.update(sel, &[Update::Nice(0), Update::Priority(above)], &[], cx)
    }

    pub(super) fn tell_limit(&self, id: JobId, cx: &mut Cx) {
        let Some(job) = self.job(id) else { return };
        let Some(start) = job.run.start else { return };
        cx.out.effects.push(Effect::SetTimeLimit {
            job: id,
            limit_secs: job.request.time_limit_secs,
            start,
            suspended_us: job.run.suspended_us,
        });
    }
}

fn overlap(a: &crate::model::TaskSet, b: &crate::model::TaskSet) -> bool {
    if covers(a, b) || covers(b, a) {
        return true;
    }
    let (small, large) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    small.iter().any(|task| large.contains(task))
}
