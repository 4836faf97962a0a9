//! `sstat`: what running steps use at this moment.

use super::output::{self, LineOpts, ctx, format_error};
use super::{Done, Entry, ask, origin, unexpected};
use crate::args::choices::{Applet, Reader, definition};
use crate::args::error::CliError;
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::args::value::{job_or_step, value};
use crate::commands::pages::texts;
use crate::model::JobRef;
use crate::model::view::JobList;
use crate::protocol::answer::Answer;
use crate::protocol::request::{Request, UsageAsk};
use crate::render::field::helpformat;
use crate::render::pids;
use crate::render::sacct::{Options, Rows, Sacct, View, parse as layout, print};
use clap::Args;
use std::ffi::OsString;

/// This command in the table of all.
pub const ENTRY: Entry = Entry { applet: APPLET, define: definition::<Sstat>, run, page: &texts::SSTAT };

const APPLET: Applet = Applet {
    name: "sstat",
    about: "Show what running steps use",
    operands: Operands::Anywhere,
    usage_exit: 1,
    points_to_help: true,
    extras: &[extra::SSTAT],
    variables: &[],
    submission: "",
};

#[derive(Debug, Clone, Default, Args)]
pub struct Sstat {
    #[command(flatten)]
    pub common: CommonOpts,
    /// Print this help
    #[arg(short, long)]
    pub help: bool,
    /// All steps of the jobs, not only the last one
    #[arg(short, long)]
    pub allsteps: bool,
    /// Fields: jobid,maxrss,avecpu
    #[arg(short = 'o', long, alias = "fields", value_name = "FIELDS")]
    pub format: Vec<String>,
    /// List the fields
    #[arg(short = 'e', long, alias = "helpFormat")]
    pub helpformat: bool,
    /// These jobs and steps
    #[arg(short, long, value_name = "JOBS", value_parser = value(job_or_step))]
    pub jobs: Vec<JobRef>,
    /// Do not convert units
    #[arg(long)]
    pub noconvert: bool,
    /// No lines of headers
    #[arg(short, long)]
    pub noheader: bool,
    #[command(flatten)]
    pub lines: LineOpts,
    /// The processes of the steps
    #[arg(short = 'i', long)]
    pub pidformat: bool,
    /// Jobs and steps, where -j does not name them
    #[arg(value_name = "JOBS")]
    pub operands: Vec<String>,
}

pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Sstat, CliError> {
    let mut reader = Reader::scan::<Sstat>(APPLET, argv)?;
    reader.operands_are("jobs");
    let (args, _) = reader.finish::<Sstat>(origin, &[])?;
    if args.jobs.is_empty() && !args.helpformat {
        return Err(CliError::error(1, "No jobs given: sstat -j <job>[.<step>]"));
    }
    Ok(args)
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    let args = parse(argv, &origin)?;
    if args.helpformat {
        return output::print(&helpformat::<Sacct>());
    }
    let layout = match args.format.as_slice() {
        [] => View::Sstat.layout(output::default_columns(&origin)),
        fields => layout(&fields.join(",")).map_err(format_error)?,
    };
    let request = Request::Usage(UsageAsk { steps: args.jobs.clone(), all_steps: args.allsteps });
    let (list, processes) = match ask(&request, &[])?.0 {
        Answer::Usage { list, processes } => (list, processes),
        other => return Err(unexpected(&other)),
    };
    let mut ctx = ctx(&origin, list.now);
    output::units(&mut ctx, None, args.noconvert);
    complain(&args.jobs, &list);
    let (parsable, header) = (args.lines.separator("|"), !args.noheader);
    if args.pidformat {
        return output::print(&pids::print(&processes, header, parsable, &ctx));
    }
    let options = Options { layout, header, parsable, rows: Rows::Steps, ..Options::default() };
    output::print(&print(&list.jobs, &options, &ctx))
}

/// As with Slurm a job without running steps is a line on standard error and no failure.
fn complain(jobs: &[JobRef], list: &JobList) {
    for wanted in jobs {
        let names = |job: &&crate::model::view::JobView| {
            job.id == wanted.job || job.role.array_job(job.id).is_some_and(|array| array == wanted.job)
        };
        let has_steps = list.jobs.iter().filter(names).any(|job| !job.steps.is_empty());
        if !has_steps {
            let error = CliError::error(0, format!("couldn't get steps for job {wanted}"));
            output::tell("sstat", &error);
        }
    }
}
