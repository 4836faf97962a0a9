//! The GPUs of this machine and their use.
//!
//! NVIDIA GPUs are queried with `nvidia-smi`, AMD GPUs are read from sysfs. With `SLOTD_GPU_COUNT`,
//! only the number of GPUs is known.

mod amd;
mod kept;
mod nvidia;

use crate::aside;
use crate::job_of::job_of;
use slotd_model::gpu::{Gpu, GpuProcess, GpuReading};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The level of detail of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Only the list of GPUs.
    Inventory,
    /// The list of GPUs and their current use.
    Use,
}

/// The state of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    pub gpu: Gpu,
    /// MB of its memory that are not available to new processes, if known.
    used_mb: Option<u64>,
    busy: Option<u32>,
    processes: Option<Vec<Process>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: i32,
    mem_mb: Option<u64>,
}

/// Detects the GPUs of one vendor.
trait Driver {
    async fn look(&self, depth: Depth) -> io::Result<Vec<Seen>>;
}

/// The sources of GPU information.
#[derive(Debug, Clone)]
pub struct Places {
    /// `SLOTD_GPU_COUNT`.
    pub count: Option<u32>,
    /// The time that a program may take to respond.
    pub timeout: Duration,
    /// The root of the daemon whose jobs are distinguished from other processes.
    pub root: PathBuf,
}

impl Places {
    /// Returns all GPUs. A machine without the vendor's program has no such GPUs, which is not an
    /// error.
    ///
    /// # Errors
    /// Fails if an installed program fails or does not respond in time, in which case it is killed.
    /// The caller should keep its previous list. The message names the program.
    pub async fn look(&self, depth: Depth) -> io::Result<Vec<Seen>> {
        if let Some(count) = self.count {
            let counted = |id| Seen { gpu: Gpu { id, ..Gpu::default() }, ..Seen::default() };
            return Ok((0..count).map(counted).collect());
        }
        let mut seen = nvidia::Nvidia { timeout: self.timeout }.look(depth).await?;
        let others = amd::Amd { sysfs: PathBuf::from("/sys"), devices: PathBuf::from("/dev") }
            .look(depth)
            .await?;
        add(&mut seen, others);
        Ok(seen)
    }

    /// Returns the readings by the IDs in `gpus`. Processes are mapped to their jobs.
    pub async fn readings(&self, seen: Vec<Seen>, gpus: &[Gpu]) -> Vec<GpuReading> {
        let id_of = |seen: &Gpu| gpus.iter().find(|gpu| gpu.is_same_as(seen)).map(|gpu| gpu.id);
        let seen: Vec<(u32, Seen)> =
            seen.into_iter().map(|one| (id_of(&one.gpu).unwrap_or(one.gpu.id), one)).collect();
        let root = self.root.clone();
        let read =
            move || seen.into_iter().filter_map(|(id, one)| reading(id, one, &root)).collect();
        aside::run("reading the processes of the GPUs", aside::PATIENCE, read)
            .await
            .unwrap_or_default()
    }
}

/// Appends the GPUs of another vendor, with IDs after the existing ones.
fn add(seen: &mut Vec<Seen>, others: Vec<Seen>) {
    let first = seen.iter().map(|one| one.gpu.id + 1).max().unwrap_or(0);
    seen.extend(others.into_iter().map(|mut other| {
        other.gpu.id = other.gpu.id.saturating_add(first);
        other
    }));
}

fn reading(id: u32, seen: Seen, root: &Path) -> Option<GpuReading> {
    let of_job =
        |process: Process| GpuProcess { job: job_of(process.pid, root), mem_mb: process.mem_mb };
    let processes = seen.processes.map(|processes| processes.into_iter().map(of_job).collect());
    Some(GpuReading { id, used_mb: seen.used_mb?, busy: seen.busy, processes })
}

/// Converts a model name to a word that can be a feature or a GRES type, as Slurm's gres/gpu plugin
/// does with AutoDetect. The name is converted to lower case, and everything except letters,
/// digits, `-` and `.` to underscores: `NVIDIA H200` becomes `nvidia_h200`.
fn feature_word(name: &str) -> Option<String> {
    let word: String = name
        .trim()
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') {
                c.to_ascii_lowercase()
            } else {
                '_'
            }
        })
        .collect();
    let word = word.split('_').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_");
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_of_two_vendors_have_different_ids() {
        let gpus = |ids: [u32; 2]| {
            ids.map(|id| Seen { gpu: Gpu { id, ..Gpu::default() }, ..Seen::default() }).to_vec()
        };
        let mut seen = gpus([0, 1]);
        add(&mut seen, gpus([0, 1]));
        assert_eq!(seen.iter().map(|one| one.gpu.id).collect::<Vec<_>>(), [0, 1, 2, 3]);
        let mut alone = Vec::new();
        add(&mut alone, gpus([0, 1]));
        assert_eq!(alone, gpus([0, 1]));
    }
}
