//! `slotd why`: explains what keeps jobs from starting, how long they may run, or why they ended.

use super::clusters::{jobs, named};
use super::launch::signal_text;
use super::output::{ctx, print};
use super::{Done, ask_job_list, enforces_memory, origin, sacct};
use crate::args::error::CliError;
use crate::client::tail;
use serde_json::{Value, json};
use slotd_model::query::{JobQuery, names_record};
use slotd_model::view::{JobList, JobView};
use slotd_model::{ArrayRole, End, ExitCode, JobId, JobRef, JobState, TaskSet};
use slotd_protocol::request::Request;
use slotd_render::text::printable;
use slotd_render::why::{self, Names, Tail};
use slotd_render::{Ctx, json};
use slotd_sys::user;
use std::collections::BTreeMap;
use std::path::Path;

/// Limits of the shown part of a failed job's standard error, in lines and bytes.
const LAST_LINES: u64 = 10;
const MOST_BYTES: u64 = 4096;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  slotd why 12\n  slotd why --json 12 | python3 -m json.tool")]
pub struct WhyArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The jobs: 12, 12_3, or 17@hpc on another cluster
    #[arg(value_name = "JOB", required = true)]
    jobs: Vec<String>,
}

pub fn run(args: &WhyArgs) -> Done {
    if args.jobs.iter().any(|job| named::is_there(job)) {
        if args.json || !args.jobs.iter().all(|job| named::is_there(job)) {
            return Err(CliError::error(
                2,
                "name jobs of other clusters alone, and without --json",
            ));
        }
        return jobs::why(&args.jobs);
    }
    let origin = origin();
    let jobs = refs(&args.jobs)?;
    let query = JobQuery { blockers: true, expected_starts: true, ..JobQuery::of(jobs.clone()) };
    let JobList { jobs: mut views, now, .. } = ask_job_list(&Request::Jobs(query))?.whole();
    views.sort_by_key(sacct::order);
    let ctx = ctx(&origin, now);
    if args.json {
        let all: Vec<_> = views.iter().map(|view| record(view, &ctx)).collect();
        print(&json::text(&json!({ "jobs": all })))?;
    } else {
        let all: Vec<String> = alike(&views).iter().map(|group| explain(group, &ctx)).collect();
        print(&all.join("\n"))?;
    }
    let is_known =
        |wanted: &JobRef| views.iter().any(|view| names_record(wanted, view.id, &view.role));
    match jobs.iter().find(|wanted| !is_known(wanted)) {
        Some(unknown) => {
            Err(CliError::error(1, format!("there is no job {unknown}"))
                .hint("`sacct` lists all jobs"))
        }
        None => Ok(0),
    }
}

/// Returns the explanation of a job as JSON.
pub fn record(view: &JobView, ctx: &Ctx) -> Value {
    why::json(view, tail_of(view).as_ref(), ctx, &NAMES)
}

const NAMES: Names<'static> =
    Names { signal: &signal_text, user: &user::user_name, memory_is_enforced: &enforces_memory };

/// Parses the jobs named on the command line.
///
/// # Errors
/// Fails if a word is not a job ID.
pub fn refs(words: &[String]) -> Result<Vec<JobRef>, CliError> {
    let refs = words.iter().map(|word| {
        slotd_parse::ids::parse_job_list(word).map_err(|e| CliError::error(2, e.to_string()))
    });
    Ok(refs.collect::<Result<Vec<_>, _>>()?.concat())
}

/// Groups the tasks of an array that ended in the same way, since they are explained together.
fn alike(views: &[JobView]) -> Vec<Vec<&JobView>> {
    let mut groups: Vec<Vec<&JobView>> = Vec::new();
    let mut places: BTreeMap<(JobId, JobState, ExitCodeKey), usize> = BTreeMap::new();
    for view in views {
        let key = match &view.role {
            ArrayRole::Task { array_job, .. } if view.run.state.is_terminal() => {
                (*array_job, view.run.state, key(view.run.exit))
            }
            _ => {
                groups.push(vec![view]);
                continue;
            }
        };
        match places.get(&key) {
            Some(place) => groups[*place].push(view),
            None => {
                places.insert(key, groups.len());
                groups.push(vec![view]);
            }
        }
    }
    groups
}

type ExitCodeKey = (i32, i32);

fn key(exit: ExitCode) -> ExitCodeKey {
    (exit.status, exit.signal)
}

fn explain(group: &[&JobView], ctx: &Ctx) -> String {
    let Some((first, others)) = group.split_first() else { return String::new() };
    let mut text = why::print(first, tail_of(first).as_ref(), ctx, &NAMES);
    let tasks = others.iter().filter_map(|view| match &view.role {
        ArrayRole::Task { task, .. } => Some(*task),
        ArrayRole::None | ArrayRole::Rest { .. } | ArrayRole::Part { .. } => None,
    });
    let mut tasks: Vec<u32> = tasks.collect();
    tasks.sort_unstable();
    if let (Some(array), false) = (first.array_job_id(), tasks.is_empty()) {
        text.push_str(&format!("  So did {array}_[{}].\n", TaskSet::from_sorted(&tasks)));
    }
    text
}

/// Returns the last lines of a failed job's standard error.
fn tail_of(view: &JobView) -> Option<Tail> {
    let has_failed = view.run.state.is_terminal()
        && view.run.state != JobState::Ended(End::Completed)
        && view.run.start.is_some();
    let path = has_failed.then_some(Path::new(&view.std_err))?;
    let lines =
        tail::last_lines(&mut tail::open_output(path).ok()??, LAST_LINES, MOST_BYTES).ok()?;
    let lines = lines.into_iter().map(|line| printable(line.into(), true).into_owned()).collect();
    Some(Tail { path: view.std_err.clone(), lines })
}
