//! The CPUs of each task of a step (srun man page, `--cpu-bind` and `--distribution`).

use slotd_model::binding::{CpuBind, element_for};
use slotd_model::placement::{Dealing, Distribution, MemBind, MemNodes, Placement, Spread};
use slotd_model::topology::{Level, Topology};
use std::collections::{BTreeSet, VecDeque};

/// The requested binding and placement of tasks.
#[derive(Debug, Clone, Copy)]
pub struct LayoutAsk<'a> {
    pub bind: &'a CpuBind,
    pub placement: &'a Placement,
    pub ntasks: u32,
    /// CPUs per task.
    pub per_task: u32,
}

/// The CPUs of each task, by rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// Empty for a task that is not bound.
    pub tasks: Vec<Vec<u32>>,
    /// The binding was requested, so nothing runs if it is impossible.
    pub is_asked: bool,
}

/// A binding to CPUs or NUMA nodes outside the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outside {
    /// `CPU` or `NUMA node`.
    pub what: &'static str,
    pub asked: u32,
    /// The CPUs of the job.
    pub there: Vec<u32>,
}

/// Places the tasks on `own`, the CPUs of the step, within `job`, all CPUs of its job.
///
/// By default, several tasks that use up the CPUs or cores of the step get their own, as in Slurm;
/// other tasks share the CPUs of the job. CPU numbers that this machine does not have cannot be
/// bound to: tasks on them are not bound unless a binding was requested.
///
/// # Errors
/// Fails if a map or a mask names a CPU or NUMA node outside the job.
pub fn layout(
    ask: LayoutAsk<'_>,
    own: &[u32],
    job: &[u32],
    host: &Topology,
) -> Result<Layout, Outside> {
    let is_asked = !matches!(ask.bind, CpuBind::Auto | CpuBind::None);
    if !is_asked && !host.has_all(job) {
        return Ok(Layout { tasks: vec![Vec::new(); ask.ntasks as usize], is_asked });
    }
    let usable = |cpus: &[u32]| first_threads(cpus, ask.placement.threads(), host);
    let own = usable(own);
    let in_common = || vec![usable(job); ask.ntasks as usize];
    let tasks = match ask.bind {
        CpuBind::Auto => match own_units(&ask, &own, host) {
            Some(unit) => deal(&ask, &own, unit, host),
            None => in_common(),
        },
        CpuBind::None => in_common(),
        CpuBind::Threads => deal(&ask, &own, Unit::Thread, host),
        CpuBind::Cores => deal(&ask, &own, Unit::Core, host),
        CpuBind::Sockets => widen(deal(&ask, &own, Unit::Core, host), &own, Level::Socket, host),
        CpuBind::Ldoms => widen(deal(&ask, &own, Unit::Core, host), &own, Level::Ldom, host),
        CpuBind::Rank => {
            let cpu = |rank: u32| own.get(rank as usize % own.len().max(1)).copied();
            listed(&ask, |rank| cpu(rank).into_iter().collect())
        }
        CpuBind::RankLdom => {
            let ldoms = host.group(own.iter().copied(), Level::Ldom);
            let ldom = |rank: u32| ldoms.get(rank as usize % ldoms.len().max(1)).cloned();
            listed(&ask, |rank| ldom(rank).unwrap_or_default())
        }
        CpuBind::MapCpu(list) => {
            listed(&ask, |rank| element_for(list, rank).copied().into_iter().collect())
        }
        CpuBind::MaskCpu(list) => {
            listed(&ask, |rank| element_for(list, rank).cloned().unwrap_or_default())
        }
        CpuBind::MapLdom(list) => {
            return in_ldoms(
                &ask,
                |rank| element_for(list, rank).copied().into_iter().collect(),
                job,
                host,
            );
        }
        CpuBind::MaskLdom(list) => {
            return in_ldoms(
                &ask,
                |rank| element_for(list, rank).cloned().unwrap_or_default(),
                job,
                host,
            );
        }
    };
    if let Some(asked) = tasks.iter().flatten().find(|cpu| !job.contains(cpu)) {
        return Err(Outside { what: "CPU", asked: *asked, there: job.to_vec() });
    }
    Ok(Layout { tasks, is_asked })
}

fn listed(ask: &LayoutAsk<'_>, of: impl Fn(u32) -> Vec<u32>) -> Vec<Vec<u32>> {
    (0..ask.ntasks).map(of).collect()
}

/// Binds each task to the job's CPUs in its NUMA nodes.
fn in_ldoms(
    ask: &LayoutAsk<'_>,
    nodes_of: impl Fn(u32) -> Vec<u32>,
    job: &[u32],
    host: &Topology,
) -> Result<Layout, Outside> {
    let mut tasks = Vec::new();
    for nodes in listed(ask, nodes_of) {
        let cpus_of =
            |node: u32| job.iter().copied().filter(move |cpu| host.unit(*cpu, Level::Ldom) == node);
        if let Some(asked) = nodes.iter().find(|node| cpus_of(**node).next().is_none()) {
            return Err(Outside { what: "NUMA node", asked: *asked, there: job.to_vec() });
        }
        tasks.push(nodes.iter().flat_map(|node| cpus_of(*node)).collect());
    }
    Ok(Layout { tasks, is_asked: true })
}

/// Returns at most `threads` CPUs of each core.
fn first_threads(cpus: &[u32], threads: Option<u32>, host: &Topology) -> Vec<u32> {
    let Some(threads) = threads else { return cpus.to_vec() };
    let cores = host.group(cpus.iter().copied(), Level::Core);
    let mut used: Vec<u32> =
        cores.into_iter().flat_map(|core| core.into_iter().take(threads as usize)).collect();
    used.sort_unstable();
    used
}

/// The unit in which CPUs are dealt to tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Core,
    Thread,
}

/// Returns the unit for tasks without a requested binding, if each can have its own.
fn own_units(ask: &LayoutAsk<'_>, own: &[u32], host: &Topology) -> Option<Unit> {
    let wanted = ask.ntasks.saturating_mul(ask.per_task) as usize;
    let cores = host.group(own.iter().copied(), Level::Core).len();
    match ask.ntasks {
        0 | 1 => None,
        _ if wanted == cores => Some(Unit::Core),
        _ if wanted == own.len() => Some(Unit::Thread),
        _ => ask.placement.distribution.map(|_| Unit::Core),
    }
}

/// Extends each task's CPUs to all CPUs of the step in the same units.
fn widen(tasks: Vec<Vec<u32>>, own: &[u32], level: Level, host: &Topology) -> Vec<Vec<u32>> {
    let wide = |task: Vec<u32>| {
        let units: BTreeSet<u32> = task.iter().map(|cpu| host.unit(*cpu, level)).collect();
        own.iter().copied().filter(|cpu| units.contains(&host.unit(*cpu, level))).collect()
    };
    tasks.into_iter().map(wide).collect()
}

/// How consecutive tasks move from socket to socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Dealt(Dealing),
    /// This many consecutive tasks on each socket.
    Plane(u32),
}

/// Returns the order of sockets. By default, Slurm deals them out in turn.
fn order(placement: &Placement) -> Order {
    let by_sockets = placement.ntasks_per_socket.map(Order::Plane);
    match placement.distribution {
        Some(Distribution { sockets: Some(dealing), .. }) => Order::Dealt(dealing),
        Some(Distribution { nodes: Spread::Block, .. }) => Order::Dealt(Dealing::Block),
        Some(Distribution { nodes: Spread::Plane(size), .. }) => {
            Order::Plane(size.unwrap_or(1).max(1))
        }
        Some(Distribution { nodes: Spread::Cyclic | Spread::Default, .. }) => {
            Order::Dealt(Dealing::Cyclic)
        }
        None => by_sockets.unwrap_or(Order::Dealt(Dealing::Cyclic)),
    }
}

/// Gives each task its share of the CPUs, in cores or in threads: as many as it requests, or more
/// if there are enough for all. With more tasks than shares, the shares are reused.
fn deal(ask: &LayoutAsk<'_>, own: &[u32], unit: Unit, host: &Topology) -> Vec<Vec<u32>> {
    let cores = host.group(own.iter().copied(), Level::Core);
    let (units, per_task): (Vec<Vec<u32>>, u32) = match unit {
        Unit::Core => {
            let threads = cores.iter().map(Vec::len).max().unwrap_or(1);
            (cores, ask.per_task.div_ceil(u32::try_from(threads).unwrap_or(1)))
        }
        Unit::Thread => (cores.concat().into_iter().map(|cpu| vec![cpu]).collect(), ask.per_task),
    };
    let each =
        (per_task.max(1) as usize).max(units.len() / ask.ntasks.max(1) as usize).min(units.len());
    let place = if host.ldoms() > host.sockets() { Level::Ldom } else { Level::Socket };
    let mut dealer = Dealer { whole: by_place(&units, place, host), left: Vec::new(), at: 0 };
    let order = order(ask.placement);
    (0..ask.ntasks).map(|rank| dealer.take(rank, each, order)).collect()
}

/// Groups the units by their socket or NUMA node.
fn by_place(units: &[Vec<u32>], level: Level, host: &Topology) -> Vec<VecDeque<Vec<u32>>> {
    let firsts = host.group(units.iter().filter_map(|unit| unit.first().copied()), level);
    let unit_of = |first: &u32| units.iter().find(|unit| unit.first() == Some(first)).cloned();
    firsts.iter().map(|place| place.iter().filter_map(unit_of).collect()).collect()
}

struct Dealer {
    whole: Vec<VecDeque<Vec<u32>>>,
    left: Vec<VecDeque<Vec<u32>>>,
    /// The index of the socket or NUMA node for the next task.
    at: usize,
}

impl Dealer {
    fn take(&mut self, rank: u32, each: usize, order: Order) -> Vec<u32> {
        match order {
            Order::Dealt(Dealing::Cyclic) if rank > 0 => self.at += 1,
            Order::Plane(size) if rank > 0 && rank.is_multiple_of(size) => self.at += 1,
            Order::Dealt(_) | Order::Plane(_) => {}
        }
        let mut taken = Vec::new();
        for nth in 0..each {
            if self.left.iter().all(VecDeque::is_empty) {
                self.left = self.whole.clone();
                self.at = if order == Order::Dealt(Dealing::Block) { 0 } else { self.at };
            }
            let places = self.left.len().max(1);
            let wanted = if nth == 0 { each } else { 1 };
            let next = |capacity: usize| {
                (0..places)
                    .map(|step| (self.at + step) % places)
                    .find(|at| self.left.get(*at).is_some_and(|place| place.len() >= capacity))
            };
            // Keep a task in one place if any has enough units.
            let stays =
                order != Order::Dealt(Dealing::Block) && order != Order::Dealt(Dealing::Fcyclic);
            let Some(at) = next(if stays { wanted } else { 1 }).or_else(|| next(1)) else { break };
            taken.extend(self.left[at].pop_front().unwrap_or_default());
            self.at = at + usize::from(order == Order::Dealt(Dealing::Fcyclic));
        }
        taken.sort_unstable();
        taken
    }
}

/// Returns the NUMA nodes for the memory of the task with this rank; none leaves the choice to the
/// kernel. `cpus` are the CPUs of the task; empty, for an unbound task, means those of the whole
/// host.
pub fn memory_of(bind: &MemBind, rank: u32, cpus: &[u32], host: &Topology) -> Vec<u32> {
    match &bind.nodes {
        MemNodes::None => Vec::new(),
        MemNodes::Local => {
            let cpus = if cpus.is_empty() { host.cpus() } else { cpus.to_vec() };
            let ldoms: BTreeSet<u32> =
                cpus.into_iter().map(|cpu| host.unit(cpu, Level::Ldom)).collect();
            ldoms.into_iter().collect()
        }
        MemNodes::Rank => vec![rank],
        MemNodes::Map(list) => element_for(list, rank).copied().into_iter().collect(),
        MemNodes::Mask(list) => element_for(list, rank).cloned().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::uniform;
    use slotd_model::binding::Repeated;

    fn laid(
        bind: CpuBind,
        placement: Placement,
        cpus: &[u32],
        host: &Topology,
        tasks: (u32, u32),
    ) -> Vec<Vec<u32>> {
        let ask =
            LayoutAsk { bind: &bind, placement: &placement, ntasks: tasks.0, per_task: tasks.1 };
        layout(ask, cpus, cpus, host).unwrap().tasks
    }

    fn by_default(
        bind: CpuBind,
        cpus: &[u32],
        host: &Topology,
        tasks: (u32, u32),
    ) -> Vec<Vec<u32>> {
        laid(bind, Placement::default(), cpus, host, tasks)
    }

    fn by(nodes: Spread, sockets: Option<Dealing>) -> Placement {
        let distribution = Distribution { nodes, sockets, cores: None, packs: None };
        Placement { distribution: Some(distribution), ..Placement::default() }
    }

    fn all(host: &Topology) -> Vec<u32> {
        host.cpus()
    }

    #[test]
    fn cores_are_bound_with_all_their_threads() {
        // CPUs 0 and 4, 1 and 5, 2 and 6, 3 and 7 share a core.
        let host = uniform(1, 4, 2);
        assert_eq!(by_default(CpuBind::Threads, &[0, 1, 4, 5], &host, (2, 1)), [[0, 4], [1, 5]]);
        assert_eq!(by_default(CpuBind::Threads, &[0, 4], &host, (2, 1)), [[0], [4]]);
        assert_eq!(by_default(CpuBind::Cores, &[0, 1, 4, 5], &host, (2, 1)), [[0, 4], [1, 5]]);
        assert_eq!(
            by_default(CpuBind::Cores, &all(&host), &host, (2, 4)),
            [[0, 1, 4, 5], [2, 3, 6, 7]]
        );
        // With more tasks than cores, cores are reused; of a shared core only the job's threads
        // count.
        assert_eq!(
            by_default(CpuBind::Cores, &[0, 4, 5], &host, (4, 1)),
            [vec![0, 4], vec![5], vec![0, 4], vec![5]]
        );
        assert_eq!(by_default(CpuBind::Rank, &[4, 5, 6], &host, (4, 1)), [[4], [5], [6], [4]]);
        assert_eq!(by_default(CpuBind::Cores, &[], &host, (1, 1)), [[] as [u32; 0]]);
    }

    #[test]
    fn tasks_are_distributed_to_sockets_by_block_and_in_turn() {
        // Cores 0 to 3 in the first socket, 4 to 7 in the second.
        let host = uniform(2, 4, 1);
        let of = |placement, tasks: (u32, u32)| {
            laid(CpuBind::Cores, placement, &all(&host), &host, tasks)
        };
        let turn = [[0], [4], [1], [5], [2], [6], [3], [7]];
        assert_eq!(of(Placement::default(), (8, 1)), turn);
        assert_eq!(of(by(Spread::Cyclic, None), (8, 1)), turn);
        assert_eq!(of(by(Spread::Block, None), (8, 1)), [[0], [1], [2], [3], [4], [5], [6], [7]]);
        assert_eq!(
            of(by(Spread::Block, Some(Dealing::Cyclic)), (8, 1)),
            turn,
            "the second part decides on sockets"
        );
        assert_eq!(
            of(by(Spread::Plane(Some(2)), None), (8, 1)),
            [[0], [1], [4], [5], [2], [3], [6], [7]]
        );
        assert_eq!(of(by(Spread::Cyclic, None), (4, 2)), [[0, 1], [4, 5], [2, 3], [6, 7]]);
        assert_eq!(
            of(by(Spread::Cyclic, Some(Dealing::Fcyclic)), (4, 2)),
            [[0, 4], [1, 5], [2, 6], [3, 7]]
        );
        assert_eq!(
            of(Placement { ntasks_per_socket: Some(4), ..Placement::default() }, (8, 1))[3],
            [3]
        );
        // Three cores of one socket and one of the other.
        let some = laid(CpuBind::Cores, Placement::default(), &[1, 2, 3, 4], &host, (4, 1));
        assert_eq!(some, [[1], [4], [2], [3]]);
    }

    #[test]
    fn tasks_bind_to_the_sockets_and_numa_nodes_of_their_cores() {
        let host = uniform(2, 2, 2);
        let job = [0, 1, 2, 4, 5, 6];
        let halves = [vec![0, 1, 4, 5], vec![2, 6]];
        for bind in [CpuBind::Sockets, CpuBind::Ldoms, CpuBind::RankLdom] {
            assert_eq!(by_default(bind, &job, &host, (2, 1)), halves);
        }
        let once = |value| Repeated { value, times: 1 };
        let of_all = Repeated { value: vec![0, 1], times: 1 };
        assert_eq!(
            by_default(CpuBind::MapLdom(vec![once(1), once(0)]), &job, &host, (2, 1)),
            [vec![2, 6], vec![0, 1, 4, 5]]
        );
        assert_eq!(
            by_default(CpuBind::MaskLdom(vec![of_all]), &job, &host, (1, 1)),
            [[0, 1, 4, 5, 2, 6]]
        );
    }

    #[test]
    fn tasks_that_use_up_the_cpus_get_their_own_and_others_share() {
        let host = uniform(1, 4, 2);
        let auto = |cpus: &[u32], tasks| by_default(CpuBind::Auto, cpus, &host, tasks);
        assert_eq!(auto(&[0, 4], (1, 1)), [[0, 4]]);
        assert_eq!(auto(&[0, 4, 1, 5], (2, 1)), [[0, 4], [1, 5]], "one core each");
        assert_eq!(auto(&[0, 4, 1, 5], (4, 1)), [[0], [4], [1], [5]], "one thread each");
        assert_eq!(auto(&[0, 4, 1, 5], (2, 2)), [[0, 4], [1, 5]]);
        assert_eq!(auto(&[0, 4, 1, 5], (3, 1)), vec![vec![0, 4, 1, 5]; 3]);
        assert_eq!(
            by_default(CpuBind::None, &[0, 4], &host, (2, 1)),
            vec![vec![0, 4]; 2],
            "never the CPUs of other jobs"
        );
        let one_thread = Placement { threads_per_core: Some(1), ..Placement::default() };
        assert_eq!(laid(CpuBind::Auto, one_thread, &[0, 1, 4, 5], &host, (1, 2)), [[0, 1]]);
        // More CPUs than there are: the extra numbers are not real CPUs.
        let more = [6, 7, 8];
        let ask = LayoutAsk {
            bind: &CpuBind::Auto,
            placement: &Placement::default(),
            ntasks: 1,
            per_task: 3,
        };
        let unbound = Layout { tasks: vec![Vec::new()], is_asked: false };
        assert_eq!(layout(ask, &more, &more, &host), Ok(unbound));
    }

    #[test]
    fn memory_comes_from_the_nodes_of_the_cpus_or_the_named_ones() {
        let host = uniform(2, 2, 1);
        let of = |nodes: MemNodes, rank, cpus: &[u32]| {
            memory_of(&MemBind { nodes, ..MemBind::default() }, rank, cpus, &host)
        };
        assert_eq!(of(MemNodes::Local, 0, &[2, 3]), [1]);
        assert_eq!(of(MemNodes::Local, 0, &[]), [0, 1]);
        assert_eq!(of(MemNodes::Rank, 1, &[0]), [1]);
        assert_eq!(of(MemNodes::None, 1, &[0]), [] as [u32; 0]);
        let once = |value| Repeated { value, times: 1 };
        assert_eq!(of(MemNodes::Map(vec![once(1), once(0)]), 2, &[0]), [1]);
        assert_eq!(
            of(MemNodes::Mask(vec![Repeated { value: vec![0, 1], times: 1 }]), 3, &[0]),
            [0, 1]
        );
    }

    #[test]
    fn a_map_repeats_and_must_stay_within_the_job() {
        let once = |value| Repeated { value, times: 1 };
        let host = uniform(1, 4, 1);
        let map = CpuBind::MapCpu(vec![once(0), once(2)]);
        assert_eq!(by_default(map.clone(), &[0, 1, 2], &host, (3, 1)), [[0], [2], [0]]);
        let within = |bind: &CpuBind, ntasks, job: &[u32]| {
            layout(
                LayoutAsk { bind, placement: &Placement::default(), ntasks, per_task: 1 },
                job,
                job,
                &host,
            )
            .map(drop)
        };
        let outside = |what, asked| Err(Outside { what, asked, there: vec![0, 1] });
        assert_eq!(within(&map, 1, &[0, 1]), Ok(()), "unused entries do not matter");
        assert_eq!(within(&map, 2, &[0, 1]), outside("CPU", 2));
        assert_eq!(
            within(&CpuBind::MaskCpu(vec![Repeated { value: vec![1, 3], times: 1 }]), 1, &[0, 1]),
            outside("CPU", 3)
        );
        assert_eq!(within(&CpuBind::MapLdom(vec![once(7)]), 1, &[0, 1]), outside("NUMA node", 7));
    }
}
