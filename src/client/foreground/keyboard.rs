//! Standard input, which may be a terminal that another process group currently has in the
//! foreground.

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::unistd::{getpgrp, tcgetpgrp};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Standard input for polling. Input that is typed while this process is in the background is for
/// another process: reading it would stop this process and its relays, and polling for it would
/// wake up continuously. In that case, the source reports only new input.
#[derive(Debug, Default)]
pub(super) struct Keyboard {
    /// Reports only new input, while this process is in the background.
    resting: Option<Epoll>,
}

impl Keyboard {
    /// Returns the descriptor to poll before calling [`Self::is_ours`].
    pub fn source<'a>(&'a self, stdin: BorrowedFd<'a>) -> BorrowedFd<'a> {
        self.resting.as_ref().map_or(stdin, |epoll| epoll.0.as_fd())
    }

    /// Returns whether standard input may be read now. Call it when the source is readable and
    /// after SIGCONT.
    ///
    /// # Errors
    /// Fails if no descriptors are left.
    pub fn is_ours(&mut self, stdin: BorrowedFd<'_>) -> io::Result<bool> {
        // Anything other than the terminal of our session can always be read.
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
