//! `sacct`: what the database knows, jobs that run and wait included.

use super::output::{self, LineOpts, ctx, format_error};
use super::{Done, Entry, ask, ask_for_jobs, origin, unexpected};
use crate::args::choices::{Applet, Choices, Reader, definition};
use crate::args::error::{CliError, Mark};
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::headings::{LISTED, SHOWN};
use crate::args::options::{CommonOpts, DataOpts};
use crate::args::origin::Origin;
use crate::args::value::{Names, hosts, job_or_step, named, value};
use crate::commands::pages::texts;
use crate::model::query::JobQuery;
use crate::model::view::{JobList, JobView};
use crate::model::{ArrayRole, JobId, JobRef, JobState, Timestamp};
use crate::parse;
use crate::parse::SpecError;
use crate::parse::error::shown;
use crate::parse::states::StateFilter;
use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use crate::render::field::helpformat;
use crate::render::sacct::{self as render, Layout, Listing, Options, Rows, View};
use crate::render::time::iso;
use crate::render::{Ctx, json};
use clap::Args;
use std::ffi::OsString;

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Sacct>, run, page: &texts::SACCT };

const APPLET: Applet = Applet {
    name: "sacct",
    about: "Show the accounting of jobs and steps",
    operands: Operands::None,
    usage_exit: 1,
    // As sacct does.
    points_to_help: false,
    extras: &[extra::SACCT],
    variables: || vec![("SACCT_FORMAT", "format"), ("SLURM_CLUSTERS", "clusters")],
    submission: "",
    examples: &[
        ("sacct", "what ran today"),
        ("sacct -j 12 -o JobID,Elapsed,MaxRSS,ExitCode", "what one job used"),
        ("sacct -S now-7days -s FAILED", "what failed in a week"),
    ],
};

#[derive(Debug, Clone, Default, Args)]
pub struct Sacct {
    /// Print this help
    #[arg(short, long)]
    pub help: bool,
    #[command(flatten)]
    pub common: CommonOpts,
    /// These jobs and steps
    #[arg(short, long, value_name = "JOBS", value_parser = value(job_or_step), help_heading = LISTED)]
    pub jobs: Vec<JobRef>,
    /// Jobs of these names
    #[arg(long, value_name = "NAMES", help_heading = LISTED)]
    pub name: Vec<String>,
    /// Jobs of these users
    #[arg(short, long, alias = "uid", alias = "users", value_name = "USERS", help_heading = LISTED)]
    pub user: Vec<String>,
    /// Jobs of all users
    #[arg(short = 'a', long, help_heading = LISTED)]
    pub allusers: bool,
    /// Jobs that were in these states: now, or from -S to -E
    #[arg(short, long, alias = "states", value_name = "STATES", value_parser = value(state), help_heading = LISTED)]
    pub state: Vec<StateFilter>,
    /// Jobs of these partitions; also -p NAMES
    #[arg(short = 'r', long, alias = "partitions", value_name = "NAMES", help_heading = LISTED)]
    pub partition: Vec<String>,
    /// Jobs of these accounts
    #[arg(short = 'A', long, alias = "account", value_name = "NAMES", help_heading = LISTED)]
    pub accounts: Vec<String>,
    /// Jobs of these qualities of service
    #[arg(short, long, value_name = "NAMES", help_heading = LISTED)]
    pub qos: Vec<String>,
    /// Jobs with these keys
    #[arg(short = 'W', long, alias = "wckey", value_name = "KEYS", help_heading = LISTED)]
    pub wckeys: Vec<String>,
    /// Jobs of these groups
    #[arg(short = 'g', long, alias = "gid", value_name = "GROUPS", help_heading = LISTED)]
    pub group: Vec<String>,
    /// Jobs on these hosts
    #[arg(short = 'N', long, value_name = "HOSTS", value_parser = value(hosts), help_heading = LISTED)]
    pub nodelist: Option<Names>,
    /// Jobs that asked for these features
    #[arg(short = 'C', long, value_name = "FEATURES", help_heading = LISTED)]
    pub constraints: Vec<String>,
    /// Jobs with these reasons
    #[arg(short = 'R', long, value_name = "REASONS", help_heading = LISTED)]
    pub reason: Vec<String>,
    /// Jobs with so many CPUs: N or MIN-MAX
    #[arg(short = 'I', long, value_name = "RANGE", value_parser = named(range), help_heading = LISTED)]
    pub ncpus: Option<Range>,
    /// Jobs with so many nodes: N or MIN-MAX
    #[arg(short = 'i', long, value_name = "RANGE", value_parser = named(range), help_heading = LISTED)]
    pub nnodes: Option<Range>,
    /// This time limit, or with -K at least this
    #[arg(short = 'k', long, value_name = "TIME", value_parser = named(parse::time::parse_limit_for), help_heading = LISTED)]
    pub timelimit_min: Option<Limit>,
    /// Time limit at most; counts with -k
    #[arg(short = 'K', long, value_name = "TIME", value_parser = named(parse::time::parse_limit_for), help_heading = LISTED)]
    pub timelimit_max: Option<Limit>,
    /// Jobs that were there after this time; if not given midnight, with -j 1970
    #[arg(short = 'S', long, value_name = "TIME", help_heading = LISTED)]
    pub starttime: Option<String>,
    /// Jobs that were there before this time; if not given now
    #[arg(short = 'E', long, value_name = "TIME", help_heading = LISTED)]
    pub endtime: Option<String>,
    /// Cut start and end to the window
    #[arg(short = 'T', long, help_heading = LISTED)]
    pub truncate: bool,
    /// Earlier runs of requeued jobs too
    #[arg(short = 'D', long, help_heading = LISTED)]
    pub duplicates: bool,
    /// A row for each task of an array
    #[arg(long, help_heading = LISTED)]
    pub array: bool,
    /// Jobs without their steps
    #[arg(short = 'X', long, help_heading = LISTED)]
    pub allocations: bool,
    /// Fields: jobid,state%20,jobname%-14
    #[arg(short = 'o', long, value_name = "FIELDS", help_heading = SHOWN)]
    pub format: Vec<String>,
    /// List the fields
    #[arg(short = 'e', long, alias = "helpFormat", alias = "help-fields", help_heading = SHOWN)]
    pub helpformat: bool,
    /// All fields
    #[arg(short, long, help_heading = SHOWN)]
    pub long: bool,
    /// Id, state and exit code only
    #[arg(short, long, help_heading = SHOWN)]
    pub brief: bool,
    /// No lines of headers
    #[arg(short, long, help_heading = SHOWN)]
    pub noheader: bool,
    #[command(flatten)]
    pub lines: LineOpts,
    /// Text between fields with -p and -P
    #[arg(long, value_name = "TEXT", help_heading = SHOWN)]
    pub delimiter: Option<String>,
    /// Unit of sizes: K, M, G, T or P
    #[arg(long, alias = "unit", value_name = "UNIT", value_parser = value(unit), help_heading = SHOWN)]
    pub units: Option<char>,
    /// Do not convert units
    #[arg(long, help_heading = SHOWN)]
    pub noconvert: bool,
    #[command(flatten, next_help_heading = SHOWN)]
    pub data: DataOpts,
    /// The batch scripts
    #[arg(short = 'B', long, help_heading = SHOWN)]
    pub batch_script: bool,
    /// The environments of the jobs
    #[arg(long, help_heading = SHOWN)]
    pub env_vars: bool,
    /// From when to when, by sacct's defaults; without an end it is now, by the daemon's clock
    #[arg(skip)]
    pub window: (Timestamp, Option<Timestamp>),
    /// A list was given that names nothing: `--name=`
    #[arg(skip)]
    pub matches_nothing: bool,
    /// How the rows are asked for, by `-o`, `-b` and `-l`
    #[arg(skip)]
    pub view: SacctFormat,
}

/// A number, or from one to another.
type Range = (u32, u32);

/// Seconds; `None` is unlimited.
type Limit = Option<u64>;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SacctFormat {
    #[default]
    Default,
    /// `-b`.
    Brief,
    /// `-l`.
    Long,
    /// `-o`, as written; several are joined by commas.
    Fields(String),
}

/// # Errors
/// Slurm's texts, exit code 1: ids, states and times that cannot be read, a window that ends before
/// it starts.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Sacct, CliError> {
    let mut reader = Reader::scan::<Sacct>(APPLET, argv)?;
    reader.letter_takes_next("parsable", "partition");
    let job =
        reader.operands.first().filter(|operand| parse::ids::parse_job(&operand.text).is_ok());
    let hint = job.map(|operand| format!("sacct -j {}", operand.text));
    let (mut args, choices) =
        reader.finish::<Sacct>(origin, &[]).map_err(|error| error.maybe_hint(hint))?;
    let is_empty = |name: &str| choices.empty_lists().iter().any(|list| list == name);
    if let Some(what) = ["user", "group"].into_iter().find(|name| is_empty(name)) {
        return Err(CliError::error(1, format!("Invalid {what} id: ")));
    }
    // Slurm takes the other lists without an element for lists that were not given.
    args.matches_nothing = ["name", "partition", "accounts", "qos"].into_iter().any(is_empty)
        || args.nodelist.as_ref().is_some_and(Vec::is_empty);
    args.window = window(&args, origin)?;
    args.view = view(&args, &choices);
    Ok(args)
}

fn state(text: &str) -> Result<StateFilter, CliError> {
    parse::states::parse_list(text).map_err(|error| {
        let names = || format!("states: {}", JobState::ALL.map(JobState::name).join(", "));
        CliError::fatal(1, format!("unrecognized job state value '{}'", shown(text)))
            .hint(error.hint.unwrap_or_else(names))
    })
}

/// From midnight, or ever where jobs are named, until now.
fn window(args: &Sacct, origin: &Origin) -> Result<(Timestamp, Option<Timestamp>), CliError> {
    let jobs_named = !args.jobs.is_empty();
    let read = |text: &str, is_end: bool| {
        parse::acct_time::parse(text, origin.now, &origin.tz, is_end)
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

/// `4` or `2-8`.
fn range(text: &str, option: &str) -> Result<Range, SpecError> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let from = parse::count::parse_or_zero(from, option)?;
    let to = parse::count::parse_or_zero(to, option)?;
    if from <= to {
        Ok((from, to))
    } else {
        Err(SpecError::value(format!("Invalid numeric value \"{text}\" for {option}.")))
    }
}

/// A view that the command line asks for replaces a format of the environment.
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

/// A window is given in whole seconds, the last of which belongs to it: what ended a moment ago
/// ended until `now`.
fn to_end_of_second(time: Timestamp) -> Timestamp {
    Timestamp::from_secs(time.as_secs()).plus(std::time::Duration::from_micros(999_999))
}

fn carry_out(args: &Sacct, origin: &Origin) -> Done {
    // -a lifts the limit to one's own jobs, which -u sets.
    let users = if args.allusers { &[] } else { args.user.as_slice() };
    if let Some(user) = output::unknown_users(users).first() {
        return Err(CliError::error(1, format!("Invalid user id: {user}")));
    }
    let options = Options {
        layout: layout(args, origin)?,
        header: !args.noheader,
        parsable: args.lines.separator(args.delimiter.as_deref().unwrap_or("|")),
        rows: if args.allocations { Rows::Jobs } else { Rows::JobsAndSteps },
        refs: &args.jobs,
    };
    let mut out = Output::of(args, &options);
    let mut last = None;
    let query = query(args, users, &origin.host);
    let query = if let Output::Table(_) = out { for_table(query, &options) } else { query };
    ask_for_jobs(&Request::Accounting(query), |mut list| {
        let mut ctx = ctx(origin, list.now);
        output::units(&mut ctx, args.units, args.noconvert);
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

/// The same question, for no more of each record than a table shows.
fn for_table(query: JobQuery, options: &Options) -> JobQuery {
    let brief = options.layout.is_brief();
    JobQuery {
        brief,
        without_paths: brief,
        without_steps: brief && options.rows == Rows::Jobs,
        ..query
    }
}

/// What becomes of the records, which come some at a time.
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
                output::print_bytes(&parts.add(json::accounting_records(jobs, ctx)))
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

/// What the daemon is asked for.
pub(super) fn query(args: &Sacct, users: &[String], host: &str) -> JobQuery {
    let (start, end) = args.window;
    // As the man page has it: a range with both, this very limit with the least alone, nothing with
    // the most alone.
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
        states: match parse::states::union(&args.state) {
            None | Some(StateFilter::All) => None,
            Some(StateFilter::Some(states)) => Some(states),
        },
        // In a window that is asked for a state counts that a job was in then.
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
    // Every job has one node.
    if args.matches_nothing || args.nnodes.is_some_and(|(least, most)| !(least..=most).contains(&1))
    {
        query.match_nothing();
    }
    query
}

/// Their order, and what is shown of each.
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

/// `--array`: tasks of an array that share a record, each by itself.
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

/// By number; the tasks of an array stand where the array does, by theirs. The task that kept the
/// array's own number is no exception.
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

/// `-B` and `--env-vars`: a text of each job instead of a table. The entries of an environment,
/// each ended by a zero byte, stand on lines of their own.
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
        let records =
            [task(8, 3), task(9, 1), of(7, ArrayRole::None), task(10, 2), of(11, ArrayRole::None)];
        let view =
            |(id, role)| JobView { job: Job { id, role, ..Job::default() }, ..JobView::default() };
        let mut jobs = records.map(view).to_vec();
        jobs.sort_by_key(order);
        assert_eq!(jobs.iter().map(|job| job.id.0).collect::<Vec<_>>(), [7, 9, 10, 8, 11]);
    }

    #[test]
    fn a_table_asks_for_no_more_of_each_record_than_it_shows() {
        let origin = origin();
        let asked = |words: &[&str]| {
            let words: Vec<OsString> =
                [&["sacct"], words].concat().into_iter().map(OsString::from).collect();
            let args = parse(&words, &origin).unwrap();
            let rows = if args.allocations { Rows::Jobs } else { Rows::JobsAndSteps };
            let options =
                Options { layout: layout(&args, &origin).unwrap(), rows, ..Options::default() };
            let query = for_table(query(&args, &[], "node"), &options);
            (query.brief, query.without_paths, query.without_steps)
        };
        assert_eq!(asked(&[]), (true, true, false));
        assert_eq!(asked(&["-X", "-b"]), (true, true, true));
        assert_eq!(asked(&["-X", "-o", "jobid,account,alloccpus,elapsed"]), (true, true, true));
        for whole in [&["-l"][..], &["-X", "-o", "jobid,workdir"], &["-o", "jobid,totalcpu"]] {
            assert_eq!(asked(whole), (false, false, false), "{whole:?}");
        }
    }
}
