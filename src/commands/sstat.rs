//! `sstat`: what running steps use at this moment.

pub mod args;

use super::output::{self, ctx, format_error};
use super::{Done, Entry, ask, origin, parsed, unexpected};
use crate::args::choices::definition;
use crate::args::error::CliError;
use crate::args::origin::Origin;
use crate::commands::pages::texts;
use crate::commands::sstat::args::{Sstat, parse};
use crate::model::view::JobList;
use crate::protocol::answer::Answer;
use crate::protocol::request::{Request, UsageAsk};
use crate::render::field::helpformat;
use crate::render::pids;
use crate::render::sacct::{Options, Rows, Sacct, View, parse as layout, print};
use std::ffi::OsString;

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: args::APPLET, define: definition::<args::SstatOpts>, run, page: &texts::SSTAT };

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    parsed(parse(argv, &origin)?, |sstat| {
        if sstat.help_format {
            return output::print(&helpformat::<Sacct>());
        }
        carry_out(&sstat, &origin)
    })
}

fn carry_out(sstat: &Sstat, origin: &Origin) -> Done {
    let layout = match &sstat.format {
        None => View::Sstat.layout(output::face(origin)),
        Some(text) => layout(text).map_err(format_error)?,
    };
    let request = Request::Usage(UsageAsk { steps: sstat.jobs.clone(), all_steps: sstat.all_steps });
    let (list, processes) = match ask(&request, &[])?.0 {
        Answer::Usage { list, processes } => (list, processes),
        other => return Err(unexpected(&other)),
    };
    let mut ctx = ctx(origin, list.now);
    output::units(&mut ctx, None, sstat.no_convert);
    complain(sstat, &list);
    let parsable = sstat.parsable.separator("|");
    if sstat.pids {
        return output::print(&pids::print(&processes, !sstat.no_header, parsable, &ctx));
    }
    let options = Options { layout, header: !sstat.no_header, parsable, rows: Rows::Steps, ..Options::default() };
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
