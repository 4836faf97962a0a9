//! Usage of the host by processes outside jobs: when to read it, and its consequences.

use super::core::Core;
use super::resources::cpu_use::Lacks;
use slotd_model::cpu_use::CpuReading;
use slotd_model::gpu::GpuReading;
use slotd_model::tres::GpuUsage;
use slotd_model::unread::Unread;
use slotd_model::{StepKey, Timestamp};

impl Core {
    /// Returns whether the GPUs have to be read. True once per request; [`Core::on_gpus_read`] then
    /// delivers the answer.
    pub fn take_gpu_request(&mut self) -> bool {
        self.resources.take_gpu_request()
    }

    /// Returns whether the CPU usage has to be read. True once per request; [`Core::on_cpus_read`]
    /// then delivers the answer.
    pub fn take_cpu_request(&mut self) -> bool {
        self.resources.take_cpu_request()
    }

    /// Records the GPU usage, or why it cannot be read.
    pub fn on_gpus_read(&mut self, read: Result<Vec<GpuReading>, Unread>, now: Timestamp) {
        self.resources.gpus_read(read, now);
        self.records.count_gpu_use(self.resources.gpu_readings());
        let mut askers = self.records.pending();
        askers.retain(|id| {
            self.job(*id).is_some_and(|job| self.resources.waits_for_gpu_readings(job))
        });
        for id in askers {
            self.refresh(id, now);
        }
    }

    /// Records the CPU usage by processes outside jobs, or why it cannot be read.
    pub fn on_cpus_read(&mut self, read: Result<CpuReading, Unread>, now: Timestamp) {
        if self.resources.cpus_read(read, now) {
            for id in self.records.pending() {
                self.refresh(id, now);
            }
        }
    }

    /// Returns the GPU usage of each running step from the latest reading. Steps run by a manager
    /// are left out.
    pub fn gpu_use_of_steps(&self) -> Vec<(StepKey, GpuUsage)> {
        self.records.gpu_use_of_steps(self.resources.gpu_readings())
    }

    fn next_gpu_reading(&self) -> Option<Timestamp> {
        self.resources.next_gpu_reading(self.records.youngest_with_gpus())
    }

    fn next_cpu_reading(&self) -> Option<Timestamp> {
        self.resources.next_cpu_reading(self.line.queue())
    }

    /// Returns the times of the next readings.
    pub(super) fn next_readings(&self) -> impl Iterator<Item = Timestamp> {
        self.next_gpu_reading().into_iter().chain(self.next_cpu_reading())
    }

    /// Requests the readings that are due.
    pub(super) fn ask_by_clock(&mut self, now: Timestamp) {
        let is_due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        let (gpus, cpus) = (is_due(self.next_gpu_reading()), is_due(self.next_cpu_reading()));
        self.resources.want_readings(Lacks { gpus, cpus });
    }
}
