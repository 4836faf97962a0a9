//! Requests from a socket of the event loop, with the descriptors that travel beside them.

use crate::model::refusal::MOST_TASKS;
use crate::protocol::frame::{Decoder, Frame, FrameError, Header};
use crate::sys::socket::receive;
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// What is received at once, bytes.
const CHUNK: usize = 64 << 10;

/// Descriptors that one request may bring: those of the greatest step.
const MOST_FDS: usize = 3 * MOST_TASKS as usize + 1;

thread_local! {
    /// Shared by all connections: a silent one costs no memory.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; CHUNK]);
}

/// Reads frames and collects the descriptors that came with them.
pub struct FrameReader<'a> {
    socket: &'a UnixStream,
    decoder: Decoder,
}

impl<'a> FrameReader<'a> {
    pub fn new(socket: &'a UnixStream) -> Self {
        FrameReader { socket, decoder: Decoder::new(Header::REQUEST) }
    }

    /// The next frame and its descriptors, at most [`MOST_FDS`]: a client that sends more loses the
    /// rest, as one does for which this process has no descriptors left.
    ///
    /// # Errors
    /// [`FrameError::Closed`] at a clean end; a malformed header or a length past the limit
    /// otherwise.
    pub async fn next(&mut self) -> Result<(Frame, Vec<OwnedFd>), FrameError> {
        let mut fds = Vec::new();
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok((frame, fds));
            }
            // No byte of a later frame: its descriptors would come with it.
            let want = self.decoder.missing()?.min(CHUNK);
            let decoder = &mut self.decoder;
            let receive = || {
                SCRATCH.with_borrow_mut(|chunk| {
                    let count = receive(self.socket, &mut chunk[..want], &mut fds)?;
                    decoder.push(&chunk[..count]);
                    Ok(count)
                })
            };
            if self.socket.async_io(Interest::READABLE, receive).await? == 0 {
                return Err(self.decoder.end());
            }
            fds.truncate(MOST_FDS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::socket::send_all;
    use std::os::fd::AsRawFd;

    #[actix_rt::test]
    async fn descriptors_come_with_the_request_that_they_were_sent_with() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let theirs = UnixStream::from_std(theirs).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        send_all(&ours, &Frame::encode(&"first", b"").unwrap(), &[]).unwrap();
        send_all(&ours, &Frame::encode(&"second", b"raw").unwrap(), &[null.as_raw_fd()]).unwrap();
        let mut reader = FrameReader::new(&theirs);
        let (first, none) = reader.next().await.unwrap();
        assert_eq!((first.message::<String>().unwrap().as_str(), none.len()), ("first", 0));
        let (second, one) = reader.next().await.unwrap();
        assert_eq!((second.raw.as_slice(), one.len()), (b"raw".as_slice(), 1));
        drop(ours);
        assert!(matches!(reader.next().await, Err(FrameError::Closed)));
    }
}
