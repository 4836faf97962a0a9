//! `squeue`: jobs that wait and run.

use super::output::{self, ctx, format_error, listed, maybe_listed, of_users, on_nodes};
use super::{Done, ask, origin, parsed, unexpected};
use crate::cli::error::{CliError, Mark};
use crate::cli::origin::Origin;
use crate::cli::squeue::{Format, Squeue, parse};
use crate::model::JobState;
use crate::model::view::{JobList, JobView};
use crate::protocol::answer::Answer;
use crate::protocol::request::{JobFilter, Request};
use crate::render::squeue::{Layout, Options, Sort, View, helpformat, print, print_steps};
use crate::render::time::date_line;
use crate::render::{Ctx, json};
use std::ffi::OsString;
use std::time::Duration;

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    parsed(parse(argv, &origin)?, |squeue| {
        if squeue.help_format {
            return output::print(&helpformat());
        }
        let Some(secs) = squeue.iterate_secs else { return once(&squeue, &origin) };
        loop {
            once(&squeue, &origin)?;
            output::print("\n")?;
            // The pause that `-i` asks for.
            std::thread::sleep(Duration::from_secs(secs.max(1)));
        }
    })
}

fn once(squeue: &Squeue, origin: &Origin) -> Done {
    for user in output::unknown_users(&squeue.users) {
        eprintln!("squeue: error: Invalid user: {user}");
    }
    let refs = squeue.jobs.as_deref().or(squeue.steps.as_deref()).unwrap_or_default();
    let all_states = squeue.states.is_some();
    let filter = JobFilter {
        jobs: refs.to_vec(),
        expected_starts: squeue.start || squeue.format != Format::Default,
        live_only: !all_states && refs.is_empty(),
    };
    let mut list = match ask(&Request::Jobs(filter), &[])?.0 {
        Answer::Jobs(list) => list,
        other => return Err(unexpected(&other)),
    };
    // Slurm minds an unknown id only where it is the only one.
    if refs.len() == 1 && !list.unknown.is_empty() {
        return Err(CliError::new(Mark::Bare, 1, "slurm_load_jobs error: Invalid job id specified"));
    }
    let ctx = ctx(origin, list.now);
    choose(squeue, &mut list, &ctx);
    if let Some(machine) = squeue.machine {
        return output::print_machine(&json::jobs(&list.jobs, &ctx), machine);
    }
    let mut text = String::new();
    if squeue.iterate_secs.is_some() || (squeue.long && !squeue.no_header && squeue.format != Format::Default) {
        text.push_str(&date_line(&ctx));
    }
    text.push_str(&table(squeue, &list.jobs, &ctx)?);
    output::print(&text)
}

fn choose(squeue: &Squeue, list: &mut JobList, ctx: &Ctx) {
    let licenses = |job: &JobView| maybe_listed(&squeue.licenses, job.request.licenses.as_deref());
    list.jobs.retain(|job| {
        let request = &job.request;
        let state = match &squeue.states {
            Some(states) => states.admits(job.state),
            None => !job.state.is_terminal(),
        };
        state
            && of_users(&squeue.users, job)
            && listed(&squeue.partitions, &job.partition)
            && listed(&squeue.names, &request.name)
            && maybe_listed(&squeue.accounts, request.account.as_deref())
            && maybe_listed(&squeue.qos, Some(request.qos.as_deref().unwrap_or("normal")))
            && maybe_listed(&squeue.reservations, request.reservation.as_deref())
            && licenses(job)
            && on_nodes(&squeue.nodes, job, &ctx.node)
            && (!squeue.start || job.state == JobState::Pending)
    });
}

fn table(squeue: &Squeue, jobs: &[JobView], ctx: &Ctx) -> Result<String, CliError> {
    let header = !squeue.no_header;
    if squeue.steps.is_some() {
        let (percent, long) = match &squeue.format {
            Format::Default => (None, None),
            Format::Percent(text) => (Some(text.as_str()), None),
            Format::Fields(text) => (None, Some(text.as_str())),
        };
        return print_steps(jobs, percent, long, header, ctx).map_err(format_error);
    }
    let view = match (squeue.start, squeue.long) {
        (true, _) => View::Start,
        (false, true) => View::Long,
        (false, false) => View::Default,
    };
    let layout = match &squeue.format {
        Format::Default => Layout::of(view, ctx.face),
        Format::Percent(text) => Layout::parse(text).map_err(format_error)?,
        Format::Fields(text) => Layout::long(text).map_err(format_error)?,
    };
    let sort = match &squeue.sort {
        Some(text) => Sort::parse(text).map_err(format_error)?,
        None if squeue.start => Sort::by_start(),
        None => Sort::default(),
    };
    let refs = squeue.jobs.as_deref().unwrap_or_default();
    Ok(print(jobs, &Options { layout, header, each_task: squeue.array, sort, refs }, ctx))
}
