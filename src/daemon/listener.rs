//! The socket: one daemon per root, and one session per connection.

use crate::daemon::detached;
use crate::daemon::session::{self, Hub};
use nix::sys::resource::{Resource, getrlimit};
use slotd_model::Refusal;
use slotd_protocol::answer::Answer;
use slotd_protocol::frame::Frame;
use slotd_sys::paths::Paths;
use slotd_sys::{limits, lock, root_dirs, socket};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::UnixListener;

/// The longest wait for an earlier daemon. A killed one holds its lock until the kernel has closed
/// its files, and a process that it was starting holds it until that process has begun.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most clients to accept, regardless of the descriptors available.
const MAX_CLIENTS: usize = 16_384;

/// Holds `run/slotd.lock` while the daemon lives, and also the data directory, which people delete
/// less casually than sockets and logs: with two daemons, each job would run twice.
#[derive(Debug)]
pub struct InstanceLock {
    file: File,
    data: File,
}

impl InstanceLock {
    /// Releases the root to the next daemon, even if the kernel keeps the files of this process
    /// open.
    pub fn release(self) {
        // The next daemon takes them in the other order.
        for file in [self.data, self.file] {
            if let Err(e) = file.unlock() {
                log::warn!("the root stays locked until this process exits: {e}");
            }
        }
    }
}

/// Creates the directories of the root, but not those of jobs, and takes the lock of its only
/// daemon.
///
/// # Errors
/// Fails with `TimedOut` if another daemon holds the lock, and with `AlreadyExists` if one holds
/// the data directory although its lock file was deleted. Also fails if a directory belongs to
/// another user, can be written by others or is a link, and on file system errors, which name the
/// path.
pub fn take_root(paths: &Paths) -> io::Result<InstanceLock> {
    let root = paths.root();
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(root)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", root.display())))?;
    for dir in [paths.run_dir(), paths.lib_dir()] {
        make_dir(paths, &dir)?;
    }
    for dir in [paths.jobs_dir(), paths.snapshots_dir()] {
        root_dirs::open(paths, &dir)?;
    }
    let file = lock::take_within(&paths.daemon_lock(), PATIENCE)?;
    let (lib, gone) = (paths.lib_dir(), || io::Error::from(io::ErrorKind::NotFound));
    let data = root_dirs::open(paths, &lib)?.ok_or_else(gone)?.as_file()?;
    let data = lock::take_opened_within(data, &lib, PATIENCE).map_err(|e| match e.kind() {
        io::ErrorKind::TimedOut => io::Error::new(io::ErrorKind::AlreadyExists, outlived(paths)),
        _ => e,
    })?;
    Ok(InstanceLock { file, data })
}

/// Creates a directory of the root if it does not exist.
///
/// # Errors
/// Fails if it cannot be created, belongs to another user, can be written by others or is a link.
pub fn make_dir(paths: &Paths, dir: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            Err(io::Error::new(e.kind(), format!("{}: {e}", dir.display())))
        }
        _ => root_dirs::open(paths, dir).map(drop),
    }
}

/// Returns the error and remedy for a daemon whose files in the run directory were deleted.
fn outlived(paths: &Paths) -> String {
    let who = detached::pid_of(paths).map_or_else(String::new, |pid| format!(" (process {pid})"));
    format!(
        "a daemon{who} is using {}, but its files in {} were deleted: \
         `slotd daemon restart` replaces it; running jobs continue",
        paths.root().display(),
        paths.run_dir().display()
    )
}

/// Returns the socket of this root if a service manager listens on it and has passed it on
/// (sd_listen_fds(3)). Clients wait in it while no daemon is running. Must be called once, before
/// other processes are started.
pub fn handed_over(paths: &Paths) -> Option<net::UnixListener> {
    let handed = sd_notify::listen_fds().ok()?;
    let own = |fd: i32| {
        // SAFETY: the manager created it for this process, and nothing else here owns it.
        let listener = unsafe { net::UnixListener::from_raw_fd(fd) };
        // Any other socket is closed.
        let is_own =
            listener.local_addr().is_ok_and(|addr| addr.as_pathname() == Some(&paths.socket()));
        is_own.then_some(listener)
    };
    handed.filter_map(own).last()
}

/// Refuses all clients that wait in a socket, with the reason. If they were left there, the service
/// manager would start this daemon again and again.
pub fn turn_all_away(listener: &net::UnixListener, why: &str) {
    if listener.set_nonblocking(true).is_ok() {
        while let Ok((client, _)) = listener.accept() {
            turn_away(&client, Refusal::CannotStart(why.to_owned()));
        }
    }
}

/// Returns the socket that was passed on, or binds a new one. Replaces a stale one: the lock
/// guarantees that no daemon listens on it. From now on clients can connect, and wait until they
/// are served.
///
/// # Errors
/// Fails if the socket cannot be created. The error names its path.
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

/// Registers the socket with the event loop.
///
/// # Errors
/// Fails if it cannot be registered.
pub fn listen(socket: net::UnixListener) -> io::Result<UnixListener> {
    socket.set_nonblocking(true)?;
    UnixListener::from_std(socket)
}

/// Returns the most clients that may be connected: half of the descriptors, so that enough are left
/// for launches.
fn max_clients() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    usize::try_from(limit / 2).unwrap_or(usize::MAX).clamp(1, MAX_CLIENTS)
}

/// Accepts clients forever.
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
                // Counted here, because many clients may be accepted before the first one is
                // served.
                hub.connections.update(|n| n + 1);
                let hub = Rc::clone(&hub);
                actix::spawn(async move {
                    session::serve(socket, Rc::clone(&hub)).await;
                    hub.connections.update(|n| n.saturating_sub(1));
                });
            }
            // Out of descriptors: connected clients continue, and each that disconnects frees one.
            Err(e) => {
                if !spare.turn_away_next(&listener, &e).await {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// The pause after a failure to accept. An immediate retry would spin, since the kernel keeps
/// reporting the same waiting client.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The number of descriptors reserved for refusing clients.
const SPARES: usize = 4;

/// Sends a client the reason why it is not served, without waiting for it.
fn turn_away(socket: &impl AsRawFd, why: Refusal) {
    if let Ok(bytes) = Frame::encode(&Answer::Refused(why), &[]) {
        // The socket is new, so its buffer has space.
        let _ = socket::send_some(socket, &bytes, &[], &mut 0);
    }
}

/// Reserved descriptors. If no other is left, one is closed briefly to accept and refuse a client.
/// Another thread may take it in that moment, for example for a file of the database, and keep it,
/// so a few are reserved.
struct Spare {
    files: Vec<File>,
    /// The log already mentions that clients are refused.
    is_logged: bool,
}

impl Spare {
    fn new() -> Spare {
        let mut spare = Spare { files: Vec::new(), is_logged: false };
        spare.fill();
        spare
    }

    /// Reserves as many as are available.
    fn fill(&mut self) {
        while self.files.len() < SPARES {
            let Ok(file) = File::open("/dev/null") else { return };
            self.files.push(file);
        }
    }

    /// Must be called after a client was accepted: descriptors are available again.
    fn refill(&mut self) {
        self.fill();
        if std::mem::take(&mut self.is_logged) {
            log::info!("clients are accepted again");
        }
    }

    /// Accepts a client and refuses it with the reason. Returns false if that is not possible now.
    async fn turn_away_next(&mut self, listener: &UnixListener, error: &io::Error) -> bool {
        let Some(spare) = self.files.pop() else {
            self.note(error);
            self.fill();
            return false;
        };
        drop(spare);
        // The kernel allocates a descriptor before it looks for a client, so there may be none.
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

    /// Logs once that clients are refused.
    fn note(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_logged, true) {
            log::error!("cannot accept a client; it and later ones are turned away: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_protocol::frame::{Decoder, Header};
    use tokio::io::AsyncReadExt;
    use tokio::net::UnixStream;

    #[actix_rt::test]
    async fn surplus_client_gets_the_reason() {
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
