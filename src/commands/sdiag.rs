//! `sdiag`: shows statistics of the daemon.

use super::output::{self, ctx};
use super::{Done, Entry, ask, origin, unexpected};
use crate::args::choices::{Applet, definition};
use crate::args::error::CliError;
use crate::args::getopt::Operands;
use crate::args::options::{CommonOpts, DataOpts};
use crate::args::origin::Origin;
use crate::args::table::options;
use crate::args::{choices, extra};
use crate::commands::pages::texts;
use clap::Args;
use slotd_model::diagnostics::{Diagnostics, Tally};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use slotd_render::{json, sdiag};
use std::cmp::Reverse;
use std::ffi::OsString;

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Sdiag>, run, page: &texts::SDIAG };

const APPLET: Applet = Applet {
    operands: Operands::None,
    extras: &[extra::SDIAG],
    variables: || vec![("SLURM_CLUSTERS", "clusters")],
    examples: &[("sdiag", "statistics since the daemon started")],
    ..Applet::new("sdiag", "Show statistics of the daemon")
};

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub struct Sdiag {
        #[command(flatten)]
        pub common: CommonOpts,
        /// Print this help
        #[arg(short, long)]
        pub help: bool,
        #[command(flatten)]
        pub data: DataOpts,
        /// Reset the counters to zero
        #[arg(short, long)]
        pub reset: bool,
        /// Sort the requests by number
        #[arg(short = 'i', long, overrides_with_all = ["sort_by_time", "sort_by_time2"])]
        pub sort_by_id: bool,
        /// Sort the requests by the total time of each kind
        #[arg(short = 't', long, overrides_with_all = ["sort_by_id", "sort_by_time2"])]
        pub sort_by_time: bool,
        /// Sort the requests by the mean time of each kind
        #[arg(short = 'T', long, overrides_with_all = ["sort_by_id", "sort_by_time"])]
        pub sort_by_time2: bool,
    }
}

pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Sdiag, CliError> {
    choices::parse::<Sdiag>(APPLET, argv, origin).map(|(args, _)| args)
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    let args = parse(argv, &origin)?;
    let mut answer = match ask(&Request::Diagnostics { reset: args.reset }, &[])?.0 {
        Answer::Diagnostics(answer) => answer,
        other => return Err(unexpected(&other)),
    };
    if args.reset {
        return output::print(sdiag::RESET);
    }
    sort(&mut answer, &args);
    match args.data.machine() {
        Some(machine) => output::print_machine(json::diagnostics(&answer), machine),
        None => output::print(&sdiag::print(&answer, &ctx(&origin, answer.now))),
    }
}

/// Sorts in descending order. Requests and users arrive sorted by number.
fn sort(answer: &mut Diagnostics, args: &Sdiag) {
    let key = |tally: &Tally| match (args.sort_by_id, args.sort_by_time, args.sort_by_time2) {
        (true, ..) => Reverse(0),
        (_, true, _) => Reverse(tally.total_us),
        (_, _, true) => Reverse(tally.mean_us()),
        (false, false, false) => Reverse(tally.count),
    };
    answer.requests.sort_by_key(|request| key(&request.tally));
    answer.users.sort_by_key(|user| key(&user.tally));
}
