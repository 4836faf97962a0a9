//! Commits changes to the tables.

use crate::error::StoreError;
use crate::intern::{Interned, remove_unused_texts};
use crate::row::{JobRow, StepRow};
use crate::schema::{jobs, launches, steps};
use crate::write::Store;
use crate::{crontabs, load, memos, notices, runs};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Text};
use diesel::sqlite::{Sqlite, SqliteConnection};
use slotd_model::change::{Change, Texts};
use slotd_model::{Job, JobId, StepId, StoreFault};
use std::collections::HashMap;

impl Store {
    /// Commits batches of changes with one write to the disk. Each batch is stored completely or
    /// not at all.
    ///
    /// The results are in the order of the batches. A batch that contradicts the stored data (a
    /// taken ID, an update of a job that does not exist) does not affect the others. If SQLite
    /// itself fails, nothing was stored and the caller may retry. If the disk is full or a batch
    /// contradicts the stored data, each batch is committed once more on its own, in order. After
    /// the first batch for which SQLite fails, the remaining ones receive the same error and are not
    /// stored, so that a later state of a job is never stored before an earlier one.
    ///
    /// # Errors
    /// An error is the reason why its batch was not stored.
    pub fn commit(&mut self, batches: &[Vec<Change>]) -> Vec<Result<(), StoreError>> {
        match self.commit_together(batches) {
            // A savepoint for each batch would cost as much as the batch.
            Err(error) if batches.len() > 1 && !concerns_all(&error) => {
                log::warn!(
                    "commit of {} batches failed: {error}; committing each on its own",
                    batches.len()
                );
                self.commit_each(batches)
            }
            answer => vec![answer; batches.len()],
        }
    }

    fn commit_each(&mut self, batches: &[Vec<Change>]) -> Vec<Result<(), StoreError>> {
        let mut failure = None;
        let each = batches.iter().map(|batch| {
            if let Some(failure) = &failure {
                return Err(StoreError::clone(failure));
            }
            let answer = self.commit_together(std::slice::from_ref(batch));
            failure = answer.as_ref().err().filter(|e| e.ends_transaction()).cloned();
            answer
        });
        each.collect()
    }

    pub(super) fn commit_together(&mut self, batches: &[Vec<Change>]) -> Result<(), StoreError> {
        self.transaction(|conn, interned| apply_all(conn, interned, batches.iter().flatten()))
    }
}

/// Returns whether the fault would be the same for each batch on its own.
fn concerns_all(error: &StoreError) -> bool {
    error.fault().is_some_and(|fault| fault != StoreFault::Full)
}

/// Writes changes in order. If a job is changed several times, only its last state is written: one
/// commit often contains a submission and its start.
fn apply_all<'a>(
    conn: &mut SqliteConnection,
    interned: &mut Interned,
    changes: impl Iterator<Item = &'a Change> + Clone,
) -> Result<(), StoreError> {
    let mut last: HashMap<JobId, (usize, &Job)> = HashMap::new();
    for (at, change) in changes.clone().enumerate() {
        if let Change::Update(job) = change {
            last.insert(job.id, (at, job));
        }
    }
    for (at, change) in changes.enumerate() {
        match change {
            Change::Insert { job, texts } => {
                let state = last.remove(&job.id).map_or(&**job, |(_, state)| state);
                insert(conn, interned, job, state, texts)?;
            }
            Change::Update(job) => {
                if last.get(&job.id).is_some_and(|(last, _)| *last == at) {
                    update(conn, interned, job)?;
                }
            }
            Change::PutScript { job, script } => put_script(conn, interned, *job, script)?,
            Change::PutStep { job, step } => put_step(conn, &StepRow::new(*job, step)?)?,
            Change::DropStep { job, step } => drop_step(conn, *job, *step)?,
            Change::EndRun { job, run } => runs::put(conn, *job, run)?,
            Change::PutNotice { number, notice, .. } => notices::put(conn, *number, notice)?,
            Change::DropNotice { number } => notices::remove(conn, *number)?,
            Change::PutMemo { key, body } => memos::put(conn, *key, body)?,
            Change::DropMemo { key } => memos::remove(conn, *key)?,
            Change::PutCrontab { uid, crontab } => crontabs::put(conn, *uid, crontab.as_deref())?,
        }
    }
    Ok(())
}

/// Writes a new job. `state` is its latest state, without its steps.
fn insert(
    conn: &mut SqliteConnection,
    interned: &mut Interned,
    job: &Job,
    state: &Job,
    texts: &Texts,
) -> Result<(), StoreError> {
    let row = JobRow::new(state, interned.request_row(conn, &state.request)?)?;
    diesel::insert_into(jobs::table)
        .values(row)
        .execute(conn)
        .map_err(StoreError::sql("store a new job"))?;
    for step in &job.steps {
        put_step(conn, &StepRow::new(job.id, step)?)?;
    }
    let launch = match texts {
        Texts::New(texts) => Some((
            interned.text_row(conn, &texts.script)?,
            Some(interned.text_row(conn, &texts.env)?),
        )),
        // A task finds the row of its array on its own.
        Texts::SameAs(other) if job.array_job_id() == Some(*other) => None,
        Texts::SameAs(other) => load::launch_row(conn, *other)?,
        Texts::Script(script) => Some((interned.text_row(conn, script)?, None)),
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
            .map_err(StoreError::sql("store the script and environment of a job"))?;
    }
    Ok(())
}

fn update(
    conn: &mut SqliteConnection,
    interned: &mut Interned,
    job: &Job,
) -> Result<(), StoreError> {
    let row = JobRow::new(job, interned.request_row(conn, &job.request)?)?;
    let failed = StoreError::sql("store a job's state");
    if SetBody(&row).execute(conn).map_err(&failed)? > 0 {
        return Ok(());
    }
    let JobRow { job_id, request_id, body } = row;
    let this = diesel::update(jobs::table.find(job_id));
    match this
        .set((jobs::body.eq(body), jobs::request_id.eq(request_id)))
        .execute(conn)
        .map_err(&failed)?
    {
        0 => Err(StoreError::Missing { what: format!("job {}", job.id) }),
        _ => Ok(()),
    }
}

/// Replaces a job's script. The old text is deleted if no other job uses it.
fn put_script(
    conn: &mut SqliteConnection,
    interned: &mut Interned,
    job: JobId,
    script: &[u8],
) -> Result<(), StoreError> {
    let missing = || StoreError::Missing { what: format!("the script of job {job}") };
    let (old, _) = load::launch_row(conn, job)?.ok_or_else(missing)?;
    let new = interned.text_row(conn, script)?;
    let this = diesel::update(launches::table.find(i64::from(job.0)));
    if this
        .set(launches::script_id.eq(new))
        .execute(conn)
        .map_err(StoreError::sql("store a script"))?
        == 0
    {
        return Err(missing());
    }
    remove_unused_texts(conn, std::iter::once(old))
}

/// Replaces the body of a job that has this request. The request itself is not written because it
/// rarely changes and each write updates its index. SQLite caches this statement, while diesel
/// retranslates its own updates each time because the set of columns may differ.
struct SetBody<'a>(&'a JobRow);

impl QueryFragment<Sqlite> for SetBody<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        out.push_sql("UPDATE jobs SET body = ");
        out.push_bind_param::<Text, _>(&self.0.body)?;
        out.push_sql(" WHERE job_id = ");
        out.push_bind_param::<BigInt, _>(&self.0.job_id)?;
        out.push_sql(" AND request_id = ");
        out.push_bind_param::<BigInt, _>(&self.0.request_id)
    }
}

impl QueryId for SetBody<'_> {
    type QueryId = SetBody<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl RunQueryDsl<SqliteConnection> for SetBody<'_> {}

fn put_step(conn: &mut SqliteConnection, row: &StepRow) -> Result<(), StoreError> {
    diesel::replace_into(steps::table)
        .values(row)
        .execute(conn)
        .map_err(StoreError::sql("store a step"))?;
    Ok(())
}

fn drop_step(conn: &mut SqliteConnection, job: JobId, step: StepId) -> Result<(), StoreError> {
    diesel::delete(steps::table.find((i64::from(job.0), step.to_string())))
        .execute(conn)
        .map_err(StoreError::sql("delete a step"))?;
    Ok(())
}
