//! Kernel, architecture, host name, boot time and load, and the messages of system errors.

use crate::proc;
use nix::errno::Errno;
use nix::unistd::{SysconfVar, sysconf};
use std::fs;
use std::io;

/// Returns the message of a system error without Rust's "(os error 2)".
pub fn reason(e: &io::Error) -> String {
    e.raw_os_error().map_or_else(|| e.to_string(), |code| Errno::from_raw(code).desc().to_owned())
}

/// Parses the boot time from the `btime` line of `/proc/stat`, in seconds since 1970.
fn parse_boot_secs(stat: &str) -> Option<i64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Returns the boot time in seconds since 1970, or 0 if `/proc/stat` does not report it.
pub fn probe_boot_secs() -> i64 {
    fs::read_to_string("/proc/stat").ok().as_deref().and_then(parse_boot_secs).unwrap_or(0)
}

fn setting(name: SysconfVar, usual: u64) -> u64 {
    let value = sysconf(name).ok().flatten().and_then(|value| u64::try_from(value).ok());
    value.filter(|value| *value > 0).unwrap_or(usual)
}

/// Returns the size of a memory page in bytes.
pub fn page_bytes() -> u64 {
    setting(SysconfVar::PAGE_SIZE, 4096)
}

/// Returns the maximum length of an argument or environment variable, including its final zero byte
/// (`MAX_ARG_STRLEN`).
pub fn longest_word() -> usize {
    usize::try_from(page_bytes().saturating_mul(32)).unwrap_or(usize::MAX)
}

/// Returns the number of clock ticks per second in `/proc/<pid>/stat`.
pub(crate) fn ticks_per_sec() -> u64 {
    setting(SysconfVar::CLK_TCK, 100)
}

/// Parses the load of the last minute, times 100, from `/proc/loadavg`.
fn parse_load_centi(loadavg: &str) -> Option<u32> {
    let load: f64 = loadavg.split_whitespace().next()?.parse().ok()?;
    (load.is_finite() && load >= 0.0).then(|| (load * 100.0).round() as u32)
}

/// Returns the load of the last minute, times 100, or 0 if it cannot be read.
pub fn probe_load_centi() -> u32 {
    let text = proc::read("/proc/loadavg").ok().and_then(|text| String::from_utf8(text).ok());
    text.as_deref().and_then(parse_load_centi).unwrap_or(0)
}

/// The busy and the total time of all CPUs, in clock ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTimes {
    busy: u64,
    all: u64,
}

impl CpuTimes {
    /// Parses the first line of `/proc/stat`. Waiting for a disk does not count as busy, nor does
    /// the time taken by the host of a virtual machine (steal).
    fn parse(stat: &str) -> Option<CpuTimes> {
        let ticks: Vec<u64> = stat
            .lines()
            .next()?
            .strip_prefix("cpu ")?
            .split_ascii_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        // user, nice, system, idle, iowait, irq, softirq, steal. Guest time is included in user and
        // nice.
        let sum = |which: &[usize]| which.iter().filter_map(|at| ticks.get(*at)).sum::<u64>();
        Some(CpuTimes { busy: sum(&[0, 1, 2, 5, 6]), all: sum(&[0, 1, 2, 3, 4, 5, 6, 7]) })
    }

    /// Returns the fraction of CPU time that was busy since then, from 0 to 1. Returns `None` if
    /// `then` is unknown or no time has passed.
    pub fn share_since(&self, then: &CpuTimes) -> Option<f64> {
        let passed = self.all.checked_sub(then.all).filter(|passed| *passed > 0 && then.all > 0)?;
        Some((self.busy.saturating_sub(then.busy) as f64 / passed as f64).min(1.0))
    }
}

/// Returns the current CPU times, or zeros if the kernel does not report them.
pub fn probe_cpu_times() -> CpuTimes {
    fs::read_to_string("/proc/stat").ok().as_deref().and_then(CpuTimes::parse).unwrap_or_default()
}

/// Returns the name up to the first dot, which is how Slurm names nodes.
fn short_name(host: &str) -> &str {
    host.split('.').next().filter(|name| !name.is_empty()).unwrap_or("localhost")
}

/// Returns the short host name.
pub fn probe_host_name() -> String {
    let name = nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .unwrap_or_default();
    short_name(&name).to_string()
}

/// Returns the architecture, such as `x86_64`.
pub fn probe_arch() -> String {
    nix::sys::utsname::uname().map_or_else(
        |_| std::env::consts::ARCH.to_string(),
        |u| u.machine().to_string_lossy().into_owned(),
    )
}

/// Returns the value that Slurm shows after `OS=`: system, release and version.
pub fn probe_os() -> String {
    nix::sys::utsname::uname().map_or_else(
        |_| String::from("Linux"),
        |u| {
            [u.sysname(), u.release(), u.version()]
                .map(|part| part.to_string_lossy().into_owned())
                .join(" ")
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busy_fraction_of_the_cpus_is_computed() {
        let at = |user: u64, idle: u64| {
            CpuTimes::parse(&format!("cpu  {user} 0 10 {idle} 5 0 0 7 0 0\ncpu0 1 2 3 4\n"))
        };
        let (then, now) = (at(100, 1000).unwrap(), at(150, 1150).unwrap());
        assert_eq!(then, CpuTimes { busy: 110, all: 1122 });
        assert_eq!(now.share_since(&then), Some(0.25));
        assert_eq!((then.share_since(&then), now.share_since(&CpuTimes::default())), (None, None));
        assert_eq!(CpuTimes::parse("intr 1"), None);
    }

    #[test]
    fn boot_time_and_load_are_parsed() {
        assert_eq!(parse_boot_secs("cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_000));
        assert_eq!(parse_boot_secs(""), None);
        assert_eq!(parse_load_centi("2.45 1.00 0.50 1/200 999"), Some(245));
        assert_eq!(parse_load_centi("nan"), None);
    }

    #[test]
    fn a_host_name_is_cut_at_its_first_dot() {
        assert_eq!(short_name("vm.example.org"), "vm");
        assert_eq!(short_name(""), "localhost");
    }

    #[test]
    fn this_machine_reports_its_properties() {
        assert!(probe_boot_secs() > 0);
        assert!(!probe_arch().is_empty());
        // System, release and version, as printed by `uname -srv`.
        let os = probe_os();
        assert!(os.starts_with("Linux ") && os.split(' ').count() > 2, "{os}");
        assert!(!probe_host_name().is_empty());
    }
}
