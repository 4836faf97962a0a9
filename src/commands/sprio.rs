//! `sprio`: shows the factors of the priorities of pending jobs.

use super::output::{self, ctx, format_error};
use super::{Done, Entry, ask_job_list, origin};
use crate::args::choices::{self, Applet, definition};
use crate::args::error::CliError;
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::headings::{LISTED, SHOWN};
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::args::table::options;
use crate::args::value::{job, value};
use crate::commands::pages::texts;
use clap::Args;
use slotd_model::query::JobQuery;
use slotd_model::view::JobView;
use slotd_model::{JobRef, JobState};
use slotd_protocol::request::Request;
use slotd_render::sprio::{self, DEFAULT_SORT, Layout, Sort, default_layout};
use std::ffi::OsString;

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Sprio>, run, page: &texts::SPRIO };

const APPLET: Applet = Applet {
    operands: Operands::None,
    extras: &[extra::SPRIO],
    variables: || {
        vec![("SPRIO_FORMAT", "format"), ("SPRIO_SORT", "sort"), ("SLURM_CLUSTERS", "clusters")]
    },
    examples: &[("sprio -l", "all priority factors of the pending jobs")],
    ..Applet::new("sprio", "Show the priority factors of pending jobs")
};

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub struct Sprio {
        /// Print this help
        #[arg(long)]
        pub help: bool,
        #[command(flatten)]
        pub common: CommonOpts,
        /// Show only these jobs
        #[arg(short, long, value_name = "JOBS", value_parser = value(job), help_heading = LISTED)]
        pub jobs: Vec<JobRef>,
        /// Show jobs of these users
        #[arg(short, long, alias = "users", value_name = "USERS", help_heading = LISTED)]
        pub user: Vec<String>,
        /// Show jobs in these partitions
        #[arg(short, long, value_name = "NAMES", help_heading = LISTED)]
        pub partition: Vec<String>,
        /// Show the weights of the factors instead of jobs
        #[arg(short, long, help_heading = LISTED)]
        pub weights: bool,
        /// Set the columns, by % codes
        #[arg(short = 'o', long, value_name = "FORMAT", help_heading = SHOWN)]
        pub format: Option<String>,
        /// Print the long view
        #[arg(short, long, help_heading = SHOWN)]
        pub long: bool,
        /// Sort the rows by these codes; a - before a code sorts in descending order
        #[arg(short = 'S', long, value_name = "FIELDS", help_heading = SHOWN)]
        pub sort: Option<String>,
        /// Omit the header
        #[arg(short = 'h', long, help_heading = SHOWN)]
        pub noheader: bool,
        /// Print factors normalized to between 0 and 1
        #[arg(short = 'n', long, help_heading = SHOWN)]
        pub norm: bool,
        /// An empty list was given, as in `-j ''`
        #[arg(skip)]
        pub matches_nothing: bool,
    }
}

pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Sprio, CliError> {
    let (mut args, choices) = choices::parse::<Sprio>(APPLET, argv, origin)?;
    args.matches_nothing = !choices.empty_lists().is_empty();
    Ok(args)
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    let args = parse(argv, &origin)?;
    let format = args.format.as_deref().map(Layout::parse).transpose().map_err(format_error)?;
    let layout_of = |jobs: &[JobView]| {
        format.clone().unwrap_or_else(|| default_layout(jobs, args.long, args.norm))
    };
    let sort = Sort::parse(args.sort.as_deref().unwrap_or(DEFAULT_SORT)).map_err(format_error)?;
    if args.weights {
        return output::print(&sprio::weights(
            &layout_of(&[]),
            !args.noheader,
            &ctx(&origin, origin.now),
        ));
    }
    if let Some(user) = output::unknown_users(&args.user).first() {
        return Err(CliError::error(1, format!("Invalid user: {user}")));
    }
    let mut query = JobQuery {
        jobs: args.jobs.clone(),
        states: Some(vec![JobState::Pending]),
        users: args.user.clone(),
        partitions: args.partition.clone(),
        without_paths: true,
        without_steps: true,
        ..JobQuery::default()
    };
    if args.matches_nothing {
        query.match_nothing();
    }
    let list = ask_job_list(&Request::Jobs(query))?;
    if list.jobs.is_empty() && !(args.jobs.is_empty() && args.user.is_empty()) {
        return output::print(sprio::NONE_FOUND);
    }
    output::print(&sprio::print(
        &list.jobs,
        &layout_of(&list.jobs),
        &sort,
        !args.noheader,
        &ctx(&origin, list.now),
    ))
}
