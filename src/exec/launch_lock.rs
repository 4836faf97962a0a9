//! The lock that launchers and idle watchers hold, and the sockets of idle watchers.

use crate::sys::beneath::Dir;
use crate::sys::lock;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// `<root>/run/launcher.lock`, locked. Launchers and the watchers that wait for a launch share it;
/// a new daemon waits for all of them. The lock ends when the last copy of the descriptor is
/// closed.
pub(super) fn take(root: &Path, kind: lock::Kind) -> io::Result<File> {
    let dir = root.join("run");
    fs::create_dir_all(&dir)
        .map_err(|e| io::Error::new(e.kind(), format!("could not make {}: {e}", dir.display())))?;
    lock::take(&path(root), kind)
}

/// The path of the launch lock.
pub(super) fn path(root: &Path) -> PathBuf {
    root.join("run/launcher.lock")
}

/// What the names of the sockets of idle watchers begin with.
const IDLE: &str = "idle.";

/// `<root>/run/idle.<pid>.sock`, the socket of a watcher that waits for a launch.
pub(super) fn idle_socket(root: &Path, pid: u32) -> PathBuf {
    root.join(format!("run/{IDLE}{pid}.sock"))
}

/// Deletes those that killed watchers have left. None may be waiting.
pub(super) fn forget_idle(root: &Path) {
    let Ok(dir) = Dir::open(&root.join("run")) else { return };
    let is_idle = |name: &OsString| {
        let number = name.to_str().and_then(|name| name.strip_prefix(IDLE)?.strip_suffix(".sock"));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    for name in dir.names().unwrap_or_default().into_iter().filter(is_idle) {
        // One that cannot be deleted is in nobody's way.
        let _ = dir.remove_file(Path::new(&name));
    }
}
