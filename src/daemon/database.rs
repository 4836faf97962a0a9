//! The operations of `slotd db`, and the daemon's own backup of the database.

use crate::daemon::listener::{self, InstanceLock};
use slotd_exec::adopt;
use slotd_model::Timestamp;
use slotd_store::upkeep::{self, Contents};
use slotd_store::{OpenFiles, Reader, StoreError};
use slotd_sys::clock;
use slotd_sys::paths::Paths;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The reason why the database cannot be used, backed up or restored.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("a daemon is using {}: stop it first (slotd daemon stop); running jobs continue", .0.display())]
    InUse(PathBuf),
    #[error("{} already exists: remove it, or choose another name", .0.display())]
    Exists(PathBuf),
    /// The error and its remedy.
    #[error("{0}")]
    Unusable(String),
    #[error(
        "could not renew {}, which still contains deleted data: {why}; remove it, or free disk space and retry",
        .copy.display()
    )]
    StaleCopy { copy: PathBuf, why: StoreError },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    File(#[from] io::Error),
}

/// The age at which the daemon's own backup is renewed if the database has changed.
const BACKUP_AGE: Duration = Duration::from_secs(24 * 3600);

/// The time after its start in which a daemon makes the first backup. It is short, since many
/// workstations do not run for a day.
const FIRST_BACKUP: Duration = Duration::from_secs(3600);

/// Prevents daemons from starting while the returned lock lives, and waits for launches of an
/// earlier daemon to finish.
///
/// # Errors
/// Fails if a daemon is using the root, or if one of its directories cannot be used.
pub fn alone_at_last(paths: &Paths) -> Result<InstanceLock, DatabaseError> {
    let lock = alone(paths)?;
    adopt::await_launches(paths.root())?;
    Ok(lock)
}

/// Returns the number of pending jobs in the database, 0 if there is no database.
///
/// # Errors
/// Fails if the database cannot be read.
pub fn waiting_jobs(paths: &Paths) -> Result<i64, StoreError> {
    if !paths.db().exists() {
        return Ok(0);
    }
    Reader::open(&paths.db())?.count_waiting()
}

/// Prevents daemons from starting while the file is changed.
fn alone(paths: &Paths) -> Result<InstanceLock, DatabaseError> {
    listener::take_root(paths).map_err(|e| match e.kind() {
        io::ErrorKind::TimedOut => DatabaseError::InUse(paths.root().to_owned()),
        _ => e.into(),
    })
}

/// Returns the problems of the database, one line each.
///
/// # Errors
/// Fails if it cannot be opened or is not a database of slotd.
pub fn check(paths: &Paths) -> Result<(Contents, Vec<String>), DatabaseError> {
    upkeep::check(&paths.db()).map_err(|e| unusable(paths, &e))
}

/// Writes a backup to a file that must not exist yet.
///
/// # Errors
/// Fails if the database cannot be read or the backup cannot be written.
pub fn backup(paths: &Paths, to: &Path) -> Result<(), DatabaseError> {
    if fs::symlink_metadata(to).is_ok() {
        return Err(DatabaseError::Exists(to.to_owned()));
    }
    Ok(upkeep::backup_beside_others(&paths.db(), to)?)
}

/// Replaces the database with a backup. Returns the new path of the old database.
///
/// # Errors
/// Fails if a daemon is running, the backup is damaged, or a file cannot be written.
pub fn restore(paths: &Paths, from: &Path) -> Result<Option<PathBuf>, DatabaseError> {
    let _lock = alone(paths)?;
    Ok(upkeep::restore(&paths.db(), from)?)
}

/// Compacts the database. Returns its size in bytes before and after.
///
/// # Errors
/// Fails if a daemon is running or the file cannot be written.
pub fn vacuum(paths: &Paths) -> Result<(u64, u64), DatabaseError> {
    let _lock = alone(paths)?;
    upkeep::vacuum(&paths.db()).map_err(|e| unusable(paths, &e))
}

fn unusable(paths: &Paths, why: &StoreError) -> DatabaseError {
    DatabaseError::Unusable(advice(paths, &why.to_string()))
}

/// Adds the remedy to an error about an unusable database.
pub fn advice(paths: &Paths, why: &str) -> String {
    let copy = paths.db_backup();
    let Some(at) = written(&copy) else {
        return format!(
            "{why}\nthere is no backup {}: restore another one with `slotd db restore FILE`, or move {} away; jobs with a \
             job directory are then recovered, and pending jobs are lost",
            copy.display(),
            paths.db().display()
        );
    };
    let age = at.elapsed().unwrap_or_default().as_secs() / 60;
    format!(
        "{why}\nthe last backup is {}, {} h {} min old: `slotd db restore {}` restores it and keeps the old file",
        copy.display(),
        age / 60,
        age % 60,
        copy.display()
    )
}

fn written(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|file| file.modified()).ok()
}

/// Backs the database up before this version migrates it.
///
/// # Errors
/// Fails if the backup cannot be written.
pub fn backup_before_migration(paths: &Paths) -> Result<(), StoreError> {
    let is_there = fs::metadata(paths.db()).is_ok_and(|file| file.len() > 0);
    if is_there && upkeep::is_older(&paths.db()).unwrap_or(false) {
        upkeep::backup(&paths.db(), &paths.db_backup())
    } else {
        Ok(())
    }
}

/// Returns when the daemon's backup must be renewed: a day after the last one, if the database has
/// changed since. Without a backup, an hour after `started`.
pub fn backup_due(paths: &Paths, started: SystemTime) -> Option<Timestamp> {
    let last = written(&paths.db_backup());
    let changed = [paths.db(), paths.db_log()].iter().filter_map(|file| written(file)).max()?;
    if last.is_some_and(|last| changed <= last) {
        return None;
    }
    let due = last.map_or(started + FIRST_BACKUP, |last| last + BACKUP_AGE);
    Some(clock::now().plus(due.duration_since(SystemTime::now()).unwrap_or_default()))
}

/// Renews the daemon's backup, if there is one, since it contains data that was just deleted from
/// the database.
///
/// # Errors
/// Fails if it cannot be written. The error states that the old backup still contains the
/// data.
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

/// Renews the daemon's backup in place. `files` are the files of the open database.
///
/// # Errors
/// Fails if it cannot be written, or if another file has replaced the database.
pub fn renew_backup(paths: &Paths, files: &OpenFiles) -> Result<(), StoreError> {
    files.check()?;
    upkeep::backup(&paths.db(), &paths.db_backup())
}
