//! `seff`: how much of what a job asked for it used.

pub mod args;

use super::output::{self, ctx};
use super::{Done, Entry, ask, origin, parsed, sacct, unexpected};
use crate::args::choices::definition;
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::commands::pages::texts;
use crate::commands::seff::args::{Seff, parse};
use crate::model::query::{AcctFilter, names_record};
use crate::model::tres::Usage;
use crate::model::view::JobView;
use crate::model::{JobRef, JobState};
use crate::protocol::answer::Answer;
use crate::protocol::request::{Request, UsageAsk};
use crate::render::seff;
use std::ffi::OsString;

/// Of a job that nobody knows.
const NOT_FOUND: u8 = 2;

/// This command in the table of all.
pub const ENTRY: Entry = Entry { applet: args::APPLET, define: definition::<args::SeffOpts>, run, page: &texts::SEFF };

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    parsed(parse(argv, &origin)?, |asked| carry_out(&asked, &origin))
}

fn carry_out(asked: &Seff, origin: &Origin) -> Done {
    let filter = AcctFilter { jobs: asked.jobs.clone(), ..AcctFilter::default() };
    let mut list = match ask(&Request::Accounting(filter), &[])?.0 {
        Answer::Jobs(list) => list,
        other => return Err(unexpected(&other)),
    };
    list.jobs.sort_by_key(sacct::order);
    let ctx = ctx(origin, list.now);
    let mut text = String::new();
    for view in &list.jobs {
        let usage = match view.run.state {
            JobState::Running | JobState::Suspended | JobState::Completing => usage_up_to_now(view)?,
            JobState::Pending
            | JobState::Completed
            | JobState::Failed
            | JobState::Cancelled
            | JobState::Timeout
            | JobState::OutOfMemory => seff::recorded_usage(view),
        };
        if !text.is_empty() {
            text.push('\n');
        }
        if asked.debug {
            text.push_str(&seff::debug(view, &usage, &ctx));
        }
        text.push_str(&seff::print(view, &usage, &ctx));
    }
    output::print(&text)?;
    let known = |wanted: &JobRef| list.jobs.iter().any(|view| names_record(wanted, view.id, &view.role));
    if asked.jobs.iter().all(known) {
        return Ok(0);
    }
    Err(CliError::new(Mark::Bare, NOT_FOUND.into(), "Job not found."))
}

/// The steps that are over as they were recorded, the others as they are measured now.
fn usage_up_to_now(view: &JobView) -> Result<Usage, CliError> {
    let request = Request::Usage(UsageAsk { steps: vec![JobRef::job(view.id)], all_steps: true });
    let running = match ask(&request, &[])?.0 {
        Answer::Usage { list, .. } => list.jobs,
        other => return Err(unexpected(&other)),
    };
    let running = running.iter().filter(|job| job.id == view.id).flat_map(|job| &job.steps);
    let over = view.steps.iter().filter(|step| step.state.is_terminal());
    Ok(over.chain(running).fold(Usage::default(), |sum, step| sum.merge(step.usage)))
}
