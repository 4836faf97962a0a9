//! The file that a daemon without a service manager logs to, and its size: it must not fill the
//! disk that the database is on.

use crate::sys::files;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The log begins anew at this size; one older part is kept beside it.
pub const LOG_BYTES: u64 = 10_000_000;

/// Opens the log to append to it.
///
/// # Errors
/// It cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    let file = files::own(File::options().create(true).append(true), path)?;
    keep_small(&file, path, LOG_BYTES);
    Ok(file)
}

/// Standard error, which is this file.
pub struct OwnLog {
    file: File,
    path: PathBuf,
    limit: u64,
}

impl OwnLog {
    /// `None` where standard error is something else: whoever set that up looks after its size.
    pub fn of_stderr(path: &Path) -> Option<OwnLog> {
        let file = File::from(io::stderr().as_fd().try_clone_to_owned().ok()?);
        let (own, named) = (file.metadata().ok()?, fs::metadata(path).ok()?);
        let is_it = (own.dev(), own.ino()) == (named.dev(), named.ino());
        is_it.then(|| OwnLog { file, path: path.to_owned(), limit: LOG_BYTES })
    }
}

impl Write for OwnLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        keep_small(&self.file, &self.path, self.limit.saturating_sub(line.len() as u64));
        self.file.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Moves what is in the file beside it, once that is more than `limit`. The file stays the same
/// one, since others write to it too: the launcher, and whatever else inherited it. Where there is
/// no room for the older part it is lost: the disk is more important than the log.
fn keep_small(file: &File, path: &Path, limit: u64) {
    if file.metadata().is_ok_and(|log| log.len() > limit) {
        let mut older = OsString::from(path);
        older.push(".old");
        // Not what a link there points to.
        let _ = fs::remove_file(&older);
        if fs::copy(path, &older).is_err() {
            let _ = fs::remove_file(&older);
        }
        // Whatever is written next must not leave a hole where the older part was.
        // SAFETY: the descriptor is open, and these commands take and return flags.
        unsafe {
            let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
            libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_APPEND);
        }
        let _ = file.set_len(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_begins_anew_at_its_limit_with_one_older_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("slotd.log");
        // As a shell's `>` leaves it: not opened to append.
        let file = File::create(&path).unwrap();
        let mut other = file.try_clone().unwrap();
        let mut log = OwnLog { file, path: path.clone(), limit: 100 };
        for number in 0..50 {
            writeln!(log, "line {number:04}").unwrap();
        }
        other.write_all(b"launcher\n").unwrap();
        let texts =
            [path, dir.path().join("slotd.log.old")].map(|path| fs::read_to_string(path).unwrap());
        assert!(texts.iter().all(|text| !text.is_empty() && text.len() <= 110), "{texts:?}");
        assert!(texts[0].ends_with("line 0049\nlauncher\n"), "{texts:?}");
        assert_eq!(texts.concat().matches("line 0049").count(), 1);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn without_room_for_the_older_part_the_log_stays_small_nevertheless() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("slotd.log");
        fs::create_dir(dir.path().join("slotd.log.old")).unwrap();
        let mut log = OwnLog { file: open(&path).unwrap(), path: path.clone(), limit: 100 };
        for number in 0..50 {
            writeln!(log, "line {number:04}").unwrap();
        }
        assert!(fs::read_to_string(path).unwrap().len() <= 100);
    }
}
