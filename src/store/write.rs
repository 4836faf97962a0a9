//! The writer of the database: commits changes, and answers what has to be known before a change is made.
//!
//! There is one in the daemon. It does not look at what a change means.

use crate::model::change::{Change, LaunchTexts, Texts};
use crate::model::query::EndedJob;
use crate::model::{Job, JobId, JobRef, Timestamp};
use crate::store::error::StoreError;
use crate::store::intern::{RequestCache, text_row};
use crate::store::row::{JobRow, StepRow};
use crate::store::schema::{jobs, launches, steps, texts};
use crate::store::{load, open};
use diesel::dsl::exists;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use std::path::{Path, PathBuf};

/// The database, open for writing.
pub struct Store {
    path: PathBuf,
    conn: SqliteConnection,
    requests: RequestCache,
}

impl Store {
    /// Opens the database, makes it where there is none, and brings it up to date. Its directory must exist.
    ///
    /// # Errors
    /// The file can't be opened, is no database of slotd, or was written by a newer slotd: then it is left untouched.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        let conn = open::writer(path)?;
        Ok(Store { path: path.to_owned(), conn, requests: RequestCache::default() })
    }

    /// Makes batches of changes durable: all with one write to the disk, each wholly or not at all.
    ///
    /// The answers are in the order of the batches. A batch that contradicts what is stored (a number that is
    /// taken, an update of a job that does not exist) leaves the others alone. Where SQLite itself fails, each
    /// batch is tried once more by itself, so that one that does not fit on the disk does not take the others
    /// with it.
    ///
    /// # Errors
    /// Of each batch: why nothing of it was stored.
    pub fn commit(&mut self, batches: &[Vec<Change>]) -> Vec<Result<(), StoreError>> {
        if let [batch] = batches {
            return vec![self.commit_one(batch)];
        }
        match self.commit_group(batches) {
            Ok(answers) => answers,
            Err(error) => {
                self.recover();
                log::warn!("commit of {} batches: {error}; trying each by itself", batches.len());
                batches.iter().map(|batch| self.commit_one(batch)).collect()
            }
        }
    }

    fn commit_group(&mut self, batches: &[Vec<Change>]) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        let requests = &mut self.requests;
        self.conn.immediate_transaction(|conn| {
            let mut answers = Vec::with_capacity(batches.len());
            for batch in batches {
                let answer = conn.transaction(|conn| apply_all(conn, requests, batch));
                if let Err(error) = &answer {
                    // Rows that the batch wrote are gone again.
                    requests.clear();
                    if error.ends_transaction() {
                        return Err(error.clone());
                    }
                }
                answers.push(answer);
            }
            Ok(answers)
        })
    }

    fn commit_one(&mut self, batch: &[Change]) -> Result<(), StoreError> {
        let requests = &mut self.requests;
        let answer = self.conn.immediate_transaction(|conn| apply_all(conn, requests, batch));
        if let Err(error) = &answer {
            self.requests.clear();
            if error.ends_transaction() {
                self.recover();
            }
        }
        answer
    }

    /// After a failure of SQLite: a new connection, since the old one may not know whether it is in a transaction.
    fn recover(&mut self) {
        self.requests.clear();
        match open::again(&self.path) {
            Ok(conn) => self.conn = conn,
            Err(error) => log::error!("{error}"),
        }
    }

    /// Every live job, and every job that ended at `ended_since` or later, with their steps, by number.
    ///
    /// # Errors
    /// The database can't be read, or holds what no version of slotd writes.
    pub fn load_live(&mut self, ended_since: Timestamp) -> Result<Vec<Job>, StoreError> {
        let rows = load::live_rows(&mut self.conn, ended_since)?;
        let (jobs, requests) = load::assemble(&mut self.conn, rows)?;
        for (request_id, request) in &requests {
            self.requests.remember(request, *request_id);
        }
        Ok(jobs)
    }

    /// One more than the largest number that a record has; 1 in a new database.
    ///
    /// # Errors
    /// The database can't be read, or the numbers are used up.
    pub fn next_job_id(&mut self) -> Result<JobId, StoreError> {
        let largest: Option<i64> = jobs::table
            .select(diesel::dsl::max(jobs::job_id))
            .first(&mut self.conn)
            .map_err(StoreError::sql("read the last job number"))?;
        let next = largest.unwrap_or(0) + 1;
        u32::try_from(next).map(JobId).map_err(|_| StoreError::Unstorable {
            table: "jobs",
            column: "job_id",
            value: next.to_string(),
        })
    }

    /// Script and environment of a job; `None` where it has none (an allocation). A task has those of its array.
    /// The environment is empty once it was dropped (`prune_environments`).
    ///
    /// # Errors
    /// There is no such job, or the database can't be read.
    pub fn launch_texts(&mut self, job: JobId) -> Result<Option<LaunchTexts>, StoreError> {
        load::launch_texts(&mut self.conn, job)
    }

    /// How the named jobs ended, for dependencies on jobs that the scheduler no longer has in memory. Jobs that
    /// have not ended and jobs that do not exist are left out; the number of an array means all its tasks.
    ///
    /// # Errors
    /// The database can't be read, or holds what no version of slotd writes.
    pub fn ended(&mut self, named: &[JobRef]) -> Result<Vec<EndedJob>, StoreError> {
        load::ended(&mut self.conn, named)
    }

    /// Drops the environments of submissions whose jobs have all ended before `before`, and returns how many
    /// submissions that were. Scripts are kept. An environment is large and may hold secrets, and nothing asks
    /// for it any more when a job can't be requeued.
    ///
    /// # Errors
    /// The database can't be written.
    pub fn prune_environments(&mut self, before: Timestamp) -> Result<usize, StoreError> {
        self.conn.immediate_transaction(|conn| prune_environments(conn, before))
    }
}

fn apply_all(conn: &mut SqliteConnection, requests: &mut RequestCache, batch: &[Change]) -> Result<(), StoreError> {
    batch.iter().try_for_each(|change| apply(conn, requests, change))
}

fn apply(conn: &mut SqliteConnection, requests: &mut RequestCache, change: &Change) -> Result<(), StoreError> {
    match change {
        Change::Insert { job, texts } => insert(conn, requests, job, texts),
        Change::Update(job) => update(conn, requests, job),
        Change::PutStep { job, step } => put_step(conn, &StepRow::new(*job, step)?),
        Change::Delete(job) => delete(conn, *job),
    }
}

fn insert(
    conn: &mut SqliteConnection,
    requests: &mut RequestCache,
    job: &Job,
    texts: &Texts,
) -> Result<(), StoreError> {
    let row = JobRow::new(job, requests.row_of(conn, &job.request)?)?;
    diesel::insert_into(jobs::table).values(row).execute(conn).map_err(StoreError::sql("store a new job"))?;
    for step in &job.steps {
        put_step(conn, &StepRow::new(job.id, step)?)?;
    }
    let launch = match texts {
        Texts::New(texts) => Some((text_row(conn, &texts.script)?, Some(text_row(conn, &texts.env)?))),
        // A task finds the row of its array by itself.
        Texts::SameAs(other) if job.array_job_id() == Some(*other) => None,
        Texts::SameAs(other) => load::launch_row(conn, *other)?,
        Texts::None => None,
    };
    if let Some((script, env)) = launch {
        diesel::insert_into(launches::table)
            .values((
                launches::job_id.eq(i64::from(job.id.0)),
                launches::script_id.eq(script),
                launches::env_id.eq(env),
            ))
            .execute(conn)
            .map_err(StoreError::sql("store what launches a job"))?;
    }
    Ok(())
}

fn update(conn: &mut SqliteConnection, requests: &mut RequestCache, job: &Job) -> Result<(), StoreError> {
    let row = JobRow::new(job, requests.row_of(conn, &job.request)?)?;
    let changed = diesel::update(jobs::table.find(row.job_id))
        .set(&row)
        .execute(conn)
        .map_err(StoreError::sql("store a job's state"))?;
    if changed == 0 { Err(StoreError::Missing { what: format!("job {}", job.id) }) } else { Ok(()) }
}

fn put_step(conn: &mut SqliteConnection, row: &StepRow) -> Result<(), StoreError> {
    diesel::replace_into(steps::table).values(row).execute(conn).map_err(StoreError::sql("store a step"))?;
    Ok(())
}

/// Its steps go with it. To delete what does not exist is no error: it is gone.
fn delete(conn: &mut SqliteConnection, job: JobId) -> Result<(), StoreError> {
    let failed = StoreError::sql("delete a job");
    let id = i64::from(job.0);
    diesel::delete(jobs::table.find(id)).execute(conn).map_err(&failed)?;
    // The tasks of an array still need its texts.
    let has_tasks: bool =
        diesel::select(exists(jobs::table.filter(jobs::array_job_id.eq(id)))).get_result(conn).map_err(&failed)?;
    if !has_tasks {
        diesel::delete(launches::table.find(id)).execute(conn).map_err(&failed)?;
    }
    Ok(())
}

fn prune_environments(conn: &mut SqliteConnection, before: Timestamp) -> Result<usize, StoreError> {
    let failed = StoreError::sql("drop old environments");
    let holding: Vec<(i64, Option<i64>)> = launches::table
        .filter(launches::env_id.is_not_null())
        .select((launches::job_id, launches::env_id))
        .load(conn)
        .map_err(&failed)?;
    let mut dropped = Vec::new();
    let mut freed = Vec::new();
    for (id, env) in holding {
        if !is_needed(conn, id, before).map_err(&failed)? {
            dropped.push(id);
            freed.extend(env);
        }
    }
    freed.sort_unstable();
    freed.dedup();
    for ids in dropped.chunks(load::CHUNK) {
        diesel::update(launches::table.filter(launches::job_id.eq_any(ids)))
            .set(launches::env_id.eq(None::<i64>))
            .execute(conn)
            .map_err(&failed)?;
    }
    for env in freed {
        let used: bool =
            diesel::select(exists(launches::table.filter(launches::env_id.eq(env).or(launches::script_id.eq(env)))))
                .get_result(conn)
                .map_err(&failed)?;
        if !used {
            diesel::delete(texts::table.find(env)).execute(conn).map_err(&failed)?;
        }
    }
    Ok(dropped.len())
}

/// Whether a job of this submission (the job itself, the tasks of the array) is live or ended at `before` or later.
fn is_needed(conn: &mut SqliteConnection, submission: i64, before: Timestamp) -> QueryResult<bool> {
    let recent = || jobs::state.eq_any(load::live_states()).or(jobs::end_us.ge(before.0).assume_not_null());
    let own = exists(jobs::table.filter(jobs::job_id.eq(submission).and(recent())));
    if diesel::select(own).get_result(conn)? {
        return Ok(true);
    }
    diesel::select(exists(jobs::table.filter(jobs::array_job_id.eq(submission).assume_not_null().and(recent()))))
        .get_result(conn)
}
