//! `sacct`: shows the job records in the database, pending and running jobs included.

use super::output::{self, LineOpts, ctx, format_error};
use super::{Done, Entry, ask, ask_for_jobs, origin, unexpected};
use crate::args::choices::{Applet, Choices, Reader, definition};
use crate::args::error::{CliError, Mark};
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::headings::{LISTED, SHOWN};
use crate::args::options::{CommonOpts, DataOpts};
use crate::args::origin::Origin;
use crate::args::table::options;
use crate::args::value::{Names, hosts, job_or_step, named, value};
use crate::commands::pages::texts;
use crate::daemon::command_line::{PlainQuery, QueryOf};
use clap::Args;
use slotd_model::query::JobQuery;
use slotd_model::view::{JobList, JobView};
use slotd_model::{ArrayRole, JobId, JobRef, JobState, Timestamp};
use slotd_parse::SpecError;
use slotd_parse::error::shown;
use slotd_parse::states::StateFilter;
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use slotd_render::field::helpformat;
use slotd_render::sacct::{self as render, Layout, Listing, Options, Rows, View};
use slotd_render::time::iso;
use slotd_render::{Ctx, json};
use std::ffi::OsString;

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Sacct>, run, page: &texts::SACCT };

const APPLET: Applet = Applet {
    operands: Operands::None,
    // Slurm's sacct reports all of them.
    stray: |words| {
        let lines = words.iter().map(|word| format!("\n {}", shown(&word.text)));
        "Unknown arguments:".to_owned() + &lines.collect::<String>()
    },
    // As in Slurm's sacct.
    points_to_help: false,
    extras: &[extra::SACCT],
    variables: || vec![("SACCT_FORMAT", "format")],
    examples: &[
        ("sacct", "today's jobs"),
        ("sacct -j 12 -o JobID,Elapsed,MaxRSS,ExitCode", "the resource usage of a job"),
        ("sacct -S now-7days -s FAILED", "jobs that failed in the last week"),
    ],
    ..Applet::new("sacct", "Show accounting records of jobs and steps")
};

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub struct Sacct {
        /// Print this help
        #[arg(short, long)]
        pub help: bool,
        #[command(flatten)]
        pub common: CommonOpts,
        /// Show only these jobs and steps
        #[arg(short, long, value_name = "JOBS", value_parser = value(job_or_step), help_heading = LISTED)]
        pub jobs: Vec<JobRef>,
        /// Show jobs with these names
        #[arg(long, value_name = "NAMES", help_heading = LISTED)]
        pub name: Vec<String>,
        /// Show jobs of these users
        #[arg(short, long, alias = "uid", alias = "users", value_name = "USERS", help_heading = LISTED)]
        pub user: Vec<String>,
        /// Show jobs of all users
        #[arg(short = 'a', long, help_heading = LISTED)]
        pub allusers: bool,
        /// Show jobs that are in these states, or were in them between -S and -E
        #[arg(short, long, alias = "states", value_name = "STATES", value_parser = value(state), help_heading = LISTED)]
        pub state: Vec<StateFilter>,
        /// Show jobs in these partitions; also -p NAMES
        #[arg(short = 'r', long, alias = "partitions", value_name = "NAMES", help_heading = LISTED)]
        pub partition: Vec<String>,
        /// Show jobs of these accounts
        #[arg(short = 'A', long, alias = "account", value_name = "NAMES", help_heading = LISTED)]
        pub accounts: Vec<String>,
        /// Show jobs with these qualities of service
        #[arg(short, long, value_name = "NAMES", help_heading = LISTED)]
        pub qos: Vec<String>,
        /// Show jobs with these workload characterization keys
        #[arg(short = 'W', long, alias = "wckey", value_name = "KEYS", help_heading = LISTED)]
        pub wckeys: Vec<String>,
        /// Show jobs of these groups
        #[arg(short = 'g', long, alias = "gid", value_name = "GROUPS", help_heading = LISTED)]
        pub group: Vec<String>,
        /// Show jobs on these hosts
        #[arg(short = 'N', long, value_name = "HOSTS", value_parser = value(hosts), help_heading = LISTED)]
        pub nodelist: Option<Names>,
        /// Show jobs that requested these features
        #[arg(short = 'C', long, value_name = "FEATURES", help_heading = LISTED)]
        pub constraints: Vec<String>,
        /// Show jobs with these reasons
        #[arg(short = 'R', long, value_name = "REASONS", help_heading = LISTED)]
        pub reason: Vec<String>,
        /// Show jobs with this number of CPUs: N or MIN-MAX
        #[arg(short = 'I', long, value_name = "RANGE", value_parser = named(range), help_heading = LISTED)]
        pub ncpus: Option<Range>,
        /// Show jobs with this number of nodes: N or MIN-MAX
        #[arg(short = 'i', long, value_name = "RANGE", value_parser = named(range), help_heading = LISTED)]
        pub nnodes: Option<Range>,
        /// Show jobs with this time limit or, if -K is given, at least this limit
        #[arg(short = 'k', long, value_name = "TIME", value_parser = named(slotd_parse::time::parse_limit_for), help_heading = LISTED)]
        pub timelimit_min: Option<Limit>,
        /// With -k, show jobs with at most this time limit
        #[arg(short = 'K', long, value_name = "TIME", value_parser = named(slotd_parse::time::parse_limit_for), help_heading = LISTED)]
        pub timelimit_max: Option<Limit>,
        /// Show jobs that existed after this time; the default is midnight, or 1970 with -j
        #[arg(short = 'S', long, value_name = "TIME", help_heading = LISTED)]
        pub starttime: Option<String>,
        /// Show jobs that existed before this time; the default is now
        #[arg(short = 'E', long, value_name = "TIME", help_heading = LISTED)]
        pub endtime: Option<String>,
        /// Clip start and end times to this window
        #[arg(short = 'T', long, help_heading = LISTED)]
        pub truncate: bool,
        /// Show earlier runs of requeued jobs too
        #[arg(short = 'D', long, help_heading = LISTED)]
        pub duplicates: bool,
        /// Print a row for each array task
        #[arg(long, help_heading = LISTED)]
        pub array: bool,
        /// Omit steps
        #[arg(short = 'X', long, help_heading = LISTED)]
        pub allocations: bool,
        /// Set the fields: jobid,state%20,jobname%-14
        #[arg(short = 'o', long, value_name = "FIELDS", help_heading = SHOWN)]
        pub format: Vec<String>,
        /// List the fields
        #[arg(short = 'e', long, alias = "helpFormat", alias = "help-fields", help_heading = SHOWN)]
        pub helpformat: bool,
        /// Print all fields
        #[arg(short, long, help_heading = SHOWN)]
        pub long: bool,
        /// Print only the ID, state and exit code
        #[arg(short, long, help_heading = SHOWN)]
        pub brief: bool,
        /// Omit the header
        #[arg(short, long, help_heading = SHOWN)]
        pub noheader: bool,
        #[command(flatten)]
        pub lines: LineOpts,
        /// Separate fields with this text, with -p or -P
        #[arg(long, value_name = "TEXT", help_heading = SHOWN)]
        pub delimiter: Option<String>,
        /// Print sizes in this unit: K, M, G, T or P
        #[arg(long, alias = "unit", value_name = "UNIT", value_parser = value(unit), help_heading = SHOWN)]
        pub units: Option<char>,
        /// Do not convert units
        #[arg(long, help_heading = SHOWN)]
        pub noconvert: bool,
        #[command(flatten, next_help_heading = SHOWN)]
        pub data: DataOpts,
        /// Print the batch scripts of the jobs
        #[arg(short = 'B', long, help_heading = SHOWN)]
        pub batch_script: bool,
        /// Print the environments of the jobs
        #[arg(long, help_heading = SHOWN)]
        pub env_vars: bool,
        /// Start and end of the window, with sacct's defaults. Without an end, it is the daemon's
        /// current time
        #[arg(skip)]
        pub window: (Timestamp, Option<Timestamp>),
        /// An empty list was given, as in `--name=`
        #[arg(skip)]
        pub matches_nothing: bool,
        /// The view selected by `-o`, `-b` and `-l`
        #[arg(skip)]
        pub view: SacctFormat,
    }
}

/// An inclusive range of numbers.
type Range = (u32, u32);

/// Seconds; `None` means unlimited.
type Limit = Option<u64>;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SacctFormat {
    #[default]
    Default,
    /// `-b`.
    Brief,
    /// `-l`.
    Long,
    /// `-o`, as written; several are joined with commas.
    Fields(String),
}

/// Parses a command line.
///
/// # Errors
/// Fails with Slurm's messages and exit code 1 if an ID, a state or a time is invalid, or if the
/// window ends before it starts.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Sacct, CliError> {
    let mut reader = Reader::scan::<Sacct>(APPLET, argv)?;
    reader.letter_takes_next("parsable", "partition");
    let job = reader
        .operands
        .first()
        .filter(|operand| slotd_parse::ids::parse_job(&operand.text).is_ok());
    let hint = job.map(|operand| format!("sacct -j {}", operand.text));
    let (mut args, choices) =
        reader.finish::<Sacct>(origin, &[]).map_err(|error| error.maybe_hint(hint))?;
    let is_empty = |name: &str| choices.empty_lists().iter().any(|list| list == name);
    if let Some(what) = ["user", "group"].into_iter().find(|name| is_empty(name)) {
        return Err(CliError::error(1, format!("Invalid {what} id: ")));
    }
    // Slurm ignores the other options if their list is empty.
    args.matches_nothing = ["name", "partition", "accounts", "qos"].into_iter().any(is_empty)
        || args.nodelist.as_ref().is_some_and(Vec::is_empty);
    args.window = window(&args, origin)?;
    args.view = view(&args, &choices);
    Ok(args)
}

fn state(text: &str) -> Result<StateFilter, CliError> {
    slotd_parse::states::parse_list(text).map_err(|error| {
        let names = || format!("states: {}", JobState::ALL.map(JobState::name).join(", "));
        CliError::fatal(1, format!("unrecognized job state value '{}'", shown(text)))
            .hint(error.hint.unwrap_or_else(names))
    })
}

/// Returns the window: by default from midnight until now, or from 1970 if jobs are named.
fn window(args: &Sacct, origin: &Origin) -> Result<(Timestamp, Option<Timestamp>), CliError> {
    let jobs_named = !args.jobs.is_empty();
    let read = |text: &str, is_end: bool| {
        slotd_parse::acct_time::parse(text, origin.now, &origin.tz, is_end)
            .map_err(|error| CliError::new(Mark::Bare, 1, error.to_string()).maybe_hint(error.hint))
    };
    let end = args.endtime.as_deref().map(|text| read(text, true)).transpose()?;
    let start = match args.starttime.as_deref() {
        Some(text) => read(text, false)?,
        None if jobs_named => Timestamp::default(),
        None => read("midnight", false)?,
    };
    let last = end.unwrap_or(origin.now);
    if start > last {
        let (start, end) = (iso(start, &origin.tz), iso(last, &origin.tz));
        return Err(CliError::error(
            1,
            format!("Start time ({start}) requested is after end time ({end})."),
        ));
    }
    Ok((start, end))
}

/// Parses `4` or `2-8`.
fn range(text: &str, option: &str) -> Result<Range, SpecError> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let from = slotd_parse::count::parse_or_zero(from, option)?;
    let to = slotd_parse::count::parse_or_zero(to, option)?;
    if from <= to {
        Ok((from, to))
    } else {
        Err(SpecError::value(format!("Invalid numeric value \"{text}\" for {option}.")))
    }
}

/// A view on the command line overrides a format from the environment.
fn view(args: &Sacct, choices: &Choices) -> SacctFormat {
    let replaced = (args.long || args.brief) && choices.is_from_environment("format");
    if !args.format.is_empty() && !replaced {
        SacctFormat::Fields(args.format.join(","))
    } else if args.long {
        SacctFormat::Long
    } else if args.brief {
        SacctFormat::Brief
    } else {
        SacctFormat::Default
    }
}

fn unit(text: &str) -> Result<char, CliError> {
    let mut letters = text.chars().map(|letter| letter.to_ascii_uppercase());
    match (letters.next(), letters.next()) {
        (Some(unit @ ('K' | 'M' | 'G' | 'T' | 'P')), None) => Ok(unit),
        _ => Err(CliError::error(1, format!("Invalid unit type: {}", shown(text)))),
    }
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    let args = parse(argv, &origin)?;
    if args.helpformat {
        return output::print(&helpformat::<render::Sacct>());
    }
    carry_out(&args, &origin)
}

/// Returns the last microsecond of a second. A window is given in whole seconds and includes its
/// last one, so that a job that ended a moment ago is within a window until `now`.
fn to_end_of_second(time: Timestamp) -> Timestamp {
    Timestamp::from_secs(time.as_secs()).plus(std::time::Duration::from_micros(999_999))
}

fn carry_out(args: &Sacct, origin: &Origin) -> Done {
    // -a overrides -u, which limits the list to some users.
    let users = if args.allusers { &[] } else { args.user.as_slice() };
    if let Some(user) = output::unknown_users(users).first() {
        return Err(CliError::error(1, format!("Invalid user id: {user}")));
    }
    let options = options(args, layout(args, origin)?);
    let mut out = Output::of(args, &options);
    let mut last = None;
    let query = query(args, users, &origin.host);
    let query = if let Output::Table(_) = out { for_table(query, &options) } else { query };
    ask_for_jobs(&Request::Accounting(query), |mut list| {
        let ctx = list_ctx(args, &list, origin);
        arrange(args, &mut list);
        out.add(&list.jobs, &ctx)?;
        last = Some(ctx);
        Ok(())
    })?;
    match last {
        Some(ctx) => out.end(&ctx),
        None => Ok(0),
    }
}

fn options(args: &Sacct, layout: Layout) -> Options<'_> {
    Options {
        layout,
        header: !args.noheader,
        parsable: args.lines.separator(args.delimiter.as_deref().unwrap_or("|")),
        rows: if args.allocations { Rows::Jobs } else { Rows::JobsAndSteps },
        refs: &args.jobs,
    }
}

fn list_ctx(args: &Sacct, list: &JobList, origin: &Origin) -> Ctx {
    let mut ctx = ctx(origin, list.now);
    output::units(&mut ctx, args.units, args.noconvert);
    ctx
}

/// Returns the query of a plain command line. It names jobs: others may search the whole database.
pub(super) fn plain(argv: &[OsString], origin: Origin) -> Option<PlainQuery> {
    let args = parse(argv, &origin).ok()?;
    let is_table = !args.batch_script && !args.env_vars && args.data.machine().is_none();
    let is_short = !args.jobs.is_empty() && !args.array && !args.duplicates && !args.helpformat;
    (is_table && is_short && args.user.is_empty() && args.group.is_empty()).then_some(())?;
    let layout = layout(&args, &origin).ok().filter(Layout::is_small)?;
    let query = for_table(query(&args, &[], &origin.host), &options(&args, layout.clone()));
    let print = move |answer| {
        let Answer::Jobs(list) = answer else { return None };
        let mut list = list.whole();
        let ctx = list_ctx(&args, &list, &origin);
        arrange(&args, &mut list);
        let options = options(&args, layout);
        let mut listing = Listing::new(&options);
        Some(listing.add(&list.jobs, &ctx) + &listing.end(&ctx))
    };
    Some(PlainQuery { of: QueryOf::Accounting(query), print: Box::new(print) })
}

/// Limits a query to the parts of each record that the table shows.
fn for_table(query: JobQuery, options: &Options) -> JobQuery {
    let brief = options.layout.is_brief();
    JobQuery {
        brief,
        without_paths: brief,
        without_steps: brief && options.rows == Rows::Jobs,
        without_batch_steps: brief && !options.shows_batch_steps(),
        ..query
    }
}

/// The output for the records, which arrive in parts.
enum Output<'a> {
    Texts(Text),
    Machine(json::Parts),
    Table(Listing<'a>),
}

impl<'a> Output<'a> {
    fn of(args: &Sacct, options: &'a Options<'a>) -> Self {
        match args.data.machine() {
            _ if args.batch_script => Output::Texts(Text::Script),
            _ if args.env_vars => Output::Texts(Text::Environment),
            Some(machine) => Output::Machine(json::accounting_parts(output::form(machine))),
            None => Output::Table(Listing::new(options)),
        }
    }

    fn add(&mut self, jobs: &[JobView], ctx: &Ctx) -> Result<(), CliError> {
        match self {
            Output::Texts(of) => texts(jobs, *of),
            Output::Machine(parts) => {
                output::print_bytes(parts.add(json::accounting_records(jobs, ctx)))
            }
            Output::Table(listing) => output::print(&listing.add(jobs, ctx)),
        }
        .map(drop)
    }

    fn end(self, ctx: &Ctx) -> Done {
        match self {
            Output::Texts(_) => Ok(0),
            Output::Machine(parts) => output::print(&parts.end()),
            Output::Table(listing) => output::print(&listing.end(ctx)),
        }
    }
}

/// Returns the query for the daemon.
pub(super) fn query(args: &Sacct, users: &[String], host: &str) -> JobQuery {
    let (start, end) = args.window;
    // As in the man page: -k with -K is a range, -k alone is an exact limit, and -K alone has no
    // effect.
    let least = args.timelimit_min.flatten();
    let most = least.map(|least| args.timelimit_max.flatten().unwrap_or(least));
    let mut query = JobQuery {
        jobs: args.jobs.clone(),
        names: args.name.clone(),
        users: users.to_vec(),
        groups: args.group.clone(),
        partitions: args.partition.clone(),
        accounts: args.accounts.clone(),
        qos: args.qos.clone(),
        constraints: args.constraints.clone(),
        reasons: args.reason.clone(),
        wckeys: args.wckeys.clone(),
        states: match slotd_parse::states::union(&args.state) {
            None | Some(StateFilter::All) => None,
            // Accounting knows held jobs only as PENDING.
            Some(StateFilter::Some(states, _)) => Some(states),
        },
        // If a window is given, it also selects jobs that were in the state at any time in it.
        states_then: args.starttime.is_some() || args.endtime.is_some(),
        since: Some(start),
        until: end.map(to_end_of_second),
        limit_min_secs: least,
        limit_max_secs: most,
        cpus: args.ncpus,
        duplicates: args.duplicates,
        ..JobQuery::default()
    };
    query.limit_to_nodes(args.nodelist.as_deref().unwrap_or_default(), |name| {
        output::is_node(name, host)
    });
    // Every job runs on one node.
    if args.matches_nothing || args.nnodes.is_some_and(|(least, most)| !(least..=most).contains(&1))
    {
        query.match_nothing();
    }
    query
}

/// Sorts the jobs and removes parts that are not shown.
fn arrange(args: &Sacct, list: &mut JobList) {
    if args.array {
        list.jobs = std::mem::take(&mut list.jobs).into_iter().flat_map(each_task).collect();
    }
    list.jobs.sort_by_key(order);
    if args.allocations && args.data.machine().is_some() {
        list.jobs.iter_mut().for_each(|job| job.steps.clear());
    }
    if args.truncate {
        for job in &mut list.jobs {
            job.run.start = job.run.start.map(|start| start.max(args.window.0));
            if let Some(end) = args.window.1 {
                job.run.end = job.run.end.map(|at| at.min(end));
            }
        }
    }
}

/// Splits a record that several array tasks share into one for each task (`--array`).
fn each_task(job: JobView) -> Vec<JobView> {
    match (job.role.array_job(job.id), &job.role) {
        (Some(array_job), ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. }) => {
            let alone = |task| {
                let mut alone = job.clone();
                alone.role = ArrayRole::Task { array_job, task };
                alone
            };
            tasks.iter().map(alone).collect()
        }
        _ => vec![job],
    }
}

/// Returns the sort key of a job: its ID or, for array tasks, the array's ID and the task index.
/// The task that has the array's own ID is no exception.
pub(super) fn order(job: &JobView) -> (JobId, u32, JobId) {
    let task = match &job.role {
        ArrayRole::None => 0,
        ArrayRole::Task { task, .. } => *task,
        ArrayRole::Rest { tasks, .. } | ArrayRole::Part { tasks, .. } => tasks.first().unwrap_or(0),
    };
    (job.role.array_job(job.id).unwrap_or(job.id), task, job.id)
}

/// A text that `-B` or `--env-vars` prints.
#[derive(Clone, Copy)]
enum Text {
    Script,
    Environment,
}

/// Prints a text for each job instead of a table (`-B`, `--env-vars`). The entries of an
/// environment, each terminated by a zero byte, are printed on separate lines.
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
            Text::Environment => {
                text.into_iter().map(|byte| if byte == 0 { b'\n' } else { byte }).collect()
            }
        };
        output::print(&format!("{title} {}\n{}\n", job.id, "-".repeat(80)))?;
        output::print_bytes(if text.is_empty() { b"NONE\n" } else { &text })?;
        output::print("\n")?;
    }
    Ok(0)
}

fn layout(args: &Sacct, origin: &Origin) -> Result<Layout, CliError> {
    let of = |view: View| Ok(view.layout(output::default_columns(origin)));
    match &args.view {
        SacctFormat::Default => of(View::Default),
        SacctFormat::Brief => of(View::Brief),
        SacctFormat::Long => of(View::Long),
        SacctFormat::Fields(text) => render::parse(text).map_err(format_error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::Job;

    #[test]
    fn window_includes_its_last_second() {
        assert_eq!(to_end_of_second(Timestamp(7_200_000)), Timestamp(7_999_999));
        assert_eq!(to_end_of_second(Timestamp(7_000_000)), Timestamp(7_999_999));
    }

    #[test]
    fn array_tasks_are_sorted_by_index_in_place_of_their_array() {
        let of = |id: u32, role: ArrayRole| (JobId(id), role);
        let task = |id, task| of(id, ArrayRole::Task { array_job: JobId(8), task });
        // The last task to start keeps the ID of the array.
        let records =
            [task(8, 3), task(9, 1), of(7, ArrayRole::None), task(10, 2), of(11, ArrayRole::None)];
        let view =
            |(id, role)| JobView { job: Job { id, role, ..Job::default() }, ..JobView::default() };
        let mut jobs = records.map(view).to_vec();
        jobs.sort_by_key(order);
        assert_eq!(jobs.iter().map(|job| job.id.0).collect::<Vec<_>>(), [7, 9, 10, 8, 11]);
    }

    #[test]
    fn table_queries_only_the_parts_it_shows() {
        let origin = origin();
        let query_of = |words: &[&str]| {
            let words: Vec<OsString> =
                [&["sacct"], words].concat().into_iter().map(OsString::from).collect();
            let args = parse(&words, &origin).unwrap();
            let rows = if args.allocations { Rows::Jobs } else { Rows::JobsAndSteps };
            let layout = layout(&args, &origin).unwrap();
            let options = Options { layout, rows, refs: &args.jobs, ..Options::default() };
            for_table(query(&args, &[], "node"), &options)
        };
        let asked = |words: &[&str]| {
            let query = query_of(words);
            (query.brief, query.without_paths, query.without_steps)
        };
        assert_eq!(asked(&[]), (true, true, false));
        assert_eq!(asked(&["-X", "-b"]), (true, true, true));
        assert_eq!(asked(&["-X", "-o", "jobid,account,alloccpus,elapsed"]), (true, true, true));
        for whole in [&["-l"][..], &["-X", "-o", "jobid,workdir"], &["-o", "jobid,totalcpu"]] {
            assert_eq!(asked(whole), (false, false, false), "{whole:?}");
        }
        for (words, without) in [
            (&[][..], true),
            (&["-j", "7"], true),
            (&["-j", "7.0,8"], true),
            (&["-j", "7,8.batch"], false),
            (&["-b"], false),
            (&["-l"], false),
        ] {
            assert_eq!(query_of(words).without_batch_steps, without, "{words:?}");
        }
    }
}
