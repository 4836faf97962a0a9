//! How much is free: amounts of CPUs and memory, and GPUs by number. Which CPUs a job gets is the ledger's business.

use crate::model::partition::{Gpu, Host};
use crate::model::{Job, Tres, request::Sharing};

/// What a job needs in order to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want<'a> {
    pub tres: Tres,
    /// Only GPUs of this model will do.
    pub gpu_model: Option<&'a str>,
    /// Nobody else on the host.
    pub exclusive: bool,
}

impl<'a> Want<'a> {
    pub fn of(job: &'a Job) -> Self {
        Want {
            tres: job.tres,
            gpu_model: job.request.gpu.model.as_deref(),
            exclusive: job.request.sharing == Sharing::Exclusive,
        }
    }

    /// What it takes from the host: an exclusive job gets all CPUs, as in Slurm.
    pub fn taken(&self, host: &Host) -> Tres {
        if self.exclusive { Tres { cpus: host.cpu_ids.len() as u32, ..self.tres } } else { self.tres }
    }
}

/// Free resources at one moment, real or expected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Room {
    pub cpus: u32,
    pub mem_mb: u64,
    /// Numbers of the free GPUs, ascending.
    pub gpus: Vec<u32>,
    /// Jobs that hold something.
    pub holders: u32,
    /// One of them has the host to itself.
    pub exclusive: bool,
}

/// Whether a GPU is of the model that a user named (`a100` for `nvidia_a100-sxm4-80gb`). A GPU of unknown model
/// (`SLOTD_GPU_COUNT`) passes for any: nothing is known against it.
pub fn is_model(gpu: &Gpu, wanted: &str) -> bool {
    match &gpu.model {
        Some(model) => model.to_ascii_lowercase().contains(&wanted.to_ascii_lowercase()),
        None => true,
    }
}

impl Room {
    /// The host with nobody on it.
    pub fn whole(host: &Host) -> Self {
        let mut gpus: Vec<u32> = host.gpus.iter().map(|gpu| gpu.id).collect();
        gpus.sort_unstable();
        Room { cpus: host.cpu_ids.len() as u32, mem_mb: host.mem_mb, gpus, holders: 0, exclusive: false }
    }

    /// The lowest free GPUs that will do; `None` where there are too few.
    pub fn pick_gpus(&self, want: &Want, host: &Host) -> Option<Vec<u32>> {
        let count = want.tres.gpus as usize;
        if count == 0 {
            return Some(Vec::new());
        }
        let picked: Vec<u32> = match want.gpu_model {
            None => self.gpus.iter().copied().take(count).collect(),
            Some(model) => {
                let is_wanted = |id: &u32| host.gpus.iter().any(|gpu| gpu.id == *id && is_model(gpu, model));
                self.gpus.iter().copied().filter(is_wanted).take(count).collect()
            }
        };
        (picked.len() == count).then_some(picked)
    }

    pub fn fits(&self, want: &Want, host: &Host) -> bool {
        let is_company_fine = !self.exclusive && (!want.exclusive || self.holders == 0);
        is_company_fine
            && want.tres.cpus <= self.cpus
            && want.tres.mem_mb <= self.mem_mb
            && (want.tres.gpus == 0 || self.pick_gpus(want, host).is_some())
    }

    /// Takes what `want` needs, if it is there; the GPUs it got.
    pub fn take(&mut self, want: &Want, host: &Host) -> Option<Vec<u32>> {
        if !self.fits(want, host) {
            return None;
        }
        let gpus = self.pick_gpus(want, host)?;
        let taken = want.taken(host);
        self.cpus = self.cpus.saturating_sub(taken.cpus);
        self.mem_mb = self.mem_mb.saturating_sub(taken.mem_mb);
        self.gpus.retain(|id| !gpus.contains(id));
        self.holders += 1;
        self.exclusive |= want.exclusive;
        Some(gpus)
    }

    /// Gives back what a job held.
    pub fn give(&mut self, tres: &Tres, gpus: &[u32], exclusive: bool) {
        self.cpus += tres.cpus;
        self.mem_mb += tres.mem_mb;
        self.gpus.extend_from_slice(gpus);
        self.gpus.sort_unstable();
        self.gpus.dedup();
        self.holders = self.holders.saturating_sub(1);
        if exclusive {
            self.exclusive = false;
        }
    }
}
