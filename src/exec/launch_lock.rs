//! The lock held by launchers and idle watchers, and the sockets of idle watchers.

use slotd_sys::beneath::Dir;
use slotd_sys::lock;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Locks `<root>/run/launcher.lock`. Launchers and idle watchers share it; a new daemon waits for
/// all of them. The lock is released when the last copy of the descriptor is closed.
pub(super) fn take(root: &Path, kind: lock::Kind) -> io::Result<File> {
    let dir = root.join("run");
    fs::create_dir_all(&dir).map_err(|e| {
        io::Error::new(e.kind(), format!("could not create {}: {e}", dir.display()))
    })?;
    lock::take(&path(root), kind)
}

/// Returns the path of the launch lock.
pub(super) fn path(root: &Path) -> PathBuf {
    root.join("run/launcher.lock")
}

/// The prefix of the socket names of idle watchers.
const IDLE: &str = "idle.";

/// Returns `<root>/run/idle.<pid>.sock`, the socket of an idle watcher.
pub(super) fn idle_socket(root: &Path, pid: u32) -> PathBuf {
    root.join(format!("run/{IDLE}{pid}.sock"))
}

/// Deletes the sockets left by killed watchers. No idle watcher may be running.
pub(super) fn forget_idle(root: &Path) {
    let Ok(dir) = Dir::open(&root.join("run")) else { return };
    let is_idle = |name: &OsString| {
        let number = name.to_str().and_then(|name| name.strip_prefix(IDLE)?.strip_suffix(".sock"));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    for name in dir.names().unwrap_or_default().into_iter().filter(is_idle) {
        // A leftover socket does no harm.
        let _ = dir.remove_file(Path::new(&name));
    }
}
