//! The queue and the history as JSON.

use super::host::Host;
use super::refused::{Refused, waiting};
use super::rows::{Row, millis};
use crate::args::origin::Origin;
use crate::commands::output::{self, ctx};
use crate::commands::{ask_for_jobs, origin, report, sacct};
use crate::live::{Picture, Place};
use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use slotd_model::query::JobQuery;
use slotd_model::tres::Usage;
use slotd_model::view::{JobView, NodeView};
use slotd_model::{JobId, JobRef, Progress};
use slotd_protocol::request::Request;
use slotd_render::{Ctx, seff};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

/// The default number of pending rows and of rows in the history, and the number of ended rows in
/// the queue.
pub const USUAL: usize = 200;

/// Maximum number of rows.
pub const MOST: usize = 20_000;

#[derive(Debug, Serialize)]
struct Queue {
    host: Host,
    /// The running jobs, the first pending jobs and the last ended jobs, by record number.
    rows: BTreeMap<u32, Row>,
    /// The number of all pending records.
    waiting_count: usize,
    arrays: BTreeMap<u32, Tally>,
}

/// The progress of an array that has pending or running tasks.
#[derive(Debug, Serialize)]
struct Tally {
    total: usize,
    waiting: usize,
    running: usize,
    failed: usize,
}

impl From<Progress> for Tally {
    fn from(progress: Progress) -> Tally {
        let Progress { total, waiting, running, over, failed } = progress;
        // Zero means that only the counted jobs are known.
        Tally { total: total.max(waiting + running + over), waiting, running, failed }
    }
}

/// Returns the records on the page. At most `rows` of them are pending.
pub fn visible(picture: &Picture, rows: usize) -> impl Iterator<Item = &JobView> {
    let waiting = picture.list(Place::Waiting).take(rows);
    picture.running().chain(waiting).chain(picture.list(Place::Ended).take(USUAL))
}

/// Returns the queue as JSON, for [`patch`].
pub fn view(
    picture: &Picture,
    node: &NodeView,
    rows: usize,
    ctx: &Ctx,
) -> serde_json::Result<Value> {
    let row = |job: &JobView| {
        // Details with another state are outdated.
        let details = picture.details.get(&job.id).filter(|it| it.run.state == job.run.state);
        let job = details.unwrap_or(job);
        let usage = if job.run.state.is_terminal() {
            Some(seff::recorded_usage(job))
        } else {
            let steps = picture.usage.get(&job.id).map(|now| now.steps.values());
            steps.map(|steps| steps.fold(Usage::default(), |sum, step| sum.merge(*step)))
        };
        let mut row = Row::of(job, usage.as_ref(), ctx);
        let lately = picture.usage.get(&job.id).and_then(|now| now.cpus);
        row.busy_cpus = lately.filter(|_| job.run.state.is_active()).or(row.busy_cpus);
        (job.id.0, row)
    };
    serde_json::to_value(Queue {
        host: Host::of(node),
        rows: visible(picture, rows).map(row).collect(),
        waiting_count: picture.list(Place::Waiting).len(),
        arrays: unfinished(picture, visible(picture, rows)),
    })
}

/// Returns the progress of the arrays of these records that have pending or running tasks.
fn unfinished<'a>(
    picture: &Picture,
    jobs: impl Iterator<Item = &'a JobView>,
) -> BTreeMap<u32, Tally> {
    let arrays = jobs.filter_map(|job| job.array_job_id());
    let all = arrays.map(|array| (array.0, picture.progress(array)));
    let live = all.filter(|(_, progress)| progress.waiting + progress.running > 0);
    live.map(|(array, progress)| (array, Tally::from(progress))).collect()
}

/// Returns the JSON merge patch (RFC 7396) that turns one value into another: the changed fields,
/// and null for the removed ones. `None` if the values are equal.
pub fn patch(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(was), Value::Object(is)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let gone = was.keys().filter(|key| !is.contains_key(*key)).map(|key| (key, Value::Null));
    let changed = is.iter().filter_map(|(key, new)| {
        Some((key, was.get(key).map_or_else(|| Some(new.clone()), |old| patch(old, new))?))
    });
    let all: serde_json::Map<_, _> =
        gone.chain(changed).map(|(key, value)| (key.clone(), value)).collect();
    (!all.is_empty()).then_some(Value::Object(all))
}

/// A search of the history, with the options of `sacct`. Empty fields are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Search {
    starttime: String,
    endtime: String,
    jobs: String,
    name: String,
    user: String,
    state: String,
    partition: String,
    rows: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Found {
    now: i64,
    /// The matching jobs, latest first.
    jobs: Vec<Row>,
    /// The number of matching jobs, which may exceed the length of `jobs`.
    count: usize,
    /// The progress of the arrays of `jobs` that have pending or running tasks.
    arrays: BTreeMap<u32, Tally>,
}

pub async fn history(search: web::Query<Search>) -> Result<HttpResponse, Refused> {
    let found = waiting(move || find(&search)).await?;
    Ok(HttpResponse::Ok().json(found))
}

#[derive(Debug, Deserialize)]
pub struct Since {
    /// A time in the format of `sacct`.
    starttime: String,
}

/// Sends the report on the jobs that ended since a time, in the format of `slotd report --json`.
pub async fn report(since: web::Query<Since>) -> Result<HttpResponse, Refused> {
    let found = waiting(move || {
        report::since(&since.starttime).map_err(|e| Refused::bad(Refused::from(e)))
    });
    Ok(HttpResponse::Ok().json(found.await?))
}

impl Search {
    /// Returns the equivalent command line.
    fn line(&self) -> Vec<OsString> {
        let options = [
            ("starttime", &self.starttime),
            ("endtime", &self.endtime),
            ("jobs", &self.jobs),
            ("name", &self.name),
            ("user", &self.user),
            ("state", &self.state),
            ("partition", &self.partition),
        ];
        let said = options
            .iter()
            .map(|(name, text)| (name, text.trim()))
            .filter(|(_, text)| !text.is_empty());
        let words = said.map(|(name, text)| OsString::from(format!("--{name}={text}")));
        [OsString::from("sacct")].into_iter().chain(words).collect()
    }
}

fn find(search: &Search) -> Result<Found, Refused> {
    let origin = origin();
    let query = asked(search, &origin)?;
    let rows = search.rows.unwrap_or(USUAL).min(MOST);
    let mut found: Vec<JobView> = Vec::new();
    let (mut count, mut now) = (0, origin.now);
    ask_for_jobs(&Request::Accounting(query), |list| {
        count += list.jobs.len();
        now = list.now;
        found.extend(list.jobs);
        // A long history is never held in memory as a whole.
        if found.len() > rows.saturating_mul(2) {
            keep_latest(&mut found, rows);
        }
        Ok(())
    })?;
    keep_latest(&mut found, rows);
    let mut ctx = ctx(&origin, now);
    ctx.bitstr_len.get_or_insert(24);
    let arrays = live_arrays(&found)?;
    let jobs =
        found.iter().map(|job| Row::of(job, Some(&seff::recorded_usage(job)), &ctx)).collect();
    Ok(Found { now: millis(now), jobs, count, arrays })
}

/// Returns the progress of the unfinished arrays of these records, including the tasks that do not
/// match the search.
fn live_arrays(found: &[JobView]) -> Result<BTreeMap<u32, Tally>, Refused> {
    let arrays: BTreeSet<JobId> = found.iter().filter_map(|job| job.array_job_id()).collect();
    if arrays.is_empty() {
        return Ok(BTreeMap::new());
    }
    let jobs = arrays.into_iter().map(JobRef::job).collect();
    let query = JobQuery { jobs, without_paths: true, without_steps: true, ..JobQuery::live() };
    let mut live = Picture::default();
    ask_for_jobs(&Request::Jobs(query), |list| {
        live.take(list);
        Ok(())
    })?;
    Ok(unfinished(&live, found.iter()))
}

fn asked(search: &Search, origin: &Origin) -> Result<JobQuery, Refused> {
    let args = sacct::parse(&search.line(), origin).map_err(|e| Refused::bad(Refused::from(e)))?;
    if let Some(user) = output::unknown_users(&args.user).first() {
        return Err(Refused::bad(format!("Invalid user id: {user}")));
    }
    Ok(sacct::query(&args, &args.user, &origin.host))
}

fn keep_latest(jobs: &mut Vec<JobView>, most: usize) {
    jobs.sort_by_key(|job| {
        (Reverse(job.run.end.or(job.run.start).unwrap_or(job.submit)), Reverse(job.id))
    });
    jobs.truncate(most);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_holds_changed_fields_and_null_for_removed_ones() {
        let old = json!({
            "host": { "load": 1.0, "cpu_ids": [0, 1] },
            "rows": { "1": { "name": "a", "end": null }, "2": { "name": "b" } },
        });
        let new = json!({
            "host": { "load": 2.5, "cpu_ids": [0, 1] },
            "rows": { "1": { "name": "a", "end": 7 }, "3": { "name": null } },
        });
        let expected = json!({
            "host": { "load": 2.5 },
            "rows": { "1": { "end": 7 }, "2": null, "3": { "name": null } },
        });
        assert_eq!(patch(&old, &new), Some(expected));
        assert_eq!(patch(&new, &new), None);
        assert_eq!(patch(&Value::Null, &new), Some(new));
    }
}
