//! The details of one job, its script and its environment.

use super::refused::{Refused, waiting};
use super::rows::{Row, Used, millis};
use crate::commands::output::ctx;
use crate::commands::{
    ask, ask_for_jobs, ask_job_list, ask_usage, origin, source, unexpected, why,
};
use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use serde_json::Value;
use slotd_model::query::JobQuery;
use slotd_model::request::JobKind;
use slotd_model::tres::Usage;
use slotd_model::view::{JobList, JobView};
use slotd_model::{JobId, JobRef, JobState, Step};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::{Request, UsageAsk};
use slotd_render::{seff, show};

/// Maximum number of array tasks in a response.
const MOST_TASKS: usize = 5000;

/// Maximum number of waiting jobs in a response.
const MOST_DEPENDENTS: usize = 100;

/// Maximum size of a script in a response, bytes.
const MOST_SCRIPT: usize = 4 << 20;

#[derive(Debug, Serialize)]
struct Details {
    now: i64,
    /// The name of the host.
    host: String,
    /// The offset of the times in `text` and `why` from UTC.
    zone_secs: i32,
    job: Row,
    /// The output of `scontrol show job`.
    text: String,
    /// The output of `slotd why`, as JSON.
    why: Value,
    std_out: String,
    std_err: String,
    is_batch: bool,
    steps: Vec<StepRow>,
    /// The tasks, if the request names a whole array.
    tasks: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct StepRow {
    id: String,
    name: String,
    state: &'static str,
    exit: String,
    tasks: u32,
    start: i64,
    end: Option<i64>,
    used: Option<Used>,
}

impl From<&Step> for StepRow {
    fn from(step: &Step) -> Self {
        StepRow {
            id: step.id.to_string(),
            name: step.name.clone(),
            state: step.state.name(),
            exit: step.exit.to_string(),
            tasks: step.ntasks,
            start: millis(step.start),
            end: step.end.map(millis),
            used: Used::of(&step.usage),
        }
    }
}

/// Parses the job in a URL, written as in commands.
pub fn named(text: &str) -> Result<JobRef, Refused> {
    slotd_parse::ids::parse_job(text).map_err(Refused::bad)
}

/// Returns the records of a job, from the queue or from accounting.
///
/// # Errors
/// Fails if there is no such job.
pub fn records(job: &JobRef) -> Result<JobList, Refused> {
    let query =
        JobQuery { expected_starts: true, blockers: true, ..JobQuery::of(vec![job.clone()]) };
    let mut list = asked(Request::Jobs(query.clone()))?;
    if list.jobs.is_empty() {
        list = asked(Request::Accounting(query))?;
    }
    if list.jobs.is_empty() {
        return Err(Refused::missing(format!("there is no job {job}")));
    }
    Ok(list)
}

fn asked(request: Request) -> Result<JobList, Refused> {
    Ok(ask_job_list(&request)?)
}

/// Returns the record to show for a job: the first running task of an array, else its first record.
pub fn record(list: &JobList) -> Result<&JobView, Refused> {
    let runs = |job: &&JobView| job.run.state == JobState::Running;
    let found = list.jobs.iter().find(runs).or_else(|| list.jobs.first());
    found.ok_or_else(|| Refused::missing("there is no such job"))
}

pub async fn details(name: web::Path<String>) -> Result<HttpResponse, Refused> {
    let job = named(&name)?;
    Ok(HttpResponse::Ok().json(waiting(move || look(&job)).await?))
}

fn look(job: &JobRef) -> Result<Details, Refused> {
    let origin = origin();
    let list = records(job)?;
    let view = record(&list)?;
    let mut ctx = ctx(&origin, list.now);
    let text = show::jobs(std::slice::from_ref(view), false, true, &ctx);
    let why = why::record(view, &ctx);
    ctx.bitstr_len.get_or_insert(24);
    let usage = if view.run.state.is_terminal() {
        Some(seff::recorded_usage(view))
    } else {
        usage_of(view)?
    };
    let tasks = if list.jobs.len() > 1 { list.jobs.as_slice() } else { &[] };
    Ok(Details {
        now: millis(list.now),
        host: origin.host.clone(),
        zone_secs: ctx.tz.to_offset(jiff::Timestamp::now()).seconds(),
        job: Row::of(view, usage.as_ref(), &ctx),
        text,
        why,
        std_out: view.std_out.clone(),
        std_err: view.std_err.clone(),
        is_batch: view.request.kind == JobKind::Batch,
        steps: view.steps.iter().map(StepRow::from).collect(),
        tasks: tasks.iter().take(MOST_TASKS).map(|task| Row::of(task, None, &ctx)).collect(),
    })
}

/// Sends the pending jobs that wait for a job or for tasks of an array.
pub async fn dependents(name: web::Path<String>) -> Result<HttpResponse, Refused> {
    let job = named(&name)?.job;
    let look = move || {
        let query = JobQuery {
            states: Some(vec![JobState::Pending]),
            expected_starts: true,
            without_paths: true,
            without_steps: true,
            ..JobQuery::default()
        };
        let origin = origin();
        let mut found: Vec<Row> = Vec::new();
        ask_for_jobs(&Request::Jobs(query), |list| {
            let ctx = ctx(&origin, list.now);
            let waits = list.jobs.iter().filter(|view| waits_for(&view.dependency, job));
            let room = MOST_DEPENDENTS - found.len();
            found.extend(waits.take(room).map(|view| Row::of(view, None, &ctx)));
            Ok(())
        })?;
        Ok(found)
    };
    Ok(HttpResponse::Ok().json(waiting(look).await?))
}

/// Returns whether one of the unsatisfied terms names this job, or tasks of this array:
/// `afterok:12(unfulfilled),afterany:13_*(unfulfilled)`.
fn waits_for(dependency: &str, job: JobId) -> bool {
    let number = job.to_string();
    dependency.split([',', '?']).any(|term| {
        let named = term.split_once(':').map(|(_, named)| named);
        named.and_then(|named| named.split(|c: char| !c.is_ascii_digit()).next()) == Some(&number)
    })
}

/// Returns the usage of an active job so far.
fn usage_of(job: &JobView) -> Result<Option<Usage>, Refused> {
    if !job.run.state.is_active() {
        return Ok(None);
    }
    let ask = UsageAsk { steps: vec![JobRef::job(job.id)], all_steps: true };
    let list = ask_usage(&Request::Usage(ask))?.0.jobs;
    Ok(list.iter().find(|one| one.id == job.id).map(seff::recorded_usage))
}

/// The git work tree that a job was submitted from.
#[derive(Debug, Serialize)]
struct Source {
    /// The output of `slotd source`; empty if the job has no work tree.
    text: String,
    /// The uncommitted changes, or why they are not available.
    diff: String,
}

pub async fn source(name: web::Path<String>) -> Result<HttpResponse, Refused> {
    let job = named(&name)?;
    let look = move || {
        let label = job.to_string();
        let (source, diff) = source::ask(job, true)?;
        let Some(tree) = &source.tree else {
            return Ok(Source { text: String::new(), diff: String::new() });
        };
        let origin = origin();
        let text = slotd_render::source::text(&label, tree, &source, &ctx(&origin, origin.now));
        let diff = match source::why_no_diff(&source) {
            Some(why) => why.to_owned(),
            None => String::from_utf8_lossy(diff.get(..MOST_SCRIPT).unwrap_or(&diff)).into_owned(),
        };
        Ok(Source { text, diff })
    };
    Ok(HttpResponse::Ok().json(waiting(look).await?))
}

pub async fn script(name: web::Path<String>) -> Result<HttpResponse, Refused> {
    let job = named(&name)?;
    let script = waiting(move || {
        let list = records(&job)?;
        text_of(&Request::BatchScript(record(&list)?.id))
    });
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/plain; charset=utf-8"))
        .body(script.await?))
}

/// Sends the environment that a batch job was submitted with, as pairs of name and value.
pub async fn environment(name: web::Path<String>) -> Result<HttpResponse, Refused> {
    let job = named(&name)?;
    let look = move || {
        let list = records(&job)?;
        let text = text_of(&Request::BatchEnv(record(&list)?.id))?;
        Ok(variables(&text))
    };
    Ok(HttpResponse::Ok().json(waiting(look).await?))
}

/// Splits an environment, whose entries each end with a zero byte.
fn variables(text: &[u8]) -> Vec<(String, String)> {
    let entries = text.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
    let mut all: Vec<_> = entries
        .map(|entry| {
            let entry = String::from_utf8_lossy(entry);
            let (name, value) = entry.split_once('=').unwrap_or((&entry, ""));
            (name.to_owned(), value.to_owned())
        })
        .collect();
    all.sort();
    all
}

fn text_of(request: &Request) -> Result<Vec<u8>, Refused> {
    match ask(request, &[])? {
        (Answer::Script, mut text) => {
            text.truncate(MOST_SCRIPT);
            Ok(text)
        }
        (other, _) => Err(unexpected(&other).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_waits_for_the_jobs_that_it_names() {
        let waits = |text, job| waits_for(text, JobId(job));
        assert!(waits("afterok:12(unfulfilled)", 12));
        assert!(waits("afterany:7(unfulfilled),afterok:12_*(unfulfilled)", 12));
        assert!(waits("afterok:7(failed)?after:12+5(unfulfilled)", 12));
        assert!(!waits("afterok:123(unfulfilled)", 12));
        assert!(!waits("afterok:7_12(unfulfilled)", 12));
        assert!(!waits("singleton(unfulfilled)", 12));
        assert!(!waits("", 12));
    }
}
