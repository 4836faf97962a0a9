//! What a command costs the kernel, counted: time would say more of the machine's other work than
//! of the command.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::{io, mem, ptr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// System calls from the start of the program on.
    pub calls: usize,
    /// Page faults that had not to wait for a disk, with those of the exec.
    pub faults: usize,
}

/// Runs a command to its end, which must be a success, with its output thrown away.
#[expect(clippy::zombie_processes, reason = "wait4 waits for it")]
pub fn cost(command: &mut Command) -> Cost {
    let traced = || {
        // SAFETY: it takes numbers.
        let done = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: one system call between fork and exec, and nothing else.
    let child =
        unsafe { command.pre_exec(traced) }.stdout(Stdio::null()).spawn().expect("the program");
    let pid = child.id().cast_signed();
    let mut stops = 0;
    let (mut status, mut used) = wait(pid);
    // A stop at a system call is marked, so that it is told from a signal.
    // SAFETY: it stands still, and is ours.
    unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, libc::PTRACE_O_TRACESYSGOOD) };
    while libc::WIFSTOPPED(status) {
        let (signal, own) = (libc::WSTOPSIG(status), [libc::SIGTRAP, libc::SIGTRAP | 0x80]);
        stops += usize::from(signal == own[1]);
        let handed_on = if own.contains(&signal) { 0 } else { signal };
        // SAFETY: as above.
        unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, handed_on) };
        (status, used) = wait(pid);
    }
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "{command:?} ended with status {status:#x}"
    );
    // One stop at the begin of a call and one at its end; the last call has no end.
    Cost { calls: stops.div_ceil(2), faults: usize::try_from(used.ru_minflt).expect("a count") }
}

fn wait(pid: i32) -> (i32, libc::rusage) {
    let mut status = 0;
    // SAFETY: plain numbers, for which zero is a value.
    let mut used: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: both places are ours.
    let done = unsafe {
        libc::wait4(pid, ptr::from_mut(&mut status), libc::__WALL, ptr::from_mut(&mut used))
    };
    assert_eq!(done, pid, "{}", io::Error::last_os_error());
    (status, used)
}
