//! The git state of the work trees from which jobs were submitted. Equal texts are stored once.

use crate::diffs::{self, PackedDiff};
use crate::error::StoreError;
use crate::intern::remove_unused_texts;
use crate::load::CHUNK;
use crate::row::{from_json, job_id, to_json};
use crate::schema::{jobs, requests, sources, texts};
use crate::{Reader, Store};
use diesel::connection::SimpleConnection;
use diesel::dsl::{delete, exists, not};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use slotd_model::source::{Kept, Source, Taken};
use slotd_model::{JobId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// The reason shown for a diff that was deleted or was too long to store.
const DELETED: &str = "it was deleted to keep all diffs within SLOTD_DIFFS_MB";

impl Store {
    /// Stores the git state recorded at `at` for these submissions, in one transaction. Skips
    /// submissions that have been deleted since. `most_diffs` limits the compressed size in bytes
    /// of all stored diffs; `None` means no limit.
    ///
    /// # Errors
    /// Fails if the database cannot be written. Nothing is stored in that case.
    pub fn put_source(
        &mut self,
        submissions: &[JobId],
        at: Timestamp,
        source: &Source,
        diff: Option<&PackedDiff>,
        most_diffs: Option<u64>,
    ) -> Result<(), StoreError> {
        let is_large = diff.is_some();
        let stored = self.transaction(|conn, interned| {
            let mut there = BTreeSet::new();
            for some in submissions.chunks(CHUNK) {
                let ids: Vec<i64> = some.iter().map(|id| i64::from(id.0)).collect();
                // An array has a record with its own ID as long as one of its tasks has not
                // started.
                let own = jobs::table.filter(jobs::job_id.eq_any(&ids)).select(jobs::job_id);
                there.extend(own.load::<i64>(conn).map_err(StoreError::sql("find jobs"))?);
                let of_array =
                    jobs::table.filter(jobs::array_job_id.eq_any(&ids)).select(jobs::array_job_id);
                there.extend(
                    of_array
                        .load::<Option<i64>>(conn)
                        .map_err(StoreError::sql("find arrays"))?
                        .into_iter()
                        .flatten(),
                );
            }
            if there.is_empty() {
                return Ok(());
            }
            let summary = to_json("sources", "summary_id", source)?;
            let summary = interned.text_row(conn, summary.as_bytes())?;
            let diff = match diff {
                Some(diff) => diffs::put(conn, diff, at, most_diffs)?,
                None => None,
            };
            for id in submissions.iter().map(|id| i64::from(id.0)).filter(|id| there.contains(id)) {
                diesel::replace_into(sources::table)
                    .values((
                        sources::job_id.eq(id),
                        sources::taken_us.eq(at.0),
                        sources::summary_id.eq(summary),
                        sources::diff_id.eq(diff),
                    ))
                    .execute(conn)
                    .map_err(StoreError::sql("store the git state of a job"))?;
            }
            Ok(())
        });
        if is_large {
            // The cached pages of a large diff do not help later writes.
            self.conn
                .batch_execute("PRAGMA shrink_memory")
                .map_err(StoreError::sql("release memory"))?;
        }
        stored
    }
}

impl Reader {
    /// Returns the stored git state of a submission's work tree and, if `with_diff` is set, its
    /// diff against the commit.
    ///
    /// # Errors
    /// Fails if the database cannot be read or holds a record that no version of slotd writes.
    pub fn source(
        &mut self,
        submission: JobId,
        with_diff: bool,
    ) -> Result<Option<Kept>, StoreError> {
        let failed = StoreError::sql("read the git state of a job");
        self.conn.transaction(|conn| {
            let found: Option<(i64, i64, Option<i64>)> = sources::table
                .find(i64::from(submission.0))
                .select((sources::taken_us, sources::summary_id, sources::diff_id))
                .first(conn)
                .optional()
                .map_err(&failed)?;
            let Some((at, summary, diff)) = found else { return Ok(None) };
            let summary: Vec<u8> =
                texts::table.find(summary).select(texts::body).first(conn).map_err(&failed)?;
            let mut source: Source =
                from_json("sources", "summary_id", &String::from_utf8_lossy(&summary))?;
            // If there are changes, either the diff or the reason for its absence is present.
            if let Ok(changes) = &mut source.changes
                && diff.is_none()
                && changes.changed > 0
            {
                changes.left_out.get_or_insert_with(|| DELETED.to_owned());
            }
            let diff = diff.filter(|_| with_diff).map(|id| diffs::read(conn, id)).transpose()?;
            Ok(Some((Taken { at: Timestamp(at), source }, diff)))
        })
    }
}

impl Reader {
    /// Returns the work tree snapshots that requests name, with the jobs that run in each.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn snapshots(&mut self) -> Result<BTreeMap<String, Vec<JobId>>, StoreError> {
        let rows: Vec<(Option<String>, i64)> = requests::table
            .inner_join(jobs::table)
            .filter(requests::snapshot.is_not_null())
            .select((requests::snapshot, jobs::job_id))
            .load(&mut self.conn)
            .map_err(StoreError::sql("find work tree snapshots"))?;
        let mut found: BTreeMap<String, Vec<JobId>> = BTreeMap::new();
        for (name, job) in rows {
            found.entry(name.unwrap_or_default()).or_default().push(job_id("jobs", job)?);
        }
        Ok(found)
    }
}

/// Deletes the git state of those of the given submissions that have no records left.
pub(super) fn remove_unused(
    conn: &mut SqliteConnection,
    submissions: &BTreeSet<i64>,
) -> Result<(), StoreError> {
    let failed = StoreError::sql("delete the git state of old jobs");
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
    remove_unused_texts(conn, unused.iter().map(|(_, summary, _)| *summary))?;
    diffs::remove_unused(conn, unused.iter().filter_map(|(.., diff)| *diff))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diffs::Packer;
    use crate::row::Number;
    use crate::testing::{Place, ended_job, insert, put};
    use slotd_model::source::Changes;
    use slotd_model::{ArrayRole, End, Job};
    use std::io::Write;

    fn source(changed: usize) -> Source {
        let changes = Changes { changed, ..Changes::default() };
        Source { commit: Some("0123".to_owned()), branch: None, changes: Ok(changes) }
    }

    fn packed(text: &str) -> PackedDiff {
        let mut packer = Packer::default();
        packer.write_all(text.as_bytes()).unwrap();
        packer.finish().unwrap()
    }

    /// Counts the rows of `texts` and of `diffs`.
    fn counts(store: &mut Store) -> [i64; 2] {
        ["texts", "diffs"].map(|table| {
            let sql = format!("SELECT count(*) AS n FROM {table}");
            diesel::sql_query(sql).get_result::<Number>(&mut store.conn).unwrap().n
        })
    }

    #[test]
    fn equal_texts_are_stored_once_and_deleted_with_their_last_job() {
        let place = Place::new();
        let mut store = place.store();
        let task = |id, task| Job {
            role: ArrayRole::Task { array_job: JobId(10), task },
            ..ended_job(id, End::Completed, 1, 2)
        };
        let jobs = [
            ended_job(1, End::Failed, 1, 2),
            ended_job(2, End::Failed, 1, 2),
            task(11, 0),
            task(12, 1),
        ];
        put(&mut store, jobs.iter().map(insert).collect());
        store
            .put_source(
                &[JobId(1), JobId(7), JobId(10)],
                Timestamp(5),
                &source(1),
                Some(&packed("diff")),
                None,
            )
            .unwrap();
        store
            .put_source(&[JobId(2)], Timestamp(6), &source(1), Some(&packed("diff")), None)
            .unwrap();
        assert_eq!(counts(&mut store), [1, 1]);
        let mut reader = place.reader();
        let mut at = |id| {
            reader
                .source(JobId(id), true)
                .unwrap()
                .map(|(taken, diff)| (taken.at.0, taken.source, diff))
        };
        assert_eq!(at(1), Some((5, source(1), Some(b"diff".to_vec()))));
        assert_eq!(at(2), Some((6, source(1), Some(b"diff".to_vec()))));
        assert_eq!(at(7), None, "there is no such job");
        assert_eq!(at(10), at(1), "one for the array");
        store.remove(&[JobId(1), JobId(2), JobId(11)]).unwrap();
        assert_eq!([at(1), at(2)], [None, None]);
        assert!(at(10).is_some() && counts(&mut store) == [1, 1], "a task of the array is left");
        store.remove(&[JobId(12)]).unwrap();
        assert_eq!((at(10), counts(&mut store)), (None, [0, 0]));
        // A deleted text is stored again.
        put(&mut store, vec![insert(&jobs[0])]);
        store.put_source(&[JobId(1)], Timestamp(5), &source(0), None, None).unwrap();
        assert_eq!(
            place.reader().source(JobId(1), true).unwrap(),
            Some((Taken { at: Timestamp(5), source: source(0) }, None))
        );
    }

    #[test]
    fn the_least_recently_used_diffs_are_deleted_first() {
        let place = Place::new();
        let mut store = place.store();
        let jobs = [1, 2, 3, 4, 5].map(|id| ended_job(id, End::Failed, 1, 2));
        put(&mut store, jobs.iter().map(insert).collect());
        // Incompressible text: a hundred bytes and a little overhead each.
        let noise = |seed: u64| -> String {
            let mut dice = fastrand::Rng::with_seed(seed);
            (0..100).map(|_| dice.alphanumeric()).collect()
        };
        let most = Some(250);
        let mut keep = |job, at, seed| {
            let diff = packed(&noise(seed));
            store.put_source(&[JobId(job)], Timestamp(at), &source(1), Some(&diff), most).unwrap();
            diesel::sql_query("SELECT coalesce(sum(length(body)), 0) AS n FROM diffs")
                .get_result::<Number>(&mut store.conn)
                .unwrap()
                .n
        };
        for (job, at, seed) in [(1, 1, 1), (2, 2, 2), (3, 3, 1), (4, 4, 3)] {
            assert!(keep(job, at, seed) <= 250);
        }
        let mut reader = place.reader();
        let mut at = |id| {
            let (taken, diff) = reader.source(JobId(id), true).unwrap().unwrap();
            (
                taken.source.changes.unwrap().left_out,
                diff.map(|text| String::from_utf8(text).unwrap()),
            )
        };
        assert_eq!(at(2), (Some(DELETED.to_owned()), None), "1 was used again");
        assert_eq!([at(1), at(3), at(4)], [1, 1, 3].map(|seed| (None, Some(noise(seed)))));
        // A diff that is too long on its own is not stored, and all others are deleted.
        let large = packed(&[4, 5, 6, 7].map(noise).concat());
        store.put_source(&[JobId(5)], Timestamp(5), &source(1), Some(&large), most).unwrap();
        assert_eq!(at(5), (Some(DELETED.to_owned()), None));
        store.remove(&[JobId(1), JobId(2), JobId(3), JobId(4), JobId(5)]).unwrap();
        assert_eq!(counts(&mut store), [0, 0]);
    }

    #[test]
    fn uncompressed_diffs_of_older_versions_are_read() {
        let place = Place::new();
        let mut store = place.store();
        put(&mut store, vec![insert(&ended_job(1, End::Failed, 1, 2))]);
        store.put_source(&[JobId(1)], Timestamp(5), &source(1), None, None).unwrap();
        diesel::sql_query("INSERT INTO diffs VALUES (7, 0, 5, 5, 1, CAST('plain' AS BLOB))")
            .execute(&mut store.conn)
            .unwrap();
        diesel::sql_query("UPDATE sources SET diff_id = 7").execute(&mut store.conn).unwrap();
        assert_eq!(
            place.reader().source(JobId(1), true).unwrap().unwrap().1,
            Some(b"plain".to_vec())
        );
    }
}
