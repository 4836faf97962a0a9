//! Deletion of old records and environments.
//!
//! The reader finds the candidates, so that no commit waits for the search. The writer deletes them
//! in small batches and checks each one again. Data shared between records (requests and scripts)
//! is deleted with the last record that uses it.

use crate::error::StoreError;
use crate::intern::remove_unused_texts;
use crate::load;
use crate::row::{Number, from_json, job_id};
use crate::schema::{history, jobs, launches, requests};
use crate::{Reader, Store, sources};
use diesel::connection::SimpleConnection;
use diesel::dsl::{delete, exists, insert_into, not, select};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use diesel::sqlite::SqliteConnection;
use slotd_model::dependency::{Dependency, DependencyTerm};
use slotd_model::{End, Job, JobId, JobRef, JobState, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of pages that one batch returns to the file system.
const PAGES: u32 = 4096;

/// Ended records, split by whether they can be deleted.
#[derive(Debug, Default)]
pub struct EndedRecords {
    /// Records that can be deleted, with their end times.
    pub spare: Vec<(JobId, Timestamp)>,
    /// Records that must be kept: a pending job depends on them, or their array has a task that has
    /// not ended or ended too recently.
    pub needed: Vec<JobId>,
}

fn ended() -> Vec<&'static str> {
    End::ALL.iter().map(|end| end.name()).collect()
}

#[diesel::dsl::auto_type]
fn completed_by_end() -> _ {
    let name: &'static str = End::Completed.name();
    let is_completed = jobs::end_us.is_not_null().and(jobs::state.eq(name));
    jobs::table.filter(is_completed).order(jobs::end_us.desc()).select(jobs::job_id)
}

#[derive(QueryableByName)]
struct DependencyText {
    #[diesel(sql_type = Text)]
    text: String,
}

impl Reader {
    /// Counts the pending records. The waiting tasks of an array count as one record.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn count_waiting(&mut self) -> Result<i64, StoreError> {
        let waiting = jobs::table.filter(jobs::state.eq(JobState::Pending.name()));
        waiting
            .count()
            .get_result(&mut self.conn)
            .map_err(StoreError::sql("count the waiting jobs"))
    }

    /// Returns the IDs of all records, sorted.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn numbers(&mut self) -> Result<Vec<JobId>, StoreError> {
        let ids: Vec<i64> = jobs::table
            .select(jobs::job_id)
            .order(jobs::job_id)
            .load(&mut self.conn)
            .map_err(StoreError::sql("read the job IDs"))?;
        ids.into_iter().map(|id| job_id("jobs", id)).collect()
    }

    /// Skips the `keep` most recently ended records and returns the end time of the next one, or
    /// `None` if there are no more.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn end_beyond(&mut self, keep: u64) -> Result<Option<Timestamp>, StoreError> {
        let end: Option<Option<i64>> = jobs::table
            .filter(jobs::state.eq_any(ended()).and(jobs::end_us.is_not_null()))
            .order(jobs::end_us.desc())
            .offset(i64::try_from(keep).unwrap_or(i64::MAX))
            .select(jobs::end_us)
            .first(&mut self.conn)
            .optional()
            .map_err(StoreError::sql("read when jobs ended"))?;
        Ok(end.flatten().map(Timestamp))
    }

    /// Returns the earliest end time of any ended record.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn first_end(&mut self) -> Result<Option<Timestamp>, StoreError> {
        let end: Option<i64> = jobs::table
            .filter(jobs::end_us.is_not_null().and(jobs::state.eq_any(ended())))
            .order(jobs::end_us)
            .select(jobs::end_us.assume_not_null())
            .first(&mut self.conn)
            .optional()
            .map_err(StoreError::sql("read when jobs ended"))?;
        Ok(end.map(Timestamp))
    }

    /// Returns the most recently completed records, at most `count`, sorted by end time.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn completed_last(&mut self, count: usize) -> Result<Vec<Job>, StoreError> {
        let ids: Vec<i64> = completed_by_end()
            .limit(i64::try_from(count).unwrap_or(i64::MAX))
            .load(&mut self.conn)
            .map_err(StoreError::sql("find the last completed jobs"))?;
        let ids = ids.into_iter().map(|id| job_id("jobs", id)).collect::<Result<Vec<_>, _>>()?;
        let (mut found, _) = load::assemble::<Job>(&mut self.conn, &ids)?;
        found.sort_by_key(|job| job.run.end);
        Ok(found)
    }

    /// Returns the records that ended before `before`, sorted by ID.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn ended_before(&mut self, before: Timestamp) -> Result<EndedRecords, StoreError> {
        self.conn.transaction(|conn| {
            let rows: Vec<(i64, Option<i64>, Option<i64>)> = jobs::table
                .filter(jobs::state.eq_any(ended()).and(jobs::end_us.lt(before.0)))
                .select((jobs::job_id, jobs::array_job_id, jobs::end_us))
                .order(jobs::job_id)
                .load(conn)
                .map_err(StoreError::sql("find old jobs"))?;
            let named = named_by_pending(conn)?;
            let whole = whole_arrays(conn, rows.iter().filter_map(|(_, array, _)| *array), before)?;
            let mut old = EndedRecords::default();
            for (id, array, end) in rows {
                let is_named =
                    named.contains(&id) || array.is_some_and(|array| named.contains(&array));
                let job = job_id("jobs", id)?;
                if !is_named && array.is_none_or(|array| whole.contains(&array)) {
                    old.spare.push((job, Timestamp(end.unwrap_or_default())));
                } else {
                    old.needed.push(job);
                }
            }
            Ok(old)
        })
    }

    /// Returns the submissions that still have an environment and whose jobs all ended before
    /// `before`.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn environments_before(&mut self, before: Timestamp) -> Result<Vec<JobId>, StoreError> {
        self.conn.transaction(|conn| {
            let rows: Vec<(i64, Option<i64>)> = launches::table
                .inner_join(jobs::table.on(jobs::job_id.eq(launches::job_id)))
                .filter(launches::env_id.is_not_null())
                .filter(jobs::state.eq_any(ended()).and(jobs::end_us.lt(before.0)))
                .select((jobs::job_id, jobs::array_job_id))
                .order(jobs::job_id)
                .load(conn)
                .map_err(StoreError::sql("find old environments"))?;
            let whole = whole_arrays(conn, rows.iter().filter_map(|(_, array)| *array), before)?;
            let is_over = |array: &Option<i64>| array.is_none_or(|array| whole.contains(&array));
            rows.into_iter()
                .filter(|(_, array)| is_over(array))
                .map(|(id, _)| job_id("launches", id))
                .collect()
        })
    }

    /// Returns the earliest end time of any ended record that still has an environment.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn first_end_with_environment(&mut self) -> Result<Option<Timestamp>, StoreError> {
        let end: Option<i64> = launches::table
            .inner_join(jobs::table.on(jobs::job_id.eq(launches::job_id)))
            .filter(launches::env_id.is_not_null())
            .filter(jobs::state.eq_any(ended()))
            .select(diesel::dsl::min(jobs::end_us))
            .first(&mut self.conn)
            .map_err(StoreError::sql("find environments"))?;
        Ok(end.map(Timestamp))
    }

    /// Returns the IDs of all records of these submissions, which are the ones that have job
    /// directories.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn records_of(&mut self, submissions: &[JobId]) -> Result<Vec<JobId>, StoreError> {
        let mut found: BTreeSet<JobId> = submissions.iter().copied().collect();
        for some in submissions.chunks(load::CHUNK) {
            let arrays: Vec<i64> = some.iter().map(|id| i64::from(id.0)).collect();
            let ids: Vec<i64> = jobs::table
                .filter(jobs::array_job_id.eq_any(arrays))
                .select(jobs::job_id)
                .load(&mut self.conn)
                .map_err(StoreError::sql("read the tasks of arrays"))?;
            for id in ids {
                found.insert(job_id("jobs", id)?);
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Returns the first of the named jobs that cannot run again because it was launched before and
    /// its environment has been deleted since.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn without_environment(&mut self, named: &JobRef) -> Result<Option<JobId>, StoreError> {
        for key in load::named_keys(&mut self.conn, std::slice::from_ref(named))? {
            if let Some((_, None)) = load::launch_row(&mut self.conn, key.id)? {
                return Ok(Some(key.id));
            }
        }
        Ok(None)
    }
}

/// Returns the job IDs in the dependencies of pending jobs.
fn named_by_pending(conn: &mut SqliteConnection) -> Result<BTreeSet<i64>, StoreError> {
    let texts: Vec<DependencyText> = diesel::sql_query(
        "SELECT DISTINCT requests.body -> '$.dependency' AS text FROM jobs JOIN requests USING (request_id) \
         WHERE jobs.end_us IS NULL AND jobs.state = 'PENDING' AND requests.body -> '$.dependency' IS NOT NULL",
    )
    .load(conn)
    .map_err(StoreError::sql("read the dependencies of pending jobs"))?;
    let mut named = BTreeSet::new();
    for text in texts {
        let dependency: Dependency = from_json("requests", "body", &text.text)?;
        named.extend(dependency.terms.iter().filter_map(|term| match term {
            DependencyTerm::On { job, .. } => Some(i64::from(job.job.0)),
            DependencyTerm::Singleton => None,
        }));
    }
    Ok(named)
}

/// Returns those of the given arrays whose records all ended before `before`.
fn whole_arrays(
    conn: &mut SqliteConnection,
    arrays: impl Iterator<Item = i64>,
    before: Timestamp,
) -> Result<BTreeSet<i64>, StoreError> {
    let mut whole = BTreeMap::new();
    for array in arrays {
        if whole.contains_key(&array) {
            continue;
        }
        let is_young = not(jobs::state.eq_any(ended())).or(jobs::end_us.ge(before.0));
        let has_young: bool =
            select(exists(jobs::table.filter(jobs::array_job_id.eq(array)).filter(is_young)))
                .get_result(conn)
                .map_err(StoreError::sql("check whether an array has ended"))?;
        whole.insert(array, !has_young);
    }
    Ok(whole.into_iter().filter(|(_, is_whole)| *is_whole).map(|(array, _)| array).collect())
}

impl Store {
    /// Deletes those of the given records that have ended, along with the data that only they use,
    /// in one transaction. Returns the number of deleted records.
    ///
    /// # Errors
    /// Fails if the database cannot be written. Nothing is deleted in that case.
    pub fn remove(&mut self, ids: &[JobId]) -> Result<usize, StoreError> {
        let removed = self.transaction(|conn, _| {
            let mut removed = 0;
            for some in ids.chunks(load::CHUNK) {
                removed += remove_some(conn, some)?;
            }
            Ok(removed)
        });
        self.note_deletion();
        removed
    }

    /// Deletes the environments of these submissions in one transaction.
    ///
    /// # Errors
    /// Fails if the database cannot be written. Nothing is deleted in that case.
    pub fn drop_environments(&mut self, submissions: &[JobId]) -> Result<(), StoreError> {
        let dropped = self.transaction(|conn, _| {
            for some in submissions.chunks(load::CHUNK) {
                let ids: Vec<i64> = some.iter().map(|id| i64::from(id.0)).collect();
                let of_these = || launches::table.filter(launches::job_id.eq_any(&ids));
                let old: Vec<Option<i64>> = of_these()
                    .select(launches::env_id)
                    .load(conn)
                    .map_err(StoreError::sql("find the environments to delete"))?;
                diesel::update(of_these())
                    .set(launches::env_id.eq(None::<i64>))
                    .execute(conn)
                    .map_err(StoreError::sql("delete environments"))?;
                remove_unused_texts(conn, old.into_iter().flatten())?;
            }
            Ok(())
        });
        self.note_deletion();
        dropped
    }

    /// Returns a limited number of free pages to the file system. Returns whether there may be
    /// more.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub fn shrink(&mut self) -> Result<bool, StoreError> {
        self.replace_suspect()?;
        let shrunk = self.return_free_pages();
        shrunk.inspect_err(|error| self.suspect(error))
    }

    fn return_free_pages(&mut self) -> Result<bool, StoreError> {
        let failed = StoreError::sql("return free pages");
        self.conn.batch_execute(&format!("PRAGMA incremental_vacuum({PAGES})")).map_err(&failed)?;
        let free: i64 = diesel::sql_query("SELECT freelist_count AS n FROM pragma_freelist_count")
            .get_result::<Number>(&mut self.conn)
            .map_err(&failed)?
            .n;
        let mode: i64 = diesel::sql_query("SELECT auto_vacuum AS n FROM pragma_auto_vacuum")
            .get_result::<Number>(&mut self.conn)
            .map_err(&failed)?
            .n;
        Ok(free > 0 && mode != 0)
    }
}

fn remove_some(conn: &mut SqliteConnection, ids: &[JobId]) -> Result<usize, StoreError> {
    let failed = StoreError::sql("delete old jobs");
    let ids: Vec<i64> = ids.iter().map(|id| i64::from(id.0)).collect();
    let old = jobs::table.filter(jobs::job_id.eq_any(ids).and(jobs::state.eq_any(ended())));
    let rows: Vec<(i64, Option<i64>, i64)> = old
        .select((jobs::job_id, jobs::array_job_id, jobs::request_id))
        .load(conn)
        .map_err(&failed)?;
    let gone: Vec<i64> = rows.iter().map(|(id, ..)| *id).collect();
    let Some(last) = gone.iter().max() else { return Ok(0) };
    insert_into(history::table)
        .values((history::id.eq(1), history::last_job_id.eq(*last)))
        .on_conflict(history::id)
        .do_update()
        .set(
            history::last_job_id
                .eq(diesel::dsl::sql::<BigInt>("max(last_job_id, excluded.last_job_id)")),
        )
        .execute(conn)
        .map_err(&failed)?;
    delete(jobs::table.filter(jobs::job_id.eq_any(&gone))).execute(conn).map_err(&failed)?;
    remove_unused_requests(conn, rows.iter().map(|(.., request)| *request))?;
    // The texts of an array are stored under its ID and shared by all its tasks.
    let arrays = rows.iter().filter_map(|(_, array, _)| *array);
    let submissions: BTreeSet<i64> = gone.iter().copied().chain(arrays).collect();
    remove_unused_launches(conn, &submissions)?;
    sources::remove_unused(conn, &submissions)?;
    Ok(gone.len())
}

fn remove_unused_requests(
    conn: &mut SqliteConnection,
    ids: impl Iterator<Item = i64>,
) -> Result<(), StoreError> {
    let ids: BTreeSet<i64> = ids.collect();
    let is_used = exists(jobs::table.filter(jobs::request_id.eq(requests::request_id)));
    delete(requests::table.filter(requests::request_id.eq_any(ids)).filter(not(is_used)))
        .execute(conn)
        .map_err(StoreError::sql("delete the requests of old jobs"))?;
    Ok(())
}

fn remove_unused_launches(
    conn: &mut SqliteConnection,
    submissions: &BTreeSet<i64>,
) -> Result<(), StoreError> {
    let failed = StoreError::sql("delete the launch records of old jobs");
    let own = exists(jobs::table.filter(jobs::job_id.eq(launches::job_id)));
    let of_array = exists(jobs::table.filter(jobs::array_job_id.eq(launches::job_id.nullable())));
    let unused: Vec<(i64, i64, Option<i64>)> = launches::table
        .filter(launches::job_id.eq_any(submissions))
        .filter(not(own))
        .filter(not(of_array))
        .select((launches::job_id, launches::script_id, launches::env_id))
        .load(conn)
        .map_err(&failed)?;
    let ids: Vec<i64> = unused.iter().map(|(id, ..)| *id).collect();
    delete(launches::table.filter(launches::job_id.eq_any(ids))).execute(conn).map_err(&failed)?;
    remove_unused_texts(
        conn,
        unused.into_iter().flat_map(|(_, script, env)| [Some(script), env]).flatten(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Place, all, ended_job, insert, insert_with, job, put, step};
    use slotd_model::array::{TaskRange, TaskSet};
    use slotd_model::change::Change;
    use slotd_model::dependency::DependencyKind;
    use slotd_model::{ArrayRole, Job, JobRequest, StepId};
    use std::sync::Arc;

    fn count(store: &mut Store, table: &str) -> i64 {
        diesel::sql_query(format!("SELECT count(*) AS n FROM {table}"))
            .get_result::<Number>(&mut store.conn)
            .unwrap()
            .n
    }

    fn ids(jobs: &[Job]) -> Vec<u32> {
        jobs.iter().map(|job| job.id.0).collect()
    }

    fn numbers(found: &[JobId]) -> Vec<u32> {
        found.iter().map(|id| id.0).collect()
    }

    fn done(id: u32, end_secs: i64) -> Job {
        ended_job(id, End::Completed, 1, end_secs)
    }

    fn task(id: u32, task: u32, end_secs: i64) -> Job {
        Job { role: ArrayRole::Task { array_job: JobId(10), task }, ..done(id, end_secs) }
    }

    /// Many ranges are read with one statement.
    #[test]
    fn exactly_the_named_tasks_are_found() {
        let place = Place::new();
        let mut store = place.store();
        put(&mut store, (0..200).map(|n| insert(&task(1000 + n, n, 100))).collect());
        for step in [2, 5] {
            let odd = (1..200).step_by(step).filter_map(|n| TaskRange::new(n, n, 1));
            let named = JobRef {
                tasks: Some(TaskSet::from_ranges(odd.collect())),
                ..JobRef::job(JobId(10))
            };
            let found = load::named_keys(&mut store.conn, &[named]).unwrap();
            let wanted: Vec<u32> = (1001..1200).step_by(step).collect();
            assert_eq!(found.iter().map(|key| key.id.0).collect::<Vec<_>>(), wanted);
        }
    }

    #[test]
    fn the_last_completed_jobs_are_found_by_end_time() {
        let place = Place::new();
        let mut store = place.store();
        let failed = ended_job(3, End::Failed, 1, 300);
        put(
            &mut store,
            [done(1, 400), done(2, 100), failed, done(4, 200), job(5)].iter().map(insert).collect(),
        );
        let mut reader = place.reader();
        assert_eq!(ids(&reader.completed_last(2).unwrap()), [4, 1]);
        assert_eq!(ids(&reader.completed_last(9).unwrap()), [2, 4, 1]);
        let query = completed_by_end().limit(1);
        let sql = format!(
            "EXPLAIN QUERY PLAN {}",
            diesel::debug_query::<diesel::sqlite::Sqlite, _>(&query)
        );
        let plan: Vec<Plan> = diesel::sql_query(sql).load(&mut store.conn).unwrap();
        assert!(
            plan.iter()
                .all(|step| step.detail.contains("USING") && step.detail.contains("jobs_by_end")),
            "{plan:?}"
        );
    }

    #[derive(QueryableByName, Debug)]
    struct Plan {
        #[diesel(sql_type = Text)]
        detail: String,
    }

    #[test]
    fn only_old_records_that_nothing_needs_may_be_deleted() {
        let place = Place::new();
        let mut store = place.store();
        let on = |id| DependencyTerm::On {
            kind: DependencyKind::AfterOk,
            job: JobRef::job(JobId(id)),
            delay_minutes: 0,
        };
        let dependency = Dependency { terms: vec![on(3), on(20)], any: false };
        let waits =
            Job { request: Arc::new(JobRequest { dependency, ..JobRequest::default() }), ..job(5) };
        let other = |id, array: u32| Job {
            role: ArrayRole::Task { array_job: JobId(array), task: 0 },
            ..done(id, 9)
        };
        let young = task(12, 1, 30);
        let jobs = [
            done(1, 10),
            done(2, 30),
            done(3, 10),
            job(4),
            waits,
            task(10, 0, 10),
            young,
            other(21, 20),
            other(30, 30),
        ];
        put(&mut store, jobs.iter().map(insert).collect());
        let mut reader = place.reader();
        let mut old = |secs| {
            let old = reader.ended_before(Timestamp::from_secs(secs)).unwrap();
            [old.spare.into_iter().map(|(id, _)| id).collect(), old.needed]
        };
        assert_eq!(old(20).map(|ids| numbers(&ids)), [vec![1, 30], vec![3, 10, 21]]);
        assert_eq!(old(31).map(|ids| numbers(&ids)), [vec![1, 2, 10, 12, 30], vec![3, 21]]);
        assert_eq!(reader.end_beyond(2).unwrap(), Some(Timestamp::from_secs(10)));
        assert_eq!(reader.end_beyond(7).unwrap(), None);
        assert_eq!(reader.first_end().unwrap(), Some(Timestamp::from_secs(9)));
    }

    #[test]
    fn deleting_a_record_keeps_shared_data() {
        let place = Place::new();
        let mut store = place.store();
        let shared = done(1, 10).request;
        let jobs = [done(1, 10), Job { request: shared, ..done(2, 10) }, done(3, 10), job(4)];
        put(
            &mut store,
            jobs.iter()
                .map(|job| insert_with(job, b"script", format!("{}", job.id).as_bytes()))
                .collect(),
        );
        put(
            &mut store,
            vec![Change::PutStep { job: JobId(1), step: Box::new(step(StepId::Num(0))) }],
        );
        assert_eq!(store.remove(&[JobId(1), JobId(3), JobId(4)]).unwrap(), 2, "4 has not ended");
        assert_eq!(ids(&all(&mut store)), [2, 4]);
        let counts =
            ["requests", "launches", "texts", "steps"].map(|table| count(&mut store, table));
        assert_eq!(counts, [2, 2, 3, 0]);
        store.remove(&[JobId(2)]).unwrap();
        assert_eq!(
            ["requests", "launches", "texts"].map(|table| count(&mut store, table)),
            [1, 1, 2]
        );
        // Deleted texts are written again when a new job needs them.
        put(&mut store, vec![insert_with(&jobs[0], b"script", b"1")]);
        assert_eq!(ids(&all(&mut store)), [1, 4]);
    }

    #[test]
    fn the_texts_of_an_array_are_kept_until_its_last_task_is_deleted() {
        let place = Place::new();
        let mut store = place.store();
        let rest =
            Job { role: ArrayRole::Rest { tasks: TaskSet::one(3), limit: None }, ..done(10, 10) };
        put(&mut store, vec![insert_with(&rest, b"script", b"env"), insert(&task(11, 0, 10))]);
        store.remove(&[JobId(10)]).unwrap();
        assert_eq!(store.launch_texts(JobId(11)).unwrap().unwrap().script, b"script");
        store.remove(&[JobId(11)]).unwrap();
        assert_eq!(["jobs", "launches", "texts"].map(|table| count(&mut store, table)), [0, 0, 0]);
    }

    #[test]
    fn the_id_of_a_deleted_record_is_not_reused() {
        let place = Place::new();
        let mut store = place.store();
        put(&mut store, vec![insert(&done(7, 10)), insert(&done(3, 10))]);
        store.remove(&[JobId(7)]).unwrap();
        store.remove(&[JobId(3)]).unwrap();
        assert_eq!(place.store().next_job_id().unwrap(), JobId(8));
    }

    #[test]
    fn a_deleted_environment_is_overwritten() {
        let place = Place::new();
        let mut store = place.store();
        let env = b"TOKEN=very-secret-indeed\0".repeat(400);
        let jobs = [done(1, 10), done(2, 30), job(3)];
        put(
            &mut store,
            jobs.iter()
                .map(|job| insert_with(job, b"script", &[&env, &[job.id.0 as u8][..]].concat()))
                .collect(),
        );
        let mut reader = place.reader();
        let old = reader.environments_before(Timestamp::from_secs(20)).unwrap();
        assert_eq!(numbers(&old), [1]);
        assert_eq!(reader.without_environment(&JobRef::job(JobId(1))).unwrap(), None);
        store.drop_environments(&[JobId(1), JobId(2), JobId(3)]).unwrap();
        assert_eq!(reader.without_environment(&JobRef::job(JobId(1))).unwrap(), Some(JobId(1)));
        assert_eq!(reader.first_end_with_environment().unwrap(), None);
        let texts = store.launch_texts(JobId(1)).unwrap().unwrap();
        assert_eq!((texts.script.as_slice(), texts.env.len()), (&b"script"[..], 0));
        drop((store, reader));
        let bytes = std::fs::read(place.path()).unwrap();
        assert!(
            !bytes.windows(11).any(|bytes| bytes == b"very-secret"),
            "the text is still in the file"
        );
    }

    #[test]
    fn deleting_records_shrinks_the_file() {
        let place = Place::new();
        let mut store = place.store();
        let jobs: Vec<Job> = (1..200).map(|id| done(id, 10)).collect();
        put(
            &mut store,
            jobs.iter().map(|job| insert_with(job, &[job.id.0 as u8; 9000], b"")).collect(),
        );
        store.remove(&jobs.iter().map(|job| job.id).collect::<Vec<_>>()).unwrap();
        while store.shrink().unwrap() {}
        drop(store);
        let size = std::fs::metadata(place.path()).unwrap().len();
        assert!(size < 200_000, "{size} bytes");
    }
}
