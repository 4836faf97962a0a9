//! A connection to the daemon.

use crate::client::watch::FileWatch;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use slotd_model::Refusal;
use slotd_protocol::VERSION;
use slotd_protocol::answer::Answer;
use slotd_protocol::frame::{Decoder, Frame, FrameError, Header};
use slotd_protocol::request::{Request, Submit};
use slotd_sys::paths::Paths;
use slotd_sys::{slice, socket, user};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time that a command waits for the next daemon if the current one stops before it has
/// answered.
pub const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// The hint for a daemon that is down.
const START: &str = "start it with `slotd daemon start`, or under systemd with \
    `systemctl --user start slotd.service`, with the same SLOTD_ROOT as this command";

/// Why a request to the daemon failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No process listens on this socket.
    #[error(
        "io error: {source}: no daemon answers at {}\n{}",
        .socket.display(),
        if source.kind() == io::ErrorKind::PermissionDenied {
            "this SLOTD_ROOT belongs to another user: choose one of your own"
        } else {
            START
        }
    )]
    NoDaemon { socket: PathBuf, source: io::Error },
    /// The daemon belongs to another user, and the script and environment to be submitted are not
    /// for that user. The request was not sent.
    #[error(
        "the daemon at {} belongs to user {owner}: no script or environment was sent to it\nuse --uid={owner} or \
         SLOTD_UID={owner} to submit to that user's queue, where the job runs as {owner}, or choose another SLOTD_ROOT",
        .socket.display()
    )]
    Withheld { socket: PathBuf, owner: String },
    /// The socket belongs to an untrusted user. Nothing was sent.
    #[error(
        "{} is served by user {owner}, not by you: nothing was sent\nremove it or choose another SLOTD_ROOT",
        .socket.display()
    )]
    Foreign { socket: PathBuf, owner: u32 },
    /// The connection broke or carried invalid data.
    #[error("{}", broken(.0))]
    Broken(#[from] FrameError),
    /// The streams of a step's tasks cannot be set up.
    #[error("{0}")]
    Streams(io::Error),
    /// The daemon refused this client when it reconnected.
    #[error("{0}")]
    Refused(Refusal),
    /// A signal ended the wait before anything ran.
    #[error("ended by signal {0}")]
    Interrupted(i32),
}

impl ClientError {
    /// Returns whether the daemon is down and may answer later.
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
            format!(
                "the daemon closed the connection before it answered\nif it has stopped, {START}"
            )
        }
        FrameError::Version(version) if *version > VERSION => {
            format!("{error}\nthis command is older than the daemon: use the installed version")
        }
        FrameError::Version(_) => {
            format!("{error}\nthe daemon is older than this command: restart the daemon")
        }
        FrameError::Content(_) => {
            format!("{error}\nif this command or the daemon is of an older version, restart it")
        }
        other => other.to_string(),
    }
}

impl From<io::Error> for ClientError {
    fn from(e: io::Error) -> Self {
        ClientError::Broken(FrameError::Io(e))
    }
}

/// Returns whether `user` may talk to a daemon of `owner`: their own or root's. Root may inspect
/// and control any queue.
fn is_trusted(owner: u32, user: u32) -> bool {
    owner == user || owner == 0 || user == 0
}

/// Returns whether `sender` may send a job for the user `submitted_for` to a daemon of `owner`. The
/// owner can read the script and the environment, and the job runs as the owner. Users may submit
/// to root's daemon.
fn may_receive(owner: u32, submitted_for: u32, sender: u32) -> bool {
    owner == submitted_for || (owner == 0 && submitted_for == sender)
}

/// A connection to the daemon.
#[derive(Debug)]
pub struct Connection {
    socket: UnixStream,
    decoder: Decoder,
    /// Read buffer.
    chunk: Vec<u8>,
    /// The daemon's socket, and the user that the daemon runs as.
    path: PathBuf,
    owner: u32,
    /// The user of this process.
    user: u32,
}

/// The time that an answer may take before a warning is printed. This is the default of Slurm's
/// `MessageTimeout`.
const LATE: Duration = Duration::from_secs(10);

/// This process has already warned about a late answer.
static WARNED_LATE: AtomicBool = AtomicBool::new(false);

/// The minimum and maximum number of bytes to read at once. Most answers are short, and touching
/// memory pages takes time.
const LEAST_READ: usize = 4 << 10;
const MOST_READ: usize = 256 << 10;

impl Connection {
    /// Connects to the daemon of this root, which must belong to this user or to root. Root may
    /// connect to any user's daemon, but does not send it scripts or environments that are not for
    /// that user (see [`Connection::send`]).
    ///
    /// # Errors
    /// Fails with [`ClientError::NoDaemon`] or [`ClientError::Foreign`].
    pub fn open(paths: &Paths) -> Result<Connection, ClientError> {
        // From now on this process mostly waits.
        slice::shorten();
        let path = paths.socket();
        match socket::connect(&path) {
            Ok(socket) => Connection::adopt(socket, paths),
            Err(source) => Err(ClientError::NoDaemon { socket: path, source }),
        }
    }

    /// Returns the connection on a socket that is connected to the daemon of this root already.
    ///
    /// # Errors
    /// Fails like [`Connection::open`].
    pub fn adopt(socket: UnixStream, paths: &Paths) -> Result<Connection, ClientError> {
        let path = paths.socket();
        let no_daemon = |source| ClientError::NoDaemon { socket: path.clone(), source };
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

    /// Returns the user that the daemon runs as.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Sends a request with its raw data.
    ///
    /// # Errors
    /// Fails with [`ClientError::Broken`] or [`ClientError::Withheld`].
    pub fn send(&mut self, request: &Request, raw: &[u8]) -> Result<(), ClientError> {
        self.send_with_fds(request, raw, &[])
    }

    /// Sends a request together with open descriptors.
    ///
    /// # Errors
    /// Fails like [`Self::send`].
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
            // The daemon may have sent a reason before it closed the connection. The next read
            // returns it.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        }
    }

    /// Returns the next answer to a request. If it is late, prints a warning to standard error once
    /// and keeps waiting.
    ///
    /// # Errors
    /// Fails like [`Self::wait`].
    pub fn receive(&mut self) -> Result<(Answer, Vec<u8>), ClientError> {
        if !self.is_readable_within(LATE)? && !WARNED_LATE.swap(true, Ordering::Relaxed) {
            report!(
                "slotd: warning: the daemon at {} has not answered for {} s; waiting for it \
                 (`slotd daemon status` shows whether it hangs)",
                self.path.display(),
                LATE.as_secs()
            );
        }
        self.wait()
    }

    /// Returns whether an answer has been received already, or data arrives within this time.
    ///
    /// # Errors
    /// Fails with [`ClientError::Broken`] if the received data is not a valid answer, or if poll(2)
    /// fails.
    fn is_readable_within(&self, patience: Duration) -> Result<bool, ClientError> {
        // One read may have returned the ends of several answers, and then no more data follows.
        if self.decoder.missing()? == 0 {
            return Ok(true);
        }
        let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], patience) {
            // A signal arrived. The following read waits for the data.
            Err(nix::Error::EINTR) => Ok(true),
            ready => Ok(ready.map_err(io::Error::from)? > 0),
        }
    }

    /// Waits indefinitely for the next answer and returns it.
    ///
    /// # Errors
    /// Fails with [`ClientError::Broken`]. Its error is [`FrameError::Closed`] if the daemon
    /// stopped.
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
    /// Fails like [`Self::send`] and [`Self::receive`].
    pub fn ask(&mut self, request: &Request, raw: &[u8]) -> Result<(Answer, Vec<u8>), ClientError> {
        self.send(request, raw)?;
        self.receive()
    }

    /// Reads once from a readable socket. Returns false at its end.
    ///
    /// # Errors
    /// Fails if the socket cannot be read.
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

    /// Returns the next answer, if it has been received completely.
    ///
    /// # Errors
    /// Fails with [`ClientError::Broken`] if the data is not a valid answer.
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

/// Watches for the creation of the daemon's socket, so that a client can wait for the daemon
/// without polling. Try to connect once after this call, since the socket may exist already.
///
/// # Errors
/// Fails if the directory of the socket cannot be watched.
pub fn watch_for_daemon(paths: &Paths) -> io::Result<FileWatch> {
    let watch = FileWatch::new()?;
    watch.add_dir(&paths.run_dir())?;
    Ok(watch)
}

/// Waits until the daemon of this root is back and connects to it. Without a `timeout`, waits
/// indefinitely.
///
/// # Errors
/// Fails if the directory cannot be watched or the daemon is not back in time.
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

/// Submits a job. If the daemon stops before it answers, waits for the next one and submits again.
/// The daemon identifies a submission by the submitting process, so that it counts only once.
/// `lost` is called when the daemon stops. If the submission is a repeated one, the daemon may have
/// stopped already.
///
/// # Errors
/// Fails if no daemon is running or it is not back in time.
pub fn submit(
    paths: &Paths,
    mut submission: Submit,
    raw: &[u8],
    lost: &mut dyn FnMut(),
) -> Result<(Connection, Answer), ClientError> {
    let mut lost_at: Option<Instant> = None;
    let mut conn = match Connection::open(paths) {
        Err(error) if submission.again && error.is_away() => {
            lost();
            lost_at = Some(Instant::now());
            reopen(paths, Some(RECONNECT_TIMEOUT))?
        }
        opened => opened?,
    };
    loop {
        let error = match conn.ask(&Request::Submit(Box::new(submission.clone())), raw) {
            Err(error @ ClientError::Broken(FrameError::Closed | FrameError::Io(_))) => error,
            other => return other.map(|(answer, _)| (conn, answer)),
        };
        // This may happen more than once: a dying daemon still accepts connections for a moment
        // after it has closed this one.
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
    use slotd_model::JobId;
    use slotd_model::job::{Client, ClientProcess};
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    #[test]
    fn an_answer_in_another_format_is_explained_by_an_upgrade() {
        let error = serde_json::from_str::<Answer>("{}").unwrap_err();
        assert_eq!(
            ClientError::Broken(FrameError::Content(error)).to_string(),
            "malformed message: expected value at line 1 column 2\n\
             if this command or the daemon is of an older version, restart it"
        );
    }

    #[test]
    fn another_protocol_version_names_the_older_side() {
        let printed = |version| ClientError::Broken(FrameError::Version(version)).to_string();
        let (older, newer) = (VERSION - 1, VERSION + 1);
        assert_eq!(
            printed(older),
            format!(
                "protocol version {older} on the other side, {VERSION} here\n\
                 the daemon is older than this command: restart the daemon"
            )
        );
        assert_eq!(
            printed(newer),
            format!(
                "protocol version {newer} on the other side, {VERSION} here\n\
                 this command is older than the daemon: use the installed version"
            )
        );
    }

    #[test]
    fn nothing_is_sent_to_a_daemon_of_another_user() {
        assert!(is_trusted(1000, 1000) && is_trusted(0, 1000) && is_trusted(1000, 0));
        assert!(!is_trusted(1001, 1000));
        assert!(may_receive(1000, 1000, 1000) && may_receive(0, 0, 0), "one's own daemon");
        assert!(may_receive(0, 1000, 1000), "root's daemon");
        assert!(!may_receive(1000, 0, 0), "root's environment is not sent to users");
        assert!(
            may_receive(1000, 1000, 0) && !may_receive(1001, 1000, 0),
            "--uid names the owner, or another user"
        );
        assert!(!may_receive(0, 1000, 0), "root's daemon does not run jobs as other users");
    }

    #[test]
    fn answers_that_arrive_together_are_not_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        std::fs::create_dir(paths.run_dir()).unwrap();
        let listener = UnixListener::bind(paths.socket()).unwrap();
        let mut conn = Connection::open(&paths).unwrap();
        let (mut daemon, _) = listener.accept().unwrap();
        // Longer than the minimum read, so that one read returns the ends of both.
        let raw = vec![b'x'; 2 * LEAST_READ];
        let frames = [(Answer::Done(Vec::new()), &raw[..]), (Answer::Done(Vec::new()), b"2")]
            .map(|(a, raw)| Frame::encode(&a, raw).unwrap());
        assert!(!conn.is_readable_within(Duration::ZERO).unwrap());
        daemon.write_all(&frames[0][..10]).unwrap();
        assert!(conn.fill().unwrap());
        daemon.write_all(&frames[0][10..]).unwrap();
        daemon.write_all(&frames[1]).unwrap();
        conn.receive().unwrap();
        assert!(conn.is_readable_within(Duration::ZERO).unwrap(), "the second is in the buffer");
        assert_eq!(conn.receive().unwrap().1, b"2");
        assert!(!conn.is_readable_within(Duration::ZERO).unwrap());
    }

    #[test]
    fn a_submission_survives_several_closed_connections() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        std::fs::create_dir(paths.run_dir()).unwrap();
        let listener = UnixListener::bind(paths.socket()).unwrap();
        let client = std::thread::spawn(move || {
            let submission = Submit {
                client: Client {
                    process: ClientProcess { pid: 1, start_ticks: 1, ..ClientProcess::default() },
                    ..Client::default()
                },
                ..Submit::default()
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
        assert_eq!(losses, 1, "the user is notified once");
    }
}
