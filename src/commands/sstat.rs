//! `sstat`: shows the current resource usage of running steps.

use super::output::{self, LineOpts, ctx, format_error};
use super::{Done, Entry, ask, ask_job_list, ask_usage, origin, unexpected};
use crate::args::choices::{Applet, Reader, definition};
use crate::args::error::CliError;
use crate::args::extra;
use crate::args::headings::{LISTED, SHOWN};
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::args::table::options;
use crate::args::value::{job_or_step, value};
use crate::commands::pages::texts;
use clap::Args;
use slotd_model::JobRef;
use slotd_model::query::{JobQuery, names_record};
use slotd_model::series::StepSeries;
use slotd_model::view::{JobList, JobView};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::{Request, UsageAsk};
use slotd_render::field::four_per_line;
use slotd_render::sacct::{Options, Rows, View, parse as layout, print, sstat_fields};
use slotd_render::{json, pids, series};
use std::ffi::OsString;

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Sstat>, run, page: &texts::SSTAT };

const APPLET: Applet = Applet {
    extras: &[extra::SSTAT],
    examples: &[
        ("sstat -j 12", "the current usage of a job's steps"),
        ("sstat --series -j 12.0", "the same over time"),
    ],
    ..Applet::new("sstat", "Show the resource usage of running steps")
};

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub struct Sstat {
        /// Print this help
        #[arg(short, long)]
        pub help: bool,
        #[command(flatten)]
        pub common: CommonOpts,
        /// Show only these jobs and steps
        #[arg(short, long, value_name = "JOBS", value_parser = value(job_or_step), help_heading = LISTED)]
        pub jobs: Vec<JobRef>,
        /// Show all steps of the jobs, not only the first one
        #[arg(short, long, help_heading = LISTED)]
        pub allsteps: bool,
        /// Show usage over time, with a line for each interval; also for ended jobs
        #[arg(long, help_heading = LISTED)]
        pub series: bool,
        /// Show the processes of the steps
        #[arg(short = 'i', long, help_heading = LISTED)]
        pub pidformat: bool,
        /// Set the fields: jobid,maxrss,avecpu
        #[arg(short = 'o', long, alias = "fields", value_name = "FIELDS", help_heading = SHOWN)]
        pub format: Vec<String>,
        /// List the fields
        #[arg(short = 'e', long, alias = "helpFormat", help_heading = SHOWN)]
        pub helpformat: bool,
        /// Omit the header
        #[arg(short, long, help_heading = SHOWN)]
        pub noheader: bool,
        #[command(flatten)]
        pub lines: LineOpts,
        /// Do not convert units
        #[arg(long, help_heading = SHOWN)]
        pub noconvert: bool,
        /// With --series, print JSON
        #[arg(long, help_heading = SHOWN)]
        pub json: bool,
        /// The jobs and steps, unless given by -j
        #[arg(value_name = "JOBS")]
        pub operands: Vec<String>,
    }
}

pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Sstat, CliError> {
    let mut reader = Reader::scan::<Sstat>(APPLET, argv)?;
    reader.operands_are("jobs");
    let (args, _) = reader.finish::<Sstat>(origin, &[])?;
    if args.jobs.is_empty() && !args.helpformat {
        return Err(CliError::error(1, "No jobs given: sstat -j <job>[.<step>]"));
    }
    if args.json && !args.series {
        return Err(CliError::error(1, "--json requires --series")
            .hint("use sacct --json for the total usage of steps"));
    }
    Ok(args)
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    let args = parse(argv, &origin)?;
    if args.helpformat {
        return output::print(&four_per_line(sstat_fields()));
    }
    let processes_only =
        if args.pidformat { Some(pids::usual()) } else { pids::parse(&args.format.join(",")) };
    let layout = match args.format.as_slice() {
        _ if processes_only.is_some() => View::Sstat.layout(output::default_columns(&origin)),
        [] => View::Sstat.layout(output::default_columns(&origin)),
        fields => layout(&fields.join(",")).map_err(format_error)?,
    };
    if args.series {
        return over_time(&args, &origin);
    }
    let request = Request::Usage(UsageAsk { steps: args.jobs.clone(), all_steps: args.allsteps });
    let (list, processes) = ask_usage(&request)?;
    let mut ctx = ctx(&origin, list.now);
    output::units(&mut ctx, None, args.noconvert);
    complain(&args.jobs, &list);
    let (parsable, header) = (args.lines.separator("|"), !args.noheader);
    if let Some(layout) = processes_only {
        return output::print(&pids::print(&processes, layout, header, parsable, &ctx));
    }
    let options = Options { layout, header, parsable, rows: Rows::Steps, ..Options::default() };
    output::print(&print(&list.jobs, &options, &ctx))
}

/// Prints the usage of steps over time. A job without a step means all its steps.
fn over_time(args: &Sstat, origin: &Origin) -> Done {
    let query = JobQuery { without_paths: true, ..JobQuery::of(args.jobs.clone()) };
    let list = ask_job_list(&Request::Accounting(query))?;
    let mut steps = series_of(&list.jobs)?;
    let means = |wanted: &JobRef, one: &StepSeries| {
        let view = list.jobs.iter().find(|view| view.id == one.step.job);
        let is_job = view.is_some_and(|view| names_record(wanted, view.id, &view.role));
        is_job && wanted.step.is_none_or(|step| step == one.step.step)
    };
    steps.retain(|one| args.jobs.iter().any(|wanted| means(wanted, one)));
    for wanted in args.jobs.iter().filter(|wanted| !steps.iter().any(|one| means(wanted, one))) {
        let why = format!(
            "no usage over time recorded for {wanted}: it has not started or ended immediately"
        );
        output::print_error("sstat", &CliError::error(0, why));
    }
    if args.json {
        return output::print(&json::text(&series::json(&steps)));
    }
    let mut ctx = ctx(origin, list.now);
    output::units(&mut ctx, None, args.noconvert);
    output::print(&series::print(&steps, !args.noheader, args.lines.separator("|"), &ctx))
}

/// Returns the usage of these jobs' steps over time, sorted by the start of the step.
pub fn series_of(jobs: &[JobView]) -> Result<Vec<StepSeries>, CliError> {
    let named = jobs.iter().map(|view| view.own_ref()).collect();
    match ask(&Request::OverTime(named), &[])?.0 {
        Answer::OverTime(steps) => Ok(steps),
        other => Err(unexpected(&other)),
    }
}

/// Reports jobs without running steps. As in Slurm, this is a message on standard error, not a
/// failure.
fn complain(jobs: &[JobRef], list: &JobList) {
    for wanted in jobs {
        let names = |job: &&slotd_model::view::JobView| {
            job.id == wanted.job
                || job.role.array_job(job.id).is_some_and(|array| array == wanted.job)
        };
        let has_steps = list.jobs.iter().filter(names).any(|job| !job.steps.is_empty());
        if !has_steps {
            let error = CliError::error(0, format!("couldn't get steps for job {wanted}"));
            output::print_error("sstat", &error);
        }
    }
}
