//! Maintenance of the database file: integrity checks, backups, restores, and compaction.

use crate::error::StoreError;
use crate::row::{JobRow, RunRow, StepRow, from_json};
use crate::schema::{jobs, requests, runs, steps};
use crate::{migrate, open, write};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel::sqlite::SqliteConnection;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use slotd_model::{Job, JobId, JobState};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of rows read per page.
const PAGE: i64 = 1000;

/// Figures of a database that was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    pub jobs: i64,
    pub bytes: u64,
}

#[derive(QueryableByName)]
struct Line {
    #[diesel(sql_type = Text)]
    line: String,
}

/// Reads the whole database, runs SQLite's integrity checks and validates each record. Returns one
/// line per problem.
///
/// # Errors
/// Fails if the file cannot be opened or is not a slotd database.
pub fn check(path: &Path) -> Result<(Contents, Vec<String>), StoreError> {
    let mut conn = open::reader(path)?;
    let mut wrong =
        lines(&mut conn, "SELECT integrity_check AS line FROM pragma_integrity_check LIMIT 20")?;
    wrong.retain(|line| line != "ok");
    wrong.extend(lines(
        &mut conn,
        "SELECT 'a row of ' || \"table\" || ' refers to a missing row of ' || parent AS line \
         FROM pragma_foreign_key_check LIMIT 20",
    )?);
    if wrong.is_empty() {
        check_jobs(&mut conn, &mut wrong)?;
        check_others(&mut conn, &mut wrong)?;
    }
    let jobs = jobs::table.count().get_result(&mut conn).unwrap_or(0);
    Ok((Contents { jobs, bytes: size(path) }, wrong))
}

fn lines(conn: &mut SqliteConnection, sql: &str) -> Result<Vec<String>, StoreError> {
    match diesel::sql_query(sql).load::<Line>(conn) {
        Ok(found) => Ok(found.into_iter().map(|line| line.line).collect()),
        // A file may be too damaged to be checked.
        Err(error) => Ok(vec![error.to_string()]),
    }
}

fn check_jobs(conn: &mut SqliteConnection, wrong: &mut Vec<String>) -> Result<(), StoreError> {
    let failed = StoreError::sql("read the jobs");
    let mut after = 0;
    loop {
        let page = jobs::table.filter(jobs::job_id.gt(after)).order(jobs::job_id).limit(PAGE);
        let rows: Vec<JobRow> = page.select(JobRow::as_select()).load(conn).map_err(&failed)?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = last.job_id;
        for row in rows {
            let number = row.job_id;
            match row.into_job(Arc::default(), Vec::new()) {
                Ok(job) => wrong.extend(
                    inconsistency(&job, number).map(|what| format!("job {number}: {what}")),
                ),
                Err(error) => wrong.push(format!("job {number}: {error}")),
            }
        }
    }
}

/// Returns the inconsistency of a record, if any.
fn inconsistency(job: &Job, number: i64) -> Option<String> {
    let run = &job.run;
    if i64::from(job.id.0) != number {
        return Some(format!("its record has the ID of job {}", job.id));
    }
    if run.state.is_terminal() != run.end.is_some() {
        return Some(format!(
            "it is {} but {}",
            run.state.name(),
            if run.end.is_some() { "has an end time" } else { "has no end time" }
        ));
    }
    if run.state.is_active() && (run.start.is_none() || run.alloc.is_none()) {
        return Some(format!("it is {} but has no start time or no allocation", run.state.name()));
    }
    (run.state == JobState::Suspended && run.suspended_at.is_none())
        .then(|| "it is SUSPENDED but has no suspension time".to_owned())
}

fn check_others(conn: &mut SqliteConnection, wrong: &mut Vec<String>) -> Result<(), StoreError> {
    let failed = StoreError::sql("read the steps, runs and requests");
    for row in steps::table.select(StepRow::as_select()).load_iter(conn).map_err(&failed)? {
        let row: StepRow = row.map_err(&failed)?;
        let of = row.job_id;
        wrong.extend(row.into_step().err().map(|error| format!("a step of job {of}: {error}")));
    }
    for row in runs::table.select(RunRow::as_select()).load_iter(conn).map_err(&failed)? {
        let row: RunRow = row.map_err(&failed)?;
        let of = row.job_id;
        wrong.extend(row.into_run().err().map(|error| format!("a run of job {of}: {error}")));
    }
    let bodies = requests::table.select((requests::request_id, requests::body));
    for row in bodies
        .load_iter::<(i64, String), diesel::connection::DefaultLoadingMode>(conn)
        .map_err(&failed)?
    {
        let (id, body) = row.map_err(&failed)?;
        let read = from_json::<slotd_model::JobRequest>("requests", "body", &body);
        wrong.extend(read.err().map(|error| format!("request {id}: {error}")));
    }
    wrong.extend(lines(
        conn,
        "SELECT 'job ' || job_id || ': it is pending but has no script or environment' AS line \
         FROM jobs JOIN requests USING (request_id) \
         WHERE state = 'PENDING' AND array_job_id IS NULL AND requests.body ->> '$.kind' <> 'allocation' \
         AND NOT EXISTS (SELECT 1 FROM launches WHERE launches.job_id = jobs.job_id AND env_id IS NOT NULL)",
    )?);
    Ok(())
}

/// Writes a complete and compact copy of the database, even while it is in use. A file at `to` is
/// replaced once the copy has reached the disk.
///
/// # Errors
/// Fails if the database cannot be read or the copy cannot be written.
pub fn backup(path: &Path, to: &Path) -> Result<(), StoreError> {
    let failed =
        |error: io::Error| StoreError::Open { path: to.to_owned(), message: error.to_string() };
    let new = unfinished(to);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    copy(path, &new)?;
    fs::rename(&new, to).and_then(|()| sync_dir(to)).map_err(failed)
}

/// Like [`backup`], but never replaces or deletes a file in the target directory, which belongs to
/// the user.
///
/// # Errors
/// Fails like [`backup`], and if `to` exists.
pub fn backup_beside_others(path: &Path, to: &Path) -> Result<(), StoreError> {
    let failed =
        |error: io::Error| StoreError::Open { path: to.to_owned(), message: error.to_string() };
    let new = beside(to, &format!("slotd-{}", std::process::id()));
    if fs::symlink_metadata(&new).is_ok() {
        return Err(failed(io::ErrorKind::AlreadyExists.into()));
    }
    let put = || {
        copy(path, &new)?;
        let done = match renameat2(AT_FDCWD, &new, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
            // The file system does not support `RENAME_NOREPLACE`.
            Err(Errno::EINVAL) if fs::symlink_metadata(to).is_err() => fs::rename(&new, to),
            other => other.map_err(io::Error::from),
        };
        done.and_then(|()| sync_dir(to)).map_err(failed)
    };
    put().inspect_err(|_| drop(fs::remove_file(&new)))
}

/// Writes a copy to a new file and syncs it to the disk.
fn copy(path: &Path, new: &Path) -> Result<(), StoreError> {
    let failed =
        |error: io::Error| StoreError::Open { path: new.to_owned(), message: error.to_string() };
    let mut conn = open::source(path)?;
    // Created before SQLite writes to it, so that it is private from the beginning.
    let file = open::private(new).map_err(failed)?;
    diesel::sql_query("VACUUM INTO ?")
        .bind::<Text, _>(open::uri(new, "mode=rw"))
        .execute(&mut conn)
        .map_err(StoreError::sql("copy the database"))?;
    file.sync_all().map_err(failed)
}

/// Replaces the database, which must not be in use, with a copy. Returns the new path of the old
/// database, if there was one.
///
/// # Errors
/// Fails if the copy is damaged or not a slotd database, or if a file cannot be written. The
/// database is unchanged in that case.
pub fn restore(path: &Path, from: &Path) -> Result<Option<PathBuf>, StoreError> {
    let (_, wrong) = check(from)?;
    if let Some(first) = wrong.first() {
        return Err(StoreError::NotADatabase { path: from.to_owned(), message: first.clone() });
    }
    let failed =
        |error: io::Error| StoreError::Open { path: path.to_owned(), message: error.to_string() };
    let new = beside(path, "new");
    backup(from, &new)?;
    let old = (1..)
        .map(|n| beside(path, &format!("replaced{n}")))
        // Renaming would replace a symlink, whatever it points to.
        .find(|old| open::beside(old).iter().all(|file| fs::symlink_metadata(file).is_err()))
        .unwrap_or_default();
    let mut kept = None;
    for (file, aside) in open::beside(path).iter().zip(open::beside(&old)) {
        match fs::rename(file, aside) {
            Ok(()) => kept = Some(old.clone()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    fs::rename(&new, path).and_then(|()| sync_dir(path)).map_err(failed)?;
    Ok(kept)
}

/// Rewrites the file without its free pages. Returns its size in bytes before and after. The
/// database must not be in use.
///
/// # Errors
/// Fails if the file cannot be written, for example because there is no space for a second copy.
pub fn vacuum(path: &Path) -> Result<(u64, u64), StoreError> {
    let before = size(path);
    let mut conn = open::writer(path)?;
    conn.batch_execute(&format!("{}; VACUUM; PRAGMA wal_checkpoint(TRUNCATE)", open::NEW_PRAGMA))
        .map_err(StoreError::sql("compact the database"))?;
    drop(conn);
    Ok((before, size(path)))
}

/// Preallocates the log of an open database, for a daemon that writes much.
pub fn fill_log(path: &Path) {
    if let Err(error) = open::fill_log(path) {
        log::warn!("{}: cannot preallocate the database log: {error}", path.display());
    }
}

/// Returns the size in bytes of the database including its log.
fn size(path: &Path) -> u64 {
    let [file, log, _] = open::beside(path);
    [file, log].iter().filter_map(|file| fs::metadata(file).ok()).map(|file| file.len()).sum()
}

/// Returns whether an older version wrote the database, so that opening it would migrate it.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn is_older(path: &Path) -> Result<bool, StoreError> {
    let mut conn = open::source(path)?;
    migrate::is_older(&mut conn).map_err(StoreError::sql("read the version of the database"))
}

/// Returns the highest job ID in a copy of the database, plus one.
///
/// # Errors
/// Fails if the copy cannot be read.
pub fn next_job_id(copy: &Path) -> Result<JobId, StoreError> {
    write::next_job_id(&mut open::source(copy)?)
}

/// Returns the path of an unfinished copy, which a killed daemon leaves behind.
pub fn unfinished(copy: &Path) -> PathBuf {
    beside(copy, "new")
}

fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{what}"));
    PathBuf::from(name)
}

fn sync_dir(of: &Path) -> io::Result<()> {
    File::open(of.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")))?
        .sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::row::Number;
    use crate::testing::{Place, all, ended_job, insert, insert_with, job, put, step};
    use slotd_model::End;
    use slotd_model::StepId;

    /// Counts the records.
    fn count(path: &Path) -> i64 {
        let mut conn = open::reader(path).unwrap();
        diesel::sql_query("SELECT count(*) AS n FROM jobs")
            .get_result::<Number>(&mut conn)
            .unwrap()
            .n
    }

    fn run(path: &Path, sql: &str) {
        SqliteConnection::establish(&path.display().to_string())
            .unwrap()
            .batch_execute(sql)
            .unwrap();
    }

    fn wrong(path: &Path) -> Vec<String> {
        check(path).unwrap().1
    }

    fn filled(place: &Place) -> Store {
        let mut store = place.store();
        let ended = Job { steps: vec![step(StepId::Num(0))], ..ended_job(2, End::Failed, 1, 2) };
        put(&mut store, vec![insert_with(&job(1), b"script", b"env"), insert(&ended)]);
        store
    }

    #[test]
    fn a_restore_keeps_earlier_replaced_databases() {
        let (place, from) = (Place::new(), Place::new());
        drop(filled(&from));
        let aside = |n: u32| beside(&place.path(), &format!("replaced{n}"));
        std::os::unix::fs::symlink("nowhere", place.path()).unwrap();
        assert_eq!(restore(&place.path(), &from.path()), Ok(Some(aside(1))));
        assert_eq!(restore(&place.path(), &from.path()), Ok(Some(aside(2))));
        assert_eq!(fs::read_link(aside(1)).unwrap(), Path::new("nowhere"));
        assert_eq!(count(&aside(2)), 2);
    }

    #[test]
    fn check_reports_each_kind_of_damage() {
        let place = Place::new();
        drop(filled(&place));
        assert_eq!(
            check(&place.path()).map(|(contents, wrong)| (contents.jobs, wrong)),
            Ok((2, Vec::new()))
        );
        for (sql, expected) in [
            ("DELETE FROM launches", "job 1: it is pending but has no script or environment"),
            (
                "UPDATE jobs SET body = json_set(body, '$.id', 9) WHERE job_id = 2",
                "job 2: its record has the ID of job 9",
            ),
            (
                "UPDATE jobs SET body = json_remove(body, '$.run.end') WHERE job_id = 2",
                "job 2: it is FAILED but has no end time",
            ),
            ("UPDATE steps SET body = '{}'", "a step of job 2: the database is damaged"),
            (
                "UPDATE requests SET body = 'x' WHERE request_id = 1",
                "request 1: the database is damaged",
            ),
            ("DELETE FROM requests", "a row of jobs refers to a missing row of requests"),
        ] {
            let copy = Place::new();
            backup(&place.path(), &copy.path()).unwrap();
            run(&copy.path(), &format!("PRAGMA foreign_keys = OFF; {sql}"));
            let wrong = wrong(&copy.path());
            assert!(wrong.iter().any(|line| line.starts_with(expected)), "{sql}: {wrong:?}");
        }
    }

    #[test]
    fn a_backup_is_complete_and_private_and_works_alongside_a_writer() {
        let (place, copy) = (Place::new(), Place::new());
        let mut store = filled(&place);
        fs::write(copy.path(), "an older copy").unwrap();
        backup(&place.path(), &copy.path()).unwrap();
        put(&mut store, vec![insert(&job(3))]);
        assert_eq!(fs::metadata(copy.path()).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!((count(&place.path()), count(&copy.path())), (3, 2));
        assert_eq!(all(&mut copy.store())[0].id, all(&mut store)[0].id);
    }

    #[test]
    fn a_restore_replaces_the_database_and_keeps_the_old_one() {
        let (place, copy) = (Place::new(), Place::new());
        let mut store = filled(&place);
        backup(&place.path(), &copy.path()).unwrap();
        put(&mut store, vec![insert(&ended_job(3, End::Failed, 1, 2))]);
        drop(store);
        let old = restore(&place.path(), &copy.path()).unwrap().unwrap();
        assert_eq!((count(&place.path()), count(&old), count(&copy.path())), (2, 3, 2));
        assert_eq!(
            restore(&place.path(), &old).map(|kept| kept.is_some_and(|kept| kept != old)),
            Ok(true)
        );
        assert_eq!(count(&place.path()), 3);
        // A damaged copy changes nothing.
        run(&copy.path(), "UPDATE jobs SET body = json_remove(body, '$.run.end')");
        assert!(restore(&place.path(), &copy.path()).is_err());
        assert_eq!(count(&place.path()), 3);
    }

    #[test]
    fn vacuum_lets_a_file_of_an_earlier_version_shrink() {
        let place = Place::new();
        let store = filled(&place);
        drop(store);
        run(&place.path(), "PRAGMA auto_vacuum = NONE; VACUUM");
        let (before, after) = vacuum(&place.path()).unwrap();
        assert!(after <= before + 8192, "{before} {after}");
        let mut conn = open::reader(&place.path()).unwrap();
        let mode = diesel::sql_query("SELECT auto_vacuum AS n FROM pragma_auto_vacuum")
            .get_result::<Number>(&mut conn);
        assert_eq!(mode.unwrap().n, 2);
    }

    #[test]
    fn a_database_of_an_older_version_is_recognized() {
        let place = Place::new();
        drop(filled(&place));
        assert_eq!(is_older(&place.path()), Ok(false));
        run(
            &place.path(),
            "DELETE FROM __diesel_schema_migrations WHERE version = (SELECT max(version) FROM __diesel_schema_migrations)",
        );
        assert_eq!(is_older(&place.path()), Ok(true));
        let newer = Place::new();
        run(&newer.path(), "");
        assert_eq!(is_older(&newer.path()), Ok(false));
    }
}
