//! Waiting for children that have ended: their exit codes and their usage.

use nix::errno::Errno;
use nix::sys::time::{TimeVal, TimeValLike};
use slotd_model::ExitCode;
use slotd_model::tres::Usage;

/// A child that has ended and was waited for.
pub(super) struct Dead {
    pub pid: i32,
    pub exit: ExitCode,
    /// Includes the children that it waited for. The peak is never below that of this process: the
    /// kernel counts the memory that the child had before it executed.
    pub usage: Usage,
    /// Page faults that had to wait for a disk.
    pub major_faults: u64,
}

/// Waits for a child that has ended, or for any if `pid` is -1. Returns `None` if none has ended.
///
/// # Errors
/// Fails if there is no such child.
pub(super) fn reap(pid: i32) -> Result<Option<Dead>, Errno> {
    let mut status = 0;
    // SAFETY: the pointers are to a live integer and a live rusage, for which all zeros is a valid
    // value.
    let (found, used) = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        (libc::wait4(pid, &mut status, libc::WNOHANG, &mut used), used)
    };
    let pid = Errno::result(found)?;
    let exit = if libc::WIFSIGNALED(status) {
        ExitCode::signal(libc::WTERMSIG(status))
    } else {
        ExitCode::status(libc::WEXITSTATUS(status))
    };
    let amount = |number: i64| u64::try_from(number).unwrap_or(0);
    let micros = |time: libc::timeval| amount(TimeVal::from(time).num_microseconds());
    let usage = Usage {
        max_rss_kb: amount(used.ru_maxrss),
        user_us: micros(used.ru_utime),
        system_us: micros(used.ru_stime),
        ..Usage::default()
    };
    Ok((pid != 0).then_some(Dead { pid, exit, usage, major_faults: amount(used.ru_majflt) }))
}
