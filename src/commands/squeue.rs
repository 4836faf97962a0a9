//! `squeue`: jobs that wait and run.

pub mod args;

use super::output::{self, ctx, face, format_error, maybe_listed, on_nodes};
use super::{Done, Entry, ask, origin, parsed, unexpected};
use crate::args::choices::definition;
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::commands::pages::texts;
use crate::commands::squeue::args::{Format, Machine, Squeue, parse};
use crate::model::JobState;
use crate::model::query::names_record;
use crate::model::view::JobList;
use crate::protocol::answer::Answer;
use crate::protocol::request::{JobFilter, Request};
use crate::render::field::{Need, helpformat};
use crate::render::layout;
use crate::render::squeue::{self as render, Layout, Options, Sort, Steps, View, print, print_steps};
use crate::render::time::date_line;
use crate::render::{Ctx, Face, json};
use crate::spec::states::StateFilter;
use std::ffi::OsString;

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: args::APPLET, define: definition::<args::SqueueOpts>, run, page: &texts::SQUEUE };

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    parsed(parse(argv, &origin)?, |squeue| {
        if squeue.help_format {
            return output::print(&helpformat::<render::Squeue>());
        }
        if let Some(name) = squeue.nodes.iter().find(|name| !output::is_node(name, &origin.host)) {
            return Err(CliError::error(1, format!("Invalid node name {name}")));
        }
        let table = Table::of(&squeue, face(&origin))?;
        output::repeat("squeue", squeue.iterate_secs, || once(&squeue, &table, &origin))
    })
}

/// How the rows are to look.
enum Table {
    Jobs { layout: Layout, sort: Sort },
    Steps(layout::Layout<Steps>),
    Machine(Machine),
}

impl Table {
    fn of(squeue: &Squeue, face: Face) -> Result<Self, CliError> {
        if let Some(machine) = squeue.machine {
            return Ok(Table::Machine(machine));
        }
        if squeue.steps.is_some() {
            let layout = match &squeue.format {
                Format::Default => Ok(render::default_layout()),
                Format::Percent(text) => layout::Layout::codes(text),
                Format::Fields(text) => layout::Layout::long(text),
            };
            return layout.map(Table::Steps).map_err(format_error);
        }
        let view = match (squeue.start, squeue.long) {
            (true, _) => View::Start,
            (false, true) => View::Long,
            (false, false) => View::Default,
        };
        let layout = match &squeue.format {
            Format::Default => view.layout(face),
            Format::Percent(text) => Layout::parse(text).map_err(format_error)?,
            Format::Fields(text) => Layout::long(text).map_err(format_error)?,
        };
        let sort = match &squeue.sort {
            Some(text) => Sort::parse(text).map_err(format_error)?,
            None => view.sort(),
        };
        Ok(Table::Jobs { layout, sort })
    }

    /// Whether a line with the date goes above it: Slurm puts one above its own tables with `-l`, and above any with `-i`.
    fn is_dated(&self, squeue: &Squeue) -> bool {
        let of_slurm = match self {
            Table::Machine(_) => return false,
            // It brings its own.
            Table::Jobs { layout, .. } if layout.is_dated() => return false,
            Table::Jobs { layout, .. } => !layout.is_barred(),
            Table::Steps(_) => true,
        };
        !squeue.no_header && (squeue.iterate_secs.is_some() || (squeue.long && of_slurm))
    }
}

/// What the daemon is asked for: no more than what is shown.
fn filter(squeue: &Squeue, table: &Table) -> JobFilter {
    let (planned, paths) = match table {
        Table::Machine(_) => (true, true),
        Table::Steps(_) => (false, false),
        Table::Jobs { layout, sort } => {
            let needs = |need| layout.needs(need) || sort.needs(need);
            (needs(Need::Plan), needs(Need::Paths))
        }
    };
    JobFilter {
        jobs: squeue.jobs.as_ref().or(squeue.steps.as_ref()).cloned().unwrap_or_default(),
        expected_starts: planned || squeue.start,
        live_only: squeue.states.is_none(),
        states: match &squeue.states {
            None | Some(StateFilter::All) => None,
            Some(StateFilter::Some(states)) => Some(states.clone()),
        },
        users: squeue.users.clone(),
        names: squeue.names.clone(),
        partitions: squeue.partitions.clone(),
        accounts: squeue.accounts.clone(),
        without_paths: !paths,
        without_steps: matches!(table, Table::Jobs { .. }),
    }
}

fn once(squeue: &Squeue, table: &Table, origin: &Origin) -> Done {
    for user in output::unknown_users(&squeue.users) {
        // Slurm ends this message in an empty line (golden F-29).
        eprintln!("squeue: error: Invalid user: {user}\n");
    }
    let mut list = match ask(&Request::Jobs(filter(squeue, table)), &[])?.0 {
        Answer::Jobs(list) => list,
        other => return Err(unexpected(&other)),
    };
    // Slurm minds an unknown id only where it is the only one; steps it always asks for all.
    if !list.unknown.is_empty() && squeue.jobs.as_ref().is_some_and(|jobs| jobs.len() == 1) {
        return Err(CliError::new(Mark::Bare, 1, "slurm_load_jobs error: Invalid job id specified"));
    }
    let ctx = ctx(origin, list.now);
    choose(squeue, &mut list, &ctx);
    let header = !squeue.no_header;
    let listing = match table {
        Table::Machine(machine) => return output::print_machine(&json::jobs(&list.jobs, &ctx), *machine),
        Table::Steps(layout) => print_steps(&list.jobs, layout, header, &ctx),
        Table::Jobs { layout, sort } => {
            let refs = squeue.jobs.as_deref().unwrap_or_default();
            let (layout, sort) = (layout.clone(), sort.clone());
            print(&list.jobs, &Options { layout, header, each_task: squeue.array, sort, refs }, &ctx)
        }
    };
    let date = if table.is_dated(squeue) { date_line(&ctx) } else { String::new() };
    output::print(&(date + &listing))
}

/// What the daemon's filter does not look at.
fn choose(squeue: &Squeue, list: &mut JobList, ctx: &Ctx) {
    list.jobs.retain(|job| {
        let request = &job.request;
        maybe_listed(&squeue.qos, Some(request.qos.as_deref().unwrap_or("normal")))
            && maybe_listed(&squeue.reservations, request.reservation.as_deref())
            && maybe_listed(&squeue.licenses, request.licenses.as_deref())
            && on_nodes(&squeue.nodes, job, &ctx.node)
            && (!squeue.start || job.run.state == JobState::Pending)
    });
    let Some(wanted) = squeue.steps.as_ref().filter(|steps| !steps.is_empty()) else { return };
    for job in &mut list.jobs {
        let named: Vec<_> = wanted.iter().filter(|r| names_record(r, job.id, &job.role)).collect();
        job.steps.retain(|step| named.iter().any(|r| r.step.is_none_or(|id| id == step.id)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::error::Parsed;
    use crate::args::origin::tests::lab;

    fn read(words: &[&str]) -> Squeue {
        let argv: Vec<OsString> = ["squeue"].iter().chain(words).map(OsString::from).collect();
        match parse(&argv, &lab(&[])) {
            Ok(Parsed::Run(squeue)) => squeue,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    fn asked(words: &[&str]) -> JobFilter {
        let squeue = read(words);
        let Ok(table) = Table::of(&squeue, Face::Book) else { panic!("{words:?}") };
        filter(&squeue, &table)
    }

    #[test]
    fn the_plan_and_the_paths_are_asked_for_only_where_they_are_shown() {
        for (words, planned, paths) in [
            (&[][..], false, false),
            (&["-h", "-o", "%i %t %M"], false, false),
            (&["-o", "%i %S"], true, false),
            (&["-o", "JobID,Start"], true, false),
            (&["-o", "%i", "-S", "e"], true, false),
            (&["-O", "jobid,stdout:#"], false, true),
            (&["--start"], true, false),
            (&["--json"], true, true),
            (&["-s"], false, false),
        ] {
            let filter = asked(words);
            assert_eq!((filter.expected_starts, !filter.without_paths), (planned, paths), "{words:?}");
        }
    }

    #[test]
    fn without_states_only_what_is_not_over_is_asked_for() {
        assert!(asked(&[]).live_only && asked(&["-j", "5"]).live_only);
        assert!(!asked(&["-t", "all"]).live_only && asked(&["-t", "all"]).states.is_none());
        assert_eq!(asked(&["-t", "CD,R"]).states, Some(vec![JobState::Completed, JobState::Running]));
    }

    #[test]
    fn the_date_stands_above_slurms_tables_only() {
        for (words, face, dated) in [
            (&["-l"][..], Face::Book, false),
            (&["-l"], Face::Slurm, false),
            (&["-l", "-o", "%i"], Face::Book, true),
            (&["-l", "-o", "%i", "-h"], Face::Book, false),
            (&["-i", "1"], Face::Book, true),
            (&["-i", "1", "-l"], Face::Slurm, false),
            (&["-s", "-l"], Face::Book, true),
            (&["-i", "1", "--json"], Face::Book, false),
        ] {
            let squeue = read(words);
            let Ok(table) = Table::of(&squeue, face) else { panic!("{words:?}") };
            assert_eq!(table.is_dated(&squeue), dated, "{words:?} {face:?}");
        }
    }
}
