//! The shape of the database: which migrations this program knows, and bringing a database to them.

use diesel::migration::{Migration, MigrationSource, MigrationVersion};
use diesel::prelude::*;
use diesel::sqlite::{Sqlite, SqliteConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations");

/// diesel's record of the migrations that were run.
const RECORD: &str = "__diesel_schema_migrations";

/// What a file that was opened for reading turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// No table: a new database.
    Empty,
    /// Made by this program or an older one.
    Known,
    /// It has migrations of these versions, which this program does not know.
    Newer(Vec<String>),
    /// Tables, but no record of migrations: it belongs to another program.
    Foreign,
}

#[derive(QueryableByName)]
struct Name {
    #[diesel(sql_type = diesel::sql_types::Text)]
    name: String,
}

/// Reads the shape. Changes nothing.
///
/// # Errors
/// Whatever SQLite says, for instance that the file is no database.
pub(super) fn shape(conn: &mut SqliteConnection) -> QueryResult<Shape> {
    let tables: Vec<Name> =
        diesel::sql_query("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
            .load(conn)?;
    if tables.is_empty() {
        return Ok(Shape::Empty);
    }
    if !tables.iter().any(|table| table.name == RECORD) {
        return Ok(Shape::Foreign);
    }
    let run: Vec<Name> =
        diesel::sql_query(format!("SELECT version AS name FROM {RECORD} ORDER BY version")).load(conn)?;
    let known = known_versions();
    let newer: Vec<String> = run.into_iter().map(|v| v.name).filter(|v| !known.contains(v)).collect();
    Ok(if newer.is_empty() { Shape::Known } else { Shape::Newer(newer) })
}

fn known_versions() -> Vec<String> {
    let all: Vec<Box<dyn Migration<Sqlite>>> = MIGRATIONS.migrations().unwrap_or_default();
    all.iter().map(|migration| MigrationVersion::as_owned(&migration.name().version()).to_string()).collect()
}

/// Runs the migrations that are still missing, each in a transaction of its own.
pub(super) fn bring_up_to_date(conn: &mut SqliteConnection) -> diesel::migration::Result<()> {
    conn.run_pending_migrations(MIGRATIONS).map(|_| ())
}
