//! The CPUs that jobs may use, and how sockets, cores and threads hang together.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

/// Where one logical CPU sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub cpu: u32,
    /// `physical_package_id`.
    pub socket: i32,
    /// `core_id`: unique within its socket alone.
    pub core: i32,
}

/// The usable CPUs of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Ascending.
    pub cpu_ids: Vec<u32>,
    pub sockets: u32,
    pub cores_per_socket: u32,
    pub threads_per_core: u32,
    /// CPUs that share a core, cores in order of their first CPU: what `--cpu-bind=cores` binds to.
    pub cores: Vec<Vec<u32>>,
    /// CPUs that share a socket.
    pub socket_cpus: Vec<Vec<u32>>,
}

/// The topology of these CPUs. A CPU without a place counts as a core and a socket 0 of its own kind, as on machines
/// whose sysfs does not tell.
pub fn topology(cpu_ids: &[u32], places: &[Place]) -> Topology {
    let cpu_ids: Vec<u32> = cpu_ids.iter().copied().collect::<BTreeSet<u32>>().into_iter().collect();
    let mut cores: Vec<((i32, i32), Vec<u32>)> = Vec::new();
    let mut sockets: Vec<(i32, Vec<u32>)> = Vec::new();
    for &cpu in &cpu_ids {
        let place = places.iter().find(|p| p.cpu == cpu);
        // A core id below zero is none: the CPU is a core of its own.
        let core = place.map_or((-1, cpu as i32), |p| (p.socket, p.core));
        let socket = place.map_or(0, |p| p.socket);
        match cores.iter_mut().find(|(key, _)| *key == core) {
            Some((_, cpus)) => cpus.push(cpu),
            None => cores.push((core, vec![cpu])),
        }
        match sockets.iter_mut().find(|(key, _)| *key == socket) {
            Some((_, cpus)) => cpus.push(cpu),
            None => sockets.push((socket, vec![cpu])),
        }
    }
    let cores: Vec<Vec<u32>> = cores.into_iter().map(|(_, cpus)| cpus).collect();
    let socket_cpus: Vec<Vec<u32>> = sockets.into_iter().map(|(_, cpus)| cpus).collect();
    let socket_count = socket_cpus.len().max(1);
    Topology {
        sockets: socket_count as u32,
        // With a part of the host the numbers need not divide; Slurm then shows the rounded-up ones too.
        cores_per_socket: cores.len().div_ceil(socket_count).max(1) as u32,
        threads_per_core: cores.iter().map(Vec::len).max().unwrap_or(1) as u32,
        cpu_ids,
        cores,
        socket_cpus,
    }
}

/// The CPUs that this process may run on, and where they sit.
///
/// # Errors
/// `sched_getaffinity` failed.
pub fn probe() -> io::Result<Topology> {
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0))?;
    let cpu_ids: Vec<u32> = (0..nix::sched::CpuSet::count())
        .filter(|cpu| allowed.is_set(*cpu).unwrap_or(false))
        .map(|cpu| cpu as u32)
        .collect();
    let places: Vec<Place> = cpu_ids.iter().filter_map(|cpu| place(*cpu)).collect();
    Ok(topology(&cpu_ids, &places))
}

fn place(cpu: u32) -> Option<Place> {
    let dir = Path::new("/sys/devices/system/cpu").join(format!("cpu{cpu}/topology"));
    let number = |name: &str| fs::read_to_string(dir.join(name)).ok()?.trim().parse::<i32>().ok();
    Some(Place { cpu, socket: number("physical_package_id")?.max(0), core: number("core_id")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hyperthreads_share_a_core() {
        let places: Vec<Place> =
            (0..8).map(|cpu| Place { cpu, socket: (cpu as i32 % 4) / 2, core: cpu as i32 % 2 }).collect();
        let t = topology(&[0, 1, 2, 3, 4, 5, 6, 7], &places);
        assert_eq!((t.sockets, t.cores_per_socket, t.threads_per_core), (2, 2, 2));
        assert_eq!(t.cores, [[0, 4], [1, 5], [2, 6], [3, 7]]);
        assert_eq!(t.socket_cpus, [vec![0, 1, 4, 5], vec![2, 3, 6, 7]]);
    }

    #[test]
    fn a_part_of_the_host_counts_what_may_be_used() {
        let places = [Place { cpu: 2, socket: 0, core: 2 }];
        let t = topology(&[2, 3], &places);
        assert_eq!((t.sockets, t.cores_per_socket, t.threads_per_core), (1, 2, 1));
        assert_eq!(topology(&[], &[]).sockets, 1);
    }

    #[test]
    fn this_host_has_the_cpus_that_it_runs_on() {
        let t = probe().unwrap();
        assert!(!t.cpu_ids.is_empty());
        assert!(t.sockets * t.cores_per_socket * t.threads_per_core >= t.cpu_ids.len() as u32);
    }
}
