//! The usage of GPUs by the jobs and steps that hold them.

use super::Records;
use slotd_model::gpu::{GpuReading, GpuShare};
use slotd_model::tres::{Allocation, GpuUsage, Usage};
use slotd_model::{Job, JobId, JobState, StepId, StepKey, Timestamp};

impl Records {
    /// Returns the latest start time among running jobs with GPUs.
    pub(crate) fn youngest_with_gpus(&self) -> Option<Timestamp> {
        self.holders_of_gpus().filter_map(|(job, _)| job.run.start).max()
    }

    fn holders_of_gpus(&self) -> impl Iterator<Item = (&Job, &Allocation)> {
        let jobs = self.active_jobs().filter(|job| job.run.state == JobState::Running);
        jobs.filter_map(|job| {
            Some((job, job.run.alloc.as_deref().filter(|alloc| !alloc.gpu_ids.is_empty())?))
        })
    }

    /// Returns the GPU usage of each running step from the latest reading. Steps run by a manager
    /// are left out.
    pub fn gpu_use_of_steps(&self, found: &[GpuReading]) -> Vec<(StepKey, GpuUsage)> {
        let of_job = |(job, alloc): (&Job, &Allocation)| {
            let steps = job.steps.iter().filter(|step| !step.state.is_terminal() && !step.managed);
            // The job's own step has no entry while it runs: use the job's allocation.
            let is_known = |own: &StepId| job.steps.iter().any(|step| step.id == *own);
            let own = job.own_step_id().filter(|own| !is_known(own)).map(|own| (own, alloc));
            let all = steps.map(|step| (step.id, &step.alloc)).chain(own);
            let usage = |(step, alloc)| {
                Some((StepKey { job: job.id, step }, sample(job.id, alloc, found)?))
            };
            all.filter_map(usage).collect::<Vec<_>>()
        };
        self.holders_of_gpus().flat_map(of_job).collect()
    }

    /// Adds a reading to the recorded GPU usage of jobs and their steps.
    pub(crate) fn count_gpu_use(&mut self, readings: &[GpuReading]) {
        let holders: Vec<JobId> = self.holders_of_gpus().map(|(job, _)| job.id).collect();
        for id in holders {
            self.edit(id, |job| {
                let alloc = job.run.alloc.as_ref();
                if let Some(sample) = alloc.and_then(|alloc| sample(id, alloc, readings)) {
                    job.run.add_usage(Usage { gpu: sample, ..Usage::default() });
                }
                for step in job.steps.iter_mut().filter(|step| !step.state.is_terminal()) {
                    if let Some(sample) = sample(id, &step.alloc, readings) {
                        step.usage.gpu = step.usage.gpu.merge(sample);
                    }
                }
            });
        }
    }
}

/// Returns a job's usage of these GPUs, or `None` without a reading for any of them.
fn sample(job: JobId, alloc: &Allocation, readings: &[GpuReading]) -> Option<GpuUsage> {
    let mut found =
        readings.iter().filter(|reading| alloc.gpu_ids.contains(&reading.id)).peekable();
    found.peek()?;
    let (mut busy, mut mem_mb) = (0, 0);
    for reading in found {
        busy += u64::from(reading.busy.unwrap_or(0));
        let own = reading.processes.iter().flatten().filter(|process| process.job == Some(job));
        let reported: Option<u64> =
            reading.processes.as_ref().and_then(|_| own.map(|process| process.mem_mb).sum());
        mem_mb += match alloc.gpu_share {
            // No other job is on this GPU.
            GpuShare::Whole => reported.unwrap_or(reading.used_mb),
            GpuShare::MemMb(_) | GpuShare::Shards(_) => reported.unwrap_or(0),
        };
    }
    Some(GpuUsage::once(busy, mem_mb))
}
