//! The writer of the database: commits changes, and answers what has to be known before a change is
//! made.
//!
//! There is one in the daemon. It does not look at what a change means.

use crate::model::change::{Change, LaunchTexts, Texts};
use crate::model::{Job, JobId, StepId, StoreFault, Timestamp};
use crate::store::error::StoreError;
use crate::store::files::OpenFiles;
use crate::store::intern::{Interned, remove_unused_texts};
use crate::store::row::{self, JobRow, StepRow};
use crate::store::schema::{history, jobs, launches, steps};
use crate::store::{load, memos, notices, open, runs};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Text};
use diesel::sqlite::{Sqlite, SqliteConnection};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// What SQLite tells of the log.
#[derive(QueryableByName)]
struct Checkpoint {
    /// Not 0: readers kept it from emptying the log.
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    busy: i64,
    /// Its pages.
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    log: i64,
}

/// The database, open for writing.
pub struct Store {
    path: PathBuf,
    pub(super) conn: SqliteConnection,
    files: OpenFiles,
    interned: Interned,
    /// A failure of SQLite was the last that the connection was heard of.
    is_suspect: bool,
    /// The log may hold what has been deleted.
    has_deleted: bool,
}

impl Store {
    /// Opens the database, makes it where there is none, and brings it up to date. Its directory
    /// must exist.
    ///
    /// # Errors
    /// The file can't be opened, is no database of slotd, or was written by a newer slotd: then it
    /// is left untouched.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        let conn = open::writer(path)?;
        let files = OpenFiles::of(path)?;
        let (interned, is_suspect, has_deleted) = (Interned::default(), false, false);
        Ok(Store { path: path.to_owned(), conn, files, interned, is_suspect, has_deleted })
    }

    /// The files that are open.
    pub fn files(&self) -> &OpenFiles {
        &self.files
    }

    /// Makes batches of changes durable: all with one write to the disk, each wholly or not at all.
    ///
    /// The answers are in the order of the batches. A batch that contradicts what is stored (a
    /// number that is taken, an update of a job that does not exist) leaves the others alone. Where
    /// SQLite itself fails, what failed may be tried again: nothing of it was stored. For want of
    /// room, each batch is tried once more by itself, in their order, up to the first that has
    /// none. What comes after one that failed is answered with the same error and was not stored: a
    /// later state of a job never goes before an earlier one.
    ///
    /// # Errors
    /// Of each batch: why nothing of it was stored.
    pub fn commit(&mut self, batches: &[Vec<Change>]) -> Vec<Result<(), StoreError>> {
        if let [batch] = batches {
            return vec![self.commit_one(batch)];
        }
        match self.commit_group(batches) {
            Ok(answers) => answers,
            Err(error) if error.fault().is_some_and(|fault| fault != StoreFault::Full) => {
                batches.iter().map(|_| Err(error.clone())).collect()
            }
            Err(error) => {
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

    fn commit_group(
        &mut self,
        batches: &[Vec<Change>],
    ) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        self.transaction(|conn, interned| {
            let mut answers = Vec::with_capacity(batches.len());
            for batch in batches {
                let mut told = None;
                let answer = conn.transaction(|conn| {
                    apply_all(conn, interned, batch).inspect_err(|e| told = Some(e.clone()))
                });
                if answer.is_err() {
                    // Rows that the batch wrote are gone again.
                    interned.clear();
                }
                // After a failure that has ended the transaction the way out of the savepoint fails
                // too, with less to say.
                let answer = told.map_or(answer, Err);
                if let Err(error) = &answer
                    && error.ends_transaction()
                {
                    return Err(error.clone());
                }
                answers.push(answer);
            }
            Ok(answers)
        })
    }

    fn commit_one(&mut self, batch: &[Change]) -> Result<(), StoreError> {
        self.transaction(|conn, interned| apply_all(conn, interned, batch))
    }

    /// Makes the log as large as it is going to be, for a daemon that writes much.
    pub fn fill_log(&self) {
        if let Err(error) = open::fill_log(&self.path) {
            log::warn!("{}: the log of the database grows by and by: {error}", self.path.display());
        }
    }

    /// Copies the log into the database, once it has become long, so that it is written from its
    /// beginning again. What is in the log is durable: nobody needs to wait for this, and where it
    /// fails, later is as good.
    pub fn empty_long_log(&mut self) {
        if self.has_deleted {
            // Readers that were in the way of it may have ended.
            return drop(self.overwrite_deleted());
        }
        let mut run = |mode: &str| self.checkpoint(mode);
        let done = run("NOOP").and_then(|state| {
            if state.log >= open::LOG_PAGES { run("PASSIVE") } else { Ok(state) }
        });
        if let Err(error) = done {
            log::debug!(
                "{}: the log cannot be copied into the database yet: {error}",
                self.path.display()
            );
        }
    }

    /// A checkpoint of the log. `TRUNCATE` waits for readers as long as for any lock.
    fn checkpoint(&mut self, mode: &str) -> QueryResult<Checkpoint> {
        diesel::sql_query(format!("PRAGMA wal_checkpoint({mode})")).get_result(&mut self.conn)
    }

    /// A checkpoint that waits for nobody: commits wait for this.
    fn checkpoint_now(&mut self, mode: &str) -> QueryResult<Checkpoint> {
        self.conn.batch_execute(open::wait_for_locks(false))?;
        let done = self.checkpoint(mode);
        self.conn.batch_execute(open::wait_for_locks(true))?;
        done
    }

    /// Empties the log, which may hold copies of what was deleted. The database itself is
    /// overwritten with each deletion (`secure_delete`). False if readers of an older state are in
    /// the way: every commit tries again.
    ///
    /// # Errors
    /// The disk.
    pub fn overwrite_deleted(&mut self) -> Result<bool, StoreError> {
        self.replace_suspect()?;
        let emptied = self
            .checkpoint_now("TRUNCATE")
            .map_err(StoreError::sql("empty the log of the database"));
        let is_empty = emptied.inspect_err(|error| self.suspect(error))?.busy == 0;
        if is_empty && self.has_deleted {
            self.fill_log();
        }
        self.has_deleted &= !is_empty;
        Ok(is_empty)
    }

    /// Writes everything into the database, and leaves an empty log: the daemon stops.
    pub fn close(&mut self) {
        if let Err(error) = self.checkpoint("TRUNCATE") {
            log::warn!("{}: the log of the database is not empty: {error}", self.path.display());
        }
    }

    /// Whether something can be written, for one who waits for that.
    ///
    /// # Errors
    /// It cannot.
    pub fn probe(&mut self) -> Result<(), StoreError> {
        // SQLite writes the page of the number, which is not used here, whether it changes or not.
        self.transaction(|conn, _| {
            conn.batch_execute("PRAGMA user_version = 0").map_err(StoreError::from)
        })
    }

    /// One transaction, on a connection that is sound.
    ///
    /// # Errors
    /// Nothing of it was stored.
    pub(super) fn transaction<T>(
        &mut self,
        work: impl FnOnce(&mut SqliteConnection, &mut Interned) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.replace_suspect()?;
        let (interned, files, mut told) = (&mut self.interned, &self.files, None);
        let done = self.conn.immediate_transaction(|conn| {
            // Last, just before the commit.
            let done = work(conn, interned).and_then(|done| files.check().map(|()| done));
            done.inspect_err(|e| told = Some(e.clone()))
        });
        // After a failure that has ended the transaction the rollback fails too, and tells less.
        let done = told.map_or(done, Err);
        if let Err(error) = &done {
            self.interned.clear();
            self.suspect(error);
            self.save_moved(error);
        }
        done
    }

    /// The log of a database that was moved would be taken for that of the file in its place, or be
    /// lost by itself: what has been committed goes into the open database file, which the daemon's
    /// death leaves whole.
    fn save_moved(&mut self, error: &StoreError) {
        if matches!(error.fault(), Some(StoreFault::Moved | StoreFault::MovedLog))
            && let Err(error) = self.checkpoint_now("TRUNCATE")
        {
            log::warn!("{}: the log of the database is not empty: {error}", self.path.display());
        }
    }

    /// Does not trust the connection any more, if it is what failed.
    pub(super) fn suspect(&mut self, error: &StoreError) {
        self.is_suspect |= error.ends_transaction();
    }

    /// After a failure of SQLite there is a new connection, since the old one may not know whether
    /// it is in a transaction, nor what a failed fsync has left on the disk. The old one stays open
    /// until then: while one is open, nobody reads the log of the database anew and finds in it
    /// what was written but not committed. So what failed was not stored, and is applied again as
    /// it is.
    pub(super) fn replace_suspect(&mut self) -> Result<(), StoreError> {
        if self.is_suspect {
            // Another file in its place would be written to.
            self.files.check()?;
            self.conn = open::again(&self.path).map_err(StoreError::reopening)?;
            self.is_suspect = false;
        }
        Ok(())
    }

    /// As if the disk had this many pages for the database, for as long as the connection lasts.
    #[cfg(test)]
    pub fn limit_pages(&mut self, pages: u32) {
        self.conn.batch_execute(&format!("PRAGMA max_page_count = {pages}")).unwrap();
    }

    /// After a deletion: what was known of rows may not be so any more, and the log has what was
    /// deleted.
    pub(super) fn note_deletion(&mut self) {
        self.interned.clear();
        self.has_deleted = true;
    }

    /// Every live job, and every job that ended at `ended_since` or later, with their steps, by
    /// number.
    ///
    /// # Errors
    /// The database can't be read. A record that no version of slotd writes is told in the log, and
    /// stands for itself as a job that has failed.
    pub fn load_live(&mut self, ended_since: Timestamp) -> Result<Vec<Job>, StoreError> {
        let rows = load::live_rows(&mut self.conn, ended_since)?;
        let (jobs, requests) = load::assemble_rows(&mut self.conn, rows)?;
        for (request_id, request) in &requests {
            self.interned.remember(request, *request_id);
        }
        for (job, why) in jobs.iter().filter_map(|job| Some((job.id, load::why_unreadable(job)?))) {
            log::error!("job {job} is set aside, since its record cannot be read: {why}");
        }
        Ok(jobs)
    }

    /// The numbers of all records.
    ///
    /// # Errors
    /// The database can't be read.
    pub fn numbers(&mut self) -> Result<HashSet<JobId>, StoreError> {
        let ids: Vec<i64> = jobs::table
            .select(jobs::job_id)
            .load(&mut self.conn)
            .map_err(StoreError::sql("read the job numbers"))?;
        ids.into_iter().map(|id| row::job_id("jobs", id)).collect()
    }

    /// One more than the largest number that a record has or had; 1 in a new database.
    ///
    /// # Errors
    /// The database can't be read, or the numbers are used up.
    pub fn next_job_id(&mut self) -> Result<JobId, StoreError> {
        let largest: Option<i64> = jobs::table
            .select(diesel::dsl::max(jobs::job_id))
            .first(&mut self.conn)
            .map_err(StoreError::sql("read the last job number"))?;
        let removed: Option<i64> = history::table
            .select(history::last_job_id)
            .first(&mut self.conn)
            .optional()
            .map_err(StoreError::sql("read the last number of the jobs that were removed"))?;
        let next = largest.max(removed).unwrap_or(0) + 1;
        u32::try_from(next).map(JobId).map_err(|_| StoreError::Unstorable {
            table: "jobs",
            column: "job_id",
            value: next.to_string(),
        })
    }

    /// Script and environment of a job; `None` where it has none (an allocation). A task has those
    /// of its array.
    ///
    /// # Errors
    /// There is no such job, or the database can't be read.
    pub fn launch_texts(&mut self, job: JobId) -> Result<Option<LaunchTexts>, StoreError> {
        load::launch_texts(&mut self.conn, job)
    }
}

fn apply_all(
    conn: &mut SqliteConnection,
    interned: &mut Interned,
    batch: &[Change],
) -> Result<(), StoreError> {
    batch.iter().try_for_each(|change| apply(conn, interned, change))
}

fn apply(
    conn: &mut SqliteConnection,
    interned: &mut Interned,
    change: &Change,
) -> Result<(), StoreError> {
    match change {
        Change::Insert { job, texts } => insert(conn, interned, job, texts),
        Change::Update(job) => update(conn, interned, job),
        Change::PutScript { job, script } => put_script(conn, interned, *job, script),
        Change::PutStep { job, step } => put_step(conn, &StepRow::new(*job, step)?),
        Change::DropStep { job, step } => drop_step(conn, *job, *step),
        Change::EndRun { job, run } => runs::put(conn, *job, run),
        Change::PutNotice { number, notice, .. } => notices::put(conn, *number, notice),
        Change::DropNotice { number } => notices::remove(conn, *number),
        Change::PutMemo { key, body } => memos::put(conn, *key, body),
        Change::DropMemo { key } => memos::remove(conn, *key),
    }
}

fn insert(
    conn: &mut SqliteConnection,
    interned: &mut Interned,
    job: &Job,
    texts: &Texts,
) -> Result<(), StoreError> {
    let row = JobRow::new(job, interned.request_row(conn, &job.request)?)?;
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
        // A task finds the row of its array by itself.
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
            .map_err(StoreError::sql("store what launches a job"))?;
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

/// The old text goes where nobody else has it.
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

/// Replaces the body of a job with this request. The request by itself, since it hardly ever
/// changes, and each change of it is one of its index. SQLite keeps this statement: an update of
/// diesel's own is translated anew each time, for it may set other columns the next time.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::array::TaskSet;
    use crate::model::{ArrayRole, End, JobRequest, JobState, StepId};
    use crate::store::error::failure;
    use crate::store::testing::{
        Place, all, any_job, any_jobs, ended_job, insert, insert_with, job, put, step,
    };
    use diesel::connection::{Connection, InstrumentationEvent};
    use proptest::prelude::*;
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
    fn a_record_that_cannot_be_read_is_set_aside_and_the_others_are_there() {
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
        let told: Vec<(u32, bool)> =
            loaded.iter().map(|job| (job.id.0, load::why_unreadable(job).is_some())).collect();
        assert_eq!(told, [(1, false), (2, true), (3, true), (4, false)]);
        assert_eq!(loaded[0], job(1));
        let why = loaded[1].run.system_comment.as_deref().unwrap();
        assert!(why.contains("jobs.body holds \"unknown variant `Nobody`"), "{why}");
        assert!(loaded[1].run.state.is_terminal() && loaded[1].request.no_requeue);
    }

    #[test]
    fn only_live_and_lately_ended_jobs_are_loaded_at_start() {
        let place = Place::new();
        let mut store = place.store();
        let jobs =
            [ended_job(1, End::Failed, 10, 20), ended_job(2, End::Completed, 10, 30), job(3)];
        put(&mut store, jobs.iter().map(insert).collect());
        let ids: Vec<u32> =
            store.load_live(Timestamp::from_secs(30)).unwrap().iter().map(|job| job.id.0).collect();
        assert_eq!(ids, [2, 3]);
    }

    /// A translation costs more than the statement.
    #[test]
    fn what_every_job_writes_is_translated_once() {
        let place = Place::new();
        let mut store = place.store();
        let (told, heard) = std::sync::mpsc::channel();
        store.conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            let _ = match event {
                InstrumentationEvent::CacheQuery { sql, .. } => told.send((true, sql.to_owned())),
                InstrumentationEvent::StartQuery { query, .. } => {
                    told.send((false, query.to_string()))
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
        let events: Vec<(bool, String)> = heard.try_iter().collect();
        let is_kept =
            |sql: &str| events.iter().any(|(kept, text)| *kept && sql.starts_with(text.as_str()));
        let of_jobs = |sql: &&str| sql.starts_with("INSERT") || sql.starts_with("UPDATE");
        let run: Vec<&str> = events
            .iter()
            .filter(|event| !event.0)
            .map(|event| event.1.as_str())
            .filter(of_jobs)
            .collect();
        assert!(run.iter().filter(|sql| sql.starts_with("UPDATE")).count() >= 6, "{run:?}");
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
        let alone =
            store.commit(&[vec![insert(&job(2)), insert_with(&job(3), &large, b"")]]).remove(0);
        assert!(alone.as_ref().is_err_and(|e| e.fault() == Some(StoreFault::Full)), "{alone:?}");
        assert_eq!(all(&mut store), [job(1)], "nothing of the batch is left");

        store.conn.batch_execute("PRAGMA max_page_count = 40").unwrap();
        let answers = store.commit(&[
            vec![insert(&job(2))],
            vec![insert_with(&job(3), &large, b"")],
            vec![insert(&job(4))],
        ]);
        // The connection is new after the group has failed, and has no limit any more.
        assert_eq!(answers, [Ok(()), Ok(()), Ok(())]);
        assert_eq!(all(&mut store), [job(1), job(2), job(3), job(4)]);
    }

    #[test]
    fn after_a_failure_the_database_is_opened_again_and_what_failed_is_applied_once() {
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
        assert_eq!(faults(vec![store.commit_one(&large[0])]), [Some(StoreFault::Full)]);
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
    fn a_locked_database_is_a_fault_that_passes_and_a_damaged_one_is_none() {
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
        assert_eq!(
            store.launch_texts(JobId(5)),
            Err(StoreError::Missing { what: "job 5".to_owned() })
        );
    }

    #[test]
    fn another_script_replaces_the_one_of_a_job_and_of_nobody_else() {
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
        assert_eq!(count(&mut store, "texts"), 3, "nobody has the one in between");
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
    fn job_numbers_begin_at_one_and_follow_the_largest() {
        let place = Place::new();
        let mut store = place.store();
        assert_eq!(store.next_job_id().unwrap(), JobId(1));
        put(&mut store, vec![insert(&ended_job(41, End::Completed, 1, 2)), insert(&job(7))]);
        assert_eq!(store.next_job_id().unwrap(), JobId(42));
        put(&mut store, vec![insert(&job(u32::MAX))]);
        assert!(store.next_job_id().is_err());
    }
}
