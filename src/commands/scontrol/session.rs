//! State and errors shared by all commands of one `scontrol` invocation.

use crate::args::error::{CliError, Mark};
use crate::args::options::DataOpts;
use crate::args::origin::Origin;
use crate::args::table::options;
use crate::commands::output::{self, ctx};
use crate::commands::{Done, ask_job_list};
use clap::Args;
use slotd_model::query::JobQuery;
use slotd_model::view::JobList;
use slotd_model::{JobRef, Timestamp};
use slotd_protocol::request::Request;
use slotd_render::Ctx;

options! {
    /// Options for the output of `scontrol`.
    #[derive(Debug, Clone, Default, Args)]
    pub struct OutputOpts {
        /// Show more details
        #[arg(short, long)]
        pub details: bool,
        #[command(flatten)]
        pub data: DataOpts,
        /// Print one line per record
        #[arg(short, long)]
        pub oneliner: bool,
        /// Print no messages and only set the exit code
        #[arg(short = 'Q', long)]
        pub quiet: bool,
    }
}

/// Returns an error without the prefix `scontrol: error:`, as Slurm prints most of scontrol's
/// errors.
pub(super) fn bare(text: impl Into<String>) -> CliError {
    CliError::new(Mark::Bare, 1, text)
}

pub(super) fn too_few(keyword: &str) -> CliError {
    bare(format!("too few arguments for keyword:{keyword}"))
}

pub(super) fn too_many(keyword: &str) -> CliError {
    bare(format!("too many arguments for keyword:{keyword}"))
}

/// The options and environment of one `scontrol` invocation, shared by all its commands.
pub(super) struct Session<'a> {
    pub(super) output: &'a OutputOpts,
    pub(super) origin: &'a Origin,
}

impl Session<'_> {
    /// Reports something that does not exist. Slurm prints this to standard output.
    pub(super) fn not_found(&self, what: &str) -> Done {
        if !self.output.quiet {
            output::print(&format!("{what} not found\n"))?;
        }
        Ok(1)
    }

    pub(super) fn query(&self, jobs: &[JobRef]) -> Result<JobList, CliError> {
        ask_job_list(&Request::Jobs(Session::jobs_query(jobs)))
    }

    pub(super) fn jobs_query(jobs: &[JobRef]) -> JobQuery {
        JobQuery { expected_starts: true, one_moment: true, ..JobQuery::of(jobs.to_vec()) }
    }

    pub(super) fn ctx(&self, now: Timestamp) -> Ctx {
        ctx(self.origin, now)
    }
}
