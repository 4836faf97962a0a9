//! `sshare`: prints Slurm's empty list of shares, for programs that expect it. One host has no
//! accounts.

use super::output::{self, ctx};
use super::{Done, Entry, now, origin};
use crate::args::choices::{self, Applet, definition};
use crate::args::error::CliError;
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::headings::SHOWN;
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::args::table::options;
use crate::commands::pages::texts;
use clap::Args;
use slotd_render::accounts::{self, Layout};
use std::ffi::OsString;

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Sshare>, run, page: &texts::SSHARE };

const APPLET: Applet = Applet {
    operands: Operands::None,
    extras: &[extra::SSHARE],
    variables: || vec![("SLURM_CLUSTERS", "clusters")],
    ..Applet::new("sshare", "Show the shares of accounts, which slotd does not have")
};

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub struct Sshare {
        /// Print this help
        #[arg(long)]
        pub help: bool,
        #[command(flatten)]
        pub common: CommonOpts,
        /// Set the columns
        #[arg(short = 'o', long, value_name = "NAMES", help_heading = SHOWN)]
        pub format: Option<String>,
        /// Print the long view
        #[arg(short, long, help_heading = SHOWN)]
        pub long: bool,
        /// Omit the header
        #[arg(short = 'n', short_alias = 'h', long, help_heading = SHOWN)]
        pub noheader: bool,
        /// Separate values with | and end each line with |
        #[arg(short, long, overrides_with = "parsable2", help_heading = SHOWN)]
        pub parsable: bool,
        /// Separate values with |
        #[arg(short = 'P', long, overrides_with = "parsable", help_heading = SHOWN)]
        pub parsable2: bool,
    }
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
