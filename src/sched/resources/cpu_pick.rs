//! The choice of CPUs for a job or a step, among those that are free.
//!
//! Entirely free cores come first, so that no core is shared while free ones exist. Among them, the
//! CPUs come from one NUMA node, or else from one socket: the fitting one with the fewest free
//! CPUs. A request that fits into none is spread over as few as possible. The lowest numbers go
//! first.

use slotd_model::topology::{Level, Place, Topology};
use std::collections::{BTreeSet, HashMap};

/// Returns the levels from the smallest unit to the largest: a socket may hold several NUMA nodes,
/// or a node several sockets.
fn levels(topology: &Topology) -> [Level; 2] {
    if topology.ldoms() < topology.sockets() {
        [Level::Socket, Level::Ldom]
    } else {
        [Level::Ldom, Level::Socket]
    }
}

/// Picks `count` of the free CPUs, ascending, or all if there are fewer. `all` are the CPUs of this
/// host that jobs may use: a core is free if all of its CPUs among them are.
pub(crate) fn pick(
    count: usize,
    free: &BTreeSet<u32>,
    all: &[u32],
    topology: &Topology,
) -> Vec<u32> {
    if count >= free.len() {
        return free.iter().copied().collect();
    }
    let taken: BTreeSet<u32> = all
        .iter()
        .filter(|cpu| !free.contains(cpu))
        .map(|cpu| topology.unit(*cpu, Level::Core))
        .collect();
    let cores = topology.group(free.iter().copied(), Level::Core);
    let (whole, parts): (Vec<Vec<u32>>, Vec<Vec<u32>>) =
        cores.into_iter().partition(|core| !taken.contains(&topology.unit(core[0], Level::Core)));
    let levels = levels(topology);
    let mut picked = place(count, whole, &levels, topology);
    picked.extend(place(count - picked.len(), parts, &levels, topology));
    picked.sort_unstable();
    picked
}

/// Returns `count` CPU numbers for a host whose jobs may use only some of its CPUs, or more than it
/// has. Existing CPUs come first, followed by numbers that no CPU has, not even a lost one.
pub(crate) fn count_out(count: u32, topology: &Topology, lost: &[Place]) -> Vec<u32> {
    let there = topology.cpus();
    let mut counted = pick(count as usize, &there.iter().copied().collect(), &there, topology);
    let is_known = |cpu: &u32| there.contains(cpu) || lost.iter().any(|place| place.cpu == *cpu);
    let beyond =
        (0u32..).filter(|cpu| !is_known(cpu)).take((count as usize).saturating_sub(counted.len()));
    counted.extend(beyond);
    counted.sort_unstable();
    counted
}

/// Picks `count` CPUs of these cores in the smallest unit that has enough.
fn place(count: usize, cores: Vec<Vec<u32>>, levels: &[Level], topology: &Topology) -> Vec<u32> {
    for (at, level) in levels.iter().enumerate() {
        let fitting =
            units(&cores, *level, topology).into_iter().filter(|unit| size(unit) >= count);
        if let Some(best) = fitting.min_by_key(|unit| size(unit)) {
            return spread(count, best, &levels[..at], topology);
        }
    }
    spread(count, cores, levels, topology)
}

/// Picks `count` CPUs if no single unit has enough: all of the largest unit, and the rest by the
/// same rule.
fn spread(
    count: usize,
    mut cores: Vec<Vec<u32>>,
    levels: &[Level],
    topology: &Topology,
) -> Vec<u32> {
    let Some(coarsest) = levels.last() else {
        return cores.into_iter().flatten().take(count).collect();
    };
    // `max_by_key` returns the last of equal elements; reversed, the lowest numbers go first.
    let largest =
        units(&cores, *coarsest, topology).into_iter().rev().max_by_key(|unit| size(unit));
    let Some(largest) = largest else { return Vec::new() };
    let unit = |core: &[u32]| topology.unit(core[0], *coarsest);
    cores.retain(|core| largest.first().is_none_or(|first| unit(core) != unit(first)));
    let mut picked = largest.concat();
    picked.extend(place(count.saturating_sub(picked.len()), cores, levels, topology));
    picked
}

/// Groups the cores by the unit that they share at this level.
fn units(cores: &[Vec<u32>], level: Level, topology: &Topology) -> Vec<Vec<Vec<u32>>> {
    let by_first: HashMap<u32, &Vec<u32>> = cores.iter().map(|core| (core[0], core)).collect();
    let core = |first: &u32| by_first.get(first).map(|core| (*core).clone());
    let units = topology.group(cores.iter().map(|core| core[0]), level);
    units.iter().map(|unit| unit.iter().filter_map(core).collect()).collect()
}

fn size(unit: &[Vec<u32>]) -> usize {
    unit.iter().map(Vec::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::uniform;
    use proptest::prelude::*;
    use slotd_model::topology::Place;

    /// Picks CPUs for a job of `count` CPUs on this host while `taken` are in use.
    fn picked(host: &Topology, count: usize, taken: &[u32]) -> Vec<u32> {
        let free = host.cpus().into_iter().filter(|cpu| !taken.contains(cpu)).collect();
        pick(count, &free, &host.cpus(), host)
    }

    #[test]
    fn a_core_is_not_shared_while_another_is_free() {
        // CPUs 0 and 4, 1 and 5, 2 and 6, 3 and 7 share a core.
        let host = uniform(1, 4, 2);
        assert_eq!(picked(&host, 1, &[]), [0]);
        assert_eq!(picked(&host, 1, &[0]), [1]);
        assert_eq!(picked(&host, 1, &[0, 1, 2, 3]), [4]);
        assert_eq!(picked(&host, 2, &[]), [0, 4], "both threads of one core");
        assert_eq!(picked(&host, 3, &[0]), [1, 2, 5]);
        assert_eq!(
            picked(&host, 7, &[2]),
            [0, 1, 3, 4, 5, 6, 7],
            "the rest of a shared core comes last"
        );
        assert_eq!(picked(&host, 2, &[0, 1, 2, 7]), [3, 4], "no whole core is free");
    }

    #[test]
    fn a_job_stays_in_one_socket_and_leaves_the_emptier_one_whole() {
        // Cores 0 to 3 in the first socket, 4 to 7 in the second.
        let host = uniform(2, 4, 1);
        assert_eq!(picked(&host, 3, &[0, 1]), [4, 5, 6]);
        assert_eq!(picked(&host, 2, &[0, 1]), [2, 3], "the socket with the fewest free CPUs");
        assert_eq!(picked(&host, 1, &[4, 5, 6]), [7]);
        assert_eq!(picked(&host, 5, &[]), [0, 1, 2, 3, 4]);
        assert_eq!(picked(&host, 5, &[0]), [1, 4, 5, 6, 7], "the whole socket first");
        assert_eq!(picked(&host, 8, &[]), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_job_stays_in_one_numa_node() {
        // Two sockets of two nodes of two cores each.
        let place = |cpu| Place { cpu, core: cpu, socket: cpu / 4, ldom: cpu / 2 };
        let host = Topology::new((0..8).map(place).collect());
        assert_eq!(picked(&host, 2, &[0]), [2, 3], "not one of each node");
        assert_eq!(picked(&host, 3, &[0, 1]), [4, 5, 6], "one socket, with a whole node of it");
        assert_eq!(picked(&host, 3, &[0]), [1, 2, 3]);
        // One node that two sockets share.
        let place = |cpu| Place { cpu, core: cpu, socket: cpu / 2, ldom: cpu / 4 };
        let host = Topology::new((0..8).map(place).collect());
        assert_eq!(picked(&host, 4, &[0]), [4, 5, 6, 7]);
        assert_eq!(picked(&host, 2, &[0]), [2, 3]);
    }

    #[test]
    fn cpus_outside_the_topology_are_picked_by_number() {
        let all = [0, 1, 2, 3];
        let free = |taken: &[u32]| {
            all.iter().copied().filter(|cpu| !taken.contains(cpu)).collect::<BTreeSet<u32>>()
        };
        assert_eq!(pick(3, &free(&[]), &all, &Topology::default()), [0, 1, 2]);
        assert_eq!(pick(2, &free(&[0]), &all, &uniform(1, 2, 1)), [1, 2]);
        assert_eq!(pick(9, &free(&[1]), &all, &Topology::default()), [0, 2, 3]);
    }

    #[test]
    fn capacity_beyond_the_host_gets_unused_cpu_numbers() {
        let place = |cpu: u32| Place { cpu, core: cpu / 2 * 2, socket: 0, ldom: 0 };
        let host = Topology::new((2..6).map(place).collect());
        assert_eq!(count_out(2, &host, &[]), [2, 3], "a whole core");
        assert_eq!(count_out(4, &host, &[]), [2, 3, 4, 5]);
        assert_eq!(count_out(7, &host, &[]), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(count_out(3, &Topology::default(), &[]), [0, 1, 2]);
        assert_eq!(count_out(6, &host, &[place(0)]), [1, 2, 3, 4, 5, 6]);
    }

    proptest! {
        #[test]
        fn picked_cpus_are_free_and_prefer_whole_cores(
            shape in (1u32..4, 1u32..5, 1u32..3),
            nodes in 1u32..4,
            taken in prop::collection::btree_set(0u32..32, 0..32),
            count in 0usize..34,
        ) {
            let host = uniform(shape.0, shape.1, shape.2);
            let renamed = host.cpus().into_iter().map(|cpu| Place { ldom: cpu % nodes, ..host.place(cpu) });
            for host in [host.clone(), Topology::new(renamed.collect())] {
                let free: BTreeSet<u32> = host.cpus().into_iter().filter(|cpu| !taken.contains(cpu)).collect();
                let got = pick(count, &free, &host.cpus(), &host);
                prop_assert_eq!(got.len(), count.min(free.len()));
                prop_assert!(got.iter().all(|cpu| free.contains(cpu)));
                prop_assert!(got.windows(2).all(|pair| pair[0] < pair[1]));
                // A partly used core is used only when no whole one is left.
                let whole = |cpu: &u32| {
                    let core = host.unit(*cpu, Level::Core);
                    host.cpus().iter().filter(|other| host.unit(**other, Level::Core) == core).all(|c| free.contains(c))
                };
                let left_whole = free.iter().any(|cpu| whole(cpu) && !got.iter().any(
                    |taken| host.unit(*taken, Level::Core) == host.unit(*cpu, Level::Core)));
                prop_assert!(!left_whole || got.iter().all(whole));
            }
        }
    }
}
