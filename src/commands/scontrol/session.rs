//! What all commands of one call of `scontrol` share: its options, its surroundings, its errors.

use crate::args::error::{CliError, Mark};
use crate::args::options::DataOpts;
use crate::args::origin::Origin;
use crate::commands::output::{self, ctx};
use crate::commands::{Done, ask_job_list};
use crate::model::query::JobQuery;
use crate::model::view::JobList;
use crate::model::{JobRef, Timestamp};
use crate::protocol::request::Request;
use crate::render::Ctx;
use clap::Args;

/// How it prints.
#[derive(Debug, Clone, Default, Args)]
pub struct OutputOpts {
    /// Show more
    #[arg(short, long)]
    pub details: bool,
    #[command(flatten)]
    pub data: DataOpts,
    /// One line for each record
    #[arg(short, long)]
    pub oneliner: bool,
    /// No messages, only the exit code
    #[arg(short = 'Q', long)]
    pub quiet: bool,
}

/// An error line without `scontrol: error:`, as Slurm prints most of scontrol's.
pub(super) fn bare(text: impl Into<String>) -> CliError {
    CliError::new(Mark::Bare, 1, text)
}

pub(super) fn too_few(keyword: &str) -> CliError {
    bare(format!("too few arguments for keyword:{keyword}"))
}

pub(super) fn too_many(keyword: &str) -> CliError {
    bare(format!("too many arguments for keyword:{keyword}"))
}

/// What all commands of one call share: its options and its surroundings.
pub(super) struct Session<'a> {
    pub(super) output: &'a OutputOpts,
    pub(super) origin: &'a Origin,
}

impl Session<'_> {
    /// Something that is not there: Slurm says so on standard output.
    pub(super) fn not_found(&self, what: &str) -> Done {
        if !self.output.quiet {
            output::print(&format!("{what} not found\n"))?;
        }
        Ok(1)
    }

    pub(super) fn query(&self, jobs: &[JobRef]) -> Result<JobList, CliError> {
        let query =
            JobQuery { expected_starts: true, one_moment: true, ..JobQuery::of(jobs.to_vec()) };
        ask_job_list(&Request::Jobs(query))
    }

    pub(super) fn ctx(&self, now: Timestamp) -> Ctx {
        ctx(self.origin, now)
    }
}
