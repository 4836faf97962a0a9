//! CPU topology of the host: threads of cores, cores of sockets, and the CPUs of NUMA nodes.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// The location of a logical CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    pub cpu: u32,
    /// The lowest usable CPU of its core, which identifies the core.
    pub core: u32,
    pub socket: u32,
    /// The number of its NUMA node, which Slurm calls a locality domain (`ldom`).
    pub ldom: u32,
}

/// A unit that CPUs may share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Core,
    Socket,
    Ldom,
}

/// The locations of the existing CPUs that jobs may run on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Topology {
    /// Ascending by CPU, without duplicates.
    places: Vec<Place>,
}

impl Topology {
    pub fn new(mut places: Vec<Place>) -> Topology {
        places.sort_unstable();
        places.dedup_by_key(|place| place.cpu);
        Topology { places }
    }

    /// Returns the locations, ascending by CPU.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Returns the numbers of the CPUs, ascending.
    pub fn cpus(&self) -> Vec<u32> {
        self.places.iter().map(|place| place.cpu).collect()
    }

    /// Returns whether all of these CPUs exist. The daemon may be configured to use more CPUs than
    /// the machine has.
    pub fn has_all(&self, cpus: &[u32]) -> bool {
        cpus.iter().all(|cpu| self.find(*cpu).is_some())
    }

    fn find(&self, cpu: u32) -> Option<Place> {
        let at = self.places.binary_search_by_key(&cpu, |place| place.cpu).ok()?;
        self.places.get(at).copied()
    }

    /// Returns the location of a CPU. A CPU that does not exist counts as a separate core of the
    /// first socket.
    pub fn place(&self, cpu: u32) -> Place {
        let first = self.places.first();
        let beside = |of: fn(&Place) -> u32| first.map_or(0, of);
        let unknown = Place {
            cpu,
            core: cpu,
            socket: beside(|first| first.socket),
            ldom: beside(|first| first.ldom),
        };
        self.find(cpu).unwrap_or(unknown)
    }

    /// Returns the number of the unit that contains the CPU.
    pub fn unit(&self, cpu: u32, level: Level) -> u32 {
        let place = self.place(cpu);
        match level {
            Level::Core => place.core,
            Level::Socket => place.socket,
            Level::Ldom => place.ldom,
        }
    }

    /// Groups CPUs by the unit that contains them. Groups, and the CPUs in each, keep the order of
    /// `cpus`.
    pub fn group(&self, cpus: impl IntoIterator<Item = u32>, level: Level) -> Vec<Vec<u32>> {
        let mut found: Vec<Vec<u32>> = Vec::new();
        let mut at: HashMap<u32, usize> = HashMap::new();
        for cpu in cpus {
            let group = *at.entry(self.unit(cpu, level)).or_insert(found.len());
            match found.get_mut(group) {
                Some(known) => known.push(cpu),
                None => found.push(vec![cpu]),
            }
        }
        found
    }

    fn count(&self, level: Level) -> u32 {
        let units: BTreeSet<u32> =
            self.places.iter().map(|place| self.unit(place.cpu, level)).collect();
        u32::try_from(units.len().max(1)).unwrap_or(u32::MAX)
    }

    pub fn sockets(&self) -> u32 {
        self.count(Level::Socket)
    }

    pub fn ldoms(&self) -> u32 {
        self.count(Level::Ldom)
    }

    /// Returns the number of cores per socket, rounded up: jobs may use only part of the host, and
    /// then the numbers need not divide evenly. Slurm rounds up too.
    pub fn cores_per_socket(&self) -> u32 {
        self.count(Level::Core).div_ceil(self.sockets())
    }

    pub fn threads_per_core(&self) -> u32 {
        let cores = self.group(self.places.iter().map(|place| place.cpu), Level::Core);
        let most = cores.iter().map(Vec::len).max().unwrap_or(1);
        u32::try_from(most).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_counted_in_sockets_cores_and_threads() {
        let place = |cpu| Place { cpu, core: cpu % 8, socket: cpu % 8 / 4, ldom: cpu % 8 / 4 };
        let host = Topology::new((0..16).map(place).collect());
        assert_eq!((host.sockets(), host.cores_per_socket(), host.threads_per_core()), (2, 4, 2));
        assert_eq!(host.group([0, 4, 8, 9], Level::Core), [vec![0, 8], vec![4], vec![9]]);
        assert_eq!(host.group([0, 4, 8, 9], Level::Socket), [vec![0, 8, 9], vec![4]]);
        assert!(host.has_all(&[0, 15]) && !host.has_all(&[0, 16]));
        // Part of a host: two whole cores of the first socket and one thread of the second socket.
        let part = Topology::new(
            host.places.iter().filter(|p| [0, 8, 1, 9, 4].contains(&p.cpu)).copied().collect(),
        );
        assert_eq!((part.sockets(), part.cores_per_socket(), part.threads_per_core()), (2, 2, 2));
    }

    #[test]
    fn a_nonexistent_cpu_counts_as_a_separate_core() {
        assert_eq!(Topology::default().place(7), Place { cpu: 7, core: 7, socket: 0, ldom: 0 });
        let none = Topology::default();
        assert_eq!((none.sockets(), none.cores_per_socket(), none.threads_per_core()), (1, 1, 1));
        assert_eq!(
            Topology::new(vec![none.place(0), none.place(1)]).group([0, 1, 2, 3], Level::Socket),
            [vec![0, 1, 2, 3]]
        );
    }
}
