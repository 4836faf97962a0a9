//! Frames over a tokio socket, with the descriptors that travel beside them (SCM_RIGHTS).

use crate::protocol::frame::{self, Frame, FrameError, HEADER, MAX_REQUEST_JSON};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// More descriptors than any request needs: stdin, stdout and stderr of each of many tasks.
const MAX_FDS: usize = 253;

/// Reads frames and collects the descriptors that came with them.
pub struct FrameReader<'a> {
    socket: &'a UnixStream,
    fds: Vec<OwnedFd>,
}

impl<'a> FrameReader<'a> {
    pub fn new(socket: &'a UnixStream) -> Self {
        FrameReader { socket, fds: Vec::new() }
    }

    /// The next frame and its descriptors.
    ///
    /// # Errors
    /// [`FrameError::Closed`] at a clean end; a malformed header or a length past the limit otherwise.
    pub async fn next(&mut self) -> Result<(Frame, Vec<OwnedFd>), FrameError> {
        let mut header = [0; HEADER];
        let mut have = 0;
        while have < HEADER {
            match self.receive(&mut header[have..]).await? {
                0 if have == 0 => return Err(FrameError::Closed),
                0 => return Err(FrameError::Io(io::ErrorKind::UnexpectedEof.into())),
                n => have += n,
            }
        }
        let lengths = frame::parse_header(&header, MAX_REQUEST_JSON)?;
        let json = self.exactly(lengths.json).await?;
        let raw = self.exactly(lengths.raw).await?;
        Ok((Frame { json, raw }, std::mem::take(&mut self.fds)))
    }

    async fn exactly(&mut self, len: usize) -> Result<Vec<u8>, FrameError> {
        // Grown as the bytes arrive: a header alone must not make the daemon allocate what it promises.
        let mut bytes = Vec::new();
        let mut have = 0;
        while have < len {
            let want = (len - have).min(256 << 10);
            bytes.resize(have + want, 0);
            match self.receive(&mut bytes[have..]).await? {
                0 => return Err(FrameError::Io(io::ErrorKind::UnexpectedEof.into())),
                n => have += n,
            }
            bytes.truncate(have);
        }
        Ok(bytes)
    }

    async fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let raw = self.socket.as_raw_fd();
        let fds = &mut self.fds;
        self.socket.async_io(Interest::READABLE, || receive_once(raw, into, fds)).await
    }
}

fn receive_once(socket: RawFd, into: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = nix::cmsg_space!([RawFd; MAX_FDS]);
    let mut buffers = [IoSliceMut::new(into)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(socket, &mut buffers, Some(&mut space), flags)?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            for fd in received {
                // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
                let fd = unsafe { OwnedFd::from_raw_fd(fd) };
                // A client that sends more than any request takes loses the rest.
                if fds.len() < MAX_FDS {
                    fds.push(fd);
                }
            }
        }
    }
    Ok(message.bytes)
}

/// Writes all of `bytes`.
///
/// # Errors
/// What the socket says, `WriteZero` where it takes nothing more.
pub async fn write_all(socket: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        socket.writable().await?;
        match socket.try_write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
