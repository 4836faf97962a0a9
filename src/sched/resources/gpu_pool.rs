//! The GPUs at one moment: which ones are free, and the free part of shared ones.
//!
//! A GPU is allocated to one job, or shared by memory, or shared by shards; never two of these at
//! once, as in Slurm. Among suitable GPUs the one with the most free comes first, and among equals
//! the one with the lowest number.

use slotd_model::Tres;
use slotd_model::gpu::{Gpu, GpuShare};
use slotd_model::partition::Host;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The GPUs that a job needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuWant<'a> {
    pub count: u32,
    pub share: GpuShare,
    /// Only GPUs of this model are suitable.
    pub model: Option<&'a str>,
    /// Only these GPUs are suitable.
    pub among: Option<&'a BTreeSet<u32>>,
}

/// The usage of a GPU by processes outside jobs, and by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Elsewhere {
    pub mem_mb: u64,
    /// No job gets the GPU, however small the usage is.
    pub is_avoided: bool,
}

/// GPUs by number, each with its usage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GpuPool(BTreeMap<u32, PooledGpu>);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct PooledGpu {
    mem_mb: u64,
    shards: u32,
    elsewhere: Elsewhere,
    /// The number of jobs that hold the whole GPU; more than one only if the host has changed.
    owners: u32,
    taken_mb: u64,
    taken_shards: u32,
    /// The owner has drained it, so no job gets it.
    is_drained: bool,
}

impl PooledGpu {
    fn is_untouched(&self) -> bool {
        self.owners == 0 && self.taken_mb == 0 && self.taken_shards == 0
    }

    fn free_mb(&self) -> u64 {
        self.mem_mb.saturating_sub(self.taken_mb).saturating_sub(self.elsewhere.mem_mb)
    }

    fn free_shards(&self) -> u32 {
        self.shards.saturating_sub(self.taken_shards)
    }

    fn has(&self, share: GpuShare) -> bool {
        !self.elsewhere.is_avoided
            && !self.is_drained
            && self.owners == 0
            && match share {
                GpuShare::Whole => self.is_untouched(),
                GpuShare::MemMb(mb) => self.taken_shards == 0 && mb <= self.free_mb(),
                GpuShare::Shards(shards) => self.taken_mb == 0 && shards <= self.free_shards(),
            }
    }

    /// Returns how suitable the GPU is for this kind of share; higher is better.
    fn freedom(&self, share: GpuShare) -> u64 {
        match share {
            GpuShare::Whole | GpuShare::MemMb(_) => self.free_mb(),
            GpuShare::Shards(_) => self.free_shards().into(),
        }
    }

    fn change(&mut self, share: GpuShare, is_taken: bool) {
        match (share, is_taken) {
            (GpuShare::Whole, true) => self.owners += 1,
            (GpuShare::Whole, false) => self.owners = self.owners.saturating_sub(1),
            (GpuShare::MemMb(mb), true) => self.taken_mb = self.taken_mb.saturating_add(mb),
            (GpuShare::MemMb(mb), false) => self.taken_mb = self.taken_mb.saturating_sub(mb),
            (GpuShare::Shards(shards), true) => {
                self.taken_shards = self.taken_shards.saturating_add(shards)
            }
            (GpuShare::Shards(shards), false) => {
                self.taken_shards = self.taken_shards.saturating_sub(shards)
            }
        }
    }
}

/// Returns whether a GPU is of the model that a user named (`a100` for `nvidia_a100-sxm4-80gb`). A
/// GPU of unknown model (`SLOTD_GPU_COUNT`) matches any name, since nothing rules it out.
pub(crate) fn is_model(gpu: &Gpu, wanted: &str) -> bool {
    match &gpu.model {
        Some(model) => model.to_ascii_lowercase().contains(&wanted.to_ascii_lowercase()),
        None => true,
    }
}

impl GpuPool {
    /// Returns all GPUs of the host, unused.
    pub fn of(host: &Host) -> Self {
        let pooled = |gpu: &Gpu| PooledGpu {
            mem_mb: gpu.mem_mb,
            shards: host.gpu_shards,
            ..PooledGpu::default()
        };
        GpuPool(host.gpus.iter().map(|gpu| (gpu.id, pooled(gpu))).collect())
    }

    /// Marks exactly these GPUs as drained.
    pub fn drain(&mut self, gpu_ids: &BTreeSet<u32>) {
        for (id, gpu) in &mut self.0 {
            gpu.is_drained = gpu_ids.contains(id);
        }
    }

    /// Returns the GPUs of a job, for its steps.
    pub fn of_job(gpu_ids: &[u32], share: GpuShare, host: &Host) -> Self {
        let all = GpuPool::of(host);
        let of = |id: &u32| {
            // A GPU that no longer exists still belongs to the job.
            let gpu = all.0.get(id).cloned().unwrap_or_default();
            let gpu = match share {
                GpuShare::Whole => gpu,
                GpuShare::MemMb(mem_mb) => PooledGpu { mem_mb, shards: 0, ..gpu },
                GpuShare::Shards(shards) => PooledGpu { mem_mb: 0, shards, ..gpu },
            };
            (*id, gpu)
        };
        GpuPool(gpu_ids.iter().map(of).collect())
    }

    /// Returns the same GPUs without any job on them.
    pub fn emptied(&self) -> Self {
        let empty =
            |gpu: &PooledGpu| PooledGpu { owners: 0, taken_mb: 0, taken_shards: 0, ..gpu.clone() };
        GpuPool(self.0.iter().map(|(id, gpu)| (*id, empty(gpu))).collect())
    }

    /// Returns the same GPUs without any usage, by jobs or outside them. Drained ones stay drained.
    pub fn unused(&self) -> Self {
        let mut unused = self.emptied();
        unused.set_elsewhere(&BTreeMap::new());
        unused
    }

    /// Returns the usage of each GPU outside jobs, in MB, if there is any.
    pub fn elsewhere(&self) -> impl Iterator<Item = (u32, u64)> {
        let is_used = |gpu: &PooledGpu| gpu.elsewhere != Elsewhere::default();
        self.0
            .iter()
            .filter(move |(_, gpu)| is_used(gpu))
            .map(|(id, gpu)| (*id, gpu.elsewhere.mem_mb))
    }

    pub(crate) fn set_elsewhere(&mut self, elsewhere: &BTreeMap<u32, Elsewhere>) {
        for (id, gpu) in &mut self.0 {
            gpu.elsewhere = elsewhere.get(id).copied().unwrap_or_default();
        }
    }

    /// Picks GPUs for `want`, ascending, among those that are free here and in `others`; `None` if
    /// there are too few. GPUs that are not free in `beside` come first.
    pub(crate) fn pick(
        &self,
        want: &GpuWant,
        others: &[&GpuPool],
        beside: Option<&GpuPool>,
        host: &Host,
    ) -> Option<Vec<u32>> {
        let count = want.count as usize;
        if count == 0 {
            return Some(Vec::new());
        }
        let mut free = self.free(want, others, host);
        if free.len() < count {
            return None;
        }
        let is_later = |id: u32| beside.is_some_and(|beside| beside.have(&[id], want.share));
        let freedom = |id: &u32| self.0.get(id).map_or(0, |gpu| gpu.freedom(want.share));
        free.sort_unstable_by_key(|id| (is_later(*id), Reverse(freedom(id)), *id));
        free.truncate(count);
        free.sort_unstable();
        Some(free)
    }

    /// Returns all suitable GPUs, each considered alone, ascending.
    pub fn free(&self, want: &GpuWant, others: &[&GpuPool], host: &Host) -> Vec<u32> {
        let is_wanted = |id: u32| match want.model {
            None => true,
            Some(model) => host.gpus.iter().any(|gpu| gpu.id == id && is_model(gpu, model)),
        };
        let is_own = |id: u32| want.among.is_none_or(|among| among.contains(&id));
        let free = self
            .0
            .iter()
            .filter(|(id, gpu)| gpu.has(want.share) && is_wanted(**id) && is_own(**id));
        free.map(|(id, _)| *id)
            .filter(|id| others.iter().all(|other| other.have(&[*id], want.share)))
            .collect()
    }

    /// Returns how much is free of the shares that `want` needs, on the GPUs that have the most of
    /// them free. Zero if it needs whole GPUs.
    pub(crate) fn free_of_share(&self, want: &GpuWant, host: &Host) -> Tres {
        let least = match want.share {
            GpuShare::Whole => return Tres::ZERO,
            GpuShare::MemMb(_) => GpuShare::MemMb(0),
            GpuShare::Shards(_) => GpuShare::Shards(0),
        };
        let usable = self.free(&GpuWant { share: least, ..*want }, &[], host);
        let mut free: Vec<u64> = usable
            .iter()
            .filter_map(|id| self.0.get(id))
            .map(|gpu| gpu.freedom(want.share))
            .collect();
        free.sort_unstable_by_key(|amount| Reverse(*amount));
        let free = free.into_iter().take(want.count as usize);
        match want.share {
            GpuShare::Whole => Tres::ZERO,
            GpuShare::MemMb(mb) => {
                Tres { gpu_mem_mb: free.map(|amount| amount.min(mb)).sum(), ..Tres::ZERO }
            }
            GpuShare::Shards(shards) => {
                let shards = free.map(|amount| amount.min(shards.into()) as u32).sum();
                Tres { shards, ..Tres::ZERO }
            }
        }
    }

    /// Returns whether this share is free on each of these GPUs.
    pub fn have(&self, gpu_ids: &[u32], share: GpuShare) -> bool {
        gpu_ids.iter().all(|id| self.0.get(id).is_some_and(|gpu| gpu.has(share)))
    }

    /// Records that this share of each GPU is allocated, whether or not it was free.
    pub fn take(&mut self, gpu_ids: &[u32], share: GpuShare) {
        self.change(gpu_ids, share, true);
    }

    pub fn give(&mut self, gpu_ids: &[u32], share: GpuShare) {
        self.change(gpu_ids, share, false);
    }

    fn change(&mut self, gpu_ids: &[u32], share: GpuShare, is_taken: bool) {
        for id in gpu_ids {
            if let Some(gpu) = self.0.get_mut(id) {
                gpu.change(share, is_taken);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::host;

    /// Returns a host with four GPUs of these sizes, each with four shards.
    fn shared_host(sizes: [u64; 4]) -> Host {
        let mut host = host(1, 1, 4);
        host.gpu_shards = 4;
        host.gpus.iter_mut().zip(sizes).for_each(|(gpu, mem_mb)| gpu.mem_mb = mem_mb);
        host
    }

    fn want(count: u32, share: GpuShare) -> GpuWant<'static> {
        GpuWant { count, share, ..GpuWant::default() }
    }

    #[test]
    fn gpus_with_the_most_free_memory_go_first() {
        let host = shared_host([100, 400, 400, 200]);
        let mut pool = GpuPool::of(&host);
        assert_eq!(pool.pick(&want(1, GpuShare::MemMb(50)), &[], None, &host), Some(vec![1]));
        pool.take(&[1], GpuShare::MemMb(250));
        assert_eq!(
            pool.pick(&want(3, GpuShare::MemMb(150)), &[], None, &host),
            Some(vec![1, 2, 3])
        );
        assert_eq!(
            pool.pick(&want(3, GpuShare::MemMb(151)), &[], None, &host),
            None,
            "one of them has 150 left"
        );
        assert_eq!(pool.pick(&want(1, GpuShare::Whole), &[], None, &host), Some(vec![2]));
    }

    #[test]
    fn a_gpu_is_not_shared_in_two_ways() {
        let host = shared_host([100; 4]);
        let mut pool = GpuPool::of(&host);
        pool.take(&[0], GpuShare::Whole);
        pool.take(&[1], GpuShare::MemMb(10));
        pool.take(&[2], GpuShare::Shards(1));
        for (share, ids) in [
            (GpuShare::Whole, vec![3]),
            (GpuShare::MemMb(90), vec![1, 3]),
            (GpuShare::Shards(3), vec![2, 3]),
            (GpuShare::Shards(4), vec![3]),
        ] {
            let has = |id: &u32| pool.have(&[*id], share);
            assert_eq!((0..4).filter(has).collect::<Vec<_>>(), ids, "{share:?}");
        }
        pool.give(&[0], GpuShare::Whole);
        pool.give(&[1], GpuShare::MemMb(10));
        pool.give(&[2], GpuShare::Shards(1));
        assert_eq!(pool, GpuPool::of(&host));
    }

    #[test]
    fn the_steps_of_a_job_share_its_part_of_a_gpu() {
        let host = shared_host([100; 4]);
        let mut pool = GpuPool::of_job(&[2], GpuShare::MemMb(40), &host);
        assert_eq!(pool.pick(&want(1, GpuShare::MemMb(30)), &[], None, &host), Some(vec![2]));
        pool.take(&[2], GpuShare::MemMb(30));
        assert_eq!(pool.pick(&want(1, GpuShare::MemMb(30)), &[], None, &host), None);
        assert_eq!(
            pool.pick(&want(1, GpuShare::Shards(1)), &[], None, &host),
            None,
            "the job has no shards"
        );
        assert_eq!(pool.emptied().pick(&want(1, GpuShare::Whole), &[], None, &host), Some(vec![2]));
    }
}
