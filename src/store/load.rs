//! From rows to jobs, and the questions that the writer and the reader answer alike.

use crate::model::change::LaunchTexts;
use crate::model::{Job, JobId, JobRef, JobRequest, JobState, Step, Timestamp};
use crate::store::error::StoreError;
use crate::store::row::{JobRow, StepRow, from_json};
use crate::store::schema::{jobs, launches, requests, steps, texts};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// How many values one statement carries at most: enough to make the statement's own cost small.
pub(super) const CHUNK: usize = 500;

/// Requests by their rows: equal rows are one request in memory.
pub(super) type Requests = HashMap<i64, Arc<JobRequest>>;

/// The names of the states of jobs that have ended, or of the others.
fn state_names(terminal: bool) -> Vec<&'static str> {
    JobState::ALL.into_iter().filter(|state| state.is_terminal() == terminal).map(JobState::name).collect()
}

/// Adds requests and steps to the rows. Keeps their order.
pub(super) fn assemble(conn: &mut SqliteConnection, rows: Vec<JobRow>) -> Result<(Vec<Job>, Requests), StoreError> {
    let requests = load_requests(conn, &rows)?;
    let mut steps = load_steps(conn, &rows)?;
    let mut jobs = Vec::with_capacity(rows.len());
    for row in rows {
        let request = requests.get(&row.request_id).cloned();
        let request = request
            .ok_or_else(|| StoreError::Missing { what: format!("request {} of job {}", row.request_id, row.job_id) })?;
        let steps = steps.remove(&row.job_id).unwrap_or_default();
        jobs.push(row.into_job(request, steps)?);
    }
    Ok((jobs, requests))
}

fn load_requests(conn: &mut SqliteConnection, rows: &[JobRow]) -> Result<Requests, StoreError> {
    let mut ids: Vec<i64> = rows.iter().map(|row| row.request_id).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut loaded = Requests::with_capacity(ids.len());
    for ids in ids.chunks(CHUNK) {
        let found: Vec<(i64, String)> = requests::table
            .filter(requests::request_id.eq_any(ids))
            .select((requests::request_id, requests::body))
            .load(conn)
            .map_err(StoreError::sql("read requests"))?;
        for (id, body) in found {
            loaded.insert(id, Arc::new(from_json("requests", "body", &body)?));
        }
    }
    Ok(loaded)
}

fn load_steps(conn: &mut SqliteConnection, rows: &[JobRow]) -> Result<HashMap<i64, Vec<Step>>, StoreError> {
    let ids: Vec<i64> = rows.iter().map(|row| row.job_id).collect();
    let mut loaded: HashMap<i64, Vec<Step>> = HashMap::new();
    for ids in ids.chunks(CHUNK) {
        let found: Vec<StepRow> = steps::table
            .filter(steps::job_id.eq_any(ids))
            .select(StepRow::as_select())
            .load(conn)
            .map_err(StoreError::sql("read steps"))?;
        for row in found {
            loaded.entry(row.job_id).or_default().push(row.into_step()?);
        }
    }
    // batch, interactive, then the numbers: as text they would come in another order.
    loaded.values_mut().for_each(|steps| steps.sort_by_key(|step| step.id));
    Ok(loaded)
}

/// Every live job and every job that ended at `ended_since` or later, by number.
pub(super) fn live_rows(conn: &mut SqliteConnection, ended_since: Timestamp) -> Result<Vec<JobRow>, StoreError> {
    let mut rows: Vec<JobRow> = jobs::table
        .filter(jobs::state.eq_any(state_names(false)))
        .select(JobRow::as_select())
        .load(conn)
        .map_err(StoreError::sql("read live jobs"))?;
    let ended: Vec<JobRow> = jobs::table
        .filter(jobs::state.eq_any(state_names(true)).and(jobs::end_us.ge(ended_since.0)))
        .select(JobRow::as_select())
        .load(conn)
        .map_err(StoreError::sql("read ended jobs"))?;
    rows.extend(ended);
    rows.sort_unstable_by_key(|row| row.job_id);
    Ok(rows)
}

/// The rows of the records that these names mean, each once, by number.
pub(super) fn named_rows(conn: &mut SqliteConnection, named: &[JobRef]) -> Result<Vec<JobRow>, StoreError> {
    let failed = StoreError::sql("read named jobs");
    let mut found: BTreeMap<i64, JobRow> = BTreeMap::new();
    let mut keep = |rows: Vec<JobRow>| found.extend(rows.into_iter().map(|row| (row.job_id, row)));
    let all = jobs::table.select(JobRow::as_select());
    for some in named.chunks(CHUNK) {
        // A record has the number itself; of an array, that is the compact record, or the last task.
        let own: Vec<i64> = some.iter().map(|r| i64::from(r.job.0)).collect();
        keep(all.filter(jobs::job_id.eq_any(own)).load(conn).map_err(&failed)?);
        let arrays: Vec<i64> = some.iter().filter(|r| r.tasks.is_none()).map(|r| i64::from(r.job.0)).collect();
        keep(all.filter(jobs::array_job_id.eq_any(arrays)).load(conn).map_err(&failed)?);
    }
    for name in named {
        let Some(tasks) = &name.tasks else { continue };
        let of_array = jobs::array_job_id.eq(i64::from(name.job.0));
        // Compact records, which stand for several tasks.
        keep(all.filter(of_array.and(jobs::array_task_id.is_null())).load(conn).map_err(&failed)?);
        for range in tasks.ranges() {
            let within = jobs::array_task_id.between(i64::from(range.first), i64::from(range.last));
            keep(all.filter(of_array.and(within)).load(conn).map_err(&failed)?);
        }
    }
    Ok(found.into_values().collect())
}

/// Script and environment of a job; `None` where it has none (an allocation).
pub(super) fn launch_texts(conn: &mut SqliteConnection, job: JobId) -> Result<Option<LaunchTexts>, StoreError> {
    let Some((script_id, env_id)) = launch_row(conn, job)? else { return Ok(None) };
    let mut text = |id: i64| {
        texts::table
            .find(id)
            .select(texts::body)
            .first::<Vec<u8>>(conn)
            .map_err(StoreError::sql("read a script or an environment"))
    };
    Ok(Some(LaunchTexts { script: text(script_id)?, env: env_id.map(text).transpose()?.unwrap_or_default() }))
}

/// The texts' rows: the job's own, else those of its array.
pub(super) fn launch_row(conn: &mut SqliteConnection, job: JobId) -> Result<Option<(i64, Option<i64>)>, StoreError> {
    let of = |conn: &mut SqliteConnection, id: i64| {
        launches::table
            .find(id)
            .select((launches::script_id, launches::env_id))
            .first::<(i64, Option<i64>)>(conn)
            .optional()
            .map_err(StoreError::sql("look for the texts of a job"))
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
        .map_err(StoreError::sql("look for the array of a job"))?
        .ok_or_else(|| StoreError::Missing { what: format!("job {job}") })?;
    array.map_or(Ok(None), |array| of(conn, array))
}
