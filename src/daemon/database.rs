//! What `slotd db` does, and the copy of the database that the daemon keeps.

use crate::daemon::listener::{self, InstanceLock};
use crate::exec::adopt;
use crate::model::Timestamp;
use crate::store::upkeep::{self, Contents};
use crate::store::{OpenFiles, Reader, StoreError};
use crate::sys::clock;
use crate::sys::paths::Paths;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Why the database cannot be used, copied or restored.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("a daemon serves {}: stop it before (slotd daemon stop); running jobs go on", .0.display())]
    InUse(PathBuf),
    #[error("{} is there already: remove it, or choose another name", .0.display())]
    Exists(PathBuf),
    /// What is wrong, and what to do about it.
    #[error("{0}")]
    Unusable(String),
    #[error(
        "{} could not be made anew and still has what was deleted: {why}; remove it, or make room and try again",
        .copy.display()
    )]
    StaleCopy { copy: PathBuf, why: StoreError },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    File(#[from] io::Error),
}

/// How old the daemon's own copy may become while the database changes.
const BACKUP_AGE: Duration = Duration::from_secs(24 * 3600);

/// Keeps daemons away while what is returned lives, and waits until none that was there launches
/// anything.
///
/// # Errors
/// A daemon serves the root, or a directory of it cannot be used.
pub fn alone_at_last(paths: &Paths) -> Result<InstanceLock, DatabaseError> {
    let lock = alone(paths)?;
    adopt::await_launches(paths.root())?;
    Ok(lock)
}

/// How many jobs wait to be started, as the database has it. None where there is no database.
///
/// # Errors
/// It cannot be read.
pub fn waiting_jobs(paths: &Paths) -> Result<i64, StoreError> {
    if !paths.db().exists() {
        return Ok(0);
    }
    Reader::open(&paths.db())?.count_waiting()
}

/// Keeps daemons away while the file is changed.
fn alone(paths: &Paths) -> Result<InstanceLock, DatabaseError> {
    listener::take_root(paths).map_err(|e| match e.kind() {
        io::ErrorKind::TimedOut => DatabaseError::InUse(paths.root().to_owned()),
        _ => e.into(),
    })
}

/// What is wrong with the database, a line each.
///
/// # Errors
/// It cannot be opened, or is none of slotd's.
pub fn check(paths: &Paths) -> Result<(Contents, Vec<String>), DatabaseError> {
    upkeep::check(&paths.db()).map_err(|e| unusable(paths, &e))
}

/// Writes a copy to a file, which must not be there.
///
/// # Errors
/// The database cannot be read, or the copy not be written.
pub fn backup(paths: &Paths, to: &Path) -> Result<(), DatabaseError> {
    if fs::symlink_metadata(to).is_ok() {
        return Err(DatabaseError::Exists(to.to_owned()));
    }
    Ok(upkeep::backup_beside_others(&paths.db(), to)?)
}

/// Puts a copy in the place of the database. Where the old one is now.
///
/// # Errors
/// A daemon runs, the copy is damaged, or a file cannot be written.
pub fn restore(paths: &Paths, from: &Path) -> Result<Option<PathBuf>, DatabaseError> {
    let _lock = alone(paths)?;
    Ok(upkeep::restore(&paths.db(), from)?)
}

/// Writes the database anew. How many bytes it had, and has.
///
/// # Errors
/// A daemon runs, or the file cannot be written.
pub fn vacuum(paths: &Paths) -> Result<(u64, u64), DatabaseError> {
    let _lock = alone(paths)?;
    upkeep::vacuum(&paths.db()).map_err(|e| unusable(paths, &e))
}

fn unusable(paths: &Paths, why: &StoreError) -> DatabaseError {
    DatabaseError::Unusable(advice(paths, &why.to_string()))
}

/// What to do about a database that cannot be used.
pub fn advice(paths: &Paths, why: &str) -> String {
    let copy = paths.db_backup();
    let Some(at) = written(&copy) else {
        return format!(
            "{why}\nthere is no copy {}: put one in its place with `slotd db restore FILE`, or move {} away; what the job \
             directories tell is kept then, and what waits is lost",
            copy.display(),
            paths.db().display()
        );
    };
    let age = at.elapsed().unwrap_or_default().as_secs() / 60;
    format!(
        "{why}\nthe last copy is {}, {} hours and {} minutes old: `slotd db restore {}` puts it in its place and keeps the \
         old file",
        copy.display(),
        age / 60,
        age % 60,
        copy.display()
    )
}

fn written(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|file| file.modified()).ok()
}

/// Copies the database before this program changes its shape.
///
/// # Errors
/// The copy cannot be written.
pub fn backup_before_migration(paths: &Paths) -> Result<(), StoreError> {
    let is_there = fs::metadata(paths.db()).is_ok_and(|file| file.len() > 0);
    if is_there && upkeep::is_older(&paths.db()).unwrap_or(false) {
        upkeep::backup(&paths.db(), &paths.db_backup())
    } else {
        Ok(())
    }
}

/// When the daemon's copy has to be made anew: a day after the last one, where the database has
/// changed since. `started` stands for the last copy where there is none.
pub fn backup_due(paths: &Paths, started: SystemTime) -> Option<Timestamp> {
    let last = written(&paths.db_backup());
    let changed = [paths.db(), paths.db_log()].iter().filter_map(|file| written(file)).max()?;
    if last.is_some_and(|last| changed <= last) {
        return None;
    }
    let due = last.unwrap_or(started) + BACKUP_AGE;
    Some(clock::now().plus(due.duration_since(SystemTime::now()).unwrap_or_default()))
}

/// Makes the daemon's copy anew if there is one, since it has what was deleted from the database.
///
/// # Errors
/// It cannot be written. The text says that the copy still has it.
pub fn follow_deletion(paths: &Paths, files: &OpenFiles) -> Result<(), DatabaseError> {
    let copy = paths.db_backup();
    let has_copy = [upkeep::unfinished(&copy), copy.clone()]
        .iter()
        .any(|file| fs::symlink_metadata(file).is_ok());
    if !has_copy {
        return Ok(());
    }
    renew_backup(paths, files).map_err(|why| DatabaseError::StaleCopy { copy, why })
}

/// Makes the daemon's copy anew, in the place of the old one. `files` are those of the open
/// database.
///
/// # Errors
/// It cannot be written, or another file is in the place of the database.
pub fn renew_backup(paths: &Paths, files: &OpenFiles) -> Result<(), StoreError> {
    files.check()?;
    upkeep::backup(&paths.db(), &paths.db_backup())
}
