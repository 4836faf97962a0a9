//! `sprio`: what the priority of pending jobs is made of.

use crate::args::choices::{Applet, Reader};
use crate::args::error::{CliError, Parsed};
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::lists::all_words;
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::model::JobRef;
use crate::spec;
use crate::spec::error::shown;
use clap::Args;
use std::ffi::OsString;

pub const APPLET: Applet = Applet {
    name: "sprio",
    about: "Show what the priority of pending jobs is made of",
    operands: Operands::Anywhere,
    usage_exit: 1,
    points_to_help: true,
    extras: &[extra::SPRIO],
    variables: &[("SPRIO_FORMAT", "format"), ("SPRIO_SORT", "sort"), ("SLURM_CLUSTERS", "clusters")],
    submission: "",
};

#[derive(Debug, Clone, Default, Args)]
pub struct SprioOpts {
    #[command(flatten)]
    pub common: CommonOpts,
    /// Print this help
    #[arg(long)]
    pub help: bool,
    /// Columns, by % codes
    #[arg(short = 'o', long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// These jobs
    #[arg(short, long, value_name = "JOBS")]
    pub jobs: Vec<String>,
    /// The long view
    #[arg(short, long)]
    pub long: bool,
    /// No line of headers
    #[arg(short = 'h', long)]
    pub noheader: bool,
    /// Factors from 0 to 1
    #[arg(short = 'n', long)]
    pub norm: bool,
    /// Jobs of these partitions
    #[arg(short, long, value_name = "NAMES")]
    pub partition: Vec<String>,
    /// Order of the rows: codes, each with - for descending
    #[arg(short = 'S', long, value_name = "FIELDS")]
    pub sort: Option<String>,
    /// Jobs of these users
    #[arg(short, long, value_name = "USERS")]
    pub user: Vec<String>,
    /// The weights of the factors, not the jobs
    #[arg(short, long)]
    pub weights: bool,
    /// Nothing is expected here
    #[arg(hide = true)]
    pub operands: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sprio {
    /// `None`: all pending jobs.
    pub jobs: Option<Vec<JobRef>>,
    pub users: Vec<String>,
    pub partitions: Vec<String>,
    /// `-o`, as written.
    pub format: Option<String>,
    pub sort: Option<String>,
    pub long: bool,
    pub norm: bool,
    pub weights: bool,
    pub no_header: bool,
    pub verbose: u8,
}

/// Makes a query of a command line.
///
/// # Errors
/// Ids that cannot be read, and any word that is not an option.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Parsed<Sprio>, CliError> {
    let reader = match Reader::scan::<SprioOpts>(APPLET, argv)? {
        Parsed::Run(reader) => reader,
        Parsed::Print(text) => return Ok(Parsed::Print(text)),
    };
    let (options, _) = reader.finish::<SprioOpts>(origin, &[])?;
    if let Some(word) = options.operands.first() {
        return Err(CliError::error(1, format!("Unrecognized option: {}", shown(word))));
    }
    let mut jobs = Vec::new();
    for word in &options.jobs {
        let list = spec::ids::parse_job_list(word)
            .map_err(|_| CliError::error(1, format!("Invalid job id: {}", shown(word))))?;
        jobs.extend(list);
    }
    Ok(Parsed::Run(Sprio {
        jobs: (!jobs.is_empty()).then_some(jobs),
        users: all_words(&options.user),
        partitions: all_words(&options.partition),
        format: options.format,
        sort: options.sort,
        long: options.long,
        norm: options.norm,
        weights: options.weights,
        no_header: options.noheader,
        verbose: options.common.verbose,
    }))
}
