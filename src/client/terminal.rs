//! The user's terminal. It is in raw mode while a program uses a pseudo-terminal, and always
//! restored afterwards.

use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::termios::{self, SetArg, Termios};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// A terminal in raw mode. Dropping it restores the previous mode.
#[derive(Debug)]
pub struct Raw<'a> {
    terminal: BorrowedFd<'a>,
    before: Termios,
}

impl<'a> Raw<'a> {
    /// Puts `terminal` into raw mode.
    ///
    /// # Errors
    /// Fails if it is not a terminal.
    pub fn enter(terminal: BorrowedFd<'a>) -> io::Result<Raw<'a>> {
        let before = termios::tcgetattr(terminal)?;
        let mut raw = before.clone();
        termios::cfmakeraw(&mut raw);
        termios::tcsetattr(terminal, SetArg::TCSANOW, &raw)?;
        Ok(Raw { terminal, before })
    }
}

impl Drop for Raw<'_> {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(self.terminal, SetArg::TCSADRAIN, &self.before);
    }
}

/// Returns the window size of a terminal, if it has one.
pub fn window(terminal: BorrowedFd<'_>) -> Option<Winsize> {
    let mut size = Winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ fills in a winsize.
    let done = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (done == 0 && size.ws_row > 0).then_some(size)
}

/// Sets the window size of a terminal. The kernel sends SIGWINCH to its foreground processes.
pub fn set_window(terminal: BorrowedFd<'_>, size: Winsize) {
    // SAFETY: TIOCSWINSZ reads a winsize.
    unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
}

/// Creates a pseudo-terminal with the modes and window size of `model`.
///
/// # Errors
/// Fails if the kernel has no pseudo-terminals left.
pub fn like(model: BorrowedFd<'_>) -> io::Result<OpenptyResult> {
    let modes = termios::tcgetattr(model).ok();
    let pty = openpty(window(model).as_ref(), modes.as_ref())?;
    for fd in [pty.master.as_fd(), pty.slave.as_fd()] {
        nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    }
    Ok(pty)
}
