//! Shares a foreground step with `sattach`: guests receive a copy of the tasks' output and may send
//! input.
//!
//! The step's own client is the host, since it holds the ends of the tasks' streams. Its socket is
//! next to the step's record, in a directory that only the user can access. Guests never delay the
//! step: a guest that does not read is disconnected. Streams that go directly to a pipe or a file
//! do not pass through here (see `attach`).

use serde::{Deserialize, Serialize};
use slotd_model::StepId;
use slotd_protocol::frame::{Decoder, Frame, FrameError, Header};
use slotd_sys::socket;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A guest with more unsent data than this, in bytes, is disconnected.
const MAX_BEHIND: usize = 4 << 20;

/// The maximum size of the data in one message, in bytes.
pub const MAX_DATA: usize = 64 << 10;

/// The limits of messages in both directions.
const HEADER: Header = Header::Versioned { max_json: 1000, max_raw: MAX_DATA };

/// A message between the step's client and a guest. Data is the raw part of the frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The first message to a guest.
    Hello { tasks: u32, pty: bool },
    /// Output of a task.
    Output { task: u32, is_stderr: bool },
    /// The step has ended. The last message to a guest.
    Ended,
    /// Input from a guest, for one task or for all.
    Input { task: Option<u32> },
}

/// Returns a decoder for messages of the other side.
pub fn decoder() -> Decoder {
    Decoder::new(HEADER)
}

/// Returns the next complete message and its data.
///
/// # Errors
/// Fails if the data is not a valid message.
pub fn next_message(decoder: &mut Decoder) -> Result<Option<(Message, Vec<u8>)>, FrameError> {
    let Some(frame) = decoder.next_frame()? else { return Ok(None) };
    Ok(Some((frame.message()?, frame.raw)))
}

/// Returns `<job_dir>/<step>.attach`.
fn socket_path(job_dir: &Path, step: StepId) -> PathBuf {
    job_dir.join(format!("{step}.attach"))
}

/// Attaches to a step. The first message is [`Message::Hello`].
///
/// # Errors
/// Fails with [`io::ErrorKind::NotFound`] or [`io::ErrorKind::ConnectionRefused`] if the step is
/// not shared.
pub fn join(job_dir: &Path, step: StepId) -> io::Result<UnixStream> {
    socket::connect(&socket_path(job_dir, step))
}

struct Guest {
    socket: UnixStream,
    outgoing: Vec<u8>,
    incoming: Decoder,
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

/// The host's side of a shared step.
pub struct Share {
    listener: UnixListener,
    path: PathBuf,
    guests: Vec<Guest>,
    hello: Vec<u8>,
}

impl Share {
    /// Opens a step for guests.
    ///
    /// # Errors
    /// Fails if the socket cannot be created.
    pub fn open(job_dir: &Path, step: StepId, tasks: u32, pty: bool) -> io::Result<Share> {
        let path = socket_path(job_dir, step);
        let listener = socket::bind(&path)?;
        listener.set_nonblocking(true)?;
        let hello = Frame::encode(&Message::Hello { tasks, pty }, &[])?;
        Ok(Share { listener, path, guests: Vec::new(), hello })
    }

    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Returns each guest's socket and whether unsent data is pending.
    pub fn guests(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        self.guests.iter().map(|guest| (guest.socket.as_fd(), !guest.outgoing.is_empty()))
    }

    /// Accepts a guest when the listener is readable.
    pub fn accept(&mut self) {
        let Ok((socket, _)) = self.listener.accept() else { return };
        if socket.set_nonblocking(true).is_err() {
            return;
        }
        let mut guest =
            Guest { socket, outgoing: self.hello.clone(), incoming: decoder(), is_gone: false };
        guest.flush();
        self.guests.push(guest);
    }

    /// Serves the `i`-th guest when its socket is ready. Returns its input for the tasks.
    pub fn serve(&mut self, i: usize) -> Vec<(Option<u32>, Vec<u8>)> {
        let Some(guest) = self.guests.get_mut(i) else { return Vec::new() };
        guest.flush();
        let mut chunk = [0; 16 << 10];
        match guest.socket.read(&mut chunk) {
            Ok(0) => guest.is_gone = true,
            Ok(n) => guest.incoming.push(&chunk[..n]),
            Err(e)
                if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => guest.is_gone = true,
        }
        let mut inputs = Vec::new();
        loop {
            match next_message(&mut guest.incoming) {
                Ok(Some((Message::Input { task }, data))) => inputs.push((task, data)),
                Ok(None) => return inputs,
                Ok(Some(_)) | Err(_) => {
                    guest.is_gone = true;
                    return inputs;
                }
            }
        }
    }

    /// Sends a copy of the output to every guest.
    pub fn show(&mut self, task: u32, is_stderr: bool, data: &[u8]) {
        if self.guests.is_empty() {
            return;
        }
        for piece in data.chunks(MAX_DATA) {
            let Ok(bytes) = Frame::encode(&Message::Output { task, is_stderr }, piece) else {
                continue;
            };
            for guest in &mut self.guests {
                guest.outgoing.extend_from_slice(&bytes);
                guest.flush();
            }
        }
    }

    /// Removes disconnected guests. This invalidates the indexes of guests.
    pub fn tidy(&mut self) {
        self.guests.retain(|guest| !guest.is_gone);
    }
}

impl Drop for Share {
    /// Ends the step for all guests. A guest that is behind receives as much as fits.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        let Ok(ended) = Frame::encode(&Message::Ended, &[]) else { return };
        for guest in &mut self.guests {
            guest.outgoing.extend_from_slice(&ended);
            guest.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_messages_are_errors() {
        let too_long = Frame::encode(&Message::Input { task: None }, &[0; MAX_DATA + 1]).unwrap();
        for bytes in
            [b"not a slotd message".as_slice(), &too_long, &Frame::encode(&"other", b"").unwrap()]
        {
            let mut decoder = decoder();
            decoder.push(bytes);
            assert!(next_message(&mut decoder).is_err());
        }
    }

    #[test]
    fn guests_receive_output_and_send_input() {
        let dir = tempfile::tempdir().unwrap();
        let mut share = Share::open(dir.path(), StepId::Num(0), 2, false).unwrap();
        let mut guest = join(dir.path(), StepId::Num(0)).unwrap();
        share.accept();
        share.show(1, false, b"hello");
        guest.write_all(&Frame::encode(&Message::Input { task: None }, b"hi").unwrap()).unwrap();
        assert_eq!(share.serve(0), [(None, b"hi".to_vec())]);
        drop(share);
        let mut bytes = Vec::new();
        guest.read_to_end(&mut bytes).unwrap();
        let mut decoder = decoder();
        decoder.push(&bytes);
        let mut next = || next_message(&mut decoder).unwrap();
        assert_eq!(next(), Some((Message::Hello { tasks: 2, pty: false }, Vec::new())));
        assert_eq!(
            next(),
            Some((Message::Output { task: 1, is_stderr: false }, b"hello".to_vec()))
        );
        assert_eq!(next(), Some((Message::Ended, Vec::new())));
        assert!(join(dir.path(), StepId::Num(0)).is_err());
    }

    #[test]
    fn a_guest_that_does_not_read_is_disconnected() {
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
