//! `sstat`: what running steps use at this moment.

pub mod args;

use super::output::{self, ctx, format_error};
use super::{Done, Entry, ask, origin, parsed, unexpected};
use crate::args::choices::definition;
use crate::args::error::CliError;
use crate::args::origin::Origin;
use crate::commands::pages::texts;
use crate::commands::sacct::args::Parsable;
use crate::commands::sstat::args::{Sstat, parse};
use crate::model::StepKey;
use crate::model::view::JobList;
use crate::protocol::answer::Answer;
use crate::protocol::request::{Request, UsageAsk};
use crate::render::sacct::{Layout, Lines, Options, Rows, View, helpformat, print};
use crate::render::table;
use std::ffi::OsString;

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: args::APPLET, define: definition::<args::SstatOpts>, run, page: &texts::SSTAT };

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    parsed(parse(argv, &origin)?, |sstat| {
        if sstat.help_format {
            return output::print(&helpformat());
        }
        carry_out(&sstat, &origin)
    })
}

fn carry_out(sstat: &Sstat, origin: &Origin) -> Done {
    let layout = match &sstat.format {
        None => Layout::of(View::Sstat, output::face(origin)),
        Some(text) => Layout::parse(text).map_err(format_error)?,
    };
    let request = Request::Usage(UsageAsk { steps: sstat.jobs.clone(), all_steps: sstat.all_steps });
    let (list, processes) = match ask(&request, &[])?.0 {
        Answer::Usage { list, processes } => (list, processes),
        other => return Err(unexpected(&other)),
    };
    let mut ctx = ctx(origin, list.now);
    output::units(&mut ctx, None, sstat.no_convert);
    complain(sstat, &list);
    let lines = match sstat.parsable {
        Parsable::No => Lines::Columns,
        Parsable::Trailing => Lines::Parsable,
        Parsable::Between => Lines::Parsable2,
    };
    if sstat.pids {
        return output::print(&pids(&processes, &ctx.node, lines, !sstat.no_header));
    }
    let options = Options { layout, header: !sstat.no_header, lines, rows: Rows::Steps, ..Options::default() };
    output::print(&print(&list.jobs, &options, &ctx))
}

/// As with Slurm a job without running steps is a line on standard error and no failure.
fn complain(sstat: &Sstat, list: &JobList) {
    for wanted in &sstat.jobs {
        let names = |job: &&crate::model::view::JobView| {
            job.id == wanted.job || job.role.array_job(job.id).is_some_and(|array| array == wanted.job)
        };
        let has_steps = list.jobs.iter().filter(names).any(|job| !job.steps.is_empty());
        if !has_steps {
            let error = CliError::error(0, format!("couldn't get steps for job {wanted}"));
            eprint!("{}", error.text("sstat"));
        }
    }
}

/// `-i`: the processes of each step.
fn pids(processes: &[(StepKey, Vec<i32>)], node: &str, lines: Lines, header: bool) -> String {
    let cells = |step: String, node: &str, pids: String| [step, node.to_owned(), pids];
    let head = header.then(|| cells("JobID".to_owned(), "Nodelist", "Pids".to_owned()));
    let rows = processes.iter().map(|(step, pids)| {
        let pids: Vec<String> = pids.iter().map(i32::to_string).collect();
        cells(step.to_string(), node, pids.join(","))
    });
    let mut out = String::new();
    for (i, row) in head.into_iter().chain(rows).enumerate() {
        match lines {
            Lines::Parsable2 => out.push_str(&row.join("|")),
            Lines::Parsable => row.iter().for_each(|cell| out.extend([cell, "|"])),
            Lines::Columns => {
                for (cell, width) in row.iter().zip([12, 20, 20]) {
                    table::pad(&mut out, cell, width, false);
                    out.push(' ');
                }
            }
        }
        out.push('\n');
        if i == 0 && header && lines == Lines::Columns {
            out.push_str(&format!("{} {} {} \n", "-".repeat(12), "-".repeat(20), "-".repeat(20)));
        }
    }
    out
}
