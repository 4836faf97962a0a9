//! The schema of the database: the migrations that this version has, and applying them.

use diesel::migration::{Migration, MigrationSource, MigrationVersion};
use diesel::prelude::*;
use diesel::sqlite::{Sqlite, SqliteConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("../../migrations");

/// diesel's table of applied migrations.
const RECORD: &str = "__diesel_schema_migrations";

/// The state of a file's schema.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// No tables: a new database.
    Empty,
    /// Written by this version or an older one.
    Known,
    /// Has migrations of these versions, which this version does not have.
    Newer(Vec<String>),
    /// Has tables but no migration table: it belongs to another program.
    Foreign,
}

#[derive(QueryableByName)]
struct Name {
    #[diesel(sql_type = diesel::sql_types::Text)]
    name: String,
}

/// Reads the schema state without changing anything.
///
/// # Errors
/// Fails with SQLite's error, for example if the file is not a database.
pub(super) fn shape(conn: &mut SqliteConnection) -> QueryResult<Shape> {
    let tables: Vec<Name> = diesel::sql_query(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    )
    .load(conn)?;
    if tables.is_empty() {
        return Ok(Shape::Empty);
    }
    if !tables.iter().any(|table| table.name == RECORD) {
        return Ok(Shape::Foreign);
    }
    let run: Vec<Name> =
        diesel::sql_query(format!("SELECT version AS name FROM {RECORD} ORDER BY version"))
            .load(conn)?;
    let known = known_versions();
    let newer: Vec<String> =
        run.into_iter().map(|v| v.name).filter(|v| !known.contains(v)).collect();
    Ok(if newer.is_empty() { Shape::Known } else { Shape::Newer(newer) })
}

/// Returns whether an older version wrote the database, so that migrations are missing. Changes
/// nothing.
///
/// # Errors
/// Fails with SQLite's error.
pub(super) fn is_older(conn: &mut SqliteConnection) -> QueryResult<bool> {
    if shape(conn)? != Shape::Known {
        return Ok(false);
    }
    let run: Vec<Name> =
        diesel::sql_query(format!("SELECT version AS name FROM {RECORD}")).load(conn)?;
    Ok(known_versions().iter().any(|known| !run.iter().any(|version| version.name == *known)))
}

fn known_versions() -> Vec<String> {
    let all: Vec<Box<dyn Migration<Sqlite>>> = MIGRATIONS.migrations().unwrap_or_default();
    all.iter()
        .map(|migration| MigrationVersion::as_owned(&migration.name().version()).to_string())
        .collect()
}

/// Runs all missing migrations in one transaction.
pub(super) fn bring_up_to_date(conn: &mut SqliteConnection) -> diesel::migration::Result<()> {
    conn.immediate_transaction(|conn| conn.run_pending_migrations(MIGRATIONS).map(|_| ()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{JobRow, RunRow, StepRow};
    use crate::schema::{
        crontabs, diffs, history, jobs, launches, memos, notices, requests, runs, sources, steps,
        texts,
    };
    use crate::testing::{Place, all};
    use diesel::connection::SimpleConnection;
    use slotd_model::array::{TaskRange, TaskSet};
    use slotd_model::job::{Client, ClientProcess, Hold};
    use slotd_model::query::JobQuery;
    use slotd_model::run::{Run, RunState};
    use slotd_model::tres::{Allocation, Spread, TaskUsage, Usage};
    use slotd_model::{
        ArrayRole, BootId, End, ExitCode, Job, JobId, JobRequest, JobState, Reason, Step, StepId,
        Timestamp, Tres,
    };
    use std::sync::Arc;

    fn schema(conn: &mut SqliteConnection) -> Vec<String> {
        let all: Vec<Name> = diesel::sql_query(
            "SELECT coalesce(sql, '') AS name FROM sqlite_master ORDER BY type, name",
        )
        .load(conn)
        .unwrap();
        all.into_iter().map(|row| row.name).collect()
    }

    #[test]
    fn every_migration_can_be_reverted_and_reapplied() {
        let conn = &mut SqliteConnection::establish(":memory:").unwrap();
        bring_up_to_date(conn).unwrap();
        let first = schema(conn);
        conn.revert_all_migrations(MIGRATIONS).unwrap();
        assert_eq!(
            schema(conn).iter().filter(|sql| !sql.is_empty() && !sql.contains(RECORD)).count(),
            0
        );
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
    fn the_diesel_schema_matches_the_migrations() {
        let conn = &mut SqliteConnection::establish(":memory:").unwrap();
        bring_up_to_date(conn).unwrap();
        assert!(jobs::table.select(JobRow::as_select()).load(conn).unwrap().is_empty());
        assert!(steps::table.select(StepRow::as_select()).load(conn).unwrap().is_empty());
        assert!(runs::table.select(RunRow::as_select()).load(conn).unwrap().is_empty());
        let mut columns = |table: &str| -> Vec<String> {
            let sql = format!("SELECT name FROM pragma_table_xinfo('{table}') ORDER BY cid");
            diesel::sql_query(sql)
                .load::<Name>(conn)
                .unwrap()
                .into_iter()
                .map(|row| row.name)
                .collect()
        };
        let selected = |sql: String| -> Vec<String> {
            let list = sql.trim_start_matches("SELECT ").split(" FROM ").next().unwrap_or_default();
            list.split(", ")
                .map(|column| column.rsplit('.').next().unwrap_or_default().replace('`', ""))
                .collect()
        };
        macro_rules! compare {
            ($($table:ident)*) => {$(
                let sql = diesel::debug_query::<Sqlite, _>(&$table::table.select($table::all_columns)).to_string();
                assert_eq!(selected(sql), columns(stringify!($table)));
            )*};
        }
        compare!(crontabs diffs history jobs launches memos notices requests runs sources steps texts);
    }

    #[test]
    fn diffs_move_to_their_own_table_and_back() {
        let conn = &mut SqliteConnection::establish(":memory:").unwrap();
        conn.batch_execute("PRAGMA foreign_keys = ON").unwrap();
        bring_up_to_date(conn).unwrap();
        let rows = |conn: &mut SqliteConnection, sql: &str| -> Vec<String> {
            diesel::sql_query(sql)
                .load::<Name>(conn)
                .unwrap()
                .into_iter()
                .map(|row| row.name)
                .collect()
        };
        while !rows(conn, "SELECT name FROM sqlite_master WHERE name = 'diffs'").is_empty() {
            conn.revert_last_migration(MIGRATIONS).unwrap();
        }
        // One text is also a script, and two submissions share the other.
        conn.batch_execute(
            "INSERT INTO texts VALUES (1, 11, x'7b7d'), (2, 12, CAST('script' AS BLOB)), (3, 13, CAST('diff' AS BLOB));
             INSERT INTO launches VALUES (1, 2, NULL);
             INSERT INTO sources VALUES (1, 5, 1, 2), (2, 6, 1, 3), (3, 7, 1, 3), (4, 8, 1, NULL);",
        )
        .unwrap();
        let joined = |table: &str, id: &str| {
            format!(
                "SELECT job_id || ' ' || taken_us || ' ' || coalesce(CAST(body AS TEXT), '-') AS name FROM sources \
                 LEFT JOIN {table} ON {table}.{id} = sources.diff_id ORDER BY job_id"
            )
        };
        let all = ["1 5 script", "2 6 diff", "3 7 diff", "4 8 -"];
        assert_eq!(rows(conn, &joined("texts", "text_id")), all);
        bring_up_to_date(conn).unwrap();
        assert_eq!(rows(conn, &joined("diffs", "diff_id")), all);
        assert_eq!(
            rows(conn, "SELECT used_us || ' ' || bytes || ' ' || is_plain AS name FROM diffs"),
            ["5 6 1", "7 4 1"]
        );
        assert_eq!(
            rows(conn, "SELECT CAST(body AS TEXT) AS name FROM texts ORDER BY text_id"),
            ["{}", "script"]
        );
        // The older schema cannot hold compressed diffs.
        conn.batch_execute(
            "INSERT INTO diffs VALUES (9, 19, 9, 1, 0, x'78'); INSERT INTO sources VALUES (5, 9, 1, 9); \
             DELETE FROM diffs WHERE diff_id = 2;",
        )
        .unwrap();
        while !rows(conn, "SELECT name FROM sqlite_master WHERE name = 'diffs'").is_empty() {
            conn.revert_last_migration(MIGRATIONS).unwrap();
        }
        assert_eq!(
            rows(conn, &joined("texts", "text_id")),
            ["1 5 -", "2 6 diff", "3 7 diff", "4 8 -", "5 9 -"]
        );
    }

    /// Records in the schema before `000009_bodies`, one of each kind.
    const COLUMNS: &str = r#"
        INSERT INTO requests (request_id, hash, name, user, body) VALUES (1, 0, 'job', 'ann', '{"name":"job"}');
        INSERT INTO jobs VALUES
            (1, NULL, NULL, NULL, NULL, 1, 'cpu', 1, 512, 0, 7, 'Admin', 'PENDING', 'None', 10, NULL, NULL, NULL, NULL, 0,
                '0:0', '0:0', 0, 0, NULL, 0, 0, 0, NULL, NULL, NULL, NULL),
            (2, 2, NULL, '0-3,7,10-20:5', 2, 1, 'cpu', 1, 512, 0, 7, 'No', 'PENDING', 'None', 10, 11, NULL, NULL, NULL, 0,
                '0:0', '0:0', 0, 0, NULL, 0, 0, 0, NULL, NULL, NULL, NULL),
            (3, 2, NULL, '8-9', NULL, 1, 'cpu', 1, 512, 0, 7, 'User', 'CANCELLED', 'CancelledByUser', 10, NULL, NULL, 40,
                NULL, 0, '0:0', '0:0', 0, 0, NULL, 0, 0, 0, NULL, 0, NULL, NULL),
            (4, 2, 5, NULL, NULL, 1, 'gpu', 2, 1024, 1, 7, 'No', 'SUSPENDED', 'None', 10, 11, 20, NULL, 30, 9, '0:0', '3:0',
                1, 2, '{"tres":{"cpus":2,"mem_mb":1024,"gpus":1},"cpu_ids":[0,1],"gpu_ids":[1]}', 70, 80, 90,
                '{"pid":100,"start_ticks":200,"holds":false}', NULL, 'it''s "quoted"', '{"pages":{"max":1,"task":2,"total":3}}');
        INSERT INTO steps VALUES
            (4, 'batch', 'a "name"', 1, 'RUNNING', 20, NULL, '0:0', '{"tres":{"cpus":2,"mem_mb":1024,"gpus":1}}', 1, 2, 3, '',
                1, NULL, NULL, 0),
            (4, '1', 'true', 3, 'FAILED', 21, 22, '0:9', '{"tres":{"cpus":1,"mem_mb":1,"gpus":0}}', 0, 0, 0, 'srun true', 0,
                '{"pid":100,"start_ticks":200}', '{"read":{"max":1,"task":2,"total":3}}', 4);
        INSERT INTO runs VALUES (4, 0, 19,
            '{"number":0,"requeued":true,"state":"CANCELLED","reason":"None","eligible":11,"start":12,"end":19,'
            || '"suspended_us":5,"exit":{"status":0,"signal":15},"alloc":null,"steps":[]}');
    "#;

    /// The same records as the current version loads them.
    const SPREAD: Spread = Spread { max: 1, task: 2, total: 3 };
    const PROCESS: ClientProcess = ClientProcess { pid: 100, start_ticks: 200, boot: BootId(0) };

    fn usage(max_rss_kb: u64, user_us: u64, system_us: u64, tasks: TaskUsage) -> Usage {
        Usage { max_rss_kb, user_us, system_us, tasks, ..Usage::default() }
    }

    fn alloc(cpus: u32, mem_mb: u64, gpus: u32) -> Allocation {
        Allocation { tres: Tres { cpus, mem_mb, gpus, ..Tres::ZERO }, ..Allocation::default() }
    }

    fn steps_of_a_task() -> Vec<Step> {
        let batch = Step {
            name: "a \"name\"".to_owned(),
            alloc: alloc(2, 1024, 1),
            usage: usage(1, 2, 3, TaskUsage::default()),
            overlap: true,
            ..Step::started(StepId::Batch, Timestamp(20))
        };
        let failed = Step {
            name: "true".to_owned(),
            ntasks: 3,
            state: JobState::Ended(End::Failed),
            end: Some(Timestamp(22)),
            exit: ExitCode::signal(9),
            alloc: alloc(1, 1, 0),
            usage: usage(0, 0, 0, TaskUsage { read: SPREAD, ..TaskUsage::default() }),
            submit_line: "srun true".to_owned(),
            client: Some(PROCESS),
            suspended_us: 4,
            ..Step::started(StepId::Num(1), Timestamp(21))
        };
        vec![batch, failed]
    }

    fn suspended_run() -> RunState {
        RunState {
            state: JobState::Suspended,
            eligible: Some(Timestamp(11)),
            start: Some(Timestamp(20)),
            suspended_at: Some(Timestamp(30)),
            suspended_us: 9,
            derived_exit: ExitCode::status(3),
            restarts: 1,
            alloc: Some(
                Allocation { cpu_ids: vec![0, 1], gpu_ids: vec![1], ..alloc(2, 1024, 1) }.into(),
            ),
            usage: Some(
                usage(70, 80, 90, TaskUsage { pages: SPREAD, ..TaskUsage::default() }).into(),
            ),
            system_comment: Some("it's \"quoted\"".to_owned()),
            ..RunState::default()
        }
    }

    fn records() -> Vec<Job> {
        let plain = |id| Job {
            id: JobId(id),
            request: Arc::new(JobRequest { name: "job".to_owned(), ..JobRequest::default() }),
            partition: "cpu".into(),
            tres: Tres { cpus: 1, mem_mb: 512, ..Tres::ZERO },
            priority: 7,
            submit: Timestamp(10),
            ..Job::default()
        };
        let ranges = [(0, 3, 1), (7, 7, 1), (10, 20, 5)].map(|(first, last, step)| TaskRange {
            first,
            last,
            step,
        });
        let rest = ArrayRole::Rest { tasks: TaskSet::from_ranges(ranges.to_vec()), limit: Some(2) };
        let part = ArrayRole::Part { array_job: JobId(2), tasks: TaskSet::from_sorted(&[8, 9]) };
        let cancelled = RunState {
            state: JobState::Ended(End::Cancelled),
            reason: Reason::CancelledByUser,
            end: Some(Timestamp(40)),
            cancelled_by: Some(0),
            ..RunState::default()
        };
        let eligible = RunState { eligible: Some(Timestamp(11)), ..RunState::default() };
        let task = Job {
            role: ArrayRole::Task { array_job: JobId(2), task: 5 },
            partition: "gpu".into(),
            tres: Tres { cpus: 2, mem_mb: 1024, gpus: 1, ..Tres::ZERO },
            next_step: 2,
            client: Some(Client { process: PROCESS, ..Client::default() }),
            run: suspended_run(),
            steps: steps_of_a_task(),
            ..plain(4)
        };
        vec![
            Job { hold: Hold::Admin, ..plain(1) },
            Job { role: rest, run: eligible, ..plain(2) },
            Job { role: part, hold: Hold::User, run: cancelled, ..plain(3) },
            task,
        ]
    }

    fn earlier_run() -> Run {
        let run = RunState {
            state: JobState::Ended(End::Cancelled),
            eligible: Some(Timestamp(11)),
            start: Some(Timestamp(12)),
            end: Some(Timestamp(19)),
            suspended_us: 5,
            exit: ExitCode::signal(15),
            ..RunState::default()
        };
        Run { requeued: true, submit: None, run, steps: Vec::new() }
    }

    #[test]
    fn records_survive_the_migration_from_columns_to_bodies() {
        let place = Place::new();
        drop(place.store());
        let mut conn = SqliteConnection::establish(&place.path().display().to_string()).unwrap();
        // Stores enable foreign keys. Dropping a table must not delete rows of other tables.
        conn.batch_execute("PRAGMA foreign_keys = ON").unwrap();
        let bodies = "20261122000009";
        while conn.revert_last_migration(MIGRATIONS).unwrap().to_string() != bodies {}
        conn.batch_execute(COLUMNS).unwrap();

        let read = || {
            let mut reader = place.reader();
            let records = reader.accounting(&JobQuery::default()).unwrap();
            let all = JobQuery { duplicates: true, ..JobQuery::default() };
            let earlier = reader.accounting_with_runs(&all).unwrap().0.remove(0);
            (
                records,
                Run {
                    submit: None,
                    requeued: earlier.requeued,
                    run: earlier.record.run,
                    steps: earlier.record.steps,
                },
            )
        };
        assert_eq!(all(&mut place.store()), records());
        assert_eq!(read(), (records(), earlier_run()));

        // Back to columns, then to bodies again.
        while conn.revert_last_migration(MIGRATIONS).unwrap().to_string() != bodies {}
        let kept: Name = diesel::sql_query("SELECT array_tasks AS name FROM jobs WHERE job_id = 2")
            .get_result(&mut conn)
            .unwrap();
        assert_eq!(kept.name, "0-3,7,10-20:5");
        bring_up_to_date(&mut conn).unwrap();
        assert_eq!(read(), (records(), earlier_run()));
    }
}
