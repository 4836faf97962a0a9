//! Which CPUs a process may run on. What a `--cpu-bind` means for a task is decided elsewhere; here it is done.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::io;

/// Binds the calling process to these logical CPUs. An empty list changes nothing.
///
/// # Errors
/// A number beyond what the kernel's set can hold, or none of the CPUs may be used. The text names the CPUs.
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

/// The CPUs that the calling process may use, as Slurm writes them: a hexadecimal mask without leading zeros.
pub fn mask() -> String {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return "0x0".to_owned() };
    let is_set = |cpu: usize| cpu < CpuSet::count() && set.is_set(cpu).unwrap_or(false);
    let digits: String = (0..CpuSet::count().div_ceil(4))
        .rev()
        .map(|digit| (0..4).fold(0, |bits, bit| bits | u32::from(is_set(digit * 4 + bit)) << bit))
        .map(|digit| char::from_digit(digit, 16).unwrap_or('0'))
        .collect();
    match digits.trim_start_matches('0') {
        "" => "0x0".to_owned(),
        significant => format!("0x{significant}"),
    }
}

/// Whether the calling process may use all these CPUs, and there are some.
pub fn may_use(cpus: &[u32]) -> bool {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return false };
    let may_use = |cpu: &u32| set.is_set(*cpu as usize).unwrap_or(false);
    !cpus.is_empty() && cpus.iter().all(may_use)
}

fn failed(cpus: &[u32], e: nix::Error) -> io::Error {
    let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
    io::Error::new(io::Error::from(e).kind(), format!("could not bind to CPUs {}: {}", list.join(","), e.desc()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_where_it_was_bound() {
        // Affinity belongs to the thread: the other tests do not notice.
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
    fn a_cpu_that_does_not_exist_is_named() {
        let error = bind(&[1_000_000]).unwrap_err().to_string();
        assert!(error.contains("1000000"), "{error}");
    }
}
