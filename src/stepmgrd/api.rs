//! The manager's socket: lines in, lines out. A client that does not read is disconnected and never
//! delays others.

use super::run::NOT_UTF8;
use nix::sys::socket::{MsgFlags, send};
use slotd_model::ExitCode;
use slotd_stepmgr::api::Event;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The most bytes queued for a client that does not read.
const MAX_UNREAD: usize = 4 << 20;

/// The longest line in bytes.
const MAX_LINE: usize = 8 << 20;

/// One connection.
pub struct Client {
    pub id: u64,
    socket: UnixStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// It receives the events of all steps.
    pub watches: bool,
    /// The steps that it is waiting for.
    pub waits_for: Option<Waiting>,
    /// The client has closed its sending side.
    is_read_closed: bool,
    is_broken: bool,
}

/// A pending `wait` request.
pub struct Waiting {
    pub left: BTreeSet<u32>,
    /// The worst exit code among the steps that have ended.
    pub worst: ExitCode,
}

/// The socket and its connections.
pub struct Api {
    path: PathBuf,
    listener: UnixListener,
    pub clients: Vec<Client>,
    next_id: u64,
}

impl Api {
    /// Listens at `path`, in the job's directory.
    ///
    /// # Errors
    /// Fails if the socket cannot be created.
    pub fn open(path: &Path) -> io::Result<Api> {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = slotd_sys::socket::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Api { path: path.to_owned(), listener, clients: Vec::new(), next_id: 0 })
    }

    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    pub fn accept(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            self.next_id += 1;
            self.clients.push(Client {
                id: self.next_id,
                socket,
                incoming: Vec::new(),
                outgoing: Vec::new(),
                watches: false,
                waits_for: None,
                is_read_closed: false,
                is_broken: false,
            });
        }
    }

    /// Sends an event to a client, if it is still connected.
    pub fn send(&mut self, id: u64, event: &Event) {
        if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
            client.send(event);
        }
    }

    /// Sends an event to all watchers and to the client that submitted the step.
    pub fn broadcast(&mut self, owner: Option<u64>, event: &Event) {
        for client in
            self.clients.iter_mut().filter(|client| client.watches || Some(client.id) == owner)
        {
            client.send(event);
        }
    }

    /// Sends queued events and drops closed connections.
    pub fn flush(&mut self) {
        self.clients.iter_mut().for_each(Client::flush);
        self.clients.retain(|client| !client.is_finished());
    }

    pub fn close(&mut self) {
        self.flush();
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Client {
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub fn wants_to_write(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Returns whether the client may still send requests.
    pub fn is_open(&self) -> bool {
        !self.is_read_closed && !self.is_broken
    }

    fn is_finished(&self) -> bool {
        self.is_broken
            || (self.is_read_closed
                && self.outgoing.is_empty()
                && !self.watches
                && self.waits_for.is_none())
    }

    fn send(&mut self, event: &Event) {
        if self.is_broken {
            return;
        }
        if self.outgoing.len() > MAX_UNREAD {
            // Drop the unread events, but send a final line that reports the loss, if the socket
            // accepts it.
            let error = format!(
                "more than {MAX_UNREAD} bytes of events were not read: later events were dropped"
            );
            let first = self.outgoing.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            self.outgoing.truncate(first);
            self.push(&Event::Lost { error });
            self.flush();
            self.is_broken = true;
            return;
        }
        self.push(event);
    }

    fn push(&mut self, event: &Event) {
        // Events are plain data, so serializing them does not fail.
        if serde_json::to_writer(&mut self.outgoing, event).is_ok() {
            self.outgoing.push(b'\n');
        }
    }

    fn flush(&mut self) {
        while !self.outgoing.is_empty() {
            match send(self.socket.as_raw_fd(), &self.outgoing, MsgFlags::MSG_NOSIGNAL) {
                Ok(n) => drop(self.outgoing.drain(..n)),
                Err(nix::Error::EAGAIN) => return,
                Err(nix::Error::EINTR) => {}
                Err(_) => {
                    self.is_broken = true;
                    return;
                }
            }
        }
    }

    /// Reads and returns complete lines. Call this when the socket is readable.
    pub fn lines(&mut self) -> Vec<String> {
        let mut chunk = [0u8; 65_536];
        // Read one chunk per call, so that a client that sends a lot does not delay the others.
        match self.socket.read(&mut chunk) {
            Ok(0) => self.is_read_closed = true,
            Ok(n) => self.incoming.extend_from_slice(&chunk[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.is_broken = true,
        }
        let end = match self.incoming.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => at + 1,
            None if self.is_read_closed => self.incoming.len(),
            None if self.incoming.len() > MAX_LINE => {
                let error = format!("line is longer than {MAX_LINE} bytes");
                self.push(&Event::Refused { error, hint: None });
                self.is_read_closed = true;
                self.incoming.clear();
                0
            }
            None => 0,
        };
        let whole: Vec<u8> = self.incoming.drain(..end).collect();
        let mut lines = Vec::new();
        for line in whole.split(|byte| *byte == b'\n') {
            match std::str::from_utf8(line) {
                Ok(text) if text.trim().is_empty() => {}
                Ok(text) => lines.push(text.to_owned()),
                Err(_) => {
                    self.push(&Event::Refused { error: format!("line: {NOT_UTF8}"), hint: None })
                }
            }
        }
        lines
    }
}
