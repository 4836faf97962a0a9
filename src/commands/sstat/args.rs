//! `sstat`: what running steps use.

use crate::args::choices::{Applet, Reader};
use crate::args::error::{CliError, Parsed};
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::commands::sacct::args::Parsable;
use crate::model::JobRef;
use crate::spec;
use crate::spec::error::shown;
use clap::Args;
use std::ffi::OsString;

pub const APPLET: Applet = Applet {
    name: "sstat",
    about: "Show what running steps use",
    operands: Operands::Anywhere,
    usage_exit: 1,
    points_to_help: true,
    extras: &[extra::SSTAT],
    variables: &[],
    submission: "",
};

#[derive(Debug, Clone, Default, Args)]
pub struct SstatOpts {
    #[command(flatten)]
    pub common: CommonOpts,
    /// Print this help
    #[arg(short, long)]
    pub help: bool,
    /// All steps of the jobs, not only the last one
    #[arg(short, long)]
    pub allsteps: bool,
    /// Fields: jobid,maxrss,avecpu
    #[arg(short = 'o', long, alias = "fields", value_name = "FIELDS")]
    pub format: Vec<String>,
    /// List the fields
    #[arg(short = 'e', long, alias = "helpFormat")]
    pub helpformat: bool,
    /// These jobs and steps
    #[arg(short, long, value_name = "JOBS")]
    pub jobs: Vec<String>,
    /// Do not convert units
    #[arg(long)]
    pub noconvert: bool,
    /// No lines of headers
    #[arg(short, long)]
    pub noheader: bool,
    /// Fields with | after each
    #[arg(short = 'p', long, overrides_with = "parsable2")]
    pub parsable: bool,
    /// Fields with | between them
    #[arg(short = 'P', long, overrides_with = "parsable")]
    pub parsable2: bool,
    /// The processes of the steps
    #[arg(short = 'i', long)]
    pub pidformat: bool,
    /// Jobs and steps, where -j does not name them
    #[arg(value_name = "JOBS")]
    pub operands: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sstat {
    /// Never empty, but with `help_format`.
    pub jobs: Vec<JobRef>,
    pub all_steps: bool,
    /// `-o`, as written; several are joined by commas. `None`: the default fields.
    pub format: Option<String>,
    /// `-i`: the processes.
    pub pids: bool,
    pub parsable: Parsable,
    pub no_header: bool,
    pub no_convert: bool,
    pub help_format: bool,
    pub verbose: u8,
}

/// Makes a query of a command line.
///
/// # Errors
/// Ids that cannot be read, or none.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Parsed<Sstat>, CliError> {
    let reader = match Reader::scan::<SstatOpts>(APPLET, argv)? {
        Parsed::Run(reader) => reader,
        Parsed::Print(text) => return Ok(Parsed::Print(text)),
    };
    let (options, _) = reader.finish::<SstatOpts>(origin, &[])?;
    let mut jobs = Vec::new();
    for word in options.jobs.iter().chain(&options.operands).filter(|word| !word.is_empty()) {
        let list = spec::ids::parse_job_list(word)
            .map_err(|_| CliError::fatal(1, format!("Bad job/step specified: {}", shown(word))))?;
        jobs.extend(list);
    }
    if jobs.is_empty() && !options.helpformat {
        return Err(CliError::error(1, "No jobs given: sstat -j <job>[.<step>]"));
    }
    Ok(Parsed::Run(Sstat {
        jobs,
        all_steps: options.allsteps,
        format: (!options.format.is_empty()).then(|| options.format.join(",")),
        pids: options.pidformat,
        parsable: match (options.parsable, options.parsable2) {
            (true, _) => Parsable::Trailing,
            (false, true) => Parsable::Between,
            (false, false) => Parsable::No,
        },
        no_header: options.noheader,
        no_convert: options.noconvert,
        help_format: options.helpformat,
        verbose: options.common.verbose,
    }))
}
