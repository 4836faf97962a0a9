//! Pending jobs that wait to expand a running one (`--dependency=expand`), a feature of Slurm 2.3.
//!
//! The expanding job waits in the queue like any other. When it may start, its resources are
//! transferred to the other job in the same moment, and it is COMPLETED without having run
//! anything. The resources stay in use as long as the other job runs, so the expanding job gets
//! that job's time limit.

use super::core::Core;
use super::ending::Ending;
use super::resize::joined;
use super::resources::capacity::CpuSharing;
use super::types::{Cx, Effect};
use slotd_model::gpu::GpuShare;
use slotd_model::request::{GpuRequest, JobKind, MemRequest};
use slotd_model::resize::PartChange;
use slotd_model::tres::Allocation;
use slotd_model::update::set_cpus;
use slotd_model::{End, ExitCode, Job, JobId, JobRequest, JobState, Reason, Refusal, Tres};
use std::sync::Arc;

/// Changes a request to this size, expressed for one node regardless of how it was expressed
/// before.
fn ask_for(request: &mut JobRequest, tres: &Tres, share: GpuShare) {
    set_cpus(request, tres.cpus);
    request.mem = MemRequest::PerNode(tres.mem_mb);
    let gpus = share.gpus_in(tres);
    if request.gpu.count(request.task_count()).unwrap_or(0) != gpus {
        let GpuRequest { model, .. } = request.gpu.clone();
        let (mem_mb, shards) = match share {
            GpuShare::Whole => (None, None),
            GpuShare::MemMb(mb) => (Some(mb), None),
            GpuShare::Shards(shards) => (None, Some(shards)),
        };
        request.gpu =
            GpuRequest { total: Some(gpus), model, mem_mb, shards, ..GpuRequest::default() };
    }
}

impl Core {
    /// Completes a submission with values from the job to be expanded.
    ///
    /// # Errors
    /// See [`Core::check_expansion`].
    pub(super) fn prepare_expansion(&self, request: &mut JobRequest) -> Result<(), Refusal> {
        if let Some(target) =
            request.dependency.expands().map(|target| self.records.resolve(target))
            && let Some(target) = target.first().and_then(|id| self.job(*id))
        {
            request.partition.get_or_insert_with(|| target.partition.to_string());
            request.time_limit_secs = target.request.time_limit_secs;
        }
        self.check_expansion(request)
    }

    /// Refuses a request that could never expand the job that it names. If that job has ended, the
    /// request is accepted but never starts.
    pub(super) fn check_expansion(&self, request: &JobRequest) -> Result<(), Refusal> {
        let Some(named) = request.dependency.expands() else { return Ok(()) };
        let refused =
            |why: &str| Err(Refusal::CannotExpand { job: named.clone(), why: why.to_owned() });
        if request.dependency.any {
            return refused("an expand dependency cannot be one of several alternatives");
        }
        if request.kind != JobKind::Batch {
            return refused("only a batch job (sbatch) can expand another job");
        }
        let found = self.records.resolve(named);
        let Some(target) = found.first().and_then(|id| self.job(*id)) else { return Ok(()) };
        if found.len() > 1 || target.compact_tasks().is_some_and(|tasks| tasks.len() > 1) {
            return refused("it is an array: name one of its tasks");
        }
        if target.request.uid != request.uid {
            return refused("it belongs to another user");
        }
        let names = request.partition.as_deref().unwrap_or_default();
        if !target.partitions().any(|partition| partition == names) {
            return refused("it is in another partition");
        }
        // Free resources of one partition may not belong to another.
        if target.partitions().any(|partition| partition != names) {
            return refused("it also names other partitions, and may run there");
        }
        let is_alone =
            |sharing_of: CpuSharing| !sharing_of.exclusive && sharing_of.jobs_per_cpu == 1;
        let sharing_of =
            |request: &JobRequest| CpuSharing::of(request, names, self.resources.config());
        if !is_alone(sharing_of(&target.request)) || !is_alone(sharing_of(request)) {
            return refused("exclusive jobs and jobs that share CPUs cannot be resized");
        }
        // After the transfer, its resources count towards the other job's limits.
        if !sharing_of(&target.request).limits.has_same_limits(&sharing_of(request).limits) {
            return refused(
                "its account, name or QOS has different limits (SlotdLimits and SlotdQos in scontrol show config)",
            );
        }
        if request.licenses.is_some() {
            return refused("licenses cannot be transferred: request them for that job instead");
        }
        let has_gpus = |request: &JobRequest| {
            request.gpu.count(request.task_count()).is_some_and(|gpus| gpus > 0)
        };
        if has_gpus(request)
            && has_gpus(&target.request)
            && request.gpu.share() != target.request.gpu.share()
        {
            return refused("it shares its GPUs differently");
        }
        Ok(())
    }

    /// Transfers the resources that a job would have started with to another job. `from` is the
    /// compact record that the job was split off, or the job itself.
    pub(super) fn expand(
        &mut self,
        target: JobId,
        id: JobId,
        from: JobId,
        alloc: Allocation,
        cx: &mut Cx,
    ) -> bool {
        self.records.note_start(id);
        let clock = self.records.clock();
        self.records.edit(id, |Job { run, .. }| {
            run.start = Some(cx.now);
            (run.clock, run.stepped_us) = (Some(Box::new(clock)), 0);
            run.eligible.get_or_insert(cx.now);
            run.alloc = Some(alloc.clone().into());
            run.system_comment = Some(format!("its resources were transferred to job {target}"));
        });
        if !self.transition(id, JobState::Running, cx.now) {
            return false;
        }
        self.refresh_compact(id, cx.now);
        let ending =
            Ending { state: End::Completed, reason: Reason::None, exit: ExitCode::OK, by: None };
        self.records.set_end(id, &ending, cx.now);
        if !self.transition(id, JobState::Ended(End::Completed), cx.now) {
            return false;
        }
        self.records.save_split(id, from, cx);
        cx.out.effects.push(Effect::Ended(id));
        let Some(held) = self.resources.ledger().held(target).map(|held| held.alloc.clone()) else {
            return false;
        };
        let whole = joined(&held, &alloc);
        self.records.edit(target, |job| {
            job.tres = job.tres.plus(&alloc.tres);
            ask_for(Arc::make_mut(&mut job.request), &job.tres, whole.gpu_share);
        });
        self.put_alloc(target, whole, PartChange::Expanded(id), cx);
        true
    }
}
