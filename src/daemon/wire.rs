//! Reads requests from a socket of the event loop, with their file descriptors.

use slotd_model::refusal::MOST_TASKS;
use slotd_protocol::frame::{Decoder, Frame, FrameError, Header};
use slotd_sys::socket::receive;
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The most bytes to receive at once.
const CHUNK: usize = 64 << 10;

/// The most descriptors per request, enough for the largest step.
const MOST_FDS: usize = 3 * MOST_TASKS as usize + 1;

thread_local! {
    /// Shared by all connections, so that a silent one needs no memory.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; CHUNK]);
}

/// Reads frames and the descriptors that came with them.
pub struct FrameReader<'a> {
    socket: &'a UnixStream,
    decoder: Decoder,
}

impl<'a> FrameReader<'a> {
    pub fn new(socket: &'a UnixStream) -> Self {
        FrameReader { socket, decoder: Decoder::new(Header::REQUEST) }
    }

    /// Returns the next frame and at most [`MOST_FDS`] descriptors. Further descriptors are lost,
    /// as are those beyond the limit of this process.
    ///
    /// # Errors
    /// Fails with [`FrameError::Closed`] at a clean end, and otherwise on a malformed header or a
    /// length beyond the limit.
    pub async fn next(&mut self) -> Result<(Frame, Vec<OwnedFd>), FrameError> {
        let mut fds = Vec::new();
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok((frame, fds));
            }
            // Read no byte of a later frame, whose descriptors would come with it.
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
    use slotd_sys::socket::send_all;
    use std::os::fd::AsRawFd;

    #[actix_rt::test]
    async fn descriptors_arrive_with_their_request() {
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
