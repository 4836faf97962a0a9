//! How much is free: amounts of CPUs and memory, and GPUs by number. Which CPUs a job gets is the ledger's business.

use super::cards::{Cards, GpuWant};
use crate::model::gpu::GpuShare;
use crate::model::partition::Host;
use crate::model::tres::Allocation;
use crate::model::{Job, JobRequest, Tres, request::Sharing};

/// What a job needs in order to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want<'a> {
    pub tres: Tres,
    pub gpu: GpuWant<'a>,
    /// Nobody else on the host.
    pub exclusive: bool,
}

/// What a job has of a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub tres: Tres,
    pub gpu_ids: Vec<u32>,
    pub gpu_share: GpuShare,
    pub exclusive: bool,
}

impl<'a> Want<'a> {
    pub fn of(job: &'a Job) -> Self {
        Want::sized(&job.request, job.tres)
    }

    /// What a job with this request needs that comes to this.
    pub fn sized(request: &'a JobRequest, tres: Tres) -> Self {
        let share = request.gpu.share();
        Want {
            tres,
            gpu: GpuWant { count: share.gpus_in(&tres), share, model: request.gpu.model.as_deref() },
            exclusive: request.sharing == Sharing::Exclusive,
        }
    }

    /// What it takes from the host: an exclusive job gets all CPUs, as in Slurm.
    fn taken(&self, host: &Host) -> Tres {
        if self.exclusive { Tres { cpus: host.cpu_ids.len() as u32, ..self.tres } } else { self.tres }
    }
}

impl Part {
    fn new(want: &Want, gpu_ids: Vec<u32>, host: &Host) -> Self {
        Part { tres: want.taken(host), gpu_ids, gpu_share: want.gpu.share, exclusive: want.exclusive }
    }

    /// What a job with this allocation has.
    pub fn of(alloc: &Allocation, exclusive: bool) -> Self {
        let Allocation { tres, gpu_ids, gpu_share, .. } = alloc;
        Part { tres: *tres, gpu_ids: gpu_ids.clone(), gpu_share: *gpu_share, exclusive }
    }
}

/// Free resources at one moment, real or expected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Room {
    pub cpus: u32,
    pub mem_mb: u64,
    pub gpus: Cards,
    /// Jobs that hold something.
    pub holders: u32,
    /// One of them has the host to itself.
    pub exclusive: bool,
}

impl Room {
    /// The host with nobody on it.
    pub fn whole(host: &Host) -> Self {
        Room {
            cpus: host.cpu_ids.len() as u32,
            mem_mb: host.mem_mb,
            gpus: Cards::of(host),
            holders: 0,
            exclusive: false,
        }
    }

    pub fn fits(&self, want: &Want, host: &Host) -> bool {
        self.pick(want, host).is_some()
    }

    /// What `want` would get; `None` where it does not fit.
    pub fn pick(&self, want: &Want, host: &Host) -> Option<Part> {
        let gpu_ids = self.has_amounts(want, host).then(|| self.gpus.pick(&want.gpu, host))??;
        Some(Part::new(want, gpu_ids, host))
    }

    /// What `want` would get of what is free here and in `other`.
    pub fn pick_in_both(&self, other: &Room, want: &Want, host: &Host) -> Option<Part> {
        let has_amounts = self.has_amounts(want, host) && other.has_amounts(want, host);
        let gpu_ids = has_amounts.then(|| self.gpus.pick_in_both(&other.gpus, &want.gpu, host))??;
        Some(Part::new(want, gpu_ids, host))
    }

    /// What `want` would get; of the GPUs rather those that are not free in `other`.
    pub fn pick_beside(&self, other: &Room, want: &Want, host: &Host) -> Option<Part> {
        let has_amounts = self.has_amounts(want, host);
        let gpu_ids = has_amounts.then(|| self.gpus.pick_beside(&other.gpus, &want.gpu, host))??;
        Some(Part::new(want, gpu_ids, host))
    }

    /// All but the GPUs.
    fn has_amounts(&self, want: &Want, host: &Host) -> bool {
        let taken = want.taken(host);
        let is_company_fine = !self.exclusive && (!want.exclusive || self.holders == 0);
        is_company_fine && taken.cpus <= self.cpus && taken.mem_mb <= self.mem_mb
    }

    /// Notes what a job has, whether it was free or not.
    pub fn take(&mut self, part: &Part) {
        self.cpus = self.cpus.saturating_sub(part.tres.cpus);
        self.mem_mb = self.mem_mb.saturating_sub(part.tres.mem_mb);
        self.gpus.take(&part.gpu_ids, part.gpu_share);
        self.holders += 1;
        self.exclusive |= part.exclusive;
    }

    /// Gives back what a job held.
    pub fn give(&mut self, part: &Part) {
        self.cpus += part.tres.cpus;
        self.mem_mb += part.tres.mem_mb;
        self.gpus.give(&part.gpu_ids, part.gpu_share);
        self.holders = self.holders.saturating_sub(1);
        if part.exclusive {
            self.exclusive = false;
        }
    }
}
