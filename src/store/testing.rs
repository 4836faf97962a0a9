//! Test support, also for the tests of the actors and the daemon: a database in its own directory,
//! and small builders.

use crate::{Reader, Store};
use diesel::connection::{Connection, SimpleConnection};
use diesel::sqlite::SqliteConnection;
use slotd_model::change::{Change, LaunchTexts, Texts};
use slotd_model::run::RunState;
use slotd_model::{End, Job, JobId, JobRequest, JobState, Step, StepId, Timestamp, Tres};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A database file that is deleted after the test.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Default for Place {
    fn default() -> Place {
        Place::new()
    }
}

impl Place {
    pub fn new() -> Place {
        Place { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("slotd.db")
    }

    pub fn store(&self) -> Store {
        Store::open(&self.path()).expect("a new or known database")
    }

    /// Locks the database against writers until the returned connection is dropped.
    pub fn locked(&self) -> SqliteConnection {
        let mut conn =
            SqliteConnection::establish(&self.path().to_string_lossy()).expect("a database");
        conn.batch_execute("BEGIN IMMEDIATE").expect("nobody else writes now");
        conn
    }

    /// Opens a read transaction that pins the current state until the returned connection is
    /// dropped.
    pub fn read_of(path: &Path) -> SqliteConnection {
        let mut conn = SqliteConnection::establish(&path.to_string_lossy()).expect("a database");
        conn.batch_execute("BEGIN; SELECT count(*) FROM jobs").expect("it can be read");
        conn
    }

    pub fn reader(&self) -> Reader {
        Reader::open(&self.path()).expect("a database beside its writer")
    }
}

/// A pending job.
pub fn job(id: u32) -> Job {
    let request =
        JobRequest { name: format!("job{id}"), user: "ann".to_owned(), ..JobRequest::default() };
    Job {
        id: JobId(id),
        request: Arc::new(request),
        partition: "cpu".into(),
        tres: Tres { cpus: 1, mem_mb: 512, ..Tres::ZERO },
        priority: 1,
        submit: Timestamp::from_secs(1000),
        ..Job::default()
    }
}

/// A job that ended at that second.
pub fn ended_job(id: u32, how: End, start_secs: i64, end_secs: i64) -> Job {
    let (start, end) = (Timestamp::from_secs(start_secs), Timestamp::from_secs(end_secs));
    let state = JobState::Ended(how);
    let run = RunState { state, start: Some(start), end: Some(end), ..RunState::default() };
    Job { run, ..job(id) }
}

pub fn step(id: StepId) -> Step {
    Step { name: "true".to_owned(), ..Step::started(id, Timestamp::from_secs(1001)) }
}

pub fn insert(job: &Job) -> Change {
    Change::Insert { job: Box::new(job.clone()), texts: Texts::None }
}

pub fn insert_with(job: &Job, script: &[u8], env: &[u8]) -> Change {
    let texts = Texts::New(LaunchTexts { script: script.to_vec(), env: env.to_vec() });
    Change::Insert { job: Box::new(job.clone()), texts }
}

/// Commits one batch and asserts that it succeeds.
pub fn put(store: &mut Store, changes: Vec<Change>) {
    assert_eq!(store.commit(&[changes]), vec![Ok(())]);
}

/// Returns every record of the database.
pub fn all(store: &mut Store) -> Vec<Job> {
    let loaded = store.load_live(Timestamp(i64::MIN)).expect("a readable database");
    loaded.into_iter().map(|job| *job).collect()
}
