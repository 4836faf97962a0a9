//! Processes: what `/proc` tells of them (children, start times, environments, signal handlers, use
//! of resources), signals to them, and a descriptor that tells of their end.
//!
//! Pids are plain numbers here: they come from `/proc`, from the wire and from records.

use crate::sys::system;
use nix::sys::signal;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The fields of `/proc/<pid>/stat` that slotd uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// `R`, `S`, `Z`, …
    pub state: u8,
    pub ppid: i32,
    pub pgid: i32,
    pub session: i32,
    /// It has executed no program since it was forked (PF_FORKNOEXEC).
    pub is_copy: bool,
    /// Page faults that had not to wait for a disk, with those of children that ended.
    pub minor_faults: u64,
    /// Page faults that had to wait for a disk, with those of children that ended.
    pub major_faults: u64,
    /// With that of children that ended and were waited for.
    pub used: CpuTime,
    /// Of those children alone.
    pub by_children: CpuTime,
    /// Clock ticks from boot to the start of the process.
    pub start_ticks: u64,
    pub vm_bytes: u64,
    pub rss_pages: u64,
}

/// Of the kernel's `include/linux/sched.h`.
const PF_FORKNOEXEC: u64 = 0x40;

/// CPU time in user mode and in the kernel, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    pub user_us: u64,
    pub system_us: u64,
}

impl CpuTime {
    pub fn plus(self, other: CpuTime) -> CpuTime {
        CpuTime {
            user_us: self.user_us.saturating_add(other.user_us),
            system_us: self.system_us.saturating_add(other.system_us),
        }
    }

    pub fn minus(self, other: CpuTime) -> CpuTime {
        CpuTime {
            user_us: self.user_us.saturating_sub(other.user_us),
            system_us: self.system_us.saturating_sub(other.system_us),
        }
    }
}

/// Reads a line of `/proc/<pid>/stat`, in which a clock tick is so many microseconds. The command's
/// name stands in brackets and may hold anything, brackets included.
fn parse_stat(text: &str, tick_us: u64) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // proc(5) counts from 1 with the state as field 3.
    let field = |n: usize| fields.get(n - 3).copied();
    let number = |n: usize| field(n).and_then(|f| f.parse::<u64>().ok());
    let signed = |n: usize| field(n).and_then(|f| f.parse::<i32>().ok());
    let time = |user: usize, system: usize| {
        let us = |n: usize| Some(number(n)?.saturating_mul(tick_us));
        Some(CpuTime { user_us: us(user)?, system_us: us(system)? })
    };
    let by_children = time(16, 17)?;
    Some(Stat {
        state: *field(3)?.as_bytes().first()?,
        ppid: signed(4)?,
        pgid: signed(5)?,
        session: signed(6)?,
        is_copy: number(9)? & PF_FORKNOEXEC != 0,
        minor_faults: number(10)?.saturating_add(number(11)?),
        major_faults: number(12)?.saturating_add(number(13)?),
        used: time(14, 15)?.plus(by_children),
        by_children,
        start_ticks: number(22)?,
        vm_bytes: number(23)?,
        rss_pages: number(24)?,
    })
}

/// Reads a file of `/proc` that is a few lines long, at one go: the kernel tells no length, and
/// `fs::read` begins with 32 bytes.
///
/// # Errors
/// There is no such file.
pub fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(4096);
    fs::File::open(path)?.take(u64::MAX).read_to_end(&mut text)?;
    Ok(text)
}

impl Stat {
    /// How long ago the process started.
    pub fn age(&self) -> Duration {
        let ticks = u32::try_from(system::ticks_per_sec()).unwrap_or(100).max(1);
        let started = Duration::from_secs(self.start_ticks) / ticks;
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
        now.saturating_sub(started)
    }
}

/// The process's `stat`; `None` where there is no such process.
pub fn stat(pid: i32) -> Option<Stat> {
    let text = read(&format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&String::from_utf8_lossy(&text), 1_000_000 / system::ticks_per_sec().max(1))
}

/// Reads the text of `/proc/<pid>/smaps_rollup`.
fn parse_pss_kb(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.trim().parse().ok())
}

/// The resident memory of a process, KiB, of which a page that several processes share counts for
/// each of them by its part. `None` where the kernel does not tell. It looks at every page of the
/// process, which takes milliseconds a GB.
pub fn pss_kb(pid: i32) -> Option<u64> {
    parse_pss_kb(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
}

/// Bytes that a process has read and written, whether from a disk or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Io {
    pub read: u64,
    pub written: u64,
}

impl Io {
    pub fn plus(self, other: Io) -> Io {
        Io {
            read: self.read.saturating_add(other.read),
            written: self.written.saturating_add(other.written),
        }
    }

    pub fn minus(self, other: Io) -> Io {
        Io {
            read: self.read.saturating_sub(other.read),
            written: self.written.saturating_sub(other.written),
        }
    }
}

/// Reads the text of `/proc/<pid>/io`.
fn parse_io(text: &str) -> Option<Io> {
    let number =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some(Io { read: number("rchar:")?, written: number("wchar:")? })
}

/// What the process has read and written, with its children that ended and were waited for. Nothing
/// where the kernel does not count it, or the process is not ours to ask.
pub fn io(pid: i32) -> Io {
    fs::read_to_string(format!("/proc/{pid}/io"))
        .ok()
        .and_then(|text| parse_io(&text))
        .unwrap_or_default()
}

/// What the children of this process, which has one thread, have read and written that ended and
/// were waited for.
#[derive(Debug, Default)]
pub struct DeadChildrenIo {
    /// The thread's own, and that of the process with its dead children: opened once, for that
    /// costs more than to read them.
    files: Option<(File, File)>,
    /// When it was looked at before.
    before: Io,
}

impl DeadChildrenIo {
    /// Of this process, from now on.
    pub fn of_this_process() -> DeadChildrenIo {
        let me = std::process::id();
        let open = |path: String| File::open(path).ok();
        let files = open(format!("/proc/{me}/task/{me}/io")).zip(open(format!("/proc/{me}/io")));
        DeadChildrenIo { files, before: Io::default() }
    }

    /// Of those that ended since it was looked at before.
    pub fn since(&mut self) -> Io {
        let Some(all) = self.all() else { return Io::default() };
        all.minus(std::mem::replace(&mut self.before, all))
    }

    fn all(&self) -> Option<Io> {
        let (thread, process) = self.files.as_ref()?;
        let mut text = [0; 512];
        let mut read = |file: &File| {
            let length = file.read_at(&mut text, 0).ok()?;
            Some((parse_io(std::str::from_utf8(&text[..length]).ok()?)?, length))
        };
        let (own, length) = read(thread)?;
        // Reading it was a read too.
        let looked = Io { read: length as u64, written: 0 };
        Some(read(process)?.0.minus(own.plus(looked)))
    }
}

/// Clock ticks from boot to the start of the process: with the pid a name that is never given
/// twice.
pub fn start_ticks(pid: i32) -> Option<u64> {
    stat(pid).map(|s| s.start_ticks)
}

/// The environment with which the process was started: `KEY=VALUE` entries, each ended by a zero
/// byte. `None` where there is no such process, or it is another user's.
pub fn environment(pid: i32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/environ")).ok()
}

/// The value of a variable in an environment of `KEY=VALUE` entries that are ended by zero bytes.
pub fn parse_variable<'a>(environment: &'a [u8], name: &str) -> Option<&'a [u8]> {
    environment
        .split(|b| *b == 0)
        .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// The signals of one line of `/proc/<pid>/status`, a bit each.
fn parse_signals(status: &str, line: &str) -> u64 {
    let found = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    found.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

const fn bit_of(signal: i32) -> u64 {
    1 << (signal - 1)
}

fn status(pid: i32) -> String {
    let text = fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

/// Whether the process has a handler of its own for the signal.
pub fn catches(pid: i32, signal: i32) -> bool {
    (1..=64).contains(&signal) && parse_signals(&status(pid), "SigCgt") & bit_of(signal) != 0
}

/// Whether the process stands still, or will as soon as it runs again: one that waits in `vfork`
/// for a child that stands still takes its own SIGSTOP afterwards.
pub fn is_stopped(pid: i32) -> bool {
    let is_pending = || {
        let status = status(pid);
        let pending = parse_signals(&status, "SigPnd") | parse_signals(&status, "ShdPnd");
        pending & bit_of(libc::SIGSTOP) != 0
    };
    stat(pid).is_some_and(|stat| stat.state == b'T') || is_pending()
}

/// The children of all threads of a process.
///
/// Uses `/proc/<pid>/task/*/children` where the kernel has it (CONFIG_PROC_CHILDREN), otherwise
/// looks at all processes.
pub fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    let mut supported = false;
    for thread in threads.flatten() {
        if let Ok(text) = fs::read_to_string(thread.path().join("children")) {
            supported = true;
            found.extend(text.split_whitespace().filter_map(|n| n.parse::<i32>().ok()));
        }
    }
    if supported {
        return found;
    }
    all_pids().into_iter().filter(|child| stat(*child).is_some_and(|s| s.ppid == pid)).collect()
}

/// All processes below `pid`, parents before their children. A process that forks meanwhile may be
/// missed: who must catch all of them asks again until nothing new comes.
pub fn descendants(pid: i32) -> Vec<i32> {
    let mut found = children(pid);
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        next += 1;
        for child in children(parent) {
            if !found.contains(&child) {
                found.push(child);
            }
        }
    }
    found
}

/// Every process of the machine.
pub fn all_pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// Sends a signal; false where it was not delivered (no such process, or not ours).
pub fn kill(pid: i32, signal: i32) -> bool {
    // A pid of 0 or -1 would mean "everybody".
    pid > 1 && send(pid, signal)
}

/// Sends a signal to a process group.
pub fn kill_group(pgid: i32, signal: i32) -> bool {
    pgid > 1 && send(-pgid, signal)
}

fn send(target: i32, number: i32) -> bool {
    match signal::Signal::try_from(number) {
        Ok(known) => signal::kill(Pid::from_raw(target), known).is_ok(),
        // SAFETY: kill takes numbers only. nix has no name for 0 and for the real-time signals.
        Err(_) => unsafe { libc::kill(target, number) == 0 },
    }
}

/// A descriptor that becomes readable when the process ends. The pid may have gone to another
/// process before the descriptor was open: compare the start time, or the environment, after this
/// call.
///
/// # Errors
/// There is no such process, or no descriptor is left.
pub fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: a system call with numbers; its result is checked.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The file mode creation mask of this process, which must have one thread: it can only be read by
/// setting it.
pub fn umask() -> u32 {
    let mask = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    nix::sys::stat::umask(mask);
    mask.bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_brackets_does_not_shift_the_fields() {
        let line =
            "42 (a) R (b) S 7 42 40 0 -1 4194304 1 2 3 4 11 12 20 30 20 0 1 0 9999 8192 5 184 1";
        let stat = parse_stat(line, 10_000).unwrap();
        assert_eq!((stat.state, stat.ppid, stat.pgid, stat.session), (b'S', 7, 42, 40));
        assert_eq!(stat.used, CpuTime { user_us: 310_000, system_us: 420_000 });
        assert_eq!(stat.by_children, CpuTime { user_us: 200_000, system_us: 300_000 });
        assert_eq!((stat.minor_faults, stat.major_faults, stat.start_ticks), (3, 7, 9999));
        assert_eq!((stat.vm_bytes, stat.rss_pages), (8192, 5));
        assert_eq!(parse_stat("42 (x) S 7", 10_000), None);
    }

    #[test]
    fn signals_are_bits_of_a_line() {
        let text = "ShdPnd:\t0000000000040000\nSigCgt:\t0000000000000200\n";
        assert_eq!(parse_signals(text, "SigCgt"), bit_of(libc::SIGUSR1));
        assert_eq!(parse_signals(text, "ShdPnd"), bit_of(libc::SIGSTOP));
        assert_eq!(parse_signals(text, "Shd"), 0);
    }

    #[test]
    fn reads_and_writes_are_counted_in_bytes() {
        let text = "rchar: 6976\nwchar: 12\nsyscr: 10\nsyscw: 0\nread_bytes: 0\n";
        assert_eq!(parse_io(text), Some(Io { read: 6976, written: 12 }));
        assert_eq!(parse_io("rchar: 6976\n"), None);
    }

    #[test]
    fn shared_memory_is_told_by_its_part() {
        assert_eq!(
            parse_pss_kb(
                "7f-7f ---p 0 00:00 0 [rollup]\nRss:  884 kB\nPss:     385 kB\nPss_Anon: 84 kB\n"
            ),
            Some(385)
        );
        assert_eq!(parse_pss_kb("Rss:  884 kB\n"), None);
    }

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let environment = b"XA=0\0AB=1\0A=2\0";
        assert_eq!(parse_variable(environment, "A"), Some(b"2".as_slice()));
        assert_eq!(parse_variable(environment, "B"), None);
    }

    #[test]
    fn a_process_that_is_gone_has_no_descriptor() {
        assert!(pidfd(std::process::id() as i32).is_ok());
        assert_eq!(pidfd(i32::MAX).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert!(!kill(i32::MAX, 0) && !kill(1, 0));
    }

    #[test]
    fn this_process_is_found_under_its_parent() {
        let me = std::process::id() as i32;
        let parent = stat(me).unwrap().ppid;
        // One may be left out where another child ends while they are listed.
        assert!((0..5).any(|_| children(parent).contains(&me)));
        assert!(start_ticks(me).unwrap() > 0);
    }
}
