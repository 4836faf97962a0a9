//! Locks on files, held by an open descriptor: by every copy of it, until the last one is closed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
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

/// Locks a file, which is made for its user alone where it is missing.
///
/// # Errors
/// It cannot be made. The text names the path.
pub fn take(path: &Path, kind: Kind) -> io::Result<File> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("could not lock {}: {e}", path.display()));
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map_err(named)?;
    loop {
        let taken = match kind {
            Kind::Exclusive => file.lock(),
            Kind::Shared => file.lock_shared(),
        };
        match taken {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(|()| file).map_err(named),
        }
    }
}

/// Locks a file for its taker alone, and waits no longer than this for those who hold it.
///
/// # Errors
/// It cannot be made; [`io::ErrorKind::TimedOut`] where another still has it. The text names the path.
pub fn take_within(path: &Path, patience: Duration) -> io::Result<File> {
    let (taken, news) = mpsc::channel();
    let file = path.to_owned();
    // A lock cannot be waited for with a time limit. What comes too late is closed at once.
    std::thread::spawn(move || taken.send(take(&file, Kind::Exclusive)));
    news.recv_timeout(patience).unwrap_or_else(|_| {
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("{} is locked by another process", path.display())))
    })
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
        drop(copy);
        take_within(&path, Duration::from_secs(60)).unwrap();
    }
}
