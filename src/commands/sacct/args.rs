//! `sacct`: accounting.

use crate::args::choices::{Applet, Choices, Reader};
use crate::args::error::{CliError, Mark, Parsed};
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::lists::{all_words, hosts};
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::commands::squeue::args::{Machine, machine};
use crate::model::{JobRef, Timestamp};
use crate::spec;
use crate::spec::SpecError;
use crate::spec::error::shown;
use crate::spec::states::StateFilter;
use clap::Args;
use std::ffi::OsString;

pub const APPLET: Applet = Applet {
    name: "sacct",
    about: "Show the accounting of jobs and steps",
    operands: Operands::Anywhere,
    usage_exit: 1,
    // Golden G-41.
    points_to_help: false,
    extras: &[extra::SACCT],
    variables: &[("SACCT_FORMAT", "format"), ("SLURM_CLUSTERS", "clusters")],
    submission: "",
};

#[derive(Debug, Clone, Default, Args)]
pub struct SacctOpts {
    #[command(flatten)]
    pub common: CommonOpts,
    /// Print this help
    #[arg(short, long)]
    pub help: bool,
    /// Jobs of these accounts
    #[arg(short = 'A', long, alias = "account", value_name = "NAMES")]
    pub accounts: Vec<String>,
    /// Jobs without their steps
    #[arg(short = 'X', long)]
    pub allocations: bool,
    /// Jobs of all users
    #[arg(short = 'a', long)]
    pub allusers: bool,
    /// A row for each task of an array
    #[arg(long)]
    pub array: bool,
    /// The batch scripts
    #[arg(short = 'B', long)]
    pub batch_script: bool,
    /// Id, state and exit code only
    #[arg(short, long)]
    pub brief: bool,
    /// Text between fields with -p and -P
    #[arg(long, value_name = "TEXT")]
    pub delimiter: Option<String>,
    /// Earlier runs of requeued jobs too
    #[arg(short = 'D', long)]
    pub duplicates: bool,
    /// Jobs that were there before this time; with -s and -S if not given the start, else now
    #[arg(short = 'E', long, value_name = "TIME")]
    pub endtime: Option<String>,
    /// The environments of the jobs
    #[arg(long)]
    pub env_vars: bool,
    /// Fields: jobid,state%20,jobname%-14
    #[arg(short = 'o', long, value_name = "FIELDS")]
    pub format: Vec<String>,
    /// Jobs of these groups
    #[arg(short = 'g', long, alias = "gid", value_name = "GROUPS")]
    pub group: Vec<String>,
    /// List the fields
    #[arg(short = 'e', long, alias = "helpFormat")]
    pub helpformat: bool,
    /// These jobs and steps
    #[arg(short, long, value_name = "JOBS")]
    pub jobs: Vec<String>,
    /// Print JSON
    #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, overrides_with = "yaml")]
    pub json: Option<Option<String>>,
    /// All fields
    #[arg(short, long)]
    pub long: bool,
    /// Jobs of these names
    #[arg(long, value_name = "NAMES")]
    pub name: Vec<String>,
    /// Jobs with so many CPUs: N or MIN-MAX
    #[arg(short = 'I', long, value_name = "RANGE")]
    pub ncpus: Option<String>,
    /// Jobs with so many nodes: N or MIN-MAX
    #[arg(short = 'i', long, value_name = "RANGE")]
    pub nnodes: Option<String>,
    /// Do not convert units
    #[arg(long)]
    pub noconvert: bool,
    /// Jobs on these hosts
    #[arg(short = 'N', long, value_name = "HOSTS")]
    pub nodelist: Option<String>,
    /// No lines of headers
    #[arg(short, long)]
    pub noheader: bool,
    /// Fields with | after each
    #[arg(short = 'p', long, overrides_with = "parsable2")]
    pub parsable: bool,
    /// Fields with | between them
    #[arg(short = 'P', long, overrides_with = "parsable")]
    pub parsable2: bool,
    /// Jobs of these partitions; also -p NAMES
    #[arg(short = 'r', long, alias = "partitions", value_name = "NAMES")]
    pub partition: Vec<String>,
    /// Jobs of these qualities of service
    #[arg(short, long, value_name = "NAMES")]
    pub qos: Vec<String>,
    /// Jobs that were there after this time; if not given midnight, with -j 1970, with -s now
    #[arg(short = 'S', long, value_name = "TIME")]
    pub starttime: Option<String>,
    /// Jobs that were in these states: now, or from -S to -E
    #[arg(short, long, alias = "states", value_name = "STATES")]
    pub state: Vec<String>,
    /// Time limit at most
    #[arg(short = 'K', long, value_name = "TIME")]
    pub timelimit_max: Option<String>,
    /// Time limit at least
    #[arg(short = 'k', long, value_name = "TIME")]
    pub timelimit_min: Option<String>,
    /// Cut start and end to the window
    #[arg(short = 'T', long)]
    pub truncate: bool,
    /// Unit of sizes: K, M, G, T or P
    #[arg(long, alias = "unit", value_name = "UNIT")]
    pub units: Option<String>,
    /// Jobs of these users
    #[arg(short, long, alias = "uid", alias = "users", value_name = "USERS")]
    pub user: Vec<String>,
    /// Jobs with these keys
    #[arg(short = 'W', long, alias = "wckey", value_name = "KEYS")]
    pub wckeys: Vec<String>,
    /// Print YAML
    #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, overrides_with = "json")]
    pub yaml: Option<Option<String>>,
    /// Words that sacct does not look at
    #[arg(hide = true)]
    pub operands: Vec<String>,
}

/// `-p` and `-P`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Parsable {
    /// Aligned columns.
    #[default]
    No,
    /// `-p`: the delimiter after every field.
    Trailing,
    /// `-P`: the delimiter between fields.
    Between,
}

impl Parsable {
    /// The delimiter, and whether it also stands after the last field.
    pub fn separator(self, delimiter: &str) -> Option<(&str, bool)> {
        match self {
            Parsable::No => None,
            Parsable::Trailing => Some((delimiter, true)),
            Parsable::Between => Some((delimiter, false)),
        }
    }
}

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

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sacct {
    /// `-j`, all of them. `None`: every job in the window.
    pub jobs: Option<Vec<JobRef>>,
    /// `None`: any.
    pub states: Option<StateFilter>,
    /// User names or numbers. Empty: all users.
    pub users: Vec<String>,
    pub groups: Vec<String>,
    pub names: Vec<String>,
    pub partitions: Vec<String>,
    pub accounts: Vec<String>,
    pub qos: Vec<String>,
    pub wckeys: Vec<String>,
    /// Host names, expanded.
    pub nodes: Vec<String>,
    /// The window, by sacct's defaults: from midnight, from 1970 where jobs are named, or else from now where states are.
    pub start: Timestamp,
    /// `None`: now, by the daemon's clock.
    pub end: Option<Timestamp>,
    /// `-k`, `-K`: time limits, seconds.
    pub time_limit_min: Option<u64>,
    pub time_limit_max: Option<u64>,
    /// `-I`, `-i`: CPUs and nodes, from and to.
    pub cpus: Option<(u32, u32)>,
    pub node_count: Option<(u32, u32)>,
    /// `-X`: no steps.
    pub allocations: bool,
    /// `-D`.
    pub duplicates: bool,
    /// `-T`: start and end cut to the window.
    pub truncate: bool,
    /// `--array`: one row for each array task.
    pub array: bool,
    /// `-B`: the batch scripts instead of a table.
    pub batch_script: bool,
    /// `--env-vars`: the environments instead of a table.
    pub env_vars: bool,
    pub format: SacctFormat,
    pub parsable: Parsable,
    /// Where `-p` or `-P` is given; `|` if not.
    pub delimiter: Option<String>,
    pub no_header: bool,
    /// `--units`: K, M, G, T or P.
    pub units: Option<char>,
    pub no_convert: bool,
    pub machine: Option<Machine>,
    /// `-e`: list the fields and do nothing else.
    pub help_format: bool,
    pub verbose: u8,
}

/// Makes a query of a command line.
///
/// # Errors
/// Slurm's texts (golden G), exit code 1: ids, states and times that cannot be read, a window that ends before it starts.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Parsed<Sacct>, CliError> {
    let mut reader = match Reader::scan::<SacctOpts>(APPLET, argv)? {
        Parsed::Run(reader) => reader,
        Parsed::Print(text) => return Ok(Parsed::Print(text)),
    };
    reader.letter_takes_next("parsable", "partition");
    let (options, choices) = reader.finish::<SacctOpts>(origin, &[])?;
    let jobs = jobs(&options.jobs)?;
    let states = states(&options.state)?;
    let of_states = matches!(states, Some(StateFilter::Some(_)));
    let (start, end) = window(&options, jobs.is_some(), of_states, origin)?;
    let limit = |name: &str, value: &Option<String>| {
        choices
            .read(name, value.as_ref(), |text| spec::time::parse_limit_for(text, &format!("--{name}")))
            .map(Option::flatten)
    };
    Ok(Parsed::Run(Sacct {
        jobs,
        states,
        // -a lifts the limit to one's own jobs, which -u sets.
        users: if options.allusers { Vec::new() } else { all_words(&options.user) },
        groups: all_words(&options.group),
        names: all_words(&options.name),
        partitions: all_words(&options.partition),
        accounts: all_words(&options.accounts),
        qos: all_words(&options.qos),
        wckeys: all_words(&options.wckeys),
        nodes: hosts(&choices, "nodelist", &options.nodelist)?,
        start,
        end,
        time_limit_min: limit("timelimit-min", &options.timelimit_min)?,
        time_limit_max: limit("timelimit-max", &options.timelimit_max)?,
        cpus: range(&choices, "ncpus", &options.ncpus)?,
        node_count: range(&choices, "nnodes", &options.nnodes)?,
        allocations: options.allocations,
        duplicates: options.duplicates,
        truncate: options.truncate,
        array: options.array,
        batch_script: options.batch_script,
        env_vars: options.env_vars,
        format: format(&options, &choices),
        parsable: match (options.parsable, options.parsable2) {
            (true, _) => Parsable::Trailing,
            (false, true) => Parsable::Between,
            (false, false) => Parsable::No,
        },
        units: units(options.units.as_deref())?,
        delimiter: options.delimiter,
        no_header: options.noheader,
        no_convert: options.noconvert,
        machine: machine(options.json.is_some(), options.yaml.is_some()),
        help_format: options.helpformat,
        verbose: options.common.verbose,
    }))
}

fn jobs(values: &[String]) -> Result<Option<Vec<JobRef>>, CliError> {
    let mut refs = Vec::new();
    for word in values.iter().filter(|text| !text.trim().is_empty()) {
        let list = spec::ids::parse_job_list(word)
            .map_err(|_| CliError::fatal(1, format!("Bad job/step specified: {}", shown(word))))?;
        refs.extend(list);
    }
    Ok((!refs.is_empty()).then_some(refs))
}

fn states(values: &[String]) -> Result<Option<StateFilter>, CliError> {
    let words = all_words(values);
    if let Some(bad) = words.iter().find(|word| spec::states::parse_list(word).is_err()) {
        return Err(CliError::fatal(1, format!("unrecognized job state value '{}'", shown(bad))));
    }
    Ok(if words.is_empty() { None } else { spec::states::parse_list(&words.join(",")).ok() })
}

/// sacct's man page, "DEFAULT TIME WINDOW": where states are named, the window is the present, or the one second that
/// is named as its start.
fn window(
    options: &SacctOpts,
    jobs_named: bool,
    states_named: bool,
    origin: &Origin,
) -> Result<(Timestamp, Option<Timestamp>), CliError> {
    let read = |text: &str, is_end: bool| {
        spec::acct_time::parse(text, origin.now, &origin.tz, is_end)
            .map_err(|error| CliError::new(Mark::Bare, 1, error.to_string()))
    };
    let end = options.endtime.as_deref().map(|text| read(text, true)).transpose()?;
    let start = match options.starttime.as_deref() {
        Some(text) => read(text, false)?,
        None if jobs_named => Timestamp::default(),
        None if states_named => origin.now,
        None => read("midnight", false)?,
    };
    let end = match end {
        None if states_named && options.starttime.is_some() => Some(start),
        end => end,
    };
    let last = end.unwrap_or(origin.now);
    if start > last {
        let (start, end) = (iso(start, origin), iso(last, origin));
        return Err(CliError::error(1, format!("Start time ({start}) requested is after end time ({end}).")));
    }
    Ok((start, end))
}

/// `2026-11-20T23:40:20` in the user's time zone.
fn iso(time: Timestamp, origin: &Origin) -> String {
    match jiff::Timestamp::from_second(time.as_secs()) {
        Ok(time) => time.to_zoned(origin.tz.clone()).strftime("%Y-%m-%dT%H:%M:%S").to_string(),
        Err(_) => "Unknown".to_owned(),
    }
}

/// `4` or `2-8`.
fn range(choices: &Choices, name: &str, value: &Option<String>) -> Result<Option<(u32, u32)>, CliError> {
    let option = format!("--{name}");
    choices.read(name, value.as_ref(), |text| {
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        let from = spec::count::parse_or_zero(from, &option)?;
        let to = spec::count::parse_or_zero(to, &option)?;
        if from <= to {
            Ok((from, to))
        } else {
            Err(SpecError::value(format!("Invalid numeric value \"{text}\" for {option}.")))
        }
    })
}

/// A view that the command line asks for replaces a format of the environment.
fn format(options: &SacctOpts, choices: &Choices) -> SacctFormat {
    let replaced = (options.long || options.brief) && choices.from_environment("format");
    if !options.format.is_empty() && !replaced {
        SacctFormat::Fields(options.format.join(","))
    } else if options.long {
        SacctFormat::Long
    } else if options.brief {
        SacctFormat::Brief
    } else {
        SacctFormat::Default
    }
}

fn units(text: Option<&str>) -> Result<Option<char>, CliError> {
    let Some(text) = text else {
        return Ok(None);
    };
    let mut letters = text.chars().map(|letter| letter.to_ascii_uppercase());
    match (letters.next(), letters.next()) {
        (Some(unit @ ('K' | 'M' | 'G' | 'T' | 'P')), None) => Ok(Some(unit)),
        _ => Err(CliError::error(1, format!("Invalid unit type: {}", shown(text)))),
    }
}
