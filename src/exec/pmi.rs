//! The process management interface (PMI-1 and PMI-2), through which the ranks of an MPI program
//! started by srun find each other. Each rank has a socket to the watcher of its step; `PMI_FD`
//! holds its descriptor number.
//!
//! This module handles the sockets, and [`table`] handles the protocol.

mod table;

use crate::launch_spec::LaunchSpec;
use slotd_sys::socket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use table::{Outcome, Table};

/// The longest incomplete request. A rank that sends more is disconnected.
const MAX_REQUEST: usize = 1 << 20;

/// The length of the prefix of PMI-2 messages, which holds their length.
const LENGTH: usize = 6;

/// The watcher's end of the connection to a rank.
struct Line {
    socket: UnixStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// The rank has requested PMI-2, whose messages are prefixed with their length.
    framed: bool,
}

impl Line {
    fn flush(&mut self) -> io::Result<()> {
        socket::flush(&self.socket, &mut self.outgoing)
    }

    fn push(&mut self, text: &str) {
        let framed =
            if self.framed { format!("{:LENGTH$}{text}", text.len()) } else { format!("{text}\n") };
        self.outgoing.extend_from_slice(framed.as_bytes());
    }

    /// Reads the available data. Fails if the rank has hung up or sends invalid data.
    fn receive(&mut self) -> io::Result<()> {
        let mut buf = [0u8; 8192];
        loop {
            match socket::receive(&self.socket, &mut buf, &mut Vec::new()) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.incoming.extend_from_slice(&buf[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
            if self.incoming.len() > MAX_REQUEST {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }

    /// Returns the next complete request, and whether it is a PMI-2 request.
    fn next(&mut self) -> io::Result<Option<(String, bool)>> {
        let (from, to, after) = if self.framed {
            let Some(length) = self.incoming.get(..LENGTH) else { return Ok(None) };
            let length =
                std::str::from_utf8(length).ok().and_then(|text| text.trim().parse::<usize>().ok());
            let end = length.ok_or(io::ErrorKind::InvalidData)? + LENGTH;
            (LENGTH, end, end)
        } else {
            let Some(end) = self.incoming.iter().position(|byte| *byte == b'\n') else {
                return Ok(None);
            };
            (0, end, end + 1)
        };
        let Some(bytes) = self.incoming.get(from..to) else { return Ok(None) };
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.incoming.drain(..after);
        Ok(Some((text, self.framed)))
    }
}

/// Answers the requests of the ranks of a step.
pub(super) struct Server {
    table: Table,
    /// By rank; `None` for a rank that has hung up.
    lines: Vec<Option<Line>>,
}

impl Server {
    /// Creates the sockets, and returns the ranks' ends by rank.
    pub(super) fn new(spec: &LaunchSpec) -> io::Result<(Server, Vec<OwnedFd>)> {
        let mut lines = Vec::with_capacity(spec.tasks.len());
        let mut ends = Vec::with_capacity(spec.tasks.len());
        for _ in &spec.tasks {
            let (socket, end) = UnixStream::pair()?;
            socket.set_nonblocking(true)?;
            lines.push(Some(Line {
                socket,
                incoming: Vec::new(),
                outgoing: Vec::new(),
                framed: false,
            }));
            ends.push(OwnedFd::from(end));
        }
        Ok((Server { table: Table::new(spec.step, spec.tasks.len() as u32), lines }, ends))
    }

    /// Returns the open connections: the socket, whether data is waiting to be sent, and the rank.
    pub(super) fn lines(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool, u32)> {
        let there = (0u32..)
            .zip(&self.lines)
            .filter_map(|(rank, line)| line.as_ref().map(|line| (rank, line)));
        there.map(|(rank, line)| (line.socket.as_fd(), !line.outgoing.is_empty(), rank))
    }

    /// Answers the pending requests of this rank. Returns true if the step is to be ended.
    pub(super) fn serve(&mut self, rank: u32) -> bool {
        let Some(Some(line)) = self.lines.get_mut(rank as usize) else { return false };
        let mut end = line.flush().and_then(|()| line.receive());
        let mut outcomes = Vec::new();
        loop {
            match line.next() {
                Ok(Some((text, true))) => outcomes.extend(self.table.message(rank, &text)),
                Ok(Some((text, false))) => {
                    outcomes.extend(self.table.line(rank, &text));
                    if text.contains("cmd=init ") && text.contains("pmi_version=2") {
                        self.deliver(std::mem::take(&mut outcomes));
                        return self.frame(rank);
                    }
                }
                Ok(None) => break,
                Err(e) => {
                    end = Err(e);
                    break;
                }
            }
        }
        let aborts = outcomes.contains(&Outcome::Abort);
        self.deliver(outcomes);
        if end.is_err()
            && let Some(line) = self.lines.get_mut(rank as usize)
        {
            *line = None;
        }
        aborts
    }

    /// Switches this rank to PMI-2 from its next request on.
    fn frame(&mut self, rank: u32) -> bool {
        if let Some(Some(line)) = self.lines.get_mut(rank as usize) {
            line.framed = true;
        }
        self.serve(rank)
    }

    fn deliver(&mut self, outcomes: Vec<Outcome>) {
        for outcome in outcomes {
            let Outcome::Answer { rank, text } = outcome else { continue };
            let Some(Some(line)) = self.lines.get_mut(rank as usize) else { continue };
            line.push(&text);
            // If the rank has hung up, the next read reports it.
            let _ = line.flush();
        }
    }
}
