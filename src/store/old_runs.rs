//! Finds and deletes the earlier runs of jobs that have not ended.

use crate::error::StoreError;
use crate::schema::{jobs, runs};
use crate::{Reader, Store};
use diesel::prelude::*;
use slotd_model::Timestamp;

/// Returns the ends of the earlier runs of jobs that have not ended. Runs of ended jobs are deleted
/// with their jobs.
#[diesel::dsl::auto_type]
fn ends_of_live_jobs() -> _ {
    runs::table
        .inner_join(jobs::table)
        .filter(jobs::end_us.is_null().and(runs::end_us.is_not_null()))
        .select(runs::end_us.assume_not_null())
}

impl Reader {
    /// Returns when the first of the earlier runs of unended jobs ended.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn first_run_end(&mut self) -> Result<Option<Timestamp>, StoreError> {
        let end: Option<i64> = ends_of_live_jobs()
            .order(runs::end_us)
            .first(&mut self.conn)
            .optional()
            .map_err(StoreError::sql("read when runs ended"))?;
        Ok(end.map(Timestamp))
    }

    /// Skips the `keep` most recent earlier runs of unended jobs and returns the end time of the next
    /// one, or `None` if there are no more.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn run_end_beyond(&mut self, keep: u64) -> Result<Option<Timestamp>, StoreError> {
        let end: Option<i64> = ends_of_live_jobs()
            .order(runs::end_us.desc())
            .offset(i64::try_from(keep).unwrap_or(i64::MAX))
            .first(&mut self.conn)
            .optional()
            .map_err(StoreError::sql("read when runs ended"))?;
        Ok(end.map(Timestamp))
    }

    /// Counts the earlier runs of unended jobs that ended before `before`.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn runs_before(&mut self, before: Timestamp) -> Result<u64, StoreError> {
        let ends: Vec<i64> = ends_of_live_jobs()
            .filter(runs::end_us.lt(before.0))
            .load(&mut self.conn)
            .map_err(StoreError::sql("count old runs"))?;
        Ok(ends.len() as u64)
    }
}

impl Store {
    /// Deletes up to `most` earlier runs of unended jobs that ended before `before`, in one
    /// transaction. Returns their number.
    ///
    /// # Errors
    /// Fails if the database cannot be written. Nothing is deleted in that case.
    pub fn remove_runs(&mut self, before: Timestamp, most: usize) -> Result<usize, StoreError> {
        let removed = self.transaction(|conn, _| {
            let old: Vec<(i64, i64)> = ends_of_live_jobs()
                .filter(runs::end_us.lt(before.0))
                .limit(i64::try_from(most).unwrap_or(i64::MAX))
                .select((runs::job_id, runs::run))
                .load(conn)
                .map_err(StoreError::sql("find old runs"))?;
            for key in &old {
                diesel::delete(runs::table.find(*key))
                    .execute(conn)
                    .map_err(StoreError::sql("delete an old run"))?;
            }
            Ok(old.len())
        });
        self.note_deletion();
        removed
    }
}
