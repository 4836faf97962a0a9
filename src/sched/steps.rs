//! Launches inside an allocation.
//!
//! Steps share what their job has. A step takes the CPUs it asks for, and GPUs and memory where it names a number, away
//! from the other steps for as long as it runs; what does not fit waits, and each end starts of those that wait, in the order of
//! asking, whatever fits then: a step that waits for more never keeps back one that another step needs to end. `--overlap` takes
//! nothing and never waits; so does the shell of salloc.

use super::admit::{check_tasks, in_whole_cores};
use super::cards::{Cards, GpuWant};
use super::core::Core;
use super::lifecycle::end_of_command;
use super::seats;
use super::types::{Cx, Effect, EndCause, StepAsker, StepStart};
use crate::model::change::Change;
use crate::model::gpu::GpuShare;
use crate::model::job::ClientProcess;
use crate::model::node::NodeParts;
use crate::model::partition::Host;
use crate::model::resize::PartChange;
use crate::model::step_request::StepKind;
use crate::model::tres::Allocation;
use crate::model::{
    ExitCode, ExitRecord, Job, JobId, JobState, Reason, Refusal, Step, StepId, StepKey,
    StepRequest, Tres, tres::Usage,
};
use std::collections::{BTreeSet, VecDeque};

/// A step that waits for its turn.
#[derive(Debug, Clone)]
pub(super) struct StepWait {
    request: StepRequest,
    asker: StepAsker,
}

fn is_live(step: &Step) -> bool {
    !step.state.is_terminal()
}

impl Core {
    /// A new step of a running job: at once, or when other steps of it have ended, or when it is resumed.
    ///
    /// Refused where the job does not run
    /// or the step asks for more than the job has.
    pub fn create_step(
        &mut self,
        job: JobId,
        request: StepRequest,
        asker: StepAsker,
        cx: &mut Cx,
    ) -> Result<StepStart, Refusal> {
        let record = self.job(job).ok_or(Refusal::UnknownJob)?;
        match record.run.state {
            JobState::Running | JobState::Suspended => {}
            JobState::Pending => return Err(Refusal::Pending),
            JobState::Completing
            | JobState::Completed
            | JobState::Failed
            | JobState::Cancelled
            | JobState::Timeout
            | JobState::OutOfMemory
            | JobState::NodeFail => return Err(Refusal::AlreadyDone),
        }
        check(record, &request, &self.config.host, &self.parts_out(job))?;
        check_tasks(request.tasks(&record.request), self.config.max_tasks)?;
        if let Some(alloc) = self.room_of(job, &request)
            && let Some(key) = self.add_step(job, &request, asker.client, alloc.clone(), cx)
        {
            return Ok(StepStart::Now(key, alloc));
        }
        if request.immediate {
            return Err(Refusal::Busy);
        }
        self.step_waits.entry(job).or_default().push_back(StepWait { request, asker });
        Ok(StepStart::Waits)
    }

    /// Whoever waited with this ticket does so no longer.
    pub fn cancel_step_wait(&mut self, ticket: u64, cx: &mut Cx) {
        let jobs: Vec<JobId> = self
            .step_waits
            .iter()
            .filter(|(_, waits)| waits.iter().any(|wait| wait.asker.ticket == ticket))
            .map(|(job, _)| *job)
            .collect();
        for job in jobs {
            if let Some(waits) = self.step_waits.get_mut(&job) {
                waits.retain(|wait| wait.asker.ticket != ticket);
            }
            self.start_waiting_steps(job, cx);
        }
    }

    /// The step that this process asked for.
    pub fn step_of(&self, job: JobId, client: ClientProcess) -> Option<&Step> {
        self.job(job)?.steps.iter().rev().find(|step| step.client == Some(client))
    }

    /// The processes of a step are gone. Its exit code counts towards the job's derived one, unless the job is being
    /// stopped.
    pub fn on_step_ended(
        &mut self,
        key: StepKey,
        ended: &ExitRecord,
        cause: EndCause,
        cx: &mut Cx,
    ) {
        if let (EndCause::HostFault, Some(fault)) = (cause, ended.host_fault) {
            let why = ended.launch_error.as_deref().unwrap_or_default();
            self.launch_failed_by_host(key.job, fault, why, cx.now);
        }
        let Some(record) = self.jobs.get_mut(&key.job) else { return };
        let job = &mut record.job;
        // What ended before its client was gone was not ended by that.
        let is_orphaned = job.run.reason == Reason::ClientLost;
        let is_stopping =
            job.run.state == JobState::Completing && (!is_orphaned || ended.client_gone);
        let Some(step) = job.steps.iter_mut().rev().find(|step| step.id == key.step) else {
            return;
        };
        if !is_live(step) {
            return;
        }
        if cause == EndCause::NeverLaunched {
            // Nothing of it ever was: its client asks anew, and nobody else has heard of it.
            job.steps.retain(|step| step.id != key.step);
            if key.step == StepId::Num(job.next_step.saturating_sub(1)) {
                job.next_step -= 1;
            }
            cx.out.changes.push(Change::DropStep { job: key.job, step: key.step });
            return self.start_waiting_steps(key.job, cx);
        }
        step.state = match cause {
            // Who caught the signal and chose an exit code has FAILED with it, as in Slurm.
            EndCause::Exited if is_stopping && ended.exit.signal != 0 => JobState::Cancelled,
            EndCause::Stopped if ended.exit.signal != 0 => JobState::Cancelled,
            EndCause::Exited | EndCause::Stopped if ended.exit.is_success() => JobState::Completed,
            EndCause::Exited
            | EndCause::Stopped
            | EndCause::LaunchFailed
            | EndCause::HostFault
            | EndCause::RunnerLost => JobState::Failed,
            EndCause::TimeLimit => JobState::Timeout,
            EndCause::OutOfMemory => JobState::OutOfMemory,
            EndCause::NodeFailed => JobState::NodeFail,
            EndCause::NeverLaunched => JobState::Cancelled,
        };
        step.exit = ended.exit;
        step.client_gone = ended.client_gone;
        step.usage = Usage { gpu: step.usage.gpu, ..ended.usage };
        if let Some(clock) = ended.clock {
            step.catch_up(clock);
        }
        if let Some(since) = job.run.suspended_at {
            step.stood_still(since, ended.ended);
        }
        step.end_at(ended.ended);
        let step = step.clone();
        if let (true, Some(exit)) = (is_orphaned, end_of_command(job, &step)) {
            // It was given back in fact, with no daemon to tell.
            (job.run.reason, job.run.exit) = (Reason::None, exit);
            self.save(key.job, cx);
        }
        let Some(job) = self.jobs.get_mut(&key.job).map(|known| &mut known.job) else { return };
        cx.out.changes.push(Change::PutStep { job: key.job, step: Box::new(step) });
        let derived = job.run.derived_exit.worse(ended.exit);
        if derived != job.run.derived_exit && !is_stopping {
            job.run.derived_exit = derived;
            self.save(key.job, cx);
        }
        self.tell_manager(key.job, PartChange::StepEnded, cx);
        self.give_back_idle(key.job, cx);
        self.start_waiting_steps(key.job, cx);
    }

    /// Starts of the steps that wait what has room now.
    pub(super) fn start_waiting_steps(&mut self, job: JobId, cx: &mut Cx) {
        let Some(mut waits) = self.step_waits.remove(&job) else { return };
        let mut next = 0;
        while self.job(job).is_some_and(has_a_cpu) {
            let Some(wait) = waits.get(next) else { break };
            let Some(alloc) = self.room_of(job, &wait.request) else {
                next += 1;
                continue;
            };
            let Some(StepWait { request, asker }) = waits.remove(next) else { break };
            if let Some(step) = self.add_step(job, &request, asker.client, alloc.clone(), cx) {
                cx.out.effects.push(Effect::LaunchStep { step, ticket: asker.ticket, alloc });
            }
        }
        if !waits.is_empty() {
            self.step_waits.insert(job, waits);
        }
    }

    /// Those that waited are told that their job is ending.
    pub(super) fn refuse_waiting_steps(&mut self, job: JobId, cx: &mut Cx) {
        for wait in self.step_waits.remove(&job).unwrap_or_default() {
            let refusal = Refusal::AlreadyDone;
            cx.out.effects.push(Effect::StepRefused { ticket: wait.asker.ticket, refusal });
        }
    }

    /// Those that wait for more than their job is to have are told so.
    pub(super) fn refuse_steps_too_large(&mut self, job: JobId, cx: &mut Cx) {
        let Some(waits) = self.step_waits.remove(&job) else { return };
        let Some(record) = self.job(job) else { return };
        let mut left = VecDeque::with_capacity(waits.len());
        for wait in waits {
            match check(record, &wait.request, &self.config.host, &self.parts_out(job)) {
                Ok(()) => left.push_back(wait),
                Err(refusal) => {
                    cx.out.effects.push(Effect::StepRefused { ticket: wait.asker.ticket, refusal })
                }
            }
        }
        if !left.is_empty() {
            self.step_waits.insert(job, left);
        }
    }

    /// What a step would get now. Where a manager has the job, a step gets nothing for itself.
    fn room_of(&self, id: JobId, ask: &StepRequest) -> Option<Allocation> {
        let job = self.job(id).filter(|_| ask.is_shared() || !self.is_managed(id))?;
        room_for(job, ask, &self.config.host, &self.parts_out(id))
    }

    fn add_step(
        &mut self,
        id: JobId,
        ask: &StepRequest,
        client: Option<ClientProcess>,
        alloc: Allocation,
        cx: &mut Cx,
    ) -> Option<StepKey> {
        let job = &mut self.jobs.get_mut(&id)?.job;
        let step_id = match ask.kind {
            StepKind::Interactive => StepId::Interactive,
            StepKind::Numbered => {
                let number = job.next_step;
                job.next_step += 1;
                StepId::Num(number)
            }
        };
        let step = Step {
            id: step_id,
            name: ask.name.clone(),
            ntasks: ask.tasks(&job.request),
            state: JobState::Running,
            start: cx.now,
            end: None,
            exit: ExitCode::OK,
            alloc,
            usage: Usage::default(),
            submit_line: ask.submit_line.clone(),
            overlap: ask.is_shared(),
            client,
            client_gone: false,
            suspended_us: 0,
            clock: Some(self.clock),
            stepped_us: 0,
            managed: false,
        };
        // A second interactive step takes the place of the first.
        if step_id == StepId::Interactive {
            job.steps.retain(|old| old.id != step_id);
        }
        job.steps.push(step.clone());
        // The number of the next step is found again from the steps, so that the record need not be written.
        cx.out.changes.push(Change::PutStep { job: id, step: Box::new(step) });
        Some(StepKey { job: id, step: step_id })
    }

    /// Whether this step of the job is known and not over.
    pub fn has_live_step(&self, job: JobId, step: StepId) -> bool {
        let Some(job) = self.job(job) else { return false };
        // The script or command is no entry of its own: it lives as long as the job.
        let is_own = job.own_step_id() == Some(step) && job.run.state.is_active();
        is_own || job.steps.iter().any(|s| s.id == step && is_live(s))
    }
}

fn check(job: &Job, ask: &StepRequest, host: &Host, out: &NodeParts) -> Result<(), Refusal> {
    super::lengths::check_name(&ask.name)?;
    let Some(alloc) = &job.run.alloc else { return Err(Refusal::Pending) };
    // What is to be given back is no step's any more.
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
        Cards::of_job(gpus, alloc.gpu_share, host).pick(&want, &[], None, host).is_some()
    };
    match has(&alloc.gpu_ids) {
        false => Err(Refusal::StepTooManyGpus),
        true if has(&gpus_in_use(alloc, out)) => Ok(()),
        true => Err(Refusal::StepGpusOut {
            out: NodeParts { gpus: out.gpus.clone(), ..NodeParts::default() },
        }),
    }
}

/// The GPUs of a job but for those that are out of use, which no step gets.
fn gpus_in_use(whole: &Allocation, out: &NodeParts) -> Vec<u32> {
    whole.gpu_ids.iter().copied().filter(|id| !out.gpus.contains(id)).collect()
}

/// Whether a step could have a CPU of the job for itself: with none there is no use in looking at those that wait.
fn has_a_cpu(job: &Job) -> bool {
    let Some(whole) = &job.run.alloc else { return false };
    let live = job.steps.iter().filter(|step| is_live(step) && !step.overlap);
    whole.cpu_ids.is_empty()
        || live.map(|step| step.alloc.tres.cpus).fold(0, u32::saturating_add) < whole.tres.cpus
}

/// The GPUs that a step wants for itself; `None`: it says nothing of them.
fn wanted_gpus<'a>(job: &Job, ask: &'a StepRequest) -> Option<GpuWant<'a>> {
    let (share, model) = (ask.gpu.share(), ask.gpu.model.as_deref());
    ask.gpus(&job.request).map(|count| GpuWant { count, share, model, among: None })
}

/// These GPUs of a job, with what its steps have taken of them for themselves.
fn cards_of(job: &Job, whole: &Allocation, gpus: &[u32], host: &Host) -> Cards {
    let mut cards = Cards::of_job(gpus, whole.gpu_share, host);
    for step in job.steps.iter().filter(|step| is_live(step) && !step.overlap) {
        // A step that did not name a number has all GPUs, and shares them.
        if step.alloc.gpu_share.gpus_in(&step.alloc.tres) > 0 {
            cards.take(&step.alloc.gpu_ids, step.alloc.gpu_share);
        }
    }
    cards
}

/// What the step gets now; `None`: others have it, or the job is suspended, in which nothing starts.
fn room_for(job: &Job, ask: &StepRequest, host: &Host, out: &NodeParts) -> Option<Allocation> {
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
    let mut cards = cards_of(job, whole, &gpus, host);
    let mut used_mem = 0u64;
    for step in job.steps.iter().filter(|step| is_live(step) && !step.overlap) {
        used_cpus.extend(step.alloc.cpu_ids.iter().copied());
        if step.alloc.tres.mem_mb < whole.tres.mem_mb {
            used_mem += step.alloc.tres.mem_mb;
        }
    }
    if ask.is_shared() {
        used_cpus.clear();
        cards = cards.emptied();
        used_mem = 0;
    }
    let free_cpus = whole.cpu_ids.iter().copied().filter(|id| !used_cpus.contains(id)).collect();
    let cpu_ids = seats::pick(wanted as usize, &free_cpus, &whole.cpu_ids, &host.topology);
    let want = wanted_gpus(job, ask);
    let gpu_ids = match &want {
        Some(want) => cards.pick(want, &[], None, host)?,
        None => gpus.into_iter().filter(|id| cards.have(&[*id], GpuShare::Whole)).collect(),
    };
    // A whole GPU of the job is as much of it as the job has.
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
    })
}
