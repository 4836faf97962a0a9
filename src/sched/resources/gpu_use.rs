//! GPU usage by processes outside jobs, and by the driver.
//!
//! A job that requests GPU memory starts only if that much is actually free. Depending on the
//! settings, no job starts on a GPU that processes outside jobs use. The usage is read when such a
//! job could start, and again after a pause while one waits. A waiting job is not in the queue, so
//! that it does not keep others from starting. While jobs hold GPUs, the same readings also show
//! how much the jobs use.

use super::Resources;
use super::gpu_pool::{Elsewhere, GpuWant};
use super::readings::Readings;
use crate::choice::Choice;
use slotd_model::gpu::{GpuReading, GpuShare};
use slotd_model::tres::Allocation;
use slotd_model::unread::Unread;
use slotd_model::{Job, JobId, Timestamp};
use std::collections::BTreeMap;

/// The longest pause between readings while jobs hold GPUs. The pause grows with the age of the
/// youngest job up to this.
const LONGEST_PAUSE_SECS: u64 = 10;

/// The latest readings, and the request for the next ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct GpuUse {
    pub readings: Readings,
    found: Vec<GpuReading>,
}

impl Resources {
    /// Returns whether the GPUs have to be read. True once per request; [`Resources::gpus_read`]
    /// then delivers the answer.
    pub fn take_gpu_request(&mut self) -> bool {
        self.gpu_use.readings.take_request()
    }

    /// Records the GPU usage, or why it cannot be read.
    pub fn gpus_read(&mut self, read: Result<Vec<GpuReading>, Unread>, now: Timestamp) {
        let (found, failure) = match read {
            Ok(found) => (found, None),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        self.gpu_use.readings.answered(failure, now);
        self.gpu_use.found = found;
        self.note_elsewhere();
    }

    /// Returns the latest readings.
    pub fn gpu_readings(&self) -> &[GpuReading] {
        &self.gpu_use.found
    }

    /// Returns whether the start of this job depends on GPU readings.
    pub(crate) fn waits_for_gpu_readings(&self, job: &Job) -> bool {
        Choice::all(job, &self.config).any(|choice| self.goes_by_readings(&choice.want().gpu))
    }

    /// Updates the ledger with the usage by processes outside jobs.
    pub(crate) fn note_elsewhere(&mut self) {
        let elsewhere = self
            .gpu_use
            .found
            .iter()
            .map(|reading| (reading.id, self.elsewhere(reading)))
            .collect();
        self.ledger.set_elsewhere(&elsewhere);
    }

    /// Returns the usage of a GPU by processes outside jobs. A job's usage beyond its request
    /// counts too.
    fn elsewhere(&self, reading: &GpuReading) -> Elsewhere {
        let mut used: BTreeMap<JobId, u64> = BTreeMap::new();
        let (mut has_others, mut is_complete) = (false, reading.processes.is_some());
        for process in reading.processes.iter().flatten() {
            match process.job.filter(|job| self.share_of(*job, reading.id).is_some()) {
                Some(job) => {
                    is_complete &= process.mem_mb.is_some();
                    *used.entry(job).or_default() += process.mem_mb.unwrap_or(0);
                }
                None => has_others = true,
            }
        }
        let own: u64 = if is_complete {
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

    /// Returns how much of a GPU belongs to this job, in MB, or `None` if the job does not hold it.
    fn share_of(&self, id: JobId, gpu: u32) -> Option<u64> {
        let alloc = &self.ledger.held(id)?.alloc;
        if !alloc.gpu_ids.contains(&gpu) {
            return None;
        }
        Some(match alloc.gpu_share {
            GpuShare::MemMb(mb) => mb,
            // The job may use all of its memory.
            GpuShare::Whole | GpuShare::Shards(_) => u64::MAX,
        })
    }

    /// Returns whether a start with this want depends on GPU readings.
    fn goes_by_readings(&self, want: &GpuWant) -> bool {
        let names_memory = matches!(want.share, GpuShare::MemMb(_));
        self.config.reads_gpus && want.count > 0 && (names_memory || self.config.avoids_used_gpus)
    }

    /// Returns whether the GPUs have to be read before a job with this want may start.
    pub(crate) fn lacks_gpu_reading(&self, want: &GpuWant, now: Timestamp) -> bool {
        self.goes_by_readings(want) && !self.gpu_use.readings.is_fresh(now)
    }

    /// Describes why a job waits until the GPUs are known. An exclusive job gets all of them.
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
            "it is unknown which GPU job {holder} uses, so other jobs wait until it has ended"
        ))
    }

    /// Returns whether a job waits until the GPUs are known.
    pub(crate) fn awaits_gpus(&self, choice: &Choice) -> bool {
        self.unknown_gpus(choice).is_some()
    }

    /// Returns whether the job holds a GPU that is recorded by number alone, while the host's GPUs
    /// have UUIDs. Another daemon assigned the number, which may now belong to any of them.
    pub(crate) fn holds_unknown_gpu(&self, id: JobId) -> bool {
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

    /// Describes why a job cannot start in a partition although no other job has the GPUs that it
    /// needs.
    pub(crate) fn gpus_in_use(&self, choice: &Choice) -> Option<String> {
        if let Some(why) = self.unknown_gpus(choice) {
            return Some(why);
        }
        let among = choice.partition.and_then(|partition| partition.gpus.as_ref());
        let want = GpuWant { among, ..choice.want().gpu };
        if !self.goes_by_readings(&want) {
            return None;
        }
        if let Some(failure) = self.gpu_use.readings.failure() {
            return Some(failure.to_string());
        }
        let host = &self.config.host;
        let pool = self.ledger.capacity().gpus.emptied();
        let unused = pool.unused();
        let ends_the_wait = pool.pick(&want, &[], None, host).is_none()
            && unused.pick(&want, &[], None, host).is_some();
        ends_the_wait.then(|| {
            let suitable = unused.free(&want, &[], host);
            let used: Vec<String> = pool
                .elsewhere()
                .filter(|(id, _)| suitable.contains(id))
                .map(|(id, mb)| format!("{mb} MB of GPU {id}"))
                .collect();
            format!("processes outside jobs or the driver use {}", used.join(", "))
        })
    }

    /// Returns the time of the next periodic reading of the GPUs, if one is needed. `youngest`: the
    /// latest start of a running job with GPUs.
    pub(crate) fn next_gpu_reading(&self, youngest: Option<Timestamp>) -> Option<Timestamp> {
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
