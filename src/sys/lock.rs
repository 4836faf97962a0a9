//! Locks on files, held by an open descriptor: by every copy of it, until the last one is closed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Whom a lock keeps out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Everybody else. Waits for those who hold it.
    Exclusive,
    /// Those who want it for themselves. Waits for such a holder.
    Shared,
    /// Everybody else. Does not wait.
    ExclusiveNow,
}

/// Locks a file, which is made for its user alone where it is missing.
///
/// # Errors
/// It cannot be made; [`io::ErrorKind::WouldBlock`] where another has it and [`Kind::ExclusiveNow`] was asked for. The
/// text names the path.
pub fn take(path: &Path, kind: Kind) -> io::Result<File> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("could not lock {}: {e}", path.display()));
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map_err(named)?;
    loop {
        let taken = match kind {
            Kind::Exclusive => file.lock(),
            Kind::Shared => file.lock_shared(),
            Kind::ExclusiveNow => file.try_lock().map_err(|e| match e {
                TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
                TryLockError::Error(e) => e,
            }),
        };
        match taken {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(|()| file).map_err(named),
        }
    }
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
        let refused = take(&path, Kind::ExclusiveNow).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        assert!(refused.to_string().contains(path.to_str().unwrap()), "{refused}");
        drop(copy);
        take(&path, Kind::ExclusiveNow).unwrap();
    }
}
