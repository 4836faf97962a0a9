//! `seff`: how much of what a job asked for it used.

use crate::args::choices::{Applet, Reader};
use crate::args::error::{CliError, Parsed};
use crate::args::getopt::Operands;
use crate::args::origin::Origin;
use crate::model::JobRef;
use crate::spec;
use crate::spec::error::shown;
use clap::Args;
use std::ffi::OsString;

pub const APPLET: Applet = Applet {
    name: "seff",
    about: "Show how much of what a job asked for it used",
    operands: Operands::Anywhere,
    usage_exit: 1,
    points_to_help: true,
    extras: &[],
    variables: &[],
    submission: "",
};

#[derive(Debug, Clone, Default, Args)]
pub struct SeffOpts {
    /// Print this help
    #[arg(short, long)]
    pub help: bool,
    /// Print the version
    #[arg(short = 'v', long)]
    pub version: bool,
    /// Print the values that the shares are worked out from
    #[arg(short, long)]
    pub debug: bool,
    /// Jobs: 12, 12_3
    #[arg(value_name = "JOB")]
    pub operands: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seff {
    /// Never empty.
    pub jobs: Vec<JobRef>,
    pub debug: bool,
}

/// Makes a query of a command line.
///
/// # Errors
/// Ids that cannot be read, or none.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Parsed<Seff>, CliError> {
    let reader = match Reader::scan::<SeffOpts>(APPLET, argv)? {
        Parsed::Run(reader) => reader,
        Parsed::Print(text) => return Ok(Parsed::Print(text)),
    };
    let (options, _) = reader.finish::<SeffOpts>(origin, &[])?;
    let mut jobs = Vec::new();
    for word in &options.operands {
        let list = spec::ids::parse_job_list(word)
            .map_err(|_| CliError::error(1, format!("Invalid job id: {}", shown(word))))?;
        jobs.extend(list);
    }
    if jobs.is_empty() {
        return Err(CliError::error(1, "No job given: seff <job>"));
    }
    Ok(Parsed::Run(Seff { jobs, debug: options.debug }))
}
