//! The daemon as a watcher sees it: a socket that may go away at any time, and must never be waited for.

use crate::exec::launch_spec::{StepCommand, StepEvent};
use crate::exec::wire;
use crate::protocol::frame::Decoder;
use crate::sys::socket;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A daemon that listens.
pub(super) struct Peer {
    pub(super) socket: UnixStream,
    incoming: Decoder,
    pub(super) outgoing: Vec<u8>,
}

impl Peer {
    /// `incoming` holds what was read from the socket already.
    pub(super) fn new(socket: UnixStream, incoming: Decoder) -> io::Result<Peer> {
        socket.set_nonblocking(true)?;
        Ok(Peer { socket, incoming, outgoing: Vec::new() })
    }

    /// Sends what it can of what is queued. An error means that the daemon is gone.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.outgoing.len() {
            match socket::send_some(&self.socket, &self.outgoing, &[], &mut sent) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                other => other?,
            }
        }
        self.outgoing.drain(..sent);
        Ok(())
    }

    /// Everything that has come. An error means that the daemon is gone.
    pub(super) fn receive(&mut self) -> io::Result<Vec<StepCommand>> {
        let mut commands = Vec::new();
        let mut buf = [0u8; 8192];
        loop {
            // Descriptors have no place after the launch: they are closed at once.
            match socket::receive(&self.socket, &mut buf, &mut Vec::new()) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.incoming.push(&buf[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        while let Some(command) = wire::next_message(&mut self.incoming)? {
            commands.push(command);
        }
        Ok(commands)
    }
}

/// Queues an event for the daemon, if there is one.
pub(super) fn tell(peer: &mut Option<Peer>, event: &StepEvent) {
    let Some(connected) = peer else { return };
    let told = wire::encode(event).and_then(|bytes| {
        connected.outgoing.extend_from_slice(&bytes);
        connected.flush()
    });
    if told.is_err() {
        *peer = None;
    }
}

/// Tells the last event and waits until it has left; true where it has.
pub(super) fn tell_last(peer: &mut Option<Peer>, event: &StepEvent) -> bool {
    tell(peer, event);
    let deadline = Instant::now() + Duration::from_secs(5);
    while let Some(connected) = peer {
        if connected.outgoing.is_empty() {
            return true;
        }
        let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
        poll(&mut [PollFd::new(connected.socket.as_fd(), PollFlags::POLLOUT)], Some(left));
        if connected.flush().is_err() {
            *peer = None;
        }
    }
    false
}

/// Waits until something happens, or for so long. `None`: for ever. After an error nothing is ready, and the caller looks
/// again.
pub(super) fn poll(fds: &mut [PollFd<'_>], wait: Option<Duration>) {
    // Rounded up, so that a deadline has passed when the wait ends.
    let rounded = |wait: Duration| PollTimeout::try_from(wait.as_millis() + 1).unwrap_or(PollTimeout::MAX);
    let _ = nix::poll::poll(fds, wait.map_or(PollTimeout::NONE, rounded));
}
