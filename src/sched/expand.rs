//! Pending jobs that wait to expand a running one (`--dependency=expand`), as Slurm 2.3 had them.
//!
//! Such a job waits in the queue as any other, and starts when it may; but its resources are transferred to the other job in
//! the same moment, and it is COMPLETED without having run anything. It stays as long as the other job does, so that it has
//! the time limit of that.

use super::core::Core;
use super::lifecycle::Ending;
use super::limits::Reached;
use super::resize::joined;
use super::room::Seating;
use super::types::{Cx, Effect};
use crate::model::gpu::GpuShare;
use crate::model::request::{GpuRequest, JobKind, MemRequest};
use crate::model::resize::PartChange;
use crate::model::tres::Allocation;
use crate::model::{ExitCode, Job, JobId, JobRequest, JobState, Reason, Refusal, Tres};
use std::sync::Arc;

/// Asks for so much in the place of what was asked for: as one node, however it was counted before.
fn ask_for(request: &mut JobRequest, tres: &Tres, share: GpuShare) {
    super::update::set_cpus(request, tres.cpus);
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
    /// Takes from the job that is to be expanded what a submission does not say itself.
    ///
    /// # Errors
    /// As [`Core::check_expansion`].
    pub(super) fn prepare_expansion(&self, request: &mut JobRequest) -> Result<(), Refusal> {
        if let Some(target) = request.dependency.expands().map(|target| self.resolve(target))
            && let Some(target) = target.first().and_then(|id| self.job(*id))
        {
            request.partition.get_or_insert_with(|| target.partition.clone());
            request.time_limit_secs = target.request.time_limit_secs;
        }
        self.check_expansion(request)
    }

    /// Refuses what could never expand the job that it names. One that is over is waited for in vain, and not refused.
    pub(super) fn check_expansion(&self, request: &JobRequest) -> Result<(), Refusal> {
        let Some(named) = request.dependency.expands() else { return Ok(()) };
        let refused =
            |why: &str| Err(Refusal::CannotExpand { job: named.clone(), why: why.to_owned() });
        if request.dependency.any {
            return refused("that cannot be one of several things to wait for");
        }
        if request.kind != JobKind::Batch {
            return refused("only a batch job expands another one (sbatch)");
        }
        let found = self.resolve(named);
        let Some(target) = found.first().and_then(|id| self.job(*id)) else { return Ok(()) };
        if found.len() > 1 || target.compact_tasks().is_some_and(|tasks| tasks.len() > 1) {
            return refused("it is an array: name one of its tasks");
        }
        if target.request.uid != request.uid {
            return refused("it is another user's");
        }
        let names = request.partition.as_deref().unwrap_or_default();
        if !target.partitions().any(|partition| partition == names) {
            return refused("it is in another partition");
        }
        // What is free in one is not what another has.
        if target.partitions().any(|partition| partition != names) {
            return refused("it asks for other partitions, too, and may run there");
        }
        let is_alone = |seating: Seating| !seating.exclusive && seating.seats == 1;
        let seating = |request: &JobRequest| Seating::of(request, names, &self.config);
        if !is_alone(seating(&target.request)) || !is_alone(seating(request)) {
            return refused(
                "jobs that have a partition to themselves, or share their CPUs, keep their size",
            );
        }
        // What it gets counts as the other's from then on.
        if seating(&target.request).limits != seating(request).limits {
            return refused(
                "other limits hold for its account or its name (SlotdLimits in scontrol show config)",
            );
        }
        let has_gpus = |request: &JobRequest| {
            request.gpu.count(request.task_count()).is_some_and(|gpus| gpus > 0)
        };
        if has_gpus(request)
            && has_gpus(&target.request)
            && request.gpu.share() != target.request.gpu.share()
        {
            return refused("it has another share of its GPUs");
        }
        Ok(())
    }

    /// The running job that a pending one is to expand.
    pub(super) fn expanded_by(&self, id: JobId) -> Option<JobId> {
        let named = self.job(id)?.request.dependency.expands()?;
        self.resolve(named)
            .into_iter()
            .find(|id| self.job(*id).is_some_and(|job| Core::may_resize(job.run.state)))
    }

    /// The limit that the job which this one expands would go beyond by so much more. It may hold only since this one was
    /// submitted.
    pub(super) fn limit_of_expanded<T>(
        &self,
        id: JobId,
        more_cpus: u32,
        tell: impl FnOnce(Reached) -> T,
    ) -> Option<T> {
        let held = self.ledger.held(self.expanded_by(id)?)?;
        let mut room = self.ledger.room().clone();
        room.give(held);
        room.limit_reached(
            &held.place,
            held.alloc.tres.cpus.saturating_add(more_cpus),
            &self.config.host,
        )
        .map(tell)
    }

    /// What a job would have started with is another one's. `from` is the compact record that it has left, or itself.
    pub(super) fn expand(
        &mut self,
        target: JobId,
        id: JobId,
        from: JobId,
        alloc: Allocation,
        cx: &mut Cx,
    ) -> bool {
        self.starts += 1;
        if let Some(Job { run, .. }) = self.jobs.get_mut(&id).map(|record| &mut record.job) {
            run.start = Some(cx.now);
            (run.clock, run.stepped_us) = (Some(self.clock), 0);
            run.eligible.get_or_insert(cx.now);
            run.alloc = Some(alloc.clone().into());
            run.system_comment = Some(format!("its resources were transferred to job {target}"));
        }
        if !self.transition(id, JobState::Running, cx.now) {
            return false;
        }
        for compact in self.pending_compact_of(id) {
            self.refresh(compact, cx.now);
        }
        let ending = Ending {
            state: JobState::Completed,
            reason: Reason::None,
            exit: ExitCode::OK,
            by: None,
        };
        self.set_end(id, &ending, cx.now);
        if !self.transition(id, JobState::Completed, cx.now) {
            return false;
        }
        self.save_split(id, from, cx);
        cx.out.effects.push(Effect::Ended(id));
        let Some(held) = self.ledger.held(target).map(|held| held.alloc.clone()) else {
            return false;
        };
        let whole = joined(&held, &alloc);
        self.reshape(target, |job| {
            job.tres = job.tres.plus(&alloc.tres);
            ask_for(Arc::make_mut(&mut job.request), &job.tres, whole.gpu_share);
        });
        self.put_alloc(target, whole, PartChange::Expanded(id), cx);
        true
    }
}
