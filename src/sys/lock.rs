//! Locks on files, held by an open descriptor: by every copy of it, until the last one is closed.

use crate::sys::files;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// Whom a lock keeps out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Everybody else. Waits for those who hold it.
    Exclusive,
    /// Those who want it for themselves. Waits for such a holder.
    Shared,
}

/// For `map_err`.
fn failed(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |e| io::Error::new(e.kind(), format!("could not lock {}: {e}", path.display()))
}

fn open(path: &Path) -> io::Result<File> {
    files::own(OpenOptions::new().write(true).create(true).truncate(false), path)
        .map_err(failed(path))
}

/// Locks a file, which is made for its user alone where it is missing.
///
/// # Errors
/// It cannot be made, or is a link. The text names the path.
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

/// Shares a lock, unless somebody has it alone.
///
/// # Errors
/// It cannot be made, or had at once. The text names the path.
pub fn share_now(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    match file.try_lock_shared() {
        Ok(()) => Ok(file),
        Err(e) => Err(failed(path)(e.into())),
    }
}

/// Locks a file for its taker alone, and waits no longer than this for those who hold it.
///
/// # Errors
/// It cannot be made; [`io::ErrorKind::TimedOut`] where another still has it. The text names the
/// path.
pub fn take_within(path: &Path, patience: Duration) -> io::Result<File> {
    take_opened_within(open(path)?, path, patience)
}

/// The same of an open file, or an open directory.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] where another still has it. The text names the path.
pub fn take_opened_within(file: File, path: &Path, patience: Duration) -> io::Result<File> {
    let (taken, news) = mpsc::channel();
    // A lock cannot be waited for with a time limit. What comes too late is closed at once.
    std::thread::spawn(move || taken.send(take_opened(file, Kind::Exclusive)));
    match news.recv_timeout(patience) {
        Ok(taken) => taken.map_err(failed(path)),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("{} is locked by another process", path.display()),
        )),
    }
}

/// Whether this process holds a lock on a file with such a path, by its end: `run/slotd.lock`.
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
    fn a_shared_lock_keeps_out_who_wants_it_alone_until_its_last_copy_is_closed() {
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
    fn a_link_in_the_place_of_a_lock_is_refused_and_what_it_names_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let (path, named) = (dir.path().join("lock"), dir.path().join("named"));
        std::os::unix::fs::symlink(&named, &path).unwrap();
        take(&path, Kind::Exclusive).unwrap_err();
        assert!(!named.exists());
    }
}
