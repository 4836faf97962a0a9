//! One connection to the daemon.

use crate::model::Refusal;
use crate::protocol::answer::Answer;
use crate::protocol::frame::{Decoder, Frame, FrameError, Header};
use crate::protocol::request::{Request, Submit};
use crate::sys::paths::Paths;
use crate::sys::socket;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a command that the daemon has left without an answer waits for the next daemon.
pub const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Why the daemon could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens at this socket.
    #[error(
        "io error: {source}: no daemon answers at {}\nstart it with `slotd daemon` or `systemctl --user start \
         slotd.service`, with the same SLOTD_ROOT as this command",
        .socket.display()
    )]
    NoDaemon { socket: PathBuf, source: io::Error },
    /// The connection broke, or carried something that makes no sense.
    #[error("{}", broken(.0))]
    Broken(#[from] FrameError),
    /// The daemon does not take this client back.
    #[error("{0}")]
    Refused(Refusal),
    /// The user's signal ended the wait before anything ran.
    #[error("ended by signal {0}")]
    Interrupted(i32),
}

fn broken(error: &FrameError) -> String {
    match error {
        FrameError::Closed => {
            "the daemon closed the connection before it answered\nlook into its log, and ask again".to_owned()
        }
        other => other.to_string(),
    }
}

impl From<io::Error> for ClientError {
    fn from(e: io::Error) -> Self {
        ClientError::Broken(FrameError::Io(e))
    }
}

/// A connection to the daemon.
#[derive(Debug)]
pub struct Connection {
    socket: UnixStream,
    decoder: Decoder,
}

impl Connection {
    /// Connects to the daemon of this root.
    ///
    /// # Errors
    /// [`ClientError::NoDaemon`].
    pub fn open(paths: &Paths) -> Result<Connection, ClientError> {
        let path = paths.socket();
        let no_daemon = |source| ClientError::NoDaemon { socket: path.clone(), source };
        Ok(Connection { socket: socket::connect(&path).map_err(no_daemon)?, decoder: Decoder::new(Header::ANSWER) })
    }

    /// Sends a request with its raw part.
    ///
    /// # Errors
    /// [`ClientError::Broken`].
    pub fn send(&mut self, request: &Request, raw: &[u8]) -> Result<(), ClientError> {
        self.send_with_fds(request, raw, &[])
    }

    /// Sends a request together with open descriptors.
    ///
    /// # Errors
    /// [`ClientError::Broken`].
    pub fn send_with_fds(&mut self, request: &Request, raw: &[u8], fds: &[RawFd]) -> Result<(), ClientError> {
        match socket::send_all(&self.socket, &Frame::encode(request, raw)?, fds) {
            // The daemon may have answered why before it closed: let the next read tell.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        }
    }

    /// The next answer, waiting for it.
    ///
    /// # Errors
    /// [`ClientError::Broken`]; with [`FrameError::Closed`] where the daemon went away.
    pub fn receive(&mut self) -> Result<(Answer, Vec<u8>), ClientError> {
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok((frame.message()?, frame.raw));
            }
            if !self.fill()? {
                return Err(ClientError::Broken(FrameError::Closed));
            }
        }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// As of [`Self::send`] and [`Self::receive`].
    pub fn ask(&mut self, request: &Request, raw: &[u8]) -> Result<(Answer, Vec<u8>), ClientError> {
        self.send(request, raw)?;
        self.receive()
    }

    /// To be called when the socket is readable: reads once. False at its end.
    ///
    /// # Errors
    /// What the socket says.
    pub fn fill(&mut self) -> Result<bool, ClientError> {
        let mut chunk = [0; 65_536];
        loop {
            match self.socket.read(&mut chunk) {
                Ok(n) => {
                    self.decoder.push(&chunk[..n]);
                    return Ok(n > 0);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// The next answer that has come in whole, if one has.
    ///
    /// # Errors
    /// [`ClientError::Broken`] for bytes that are no answer.
    pub fn next_whole(&mut self) -> Result<Option<Answer>, ClientError> {
        Ok(match self.decoder.next_frame()? {
            Some(frame) => Some(frame.message()?),
            None => None,
        })
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits for the daemon to come back without asking again and again: the kernel tells when the socket is made.
#[derive(Debug)]
pub struct SocketWatch {
    inotify: Inotify,
}

impl SocketWatch {
    /// Begins to watch the directory of the socket. Try to connect once after this: it may be there already.
    ///
    /// # Errors
    /// The directory cannot be watched.
    pub fn new(paths: &Paths) -> io::Result<SocketWatch> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let events = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_ATTRIB;
        inotify.add_watch(&paths.run_dir(), events)?;
        Ok(SocketWatch { inotify })
    }

    /// To be called when it is readable.
    pub fn clear(&self) {
        while self.inotify.read_events().is_ok_and(|events| !events.is_empty()) {}
    }
}

/// Waits until the daemon of this root is back, and connects to it. `timeout`: how long; `None` for ever.
///
/// # Errors
/// Its directory cannot be watched, or it did not come back in time.
pub fn reopen(paths: &Paths, timeout: Option<Duration>) -> Result<Connection, ClientError> {
    let back = SocketWatch::new(paths)?;
    let begun = Instant::now();
    loop {
        let error = match Connection::open(paths) {
            Ok(conn) => return Ok(conn),
            Err(error) => error,
        };
        let wait = match timeout {
            None => PollTimeout::NONE,
            Some(timeout) => match timeout.checked_sub(begun.elapsed()) {
                None => return Err(error),
                Some(left) => PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX),
            },
        };
        match poll(&mut [PollFd::new(back.as_fd(), PollFlags::POLLIN)], wait) {
            Ok(_) | Err(nix::Error::EINTR) => back.clear(),
            Err(e) => return Err(io::Error::from(e).into()),
        }
    }
}

/// Hands a submission to the daemon. One that goes away before it answered is waited for and asked again: the submission
/// is known by the process that makes it, so that it counts once. `lost` is called when that happens.
///
/// # Errors
/// No daemon is there, or it did not come back in time.
pub fn submit(
    paths: &Paths,
    mut submission: Submit,
    raw: &[u8],
    lost: &mut dyn FnMut(),
) -> Result<(Connection, Answer), ClientError> {
    let mut conn = Connection::open(paths)?;
    loop {
        match conn.ask(&Request::Submit(Box::new(submission.clone())), raw) {
            Err(ClientError::Broken(FrameError::Closed | FrameError::Io(_))) if !submission.again => {
                lost();
                conn = reopen(paths, Some(RECONNECT_TIMEOUT))?;
                submission.again = true;
            }
            other => return other.map(|(answer, _)| (conn, answer)),
        }
    }
}

impl AsFd for SocketWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}
