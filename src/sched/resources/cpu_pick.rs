//! Which CPUs a job or a step gets, of those that are free.
//!
//! Whole free cores come first, so that nobody shares a core while free ones exist. Among them
//! those of one NUMA node, else of one socket, the one that is left with the least; what fits in
//! none is spread over as few as possible. The lowest numbers go first.

use crate::model::topology::{Level, Place, Topology};
use std::collections::{BTreeSet, HashMap};

/// The units from the smallest to the largest: a socket may hold several NUMA nodes, or a node
/// several sockets.
fn levels(topology: &Topology) -> [Level; 2] {
    if topology.ldoms() < topology.sockets() {
        [Level::Socket, Level::Ldom]
    } else {
        [Level::Ldom, Level::Socket]
    }
}

/// This many of the free CPUs, ascending; all of them where there are fewer. `all` are the CPUs
/// that count on this host: a core is free when all of it that counts is.
pub fn pick(count: usize, free: &BTreeSet<u32>, all: &[u32], topology: &Topology) -> Vec<u32> {
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

/// The numbers of so many CPUs, where jobs may use only a part of the host's, or more than it has:
/// those that are there come first, and the rest are numbers that no CPU has, also none that is
/// lost.
pub fn count_out(count: u32, topology: &Topology, lost: &[Place]) -> Vec<u32> {
    let there = topology.cpus();
    let mut counted = pick(count as usize, &there.iter().copied().collect(), &there, topology);
    let is_known = |cpu: &u32| there.contains(cpu) || lost.iter().any(|place| place.cpu == *cpu);
    let beyond =
        (0u32..).filter(|cpu| !is_known(cpu)).take((count as usize).saturating_sub(counted.len()));
    counted.extend(beyond);
    counted.sort_unstable();
    counted
}

/// This many CPUs of these cores, in the smallest unit that has room for them.
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

/// This many CPUs of cores of which no single unit has enough: the largest unit whole, and the rest
/// likewise.
fn spread(
    count: usize,
    mut cores: Vec<Vec<u32>>,
    levels: &[Level],
    topology: &Topology,
) -> Vec<u32> {
    let Some(coarsest) = levels.last() else {
        return cores.into_iter().flatten().take(count).collect();
    };
    // `max_by_key` gives the last of several: turned round, the lowest numbers go first.
    let largest =
        units(&cores, *coarsest, topology).into_iter().rev().max_by_key(|unit| size(unit));
    let Some(largest) = largest else { return Vec::new() };
    let unit = |core: &[u32]| topology.unit(core[0], *coarsest);
    cores.retain(|core| largest.first().is_none_or(|first| unit(core) != unit(first)));
    let mut picked = largest.concat();
    picked.extend(place(count.saturating_sub(picked.len()), cores, levels, topology));
    picked
}

/// The cores by what they share at this level.
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
    use crate::model::topology::Place;
    use proptest::prelude::*;

    /// What a job of so many CPUs gets on this host where these are taken.
    fn picked(host: &Topology, count: usize, taken: &[u32]) -> Vec<u32> {
        let free = host.cpus().into_iter().filter(|cpu| !taken.contains(cpu)).collect();
        pick(count, &free, &host.cpus(), host)
    }

    #[test]
    fn a_core_is_not_shared_while_another_is_free() {
        // CPUs 0 and 4, 1 and 5, 2 and 6, 3 and 7 share a core.
        let host = Topology::uniform(1, 4, 2);
        assert_eq!(picked(&host, 1, &[]), [0]);
        assert_eq!(picked(&host, 1, &[0]), [1]);
        assert_eq!(picked(&host, 1, &[0, 1, 2, 3]), [4]);
        assert_eq!(picked(&host, 2, &[]), [0, 4], "both threads of one core");
        assert_eq!(picked(&host, 3, &[0]), [1, 2, 5]);
        assert_eq!(
            picked(&host, 7, &[2]),
            [0, 1, 3, 4, 5, 6, 7],
            "what is left of a shared core comes last"
        );
        assert_eq!(picked(&host, 2, &[0, 1, 2, 7]), [3, 4], "none is whole");
    }

    #[test]
    fn a_job_stays_in_one_socket_and_leaves_the_emptier_one_whole() {
        // Cores 0 to 3 in the first socket, 4 to 7 in the second.
        let host = Topology::uniform(2, 4, 1);
        assert_eq!(picked(&host, 3, &[0, 1]), [4, 5, 6]);
        assert_eq!(picked(&host, 2, &[0, 1]), [2, 3], "the socket that is left with the least");
        assert_eq!(picked(&host, 1, &[4, 5, 6]), [7]);
        assert_eq!(picked(&host, 5, &[]), [0, 1, 2, 3, 4]);
        assert_eq!(picked(&host, 5, &[0]), [1, 4, 5, 6, 7], "the whole socket first");
        assert_eq!(picked(&host, 8, &[]), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_numa_node_is_kept_to_within_and_across_sockets() {
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
    fn cpus_that_are_not_there_are_given_by_number() {
        let all = [0, 1, 2, 3];
        let free = |taken: &[u32]| {
            all.iter().copied().filter(|cpu| !taken.contains(cpu)).collect::<BTreeSet<u32>>()
        };
        assert_eq!(pick(3, &free(&[]), &all, &Topology::default()), [0, 1, 2]);
        assert_eq!(pick(2, &free(&[0]), &all, &Topology::uniform(1, 2, 1)), [1, 2]);
        assert_eq!(pick(9, &free(&[1]), &all, &Topology::default()), [0, 2, 3]);
    }

    #[test]
    fn a_part_of_the_host_is_made_of_its_own_cpus_and_more_than_all_has_further_numbers() {
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
        fn what_is_picked_is_free_as_many_as_asked_for_and_in_whole_cores_first(
            shape in (1u32..4, 1u32..5, 1u32..3),
            nodes in 1u32..4,
            taken in prop::collection::btree_set(0u32..32, 0..32),
            count in 0usize..34,
        ) {
            let host = Topology::uniform(shape.0, shape.1, shape.2);
            let renamed = host.cpus().into_iter().map(|cpu| Place { ldom: cpu % nodes, ..host.place(cpu) });
            for host in [host.clone(), Topology::new(renamed.collect())] {
                let free: BTreeSet<u32> = host.cpus().into_iter().filter(|cpu| !taken.contains(cpu)).collect();
                let got = pick(count, &free, &host.cpus(), &host);
                prop_assert_eq!(got.len(), count.min(free.len()));
                prop_assert!(got.iter().all(|cpu| free.contains(cpu)));
                prop_assert!(got.windows(2).all(|pair| pair[0] < pair[1]));
                // Of a core that others use only when no whole one is left.
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
