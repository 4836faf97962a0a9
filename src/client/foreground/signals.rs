//! The signals that this client receives on behalf of its tasks.

use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use std::io;

/// Signals to forward to the tasks.
const FORWARDED: [Signal; 9] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGQUIT,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

/// Returns whether this signal ends a client whose tasks are not running.
pub(super) fn ends_client(signal: i32) -> bool {
    matches!(signal, libc::SIGINT | libc::SIGHUP | libc::SIGTERM)
}

/// Returns whether this is Ctrl-C from the terminal rather than a signal of another process.
pub(super) fn is_typed_interrupt(info: &siginfo) -> bool {
    info.ssi_signo as i32 == libc::SIGINT && info.ssi_code == libc::SI_KERNEL
}

/// Ends this process with SIGINT. The calling shell then stops its script or loop, which exit code
/// 130 would not achieve.
pub fn end_by_interrupt() -> ! {
    // SAFETY: no handler is set.
    let _ = unsafe { signal(Signal::SIGINT, SigHandler::SigDfl) };
    let _ = SigSet::from(Signal::SIGINT).thread_unblock();
    let _ = nix::sys::signal::raise(Signal::SIGINT);
    std::process::exit(128 + libc::SIGINT)
}

/// Blocks the forwarded signals and reads them through [`SignalFd`] until it is dropped. Also
/// ignores SIGPIPE, since a task may close its input: writes to a closed pipe then return an error.
pub(super) struct Signals {
    pub fd: SignalFd,
    before: SigSet,
    keep: bool,
}

impl Signals {
    pub fn take() -> io::Result<Signals> {
        let set: SigSet = FORWARDED.into_iter().collect();
        let before = SigSet::thread_get_mask()?;
        set.thread_block()?;
        // SAFETY: no handler is set.
        unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn)? };
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Signals { fd, before, keep: false })
    }

    /// Keeps the signals blocked after the tasks have ended, when only their result remains to be
    /// reported. Later signals no longer matter.
    pub fn keep_blocked(&mut self) {
        self.keep = true;
    }

    /// Returns whether an unread Ctrl-C is pending. Other signals were for tasks that have ended.
    pub fn typed_interrupt_waits(&self) -> bool {
        std::iter::from_fn(|| self.fd.read_signal().ok().flatten())
            .any(|info| is_typed_interrupt(&info))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        let _ = self.before.thread_set_mask();
        // SAFETY: no handler is set.
        let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues an interrupt with this `si_code` for this thread. The kernel lets a process use the
    /// code of the terminal only for its own signals.
    fn queue_interrupt(code: i32) {
        // SAFETY: all zeros is a valid siginfo, and the call only reads it.
        let done = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (info.si_signo, info.si_code) = (libc::SIGINT, code);
            let (process, thread) = (libc::getpid(), libc::gettid());
            libc::syscall(
                libc::SYS_rt_tgsigqueueinfo,
                process,
                thread,
                libc::SIGINT,
                &raw const info,
            )
        };
        assert_eq!(done, 0);
    }

    #[test]
    fn ctrl_c_pending_at_the_end_of_the_tasks_is_found() {
        // The signals are blocked only in this thread.
        std::thread::spawn(|| {
            let mut signals = Signals::take().unwrap();
            signals.keep_blocked();
            assert!(!signals.typed_interrupt_waits());
            queue_interrupt(libc::SI_KERNEL);
            assert!(signals.typed_interrupt_waits());
            queue_interrupt(libc::SI_QUEUE);
            assert!(!signals.typed_interrupt_waits(), "another process sent it");
        })
        .join()
        .unwrap();
    }
}
