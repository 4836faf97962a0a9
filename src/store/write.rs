//! The writer of the database: commits changes, and answers what has to be known before a change is made.
//!
//! There is one in the daemon. It does not look at what a change means.

use crate::model::change::{Change, LaunchTexts, Texts};
use crate::model::query::EndedJob;
use crate::model::{Job, JobId, JobRef, StepId, Timestamp};
use crate::store::error::StoreError;
use crate::store::intern::{RequestCache, text_row};
use crate::store::row::{JobRow, StepRow};
use crate::store::schema::{jobs, launches, steps, texts};
use crate::store::{load, open, runs};
use diesel::dsl::{exists, not};
use diesel::prelude::*;
use diesel::sqlite::{Sqlite, SqliteConnection};
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
    pub(crate) fn limit_pages(&mut self, pages: u32) {
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
        Change::DropStep { job, step } => drop_step(conn, *job, *step),
        Change::EndRun { job, run } => runs::put(conn, *job, run),
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

fn drop_step(conn: &mut SqliteConnection, job: JobId, step: StepId) -> Result<(), StoreError> {
    diesel::delete(steps::table.find((i64::from(job.0), step.to_string())))
        .execute(conn)
        .map_err(StoreError::sql("delete a step"))?;
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
    let mut freed: Vec<Option<i64>> =
        unneeded(before).select(launches::env_id).distinct().load(conn).map_err(&failed)?;
    let dropped = diesel::update(launches::table)
        .filter(launches::job_id.eq_any(unneeded(before).select(launches::job_id)))
        .set(launches::env_id.eq(None::<i64>))
        .execute(conn)
        .map_err(&failed)?;
    for env in freed.drain(..).flatten() {
        let uses = launches::table.filter(launches::env_id.eq(env).or(launches::script_id.eq(env)));
        let used: bool = diesel::select(exists(uses)).get_result(conn).map_err(&failed)?;
        if !used {
            diesel::delete(texts::table.find(env)).execute(conn).map_err(&failed)?;
        }
    }
    Ok(dropped)
}

type LaunchQuery<'a> = diesel::dsl::IntoBoxed<'a, launches::table, Sqlite>;

/// Submissions that keep an environment although no job of theirs (the job itself, the tasks of the array) is
/// live or ended at `before` or later.
fn unneeded<'a>(before: Timestamp) -> LaunchQuery<'a> {
    let recent = || jobs::state.eq_any(load::live_states()).or(jobs::end_us.assume_not_null().ge(before.0));
    let own = jobs::table.filter(jobs::job_id.eq(launches::job_id).and(recent()));
    let tasks = jobs::table.filter(jobs::array_job_id.assume_not_null().eq(launches::job_id).and(recent()));
    launches::table
        .filter(launches::env_id.is_not_null())
        .filter(not(exists(own)))
        .filter(not(exists(tasks)))
        .into_boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::array::TaskSet;
    use crate::model::{ArrayRole, JobRequest, JobState, StepId, Tres};
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
    fn a_number_too_large_for_its_column_is_an_error_that_names_it() {
        let place = Place::new();
        let huge = Job { tres: Tres { mem_mb: u64::MAX, ..Tres::ZERO }, ..job(1) };
        let answer = place.store().commit(&[vec![insert(&huge)]]).remove(0);
        assert_eq!(
            answer.unwrap_err().to_string(),
            "cannot store 18446744073709551615 in jobs.mem_mb: the number is too large"
        );
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

        // The record of the rest may go before its tasks.
        put(&mut store, vec![Change::Delete(JobId(1))]);
        assert_eq!(store.launch_texts(JobId(2)).unwrap(), texts);
    }

    #[test]
    fn a_deleted_record_takes_its_steps_and_texts_with_it() {
        let place = Place::new();
        let mut store = place.store();
        let gone = Job { steps: vec![step(StepId::Batch)], ..job(2) };
        put(&mut store, vec![insert(&job(1)), insert_with(&gone, b"", b"")]);
        put(&mut store, vec![Change::Delete(JobId(2)), Change::Delete(JobId(7))]);
        assert_eq!(all(&mut store), [job(1)]);
        assert_eq!((count(&mut store, "steps"), count(&mut store, "launches")), (0, 0));
        assert_eq!(store.next_job_id().unwrap(), JobId(2));
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

    #[test]
    fn environments_go_when_the_last_job_that_needs_them_has_long_ended() {
        let place = Place::new();
        let mut store = place.store();
        let of = |id, array| ArrayRole::Task { array_job: JobId(array), task: id };
        let task = |id, end| Job { role: of(id, 4), ..ended_job(id, JobState::Completed, 1, end) };
        put(
            &mut store,
            vec![
                insert_with(&ended_job(1, JobState::Completed, 1, 10), b"one", b"shared"),
                insert_with(&ended_job(2, JobState::Failed, 1, 50), b"two", b"shared"),
                insert_with(&job(3), b"three", b"of a live job"),
                insert_with(&task(4, 10), b"four", b"of an array"),
                Change::Insert { job: Box::new(task(5, 50)), texts: Texts::SameAs(JobId(4)) },
            ],
        );
        let env = |store: &mut Store, id| store.launch_texts(JobId(id)).unwrap().unwrap().env;

        assert_eq!(store.prune_environments(Timestamp::from_secs(20)).unwrap(), 1);
        assert_eq!(env(&mut store, 1), b"");
        assert_eq!(env(&mut store, 2), b"shared");
        assert_eq!(env(&mut store, 4), b"of an array");

        assert_eq!(store.prune_environments(Timestamp::from_secs(60)).unwrap(), 2);
        assert_eq!(env(&mut store, 3), b"of a live job");
        assert_eq!(store.launch_texts(JobId(2)).unwrap().unwrap().script, b"two");
        assert_eq!(count(&mut store, "texts"), 5, "four scripts and one environment");
    }

    #[test]
    fn looking_for_old_environments_reads_only_submissions_that_have_one() {
        #[derive(QueryableByName)]
        struct Detail {
            #[diesel(sql_type = diesel::sql_types::Text)]
            detail: String,
        }
        let place = Place::new();
        let mut store = place.store();
        let query = unneeded(Timestamp(0)).select(launches::job_id);
        let sql = format!("EXPLAIN QUERY PLAN {}", diesel::debug_query::<Sqlite, _>(&query));
        let plan: Vec<Detail> = diesel::sql_query(sql).load(&mut store.conn).unwrap();
        let plan: Vec<&str> = plan.iter().map(|row| row.detail.as_str()).collect();
        assert!(plan.iter().all(|line| !line.starts_with("SCAN jobs")), "{plan:#?}");
        assert!(plan.contains(&"SEARCH launches USING COVERING INDEX launches_by_env (env_id>?)"), "{plan:#?}");
    }

    #[test]
    fn dependencies_learn_how_jobs_ended() {
        let place = Place::new();
        let mut store = place.store();
        let task = |id, task, state| Job {
            role: ArrayRole::Task { array_job: JobId(3), task },
            ..ended_job(id, state, 5, 10 + i64::from(id))
        };
        let mut never_started = ended_job(2, JobState::Cancelled, 5, 12);
        never_started.run.start = None;
        put(
            &mut store,
            vec![
                insert(&ended_job(1, JobState::Completed, 5, 11)),
                insert(&never_started),
                insert(&task(3, 9, JobState::Completed)),
                insert(&task(4, 1, JobState::Failed)),
                insert(&job(5)),
            ],
        );
        let mut facts = |named: &[JobRef]| -> Vec<(u32, bool, bool)> {
            let facts = store.ended(named).unwrap();
            facts.iter().map(|fact| (fact.id.0, fact.ok, fact.start.is_some())).collect()
        };
        let named = |job| JobRef::job(JobId(job));
        assert_eq!(facts(&[named(1), named(2), named(5), named(6)]), [(1, true, true), (2, false, false)]);
        assert_eq!(facts(&[named(3)]), [(3, true, true), (4, false, true)], "an array means all its tasks");
        assert_eq!(facts(&[JobRef { tasks: Some(TaskSet::one(1)), ..named(3) }]), [(4, false, true)]);
    }
}
