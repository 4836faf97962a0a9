//! A peer on a watcher's socket, daemon or client. It may disappear at any time, and the watcher
//! must never wait for it. The client uses this type for its own end, too.

use crate::launch_spec::StepEvent;
use crate::wire;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use serde::Serialize;
use serde::de::DeserializeOwned;
use slotd_protocol::frame::Decoder;
use slotd_sys::socket;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A connected peer.
pub(super) struct Peer {
    pub(super) socket: UnixStream,
    pub(super) incoming: Decoder,
    pub(super) outgoing: Vec<u8>,
}

impl Peer {
    /// `incoming` holds data that was already read from the socket.
    pub(super) fn new(socket: UnixStream, incoming: Decoder) -> io::Result<Peer> {
        socket.set_nonblocking(true)?;
        Ok(Peer { socket, incoming, outgoing: Vec::new() })
    }

    /// Sends as much of the queue as possible. An error means that the peer has disconnected.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        socket::flush(&self.socket, &mut self.outgoing)
    }

    /// Queues a message. Call [`Self::flush`] to send it.
    pub(super) fn queue(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.outgoing.extend_from_slice(&wire::encode(message)?);
        Ok(())
    }

    /// Queues a message and flushes the queue. An error means that the peer has disconnected.
    pub(super) fn push(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.queue(message)?;
        self.flush()
    }

    /// Returns all messages received. An additional error means that the peer has disconnected.
    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> (Vec<T>, io::Result<()>) {
        let mut buf = [0u8; 8192];
        let mut messages = Vec::new();
        loop {
            // No descriptors are expected after the launch. They are closed immediately.
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

/// Queues an event for the peer, if there is one. It is sent with the next flush, so that several
/// events wake the peer only once.
pub(super) fn queue_event(peer: &mut Option<Peer>, event: &StepEvent) {
    if peer.as_mut().is_some_and(|connected| connected.queue(event).is_err()) {
        *peer = None;
    }
}

/// Sends as much of the queue as possible.
pub(super) fn flush(peer: &mut Option<Peer>) {
    if peer.as_mut().is_some_and(|connected| connected.flush().is_err()) {
        *peer = None;
    }
}

/// Sends the last event and waits until it has been written. Returns whether it was.
pub(super) fn send_last(peer: &mut Option<Peer>, event: &StepEvent) -> bool {
    queue_event(peer, event);
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

/// Waits for an event, at most `wait`; `None` means forever. After an error nothing is ready, and
/// the caller polls again.
pub(super) fn poll(fds: &mut [PollFd<'_>], wait: Option<Duration>) {
    // Round up, so that a deadline has passed when the wait ends.
    let rounded =
        |wait: Duration| PollTimeout::try_from(wait.as_millis() + 1).unwrap_or(PollTimeout::MAX);
    let _ = nix::poll::poll(fds, wait.map_or(PollTimeout::NONE, rounded));
}
