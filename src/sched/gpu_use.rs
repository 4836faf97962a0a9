//! What others have of the GPUs: processes that no job started, and the driver.
//!
//! A job that names an amount of GPU memory starts only where that much is really free, and where the settings say so no
//! job starts on a GPU with processes of others. That is read when such a job could start, and again after a pause while
//! one waits for it; such a job is not in the queue meanwhile, so that it keeps nobody else from starting. While jobs have
//! GPUs, the readings tell too what they use of them.

use super::cards::{Elsewhere, GpuWant};
use super::choice::Choice;
use super::core::Core;
use super::readings::Readings;
use crate::model::gpu::{GpuReading, GpuShare};
use crate::model::tres::{Allocation, GpuUsage};
use crate::model::{Job, JobId, JobState, StepId, StepKey, Timestamp};
use std::collections::BTreeMap;

/// Between two readings while jobs have GPUs: the pause grows with their age up to this.
const LONGEST_PAUSE_SECS: u64 = 10;

/// What was read last, and what is to be read.
#[derive(Debug, Clone, Default)]
pub(super) struct GpuUse {
    pub(super) readings: Readings,
    found: Vec<GpuReading>,
}

impl Core {
    /// Whether the GPUs have to be read. Asked for once, then answered by [`Core::on_gpus_read`].
    pub fn take_gpu_request(&mut self) -> bool {
        self.gpu_use.readings.take_request()
    }

    /// How the GPUs are used now, or why that cannot be told.
    pub fn on_gpus_read(&mut self, read: Result<Vec<GpuReading>, String>, now: Timestamp) {
        let (found, failure) = match read {
            Ok(found) => (found, None),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        self.gpu_use.readings.answered(failure, now);
        self.gpu_use.found = found;
        self.count_gpu_use();
        self.note_elsewhere();
        let goes_by_readings = |job: &Job| {
            Choice::all(job, &self.config).any(|choice| self.goes_by_readings(&choice.want().gpu))
        };
        let pending = self.jobs().filter(|job| job.run.state == JobState::Pending);
        let askers: Vec<JobId> =
            pending.filter(|job| goes_by_readings(job)).map(|job| job.id).collect();
        for id in askers {
            self.refresh(id, now);
        }
    }

    /// Tells the ledger what others have.
    pub(super) fn note_elsewhere(&mut self) {
        let elsewhere = self
            .gpu_use
            .found
            .iter()
            .map(|reading| (reading.id, self.elsewhere(reading)))
            .collect();
        self.ledger.set_elsewhere(&elsewhere);
    }

    /// What others have of a GPU. What a job uses beyond what it asked for is not its own.
    fn elsewhere(&self, reading: &GpuReading) -> Elsewhere {
        let mut used: BTreeMap<JobId, u64> = BTreeMap::new();
        let (mut has_others, mut is_all_told) = (false, reading.processes.is_some());
        for process in reading.processes.iter().flatten() {
            match process.job.filter(|job| self.share_of(*job, reading.id).is_some()) {
                Some(job) => {
                    is_all_told &= process.mem_mb.is_some();
                    *used.entry(job).or_default() += process.mem_mb.unwrap_or(0);
                }
                None => has_others = true,
            }
        }
        let own: u64 = match is_all_told {
            true => used
                .iter()
                .map(|(job, mb)| self.share_of(*job, reading.id).unwrap_or(0).min(*mb))
                .sum(),
            // Whatever is used may be the jobs' own.
            false => self
                .active
                .iter()
                .filter_map(|job| self.share_of(*job, reading.id))
                .fold(0, u64::saturating_add),
        };
        Elsewhere {
            mem_mb: reading.used_mb.saturating_sub(own),
            is_avoided: self.config.avoids_used_gpus && has_others,
        }
    }

    /// How much of a GPU is this job's own, MB; `None`: it does not have it.
    fn share_of(&self, id: JobId, gpu: u32) -> Option<u64> {
        let job = self.job(id).filter(|job| job.run.state.is_active())?;
        let alloc = job.run.alloc.as_ref().filter(|alloc| alloc.gpu_ids.contains(&gpu))?;
        Some(match alloc.gpu_share {
            GpuShare::MemMb(mb) => mb,
            // It may use what is there.
            GpuShare::Whole | GpuShare::Shards(_) => u64::MAX,
        })
    }

    /// Whether a job with this want starts only by what was read.
    fn goes_by_readings(&self, want: &GpuWant) -> bool {
        let names_memory = matches!(want.share, GpuShare::MemMb(_));
        self.config.reads_gpus && want.count > 0 && (names_memory || self.config.avoids_used_gpus)
    }

    /// Whether the GPUs have to be read before this job may start.
    pub(super) fn lacks_gpu_reading(&self, want: &GpuWant, now: Timestamp) -> bool {
        self.goes_by_readings(want) && !self.gpu_use.readings.is_fresh(now)
    }

    /// What keeps a job from starting in a partition though no other job has what it needs.
    pub(super) fn gpus_in_use(&self, choice: &Choice) -> Option<String> {
        let among = choice.partition.and_then(|partition| partition.gpus.as_ref());
        let want = GpuWant { among, ..choice.want().gpu };
        if !self.goes_by_readings(&want) {
            return None;
        }
        if let Some(failure) = self.gpu_use.readings.failure() {
            return Some(format!("how the GPUs are used cannot be told: {failure}"));
        }
        let cards = self.ledger.room().gpus.emptied();
        cards.pick(&want, &[], None, &self.config.host).is_none().then(|| {
            let used: Vec<String> =
                cards.elsewhere().map(|(id, mb)| format!("{mb} MB of GPU {id}")).collect();
            format!("processes that are no job's use {}", used.join(", "))
        })
    }

    /// When the GPUs are to be read next, if by the clock.
    pub(super) fn next_gpu_reading(&self) -> Option<Timestamp> {
        let readings = &self.gpu_use.readings;
        if !self.config.reads_gpus || readings.is_asked_for() {
            return None;
        }
        let last = readings.last().unwrap_or_default();
        let for_waiting = readings.has_waiting().then(|| readings.after_pause());
        let starts = self.holders_of_gpus().filter_map(|(job, _)| job.run.start);
        let for_running = starts.max().map(|youngest| {
            let age = last.since(youngest.min(last)).as_secs();
            last.max(youngest).plus_secs(age.clamp(1, LONGEST_PAUSE_SECS))
        });
        for_waiting.into_iter().chain(for_running).min()
    }

    /// Has the GPUs read, if it is time.
    pub(super) fn ask_gpus_by_clock(&mut self, now: Timestamp) {
        if self.next_gpu_reading().is_some_and(|at| at <= now) {
            self.gpu_use.readings.want();
        }
    }

    fn holders_of_gpus(&self) -> impl Iterator<Item = (&Job, &Allocation)> {
        let jobs = self
            .active
            .iter()
            .filter_map(|id| self.job(*id))
            .filter(|job| job.run.state == JobState::Running);
        jobs.filter_map(|job| {
            Some((job, job.run.alloc.as_deref().filter(|alloc| !alloc.gpu_ids.is_empty())?))
        })
    }

    /// What each running step uses of its GPUs by the last reading; of those that a manager runs nothing.
    pub fn gpu_use_of_steps(&self) -> Vec<(StepKey, GpuUsage)> {
        let found = &self.gpu_use.found;
        let of_job = |(job, alloc): (&Job, &Allocation)| {
            let steps = job.steps.iter().filter(|step| !step.state.is_terminal() && !step.managed);
            // While its own step runs, the job's record stands for it.
            let is_known = |own: &StepId| job.steps.iter().any(|step| step.id == *own);
            let own = job.own_step_id().filter(|own| !is_known(own)).map(|own| (own, alloc));
            let all = steps.map(|step| (step.id, &step.alloc)).chain(own);
            let told = |(step, alloc)| {
                Some((StepKey { job: job.id, step }, sample(job.id, alloc, found)?))
            };
            all.filter_map(told).collect::<Vec<_>>()
        };
        self.holders_of_gpus().flat_map(of_job).collect()
    }

    /// Adds what was read to what jobs and their steps have used.
    fn count_gpu_use(&mut self) {
        let readings = std::mem::take(&mut self.gpu_use.found);
        let holders: Vec<JobId> = self.holders_of_gpus().map(|(job, _)| job.id).collect();
        for id in holders {
            let Some(job) = self.jobs.get_mut(&id).map(|record| &mut record.job) else { continue };
            if let Some(sample) =
                job.run.alloc.as_ref().and_then(|alloc| sample(id, alloc, &readings))
            {
                job.run.usage.gpu = job.run.usage.gpu.merge(sample);
            }
            for step in job.steps.iter_mut().filter(|step| !step.state.is_terminal()) {
                if let Some(sample) = sample(id, &step.alloc, &readings) {
                    step.usage.gpu = step.usage.gpu.merge(sample);
                }
            }
        }
        self.gpu_use.found = readings;
    }
}

/// What a job uses of these GPUs; `None` where nothing is known of them.
fn sample(job: JobId, alloc: &Allocation, readings: &[GpuReading]) -> Option<GpuUsage> {
    let mut found =
        readings.iter().filter(|reading| alloc.gpu_ids.contains(&reading.id)).peekable();
    found.peek()?;
    let (mut busy, mut mem_mb) = (0, 0);
    for reading in found {
        busy += u64::from(reading.busy.unwrap_or(0));
        let own = reading.processes.iter().flatten().filter(|process| process.job == Some(job));
        let told: Option<u64> =
            reading.processes.as_ref().and_then(|_| own.map(|process| process.mem_mb).sum());
        mem_mb += match alloc.gpu_share {
            // Nobody else is on it.
            GpuShare::Whole => told.unwrap_or(reading.used_mb),
            GpuShare::MemMb(_) | GpuShare::Shards(_) => told.unwrap_or(0),
        };
    }
    Some(GpuUsage::once(busy, mem_mb))
}
