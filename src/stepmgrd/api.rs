//! The manager's socket: lines in, lines out. A client that does not read is let go, and holds
//! nobody up.

use super::run::NO_TEXT;
use crate::model::ExitCode;
use crate::stepmgr::api::Event;
use nix::sys::socket::{MsgFlags, send};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// What may wait for a client that does not read.
const MAX_UNREAD: usize = 4 << 20;

/// The longest line.
const MAX_LINE: usize = 8 << 20;

/// One connection.
pub struct Client {
    pub id: u64,
    socket: UnixStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// It hears of all steps.
    pub watches: bool,
    /// The steps whose end it waits for.
    pub waits_for: Option<Waiting>,
    /// It says nothing more.
    is_deaf: bool,
    is_gone: bool,
}

/// Who waits for ends.
pub struct Waiting {
    pub left: BTreeSet<u32>,
    /// The worst of those that have ended.
    pub worst: ExitCode,
}

/// The socket and who is connected.
pub struct Api {
    path: PathBuf,
    listener: UnixListener,
    pub clients: Vec<Client>,
    next_id: u64,
}

impl Api {
    /// Listens in the directory of the job.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn open(path: &Path) -> io::Result<Api> {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = crate::sys::socket::bind(path)?;
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
                is_deaf: false,
                is_gone: false,
            });
        }
    }

    /// To this client, if it is still there.
    pub fn tell(&mut self, id: u64, event: &Event) {
        if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
            client.tell(event);
        }
    }

    /// To those who watch, and to the one who submitted the step.
    pub fn tell_all(&mut self, owner: Option<u64>, event: &Event) {
        for client in
            self.clients.iter_mut().filter(|client| client.watches || Some(client.id) == owner)
        {
            client.tell(event);
        }
    }

    /// Sends what can be sent, and forgets who is gone.
    pub fn flush(&mut self) {
        self.clients.iter_mut().for_each(Client::flush);
        self.clients.retain(|client| !client.is_over());
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

    /// Whether it may still say something.
    pub fn is_open(&self) -> bool {
        !self.is_deaf && !self.is_gone
    }

    fn is_over(&self) -> bool {
        self.is_gone
            || (self.is_deaf
                && self.outgoing.is_empty()
                && !self.watches
                && self.waits_for.is_none())
    }

    fn tell(&mut self, event: &Event) {
        if self.is_gone {
            return;
        }
        if self.outgoing.len() > MAX_UNREAD {
            // What it has not read is lost but for a line that says so, where the socket takes one.
            let error = format!("{MAX_UNREAD} bytes of events were not read: the rest is dropped");
            let first = self.outgoing.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            self.outgoing.truncate(first);
            self.push(&Event::Lost { error });
            self.flush();
            self.is_gone = true;
            return;
        }
        self.push(event);
    }

    fn push(&mut self, event: &Event) {
        // An event is plain data: it has a text.
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
                    self.is_gone = true;
                    return;
                }
            }
        }
    }

    /// The whole lines that have come in. To be called when it is readable.
    pub fn lines(&mut self) -> Vec<String> {
        let mut chunk = [0u8; 65_536];
        // A part at a time, so that a client with very much to say does not keep the others
        // waiting.
        match self.socket.read(&mut chunk) {
            Ok(0) => self.is_deaf = true,
            Ok(n) => self.incoming.extend_from_slice(&chunk[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.is_gone = true,
        }
        let end = match self.incoming.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => at + 1,
            None if self.is_deaf => self.incoming.len(),
            None if self.incoming.len() > MAX_LINE => {
                let error = format!("a line of more than {MAX_LINE} bytes");
                self.push(&Event::Refused { error, hint: None });
                self.is_deaf = true;
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
                    self.push(&Event::Refused { error: format!("a line: {NO_TEXT}"), hint: None })
                }
            }
        }
        lines
    }
}
