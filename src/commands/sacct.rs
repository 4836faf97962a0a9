//! `sacct`: what the database knows, jobs that run and wait included.

pub mod args;

use super::output::{self, ctx, format_error, listed, maybe_listed, on_nodes};
use super::{Done, Entry, ask, origin, parsed, unexpected};
use crate::args::choices::definition;
use crate::args::error::CliError;
use crate::args::origin::Origin;
use crate::commands::pages::texts;
use crate::commands::sacct::args::{Sacct, SacctFormat, parse};
use crate::model::query::AcctFilter;
use crate::model::view::{JobList, JobView};
use crate::model::{ArrayRole, JobId, Timestamp};
use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use crate::render::field::helpformat;
use crate::render::sacct::{self as render, Options, Rows, View, print};
use crate::render::{Ctx, json};
use crate::spec::states::StateFilter;
use std::ffi::OsString;

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: args::APPLET, define: definition::<args::SacctOpts>, run, page: &texts::SACCT };

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    parsed(parse(argv, &origin)?, |sacct| {
        if sacct.help_format {
            return output::print(&helpformat::<render::Sacct>());
        }
        carry_out(&sacct, &origin)
    })
}

/// A window is given in whole seconds, the last of which belongs to it: what ended a moment ago ended until `now`.
fn to_end_of_second(time: Timestamp) -> Timestamp {
    Timestamp::from_secs(time.as_secs()).plus(std::time::Duration::from_micros(999_999))
}

fn carry_out(sacct: &Sacct, origin: &Origin) -> Done {
    if let Some(user) = output::unknown_users(&sacct.users).first() {
        return Err(CliError::error(1, format!("Invalid user id: {user}")));
    }
    let filter = AcctFilter {
        jobs: sacct.jobs.clone().unwrap_or_default(),
        names: sacct.names.clone(),
        users: output::user_names(&sacct.users),
        partitions: sacct.partitions.clone(),
        accounts: sacct.accounts.clone(),
        states: match &sacct.states {
            None | Some(StateFilter::All) => None,
            Some(StateFilter::Some(states)) => Some(states.clone()),
        },
        since: Some(sacct.start),
        until: sacct.end.map(to_end_of_second),
        duplicates: sacct.duplicates,
    };
    let mut list = match ask(&Request::Accounting(filter), &[])?.0 {
        Answer::Jobs(list) => list,
        other => return Err(unexpected(&other)),
    };
    let mut ctx = ctx(origin, list.now);
    output::units(&mut ctx, sacct.units, sacct.no_convert);
    choose(sacct, &mut list, &ctx);
    if sacct.batch_script {
        return texts(&list.jobs, Text::Script);
    }
    if sacct.env_vars {
        return texts(&list.jobs, Text::Environment);
    }
    if let Some(machine) = sacct.machine {
        return output::print_machine(&json::accounting(&list.jobs, &ctx), machine);
    }
    output::print(&table(sacct, &list.jobs, &ctx)?)
}

fn choose(sacct: &Sacct, list: &mut JobList, ctx: &Ctx) {
    list.jobs.retain(|job| {
        let request = &job.request;
        let limit = request.time_limit_secs.unwrap_or(u64::MAX);
        listed(&sacct.groups, &request.group)
            && maybe_listed(&sacct.qos, Some(request.qos.as_deref().unwrap_or("normal")))
            && maybe_listed(&sacct.wckeys, request.wckey.as_deref())
            && on_nodes(&sacct.nodes, job, &ctx.node)
            && sacct.time_limit_min.is_none_or(|min| limit >= min)
            && sacct.time_limit_max.is_none_or(|max| limit <= max)
            && sacct.cpus.is_none_or(|(low, high)| (low..=high).contains(&job.tres.cpus))
            && sacct.node_count.is_none_or(|(low, high)| (low..=high).contains(&1))
    });
    list.jobs.sort_by_key(order);
    if sacct.allocations && sacct.machine.is_some() {
        list.jobs.iter_mut().for_each(|job| job.steps.clear());
    }
    if sacct.truncate {
        for job in &mut list.jobs {
            job.run.start = job.run.start.map(|start| start.max(sacct.start));
            if let Some(end) = sacct.end {
                job.run.end = job.run.end.map(|at| at.min(end));
            }
        }
    }
}

/// By number; the tasks of an array stand where the array does, by theirs. The task that kept the array's own number is
/// no exception.
pub(super) fn order(job: &JobView) -> (JobId, u32, JobId) {
    let task = match &job.role {
        ArrayRole::None => 0,
        ArrayRole::Task { task, .. } => *task,
        ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => tasks.first().unwrap_or(0),
    };
    (job.role.array_job(job.id).unwrap_or(job.id), task, job.id)
}

/// What `-B` and `--env-vars` print.
#[derive(Clone, Copy)]
enum Text {
    Script,
    Environment,
}

/// `-B` and `--env-vars`: a text of each job instead of a table. The entries of an environment, each ended by a zero byte,
/// stand on lines of their own.
fn texts(jobs: &[JobView], of: Text) -> Done {
    for job in jobs {
        let (title, request) = match of {
            Text::Script => ("Batch Script for", Request::BatchScript(job.id)),
            Text::Environment => ("Environment used for", Request::BatchEnv(job.id)),
        };
        let (answer, text) = ask(&request, &[])?;
        let Answer::Script = answer else { return Err(unexpected(&answer)) };
        let text = match of {
            Text::Script => text,
            Text::Environment => text.into_iter().map(|byte| if byte == 0 { b'\n' } else { byte }).collect(),
        };
        output::print(&format!("{title} {}\n{}\n", job.id, "-".repeat(80)))?;
        output::print_bytes(if text.is_empty() { b"NONE\n" } else { &text })?;
        output::print("\n")?;
    }
    Ok(0)
}

fn table(sacct: &Sacct, jobs: &[JobView], ctx: &Ctx) -> Result<String, CliError> {
    let layout = match &sacct.format {
        SacctFormat::Default => View::Default.layout(ctx.face),
        SacctFormat::Brief => View::Brief.layout(ctx.face),
        SacctFormat::Long => View::Long.layout(ctx.face),
        SacctFormat::Fields(text) => render::parse(text).map_err(format_error)?,
    };
    let options = Options {
        layout,
        header: !sacct.no_header,
        parsable: sacct.parsable.separator(sacct.delimiter.as_deref().unwrap_or("|")),
        rows: if sacct.allocations { Rows::Jobs } else { Rows::JobsAndSteps },
        refs: sacct.jobs.as_deref().unwrap_or_default(),
    };
    Ok(print(jobs, &options, ctx))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Job;

    #[test]
    fn the_last_second_of_a_window_belongs_to_it() {
        assert_eq!(to_end_of_second(Timestamp(7_200_000)), Timestamp(7_999_999));
        assert_eq!(to_end_of_second(Timestamp(7_000_000)), Timestamp(7_999_999));
    }

    #[test]
    fn tasks_stand_in_their_order_where_the_array_does() {
        let of = |id: u32, role: ArrayRole| (JobId(id), role);
        let task = |id, task| of(id, ArrayRole::Task { array_job: JobId(8), task });
        // The last task to start keeps the number of the array.
        let records = [task(8, 3), task(9, 1), of(7, ArrayRole::None), task(10, 2), of(11, ArrayRole::None)];
        let view = |(id, role)| JobView { job: Job { id, role, ..Job::default() }, ..JobView::default() };
        let mut jobs = records.map(view).to_vec();
        jobs.sort_by_key(order);
        assert_eq!(jobs.iter().map(|job| job.id.0).collect::<Vec<_>>(), [7, 9, 10, 8, 11]);
    }
}
