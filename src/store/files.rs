//! The files of an open database, and a check that they have not been moved or replaced.
//!
//! SQLite writes to the files that it has open even after they were renamed or deleted. Commits to
//! a deleted file are lost when the daemon exits. In addition, a query that opens the database by
//! its path must not read a different file.

use crate::error::StoreError;
use crate::open::beside;
use slotd_model::StoreFault;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Device and inode number. No other file can have the same pair while this one is open.
type Identity = (u64, u64);

/// The paths and identities of the database, its log and the log's index, recorded when they were
/// opened.
#[derive(Debug, Clone)]
pub struct OpenFiles([(PathBuf, StoreFault, Identity); 3]);

fn identity(path: &Path) -> io::Result<Identity> {
    // Follows symlinks, like SQLite: the database itself may be one.
    fs::metadata(path).map(|found| (found.dev(), found.ino()))
}

impl OpenFiles {
    /// Records the files of a database that has just been opened for writing.
    pub(super) fn of(path: &Path) -> Result<OpenFiles, StoreError> {
        let open_error = |error: io::Error| StoreError::Open {
            path: path.to_owned(),
            message: error.to_string(),
        };
        let [database, log, index] = beside(path);
        let file = |path: PathBuf, fault| {
            identity(&path).map(|found| (path, fault, found)).map_err(open_error)
        };
        Ok(OpenFiles([
            file(database, StoreFault::Moved)?,
            file(log, StoreFault::MovedLog)?,
            file(index, StoreFault::MovedLog)?,
        ]))
    }

    /// Checks that no file has been moved or replaced. Costs three calls of stat(2).
    ///
    /// # Errors
    /// Fails with [`StoreFault::Moved`] or [`StoreFault::MovedLog`] until the same file is back, or
    /// with [`StoreFault::Unopenable`] if its path cannot be reached.
    pub fn check(&self) -> Result<(), StoreError> {
        for (path, moved, opened) in &self.0 {
            let (fault, why) = match identity(path) {
                Ok(found) if found == *opened => continue,
                Ok(_) => (*moved, "it was replaced by another file".to_owned()),
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)
                    ) =>
                {
                    (*moved, error.to_string())
                }
                Err(error) => (StoreFault::Unopenable, error.to_string()),
            };
            let message = format!("{}: {why}", path.display());
            return Err(StoreError::Fault { doing: "write to the database", fault, message });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Place, all, insert, job, put};
    use crate::{Reader, Store};
    use std::os::unix::fs::symlink;

    /// Commits job 9 and returns the fault, if any.
    fn commit(store: &mut Store) -> Option<StoreFault> {
        store
            .commit(&[vec![insert(&job(9))]])
            .remove(0)
            .err()
            .map(|error| error.fault().expect("it may pass"))
    }

    #[test]
    fn no_commit_goes_to_moved_or_replaced_files() {
        for (number, fault) in
            [StoreFault::Moved, StoreFault::MovedLog, StoreFault::MovedLog].into_iter().enumerate()
        {
            let place = Place::new();
            let mut store = place.store();
            put(&mut store, vec![insert(&job(1))]);
            let file = beside(&place.path())[number].clone();
            let away = file.with_extension("away");
            fs::rename(&file, &away).unwrap();
            let in_the_way: [&dyn Fn(); 5] = [
                &|| {},
                &|| assert!(fs::copy(&away, &file).is_ok()),
                &|| symlink("nowhere", &file).unwrap(),
                &|| fs::create_dir(&file).unwrap(),
                &|| nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap(),
            ];
            for put_there in in_the_way {
                put_there();
                assert_eq!(commit(&mut store), Some(fault), "{}", file.display());
                assert_eq!(commit(&mut store), Some(fault), "again");
                let _ = fs::remove_file(&file).or_else(|_| fs::remove_dir(&file));
            }
            fs::rename(&away, &file).unwrap();
            assert_eq!(commit(&mut store), None);
            assert_eq!(all(&mut place.store()), [job(1), job(9)]);
        }
    }

    #[test]
    fn a_replacement_database_gets_nothing_from_the_old_log() {
        let [place, other, saved] = [Place::new(), Place::new(), Place::new()];
        put(&mut other.store(), vec![insert(&job(5))]);
        let mut store = place.store();
        put(&mut store, vec![insert(&job(1))]);
        let away = place.path().with_extension("away");
        fs::rename(place.path(), &away).unwrap();
        fs::copy(other.path(), place.path()).unwrap();
        assert_eq!(commit(&mut store), Some(StoreFault::Moved));
        // Simulates a killed daemon: its commits are in the file that was moved.
        let _ = std::mem::ManuallyDrop::new(store);
        assert_eq!(fs::metadata(&beside(&place.path())[1]).unwrap().len(), 0);
        // This process still has the file open, and SQLite treats both names as that file.
        fs::copy(&away, saved.path()).unwrap();
        assert_eq!(all(&mut saved.store()), [job(1)]);
        assert!(Reader::open(&place.path()).is_ok());
        assert_eq!(all(&mut place.store()), [job(5)]);
    }

    #[test]
    fn commits_survive_the_deletion_of_the_log() {
        let place = Place::new();
        let mut store = place.store();
        put(&mut store, vec![insert(&job(1))]);
        fs::remove_file(&beside(&place.path())[1]).unwrap();
        assert_eq!(commit(&mut store), Some(StoreFault::MovedLog));
        let copy = Place::new();
        fs::copy(place.path(), copy.path()).unwrap();
        assert_eq!(all(&mut copy.store()), [job(1)]);
    }
}
