//! The actions on jobs: requests to the daemon, or commands of this binary if one request is not
//! enough.

use crate::client::connection::Connection;
use crate::tui::state::JobAction;
use slotd_model::JobRef;
use slotd_model::query::JobQuery;
use slotd_protocol::answer::{Answer, Outcome};
use slotd_protocol::request::{CancelAsk, ControlAction, Request};
use slotd_sys::paths::Paths;
use std::process::{Command, Stdio};

/// This binary, even after its file was replaced.
const SELF: &str = "/proc/self/exe";

/// Carries out an action and returns a description of the result. Waits for the daemon.
pub fn carry_out(paths: &Paths, what: JobAction, jobs: Vec<JobRef>) -> String {
    let control = |jobs, action| Request::Control { jobs, action };
    let (done, request) = match what {
        JobAction::Cancel => {
            let uid = nix::unistd::getuid().as_raw();
            (
                "cancelled",
                Request::Cancel(CancelAsk {
                    query: JobQuery::of(jobs),
                    uid,
                    ..CancelAsk::default()
                }),
            )
        }
        JobAction::Hold => ("held", control(jobs, ControlAction::Hold)),
        JobAction::Release => ("released", control(jobs, ControlAction::Release)),
        JobAction::Top => ("moved to the top", control(jobs, ControlAction::Top)),
        JobAction::Requeue => ("requeued", control(jobs, ControlAction::Requeue(None))),
        JobAction::Retry => return retry(&jobs),
    };
    match Connection::open(paths).and_then(|mut conn| conn.ask(&request, &[])) {
        Ok((Answer::Done(outcomes), _)) => summary(done, &outcomes),
        Ok((Answer::Refused(why), _)) => why.to_string(),
        Ok(_) => "unexpected answer from the daemon".to_owned(),
        Err(e) => e.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

/// Runs `slotd retry` in a process of its own: the daemon recognizes repeated submissions by their
/// process.
fn retry(jobs: &[JobRef]) -> String {
    let mut command = Command::new(SELF);
    command.arg("retry").args(jobs.iter().map(JobRef::to_string)).stdin(Stdio::null());
    match command.output() {
        Ok(out) => {
            let text = [out.stdout, out.stderr].concat();
            in_one_line(&String::from_utf8_lossy(&text))
        }
        Err(e) => format!("cannot start slotd retry: {e}"),
    }
}

/// Joins the output of a command into one line.
fn in_one_line(text: &str) -> String {
    text.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Returns the command that edits a job.
pub fn editor(job: &JobRef) -> Command {
    let mut command = Command::new(SELF);
    command.arg("edit").arg(job.to_string());
    command
}

/// Returns a line such as `held: 12, 13; job 14: Job/step already completing or completed`.
fn summary(done: &str, outcomes: &[Outcome]) -> String {
    let is_done = |outcome: &&Outcome| outcome.result.is_ok();
    let (well, badly): (Vec<&Outcome>, Vec<&Outcome>) = outcomes.iter().partition(is_done);
    let names: Vec<String> = well.iter().map(|outcome| outcome.target.to_string()).collect();
    let mut parts = Vec::new();
    if !names.is_empty() {
        parts.push(format!("{done}: {}", names.join(", ")));
    }
    for outcome in badly {
        if let Err(why) = &outcome.result {
            parts.push(format!("job {}: {why}", outcome.target));
        }
    }
    parts.join("; ")
}
