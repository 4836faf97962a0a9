//! The socket: one daemon for each root, and one session for each connection.

use crate::daemon::detached;
use crate::daemon::session::{self, Hub};
use crate::model::Refusal;
use crate::protocol::answer::Answer;
use crate::protocol::frame::Frame;
use crate::sys::paths::Paths;
use crate::sys::{limits, lock, root_dirs, socket};
use nix::sys::resource::{Resource, getrlimit};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::UnixListener;

/// How long an earlier daemon may take to be gone: one that was killed holds its lock until the
/// kernel has closed its files, and a process that it was starting holds it until that has begun.
const PATIENCE: Duration = Duration::from_secs(5);

/// More clients than this are turned away, however many descriptors there are.
const MAX_CLIENTS: usize = 16_384;

/// Holds `run/slotd.lock` as long as the daemon lives, and the directory of the data, which nobody
/// deletes as one deletes sockets and logs: two daemons would run each job twice.
#[derive(Debug)]
pub struct InstanceLock {
    file: File,
    data: File,
}

impl InstanceLock {
    /// Gives the root to the next daemon, even if the kernel keeps the files of this process open.
    pub fn release(self) {
        // The next one takes them in the other order.
        for file in [self.data, self.file] {
            if let Err(e) = file.unlock() {
                log::warn!("the root is released with the end of this process: {e}");
            }
        }
    }
}

/// Makes the directories of the root and takes the lock of its only daemon.
///
/// # Errors
/// `TimedOut` where another daemon has it; `AlreadyExists` where one has the data whose lock was
/// deleted; a directory that is another user's, that others can
/// write, or a link in its place; anything the file system says, with the path.
pub fn take_root(paths: &Paths) -> io::Result<InstanceLock> {
    let named =
        |path: &Path, e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let make = |dir: &Path, recursive| {
        std::fs::DirBuilder::new().recursive(recursive).mode(0o700).create(dir)
    };
    make(paths.root(), true).map_err(|e| named(paths.root(), e))?;
    for dir in [paths.run_dir(), paths.lib_dir(), paths.jobs_dir()] {
        match make(&dir, false) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(named(&dir, e)),
            _ => drop(root_dirs::open(paths, &dir)?),
        }
    }
    root_dirs::open(paths, &paths.snapshots_dir())?;
    let file = lock::take_within(&paths.daemon_lock(), PATIENCE)?;
    let (lib, gone) = (paths.lib_dir(), || io::Error::from(io::ErrorKind::NotFound));
    let data = root_dirs::open(paths, &lib)?.ok_or_else(gone)?.as_file()?;
    let data = lock::take_opened_within(data, &lib, PATIENCE).map_err(|e| match e.kind() {
        io::ErrorKind::TimedOut => io::Error::new(io::ErrorKind::AlreadyExists, outlived(paths)),
        _ => e,
    })?;
    Ok(InstanceLock { file, data })
}

/// What to do about a daemon that goes on without the files of the run directory.
fn outlived(paths: &Paths) -> String {
    let who = detached::pid_of(paths).map_or_else(String::new, |pid| format!(" (process {pid})"));
    format!(
        "a daemon{who} serves {}, and its files in {} were deleted: \
         `slotd daemon restart` ends it and starts another one; running jobs go on",
        paths.root().display(),
        paths.run_dir().display()
    )
}

/// The socket of this root where a service manager listens there and has handed it over
/// (sd_listen_fds(3)): clients that came before the daemon, or between two of them, wait in it. To
/// be called before other processes are started, once.
pub fn handed_over(paths: &Paths) -> Option<net::UnixListener> {
    let handed = sd_notify::listen_fds().ok()?;
    let own = |fd: i32| {
        // SAFETY: the manager has made it for this process, and nothing else here owns it.
        let listener = unsafe { net::UnixListener::from_raw_fd(fd) };
        // Any other is closed.
        let is_own =
            listener.local_addr().is_ok_and(|addr| addr.as_pathname() == Some(&paths.socket()));
        is_own.then_some(listener)
    };
    handed.filter_map(own).last()
}

/// Tells those who wait in a socket why nobody serves them. Left there, they would start this
/// daemon again and again.
pub fn turn_all_away(listener: &net::UnixListener, why: &str) {
    if listener.set_nonblocking(true).is_ok() {
        while let Ok((client, _)) = listener.accept() {
            turn_away(&client, Refusal::CannotStart(why.to_owned()));
        }
    }
}

/// The socket that was handed over, or a new one. A stale one is replaced: the lock says that
/// nobody listens there. Clients can connect from then on, and wait until they are served.
///
/// # Errors
/// The socket cannot be made, with its path.
pub fn bind(paths: &Paths, handed: Option<net::UnixListener>) -> io::Result<net::UnixListener> {
    if let Some(listener) = handed {
        return Ok(listener);
    }
    let path = paths.socket();
    let at_socket = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at_socket(e)),
        _ => {}
    }
    let listener = socket::bind(&path).map_err(at_socket)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(at_socket)?;
    Ok(listener)
}

/// The same for the event loop.
///
/// # Errors
/// It cannot be watched.
pub fn listen(socket: net::UnixListener) -> io::Result<UnixListener> {
    socket.set_nonblocking(true)?;
    UnixListener::from_std(socket)
}

/// How many clients may be connected: half of the descriptors, so that launches have what they
/// need.
fn max_clients() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    usize::try_from(limit / 2).unwrap_or(usize::MAX).clamp(1, MAX_CLIENTS)
}

/// Accepts for ever.
pub async fn serve(listener: UnixListener, hub: Rc<Hub>) {
    let max = max_clients();
    let mut spare = Spare::new();
    loop {
        match listener.accept().await {
            Ok((socket, _)) if hub.connections.get() >= max as u64 => {
                turn_away(&socket, Refusal::TooManyClients(max));
            }
            Ok((socket, _)) => {
                spare.refill();
                // Counted here: of a crowd all are accepted before the first is served.
                hub.connections.update(|n| n + 1);
                let hub = Rc::clone(&hub);
                actix::spawn(async move {
                    session::serve(socket, Rc::clone(&hub)).await;
                    hub.connections.update(|n| n.saturating_sub(1));
                });
            }
            // Out of descriptors: those who are connected go on, and each that leaves makes room.
            Err(e) => {
                if !spare.turn_away_next(&listener, &e).await {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Accepting again at once after a failure would spin: the kernel keeps reporting the same waiting
/// client.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How many descriptors are kept for clients that are turned away.
const SPARES: usize = 4;

/// Tells a client why it is not served, as far as it can be told without waiting for it.
fn turn_away(socket: &impl AsRawFd, why: Refusal) {
    if let Ok(bytes) = Frame::encode(&Answer::Refused(why), &[]) {
        // Written to a new socket, which has room.
        let _ = socket::send_some(socket, &bytes, &[], &mut 0);
    }
}

/// Descriptors of which one is given up for a moment, where no other is left, to tell a client so.
/// In that moment another thread may take it, for a file of the database say, and keep it: so there
/// are a few.
struct Spare {
    files: Vec<File>,
    /// The log knows that clients are turned away.
    is_logged: bool,
}

impl Spare {
    fn new() -> Spare {
        let mut spare = Spare { files: Vec::new(), is_logged: false };
        spare.fill();
        spare
    }

    /// As far as there are descriptors.
    fn fill(&mut self) {
        while self.files.len() < SPARES {
            let Ok(file) = File::open("/dev/null") else { return };
            self.files.push(file);
        }
    }

    /// To be called when a client was accepted: there are descriptors again.
    fn refill(&mut self) {
        self.fill();
        if std::mem::take(&mut self.is_logged) {
            log::info!("clients are accepted again");
        }
    }

    /// Takes the client that could not be accepted, tells it why, and lets it go. False where that
    /// cannot be done now.
    async fn turn_away_next(&mut self, listener: &UnixListener, error: &io::Error) -> bool {
        let Some(spare) = self.files.pop() else {
            self.note(error);
            self.fill();
            return false;
        };
        drop(spare);
        // The kernel looks for a descriptor before it looks for a client: there need not be one.
        let next = tokio::select! {
            biased;
            accepted = listener.accept() => Some(accepted),
            () = std::future::ready(()) => None,
        };
        let is_done = match next {
            None => true,
            Some(Ok((socket, _))) => {
                self.note(error);
                turn_away(
                    &socket,
                    Refusal::NoDescriptors(limits::descriptors().unwrap_or_default()),
                );
                true
            }
            Some(Err(_)) => {
                self.note(error);
                false
            }
        };
        self.fill();
        is_done
    }

    /// Says once that clients are turned away.
    fn note(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_logged, true) {
            log::error!(
                "a client could not be accepted, and is turned away as are those after it: {error}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::frame::{Decoder, Header};
    use tokio::io::AsyncReadExt;
    use tokio::net::UnixStream;

    #[actix_rt::test]
    async fn one_client_too_many_hears_why() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        turn_away(&ours, Refusal::TooManyClients(3));
        drop(ours);
        let mut bytes = Vec::new();
        theirs.read_to_end(&mut bytes).await.unwrap();
        let mut decoder = Decoder::new(Header::ANSWER);
        decoder.push(&bytes);
        let answer = decoder.next_frame().unwrap().expect("a frame").message::<Answer>().unwrap();
        assert!(matches!(answer, Answer::Refused(Refusal::TooManyClients(3))), "{answer:?}");
    }
}
