//! Opens the database file, for writing or for reading alongside a writer.

use crate::error::{StoreError, failure};
use crate::migrate::{self, Shape};
use crate::row::Number;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use slotd_model::StoreFault;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Executed in this order, one statement each: the lock timeout must be set before any statement
/// that needs a lock. The timeout is short so that a requester learns within two seconds that a
/// commit is impossible.
///
/// - `synchronous=FULL` makes a commit survive a power failure. A group commit pays for it only
///   once.
/// - `secure_delete` overwrites deleted data, such as environments, in the file.
/// - `wal_autocheckpoint` is only a fallback for an unusually long log. Normally the store empties
///   its log itself when nobody is waiting for it ([`LOG_PAGES`]).
/// - `cache_spill=OFF` keeps a transaction's changes in memory, so that they are written only once.
/// - `cache_size` is in KiB if it is negative. A commit needs a few dozen pages, and the kernel caches
///   the others, too. The default keeps 2 MB.
const WRITER_PRAGMAS: [&str; 8] = [
    "PRAGMA busy_timeout = 1000",
    "PRAGMA secure_delete = ON",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA cache_spill = OFF",
    "PRAGMA cache_size = -400",
];

/// Returns the pragma that turns waiting for locks on or off.
pub(super) fn wait_for_locks(waits: bool) -> &'static str {
    if waits { WRITER_PRAGMAS[0] } else { "PRAGMA busy_timeout = 0" }
}

/// The length in pages at which the log is copied into the database and then overwritten from its
/// beginning.
pub(super) const LOG_PAGES: i64 = 1000;

/// The size in bytes of a log of that length: a file header, and a header for each page.
const LOG_BYTES: u64 = 32 + (LOG_PAGES as u64 + 24) * (24 + 4096);

/// The log is preallocated only if the disk has this many times its size available.
const LOG_ROOM: u64 = 64;

/// The pragma for new files. It must precede the creation of the first table. It writes to the
/// file, so it is executed early, in case the disk fills up later.
pub(super) const NEW_PRAGMA: &str = "PRAGMA auto_vacuum = INCREMENTAL";

const READER_PRAGMAS: [&str; 2] = ["PRAGMA busy_timeout = 5000", "PRAGMA query_only = ON"];

/// Opens the database for writing, creates it if it does not exist, and applies missing migrations.
///
/// The directory must exist. The file is readable only by its owner, since it stores environments.
///
/// # Errors
/// Fails if the file cannot be opened, is not a slotd database, or was written by a newer slotd.
/// The file is not changed in these cases.
pub(super) fn writer(path: &Path) -> Result<SqliteConnection, StoreError> {
    let open_error = |error: std::io::Error| StoreError::Open {
        path: path.to_owned(),
        message: error.to_string(),
    };
    check_regular(path, &["", "-wal", "-shm", "-journal"])?;
    check_owner(path)?;
    refuse_log_alone(path)?;
    let file = own(OpenOptions::new().read(true).write(true).create(true).truncate(false), path);
    let length = file.and_then(|file| file.metadata()).map_err(open_error)?.len();
    if length > 0 {
        check(path)?;
    }
    let mut conn = connect(path, "mode=rw")?;
    if length == 0 {
        set(path, &mut conn, &[NEW_PRAGMA])?;
    }
    set(path, &mut conn, &WRITER_PRAGMAS)?;
    migrate::bring_up_to_date(&mut conn).map_err(|error| StoreError::Migration {
        path: path.to_owned(),
        message: error.to_string(),
    })?;
    give_back_pages(path, &mut conn);
    Ok(conn)
}

/// Refuses a log without its database. SQLite would delete such a log, and with it commits that are
/// missing from a database that was moved away.
fn refuse_log_alone(path: &Path) -> Result<(), StoreError> {
    /// The first four bytes of a log, except for the last bit. A preallocated log has zeros
    /// instead.
    const MAGIC: u32 = 0x377f_0682;
    let log = log_of(path);
    let begins_as_log = || {
        let mut begin = [0; 4];
        let read = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&log);
        read.and_then(|file| file.read_exact_at(&mut begin, 0)).is_ok()
            && u32::from_be_bytes(begin) & !1 == MAGIC
    };
    if std::fs::metadata(path).is_ok_and(|file| file.len() > 0) || !begins_as_log() {
        return Ok(());
    }
    let message = format!(
        "it is missing or empty, but its log {} is not: put the database back, or move \
         the log away too; then slotd recovers jobs from their directories, but pending jobs are lost",
        log.display()
    );
    Err(StoreError::Open { path: path.to_owned(), message })
}

/// Opens a file with access for its owner only, and refuses symlinks.
fn own(options: &mut OpenOptions, path: &Path) -> std::io::Result<std::fs::File> {
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Converts a file of an earlier version, which keeps its free pages, to one that can shrink. Large
/// files are skipped because rewriting them takes long.
fn give_back_pages(path: &Path, conn: &mut SqliteConnection) {
    const QUICK: u64 = 64 << 20;
    let keeps = diesel::sql_query("SELECT auto_vacuum AS n FROM pragma_auto_vacuum")
        .get_result::<Number>(conn)
        .is_ok_and(|mode| mode.n == 0);
    if keeps && std::fs::metadata(path).is_ok_and(|file| file.len() <= QUICK) {
        // If this fails, for example because the disk is full, the file stays as it is.
        if let Err(error) = conn.batch_execute(&format!("{NEW_PRAGMA}; VACUUM")) {
            log::warn!("{}: {error}", path.display());
        }
    } else if keeps {
        log::info!(
            "{} does not shrink when jobs are deleted; run `slotd db vacuum` to change that",
            path.display()
        );
    }
}

/// Opens a database for writing that [`writer`] has already opened once.
///
/// # Errors
/// Fails if the file cannot be opened.
pub(super) fn again(path: &Path) -> Result<SqliteConnection, StoreError> {
    let mut conn = connect(path, "mode=rw")?;
    set(path, &mut conn, &WRITER_PRAGMAS)?;
    Ok(conn)
}

/// Opens the database for reading alongside the writer. Each commit is visible immediately.
///
/// # Errors
/// Fails if the file does not exist or is not a database that this version can read.
pub(super) fn reader(path: &Path) -> Result<SqliteConnection, StoreError> {
    let mut conn = connect(path, "mode=ro")?;
    set(path, &mut conn, &READER_PRAGMAS)?;
    refuse_unknown(path, &mut conn)?;
    Ok(conn)
}

/// Opens a database for copying. It may have been written by any version.
///
/// # Errors
/// Fails if the file does not exist.
pub(super) fn source(path: &Path) -> Result<SqliteConnection, StoreError> {
    let mut conn = connect(path, "mode=ro")?;
    set(path, &mut conn, &READER_PRAGMAS[..1])?;
    Ok(conn)
}

/// Preallocates the log of an open database. Commits then overwrite existing blocks and wait only
/// for the data to reach the disk. If the file grew, the file system would have to write its
/// metadata, too. The current content of the log is not changed: SQLite reads up to the last valid
/// checksum.
pub(super) fn fill_log(path: &Path) -> std::io::Result<()> {
    let log = own(OpenOptions::new().write(true), &log_of(path))?;
    let length = log.metadata()?.len();
    let disk = nix::sys::statvfs::fstatvfs(&log)?;
    if length >= LOG_BYTES
        || disk.blocks_available().saturating_mul(disk.fragment_size()) < LOG_BYTES * LOG_ROOM
    {
        return Ok(());
    }
    let zeros = vec![0; usize::try_from(LOG_BYTES - length).unwrap_or_default()];
    log.write_all_at(&zeros, length)?;
    log.sync_data()
}

/// Returns the path of the log.
fn log_of(path: &Path) -> PathBuf {
    let [_, log, _] = beside(path);
    log
}

/// Returns the paths of the database, its log, and the index that connections share.
pub(super) fn beside(path: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|suffix| {
        let mut name = OsString::from(path);
        name.push(suffix);
        PathBuf::from(name)
    })
}

/// Refuses database files of another user, who could change them at any time.
fn check_owner(path: &Path) -> Result<(), StoreError> {
    let user = nix::unistd::getuid().as_raw();
    for file in beside(path) {
        let owner = std::fs::symlink_metadata(&file).map_or(user, |found| found.uid());
        if owner != user {
            let message = format!(
                "{} belongs to user {owner}, not to user {user}: change its owner, or move it away",
                file.display()
            );
            return Err(StoreError::Open { path: path.to_owned(), message });
        }
    }
    Ok(())
}

/// Refuses database files that are not regular files. `ends` are the suffixes to check. SQLite
/// would write through a symlink, and block on a FIFO.
fn check_regular(path: &Path, ends: &[&str]) -> Result<(), StoreError> {
    for end in ends {
        let mut file = OsString::from(path);
        file.push(end);
        let Ok(found) = std::fs::symlink_metadata(&file) else { continue };
        let what = match found.file_type() {
            kind if kind.is_file() => continue,
            kind if kind.is_symlink() => "is a link: move the file that it leads to here",
            _ => "is not a regular file: move it away",
        };
        let message = format!("{} {what}", Path::new(&file).display());
        return Err(StoreError::Open { path: path.to_owned(), message });
    }
    Ok(())
}

/// Creates an empty file that only its owner can access.
pub(super) fn private(path: &Path) -> std::io::Result<std::fs::File> {
    own(OpenOptions::new().write(true).create_new(true), path)
}

fn set(path: &Path, conn: &mut SqliteConnection, pragmas: &[&str]) -> Result<(), StoreError> {
    pragmas.iter().try_for_each(|pragma| {
        conn.batch_execute(pragma).map_err(|error| StoreError::Open {
            path: path.to_owned(),
            message: format!("{pragma}: {error}"),
        })
    })
}

/// Checks an existing file without changing it.
fn check(path: &Path) -> Result<(), StoreError> {
    // The log may hold the newest migrations, so it must be read if it exists. If it does not,
    // `immutable` keeps SQLite from creating one.
    let logged = std::fs::metadata(log_of(path)).is_ok_and(|log| log.len() > 0);
    let mut conn = connect(path, if logged { "mode=ro" } else { "mode=ro&immutable=1" })?;
    refuse_unknown(path, &mut conn)
}

fn refuse_unknown(path: &Path, conn: &mut SqliteConnection) -> Result<(), StoreError> {
    let not_ours =
        |message: String| Err(StoreError::NotADatabase { path: path.to_owned(), message });
    match migrate::shape(conn) {
        Ok(Shape::Empty | Shape::Known) => Ok(()),
        Ok(Shape::Newer(versions)) => Err(StoreError::Newer { path: path.to_owned(), versions }),
        Ok(Shape::Foreign) => not_ours("its tables belong to another program".to_owned()),
        Err(error) => Err(unreadable(path, error.to_string())),
    }
}

/// Returns the error for a database whose tables cannot be read. A temporary failure says nothing
/// about the file.
fn unreadable(path: &Path, message: String) -> StoreError {
    let path = path.to_owned();
    match failure("read the tables", message.clone()) {
        StoreError::Fault { fault: StoreFault::Unopenable, message, .. } => {
            let what = "check the modes of the file and of its -wal and -shm, and the limit of open files (ulimit -n)";
            StoreError::Open { path, message: format!("{message}: {what}") }
        }
        StoreError::Fault { message, .. } => StoreError::Open { path, message },
        _ => StoreError::NotADatabase { path, message },
    }
}

/// Encodes a path with any bytes as a URI for SQLite.
pub(super) fn uri(path: &Path, query: &str) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'~' => uri.push(char::from(*byte)),
            b if b.is_ascii_alphanumeric() => uri.push(char::from(*b)),
            // Writing to a string cannot fail.
            b => write!(uri, "%{b:02X}").unwrap_or_default(),
        }
    }
    uri.push('?');
    uri.push_str(query);
    uri
}

fn connect(path: &Path, query: &str) -> Result<SqliteConnection, StoreError> {
    let open_error = |message: String| StoreError::Open { path: path.to_owned(), message };
    check_regular(path, &["-wal", "-shm", "-journal"])?;
    // The database itself may be a symlink.
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            return Err(open_error("it is not a regular file".to_owned()));
        }
        Err(error) if std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) => {
            return Err(open_error(format!("it is a dangling symlink: {error}")));
        }
        Ok(_) | Err(_) => {}
    }
    SqliteConnection::establish(&uri(path, query)).map_err(|error| open_error(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Place, all, insert, job, put};
    use crate::{Reader, Store};
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    /// Reads all files of a directory.
    fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
    }

    fn run(path: &Path, sql: &str) -> SqliteConnection {
        let mut conn = connect(path, "mode=rwc").unwrap();
        conn.batch_execute(sql).unwrap();
        conn
    }

    const NEWER: &str =
        "INSERT INTO __diesel_schema_migrations (version) VALUES ('99990101000001')";

    #[test]
    fn a_database_of_a_newer_version_is_refused_and_left_untouched() {
        let place = Place::new();
        put(&mut place.store(), vec![insert(&job(1))]);
        drop(run(&place.path(), NEWER));
        let before = files(place.path().parent().unwrap());
        let Err(error) = Store::open(&place.path()) else { panic!("a newer database was opened") };
        assert_eq!(
            error,
            StoreError::Newer { path: place.path(), versions: vec!["99990101000001".to_owned()] }
        );
        assert!(error.to_string().contains("written by a newer slotd"), "{error}");
        assert_eq!(files(place.path().parent().unwrap()), before);
    }

    #[test]
    fn a_newer_version_in_the_log_is_refused() {
        let place = Place::new();
        drop(place.store());
        // Simulates a killed newer daemon that never copied its log into the file.
        let newer = run(&place.path(), NEWER);
        let killed = Place::new();
        for suffix in ["", "-wal"] {
            let of = |place: &Place| format!("{}{suffix}", place.path().display());
            std::fs::copy(of(&place), of(&killed)).unwrap();
        }
        drop(newer);
        let before = files(killed.path().parent().unwrap());
        assert!(matches!(Store::open(&killed.path()), Err(StoreError::Newer { .. })));
        let after = files(killed.path().parent().unwrap());
        assert!(before.iter().all(|(path, bytes)| after.get(path) == Some(bytes)));
    }

    #[test]
    fn a_foreign_file_is_refused_and_left_untouched() {
        let place = Place::new();
        std::fs::write(
            place.path(),
            "#!/bin/sh\necho this is a script, and long enough for a header\n".repeat(9),
        )
        .unwrap();
        let foreign = Place::new();
        drop(run(&foreign.path(), "CREATE TABLE songs (title TEXT)"));
        for place in [place, foreign] {
            let before = files(place.path().parent().unwrap());
            let Err(error) = Store::open(&place.path()) else {
                panic!("opened {}", place.path().display())
            };
            assert!(matches!(error, StoreError::NotADatabase { .. }), "{error}");
            assert_eq!(files(place.path().parent().unwrap()), before);
        }
    }

    #[test]
    fn the_error_for_a_missing_directory_names_the_file() {
        let place = Place::new();
        let path = place.path().join("no/slotd.db");
        let Err(error) = Store::open(&path) else { panic!("made a directory") };
        assert!(
            error
                .to_string()
                .starts_with(&format!("cannot open the database {}: ", path.display())),
            "{error}"
        );
        assert!(Reader::open(&path).is_err());
    }

    #[test]
    fn the_file_is_private_and_survives_reopening() {
        let place = Place::new();
        put(&mut place.store(), vec![insert(&job(1))]);
        assert_eq!(std::fs::metadata(place.path()).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(all(&mut place.store()), [job(1)]);
    }

    #[test]
    fn only_an_unreadable_format_is_reported_as_a_foreign_database() {
        let path = Path::new("/r/state.db");
        for message in ["unable to open database file", "disk I/O error", "database is locked"] {
            let error = unreadable(path, message.to_owned());
            assert!(matches!(error, StoreError::Open { .. }) && !error.is_damage(), "{error}");
            assert!(error.to_string().contains(message), "{error}");
        }
        let error = unreadable(path, "file is not a database".to_owned());
        assert!(matches!(error, StoreError::NotADatabase { .. }), "{error}");
        assert!(error.to_string().contains("(file is not a database)"), "{error}");
    }

    #[test]
    fn a_symlink_in_place_of_a_database_file_is_refused() {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let place = Place::new();
            let precious = place.path().with_file_name("precious");
            std::fs::write(&precious, "").unwrap();
            std::os::unix::fs::symlink(&precious, format!("{}{suffix}", place.path().display()))
                .unwrap();
            let Err(error) = Store::open(&place.path()) else {
                panic!("followed the link of {suffix:?}")
            };
            assert!(error.to_string().ends_with(" is a link: move the file that it leads to here"));
            assert_eq!(std::fs::read(&precious).unwrap(), b"");
        }
    }

    #[test]
    fn a_database_file_of_another_user_is_refused() {
        if !nix::unistd::getuid().is_root() {
            return;
        }
        for suffix in ["", "-wal", "-shm"] {
            let place = Place::new();
            drop(place.store());
            let file = format!("{}{suffix}", place.path().display());
            drop(OpenOptions::new().append(true).create(true).open(&file).unwrap());
            std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
            let Err(error) = Store::open(&place.path()) else { panic!("opened {file}") };
            let why = format!("{file} belongs to user 65534, not to user 0");
            assert!(error.to_string().contains(&why), "{error}");
        }
    }

    #[test]
    fn a_reader_reports_a_dangling_symlink() {
        let place = Place::new();
        let why = |path: &Path| reader(path).err().unwrap().to_string();
        std::os::unix::fs::symlink("nowhere", place.path()).unwrap();
        let dangling = why(&place.path());
        assert!(dangling.contains("it is a dangling symlink: No such"), "{dangling}");
        let ring = place.path().with_file_name("ring");
        std::os::unix::fs::symlink(&ring, &ring).unwrap();
        assert!(why(&ring).contains("symbolic links"), "{}", why(&ring));
    }

    #[test]
    fn a_log_without_its_database_is_refused_and_left_untouched() {
        let place = Place::new();
        let mut store = place.store();
        put(&mut store, vec![insert(&job(1))]);
        let killed = Place::new();
        let log = |place: &Place| log_of(&place.path());
        std::fs::copy(log(&place), log(&killed)).unwrap();
        let before = files(killed.path().parent().unwrap());
        let Err(error) = Store::open(&killed.path()) else {
            panic!("a log without its database was opened")
        };
        assert!(
            error.to_string().contains("put the database back, or move the log away too"),
            "{error}"
        );
        assert_eq!(files(killed.path().parent().unwrap()), before);
        // A log that is only preallocated.
        std::fs::write(log(&killed), vec![0; 1 << 16]).unwrap();
        assert_eq!(all(&mut killed.store()), []);
    }

    #[test]
    fn any_path_can_be_opened() {
        let place = Place::new();
        let path = place.path().with_file_name("a b?c#d%41&mode=ro.db");
        let mut store = Store::open(&path).unwrap();
        put(&mut store, vec![insert(&job(1))]);
        assert!(path.exists());
        assert!(Reader::open(&path).is_ok());
    }

    #[test]
    fn a_reader_cannot_write() {
        let place = Place::new();
        drop(place.store());
        let mut conn = reader(&place.path()).unwrap();
        assert!(conn.batch_execute("DELETE FROM jobs").is_err());
    }
}
