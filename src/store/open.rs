//! Opening the database file: for writing, and for reading beside a writer.

use crate::store::error::StoreError;
use crate::store::migrate::{self, Shape};
use crate::store::row::Number;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Each is a statement of its own, in this order: waiting for locks comes before what needs a lock.
/// `synchronous=FULL` makes a commit survive a power failure; the group commit pays for it once.
/// Who waits for a commit is told within two seconds that it cannot be made: the wait for a lock
/// ends before.
///
/// `secure_delete`: an environment that was dropped is not to be found in the file any more.
///
/// `wal_autocheckpoint`: the store empties its log itself, when nobody waits for it
/// ([`LOG_PAGES`]). This is for a log that has grown all the same.
///
/// `cache_spill`: what one transaction changes stays in memory until it is written, once.
const WRITER_PRAGMAS: [&str; 7] = [
    "PRAGMA busy_timeout = 1000",
    "PRAGMA secure_delete = ON",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA cache_spill = OFF",
];

/// Whether statements of a writer wait for the locks of others.
pub(super) fn wait_for_locks(waits: bool) -> &'static str {
    if waits { WRITER_PRAGMAS[0] } else { "PRAGMA busy_timeout = 0" }
}

/// So many pages the log has before it is copied into the database and written from its beginning
/// again.
pub(super) const LOG_PAGES: i64 = 1000;

/// The bytes of such a log: its header, and each page with one of its own.
const LOG_BYTES: u64 = 32 + (LOG_PAGES as u64 + 24) * (24 + 4096);

/// The disk must have so many times the room, for the log to be made as large as it will be.
const LOG_ROOM: u64 = 64;

/// Of a new file: this has to come before the first table. It writes, for which a full disk may
/// have no room later.
pub(super) const NEW_PRAGMA: &str = "PRAGMA auto_vacuum = INCREMENTAL";

const READER_PRAGMAS: [&str; 2] = ["PRAGMA busy_timeout = 5000", "PRAGMA query_only = ON"];

/// Opens the database for writing, makes it where there is none, and brings it up to date.
///
/// The directory must exist. The file is made for its owner's eyes only, since it keeps
/// environments.
///
/// # Errors
/// The file can't be opened, is no database of slotd, or was written by a newer slotd. Such a file
/// is left untouched.
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

/// Refuses a log without its database: SQLite would delete it, and with it the commits that it has
/// and the database, which was moved away, has not.
fn refuse_log_alone(path: &Path) -> Result<(), StoreError> {
    /// The first four bytes of a log, but for the last bit. A log that was filled for later has
    /// zeros there.
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
        "it is gone or empty, and its log {} is not: put the database back, or move the log away too; then what the job \
         directories tell is kept, and what waits is lost",
        log.display()
    );
    Err(StoreError::Open { path: path.to_owned(), message })
}

/// Opens a file for its owner alone, and no link.
fn own(options: &mut OpenOptions, path: &Path) -> std::io::Result<std::fs::File> {
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// A file of an earlier version keeps its free pages. It is written anew where that is quickly
/// done.
fn give_back_pages(path: &Path, conn: &mut SqliteConnection) {
    const QUICK: u64 = 64 << 20;
    let keeps = diesel::sql_query("SELECT auto_vacuum AS n FROM pragma_auto_vacuum")
        .get_result::<Number>(conn)
        .is_ok_and(|mode| mode.n == 0);
    if keeps && std::fs::metadata(path).is_ok_and(|file| file.len() <= QUICK) {
        // Where that fails (no room), the file stays as it is.
        if let Err(error) = conn.batch_execute(&format!("{NEW_PRAGMA}; VACUUM")) {
            log::warn!("{}: {error}", path.display());
        }
    } else if keeps {
        log::info!(
            "{} does not become smaller when jobs are removed, until `slotd db vacuum`",
            path.display()
        );
    }
}

/// Opens a database for writing that `writer` has already opened once.
///
/// # Errors
/// The file can't be opened.
pub(super) fn again(path: &Path) -> Result<SqliteConnection, StoreError> {
    let mut conn = connect(path, "mode=rw")?;
    set(path, &mut conn, &WRITER_PRAGMAS)?;
    Ok(conn)
}

/// Opens the database for reading, beside the writer. It sees each commit as soon as it is made.
///
/// # Errors
/// There is no such database, or it is not one that this program knows.
pub(super) fn reader(path: &Path) -> Result<SqliteConnection, StoreError> {
    let mut conn = connect(path, "mode=ro")?;
    set(path, &mut conn, &READER_PRAGMAS)?;
    refuse_unknown(path, &mut conn)?;
    Ok(conn)
}

/// Opens a database to be copied, which has to be read and no more, by whatever version it was
/// written.
///
/// # Errors
/// There is no such database.
pub(super) fn source(path: &Path) -> Result<SqliteConnection, StoreError> {
    let mut conn = connect(path, "mode=ro")?;
    set(path, &mut conn, &READER_PRAGMAS[..1])?;
    Ok(conn)
}

/// Makes the log of an open database as large as it is going to be. A commit then writes over what
/// is there, and what it waits for is the disk alone: a file that grows is written down by the file
/// system as well. What the log has been is untouched, and SQLite reads it as far as its sums are
/// right.
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

/// The log beside the database.
fn log_of(path: &Path) -> PathBuf {
    let [_, log, _] = beside(path);
    log
}

/// The files of a database: its own, its log, and what connections share.
pub(super) fn beside(path: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|suffix| {
        let mut name = OsString::from(path);
        name.push(suffix);
        PathBuf::from(name)
    })
}

/// Refuses a file of the database that belongs to another user, who could change it at any time.
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

/// Refuses what is not a regular file in the place of those of a database, by the ends of their
/// names. SQLite would write to wherever a link leads, and wait for the other end of a FIFO.
fn check_regular(path: &Path, ends: &[&str]) -> Result<(), StoreError> {
    for end in ends {
        let mut file = OsString::from(path);
        file.push(end);
        if std::fs::symlink_metadata(&file).is_ok_and(|found| !found.is_file()) {
            let message =
                format!("{} is not a regular file: remove it", Path::new(&file).display());
            return Err(StoreError::Open { path: path.to_owned(), message });
        }
    }
    Ok(())
}

/// Makes an empty file for its owner alone.
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

/// Looks at an existing file without a chance to change it.
fn check(path: &Path) -> Result<(), StoreError> {
    // A log beside the file may hold the newest migrations, so it has to be read as well. Where
    // there is none the file is all there is; "immutable" then keeps SQLite from making a log.
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
        Err(error) => not_ours(error.to_string()),
    }
}

/// The name by which SQLite opens any path, whatever bytes are in it.
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
    // A link to a database will do.
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            return Err(open_error("it is not a regular file".to_owned()));
        }
        Err(error) if std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) => {
            return Err(open_error(format!("it is a link that leads to no file: {error}")));
        }
        Ok(_) | Err(_) => {}
    }
    SqliteConnection::establish(&uri(path, query)).map_err(|error| open_error(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::{Place, all, insert, job, put};
    use crate::store::{Reader, Store};
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    /// Every file of the directory with its bytes.
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
        let Err(error) = Store::open(&place.path()) else { panic!("opened a newer database") };
        assert_eq!(
            error,
            StoreError::Newer { path: place.path(), versions: vec!["99990101000001".to_owned()] }
        );
        assert!(error.to_string().contains("written by a newer slotd"), "{error}");
        assert_eq!(files(place.path().parent().unwrap()), before);
    }

    #[test]
    fn a_newer_version_that_still_is_in_the_log_is_noticed() {
        let place = Place::new();
        drop(place.store());
        // The newer daemon was killed: the log beside the file was never copied into it.
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
    fn a_file_that_is_no_database_of_slotd_is_refused_and_left_untouched() {
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
    fn a_missing_directory_is_an_error_that_names_the_file() {
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
    fn the_file_is_for_its_owner_and_survives_reopening() {
        let place = Place::new();
        put(&mut place.store(), vec![insert(&job(1))]);
        assert_eq!(std::fs::metadata(place.path()).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(all(&mut place.store()), [job(1)]);
    }

    #[test]
    fn a_link_in_the_place_of_a_file_of_the_database_is_refused_and_not_followed() {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let place = Place::new();
            let precious = place.path().with_file_name("precious");
            std::fs::write(&precious, "").unwrap();
            std::os::unix::fs::symlink(&precious, format!("{}{suffix}", place.path().display()))
                .unwrap();
            let Err(error) = Store::open(&place.path()) else {
                panic!("followed the link of {suffix:?}")
            };
            assert!(error.to_string().ends_with("is not a regular file: remove it"), "{error}");
            assert_eq!(std::fs::read(&precious).unwrap(), b"");
        }
    }

    #[test]
    fn a_file_of_another_user_in_the_place_of_a_file_of_the_database_is_refused() {
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
    fn a_reader_of_a_link_that_leads_nowhere_is_told_so() {
        let place = Place::new();
        let why = |path: &Path| reader(path).err().unwrap().to_string();
        std::os::unix::fs::symlink("nowhere", place.path()).unwrap();
        let dangling = why(&place.path());
        assert!(dangling.contains("it is a link that leads to no file: No such"), "{dangling}");
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
        let Err(error) = Store::open(&killed.path()) else { panic!("opened a log alone") };
        assert!(
            error.to_string().contains("put the database back, or move the log away too"),
            "{error}"
        );
        assert_eq!(files(killed.path().parent().unwrap()), before);
        // One that has only been made as large as it will be.
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
    fn a_reader_can_not_write() {
        let place = Place::new();
        drop(place.store());
        let mut conn = reader(&place.path()).unwrap();
        assert!(conn.batch_execute("DELETE FROM jobs").is_err());
    }
}
