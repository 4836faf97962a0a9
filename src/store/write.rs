//! The database's writer: runs transactions, and answers queries that must precede a change.
//!
//! The daemon has exactly one. It does not interpret changes.

use crate::error::StoreError;
use crate::files::OpenFiles;
use crate::intern::Interned;
use crate::load::LiveJobs;
use crate::schema::{history, jobs};
use crate::{load, open, upkeep};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use slotd_model::change::LaunchTexts;
use slotd_model::{JobId, StoreFault, Timestamp};
use std::path::{Path, PathBuf};

/// The result of a checkpoint.
#[derive(QueryableByName)]
struct Checkpoint {
    /// Not 0 if readers kept the checkpoint from emptying the log.
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    busy: i64,
    /// The number of pages in the log.
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    log: i64,
}

/// The database, open for writing.
pub struct Store {
    path: PathBuf,
    pub(super) conn: SqliteConnection,
    files: OpenFiles,
    interned: Interned,
    /// The last operation on the connection failed in SQLite.
    is_suspect: bool,
    /// The log may still hold deleted data.
    has_deleted: bool,
}

impl Store {
    /// Opens the database, creates it if it does not exist, and applies missing migrations. Its
    /// directory must exist.
    ///
    /// # Errors
    /// Fails if the file cannot be opened, is not a slotd database, or was written by a newer
    /// slotd. The file is not changed in that case.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        let conn = open::writer(path)?;
        let files = OpenFiles::of(path)?;
        let (interned, is_suspect, has_deleted) = (Interned::default(), false, false);
        Ok(Store { path: path.to_owned(), conn, files, interned, is_suspect, has_deleted })
    }

    /// Returns the open files.
    pub fn files(&self) -> &OpenFiles {
        &self.files
    }

    /// Copies the log into the database once it is long, so that it is overwritten from its
    /// beginning. Commits in the log are already durable, so nobody waits for this and a failure is
    /// harmless.
    pub fn empty_long_log(&mut self) {
        if self.has_deleted {
            // The readers that blocked the last attempt may have finished.
            return drop(self.overwrite_deleted());
        }
        let mut run = |mode: &str| self.checkpoint(mode);
        let done = run("NOOP").and_then(|state| {
            if state.log >= open::LOG_PAGES { run("PASSIVE") } else { Ok(state) }
        });
        if let Err(error) = done {
            log::debug!(
                "{}: cannot copy the log into the database yet: {error}",
                self.path.display()
            );
        }
    }

    /// Runs a checkpoint. `TRUNCATE` waits for readers like for any other lock.
    fn checkpoint(&mut self, mode: &str) -> QueryResult<Checkpoint> {
        diesel::sql_query(format!("PRAGMA wal_checkpoint({mode})")).get_result(&mut self.conn)
    }

    /// Runs a checkpoint that does not wait for locks, since commits wait for it.
    fn checkpoint_now(&mut self, mode: &str) -> QueryResult<Checkpoint> {
        self.conn.batch_execute(open::wait_for_locks(false))?;
        let done = self.checkpoint(mode);
        self.conn.batch_execute(open::wait_for_locks(true))?;
        done
    }

    /// Empties the log, which may hold copies of deleted data. In the database itself, each
    /// deletion overwrites the data (`secure_delete`). Returns false if readers of an older state
    /// prevent it; then every commit tries again.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub fn overwrite_deleted(&mut self) -> Result<bool, StoreError> {
        self.replace_suspect()?;
        let emptied =
            self.checkpoint_now("TRUNCATE").map_err(StoreError::sql("empty the database log"));
        let is_empty = emptied.inspect_err(|error| self.suspect(error))?.busy == 0;
        if is_empty && self.has_deleted {
            upkeep::fill_log(&self.path);
        }
        self.has_deleted &= !is_empty;
        Ok(is_empty)
    }

    /// Copies the whole log into the database and empties it when the daemon stops.
    pub fn close(&mut self) {
        if let Err(error) = self.checkpoint("TRUNCATE") {
            log::warn!("{}: cannot empty the database log: {error}", self.path.display());
        }
    }

    /// Checks that the database can be written, after a failure.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn probe(&mut self) -> Result<(), StoreError> {
        // SQLite writes the page with this otherwise unused value even if the value does not
        // change.
        self.transaction(|conn, _| {
            conn.batch_execute("PRAGMA user_version = 0").map_err(StoreError::from)
        })
    }

    /// Runs one transaction on a working connection.
    ///
    /// # Errors
    /// On failure, nothing was stored.
    pub(super) fn transaction<T>(
        &mut self,
        work: impl FnOnce(&mut SqliteConnection, &mut Interned) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.replace_suspect()?;
        let (interned, files, mut cause) = (&mut self.interned, &self.files, None);
        let done = self.conn.immediate_transaction(|conn| {
            // Checked last, just before the commit.
            let done = work(conn, interned).and_then(|done| files.check().map(|()| done));
            done.inspect_err(|e| cause = Some(e.clone()))
        });
        // If the failure has ended the transaction, the rollback fails, too, with a less useful
        // message.
        let done = cause.map_or(done, Err);
        if let Err(error) = &done {
            self.interned.clear();
            self.suspect(error);
            self.save_moved(error);
        }
        done
    }

    /// Copies the log of a moved database into the database file, which is still open and survives
    /// the daemon. The log could otherwise be lost, or be mistaken for that of the file that
    /// replaced the database.
    fn save_moved(&mut self, error: &StoreError) {
        if matches!(error.fault(), Some(StoreFault::Moved | StoreFault::MovedLog))
            && let Err(error) = self.checkpoint_now("TRUNCATE")
        {
            log::warn!("{}: cannot empty the database log: {error}", self.path.display());
        }
    }

    /// Marks the connection for replacement if it caused the error.
    pub(super) fn suspect(&mut self, error: &StoreError) {
        self.is_suspect |= error.ends_transaction();
    }

    /// Replaces the connection after a failure of SQLite. It is unknown whether the old one is in a
    /// transaction, and what a failed fsync left on the disk. The old one stays open until the new
    /// one is: as long as a connection is open, no process recovers the log and finds uncommitted
    /// writes in it. So a failed change was not stored, and can be applied again unchanged.
    pub(super) fn replace_suspect(&mut self) -> Result<(), StoreError> {
        if self.is_suspect {
            // The new connection could otherwise write to a file that replaced the database.
            self.files.check()?;
            self.conn = open::again(&self.path).map_err(StoreError::reopening)?;
            self.is_suspect = false;
        }
        Ok(())
    }

    /// Limits the database to this number of pages, as a full disk would, until the connection is
    /// replaced.
    #[cfg(any(test, feature = "test-support"))]
    #[allow(clippy::unwrap_used, reason = "only tests use it")]
    pub fn limit_pages(&mut self, pages: u32) {
        self.conn.batch_execute(&format!("PRAGMA max_page_count = {pages}")).unwrap();
    }

    /// Discards cached rows, which may have been deleted, and notes that the log holds deleted
    /// data.
    pub(super) fn note_deletion(&mut self) {
        self.interned.clear();
        self.has_deleted = true;
    }

    /// Loads every live job and every job that ended at or after `ended_since`, with their steps,
    /// sorted by ID.
    ///
    /// Logs a record that no version of slotd writes, and returns a failed job as its placeholder.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn load_live(&mut self, ended_since: Timestamp) -> Result<LiveJobs, StoreError> {
        let ids = load::live_ids(&mut self.conn, ended_since)?;
        let mut jobs = LiveJobs::with_capacity(ids.len());
        for (part, requests) in
            load::assemble_in_parts(&mut self.conn, &self.path, &ids, load::PART)?
        {
            jobs.extend::<LiveJobs>(part);
            self.interned.remember_all(&requests);
        }
        for (job, why) in jobs.iter().filter_map(|job| Some((job.id, load::why_unreadable(job)?))) {
            log::error!("cannot read the record of job {job}, which is shown as failed: {why}");
        }
        Ok(jobs)
    }

    /// Returns the highest ID that a record has or had, plus one. In a new database, this is 1.
    ///
    /// # Errors
    /// Fails if the database cannot be read or no IDs are left.
    pub fn next_job_id(&mut self) -> Result<JobId, StoreError> {
        next_job_id(&mut self.conn)
    }

    /// Returns the script and environment of a job, or `None` if it has none (an allocation). An
    /// array task uses those of its array.
    ///
    /// # Errors
    /// Fails if there is no such job or the database cannot be read.
    pub fn launch_texts(&mut self, job: JobId) -> Result<Option<LaunchTexts>, StoreError> {
        load::launch_texts(&mut self.conn, job)
    }
}

/// Returns the highest ID that a record has or had, plus one.
pub(super) fn next_job_id(conn: &mut SqliteConnection) -> Result<JobId, StoreError> {
    let largest: Option<i64> = jobs::table
        .select(diesel::dsl::max(jobs::job_id))
        .first(conn)
        .map_err(StoreError::sql("read the last job ID"))?;
    let removed: Option<i64> = history::table
        .select(history::last_job_id)
        .first(conn)
        .optional()
        .map_err(StoreError::sql("read the last ID of the deleted jobs"))?;
    let next = largest.max(removed).unwrap_or(0) + 1;
    u32::try_from(next).map(JobId).map_err(|_| StoreError::Unstorable {
        table: "jobs",
        column: "job_id",
        value: next.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::failure;
    use crate::testing::{Place, all, ended_job, insert, insert_with, job, put, step};
    use crate::tests::{any_job, any_jobs};
    use diesel::connection::{Connection, InstrumentationEvent};
    use proptest::prelude::*;
    use slotd_model::array::TaskSet;
    use slotd_model::change::{Change, Texts};
    use slotd_model::{ArrayRole, End, Job, JobRequest, JobState, StepId};
    use std::sync::Arc;

    fn count(store: &mut Store, table: &str) -> i64 {
        #[derive(QueryableByName)]
        struct Count {
            #[diesel(sql_type = diesel::sql_types::BigInt)]
            n: i64,
        }
        diesel::sql_query(format!("SELECT count(*) AS n FROM {table}"))
            .get_result::<Count>(&mut store.conn)
            .unwrap()
            .n
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn stored_jobs_are_loaded_by_another_daemon(jobs in any_jobs(6)) {
            let place = Place::new();
            put(&mut place.store(), jobs.iter().map(insert).collect());
            prop_assert_eq!(all(&mut place.store()), jobs);
        }

        /// The changes of one commit have the same effect as a commit for each of them.
        #[test]
        fn one_commit_stores_what_several_would(
            jobs in proptest::collection::vec(any_job(1), 1..4),
            begun in any::<bool>(),
            others in proptest::collection::vec(0..3u8, 0..6),
        ) {
            let mut changes = vec![insert_with(&jobs[0], b"script", b"A=1\0")];
            let updates = jobs[1..].iter().map(|job| Change::Update(Box::new(job.clone())));
            changes.extend(updates);
            for (at, other) in others.into_iter().enumerate() {
                let change = match other {
                    0 => Change::PutStep { job: jobs[0].id, step: Box::new(step(StepId::Num(at as u32))) },
                    1 => Change::PutScript { job: jobs[0].id, script: vec![b'a' + at as u8] },
                    _ => insert(&job(100 + at as u32)),
                };
                changes.insert(1 + at % changes.len(), change);
            }
            let (together, one_by_one) = (Place::new(), Place::new());
            let (first, rest) = changes.split_at(usize::from(begun));
            for part in [first, rest] {
                put(&mut together.store(), part.to_vec());
                part.iter().for_each(|change| put(&mut one_by_one.store(), vec![change.clone()]));
            }
            let read = |place: &Place| {
                let mut store = place.store();
                (all(&mut store), store.launch_texts(jobs[0].id).unwrap())
            };
            prop_assert_eq!(read(&together), read(&one_by_one));
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
    fn an_unreadable_record_does_not_prevent_loading_the_others() {
        let place = Place::new();
        let mut store = place.store();
        let running = Job { steps: vec![step(StepId::Batch)], ..job(3) };
        put(&mut store, [job(1), job(2), running, job(4)].iter().map(insert).collect());
        store
            .conn
            .batch_execute(
                "UPDATE jobs SET body = json_set(body, '$.hold', 'Nobody') WHERE job_id = 2;
                 UPDATE steps SET body = json_set(body, '$.id', 'Extern') WHERE job_id = 3;",
            )
            .unwrap();
        let loaded = place.store().load_live(Timestamp::from_secs(0)).unwrap();
        let unreadable: Vec<(u32, bool)> =
            loaded.iter().map(|job| (job.id.0, load::why_unreadable(job).is_some())).collect();
        assert_eq!(unreadable, [(1, false), (2, true), (3, true), (4, false)]);
        assert_eq!(*loaded[0], job(1));
        let why = loaded[1].run.system_comment.as_deref().unwrap();
        assert!(why.contains("jobs.body holds \"unknown variant `Nobody`"), "{why}");
        assert!(loaded[1].run.state.is_terminal() && loaded[1].request.no_requeue);
    }

    #[test]
    fn only_live_and_recently_ended_jobs_are_loaded() {
        let place = Place::new();
        let mut store = place.store();
        let jobs =
            [ended_job(1, End::Failed, 10, 20), ended_job(2, End::Completed, 10, 30), job(3)];
        put(&mut store, jobs.iter().map(insert).collect());
        let ids: Vec<u32> =
            store.load_live(Timestamp::from_secs(30)).unwrap().iter().map(|job| job.id.0).collect();
        assert_eq!(ids, [2, 3]);
    }

    /// Translating a statement costs more than executing it.
    #[test]
    fn the_statements_of_a_job_are_translated_only_once() {
        let place = Place::new();
        let mut store = place.store();
        let (sender, receiver) = std::sync::mpsc::channel();
        store.conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            let _ = match event {
                InstrumentationEvent::CacheQuery { sql, .. } => sender.send((true, sql.to_owned())),
                InstrumentationEvent::StartQuery { query, .. } => {
                    sender.send((false, query.to_string()))
                }
                _ => Ok(()),
            };
        });
        let ended = |id| Job { request: job(id).request, ..ended_job(id, End::Completed, 10, 20) };
        let life = |store: &mut Store, id| {
            put(store, vec![insert(&job(id)), Change::Update(Box::new(job(id)))]);
            put(store, vec![Change::Update(Box::new(ended(id)))]);
        };
        (1..=3).for_each(|id| life(&mut store, id));
        let events: Vec<(bool, String)> = receiver.try_iter().collect();
        let is_kept =
            |sql: &str| events.iter().any(|(kept, text)| *kept && sql.starts_with(text.as_str()));
        let of_jobs = |sql: &&str| sql.starts_with("INSERT") || sql.starts_with("UPDATE");
        let run: Vec<&str> = events
            .iter()
            .filter(|event| !event.0)
            .map(|event| event.1.as_str())
            .filter(of_jobs)
            .collect();
        // A submission and its start write the record once.
        assert_eq!(run.iter().filter(|sql| sql.contains("`jobs`")).count(), 3, "{run:?}");
        assert_eq!(run.iter().filter(|sql| sql.starts_with("UPDATE jobs")).count(), 3, "{run:?}");
        let anew: Vec<&&str> = run.iter().filter(|sql| !is_kept(sql)).collect();
        assert!(anew.is_empty(), "{anew:?}");
    }

    #[test]
    fn a_step_is_inserted_then_replaced() {
        let place = Place::new();
        let mut store = place.store();
        put(&mut store, vec![insert(&job(1))]);
        let mut steps = [step(StepId::Num(10)), step(StepId::Num(2)), step(StepId::Batch)];
        put(
            &mut store,
            steps
                .iter()
                .map(|s| Change::PutStep { job: JobId(1), step: Box::new(s.clone()) })
                .collect(),
        );
        steps[0].state = JobState::Ended(End::Completed);
        put(&mut store, vec![Change::PutStep { job: JobId(1), step: Box::new(steps[0].clone()) }]);
        let loaded = all(&mut store).remove(0).steps;
        assert_eq!(loaded, [steps[2].clone(), steps[1].clone(), steps[0].clone()]);
    }

    #[test]
    fn a_conflicting_batch_does_not_affect_the_others() {
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
        // The limit applies only to this connection, so it ends when the store recovers.
        store.conn.batch_execute("PRAGMA max_page_count = 40").unwrap();
        let large = vec![1; 1 << 20];
        let alone =
            store.commit(&[vec![insert(&job(2)), insert_with(&job(3), &large, b"")]]).remove(0);
        assert!(alone.as_ref().is_err_and(|e| e.fault() == Some(StoreFault::Full)), "{alone:?}");
        assert_eq!(all(&mut store), [job(1)], "nothing of the batch was stored");

        store.conn.batch_execute("PRAGMA max_page_count = 40").unwrap();
        let answers = store.commit(&[
            vec![insert(&job(2))],
            vec![insert_with(&job(3), &large, b"")],
            vec![insert(&job(4))],
        ]);
        // After the group failed, the new connection has no limit.
        assert_eq!(answers, [Ok(()), Ok(()), Ok(())]);
        assert_eq!(all(&mut store), [job(1), job(2), job(3), job(4)]);
    }

    #[test]
    fn a_failed_batch_is_applied_once_after_reopening() {
        let place = Place::new();
        let mut store = place.store();
        store.limit_pages(40);
        let large = [
            vec![insert_with(&job(1), &vec![1; 1 << 20], b"")],
            vec![Change::Update(Box::new(job(1)))],
        ];
        let faults = |answers: Vec<Result<(), StoreError>>| -> Vec<Option<StoreFault>> {
            answers.into_iter().map(|answer| answer.err().and_then(|e| e.fault())).collect()
        };
        assert_eq!(faults(vec![store.commit_together(&large[..1])]), [Some(StoreFault::Full)]);
        let away = place.path().with_extension("away");
        std::fs::rename(place.path(), &away).unwrap();
        assert_eq!(faults(store.commit(&large)), [Some(StoreFault::Moved); 2]);
        assert!(store.probe().is_err());
        std::fs::rename(&away, place.path()).unwrap();
        assert_eq!(store.probe(), Ok(()));
        assert_eq!(store.commit(&large), [Ok(()), Ok(())]);
        assert_eq!(all(&mut place.store()), [job(1)]);
    }

    #[test]
    fn a_lock_is_a_temporary_fault_and_damage_is_not() {
        let place = Place::new();
        let mut store = place.store();
        put(&mut store, vec![insert(&job(1))]);
        let other = place.locked();
        let locked = store.commit(&[vec![insert(&job(2))], vec![insert(&job(3))]]);
        assert!(
            locked.iter().all(|answer| answer
                .as_ref()
                .is_err_and(|e| e.fault() == Some(StoreFault::Locked)))
        );
        drop(other);
        assert_eq!(store.commit(&[vec![insert(&job(2))]]), [Ok(())]);
        let damaged = failure("commit", "database disk image is malformed".to_owned());
        assert_eq!(damaged.fault(), None);
        assert_eq!(damaged.reopening().fault(), None);
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
            // As received from clients: equal, but at different addresses.
            let job = Job { request: Arc::new(JobRequest::clone(&request)), ..job(id) };
            put(&mut store, vec![insert_with(&job, b"#!/bin/sh\n", b"HOME=/root\0")]);
        }
        assert_eq!((count(&mut store, "texts"), count(&mut store, "requests")), (2, 1));
        let jobs = all(&mut store);
        assert!(jobs.iter().all(|job| Arc::ptr_eq(&job.request, &jobs[0].request)));
    }

    #[test]
    fn a_request_changed_in_place_is_stored() {
        let place = Place::new();
        let mut store = place.store();
        let mut job = job(1);
        put(&mut store, vec![insert(&job)]);
        Arc::make_mut(&mut job.request).name = "renamed".to_owned();
        put(&mut store, vec![Change::Update(Box::new(job.clone()))]);
        assert_eq!(all(&mut place.store()), [job]);
    }

    #[test]
    fn a_task_uses_the_texts_of_its_array() {
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
                // Not in the array: gets its own row, even though it copies the texts of a task.
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
        assert_eq!(
            store.launch_texts(JobId(5)),
            Err(StoreError::Missing { what: "job 5".to_owned() })
        );
    }

    #[test]
    fn a_new_script_affects_only_its_job() {
        let place = Place::new();
        let mut store = place.store();
        put(
            &mut store,
            vec![insert_with(&job(1), b"old", b"env"), insert_with(&job(2), b"old", b"env")],
        );
        let script = |text: &[u8]| Change::PutScript { job: JobId(1), script: text.to_vec() };
        put(&mut store, vec![script(b"newer")]);
        put(&mut store, vec![script(b"newest")]);
        let of = |store: &mut Store, id| store.launch_texts(JobId(id)).unwrap().unwrap();
        assert_eq!(
            of(&mut store, 1),
            LaunchTexts { script: b"newest".to_vec(), env: b"env".to_vec() }
        );
        assert_eq!(
            of(&mut store, 2),
            LaunchTexts { script: b"old".to_vec(), env: b"env".to_vec() }
        );
        assert_eq!(count(&mut store, "texts"), 3, "no job uses the one in between");
        put(&mut store, vec![script(b"old"), insert_with(&job(3), b"newest", b"env")]);
        assert_eq!(
            (of(&mut store, 1), of(&mut store, 3).script),
            (of(&mut store, 2), b"newest".to_vec())
        );
        put(&mut store, vec![insert(&job(4))]);
        let missing =
            store.commit(&[vec![Change::PutScript { job: JobId(4), script: b"x".to_vec() }]]);
        assert_eq!(missing, [Err(StoreError::Missing { what: "the script of job 4".to_owned() })]);
    }

    #[test]
    fn job_ids_start_at_one_and_follow_the_highest() {
        let place = Place::new();
        let mut store = place.store();
        assert_eq!(store.next_job_id().unwrap(), JobId(1));
        put(&mut store, vec![insert(&ended_job(41, End::Completed, 1, 2)), insert(&job(7))]);
        assert_eq!(store.next_job_id().unwrap(), JobId(42));
        put(&mut store, vec![insert(&job(u32::MAX))]);
        assert!(store.next_job_id().is_err());
    }
}
