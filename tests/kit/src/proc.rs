//! Processes as shown by /proc.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

pub const CONT: i32 = libc::SIGCONT;
pub const HUP: i32 = libc::SIGHUP;
pub const INT: i32 = libc::SIGINT;
pub const KILL: i32 = libc::SIGKILL;
pub const QUIT: i32 = libc::SIGQUIT;
pub const STOP: i32 = libc::SIGSTOP;
pub const TERM: i32 = libc::SIGTERM;
pub const TSTP: i32 = libc::SIGTSTP;
pub const USR1: i32 = libc::SIGUSR1;

pub fn signal(pid: i32, signal: i32) {
    // SAFETY: kill takes two numbers.
    unsafe { libc::kill(pid, signal) };
}

/// Sets the soft limit of a resource for this process only; `None` raises it to the hard limit.
#[track_caller]
pub fn limit(pid: i32, resource: libc::__rlimit_resource_t, soft: Option<u64>) {
    // SAFETY: Both pointers are to live values of the type that prlimit takes.
    let done = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::prlimit(pid, resource, std::ptr::null(), &mut limit);
        limit.rlim_cur = soft.unwrap_or(limit.rlim_max);
        libc::prlimit(pid, resource, &limit, std::ptr::null_mut())
    };
    assert_eq!(done, 0, "prlimit: {}", io::Error::last_os_error());
}

/// Limits the number of open files of this process.
#[track_caller]
pub fn limit_descriptors(pid: i32, most: u64) {
    limit(pid, libc::RLIMIT_NOFILE, Some(most));
}

/// Whether the process is running. Zombies do not count.
pub fn is_alive(pid: i32) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// Returns the state letter: `R`, `S`, `T`, …
pub fn state(pid: i32) -> Option<char> {
    field(pid, 0)?.chars().next()
}

/// Returns whether the process has a signal that waits to be handled.
pub fn is_pending(pid: i32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let masks = ["SigPnd:", "ShdPnd:"].map(|key| {
        let mask = status.lines().find_map(|line| line.strip_prefix(key));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    });
    (masks[0] | masks[1]) & (1 << (signal - 1)) != 0
}

pub fn parent(pid: i32) -> Option<i32> {
    field(pid, 1)?.parse().ok()
}

/// Returns a field of `/proc/pid/stat`, counted after the name.
fn field(pid: i32, at: usize) -> Option<String> {
    field_of(&format!("/proc/{pid}/stat"), at)
}

fn field_of(path: &str, at: usize) -> Option<String> {
    let stat = fs::read_to_string(path).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(at).map(str::to_owned)
}

/// Returns the CPU time of all its threads, and that of the first thread.
pub fn cpu_times(pid: i32) -> Option<(Duration, Duration)> {
    let of = |path: &str| {
        let ticks = |at| field_of(path, at)?.parse::<u64>().ok();
        // Linux reports these in hundredths of a second.
        Some(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
    };
    Some((of(&format!("/proc/{pid}/stat"))?, of(&format!("/proc/{pid}/task/{pid}/stat"))?))
}

/// Returns the name shown by `ps`, at most 15 characters.
pub fn name(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// Returns its running children.
pub fn children(pid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns a variable from the environment with which it was started.
pub fn variable(pid: i32, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let environment = String::from_utf8_lossy(&environment);
    environment
        .split('\0')
        .find_map(|entry| Some(entry.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}

pub fn cmdline(pid: i32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ")
}

/// Returns the living processes whose command line, environment or working directory refers to a
/// directory.
pub fn of_directory(dir: &Path) -> Vec<i32> {
    let wanted = dir.as_os_str().as_bytes();
    let has = |bytes: &[u8]| bytes.windows(wanted.len()).any(|window| window == wanted);
    let own = std::process::id() as i32;
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != own)
        .filter(|pid| {
            let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            has(&read("cmdline"))
                || has(&read("environ"))
                || fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(dir))
        })
        .filter(|pid| is_alive(*pid))
        .collect()
}

/// Returns the CPU time used so far in clock ticks.
pub fn cpu_ticks(pid: i32) -> u64 {
    let ticks = |at| field(pid, at).and_then(|t| t.parse::<u64>().ok()).unwrap_or(0);
    ticks(11) + ticks(12)
}

/// Returns the resident memory in KiB.
pub fn resident_kib(pid: i32) -> u64 {
    status_kib(pid, "VmRSS:")
}

/// Returns the resident memory that is no file's, in KiB.
pub fn anonymous_kib(pid: i32) -> u64 {
    status_kib(pid, "RssAnon:")
}

fn status_kib(pid: i32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// Whether a process blocks a signal.
pub fn blocks(pid: i32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap_or_default();
    u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Returns the number of wake-ups: voluntary context switches of all its threads.
pub fn wakeups(pid: i32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok())
        .filter_map(|status| {
            let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .sum()
}
