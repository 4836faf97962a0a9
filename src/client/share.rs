//! A step in the foreground, shared with `sattach`: guests get a copy of what the tasks write, and may write to them.
//!
//! The step's own client is the host, since it holds the ends of the tasks' streams. It listens beside the step's record,
//! in a directory that is its user's alone. A guest never holds the step up: one that does not read is sent away. Streams
//! that the tasks have for themselves, a pipe or a file, do not pass through here (`attach`).

use crate::model::StepId;
use crate::sys::socket;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A guest that is so far behind is sent away.
const MAX_BEHIND: usize = 4 << 20;

/// The longest piece of data in one parcel.
pub const MAX_DATA: usize = 64 << 10;

const HEADER: usize = 9;

/// What host and guest tell each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parcel {
    /// The first thing that a guest gets.
    Hello { tasks: u32, pty: bool },
    /// What a task wrote.
    Output { task: u32, is_stderr: bool, data: Vec<u8> },
    /// The step is over. The last thing that a guest gets.
    Ended,
    /// From a guest, for the standard input of one task or of all.
    Input { task: Option<u32>, data: Vec<u8> },
}

impl Parcel {
    /// A kind, a number and the length of what follows (both little endian), and that.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, number, data): (u8, u32, &[u8]) = match self {
            Parcel::Hello { tasks, pty: false } => (0, *tasks, &[]),
            Parcel::Hello { tasks, pty: true } => (1, *tasks, &[]),
            Parcel::Output { task, is_stderr: false, data } => (2, *task, data),
            Parcel::Output { task, is_stderr: true, data } => (3, *task, data),
            Parcel::Ended => (4, 0, &[]),
            Parcel::Input { task, data } => (5, task.unwrap_or(u32::MAX), data),
        };
        let mut bytes = Vec::with_capacity(HEADER + data.len());
        bytes.push(kind);
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    /// Takes the first whole parcel out of `bytes`; `None` where more of it has to come.
    ///
    /// # Errors
    /// A kind that is none, or more data than one parcel holds.
    pub fn take(bytes: &mut Vec<u8>) -> io::Result<Option<Parcel>> {
        let Some([kind, a, b, c, d, e, f, g, h]) = bytes.first_chunk::<HEADER>().copied() else { return Ok(None) };
        let number = u32::from_le_bytes([a, b, c, d]);
        let len = u32::from_le_bytes([e, f, g, h]) as usize;
        if len > MAX_DATA {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a parcel of {len} bytes is too long")));
        }
        if bytes.len() < HEADER + len {
            return Ok(None);
        }
        let data: Vec<u8> = bytes.drain(..HEADER + len).skip(HEADER).collect();
        Ok(Some(match kind {
            0 | 1 => Parcel::Hello { tasks: number, pty: kind == 1 },
            2 | 3 => Parcel::Output { task: number, is_stderr: kind == 3, data },
            4 => Parcel::Ended,
            5 => Parcel::Input { task: (number != u32::MAX).then_some(number), data },
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{kind} is no kind of parcel"))),
        }))
    }
}

/// `<job_dir>/<step>.attach`
fn socket_path(job_dir: &Path, step: StepId) -> PathBuf {
    job_dir.join(format!("{step}.attach"))
}

/// Joins a step. The first parcel is [`Parcel::Hello`].
///
/// # Errors
/// Nobody shares this step: [`io::ErrorKind::NotFound`] or [`io::ErrorKind::ConnectionRefused`].
pub fn join(job_dir: &Path, step: StepId) -> io::Result<UnixStream> {
    socket::connect(&socket_path(job_dir, step))
}

struct Guest {
    socket: UnixStream,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    is_gone: bool,
}

impl Guest {
    fn flush(&mut self) {
        while !self.outgoing.is_empty() && !self.is_gone {
            match self.socket.write(&self.outgoing) {
                Ok(n) => drop(self.outgoing.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.is_gone = true,
            }
        }
        self.is_gone |= self.outgoing.len() > MAX_BEHIND;
    }
}

/// The host's side.
pub struct Share {
    listener: UnixListener,
    path: PathBuf,
    guests: Vec<Guest>,
    hello: Vec<u8>,
}

impl Share {
    /// Opens a step to guests.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn open(job_dir: &Path, step: StepId, tasks: u32, pty: bool) -> io::Result<Share> {
        let path = socket_path(job_dir, step);
        let listener = socket::bind(&path)?;
        listener.set_nonblocking(true)?;
        Ok(Share { listener, path, guests: Vec::new(), hello: Parcel::Hello { tasks, pty }.encode() })
    }

    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Each guest's socket, and whether something waits to be written to it.
    pub fn guests(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        self.guests.iter().map(|guest| (guest.socket.as_fd(), !guest.outgoing.is_empty()))
    }

    /// To be called when the listener is readable.
    pub fn accept(&mut self) {
        let Ok((socket, _)) = self.listener.accept() else { return };
        if socket.set_nonblocking(true).is_err() {
            return;
        }
        let mut guest = Guest { socket, outgoing: self.hello.clone(), incoming: Vec::new(), is_gone: false };
        guest.flush();
        self.guests.push(guest);
    }

    /// To be called when the `i`-th guest's socket is ready. What it wrote for the tasks.
    pub fn serve(&mut self, i: usize) -> Vec<(Option<u32>, Vec<u8>)> {
        let Some(guest) = self.guests.get_mut(i) else { return Vec::new() };
        guest.flush();
        let mut chunk = [0; 16 << 10];
        match guest.socket.read(&mut chunk) {
            Ok(0) => guest.is_gone = true,
            Ok(n) => guest.incoming.extend_from_slice(&chunk[..n]),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => guest.is_gone = true,
        }
        let mut inputs = Vec::new();
        loop {
            match Parcel::take(&mut guest.incoming) {
                Ok(Some(Parcel::Input { task, data })) => inputs.push((task, data)),
                Ok(None) => return inputs,
                Ok(Some(_)) | Err(_) => {
                    guest.is_gone = true;
                    return inputs;
                }
            }
        }
    }

    /// A copy for every guest.
    pub fn show(&mut self, task: u32, is_stderr: bool, data: &[u8]) {
        if self.guests.is_empty() {
            return;
        }
        for piece in data.chunks(MAX_DATA) {
            let bytes = Parcel::Output { task, is_stderr, data: piece.to_vec() }.encode();
            for guest in &mut self.guests {
                guest.outgoing.extend_from_slice(&bytes);
                guest.flush();
            }
        }
    }

    /// Lets go of those that went. Not while places of guests are in use.
    pub fn tidy(&mut self) {
        self.guests.retain(|guest| !guest.is_gone);
    }
}

impl Drop for Share {
    /// The step is over. A guest that is behind gets what fits.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        for guest in &mut self.guests {
            guest.outgoing.extend_from_slice(&Parcel::Ended.encode());
            guest.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parcels_arrive_as_they_were_sent() {
        let parcels = [
            Parcel::Hello { tasks: 3, pty: true },
            Parcel::Output { task: 2, is_stderr: true, data: b"x\n".to_vec() },
            Parcel::Input { task: None, data: vec![0; MAX_DATA] },
            Parcel::Input { task: Some(1), data: Vec::new() },
            Parcel::Ended,
        ];
        let mut bytes: Vec<u8> = parcels.iter().flat_map(Parcel::encode).collect();
        for parcel in parcels {
            assert_eq!(Parcel::take(&mut bytes).unwrap(), Some(parcel));
        }
        assert_eq!(Parcel::take(&mut bytes).unwrap(), None);
    }

    #[test]
    fn half_a_parcel_waits_and_nonsense_is_an_error() {
        let whole = Parcel::Input { task: Some(0), data: b"abc".to_vec() }.encode();
        for len in 0..whole.len() {
            assert_eq!(Parcel::take(&mut whole[..len].to_vec()).unwrap(), None);
        }
        assert!(Parcel::take(&mut vec![9; 9]).is_err());
        assert!(Parcel::take(&mut vec![6, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn guests_get_copies_and_a_guest_s_words_come_in() {
        let dir = tempfile::tempdir().unwrap();
        let mut share = Share::open(dir.path(), StepId::Num(0), 2, false).unwrap();
        let mut guest = join(dir.path(), StepId::Num(0)).unwrap();
        share.accept();
        share.show(1, false, b"hello");
        guest.write_all(&Parcel::Input { task: None, data: b"hi".to_vec() }.encode()).unwrap();
        assert_eq!(share.serve(0), [(None, b"hi".to_vec())]);
        drop(share);
        let mut bytes = Vec::new();
        guest.read_to_end(&mut bytes).unwrap();
        assert_eq!(Parcel::take(&mut bytes).unwrap(), Some(Parcel::Hello { tasks: 2, pty: false }));
        let output = Parcel::Output { task: 1, is_stderr: false, data: b"hello".to_vec() };
        assert_eq!(Parcel::take(&mut bytes).unwrap(), Some(output));
        assert_eq!(Parcel::take(&mut bytes).unwrap(), Some(Parcel::Ended));
        assert!(join(dir.path(), StepId::Num(0)).is_err());
    }

    #[test]
    fn a_guest_that_does_not_read_is_sent_away() {
        let dir = tempfile::tempdir().unwrap();
        let mut share = Share::open(dir.path(), StepId::Num(0), 1, false).unwrap();
        let _guest = join(dir.path(), StepId::Num(0)).unwrap();
        share.accept();
        let data = vec![b'x'; 1 << 20];
        for _ in 0..6 {
            share.show(0, false, &data);
        }
        share.tidy();
        assert_eq!(share.guests().count(), 0);
    }
}
