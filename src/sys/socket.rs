//! Unix sockets: at paths that may be longer than a socket address, and with open descriptors
//! beside the bytes (SCM_RIGHTS).
//!
//! What the bytes mean is the caller's: see `protocol::frame`.

use nix::cmsg_space;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, getsockopt, recvmsg, sendmsg,
};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use tokio::io::Interest;

/// The most descriptors that the kernel takes with one message (SCM_MAX_FD).
const MAX_FDS: usize = 253;

/// Descriptors that go with one byte of a stream.
const FDS_PER_BYTE: usize = 200;

/// A socket address holds 108 bytes, with the zero byte at its end.
const MAX_ADDRESS: usize = 107;

/// A path to `name` in an open directory that fits into a socket address, however deep the
/// directory is. It holds as long as the directory is open.
pub fn short_path(dir: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}

/// Connects to the socket at a path of any length.
///
/// # Errors
/// Nobody listens there.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    at(path, |path| UnixStream::connect(path))
}

/// The user who listens at the other end, or who has connected there (SO_PEERCRED).
///
/// # Errors
/// The kernel does not tell.
pub fn peer_uid(socket: &UnixStream) -> io::Result<u32> {
    Ok(getsockopt(socket, PeerCredentials)?.uid())
}

/// Listens at a path of any length.
///
/// # Errors
/// The socket cannot be made.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    at(path, |path| UnixListener::bind(path))
}

fn at<T>(path: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    match (path.parent(), path.file_name().and_then(|name| name.to_str())) {
        (Some(dir), Some(name)) if path.as_os_str().len() > MAX_ADDRESS => {
            let dir = File::open(dir)?;
            act(&short_path(&dir, name))
        }
        _ => act(path),
    }
}

/// Sends bytes of `data` from `*sent` on, with the descriptors that belong there, and moves
/// `*sent`. May send less than all: call again until `*sent == data.len()`. Never raises SIGPIPE.
///
/// # Errors
/// Those of `sendmsg`; `WouldBlock` for a socket that is not ready; `InvalidInput` where `data` has
/// too few bytes to carry all descriptors.
pub fn send_some(
    socket: &impl AsRawFd,
    data: &[u8],
    fds: &[RawFd],
    sent: &mut usize,
) -> io::Result<()> {
    if fds.len().div_ceil(FDS_PER_BYTE) > data.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "too many descriptors for so short a message",
        ));
    }
    let chunk = fds.chunks(FDS_PER_BYTE).nth(*sent);
    // A byte with descriptors goes alone, so that the next one can carry the next descriptors.
    let end = if chunk.is_some() { *sent + 1 } else { data.len() };
    let bytes = &data[(*sent).min(end)..end];
    let control: Vec<ControlMessage> =
        chunk.iter().map(|fds| ControlMessage::ScmRights(fds)).collect();
    loop {
        match sendmsg::<()>(
            socket.as_raw_fd(),
            &[IoSlice::new(bytes)],
            &control,
            MsgFlags::MSG_NOSIGNAL,
            None,
        ) {
            Err(nix::Error::EINTR) => {}
            done => {
                *sent += done?;
                return Ok(());
            }
        }
    }
}

/// Sends what a socket that does not block takes of this, and leaves the rest.
///
/// # Errors
/// As of [`send_some`], but for `WouldBlock`.
pub fn flush(socket: &impl AsRawFd, outgoing: &mut Vec<u8>) -> io::Result<()> {
    let mut sent = 0;
    while sent < outgoing.len() {
        match send_some(socket, outgoing, &[], &mut sent) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            other => other?,
        }
    }
    outgoing.drain(..sent);
    Ok(())
}

/// Sends all of `data` over a blocking socket, with these descriptors.
///
/// # Errors
/// As of [`send_some`].
pub fn send_all(socket: &impl AsRawFd, data: &[u8], fds: &[RawFd]) -> io::Result<()> {
    let mut sent = 0;
    while sent < data.len() {
        send_some(socket, data, fds, &mut sent)?;
    }
    Ok(())
}

/// Receives up to `buf.len()` bytes and the descriptors that came with them (close-on-exec). 0
/// bytes: the peer is gone.
///
/// # Errors
/// Those of `recvmsg`; `WouldBlock` where nothing is there and the socket does not block.
pub fn receive(socket: &impl AsRawFd, buf: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut control = cmsg_space!([RawFd; MAX_FDS]);
    let mut parts = [IoSliceMut::new(buf)];
    let message = loop {
        match recvmsg::<()>(
            socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::MSG_CMSG_CLOEXEC,
        ) {
            Err(nix::Error::EINTR) => {}
            done => break done?,
        }
    };
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = part {
            // SAFETY: the kernel has just made these descriptors for us, and nothing else owns
            // them.
            fds.extend(received.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok(message.bytes)
}

/// [`send_all`] for a socket of the event loop.
///
/// # Errors
/// As of [`send_some`].
pub async fn send_all_async(
    socket: &tokio::net::UnixStream,
    data: &[u8],
    fds: &[RawFd],
) -> io::Result<()> {
    let mut sent = 0;
    while sent < data.len() {
        socket.async_io(Interest::WRITABLE, || send_some(socket, data, fds, &mut sent)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::limits;

    fn target(fd: &impl AsRawFd) -> PathBuf {
        std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap()
    }

    #[test]
    fn hundreds_of_descriptors_keep_their_order() {
        // Those of the other tests count too.
        let _ = limits::raise_descriptors();
        let (a, b) = UnixStream::pair().unwrap();
        let files: Vec<File> = (0..450).map(|_| File::open("/dev/null").unwrap()).collect();
        let mut raw: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        raw[449] = a.as_raw_fd();
        let data = b"some bytes";
        send_all(&a, data, &raw).unwrap();
        let (mut got, mut fds) = (Vec::new(), Vec::new());
        while got.len() < data.len() {
            let mut buf = [0; 64];
            let n = receive(&b, &mut buf, &mut fds).unwrap();
            got.extend_from_slice(&buf[..n]);
        }
        assert_eq!(got, data);
        assert_eq!(fds.len(), 450);
        assert_eq!(target(&fds[449]), target(&a));
        assert!(send_all(&a, b"x", &raw).is_err(), "one byte cannot carry them");
    }

    #[test]
    fn a_path_may_be_longer_than_an_address() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["short".to_owned(), format!("{}/{}", "d".repeat(120), "deep")] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
            let listener = bind(&path).unwrap();
            let _client = connect(&path).unwrap();
            listener.accept().unwrap();
        }
    }
}
