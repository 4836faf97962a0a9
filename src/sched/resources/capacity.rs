//! How much is free, as a whole and for each partition: who is on which CPU, memory, and GPUs by
//! number.
//!
//! A CPU takes as many jobs as those on it allow: one, or more where partitions let jobs share
//! (`OverSubscribe`). A job uses a CPU once. How GPUs are shared is told in `gpu_pool`.

use super::cpu_pick;
use super::gpu_pool::{GpuPool, GpuWant};
use super::limits::{LimitSet, Limits, Reached};
use crate::model::gpu::GpuShare;
use crate::model::node::NodeParts;
use crate::model::partition::{Host, OverSubscribe};
use crate::model::tres::Allocation;
use crate::model::{Job, JobRequest, Partition, Tres, request::Sharing};
use crate::sched::types::Config;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a job needs in order to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want<'a> {
    pub tres: Tres,
    pub gpu: GpuWant<'a>,
    /// The CPUs that must be among those that it gets.
    pub named_cpus: &'a [u32],
    pub place: CpuSharing,
}

/// Where a job sits, and with whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuSharing {
    /// The partition, by its place in the configuration. `None`: one that is not there any more.
    pub partition: Option<usize>,
    /// Jobs that may be on each of its CPUs, itself included.
    pub jobs_per_cpu: u32,
    /// It has all that its partition may use to itself.
    pub exclusive: bool,
    /// The limits by account or name that it counts towards.
    pub limits: LimitSet,
}

impl CpuSharing {
    pub fn of(request: &JobRequest, partition: &str, config: &Config) -> Self {
        let partitions = &config.partitions;
        let at = partitions.iter().position(|known| known.name == partition);
        let rule = at.map(|at| partitions[at].over_subscribe).unwrap_or_default();
        let asked = request.sharing;
        // As in slurm.conf: who is forced to share cannot be alone.
        let (jobs_per_cpu, exclusive) = match rule {
            OverSubscribe::Force(jobs) => (jobs, false),
            OverSubscribe::Yes(jobs) if asked == Sharing::Oversubscribe => (jobs, false),
            OverSubscribe::No | OverSubscribe::Yes(_) => (1, asked == Sharing::Exclusive),
            OverSubscribe::Exclusive => (1, true),
        };
        CpuSharing {
            partition: at,
            jobs_per_cpu: jobs_per_cpu.max(1),
            exclusive,
            limits: LimitSet::of(request, &config.limits),
        }
    }
}

impl<'a> Want<'a> {
    /// What a job with this request needs that comes to this.
    pub fn sized(request: &'a JobRequest, tres: Tres, place: CpuSharing) -> Self {
        let share = request.gpu.share();
        let model = request.gpu.model.as_deref();
        let gpu = GpuWant { count: share.gpus_in(&tres), share, model, among: None };
        Want { tres, gpu, named_cpus: &request.named_cpus, place }
    }

    /// The same for a job that has the CPUs that it named already.
    #[must_use]
    pub fn on_any_cpus(self) -> Self {
        Want { named_cpus: &[], ..self }
    }
}

/// What a job has of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub alloc: Allocation,
    pub place: CpuSharing,
}

impl Part {
    /// What a job holds that runs. `None`: nothing.
    pub fn of(job: &Job, config: &Config) -> Option<Part> {
        let place = CpuSharing::of(&job.request, &job.partition, config);
        Some(Part { alloc: job.run.alloc.as_deref().cloned()?, place })
    }
}

/// The partitions, as jobs wait in them.
#[derive(Debug, PartialEq, Eq, Default)]
struct Layout {
    partitions: Vec<Partition>,
    /// Of each partition: the first one whose jobs wait for the same resources.
    lines: Vec<usize>,
}

/// What the jobs of a partition hold. CPUs that they share count once.
#[derive(Debug, Clone, PartialEq, Default)]
struct Holding {
    tres: Tres,
    /// Of each CPU, how many of them are on it.
    cpus: BTreeMap<u32, u32>,
}

impl Holding {
    fn take(&mut self, alloc: &Allocation) {
        self.tres = self.tres.plus(&alloc.tres);
        alloc.cpu_ids.iter().for_each(|cpu| *self.cpus.entry(*cpu).or_default() += 1);
    }

    fn give(&mut self, alloc: &Allocation) {
        self.tres = self.tres.minus(&alloc.tres);
        for cpu in &alloc.cpu_ids {
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

/// Used and free resources at one moment, real or expected.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Capacity {
    layout: Arc<Layout>,
    /// CPUs that no job gets.
    drained: BTreeSet<u32>,
    /// Of each CPU of the host the jobs that are on it: how many each of them allows there,
    /// ascending.
    cpus: BTreeMap<u32, Vec<u32>>,
    /// Uses of CPUs that the host does not have any more: as many of the others stay free for them.
    beyond: u32,
    /// CPUs that are taken by what is no job's: no job gets them.
    elsewhere: BTreeSet<u32>,
    used: Tres,
    pub gpus: GpuPool,
    by_partition: Vec<Holding>,
    limits: Limits,
    /// CPUs of each partition that nobody uses.
    empty: Vec<u32>,
}

fn is_among(own: Option<&BTreeSet<u32>>, id: u32) -> bool {
    own.is_none_or(|own| own.contains(&id))
}

impl Capacity {
    /// The host with nobody on it.
    pub fn whole(config: &Config) -> Self {
        let Config { host, partitions, limits, .. } = config;
        let lines =
            partitions.iter().map(|one| partitions.iter().position(|p| p == one || p.is_like(one)));
        let lines = lines.map(Option::unwrap_or_default).collect();
        let mut capacity = Capacity {
            layout: Arc::new(Layout { partitions: partitions.to_vec(), lines }),
            cpus: host.cpu_ids.iter().map(|cpu| (*cpu, Vec::new())).collect(),
            gpus: GpuPool::of(host),
            by_partition: vec![Holding::default(); partitions.len()],
            limits: Limits::new(limits),
            ..Capacity::default()
        };
        capacity.count_empty();
        capacity
    }

    /// The same without what its owner gives to no job.
    #[must_use]
    pub fn without(mut self, drained: &NodeParts) -> Self {
        self.drained.clone_from(&drained.cpus);
        self.gpus.drain(&drained.gpus);
        self.count_empty();
        self
    }

    /// CPUs that no job has, and none gets.
    pub fn closed_cpus(&self) -> u32 {
        self.drained.iter().filter(|cpu| self.cpus.get(cpu).is_some_and(Vec::is_empty)).count()
            as u32
    }

    /// What is in use, which may be more than a host that has shrunk has. Shared CPUs count for
    /// each job.
    pub fn used(&self) -> Tres {
        self.used
    }

    /// Jobs of partitions in the same line wait for the same resources.
    pub fn line(&self, partition: Option<usize>) -> usize {
        partition.and_then(|at| self.layout.lines.get(at)).copied().unwrap_or_default()
    }

    /// Whether a start can show that another job may start too that was looked at before it: which
    /// CPUs a job got may show that another one delays nobody, and a job at its limit keeps nothing
    /// for itself any more.
    pub fn is_shown_by_starts(&self) -> bool {
        self.lines() > 1 || !self.limits.is_empty()
    }

    /// How many lines there are.
    pub fn lines(&self) -> usize {
        self.layout.lines.iter().enumerate().filter(|(at, line)| at == *line).count()
    }

    fn partition(&self, place: &CpuSharing) -> Option<&Partition> {
        self.layout.partitions.get(place.partition?)
    }

    /// Whether no job gets it, whoever has it now.
    fn is_closed(&self, cpu: u32) -> bool {
        self.elsewhere.contains(&cpu) || self.drained.contains(&cpu)
    }

    fn has_place(&self, cpu: u32, jobs_per_cpu: u32) -> bool {
        let is_open = !self.is_closed(cpu);
        self.cpus.get(&cpu).filter(|_| is_open).is_some_and(|there| {
            let most = jobs_per_cpu.min(there.first().copied().unwrap_or(u32::MAX));
            there.len() < most as usize
        })
    }

    /// The CPUs that such a job may have, ascending.
    fn open_cpus(&self, place: &CpuSharing) -> impl Iterator<Item = u32> {
        let own = self.partition(place).and_then(|partition| partition.cpus.as_ref());
        self.cpus
            .keys()
            .copied()
            .filter(move |cpu| self.has_place(*cpu, place.jobs_per_cpu) && is_among(own, *cpu))
    }

    /// The same, as far as the partition may have them: those that it has already and shares, and
    /// of the others the emptiest ones, so many as it may have more. The named ones go first.
    fn allowed_cpus(&self, place: &CpuSharing, named: &[u32]) -> BTreeSet<u32> {
        let more = self.allowed(place).cpus as usize;
        let own = place.partition.and_then(|at| self.by_partition.get(at));
        let (own, mut others): (Vec<u32>, Vec<u32>) = self
            .open_cpus(place)
            .partition(|cpu| own.is_some_and(|own| own.cpus.contains_key(cpu)));
        // One that is shared by nobody gets the best places, however few they may be.
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

    /// Whether so many CPUs are free, with those that it names among them.
    fn has_cpus(&self, want: &Want, count: u32) -> bool {
        count <= self.free_cpus(&want.place) && self.taken_of_named(want).next().is_none()
    }

    /// The CPUs that it names and that it does not find free.
    pub fn taken_of_named<'a>(&self, want: &Want<'a>) -> impl Iterator<Item = u32> + use<'a> {
        let named = want.named_cpus;
        let free =
            if named.is_empty() { BTreeSet::new() } else { self.allowed_cpus(&want.place, named) };
        named.iter().copied().filter(move |cpu| !free.contains(cpu))
    }

    /// What such a job finds free, each resource by itself.
    pub fn free_for(&self, place: &CpuSharing, host: &Host) -> Tres {
        let (allowed, gpus) = (
            self.allowed(place),
            self.partition(place).and_then(|partition| partition.gpus.as_ref()),
        );
        let whole = GpuWant { among: gpus, ..GpuWant::default() };
        Tres {
            cpus: self.free_cpus(place),
            mem_mb: host.mem_mb.saturating_sub(self.used.mem_mb).min(allowed.mem_mb),
            gpus: allowed.gpus.min(self.gpus.free(&whole, &[], host).len() as u32),
            ..Tres::ZERO
        }
    }

    /// The most CPUs that a job of any partition finds free. 0: no job can start, since each needs
    /// one.
    pub fn most_cpus(&self) -> u32 {
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
                limits: LimitSet::default(),
            })
        });
        most.max().unwrap_or(0)
    }

    /// What the partition may still give to its jobs, whatever is free.
    fn allowed(&self, place: &CpuSharing) -> Tres {
        let used = place
            .partition
            .and_then(|at| self.by_partition.get(at))
            .map(Holding::used)
            .unwrap_or_default();
        self.partition(place).map_or(Tres::ZERO, |partition| partition.bounds().minus(&used))
    }

    /// The CPUs that a job takes: an exclusive one all that its partition may use, as in Slurm.
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

    /// The limit that keeps such a job with so many CPUs from starting, whatever is free.
    pub fn limit_reached(&self, place: &CpuSharing, cpus: u32, host: &Host) -> Option<Reached<'_>> {
        if place.limits.is_empty() {
            return None;
        }
        self.limits.reached(place.limits, self.taken_cpus(place, cpus, host))
    }

    pub fn fits(&self, want: &Want, host: &Host) -> bool {
        self.has_amounts(want, host) && self.pick_gpus(&[], None, want, host).is_some()
    }

    /// Of what it asks for, that of which too little is free. All CPUs where it is to be alone.
    pub fn lacks(&self, want: &Want, host: &Host) -> Tres {
        let has_gpus = self.pick_gpus(&[], None, want, host).is_some();
        let lacks = self.lacks_amounts(want, host);
        Tres { gpus: if has_gpus { lacks.gpus } else { want.gpu.count }, ..lacks }
    }

    /// The same as far as amounts tell it: not which GPUs are free.
    fn lacks_amounts(&self, want: &Want, host: &Host) -> Tres {
        let cpus = self.taken_cpus(&want.place, want.tres.cpus, host);
        let allowed = self.allowed(&want.place);
        let has_cpus =
            self.has_cpus(want, cpus) && (!want.place.exclusive || self.is_empty_for(&want.place));
        let has_mem =
            want.tres.mem_mb <= host.mem_mb.saturating_sub(self.used.mem_mb).min(allowed.mem_mb);
        Tres {
            cpus: if has_cpus { 0 } else { cpus },
            mem_mb: if has_mem { 0 } else { want.tres.mem_mb },
            gpus: if want.tres.gpus <= allowed.gpus { 0 } else { want.tres.gpus },
            ..Tres::ZERO
        }
    }

    fn has_amounts(&self, want: &Want, host: &Host) -> bool {
        want.place.partition.is_some()
            && want.tres.cpus <= self.taken_cpus(&want.place, want.tres.cpus, host)
            && self.lacks_amounts(want, host) == Tres::ZERO
            && self.limit_reached(&want.place, want.tres.cpus, host).is_none()
    }

    /// Whether nobody is on any CPU of the partition.
    fn is_empty_for(&self, place: &CpuSharing) -> bool {
        let own = self.partition(place).and_then(|partition| partition.cpus.as_ref());
        self.cpus.iter().all(|(cpu, there)| there.is_empty() || !is_among(own, *cpu))
    }

    /// What `want` would get; `None` where it does not fit.
    pub fn pick(&self, want: &Want, host: &Host) -> Option<Part> {
        self.pick_of(&[], None, want, host)
    }

    /// What `want` would get of what is free here and in all `others`.
    pub fn pick_in_all(&self, others: &[&Capacity], want: &Want, host: &Host) -> Option<Part> {
        self.pick_of(others, None, want, host)
    }

    /// What `want` would get, rather of what is not free in `other`.
    pub fn pick_beside(&self, other: &Capacity, want: &Want, host: &Host) -> Option<Part> {
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
        let (place, count) = (want.place, self.taken_cpus(&want.place, want.tres.cpus, host));
        let mut free = self.allowed_cpus(&place, want.named_cpus);
        others.iter().for_each(|other| free = &free & &other.allowed_cpus(&place, want.named_cpus));
        let cpu_ids = self.pick_cpus(free, beside, want.named_cpus, count as usize, host);
        let gpus = want.gpu.share.of(gpu_ids.len() as u32);
        let tres = Tres { cpus: count, mem_mb: want.tres.mem_mb, ..gpus };
        let gpu_share = want.gpu.share;
        let alloc = Allocation { tres, cpu_ids, gpu_ids, gpu_share, ..Allocation::default() };
        (alloc.cpu_ids.len() == count as usize).then_some(Part { alloc, place })
    }

    /// So many of these CPUs: the named ones, then those with the fewest jobs, or those that are in
    /// use in `beside`.
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

    /// An exclusive job gets all that are free, as in Slurm.
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
        let most = self.allowed(&want.place).gpus as usize;
        let rest = self.gpus.free(&GpuWant { model: None, ..gpu }, &others, host);
        let rest = rest
            .into_iter()
            .filter(|id| !asked.contains(id))
            .take(most.saturating_sub(asked.len()));
        let mut all: Vec<u32> = asked.iter().copied().chain(rest).collect();
        all.sort_unstable();
        Some(all)
    }

    /// Notes what a job has, whether it was free or not.
    pub fn take(&mut self, Part { alloc, place }: &Part) {
        for cpu in &alloc.cpu_ids {
            match self.cpus.get_mut(cpu) {
                Some(there) => {
                    there.push(place.jobs_per_cpu);
                    there.sort_unstable();
                }
                None => self.beyond += 1,
            }
        }
        self.gpus.take(&alloc.gpu_ids, alloc.gpu_share);
        self.used = self.used.plus(&alloc.tres);
        if let Some(own) = place.partition.and_then(|at| self.by_partition.get_mut(at)) {
            own.take(alloc);
        }
        self.limits.take(place.limits, alloc.tres.cpus);
        self.count_empty();
    }

    /// Gives back what a job held.
    pub fn give(&mut self, Part { alloc, place }: &Part) {
        for cpu in &alloc.cpu_ids {
            match self.cpus.get_mut(cpu) {
                Some(there) => {
                    if let Some(at) =
                        there.iter().position(|jobs_per_cpu| *jobs_per_cpu == place.jobs_per_cpu)
                    {
                        there.remove(at);
                    }
                }
                None => self.beyond = self.beyond.saturating_sub(1),
            }
        }
        self.gpus.give(&alloc.gpu_ids, alloc.gpu_share);
        self.used = self.used.minus(&alloc.tres);
        if let Some(own) = place.partition.and_then(|at| self.by_partition.get_mut(at)) {
            own.give(alloc);
        }
        self.limits.give(place.limits, alloc.tres.cpus);
        self.count_empty();
    }

    /// Notes that so many CPUs are taken by what is no job's: those with the fewest jobs, and among
    /// them those that `busy` names first.
    pub fn set_cpus_elsewhere(&mut self, count: u32, busy: &[u32]) {
        let turn = |cpu: u32| busy.iter().position(|known| *known == cpu).unwrap_or(busy.len());
        let open = self.cpus.iter().filter(|(cpu, _)| !self.drained.contains(cpu));
        let mut order: Vec<(usize, usize, u32)> =
            open.map(|(cpu, there)| (there.len(), turn(*cpu), *cpu)).collect();
        order.sort_unstable();
        self.elsewhere = order.into_iter().take(count as usize).map(|(_, _, cpu)| cpu).collect();
        self.count_empty();
    }

    /// The same CPUs as there are taken by what is no job's.
    pub fn set_as_elsewhere(&mut self, other: &Capacity) {
        self.elsewhere.clone_from(&other.elsewhere);
        self.count_empty();
    }

    /// Whether somebody who wants that would find the CPUs if jobs alone had some.
    pub fn lacks_cpus_elsewhere<'a>(&self, mut wants: impl Iterator<Item = Want<'a>>) -> bool {
        if self.elsewhere.is_empty() {
            return false;
        }
        let mut without = self.clone();
        without.set_as_elsewhere(&Capacity::default());
        let has_cpus = |capacity: &Capacity, want: &Want| capacity.has_cpus(want, want.tres.cpus);
        wants.any(|want| !has_cpus(self, &want) && has_cpus(&without, &want))
    }

    fn count_empty(&mut self) {
        let is_empty =
            |cpu: &&u32| self.cpus.get(cpu).is_some_and(Vec::is_empty) && !self.is_closed(**cpu);
        let everywhere = self.cpus.keys().filter(is_empty).count() as u32;
        let count = |own: &BTreeSet<u32>| own.iter().filter(is_empty).count() as u32;
        let partitions = self.layout.partitions.iter();
        self.empty =
            partitions.map(|partition| partition.cpus.as_ref().map_or(everywhere, count)).collect();
    }
}
