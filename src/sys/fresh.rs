//! Creates files that appear at their path completely or not at all.

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, RenameFlags, renameat2};
use nix::unistd::linkat;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

/// A file that is being written and is not yet at its path.
///
/// It is created without a name (`O_TMPFILE`) if the file system supports that, so that nothing
/// remains if the disk is full or the writer dies. Otherwise it has a temporary name in the same
/// directory, which is removed when this value is dropped. Files of other processes are never
/// written to or removed.
#[derive(Debug)]
pub struct Fresh {
    pub file: File,
    place: PathBuf,
    name: Option<PathBuf>,
}

impl Fresh {
    /// Creates an empty file for `path`, with this mode minus the umask.
    ///
    /// # Errors
    /// Fails if it cannot be created in the directory of `path`.
    pub fn new(path: &Path, mode: u32) -> io::Result<Self> {
        match Self::nameless(path, mode) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
                Self::named(path, mode)
            }
            made => made,
        }
    }

    fn nameless(path: &Path, mode: u32) -> io::Result<Self> {
        let dir = path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."));
        let file =
            OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).mode(mode).open(dir)?;
        Ok(Self { file, place: path.to_owned(), name: None })
    }

    fn named(path: &Path, mode: u32) -> io::Result<Self> {
        let (name, file) = beside(path, |name| {
            OpenOptions::new().write(true).create_new(true).mode(mode).open(name)
        })?;
        Ok(Self { file, place: path.to_owned(), name: Some(name) })
    }

    /// Moves the file to its path.
    ///
    /// # Errors
    /// Fails with `AlreadyExists` if the path exists, and with the system's error if the disk
    /// fails. An existing file is kept.
    pub fn put(mut self) -> io::Result<()> {
        self.close_for_writing()?;
        let Some(name) = &self.name else { return self.link(&self.place) };
        // Some file systems do not support hard links (FAT), some not this rename (FUSE), some
        // neither.
        match renameat2(AT_FDCWD, name, AT_FDCWD, &self.place, RenameFlags::RENAME_NOREPLACE) {
            Err(Errno::EINVAL) => match self.link(&self.place) {
                Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP)) => {
                    replace_placeholder(name, &self.place)?;
                }
                linked => return linked,
            },
            renamed => renamed?,
        }
        self.name = None;
        Ok(())
    }

    /// Moves the file to its path and replaces an existing file or link.
    ///
    /// # Errors
    /// Fails if the path is a directory, or if the disk fails. An existing file is kept.
    pub fn replace(mut self) -> io::Result<()> {
        self.close_for_writing()?;
        if self.name.is_none() {
            match self.link(&self.place) {
                // Only a rename replaces a file.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    self.name = Some(beside(&self.place, |name| self.link(name))?.0);
                }
                other => return other,
            }
        }
        if let Some(name) = &self.name {
            fs::rename(name, &self.place)?;
        }
        self.name = None;
        Ok(())
    }

    /// Reopens the file without write access. The kernel refuses to execute a file that is open for
    /// writing (`ETXTBSY`), and a program may be executed as soon as it is at its path.
    fn close_for_writing(&mut self) -> io::Result<()> {
        let mut path_only = OpenOptions::new();
        path_only.read(true).custom_flags(libc::O_PATH);
        self.file = path_only.open(self.by_descriptor())?;
        Ok(())
    }

    fn link(&self, to: &Path) -> io::Result<()> {
        let own = self.by_descriptor();
        Ok(linkat(AT_FDCWD, own.as_path(), AT_FDCWD, to, AtFlags::AT_SYMLINK_FOLLOW)?)
    }

    fn by_descriptor(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = fs::remove_file(name);
        }
    }
}

/// Renames `name` to `place` if `place` does not exist. An empty file reserves the path first.
fn replace_placeholder(name: &Path, place: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(place)?;
    // If this fails, the empty file remains, since another process may have written a file there by
    // now.
    fs::rename(name, place)
}

/// Creates a symbolic link at `place` and replaces an existing file or link.
///
/// # Errors
/// Fails if `place` is a directory, or if the disk fails. An existing file is kept.
pub fn replace_by_link(place: &Path, target: &Path) -> io::Result<()> {
    let (name, ()) = beside(place, |name| symlink(target, name))?;
    fs::rename(&name, place).inspect_err(|_| drop(fs::remove_file(&name)))
}

/// Returns the final name of the file for which this temporary name was created. The temporary file
/// may have been left behind by a writer that died.
#[must_use]
pub fn place_of(name: &str) -> Option<&str> {
    let (place, number) = name.rsplit_once('.')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(place)
}

/// Creates something under an unused name in the directory of `path`.
fn beside<T>(path: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(PathBuf, T)> {
    let first = std::process::id();
    let mut number = first;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        let name = PathBuf::from(name);
        match make(&name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number - first < 1000 => {
                number += 1;
            }
            made => return made.map(|made| (name, made)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    type Make = fn(&Path, u32) -> io::Result<Fresh>;

    /// Creates files with a temporary name, and without a name if the file system of the tests
    /// supports it.
    fn ways() -> Vec<Make> {
        let dir = tempfile::tempdir().unwrap();
        let knows = Fresh::nameless(&dir.path().join("file"), 0o600).is_ok();
        let nameless: Make = Fresh::nameless;
        [Fresh::named as Make].into_iter().chain(knows.then_some(nameless)).collect()
    }

    fn names_in(dir: &Path) -> Vec<String> {
        let names = fs::read_dir(dir).unwrap();
        let mut names: Vec<_> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_created_completely_or_not_at_all() {
        for new in ways() {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            let with = |text: &str| {
                let mut fresh = new(&path, 0o600).unwrap();
                fresh.file.write_all(text.as_bytes()).unwrap();
                fresh
            };
            with("a").put().unwrap();
            assert_eq!(with("b").put().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read_to_string(&path).unwrap(), "a");
            with("c").replace().unwrap();
            drop(with("d"));
            assert_eq!(fs::read_to_string(&path).unwrap(), "c");
            assert_eq!(names_in(dir.path()), ["file"]);
            fs::remove_file(&path).unwrap();
            with("e").replace().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "e");
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
            with("f").replace().unwrap_err();
            assert_eq!(with("f").put().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(names_in(dir.path()), ["file"]);
        }
    }

    #[test]
    fn existing_files_are_neither_written_nor_removed() {
        for new in ways() {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            // The first temporary names that the file would use.
            let taken = [0, 1].map(|more| format!("file.{}", std::process::id() + more));
            fs::write(at("precious"), "precious").unwrap();
            fs::write(at(&taken[0]), "precious").unwrap();
            symlink("precious", at(&taken[1])).unwrap();
            symlink("precious", at("file")).unwrap();
            let fresh = || {
                let mut fresh = new(&at("file"), 0o600).unwrap();
                fresh.file.write_all(b"new").unwrap();
                fresh
            };
            assert_eq!(fresh().put().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read_link(at("file")).unwrap(), Path::new("precious"));
            fresh().replace().unwrap();
            assert!(fs::symlink_metadata(at("file")).unwrap().is_file());
            assert_eq!(fs::read_to_string(at("file")).unwrap(), "new");
            replace_by_link(&at("link"), Path::new("file")).unwrap();
            replace_by_link(&at("link"), Path::new("precious")).unwrap();
            assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("precious"));
            let all = ["file", &taken[0], &taken[1], "link", "precious"];
            assert_eq!(names_in(dir.path()), all);
            assert!(taken.iter().all(|name| place_of(name) == Some("file")));
            for name in [&taken[0], "precious"] {
                assert_eq!(fs::read_to_string(at(name)).unwrap(), "precious");
            }
        }
    }

    #[test]
    fn the_fallback_without_links_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("new"), "new").unwrap();
        fs::write(at("precious"), "precious").unwrap();
        symlink("nowhere", at("link")).unwrap();
        for taken in ["precious", "link"] {
            let refused = replace_placeholder(&at("new"), &at(taken)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists, "{taken}");
        }
        assert_eq!(names_in(dir.path()), ["link", "new", "precious"]);
        replace_placeholder(&at("new"), &at("file")).unwrap();
        assert_eq!(names_in(dir.path()), ["file", "link", "precious"]);
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "new");
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), "precious");
    }

    #[test]
    fn a_program_can_be_executed_once_it_has_its_name() {
        for new in ways() {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("program");
            let mut fresh = new(&path, 0o700).unwrap();
            fresh.file.write_all(b"text").unwrap();
            fresh.close_for_writing().unwrap();
            assert_eq!(fresh.file.write(b"more").unwrap_err().raw_os_error(), Some(libc::EBADF));
            fresh.put().unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
        }
    }

    #[test]
    fn an_unfinished_file_without_a_name_is_not_visible() {
        let dir = tempfile::tempdir().unwrap();
        let mut fresh =
            Fresh::new(&dir.path().join("file"), 0o600).expect("a file system with such files");
        fresh.file.write_all(b"half").unwrap();
        let expected = usize::from(fresh.name.is_some());
        assert_eq!(names_in(dir.path()).len(), expected);
    }
}
