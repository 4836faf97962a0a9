//! What others than jobs use of the CPUs, where the settings say that it counts
//! (`SLOTD_CPU_FOREIGN`).
//!
//! Half a CPU of use and more is a CPU that is taken: so many are given to no job, those first that
//! no job is on. CPUs that the settings keep back are there for others, and count first. It is read
//! when a job could start, and again after a pause while one could start but for it.

use super::Resources;
use super::capacity::Want;
use super::readings::Readings;
use crate::model::Timestamp;
use crate::model::cpu_use::{CpuReading, CpusElsewhere};
use crate::sched::choice::Choice;
use crate::sched::line::queue::Queue;

/// What was read last, and what is to be read.
#[derive(Debug, Clone, Default)]
pub struct CpuUse {
    pub readings: Readings,
    found: Option<CpuReading>,
}

/// What has to be read before a job may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lacks {
    pub gpus: bool,
    pub cpus: bool,
}

impl Lacks {
    pub fn is_any(self) -> bool {
        self.gpus || self.cpus
    }
}

impl Resources {
    pub fn lacks_readings(&self, want: &Want, now: Timestamp) -> Lacks {
        let cpus = self.config.avoids_used_cpus && !self.cpu_use.readings.is_fresh(now);
        Lacks { gpus: self.lacks_gpu_reading(&want.gpu, now), cpus }
    }

    /// Whether the use of the CPUs has to be read. Asked for once, then answered by
    /// [`Resources::cpus_read`].
    pub fn take_cpu_request(&mut self) -> bool {
        self.cpu_use.readings.take_request()
    }

    /// What others than jobs use of the CPUs now, or why that cannot be told. Whether that changes
    /// who can start.
    pub fn cpus_read(&mut self, read: Result<CpuReading, String>, now: Timestamp) -> bool {
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

    /// Tells the ledger which CPUs others have.
    pub fn note_cpus_elsewhere(&mut self) {
        let busiest = self.cpu_use.found.as_ref().map(CpuReading::busiest).unwrap_or_default();
        self.ledger.set_cpus_elsewhere(self.cpus_taken(), &busiest);
    }

    /// How many CPUs others have of those that jobs may use.
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

    /// What is told of it. `None`: it does not count.
    pub fn cpus_elsewhere(&self) -> Option<CpusElsewhere> {
        let used_centi = self.cpu_use.found.as_ref().map(|reading| reading.used_centi);
        self.config.avoids_used_cpus.then(|| CpusElsewhere { used_centi, taken: self.cpus_taken() })
    }

    /// What keeps a job from starting in a partition though no other job has the CPUs that it
    /// needs.
    pub fn cpus_in_use(&self, choice: &Choice) -> Option<String> {
        if let Some(failure) = self.cpu_use.readings.failure() {
            return Some(format!("how the CPUs are used cannot be told: {failure}"));
        }
        let (left, want, host) = (self.ledger.without_jobs()?, choice.want(), &self.config.host);
        (!left.fits(&want, host) && self.ledger.whole().fits(&want, host)).then(|| {
            let used = self.cpu_use.found.as_ref().map_or(0, |reading| reading.used_centi);
            let taken = self.cpus_taken();
            let plural = if taken == 1 { "" } else { "s" };
            format!(
                "processes that are no job's use {}.{:02} CPUs, so that {taken} CPU{plural} of the host's {} are taken",
                used / 100,
                used % 100,
                host.tres().cpus
            )
        })
    }

    /// When the use of the CPUs is to be read next, if by the clock.
    pub fn next_cpu_reading(&self, queue: &Queue) -> Option<Timestamp> {
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
