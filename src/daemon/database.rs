//! What `slotd db` does, and the copy of the database that the daemon keeps.

use crate::daemon::listener::{self, InstanceLock};
use crate::model::Timestamp;
use crate::store::upkeep::{self, Contents};
use crate::sys::clock;
use crate::sys::paths::Paths;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How old the daemon's own copy may become while the database changes.
const BACKUP_AGE: Duration = Duration::from_secs(24 * 3600);

/// Keeps daemons away while the file is changed.
fn alone(paths: &Paths) -> Result<InstanceLock, String> {
    listener::take_root(paths).map_err(|e| match e.kind() {
        io::ErrorKind::TimedOut => {
            format!(
                "a daemon serves {}: stop it before (slotd daemon stop); running jobs go on",
                paths.root().display()
            )
        }
        _ => e.to_string(),
    })
}

/// What is wrong with the database, a line each.
///
/// # Errors
/// It cannot be opened, or is none of slotd's.
pub fn check(paths: &Paths) -> Result<(Contents, Vec<String>), String> {
    upkeep::check(&paths.db()).map_err(|e| advice(paths, &e.to_string()))
}

/// Writes a copy to a file, which must not be there.
///
/// # Errors
/// The database cannot be read, or the copy not be written.
pub fn backup(paths: &Paths, to: &Path) -> Result<(), String> {
    if fs::symlink_metadata(to).is_ok() {
        return Err(format!(
            "{} is there already: remove it, or choose another name",
            to.display()
        ));
    }
    upkeep::backup(&paths.db(), to).map_err(|e| e.to_string())
}

/// Puts a copy in the place of the database. Where the old one is now.
///
/// # Errors
/// A daemon runs, the copy is damaged, or a file cannot be written.
pub fn restore(paths: &Paths, from: &Path) -> Result<Option<PathBuf>, String> {
    let _lock = alone(paths)?;
    upkeep::restore(&paths.db(), from).map_err(|e| e.to_string())
}

/// Writes the database anew. How many bytes it had, and has.
///
/// # Errors
/// A daemon runs, or the file cannot be written.
pub fn vacuum(paths: &Paths) -> Result<(u64, u64), String> {
    let _lock = alone(paths)?;
    upkeep::vacuum(&paths.db()).map_err(|e| advice(paths, &e.to_string()))
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
pub fn backup_before_migration(paths: &Paths) -> Result<(), String> {
    let is_there = fs::metadata(paths.db()).is_ok_and(|file| file.len() > 0);
    match is_there && upkeep::is_older(&paths.db()).unwrap_or(false) {
        true => upkeep::backup(&paths.db(), &paths.db_backup()).map_err(|e| e.to_string()),
        false => Ok(()),
    }
}

/// When the daemon's copy has to be made anew: a day after the last one, where the database has changed since. `started`
/// stands for the last copy where there is none.
pub fn backup_due(paths: &Paths, started: SystemTime) -> Option<Timestamp> {
    let last = written(&paths.db_backup());
    let changed = [paths.db(), paths.db_log()].iter().filter_map(|file| written(file)).max()?;
    if last.is_some_and(|last| changed <= last) {
        return None;
    }
    let due = last.unwrap_or(started) + BACKUP_AGE;
    Some(clock::now().plus(due.duration_since(SystemTime::now()).unwrap_or_default()))
}

/// Makes the daemon's copy anew, in the place of the old one.
///
/// # Errors
/// It cannot be written.
pub fn renew_backup(paths: &Paths) -> Result<(), String> {
    upkeep::backup(&paths.db(), &paths.db_backup()).map_err(|e| e.to_string())
}
