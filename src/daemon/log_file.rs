//! The log file of a daemon without a service manager. Its size is bounded, so that it does not
//! fill the disk that holds the database.

use slotd_sys::files;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The size at which the log is rotated. One older part is kept.
pub const LOG_BYTES: u64 = 10_000_000;

/// Opens the log for appending.
///
/// # Errors
/// Fails if it cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    let file = files::own(File::options().create(true).append(true), path)?;
    keep_small(&file, path, LOG_BYTES);
    Ok(file)
}

/// Standard error, if it is this file.
pub struct OwnLog {
    file: File,
    path: PathBuf,
    limit: u64,
}

impl OwnLog {
    /// Returns `None` if standard error is something else: its size is then the caller's
    /// responsibility.
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

/// Moves the contents into a second file once they exceed `limit`. The file itself stays, since
/// others write to it too: the launcher and everything else that inherited it. If there is no space
/// for the older part, it is lost: the disk matters more than the log.
fn keep_small(file: &File, path: &Path, limit: u64) {
    if file.metadata().is_ok_and(|log| log.len() > limit) {
        let mut older = OsString::from(path);
        older.push(".old");
        // Do not write through a link at that path.
        let _ = fs::remove_file(&older);
        if fs::copy(path, &older).is_err() {
            let _ = fs::remove_file(&older);
        }
        // Later writes must not leave a hole in place of the older part.
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
    fn log_is_rotated_at_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("slotd.log");
        // Like a shell's `>`: not opened for appending.
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
    fn log_stays_small_even_if_the_older_part_cannot_be_kept() {
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
