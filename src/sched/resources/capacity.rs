//! Free and used resources, as a whole and for each partition: the jobs on each CPU, memory, and
//! GPUs by number.
//!
//! Each job limits how many jobs may run on its CPUs: one, or more in partitions whose jobs share
//! CPUs (`OverSubscribe`). A job uses a CPU only once. See `gpu_pool` for shared GPUs.

mod lent;

use super::cpu_pick;
use super::gpu_pool::{GpuPool, GpuWant};
use super::limits::{LimitSet, Limits, Reached};
use crate::types::Config;
use slotd_model::gpu::GpuShare;
use slotd_model::license::LicenseUse;
use slotd_model::node::NodeParts;
use slotd_model::partition::{Host, OverSubscribe};
use slotd_model::request::{MemRequest, Sharing};
use slotd_model::tres::Allocation;
use slotd_model::{Job, JobRequest, Partition, Timestamp, Tres};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The resources that a job needs in order to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want<'a> {
    pub tres: Tres,
    pub gpu: GpuWant<'a>,
    /// The CPUs that must be in the allocation.
    pub named_cpus: &'a [u32],
    pub place: CpuSharing,
}

/// The partition of a job, and the rules by which it shares CPUs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuSharing {
    /// The partition, by its index in the configuration; `None` if it no longer exists.
    pub partition: Option<usize>,
    /// The most jobs on each of its CPUs, itself included.
    pub jobs_per_cpu: u32,
    /// The job has everything that its partition may use to itself.
    pub exclusive: bool,
    /// The memory for each CPU that an exclusive job gets, in MB. 0 if its memory does not depend on
    /// its CPUs.
    pub mem_per_cpu_mb: u64,
    /// The limits by account or name, the QOS and the licenses that the job counts towards.
    pub limits: LimitSet,
}

impl CpuSharing {
    pub fn of(request: &JobRequest, partition: &str, config: &Config) -> Self {
        let partitions = &config.partitions;
        let at = partitions.iter().position(|known| known.name == partition);
        let rule = at.map(|at| partitions[at].over_subscribe).unwrap_or_default();
        let asked = request.sharing;
        // As in slurm.conf: a job that is forced to share cannot be exclusive.
        let (jobs_per_cpu, exclusive) = match rule {
            OverSubscribe::Force(jobs) => (jobs, false),
            OverSubscribe::Yes(jobs) if asked == Sharing::Oversubscribe => (jobs, false),
            OverSubscribe::No | OverSubscribe::Yes(_) => (1, asked == Sharing::Exclusive),
            OverSubscribe::Exclusive => (1, true),
        };
        let default_mb = at.and_then(|at| partitions[at].def_mem_per_cpu_mb).unwrap_or(0);
        let mem_per_cpu_mb = match request.mem {
            _ if !exclusive => 0,
            MemRequest::PerCpu(mb) => mb,
            MemRequest::Default | MemRequest::None => default_mb,
            MemRequest::PerNode(_) | MemRequest::PerGpu(_) => 0,
        };
        CpuSharing {
            partition: at,
            jobs_per_cpu: jobs_per_cpu.max(1),
            exclusive,
            mem_per_cpu_mb,
            limits: LimitSet::of(request, config),
        }
    }

    /// Returns the sharing of a job that has its licenses.
    #[must_use]
    pub(crate) fn with_its_licenses(&self) -> Self {
        CpuSharing { limits: self.limits.without_licenses(), ..*self }
    }
}

impl<'a> Want<'a> {
    /// Returns the needs of a job with this request and this size.
    pub fn sized(request: &'a JobRequest, tres: Tres, place: CpuSharing) -> Self {
        let share = request.gpu.share();
        let model = request.gpu.model.as_deref();
        let gpu = GpuWant { count: share.gpus_in(&tres), share, model, among: None };
        Want { tres, gpu, named_cpus: &request.named_cpus, place }
    }

    /// Returns the needs of a job that already has its named CPUs.
    #[must_use]
    pub(crate) fn on_any_cpus(self) -> Self {
        Want { named_cpus: &[], ..self }
    }
}

/// The part of the host that a job holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub alloc: Allocation,
    pub place: CpuSharing,
}

impl Part {
    /// Returns the part that a running job holds, or `None` if it holds nothing.
    pub fn of(job: &Job, config: &Config) -> Option<Part> {
        let place = CpuSharing::of(&job.request, &job.partition, config);
        Some(Part { alloc: job.run.alloc.as_deref().cloned()?, place })
    }
}

/// The partitions, and the lines in which their jobs wait.
#[derive(Debug, PartialEq, Eq, Default)]
struct Layout {
    partitions: Vec<Partition>,
    /// For each partition, the first partition whose jobs wait for the same resources.
    lines: Vec<usize>,
}

/// The resources that the jobs of a partition hold. CPUs that they share count once.
#[derive(Debug, Clone, PartialEq, Default)]
struct Holding {
    tres: Tres,
    /// The number of the partition's jobs on each CPU.
    cpus: BTreeMap<u32, u32>,
}

impl Holding {
    fn take(&mut self, alloc: &Allocation) {
        self.tres = self.tres.plus(&alloc.tres);
    }

    fn give(&mut self, alloc: &Allocation) {
        self.tres = self.tres.minus(&alloc.tres);
    }

    fn take_cpus(&mut self, cpu_ids: &[u32]) {
        cpu_ids.iter().for_each(|cpu| *self.cpus.entry(*cpu).or_default() += 1);
    }

    fn give_cpus(&mut self, cpu_ids: &[u32]) {
        for cpu in cpu_ids {
            match self.cpus.get_mut(cpu) {
                Some(jobs) if *jobs > 1 => *jobs -= 1,
                _ => drop(self.cpus.remove(cpu)),
            }
        }
    }

    fn used(&self) -> Tres {
        Tres { cpus: self.cpus.len() as u32, ..self.tres }
    }
}

/// The used and free resources at one moment, real or expected.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Capacity {
    layout: Arc<Layout>,
    /// CPUs that are drained.
    drained: BTreeSet<u32>,
    /// For each CPU of the host, the most jobs per CPU that each job on it allows, ascending.
    cpus: BTreeMap<u32, Vec<u32>>,
    /// The number of uses of CPUs that the host no longer has. To compensate, this many uses of
    /// other CPUs stay free.
    beyond: u32,
    /// CPUs that processes outside jobs use; no job gets them.
    elsewhere: BTreeSet<u32>,
    used: Tres,
    pub gpus: GpuPool,
    by_partition: Vec<Holding>,
    limits: Limits,
    /// The number of unused CPUs of each partition.
    empty: Vec<u32>,
}

/// Returns whether a CPU with these jobs has a place for one more.
fn has_slot(there: &[u32], jobs_per_cpu: u32) -> bool {
    let most = jobs_per_cpu.min(there.first().copied().unwrap_or(u32::MAX));
    there.len() < most as usize
}

fn is_among(own: Option<&BTreeSet<u32>>, id: u32) -> bool {
    own.is_none_or(|own| own.contains(&id))
}

impl Capacity {
    /// Returns the capacity of the empty host.
    pub fn whole(config: &Config) -> Self {
        let Config { host, partitions, .. } = config;
        let lines =
            partitions.iter().map(|one| partitions.iter().position(|p| p == one || p.is_like(one)));
        let lines = lines.map(Option::unwrap_or_default).collect();
        let mut capacity = Capacity {
            layout: Arc::new(Layout { partitions: partitions.to_vec(), lines }),
            cpus: host.cpu_ids.iter().map(|cpu| (*cpu, Vec::new())).collect(),
            gpus: GpuPool::of(host),
            by_partition: vec![Holding::default(); partitions.len()],
            limits: Limits::new(config),
            ..Capacity::default()
        };
        capacity.count_empty();
        capacity
    }

    /// Removes the drained parts.
    #[must_use]
    pub fn without(mut self, drained: &NodeParts) -> Self {
        self.drained.clone_from(&drained.cpus);
        self.gpus.drain(&drained.gpus);
        self.count_empty();
        self
    }

    /// Returns the number of drained CPUs that no job holds.
    pub fn closed_cpus(&self) -> u32 {
        self.drained.iter().filter(|cpu| self.cpus.get(cpu).is_some_and(Vec::is_empty)).count()
            as u32
    }

    /// Returns the licenses and their use.
    pub(crate) fn licenses(&self) -> impl Iterator<Item = LicenseUse> {
        self.limits.licenses()
    }

    /// Returns the QOS and their usage.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn qos(
        &self,
    ) -> impl Iterator<Item = (&slotd_model::qos::Qos, super::limits::Load)> {
        self.limits.qos()
    }

    /// Returns the resources in use, which may exceed those of a host that has shrunk. Shared CPUs
    /// count once for each job.
    pub fn used(&self) -> Tres {
        self.used
    }

    /// Returns the line of a partition. Jobs in the same line wait for the same resources.
    pub fn line(&self, partition: Option<usize>) -> usize {
        partition.and_then(|at| self.layout.lines.get(at)).copied().unwrap_or_default()
    }

    /// Returns the number of lines.
    pub fn lines(&self) -> usize {
        self.layout.lines.iter().enumerate().filter(|(at, line)| at == *line).count()
    }

    fn partition(&self, place: &CpuSharing) -> Option<&Partition> {
        self.layout.partitions.get(place.partition?)
    }

    /// Returns whether no job gets this CPU, even if one holds it now.
    fn is_closed(&self, cpu: u32) -> bool {
        self.elsewhere.contains(&cpu) || self.drained.contains(&cpu)
    }

    fn has_place(&self, cpu: u32, jobs_per_cpu: u32) -> bool {
        let is_open = !self.is_closed(cpu);
        self.cpus.get(&cpu).filter(|_| is_open).is_some_and(|there| has_slot(there, jobs_per_cpu))
    }

    /// Returns the CPUs that a job with this sharing may get, ascending.
    fn open_cpus(&self, place: &CpuSharing) -> impl Iterator<Item = u32> {
        let own = self.partition(place).and_then(|partition| partition.cpus.as_ref());
        self.cpus
            .keys()
            .copied()
            .filter(move |cpu| self.has_place(*cpu, place.jobs_per_cpu) && is_among(own, *cpu))
    }

    /// Like [`Self::open_cpus`], but within the bounds of the partition: the CPUs that its jobs
    /// already share, and the emptiest others, as many as it may add. Named CPUs come first.
    fn allowed_cpus(&self, place: &CpuSharing, named: &[u32]) -> BTreeSet<u32> {
        let more = self.allowed(place).cpus as usize;
        let own = place.partition.and_then(|at| self.by_partition.get(at));
        let (own, mut others): (Vec<u32>, Vec<u32>) = self
            .open_cpus(place)
            .partition(|cpu| own.is_some_and(|own| own.cpus.contains_key(cpu)));
        // A job that shares no CPUs is not limited to the emptiest ones, so that it gets the best
        // placement.
        if place.jobs_per_cpu > 1 && others.len() > more {
            others.sort_by_key(|cpu| {
                (!named.contains(cpu), self.cpus.get(cpu).map_or(0, Vec::len), *cpu)
            });
            others.truncate(more);
        }
        own.into_iter().chain(others).collect()
    }

    fn free_cpus(&self, place: &CpuSharing) -> u32 {
        let empty = place.partition.and_then(|at| self.empty.get(at));
        let jobs_per_cpu = match (place.jobs_per_cpu, empty) {
            (1, Some(empty)) => (*empty).min(self.allowed(place).cpus),
            (_, Some(_)) => self.allowed_cpus(place, &[]).len() as u32,
            (_, None) => 0,
        };
        jobs_per_cpu.saturating_sub(self.beyond)
    }

    /// Returns whether this many CPUs are free, including all named ones.
    fn has_cpus(&self, want: &Want, count: u32) -> bool {
        count <= self.free_cpus(&want.place) && self.taken_of_named(want).next().is_none()
    }

    /// Returns the named CPUs that are not free.
    pub(crate) fn taken_of_named<'a>(
        &self,
        want: &Want<'a>,
    ) -> impl Iterator<Item = u32> + use<'a> {
        let named = want.named_cpus;
        let free =
            if named.is_empty() { BTreeSet::new() } else { self.allowed_cpus(&want.place, named) };
        named.iter().copied().filter(move |cpu| !free.contains(cpu))
    }

    /// Returns the resources that are free to a job. Each is considered on its own. If the job
    /// shares GPUs, the amount of GPU memory or shards is the free part of what it needs.
    pub(crate) fn free_for(&self, want: &Want, host: &Host) -> Tres {
        let (allowed, among) = (
            self.allowed(&want.place),
            self.partition(&want.place).and_then(|partition| partition.gpus.as_ref()),
        );
        let whole = GpuWant { among, ..GpuWant::default() };
        let shared = self.gpus.free_of_share(&GpuWant { among, ..want.gpu }, host);
        Tres {
            cpus: self.free_cpus(&want.place),
            mem_mb: host.mem_mb.saturating_sub(self.used.mem_mb).min(allowed.mem_mb),
            gpus: allowed.gpus.min(self.gpus.free(&whole, &[], host).len() as u32),
            ..shared
        }
    }

    /// Returns the largest number of CPUs free to a job of any partition. If it is 0, no job can
    /// start, since each needs a CPU.
    pub(crate) fn most_cpus(&self) -> u32 {
        let partitions = self.layout.partitions.iter().enumerate();
        let most = partitions.map(|(at, partition)| {
            let jobs_per_cpu = match partition.over_subscribe {
                OverSubscribe::No | OverSubscribe::Exclusive => 1,
                OverSubscribe::Yes(jobs) | OverSubscribe::Force(jobs) => jobs,
            };
            self.free_cpus(&CpuSharing {
                partition: Some(at),
                jobs_per_cpu,
                exclusive: false,
                mem_per_cpu_mb: 0,
                limits: LimitSet::default(),
            })
        });
        most.max().unwrap_or(0)
    }

    /// Returns how much more the partition may allocate, regardless of free resources.
    fn allowed(&self, place: &CpuSharing) -> Tres {
        let used = place
            .partition
            .and_then(|at| self.by_partition.get(at))
            .map(Holding::used)
            .unwrap_or_default();
        self.partition(place).map_or(Tres::ZERO, |partition| partition.bounds().minus(&used))
    }

    /// Returns the CPUs that a job takes. An exclusive job takes every CPU that its partition may
    /// use, as in Slurm.
    fn taken_cpus(&self, place: &CpuSharing, cpus: u32, host: &Host) -> u32 {
        match self.partition(place).filter(|_| place.exclusive) {
            Some(partition) => {
                let open = partition.cpus_of(host).filter(|cpu| !self.drained.contains(cpu)).count()
                    as u32;
                partition.capacity(host).cpus.min(open)
            }
            None => cpus,
        }
    }

    /// Returns the memory that a job takes with this many CPUs. An exclusive job takes that of every
    /// CPU, as in Slurm, but no more than its partition has.
    fn taken_mem_mb(&self, want: &Want, cpus: u32, host: &Host) -> u64 {
        let of_cpus = want.place.mem_per_cpu_mb.saturating_mul(u64::from(cpus));
        let most = self.partition(&want.place).map_or(0, |own| own.capacity(host).mem_mb);
        want.tres.mem_mb.max(of_cpus.min(most))
    }

    /// Returns the limit, QOS or license that keeps a job with these resources from starting,
    /// regardless of other free resources.
    pub fn limit_reached(
        &self,
        place: &CpuSharing,
        tres: &Tres,
        host: &Host,
    ) -> Option<Reached<'_>> {
        if place.limits.is_empty() {
            return None;
        }
        let tres = Tres { cpus: self.taken_cpus(place, tres.cpus, host), ..*tres };
        self.limits.reached(&place.limits, &tres)
    }

    /// Returns when the reservation of a job ends it.
    pub(crate) fn job_end(&self, place: &CpuSharing) -> Option<Timestamp> {
        self.limits.job_end(&place.limits)
    }

    /// Returns whether the QOS of a job lets it reserve resources that it lacks.
    pub(crate) fn reserves(&self, place: &CpuSharing) -> bool {
        self.limits.reserves(&place.limits)
    }

    pub fn fits(&self, want: &Want, host: &Host) -> bool {
        self.has_amounts(want, host) && self.pick_gpus(&[], None, want, host).is_some()
    }

    /// Returns the requested amounts of the resources that are lacking. An exclusive job needs all
    /// CPUs.
    pub fn lacks(&self, want: &Want, host: &Host) -> Tres {
        let lacks = self.lacks_amounts(want, host);
        if self.pick_gpus(&[], None, want, host).is_some() {
            return lacks;
        }
        let Tres { gpus, gpu_mem_mb, shards, .. } = want.gpu.share.of(want.gpu.count);
        Tres { gpus, gpu_mem_mb, shards, ..lacks }
    }

    /// Like [`Self::lacks`], but by amounts alone: it ignores the choice of GPUs.
    fn lacks_amounts(&self, want: &Want, host: &Host) -> Tres {
        let cpus = self.taken_cpus(&want.place, want.tres.cpus, host);
        let allowed = self.allowed(&want.place);
        let has_cpus =
            self.has_cpus(want, cpus) && (!want.place.exclusive || self.is_empty_for(&want.place));
        let mem_mb = self.taken_mem_mb(want, cpus, host);
        let has_mem = mem_mb <= host.mem_mb.saturating_sub(self.used.mem_mb).min(allowed.mem_mb);
        Tres {
            cpus: if has_cpus { 0 } else { cpus },
            mem_mb: if has_mem { 0 } else { mem_mb },
            gpus: if want.tres.gpus <= allowed.gpus { 0 } else { want.tres.gpus },
            ..Tres::ZERO
        }
    }

    fn has_amounts(&self, want: &Want, host: &Host) -> bool {
        want.place.partition.is_some()
            && want.tres.cpus <= self.taken_cpus(&want.place, want.tres.cpus, host)
            && self.lacks_amounts(want, host) == Tres::ZERO
            && self.limit_reached(&want.place, &want.tres, host).is_none()
    }

    /// Returns whether no job is on any CPU of the partition.
    fn is_empty_for(&self, place: &CpuSharing) -> bool {
        let own = self.partition(place).and_then(|partition| partition.cpus.as_ref());
        self.cpus.iter().all(|(cpu, there)| there.is_empty() || !is_among(own, *cpu))
    }

    /// Returns the part that `want` would get, or `None` if it does not fit.
    pub(crate) fn pick(&self, want: &Want, host: &Host) -> Option<Part> {
        self.pick_of(&[], None, want, host)
    }

    /// Returns the part that `want` would get from the resources that are free here and in all
    /// `others`.
    pub(crate) fn pick_in_all(
        &self,
        others: &[&Capacity],
        want: &Want,
        host: &Host,
    ) -> Option<Part> {
        self.pick_of(others, None, want, host)
    }

    /// Returns the part that `want` would get, preferring resources that are not free in `other`.
    pub(crate) fn pick_beside(&self, other: &Capacity, want: &Want, host: &Host) -> Option<Part> {
        self.pick_of(&[], Some(other), want, host)
    }

    fn pick_of(
        &self,
        others: &[&Capacity],
        beside: Option<&Capacity>,
        want: &Want,
        host: &Host,
    ) -> Option<Part> {
        if !self.has_amounts(want, host)
            || !others.iter().all(|other| other.has_amounts(want, host))
        {
            return None;
        }
        let gpu_ids = self.pick_gpus(others, beside, want, host)?;
        let (place, count) =
            (want.place.clone(), self.taken_cpus(&want.place, want.tres.cpus, host));
        let mut free = self.allowed_cpus(&place, want.named_cpus);
        others.iter().for_each(|other| free = &free & &other.allowed_cpus(&place, want.named_cpus));
        let cpu_ids = self.pick_cpus(free, beside, want.named_cpus, count as usize, host);
        let gpus = want.gpu.share.of(gpu_ids.len() as u32);
        let tres = Tres { cpus: count, mem_mb: self.taken_mem_mb(want, count, host), ..gpus };
        let gpu_share = want.gpu.share;
        let alloc = Allocation { tres, cpu_ids, gpu_ids, gpu_share, ..Allocation::default() };
        (alloc.cpu_ids.len() == count as usize).then_some(Part { alloc, place })
    }

    /// Picks `count` of these CPUs: the named ones, then those in use in `beside`, then those with
    /// the fewest jobs.
    fn pick_cpus(
        &self,
        free: BTreeSet<u32>,
        beside: Option<&Capacity>,
        named: &[u32],
        count: usize,
        host: &Host,
    ) -> Vec<u32> {
        let jobs_on = |capacity: &Capacity, cpu: &u32| capacity.cpus.get(cpu).map_or(0, Vec::len);
        let order = |cpu: &u32| {
            (beside.is_some_and(|beside| jobs_on(beside, cpu) == 0), jobs_on(self, cpu))
        };
        let (named, mut left): (BTreeSet<u32>, BTreeSet<u32>) =
            free.into_iter().partition(|cpu| named.contains(cpu));
        let mut picked: Vec<u32> = named.into_iter().collect();
        while picked.len() < count
            && let Some(first) = left.iter().map(order).min()
        {
            let (best, others) = left.into_iter().partition(|cpu| order(cpu) == first);
            picked.extend(cpu_pick::pick(
                count - picked.len(),
                &best,
                &host.cpu_ids,
                &host.topology,
            ));
            left = others;
        }
        picked.sort_unstable();
        picked
    }

    /// Picks the GPUs. An exclusive job gets all free ones, as in Slurm, that its QOS lets it have.
    fn pick_gpus(
        &self,
        others: &[&Capacity],
        beside: Option<&Capacity>,
        want: &Want,
        host: &Host,
    ) -> Option<Vec<u32>> {
        let partition = self.partition(&want.place)?;
        let gpu = GpuWant { among: partition.gpus.as_ref(), ..want.gpu };
        let others: Vec<&GpuPool> = others.iter().map(|other| &other.gpus).collect();
        let asked = self.gpus.pick(&gpu, &others, beside.map(|beside| &beside.gpus), host)?;
        if !want.place.exclusive || gpu.share != GpuShare::Whole {
            return Some(asked);
        }
        let left = self.limits.gpus_left(&want.place.limits);
        let most = self.allowed(&want.place).gpus.min(left) as usize;
        let rest = self.gpus.free(&GpuWant { model: None, ..gpu }, &others, host);
        let rest = rest
            .into_iter()
            .filter(|id| !asked.contains(id))
            .take(most.saturating_sub(asked.len()));
        let mut all: Vec<u32> = asked.iter().copied().chain(rest).collect();
        all.sort_unstable();
        Some(all)
    }

    /// Records the part that a job has, whether or not it was free.
    pub fn take(&mut self, part @ Part { alloc, place }: &Part) {
        self.gpus.take(&alloc.gpu_ids, alloc.gpu_share);
        self.used = self.used.plus(&alloc.tres);
        if let Some(own) = place.partition.and_then(|at| self.by_partition.get_mut(at)) {
            own.take(alloc);
        }
        self.limits.take(&place.limits, &alloc.tres);
        self.take_cpus(part);
    }

    /// Releases the part that a job held.
    pub fn give(&mut self, part @ Part { alloc, place }: &Part) {
        self.gpus.give(&alloc.gpu_ids, alloc.gpu_share);
        self.used = self.used.minus(&alloc.tres);
        if let Some(own) = place.partition.and_then(|at| self.by_partition.get_mut(at)) {
            own.give(alloc);
        }
        self.limits.give(&place.limits, &alloc.tres);
        self.give_cpus(part);
    }

    /// Marks `count` CPUs as used by processes outside jobs: those with the fewest jobs, and among
    /// them those listed first in `busy`.
    pub(crate) fn set_cpus_elsewhere(&mut self, count: u32, busy: &[u32]) {
        let turn = |cpu: u32| busy.iter().position(|known| *known == cpu).unwrap_or(busy.len());
        let open = self.cpus.iter().filter(|(cpu, _)| !self.drained.contains(cpu));
        let mut order: Vec<(usize, usize, u32)> =
            open.map(|(cpu, there)| (there.len(), turn(*cpu), *cpu)).collect();
        order.sort_unstable();
        self.elsewhere = order.into_iter().take(count as usize).map(|(_, _, cpu)| cpu).collect();
        self.count_empty();
    }

    /// Marks the same CPUs as `other` does as used by processes outside jobs.
    pub(crate) fn set_as_elsewhere(&mut self, other: &Capacity) {
        self.elsewhere.clone_from(&other.elsewhere);
        self.count_empty();
    }

    /// Returns whether any of the wants lacks CPUs only because of processes outside jobs.
    pub(crate) fn lacks_cpus_elsewhere<'a>(
        &self,
        mut wants: impl Iterator<Item = Want<'a>>,
    ) -> bool {
        if self.elsewhere.is_empty() {
            return false;
        }
        let mut without = self.clone();
        without.set_as_elsewhere(&Capacity::default());
        let has_cpus = |capacity: &Capacity, want: &Want| capacity.has_cpus(want, want.tres.cpus);
        wants.any(|want| !has_cpus(self, &want) && has_cpus(&without, &want))
    }

    fn is_empty(&self, cpu: u32) -> bool {
        self.cpus.get(&cpu).is_some_and(Vec::is_empty) && !self.is_closed(cpu)
    }

    /// Passes the count of each partition to `change`, with the number of these CPUs that are empty
    /// and in the partition.
    fn count_empty_of(&mut self, cpus: &[u32], change: impl Fn(&mut u32, u32)) {
        let empty: BTreeSet<u32> = cpus.iter().copied().filter(|cpu| self.is_empty(*cpu)).collect();
        for (partition, count) in self.layout.partitions.iter().zip(&mut self.empty) {
            let is_there = |cpu: &&u32| partition.cpus.as_ref().is_none_or(|own| own.contains(cpu));
            change(count, empty.iter().filter(is_there).count() as u32);
        }
    }

    /// Returns whether the number of unused CPUs of each partition is right.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn counts_empty_cpus(&self) -> bool {
        let mut counted = self.clone();
        counted.count_empty();
        counted.empty == self.empty
    }

    fn count_empty(&mut self) {
        let is_empty = |cpu: &&u32| self.is_empty(**cpu);
        let everywhere = self.cpus.keys().filter(is_empty).count() as u32;
        let count = |own: &BTreeSet<u32>| own.iter().filter(is_empty).count() as u32;
        let partitions = self.layout.partitions.iter();
        self.empty =
            partitions.map(|partition| partition.cpus.as_ref().map_or(everywhere, count)).collect();
    }
}
