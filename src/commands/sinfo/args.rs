//! `sinfo`: partitions and the node.

use crate::args::choices::{Applet, Reader};
use crate::args::error::{CliError, Parsed};
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::lists::{all_words, hosts};
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::commands::squeue::args::{Machine, iterate_secs, machine};
use crate::spec::error::shown;
use clap::Args;
use std::ffi::OsString;

pub const APPLET: Applet = Applet {
    name: "sinfo",
    about: "Show the partitions and the node",
    operands: Operands::Anywhere,
    usage_exit: 1,
    points_to_help: true,
    extras: &[extra::SINFO],
    variables: &[
        ("SINFO_FORMAT", "format"),
        ("SINFO_PARTITION", "partition"),
        ("SINFO_SORT", "sort"),
        ("SLURM_CLUSTERS", "clusters"),
    ],
    submission: "",
};

/// What `-t` may name, beginnings too (golden J-20).
const STATES: [&str; 27] = [
    "unknown",
    "down",
    "idle",
    "allocated",
    "mixed",
    "future",
    "drain",
    "drained",
    "draining",
    "no_respond",
    "reserved",
    "perfctrs",
    "cloud",
    "completing",
    "powering_down",
    "powered_down",
    "power_down",
    "powering_up",
    "power_up",
    "fail",
    "failing",
    "maint",
    "reboot",
    "reboot_requested",
    "reboot_issued",
    "planned",
    "blocked",
];

#[derive(Debug, Clone, Default, Args)]
pub struct SinfoOpts {
    #[command(flatten)]
    pub common: CommonOpts,
    /// Print this help
    #[arg(long)]
    pub help: bool,
    /// Only nodes that do not respond
    #[arg(short, long)]
    pub dead: bool,
    /// Do not group nodes that differ
    #[arg(short, long)]
    pub exact: bool,
    /// Columns, by % codes or by the names of fields
    #[arg(short = 'o', long, value_name = "FORMAT", overrides_with = "format_fields")]
    pub format: Option<String>,
    /// Columns, by the names of fields
    #[arg(id = "format_fields", short = 'O', long = "Format", value_name = "FIELDS", overrides_with = "format")]
    pub format_fields: Option<String>,
    /// List the fields and codes
    #[arg(long, alias = "helpFormat", alias = "helpformat2", alias = "helpFormat2")]
    pub helpformat: bool,
    /// Print again every so many seconds
    #[arg(short, long, value_name = "SECONDS")]
    pub iterate: Option<String>,
    /// Print JSON
    #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, overrides_with = "yaml")]
    pub json: Option<Option<String>>,
    /// Why nodes are not in use
    #[arg(short = 'R', long)]
    pub list_reasons: bool,
    /// The long view
    #[arg(short, long)]
    pub long: bool,
    /// Rows are nodes
    #[arg(short = 'N', long = "Node")]
    pub node: bool,
    /// These hosts
    #[arg(short = 'n', long, value_name = "HOSTS")]
    pub nodes: Option<String>,
    /// Print memory in MB
    #[arg(long)]
    pub noconvert: bool,
    /// No line of headers
    #[arg(short = 'h', long)]
    pub noheader: bool,
    /// These partitions
    #[arg(short, long, alias = "partitions", value_name = "NAMES")]
    pub partition: Vec<String>,
    /// Order of the rows: codes, each with - for descending
    #[arg(short = 'S', long, value_name = "FIELDS")]
    pub sort: Option<String>,
    /// Nodes in these states
    #[arg(short = 't', long, alias = "state", value_name = "STATES")]
    pub states: Vec<String>,
    /// Counts of nodes only
    #[arg(short, long)]
    pub summarize: bool,
    /// Print YAML
    #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, overrides_with = "json")]
    pub yaml: Option<Option<String>>,
    /// Words that sinfo does not look at (golden J-30)
    #[arg(hide = true)]
    pub operands: Vec<String>,
}

/// How the rows are asked for. The text of a format is read by `render`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SinfoFormat {
    #[default]
    Default,
    /// `-l`.
    Long,
    /// `-s`.
    Summary,
    /// `-R`.
    Reasons,
    /// `-o`, as written.
    Percent(String),
    /// `-O`, as written.
    Fields(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sinfo {
    /// Empty: all.
    pub partitions: Vec<String>,
    /// Host names, expanded. Empty: all.
    pub nodes: Vec<String>,
    /// Node states, lower case and long (`idle`, `mixed`, `allocated`, …). Empty: any.
    pub states: Vec<String>,
    /// `-N`: rows are nodes.
    pub by_node: bool,
    pub exact: bool,
    /// `-d`: only nodes that do not respond, of which there are none.
    pub dead: bool,
    pub format: SinfoFormat,
    /// `-l`: a line with the date first, also before an explicit format.
    pub long: bool,
    pub sort: Option<String>,
    pub no_header: bool,
    pub no_convert: bool,
    pub iterate_secs: Option<u64>,
    pub machine: Option<Machine>,
    pub help_format: bool,
    pub verbose: u8,
}

/// Makes a query of a command line.
///
/// # Errors
/// Slurm's texts (golden J), exit code 1.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Parsed<Sinfo>, CliError> {
    let reader = match Reader::scan::<SinfoOpts>(APPLET, argv)? {
        Parsed::Run(reader) => reader,
        Parsed::Print(text) => return Ok(Parsed::Print(text)),
    };
    let (options, choices) = reader.finish::<SinfoOpts>(origin, &[])?;
    let view = options.long || options.summarize || options.list_reasons;
    let explicit = choices.last_of(&["format", "Format"]).filter(|name| !view || !choices.from_environment(name));
    let format = match (explicit, options.format, options.format_fields) {
        (Some("format"), Some(text), _) => SinfoFormat::Percent(text),
        (Some(_), _, Some(text)) => SinfoFormat::Fields(text),
        _ if options.list_reasons => SinfoFormat::Reasons,
        _ if options.summarize => SinfoFormat::Summary,
        _ if options.long => SinfoFormat::Long,
        _ => SinfoFormat::Default,
    };
    Ok(Parsed::Run(Sinfo {
        partitions: all_words(&options.partition),
        nodes: hosts(&choices, "nodes", &options.nodes)?,
        states: states(&options.states)?,
        by_node: options.node,
        exact: options.exact,
        dead: options.dead,
        format,
        long: options.long,
        sort: options.sort,
        no_header: options.noheader,
        no_convert: options.noconvert,
        iterate_secs: iterate_secs(&choices, options.iterate.as_ref())?,
        machine: machine(options.json.is_some(), options.yaml.is_some()),
        help_format: options.helpformat,
        verbose: options.common.verbose,
    }))
}

/// The long names of the states; `all` is any.
fn states(values: &[String]) -> Result<Vec<String>, CliError> {
    let mut states = Vec::new();
    for word in all_words(values) {
        let lower = word.to_ascii_lowercase();
        if lower == "all" {
            return Ok(Vec::new());
        }
        match STATES.iter().find(|state| state.starts_with(lower.as_str())) {
            Some(state) => states.push((*state).to_owned()),
            None => {
                let text = format!("Bad state string: \"{}\"\nvalid states: {}", shown(&word), STATES.join(","));
                return Err(CliError::error(1, text));
            }
        }
    }
    Ok(states)
}
