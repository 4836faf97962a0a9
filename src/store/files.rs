//! The files of an open database, and whether they are still in their places.
//!
//! SQLite writes to the files that it has open, wherever their names have gone: what it commits to
//! a deleted file is lost when the daemon ends. And a question that opens the database by its path
//! must not be answered from another file.

use crate::model::StoreFault;
use crate::store::error::StoreError;
use crate::store::open::beside;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Device and inode. No other file gets them while this one is open.
type Identity = (u64, u64);

/// The database, its log, and the index of the log: their paths and what was there when they were
/// opened.
#[derive(Debug, Clone)]
pub struct OpenFiles([(PathBuf, StoreFault, Identity); 3]);

fn identity(path: &Path) -> io::Result<Identity> {
    // As SQLite opens it: the database itself may be reached through a link.
    fs::metadata(path).map(|found| (found.dev(), found.ino()))
}

impl OpenFiles {
    /// Those of a database that has just been opened for writing.
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

    /// Checks that each is in its place: three calls of stat(2).
    ///
    /// # Errors
    /// [`StoreFault::Moved`] and [`StoreFault::MovedLog`], until the same file is back; its place
    /// cannot be reached.
    pub fn check(&self) -> Result<(), StoreError> {
        for (path, moved, opened) in &self.0 {
            let (fault, why) = match identity(path) {
                Ok(found) if found == *opened => continue,
                Ok(_) => (*moved, "another file is in its place".to_owned()),
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
    use crate::store::testing::{Place, all, insert, job, put};
    use crate::store::{Reader, Store};
    use std::os::unix::fs::symlink;

    /// What a commit is answered, whose job is number 9.
    fn commit(store: &mut Store) -> Option<StoreFault> {
        store
            .commit(&[vec![insert(&job(9))]])
            .remove(0)
            .err()
            .map(|error| error.fault().expect("it may pass"))
    }

    #[test]
    fn nothing_is_committed_to_files_that_are_not_in_their_places() {
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
    fn a_file_in_the_place_of_the_database_gets_nothing_of_its_log() {
        let [place, other, saved] = [Place::new(), Place::new(), Place::new()];
        put(&mut other.store(), vec![insert(&job(5))]);
        let mut store = place.store();
        put(&mut store, vec![insert(&job(1))]);
        let away = place.path().with_extension("away");
        fs::rename(place.path(), &away).unwrap();
        fs::copy(other.path(), place.path()).unwrap();
        assert_eq!(commit(&mut store), Some(StoreFault::Moved));
        // The daemon is killed: what it has committed is in the file that was moved.
        let _ = std::mem::ManuallyDrop::new(store);
        assert_eq!(fs::metadata(&beside(&place.path())[1]).unwrap().len(), 0);
        // Within this process SQLite takes both names for the file that is still open.
        fs::copy(&away, saved.path()).unwrap();
        assert_eq!(all(&mut saved.store()), [job(1)]);
        assert!(Reader::open(&place.path()).is_ok());
        assert_eq!(all(&mut place.store()), [job(5)]);
    }

    #[test]
    fn what_was_committed_outlives_the_log_and_the_daemon() {
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
