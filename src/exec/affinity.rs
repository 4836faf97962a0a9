//! Binds processes to CPUs and to the memory of NUMA nodes. Other modules interpret `--cpu-bind`
//! and `--mem-bind`.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use slotd_sys::system::reason;
use std::io;

/// Binds the calling process to these logical CPUs. An empty list changes nothing.
///
/// # Errors
/// Fails if a number exceeds the size of the kernel's CPU set, or if none of the CPUs may be used.
/// The error names the CPUs.
pub fn bind(cpus: &[u32]) -> io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu as usize).map_err(|e| failed(cpus, e))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(|e| failed(cpus, e))
}

/// Moves the threads of a process after its allowed CPUs have changed. Threads that may run on all
/// of `from` may run on all of `to` afterwards, and no thread keeps a CPU outside `to`. A thread
/// that restricted itself to some CPUs keeps those of them that are in `to`. Ignores threads that
/// have exited or that cannot be moved.
pub fn follow(pid: i32, from: &[u32], to: &[u32]) {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for thread in
        threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(Pid::from_raw)
    {
        let Ok(set) = sched_getaffinity(thread) else { continue };
        let may_use = |cpu: &&u32| set.is_set(**cpu as usize).unwrap_or(false);
        let had_all = !from.is_empty() && from.iter().all(|cpu| may_use(&cpu));
        let kept: Vec<u32> = to.iter().filter(may_use).copied().collect();
        let wanted = if had_all || kept.is_empty() { to } else { &kept };
        let mut cpus = CpuSet::new();
        let is_whole = wanted.iter().all(|cpu| cpus.set(*cpu as usize).is_ok());
        if is_whole && !wanted.is_empty() && cpus != set {
            let _ = sched_setaffinity(thread, &cpus);
        }
    }
}

/// Returns the CPUs that the calling process may use, in Slurm's format: a hexadecimal mask without
/// leading zeros.
pub fn mask() -> String {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return "0x0".to_owned() };
    hexadecimal(CpuSet::count(), |cpu| set.is_set(cpu).unwrap_or(false))
}

/// Returns a mask of the numbers below `count` that are set.
fn hexadecimal(count: usize, is_set: impl Fn(usize) -> bool) -> String {
    let is_set = |number: usize| number < count && is_set(number);
    let digits: String = (0..count.div_ceil(4))
        .rev()
        .map(|digit| (0..4).fold(0, |bits, bit| bits | u32::from(is_set(digit * 4 + bit)) << bit))
        .map(|digit| char::from_digit(digit, 16).unwrap_or('0'))
        .collect();
    match digits.trim_start_matches('0') {
        "" => "0x0".to_owned(),
        significant => format!("0x{significant}"),
    }
}

/// Returns whether the calling process may use all these CPUs. False for an empty list.
pub(crate) fn may_use(cpus: &[u32]) -> bool {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return false };
    let may_use = |cpu: &u32| set.is_set(*cpu as usize).unwrap_or(false);
    !cpus.is_empty() && cpus.iter().all(may_use)
}

/// Binds the memory of the calling process and its children to these NUMA nodes. With `prefers`,
/// other nodes are used once these are full. Returns the nodes as a mask.
///
/// # Errors
/// Fails if a node does not exist or the system forbids the binding. The error names the nodes.
pub(crate) fn bind_memory(nodes: &[u32], prefers: bool) -> io::Result<String> {
    const MAX_NODES: usize = 1024;
    const WORD: usize = std::ffi::c_ulong::BITS as usize;
    let list = || nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let failed = |e: io::Error| {
        io::Error::new(
            e.kind(),
            format!("could not bind memory to NUMA nodes {}: {}", list(), reason(&e)),
        )
    };
    let mut mask: [std::ffi::c_ulong; MAX_NODES / WORD] = [0; MAX_NODES / WORD];
    for &node in nodes {
        let word = mask
            .get_mut(node as usize / WORD)
            .ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        *word |= 1 << (node as usize % WORD);
    }
    let policy = if prefers { libc::MPOL_PREFERRED } else { libc::MPOL_BIND };
    // SAFETY: the kernel reads at most the bits of `mask`, which is alive. It subtracts 1 from the
    // length, hence the + 1.
    let done =
        unsafe { libc::syscall(libc::SYS_set_mempolicy, policy, mask.as_ptr(), MAX_NODES + 1) };
    match done {
        0 => Ok(hexadecimal(MAX_NODES, |node| mask[node / WORD] >> (node % WORD) & 1 == 1)),
        _ => Err(failed(io::Error::last_os_error())),
    }
}

fn failed(cpus: &[u32], e: nix::Error) -> io::Error {
    let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
    io::Error::new(
        io::Error::from(e).kind(),
        format!("could not bind to CPUs {}: {}", list.join(","), e.desc()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_where_it_was_bound() {
        // Affinity belongs to the thread, so other tests are not affected.
        std::thread::spawn(|| {
            let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
            let cpu = (0..CpuSet::count()).find(|c| allowed.is_set(*c).unwrap()).unwrap() as u32;
            bind(&[cpu]).unwrap();
            let now = sched_getaffinity(Pid::from_raw(0)).unwrap();
            assert!((0..CpuSet::count()).all(|c| now.is_set(c).unwrap() == (c as u32 == cpu)));
            assert_eq!(mask(), format!("{:#x}", 1u128 << cpu));
            bind(&[]).unwrap();
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_numa_node_that_does_not_exist_is_named() {
        for node in [1_023, 1_000_000] {
            let error = bind_memory(&[node], false).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("could not bind memory to NUMA nodes {node}: ")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_named() {
        let error = bind(&[1_000_000]).unwrap_err().to_string();
        assert!(error.contains("1000000"), "{error}");
    }
}
