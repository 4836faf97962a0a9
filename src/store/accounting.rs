//! The reader of the database: what sacct asks, and other questions about the past.
//!
//! It has a connection of its own that cannot write, so a long answer never delays a commit.

use crate::model::change::LaunchTexts;
use crate::model::query::AcctFilter;
use crate::model::{Job, JobId, JobRef, JobState};
use crate::store::error::StoreError;
use crate::store::row::JobRow;
use crate::store::schema::{jobs, requests};
use crate::store::{load, open};
use diesel::dsl::{AsSelect, InnerJoin, IntoBoxed, Select};
use diesel::prelude::*;
use diesel::sqlite::{Sqlite, SqliteConnection};
use std::path::Path;

/// The database, open for reading beside the writer.
pub struct Reader {
    conn: SqliteConnection,
}

impl Reader {
    /// Opens a database that a `Store` has made.
    ///
    /// # Errors
    /// There is no such file, or it is not one that this program knows.
    pub fn open(path: &Path) -> Result<Reader, StoreError> {
        Ok(Reader { conn: open::reader(path)? })
    }

    /// The records that answer the question, with their steps, by number: what is committed now.
    ///
    /// # Errors
    /// The database can't be read, or holds what no version of slotd writes.
    pub fn accounting(&mut self, filter: &AcctFilter) -> Result<Vec<Job>, StoreError> {
        // One transaction: a job that ends between two of its queries is neither lost nor seen twice.
        self.conn.transaction(|conn| {
            let rows = if filter.jobs.is_empty() {
                rows_of_time(conn, filter)?
            } else {
                load::named_rows(conn, &filter.jobs)?
            };
            let (mut jobs, _) = load::assemble(conn, rows)?;
            // The rows are candidates; the rules of the model decide.
            jobs.retain(|job| filter.matches(job));
            Ok(jobs)
        })
    }

    /// One record; `None` where the number is not known.
    ///
    /// # Errors
    /// The database can't be read, or holds what no version of slotd writes.
    pub fn job(&mut self, job: JobId) -> Result<Option<Job>, StoreError> {
        let named = AcctFilter { jobs: vec![JobRef::job(job)], ..AcctFilter::default() };
        Ok(self.accounting(&named)?.into_iter().find(|found| found.id == job))
    }

    /// Script and environment of a job, as `Store::launch_texts`.
    ///
    /// # Errors
    /// There is no such job, or the database can't be read.
    pub fn launch_texts(&mut self, job: JobId) -> Result<Option<LaunchTexts>, StoreError> {
        load::launch_texts(&mut self.conn, job)
    }
}

type Candidates<'a> = IntoBoxed<'a, Select<InnerJoin<jobs::table, requests::table>, AsSelect<JobRow, Sqlite>>, Sqlite>;

/// Candidates where no job was named: the window bounds what is read.
fn rows_of_time(conn: &mut SqliteConnection, filter: &AcctFilter) -> Result<Vec<JobRow>, StoreError> {
    let failed = StoreError::sql("read the history of jobs");
    let mut rows = live(filter).load(conn).map_err(&failed)?;
    rows.extend(ended(filter).load(conn).map_err(&failed)?);
    rows.sort_unstable_by_key(|row: &JobRow| row.job_id);
    Ok(rows)
}

/// Jobs that have not ended, by their states.
fn live(filter: &AcctFilter) -> Candidates<'_> {
    candidates(filter).filter(jobs::state.eq_any(wanted_states(filter, false)))
}

/// Jobs that have ended, by the time they did.
fn ended(filter: &AcctFilter) -> Candidates<'_> {
    let mut query = candidates(filter).filter(jobs::state.eq_any(wanted_states(filter, true)));
    if let Some(since) = filter.since {
        query = query.filter(jobs::end_us.ge(since.0));
    }
    if let (Some(until), true) = (filter.until, only_terminal(filter)) {
        query = query.filter(jobs::end_us.le(until.0));
    }
    query
}

fn candidates(filter: &AcctFilter) -> Candidates<'_> {
    let mut query = jobs::table.inner_join(requests::table).select(JobRow::as_select()).into_boxed();
    if let Some(until) = filter.until {
        query = query.filter(jobs::submit_us.le(until.0));
    }
    if !filter.names.is_empty() {
        query = query.filter(requests::name.eq_any(&filter.names));
    }
    if !filter.users.is_empty() {
        query = query.filter(requests::user.eq_any(&filter.users));
    }
    if !filter.accounts.is_empty() {
        query = query.filter(requests::account.eq_any(&filter.accounts));
    }
    if !filter.partitions.is_empty() {
        query = query.filter(jobs::partition.eq_any(&filter.partitions));
    }
    query
}

/// The present states, terminal or not, of jobs that may answer. In a window, a job that has ended may have
/// been pending or running.
fn wanted_states(filter: &AcctFilter, terminal: bool) -> Vec<&'static str> {
    let windowed = filter.since.is_some() || filter.until.is_some();
    let asked = |state: &JobState| match &filter.states {
        None => true,
        Some(states) if windowed && !only_terminal(filter) => !states.is_empty(),
        Some(states) => states.contains(state),
    };
    JobState::ALL.into_iter().filter(|s| s.is_terminal() == terminal).filter(asked).map(JobState::name).collect()
}

/// Only states are asked for in which a job stays.
fn only_terminal(filter: &AcctFilter) -> bool {
    filter.states.as_ref().is_some_and(|states| states.iter().all(|state| state.is_terminal()))
}
