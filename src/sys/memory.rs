//! The host's memory from `/proc/meminfo`, in megabytes as everywhere in Slurm, and settings for
//! the memory of this process.

use crate::{cpus, proc};
use std::ops::Range;
use std::{fs, io};

/// The assumed total if `/proc/meminfo` does not report it.
const FALLBACK_MB: u64 = 16384;

/// Parses the value of one line of `/proc/meminfo`, in KiB.
fn parse_kb(meminfo: &str, name: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Like [`parse_kb`], but in MB, rounded down.
fn parse_mb(meminfo: &str, name: &str) -> Option<u64> {
    parse_kb(meminfo, name).map(|kb| kb / 1024)
}

/// Parses `MemTotal`, or returns the fallback.
fn parse_total_mb(meminfo: &str) -> u64 {
    parse_mb(meminfo, "MemTotal").filter(|mb| *mb > 0).unwrap_or(FALLBACK_MB)
}

/// Parses `MemAvailable`, the memory available to new processes. Returns 0 if it is not reported.
fn parse_free_mb(meminfo: &str) -> u64 {
    parse_mb(meminfo, "MemAvailable").or_else(|| parse_mb(meminfo, "MemFree")).unwrap_or(0)
}

/// Returns the memory that is not available to new processes, and the swap in use, in KiB.
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

/// Returns the total memory of this host.
///
/// # Errors
/// Fails if it cannot be read.
pub(crate) fn probe_total_mb() -> io::Result<u64> {
    let pretended = cpus::pretended().and_then(|dir| fs::read_to_string(dir.join("meminfo")).ok());
    match pretended.map_or_else(|| fs::read_to_string("/proc/meminfo"), Ok) {
        Ok(meminfo) => Ok(parse_total_mb(&meminfo)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(FALLBACK_MB),
        Err(e) => Err(e),
    }
}

/// Returns the memory that is currently available.
pub fn probe_free_mb() -> u64 {
    parse_free_mb(&read())
}

/// Returns the memory and swap currently in use, in KiB, or 0 if the kernel does not report it.
pub(crate) fn probe_used_kb() -> (u64, u64) {
    parse_used_kb(&read())
}

/// Parses a counter of `/proc/vmstat`.
fn parse_count(vmstat: &str, name: &str) -> Option<u64> {
    let value = vmstat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}

/// Returns the number of processes that the kernel has killed since boot because memory was
/// exhausted, in any cgroup. Returns `None` if it is not reported (Linux before 4.13, some
/// containers).
pub fn probe_oom_kills() -> Option<u64> {
    parse_count(&String::from_utf8(proc::read("/proc/vmstat").ok()?).ok()?, "oom_kill")
}

/// Makes the C library keep freed memory instead of returning it, since each page that is allocated
/// again costs time. Used by commands, which exit soon.
pub fn keep_freed() {
    #[cfg(target_env = "gnu")]
    for (what, megabytes) in
        [(libc::M_TRIM_THRESHOLD, 64), (libc::M_MMAP_THRESHOLD, 32), (libc::M_TOP_PAD, 1)]
    {
        // SAFETY: takes two numbers, and no other thread is running yet.
        unsafe { libc::mallopt(what, megabytes << 20) };
    }
}

/// Returns freed memory to the system. Otherwise, the C library keeps most of it because it lies
/// between blocks that are in use.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a number, and any thread may call it.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Makes the C library return each large block as soon as it is freed. Otherwise, each thread would
/// keep such blocks. Used by the daemon, which runs for a long time and rarely needs large blocks.
pub fn return_large() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes two numbers, and no other thread is running yet.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
    }
}

/// Returns the address ranges of the code in `maps`, the contents of `/proc/self/maps`.
fn code_in(maps: &str) -> Vec<Range<usize>> {
    let range = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (from, to) = fields.next()?.split_once('-')?;
        let is_code = fields.next()? == "r-xp" && fields.nth(3)?.starts_with('/');
        let [from, to] = [from, to].map(|address| usize::from_str_radix(address, 16));
        is_code.then_some(from.ok()?..to.ok()?)
    };
    maps.lines().filter_map(range).collect()
}

/// Unmaps the code that this process has executed so far. The kernel maps code again, from its
/// cache, when it is executed. The daemon calls this once it has started, since it never executes
/// much of that code again.
pub fn unmap_code() {
    let maps = proc::read("/proc/self/maps").unwrap_or_default();
    for code in code_in(&String::from_utf8_lossy(&maps)) {
        // SAFETY: nothing writes to these pages, so the file has the same content.
        unsafe {
            libc::madvise(code.start as *mut libc::c_void, code.len(), libc::MADV_DONTNEED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::ptr;

    #[test]
    fn only_mapped_files_that_can_be_executed_are_code() {
        let maps = "\
00400000-00401000 r--p 00000000 fe:00 11 /opt/a program
00401000-00421000 r-xp 00001000 fe:00 11 /opt/a program
00421000-00431000 r--p 00021000 fe:00 11 /opt/a program
00431000-00441000 rwxp 00031000 fe:00 11 /opt/a program
00441000-00442000 r-xp 00000000 00:00 0
00451000-00453000 r-xp 00001000 fe:00 12 /lib/libc.so.6
7ffc0000-7ffc2000 r-xp 00000000 00:00 0 [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
";
        assert_eq!(code_in(maps), [0x0040_1000..0x0042_1000, 0x0045_1000..0x0045_3000]);
        assert_eq!(code_in("nonsense\n\n1-2 r-xp\n"), []);
    }

    #[test]
    fn unmapped_code_is_mapped_again_when_it_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("code");
        fs::write(&path, [7; 4096]).unwrap();
        let file = fs::File::open(&path).unwrap();
        let (what, how) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE);
        // SAFETY: a new mapping of a file that nothing changes.
        let code = unsafe { libc::mmap(ptr::null_mut(), 4096, what, how, file.as_raw_fd(), 0) };
        assert_ne!(code, libc::MAP_FAILED);
        // SAFETY: the mapping is readable, and stays.
        let used = || unsafe { code.cast::<u8>().read_volatile() };
        let mapped_kb = || {
            let maps = fs::read_to_string("/proc/self/smaps").unwrap();
            let (_, own) = maps.split_once(path.to_str().unwrap()).unwrap();
            own.lines().find_map(|line| parse_kb(line, "Rss")).unwrap()
        };
        assert_eq!((used(), mapped_kb()), (7, 4));
        unmap_code();
        assert_eq!(mapped_kb(), 0);
        assert_eq!((used(), mapped_kb()), (7, 4));
    }

    const TEXT: &str =
        "MemTotal:       24684148 kB\nMemFree:         1024000 kB\nMemAvailable:   2048000 kB\n";

    #[test]
    fn sizes_are_rounded_down_to_megabytes() {
        assert_eq!(parse_total_mb(TEXT), 24105);
        assert_eq!(parse_free_mb(TEXT), 2000);
    }

    #[test]
    fn used_memory_is_memory_that_is_not_available() {
        let text = format!("{TEXT}SwapTotal: 1000 kB\nSwapFree: 400 kB\n");
        assert_eq!(parse_used_kb(&text), (24_684_148 - 2_048_000, 600));
        assert_eq!(parse_used_kb("MemTotal: 100 kB\nMemFree: 30 kB\n"), (70, 0));
        assert_eq!(parse_used_kb(""), (0, 0));
    }

    #[test]
    fn a_counter_is_found_by_its_full_name() {
        let text = "nr_free_pages 12\noom_kill_x 7\noom_kill 3\n";
        assert_eq!(parse_count(text, "oom_kill"), Some(3));
        assert_eq!(parse_count("oom_kill many\n", "oom_kill"), None);
        assert_eq!(parse_count("", "oom_kill"), None);
    }

    #[test]
    fn an_unreadable_total_yields_the_fallback() {
        for text in ["", "MemTotal: lots\n", "MemTotal: 0 kB\n", "MemTotalX: 5000 kB\n"] {
            assert_eq!(parse_total_mb(text), FALLBACK_MB, "{text:?}");
        }
    }

    #[test]
    fn this_host_has_memory() {
        assert!(probe_total_mb().unwrap() > 0);
    }
}
