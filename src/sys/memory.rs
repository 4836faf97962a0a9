//! The host's memory, from `/proc/meminfo`, in megabytes, as everywhere in Slurm; and what this
//! process does with its own.

use crate::sys::{cpus, proc};
use std::{fs, io};

/// What is taken where `/proc/meminfo` does not tell.
const FALLBACK_MB: u64 = 16384;

/// The value of one line of `/proc/meminfo` in KiB.
fn parse_kb(meminfo: &str, name: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The same in MB, rounded down.
fn parse_mb(meminfo: &str, name: &str) -> Option<u64> {
    parse_kb(meminfo, name).map(|kb| kb / 1024)
}

/// `MemTotal`, or what is taken where the kernel does not tell.
fn parse_total_mb(meminfo: &str) -> u64 {
    parse_mb(meminfo, "MemTotal").filter(|mb| *mb > 0).unwrap_or(FALLBACK_MB)
}

/// `MemAvailable`: what a new process could get. 0 where the kernel does not tell.
fn parse_free_mb(meminfo: &str) -> u64 {
    parse_mb(meminfo, "MemAvailable").or_else(|| parse_mb(meminfo, "MemFree")).unwrap_or(0)
}

/// Memory that a new process could not get, and swap that is in use, KiB.
fn parse_used_kb(meminfo: &str) -> (u64, u64) {
    let kb = |name| parse_kb(meminfo, name);
    let memory = kb("MemTotal").zip(kb("MemAvailable").or_else(|| kb("MemFree")));
    let used =
        |pair: Option<(u64, u64)>| pair.map_or(0, |(total, free)| total.saturating_sub(free));
    (used(memory), used(kb("SwapTotal").zip(kb("SwapFree"))))
}

fn read() -> String {
    proc::read("/proc/meminfo")
        .ok()
        .and_then(|text| String::from_utf8(text).ok())
        .unwrap_or_default()
}

/// The memory of this host.
///
/// # Errors
/// It cannot be read now.
pub fn probe_total_mb() -> io::Result<u64> {
    let pretended = cpus::pretended().and_then(|dir| fs::read_to_string(dir.join("meminfo")).ok());
    match pretended.map_or_else(|| fs::read_to_string("/proc/meminfo"), Ok) {
        Ok(meminfo) => Ok(parse_total_mb(&meminfo)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(FALLBACK_MB),
        Err(e) => Err(e),
    }
}

/// The memory that is not in use now.
pub fn probe_free_mb() -> u64 {
    parse_free_mb(&read())
}

/// Memory and swap that are in use now, KiB; 0 where the kernel does not tell.
pub fn probe_used_kb() -> (u64, u64) {
    parse_used_kb(&read())
}

/// A count of `/proc/vmstat`.
fn parse_count(vmstat: &str, name: &str) -> Option<u64> {
    let value = vmstat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}

/// How many processes the kernel has ended for lack of memory since the start of the machine, in
/// whichever cgroup; `None` if it does not say (Linux before 4.13, some containers).
pub fn probe_oom_kills() -> Option<u64> {
    parse_count(&String::from_utf8(proc::read("/proc/vmstat").ok()?).ok()?, "oom_kill")
}

/// Has this process keep the memory that it frees for what comes next. The C library would give
/// much of it back, and each page that is taken again costs time. For commands: they end soon.
pub fn keep_freed() {
    #[cfg(target_env = "gnu")]
    for (what, megabytes) in
        [(libc::M_TRIM_THRESHOLD, 64), (libc::M_MMAP_THRESHOLD, 32), (libc::M_TOP_PAD, 1)]
    {
        // SAFETY: it takes two numbers, and no thread runs yet.
        unsafe { libc::mallopt(what, megabytes << 20) };
    }
}

/// Gives the memory that this process has freed back to the system. The C library keeps most of it
/// otherwise: what is freed lies between what is in use.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a number, and any thread may call it.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Has this process return each large piece of memory when it is freed. The C library would come to
/// keep such pieces, on each thread that had one. For the daemon: it lives long, and is seldom
/// asked for anything large.
pub fn return_large() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes two numbers, and no thread runs yet.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "MemTotal:       24684148 kB\nMemFree:         1024000 kB\nMemAvailable:   2048000 kB\n";

    #[test]
    fn the_total_is_whole_megabytes() {
        assert_eq!(parse_total_mb(TEXT), 24105);
        assert_eq!(parse_free_mb(TEXT), 2000);
    }

    #[test]
    fn what_is_used_is_what_nobody_else_can_have() {
        let text = format!("{TEXT}SwapTotal: 1000 kB\nSwapFree: 400 kB\n");
        assert_eq!(parse_used_kb(&text), (24_684_148 - 2_048_000, 600));
        assert_eq!(parse_used_kb("MemTotal: 100 kB\nMemFree: 30 kB\n"), (70, 0));
        assert_eq!(parse_used_kb(""), (0, 0));
    }

    #[test]
    fn the_count_of_out_of_memory_kills_is_read_by_its_whole_name() {
        let text = "nr_free_pages 12\noom_kill_x 7\noom_kill 3\n";
        assert_eq!(parse_count(text, "oom_kill"), Some(3));
        assert_eq!(parse_count("oom_kill many\n", "oom_kill"), None);
        assert_eq!(parse_count("", "oom_kill"), None);
    }

    #[test]
    fn an_unreadable_total_is_the_fallback() {
        for text in ["", "MemTotal: lots\n", "MemTotal: 0 kB\n", "MemTotalX: 5000 kB\n"] {
            assert_eq!(parse_total_mb(text), FALLBACK_MB, "{text:?}");
        }
    }

    #[test]
    fn this_host_has_memory() {
        assert!(probe_total_mb().unwrap() > 0);
    }
}
