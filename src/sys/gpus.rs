//! The GPUs of this machine: which there are, and how they are used.
//!
//! NVIDIA's are asked for by `nvidia-smi`, AMD's are found in sysfs. `SLOTD_GPU_COUNT` stands for
//! GPUs of which nothing else is known.

mod amd;
mod kept;
mod nvidia;

use crate::model::gpu::{Gpu, GpuProcess, GpuReading};
use crate::sys::aside;
use crate::sys::job_of::job_of;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Which GPUs there are.
    Inventory,
    /// How they are used, too.
    Use,
}

/// What was seen of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    pub gpu: Gpu,
    /// MB of its memory that a new process cannot have; `None` where that cannot be told.
    used_mb: Option<u64>,
    busy: Option<u32>,
    processes: Option<Vec<Process>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: i32,
    mem_mb: Option<u64>,
}

/// What finds the GPUs of one maker.
trait Driver {
    async fn look(&self, depth: Depth) -> io::Result<Vec<Seen>>;
}

/// Where GPUs are looked for.
#[derive(Debug, Clone)]
pub struct Places {
    /// `SLOTD_GPU_COUNT`.
    pub count: Option<u32>,
    /// How long a program may take to answer.
    pub timeout: Duration,
    /// The root of the daemon whose jobs are told from other processes.
    pub root: PathBuf,
}

impl Places {
    /// All GPUs. A machine without any has no program that could be asked, which is no error.
    ///
    /// # Errors
    /// A program that is there did not answer in time (it was killed then) or failed: the caller
    /// should keep what it knew. The text names the program.
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

    /// What was seen, by the numbers of these GPUs. The processes are told by the jobs that they
    /// are of.
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

/// Numbers the GPUs of another maker after these.
fn add(seen: &mut Vec<Seen>, others: Vec<Seen>) {
    let first = seen.iter().map(|one| one.gpu.id + 1).max().unwrap_or(0);
    seen.extend(others.into_iter().map(|mut other| {
        other.gpu.id = other.gpu.id.saturating_add(first);
        other
    }));
}

fn reading(id: u32, seen: Seen, root: &Path) -> Option<GpuReading> {
    let told =
        |process: Process| GpuProcess { job: job_of(process.pid, root), mem_mb: process.mem_mb };
    let processes = seen.processes.map(|processes| processes.into_iter().map(told).collect());
    Some(GpuReading { id, used_mb: seen.used_mb?, busy: seen.busy, processes })
}

/// A model as one word that can be a feature or a GRES type: `NVIDIA H200` is `nvidia_h200`. As
/// Slurm's gres/gpu plugin with AutoDetect names them: small letters, anything but letters, digits,
/// `-` and `.` an underscore.
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
    fn gpus_of_two_makers_have_different_numbers() {
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
