//! What the page changes. All of it is done by the commands of this binary, so that it means what
//! it means in a shell.

use super::job::named;
use super::refused::{Refused, waiting};
use crate::args::error::CliError;
use crate::commands::edit;
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use serde::Deserialize;
use serde_json::json;
use std::process::{Output, Stdio};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// This binary, also after another one has taken its place on the disk.
const SELF: &str = "/proc/self/exe";

/// Jobs that one request may name.
const MOST_JOBS: usize = 10_000;

/// What can be done to a job, and the command that does it.
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
    let (_, words) = known.ok_or_else(|| Refused::bad(format!("there is no action {action}")))?;
    if jobs.is_empty() || jobs.len() > MOST_JOBS {
        return Err(Refused::bad(format!("name from 1 to {MOST_JOBS} jobs")));
    }
    // As they are understood here: none of them is an option, or says more than a job.
    let jobs = jobs
        .iter()
        .map(|job| named(job).map(|job| job.to_string()))
        .collect::<Result<Vec<_>, _>>()?;
    let mut command = Command::new(SELF);
    command.args(*words);
    match *words {
        // scontrol takes one list.
        ["scontrol", ..] => command.arg(jobs.join(",")),
        _ => command.args(jobs),
    };
    let told = done(run(command, b"").await?)?;
    Ok(HttpResponse::Ok().json(json!({ "done": action, "told": told.trim() })))
}

/// What `slotd edit` shows of a job that waits.
pub async fn editable(name: web::Path<String>) -> Result<HttpResponse, Refused> {
    let job = named(&name)?;
    let text = waiting(move || edit::editable(&job).map_err(unprocessable)).await?;
    Ok(HttpResponse::Ok().json(json!({ "text": text })))
}

#[derive(Debug, Deserialize)]
pub struct Edited {
    /// What was shown, and what became of it.
    before: String,
    text: String,
}

pub async fn edit(
    name: web::Path<String>,
    edited: web::Json<Edited>,
) -> Result<HttpResponse, Refused> {
    let job = named(&name)?;
    let Edited { before, text } = edited.into_inner();
    let told = waiting(move || edit::change(&job, &before, &text).map_err(unprocessable)).await?;
    Ok(HttpResponse::Ok().json(json!({ "told": told.trim() })))
}

/// Why a job cannot be edited, or not so, in the words of `slotd edit`.
fn unprocessable(error: CliError) -> Refused {
    Refused { status: StatusCode::UNPROCESSABLE_ENTITY, ..error.into() }
}

#[derive(Debug, Deserialize)]
pub struct Submission {
    /// The options of sbatch, a word each.
    options: Vec<String>,
    script: String,
}

pub async fn submit(asked: web::Json<Submission>) -> Result<HttpResponse, Refused> {
    let Submission { options, script } = asked.into_inner();
    if options.iter().any(|word| word.contains('\0')) {
        return Err(Refused::bad("an option has a zero byte in it"));
    }
    let mut command = Command::new(SELF);
    command.args(["sbatch", "--parsable"]).args(options);
    let told = done(run(command, script.as_bytes()).await?)?;
    Ok(HttpResponse::Ok().json(json!({ "job": told.trim() })))
}

async fn run(mut command: Command, input: &[u8]) -> Result<Output, Refused> {
    let failed = |e: std::io::Error| Refused {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        why: format!("the command cannot be run: {e}"),
    };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that refuses its options reads no script.
        let _ = stdin.write_all(input).await;
    }
    child.wait_with_output().await.map_err(failed)
}

/// What it printed, or why it failed, in its own words.
fn done(output: Output) -> Result<String, Refused> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    let why = match told.trim() {
        "" => format!("the command ended with {}", output.status),
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
