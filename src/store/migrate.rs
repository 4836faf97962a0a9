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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::row::{JobRow, StepRow};
    use crate::store::schema::{jobs, launches, requests, runs, steps, texts};

    fn schema(conn: &mut SqliteConnection) -> Vec<String> {
        let all: Vec<Name> =
            diesel::sql_query("SELECT coalesce(sql, '') AS name FROM sqlite_master ORDER BY type, name")
                .load(conn)
                .unwrap();
        all.into_iter().map(|row| row.name).collect()
    }

    #[test]
    fn every_migration_goes_down_and_up_again() {
        let conn = &mut SqliteConnection::establish(":memory:").unwrap();
        bring_up_to_date(conn).unwrap();
        let first = schema(conn);
        conn.revert_all_migrations(MIGRATIONS).unwrap();
        assert_eq!(schema(conn).iter().filter(|sql| !sql.is_empty() && !sql.contains(RECORD)).count(), 0);
        assert_eq!(shape(conn).unwrap(), Shape::Known);
        bring_up_to_date(conn).unwrap();
        assert_eq!(schema(conn), first);
    }

    #[test]
    fn every_table_is_strict_and_narrow_enough_for_diesel() {
        let conn = &mut SqliteConnection::establish(":memory:").unwrap();
        bring_up_to_date(conn).unwrap();
        let sql = format!(
            "SELECT name FROM pragma_table_list WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name != '{RECORD}' \
             AND (NOT strict OR ncol > 32)"
        );
        let loose: Vec<Name> = diesel::sql_query(sql).load(conn).unwrap();
        assert_eq!(loose.iter().map(|table| table.name.as_str()).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn the_schema_of_diesel_is_that_of_the_migrations() {
        let conn = &mut SqliteConnection::establish(":memory:").unwrap();
        bring_up_to_date(conn).unwrap();
        assert!(jobs::table.select(JobRow::as_select()).load(conn).unwrap().is_empty());
        assert!(steps::table.select(StepRow::as_select()).load(conn).unwrap().is_empty());
        let mut columns = |table: &str| -> Vec<String> {
            let sql = format!("SELECT name FROM pragma_table_info('{table}') ORDER BY cid");
            diesel::sql_query(sql).load::<Name>(conn).unwrap().into_iter().map(|row| row.name).collect()
        };
        let selected = |sql: String| -> Vec<String> {
            let list = sql.trim_start_matches("SELECT ").split(" FROM ").next().unwrap_or_default();
            list.split(", ").map(|column| column.rsplit('.').next().unwrap_or_default().replace('`', "")).collect()
        };
        macro_rules! compare {
            ($($table:ident)*) => {$(
                let sql = diesel::debug_query::<Sqlite, _>(&$table::table.select($table::all_columns)).to_string();
                assert_eq!(selected(sql), columns(stringify!($table)));
            )*};
        }
        compare!(jobs launches requests runs steps texts);
    }
}
