//! The activity on the host as the scheduler reports it. The history of host usage is sampled only
//! while jobs run.

use slotd_model::gpu::GpuReading;
use tokio::sync::watch;

#[derive(Debug, Clone, Default)]
pub struct Activity {
    /// Whether any job is running.
    pub runs: bool,
    /// The GPU usage in the last reading that was taken while a job ran.
    pub gpus: Vec<GpuReading>,
    /// The number of that reading.
    pub reading: u64,
}

/// Publishes whether any job is running. Receivers wake up only on a change.
pub fn publish_runs(to: &watch::Sender<Activity>, runs: bool) {
    to.send_if_modified(|known| std::mem::replace(&mut known.runs, runs) != runs);
}

/// Publishes the GPU usage. Ignored while no job is running.
pub fn publish_gpus(to: &watch::Sender<Activity>, gpus: &[GpuReading]) {
    to.send_if_modified(|known| {
        if known.runs {
            known.gpus = gpus.to_vec();
            known.reading += 1;
        }
        known.runs
    });
}
