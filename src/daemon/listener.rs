//! The socket: one daemon for each root, and one session for each connection.

use crate::daemon::session::{self, Hub};
use crate::sys::paths::Paths;
use crate::sys::{lock, ownership, socket};
use nix::sys::resource::{Resource, getrlimit};
use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::UnixListener;

/// How long an earlier daemon may take to be gone: one that was killed holds its lock until the kernel has closed its files,
/// and a process that it was starting holds it until that has begun.
const PATIENCE: Duration = Duration::from_secs(5);

/// More clients than this are turned away, however many descriptors there are.
const MAX_CLIENTS: usize = 16_384;

/// Holds `run/slotd.lock` as long as the daemon lives.
#[derive(Debug)]
pub struct InstanceLock {
    _file: File,
}

/// Makes the directories of the root and takes the lock of its only daemon.
///
/// # Errors
/// `TimedOut` where another daemon has it; a directory that is another user's, that others can write, or a link in its
/// place; anything the file system says, with the path.
pub fn take_root(paths: &Paths) -> io::Result<InstanceLock> {
    let named = |path: &Path, e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    for dir in [paths.run_dir(), paths.lib_dir(), paths.jobs_dir()] {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(|e| named(&dir, e))?;
    }
    // What the user keeps elsewhere may be a link of the user's own; sockets and locks are here.
    for dir in [paths.root(), &paths.lib_dir(), &paths.jobs_dir()] {
        ownership::check_dir(dir).map_err(|e| named(dir, e))?;
    }
    ownership::check_own_dir(&paths.run_dir()).map_err(|e| named(&paths.run_dir(), e))?;
    Ok(InstanceLock { _file: lock::take_within(&paths.daemon_lock(), PATIENCE)? })
}

/// Binds the socket. A stale one is replaced: the lock says that nobody listens there.
///
/// # Errors
/// The socket cannot be made, with its path.
pub fn bind(paths: &Paths) -> io::Result<UnixListener> {
    let path = paths.socket();
    let at_socket = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at_socket(e)),
        _ => {}
    }
    let listener = socket::bind(&path).map_err(at_socket)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(at_socket)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// How many clients may be connected: half of the descriptors, so that launches have what they need.
fn max_clients() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    usize::try_from(limit / 2).unwrap_or(usize::MAX).clamp(1, MAX_CLIENTS)
}

/// Accepts for ever.
pub async fn serve(listener: UnixListener, hub: Rc<Hub>) {
    let max = max_clients();
    loop {
        match listener.accept().await {
            Ok((socket, _)) if hub.connections.get() >= max as u64 => session::turn_away(&socket, max),
            Ok((socket, _)) => {
                // Counted here: of a crowd all are accepted before the first is served.
                hub.connections.update(|n| n + 1);
                let hub = Rc::clone(&hub);
                actix::spawn(async move {
                    session::serve(socket, Rc::clone(&hub)).await;
                    hub.connections.update(|n| n.saturating_sub(1));
                });
            }
            Err(e) => {
                // Out of descriptors: those who are connected go on, and each that leaves makes room.
                log::error!("a connection could not be accepted: {e}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Accepting again at once after a failure would spin: the kernel keeps reporting the same waiting client.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
