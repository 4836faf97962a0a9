//! Preemption: running jobs make room for more important ones.
//!
//! `line::preempt` chooses these jobs. A job that is requeued or cancelled for another one ends as
//! it would on request, and the other one starts when its processes are gone. Before that, it may
//! have a grace time, at whose beginning it is warned.

use super::choice::Choice;
use super::core::Core;
use super::ending::Ending;
use super::line::backfill::Round;
use super::line::preempt::{Bid, Victim, Victims};
use super::line::queue::{QueueKey, rank};
use super::types::{Cx, Effect, EndCause, StopCause};
use slotd_model::preempt::{Means, PreemptMode, Preempted};
use slotd_model::qos::Qos;
use slotd_model::request::JobKind;
use slotd_model::{End, ExitCode, ExitRecord, Job, JobId, JobState, Reason, Timestamp};

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
            is_going: job.run.state == JobState::Completing || job.run.preempted.is_some(),
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

    /// Preempts other jobs if this one, which has to wait, could then start.
    pub(super) fn make_room(&mut self, key: QueueKey, round: &mut Round, cx: &mut Cx) {
        let Some(record) = self.records.get(key.id) else { return };
        let (capacity, host) = (self.resources.ledger().capacity(), self.resources.host());
        let places = &record.places;
        let Some(place) = places.iter().find(|place| place.key == key).cloned() else { return };
        let job = Some(key.id);
        let starts_elsewhere = || {
            places.iter().filter(|other| other.key > key).any(|other| {
                let (want, limit_secs) = (other.shape.want(), other.shape.limit);
                round.passing(&Bid { job, want: &want, limit_secs, capacity, host }).is_some()
            })
        };
        let (want, limit_secs) = (place.shape.want(), place.shape.limit);
        let bid = Bid { job, want: &want, limit_secs, capacity, host };
        let Some(room) = round.room(&bid) else { return };
        // A job with `--immediate` would not wait until the others have ended.
        let is_in_vain = record.job.request.immediate_secs.is_some()
            || self.records.expanded_by(key.id).is_some()
            || starts_elsewhere()
            || round.is_for_others(&room, key, self.line.queue(), capacity, host);
        if is_in_vain {
            return;
        }
        let victims = room.victims.clone();
        let is_new = |(id, _): &(JobId, Means)| {
            self.job(*id).is_some_and(|job| job.run.start == Some(cx.now))
        };
        if victims.iter().any(is_new) {
            // Its processes do not exist yet.
            return self.line.wake(key.id, cx.now.plus_secs(RETRY_SECS));
        }
        round.claim(&place, room, capacity);
        for (id, means) in victims {
            self.preempt(id, means, key.id, cx);
        }
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
        let preempted = Preempted { at: cx.now, until, by, mode };
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
        let job = self.job(id);
        job.and_then(|job| job.run.preempted.as_ref()).is_some_and(|by| by.until <= now)
    }

    /// Ends a job whose grace time has passed, unless the job that it makes room for no longer waits.
    pub(super) fn end_grace(&mut self, id: JobId, cx: &mut Cx) {
        let by = self.job(id).and_then(|job| job.run.preempted.as_ref()).map(|by| by.by);
        let is_waiting = |job: &Job| job.run.state == JobState::Pending;
        if by.and_then(|by| self.job(by)).is_some_and(is_waiting) {
            return self.stop(id, Reason::Preempted, StopCause::Preempted, cx);
        }
        self.records.edit(id, |job| (job.run.preempted, job.run.system_comment) = (None, None));
        self.records.save(id, cx);
    }

    /// Returns whether a job ends because of its preemption: it was stopped for it, or failed after
    /// the warning.
    pub(super) fn ends_preempted(&self, job: &Job, record: &ExitRecord, cause: EndCause) -> bool {
        if job.run.cancelled_by.is_some() || cause == EndCause::OutOfMemory {
            return false;
        }
        match job.run.state {
            JobState::Completing => job.run.reason == Reason::Preempted,
            JobState::Running | JobState::Suspended => {
                let has_failed = cause == EndCause::Exited && record.exit != ExitCode::OK;
                has_failed && job.run.preempted.is_some()
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

fn mode_of(job: &Job) -> Option<PreemptMode> {
    job.run.preempted.as_ref().map(|by| by.mode)
}

/// Returns whether a job that is being stopped makes room and returns to the queue.
pub(super) fn is_preempted_to_requeue(job: &Job) -> bool {
    job.run.reason == Reason::Preempted && mode_of(job) == Some(PreemptMode::Requeue)
}
