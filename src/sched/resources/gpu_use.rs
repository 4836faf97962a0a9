//! What others have of the GPUs: processes that no job started, and the driver.
//!
//! A job that names an amount of GPU memory starts only where that much is really free, and where
//! the settings say so no job starts on a GPU with processes of others. That is read when such a
//! job could start, and again after a pause while one waits for it; such a job is not in the queue
//! meanwhile, so that it keeps nobody else from starting. While jobs have GPUs, the readings tell
//! too what they use of them.

use super::Resources;
use super::gpu_pool::{Elsewhere, GpuWant};
use super::readings::Readings;
use crate::model::gpu::{GpuReading, GpuShare};
use crate::model::tres::Allocation;
use crate::model::{Job, JobId, Timestamp};
use crate::sched::choice::Choice;
use std::collections::BTreeMap;

/// Between two readings while jobs have GPUs: the pause grows with their age up to this.
const LONGEST_PAUSE_SECS: u64 = 10;

/// What was read last, and what is to be read.
#[derive(Debug, Clone, Default)]
pub struct GpuUse {
    pub readings: Readings,
    found: Vec<GpuReading>,
}

impl Resources {
    /// Whether the GPUs have to be read. Asked for once, then answered by [`Resources::gpus_read`].
    pub fn take_gpu_request(&mut self) -> bool {
        self.gpu_use.readings.take_request()
    }

    /// How the GPUs are used now, or why that cannot be told.
    pub fn gpus_read(&mut self, read: Result<Vec<GpuReading>, String>, now: Timestamp) {
        let (found, failure) = match read {
            Ok(found) => (found, None),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        self.gpu_use.readings.answered(failure, now);
        self.gpu_use.found = found;
        self.note_elsewhere();
    }

    /// What was read last.
    pub fn gpu_readings(&self) -> &[GpuReading] {
        &self.gpu_use.found
    }

    /// Whether this job starts only by what was read.
    pub fn waits_for_gpu_readings(&self, job: &Job) -> bool {
        Choice::all(job, &self.config).any(|choice| self.goes_by_readings(&choice.want().gpu))
    }

    /// Tells the ledger what others have.
    pub fn note_elsewhere(&mut self) {
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
        let own: u64 = if is_all_told {
            used.iter().map(|(job, mb)| self.share_of(*job, reading.id).unwrap_or(0).min(*mb)).sum()
        } else {
            let shares =
                self.ledger.holders().filter_map(|(job, _)| self.share_of(job, reading.id));
            shares.fold(0, u64::saturating_add)
        };
        Elsewhere {
            mem_mb: reading.used_mb.saturating_sub(own),
            is_avoided: self.config.avoids_used_gpus && has_others,
        }
    }

    /// How much of a GPU is this job's own, MB; `None`: it does not have it.
    fn share_of(&self, id: JobId, gpu: u32) -> Option<u64> {
        let alloc = &self.ledger.held(id)?.alloc;
        if !alloc.gpu_ids.contains(&gpu) {
            return None;
        }
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
    pub fn lacks_gpu_reading(&self, want: &GpuWant, now: Timestamp) -> bool {
        self.goes_by_readings(want) && !self.gpu_use.readings.is_fresh(now)
    }

    /// Why a job waits until the GPUs are known. One that is to be alone gets all of them.
    fn unknown_gpus(&self, choice: &Choice) -> Option<String> {
        let want = choice.want();
        if want.gpu.count == 0 && !want.place.exclusive {
            return None;
        }
        if self.config.host.detects_gpus {
            return Some("the GPUs of this host are being detected".to_owned());
        }
        let mut holders = self.ledger.holders();
        let (holder, _) = holders.find(|(_, part)| self.has_unknown_gpu(&part.alloc))?;
        Some(format!(
            "which of the GPUs job {holder} has is not known, and any may be free once it has ended"
        ))
    }

    /// Whether a job waits for that.
    pub fn awaits_gpus(&self, choice: &Choice) -> bool {
        self.unknown_gpus(choice).is_some()
    }

    /// Whether this job has a GPU that it knows by a number alone, while those of the host have
    /// names: the number is of another daemon, and may be of any of them now.
    pub fn holds_unknown_gpu(&self, id: JobId) -> bool {
        self.ledger.held(id).is_some_and(|part| self.has_unknown_gpu(&part.alloc))
    }

    fn has_unknown_gpu(&self, alloc: &Allocation) -> bool {
        let host = self.host();
        let has_name = |id: u32| match host.gpu(id) {
            Some(gpu) => gpu.uuid.is_some(),
            None => host.gpus.iter().any(|gpu| gpu.uuid.is_some()),
        };
        alloc.gpu_ids.iter().any(|id| !alloc.gpu_uuids.contains_key(id) && has_name(*id))
    }

    /// What keeps a job from starting in a partition though no other job has what it needs.
    pub fn gpus_in_use(&self, choice: &Choice) -> Option<String> {
        if let Some(why) = self.unknown_gpus(choice) {
            return Some(why);
        }
        let among = choice.partition.and_then(|partition| partition.gpus.as_ref());
        let want = GpuWant { among, ..choice.want().gpu };
        if !self.goes_by_readings(&want) {
            return None;
        }
        if let Some(failure) = self.gpu_use.readings.failure() {
            return Some(format!("how the GPUs are used cannot be told: {failure}"));
        }
        let pool = self.ledger.capacity().gpus.emptied();
        pool.pick(&want, &[], None, &self.config.host).is_none().then(|| {
            let used: Vec<String> =
                pool.elsewhere().map(|(id, mb)| format!("{mb} MB of GPU {id}")).collect();
            format!("processes that are no job's use {}", used.join(", "))
        })
    }

    /// When the GPUs are to be read next, if by the clock. `youngest`: the last start of a running
    /// job that has GPUs.
    pub fn next_gpu_reading(&self, youngest: Option<Timestamp>) -> Option<Timestamp> {
        let readings = &self.gpu_use.readings;
        if !self.config.reads_gpus || readings.is_asked_for() {
            return None;
        }
        let last = readings.last().unwrap_or_default();
        let for_waiting = readings.has_waiting().then(|| readings.after_pause());
        let for_running = youngest.map(|youngest| {
            let age = last.since(youngest.min(last)).as_secs();
            last.max(youngest).plus_secs(age.clamp(1, LONGEST_PAUSE_SECS))
        });
        for_waiting.into_iter().chain(for_running).min()
    }
}
