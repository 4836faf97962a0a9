//! Errors of the database.

use slotd_model::StoreFault;
use std::path::PathBuf;

/// A failure of the store. It holds text instead of diesel's error so that it can be cloned and
/// sent to every requester of a group commit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened or created.
    #[error("cannot open the database {}: {message}", path.display())]
    Open { path: PathBuf, message: String },
    /// The file is not a SQLite database, or belongs to another program.
    #[error("{} is not a slotd database ({message}); move it away or choose another path", path.display())]
    NotADatabase { path: PathBuf, message: String },
    /// The file has migrations that this version does not have. It was not changed.
    #[error(
        "the database {} was written by a newer slotd (unknown migrations: {}); it was not changed. \
         Install that version again or move the file away",
        path.display(),
        versions.join(", ")
    )]
    Newer { path: PathBuf, versions: Vec<String> },
    /// A migration failed and was rolled back.
    #[error("cannot bring the database {} up to date: {message}", path.display())]
    Migration { path: PathBuf, message: String },
    /// A column holds a value that no version of slotd writes.
    #[error("the database is damaged: {table}.{column} holds \"{value}\", which is not valid")]
    Column { table: &'static str, column: &'static str, value: String },
    /// A value of the model does not fit its column.
    #[error("cannot store {value} in {table}.{column}")]
    Unstorable { table: &'static str, column: &'static str, value: String },
    /// A change or a query refers to a record that does not exist.
    #[error("the database has no {what}")]
    Missing { what: String },
    /// A change contradicts the stored data: the ID is taken, or the step's job does not exist.
    #[error("cannot {doing}: {message}")]
    Conflict { doing: &'static str, message: String },
    /// A temporary failure, such as a full disk or a file locked by another program. A retry may
    /// succeed.
    #[error("cannot {doing}: {message}")]
    Fault { doing: &'static str, fault: StoreFault, message: String },
    /// A permanent failure of SQLite: the file is damaged.
    #[error("cannot {doing}: {message}")]
    Sql { doing: &'static str, message: String },
}

/// SQLite's messages (`sqlite3_errstr`) for temporary failures; diesel passes on only the text. The
/// messages of SQLITE_BUSY and SQLITE_LOCKED share a prefix, as do those of the SQLITE_IOERR
/// variants.
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

/// Classifies a message of SQLite.
pub(super) fn failure(doing: &'static str, message: String) -> StoreError {
    match FAULTS.iter().find(|(text, _)| message.contains(text)) {
        Some((_, fault)) => StoreError::Fault { doing, fault: *fault, message },
        None => StoreError::Sql { doing, message },
    }
}

impl StoreError {
    /// Returns a closure for `map_err` that adds the failed operation to an error of SQLite.
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

    /// Reclassifies a failure to reopen a database that could be opened before.
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

    /// Returns the kind of fault if the failure is temporary.
    pub fn fault(&self) -> Option<StoreFault> {
        match self {
            StoreError::Fault { fault, .. } => Some(*fault),
            _ => None,
        }
    }

    /// Returns whether the file itself is damaged and must be restored from a backup.
    pub fn is_damage(&self) -> bool {
        match self {
            StoreError::NotADatabase { .. }
            | StoreError::Column { .. }
            | StoreError::Missing { .. } => true,
            StoreError::Migration { message, .. }
            | StoreError::Sql { message, .. }
            | StoreError::Open { message, .. } => {
                // SQLite's messages for SQLITE_CORRUPT and SQLITE_NOTADB.
                message.contains("malformed") || message.contains("not a database")
            }
            StoreError::Newer { .. }
            | StoreError::Unstorable { .. }
            | StoreError::Conflict { .. }
            | StoreError::Fault { .. } => false,
        }
    }

    /// Returns whether SQLite itself failed. The whole transaction is lost then, not only this
    /// change.
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

/// Returns whether the error is a constraint violation, for which SQLite rolls back only the
/// statement.
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

/// Required by diesel's transactions, which must be able to report a failure to begin or commit.
impl From<diesel::result::Error> for StoreError {
    fn from(error: diesel::result::Error) -> Self {
        failure("commit", error.to_string())
    }
}
