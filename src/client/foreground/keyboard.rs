//! Our standard input, where it may be a terminal that is not ours at the moment.

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::unistd::{getpgrp, tcgetpgrp};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Standard input to wait for. In the background of a terminal what is typed is for somebody else:
/// to read it would stop this process and what it relays, and to wait for it would wake up again
/// and again. Then only new input wakes.
#[derive(Debug, Default)]
pub(super) struct Keyboard {
    /// Tells of new input alone, while this process is in the background.
    resting: Option<Epoll>,
}

impl Keyboard {
    /// What becomes readable when [`Self::is_ours`] is to be asked.
    pub fn source<'a>(&'a self, stdin: BorrowedFd<'a>) -> BorrowedFd<'a> {
        self.resting.as_ref().map_or(stdin, |epoll| epoll.0.as_fd())
    }

    /// Whether standard input may be read now. To be asked when the source is readable, and after
    /// SIGCONT.
    ///
    /// # Errors
    /// The kernel has no descriptor left.
    pub fn is_ours(&mut self, stdin: BorrowedFd<'_>) -> io::Result<bool> {
        // What is no terminal, or not that of our session, is read by whoever comes.
        if tcgetpgrp(stdin).is_ok_and(|foreground| foreground != getpgrp()) {
            if self.resting.is_none() {
                let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
                epoll.add(stdin, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0))?;
                self.resting = Some(epoll);
            }
            if let Some(epoll) = &self.resting {
                epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO)?;
            }
            return Ok(false);
        }
        self.resting = None;
        Ok(true)
    }
}
