//! A directory handle that reaches only files beneath it and never follows symbolic links.
//!
//! Use it wherever another process or user may replace a component of a path. `openat2` resolves a
//! name beneath the directory or fails. Kernels before 5.6, and sandboxes that forbid this call,
//! use one `openat` per component. New files and links are created, never opened or replaced.

use crate::files;
use nix::errno::Errno;
use nix::fcntl::{
    AT_FDCWD, OFlag, OpenHow, RenameFlags, ResolveFlag, openat, openat2, readlinkat, renameat,
    renameat2,
};
use nix::sys::stat::{Mode, UtimensatFlags, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The permissions that the owner of a directory needs to list it and to delete its contents.
const OF_OWNER: u32 = 0o700;

/// The unit of `st_blocks` in bytes, on every file system.
const BLOCK: u64 = 512;

/// An open directory.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<Dir> for File {
    fn from(dir: Dir) -> File {
        File::from(dir.fd)
    }
}

/// Returns whether this is a relative path without `.`, `..` and empty components.
pub fn is_plain(name: &Path) -> bool {
    let is_name = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !part.contains(&0);
    name.as_os_str().as_bytes().split(|byte| *byte == b'/').all(is_name)
}

/// Returns whether the error means that no file has this name, or that a link or a file was found
/// instead of a directory.
pub fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}

fn checked(name: &Path) -> io::Result<&Path> {
    if is_plain(name) {
        Ok(name)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the name refers to a file outside its directory",
        ))
    }
}

impl Dir {
    /// Opens a directory by its path.
    ///
    /// # Errors
    /// Fails if the directory cannot be opened or the last component of the path is a link.
    pub fn open(path: &Path) -> io::Result<Dir> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(AT_FDCWD, path, flags, Mode::empty()).map_err(|error| match error {
            // The kernel returns the same error for a link and for a file.
            Errno::ENOTDIR if path.is_symlink() => io::Error::from(Errno::ELOOP),
            error => error.into(),
        })?;
        Ok(Dir { fd })
    }

    /// Opens a directory beneath this one.
    ///
    /// # Errors
    /// Fails if there is no directory with this name or a component is a link (see [`is_absent`]).
    pub fn dir(&self, name: &Path) -> io::Result<Dir> {
        let fd =
            self.open_fd(name, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty(), Mounts::Cross)?;
        Ok(Dir { fd })
    }

    /// Returns the metadata of a file, or of the link itself if it is one.
    ///
    /// # Errors
    /// Fails like [`Self::dir`].
    pub fn metadata(&self, name: &Path) -> io::Result<Metadata> {
        File::from(self.open_fd(name, OFlag::O_PATH, Mode::empty(), Mounts::Cross)?).metadata()
    }

    /// Returns the open directory as a file, for locking or metadata.
    ///
    /// # Errors
    /// Fails if no descriptors are left.
    pub fn as_file(&self) -> io::Result<File> {
        Ok(self.fd.try_clone()?.into())
    }

    /// Opens a regular file for reading. Never blocks on a FIFO and never opens a device.
    ///
    /// # Errors
    /// Fails like [`Self::dir`], and with `InvalidInput` if it is not a regular file.
    pub fn file(&self, name: &Path) -> io::Result<File> {
        // Also checked before opening, because the writer of a FIFO would notice a reader that
        // disappears.
        files::check(&self.metadata(name)?)?;
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = File::from(self.open_fd(name, flags, Mode::empty(), Mounts::Cross)?);
        files::check(&file.metadata()?)?;
        Ok(file)
    }

    /// Reads a regular file of at most `most` bytes.
    ///
    /// # Errors
    /// Fails like [`Self::file`], and with `FileTooLarge` if the file is larger.
    pub fn read(&self, name: &Path, most: u64) -> io::Result<Vec<u8>> {
        files::read_open(&self.file(name)?, most)
    }

    /// Creates a regular file for writing.
    ///
    /// # Errors
    /// Fails like [`Self::dir`], and with `AlreadyExists` if the name is taken.
    pub fn create(&self, name: &Path, mode: u32) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        self.open_fd(name, flags, Mode::from_bits_truncate(mode), Mounts::Cross).map(File::from)
    }

    /// Creates and opens a directory.
    ///
    /// # Errors
    /// Fails like [`Self::create`].
    pub fn make_dir(&self, name: &Path, mode: u32) -> io::Result<Dir> {
        let (parent, last) = self.parent(name)?;
        mkdirat(&parent, last, Mode::from_bits_truncate(mode))?;
        self.dir(name)
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// Fails like [`Self::create`].
    pub fn symlink(&self, target: &Path, name: &Path) -> io::Result<()> {
        let (parent, last) = self.parent(name)?;
        Ok(symlinkat(target, &parent, last)?)
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// Fails like [`Self::dir`], and with `InvalidInput` if it is not a link.
    pub fn read_link(&self, name: &Path) -> io::Result<PathBuf> {
        let (parent, last) = self.parent(name)?;
        Ok(readlinkat(&parent, last)?.into())
    }

    /// Sets the timestamps of a file, or of the link itself if it is one.
    ///
    /// # Errors
    /// Fails like [`Self::dir`], and if the timestamps cannot be set.
    pub fn set_times(&self, name: &Path, accessed: TimeSpec, modified: TimeSpec) -> io::Result<()> {
        let (parent, last) = self.parent(name)?;
        Ok(utimensat(&parent, last, &accessed, &modified, UtimensatFlags::NoFollowSymlink)?)
    }

    /// Returns the names in this directory, in no particular order.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        // A separate open file description, so that the offset is not shared.
        let again = openat(
            &self.fd,
            ".",
            OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?;
        let mut names = Vec::new();
        for entry in nix::dir::Dir::from_fd(again)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if !matches!(name.as_slice(), b"." | b"..") {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// Renames a file, directory or link. Replaces an existing file or empty directory at `to`.
    ///
    /// # Errors
    /// Fails like rename(2), and if a component is a link.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((old, from), (new, to)) = (self.parent(from)?, self.parent(to)?);
        Ok(renameat(&old, from, &new, to)?)
    }

    /// Like [`Self::rename`], but replaces nothing.
    ///
    /// # Errors
    /// Fails like [`Self::rename`], and with `AlreadyExists` if the name is taken.
    pub fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((old, from), (new, last)) = (self.parent(from)?, self.parent(to)?);
        match renameat2(&old, from, &new, last, RenameFlags::RENAME_NOREPLACE) {
            // Some file systems do not support this: NFS and some of FUSE.
            Err(Errno::EINVAL) if self.metadata(to).is_err_and(|error| is_absent(&error)) => {
                Ok(renameat(&old, from, &new, last)?)
            }
            Err(Errno::EINVAL) => Err(Errno::EEXIST.into()),
            other => Ok(other?),
        }
    }

    /// Deletes a file or the link itself.
    ///
    /// # Errors
    /// Fails like unlink(2), and if a component is a link.
    pub fn remove_file(&self, name: &Path) -> io::Result<()> {
        let (parent, last) = self.parent(name)?;
        Ok(unlinkat(&parent, last, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Deletes a directory with its contents. Deletes links but not their targets, and nothing
    /// below a mount point. Returns the number of bytes that its files occupied on the disk.
    ///
    /// # Errors
    /// Fails if it is not a directory or is a link (see [`is_absent`]), or if part of its contents
    /// cannot be deleted. Other parts may have been deleted by then.
    pub fn remove_tree(&self, name: &Path) -> io::Result<u64> {
        let (parent, last) = self.parent(name)?;
        let parent = Dir { fd: parent };
        let top = parent.to_empty(Path::new(last))?;
        // Nested directories are first moved to the top, so that neither their depth nor the length
        // of their paths matters.
        let (mut waiting, mut moved, mut bytes) = (Vec::new(), 0, 0);
        for name in top.names()? {
            match top.metadata(Path::new(&name)) {
                Ok(found) if found.is_dir() => waiting.push(name),
                found => bytes += top.unlink(&name, found)?,
            }
        }
        while let Some(name) = waiting.pop() {
            let dir = top.to_empty(Path::new(&name))?;
            for inner in dir.names()? {
                match dir.metadata(Path::new(&inner)) {
                    Ok(found) if found.is_dir() => {
                        // Moving a directory requires write permission for it, to update its `..`
                        // entry.
                        drop(dir.to_empty(Path::new(&inner))?);
                        waiting.push(dir.move_to(&inner, &top, &mut moved)?);
                    }
                    found => bytes += dir.unlink(&inner, found)?,
                }
            }
            unlinkat(&top, name.as_os_str(), UnlinkatFlags::RemoveDir)?;
        }
        unlinkat(&parent, last, UnlinkatFlags::RemoveDir)?;
        Ok(bytes)
    }

    /// Returns the number of bytes that the files in a directory occupy on the disk. Unreadable
    /// files are not counted.
    pub fn tree_size(&self, name: &Path) -> u64 {
        let (mut waiting, mut bytes) = (vec![name.to_owned()], 0);
        while let Some(at) = waiting.pop() {
            let Ok(dir) = self.dir(&at) else { continue };
            for name in dir.names().unwrap_or_default() {
                match dir.metadata(Path::new(&name)) {
                    Ok(found) if found.is_dir() => waiting.push(at.join(name)),
                    Ok(found) => bytes += found.blocks() * BLOCK,
                    Err(_) => {}
                }
            }
        }
        bytes
    }

    /// Opens a directory whose contents will be deleted, and adds the owner's permissions for that.
    fn to_empty(&self, name: &Path) -> io::Result<Dir> {
        let fd =
            self.open_fd(name, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty(), Mounts::Refuse)?;
        let mode = File::from(fd.try_clone()?).metadata()?.mode();
        if mode & OF_OWNER != OF_OWNER {
            // fchmod does not work with such a descriptor. If this fails, the deletion reports why.
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            let _ = fs::set_permissions(path, Permissions::from_mode(mode & 0o7777 | OF_OWNER));
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Dir { fd: openat(&fd, ".", flags, Mode::empty())? })
    }

    /// Deletes anything except a directory. Returns the number of bytes that it occupied on the
    /// disk.
    fn unlink(&self, name: &OsStr, found: io::Result<Metadata>) -> io::Result<u64> {
        match unlinkat(self, name, UnlinkatFlags::NoRemoveDir) {
            // Another process has already deleted it.
            Err(Errno::ENOENT) => Ok(0),
            other => Ok(other.map(|()| found.map_or(0, |found| found.blocks() * BLOCK))?),
        }
    }

    /// Moves a directory into another one, under a name that is unused or that of an empty
    /// directory.
    fn move_to(&self, name: &OsStr, to: &Dir, moved: &mut u64) -> io::Result<OsString> {
        loop {
            *moved += 1;
            let new = OsString::from(format!(".removed.{moved}"));
            match renameat(self, name, to, new.as_os_str()) {
                Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR) => {}
                other => return Ok(other.map(|()| new)?),
            }
        }
    }

    /// Opens the parent directory of a name and returns it with the last component.
    fn parent<'a>(&self, name: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let name = checked(name)?;
        let last = name.file_name().unwrap_or_default();
        match name.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => {
                let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
                Ok((self.open_fd(parent, flags, Mode::empty(), Mounts::Cross)?, last))
            }
            None => Ok((self.fd.try_clone()?, last)),
        }
    }

    fn open_fd(
        &self,
        name: &Path,
        flags: OFlag,
        mode: Mode,
        mounts: Mounts,
    ) -> io::Result<OwnedFd> {
        let name = checked(name)?;
        match in_kernel(self, name, flags, mode, mounts) {
            // Linux before 5.6, or a system call filter.
            Err(Errno::ENOSYS | Errno::EPERM) => by_steps(self, name, flags, mode, mounts),
            other => Ok(other?),
        }
    }
}

/// Whether a name may cross into another mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mounts {
    Cross,
    Refuse,
}

fn in_kernel(
    dir: &Dir,
    name: &Path,
    flags: OFlag,
    mode: Mode,
    mounts: Mounts,
) -> nix::Result<OwnedFd> {
    let mut resolve = ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    if mounts == Mounts::Refuse {
        resolve |= ResolveFlag::RESOLVE_NO_XDEV;
    }
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat2(dir, name, OpenHow::new().flags(flags).mode(mode).resolve(resolve))
}

/// Does the same with one call per component. Cannot distinguish two mounts of the same file
/// system.
fn by_steps(
    dir: &Dir,
    name: &Path,
    flags: OFlag,
    mode: Mode,
    mounts: Mounts,
) -> io::Result<OwnedFd> {
    let mut at = dir.fd.try_clone()?;
    let device = File::from(at.try_clone()?).metadata()?.dev();
    let mut parts = name.iter().peekable();
    while let Some(part) = parts.next() {
        let flags = if parts.peek().is_some() { OFlag::O_PATH | OFlag::O_DIRECTORY } else { flags };
        at = openat(&at, part, flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, mode)?;
        if mounts == Mounts::Refuse && File::from(at.try_clone()?).metadata()?.dev() != device {
            return Err(Errno::EXDEV.into());
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::symlink;
    use std::path::Component;

    /// A directory `in` with traps, next to a directory `out` with a file that must not be touched.
    fn place() -> (tempfile::TempDir, Dir) {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("in/sub/deep")).unwrap();
        fs::create_dir(at("out")).unwrap();
        fs::write(at("out/precious"), "precious").unwrap();
        fs::write(at("in/file"), "content").unwrap();
        symlink(at("out"), at("in/absolute")).unwrap();
        symlink("../out", at("in/relative")).unwrap();
        symlink("sub", at("in/inner")).unwrap();
        symlink("../../out/precious", at("in/sub/link")).unwrap();
        nix::unistd::mkfifo(&at("in/fifo"), Mode::S_IRWXU).unwrap();
        let dir = Dir::open(&at("in")).unwrap();
        (place, dir)
    }

    fn untouched(place: &tempfile::TempDir) {
        assert_eq!(fs::read_to_string(place.path().join("out/precious")).unwrap(), "precious");
        assert_eq!(fs::read_dir(place.path().join("out")).unwrap().count(), 1);
    }

    /// Relative names that use a file or a link as a component, or leave the directory.
    const BEHIND_LINKS: [&str; 6] =
        ["absolute/precious", "relative/precious", "inner/deep", "sub/link", "absolute", "file/x"];
    const LEADING_OUT: [&str; 8] = [
        "",
        ".",
        "..",
        "../out/precious",
        "sub/../../out/precious",
        "/etc/passwd",
        "sub//deep",
        "sub/deep/",
    ];

    #[test]
    fn both_methods_refuse_links_in_any_component() {
        let (place, dir) = place();
        for name in BEHIND_LINKS {
            for flags in [OFlag::O_RDONLY, OFlag::O_WRONLY, OFlag::O_RDONLY | OFlag::O_DIRECTORY] {
                let (name, mode) = (Path::new(name), Mode::empty());
                let one =
                    in_kernel(&dir, name, flags, mode, Mounts::Cross).map_err(io::Error::from);
                // A sandbox without `openat2` supports only the second method.
                if !matches!(&one, Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)))
                {
                    assert!(one.is_err_and(|error| is_absent(&error)), "{name:?}");
                }
                let other = by_steps(&dir, name, flags, mode, Mounts::Cross);
                assert!(other.is_err_and(|error| is_absent(&error)), "{name:?}");
            }
        }
        for name in ["file", "sub/deep"] {
            let (name, mode) = (Path::new(name), Mode::empty());
            dir.open_fd(name, OFlag::O_RDONLY, mode, Mounts::Refuse).unwrap();
            by_steps(&dir, name, OFlag::O_RDONLY, mode, Mounts::Refuse).unwrap();
        }
        untouched(&place);
    }

    #[test]
    fn links_and_names_outside_the_directory_are_refused() {
        let (place, dir) = place();
        for name in BEHIND_LINKS.into_iter().chain(LEADING_OUT) {
            let path = Path::new(name);
            assert!(dir.dir(path).is_err(), "{name}");
            assert!(dir.file(path).is_err(), "{name}");
            assert!(dir.create(path, 0o600).is_err(), "{name}");
            assert!(dir.make_dir(path, 0o700).is_err(), "{name}");
            assert!(dir.symlink(Path::new("x"), path).is_err(), "{name}");
            assert!(dir.remove_tree(path).is_err(), "{name}");
        }
        let epoch = TimeSpec::new(0, 0);
        for name in BEHIND_LINKS
            .into_iter()
            .chain(LEADING_OUT)
            .filter(|name| !["sub/link", "absolute"].contains(name))
        {
            let path = Path::new(name);
            assert!(dir.remove_file(path).is_err(), "{name}");
            assert!(
                dir.rename(path, Path::new("stolen")).is_err() || name == "inner/deep",
                "{name}"
            );
            assert!(dir.rename(Path::new("file"), path).is_err(), "{name}");
            assert!(dir.rename_new(Path::new("file"), path).is_err(), "{name}");
            assert!(dir.set_times(path, epoch, epoch).is_err(), "{name}");
            assert!(dir.metadata(path).is_err(), "{name}");
        }
        untouched(&place);
    }

    #[test]
    fn links_themselves_can_be_read_moved_and_deleted() {
        let (place, dir) = place();
        let link = Path::new("absolute");
        assert!(dir.metadata(link).unwrap().is_symlink());
        assert_eq!(dir.read_link(link).unwrap(), place.path().join("out"));
        dir.set_times(link, TimeSpec::new(1, 0), TimeSpec::new(2, 0)).unwrap();
        assert_eq!(dir.metadata(link).unwrap().mtime(), 2);
        dir.rename(link, Path::new("sub/moved")).unwrap();
        assert!(dir.rename_new(Path::new("sub/moved"), Path::new("file")).is_err());
        dir.rename_new(Path::new("sub/moved"), Path::new("new")).unwrap();
        dir.remove_file(Path::new("new")).unwrap();
        dir.symlink(Path::new("anywhere"), link).unwrap();
        assert_eq!(dir.read_link(link).unwrap(), Path::new("anywhere"));
        assert!(Dir::open(&place.path().join("in/relative")).is_err_and(|error| is_absent(&error)));
        untouched(&place);
    }

    #[test]
    fn only_regular_files_of_bounded_size_are_read() {
        let (_place, dir) = place();
        for name in ["fifo", "sub", "absolute"] {
            assert!(dir.read(Path::new(name), 100).is_err(), "{name}");
        }
        assert_eq!(dir.read(Path::new("file"), 7).unwrap(), b"content");
        assert_eq!(dir.read(Path::new("file"), 6).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(Dir::open(Path::new("/dev")).unwrap().read(Path::new("zero"), 10).is_err());
    }

    #[test]
    fn deleting_a_tree_keeps_the_targets_of_its_links() {
        let (place, dir) = place();
        let at = |name: &str| place.path().join(name);
        fs::write(at("in/sub/deep/file"), vec![7; 10_000]).unwrap();
        symlink(at("out"), at("in/sub/deep/out")).unwrap();
        symlink(at("out/precious"), at("in/sub/precious")).unwrap();
        nix::unistd::mkfifo(&at("in/sub/deep/fifo"), Mode::S_IRWXU).unwrap();
        for (name, mode) in [("in/sub/deep/closed", 0o0), ("in/sub/deep", 0o500)] {
            fs::create_dir_all(at(name)).unwrap();
            fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
        }
        // Deeper than the longest possible path, and with the names that moved directories would
        // get.
        fs::create_dir_all(at("in/sub/.removed.1/x")).unwrap();
        fs::write(at("in/sub/.removed.2"), "a file").unwrap();
        let mut deep = dir.make_dir(Path::new("sub/chain"), 0o700).unwrap();
        for _ in 0..3000 {
            deep = deep.make_dir(Path::new("and on and on"), 0o700).unwrap();
        }
        drop(deep.create(Path::new("bottom"), 0o600).unwrap());
        assert!(dir.tree_size(Path::new("sub")) >= 10_000);
        for link in ["absolute", "relative", "inner", "file", "fifo"] {
            assert!(
                dir.remove_tree(Path::new(link)).is_err_and(|error| is_absent(&error)),
                "{link}"
            );
        }
        assert!(dir.remove_tree(Path::new("sub")).unwrap() >= 10_000);
        assert!(!at("in/sub").exists());
        untouched(&place);
        let mut left = dir.names().unwrap();
        left.sort();
        assert_eq!(left, ["absolute", "fifo", "file", "inner", "relative"]);
    }

    proptest! {
        #[test]
        fn a_plain_name_stays_in_its_directory(name in "(/|\\.|\\.\\.|a|\\.git|é|\u{0}){0,6}") {
            let path = Path::new(&name);
            let is_inside = !name.is_empty()
                && !name.contains('\0')
                && path.components().all(|part| matches!(part, Component::Normal(_)))
                && path.components().collect::<PathBuf>().as_os_str() == path.as_os_str();
            prop_assert_eq!(is_plain(path), is_inside);
        }
    }
}
