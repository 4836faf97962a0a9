//! The database's reader: answers `sacct` and other queries about past jobs.
//!
//! Its own read-only connection keeps long queries from delaying commits.

use crate::error::StoreError;
use crate::load::{Columns, Key, KeyColumns};
use crate::schema::{jobs, requests};
use crate::{load, open, runs};
use diesel::dsl::{InnerJoin, IntoBoxed, Select};
use diesel::prelude::*;
use diesel::sqlite::{Sqlite, SqliteConnection};
use slotd_model::change::LaunchTexts;
use slotd_model::query::JobQuery;
use slotd_model::{Job, JobId, JobRef, JobState};
use std::path::Path;

/// A read-only connection to the database, used alongside the writer.
pub struct Reader {
    pub(super) conn: SqliteConnection,
}

/// An earlier run of a requeued job.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlierRun {
    /// The record as it was when the run ended.
    pub record: Job,
    /// The run was ended by a requeue.
    pub requeued: bool,
}

impl Reader {
    /// Opens a database that a `Store` has created.
    ///
    /// # Errors
    /// Fails if the file does not exist or is not a database that this version can read.
    pub fn open(path: &Path) -> Result<Reader, StoreError> {
        Ok(Reader { conn: open::reader(path)? })
    }

    /// Returns the IDs of the records that may match the query, in the order in which `sacct` lists
    /// them: the tasks of an array are sorted by task ID, at the position of the array. If
    /// `duplicates` is set, records whose earlier runs may match are included.
    ///
    /// The caller then loads the records in batches, so that a long answer is never entirely in
    /// memory and never blocks the database.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn candidates(&mut self, filter: &JobQuery) -> Result<Vec<JobId>, StoreError> {
        let mut found = self.conn.transaction(|conn| keys(conn, filter))?;
        found.sort_unstable();
        found.dedup();
        Ok(found.into_iter().map(|key| key.id).collect())
    }

    /// Returns those of the given records that match the query, with their steps, in no particular
    /// order. Reads the latest committed state.
    ///
    /// # Errors
    /// Fails if the database cannot be read or holds a record that no version of slotd writes.
    pub fn records(&mut self, ids: &[JobId], filter: &JobQuery) -> Result<Vec<Job>, StoreError> {
        self.conn.transaction(|conn| present(conn, ids, filter))
    }

    /// Like [`Self::records`], but also returns the matching earlier runs, sorted by job ID and
    /// run.
    ///
    /// # Errors
    /// Fails if the database cannot be read or holds a record that no version of slotd writes.
    pub fn records_with_runs(
        &mut self,
        ids: &[JobId],
        filter: &JobQuery,
    ) -> Result<(Vec<EarlierRun>, Vec<Job>), StoreError> {
        self.conn.transaction(|conn| Ok((earlier(conn, ids, filter)?, present(conn, ids, filter)?)))
    }

    /// Returns all records that match the query, sorted by ID.
    ///
    /// # Errors
    /// Fails if the database cannot be read or holds a record that no version of slotd writes.
    pub fn accounting(&mut self, filter: &JobQuery) -> Result<Vec<Job>, StoreError> {
        let ids = self.candidates(filter)?;
        self.records(&ids, filter)
    }

    /// Returns all records and earlier runs that match the query, sorted by ID.
    #[cfg(test)]
    pub fn accounting_with_runs(
        &mut self,
        filter: &JobQuery,
    ) -> Result<(Vec<EarlierRun>, Vec<Job>), StoreError> {
        let ids = self.candidates(&JobQuery { duplicates: true, ..filter.clone() })?;
        self.records_with_runs(&ids, filter)
    }

    /// Returns one record, or `None` if there is no such job.
    ///
    /// # Errors
    /// Fails if the database cannot be read or holds a record that no version of slotd writes.
    #[cfg(any(test, feature = "test-support"))]
    pub fn job(&mut self, job: JobId) -> Result<Option<Job>, StoreError> {
        let named = JobQuery { jobs: vec![JobRef::job(job)], ..JobQuery::default() };
        Ok(self.accounting(&named)?.into_iter().find(|found| found.id == job))
    }

    /// Returns the script and environment of a job, like `Store::launch_texts`.
    ///
    /// # Errors
    /// Fails if there is no such job or the database cannot be read.
    pub fn launch_texts(&mut self, job: JobId) -> Result<Option<LaunchTexts>, StoreError> {
        load::launch_texts(&mut self.conn, job)
    }
}

/// Returns the keys of the matching records. Must run in a transaction, or else a job that ends
/// between two of the queries could be missed or returned twice.
fn keys(conn: &mut SqliteConnection, filter: &JobQuery) -> Result<Vec<Key>, StoreError> {
    if !filter.jobs.is_empty() {
        return load::named_keys(conn, &filter.jobs);
    }
    let failed = StoreError::sql("read the history of jobs");
    let mut rows: Vec<Columns> = Vec::new();
    for query in [live(filter), ended(filter)].into_iter().flatten() {
        rows.extend(query.load::<Columns>(conn).map_err(&failed)?);
    }
    let mut found = rows.into_iter().map(load::key).collect::<Result<Vec<_>, _>>()?;
    if filter.duplicates {
        let ran_before: Vec<JobRef> =
            runs::jobs_since(conn, filter.since)?.into_iter().map(JobRef::job).collect();
        found.extend(load::named_keys(conn, &ran_before)?);
    }
    Ok(found)
}

fn present(
    conn: &mut SqliteConnection,
    ids: &[JobId],
    filter: &JobQuery,
) -> Result<Vec<Job>, StoreError> {
    let (mut jobs, _) = load::assemble(conn, ids)?;
    // The rows are only candidates: the model decides which of them match.
    jobs.retain(|job| filter.matches(job));
    Ok(jobs)
}

fn earlier(
    conn: &mut SqliteConnection,
    ids: &[JobId],
    filter: &JobQuery,
) -> Result<Vec<EarlierRun>, StoreError> {
    // A run ended by a requeue is never in a terminal state, so only its earlier states can match.
    let mut of_requeued = filter.clone();
    of_requeued.states.iter_mut().for_each(|states| states.retain(|state| !state.is_terminal()));
    let mut all = runs::of_jobs(conn, ids.iter().copied())?;
    let ran_before: Vec<JobId> = all.keys().copied().collect();
    let (jobs, _) = load::assemble::<Job>(conn, &ran_before)?;
    let mut found = Vec::new();
    for job in &jobs {
        for run in all.remove(&job.id).unwrap_or_default() {
            let requeued = run.requeued;
            let record = run.record(job);
            let rules = if requeued { &of_requeued } else { filter };
            if rules.matches(&record) {
                found.push(EarlierRun { record, requeued });
            }
        }
    }
    Ok(found)
}

type Candidates<'a> =
    IntoBoxed<'a, Select<InnerJoin<jobs::table, requests::table>, KeyColumns>, Sqlite>;

/// Selects jobs that have not ended, which have their own index. Returns `None` if none of them can
/// match.
fn live(filter: &JobQuery) -> Option<Candidates<'_>> {
    let states = wanted_states(filter, false);
    (!states.is_empty())
        .then(|| candidates(filter).filter(jobs::end_us.is_null().and(jobs::state.eq_any(states))))
}

/// Selects ended jobs by end time. Returns `None` if none of them can match.
fn ended(filter: &JobQuery) -> Option<Candidates<'_>> {
    let states = wanted_states(filter, true);
    if states.is_empty() {
        return None;
    }
    // Without a start time, the filter starts at the smallest value: the index covers only records
    // that have an end time.
    let since = filter.since.map_or(i64::MIN, |since| since.0);
    let mut query =
        candidates(filter).filter(jobs::end_us.ge(since).and(jobs::state.eq_any(states)));
    if let Some(until) = filter.until.filter(|_| filter.states_then && only_terminal(filter)) {
        query = query.filter(jobs::end_us.le(until.0));
    }
    Some(query)
}

fn candidates(filter: &JobQuery) -> Candidates<'_> {
    let mut query =
        jobs::table.inner_join(requests::table).select(load::key_columns()).into_boxed();
    if let Some(until) = filter.until {
        query = query.filter(jobs::submit_us.le(until.0));
    }
    if !filter.names.is_empty() {
        query = query.filter(requests::name.eq_any(&filter.names));
    }
    // The column holds user names, not numeric user IDs.
    if !filter.users.is_empty() && filter.users.iter().all(|user| user.parse::<u32>().is_err()) {
        query = query.filter(requests::user.eq_any(&filter.users));
    }
    if !filter.accounts.is_empty() {
        query = query.filter(requests::account.eq_any(&filter.accounts));
    }
    if !filter.partitions.is_empty() {
        // A job that never started may list several partitions.
        query = query
            .filter(jobs::partition.eq_any(&filter.partitions).or(jobs::partition.like("%,%")));
    }
    query
}

/// Returns the current states, terminal or not, of the jobs that may match. For a time window, a
/// job that has since ended may have been pending or running.
fn wanted_states(filter: &JobQuery, terminal: bool) -> Vec<&'static str> {
    let asked = |state: &JobState| match &filter.states {
        None => true,
        Some(states) if filter.states_then && !only_terminal(filter) => !states.is_empty(),
        Some(states) => states.contains(state),
    };
    JobState::ALL
        .into_iter()
        .filter(|s| s.is_terminal() == terminal)
        .filter(asked)
        .map(JobState::name)
        .collect()
}

/// Returns whether the query asks only for terminal states, which a job never leaves.
fn only_terminal(filter: &JobQuery) -> bool {
    filter.states.as_ref().is_some_and(|states| states.iter().all(|state| state.is_terminal()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Place, ended_job, insert, job, put};
    use crate::tests::any_jobs;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use slotd_model::End;
    use slotd_model::array::{TaskRange, TaskSet};
    use slotd_model::{ArrayRole, Timestamp};

    fn any_filter() -> impl Strategy<Value = JobQuery> {
        let words = |from: &'static [&'static str]| {
            vec(proptest::sample::select(from).prop_map(str::to_owned), 0..2)
        };
        let tasks = (0u32..60, 0u32..60, 1u32..4).prop_map(|(first, last, step)| {
            TaskSet::from_ranges(TaskRange::new(first, last, step).into_iter().collect())
        });
        let named = (1u32..12, option::of(tasks))
            .prop_map(|(id, tasks)| JobRef { tasks, ..JobRef::job(JobId(id)) });
        let states = option::of(vec(proptest::sample::select(&JobState::ALL[..]), 0..3));
        let time = || option::of((0i64..20).prop_map(Timestamp));
        (
            vec(named, 0..3),
            words(&["a", "b"]),
            words(&["a", "b"]),
            words(&["cpu", "gpu"]),
            words(&["a"]),
            states,
            time(),
            time(),
            any::<bool>(),
        )
            .prop_map(
                |(jobs, names, users, partitions, accounts, states, since, until, states_then)| {
                    JobQuery {
                        jobs,
                        names,
                        users,
                        partitions,
                        accounts,
                        states,
                        since,
                        until,
                        states_then,
                        ..JobQuery::default()
                    }
                },
            )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

        /// The SQL filters never drop a job that the model would match.
        #[test]
        fn indexed_queries_match_a_full_scan(jobs in any_jobs(8), filters in vec(any_filter(), 20)) {
            let place = Place::new();
            let mut store = place.store();
            put(&mut store, jobs.iter().map(insert).collect());
            let mut reader = place.reader();
            for filter in filters {
                let expected: Vec<JobId> = jobs.iter().filter(|job| filter.matches(job)).map(|job| job.id).collect();
                let found: Vec<JobId> = reader.accounting(&filter).unwrap().iter().map(|job| job.id).collect();
                prop_assert_eq!(found, expected, "{:?}", filter);
            }
        }
    }

    #[derive(QueryableByName)]
    struct Detail {
        #[diesel(sql_type = diesel::sql_types::Text)]
        detail: String,
    }

    fn plan(conn: &mut SqliteConnection, sql: &str) -> Vec<String> {
        let plan: Vec<Detail> =
            diesel::sql_query(format!("EXPLAIN QUERY PLAN {sql}")).load(conn).unwrap();
        plan.into_iter().map(|row| row.detail).collect()
    }

    #[test]
    fn no_query_scans_the_whole_history() {
        let place = Place::new();
        drop(place.store());
        let conn = &mut SqliteConnection::establish(&place.path().display().to_string()).unwrap();
        let since = Some(Timestamp::from_secs(1));
        let word = || vec!["x".to_owned()];
        let windows = [
            JobQuery::default(),
            JobQuery { since, ..JobQuery::default() },
            JobQuery { since, until: since, ..JobQuery::default() },
            JobQuery {
                since,
                states: Some(vec![JobState::Ended(End::Failed)]),
                ..JobQuery::default()
            },
            JobQuery {
                since,
                states: Some(vec![JobState::Running]),
                states_then: true,
                ..JobQuery::default()
            },
            JobQuery {
                since,
                names: word(),
                users: word(),
                partitions: word(),
                ..JobQuery::default()
            },
            JobQuery { names: word(), ..JobQuery::default() },
        ];
        for filter in windows {
            for query in [live(&filter), ended(&filter)].into_iter().flatten() {
                let plan = plan(conn, &diesel::debug_query::<Sqlite, _>(&query).to_string());
                assert!(plan.iter().all(|line| !line.starts_with("SCAN")), "{filter:?}: {plan:#?}");
            }
        }
        let in_window = JobQuery { since, ..JobQuery::default() };
        let by_end =
            plan(conn, &diesel::debug_query::<Sqlite, _>(&ended(&in_window).unwrap()).to_string());
        assert!(
            by_end.contains(&"SEARCH jobs USING INDEX jobs_by_end (end_us>?)".to_owned()),
            "{by_end:#?}"
        );
    }

    #[test]
    fn queries_by_job_id_use_an_index() {
        let place = Place::new();
        drop(place.store());
        let conn = &mut SqliteConnection::establish(&place.path().display().to_string()).unwrap();
        for (condition, expected) in [
            ("job_id IN (?, ?)", "SEARCH jobs USING INTEGER PRIMARY KEY (rowid=?)"),
            ("array_job_id IN (?, ?)", "SEARCH jobs USING INDEX jobs_by_array (array_job_id=?)"),
            (
                "array_job_id = ? AND array_task_id IS NULL",
                "SEARCH jobs USING INDEX jobs_by_array (array_job_id=? AND array_task_id=?)",
            ),
            (
                "array_job_id = ? AND array_task_id BETWEEN ? AND ?",
                "SEARCH jobs USING INDEX jobs_by_array (array_job_id=? AND array_task_id>? AND array_task_id<?)",
            ),
        ] {
            assert_eq!(plan(conn, &format!("SELECT * FROM jobs WHERE {condition}")), [expected]);
        }
    }

    #[test]
    fn a_job_is_readable_as_soon_as_it_is_committed() {
        let place = Place::new();
        let mut store = place.store();
        let mut reader = place.reader();
        assert_eq!(reader.job(JobId(1)).unwrap(), None);
        put(&mut store, vec![insert(&job(1))]);
        assert_eq!(reader.job(JobId(1)).unwrap(), Some(job(1)));
    }

    #[test]
    fn an_array_is_found_by_its_id_and_a_task_by_either_of_its_ids() {
        let place = Place::new();
        let mut store = place.store();
        let task = |id, task| Job {
            role: ArrayRole::Task { array_job: JobId(10), task },
            ..ended_job(id, End::Completed, 1, 2)
        };
        let rest =
            Job { role: ArrayRole::Rest { tasks: TaskSet::one(9), limit: Some(1) }, ..job(10) };
        put(&mut store, [rest, task(11, 0), task(12, 1), job(13)].iter().map(insert).collect());
        let mut reader = place.reader();
        let mut ids = |tasks: Option<TaskSet>, job: u32| -> Vec<u32> {
            let filter = JobQuery {
                jobs: vec![JobRef { tasks, ..JobRef::job(JobId(job)) }],
                ..JobQuery::default()
            };
            reader.accounting(&filter).unwrap().iter().map(|job| job.id.0).collect()
        };
        assert_eq!(ids(None, 10), [10, 11, 12]);
        assert_eq!(ids(None, 12), [12]);
        assert_eq!(ids(Some(TaskSet::one(1)), 10), [12]);
        assert_eq!(ids(Some(TaskSet::one(9)), 10), [10]);
        assert_eq!(ids(Some(TaskSet::one(5)), 10), [0u32; 0]);
    }
}
