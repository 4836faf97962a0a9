//! Submitting and editing jobs, and other actions. Each request goes through a command of this
//! binary, so that it has the same effect as in a shell.

use super::job::named;
use super::refused::{Refused, waiting};
use crate::args::error::CliError;
use crate::commands::{edit, sbatch};
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use serde::Deserialize;
use serde_json::json;
use std::process::{Output, Stdio};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// This binary, even after the file on disk was replaced.
const SELF: &str = "/proc/self/exe";

/// Maximum number of jobs in one request.
const MOST_JOBS: usize = 10_000;

/// The actions on a job, and the commands that perform them.
const ACTIONS: [(&str, &[&str]); 8] = [
    ("cancel", &["scancel"]),
    ("hold", &["scontrol", "hold"]),
    ("release", &["scontrol", "release"]),
    ("top", &["scontrol", "top"]),
    ("requeue", &["scontrol", "requeue"]),
    ("suspend", &["scontrol", "suspend"]),
    ("resume", &["scontrol", "resume"]),
    ("retry", &["retry"]),
];

#[derive(Debug, Deserialize)]
pub struct Act {
    action: String,
    jobs: Vec<String>,
}

pub async fn act(asked: web::Json<Act>) -> Result<HttpResponse, Refused> {
    let Act { action, jobs } = asked.into_inner();
    let known = ACTIONS.iter().find(|(name, _)| *name == action);
    let (_, words) = known.ok_or_else(|| Refused::bad(format!("unknown action: {action}")))?;
    if jobs.is_empty() || jobs.len() > MOST_JOBS {
        return Err(Refused::bad(format!("the request must name 1 to {MOST_JOBS} jobs")));
    }
    // Parsed and printed again, so that none of them can be an option or name anything else.
    let jobs = jobs
        .iter()
        .map(|job| named(job).map(|job| job.to_string()))
        .collect::<Result<Vec<_>, _>>()?;
    let mut command = Command::new(SELF);
    command.args(*words);
    match *words {
        // scontrol takes a comma-separated list.
        ["scontrol", ..] => command.arg(jobs.join(",")),
        _ => command.args(jobs),
    };
    let printed = done(run(command, b"").await?)?;
    Ok(HttpResponse::Ok().json(json!({ "done": action, "told": printed.trim() })))
}

#[derive(Debug, Deserialize)]
pub struct Limit {
    /// A time limit in the format of `--time`. A sign extends or shortens the current one.
    limit: String,
}

/// Changes the time limit of a pending or running job.
pub async fn limit(
    name: web::Path<String>,
    asked: web::Json<Limit>,
) -> Result<HttpResponse, Refused> {
    let job = named(&name)?;
    let limit = asked.limit.trim();
    if limit.contains('\0') {
        return Err(Refused::bad("the time limit contains a NUL byte"));
    }
    // One word, so that it can't be anything but the value of this key.
    let mut command = Command::new(SELF);
    command.args(["scontrol", "update", &format!("JobId={job}"), &format!("TimeLimit={limit}")]);
    done(run(command, b"").await?)?;
    Ok(HttpResponse::Ok().json(json!({ "done": "limit" })))
}

/// Sends the options and script of a pending job, in the format of `slotd edit`.
pub async fn editable(name: web::Path<String>) -> Result<HttpResponse, Refused> {
    let job = named(&name)?;
    let text = waiting(move || edit::editable(&job).map_err(unprocessable)).await?;
    Ok(HttpResponse::Ok().json(json!({ "text": text })))
}

#[derive(Debug, Deserialize)]
pub struct Edited {
    /// The text before editing, to detect a change in the meantime.
    before: String,
    text: String,
}

pub async fn edit(
    name: web::Path<String>,
    edited: web::Json<Edited>,
) -> Result<HttpResponse, Refused> {
    let job = named(&name)?;
    let Edited { before, text } = edited.into_inner();
    let printed =
        waiting(move || edit::change(&job, &before, &text).map_err(unprocessable)).await?;
    Ok(HttpResponse::Ok().json(json!({ "told": printed.trim() })))
}

/// Returns the error of a command with status 422.
fn unprocessable(error: CliError) -> Refused {
    Refused { status: StatusCode::UNPROCESSABLE_ENTITY, ..error.into() }
}

#[derive(Debug, Deserialize)]
pub struct Submission {
    /// The sbatch options, one argument each.
    options: Vec<String>,
    script: String,
}

pub async fn submit(asked: web::Json<Submission>) -> Result<HttpResponse, Refused> {
    let printed = done(sbatch(asked.into_inner(), &["--parsable"]).await?)?;
    Ok(HttpResponse::Ok().json(json!({ "job": printed.trim() })))
}

/// Sends what `sbatch --test-only` says about a job: when it would start. Submits nothing.
pub async fn predict(asked: web::Json<Submission>) -> Result<HttpResponse, Refused> {
    let output = sbatch(asked.into_inner(), &["--test-only"]).await?;
    let printed = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    done(output)?;
    Ok(HttpResponse::Ok().json(json!({ "told": printed, "start": start_in(&printed) })))
}

/// Finds the predicted start, which sbatch prints in the time zone of this process.
fn start_in(printed: &str) -> Option<i64> {
    let (_, rest) = printed.split_once(" to start at ")?;
    let at: jiff::civil::DateTime = rest.split(' ').next()?.parse().ok()?;
    let at = at.to_zoned(jiff::tz::TimeZone::system()).ok()?;
    Some(at.timestamp().as_millisecond())
}

/// Runs sbatch with these options before those of the submission.
async fn sbatch(asked: Submission, first: &[&str]) -> Result<Output, Refused> {
    let Submission { options, script } = asked;
    if options.iter().any(|word| word.contains('\0')) {
        return Err(Refused::bad("an option contains a NUL byte"));
    }
    sbatch::check_beside_script(&options, &script).map_err(unprocessable)?;
    let mut command = Command::new(SELF);
    // As with the option, the response would only come when the job has ended.
    command.arg("sbatch").args(first).args(options).env_remove("SBATCH_WAIT");
    run(command, script.as_bytes()).await
}

async fn run(mut command: Command, input: &[u8]) -> Result<Output, Refused> {
    let failed = |e: std::io::Error| Refused {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        why: format!("cannot run the command: {e}"),
    };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // Fails if the command rejects its options and exits without reading the script.
        let _ = stdin.write_all(input).await;
    }
    child.wait_with_output().await.map_err(failed)
}

/// Returns the standard output of a command.
///
/// # Errors
/// Fails with the standard error if the command failed.
fn done(output: Output) -> Result<String, Refused> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let why = match stderr.trim() {
        "" => format!("the command failed: {}", output.status),
        text => text.to_owned(),
    };
    Err(Refused { status: StatusCode::UNPROCESSABLE_ENTITY, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::slotd;

    #[test]
    fn every_action_is_a_command_of_this_binary() {
        let all = slotd::definition();
        for (action, words) in ACTIONS {
            assert!(all.find_subcommand(words[0]).is_some(), "{action}");
        }
    }
}
