//! `sinfo`: shows the host and its partitions.

use super::output::{self, ctx, default_columns, format_error, marked_format_error};
use super::{Done, Entry, ask_node, origin};
use crate::args::choices::{self, Applet, definition};
use crate::args::error::{CliError, Mark};
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::headings::{LISTED, SHOWN};
use crate::args::options::{CommonOpts, DataOpts};
use crate::args::origin::Origin;
use crate::args::table::options;
use crate::args::value::{Names, hosts, named, value};
use crate::commands::pages::texts;
use crate::daemon::command_line::{PlainQuery, QueryOf};
use clap::Args;
use slotd_model::view::NodeView;
use slotd_parse::error::shown;
use slotd_protocol::answer::Answer;
use slotd_render::Ctx;
use slotd_render::field::helpformat;
use slotd_render::sinfo::{self as render, Layout, Options, Sort, States, View, print};
use slotd_render::time::date_line;
use slotd_render::{json, show};
use std::ffi::OsString;

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Sinfo>, run, page: &texts::SINFO };

const APPLET: Applet = Applet {
    operands: Operands::None,
    extras: &[extra::SINFO],
    variables: || {
        vec![
            ("SINFO_FORMAT", "format"),
            ("SINFO_PARTITION", "partition"),
            ("SINFO_SORT", "sort"),
            ("SLURM_CLUSTERS", "clusters"),
        ]
    },
    examples: &[
        ("sinfo", "the partitions and their free resources"),
        ("sinfo -N -l", "details of the node"),
        ("sinfo -R", "why the node does not accept jobs"),
    ],
    ..Applet::new("sinfo", "Show the partitions and the node")
};

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub struct Sinfo {
        /// Print this help
        #[arg(long)]
        pub help: bool,
        #[command(flatten)]
        pub common: CommonOpts,
        /// Show only these partitions
        #[arg(short, long, alias = "partitions", value_name = "NAMES", help_heading = LISTED)]
        pub partition: Vec<String>,
        /// Show only these hosts
        #[arg(short = 'n', long, value_name = "HOSTS", value_parser = value(hosts), help_heading = LISTED)]
        pub nodes: Option<Names>,
        /// Show nodes in these states
        #[arg(short = 't', long, alias = "state", value_name = "STATES", value_parser = value(state), help_heading = LISTED)]
        pub states: Vec<States>,
        /// Show only nodes that do not respond
        #[arg(short, long, help_heading = LISTED)]
        pub dead: bool,
        /// Show why nodes are out of use
        #[arg(short = 'R', long, help_heading = LISTED)]
        pub list_reasons: bool,
        /// Print a row for each node
        #[arg(short = 'N', long = "Node", help_heading = LISTED)]
        pub node: bool,
        /// Show reservations
        #[arg(short = 'T', long, help_heading = LISTED)]
        pub reservation: bool,
        /// Print only the number of nodes
        #[arg(short, long, help_heading = LISTED)]
        pub summarize: bool,
        /// Set the columns, by % codes or field names
        #[arg(short = 'o', long, value_name = "FORMAT", overrides_with = "format_fields", help_heading = SHOWN)]
        pub format: Option<String>,
        /// Set the columns, by field names
        #[arg(
            id = "format_fields",
            short = 'O',
            long = "Format",
            value_name = "FIELDS",
            overrides_with = "format",
            help_heading = SHOWN
        )]
        pub format_fields: Option<String>,
        /// List the fields and codes
        #[arg(long, alias = "helpFormat", alias = "helpformat2", alias = "helpFormat2", help_heading = SHOWN)]
        pub helpformat: bool,
        /// Print the long view
        #[arg(short, long, help_heading = SHOWN)]
        pub long: bool,
        /// Sort the rows by these codes; a - before a code sorts in descending order
        #[arg(short = 'S', long, value_name = "FIELDS", help_heading = SHOWN)]
        pub sort: Option<String>,
        /// Omit the header
        #[arg(short = 'h', long, help_heading = SHOWN)]
        pub noheader: bool,
        /// Print memory in MB
        #[arg(long, help_heading = SHOWN)]
        pub noconvert: bool,
        /// Repeat the output at this interval, in seconds
        #[arg(short, long, value_name = "SECONDS", value_parser = named(slotd_parse::count::parse), help_heading = SHOWN)]
        pub iterate: Option<u32>,
        #[command(flatten, next_help_heading = SHOWN)]
        pub data: DataOpts,
        /// The view selected by `-o`, `-O`, `-R`, `-s` and `-l`
        #[arg(skip)]
        pub view: SinfoFormat,
    }
}

/// The selected view. `render` parses the text of a format.
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

/// Parses a command line.
///
/// # Errors
/// Fails with Slurm's messages and exit code 1.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Sinfo, CliError> {
    let (mut args, choices) = choices::parse::<Sinfo>(APPLET, argv, origin)?;
    let view = args.long || args.summarize || args.list_reasons;
    let explicit = choices
        .last_of(&["format", "Format"])
        .filter(|name| !view || !choices.is_from_environment(name));
    args.view = match (explicit, &args.format, &args.format_fields) {
        (Some("format"), Some(text), _) => SinfoFormat::Percent(text.clone()),
        (Some(_), _, Some(text)) => SinfoFormat::Fields(text.clone()),
        _ if args.list_reasons => SinfoFormat::Reasons,
        _ if args.summarize => SinfoFormat::Summary,
        _ if args.long => SinfoFormat::Long,
        _ => SinfoFormat::Default,
    };
    Ok(args)
}

/// Parses a word of `-t`.
fn state(word: &str) -> Result<States, CliError> {
    States::parse(word)
        .map_err(|bad| CliError::error(1, format!("{}\n{}", shown(&bad.message), bad.hint)))
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    let args = parse(argv, &origin)?;
    if args.helpformat {
        return output::print(&helpformat::<render::Sinfo>());
    }
    if args.reservation {
        let node = ask_node()?;
        let ctx = ctx(&origin, node.now);
        return output::print(&show::reservation_table(&node, !args.noheader, &ctx));
    }
    let mut unknown = Vec::new();
    let table = Table::of(&args, &origin, &mut unknown);
    for error in unknown {
        output::print_error("sinfo", &error);
    }
    let table = table?;
    output::repeat("sinfo", args.iterate, || once(&args, &table, &origin))
}

/// Returns the query of a plain command line.
pub(super) fn plain(argv: &[OsString], origin: Origin) -> Option<PlainQuery> {
    let args = parse(argv, &origin).ok()?;
    let mut unknown = Vec::new();
    let table = Table::of(&args, &origin, &mut unknown).ok()?;
    let is_other = args.reservation || args.helpformat || args.data.machine().is_some();
    let is_small = table.layout.as_ref().is_none_or(Layout::is_small);
    (unknown.is_empty() && !is_other && is_small && args.iterate.is_none()).then_some(())?;
    let print = move |answer| match answer {
        Answer::Node(node) => Some(text(&args, &table, &node, &node_ctx(&args, &node, &origin))),
        _ => None,
    };
    Some(PlainQuery { of: QueryOf::Node, print: Box::new(print) })
}

/// The layout of the lines.
struct Table {
    /// `None`: the reasons why nodes are drained.
    layout: Option<Layout>,
    one_line: bool,
    sort: Sort,
}

impl Table {
    /// Returns the table with the known columns. Adds the errors for the others to `unknown`: they
    /// are only reported, and before an error, as in Slurm.
    fn of(args: &Sinfo, origin: &Origin, unknown: &mut Vec<CliError>) -> Result<Self, CliError> {
        let view = View {
            node: args.node,
            long: args.view == SinfoFormat::Long,
            summarize: args.view == SinfoFormat::Summary,
        };
        let (layout, one_line) = match &args.view {
            // Slurm prints no prefix before this error.
            SinfoFormat::Percent(text) => {
                let bare = |bad| marked_format_error(Mark::Bare, bad);
                let (layout, others) = render::as_known(text).map_err(bare)?;
                unknown.extend(others.into_iter().map(bare));
                (Some(layout), false)
            }
            SinfoFormat::Fields(text) => {
                let (layout, others) = render::long(text);
                unknown.extend(others.into_iter().map(format_error));
                (Some(layout), false)
            }
            SinfoFormat::Reasons => (None, false),
            SinfoFormat::Default | SinfoFormat::Long | SinfoFormat::Summary => {
                let columns = default_columns(origin);
                (Some(view.layout(columns, &origin.host)), view.is_one_line(columns))
            }
        };
        // `#` selects the order of the configuration, which the partitions have anyway.
        let keys = args
            .sort
            .iter()
            .flat_map(|text| text.split(','))
            .filter(|key| !key.trim_start().starts_with('#'));
        let sort = Sort::parse(&keys.collect::<Vec<_>>().join(",")).map_err(format_error)?;
        Ok(Table { layout, one_line, sort })
    }

    /// Whether a line with the date comes first. Slurm prints one above its own views with `-l`,
    /// and above any view with `-i`.
    fn is_dated(&self, args: &Sinfo) -> bool {
        // The long views of Slurm already start with one.
        let brings_one = self.layout.as_ref().is_some_and(Layout::is_dated);
        let is_own = self.layout.as_ref().is_some_and(Layout::is_barred);
        !args.noheader && !brings_one && (args.iterate.is_some() || (args.long && !is_own))
    }
}

fn once(args: &Sinfo, table: &Table, origin: &Origin) -> Done {
    let node = ask_node()?;
    let ctx = node_ctx(args, &node, origin);
    match args.data.machine() {
        Some(machine) => output::print_machine(json::nodes(&node, &ctx), machine),
        None => output::print(&text(args, table, &node, &ctx)),
    }
}

fn node_ctx(args: &Sinfo, node: &NodeView, origin: &Origin) -> Ctx {
    let mut ctx = ctx(origin, node.now);
    output::units(&mut ctx, None, args.noconvert);
    ctx
}

/// Returns the lines of the table.
fn text(args: &Sinfo, table: &Table, node: &NodeView, ctx: &Ctx) -> String {
    let in_state = args.states.is_empty() || args.states.iter().any(|states| states.hold(node));
    let named = args
        .nodes
        .as_ref()
        .is_none_or(|names| names.iter().any(|name| output::is_node(name, &node.host.name)));
    let date = if table.is_dated(args) { date_line(ctx) } else { String::new() };
    let lines = match &table.layout {
        None => render::reasons(node, !args.noheader, args.long, ctx),
        Some(layout) => {
            let options = Options {
                header: !args.noheader,
                one_line: table.one_line,
                each_partition: args.node,
                partitions: (!args.partition.is_empty()).then(|| args.partition.clone()),
                sort: table.sort.clone(),
                shows_node: named && in_state && !args.dead,
                ..Options::new(layout.clone())
            };
            print(node, &options, ctx)
        }
    };
    date + &lines
}
