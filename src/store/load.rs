//! Converts rows to jobs, and implements the queries that the writer and the reader share.

use crate::error::StoreError;
use crate::open;
use crate::row::{JobRow, StepRow, from_json, job_id};
use crate::schema::{jobs, launches, requests, steps, texts};
use diesel::dsl::sql;
use diesel::expression::SqlLiteral;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel::sqlite::SqliteConnection;
use slotd_model::change::LaunchTexts;
use slotd_model::run::RunState;
use slotd_model::{End, Job, JobId, JobRef, JobRequest, JobState, Step, TaskSet, Timestamp};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of values in one statement, enough to make the statement's own cost
/// negligible.
pub(super) const CHUNK: usize = 500;

/// Requests sorted by their rows, so that jobs with the same row share one request in memory.
pub(super) type Requests = Vec<(i64, Arc<JobRequest>)>;

/// Returns the names of the terminal or of the other job states.
fn state_names(terminal: bool) -> Vec<&'static str> {
    JobState::ALL
        .into_iter()
        .filter(|state| state.is_terminal() == terminal)
        .map(JobState::name)
        .collect()
}

/// Returns the first and the last of these sorted IDs if there are no gaps between them. A scan of
/// their rows is faster than a search for each ID, and its statement is prepared only once.
fn span(ids: &[i64]) -> Option<(i64, i64)> {
    let (first, last) = (*ids.first()?, *ids.last()?);
    let has_no_gaps = ids.windows(2).all(|two| two[0].checked_add(1) == Some(two[1]));
    has_no_gaps.then_some((first, last))
}

/// Jobs for the memory of the daemon. They are boxed where they are read, on all CPUs, because the
/// core keeps each of them in a box.
pub type LiveJobs = Vec<Box<Job>>;

/// The records that were loaded, sorted by ID, and all their requests.
pub(super) type Loaded<J> = (Vec<J>, Requests);

/// Loads the records with these IDs, including requests and steps, as jobs or boxed jobs. A record
/// that cannot be read does not prevent the others from loading: a placeholder takes its place.
pub(super) fn assemble<J: From<Job>>(
    conn: &mut SqliteConnection,
    ids: &[JobId],
) -> Result<Loaded<J>, StoreError> {
    let mut ids: Vec<i64> = ids.iter().map(|id| i64::from(id.0)).collect();
    ids.sort_unstable();
    let mut rows: Vec<JobRow> = Vec::with_capacity(ids.len());
    for ids in ids.chunks(CHUNK) {
        let all = jobs::table.select(JobRow::as_select()).into_boxed();
        let of_these = match span(ids) {
            Some((first, last)) => all.filter(jobs::job_id.between(first, last)),
            None => all.filter(jobs::job_id.eq_any(ids)),
        };
        rows.extend(of_these.load(conn).map_err(StoreError::sql("read jobs"))?);
    }
    rows.sort_unstable_by_key(|row| row.job_id);
    let (requests, mut bad_requests) = load_requests(conn, &rows)?;
    let (mut steps, mut bad_steps) = load_steps(conn, &rows)?;
    let mut jobs = Vec::with_capacity(rows.len());
    for row in rows {
        let (id, request_id) = (row.job_id, row.request_id);
        let missing = || StoreError::Missing { what: format!("request {request_id} of job {id}") };
        let request = match requests.binary_search_by_key(&request_id, |(row, _)| *row) {
            Ok(at) => Ok(Arc::clone(&requests[at].1)),
            Err(_) => Err(bad_requests.remove(&request_id).unwrap_or_else(missing)),
        };
        let steps =
            bad_steps.remove(&id).map_or_else(|| Ok(steps.remove(&id).unwrap_or_default()), Err);
        let read = request.and_then(|request| row.into_job(request, steps?));
        let job = match read {
            Ok(job) => job,
            Err(why) => unreadable(job_id("jobs", id)?, &why),
        };
        jobs.push(J::from(job));
    }
    Ok((jobs, requests))
}

/// The number of records for which another connection is worthwhile.
pub(super) const PART: usize = 4096;

/// Loads the records with these sorted IDs, in parts of this size. All CPUs share the parts, and
/// each has its own connection to the database.
pub(super) fn assemble_in_parts<J: From<Job> + Send>(
    conn: &mut SqliteConnection,
    path: &Path,
    ids: &[JobId],
    part: usize,
) -> Result<Vec<Loaded<J>>, StoreError> {
    let left = Mutex::new(ids.chunks(part).enumerate());
    // The lock is not held while a part is loaded.
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let load = |conn: &mut SqliteConnection| {
        let parts = std::iter::from_fn(next);
        parts.map(|(at, ids)| (at, assemble(conn, ids))).collect::<Vec<_>>()
    };
    // Counting the CPUs reads files of the cgroup, which takes longer than a few records.
    let count_cpus = || std::thread::available_parallelism().map_or(1, usize::from);
    let others = if ids.len() > part { count_cpus().min(ids.len().div_ceil(part)) - 1 } else { 0 };
    let mut loaded = std::thread::scope(|scope| {
        // Without a thread or a connection, the others do its work.
        let begin = || {
            let load =
                || open::reader(path).map_or_else(|_| Vec::new(), |mut conn| load(&mut conn));
            std::thread::Builder::new().spawn_scoped(scope, load).ok()
        };
        let others: Vec<_> = (0..others).filter_map(|_| begin()).collect();
        let mut loaded = load(conn);
        for other in others {
            loaded.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        loaded
    });
    loaded.sort_unstable_by_key(|(at, _)| *at);
    loaded.into_iter().map(|(_, part)| part).collect()
}

/// The prefix of a placeholder's comment.
const UNREADABLE: &str = "its record cannot be read and is left unchanged: ";

/// Returns a placeholder for a record that cannot be read. The placeholder is a failed job that is
/// not requeued: there is nothing to start, and a new run would overwrite the record.
fn unreadable(id: JobId, why: &StoreError) -> Job {
    let request = JobRequest {
        name: "(unreadable)".to_owned(),
        uid: nix::unistd::getuid().as_raw(),
        no_requeue: true,
        ..JobRequest::default()
    };
    let run = RunState {
        state: JobState::Ended(End::Failed),
        system_comment: Some(format!("{UNREADABLE}{why}")),
        end: Some(Timestamp::default()),
        ..RunState::default()
    };
    Job { id, request: Arc::new(request), run, ..Job::default() }
}

/// Returns why the record of this job could not be read, if the job is a placeholder.
pub(super) fn why_unreadable(job: &Job) -> Option<&str> {
    job.run.system_comment.as_deref()?.strip_prefix(UNREADABLE)
}

/// Errors of unreadable rows, by ID.
type Unread = HashMap<i64, StoreError>;

fn load_requests(
    conn: &mut SqliteConnection,
    rows: &[JobRow],
) -> Result<(Requests, Unread), StoreError> {
    let mut ids: Vec<i64> = rows.iter().map(|row| row.request_id).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut loaded = Requests::with_capacity(ids.len());
    let mut unread = Unread::new();
    for ids in ids.chunks(CHUNK) {
        for (id, body) in request_bodies(conn, ids)? {
            match from_json("requests", "body", &body) {
                Ok(request) => loaded.push((id, Arc::new(request))),
                Err(why) => drop(unread.insert(id, why)),
            }
        }
    }
    Ok((loaded, unread))
}

/// Reads the requests in these rows, which are sorted, in the same order.
fn request_bodies(
    conn: &mut SqliteConnection,
    ids: &[i64],
) -> Result<Vec<(i64, String)>, StoreError> {
    let all = requests::table
        .select((requests::request_id, requests::body))
        .order(requests::request_id)
        .into_boxed();
    let of_these = match span(ids) {
        Some((first, last)) => all.filter(requests::request_id.between(first, last)),
        None => all.filter(requests::request_id.eq_any(ids)),
    };
    of_these.load(conn).map_err(StoreError::sql("read requests"))
}

fn load_steps(
    conn: &mut SqliteConnection,
    rows: &[JobRow],
) -> Result<(HashMap<i64, Vec<Step>>, Unread), StoreError> {
    let mut ids: Vec<i64> = rows.iter().map(|row| row.job_id).collect();
    ids.sort_unstable();
    let mut loaded: HashMap<i64, Vec<Step>> = HashMap::new();
    let mut unread = Unread::new();
    for ids in ids.chunks(CHUNK) {
        let all = steps::table.select(StepRow::as_select()).into_boxed();
        let of_these = match span(ids) {
            Some((first, last)) => all.filter(steps::job_id.between(first, last)),
            None => all.filter(steps::job_id.eq_any(ids)),
        };
        let found: Vec<StepRow> = of_these.load(conn).map_err(StoreError::sql("read steps"))?;
        for row in found {
            let job = row.job_id;
            match row.into_step() {
                Ok(step) => loaded.entry(job).or_default().push(step),
                Err(why) => drop(unread.insert(job, why)),
            }
        }
    }
    // `batch`, `interactive`, then by number. SQL would sort the numbers as text.
    loaded.values_mut().for_each(|steps| steps.sort_by_key(|step| step.id));
    Ok((loaded, unread))
}

/// Returns the sorted IDs of all live jobs and of all jobs that ended at or after `ended_since`.
/// Reads only indexes.
pub(super) fn live_ids(
    conn: &mut SqliteConnection,
    ended_since: Timestamp,
) -> Result<Vec<JobId>, StoreError> {
    let mut ids: Vec<i64> = jobs::table
        .filter(jobs::end_us.is_null())
        .select(jobs::job_id)
        .load(conn)
        .map_err(StoreError::sql("find live jobs"))?;
    let ended: Vec<i64> = jobs::table
        .filter(jobs::end_us.ge(ended_since.0).and(jobs::state.eq_any(state_names(true))))
        .select(jobs::job_id)
        .load(conn)
        .map_err(StoreError::sql("find ended jobs"))?;
    ids.extend(ended);
    ids.sort_unstable();
    ids.into_iter().map(|id| job_id("jobs", id)).collect()
}

/// The position of a record in a listing: its array or job ID, its first task ID, then its own ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    listed: i64,
    task: i64,
    pub id: JobId,
}

/// The values of [`KeyColumns`].
pub(super) type Columns = (i64, Option<i64>, i64);

/// The columns of a [`Key`]. The second one is the array's ID. A compact record is sorted by its
/// first task.
pub(super) type KeyColumns = (jobs::job_id, jobs::array_job_id, SqlLiteral<BigInt>);

pub(super) fn key_columns() -> KeyColumns {
    const TASK: &str = "CASE WHEN jobs.array_task_id IS NOT NULL THEN jobs.array_task_id WHEN jobs.array_job_id IS NULL THEN 0 \
         ELSE coalesce(jobs.body ->> '$.role.Rest.tasks[0].first', jobs.body ->> '$.role.Part.tasks[0].first', 0) END";
    (jobs::job_id, jobs::array_job_id, sql::<BigInt>(TASK))
}

pub(super) fn key((id, array, task): Columns) -> Result<Key, StoreError> {
    Ok(Key { listed: array.unwrap_or(id), task, id: job_id("jobs", id)? })
}

/// The most ranges of tasks that are read one by one.
const MOST_SPANS: usize = 64;

/// Returns the spans of tasks to read: each range or, if there are many, all of them at once.
fn spans(tasks: &TaskSet) -> Vec<(u32, u32)> {
    match tasks.ranges() {
        [first, .., last] if tasks.ranges().len() > MOST_SPANS => vec![(first.first, last.last)],
        ranges => ranges.iter().map(|range| (range.first, range.last)).collect(),
    }
}

/// Returns the keys of the records that match these references, without duplicates.
pub(super) fn named_keys(
    conn: &mut SqliteConnection,
    named: &[JobRef],
) -> Result<Vec<Key>, StoreError> {
    let failed = StoreError::sql("read named jobs");
    let mut rows: Vec<Columns> = Vec::new();
    let all = || jobs::table.select(key_columns());
    for some in named.chunks(CHUNK) {
        // Records with that ID. For an array, this is the compact record or the last task.
        let own: Vec<i64> = some.iter().map(|r| i64::from(r.job.0)).collect();
        rows.extend(all().filter(jobs::job_id.eq_any(own)).load::<Columns>(conn).map_err(&failed)?);
        let arrays: Vec<i64> =
            some.iter().filter(|r| r.tasks.is_none()).map(|r| i64::from(r.job.0)).collect();
        rows.extend(
            all()
                .filter(jobs::array_job_id.eq_any(arrays))
                .load::<Columns>(conn)
                .map_err(&failed)?,
        );
    }
    for name in named {
        let Some(tasks) = &name.tasks else { continue };
        let of_array = jobs::array_job_id.eq(i64::from(name.job.0));
        // Compact records, which hold several tasks.
        rows.extend(
            all()
                .filter(of_array.and(jobs::array_task_id.is_null()))
                .load::<Columns>(conn)
                .map_err(&failed)?,
        );
        let is_named =
            |(_, _, task): &Columns| u32::try_from(*task).is_ok_and(|t| tasks.contains(t));
        for (first, last) in spans(tasks) {
            let within = jobs::array_task_id.between(i64::from(first), i64::from(last));
            let found =
                all().filter(of_array.and(within)).load::<Columns>(conn).map_err(&failed)?;
            rows.extend(found.into_iter().filter(is_named));
        }
    }
    let mut keys = rows.into_iter().map(key).collect::<Result<Vec<_>, _>>()?;
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// Returns the script and environment of a job, or `None` if it has none (an allocation).
pub(super) fn launch_texts(
    conn: &mut SqliteConnection,
    job: JobId,
) -> Result<Option<LaunchTexts>, StoreError> {
    let Some((script_id, env_id)) = launch_row(conn, job)? else { return Ok(None) };
    let mut text = |id: i64| {
        texts::table
            .find(id)
            .select(texts::body)
            .first::<Vec<u8>>(conn)
            .map_err(StoreError::sql("read a script or an environment"))
    };
    Ok(Some(LaunchTexts {
        script: text(script_id)?,
        env: env_id.map(text).transpose()?.unwrap_or_default(),
    }))
}

/// Returns the rows of the script and the environment: the job's own, or else its array's.
pub(super) fn launch_row(
    conn: &mut SqliteConnection,
    job: JobId,
) -> Result<Option<(i64, Option<i64>)>, StoreError> {
    let of = |conn: &mut SqliteConnection, id: i64| {
        launches::table
            .find(id)
            .select((launches::script_id, launches::env_id))
            .first::<(i64, Option<i64>)>(conn)
            .optional()
            .map_err(StoreError::sql("find the script and environment of a job"))
    };
    let id = i64::from(job.0);
    if let Some(row) = of(conn, id)? {
        return Ok(Some(row));
    }
    let array = jobs::table
        .find(id)
        .select(jobs::array_job_id)
        .first::<Option<i64>>(conn)
        .optional()
        .map_err(StoreError::sql("find the array of a job"))?
        .ok_or_else(|| StoreError::Missing { what: format!("job {job}") })?;
    array.map_or(Ok(None), |array| of(conn, array))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Place, insert, job, put};

    #[test]
    fn only_ids_without_gaps_are_a_span() {
        assert_eq!(span(&[]), None);
        assert_eq!(span(&[7]), Some((7, 7)));
        assert_eq!(span(&[7, 8, 9]), Some((7, 9)));
        for gaps in [&[7, 9][..], &[7, 7, 9], &[7, 8, 10], &[i64::MIN, i64::MAX]] {
            assert_eq!(span(gaps), None, "{gaps:?}");
        }
    }

    #[test]
    fn parts_are_returned_in_order() {
        let place = Place::new();
        let mut store = place.store();
        put(&mut store, (1..=25).map(|id| insert(&job(id))).collect());
        let ids = live_ids(&mut store.conn, Timestamp(0)).unwrap();
        assert_eq!(ids.len(), 25);
        let whole = assemble::<Job>(&mut store.conn, &ids).unwrap().0;
        for part in [1, 2, 24, 25, 26] {
            // Without a file to open, the connection at hand loads all parts.
            for path in [&place.path(), Path::new("/dev/null/none")] {
                let parts = assemble_in_parts(&mut store.conn, path, &ids, part).unwrap();
                let jobs: Vec<Job> = parts.into_iter().flat_map(|(jobs, _)| jobs).collect();
                assert_eq!(jobs, whole, "{part}");
            }
        }
    }
}
