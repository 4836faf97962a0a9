//! The other end of a watcher's line, daemon or client: a socket that may go away at any time, and
//! must never be waited for. A client's own end is one, too.

use crate::exec::launch_spec::StepEvent;
use crate::exec::wire;
use crate::protocol::frame::Decoder;
use crate::sys::socket;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// One that listens.
pub(super) struct Peer {
    pub(super) socket: UnixStream,
    pub(super) incoming: Decoder,
    pub(super) outgoing: Vec<u8>,
}

impl Peer {
    /// `incoming` holds what was read from the socket already.
    pub(super) fn new(socket: UnixStream, incoming: Decoder) -> io::Result<Peer> {
        socket.set_nonblocking(true)?;
        Ok(Peer { socket, incoming, outgoing: Vec::new() })
    }

    /// Sends what it can of what is queued. An error means that the other end is gone.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        socket::flush(&self.socket, &mut self.outgoing)
    }

    /// Queues a message, to be flushed.
    pub(super) fn queue(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.outgoing.extend_from_slice(&wire::encode(message)?);
        Ok(())
    }

    /// Queues a message, and sends what it can. An error means that the other end is gone.
    pub(super) fn push(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.queue(message)?;
        self.flush()
    }

    /// Everything that has come. An error beside it means that the other end is gone.
    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> (Vec<T>, io::Result<()>) {
        let mut buf = [0u8; 8192];
        let mut messages = Vec::new();
        loop {
            // Descriptors have no place after the launch: they are closed at once.
            let end = match socket::receive(&self.socket, &mut buf, &mut Vec::new()) {
                Ok(n @ 1..) => {
                    self.incoming.push(&buf[..n]);
                    None
                }
                Ok(0) => Some(Err(io::ErrorKind::UnexpectedEof.into())),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Some(Ok(())),
                Err(e) => Some(Err(e)),
            };
            loop {
                match wire::next_message(&mut self.incoming) {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => break,
                    Err(e) => return (messages, Err(e)),
                }
            }
            if let Some(end) = end {
                return (messages, end);
            }
        }
    }
}

/// Queues an event for who listens, if there is one. It leaves with the next flush: what belongs
/// together wakes the other side once.
pub(super) fn tell(peer: &mut Option<Peer>, event: &StepEvent) {
    if peer.as_mut().is_some_and(|connected| connected.queue(event).is_err()) {
        *peer = None;
    }
}

/// Sends what it can of what is queued.
pub(super) fn flush(peer: &mut Option<Peer>) {
    if peer.as_mut().is_some_and(|connected| connected.flush().is_err()) {
        *peer = None;
    }
}

/// Tells the last event and waits until it has left; true where it has.
pub(super) fn tell_last(peer: &mut Option<Peer>, event: &StepEvent) -> bool {
    tell(peer, event);
    flush(peer);
    let deadline = Instant::now() + Duration::from_secs(5);
    while let Some(connected) = peer {
        if connected.outgoing.is_empty() {
            return true;
        }
        let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
        poll(&mut [PollFd::new(connected.socket.as_fd(), PollFlags::POLLOUT)], Some(left));
        flush(peer);
    }
    false
}

/// Waits until something happens, or for so long. `None`: for ever. After an error nothing is
/// ready, and the caller looks again.
pub(super) fn poll(fds: &mut [PollFd<'_>], wait: Option<Duration>) {
    // Rounded up, so that a deadline has passed when the wait ends.
    let rounded =
        |wait: Duration| PollTimeout::try_from(wait.as_millis() + 1).unwrap_or(PollTimeout::MAX);
    let _ = nix::poll::poll(fds, wait.map_or(PollTimeout::NONE, rounded));
}
