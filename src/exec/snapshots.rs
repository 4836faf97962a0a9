//! Copies of work trees that jobs run in (`sbatch --snapshot`), below the runtime root.
//!
//! The client makes a copy before it submits. Meanwhile, both the client and the daemon, on its
//! behalf, hold a lock on the directory of the copy. After the client has disconnected, the daemon
//! deletes the copy unless a job uses it. A copy that no job uses and nobody has locked was left by
//! a daemon that died or by deleted jobs, and is deleted too.
//!
//! The work tree may change in the meantime, and other users may be able to write to it. So
//! everything is opened beneath its top directory and created beneath that of the copy, without
//! following links: a name behind a link is skipped, and the link itself is copied.

use crate::job_dirs;
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;
use slotd_model::source::{Snapshot, Source, Taken, WorkTree};
use slotd_sys::beneath::{self, Dir};
use slotd_sys::git::{Asking, Git, GitError, MOST_DIFF, MOST_NESTED};
use slotd_sys::paths::Paths;
use slotd_sys::work_tree::Repository;
use slotd_sys::{clock, extents, root_dirs};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The copied files, in the directory of the copy.
const TREE: &str = "tree";

/// The copy's differences from its commit, including the diff.
const RECORD: &str = "source.json";
const DIFF: &str = "source.diff";

/// The longest record to read, in bytes. It names at most a thousand files.
const MOST_RECORD: u64 = 16 << 20;

/// The prefix of copies that are being deleted.
const GONE: &str = "gone.";

/// The permission bits that are copied. A copied file belongs to the user who makes the copy, and
/// must not run as another user (setuid).
const PERMISSIONS: u32 = 0o777;

/// The time limit for all git commands together: the user is waiting for the job ID.
const GIT_TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    /// The directory of the copies does not belong to this user alone.
    #[error(transparent)]
    Place(#[from] io::Error),
    #[error(
        "{}: the files in it would be missing from the copy: the index lists it as a submodule, but its .git is missing, broken, \
         or owned by another user: repair or move it, or submit without --snapshot",
        .0.display()
    )]
    NoSubmodule(PathBuf),
    #[error(transparent)]
    Git(#[from] GitError),
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> SnapshotError {
    let path = path.to_owned();
    move |error| SnapshotError::File { path, error }
}

/// A copy, locked by the process that makes it. It is not deleted until this is dropped.
#[derive(Debug)]
pub struct Held {
    pub name: String,
    /// The copied work tree, and how it differed from its commit.
    pub tree: WorkTree,
    path: PathBuf,
    all: Dir,
    /// Locked.
    own: Dir,
}

/// The descriptor that holds the lock. A process with a duplicate of it holds the lock too.
impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }
}

impl Held {
    /// Returns the directory of the copied files.
    pub fn files(&self) -> PathBuf {
        self.path.join(TREE)
    }

    /// Creates a directory among the copied files, including its parents. It may exist already.
    ///
    /// # Errors
    /// Fails if it cannot be created, or if a file exists in its place.
    pub fn make_dir(&self, name: &Path) -> io::Result<()> {
        let mut dir = self.own.dir(Path::new(TREE))?;
        for part in name.iter().map(Path::new) {
            dir = match dir.make_dir(part, PERMISSIONS) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => dir.dir(part)?,
                other => other?,
            };
        }
        Ok(())
    }

    /// Deletes the copy. Call this if no job is going to run in it.
    pub fn discard(self) {
        if let Err(why) = self.all.remove_tree(Path::new(&self.name)) {
            log::warn!("{}: {why}", self.path.display());
        }
    }

    /// Copies the files of the work tree that git tracks or does not ignore, including those of
    /// submodules, with their permissions and times. Then records how they differ from the commit,
    /// and syncs everything to disk. Files in `root` are not copied.
    ///
    /// # Errors
    /// Fails if git does not respond, or if a file cannot be read or written. Files copied so far
    /// remain.
    pub fn fill(&mut self, root: &Path) -> Result<(), SnapshotError> {
        let (top, files) = (PathBuf::from(&self.tree.root), self.files());
        let root = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
        let to = self.own.make_dir(Path::new(TREE), PERMISSIONS).map_err(at(&files))?;
        let asking = Asking::new(&self.path, GIT_TIMEOUT)?;
        let git = asking.at(&top)?;
        let from = Dir::open(&top).map_err(at(&top))?;
        let copying =
            Copying { asking: &asking, root: &root, top: &top, without_times: RefCell::default() };
        copying.tree(&git, &top, &from, &to, 0)?;
        let diff = self.path.join(DIFF);
        let mut text = self.own.create(Path::new(DIFF), 0o600).map_err(at(&diff))?;
        let (source, has_diff) = git.with_files_of(&files).source(&mut text);
        if !has_diff {
            self.own.remove_file(Path::new(DIFF)).map_err(at(&diff))?;
        }
        for (name, accessed, modified) in copying.without_times.take() {
            to.set_times(&name, accessed, modified).map_err(at(&files.join(&name)))?;
        }
        // Only the files count, and they have been copied. It does not matter if HEAD has moved in
        // the meantime.
        self.tree.commit = source.commit.clone().or(self.tree.commit.take());
        if source.branch.is_some() {
            self.tree.branch.clone_from(&source.branch);
        }
        let taken = Taken { at: clock::now(), source };
        let path = self.path.join(RECORD);
        let record = serde_json::to_vec(&taken).map_err(io::Error::from).map_err(at(&path))?;
        let mut file = self.own.create(Path::new(RECORD), 0o600).map_err(at(&path))?;
        file.write_all(&record).map_err(at(&path))?;
        // SAFETY: a system call on an open descriptor.
        match unsafe { libc::syncfs(self.own.as_fd().as_raw_fd()) } {
            0 => Ok(()),
            _ => Err(SnapshotError::File {
                path: self.path.clone(),
                error: io::Error::last_os_error(),
            }),
        }
    }
}

/// Returns the top directory of the files of a copy.
pub fn tree_of(snapshots: &Path, snapshot: &Snapshot) -> PathBuf {
    snapshots.join(&snapshot.name).join(TREE)
}

/// Creates the directory for a copy of this work tree, and locks it. The directory of all copies
/// belongs to this user and nobody else can replace it, so files in it can be written and deleted
/// by path.
///
/// # Errors
/// Fails if the directory cannot be created, or if the directory of all copies is a link, a file,
/// or another user's. Nothing is left behind.
pub fn begin(paths: &Paths, tree: &WorkTree) -> Result<Held, SnapshotError> {
    let snapshots = paths.snapshots_dir();
    if root_dirs::open(paths, &snapshots)?.is_none() {
        DirBuilder::new().recursive(true).mode(0o700).create(&snapshots).map_err(at(&snapshots))?;
    }
    let all = root_dirs::open(paths, &snapshots)?
        .ok_or_else(|| at(&snapshots)(io::ErrorKind::NotFound.into()))?;
    let name = format!("{}-{}", clock::now().0, std::process::id());
    let path = snapshots.join(&name);
    let own = {
        // Between the creation of the directory and its lock, nobody may mistake it for an
        // abandoned copy.
        let lock = all
            .as_file()
            .and_then(|all| all.lock_shared().map(|()| all))
            .map_err(at(&snapshots))?;
        let own = all.make_dir(Path::new(&name), 0o700).map_err(at(&path))?;
        own.as_file().and_then(|own| own.lock()).map_err(at(&path))?;
        lock.unlock().map_err(at(&snapshots))?;
        own
    };
    Ok(Held { name, tree: tree.clone(), path, all, own })
}

struct Copying<'a> {
    asking: &'a Asking,
    /// Excluded from the copy.
    root: &'a Path,
    /// The work tree.
    top: &'a Path,
    /// Files that may have changed since git wrote its index, with their times. git assumes that a
    /// file with the size and time in its index is unchanged, so it must compare the copies before
    /// they get these times.
    without_times: RefCell<Vec<(PathBuf, TimeSpec, TimeSpec)>>,
}

impl Copying<'_> {
    /// Copies the files of the work tree `from`. Its `path` is used for git and in messages.
    fn tree(
        &self,
        git: &Git<'_>,
        path: &Path,
        from: &Dir,
        to: &Dir,
        depth: usize,
    ) -> Result<(), SnapshotError> {
        if depth > MOST_NESTED {
            return Err(GitError::Nested.into());
        }
        let mut made = BTreeSet::new();
        let mut indexed = None;
        let written = git.index_time();
        for name in git.files()? {
            let source = path.join(&name);
            if source.starts_with(self.root) || self.root == source {
                continue;
            }
            let found = match from.metadata(&name) {
                Ok(found) => found,
                // git tracks the file, but it was deleted, or a link has replaced a directory above
                // it.
                Err(error) if beneath::is_absent(&error) => continue,
                Err(error) => return Err(at(&source)(error)),
            };
            let parent = name.parent().unwrap_or(Path::new(""));
            if !make_dirs(from, to, parent, &mut made).map_err(at(&source))? {
                continue;
            }
            if found.is_dir() {
                if !make_dirs(from, to, &name, &mut made).map_err(at(&source))? {
                    continue;
                }
                let inside =
                    (from.dir(&name).map_err(at(&source))?, to.dir(&name).map_err(at(&source))?);
                if Repository::of(&source).is_some() {
                    self.tree(&self.asking.at(&source)?, &source, &inside.0, &inside.1, depth + 1)?;
                    continue;
                }
                // A submodule that was not fetched is empty. git also lists the files in a
                // directory that has replaced a tracked file.
                let is_empty = inside.0.names().map_err(at(&source))?.is_empty();
                if !is_empty && indexed.is_none() {
                    indexed = Some(git.indexed_files()?);
                }
                if !is_empty && indexed.as_ref().is_some_and(|files| !files.contains(&name)) {
                    return Err(SnapshotError::NoSubmodule(source));
                }
            } else {
                copy(from, to, &name, &found).map_err(at(&source))?;
                if (found.ctime(), found.ctime_nsec()) >= written {
                    self.hold_back_times(to, &name, &source).map_err(at(&source))?;
                }
            }
        }
        Ok(())
    }

    fn hold_back_times(&self, to: &Dir, name: &Path, source: &Path) -> io::Result<()> {
        let copied = match to.metadata(name) {
            Ok(copied) if copied.is_file() => copied,
            Ok(_) => return Ok(()),
            Err(error) if beneath::is_absent(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let (accessed, modified) = times(&copied);
        let inside = source.strip_prefix(self.top).unwrap_or(name);
        self.without_times.borrow_mut().push((inside.to_owned(), accessed, modified));
        to.set_times(name, TimeSpec::UTIME_NOW, TimeSpec::UTIME_NOW)
    }
}

/// Creates directories like those in the work tree, but writable by their owner, since they must be
/// filled and deleted. Returns false if a file or link has the name of a directory, in the copy or
/// by now in the work tree.
fn make_dirs(from: &Dir, to: &Dir, name: &Path, made: &mut BTreeSet<PathBuf>) -> io::Result<bool> {
    let missing: Vec<&Path> = name.ancestors().take_while(|dir| !made.contains(*dir)).collect();
    for dir in missing.into_iter().rev().filter(|dir| !dir.as_os_str().is_empty()) {
        let mode = match from.metadata(dir) {
            Ok(found) if found.is_dir() => found.mode(),
            Ok(_) => return Ok(false),
            Err(error) if beneath::is_absent(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        match to.make_dir(dir, PERMISSIONS) {
            Ok(new) => new
                .as_file()?
                .set_permissions(Permissions::from_mode(mode & PERMISSIONS | 0o700))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(error),
        }
        made.insert(dir.to_owned());
    }
    Ok(true)
}

/// Copies a file or link. Skips anything else, files that have vanished, and files that exist in
/// the copy.
fn copy(from: &Dir, to: &Dir, name: &Path, found: &Metadata) -> io::Result<()> {
    // Something else may have the name by now.
    let is_gone = |error: &io::Error| {
        beneath::is_absent(error) || error.kind() == io::ErrorKind::InvalidInput
    };
    let copied = if found.is_symlink() {
        match from.read_link(name) {
            Ok(target) => to.symlink(&target, name).and_then(|()| {
                let (read, written) = times(found);
                to.set_times(name, read, written)
            }),
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(error),
        }
    } else if found.is_file() {
        match from.file(name) {
            Ok(source) => to.create(name, 0o600).and_then(|target| copy_file(&source, &target)),
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(error),
        }
    } else {
        Ok(())
    };
    match copied {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn copy_file(source: &File, target: &File) -> io::Result<()> {
    let found = source.metadata()?;
    copy_content(source, target, found.len())?;
    target.set_permissions(Permissions::from_mode(found.mode() & PERMISSIONS))?;
    let (read, written) = times(&found);
    Ok(futimens(target, &read, &written)?)
}

fn times(found: &Metadata) -> (TimeSpec, TimeSpec) {
    (
        TimeSpec::new(found.atime(), found.atime_nsec()),
        TimeSpec::new(found.mtime(), found.mtime_nsec()),
    )
}

/// Copies the first `length` bytes of a file: by reference if the file system supports it,
/// otherwise without its holes. If the file grows in the meantime, only the first `length` bytes
/// are copied; if it shrinks, the remaining ones.
fn copy_content(from: &File, to: &File, length: u64) -> io::Result<()> {
    // SAFETY: a system call on open descriptors.
    if unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd()) } == 0 {
        return Ok(());
    }
    let (mut reader, mut writer) = (from, to);
    let (mut end, mut copied) = (0, length);
    while let Some(extent) = extents::next(from, end, length)? {
        reader.seek(SeekFrom::Start(extent.start))?;
        writer.seek(SeekFrom::Start(extent.start))?;
        let wanted = extent.end - extent.start;
        let done = io::copy(&mut reader.take(wanted), &mut writer)?;
        if done < wanted {
            copied = extent.start + done;
            break;
        }
        end = extent.end;
    }
    // The file may have lost a hole at its end.
    copied = copied.min(from.metadata()?.len().max(end));
    to.set_len(copied)
}

/// Returns how a copy differed from its commit, and the text of the difference; `None` if the copy
/// no longer exists.
pub fn source(snapshots: &Path, snapshot: &Snapshot) -> Option<(Taken, Option<Vec<u8>>)> {
    let dir = Dir::open(snapshots).ok()?.dir(Path::new(&snapshot.name)).ok()?;
    let unreadable = |why: String| Taken {
        at: clock::now(),
        source: Source { commit: None, branch: None, changes: Err(why) },
    };
    // Jobs run next to these files and can write anything to them.
    let taken = match dir.read(Path::new(RECORD), MOST_RECORD) {
        Ok(record) => {
            serde_json::from_slice(&record).unwrap_or_else(|why| unreadable(why.to_string()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => unreadable(error.to_string()),
    };
    Some((taken, dir.read(Path::new(DIFF), MOST_DIFF as u64).ok()))
}

/// Deletes a copy that no job runs in, if it exists.
///
/// # Errors
/// Fails if it cannot be deleted.
pub fn remove(snapshots: &Path, name: &str) -> io::Result<()> {
    match Dir::open(snapshots).and_then(|all| all.remove_tree(Path::new(name))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map(drop),
    }
}

/// Returns whether this is the name of a copy, as assigned by [`begin`]:
/// `<microseconds>-<process>`, with the prefix `gone.` while it is being deleted.
pub fn is_name(name: &str) -> bool {
    is_copy(name.strip_prefix(GONE).unwrap_or(name))
}

fn is_copy(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('-').is_some_and(|(at, process)| is_number(at) && is_number(process))
}

/// Deletes the copies that are not in use and that nobody is making. Returns the disk space that
/// their files used, in bytes. `all` is the directory of all copies, `path` its path. Entries that
/// do not have the name of a copy stay.
///
/// # Errors
/// Fails if a copy cannot be deleted, or if a link or file has the name of a copy. The other copies
/// are deleted all the same.
pub fn remove_others(all: &Dir, path: &Path, in_use: &BTreeSet<String>) -> io::Result<u64> {
    let (mut gone, mut failure) = (Vec::new(), None);
    let mut fail =
        |name: &str, e: &io::Error| failure = Some(job_dirs::not_removed(&path.join(name), e));
    {
        // Processes that make a copy wait only until the renaming is done.
        let lock = File::from(all.as_fd().try_clone_to_owned()?);
        lock.lock()?;
        for name in all.names()?.into_iter().filter_map(|name| name.into_string().ok()) {
            if name.strip_prefix(GONE).is_some_and(is_copy) {
                gone.push(name);
            } else if is_copy(&name) && !in_use.contains(&name) {
                match all.dir(Path::new(&name)).and_then(|own| own.as_file()) {
                    Ok(own) if own.try_lock().is_ok() => {
                        let aside = format!("{GONE}{name}");
                        match all.rename(Path::new(&name), Path::new(&aside)) {
                            Ok(()) => gone.push(aside),
                            Err(e) => fail(&name, &e),
                        }
                    }
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    Err(e) => fail(&name, &e),
                }
            }
        }
        lock.unlock()?;
    }
    let mut bytes = 0;
    for name in gone {
        match all.remove_tree(Path::new(&name)) {
            Ok(freed) => bytes += freed,
            Err(e) => fail(&name, &e),
        }
    }
    failure.map_or(Ok(bytes), Err)
}

/// Returns the disk space that the files of this copy use, in bytes.
pub fn size(all: &Dir, name: &str) -> u64 {
    if is_copy(name) { all.tree_size(Path::new(name)) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_directories_with_the_name_of_a_copy_are_deleted() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for dir in ["1-2", "3-4", "gone.5-6", "gone.mine", "results", "2024-run", "../scratch"] {
            fs::create_dir_all(at("all").join(dir)).unwrap();
            fs::write(at("all").join(dir).join("file"), "text").unwrap();
        }
        symlink(at("scratch"), at("all/7-8")).unwrap();
        symlink(at("scratch"), at("all/gone.9-9")).unwrap();
        symlink(at("scratch"), at("all/1-2/scratch")).unwrap();
        fs::write(at("all/8-8"), "a file").unwrap();
        let dir = Dir::open(&at("all")).unwrap();
        let held = File::open(at("all/3-4")).unwrap();
        held.lock().unwrap();
        let refused = remove_others(&dir, &at("all"), &BTreeSet::new()).unwrap_err().to_string();
        assert!(refused.contains("all/") && refused.contains("it is "), "{refused}");
        let left = || {
            let mut left = dir.names().unwrap();
            left.sort();
            left
        };
        let stays = ["2024-run", "3-4", "7-8", "8-8", "gone.9-9", "gone.mine", "results"];
        assert_eq!(left(), stays);
        // Unlock explicitly: a process forked by another test may hold the descriptor a little
        // longer.
        held.unlock().unwrap();
        remove_others(&dir, &at("all"), &BTreeSet::from(["3-4".to_owned()])).unwrap_err();
        assert_eq!(left(), stays);
        fs::remove_file(at("all/8-8")).unwrap();
        for link in ["all/7-8", "all/gone.9-9"] {
            fs::remove_file(at(link)).unwrap();
        }
        assert!(size(&dir, "3-4") > 0 && size(&dir, "../scratch") == 0);
        assert!(remove_others(&dir, &at("all"), &BTreeSet::new()).unwrap() > 0);
        assert_eq!(left(), ["2024-run", "gone.mine", "results"]);
        assert_eq!(fs::read_to_string(at("scratch/file")).unwrap(), "text");
    }

    /// Creates a directory with `from`, `to` and `out`, and opens the first two.
    fn place() -> (tempfile::TempDir, Dir, Dir) {
        let place = tempfile::tempdir().unwrap();
        for name in ["from", "to", "out"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        fs::write(place.path().join("out/file"), "precious").unwrap();
        let [from, to] = ["from", "to"].map(|name| Dir::open(&place.path().join(name)).unwrap());
        (place, from, to)
    }

    #[test]
    fn existing_files_in_the_copy_are_never_written_to() {
        let (place, from, to) = place();
        let at = |name: &str| place.path().join(name);
        fs::write(at("from/file"), "new").unwrap();
        let found = from.metadata(Path::new("file")).unwrap();
        for target in ["out/file", "from/file"] {
            symlink(at(target), at("to/file")).unwrap();
            copy(&from, &to, Path::new("file"), &found).unwrap();
            fs::remove_file(at("to/file")).unwrap();
        }
        assert_eq!(fs::read_to_string(at("from/file")).unwrap(), "new");
        // A directory was replaced by a link, on either side, between listing and copying.
        fs::create_dir(at("from/dir")).unwrap();
        symlink(at("out"), at("to/dir")).unwrap();
        assert!(!make_dirs(&from, &to, Path::new("dir"), &mut BTreeSet::new()).unwrap());
        symlink(at("out"), at("from/link")).unwrap();
        assert!(!make_dirs(&from, &to, Path::new("link"), &mut BTreeSet::new()).unwrap());
        assert_eq!(fs::read_to_string(at("out/file")).unwrap(), "precious");
    }

    #[test]
    fn files_that_change_or_vanish_while_copying_are_skipped() {
        let (place, from, to) = place();
        let at = |name: &str| place.path().join(name);
        for name in ["gone", "fifo", "link", "was-link"] {
            fs::write(at("from").join(name), "x").unwrap();
        }
        let [gone, fifo, link] =
            ["gone", "fifo", "link"].map(|name| from.metadata(Path::new(name)).unwrap());
        for name in ["gone", "fifo", "link"] {
            fs::remove_file(at("from").join(name)).unwrap();
        }
        nix::unistd::mkfifo(&at("from/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        symlink(at("out/file"), at("from/link")).unwrap();
        let was_link = from.metadata(Path::new("link")).unwrap();
        for (name, found) in
            [("gone", gone), ("fifo", fifo), ("link", link), ("was-link", was_link)]
        {
            copy(&from, &to, Path::new(name), &found).unwrap();
        }
        assert_eq!(to.names().unwrap().len(), 0);
    }

    #[test]
    fn a_file_that_grows_or_shrinks_while_copying_is_copied_partly() {
        let (place, ..) = place();
        let at = |name: &str| place.path().join(name);
        fs::write(at("from/file"), "1234567890").unwrap();
        let copied = |name: &str, length| {
            let to = File::create_new(at(name)).unwrap();
            copy_content(&File::open(at("from/file")).unwrap(), &to, length).unwrap();
            fs::read_to_string(at(name)).unwrap()
        };
        assert!(copied("to/grown", 4).starts_with("1234"));
        assert_eq!(copied("to/shrunk", 1000), "1234567890");
        assert_eq!(copied("to/same", 10), "1234567890");
    }
}
