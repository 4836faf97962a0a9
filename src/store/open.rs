//! Opening the database file: for writing, and for reading beside a writer.

use crate::store::error::StoreError;
use crate::store::migrate::{self, Shape};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Each is a statement of its own, in this order: waiting for locks comes before what needs a lock.
/// `synchronous=FULL` makes a commit survive a power failure; the group commit pays for it once.
const WRITER_PRAGMAS: [&str; 4] = [
    "PRAGMA busy_timeout = 5000",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
];

const READER_PRAGMAS: [&str; 2] = ["PRAGMA busy_timeout = 5000", "PRAGMA query_only = ON"];

/// Opens the database for writing, makes it where there is none, and brings it up to date.
///
/// The directory must exist. The file is made for its owner's eyes only, since it keeps environments.
///
/// # Errors
/// The file can't be opened, is no database of slotd, or was written by a newer slotd. Such a file is left untouched.
pub(super) fn writer(path: &Path) -> Result<SqliteConnection, StoreError> {
    let open_error = |error: std::io::Error| StoreError::Open { path: path.to_owned(), message: error.to_string() };
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let length = file.and_then(|file| file.metadata()).map_err(open_error)?.len();
    if length > 0 {
        check(path)?;
    }
    let mut conn = again(path)?;
    migrate::bring_up_to_date(&mut conn)
        .map_err(|error| StoreError::Migration { path: path.to_owned(), message: error.to_string() })?;
    Ok(conn)
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

fn set(path: &Path, conn: &mut SqliteConnection, pragmas: &[&str]) -> Result<(), StoreError> {
    pragmas.iter().try_for_each(|pragma| {
        conn.batch_execute(pragma)
            .map_err(|error| StoreError::Open { path: path.to_owned(), message: format!("{pragma}: {error}") })
    })
}

/// Looks at an existing file without a chance to change it.
fn check(path: &Path) -> Result<(), StoreError> {
    // A log beside the file may hold the newest migrations, so it has to be read as well. Where there is none the
    // file is all there is; "immutable" then keeps SQLite from making a log.
    let mut log = OsString::from(path);
    log.push("-wal");
    let logged = std::fs::metadata(&log).is_ok_and(|log| log.len() > 0);
    let mut conn = connect(path, if logged { "mode=ro" } else { "mode=ro&immutable=1" })?;
    refuse_unknown(path, &mut conn)
}

fn refuse_unknown(path: &Path, conn: &mut SqliteConnection) -> Result<(), StoreError> {
    let not_ours = |message: String| Err(StoreError::NotADatabase { path: path.to_owned(), message });
    match migrate::shape(conn) {
        Ok(Shape::Empty | Shape::Known) => Ok(()),
        Ok(Shape::Newer(versions)) => Err(StoreError::Newer { path: path.to_owned(), versions }),
        Ok(Shape::Foreign) => not_ours("its tables belong to another program".to_owned()),
        Err(error) => not_ours(error.to_string()),
    }
}

fn connect(path: &Path, query: &str) -> Result<SqliteConnection, StoreError> {
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
    SqliteConnection::establish(&uri)
        .map_err(|error| StoreError::Open { path: path.to_owned(), message: error.to_string() })
}
