//! `squeue`: shows pending and running jobs.

use super::output::{self, ctx, default_columns, format_error};
use super::{Done, Entry, ask_for_jobs, ask_for_lists, origin};
use crate::args::choices::{Applet, Choices, Reader, definition};
use crate::args::error::{CliError, Mark};
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::headings::{LISTED, SHOWN};
use crate::args::options::{CommonOpts, DataOpts, Machine};
use crate::args::origin::Origin;
use crate::args::table::options;
use crate::args::value::{Names, hosts, job, named, value};
use crate::commands::pages::texts;
use crate::daemon::command_line::{PlainQuery, QueryOf};
use clap::Args;
use slotd_model::query::{JobQuery, names_record};
use slotd_model::view::{JobList, JobView};
use slotd_model::{JobId, JobRef, JobState, Refusal, Timestamp};
use slotd_parse::error::shown;
use slotd_parse::states::StateFilter;
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use slotd_render::field::{Need, helpformat};
use slotd_render::layout;
use slotd_render::squeue::{
    self as render, Layout, Listing, Options, Sort, Steps, View, print_steps,
};
use slotd_render::time::date_line;
use slotd_render::{Columns, Ctx, FormatError, json};
use std::ffi::OsString;

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Squeue>, run, page: &texts::SQUEUE };

const APPLET: Applet = Applet {
    operands: Operands::None,
    extras: &[extra::SQUEUE],
    // Not SQUEUE_ALL: in Slurm it means hidden partitions, but slotd's --all means all states.
    variables: || {
        vec![
            ("SQUEUE_ACCOUNT", "account"),
            ("SQUEUE_ARRAY", "array"),
            ("SQUEUE_FORMAT", "format"),
            ("SQUEUE_FORMAT2", "Format"),
            ("SQUEUE_LICENSES", "licenses"),
            ("SQUEUE_NAMES", "name"),
            ("SQUEUE_PARTITION", "partition"),
            ("SQUEUE_QOS", "qos"),
            ("SQUEUE_SORT", "sort"),
            ("SQUEUE_STATES", "states"),
            ("SQUEUE_USERS", "user"),
            ("SLURM_CLUSTERS", "clusters"),
        ]
    },
    examples: &[
        ("squeue --me", "your own jobs"),
        ("squeue -t PD --start", "when pending jobs are expected to start"),
        ("squeue -j 12 -o '%i %T %M'", "selected columns of a job"),
    ],
    ..Applet::new("squeue", "Show pending and running jobs")
};

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub struct Squeue {
        /// Print this help
        #[arg(long)]
        pub help: bool,
        #[command(flatten)]
        pub common: CommonOpts,
        /// Show only these jobs
        #[arg(short, long, value_name = "JOBS", num_args = 0..=1, require_equals = true, value_parser = value(job), help_heading = LISTED)]
        pub jobs: Vec<JobRef>,
        /// Print a row for each step
        #[arg(short, long, value_name = "STEPS", num_args = 0..=1, require_equals = true, value_parser = value(step), help_heading = LISTED)]
        pub steps: Vec<JobRef>,
        /// Show jobs with these names
        #[arg(short, long, alias = "names", value_name = "NAMES", help_heading = LISTED)]
        pub name: Vec<String>,
        /// Show jobs of these users
        #[arg(short, long, alias = "users", value_name = "USERS", help_heading = LISTED)]
        pub user: Vec<String>,
        /// Show your own jobs
        #[arg(long, help_heading = LISTED)]
        pub me: bool,
        /// Show jobs in these states, or all
        #[arg(short = 't', long, alias = "state", value_name = "STATES", value_parser = value(slotd_parse::states::parse_list), help_heading = LISTED)]
        pub states: Vec<StateFilter>,
        /// Show jobs in all states, including those that ended in the last day
        #[arg(short, long, help_heading = LISTED)]
        pub all: bool,
        /// Show jobs in these partitions
        #[arg(short, long, alias = "partitions", value_name = "NAMES", help_heading = LISTED)]
        pub partition: Vec<String>,
        /// Show jobs of these accounts
        #[arg(short = 'A', long, alias = "accounts", value_name = "NAMES", help_heading = LISTED)]
        pub account: Vec<String>,
        /// Show jobs with these qualities of service
        #[arg(short, long, value_name = "NAMES", help_heading = LISTED)]
        pub qos: Vec<String>,
        /// Show jobs on these hosts
        #[arg(short = 'w', long, alias = "nodes", value_name = "HOSTS", value_parser = value(hosts), help_heading = LISTED)]
        pub nodelist: Option<Names>,
        /// Show jobs with these licenses
        #[arg(short = 'L', long, value_name = "NAMES", help_heading = LISTED)]
        pub licenses: Vec<String>,
        /// Show jobs in this reservation
        #[arg(short = 'R', long, value_name = "NAME", help_heading = LISTED)]
        pub reservation: Vec<String>,
        /// Print a row for each array task
        #[arg(short = 'r', long, help_heading = LISTED)]
        pub array: bool,
        /// Print a row for each partition that a pending job may start in
        #[arg(short = 'P', long, help_heading = LISTED)]
        pub priority: bool,
        /// Set the columns, by % codes or field names
        #[arg(short = 'o', long, value_name = "FORMAT", help_heading = SHOWN)]
        pub format: Option<String>,
        /// Set the columns, by field names: jobid:10,name:.12,state
        #[arg(id = "format_fields", short = 'O', long = "Format", value_name = "FIELDS", help_heading = SHOWN)]
        pub format_fields: Option<String>,
        /// List the fields and codes
        #[arg(long, alias = "helpFormat", alias = "helpformat2", alias = "helpFormat2", help_heading = SHOWN)]
        pub helpformat: bool,
        /// Print the long view
        #[arg(short, long, help_heading = SHOWN)]
        pub long: bool,
        /// Show when pending jobs are expected to start
        #[arg(long, help_heading = SHOWN)]
        pub start: bool,
        /// Sort the rows by these codes or names; a - before one sorts in descending order
        #[arg(short = 'S', long, value_name = "FIELDS", help_heading = SHOWN)]
        pub sort: Option<String>,
        /// Omit the header
        #[arg(short = 'h', long, help_heading = SHOWN)]
        pub noheader: bool,
        /// Repeat the output at this interval, in seconds
        #[arg(short, long, value_name = "SECONDS", value_parser = named(slotd_parse::count::parse), help_heading = SHOWN)]
        pub iterate: Option<u32>,
        #[command(flatten, next_help_heading = SHOWN)]
        pub data: DataOpts,
        /// Rows are steps (`-s`)
        #[arg(skip)]
        pub by_step: bool,
        /// An empty list was given, as in `-j ''`
        #[arg(skip)]
        pub matches_nothing: bool,
        /// The columns from `-o`, `-O` or the environment
        #[arg(skip)]
        pub columns: Format,
    }
}

/// The selected columns. `render` parses the text of a format.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Format {
    /// The default view, or the one of `-l`, `--start` or `-s`.
    #[default]
    Default,
    /// `-o`: `%` codes and literal text, or a list of field names.
    Percent(String),
    /// `-O`: `field[:width]` names.
    Fields(String),
}

impl Squeue {
    /// Returns the states to show. `--all` means all states, unless `-t` names some. `None`: jobs
    /// that have not ended.
    pub fn states(&self) -> Option<StateFilter> {
        slotd_parse::states::union(&self.states).or(self.all.then_some(StateFilter::All))
    }
}

fn step(text: &str) -> Result<JobRef, CliError> {
    slotd_parse::ids::parse_job(text)
        .map_err(|_| CliError::error(1, format!("Invalid step id: {}", shown(text))))
}

/// Parses a command line.
///
/// # Errors
/// Fails with Slurm's messages and exit code 1.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Squeue, CliError> {
    let mut reader = Reader::scan::<Squeue>(APPLET, argv)?;
    reader.give_operands(&["jobs", "steps"]);
    let (mut args, choices) = reader.finish::<Squeue>(origin, &[])?;
    args.matches_nothing =
        !choices.empty_lists().is_empty() || args.nodelist.as_ref().is_some_and(Vec::is_empty);
    args.by_step = choices.of("steps").is_some();
    args.columns = columns(&args, &choices)?;
    if args.me {
        args.user.push(origin.user.to_string());
    }
    Ok(args)
}

/// Returns the selected columns. As in Slurm's squeue, a view on the command line overrides a
/// format from the environment, `SQUEUE_FORMAT` overrides `SQUEUE_FORMAT2`, and two formats on the
/// command line are an error.
fn columns(args: &Squeue, choices: &Choices) -> Result<Format, CliError> {
    let last = choices.last_of(&["format", "Format"]);
    if ["format", "Format"].iter().all(|name| choices.on_command_line(name)) {
        let (long, short) = ("-O (--Format)", "-o (--format)");
        let (second, first) = if last == Some("Format") { (long, short) } else { (short, long) };
        return Err(CliError::error(1, format!("{second} is incompatible with {first}")));
    }
    let last = if ["format", "Format"].iter().all(|name| choices.is_from_environment(name)) {
        Some("format")
    } else {
        last
    };
    let view = args.long || args.start || args.by_step;
    Ok(match last {
        Some(name) if view && choices.is_from_environment(name) => Format::Default,
        Some("format") => args.format.clone().map_or(Format::Default, Format::Percent),
        Some(_) => args.format_fields.clone().map_or(Format::Default, Format::Fields),
        None => Format::Default,
    })
}

/// The maximum age, in seconds, of ended jobs that `--all` and `-t` show if no jobs are named.
const ENDED_SHOWN_SECS: i64 = 86_400;

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    let args = parse(argv, &origin)?;
    if args.helpformat {
        return output::print(&helpformat::<render::Squeue>());
    }
    if let Some(name) =
        args.nodelist.iter().flatten().find(|name| !output::is_node(name, &origin.host))
    {
        return Err(CliError::error(1, format!("Invalid node name {name}")));
    }
    let mut unknown = Vec::new();
    let table = Table::of(&args, default_columns(&origin), &mut unknown);
    for error in unknown {
        report!("squeue: error: {error}");
    }
    let table = table?;
    output::repeat("squeue", args.iterate, || once(&args, &table, &origin))
}

/// Returns the query of a plain command line.
pub(super) fn plain(argv: &[OsString], origin: Origin) -> Option<PlainQuery> {
    let args = parse(argv, &origin).ok()?;
    let mut unknown = Vec::new();
    let table = Table::of(&args, default_columns(&origin), &mut unknown).ok()?;
    let is_long = args.iterate.is_some() || args.array || args.helpformat;
    let is_known = output::are_known_at_once(&args.user, &origin)
        && args.nodelist.iter().flatten().all(|name| output::is_node(name, &origin.host));
    let is_of_jobs = matches!(&table, Table::Jobs { layout, .. } if layout.is_small());
    (is_of_jobs && unknown.is_empty() && !is_long && is_known).then_some(())?;
    let query = query(&args, &table, origin.now);
    // With a window, the database may have many.
    query.since.is_none().then_some(())?;
    let print = move |answer| {
        let (Table::Jobs { layout, sort }, Answer::Jobs(list)) = (&table, answer) else {
            return None;
        };
        let shown = listing(&args, layout, sort);
        let mut rows = Rows { args: &args, origin: &origin, shown, unknown: Vec::new(), ctx: None };
        rows.add(list);
        rows.end(&table).ok()
    };
    Some(PlainQuery { of: QueryOf::Jobs(query), print: Box::new(print) })
}

/// The layout of the rows.
enum Table {
    Jobs { layout: Layout, sort: Sort },
    Steps(layout::Layout<Steps>),
    Machine(Machine),
}

impl Table {
    /// Returns the table with the known columns. Adds the unknown names and codes to `unknown`: as
    /// in Slurm, they are only reported, and before an error.
    fn of(
        args: &Squeue,
        columns: Columns,
        unknown: &mut Vec<FormatError>,
    ) -> Result<Self, CliError> {
        if let Some(machine) = args.data.machine() {
            return Ok(Table::Machine(machine));
        }
        if args.by_step {
            let (layout, others) = match &args.columns {
                Format::Default => (render::default_layout(), Vec::new()),
                Format::Percent(text) => layout::Layout::codes_as_known(text),
                Format::Fields(text) => layout::Layout::long_as_known(text),
            };
            unknown.extend(others);
            return Ok(Table::Steps(layout));
        }
        let view = match (args.start, args.long) {
            (true, _) => View::Start,
            (false, true) => View::Long,
            (false, false) => View::Default,
        };
        let (layout, others) = match &args.columns {
            Format::Default => (view.layout(columns), Vec::new()),
            Format::Percent(text) => Layout::parse_as_known(text).map_err(format_error)?,
            Format::Fields(text) => Layout::long_as_known(text),
        };
        unknown.extend(others);
        let sort = match &args.sort {
            Some(text) => Sort::parse(text).map_err(format_error)?,
            None => view.sort(),
        };
        Ok(Table::Jobs { layout, sort })
    }

    /// Whether a line with the date comes first. Slurm prints one above its own tables with `-l`,
    /// and above any table with `-i`.
    fn is_dated(&self, args: &Squeue) -> bool {
        let of_slurm = match self {
            Table::Machine(_) => return false,
            // This layout already starts with one.
            Table::Jobs { layout, .. } if layout.is_dated() => return false,
            Table::Jobs { layout, .. } => !layout.is_barred(),
            Table::Steps(_) => true,
        };
        !args.noheader && (args.iterate.is_some() || (args.long && of_slurm))
    }
}

/// Returns the query for the daemon, limited to the shown columns.
fn query(args: &Squeue, table: &Table, now: Timestamp) -> JobQuery {
    let (planned, paths, brief) = match table {
        Table::Machine(_) => (true, true, false),
        Table::Steps(_) => (false, false, false),
        Table::Jobs { layout, sort } => {
            let needs = |need| layout.needs(need) || sort.needs(need);
            (needs(Need::Plan), needs(Need::Paths), layout.is_brief() && sort.is_brief())
        }
    };
    let (states, held_for) = match args.states() {
        None => (JobQuery::live().states, Vec::new()),
        Some(StateFilter::All) => (None, Vec::new()),
        Some(StateFilter::Some(states, held_for)) => (Some(states), held_for),
    };
    let mut query = JobQuery {
        jobs: if args.jobs.is_empty() { &args.steps } else { &args.jobs }.clone(),
        users: args.user.clone(),
        names: args.name.clone(),
        partitions: args.partition.clone(),
        accounts: args.account.clone(),
        qos: args.qos.clone(),
        reservations: args.reservation.clone(),
        licenses: args.licenses.clone(),
        on_node: args.nodelist.iter().flatten().next().is_some(),
        states,
        held_for,
        expected_starts: planned || args.start,
        without_paths: !paths,
        without_steps: matches!(table, Table::Jobs { .. }),
        brief: brief && !args.start,
        // A document is printed before the last part arrives.
        one_moment: !matches!(table, Table::Machine(_)),
        ..JobQuery::default()
    };
    if args.start {
        let pending = |state: &JobState| *state == JobState::Pending;
        query.states = Some(
            query.states.unwrap_or(vec![JobState::Pending]).into_iter().filter(pending).collect(),
        );
    }
    if args.matches_nothing {
        query.match_nothing();
    }
    // The daemon keeps ended jobs in memory for minutes only, but last night's jobs must be shown
    // too.
    if query.jobs.is_empty() && query.wants_ended() {
        query.since = Some(Timestamp::from_secs(now.as_secs() - ENDED_SHOWN_SECS));
    }
    query
}

/// Prints the jobs as JSON or YAML, in parts as they arrive.
fn document(args: &Squeue, machine: Machine, request: &Request, origin: &Origin) -> Done {
    let form = output::form(machine);
    let mut parts = json::jobs_parts(form);
    let mut unknown = Vec::new();
    ask_for_jobs(request, |mut list| {
        let ctx = ctx(origin, list.now);
        choose_steps(args, &mut list);
        unknown.append(&mut list.unknown);
        output::print_bytes(parts.add(json::jobs_records(&list.jobs, form.1, &ctx))).map(drop)
    })?;
    refuse_unknown(args, &unknown)?;
    output::print(&parts.end())
}

/// Fails on an unknown job ID. Slurm does so only if it is the only one, and never for steps, since
/// it always queries all of them.
fn refuse_unknown(args: &Squeue, unknown: &[JobId]) -> Result<(), CliError> {
    if unknown.is_empty() || args.jobs.len() != 1 {
        return Ok(());
    }
    Err(CliError::new(Mark::Bare, 1, format!("slurm_load_jobs error: {}", Refusal::UnknownJob)))
}

fn once(args: &Squeue, table: &Table, origin: &Origin) -> Done {
    for user in output::unknown_users(&args.user) {
        // Slurm ends this message with an empty line.
        report!("squeue: error: Invalid user: {user}\n");
    }
    let request = Request::Jobs(query(args, table, super::now()));
    let shown = match table {
        Table::Machine(machine) => return document(args, *machine, &request, origin),
        Table::Steps(layout) => Shown::Steps(layout, Vec::new()),
        Table::Jobs { layout, sort } => listing(args, layout, sort),
    };
    let mut rows = Rows { args, origin, shown, unknown: Vec::new(), ctx: None };
    ask_for_lists(&request, |list| {
        rows.add(list);
        Ok(())
    })?;
    output::print(&rows.end(table)?)
}

/// The rows of a table, whose records arrive in parts. All parts are shown as of the time of the
/// first.
struct Rows<'a> {
    args: &'a Squeue,
    origin: &'a Origin,
    shown: Shown<'a>,
    /// The IDs named in the query that do not exist.
    unknown: Vec<JobId>,
    ctx: Option<Ctx>,
}

enum Shown<'a> {
    Jobs(Box<Listing<'a>>),
    Steps(&'a layout::Layout<Steps>, Vec<JobView>),
}

fn listing<'a>(args: &'a Squeue, layout: &Layout, sort: &Sort) -> Shown<'a> {
    let (layout, sort, header) = (layout.clone(), sort.clone(), !args.noheader);
    let each_partition = args.priority.then_some(&args.partition[..]);
    let options =
        Options { layout, header, each_task: args.array, each_partition, sort, refs: &args.jobs };
    Shown::Jobs(Box::new(Listing::new(options)))
}

impl Rows<'_> {
    fn add(&mut self, mut list: JobList) {
        choose_steps(self.args, &mut list);
        self.unknown.append(&mut list.unknown);
        let ctx = self.ctx.get_or_insert_with(|| ctx(self.origin, list.now));
        match &mut self.shown {
            Shown::Jobs(listing) => {
                listing.forget(&list.changed);
                listing.add(list.jobs, ctx);
                listing.add_brief(list.brief, ctx);
            }
            Shown::Steps(_, jobs) => *jobs = list.after(std::mem::take(jobs)).jobs,
        }
    }

    fn end(self, table: &Table) -> Result<String, CliError> {
        refuse_unknown(self.args, &self.unknown)?;
        let ctx = self.ctx.unwrap_or_else(|| ctx(self.origin, super::now()));
        let date = if table.is_dated(self.args) { date_line(&ctx) } else { String::new() };
        let rows = match self.shown {
            Shown::Jobs(listing) => listing.end(&ctx),
            Shown::Steps(layout, jobs) => print_steps(&jobs, layout, !self.args.noheader, &ctx),
        };
        Ok(date + &rows)
    }
}

/// Removes steps that were not requested, since a query selects only jobs.
fn choose_steps(args: &Squeue, list: &mut JobList) {
    if args.steps.is_empty() {
        return;
    }
    for job in &mut list.jobs {
        let named: Vec<_> =
            args.steps.iter().filter(|r| names_record(r, job.id, &job.role)).collect();
        job.steps.retain(|step| named.iter().any(|r| r.step.is_none_or(|id| id == step.id)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::origin::tests::lab;
    use slotd_model::End;

    fn read(words: &[&str]) -> Squeue {
        let argv: Vec<OsString> = ["squeue"].iter().chain(words).map(OsString::from).collect();
        match parse(&argv, &lab(&[])) {
            Ok(squeue) => squeue,
            Err(error) => panic!("{words:?}: {error:?}"),
        }
    }

    fn asked(words: &[&str]) -> JobQuery {
        let squeue = read(words);
        let Ok(table) = Table::of(&squeue, Columns::Own, &mut Vec::new()) else {
            panic!("{words:?}")
        };
        query(&squeue, &table, Timestamp::from_secs(1_000_000))
    }

    #[test]
    fn tables_show_one_moment() {
        for (words, is_consistent) in [
            (&[][..], true),
            (&["-t", "all", "-o", "%i %S"], true),
            (&["-s"], true),
            (&["--start"], true),
            (&["--json"], false),
        ] {
            assert_eq!(asked(words).one_moment, is_consistent, "{words:?}");
        }
    }

    #[test]
    fn plan_and_paths_are_queried_only_if_shown() {
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
            assert_eq!(
                (filter.expected_starts, !filter.without_paths),
                (planned, paths),
                "{words:?}"
            );
        }
    }

    #[test]
    fn common_columns_use_a_brief_query() {
        let brief: [&[&str]; 4] =
            [&[], &["-l"], &["-h", "-o", "%i|%j|%t"], &["-O", "jobid,state,reason"]];
        let whole: [&[&str]; 5] =
            [&["--start"], &["-o", "%i %C"], &["-o", "%i", "-S", "e"], &["--json"], &["-s"]];
        assert!(
            brief.iter().all(|words| asked(words).brief)
                && !whole.iter().any(|words| asked(words).brief)
        );
    }

    #[test]
    fn without_states_ended_jobs_are_not_queried() {
        assert!(
            [asked(&[]), asked(&["-j", "5"])]
                .iter()
                .all(|query| !query.wants_ended() && query.since.is_none())
        );
        let all = asked(&["-t", "all"]);
        assert_eq!(
            (all.states, all.since),
            (None, Some(Timestamp::from_secs(913_600))),
            "jobs of the last day"
        );
        assert_eq!(asked(&["-t", "all", "-j", "5"]).since, None, "a named job may be of any age");
        assert_eq!(
            asked(&["-t", "CD,R"]).states,
            Some(vec![JobState::Ended(End::Completed), JobState::Running])
        );
        assert_eq!(
            asked(&["-t", ""]).states,
            Some(Vec::new()),
            "an empty list of states is not the same as no list"
        );
    }

    #[test]
    fn empty_list_matches_nothing() {
        for name in ["-j", "-u", "-n", "-p", "-A", "-q", "-R", "-L", "-t", "-w", "-s"] {
            assert_eq!(asked(&[name, ""]).states, Some(Vec::new()), "{name}");
        }
        for option in ["--jobs=,", "--users=", "--name=,,", "--states=,"] {
            assert_eq!(asked(&[option]).states, Some(Vec::new()), "{option}");
        }
        for words in [&["-j"][..], &["-s"], &["--jobs=,7"], &["-n", "a", "-n", ""]] {
            assert_ne!(asked(words).states, Some(Vec::new()), "{words:?}");
        }
    }

    #[test]
    fn date_is_printed_only_above_slurms_tables() {
        for (words, columns, dated) in [
            (&["-l"][..], Columns::Own, false),
            (&["-l"], Columns::Slurm, false),
            (&["-l", "-o", "%i"], Columns::Own, true),
            (&["-l", "-o", "%i", "-h"], Columns::Own, false),
            (&["-i", "1"], Columns::Own, true),
            (&["-i", "1", "-l"], Columns::Slurm, false),
            (&["-s", "-l"], Columns::Own, true),
            (&["-i", "1", "--json"], Columns::Own, false),
        ] {
            let squeue = read(words);
            let Ok(table) = Table::of(&squeue, columns, &mut Vec::new()) else {
                panic!("{words:?}")
            };
            assert_eq!(table.is_dated(&squeue), dated, "{words:?} {columns:?}");
        }
    }
}
