//! `seff`: shows the efficiency of jobs, that is, how much of their requested resources they used.

use super::output::{self, ctx};
use super::sstat::series_of;
use super::{Done, Entry, ask_job_list, ask_usage, enforces_memory, origin, sacct};
use crate::args::choices::{self, Applet, definition};
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::args::table::options;
use crate::args::value::value;
use crate::commands::pages::texts;
use crate::tui::plot;
use clap::Args;
use slotd_model::query::{JobQuery, names_record};
use slotd_model::tres::Usage;
use slotd_model::view::JobView;
use slotd_model::{JobRef, JobState};
use slotd_parse::error::shown;
use slotd_protocol::request::{Request, UsageAsk};
use slotd_render::{Ctx, seff};
use std::ffi::OsString;

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Seff>, run, page: &texts::SEFF };

const APPLET: Applet = Applet {
    examples: &[
        ("seff 12", "the CPU and memory efficiency of a job"),
        ("seff --plot 12", "the same over time"),
    ],
    ..Applet::new("seff", "Show how much of its requested resources a job used")
};

/// The exit code for an unknown job.
const NOT_FOUND: u8 = 2;

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub struct Seff {
        /// Print this help
        #[arg(short, long)]
        pub help: bool,
        /// Print the version
        #[arg(short = 'v', long)]
        pub version: bool,
        /// Plot resource usage over time, which is the default for a single job on a terminal
        #[arg(long)]
        pub plot: bool,
        /// Print the raw values behind the efficiencies
        #[arg(short, long)]
        pub debug: bool,
        /// The jobs: 12, 12_3
        #[arg(value_name = "JOB", value_parser = value(jobs))]
        pub operands: Vec<Jobs>,
    }
}

type Jobs = Vec<JobRef>;

fn jobs(text: &str) -> Result<Jobs, CliError> {
    slotd_parse::ids::parse_job_list(text)
        .map_err(|_| CliError::error(1, format!("Invalid job id: {}", shown(text))))
}

impl Seff {
    pub fn jobs(&self) -> Vec<JobRef> {
        self.operands.concat()
    }
}

pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Seff, CliError> {
    let (args, _) = choices::parse::<Seff>(APPLET, argv, origin)?;
    if args.operands.is_empty() {
        return Err(CliError::error(1, "No job given: seff <job>"));
    }
    Ok(args)
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    carry_out(&parse(argv, &origin)?, &origin)
}

fn carry_out(args: &Seff, origin: &Origin) -> Done {
    let jobs = args.jobs();
    let query = JobQuery::of(jobs.clone());
    let mut list = ask_job_list(&Request::Accounting(query))?;
    list.jobs.sort_by_key(sacct::order);
    let ctx = ctx(origin, list.now);
    let mut text = String::new();
    for view in &list.jobs {
        let usage = match view.run.state {
            JobState::Running | JobState::Suspended | JobState::Completing => {
                usage_up_to_now(view)?
            }
            JobState::Pending | JobState::Ended(_) => seff::recorded_usage(view),
        };
        if !text.is_empty() {
            text.push('\n');
        }
        if args.debug {
            text.push_str(&seff::debug(view, &usage, &ctx));
        }
        text.push_str(&seff::print(view, &usage, &ctx));
        if ctx.is_terminal() {
            text.push_str(&seff::notes(
                view,
                &usage,
                seff::excess(view, &usage).is_none() || enforces_memory(),
            ));
        }
        if args.plot || (ctx.is_terminal() && list.jobs.len() == 1) {
            text.push_str(&plotted(view, origin, &ctx)?);
        }
    }
    output::print(&text)?;
    let known =
        |wanted: &JobRef| list.jobs.iter().any(|view| names_record(wanted, view.id, &view.role));
    if jobs.iter().all(known) {
        return Ok(0);
    }
    Err(CliError::new(Mark::Bare, NOT_FOUND.into(), "Job not found."))
}

/// Plots the usage of a job over time. Returns an empty text without samples.
fn plotted(view: &JobView, origin: &Origin, ctx: &Ctx) -> Result<String, CliError> {
    let steps = series_of(std::slice::from_ref(view))?;
    Ok(plot::text(view, &steps, output::columns(), !output::is_utf8(origin), ctx))
}

/// Returns the usage of a running job so far: recorded for its ended steps, sampled now for the
/// others.
fn usage_up_to_now(view: &JobView) -> Result<Usage, CliError> {
    let request = Request::Usage(UsageAsk { steps: vec![JobRef::job(view.id)], all_steps: true });
    let running = ask_usage(&request)?.0.jobs;
    let running = running.iter().filter(|job| job.id == view.id).flat_map(|job| &job.steps);
    let ended = view.steps.iter().filter(|step| step.state.is_terminal());
    Ok(ended.chain(running).fold(Usage::default(), |sum, step| sum.merge(step.usage)))
}
