//! Signals, which the loop reads from a descriptor: termination, stop and terminal signals.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The request of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// The size of the terminal has changed.
    Size,
    /// Stop, after the shell's `kill -TSTP`.
    Stop,
    /// The process continued after a stop, during which others used the terminal.
    Continued,
    /// Exit because of this signal.
    End(u8),
}

const TAKEN: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

pub struct Signals {
    fd: SignalFd,
    set: SigSet,
}

impl Signals {
    /// Blocks the signals and opens a descriptor for them.
    ///
    /// # Errors
    /// Fails if no file descriptor is available.
    pub fn take() -> io::Result<Signals> {
        let set: SigSet = TAKEN.into_iter().collect();
        set.thread_block()?;
        Ok(Signals {
            fd: SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?,
            set,
        })
    }

    /// Returns the requests since the last call.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn asked(&self) -> io::Result<Vec<Asked>> {
        let mut asked = Vec::new();
        while let Some(info) = self.fd.read_signal()? {
            let number = u8::try_from(info.ssi_signo).unwrap_or_default();
            asked.push(match i32::from(number).try_into() {
                Ok(Signal::SIGWINCH) => Asked::Size,
                Ok(Signal::SIGTSTP) => Asked::Stop,
                Ok(Signal::SIGCONT) => Asked::Continued,
                _ => Asked::End(number),
            });
        }
        Ok(asked)
    }

    /// Runs `work` with all signals unblocked, as other processes have them, for example to start
    /// one.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn without<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        self.set.thread_unblock()?;
        let done = work();
        self.set.thread_block()?;
        Ok(done)
    }

    /// Runs `work` while another process has the terminal. Its SIGTSTP then stops this process too.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn behind<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        let stop: SigSet = [Signal::SIGTSTP].into_iter().collect();
        let before = stop.thread_swap_mask(SigmaskHow::SIG_UNBLOCK)?;
        let done = work();
        before.thread_set_mask()?;
        Ok(done)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
