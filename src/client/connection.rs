//! One connection to the daemon.

use crate::client::watch::FileWatch;
use crate::model::Refusal;
use crate::protocol::answer::Answer;
use crate::protocol::frame::{Decoder, Frame, FrameError, Header};
use crate::protocol::request::{Request, Submit};
use crate::sys::paths::Paths;
use crate::sys::{socket, user};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// The daemon is another user's, and what would run there is not for that user: it was not
    /// sent.
    #[error(
        "the daemon at {} belongs to user {owner}: no script and no environment was sent to it\nuse --uid={owner} or \
         SLOTD_UID={owner} to submit to that user's queue, where the job runs as {owner}, or choose another SLOTD_ROOT",
        .socket.display()
    )]
    Withheld { socket: PathBuf, owner: String },
    /// Somebody else listens there: nothing was sent.
    #[error(
        "{} is served by user {owner}, not by you: nothing was sent\nremove it, or choose another SLOTD_ROOT",
        .socket.display()
    )]
    Foreign { socket: PathBuf, owner: u32 },
    /// The connection broke, or carried something that makes no sense.
    #[error("{}", broken(.0))]
    Broken(#[from] FrameError),
    /// The streams of a step's tasks cannot be made.
    #[error("{0}")]
    Streams(io::Error),
    /// The daemon does not take this client back.
    #[error("{0}")]
    Refused(Refusal),
    /// The user's signal ended the wait before anything ran.
    #[error("ended by signal {0}")]
    Interrupted(i32),
}

impl ClientError {
    /// Whether the daemon may answer later: it is away, or went away.
    pub fn is_away(&self) -> bool {
        matches!(
            self,
            ClientError::NoDaemon { .. }
                | ClientError::Broken(FrameError::Closed | FrameError::Io(_))
        )
    }
}

fn broken(error: &FrameError) -> String {
    match error {
        FrameError::Closed => {
            "the daemon closed the connection before it answered\nlook into its log, and ask again"
                .to_owned()
        }
        other => other.to_string(),
    }
}

impl From<io::Error> for ClientError {
    fn from(e: io::Error) -> Self {
        ClientError::Broken(FrameError::Io(e))
    }
}

/// Whether this user talks to a daemon of `owner`: their own, or root's. Root may look at any queue
/// and steer it.
fn is_trusted(owner: u32, user: u32) -> bool {
    owner == user || owner == 0 || user == 0
}

/// Whether what starts something for a user may be sent by `sender` to a daemon of `owner`, who
/// gets to read the script and the environment, and runs it as `owner`. Users may send theirs to
/// root.
fn may_receive(owner: u32, submitted_for: u32, sender: u32) -> bool {
    owner == submitted_for || (owner == 0 && submitted_for == sender)
}

/// A connection to the daemon.
#[derive(Debug)]
pub struct Connection {
    socket: UnixStream,
    decoder: Decoder,
    /// What is read goes here first.
    chunk: Vec<u8>,
    /// Where the daemon listens, and the user that it runs as.
    path: PathBuf,
    owner: u32,
    /// Of this process.
    user: u32,
}

/// An answer is late after so long, the default of Slurm's `MessageTimeout`.
const LATE: Duration = Duration::from_secs(10);

/// Whether this process has told of a late answer.
static TOLD_LATE: AtomicBool = AtomicBool::new(false);

/// How many bytes are read at once: most answers are short, and each page of memory that is touched
/// costs time.
const LEAST_READ: usize = 4 << 10;
const MOST_READ: usize = 256 << 10;

impl Connection {
    /// Connects to the daemon of this root, which is this user's own or root's. Root connects to
    /// any user's daemon, which gets no script and no environment from it that is not for that
    /// user: see [`Connection::send`].
    ///
    /// # Errors
    /// [`ClientError::NoDaemon`], [`ClientError::Foreign`].
    pub fn open(paths: &Paths) -> Result<Connection, ClientError> {
        let path = paths.socket();
        let no_daemon = |source| ClientError::NoDaemon { socket: path.clone(), source };
        let socket = socket::connect(&path).map_err(no_daemon)?;
        let owner = socket::peer_uid(&socket).map_err(no_daemon)?;
        let user = nix::unistd::getuid().as_raw();
        if !is_trusted(owner, user) {
            return Err(ClientError::Foreign { socket: path, owner });
        }
        Ok(Connection {
            socket,
            decoder: Decoder::new(Header::ANSWER),
            chunk: Vec::new(),
            path,
            owner,
            user,
        })
    }

    /// The user that the daemon runs as.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Sends a request with its raw part.
    ///
    /// # Errors
    /// [`ClientError::Broken`], [`ClientError::Withheld`].
    pub fn send(&mut self, request: &Request, raw: &[u8]) -> Result<(), ClientError> {
        self.send_with_fds(request, raw, &[])
    }

    /// Sends a request together with open descriptors.
    ///
    /// # Errors
    /// As of [`Self::send`].
    pub fn send_with_fds(
        &mut self,
        request: &Request,
        raw: &[u8],
        fds: &[RawFd],
    ) -> Result<(), ClientError> {
        if !request.submits_only_for(|user| may_receive(self.owner, user, self.user)) {
            return Err(ClientError::Withheld {
                socket: self.path.clone(),
                owner: user::user_name(self.owner),
            });
        }
        match socket::send_all(&self.socket, &Frame::encode(request, raw)?, fds) {
            // The daemon may have answered why before it closed: let the next read tell.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        }
    }

    /// The next answer to a question, which is due. If it is late, standard error says so once, and
    /// it is waited for.
    ///
    /// # Errors
    /// As of [`Self::wait`].
    pub fn receive(&mut self) -> Result<(Answer, Vec<u8>), ClientError> {
        if !self.is_readable_within(LATE)? && !TOLD_LATE.swap(true, Ordering::Relaxed) {
            eprintln!(
                "slotd: warning: the daemon at {} has not answered for {} s; waiting for it \
                 (`slotd daemon status` tells whether it hangs)",
                self.path.display(),
                LATE.as_secs()
            );
        }
        self.wait()
    }

    /// Whether something comes in this time.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn is_readable_within(&self, patience: Duration) -> Result<bool, ClientError> {
        let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], patience) {
            // A signal: what is waited for is waited for by the read that follows.
            Err(nix::Error::EINTR) => Ok(true),
            ready => Ok(ready.map_err(io::Error::from)? > 0),
        }
    }

    /// The next answer, waiting for it as long as it takes.
    ///
    /// # Errors
    /// [`ClientError::Broken`]; with [`FrameError::Closed`] where the daemon went away.
    pub fn wait(&mut self) -> Result<(Answer, Vec<u8>), ClientError> {
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
        let len = self.decoder.missing()?.clamp(LEAST_READ, MOST_READ);
        self.chunk.resize(len.max(self.chunk.len()), 0);
        loop {
            match self.socket.read(&mut self.chunk) {
                Ok(n) => {
                    self.decoder.push(&self.chunk[..n]);
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

/// Becomes readable when the socket of this root's daemon is made: waiting for it to come back needs
/// no asking again and again. Try to connect once after this call: the socket may be there already.
///
/// # Errors
/// The directory of the socket cannot be watched.
pub fn watch_for_daemon(paths: &Paths) -> io::Result<FileWatch> {
    let watch = FileWatch::new()?;
    watch.add_dir(&paths.run_dir())?;
    Ok(watch)
}

/// Waits until the daemon of this root is back, and connects to it. `timeout`: how long; `None` for
/// ever.
///
/// # Errors
/// Its directory cannot be watched, or it did not come back in time.
pub fn reopen(paths: &Paths, timeout: Option<Duration>) -> Result<Connection, ClientError> {
    let back = watch_for_daemon(paths)?;
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

/// Hands a submission to the daemon. One that goes away before it answered is waited for and asked
/// again: the submission is known by the process that makes it, so that it counts once. `lost` is
/// called when that happens.
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
    let mut lost_at: Option<Instant> = None;
    loop {
        let error = match conn.ask(&Request::Submit(Box::new(submission.clone())), raw) {
            Err(error @ ClientError::Broken(FrameError::Closed | FrameError::Io(_))) => error,
            other => return other.map(|(answer, _)| (conn, answer)),
        };
        // More than once: a daemon that dies takes connections for a moment after it has closed
        // this one.
        let left = match lost_at {
            Some(at) => RECONNECT_TIMEOUT.checked_sub(at.elapsed()).ok_or(error)?,
            None => {
                lost();
                RECONNECT_TIMEOUT
            }
        };
        lost_at.get_or_insert_with(Instant::now);
        conn = reopen(paths, Some(left))?;
        submission.again = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::JobId;
    use crate::model::job::{Client, ClientProcess};
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_daemon_of_another_user_is_told_nothing() {
        assert!(is_trusted(1000, 1000) && is_trusted(0, 1000) && is_trusted(1000, 0));
        assert!(!is_trusted(1001, 1000));
        assert!(may_receive(1000, 1000, 1000) && may_receive(0, 0, 0), "one's own daemon");
        assert!(may_receive(0, 1000, 1000), "root's daemon");
        assert!(!may_receive(1000, 0, 0), "root's environment stays with root");
        assert!(
            may_receive(1000, 1000, 0) && !may_receive(1001, 1000, 0),
            "--uid names the owner, or another user"
        );
        assert!(!may_receive(0, 1000, 0), "root's daemon runs nothing as somebody else");
    }

    #[test]
    fn a_submission_outlasts_a_daemon_that_closes_more_than_one_connection() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        std::fs::create_dir(paths.run_dir()).unwrap();
        let listener = UnixListener::bind(paths.socket()).unwrap();
        let client = std::thread::spawn(move || {
            let submission = Submit {
                request: Default::default(),
                script_len: 0,
                texts_of: None,
                wait: false,
                test_only: false,
                client: Client {
                    process: ClientProcess { pid: 1, start_ticks: 1, ..ClientProcess::default() },
                    ..Client::default()
                },
                again: false,
            };
            let mut losses = 0;
            let (_, answer) = submit(&paths, submission, &[], &mut || losses += 1).unwrap();
            (answer, losses)
        });
        for (again, answers) in [(false, false), (true, false), (true, true)] {
            let (mut daemon, _) = listener.accept().unwrap();
            let mut requests = Decoder::new(Header::REQUEST);
            let frame = loop {
                let mut chunk = [0; 4096];
                let n = daemon.read(&mut chunk).unwrap();
                requests.push(&chunk[..n]);
                if let Some(frame) = requests.next_frame().unwrap() {
                    break frame;
                }
            };
            let Request::Submit(submission) = frame.message().unwrap() else {
                panic!("another request")
            };
            assert_eq!(submission.again, again);
            if answers {
                daemon
                    .write_all(&Frame::encode(&Answer::Submitted { job: JobId(7) }, &[]).unwrap())
                    .unwrap();
            }
        }
        let (answer, losses) = client.join().unwrap();
        assert!(matches!(answer, Answer::Submitted { job: JobId(7) }), "{answer:?}");
        assert_eq!(losses, 1, "the user is told once");
    }
}
