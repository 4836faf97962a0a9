//! Counts the kernel work of a command. Times would depend more on the machine's other load than on
//! the command.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::{io, mem, ptr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// System calls since the program's exec.
    pub calls: usize,
    /// Page faults that needed no disk access, including those of the exec.
    pub faults: usize,
}

/// Runs a command to completion and discards its output. The command must succeed.
#[expect(clippy::zombie_processes, reason = "wait4 waits for it")]
pub fn cost(command: &mut Command) -> Cost {
    let traced = || {
        // SAFETY: ptrace takes numbers here.
        let done = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: The closure makes a single system call between fork and exec.
    let child =
        unsafe { command.pre_exec(traced) }.stdout(Stdio::null()).spawn().expect("the program");
    let pid = child.id().cast_signed();
    let mut stops = 0;
    let (mut status, mut used) = wait(pid);
    // Mark stops at system calls, to distinguish them from signals.
    // SAFETY: The process is stopped, and is our child.
    unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, libc::PTRACE_O_TRACESYSGOOD) };
    while libc::WIFSTOPPED(status) {
        let (signal, own) = (libc::WSTOPSIG(status), [libc::SIGTRAP, libc::SIGTRAP | 0x80]);
        stops += usize::from(signal == own[1]);
        let handed_on = if own.contains(&signal) { 0 } else { signal };
        // SAFETY: As above.
        unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, handed_on) };
        (status, used) = wait(pid);
    }
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "{command:?} ended with status {status:#x}"
    );
    // A call has one stop at its entry and one at its exit; the last call has no exit.
    Cost { calls: stops.div_ceil(2), faults: usize::try_from(used.ru_minflt).expect("a count") }
}

fn wait(pid: i32) -> (i32, libc::rusage) {
    let mut status = 0;
    // SAFETY: rusage is plain numbers, for which zero is valid.
    let mut used: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: Both pointers are to local variables.
    let done = unsafe {
        libc::wait4(pid, ptr::from_mut(&mut status), libc::__WALL, ptr::from_mut(&mut used))
    };
    assert_eq!(done, pid, "{}", io::Error::last_os_error());
    (status, used)
}
