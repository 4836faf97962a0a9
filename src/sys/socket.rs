//! Unix sockets, including paths that are longer than a socket address and the transfer of open
//! descriptors (SCM_RIGHTS).
//!
//! The meaning of the bytes is up to the caller (see `protocol::frame`).

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

/// The maximum number of descriptors per message in the kernel (SCM_MAX_FD).
const MAX_FDS: usize = 253;

/// The number of descriptors sent with one byte of a stream.
const FDS_PER_BYTE: usize = 200;

/// A socket address holds 108 bytes, including the final zero byte.
const MAX_ADDRESS: usize = 107;

/// Returns a path to `name` in an open directory that fits into a socket address, however deep the
/// directory is. The path is valid as long as the directory is open.
pub fn short_path(dir: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}

/// Connects to the socket at a path of any length.
///
/// # Errors
/// Fails if no process listens there.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    at(path, |path| UnixStream::connect(path))
}

/// Returns the user at the other end, whether it listens or has connected (SO_PEERCRED).
///
/// # Errors
/// Fails if the kernel does not report it.
pub fn peer_uid(socket: &UnixStream) -> io::Result<u32> {
    Ok(getsockopt(socket, PeerCredentials)?.uid())
}

/// Listens at a path of any length.
///
/// # Errors
/// Fails if the socket cannot be created.
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

/// Sends bytes of `data` starting at `*sent`, with the descriptors that belong to them, and
/// advances `*sent`. May send only a part: call it again until `*sent == data.len()`. Never raises
/// SIGPIPE.
///
/// # Errors
/// Fails like `sendmsg`: with `WouldBlock` if the socket is not ready, and with `InvalidInput` if
/// `data` is too short to carry all descriptors.
pub fn send_some(
    socket: &impl AsRawFd,
    data: &[u8],
    fds: &[RawFd],
    sent: &mut usize,
) -> io::Result<()> {
    if fds.len().div_ceil(FDS_PER_BYTE) > data.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the message is too short for this many descriptors",
        ));
    }
    let chunk = fds.chunks(FDS_PER_BYTE).nth(*sent);
    // A byte with descriptors is sent alone, so that the next byte can carry the next descriptors.
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

/// Sends as much as a non-blocking socket accepts and keeps the rest.
///
/// # Errors
/// Fails like [`send_some`], except for `WouldBlock`.
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
/// Fails like [`send_some`].
pub fn send_all(socket: &impl AsRawFd, data: &[u8], fds: &[RawFd]) -> io::Result<()> {
    let mut sent = 0;
    while sent < data.len() {
        send_some(socket, data, fds, &mut sent)?;
    }
    Ok(())
}

/// Receives up to `buf.len()` bytes and the accompanying descriptors, which are close-on-exec.
/// Returns 0 if the peer has closed the connection.
///
/// # Errors
/// Fails like `recvmsg`: with `WouldBlock` if no data is available on a non-blocking socket.
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
            // SAFETY: the kernel has just created these descriptors for us, and nothing else owns
            // them.
            fds.extend(received.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok(message.bytes)
}

/// Like [`send_all`], for a socket of the event loop.
///
/// # Errors
/// Fails like [`send_some`].
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
    use crate::limits;

    fn target(fd: &impl AsRawFd) -> PathBuf {
        std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap()
    }

    #[test]
    fn hundreds_of_descriptors_keep_their_order() {
        // The descriptors of concurrent tests count, too.
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
    fn paths_may_be_longer_than_an_address() {
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
