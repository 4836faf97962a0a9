//! How the CPUs of the host hang together: threads in cores, cores in sockets, and which of them
//! share a NUMA node.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// Where one logical CPU sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    pub cpu: u32,
    /// The lowest usable CPU of its core: a name for the core.
    pub core: u32,
    pub socket: u32,
    /// The number of its NUMA node, which Slurm calls a locality domain (`ldom`).
    pub ldom: u32,
}

/// What CPUs may share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Core,
    Socket,
    Ldom,
}

/// The places of the CPUs that this machine really has and jobs may run on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Topology {
    /// Ascending by CPU, each once.
    places: Vec<Place>,
}

impl Topology {
    pub fn new(mut places: Vec<Place>) -> Topology {
        places.sort_unstable();
        places.dedup_by_key(|place| place.cpu);
        Topology { places }
    }

    /// Ascending by CPU.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The CPUs that are really there, ascending.
    pub fn cpus(&self) -> Vec<u32> {
        self.places.iter().map(|place| place.cpu).collect()
    }

    /// Whether all of these CPUs are really there: a daemon may be told to count more than the
    /// machine has.
    pub fn has_all(&self, cpus: &[u32]) -> bool {
        cpus.iter().all(|cpu| self.find(*cpu).is_some())
    }

    fn find(&self, cpu: u32) -> Option<Place> {
        let at = self.places.binary_search_by_key(&cpu, |place| place.cpu).ok()?;
        self.places.get(at).copied()
    }

    /// Where a CPU sits. One that is not there counts as a core of its own in the first socket.
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

    /// What the CPU is in, by its number.
    pub fn unit(&self, cpu: u32, level: Level) -> u32 {
        let place = self.place(cpu);
        match level {
            Level::Core => place.core,
            Level::Socket => place.socket,
            Level::Ldom => place.ldom,
        }
    }

    /// These CPUs by what they share; the groups and the CPUs of each in the order in which they
    /// come.
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

    /// With a part of the host the numbers need not divide; Slurm then shows the rounded-up ones
    /// too.
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
impl Topology {
    /// A host whose CPUs are numbered as most machines do it: the first threads of all cores, then
    /// the second ones. Each socket is a NUMA node.
    pub fn uniform(sockets: u32, cores: u32, threads: u32) -> Topology {
        let all = sockets * cores;
        let place = |cpu: u32| {
            let core = cpu % all;
            Place { cpu, core, socket: core / cores, ldom: core / cores }
        };
        Topology::new((0..all * threads).map(place).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_told_in_sockets_cores_and_threads() {
        let host = Topology::uniform(2, 4, 2);
        assert_eq!((host.sockets(), host.cores_per_socket(), host.threads_per_core()), (2, 4, 2));
        assert_eq!(host.group([0, 4, 8, 9], Level::Core), [vec![0, 8], vec![4], vec![9]]);
        assert_eq!(host.group([0, 4, 8, 9], Level::Socket), [vec![0, 8, 9], vec![4]]);
        assert!(host.has_all(&[0, 15]) && !host.has_all(&[0, 16]));
        // A part of a host: two whole cores of the first socket and one of the second.
        let part = Topology::new(
            host.places.iter().filter(|p| [0, 8, 1, 9, 4].contains(&p.cpu)).copied().collect(),
        );
        assert_eq!((part.sockets(), part.cores_per_socket(), part.threads_per_core()), (2, 2, 2));
    }

    #[test]
    fn a_cpu_that_is_not_there_is_a_core_of_its_own() {
        assert_eq!(Topology::default().place(7), Place { cpu: 7, core: 7, socket: 0, ldom: 0 });
        let none = Topology::default();
        assert_eq!((none.sockets(), none.cores_per_socket(), none.threads_per_core()), (1, 1, 1));
        assert_eq!(
            Topology::uniform(1, 2, 1).group([0, 1, 2, 3], Level::Socket),
            [vec![0, 1, 2, 3]]
        );
    }
}
