//! Running jobs that grow and shrink.
//!
//! The size that a running job should have is its `tres`, as requested; the size that it has is its
//! allocation. It grows at once, if there are free resources that are not reserved for another job.
//! It shrinks at once by the resources that none of its steps uses, and by the rest as its steps
//! end: until then its run is marked as `shrinks`. If a manager runs the job's steps, the manager
//! reports the unused resources.

use super::core::Core;
use super::forecast::Forecast;
use super::line::backfill::Verdict;
use super::line::preempt::Bid;
use super::line::run_times::expected_end;
use super::records::Record;
use super::resources::capacity::{CpuSharing, Part, Want};
use super::resources::cpu_pick;
use super::resources::limits::LimitSet;
use super::sizes::{check_size, size};
use super::types::{Cx, Effect};
use slotd_model::change::Change;
use slotd_model::job::ClientProcess;
use slotd_model::resize::{GivenBack, PartChange};
use slotd_model::tres::Allocation;
use slotd_model::{Job, JobId, JobRequest, JobState, Refusal, Timestamp, Tres};
use std::collections::BTreeSet;

/// Returns an allocation extended by another one.
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
        gpu_uuids: own
            .gpu_uuids
            .iter()
            .chain(&more.gpu_uuids)
            .map(|(id, uuid)| (*id, uuid.clone()))
            .collect(),
    }
}

/// Returns an allocation without these resources.
fn without(own: &Allocation, given_back: &GivenBack) -> Allocation {
    let left = |own: &[u32], gone: &[u32]| {
        own.iter().copied().filter(|id| !gone.contains(id)).collect::<Vec<u32>>()
    };
    let (cpu_ids, gpu_ids) =
        (left(&own.cpu_ids, &given_back.cpu_ids), left(&own.gpu_ids, &given_back.gpu_ids));
    let gpus = own.gpu_share.of(gpu_ids.len() as u32);
    let tres = Tres {
        cpus: cpu_ids.len() as u32,
        mem_mb: own.tres.mem_mb.saturating_sub(given_back.mem_mb),
        ..gpus
    };
    let mut gpu_uuids = own.gpu_uuids.clone();
    gpu_uuids.retain(|id, _| gpu_ids.contains(id));
    Allocation { tres, cpu_ids, gpu_ids, gpu_share: own.gpu_share, gpu_uuids }
}

/// Returns whether a job holds more than it should have.
fn has_too_much(job: &Job) -> bool {
    let alloc = job.run.alloc.as_ref();
    alloc.is_some_and(|alloc| alloc.tres.minus(&job.tres) != Tres::ZERO)
}

impl Core {
    /// Returns the new size of a running job with this request, and the resources to add now.
    ///
    /// # Errors
    /// Fails if its partition has less than that, its size is fixed, or the resources are not free
    /// now. Fails for a suspended job whose CPUs others may use, since it could keep only theirs.
    pub(super) fn resized(
        &self,
        job: &Job,
        request: &JobRequest,
        now: Timestamp,
    ) -> Result<(Tres, Option<Part>), Refusal> {
        if job.run.state == JobState::Suspended && job.run.lends_cpus().is_some() {
            return Err(Refusal::Suspended);
        }
        let partition = self
            .resources
            .config()
            .partitions_of(job)
            .into_iter()
            .next()
            .ok_or_else(|| self.resources.config().unknown_partition(&job.partition))?;
        let tres = size(request, partition, self.resources.config());
        check_size(request, &tres, partition, self.resources.config())?;
        Ok((tres, self.growth(job, &tres, now)?))
    }

    /// Returns the resources to add now to a running job with this new size, or `None` if it has
    /// them.
    ///
    /// # Errors
    /// Fails if the job's size is fixed, or if the resources are not free now.
    pub(super) fn growth(
        &self,
        job: &Job,
        to: &Tres,
        now: Timestamp,
    ) -> Result<Option<Part>, Refusal> {
        let Some(held) = self.resources.ledger().held(job.id) else { return Err(Refusal::NotNow) };
        if held.place.exclusive {
            return Err(Refusal::FixedSize { job: job.id, exclusive: true });
        }
        let more = to.minus(&held.alloc.tres);
        if more == Tres::ZERO {
            return Ok(None);
        }
        if held.place.jobs_per_cpu > 1 {
            return Err(Refusal::FixedSize { job: job.id, exclusive: false });
        }
        let host = self.resources.host();
        let mut capacity = self.resources.ledger().capacity().clone();
        capacity.give(held);
        if let Some(reached) = capacity.limit_reached(&held.place.with_its_licenses(), to, host) {
            return Err(Refusal::OverLimit { reason: reached.reason().name().to_owned() });
        }
        let place = CpuSharing { limits: LimitSet::default(), ..held.place };
        let want = Want::sized(&job.request, more, place.clone()).on_any_cpus();
        let left = expected_end(job, None, now).at().map(|end| end.since(now).as_secs());
        let part = self.part_beside_queue(&want, left, now);
        part.map(Some).ok_or_else(|| {
            let free = self.resources.ledger().capacity().free_for(&want, host);
            Refusal::NoRoom { job: job.id, more, free, in_secs: None }
        })
    }

    /// Returns a forecast of when a running job can get `more`, as if a job that requests it were
    /// submitted now. Also returns that job's ID in the forecast.
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
        let (number, partition) = (self.records.next_id(), job.partition.clone());
        let thought = Job {
            id: number,
            request: request.into(),
            partition,
            tres: *more,
            submit: now,
            ..Job::default()
        };
        Some((number, self.forecast_with(&Record::new(thought.into()), now)))
    }

    /// Picks a part for `want` that is free and reserved for no waiting job.
    fn part_beside_queue(
        &self,
        want: &Want,
        limit_secs: Option<u64>,
        now: Timestamp,
    ) -> Option<Part> {
        let host = self.resources.host();
        let mut capacity = self.resources.ledger().capacity().clone();
        if !self.resources.node().takes_starts() || !capacity.fits(want, host) {
            return None;
        }
        let mut round = self.round(now);
        while let Some(key) = round.next(self.line.queue(), &capacity, host) {
            let Some(record) = self.records.get(key.id) else { continue };
            let running = || self.line.running(&self.records, self.resources.ledger(), now);
            if let Verdict::Start(part) =
                round.consider(key, &record.places, &capacity, host, running)
            {
                capacity.take(&part);
            }
        }
        round.passing(&Bid { job: None, want, limit_secs, capacity: &capacity, host })
    }

    /// Applies a new `tres` to a running job: adds `more`, or releases resources.
    pub(super) fn change_size(
        &mut self,
        id: JobId,
        more: Option<Part>,
        why: PartChange,
        cx: &mut Cx,
    ) {
        if let (Some(more), Some(held)) = (more, self.resources.ledger().held(id)) {
            let alloc = joined(&held.alloc, &more.alloc);
            self.put_alloc(id, alloc, why, cx);
        }
        let Some(job) = self.job(id) else { return };
        let (did_shrink, has_more) = (job.run.shrinks, has_too_much(job));
        self.records.edit(id, |job| job.run.shrinks = has_more);
        self.records.save(id, cx);
        if has_more || did_shrink {
            self.resources.managers().notify(id, why, cx);
        }
        self.refuse_steps_too_large(id, cx);
        self.give_back_idle(id, cx);
    }

    /// Releases the resources of a shrinking job that none of its steps uses.
    pub(super) fn give_back_idle(&mut self, id: JobId, cx: &mut Cx) {
        let owed = self.records.owed(id);
        let Some(job) = self.job(id).filter(|_| owed != Tres::ZERO) else { return };
        // A manager reports which resources are unused. One that is disconnected will reconnect.
        if !self.is_shared_out(id) {
            let given_back = self.idle(job, &owed);
            self.take_back(id, &given_back, PartChange::Update, cx);
        }
    }

    /// Returns up to `owed` resources of a job that no step holds exclusively.
    fn idle(&self, job: &Job, owed: &Tres) -> GivenBack {
        let Some(whole) = &job.run.alloc else { return GivenBack::default() };
        let left = super::managed::left_for_manager(job, None);
        let free: BTreeSet<u32> = left.cpu_ids.iter().copied().collect();
        let keeps = free.len().saturating_sub(owed.cpus as usize);
        let kept = cpu_pick::pick(keeps, &free, &whole.cpu_ids, &self.resources.host().topology);
        let gpus = whole.gpu_share.gpus_in(owed) as usize;
        GivenBack {
            cpu_ids: free.into_iter().filter(|cpu| !kept.contains(cpu)).collect(),
            mem_mb: owed.mem_mb.min(left.tres.mem_mb),
            gpu_ids: left.gpu_ids.iter().rev().take(gpus).copied().collect(),
        }
    }

    /// Takes back unused resources from the manager of a job's steps: as much as the job should
    /// shrink by, and parts out of use, which the job keeps until there is a replacement.
    pub fn take_back_from_manager(
        &mut self,
        id: JobId,
        process: ClientProcess,
        given_back: &GivenBack,
        cx: &mut Cx,
    ) {
        let owed = self.records.owed(id);
        let manager = self.resources.managers().get(id);
        let Some((_, within)) = manager.filter(|(known, _)| *known == process) else { return };
        let Some(job) = self.job(id) else { return };
        let own = super::managed::left_for_manager(job, within);
        let mut broken =
            given_back.parts().within(&own.parts()).within(&self.resources.parts_out(id));
        let share = own.gpu_share;
        let some = |ids: &[u32], own: &[u32], most: u32| {
            let own = ids.iter().copied().filter(|id| own.contains(id));
            own.take(most as usize).collect::<Vec<u32>>()
        };
        let given_back = GivenBack {
            cpu_ids: some(&given_back.cpu_ids, &own.cpu_ids, owed.cpus),
            mem_mb: given_back.mem_mb.min(owed.mem_mb).min(own.tres.mem_mb),
            gpu_ids: some(&given_back.gpu_ids, &own.gpu_ids, share.gpus_in(&owed)),
        };
        broken = broken.without(&given_back.parts());
        self.resources.managers_mut().set_spare(id, broken);
        self.take_back(id, &given_back, PartChange::GivenBack, cx);
    }

    /// Replaces parts out of use that step managers have reported, if there are free resources that
    /// are reserved for no other job.
    pub(super) fn replace_spares(&mut self, cx: &mut Cx) {
        for (id, spare) in self.resources.managers_mut().take_spares() {
            let spare = spare.within(&self.resources.parts_out(id));
            let (cpus, gpus) = (spare.cpus.into_iter().collect(), spare.gpus.into_iter().collect());
            let kinds = [
                GivenBack { cpu_ids: cpus, ..GivenBack::default() },
                GivenBack { gpu_ids: gpus, ..GivenBack::default() },
            ];
            for gone in kinds.into_iter().filter(|gone| !gone.is_empty()) {
                if !self.replace(id, &gone, cx) {
                    self.resources.managers_mut().add_spare(id, &gone.parts());
                }
            }
        }
    }

    /// Returns false if there is no replacement now.
    fn replace(&mut self, id: JobId, gone: &GivenBack, cx: &mut Cx) -> bool {
        let (Some(job), Some(held)) = (self.job(id), self.resources.ledger().held(id)) else {
            return true;
        };
        if held.place.exclusive || held.place.jobs_per_cpu > 1 {
            return false;
        }
        let lost = Tres {
            cpus: gone.cpu_ids.len() as u32,
            ..held.alloc.gpu_share.of(gone.gpu_ids.len() as u32)
        };
        let place = CpuSharing { limits: LimitSet::default(), ..held.place };
        let want = Want::sized(&job.request, lost, place).on_any_cpus();
        let left = expected_end(job, None, cx.now).at().map(|end| end.since(cx.now).as_secs());
        let Some(part) = self.part_beside_queue(&want, left, cx.now) else { return false };
        let alloc = joined(&without(&held.alloc, gone), &part.alloc);
        self.put_alloc(id, alloc, PartChange::Replaced, cx);
        if self.resources.managers().has(id) {
            cx.out.effects.push(Effect::PartsOut(id));
        }
        true
    }

    fn take_back(&mut self, id: JobId, given_back: &GivenBack, why: PartChange, cx: &mut Cx) {
        let Some(alloc) = self
            .job(id)
            .and_then(|job| job.run.alloc.as_deref())
            .filter(|_| !given_back.is_empty())
        else {
            return;
        };
        let alloc = without(alloc, given_back);
        self.put_alloc(id, alloc, why, cx);
    }

    /// Replaces the allocation of a running job.
    pub(super) fn put_alloc(&mut self, id: JobId, alloc: Allocation, why: PartChange, cx: &mut Cx) {
        self.resources.replace(id, alloc.clone());
        self.records.edit(id, |job| {
            let mem_mb = alloc.tres.mem_mb;
            let had = job.run.alloc.replace(alloc.into()).map_or(0, |had| had.tres.mem_mb);
            job.run.shrinks = has_too_much(job);
            // A step that requested no memory has that of the job.
            let shares = |step: &&mut slotd_model::Step| {
                !step.state.is_terminal() && step.alloc.tres.mem_mb == had
            };
            for step in job.steps.iter_mut().filter(|_| had != mem_mb).filter(shares) {
                step.alloc.tres.mem_mb = mem_mb;
                cx.out.changes.push(Change::PutStep { job: id, step: Box::new(step.clone()) });
            }
        });
        self.records.save(id, cx);
        cx.out.effects.push(Effect::Resized(id));
        self.resources.managers().notify(id, why, cx);
        self.start_waiting_steps(id, cx);
    }

    /// Returns whether a manager reports which of the job's resources are in use: the manager is
    /// running, or steps of it are.
    pub fn is_shared_out(&self, id: JobId) -> bool {
        let is_managed = |step: &slotd_model::Step| step.managed && !step.state.is_terminal();
        self.resources.managers().has(id)
            || self.job(id).is_some_and(|job| job.steps.iter().any(is_managed))
    }
}
