//! What keys do to jobs: requests of the daemon, or commands of this binary where they are more
//! than one.

use crate::client::connection::Connection;
use crate::model::JobRef;
use crate::model::query::JobQuery;
use crate::protocol::answer::{Answer, Outcome};
use crate::protocol::request::{CancelAsk, ControlAction, Request};
use crate::sys::paths::Paths;
use crate::tui::state::JobAction;
use std::process::{Command, Stdio};

/// This binary, also after another one has taken its place on the disk.
const SELF: &str = "/proc/self/exe";

/// Does it, and tells in words what has come of it. It waits for the daemon.
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
        JobAction::Top => ("put first", control(jobs, ControlAction::Top)),
        JobAction::Requeue => ("put back into the queue", control(jobs, ControlAction::Requeue)),
        JobAction::Retry => return retry(&jobs),
    };
    match Connection::open(paths).and_then(|mut conn| conn.ask(&request, &[])) {
        Ok((Answer::Done(outcomes), _)) => told(done, &outcomes),
        Ok((Answer::Refused(why), _)) => why.to_string(),
        Ok(_) => "the daemon's answer makes no sense here".to_owned(),
        Err(e) => e.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

/// In a process of its own: the daemon knows by its process a submission that is made again.
fn retry(jobs: &[JobRef]) -> String {
    let mut command = Command::new(SELF);
    command.arg("retry").args(jobs.iter().map(JobRef::to_string)).stdin(Stdio::null());
    match command.output() {
        Ok(out) => {
            let text = [out.stdout, out.stderr].concat();
            in_one_line(&String::from_utf8_lossy(&text))
        }
        Err(e) => format!("slotd retry cannot be started: {e}"),
    }
}

/// What a command has written, as there is room for.
fn in_one_line(text: &str) -> String {
    text.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// `slotd edit` of a job.
pub fn editor(job: &JobRef) -> Command {
    let mut command = Command::new(SELF);
    command.arg("edit").arg(job.to_string());
    command
}

/// `held: 12, 13; job 14: Job/step already completing or completed`
fn told(done: &str, outcomes: &[Outcome]) -> String {
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
