//! File locks. A lock belongs to an open descriptor and all its copies until the last one is
//! closed.

use crate::files;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// The kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Excludes all other holders. Waits for all current ones.
    Exclusive,
    /// Excludes exclusive holders. Waits for a current one.
    Shared,
}

/// Adds the path to an error, for `map_err`.
fn failed(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |e| io::Error::new(e.kind(), format!("could not lock {}: {e}", path.display()))
}

fn open(path: &Path) -> io::Result<File> {
    files::own(OpenOptions::new().write(true).create(true).truncate(false), path)
        .map_err(failed(path))
}

/// Locks a file. Creates it with access for its user only if it is missing.
///
/// # Errors
/// Fails if the file cannot be created or is a symlink. The message names the path.
pub fn take(path: &Path, kind: Kind) -> io::Result<File> {
    take_opened(open(path)?, kind).map_err(failed(path))
}

fn take_opened(file: File, kind: Kind) -> io::Result<File> {
    loop {
        let taken = match kind {
            Kind::Exclusive => file.lock(),
            Kind::Shared => file.lock_shared(),
        };
        match taken {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(|()| file),
        }
    }
}

/// Takes a shared lock unless another process holds an exclusive one.
///
/// # Errors
/// Fails if the file cannot be created or locked immediately. The message names the path.
pub fn share_now(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    match file.try_lock_shared() {
        Ok(()) => Ok(file),
        Err(e) => Err(failed(path)(e.into())),
    }
}

/// Takes an exclusive lock and waits at most `patience` for its holders.
///
/// # Errors
/// Fails if the file cannot be created, and with [`io::ErrorKind::TimedOut`] if another process
/// keeps the lock. The message names the path.
pub fn take_within(path: &Path, patience: Duration) -> io::Result<File> {
    take_opened_within(open(path)?, path, patience)
}

/// Like [`take_within`], but for an open file or directory.
///
/// # Errors
/// Fails with [`io::ErrorKind::TimedOut`] if another process keeps the lock. The message names the
/// path.
pub fn take_opened_within(file: File, path: &Path, patience: Duration) -> io::Result<File> {
    let (taken, result) = mpsc::channel();
    // Waiting for a lock has no time limit of its own. A lock that is granted too late is released
    // immediately.
    std::thread::spawn(move || taken.send(take_opened(file, Kind::Exclusive)));
    match result.recv_timeout(patience) {
        Ok(taken) => taken.map_err(failed(path)),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("{} is locked by another process", path.display()),
        )),
    }
}

/// Returns whether a process holds a lock on a file whose path ends with `path_end`, such as
/// `run/slotd.lock`.
pub fn is_held_by(pid: i32, path_end: &str) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let is_locked = |fd: &fs::DirEntry| {
        let info = Path::new(&format!("/proc/{pid}/fdinfo")).join(fd.file_name());
        fs::read_to_string(info).is_ok_and(|text| text.contains("FLOCK"))
    };
    let has_path =
        |fd: &fs::DirEntry| fs::read_link(fd.path()).is_ok_and(|path| path.ends_with(path_end));
    open.flatten().any(|fd| has_path(&fd) && is_locked(&fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_lock_is_held_until_its_last_copy_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = take(&path, Kind::Shared).unwrap();
        let copy = first.try_clone().unwrap();
        drop(take(&path, Kind::Shared).unwrap());
        drop(first);
        let refused = take_within(&path, Duration::from_millis(10)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        assert!(refused.to_string().contains(path.to_str().unwrap()), "{refused}");
        let me = std::process::id().cast_signed();
        assert!(is_held_by(me, "lock") && !is_held_by(me, "other"));
        drop(copy);
        take_within(&path, Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn a_symlink_is_not_followed_to_create_a_lock() {
        let dir = tempfile::tempdir().unwrap();
        let (path, named) = (dir.path().join("lock"), dir.path().join("named"));
        std::os::unix::fs::symlink(&named, &path).unwrap();
        take(&path, Kind::Exclusive).unwrap_err();
        assert!(!named.exists());
    }
}
