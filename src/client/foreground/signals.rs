//! The signals that this client takes for its tasks.

use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use std::io;

/// Signals that are meant for the tasks when this client gets them.
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

/// Whether this signal ends a client that has nothing running.
pub(super) fn ends_client(signal: i32) -> bool {
    matches!(signal, libc::SIGINT | libc::SIGHUP | libc::SIGTERM)
}

/// Whether this is Ctrl-C from the terminal, and not a signal that another process has sent.
pub(super) fn is_typed_interrupt(info: &siginfo) -> bool {
    info.ssi_signo as i32 == libc::SIGINT && info.ssi_code == libc::SI_KERNEL
}

/// Ends this process as an interrupt ends others: the shell that started it stops its script or
/// loop then, which it does not for an exit code of 130.
pub fn end_by_interrupt() -> ! {
    // SAFETY: no handler is set.
    let _ = unsafe { signal(Signal::SIGINT, SigHandler::SigDfl) };
    let _ = SigSet::from(Signal::SIGINT).thread_unblock();
    let _ = nix::sys::signal::raise(Signal::SIGINT);
    std::process::exit(128 + libc::SIGINT)
}

/// Keeps the signals for [`SignalFd`] as long as it lives, and has a write to a pipe that nobody
/// reads fail rather than end this process: a task may close its input.
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

    /// The tasks are over, and only their end is left to be told: what comes now changes it no
    /// more.
    pub fn keep_blocked(&mut self) {
        self.keep = true;
    }

    /// Whether Ctrl-C was typed and not read yet. What else waits is for tasks that are gone.
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

    /// Queues an interrupt for this thread, as the terminal would (a process may say so of its own
    /// signals alone).
    fn queue_interrupt(code: i32) {
        // SAFETY: all zeros is a value of siginfo, and the call reads what it is given.
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
    fn a_key_press_that_came_with_the_tasks_end_is_found() {
        // A thread of its own: the signals are blocked there alone.
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
