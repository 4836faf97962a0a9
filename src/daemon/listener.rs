//! The socket: one daemon for each root, and one session for each connection.

use crate::daemon::session::{self, Hub};
use crate::sys::paths::Paths;
use crate::sys::{lock, socket};
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

/// Holds `run/slotd.lock` as long as the daemon lives.
#[derive(Debug)]
pub struct InstanceLock {
    _file: File,
}

/// Makes the directories of the root and takes the lock of its only daemon.
///
/// # Errors
/// `TimedOut` where another daemon has it; anything the file system says, with the path.
pub fn take_root(paths: &Paths) -> io::Result<InstanceLock> {
    let named = |path: &Path, e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    for dir in [paths.run_dir(), paths.lib_dir(), paths.jobs_dir()] {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(|e| named(&dir, e))?;
    }
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

/// Accepts for ever.
pub async fn serve(listener: UnixListener, hub: Rc<Hub>) {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                actix::spawn(session::serve(socket, Rc::clone(&hub)));
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
