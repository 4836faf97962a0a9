//! The CPUs that jobs may use, and their sockets, cores, threads and NUMA nodes, as reported by
//! sysfs.

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use slotd_model::topology::{Place, Topology};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The highest CPU number in a list. No machine has more CPUs, and a list of billions must not be
/// expanded.
const MAX_NUMBER: u32 = 65_535;

/// Parses a list in the kernel's format, such as `0-3,8,10-11`. Returns `None` if it is invalid.
fn parse_list(text: &str) -> Option<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        found.extend(first..=last.min(MAX_NUMBER));
    }
    Some(found)
}

fn read_list(path: &Path) -> Option<BTreeSet<u32>> {
    parse_list(&fs::read_to_string(path).ok()?)
}

/// Reads the topology of those of the given CPUs that are online, from a directory with the
/// structure of `/sys/devices/system`.
///
/// A CPU without topology information counts as a separate core in socket 0 and NUMA node 0.
///
/// # Errors
/// Fails if the list of online CPUs exists but cannot be read.
fn read(dir: &Path, usable: &BTreeSet<u32>) -> io::Result<Topology> {
    let online = match fs::read_to_string(dir.join("cpu/online")) {
        Ok(text) => parse_list(&text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    let is_online = |cpu: &&u32| online.as_ref().is_none_or(|online| online.contains(cpu));
    let cpus: BTreeSet<u32> = usable.iter().filter(is_online).copied().collect();
    let ldoms: Vec<(u32, BTreeSet<u32>)> = read_list(&dir.join("node/online"))
        .unwrap_or_default()
        .into_iter()
        .filter_map(|node| Some((node, read_list(&dir.join(format!("node/node{node}/cpulist")))?)))
        .collect();
    let place = |&cpu: &u32| {
        let about = dir.join(format!("cpu/cpu{cpu}/topology"));
        // The first name is the newer one.
        let threads = ["core_cpus_list", "thread_siblings_list"]
            .iter()
            .find_map(|name| read_list(&about.join(name)));
        let core = threads.unwrap_or_default().intersection(&cpus).next().copied().unwrap_or(cpu);
        let socket = fs::read_to_string(about.join("physical_package_id")).ok();
        // -1 if the machine does not report it.
        let socket = socket.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let ldom = ldoms.iter().find(|(_, cpus)| cpus.contains(&cpu)).map_or(0, |(node, _)| *node);
        Place { cpu, core, socket, ldom }
    };
    Ok(Topology::new(cpus.iter().map(place).collect()))
}

/// Returns the CPUs that this process may run on, with their topology.
///
/// # Errors
/// Fails if `sched_getaffinity` fails or the list of online CPUs cannot be read.
pub fn probe() -> io::Result<Topology> {
    if let Some(dir) = pretended() {
        let all = (0..=MAX_NUMBER).collect();
        return read(&dir, &all);
    }
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let usable = (0u32..)
        .take(CpuSet::count())
        .filter(|cpu| allowed.is_set(*cpu as usize).unwrap_or(false))
        .collect();
    let found = read(Path::new("/sys/devices/system"), &usable)?;
    // A sandbox may show the CPU list of another machine, but the usable CPUs do exist.
    if found.cpus().is_empty() { read(Path::new(""), &usable) } else { Ok(found) }
}

/// Returns the directory that simulates another host in tests of the daemon. It has the structure
/// of `/sys/devices/system`. No process can be bound to its CPUs.
#[cfg(debug_assertions)]
pub(super) fn pretended() -> Option<PathBuf> {
    std::env::var_os("SLOTD_TEST_SYSFS").map(PathBuf::from)
}

#[cfg(not(debug_assertions))]
pub(super) const fn pretended() -> Option<PathBuf> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::topology::Level;

    /// Writes a directory with the structure of sysfs: a socket and the CPUs of the core for each
    /// CPU, and the CPUs for each node.
    fn sysfs(online: &str, cpus: &[(u32, i32, &str)], nodes: &[(u32, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: String, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        };
        put("cpu/online".into(), online);
        for (cpu, socket, core) in cpus {
            put(format!("cpu/cpu{cpu}/topology/physical_package_id"), &socket.to_string());
            put(format!("cpu/cpu{cpu}/topology/thread_siblings_list"), core);
        }
        put(
            "node/online".into(),
            &nodes.iter().map(|(node, _)| node.to_string()).collect::<Vec<_>>().join(","),
        );
        for (node, cpus) in nodes {
            put(format!("node/node{node}/cpulist"), cpus);
        }
        dir
    }

    fn usable(list: &str) -> BTreeSet<u32> {
        parse_list(list).unwrap()
    }

    #[test]
    fn kernel_cpu_lists_are_parsed() {
        assert_eq!(usable("0-2,8,10-11\n").into_iter().collect::<Vec<_>>(), [0, 1, 2, 8, 10, 11]);
        assert!(usable("\n").is_empty());
        assert_eq!(parse_list("0-x"), None);
        assert_eq!(parse_list("0-4294967295").map(|list| list.len()), Some(65_536));
    }

    #[test]
    fn sockets_threads_and_nodes_are_read() {
        let cpus: Vec<(u32, i32, String)> = (0..16)
            .map(|cpu| (cpu, (cpu % 8 / 4) as i32, format!("{},{}", cpu % 8, cpu % 8 + 8)))
            .collect();
        let cpus: Vec<(u32, i32, &str)> =
            cpus.iter().map(|(cpu, socket, core)| (*cpu, *socket, core.as_str())).collect();
        let dir = sysfs("0-15", &cpus, &[(0, "0-3,8-11"), (1, "4-7,12-15")]);
        let place = |cpu| Place { cpu, core: cpu % 8, socket: cpu % 8 / 4, ldom: cpu % 8 / 4 };
        let expected = Topology::new((0..16).map(place).collect());
        assert_eq!(read(dir.path(), &usable("0-15")).unwrap(), expected);
    }

    #[test]
    fn gaps_and_offline_cpus_are_ignored() {
        let dir = sysfs(
            "0,2-3,7",
            &[(0, 0, "0-1"), (2, 0, "2-3"), (3, 0, "2-3"), (7, 1, "6-7")],
            &[(2, "0-3"), (5, "6-7")],
        );
        let found = read(dir.path(), &usable("0-63")).unwrap();
        assert_eq!(found.cpus(), [0, 2, 3, 7]);
        assert_eq!(found.group(found.cpus(), Level::Core), [vec![0], vec![2, 3], vec![7]]);
        assert_eq!(found.place(7), Place { cpu: 7, core: 7, socket: 1, ldom: 5 });
        // A core with only one usable thread has the number of that thread.
        assert_eq!(read(dir.path(), &usable("3,7")).unwrap().place(3).core, 3);
    }

    #[test]
    fn cpus_without_topology_are_single_cores() {
        let dir = tempfile::tempdir().unwrap();
        let found = read(dir.path(), &usable("4-5")).unwrap();
        assert_eq!(found.place(5), Place { cpu: 5, core: 5, socket: 0, ldom: 0 });
        let unknown_socket = sysfs("0", &[(0, -1, "0")], &[]);
        assert_eq!(read(unknown_socket.path(), &usable("0")).unwrap().place(0).socket, 0);
    }

    #[test]
    fn this_host_has_cpus() {
        let found = probe().unwrap();
        assert!(!found.cpus().is_empty());
        let product = found.sockets() * found.cores_per_socket() * found.threads_per_core();
        assert!(product as usize >= found.cpus().len());
    }
}
