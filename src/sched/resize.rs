//! Running jobs that grow and shrink.
//!
//! What a running job is to have is its `tres`, as its request says; what it has is its allocation. It grows at once, where
//! there is room that is kept for nobody else. It shrinks by what none of its steps uses, at once, and by the rest as its
//! steps end: until then its run says that it `shrinks`. Where a manager runs the steps of the job, the manager says what
//! they do not use.

use super::admit::{check_size, size};
use super::backfill::{Round, Verdict};
use super::core::{Core, Record};
use super::forecast::Forecast;
use super::limits::LimitSet;
use super::plan::expected_end;
use super::room::{Part, Seating, Want};
use super::seats;
use super::types::{Cx, Effect};
use crate::model::change::Change;
use crate::model::job::ClientProcess;
use crate::model::resize::{Gift, PartChange};
use crate::model::tres::Allocation;
use crate::model::{Job, JobId, JobRequest, JobState, Refusal, StepId, Timestamp, Tres};
use std::collections::BTreeSet;

/// What a job with more resources has.
pub(super) fn joined(own: &Allocation, more: &Allocation) -> Allocation {
    let both = |own: &[u32], more: &[u32]| {
        let ids: BTreeSet<u32> = own.iter().chain(more).copied().collect();
        ids.into_iter().collect::<Vec<u32>>()
    };
    Allocation {
        tres: own.tres.plus(&more.tres),
        cpu_ids: both(&own.cpu_ids, &more.cpu_ids),
        gpu_ids: both(&own.gpu_ids, &more.gpu_ids),
        gpu_share: if own.gpu_ids.is_empty() { more.gpu_share } else { own.gpu_share },
    }
}

/// What a job has without these resources.
fn without(own: &Allocation, gift: &Gift) -> Allocation {
    let left = |own: &[u32], gone: &[u32]| {
        own.iter().copied().filter(|id| !gone.contains(id)).collect::<Vec<u32>>()
    };
    let (cpu_ids, gpu_ids) = (left(&own.cpu_ids, &gift.cpu_ids), left(&own.gpu_ids, &gift.gpu_ids));
    let gpus = own.gpu_share.of(gpu_ids.len() as u32);
    let tres = Tres {
        cpus: cpu_ids.len() as u32,
        mem_mb: own.tres.mem_mb.saturating_sub(gift.mem_mb),
        ..gpus
    };
    Allocation { tres, cpu_ids, gpu_ids, gpu_share: own.gpu_share }
}

impl Core {
    /// What a job has more than it is to have.
    pub fn owed(&self, id: JobId) -> Tres {
        let Some(job) = self.job(id).filter(|job| job.run.shrinks) else { return Tres::ZERO };
        job.run.alloc.as_ref().map_or(Tres::ZERO, |alloc| alloc.tres.minus(&job.tres))
    }

    /// What a running job is to have by this request, and what it gets for that at once.
    ///
    /// # Errors
    /// Its partition has less than that, it cannot have another size, or there is no room now.
    pub(super) fn resized(
        &self,
        job: &Job,
        request: &JobRequest,
        now: Timestamp,
    ) -> Result<(Tres, Option<Part>), Refusal> {
        let partition = self
            .partitions_of(job)
            .into_iter()
            .next()
            .ok_or_else(|| self.unknown_partition(&job.partition))?;
        let tres = size(request, partition, &self.config);
        check_size(request, &tres, partition, &self.config)?;
        Ok((tres, self.growth(job, &tres, now)?))
    }

    /// What a running job gets now that is to have this. `None`: it has it.
    ///
    /// # Errors
    /// It cannot have another size, or there is no room now.
    pub(super) fn growth(
        &self,
        job: &Job,
        to: &Tres,
        now: Timestamp,
    ) -> Result<Option<Part>, Refusal> {
        let Some(held) = self.ledger.held(job.id) else { return Err(Refusal::NotNow) };
        if held.place.exclusive {
            return Err(Refusal::FixedSize { job: job.id, exclusive: true });
        }
        let more = to.minus(&held.alloc.tres);
        if more == Tres::ZERO {
            return Ok(None);
        }
        if held.place.seats > 1 {
            return Err(Refusal::FixedSize { job: job.id, exclusive: false });
        }
        let host = &self.config.host;
        let mut room = self.ledger.room().clone();
        room.give(held);
        if let Some(reached) = room.limit_reached(&held.place, to.cpus, host) {
            return Err(Refusal::OverLimit { reason: reached.reason.name().to_owned() });
        }
        let place = Seating { limits: LimitSet::default(), ..held.place };
        let want = Want::sized(&job.request, more, place);
        let left = expected_end(job, None, now).at().map(|end| end.since(now).as_secs());
        let part = self.part_beside_queue(&want, left, now);
        part.map(Some).ok_or_else(|| {
            let free = self.ledger.room().free_for(&place, host);
            Refusal::NoRoom { job: job.id, more, free, in_secs: None }
        })
    }

    /// What to ask for when there is room for so much more of a running job, as if a job that wants that came now: the
    /// number that it has in the forecast.
    pub fn growth_forecast(
        &self,
        id: JobId,
        more: &Tres,
        now: Timestamp,
    ) -> Option<(JobId, Forecast)> {
        let job = self.job(id)?;
        let left = expected_end(job, None, now).at().map(|end| end.since(now).as_secs());
        let request = JobRequest {
            gpu: job.request.gpu.clone(),
            time_limit_secs: left,
            ..JobRequest::default()
        };
        let (number, partition) = (JobId(self.next_id), job.partition.clone());
        let thought = Job {
            id: number,
            request: request.into(),
            partition,
            tres: *more,
            submit: now,
            ..Job::default()
        };
        let record = Record { job: thought, waits: None, places: Box::default(), start_order: 0 };
        Some((number, self.forecast_with(&record, now)))
    }

    /// What is free for such a job and kept for none that waits.
    fn part_beside_queue(
        &self,
        want: &Want,
        limit_secs: Option<u64>,
        now: Timestamp,
    ) -> Option<Part> {
        let host = &self.config.host;
        let mut room = self.ledger.room().clone();
        if !self.takes_starts() || !room.fits(want, host) {
            return None;
        }
        let mut round = Round::new(now);
        while let Some(key) = round.next(&self.queue, &room, host) {
            let Some(record) = self.jobs.get(&key.id) else { continue };
            let running = || self.running_jobs(now);
            if let Verdict::Start(part) = round.consider(key, &record.places, &room, host, running)
            {
                room.take(&part);
            }
        }
        round.passing(None, want, limit_secs, &room, host)
    }

    /// A running job has another `tres` now: it gets `more`, or gives back what it can.
    pub(super) fn change_size(
        &mut self,
        id: JobId,
        more: Option<Part>,
        why: PartChange,
        cx: &mut Cx,
    ) {
        if let (Some(more), Some(held)) = (more, self.ledger.held(id)) {
            let alloc = joined(&held.alloc, &more.alloc);
            self.put_alloc(id, alloc, why, cx);
        }
        let Some(job) = self.jobs.get_mut(&id).map(|record| &mut record.job) else { return };
        let did_shrink = job.run.shrinks;
        let has_more =
            job.run.alloc.as_ref().is_some_and(|alloc| alloc.tres.minus(&job.tres) != Tres::ZERO);
        job.run.shrinks = has_more;
        self.save(id, cx);
        if self.is_managed(id) && (has_more || did_shrink) {
            self.tell_manager(id, why, cx);
        }
        self.refuse_steps_too_large(id, cx);
        self.give_back_idle(id, cx);
    }

    /// A job that is to have less gives back what none of its steps uses.
    pub(super) fn give_back_idle(&mut self, id: JobId, cx: &mut Cx) {
        let owed = self.owed(id);
        let Some(job) = self.job(id).filter(|_| owed != Tres::ZERO) else { return };
        // What the steps of a manager use, it says itself; one that is away comes back.
        if !self.is_shared_out(id) {
            let gift = self.idle(job, &owed);
            self.take_back(id, &gift, PartChange::Update, cx);
        }
    }

    /// So much of a job that no step has for itself.
    fn idle(&self, job: &Job, owed: &Tres) -> Gift {
        let Some(whole) = &job.run.alloc else { return Gift::default() };
        let left = super::managed::left_for_manager(job, None);
        let free: BTreeSet<u32> = left.cpu_ids.iter().copied().collect();
        let keeps = free.len().saturating_sub(owed.cpus as usize);
        let kept = seats::pick(keeps, &free, &whole.cpu_ids, &self.config.host.topology);
        let gpus = whole.gpu_share.gpus_in(owed) as usize;
        Gift {
            cpu_ids: free.into_iter().filter(|cpu| !kept.contains(cpu)).collect(),
            mem_mb: owed.mem_mb.min(left.tres.mem_mb),
            gpu_ids: left.gpu_ids.iter().rev().take(gpus).copied().collect(),
        }
    }

    /// The manager of a job's steps gives back what they do not use: as much as the job is to have less, and what is out of
    /// use, which the job keeps until there is something else for it.
    pub fn take_gift(&mut self, id: JobId, process: ClientProcess, gift: &Gift, cx: &mut Cx) {
        let owed = self.owed(id);
        let Some((_, within)) = self.managers.get(&id).filter(|(known, _)| *known == process)
        else {
            return;
        };
        let Some(job) = self.job(id) else { return };
        let own = super::managed::left_for_manager(job, *within);
        let mut broken = gift.parts().within(&own.parts()).within(&self.parts_out(id));
        let share = own.gpu_share;
        let some = |ids: &[u32], own: &[u32], most: u32| {
            let own = ids.iter().copied().filter(|id| own.contains(id));
            own.take(most as usize).collect::<Vec<u32>>()
        };
        let gift = Gift {
            cpu_ids: some(&gift.cpu_ids, &own.cpu_ids, owed.cpus),
            mem_mb: gift.mem_mb.min(owed.mem_mb).min(own.tres.mem_mb),
            gpu_ids: some(&gift.gpu_ids, &own.gpu_ids, share.gpus_in(&owed)),
        };
        broken = broken.without(&gift.parts());
        self.spares.remove(&id);
        if !broken.is_empty() {
            self.spares.insert(id, broken);
        }
        self.take_back(id, &gift, PartChange::GivenBack, cx);
    }

    /// What managers of steps wait to have replaced, is replaced where there is something that is kept for nobody else.
    pub(super) fn replace_spares(&mut self, cx: &mut Cx) {
        let ids: Vec<JobId> = self.spares.keys().copied().collect();
        for id in ids {
            let Some(spare) = self.spares.remove(&id) else { continue };
            let spare = spare.within(&self.parts_out(id));
            let (cpus, gpus) = (spare.cpus.into_iter().collect(), spare.gpus.into_iter().collect());
            let kinds = [
                Gift { cpu_ids: cpus, ..Gift::default() },
                Gift { gpu_ids: gpus, ..Gift::default() },
            ];
            for gone in kinds.into_iter().filter(|gone| !gone.is_empty()) {
                if !self.replace(id, &gone, cx) {
                    self.spares.entry(id).or_default().add(&gone.parts());
                }
            }
        }
    }

    /// False: there is nothing for it now.
    fn replace(&mut self, id: JobId, gone: &Gift, cx: &mut Cx) -> bool {
        let (Some(job), Some(held)) = (self.job(id), self.ledger.held(id)) else { return true };
        if held.place.exclusive || held.place.seats > 1 {
            return false;
        }
        let lost = Tres {
            cpus: gone.cpu_ids.len() as u32,
            ..held.alloc.gpu_share.of(gone.gpu_ids.len() as u32)
        };
        let want =
            Want::sized(&job.request, lost, Seating { limits: LimitSet::default(), ..held.place });
        let left = expected_end(job, None, cx.now).at().map(|end| end.since(cx.now).as_secs());
        let Some(part) = self.part_beside_queue(&want, left, cx.now) else { return false };
        let alloc = joined(&without(&held.alloc, gone), &part.alloc);
        self.put_alloc(id, alloc, PartChange::Replaced, cx);
        if self.is_managed(id) {
            cx.out.effects.push(Effect::PartsOut(id));
        }
        true
    }

    fn take_back(&mut self, id: JobId, gift: &Gift, why: PartChange, cx: &mut Cx) {
        let Some(alloc) =
            self.job(id).and_then(|job| job.run.alloc.as_deref()).filter(|_| !gift.is_empty())
        else {
            return;
        };
        let alloc = without(alloc, gift);
        self.put_alloc(id, alloc, why, cx);
    }

    /// A running job has this from now on.
    pub(super) fn put_alloc(&mut self, id: JobId, alloc: Allocation, why: PartChange, cx: &mut Cx) {
        let Some(place) = self.ledger.held(id).map(|held| held.place) else { return };
        self.ledger.give_back(id);
        self.ledger.take(id, Part { alloc: alloc.clone(), place });
        let Some(job) = self.jobs.get_mut(&id).map(|record| &mut record.job) else { return };
        let mem_mb = alloc.tres.mem_mb;
        let had = job.run.alloc.replace(alloc.into()).map_or(0, |had| had.tres.mem_mb);
        job.run.shrinks =
            job.run.alloc.as_ref().is_some_and(|alloc| alloc.tres.minus(&job.tres) != Tres::ZERO);
        // A step that named no memory has that of the job.
        let shares = |step: &&mut crate::model::Step| {
            !step.state.is_terminal() && step.alloc.tres.mem_mb == had
        };
        for step in job.steps.iter_mut().filter(|_| had != mem_mb).filter(shares) {
            step.alloc.tres.mem_mb = mem_mb;
            cx.out.changes.push(Change::PutStep { job: id, step: Box::new(step.clone()) });
        }
        self.save(id, cx);
        cx.out.effects.push(Effect::Resized(id));
        self.tell_manager(id, why, cx);
        self.start_waiting_steps(id, cx);
    }

    /// Whether a manager says which of the job's resources are in use: it is there, or steps of it are.
    pub fn is_shared_out(&self, id: JobId) -> bool {
        let is_managed = |step: &crate::model::Step| step.managed && !step.state.is_terminal();
        self.is_managed(id) || self.job(id).is_some_and(|job| job.steps.iter().any(is_managed))
    }

    /// The running steps of a job that use what they share with others.
    pub fn sharing_steps(&self, id: JobId) -> Vec<StepId> {
        let Some(job) = self.job(id) else { return Vec::new() };
        let shares = job
            .steps
            .iter()
            .filter(|step| step.overlap && !step.managed && !step.state.is_terminal());
        shares.map(|step| step.id).collect()
    }

    /// Whether another size may be asked for, for a job in this state.
    pub(super) fn may_resize(state: JobState) -> bool {
        matches!(state, JobState::Running | JobState::Suspended)
    }
}
