//! Where jobs come from: what git told of their work trees. Equal texts are stored once.

use crate::model::source::{Kept, Source, Taken};
use crate::model::{JobId, Timestamp};
use crate::store::error::StoreError;
use crate::store::history::remove_unused_texts;
use crate::store::load::CHUNK;
use crate::store::row::{from_json, job_id, to_json};
use crate::store::schema::{jobs, requests, sources, texts};
use crate::store::{Reader, Store};
use diesel::dsl::{delete, exists, not};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use std::collections::{BTreeMap, BTreeSet};

impl Store {
    /// Keeps what git told at that time for these submissions, in one transaction. Those that were removed meanwhile are
    /// passed over.
    ///
    /// # Errors
    /// The database can't be written. Nothing was kept.
    pub fn put_source(
        &mut self,
        submissions: &[JobId],
        at: Timestamp,
        source: &Source,
        diff: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        self.transaction(|conn, interned| {
            let mut there = BTreeSet::new();
            for some in submissions.chunks(CHUNK) {
                let ids: Vec<i64> = some.iter().map(|id| i64::from(id.0)).collect();
                // An array has a record of its own number as long as one of its tasks has not started.
                let own = jobs::table.filter(jobs::job_id.eq_any(&ids)).select(jobs::job_id);
                there.extend(own.load::<i64>(conn).map_err(StoreError::sql("look for jobs"))?);
                let of_array =
                    jobs::table.filter(jobs::array_job_id.eq_any(&ids)).select(jobs::array_job_id);
                there.extend(
                    of_array
                        .load::<Option<i64>>(conn)
                        .map_err(StoreError::sql("look for arrays"))?
                        .into_iter()
                        .flatten(),
                );
            }
            if there.is_empty() {
                return Ok(());
            }
            let summary = to_json("sources", "summary_id", source)?;
            let summary = interned.text_row(conn, summary.as_bytes())?;
            let diff = diff.map(|diff| interned.text_row(conn, diff)).transpose()?;
            for id in submissions.iter().map(|id| i64::from(id.0)).filter(|id| there.contains(id)) {
                diesel::replace_into(sources::table)
                    .values((
                        sources::job_id.eq(id),
                        sources::taken_us.eq(at.0),
                        sources::summary_id.eq(summary),
                        sources::diff_id.eq(diff),
                    ))
                    .execute(conn)
                    .map_err(StoreError::sql("store where a job comes from"))?;
            }
            Ok(())
        })
    }
}

impl Reader {
    /// What git told of the work tree of a submission, and how it differed from its commit, where that is kept.
    ///
    /// # Errors
    /// The database can't be read, or holds what no version of slotd writes.
    pub fn source(&mut self, submission: JobId) -> Result<Option<Kept>, StoreError> {
        let failed = StoreError::sql("read where a job comes from");
        self.conn.transaction(|conn| {
            let found: Option<(i64, i64, Option<i64>)> = sources::table
                .find(i64::from(submission.0))
                .select((sources::taken_us, sources::summary_id, sources::diff_id))
                .first(conn)
                .optional()
                .map_err(&failed)?;
            let Some((at, summary, diff)) = found else { return Ok(None) };
            let mut text = |id: i64| -> Result<Vec<u8>, StoreError> {
                texts::table.find(id).select(texts::body).first(conn).map_err(&failed)
            };
            let source =
                from_json("sources", "summary_id", &String::from_utf8_lossy(&text(summary)?))?;
            let diff = diff.map(text).transpose()?;
            Ok(Some((Taken { at: Timestamp(at), source }, diff)))
        })
    }
}

impl Reader {
    /// The copies of work trees that are named by requests, each with the jobs that run in it.
    ///
    /// # Errors
    /// The database can't be read.
    pub fn snapshots(&mut self) -> Result<BTreeMap<String, Vec<JobId>>, StoreError> {
        let rows: Vec<(Option<String>, i64)> = requests::table
            .inner_join(jobs::table)
            .filter(requests::snapshot.is_not_null())
            .select((requests::snapshot, jobs::job_id))
            .load(&mut self.conn)
            .map_err(StoreError::sql("look for copies of work trees"))?;
        let mut found: BTreeMap<String, Vec<JobId>> = BTreeMap::new();
        for (name, job) in rows {
            found.entry(name.unwrap_or_default()).or_default().push(job_id("jobs", job)?);
        }
        Ok(found)
    }
}

/// Removes what is kept of these submissions where none of their records is left.
pub(super) fn remove_unused(
    conn: &mut SqliteConnection,
    submissions: &BTreeSet<i64>,
) -> Result<(), StoreError> {
    let failed = StoreError::sql("remove where old jobs come from");
    let own = exists(jobs::table.filter(jobs::job_id.eq(sources::job_id)));
    let of_array = exists(jobs::table.filter(jobs::array_job_id.eq(sources::job_id.nullable())));
    let unused: Vec<(i64, i64, Option<i64>)> = sources::table
        .filter(sources::job_id.eq_any(submissions))
        .filter(not(own))
        .filter(not(of_array))
        .select((sources::job_id, sources::summary_id, sources::diff_id))
        .load(conn)
        .map_err(&failed)?;
    if unused.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = unused.iter().map(|(id, ..)| *id).collect();
    delete(sources::table.filter(sources::job_id.eq_any(ids))).execute(conn).map_err(&failed)?;
    remove_unused_texts(
        conn,
        unused.into_iter().flat_map(|(_, summary, diff)| [Some(summary), diff]).flatten(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::source::Changes;
    use crate::model::{ArrayRole, Job, JobState};
    use crate::store::history::Number;
    use crate::store::testing::{Place, ended_job, insert, put};

    fn source(changed: usize) -> Source {
        let changes = Changes { changed, ..Changes::default() };
        Source { commit: Some("0123".to_owned()), branch: None, changes: Ok(changes) }
    }

    fn texts(store: &mut Store) -> i64 {
        diesel::sql_query("SELECT count(*) AS n FROM texts")
            .get_result::<Number>(&mut store.conn)
            .unwrap()
            .n
    }

    #[test]
    fn equal_texts_are_kept_once_and_go_with_the_last_job_that_has_them() {
        let place = Place::new();
        let mut store = place.store();
        let task = |id, task| Job {
            role: ArrayRole::Task { array_job: JobId(10), task },
            ..ended_job(id, JobState::Completed, 1, 2)
        };
        let jobs = [
            ended_job(1, JobState::Failed, 1, 2),
            ended_job(2, JobState::Failed, 1, 2),
            task(11, 0),
            task(12, 1),
        ];
        put(&mut store, jobs.iter().map(insert).collect());
        store
            .put_source(&[JobId(1), JobId(7), JobId(10)], Timestamp(5), &source(1), Some(b"diff"))
            .unwrap();
        store.put_source(&[JobId(2)], Timestamp(6), &source(1), Some(b"diff")).unwrap();
        assert_eq!(texts(&mut store), 2);
        let mut reader = place.reader();
        let mut at = |id| {
            reader.source(JobId(id)).unwrap().map(|(taken, diff)| (taken.at.0, taken.source, diff))
        };
        assert_eq!(at(1), Some((5, source(1), Some(b"diff".to_vec()))));
        assert_eq!(at(2), Some((6, source(1), Some(b"diff".to_vec()))));
        assert_eq!(at(7), None, "there is no such job");
        assert_eq!(at(10), at(1), "one for the array");
        store.remove(&[JobId(1), JobId(2), JobId(11)]).unwrap();
        assert_eq!([at(1), at(2)], [None, None]);
        assert!(at(10).is_some() && texts(&mut store) == 2, "a task of the array is left");
        store.remove(&[JobId(12)]).unwrap();
        assert_eq!((at(10), texts(&mut store)), (None, 0));
        // What was known of the rows is forgotten.
        put(&mut store, vec![insert(&jobs[0])]);
        store.put_source(&[JobId(1)], Timestamp(5), &source(0), None).unwrap();
        assert_eq!(
            place.reader().source(JobId(1)).unwrap(),
            Some((Taken { at: Timestamp(5), source: source(0) }, None))
        );
    }
}
