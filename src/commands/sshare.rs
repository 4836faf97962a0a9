//! `sshare`: the shares of accounts, of which one host has none. Slurm's empty list, for the
//! programs that look for it.

use super::output::{self, ctx};
use super::{Done, Entry, now, origin};
use crate::args::choices::{self, Applet, definition};
use crate::args::error::CliError;
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::headings::SHOWN;
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::commands::pages::texts;
use crate::render::accounts::{self, Layout};
use clap::Args;
use std::ffi::OsString;

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Sshare>, run, page: &texts::SSHARE };

const APPLET: Applet = Applet {
    name: "sshare",
    about: "Show the shares of accounts, of which there are none",
    operands: Operands::None,
    usage_exit: 1,
    points_to_help: true,
    extras: &[extra::SSHARE],
    variables: || vec![("SLURM_CLUSTERS", "clusters")],
    submission: "",
    examples: &[],
};

#[derive(Debug, Clone, Default, Args)]
pub struct Sshare {
    /// Print this help
    #[arg(long)]
    pub help: bool,
    #[command(flatten)]
    pub common: CommonOpts,
    /// Columns
    #[arg(short = 'o', long, value_name = "NAMES", help_heading = SHOWN)]
    pub format: Option<String>,
    /// The long view
    #[arg(short, long, help_heading = SHOWN)]
    pub long: bool,
    /// No line of headers
    #[arg(short = 'n', short_alias = 'h', long, help_heading = SHOWN)]
    pub noheader: bool,
    /// Values with | between them and after the last one
    #[arg(short, long, overrides_with = "parsable2", help_heading = SHOWN)]
    pub parsable: bool,
    /// Values with | between them
    #[arg(short = 'P', long, overrides_with = "parsable", help_heading = SHOWN)]
    pub parsable2: bool,
}

pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Sshare, CliError> {
    choices::parse::<Sshare>(APPLET, argv, origin).map(|(args, _)| args)
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    let args = parse(argv, &origin)?;
    let layout = match &args.format {
        Some(columns) => Layout::ruled(columns).map_err(output::format_error)?,
        None => accounts::shares(args.long),
    };
    let layout = match (args.parsable, args.parsable2) {
        (true, _) => layout.parsable("|", true),
        (_, true) => layout.parsable("|", false),
        (false, false) => layout,
    };
    output::print(&layout.print(&[], !args.noheader, &ctx(&origin, now())))
}
