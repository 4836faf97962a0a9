//! The writer of the database: commits changes, and answers what has to be known before a change is made.
//!
//! There is one in the daemon. It does not look at what a change means.

use crate::model::change::{Change, LaunchTexts, Texts};
use crate::model::{Job, JobId, StepId, Timestamp};
use crate::store::error::StoreError;
use crate::store::intern::{RequestCache, text_row};
use crate::store::row::{JobRow, RunRow, StepRow};
use crate::store::schema::{jobs, launches, steps};
use crate::store::{load, open, runs};
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
    /// batch is tried once more by itself, in their order, up to the first at which SQLite fails again. What comes
    /// after that one is answered with the same error and was not stored: a later state of a job never goes before
    /// an earlier one.
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
                let mut failure = None;
                let each = batches.iter().map(|batch| {
                    if let Some(failure) = &failure {
                        return Err(StoreError::clone(failure));
                    }
                    let answer = self.commit_one(batch);
                    failure = answer.as_ref().err().filter(|e| e.ends_transaction()).cloned();
                    answer
                });
                each.collect()
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

    /// As if the disk had this many pages for the database, for as long as the connection lasts.
    #[cfg(test)]
    pub fn limit_pages(&mut self, pages: u32) {
        use diesel::connection::SimpleConnection as _;
        self.conn.batch_execute(&format!("PRAGMA max_page_count = {pages}")).unwrap();
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
    ///
    /// # Errors
    /// There is no such job, or the database can't be read.
    pub fn launch_texts(&mut self, job: JobId) -> Result<Option<LaunchTexts>, StoreError> {
        load::launch_texts(&mut self.conn, job)
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
        Change::DropStep { job, step } => drop_step(conn, *job, *step),
        Change::EndRun { job, run } => runs::put(conn, &RunRow::new(*job, run)?),
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

fn drop_step(conn: &mut SqliteConnection, job: JobId, step: StepId) -> Result<(), StoreError> {
    diesel::delete(steps::table.find((i64::from(job.0), step.to_string())))
        .execute(conn)
        .map_err(StoreError::sql("delete a step"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::array::TaskSet;
    use crate::model::{ArrayRole, JobRequest, JobState, StepId};
    use crate::store::testing::{Place, all, any_job, any_jobs, ended_job, insert, insert_with, job, put, step};
    use diesel::connection::SimpleConnection;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn count(store: &mut Store, table: &str) -> i64 {
        #[derive(QueryableByName)]
        struct Count {
            #[diesel(sql_type = diesel::sql_types::BigInt)]
            n: i64,
        }
        diesel::sql_query(format!("SELECT count(*) AS n FROM {table}")).get_result::<Count>(&mut store.conn).unwrap().n
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn what_is_stored_is_loaded_again_by_another_daemon(jobs in any_jobs(6)) {
            let place = Place::new();
            put(&mut place.store(), jobs.iter().map(insert).collect());
            prop_assert_eq!(all(&mut place.store()), jobs);
        }

        #[test]
        fn an_update_replaces_all_but_the_steps(before in any_job(1), after in any_job(1)) {
            let place = Place::new();
            let mut store = place.store();
            put(&mut store, vec![insert(&before)]);
            put(&mut store, vec![Change::Update(Box::new(after.clone()))]);
            let expected = Job { steps: before.steps.clone(), ..after };
            prop_assert_eq!(all(&mut place.store()), vec![expected]);
        }
    }

    #[test]
    fn only_live_and_lately_ended_jobs_are_loaded_at_start() {
        let place = Place::new();
        let mut store = place.store();
        let jobs = [ended_job(1, JobState::Failed, 10, 20), ended_job(2, JobState::Completed, 10, 30), job(3)];
        put(&mut store, jobs.iter().map(insert).collect());
        let ids: Vec<u32> = store.load_live(Timestamp::from_secs(30)).unwrap().iter().map(|job| job.id.0).collect();
        assert_eq!(ids, [2, 3]);
    }

    #[test]
    fn a_step_is_inserted_then_replaced() {
        let place = Place::new();
        let mut store = place.store();
        put(&mut store, vec![insert(&job(1))]);
        let mut steps = [step(StepId::Num(10)), step(StepId::Num(2)), step(StepId::Batch)];
        put(&mut store, steps.iter().map(|s| Change::PutStep { job: JobId(1), step: Box::new(s.clone()) }).collect());
        steps[0].state = JobState::Completed;
        put(&mut store, vec![Change::PutStep { job: JobId(1), step: Box::new(steps[0].clone()) }]);
        let loaded = all(&mut store).remove(0).steps;
        assert_eq!(loaded, [steps[2].clone(), steps[1].clone(), steps[0].clone()]);
    }

    #[test]
    fn a_batch_that_contradicts_the_store_leaves_the_others_alone() {
        let place = Place::new();
        let mut store = place.store();
        let answers = store.commit(&[
            vec![insert(&job(1))],
            vec![insert(&job(2)), insert(&job(1))],
            vec![Change::Update(Box::new(job(9)))],
            vec![Change::PutStep { job: JobId(9), step: Box::new(step(StepId::Batch)) }],
            vec![insert(&job(3))],
        ]);
        assert_eq!(answers[0], Ok(()));
        assert!(matches!(answers[1], Err(StoreError::Conflict { .. })), "{:?}", answers[1]);
        assert_eq!(answers[2], Err(StoreError::Missing { what: "job 9".to_owned() }));
        assert!(matches!(answers[3], Err(StoreError::Conflict { .. })), "{:?}", answers[3]);
        assert_eq!(answers[4], Ok(()));
        assert_eq!(all(&mut store), [job(1), job(3)]);
    }

    #[test]
    fn a_full_disk_keeps_what_fits_and_the_order() {
        let place = Place::new();
        let mut store = place.store();
        put(&mut store, vec![insert(&job(1))]);
        // The limit holds for this connection, so it is gone after the store has recovered.
        store.conn.batch_execute("PRAGMA max_page_count = 40").unwrap();
        let large = vec![1; 1 << 20];
        let alone = store.commit(&[vec![insert(&job(2)), insert_with(&job(3), &large, b"")]]).remove(0);
        assert!(matches!(&alone, Err(StoreError::Full { .. })), "{alone:?}");
        assert_eq!(all(&mut store), [job(1)], "nothing of the batch is left");

        store.conn.batch_execute("PRAGMA max_page_count = 40").unwrap();
        let answers =
            store.commit(&[vec![insert(&job(2))], vec![insert_with(&job(3), &large, b"")], vec![insert(&job(4))]]);
        // The connection is new after the group has failed, and has no limit any more.
        assert_eq!(answers, [Ok(()), Ok(()), Ok(())]);
        assert_eq!(all(&mut store), [job(1), job(2), job(3), job(4)]);
    }

    #[test]
    fn a_request_that_was_rolled_back_is_written_again() {
        let place = Place::new();
        let mut store = place.store();
        put(&mut store, vec![insert(&job(1))]);
        let new = job(2);
        let answers = store.commit(&[vec![insert(&new), insert(&job(1))], vec![insert(&new)]]);
        assert!(answers[0].is_err());
        assert_eq!(answers[1], Ok(()));
        assert_eq!(all(&mut place.store()), [job(1), new]);
    }

    #[test]
    fn equal_texts_and_equal_requests_are_stored_once() {
        let place = Place::new();
        let mut store = place.store();
        let request = Arc::clone(&job(1).request);
        for id in 1..=500 {
            // As they come from the wire: equal, but each in its own place.
            let job = Job { request: Arc::new(JobRequest::clone(&request)), ..job(id) };
            put(&mut store, vec![insert_with(&job, b"#!/bin/sh\n", b"HOME=/root\0")]);
        }
        assert_eq!((count(&mut store, "texts"), count(&mut store, "requests")), (2, 1));
        let jobs = all(&mut store);
        assert!(jobs.iter().all(|job| Arc::ptr_eq(&job.request, &jobs[0].request)));
    }

    #[test]
    fn a_request_that_was_changed_in_place_is_noticed() {
        let place = Place::new();
        let mut store = place.store();
        let mut job = job(1);
        put(&mut store, vec![insert(&job)]);
        Arc::make_mut(&mut job.request).name = "renamed".to_owned();
        put(&mut store, vec![Change::Update(Box::new(job.clone()))]);
        assert_eq!(all(&mut place.store()), [job]);
    }

    #[test]
    fn a_task_has_the_texts_of_its_array() {
        let place = Place::new();
        let mut store = place.store();
        let rest = Job { role: ArrayRole::Rest { tasks: TaskSet::one(4), limit: None }, ..job(1) };
        let task = Job { role: ArrayRole::Task { array_job: JobId(1), task: 3 }, ..job(2) };
        let other = job(3);
        put(
            &mut store,
            vec![
                insert_with(&rest, b"script", b"env"),
                Change::Insert { job: Box::new(task), texts: Texts::SameAs(JobId(1)) },
                // Not of the array: it gets a row of its own, also when it borrows from a task.
                Change::Insert { job: Box::new(other), texts: Texts::SameAs(JobId(2)) },
                insert(&job(4)),
            ],
        );
        let texts = Some(LaunchTexts { script: b"script".to_vec(), env: b"env".to_vec() });
        for id in 1..=3 {
            assert_eq!(store.launch_texts(JobId(id)).unwrap(), texts, "job {id}");
        }
        assert_eq!(count(&mut store, "launches"), 2);
        assert_eq!(store.launch_texts(JobId(4)).unwrap(), None);
        assert_eq!(store.launch_texts(JobId(5)), Err(StoreError::Missing { what: "job 5".to_owned() }));
    }

    #[test]
    fn job_numbers_begin_at_one_and_follow_the_largest() {
        let place = Place::new();
        let mut store = place.store();
        assert_eq!(store.next_job_id().unwrap(), JobId(1));
        put(&mut store, vec![insert(&ended_job(41, JobState::Completed, 1, 2)), insert(&job(7))]);
        assert_eq!(store.next_job_id().unwrap(), JobId(42));
        put(&mut store, vec![insert(&job(u32::MAX))]);
        assert!(store.next_job_id().is_err());
    }
}
