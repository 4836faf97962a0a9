//! What the scheduler tells of the host's work: for who keeps what the host uses over time, and
//! looks only while jobs run.

use crate::model::gpu::GpuReading;
use tokio::sync::watch;

#[derive(Debug, Clone, Default)]
pub struct Activity {
    /// Whether a job runs.
    pub runs: bool,
    /// How the GPUs were used when they were read last, while a job ran.
    pub gpus: Vec<GpuReading>,
    /// Which reading that is.
    pub reading: u64,
}

/// Tells whether a job runs. Nobody wakes up where that is known.
pub fn tell_runs(to: &watch::Sender<Activity>, runs: bool) {
    to.send_if_modified(|known| std::mem::replace(&mut known.runs, runs) != runs);
}

/// Tells how the GPUs are used. While no job runs nobody wants to know.
pub fn tell_gpus(to: &watch::Sender<Activity>, gpus: &[GpuReading]) {
    to.send_if_modified(|known| {
        if known.runs {
            known.gpus = gpus.to_vec();
            known.reading += 1;
        }
        known.runs
    });
}
