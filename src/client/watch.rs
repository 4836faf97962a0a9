//! Waits for file changes that the kernel reports, without polling.

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

/// A descriptor that becomes readable when one of the watched files changes.
#[derive(Debug)]
pub struct FileWatch(Inotify);

impl FileWatch {
    /// Creates an empty watch.
    ///
    /// # Errors
    /// Fails if the user has reached the kernel's limit of inotify instances.
    pub fn new() -> io::Result<FileWatch> {
        Ok(FileWatch(Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?))
    }

    /// Watches the file with this name. If the file does not exist or is replaced, the nearest
    /// existing parent directory reports it. Call this again after each change.
    pub fn add(&self, path: &Path) {
        let of_file = AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_DELETE_SELF;
        let _ = self.0.add_watch(path, of_file);
        let _ = path.ancestors().skip(1).find(|dir| self.add_dir(dir).is_ok());
    }

    /// Watches for files that appear in this directory and for changes of their modes.
    ///
    /// # Errors
    /// Fails if the directory does not exist or cannot be read.
    pub fn add_dir(&self, dir: &Path) -> io::Result<()> {
        let appears = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        let flags = appears | AddWatchFlags::IN_ATTRIB | AddWatchFlags::IN_ONLYDIR;
        self.0.add_watch(dir, flags)?;
        Ok(())
    }

    /// Watches for writes to an open file, whatever its current name.
    ///
    /// # Errors
    /// Fails if the user has reached the kernel's limit of inotify watches.
    pub fn add_open(&self, file: &File) -> io::Result<()> {
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        self.0.add_watch(own.as_str(), AddWatchFlags::IN_MODIFY)?;
        Ok(())
    }

    /// Consumes pending events. Call this when the descriptor is readable.
    pub fn clear(&self) {
        while self.0.read_events().is_ok_and(|events| !events.is_empty()) {}
    }
}

impl AsFd for FileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::fs;
    use std::io::Write;

    fn has_changed(watch: &FileWatch) -> bool {
        let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
        let is_ready = poll(&mut fds, PollTimeout::ZERO).unwrap() > 0;
        watch.clear();
        is_ready
    }

    #[test]
    fn a_file_is_watched_before_it_exists_and_after_it_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("later/out");
        let watch = FileWatch::new().unwrap();
        watch.add(&path);
        assert!(!has_changed(&watch));
        fs::create_dir(dir.path().join("later")).unwrap();
        assert!(has_changed(&watch), "its directory was created");
        watch.add(&path);
        fs::write(&path, "1").unwrap();
        assert!(has_changed(&watch), "it was created");
        watch.add(&path);
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"2").unwrap();
        assert!(has_changed(&watch), "it was written to");
        fs::write(dir.path().join("later/new"), "3").unwrap();
        fs::rename(dir.path().join("later/new"), &path).unwrap();
        assert!(has_changed(&watch), "it was replaced");
        watch.add(&path);
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"4").unwrap();
        assert!(has_changed(&watch), "the new one was written to");
        assert!(!has_changed(&watch));
    }

    #[test]
    fn an_open_file_is_watched_after_its_deletion() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut file = File::create(&path).unwrap();
        let watch = FileWatch::new().unwrap();
        watch.add_open(&file).unwrap();
        fs::remove_file(&path).unwrap();
        watch.clear();
        file.write_all(b"1").unwrap();
        assert!(has_changed(&watch));
    }
}
