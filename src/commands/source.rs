//! `slotd source`: shows the git work tree that a job was submitted from, its commit and its
//! uncommitted changes.

use super::output::{ctx, print, print_bytes};
use super::{Done, now, origin, paths, unexpected};
use crate::args::error::CliError;
use crate::client::connection::Connection;
use slotd_model::source::JobSource;
use slotd_model::{JobRef, Refusal};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use slotd_render::{json, source};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  slotd source 12\n  slotd source --diff 12 | git apply   on the same commit: restore the job's files"
)]
pub struct SourceArgs {
    /// Print only the uncommitted changes, as input for git apply
    #[arg(long, conflicts_with = "json")]
    diff: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The job: 12 or 12_3
    #[arg(value_name = "JOB")]
    job: String,
}

pub fn run(args: &SourceArgs) -> Done {
    let job: JobRef = slotd_parse::ids::parse_job(&args.job)
        .map_err(|error| CliError::error(2, error.to_string()))?;
    let label = job.to_string();
    let (source, diff) = ask(job, args.diff)?;
    let Some(tree) = &source.tree else {
        let why =
            format!("job {label} was not submitted from a git work tree, or SLOTD_GIT=off was set");
        return Err(CliError::error(1, why));
    };
    if args.diff {
        return match why_no_diff(&source) {
            Some(why) => Err(CliError::error(
                1,
                format!("the uncommitted changes of job {label} are not available: {why}"),
            )),
            None => print_bytes(&diff),
        };
    }
    if args.json {
        print(&json::text(&source::json(&label, tree, &source)))
    } else {
        print(&source::text(&label, tree, &source, &ctx(&origin(), now())))
    }
}

/// Requests the source of a job, and its uncommitted changes.
pub fn ask(job: JobRef, with_diff: bool) -> Result<(JobSource, Vec<u8>), CliError> {
    let label = job.to_string();
    let mut daemon = Connection::open(&paths()?)?;
    match daemon.ask(&Request::Source { job, with_diff }, &[])? {
        (Answer::Source(source), diff) => Ok((*source, diff)),
        (Answer::Refused(Refusal::UnknownJob), _) => {
            Err(CliError::error(1, format!("there is no job {label}"))
                .hint("`sacct` lists all jobs"))
        }
        (Answer::Refused(why), _) => Err(CliError::error(1, why.to_string())),
        (other, _) => Err(unexpected(&other)),
    }
}

/// Returns why the uncommitted changes are not available.
pub fn why_no_diff(source: &JobSource) -> Option<&str> {
    let Some(taken) = &source.taken else {
        return Some("the daemon exited before it could run git");
    };
    match &taken.source.changes {
        Ok(changes) => changes.left_out.as_deref(),
        Err(why) => Some(why),
    }
}
