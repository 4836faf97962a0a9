//! Copies of work trees that jobs run in (`sbatch --snapshot`), below the runtime root.
//!
//! The client makes one before it submits. While it works it holds a lock on the directory of the copy, which the kernel
//! takes from it however it ends. What no job names and nobody holds was left by a client that died, or by jobs that were
//! removed, and is removed in its turn.

use crate::exec::job_dirs;
use crate::model::source::{Snapshot, Source, Taken, WorkTree};
use crate::sys::git::{Git, GitError};
use crate::sys::{clock, work_tree};
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, FileType, Metadata, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The copied files, in the directory of the copy.
const TREE: &str = "tree";

/// How they differed from the commit, and the text of that.
const RECORD: &str = "source.json";
const DIFF: &str = "source.diff";

/// What is on its way out.
const GONE: &str = "gone.";

/// How long git may take, all in all: somebody waits for the job's number.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
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
    dir: PathBuf,
    /// What was copied, and how it differed from its commit.
    pub tree: WorkTree,
    _lock: File,
}

impl Held {
    /// Where the copied files are.
    pub fn files(&self) -> PathBuf {
        self.dir.join(TREE)
    }

    /// Removes it: no job is going to run in it.
    pub fn discard(self) {
        if let Err(why) = fs::remove_dir_all(&self.dir) {
            log::warn!("{}: {why}", self.dir.display());
        }
    }
}

/// The top directory of the files of a copy.
pub fn tree_of(snapshots: &Path, snapshot: &Snapshot) -> PathBuf {
    snapshots.join(&snapshot.name).join(TREE)
}

/// Copies the files of a work tree that git knows or does not ignore, those of its submodules too, with their modes and
/// times, and notes how they differ from the commit. All of it is on the disk then. What lies in `root` is left out.
///
/// # Errors
/// git does not answer, or a file cannot be read or written. Nothing is left.
pub fn make(root: &Path, snapshots: &Path, tree: &WorkTree) -> Result<Held, SnapshotError> {
    fs::create_dir_all(snapshots).map_err(at(snapshots))?;
    let name = format!("{}-{}", clock::now().0, std::process::id());
    let dir = snapshots.join(&name);
    let lock = {
        // Between the making of the directory and its lock nobody may take it for one that was left.
        let all = File::open(snapshots)
            .and_then(|all| all.lock_shared().map(|()| all))
            .map_err(at(snapshots))?;
        DirBuilder::new().mode(0o700).create(&dir).map_err(at(&dir))?;
        let lock = File::open(&dir).and_then(|own| own.lock().map(|()| own)).map_err(at(&dir))?;
        drop(all);
        lock
    };
    let mut held = Held { name, dir, tree: tree.clone(), _lock: lock };
    match fill(root, &mut held) {
        Ok(()) => Ok(held),
        Err(why) => {
            held.discard();
            Err(why)
        }
    }
}

fn fill(root: &Path, held: &mut Held) -> Result<(), SnapshotError> {
    let (top, files) = (PathBuf::from(&held.tree.root), held.files());
    let git = Git::at(&top, PATIENCE);
    let root = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    fs::create_dir(&files).map_err(at(&files))?;
    copy_tree(&git, &top, &files, &root)?;
    let (source, diff) = git.with_files_of(&files).source();
    // Only the files count, and they are in the copy: that HEAD may have moved meanwhile does no harm.
    held.tree.commit = source.commit.clone().or(held.tree.commit.take());
    if source.branch.is_some() {
        held.tree.branch.clone_from(&source.branch);
    }
    let taken = Taken { at: clock::now(), source };
    let record =
        serde_json::to_vec(&taken).map_err(io::Error::from).map_err(at(&held.dir.join(RECORD)))?;
    for (name, bytes) in [(RECORD, Some(record)), (DIFF, diff)] {
        let path = held.dir.join(name);
        bytes.map_or(Ok(()), |bytes| fs::write(&path, bytes)).map_err(at(&path))?;
    }
    let dir = File::open(&held.dir).map_err(at(&held.dir))?;
    // SAFETY: a system call with a descriptor that is open.
    match unsafe { libc::syncfs(dir.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(SnapshotError::File { path: held.dir.clone(), error: io::Error::last_os_error() }),
    }
}

fn copy_tree(git: &Git, from: &Path, to: &Path, root: &Path) -> Result<(), SnapshotError> {
    let mut made = BTreeSet::new();
    for name in git.inside(from).files()? {
        let (source, target) = (from.join(&name), to.join(&name));
        if source.starts_with(root) || root == source {
            continue;
        }
        let found = match fs::symlink_metadata(&source) {
            Ok(found) => found,
            // git knows it, and it was deleted.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                continue;
            }
            Err(error) => return Err(SnapshotError::File { path: source, error }),
        };
        if let Some(parent) = name.parent() {
            make_dirs(from, to, parent, &mut made)?;
        }
        if found.is_dir() {
            make_dirs(from, to, &name, &mut made)?;
            // A submodule that was not fetched is an empty directory.
            if work_tree::git_dir(&source).is_some() {
                copy_tree(git, &source, &target, root)?;
            }
        } else {
            copy(&source, &target, &found)?;
        }
    }
    Ok(())
}

/// Makes directories like those in the work tree. Their owner may write them: they have to be filled, and removed.
fn make_dirs(
    from: &Path,
    to: &Path,
    name: &Path,
    made: &mut BTreeSet<PathBuf>,
) -> Result<(), SnapshotError> {
    let missing: Vec<&Path> = name.ancestors().take_while(|dir| !made.contains(*dir)).collect();
    for dir in missing.into_iter().rev().filter(|dir| !dir.as_os_str().is_empty()) {
        let path = to.join(dir);
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(at(&path))?,
        }
        let mode = fs::metadata(from.join(dir)).map_or(0o755, |found| found.mode());
        fs::set_permissions(&path, Permissions::from_mode(mode & 0o777 | 0o700))
            .map_err(at(&path))?;
        made.insert(dir.to_owned());
    }
    Ok(())
}

/// Copies a file, by reference where the file system can. What is no file and no link is left out.
fn copy(from: &Path, to: &Path, found: &Metadata) -> Result<(), SnapshotError> {
    let kind: FileType = found.file_type();
    let copied = if kind.is_symlink() {
        fs::read_link(from).and_then(|target| std::os::unix::fs::symlink(target, to))
    } else if kind.is_file() {
        fs::copy(from, to).map(drop)
    } else {
        return Ok(());
    };
    match copied {
        Err(error)
            if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(from).is_err() =>
        {
            return Ok(());
        }
        other => other.map_err(at(from))?,
    }
    let (read, written) = (
        TimeSpec::new(found.atime(), found.atime_nsec()),
        TimeSpec::new(found.mtime(), found.mtime_nsec()),
    );
    utimensat(nix::fcntl::AT_FDCWD, to, &read, &written, UtimensatFlags::NoFollowSymlink)
        .map_err(|error| SnapshotError::File { path: to.to_owned(), error: error.into() })
}

/// How what was copied differed from its commit, and the text of that; `None` where the copy is gone.
pub fn source(snapshots: &Path, snapshot: &Snapshot) -> Option<(Taken, Option<Vec<u8>>)> {
    let dir = snapshots.join(&snapshot.name);
    let unreadable = |why: String| Taken {
        at: clock::now(),
        source: Source { commit: None, branch: None, changes: Err(why) },
    };
    let record = fs::read(dir.join(RECORD)).ok()?;
    let taken = serde_json::from_slice(&record).unwrap_or_else(|why| unreadable(why.to_string()));
    Some((taken, fs::read(dir.join(DIFF)).ok()))
}

/// Removes the copies that are none of these and that nobody is making. How many bytes their files had.
///
/// # Errors
/// One cannot be removed. The others are gone.
pub fn remove_others(snapshots: &Path, in_use: &BTreeSet<String>) -> io::Result<u64> {
    let all = match File::open(snapshots) {
        Ok(all) => all,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut gone = Vec::new();
    {
        // Those who make one wait for no longer than the renaming takes.
        all.lock()?;
        for entry in fs::read_dir(snapshots)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(GONE) {
                gone.push(entry.path());
            } else if !in_use.contains(&name)
                && File::open(entry.path()).is_ok_and(|own| own.try_lock().is_ok())
            {
                let aside = snapshots.join(format!("{GONE}{name}"));
                fs::rename(entry.path(), &aside)?;
                gone.push(aside);
            }
        }
        all.unlock()?;
    }
    let (mut bytes, mut failure) = (0, None);
    for dir in gone {
        match job_dirs::remove(&dir) {
            Ok(freed) => bytes += freed,
            Err(error) => {
                failure = Some(io::Error::new(error.kind(), format!("{}: {error}", dir.display())))
            }
        }
    }
    failure.map_or(Ok(bytes), Err)
}

/// How many bytes the files of this copy have.
pub fn size(snapshots: &Path, name: &str) -> u64 {
    job_dirs::size(&snapshots.join(name))
}
