//! The host and the queue as they are now, and the jobs that ended before.

use super::refused::{Refused, waiting};
use super::rows::{Row, millis, progress};
use crate::args::origin::Origin;
use crate::commands::output::{self, ctx};
use crate::commands::{ask_for_jobs, ask_node, ask_usage, origin, sacct};
use crate::model::query::JobQuery;
use crate::model::tres::Usage;
use crate::model::view::{JobView, NodeView};
use crate::model::{JobId, JobRef, JobState, Progress};
use crate::protocol::request::{Request, UsageAsk};
use crate::render::seff;
use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;

/// Rows that are sent of what waits, and of what ended, unless more are asked for.
const USUAL: usize = 200;

/// Rows that are sent at most.
const MOST: usize = 20_000;

#[derive(Debug, Deserialize)]
pub struct Wanted {
    /// How many rows of what waits.
    rows: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Picture {
    now: i64,
    host: Host,
    running: Vec<Row>,
    /// In the order of their turns.
    waiting: Vec<Row>,
    /// Records that wait, of which `waiting` may be the first.
    waiting_count: usize,
    /// What ended in the last minutes, the last first.
    ended: Vec<Row>,
    arrays: BTreeMap<u32, Progress>,
}

#[derive(Debug, Serialize)]
struct Host {
    name: String,
    cpus: Given,
    /// Which CPUs there are.
    cpu_ids: Vec<u32>,
    mem_mb: Given,
    gpus: Given,
    gpu_names: BTreeMap<u32, String>,
    /// CPUs in use, by the load of the last minute, and by processes of no job.
    load: f64,
    elsewhere: Option<f64>,
    mem_used_mb: u64,
    /// Why it takes no jobs, and what of it is out of use.
    troubles: Vec<String>,
    partitions: Vec<Partition>,
}

#[derive(Debug, Serialize)]
struct Given {
    all: u64,
    given: u64,
}

#[derive(Debug, Serialize)]
struct Partition {
    name: String,
    state: &'static str,
    running: u64,
    waiting: u64,
}

pub async fn now(wanted: web::Query<Wanted>) -> Result<HttpResponse, Refused> {
    let rows = wanted.rows.unwrap_or(USUAL).min(MOST);
    let picture = waiting(move || picture(rows)).await?;
    Ok(HttpResponse::Ok().json(picture))
}

fn picture(rows: usize) -> Result<Picture, Refused> {
    let origin = origin();
    let node = ask_node()?;
    let query = JobQuery {
        expected_starts: true,
        without_paths: true,
        without_steps: true,
        ..JobQuery::default()
    };
    let mut jobs: Vec<JobView> = Vec::new();
    ask_for_jobs(&Request::Jobs(query), |list| {
        jobs.extend(list.jobs);
        Ok(())
    })?;
    let arrays = progress(&jobs);
    let (over, live): (Vec<_>, Vec<_>) =
        jobs.into_iter().partition(|job| job.run.state.is_terminal());
    let (pending, running): (Vec<_>, Vec<_>) =
        live.into_iter().partition(|job| job.run.state == JobState::Pending);
    let usage = usage_of(&running)?;
    let mut ctx = ctx(&origin, node.now);
    ctx.bitstr_len.get_or_insert(24);
    let (mut pending, mut over, mut running) = (pending, over, running);
    pending.sort_by_key(|job| {
        (Reverse(job.priority), job.expected_start.is_none(), job.expected_start, job.id)
    });
    running.sort_by_key(|job| (job.run.start, job.id));
    over.sort_by_key(|job| (Reverse(job.run.end), job.id));
    let ended = |job: &JobView| Row::of(job, Some(&seff::recorded_usage(job)), &ctx);
    Ok(Picture {
        now: millis(node.now),
        host: host(node),
        running: running.iter().map(|job| Row::of(job, usage.get(&job.id), &ctx)).collect(),
        waiting_count: pending.len(),
        waiting: pending.iter().take(rows).map(|job| Row::of(job, None, &ctx)).collect(),
        ended: over.iter().take(USUAL).map(ended).collect(),
        arrays,
    })
}

/// What these use up to now.
pub fn usage_of(running: &[JobView]) -> Result<HashMap<JobId, Usage>, Refused> {
    let steps: Vec<JobRef> = running.iter().map(|job| JobRef::job(job.id)).collect();
    if steps.is_empty() {
        return Ok(HashMap::new());
    }
    let list = ask_usage(&Request::Usage(UsageAsk { steps, all_steps: true }))?.0.jobs;
    let sum =
        |job: &JobView| job.steps.iter().fold(Usage::default(), |sum, step| sum.merge(step.usage));
    Ok(list.iter().map(|job| (job.id, sum(job))).collect())
}

fn host(node: NodeView) -> Host {
    let host = &node.host;
    let given = |all: u64, given: u64| Given { all, given };
    let drained = node.drained.as_ref().map(|why| format!("takes no jobs: {}", why.text));
    let outages = node.outages.iter().map(|outage| outage.told().text);
    Host {
        name: host.name.clone(),
        cpus: given(host.cpu_ids.len() as u64, u64::from(node.allocated.cpus)),
        cpu_ids: host.cpu_ids.clone(),
        mem_mb: given(host.mem_mb, node.allocated.mem_mb),
        gpus: given(host.gpus.len() as u64, u64::from(node.allocated.gpus)),
        gpu_names: host
            .gpus
            .iter()
            .map(|gpu| (gpu.id, gpu.model.clone().unwrap_or_default()))
            .collect(),
        load: f64::from(node.load_centi) / 100.0,
        elsewhere: node
            .cpus_elsewhere
            .and_then(|cpus| cpus.used_centi)
            .map(|centi| f64::from(centi) / 100.0),
        mem_used_mb: host.machine_mem_mb.max(host.mem_mb).saturating_sub(node.free_mem_mb),
        troubles: drained.into_iter().chain(outages).collect(),
        partitions: node
            .partitions
            .iter()
            .map(|of| Partition {
                name: of.partition.name.clone(),
                state: of.partition.state.name(),
                running: of.running,
                waiting: of.pending,
            })
            .collect(),
    }
}

/// What history is searched for, in the words of sacct's options. Empty ones say nothing.
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
    /// The last that ended first.
    jobs: Vec<Row>,
    /// All that were found, of which `jobs` may be the last.
    count: usize,
    /// How far the arrays among `jobs` are that still have tasks that wait or run.
    arrays: BTreeMap<u32, Progress>,
}

pub async fn history(search: web::Query<Search>) -> Result<HttpResponse, Refused> {
    let found = waiting(move || find(&search)).await?;
    Ok(HttpResponse::Ok().json(found))
}

impl Search {
    /// The command line of the same question.
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
        // A long history is never in memory as a whole.
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

/// How far the arrays of these records are, whatever of them was searched for.
fn live_arrays(found: &[JobView]) -> Result<BTreeMap<u32, Progress>, Refused> {
    let arrays: BTreeSet<JobId> = found.iter().filter_map(|job| job.array_job_id()).collect();
    if arrays.is_empty() {
        return Ok(BTreeMap::new());
    }
    let jobs = arrays.into_iter().map(JobRef::job).collect();
    let query = JobQuery { jobs, without_paths: true, without_steps: true, ..JobQuery::live() };
    let mut live: Vec<JobView> = Vec::new();
    ask_for_jobs(&Request::Jobs(query), |list| {
        live.extend(list.jobs);
        Ok(())
    })?;
    Ok(progress(&live))
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
