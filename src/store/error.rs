//! What can go wrong with the database.

use crate::model::StoreFault;
use std::path::PathBuf;

/// A failure of the store. Holds text rather than diesel's errors, so that one failure can be told
/// to every sender of a group commit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The file can't be opened or created.
    #[error("cannot open the database {}: {message}", path.display())]
    Open { path: PathBuf, message: String },
    /// The file is no SQLite database, or one of another program.
    #[error("{} is not a database of slotd ({message}); move it away or choose another place", path.display())]
    NotADatabase { path: PathBuf, message: String },
    /// The file has migrations that this program does not know. It was left as it is.
    #[error(
        "the database {} was written by a newer slotd (unknown migrations: {}); it was left as it is. \
         Install that version again, or move the file away",
        path.display(),
        versions.join(", ")
    )]
    Newer { path: PathBuf, versions: Vec<String> },
    /// A migration failed; it was rolled back.
    #[error("cannot bring the database {} up to date: {message}", path.display())]
    Migration { path: PathBuf, message: String },
    /// A column holds what no version of this program writes there.
    #[error(
        "the database is damaged: {table}.{column} holds \"{value}\", which means nothing there"
    )]
    Column { table: &'static str, column: &'static str, value: String },
    /// A value of the model does not fit into its column.
    #[error("cannot store {value} in {table}.{column}")]
    Unstorable { table: &'static str, column: &'static str, value: String },
    /// A change or a question is about a record that does not exist.
    #[error("the database has no {what}")]
    Missing { what: String },
    /// A change contradicts what is stored: the number is taken, the job of a step does not exist.
    #[error("cannot {doing}: {message}")]
    Conflict { doing: &'static str, message: String },
    /// The disk is full, the file is locked by another program, …: the same may succeed later.
    #[error("cannot {doing}: {message}")]
    Fault { doing: &'static str, fault: StoreFault, message: String },
    /// SQLite failed in a way that does not pass: the file is damaged.
    #[error("cannot {doing}: {message}")]
    Sql { doing: &'static str, message: String },
}

/// What SQLite says of failures that may pass (`sqlite3_errstr`); diesel hands on the text alone.
/// SQLITE_BUSY and SQLITE_LOCKED begin alike, and so do the kinds of SQLITE_IOERR.
const FAULTS: [(&str, StoreFault); 9] = [
    ("database or disk is full", StoreFault::Full),
    ("database is locked", StoreFault::Locked),
    ("database table is locked", StoreFault::Locked),
    ("database schema is locked", StoreFault::Locked),
    ("locking protocol", StoreFault::Locked),
    ("disk I/O error", StoreFault::Io),
    ("attempt to write a readonly database", StoreFault::ReadOnly),
    ("unable to open database file", StoreFault::Unopenable),
    ("out of memory", StoreFault::NoMemory),
];

/// What is meant where SQLite itself fails.
pub(super) fn failure(doing: &'static str, message: String) -> StoreError {
    match FAULTS.iter().find(|(text, _)| message.contains(text)) {
        Some((_, fault)) => StoreError::Fault { doing, fault: *fault, message },
        None => StoreError::Sql { doing, message },
    }
}

impl StoreError {
    /// For `map_err`: what was being done when SQLite refused.
    pub(crate) fn sql(doing: &'static str) -> impl Fn(diesel::result::Error) -> StoreError {
        move |error| {
            let message = error.to_string();
            if is_conflict(&error) {
                StoreError::Conflict { doing, message }
            } else {
                failure(doing, message)
            }
        }
    }

    /// Of a file that could be opened before.
    pub(crate) fn reopening(self) -> StoreError {
        let message = self.to_string();
        let doing = "open the database again";
        match failure(doing, message) {
            StoreError::Sql { message, .. }
                if !message.contains("malformed") && !message.contains("not a database") =>
            {
                StoreError::Fault { doing, fault: StoreFault::Unopenable, message }
            }
            other => other,
        }
    }

    /// Why it may succeed later, if it may.
    pub fn fault(&self) -> Option<StoreFault> {
        match self {
            StoreError::Fault { fault, .. } => Some(*fault),
            _ => None,
        }
    }

    /// The file itself is damaged: a copy of it is needed.
    pub fn is_damage(&self) -> bool {
        match self {
            StoreError::NotADatabase { .. }
            | StoreError::Column { .. }
            | StoreError::Missing { .. } => true,
            StoreError::Migration { message, .. }
            | StoreError::Sql { message, .. }
            | StoreError::Open { message, .. } => {
                // What SQLite says of SQLITE_CORRUPT and SQLITE_NOTADB.
                message.contains("malformed") || message.contains("not a database")
            }
            StoreError::Newer { .. }
            | StoreError::Unstorable { .. }
            | StoreError::Conflict { .. }
            | StoreError::Fault { .. } => false,
        }
    }

    /// The failure is SQLite's, not the change's: what else was in the transaction is lost as well.
    pub(crate) fn ends_transaction(&self) -> bool {
        match self {
            StoreError::Sql { .. } | StoreError::Fault { .. } => true,
            StoreError::Open { .. }
            | StoreError::NotADatabase { .. }
            | StoreError::Newer { .. }
            | StoreError::Migration { .. }
            | StoreError::Column { .. }
            | StoreError::Unstorable { .. }
            | StoreError::Missing { .. }
            | StoreError::Conflict { .. } => false,
        }
    }
}

/// SQLite takes back only the statement in these cases.
fn is_conflict(error: &diesel::result::Error) -> bool {
    use diesel::result::{DatabaseErrorKind as Kind, Error};
    matches!(
        error,
        Error::DatabaseError(
            Kind::UniqueViolation
                | Kind::ForeignKeyViolation
                | Kind::NotNullViolation
                | Kind::CheckViolation,
            _
        )
    )
}

/// For diesel's transactions, which have to be able to report that they could not begin or commit.
impl From<diesel::result::Error> for StoreError {
    fn from(error: diesel::result::Error) -> Self {
        failure("commit", error.to_string())
    }
}
