//! A client's own connection to the watcher of its step. It carries signals one way and events the
//! other, even while the daemon is down. If the client exits, the watcher sees the connection close
//! and ends the step.

use crate::launch_spec::{StepCommand, StepEvent};
use crate::peer::Peer;
use crate::wire;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The client's end.
pub struct ClientLine(Peer);

impl ClientLine {
    /// Creates a connection, and returns the end that is sent to the watcher with the launch.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub fn pair() -> io::Result<(ClientLine, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((ClientLine(Peer::new(ours, wire::decoder())?), theirs.into()))
    }

    /// Sends a command. Returns false if the watcher has exited. Never blocks: if the watcher is
    /// stopped and the socket is full, the rest is sent with the next command.
    pub fn send(&mut self, command: &StepCommand) -> bool {
        self.0.push(command).is_ok()
    }

    /// Returns the events received, and whether the watcher is still there. Call this when the
    /// socket is readable.
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
