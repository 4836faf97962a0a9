//! `squeue`: the queue.

use crate::args::choices::{Applet, Choices, Reader};
use crate::args::error::{CliError, Parsed};
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::lists::{all_words, hosts};
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::model::JobRef;
use crate::spec;
use crate::spec::error::shown;
use crate::spec::states::StateFilter;
use clap::Args;
use std::ffi::OsString;

pub const APPLET: Applet = Applet {
    name: "squeue",
    about: "Show the jobs that wait and run",
    operands: Operands::Anywhere,
    usage_exit: 1,
    points_to_help: true,
    extras: &[extra::SQUEUE],
    // SQUEUE_ALL is not among them: Slurm means hidden partitions by it, the book's --all all states.
    variables: &[
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
    ],
    submission: "",
};

#[derive(Debug, Clone, Default, Args)]
pub struct SqueueOpts {
    #[command(flatten)]
    pub common: CommonOpts,
    /// Print this help
    #[arg(long)]
    pub help: bool,
    /// Jobs of these accounts
    #[arg(short = 'A', long, alias = "accounts", value_name = "NAMES")]
    pub account: Vec<String>,
    /// Jobs in all states, ended ones too
    #[arg(short, long)]
    pub all: bool,
    /// A row for each task of an array
    #[arg(short = 'r', long)]
    pub array: bool,
    /// Columns, by % codes or by the names of fields
    #[arg(short = 'o', long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Columns, by the names of fields: jobid:10,name:.12,state
    #[arg(id = "format_fields", short = 'O', long = "Format", value_name = "FIELDS")]
    pub format_fields: Option<String>,
    /// List the fields and codes
    #[arg(long, alias = "helpFormat", alias = "helpformat2", alias = "helpFormat2")]
    pub helpformat: bool,
    /// Print again every so many seconds
    #[arg(short, long, value_name = "SECONDS")]
    pub iterate: Option<String>,
    /// These jobs
    #[arg(short, long, value_name = "JOBS", num_args = 0..=1, require_equals = true, default_missing_value = "", action = clap::ArgAction::Append)]
    pub jobs: Vec<String>,
    /// Print JSON
    #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, overrides_with = "yaml")]
    pub json: Option<Option<String>>,
    /// Jobs with these licenses
    #[arg(short = 'L', long, value_name = "NAMES")]
    pub licenses: Vec<String>,
    /// The long view
    #[arg(short, long)]
    pub long: bool,
    /// Your own jobs
    #[arg(long)]
    pub me: bool,
    /// Jobs of these names
    #[arg(short, long, alias = "names", value_name = "NAMES")]
    pub name: Vec<String>,
    /// No line of headers
    #[arg(short = 'h', long)]
    pub noheader: bool,
    /// Jobs on these hosts
    #[arg(short = 'w', long, alias = "nodes", value_name = "HOSTS")]
    pub nodelist: Option<String>,
    /// Jobs of these partitions
    #[arg(short, long, alias = "partitions", value_name = "NAMES")]
    pub partition: Vec<String>,
    /// Jobs of these qualities of service
    #[arg(short, long, value_name = "NAMES")]
    pub qos: Vec<String>,
    /// Jobs of this reservation
    #[arg(short = 'R', long, value_name = "NAME")]
    pub reservation: Vec<String>,
    /// Order of the rows: codes or names, each with - for descending
    #[arg(short = 'S', long, value_name = "FIELDS")]
    pub sort: Option<String>,
    /// When pending jobs are expected to start
    #[arg(long)]
    pub start: bool,
    /// Jobs in these states, or all
    #[arg(short = 't', long, alias = "state", value_name = "STATES")]
    pub states: Vec<String>,
    /// Rows are steps
    #[arg(short, long, value_name = "STEPS", num_args = 0..=1, require_equals = true, default_missing_value = "", action = clap::ArgAction::Append)]
    pub steps: Vec<String>,
    /// Jobs of these users
    #[arg(short, long, alias = "users", value_name = "USERS")]
    pub user: Vec<String>,
    /// Print YAML
    #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, overrides_with = "json")]
    pub yaml: Option<Option<String>>,
    /// The list of jobs, where -j came without one
    #[arg(value_name = "JOBS", hide = true)]
    pub operands: Vec<String>,
}

/// How the rows are asked for. The text of a format is read by `render`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Format {
    /// The default view, or the one of `-l`, `--start` or `-s`.
    #[default]
    Default,
    /// `-o`: `%` codes and literal text, or the book's list of field names.
    Percent(String),
    /// `-O`: `field[:width]` names.
    Fields(String),
}

/// Machine-readable output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    Json,
    Yaml,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Squeue {
    /// `-j`. `None`: all jobs.
    pub jobs: Option<Vec<JobRef>>,
    /// `-s`: rows are steps; the list is empty for all of them.
    pub steps: Option<Vec<JobRef>>,
    /// `None`: pending and active jobs.
    pub states: Option<StateFilter>,
    /// User names or numbers, as written; with `--me` the caller's own name. Empty: any.
    pub users: Vec<String>,
    pub partitions: Vec<String>,
    pub names: Vec<String>,
    pub accounts: Vec<String>,
    pub qos: Vec<String>,
    pub licenses: Vec<String>,
    pub reservations: Vec<String>,
    /// Host names, expanded.
    pub nodes: Vec<String>,
    pub format: Format,
    /// `-l`: the long view, and a line with the date first.
    pub long: bool,
    /// `-S`, as written.
    pub sort: Option<String>,
    pub no_header: bool,
    /// `-r`: one row for each array task.
    pub array: bool,
    /// `--start`: the start times of pending jobs.
    pub start: bool,
    /// `-i`: print again after so many seconds, until interrupted.
    pub iterate_secs: Option<u64>,
    pub machine: Option<Machine>,
    /// `--helpformat`: list the fields and do nothing else.
    pub help_format: bool,
    pub verbose: u8,
}

/// Makes a query of a command line.
///
/// # Errors
/// Slurm's texts (golden F), exit code 1.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Parsed<Squeue>, CliError> {
    let reader = match Reader::scan::<SqueueOpts>(APPLET, argv)? {
        Parsed::Run(reader) => reader,
        Parsed::Print(text) => return Ok(Parsed::Print(text)),
    };
    let (options, choices) = reader.finish::<SqueueOpts>(origin, &[])?;
    let (jobs, steps) = listed(&options)?;
    let mut users = all_words(&options.user);
    if options.me {
        users.push(origin.user.clone());
    }
    Ok(Parsed::Run(Squeue {
        jobs,
        steps,
        states: states(&options, &choices)?,
        users,
        partitions: all_words(&options.partition),
        names: all_words(&options.name),
        accounts: all_words(&options.account),
        qos: all_words(&options.qos),
        licenses: all_words(&options.licenses),
        reservations: all_words(&options.reservation),
        nodes: hosts(&choices, "nodelist", &options.nodelist)?,
        format: format(&options, &choices)?,
        long: options.long,
        sort: options.sort.clone(),
        no_header: options.noheader,
        array: options.array,
        start: options.start,
        iterate_secs: iterate_secs(&choices, options.iterate.as_ref())?,
        machine: machine(options.json.is_some(), options.yaml.is_some()),
        help_format: options.helpformat,
        verbose: options.common.verbose,
    }))
}

/// `-i`: a positive number of seconds.
pub fn iterate_secs(choices: &Choices, value: Option<&String>) -> Result<Option<u64>, CliError> {
    let secs = choices.read("iterate", value, |text| spec::count::parse(text, "--iterate"))?;
    Ok(secs.map(u64::from))
}

pub fn machine(json: bool, yaml: bool) -> Option<Machine> {
    match (json, yaml) {
        (true, _) => Some(Machine::Json),
        (false, true) => Some(Machine::Yaml),
        (false, false) => None,
    }
}

/// A view that the command line asks for replaces a format of the environment, as in squeue, where of two of these
/// `SQUEUE_FORMAT` wins, and two of the command line are refused.
fn format(options: &SqueueOpts, choices: &Choices) -> Result<Format, CliError> {
    let last = choices.last_of(&["format", "Format"]);
    if ["format", "Format"].iter().all(|name| choices.on_command_line(name)) {
        let (long, short) = ("-O (--Format)", "-o (--format)");
        let (second, first) = if last == Some("Format") { (long, short) } else { (short, long) };
        return Err(CliError::error(1, format!("{second} is incompatible with {first}")));
    }
    let last = match ["format", "Format"].iter().all(|name| choices.from_environment(name)) {
        true => Some("format"),
        false => last,
    };
    let view = options.long || options.start || !options.steps.is_empty();
    Ok(match last {
        Some(name) if view && choices.from_environment(name) => Format::Default,
        Some("format") => options.format.clone().map_or(Format::Default, Format::Percent),
        Some(_) => options.format_fields.clone().map_or(Format::Default, Format::Fields),
        None => Format::Default,
    })
}

/// `--all` of the book is all states; with `-t` as well, that one says which.
fn states(options: &SqueueOpts, choices: &Choices) -> Result<Option<StateFilter>, CliError> {
    if options.states.is_empty() {
        return Ok(options.all.then_some(StateFilter::All));
    }
    choices.read("states", Some(&options.states.join(",")), spec::states::parse_list)
}

type Listed = Option<Vec<JobRef>>;

/// The jobs and steps that are named. The value of `-j` and `-s` is optional in Slurm, and a list in a word of its own
/// is an operand, which belongs to the one of them that has no value.
fn listed(options: &SqueueOpts) -> Result<(Listed, Listed), CliError> {
    let valueless = |values: &[String]| values.iter().any(String::is_empty);
    let mut jobs = options.jobs.clone();
    let mut steps = options.steps.clone();
    if valueless(&jobs) {
        jobs.extend(options.operands.iter().cloned());
    } else if valueless(&steps) {
        steps.extend(options.operands.iter().cloned());
    } else if let Some(word) = options.operands.first() {
        return Err(CliError::error(1, format!("Unrecognized option: {}", shown(word))));
    }
    let jobs_named = read_list(&jobs, "job")?;
    let steps_named = read_list(&steps, "step")?;
    Ok(((!jobs_named.is_empty()).then_some(jobs_named), (!steps.is_empty()).then_some(steps_named)))
}

fn read_list(values: &[String], kind: &str) -> Result<Vec<JobRef>, CliError> {
    let mut refs = Vec::new();
    for text in values.iter().filter(|text| !text.trim().is_empty()) {
        let list = spec::ids::parse_job_list(text)
            .map_err(|_| CliError::error(1, format!("Invalid {kind} id: {}", shown(text))))?;
        refs.extend(list);
    }
    Ok(refs)
}
