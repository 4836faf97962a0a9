//! A client's own line to the watcher of its step: signals go there and news come from there,
//! daemon or not. The step is ended when the client is gone, which the watcher sees by the end of
//! this line.

use crate::exec::launch_spec::{StepCommand, StepEvent};
use crate::exec::peer::Peer;
use crate::exec::wire;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The client's end.
pub struct ClientLine(Peer);

impl ClientLine {
    /// A line, and the end of it that goes to the watcher with the launch.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn pair() -> io::Result<(ClientLine, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((ClientLine(Peer::new(ours, wire::decoder())?), theirs.into()))
    }

    /// Tells the watcher. False where there is none any more. Never waits: what a watcher that
    /// stands still has no room for goes out with the next command.
    pub fn tell(&mut self, command: &StepCommand) -> bool {
        self.0.push(command).is_ok()
    }

    /// To be called when it is readable: what the watcher has told, and whether it is still there.
    pub fn hear(&mut self) -> (Vec<StepEvent>, bool) {
        let (events, end) = self.0.receive();
        (events, end.is_ok())
    }
}

impl AsFd for ClientLine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket.as_fd()
    }
}
