//! Signals, read where the loop waits: those that end it, that stop it, and that tell of the
//! terminal.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Another size of the terminal.
    Size,
    /// Stop, as the shell's `kill -TSTP` asks.
    Stop,
    /// It went on after a stop: somebody else had the terminal.
    GoneOn,
    /// End, as of this signal.
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
    /// # Errors
    /// The kernel has no descriptor left.
    pub fn take() -> io::Result<Signals> {
        let set: SigSet = TAKEN.into_iter().collect();
        set.thread_block()?;
        Ok(Signals {
            fd: SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?,
            set,
        })
    }

    /// What was asked for since the last time.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn asked(&self) -> io::Result<Vec<Asked>> {
        let mut asked = Vec::new();
        while let Some(info) = self.fd.read_signal()? {
            let number = u8::try_from(info.ssi_signo).unwrap_or_default();
            asked.push(match i32::from(number).try_into() {
                Ok(Signal::SIGWINCH) => Asked::Size,
                Ok(Signal::SIGTSTP) => Asked::Stop,
                Ok(Signal::SIGCONT) => Asked::GoneOn,
                _ => Asked::End(number),
            });
        }
        Ok(asked)
    }

    /// Does something with all signals as any process has them, such as starting another one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn without<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        self.set.thread_unblock()?;
        let done = work();
        self.set.thread_block()?;
        Ok(done)
    }

    /// Does something during which a stop stops this process too, as another one has the terminal:
    /// what is pressed there is meant for that one.
    ///
    /// # Errors
    /// What the kernel says.
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
