//! Processes: information from `/proc` (children, start times, environments, signal handlers,
//! resource use), signals, and descriptors that report a process's end.
//!
//! PIDs are plain numbers here, since they come from `/proc`, from messages and from records.

use crate::system;
use nix::sys::signal;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

/// The fields of `/proc/<pid>/stat` that slotd uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// `R`, `S`, `Z`, …
    pub state: u8,
    pub ppid: i32,
    pub pgid: i32,
    pub session: i32,
    /// It has not executed a program since it was forked (PF_FORKNOEXEC).
    pub is_copy: bool,
    /// It is inside execve(2): it has the new program's memory, and may still have the old one's
    /// signal handlers.
    pub is_in_exec: bool,
    /// Its program has an environment, or is so new that the kernel has not set one yet.
    pub expects_environment: bool,
    /// It is exiting or has exited: its memory is gone, and its environment with it.
    pub is_exiting: bool,
    /// Page faults without disk access, including those of children that have ended.
    pub minor_faults: u64,
    /// Page faults with disk access, including those of children that have ended.
    pub major_faults: u64,
    /// Includes children that have ended and were waited for.
    pub used: CpuTime,
    /// Only children that have ended and were waited for.
    pub by_children: CpuTime,
    /// Clock ticks from boot to the start of the process.
    pub start_ticks: u64,
    pub vm_bytes: u64,
    pub rss_pages: u64,
}

/// Flags of the kernel's `include/linux/sched.h`.
const PF_EXITING: u64 = 0x4;
const PF_FORKNOEXEC: u64 = 0x40;
const PF_KTHREAD: u64 = 0x0020_0000;

/// The maximum time to wait for the environment of a process that executes programs. An execve(2)
/// without environment takes only microseconds, since the kernel reads a program from a slow disk
/// before it replaces the memory.
const EXEC_PATIENCE: Duration = Duration::from_secs(1);

/// CPU time in user mode and in the kernel, in microseconds.
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

/// Parses `/proc/<pid>/stat`. A clock tick has `tick_us` microseconds. The command name is in
/// parentheses and may contain anything, including parentheses.
fn parse_stat(text: &str, tick_us: u64) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    // proc(5) counts from 1 to 52, with the state as field 3.
    let mut fields: Vec<&str> = Vec::with_capacity(50);
    fields.extend(rest.split_ascii_whitespace());
    let field = |n: usize| fields.get(n - 3).copied();
    let number = |n: usize| field(n).and_then(|f| f.parse::<u64>().ok());
    let signed = |n: usize| field(n).and_then(|f| f.parse::<i32>().ok());
    let time = |user: usize, system: usize| {
        let us = |n: usize| Some(number(n)?.saturating_mul(tick_us));
        Some(CpuTime { user_us: us(user)?, system_us: us(system)? })
    };
    let by_children = time(16, 17)?;
    let (state, flags) = (*field(3)?.as_bytes().first()?, number(9)?);
    let is_exiting = flags & PF_EXITING != 0 || matches!(state, b'Z' | b'X');
    let has_memory = flags & PF_KTHREAD == 0 && !is_exiting;
    // The end of the code is the last that the kernel sets in an execve(2).
    let is_in_exec = has_memory && number(27)? == 0;
    Some(Stat {
        state,
        ppid: signed(4)?,
        pgid: signed(5)?,
        session: signed(6)?,
        is_copy: flags & PF_FORKNOEXEC != 0,
        is_in_exec,
        // The environment is the memory from field 50 to field 51.
        expects_environment: is_in_exec || has_memory && number(51)? > number(50)?,
        is_exiting,
        minor_faults: number(10)?.saturating_add(number(11)?),
        major_faults: number(12)?.saturating_add(number(13)?),
        used: time(14, 15)?.plus(by_children),
        by_children,
        start_ticks: number(22)?,
        vm_bytes: number(23)?,
        rss_pages: number(24)?,
    })
}

/// Reads a short file of `/proc` at once. The kernel reports no length, and `fs::read` would start
/// with 32 bytes.
///
/// # Errors
/// Fails if the file does not exist.
pub fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(4096);
    fs::File::open(path)?.take(u64::MAX).read_to_end(&mut text)?;
    Ok(text)
}

impl Stat {
    /// Returns the time since the process started.
    pub fn age(&self) -> Duration {
        let ticks = u32::try_from(system::ticks_per_sec()).unwrap_or(100).max(1);
        let started = Duration::from_secs(self.start_ticks) / ticks;
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
        now.saturating_sub(started)
    }
}

/// Returns the process's `stat`, or `None` if the process does not exist.
pub fn stat(pid: i32) -> Option<Stat> {
    let text = read(&format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&String::from_utf8_lossy(&text), 1_000_000 / system::ticks_per_sec().max(1))
}

/// Parses `/proc/<pid>/smaps_rollup`.
fn parse_pss_kb(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.trim().parse().ok())
}

/// Returns the proportional set size of a process in KiB, in which a shared page is divided among
/// the processes that share it. Returns `None` if the kernel does not report it. The kernel visits
/// every page of the process, which takes milliseconds per GB.
pub fn pss_kb(pid: i32) -> Option<u64> {
    parse_pss_kb(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
}

/// Bytes that a process has read and written, whether or not from or to a disk.
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

/// Parses `/proc/<pid>/io`.
fn parse_io(text: &str) -> Option<Io> {
    let number =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some(Io { read: number("rchar:")?, written: number("wchar:")? })
}

/// Returns the bytes read and written by a process, including children that have ended and were
/// waited for. Returns zeros if the kernel does not count them or denies access.
pub fn io(pid: i32) -> Io {
    fs::read_to_string(format!("/proc/{pid}/io"))
        .ok()
        .and_then(|text| parse_io(&text))
        .unwrap_or_default()
}

/// Measures the bytes read and written by children of this single-threaded process that have ended
/// and were waited for.
#[derive(Debug, Default)]
pub struct DeadChildrenIo {
    /// The counters of the thread, and those of the process with its ended children. The files are
    /// kept open because opening them costs more than reading them.
    files: Option<(File, File)>,
    /// The previous sample.
    before: Io,
}

impl DeadChildrenIo {
    /// Creates a meter for this process.
    pub fn of_this_process() -> DeadChildrenIo {
        let me = std::process::id();
        let open = |path: String| File::open(path).ok();
        let files = open(format!("/proc/{me}/task/{me}/io")).zip(open(format!("/proc/{me}/io")));
        DeadChildrenIo { files, before: Io::default() }
    }

    /// Returns the bytes of children that ended since the previous call.
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
        // Reading the file was also counted.
        let own_read = Io { read: length as u64, written: 0 };
        Some(read(process)?.0.minus(own.plus(own_read)))
    }
}

/// Returns the clock ticks from boot to the start of the process. Together with the PID, they
/// identify a process uniquely.
pub fn start_ticks(pid: i32) -> Option<u64> {
    stat(pid).map(|s| s.start_ticks)
}

/// Returns the environment with which the process was started: `KEY=VALUE` entries, each ended by a
/// zero byte. Returns `None` if the process does not exist or belongs to another user.
pub fn environment(pid: i32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/environ")).ok()
}

/// Like [`environment`], for a process that may be inside execve(2). A read is empty if the new
/// program has no environment yet, or if the old program's memory was replaced after the file was
/// opened. So this reads again until the process has no environment, for at most
/// [`EXEC_PATIENCE`].
pub fn settled_environment(pid: i32) -> Option<Vec<u8>> {
    let since = Instant::now();
    loop {
        let found = environment(pid)?;
        if !found.is_empty() || !stat(pid)?.expects_environment || since.elapsed() > EXEC_PATIENCE {
            return Some(found);
        }
        thread::yield_now();
    }
}

/// Returns the value of a variable in an environment of zero-terminated `KEY=VALUE` entries.
pub fn parse_variable<'a>(environment: &'a [u8], name: &str) -> Option<&'a [u8]> {
    environment
        .split(|b| *b == 0)
        .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// Returns whether this user started the process. A set-user-ID program still belongs to the user
/// who chose its environment.
pub fn is_own(pid: i32) -> bool {
    parse_real_uid(&status(pid)) == Some(nix::unistd::geteuid().as_raw())
}

/// Parses the real user ID in `/proc/<pid>/status`.
fn parse_real_uid(status: &str) -> Option<u32> {
    status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok())
}

/// Parses the signal mask on one line of `/proc/<pid>/status`.
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

/// Returns whether the process has its own handler for the signal.
pub fn catches(pid: i32, signal: i32) -> bool {
    (1..=64).contains(&signal) && parse_signals(&status(pid), "SigCgt") & bit_of(signal) != 0
}

/// Returns whether the process is stopped, or will stop as soon as it runs again. A process that
/// waits in `vfork` for a stopped child handles its own SIGSTOP only afterwards.
pub fn is_stopped(pid: i32) -> bool {
    let is_pending = || {
        let status = status(pid);
        let pending = parse_signals(&status, "SigPnd") | parse_signals(&status, "ShdPnd");
        pending & bit_of(libc::SIGSTOP) != 0
    };
    stat(pid).is_some_and(|stat| stat.state == b'T') || is_pending()
}

/// Returns the children of all threads of a process.
///
/// Uses `/proc/<pid>/task/*/children` if the kernel has it (CONFIG_PROC_CHILDREN). Otherwise, reads
/// the parents of all processes.
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

/// Returns all descendants of `pid`, parents before their children. A process that forks meanwhile
/// may be missed. To catch all of them, call this repeatedly until it returns nothing new.
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

/// Returns the PID that the kernel has assigned last in this namespace (proc_loadavg(5)). The
/// process may have ended.
pub fn newest_pid() -> Option<i32> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().nth(4)?.parse().ok()
}

/// Returns every process of the machine.
pub fn all_pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// Sends a signal. Returns false if it was not delivered (no such process, or no permission).
pub fn kill(pid: i32, signal: i32) -> bool {
    // PIDs 0 and -1 would address several processes.
    pid > 1 && send(pid, signal)
}

/// Sends a signal to a process group.
pub fn kill_group(pgid: i32, signal: i32) -> bool {
    pgid > 1 && send(-pgid, signal)
}

fn send(target: i32, number: i32) -> bool {
    match signal::Signal::try_from(number) {
        Ok(known) => signal::kill(Pid::from_raw(target), known).is_ok(),
        // SAFETY: kill takes only numbers. nix has no names for 0 and for the real-time signals.
        Err(_) => unsafe { libc::kill(target, number) == 0 },
    }
}

/// Returns a descriptor that becomes readable when the process ends. The PID may have been reused
/// before the descriptor was opened, so compare the start time or the environment after this call.
///
/// # Errors
/// Fails if the process does not exist or no descriptors are left.
pub fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: a system call with numbers, whose result is checked.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Returns the umask of this process, which must be single-threaded because reading the umask
/// requires setting it.
pub fn umask() -> u32 {
    let mask = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    nix::sys::stat::umask(mask);
    mask.bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parentheses_in_a_command_name_do_not_shift_the_fields() {
        let head = "42 (a) R (b) S 7 42 40 0 -1 4194304 1 2 3 4 11 12 20 30 20 0 1 0 9999 8192 5";
        let line = &format!("{head} 0 1 2{} 8 9 0", " 0".repeat(22));
        let stat = parse_stat(line, 10_000).unwrap();
        assert_eq!((stat.state, stat.ppid, stat.pgid, stat.session), (b'S', 7, 42, 40));
        assert_eq!(stat.used, CpuTime { user_us: 310_000, system_us: 420_000 });
        assert_eq!(stat.by_children, CpuTime { user_us: 200_000, system_us: 300_000 });
        assert_eq!((stat.minor_faults, stat.major_faults, stat.start_ticks), (3, 7, 9999));
        assert_eq!((stat.vm_bytes, stat.rss_pages), (8192, 5));
        assert!(stat.expects_environment && !stat.is_in_exec);
        assert_eq!(parse_stat("42 (x) S 7", 10_000), None);
        let empty = parse_stat(&line.replace(" 8 9 0", " 9 9 0"), 10_000).unwrap();
        assert!(!empty.expects_environment);
        // Inside execve(2) the end of the code is 0, as it is in a kernel thread.
        let new = line.replace(" 0 1 2 0", " 0 0 0 0").replace(" 8 9 0", " 9 9 0");
        let executing = parse_stat(&new, 10_000).unwrap();
        assert!(executing.is_in_exec && executing.expects_environment);
        let thread = parse_stat(&new.replace("4194304", "2097152"), 10_000).unwrap();
        assert!(!thread.is_in_exec && !thread.expects_environment);
        let exiting = parse_stat(&new.replace("4194304", "4194308"), 10_000).unwrap();
        assert!(exiting.is_exiting && !exiting.expects_environment && !stat.is_exiting);
    }

    #[test]
    fn a_process_that_keeps_executing_programs_has_an_environment() {
        let again = r#"exec sh -c "$0" "$0""#;
        let mut command = std::process::Command::new("sh");
        let mut child = command.args(["-c", again, again]).env("MARK", "here").spawn().unwrap();
        let pid = child.id() as i32;
        // One in 40 plain reads returns an empty environment.
        let empty = (0..4000).filter(|_| settled_environment(pid).is_none_or(|e| e.is_empty()));
        let empty = empty.count();
        let found = settled_environment(pid).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(empty, 0);
        assert_eq!(parse_variable(&found, "MARK"), Some(b"here".as_slice()));
    }

    #[test]
    fn signal_masks_are_parsed() {
        let text = "ShdPnd:\t0000000000040000\nSigCgt:\t0000000000000200\n";
        assert_eq!(parse_signals(text, "SigCgt"), bit_of(libc::SIGUSR1));
        assert_eq!(parse_signals(text, "ShdPnd"), bit_of(libc::SIGSTOP));
        assert_eq!(parse_signals(text, "Shd"), 0);
    }

    #[test]
    fn read_and_written_bytes_are_parsed() {
        let text = "rchar: 6976\nwchar: 12\nsyscr: 10\nsyscw: 0\nread_bytes: 0\n";
        assert_eq!(parse_io(text), Some(Io { read: 6976, written: 12 }));
        assert_eq!(parse_io("rchar: 6976\n"), None);
    }

    #[test]
    fn the_proportional_set_size_is_parsed() {
        assert_eq!(
            parse_pss_kb(
                "7f-7f ---p 0 00:00 0 [rollup]\nRss:  884 kB\nPss:     385 kB\nPss_Anon: 84 kB\n"
            ),
            Some(385)
        );
        assert_eq!(parse_pss_kb("Rss:  884 kB\n"), None);
    }

    #[test]
    fn a_variable_is_found_by_its_full_name() {
        let environment = b"XA=0\0AB=1\0A=2\0";
        assert_eq!(parse_variable(environment, "A"), Some(b"2".as_slice()));
        assert_eq!(parse_variable(environment, "B"), None);
    }

    #[test]
    fn a_missing_process_has_no_descriptor() {
        assert!(pidfd(std::process::id() as i32).is_ok());
        assert_eq!(pidfd(i32::MAX).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert!(!kill(i32::MAX, 0) && !kill(1, 0));
    }

    #[test]
    fn this_process_is_a_child_of_its_parent() {
        let me = std::process::id() as i32;
        let parent = stat(me).unwrap().ppid;
        // A process may be omitted if another child ends while they are listed.
        assert!((0..5).any(|_| children(parent).contains(&me)));
        assert!(start_ticks(me).unwrap() > 0);
    }
}
