//! Launches inside an allocation.
//!
//! Steps share the resources of their job. A step holds its CPUs exclusively while it runs, and
//! also GPUs and memory if it requests an amount. A step that does not fit waits. When a step ends,
//! all waiting steps that fit start, in the order of their requests: a step that waits for more
//! never blocks one that another step needs in order to end. `--overlap` takes nothing and never
//! waits, and neither does the shell of salloc.

use super::core::Core;
use super::line::{FirstStep, StepWait};
use super::resources::cpu_pick;
use super::resources::gpu_pool::{GpuPool, GpuWant};
use super::sizes::{check_tasks, in_whole_cores};
use super::types::{Cx, Effect, EndCause, StepAsker, StepStart};
use slotd_model::gpu::GpuShare;
use slotd_model::job::ClientProcess;
use slotd_model::node::NodeParts;
use slotd_model::partition::Host;
use slotd_model::resize::PartChange;
use slotd_model::step_request::StepKind;
use slotd_model::tres::Allocation;
use slotd_model::{
    ExitCode, ExitRecord, Job, JobId, JobRef, JobState, Refusal, Step, StepId, StepKey,
    StepRequest, Tres,
};
use std::collections::{BTreeSet, VecDeque};

fn is_live(step: &Step) -> bool {
    !step.state.is_terminal()
}

impl Core {
    /// Creates a step of a running job: at once, or when other steps of the job have ended, or when
    /// the job is resumed.
    ///
    /// Fails if the job is not running, or if the step requests more than the job has.
    pub fn create_step(
        &mut self,
        job: JobId,
        request: StepRequest,
        asker: StepAsker,
        cx: &mut Cx,
    ) -> Result<StepStart, Refusal> {
        if self.awaits_launch(job, asker.client)
            && let Some(recorded) = self.take_recorded(job, &request, cx)
        {
            return Ok(recorded);
        }
        let record = self.job(job).ok_or(Refusal::UnknownJob)?;
        match record.run.state {
            JobState::Running | JobState::Suspended => {}
            JobState::Pending => return Err(Refusal::Pending),
            JobState::Completing | JobState::Ended(_) => return Err(Refusal::AlreadyDone),
        }
        self.check_step(record, &request)?;
        if let Some(alloc) = self.step_alloc(job, &request)
            && let Some(key) = self.records.add_step(job, &request, asker.client, alloc.clone(), cx)
        {
            return Ok(StepStart::Now(key, alloc));
        }
        if request.immediate {
            return Err(Refusal::Busy);
        }
        self.line.add_step_wait(job, StepWait { request, asker });
        Ok(StepStart::Waits)
    }

    /// Returns whether this process is to launch the first step of its allocation.
    pub fn awaits_launch(&self, job: JobId, client: Option<ClientProcess>) -> bool {
        let is_holder = client.is_some() && self.job(job).and_then(Job::holder) == client;
        is_holder && self.line.first_step(job).is_some()
    }

    /// Returns the step of an allocation that is recorded, but not launched yet. It does not exist
    /// for users.
    pub(super) fn unlaunched(&self, job: JobId) -> Option<StepId> {
        self.line.first_step(job)?.recorded
    }

    /// Returns the running steps that a reference such as `12.0` or `12_3.0` names.
    pub(super) fn launched_steps(&self, sel: &JobRef) -> Result<Vec<StepKey>, Refusal> {
        let mut keys = self.records.live_steps(sel)?;
        keys.retain(|key| self.unlaunched(key.job) != Some(key.step));
        if keys.is_empty() { Err(Refusal::UnknownStep) } else { Ok(keys) }
    }

    /// Records the step that an allocation is for together with its start, which saves its client
    /// from waiting for a second commit. A step that does not fit is refused once it is launched.
    pub(super) fn record_first_step(&mut self, job: JobId, cx: &mut Cx) {
        let Some(first) = self.line.take_first_step(job) else { return };
        let Some(record) = self.job(job).filter(|job| self.check_step(job, &first.request).is_ok())
        else {
            return;
        };
        let holder = record.holder();
        let Some(alloc) = self.step_alloc(job, &first.request) else { return };
        if let Some(key) = self.records.add_step(job, &first.request, holder, alloc, cx) {
            self.line.set_first_step(job, FirstStep { recorded: Some(key.step), ..first });
        }
    }

    /// Returns the step that was recorded with the start of its allocation, for its launch. Removes
    /// its record if another step is launched instead.
    fn take_recorded(&mut self, job: JobId, ask: &StepRequest, cx: &mut Cx) -> Option<StepStart> {
        if self.line.first_step(job).is_some_and(|first| *first.request != *ask) {
            self.drop_first_step(job, cx);
            self.start_waiting_steps(job, cx);
        }
        let step = self.line.take_first_step(job)?.recorded?;
        let known = self.job(job)?.steps.iter().find(|known| known.id == step && is_live(known))?;
        Some(StepStart::Recorded(StepKey { job, step }, known.alloc.clone()))
    }

    /// Forgets the first step of an allocation. If its record was not launched, it is deleted.
    pub(super) fn drop_first_step(&mut self, job: JobId, cx: &mut Cx) {
        if let Some(step) = self.line.take_first_step(job).and_then(|first| first.recorded) {
            let nothing = ExitRecord::gone(ExitCode::OK, cx.now);
            self.records.end_step(StepKey { job, step }, &nothing, EndCause::NeverLaunched, cx);
        }
    }

    fn check_step(&self, job: &Job, request: &StepRequest) -> Result<(), Refusal> {
        check(job, request, self.resources.host(), &self.resources.parts_out(job.id))?;
        check_tasks(request.tasks(&job.request), self.resources.config().max_tasks)
    }

    /// Removes the waiting step with this ticket.
    pub fn cancel_step_wait(&mut self, ticket: u64, cx: &mut Cx) {
        for job in self.line.jobs_with_ticket(ticket) {
            let mut waits = self.line.take_step_waits(job);
            waits.retain(|wait| wait.asker.ticket != ticket);
            self.line.set_step_waits(job, waits);
            self.start_waiting_steps(job, cx);
        }
    }

    /// Handles the end of a step's processes. Its exit code counts towards the job's derived one,
    /// unless the job is being stopped.
    pub fn on_step_ended(
        &mut self,
        key: StepKey,
        ended: &ExitRecord,
        cause: EndCause,
        cx: &mut Cx,
    ) {
        if let (EndCause::HostFault, Some(fault)) = (cause, ended.host_fault) {
            let why = ended.launch_error.as_deref().unwrap_or_default();
            self.launch_failed_by_host(key.job, fault, why, cx);
        }
        if !self.records.end_step(key, ended, cause, cx) {
            return;
        }
        if cause != EndCause::NeverLaunched {
            self.resources.managers().notify(key.job, PartChange::StepEnded, cx);
            self.give_back_idle(key.job, cx);
        }
        self.start_waiting_steps(key.job, cx);
    }

    /// Starts the waiting steps that fit now.
    pub(super) fn start_waiting_steps(&mut self, job: JobId, cx: &mut Cx) {
        let mut waits = self.line.take_step_waits(job);
        let mut next = 0;
        while let Some(wait) = waits.get(next).filter(|_| self.job(job).is_some_and(has_a_cpu)) {
            let Some(alloc) = self.step_alloc(job, &wait.request) else {
                next += 1;
                continue;
            };
            let Some(StepWait { request, asker }) = waits.remove(next) else { break };
            if let Some(step) =
                self.records.add_step(job, &request, asker.client, alloc.clone(), cx)
            {
                cx.out.effects.push(Effect::LaunchStep { step, ticket: asker.ticket, alloc });
            }
        }
        self.line.set_step_waits(job, waits);
    }

    /// Refuses the waiting steps because their job is ending.
    pub(super) fn refuse_waiting_steps(&mut self, job: JobId, cx: &mut Cx) {
        self.drop_first_step(job, cx);
        for wait in self.line.take_step_waits(job) {
            let refusal = Refusal::AlreadyDone;
            cx.out.effects.push(Effect::StepRefused { ticket: wait.asker.ticket, refusal });
        }
    }

    /// Refuses the waiting steps that request more than their job is to have.
    pub(super) fn refuse_steps_too_large(&mut self, job: JobId, cx: &mut Cx) {
        let waits = self.line.take_step_waits(job);
        let Some(record) = self.job(job) else { return };
        let mut left = VecDeque::with_capacity(waits.len());
        for wait in waits {
            match self.check_step(record, &wait.request) {
                Ok(()) => left.push_back(wait),
                Err(refusal) => {
                    cx.out.effects.push(Effect::StepRefused { ticket: wait.asker.ticket, refusal })
                }
            }
        }
        self.line.set_step_waits(job, left);
    }

    /// Returns the allocation that a step would get now. If the job has a manager, a step gets no
    /// exclusive resources.
    fn step_alloc(&self, id: JobId, ask: &StepRequest) -> Option<Allocation> {
        let job = self.job(id).filter(|_| ask.is_shared() || !self.resources.managers().has(id))?;
        alloc_for_step(job, ask, self.resources.host(), &self.resources.parts_out(id))
    }
}

fn check(job: &Job, ask: &StepRequest, host: &Host, out: &NodeParts) -> Result<(), Refusal> {
    super::lengths::check_name(&ask.name)?;
    let Some(alloc) = &job.run.alloc else { return Err(Refusal::Pending) };
    // Resources that are to be released are no longer available to steps.
    let there = if job.run.shrinks { job.tres } else { alloc.tres };
    let (tasks, cpus) = (ask.tasks(&job.request), ask.cpus(&job.request));
    let overcommit = ask.overcommit || job.request.overcommit;
    if cpus > there.cpus && !overcommit && !ask.is_shared() {
        return Err(Refusal::StepTooManyCpus);
    }
    if tasks > there.cpus && !overcommit && ask.kind == StepKind::Numbered {
        return Err(Refusal::StepTooManyCpus);
    }
    if ask.mem_mb(&job.request).is_some_and(|mb| mb > there.mem_mb) {
        return Err(Refusal::StepTooMuchMemory);
    }
    let Some(want) = wanted_gpus(job, ask) else { return Ok(()) };
    let has = |gpus: &[u32]| {
        GpuPool::of_job(gpus, alloc.gpu_share, host).pick(&want, &[], None, host).is_some()
    };
    if !has(&alloc.gpu_ids) {
        return Err(Refusal::StepTooManyGpus);
    }
    if !has(&gpus_in_use(alloc, out)) {
        let out = NodeParts { gpus: out.gpus.clone(), ..NodeParts::default() };
        return Err(Refusal::StepGpusOut { out });
    }
    Ok(())
}

/// Returns the GPUs of a job that steps may use, without those out of use.
fn gpus_in_use(whole: &Allocation, out: &NodeParts) -> Vec<u32> {
    whole.gpu_ids.iter().copied().filter(|id| !out.gpus.contains(id)).collect()
}

/// Returns whether a step could hold a CPU of the job exclusively. If not, no waiting step needs to
/// be checked.
fn has_a_cpu(job: &Job) -> bool {
    let Some(whole) = &job.run.alloc else { return false };
    let live = job.steps.iter().filter(|step| is_live(step) && !step.overlap);
    whole.cpu_ids.is_empty()
        || live.map(|step| step.alloc.tres.cpus).fold(0, u32::saturating_add) < whole.tres.cpus
}

/// Returns the GPUs that a step requests exclusively, or `None` if it requests none.
fn wanted_gpus<'a>(job: &Job, ask: &'a StepRequest) -> Option<GpuWant<'a>> {
    let (share, model) = (ask.gpu.share(), ask.gpu.model.as_deref());
    ask.gpus(&job.request).map(|count| GpuWant { count, share, model, among: None })
}

/// Returns these GPUs of a job, with the usage by steps that hold them exclusively.
fn gpu_pool_of(job: &Job, whole: &Allocation, gpus: &[u32], host: &Host) -> GpuPool {
    let mut pool = GpuPool::of_job(gpus, whole.gpu_share, host);
    for step in job.steps.iter().filter(|step| is_live(step) && !step.overlap) {
        // A step that requested no number of GPUs has all of them, and shares them.
        if step.alloc.gpu_share.gpus_in(&step.alloc.tres) > 0 {
            pool.take(&step.alloc.gpu_ids, step.alloc.gpu_share);
        }
    }
    pool
}

/// Returns the allocation of a step, or `None` if other steps hold the resources, or if the job is
/// suspended, so that nothing starts.
fn alloc_for_step(
    job: &Job,
    ask: &StepRequest,
    host: &Host,
    out: &NodeParts,
) -> Option<Allocation> {
    let whole = job.run.alloc.as_ref().filter(|_| job.run.state == JobState::Running)?;
    let cpus = in_whole_cores(
        ask.cpus(&job.request),
        ask.tasks(&job.request),
        &ask.placement,
        &host.topology,
    );
    let wanted = cpus.min(whole.tres.cpus);
    let wanted_mem = ask.mem_mb(&job.request);
    let mem_mb = wanted_mem.filter(|mb| *mb > 0).unwrap_or(whole.tres.mem_mb);
    let mut used_cpus = BTreeSet::new();
    let gpus = gpus_in_use(whole, out);
    let mut pool = gpu_pool_of(job, whole, &gpus, host);
    let mut used_mem = 0u64;
    for step in job.steps.iter().filter(|step| is_live(step) && !step.overlap) {
        used_cpus.extend(step.alloc.cpu_ids.iter().copied());
        if step.alloc.tres.mem_mb < whole.tres.mem_mb {
            used_mem += step.alloc.tres.mem_mb;
        }
    }
    if ask.is_shared() {
        used_cpus.clear();
        pool = pool.emptied();
        used_mem = 0;
    }
    let free_cpus = whole.cpu_ids.iter().copied().filter(|id| !used_cpus.contains(id)).collect();
    let cpu_ids = cpu_pick::pick(wanted as usize, &free_cpus, &whole.cpu_ids, &host.topology);
    let want = wanted_gpus(job, ask);
    let gpu_ids = match &want {
        Some(want) => pool.pick(want, &[], None, host)?,
        None => gpus.into_iter().filter(|id| pool.have(&[*id], GpuShare::Whole)).collect(),
    };
    // A whole GPU means the job's entire share of it.
    let gpu_share = want
        .map(|want| want.share)
        .filter(|share| *share != GpuShare::Whole)
        .unwrap_or(whole.gpu_share);
    let gpus = want.map_or(Tres::ZERO, |_| gpu_share.of(gpu_ids.len() as u32));
    let has_cpus = whole.cpu_ids.is_empty() || cpu_ids.len() as u32 == wanted;
    let has_mem = wanted_mem.is_none_or(|mb| used_mem.saturating_add(mb) <= whole.tres.mem_mb);
    (has_cpus && has_mem).then_some(Allocation {
        tres: Tres { cpus: wanted, mem_mb, ..gpus },
        cpu_ids,
        gpu_ids,
        gpu_share,
        ..Allocation::default()
    })
}
