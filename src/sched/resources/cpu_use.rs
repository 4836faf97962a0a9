//! CPU usage by processes outside jobs, if the settings consider it (`SLOTD_CPU_FOREIGN`).
//!
//! Usage is rounded to whole CPUs, and half a CPU counts as one. That many CPUs are not allocated,
//! starting with those without jobs. CPUs that the settings keep back are meant for such processes
//! and are counted first. The usage is read when a job could start, and again after a pause while
//! it alone keeps a job from starting.

use super::Resources;
use super::capacity::Want;
use super::readings::Readings;
use crate::choice::Choice;
use crate::line::queue::Queue;
use slotd_model::cpu_use::{CpuReading, CpusElsewhere};
use slotd_model::unread::Unread;
use slotd_model::{Timestamp, counted};

/// The latest reading, and the request for the next one.
#[derive(Debug, Clone, Default)]
pub(crate) struct CpuUse {
    pub readings: Readings,
    found: Option<CpuReading>,
}

/// The readings that are missing before a job may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lacks {
    pub gpus: bool,
    pub cpus: bool,
}

impl Lacks {
    pub(crate) fn is_any(self) -> bool {
        self.gpus || self.cpus
    }
}

impl Resources {
    pub(crate) fn lacks_readings(&self, want: &Want, now: Timestamp) -> Lacks {
        let cpus = self.config.avoids_used_cpus && !self.cpu_use.readings.is_fresh(now);
        Lacks { gpus: self.lacks_gpu_reading(&want.gpu, now), cpus }
    }

    /// Returns whether the CPU usage has to be read. True once per request;
    /// [`Resources::cpus_read`] then delivers the answer.
    pub fn take_cpu_request(&mut self) -> bool {
        self.cpu_use.readings.take_request()
    }

    /// Records the CPU usage by processes outside jobs, or why it cannot be read. Returns whether
    /// that changes which jobs can start.
    pub(crate) fn cpus_read(&mut self, read: Result<CpuReading, Unread>, now: Timestamp) -> bool {
        let (found, failure) = match read {
            Ok(found) => (Some(found), None),
            Err(failure) => (None, Some(failure)),
        };
        let seen = |own: &Self| {
            (own.ledger.without_jobs().cloned(), own.cpu_use.readings.failure().is_some())
        };
        let before = seen(self);
        self.cpu_use.readings.answered(failure, now);
        self.cpu_use.found = found;
        self.note_cpus_elsewhere();
        before != seen(self)
    }

    /// Updates the ledger with the CPUs that processes outside jobs use.
    pub(crate) fn note_cpus_elsewhere(&mut self) {
        let busiest = self.cpu_use.found.as_ref().map(CpuReading::busiest).unwrap_or_default();
        self.ledger.set_cpus_elsewhere(self.cpus_taken(), &busiest);
    }

    /// Returns how many of the jobs' CPUs are taken up by processes outside jobs.
    fn cpus_taken(&self) -> u32 {
        let host = &self.config.host;
        let kept_back =
            host.topology.cpus().iter().filter(|cpu| !host.cpu_ids.contains(cpu)).count() as u32;
        let used = self
            .cpu_use
            .found
            .as_ref()
            .map_or(0, |reading| reading.used_centi.saturating_add(50) / 100);
        used.saturating_sub(kept_back).min(host.tres().cpus)
    }

    /// Returns the usage to report, or `None` if the settings ignore it.
    pub fn cpus_elsewhere(&self) -> Option<CpusElsewhere> {
        let used_centi = self.cpu_use.found.as_ref().map(|reading| reading.used_centi);
        self.config.avoids_used_cpus.then(|| CpusElsewhere { used_centi, taken: self.cpus_taken() })
    }

    /// Describes why a job cannot start in a partition although no other job has the CPUs that it
    /// needs.
    pub(crate) fn cpus_in_use(&self, choice: &Choice) -> Option<String> {
        if let Some(failure) = self.cpu_use.readings.failure() {
            return Some(failure.to_string());
        }
        let (left, want, host) = (self.ledger.without_jobs()?, choice.want(), &self.config.host);
        (!left.fits(&want, host) && self.ledger.whole().fits(&want, host)).then(|| {
            let used = self.cpu_use.found.as_ref().map_or(0, |reading| reading.used_centi);
            let taken = self.cpus_taken();
            format!(
                "processes outside jobs use {}.{:02} CPUs, so {} of the host's {} cannot be allocated",
                used / 100,
                used % 100,
                counted(taken, "CPU"),
                host.tres().cpus
            )
        })
    }

    /// Returns the time of the next periodic reading of the CPU usage, if one is needed.
    pub(crate) fn next_cpu_reading(&self, queue: &Queue) -> Option<Timestamp> {
        let readings = &self.cpu_use.readings;
        if !self.config.avoids_used_cpus || readings.is_asked_for() {
            return None;
        }
        let waits = readings.has_waiting() || {
            self.ledger.capacity().lacks_cpus_elsewhere(queue.shapes().map(|shape| shape.want()))
        };
        waits.then(|| readings.after_pause())
    }
}
