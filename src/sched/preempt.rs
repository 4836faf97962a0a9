//! Preemption: running jobs make room for more important ones.
//!
//! `line::preempt` chooses these jobs. A job that is requeued or cancelled for another one ends as
//! it would on request, and the other one starts when its processes are gone. Before that, it may
//! have a grace time, at whose beginning it is warned.
//!
//! A job is suspended only if the other one then starts in the same round. It is resumed in the
//! first round in which its CPUs are free.

use super::choice::Choice;
use super::core::Core;
use super::ending::Ending;
use super::line::backfill::{Round, Running};
use super::line::preempt::{Bid, Victim, Victims};
use super::line::queue::{QueueKey, rank};
use super::resources::capacity::{Capacity, Part};
use super::types::{Cx, Effect, EndCause, StopCause};
use slotd_model::preempt::{Means, PreemptMode, Preempted, Resumption};
use slotd_model::qos::Qos;
use slotd_model::request::JobKind;
use slotd_model::why::{Holder, Shortage};
use slotd_model::{
    End, ExitCode, ExitRecord, Job, JobId, JobState, Partition, Reason, Timestamp, Tres,
};
use std::cmp::Reverse;

/// How long a requeued job waits before it may start again, as in Slurm.
pub(super) const PREEMPTED_PAUSE_SECS: u64 = 120;

/// How long a job waits for the launch of one that it then preempts.
const RETRY_SECS: u64 = 1;

impl Core {
    /// Returns whether any job may preempt another.
    fn preempts(&self) -> bool {
        let config = self.resources.config();
        let is_victim =
            |mode: Option<PreemptMode>| mode.is_some_and(|mode| mode != PreemptMode::Off);
        config.partitions.iter().any(|partition| is_victim(partition.preempt_mode))
            || config.qos.iter().any(|qos| !qos.preempt.is_empty())
    }

    /// Returns the running jobs that may have to make room for others.
    pub(super) fn victims(&self) -> Victims {
        if !self.preempts() {
            return Victims::default();
        }
        let all = self.records.active_jobs().filter_map(|job| self.victim(job)).collect();
        Victims::new(all, self.resources.config())
    }

    fn victim(&self, job: &Job) -> Option<Victim> {
        let config = self.resources.config();
        let choice = Choice::all(job, config).next()?;
        let record = self.records.get(job.id)?;
        let is_open = |means: &Means| means.mode != PreemptMode::Off;
        let by_tier = choice.partition.and_then(|partition| {
            Some(Means { mode: partition.preempt_mode?, grace_secs: partition.grace_secs })
        });
        let mode = choice.partition.and_then(|partition| partition.preempt_mode);
        let by_qos = choice.qos.map(|qos: &Qos| qos.means(mode));
        Some(Victim {
            id: job.id,
            part: self.resources.ledger().held(job.id)?.clone(),
            tier: choice.partition?.tier(),
            qos: config.qos_index(&job.request),
            by_tier: by_tier.filter(is_open),
            by_qos: by_qos.filter(is_open),
            priority: rank(&job.request, choice.qos),
            order: record.start_order,
            is_going: job.run.state == JobState::Completing || grace_end(job).is_some(),
            is_lender: job.run.lends_cpus().is_some(),
        })
    }

    /// Returns whether a running job may have to make room for another.
    pub(super) fn is_preemptible(&self, job: &Job) -> bool {
        let config = self.resources.config();
        let name = &config.qos_of(&job.request).map_or("", |qos| &qos.name);
        let is_listed = config.qos.iter().any(|qos| qos.preempt.iter().any(|own| own == name));
        let victim = self.victim(job).filter(|_| self.preempts() && job.run.state.is_active());
        victim.is_some_and(|own| own.by_tier.is_some() || is_listed && own.by_qos.is_some())
    }

    /// Preempts other jobs if this one, which has to wait, could then start. Returns its part if it
    /// starts now.
    pub(super) fn make_room(
        &mut self,
        key: QueueKey,
        round: &mut Round,
        cx: &mut Cx,
    ) -> Option<Part> {
        let record = self.records.get(key.id)?;
        let (capacity, host) = (self.resources.ledger().capacity(), self.resources.host());
        let places = &record.places;
        let place = places.iter().find(|place| place.key == key).cloned()?;
        let job = Some(key.id);
        let starts_elsewhere = || {
            places.iter().filter(|other| other.key > key).any(|other| {
                let (want, limit_secs) = (other.shape.want(), other.shape.limit);
                round.passing(&Bid { job, want: &want, limit_secs, capacity, host }).is_some()
            })
        };
        let (want, limit_secs) = (place.shape.want(), place.shape.limit);
        let bid = Bid { job, want: &want, limit_secs, capacity, host };
        let mut preemption = round.preemption(&bid)?;
        // A job with `--immediate` would not wait until the others have ended.
        let is_in_vain = record.job.request.immediate_secs.is_some()
            || self.records.expanded_by(key.id).is_some()
            || starts_elsewhere()
            || round.is_for_others(&preemption, key, self.line.queue(), capacity, host);
        if is_in_vain {
            return None;
        }
        let victims = preemption.victims.clone();
        let is_new = |(id, _): &(JobId, Means)| {
            self.job(*id).is_some_and(|job| job.run.start == Some(cx.now))
        };
        if victims.iter().any(is_new) {
            // Its processes do not exist yet.
            self.line.wake(key.id, cx.now.plus_secs(RETRY_SECS));
            return None;
        }
        if let Some(part) = preemption.open.take() {
            round.enter(&place, &part, &victims, &bid);
            for (id, _) in victims {
                self.suspend_for(id, key.id, cx);
            }
            // Jobs that were considered before may use the rest of their CPUs.
            self.line.request_round();
            return Some(part);
        }
        round.claim(&place, preemption, capacity);
        // Those that are only suspended run on until the others have gone.
        for (id, means) in victims.into_iter().filter(|(_, means)| !means.suspends()) {
            self.preempt(id, means, key.id, cx);
        }
        None
    }

    /// Suspends a running job for another one. One that its user has suspended stays so.
    fn suspend_for(&mut self, id: JobId, by: JobId, cx: &mut Cx) {
        let is_running = self.job(id).is_some_and(|job| job.run.state == JobState::Running);
        let suspended = if is_running { Resumption::ByItself } else { Resumption::OnRequest };
        let (at, until, mode) = (cx.now, cx.now, PreemptMode::Suspend);
        let preempted = Preempted { at, until, by, mode, suspended: Some(suspended) };
        self.records.edit(id, |job| {
            job.run.system_comment = Some(preempted.comment());
            job.run.preempted = Some(Box::new(preempted));
        });
        if !self.halt(id, cx) {
            self.records.save(id, cx);
        }
    }

    /// Returns the suspended jobs that lend their CPUs, and the resources that are free beside them.
    fn lenders(&self) -> (Vec<(JobId, Part)>, Capacity) {
        let ledger = self.resources.ledger();
        let is_lender =
            |job: &&Job| job.run.state == JobState::Suspended && job.run.lends_cpus().is_some();
        let lenders = self.records.active_jobs().filter(is_lender);
        let lenders = lenders.filter_map(|job| Some((job.id, ledger.held(job.id)?.clone())));
        let lenders: Vec<(JobId, Part)> = lenders.collect();
        let mut free = ledger.capacity().clone();
        lenders.iter().for_each(|(_, part)| free.give_cpus(part));
        (lenders, free)
    }

    /// Resumes the jobs that were suspended for others and whose CPUs are free, the most important
    /// one first.
    pub(super) fn resume_preempted(&mut self, round: &Round, cx: &mut Cx) {
        let waits = |job: &Job| job.run.waits_for_its_cpus();
        if !self.records.active_jobs().any(waits) {
            return;
        }
        let (lenders, mut free) = self.lenders();
        let rank_of = |id: JobId| {
            let record = self.records.get(id)?;
            let choice = Choice::all(&record.job, self.resources.config()).next()?;
            let tier = choice.partition.map_or(1, Partition::tier);
            let priority = rank(&record.job.request, choice.qos);
            Some((tier, priority, Reverse(record.start_order)))
        };
        let waiting = lenders.iter().filter(|(id, _)| self.job(*id).is_some_and(waits));
        let mut waiting: Vec<&(JobId, Part)> = waiting.collect();
        waiting.sort_by_key(|(id, _)| Reverse(rank_of(*id)));
        for (id, part) in waiting {
            if free.has_cpus_again(part) && round.may_resume(part, &lenders) {
                free.take_cpus(part);
                self.go_on(*id, cx);
            }
        }
    }

    /// Returns whether the CPUs of a suspended job are free for it.
    pub(super) fn has_its_cpus(&self, id: JobId) -> bool {
        let lends = self.job(id).is_some_and(|job| job.run.lends_cpus().is_some());
        let is_free = |part: &Part| self.lenders().1.has_cpus_again(part);
        !lends || self.resources.ledger().held(id).is_none_or(is_free)
    }

    /// Returns the CPUs of a job that was suspended for another one, and the jobs that use them.
    pub(super) fn lent_cpus(&self, job: &Job, now: Timestamp) -> Option<Shortage> {
        let ledger = self.resources.ledger();
        let own = ledger.held(job.id).filter(|_| job.run.waits_for_its_cpus())?;
        let mut running = self.line.running(&self.records, ledger, now);
        running.sort_by_key(Running::turn);
        let is_own = |cpu: &&u32| own.alloc.cpu_ids.contains(cpu);
        let holders = running.iter().filter(|one| one.id != job.id).filter_map(|one| {
            let cpus = one.part.alloc.cpu_ids.iter().filter(is_own).count() as u32;
            let holds = Tres { cpus, ..Tres::ZERO };
            let is_there =
                cpus > 0 && self.job(one.id).is_some_and(|job| job.run.lends_cpus().is_none());
            is_there.then(|| Holder { holds, ..self.holder(one, &Tres::ZERO) })
        });
        let lacks = Tres { cpus: own.alloc.tres.cpus, ..Tres::ZERO };
        let holders: Vec<Holder> = holders.collect();
        let taken: u32 = holders.iter().map(|holder| holder.holds.cpus).sum();
        Some(Shortage {
            partition: job.partition.to_string(),
            needs: lacks,
            free: Tres { cpus: lacks.cpus.saturating_sub(taken), ..Tres::ZERO },
            lacks,
            lacks_cpus: Vec::new(),
            holders,
            behind: None,
            gap_secs: None,
        })
    }

    /// Forgets the suspension of a job that runs on.
    pub(super) fn end_lending(&mut self, id: JobId) {
        self.records.edit(id, |Job { run, .. }| match &mut run.preempted {
            Some(by) if by.grace_end().is_some() => by.suspended = None,
            Some(_) => (run.preempted, run.system_comment) = (None, None),
            None => {}
        });
    }

    /// Makes a running job give way to another one.
    fn preempt(&mut self, id: JobId, means: Means, by: JobId, cx: &mut Cx) {
        let Some(job) = self.job(id) else { return };
        let may_requeue = job.request.kind == JobKind::Batch && !job.request.no_requeue;
        let mode = match means.mode {
            PreemptMode::Requeue if !may_requeue => PreemptMode::Cancel,
            mode => mode,
        };
        let until = cx.now.plus_secs(means.grace_secs);
        let suspended = job.run.lends_cpus();
        let preempted = Preempted { at: cx.now, until, by, mode, suspended };
        self.records.edit(id, |job| {
            job.run.system_comment = Some(preempted.comment());
            job.run.preempted = Some(Box::new(preempted));
        });
        if means.grace_secs == 0 {
            return self.stop(id, Reason::Preempted, StopCause::Preempted, cx);
        }
        self.records.save(id, cx);
        self.arm(id, cx.now);
        cx.out.effects.push(Effect::Preempt(id));
    }

    /// Returns whether the grace time of a preempted job has passed.
    pub(super) fn is_grace_over(&self, id: JobId, now: Timestamp) -> bool {
        self.job(id).and_then(grace_end).is_some_and(|end| end <= now)
    }

    /// Returns whether the job that this one makes room for waits in the queue and may preempt it.
    fn is_in_the_way(&self, id: JobId) -> bool {
        let by = self.job(id).and_then(|job| job.run.preempted.as_ref()).map(|by| by.by);
        let Some(record) = by.and_then(|by| self.records.get(by)) else { return false };
        let victims = self.victims();
        let mut places = record.places.iter();
        places.any(|place| victims.may_preempt(id, &place.shape.want().place))
    }

    /// Ends a job whose grace time has passed, unless the job that it makes room for no longer
    /// waits for it.
    pub(super) fn end_grace(&mut self, id: JobId, cx: &mut Cx) {
        if self.is_in_the_way(id) {
            return self.stop(id, Reason::Preempted, StopCause::Preempted, cx);
        }
        self.records.edit(id, |Job { run, .. }| match &mut run.preempted {
            Some(by) if by.suspended.is_some() => by.mode = PreemptMode::Suspend,
            _ => (run.preempted, run.system_comment) = (None, None),
        });
        self.records.save(id, cx);
    }

    /// Returns whether a job ends because of its preemption: it was stopped for it, or failed after
    /// the warning. It was not stopped for it if it had ended before, for example while no daemon
    /// ran.
    pub(super) fn ends_preempted(&self, job: &Job, record: &ExitRecord, cause: EndCause) -> bool {
        if job.run.cancelled_by.is_some() || cause == EndCause::OutOfMemory {
            return false;
        }
        match job.run.state {
            JobState::Completing => {
                let ended_otherwise = matches!(cause, EndCause::Exited | EndCause::TimeLimit);
                job.run.reason == Reason::Preempted && !ended_otherwise
            }
            JobState::Running | JobState::Suspended => {
                let has_failed = cause == EndCause::Exited && record.exit != ExitCode::OK;
                has_failed && grace_end(job).is_some()
            }
            JobState::Pending | JobState::Ended(_) => false,
        }
    }

    /// Ends a preempted job for good, or to run again.
    pub(super) fn end_preempted(&mut self, id: JobId, record: &ExitRecord, cx: &mut Cx) {
        let Some(job) = self.job(id) else { return };
        let recurs = self.next_recurrence(job, cx.now).is_some();
        if recurs || mode_of(job) == Some(PreemptMode::Requeue) {
            return self.end_for_requeue(id, record, End::Preempted, cx);
        }
        let exit = record.exit;
        let ending = Ending { state: End::Preempted, reason: Reason::Preempted, exit, by: None };
        self.finish(id, ending, record.usage, record.ended, cx);
    }
}

/// Returns when the grace time of a job ends that has to end for another one.
fn grace_end(job: &Job) -> Option<Timestamp> {
    job.run.preempted.as_ref()?.grace_end()
}

fn mode_of(job: &Job) -> Option<PreemptMode> {
    job.run.preempted.as_ref().map(|by| by.mode)
}

/// Returns whether a job that is being stopped makes room and returns to the queue.
pub(super) fn is_preempted_to_requeue(job: &Job) -> bool {
    job.run.reason == Reason::Preempted && mode_of(job) == Some(PreemptMode::Requeue)
}
