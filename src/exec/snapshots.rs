//! Copies of work trees that jobs run in (`sbatch --snapshot`), below the runtime root.
//!
//! The client makes one before it submits. While it works it holds a lock on the directory of the
//! copy, and so does the daemon for it: when the client has gone and no job names the copy, the
//! daemon deletes it. What no job names and nobody holds was left by a daemon that died, or by jobs
//! that were removed, and is removed in its turn.
//!
//! The work tree may change meanwhile, and others may be able to write there. Everything is opened
//! beneath its top directory and created beneath that of the copy, through no link: a name behind a
//! link is skipped, the link itself is copied.

use crate::exec::job_dirs;
use crate::model::source::{Snapshot, Source, Taken, WorkTree};
use crate::sys::beneath::{self, Dir};
use crate::sys::git::{Asking, Git, GitError, MOST_DIFF, MOST_NESTED};
use crate::sys::paths::Paths;
use crate::sys::work_tree::Repository;
use crate::sys::{clock, extents, root_dirs};
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;
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

/// How they differed from the commit, and the text of that.
const RECORD: &str = "source.json";
const DIFF: &str = "source.diff";

/// A longer record is not read, bytes. It names no more than a thousand files.
const MOST_RECORD: u64 = 16 << 20;

/// What is on its way out.
const GONE: &str = "gone.";

/// The permissions of a file that its copy has: it belongs to who makes it, and runs as nobody
/// else.
const PERMISSIONS: u32 = 0o777;

/// How long git may take, all in all: somebody waits for the job's number.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    /// The directory of the copies is not this user's own.
    #[error(transparent)]
    Place(#[from] io::Error),
    #[error(
        "{}: the files in it would be missing from the copy: the index has it as a submodule, and its .git is missing, broken, \
         or not of this user: mend or move it, or submit without --snapshot",
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

/// A copy that its maker holds: nobody removes it until this is dropped.
#[derive(Debug)]
pub struct Held {
    pub name: String,
    /// What was copied, and how it differed from its commit.
    pub tree: WorkTree,
    path: PathBuf,
    all: Dir,
    /// Locked.
    own: Dir,
}

/// The descriptor that holds the lock: whoever has one like it holds the copy too.
impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }
}

impl Held {
    /// Where the copied files are.
    pub fn files(&self) -> PathBuf {
        self.path.join(TREE)
    }

    /// Makes a directory among the copied files, which may be there, and those that it is in.
    ///
    /// # Errors
    /// It cannot be made, or something else is there.
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

    /// Removes it: no job is going to run in it.
    pub fn discard(self) {
        if let Err(why) = self.all.remove_tree(Path::new(&self.name)) {
            log::warn!("{}: {why}", self.path.display());
        }
    }

    /// Copies the files of the work tree that git knows or does not ignore, those of its submodules
    /// too, with their permissions and times, and notes how they differ from the commit. All of it
    /// is on the disk then. What lies in `root` is left out.
    ///
    /// # Errors
    /// git does not answer, or a file cannot be read or written. What was copied is there.
    pub fn fill(&mut self, root: &Path) -> Result<(), SnapshotError> {
        let (top, files) = (PathBuf::from(&self.tree.root), self.files());
        let root = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
        let to = self.own.make_dir(Path::new(TREE), PERMISSIONS).map_err(at(&files))?;
        let asking = Asking::new(&self.path, PATIENCE)?;
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
        // Only the files count, and they are in the copy: that HEAD may have moved meanwhile does
        // no harm.
        self.tree.commit = source.commit.clone().or(self.tree.commit.take());
        if source.branch.is_some() {
            self.tree.branch.clone_from(&source.branch);
        }
        let taken = Taken { at: clock::now(), source };
        let path = self.path.join(RECORD);
        let record = serde_json::to_vec(&taken).map_err(io::Error::from).map_err(at(&path))?;
        let mut file = self.own.create(Path::new(RECORD), 0o600).map_err(at(&path))?;
        file.write_all(&record).map_err(at(&path))?;
        // SAFETY: a system call with a descriptor that is open.
        match unsafe { libc::syncfs(self.own.as_fd().as_raw_fd()) } {
            0 => Ok(()),
            _ => Err(SnapshotError::File {
                path: self.path.clone(),
                error: io::Error::last_os_error(),
            }),
        }
    }
}

/// The top directory of the files of a copy.
pub fn tree_of(snapshots: &Path, snapshot: &Snapshot) -> PathBuf {
    snapshots.join(&snapshot.name).join(TREE)
}

/// Makes the directory of a copy of this work tree, and holds it. The copies are in a directory of
/// this user that nobody else can replace: what is written and deleted there is found by its path,
/// too.
///
/// # Errors
/// It cannot be made, or the directory of the copies is a link, a file, or another user's. Nothing
/// is left.
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
        // Between the making of the directory and its lock nobody may take it for one that was
        // left.
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
    /// Nothing of it is copied.
    root: &'a Path,
    /// The work tree.
    top: &'a Path,
    /// Files that may have changed since git wrote its index, with their times. git takes a file for
    /// unchanged whose size and time it knows: it is asked before the copies get these times.
    without_times: RefCell<Vec<(PathBuf, TimeSpec, TimeSpec)>>,
}

impl Copying<'_> {
    /// `path`: of the work tree, for git and for messages.
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
        let written = git.index_time();
        for name in git.files()? {
            let source = path.join(&name);
            if source.starts_with(self.root) || self.root == source {
                continue;
            }
            let found = match from.metadata(&name) {
                Ok(found) => found,
                // git knows it, and it was deleted, or a link has taken the place of a directory
                // above it.
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
                } else if !inside.0.names().map_err(at(&source))?.is_empty()
                    && !git.has_file(&name)?
                {
                    // A submodule that was not fetched is empty. Where a file has become a
                    // directory, git lists the files in it too.
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

/// Makes directories like those in the work tree. Their owner may write them: they have to be
/// filled, and removed. False: a file or a link has the name of one, in the copy or by now in the
/// work tree.
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

/// Copies a file or a link. What is neither is left out, and so is what vanishes, or what is in the
/// copy already.
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

/// Copies the first `length` bytes of a file: by reference where the file system can, else all but
/// its holes. A file that grows meanwhile has no more bytes in the copy, and one that shrinks has
/// those that were left.
fn copy_content(from: &File, to: &File, length: u64) -> io::Result<()> {
    // SAFETY: a system call with descriptors that are open.
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
    // It may have lost a hole at its end.
    copied = copied.min(from.metadata()?.len().max(end));
    to.set_len(copied)
}

/// How what was copied differed from its commit, and the text of that; `None` where the copy is
/// gone.
pub fn source(snapshots: &Path, snapshot: &Snapshot) -> Option<(Taken, Option<Vec<u8>>)> {
    let dir = Dir::open(snapshots).ok()?.dir(Path::new(&snapshot.name)).ok()?;
    let unreadable = |why: String| Taken {
        at: clock::now(),
        source: Source { commit: None, branch: None, changes: Err(why) },
    };
    // Jobs run beside these files, and can put anything there.
    let taken = match dir.read(Path::new(RECORD), MOST_RECORD) {
        Ok(record) => {
            serde_json::from_slice(&record).unwrap_or_else(|why| unreadable(why.to_string()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => unreadable(error.to_string()),
    };
    Some((taken, dir.read(Path::new(DIFF), MOST_DIFF as u64).ok()))
}

/// Removes a copy that no job runs in, if it is there.
///
/// # Errors
/// It cannot be removed.
pub fn remove(snapshots: &Path, name: &str) -> io::Result<()> {
    match Dir::open(snapshots).and_then(|all| all.remove_tree(Path::new(name))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map(drop),
    }
}

/// Whether a copy has such a name, as [`make`] gives it: `<microseconds>-<process>`, and `gone.`
/// before it while it is deleted.
pub fn is_name(name: &str) -> bool {
    is_copy(name.strip_prefix(GONE).unwrap_or(name))
}

fn is_copy(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('-').is_some_and(|(at, process)| is_number(at) && is_number(process))
}

/// Deletes the copies that are none of these and that nobody is making. Returns the bytes that
/// their files had on the disk. `all` is the directory of the copies, `path` its path. What has no
/// name of a copy stays.
///
/// # Errors
/// One cannot be deleted, or a link or a file has the name of a copy. The others are gone.
pub fn remove_others(all: &Dir, path: &Path, in_use: &BTreeSet<String>) -> io::Result<u64> {
    let (mut gone, mut failure) = (Vec::new(), None);
    let mut fail =
        |name: &str, e: &io::Error| failure = Some(job_dirs::not_removed(&path.join(name), e));
    {
        // Those who make one wait for no longer than the renaming takes.
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

/// The bytes that the files of this copy have on the disk.
pub fn size(all: &Dir, name: &str) -> u64 {
    if is_copy(name) { all.tree_size(Path::new(name)) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_what_has_the_name_of_a_copy_and_is_a_directory_is_deleted() {
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
        // Not by drop: a process that another test forks may hold the descriptor a moment longer.
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

    /// A directory with `from`, `to` and `out`, and the first two of them open.
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
    fn what_is_in_the_copy_already_is_never_written_to() {
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
        // A directory that became a link, on either side, between the list and the copy.
        fs::create_dir(at("from/dir")).unwrap();
        symlink(at("out"), at("to/dir")).unwrap();
        assert!(!make_dirs(&from, &to, Path::new("dir"), &mut BTreeSet::new()).unwrap());
        symlink(at("out"), at("from/link")).unwrap();
        assert!(!make_dirs(&from, &to, Path::new("link"), &mut BTreeSet::new()).unwrap());
        assert_eq!(fs::read_to_string(at("out/file")).unwrap(), "precious");
    }

    #[test]
    fn what_changes_or_vanishes_between_the_list_and_the_copy_does_no_harm() {
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
    fn a_file_that_grows_or_shrinks_is_copied_as_far_as_it_was_and_is() {
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
