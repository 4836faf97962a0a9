//! `sdiag`: what the daemon did.

use crate::args::choices::{Applet, Reader};
use crate::args::error::{CliError, Parsed};
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::commands::squeue::args::{Machine, machine};
use crate::spec::error::shown;
use clap::Args;
use std::ffi::OsString;

pub const APPLET: Applet = Applet {
    name: "sdiag",
    about: "Show what the daemon did",
    operands: Operands::Anywhere,
    usage_exit: 1,
    points_to_help: true,
    extras: &[extra::SDIAG],
    variables: &[("SLURM_CLUSTERS", "clusters")],
    submission: "",
};

#[derive(Debug, Clone, Default, Args)]
pub struct SdiagOpts {
    #[command(flatten)]
    pub common: CommonOpts,
    /// Print this help
    #[arg(short, long)]
    pub help: bool,
    /// Print JSON
    #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, overrides_with = "yaml")]
    pub json: Option<Option<String>>,
    /// Set the counters to zero
    #[arg(short, long)]
    pub reset: bool,
    /// Order of the requests: by number
    #[arg(short = 'i', long)]
    pub sort_by_id: bool,
    /// Order of the requests: by the time that all of a kind took
    #[arg(short = 't', long)]
    pub sort_by_time: bool,
    /// Order of the requests: by the time that each took
    #[arg(short = 'T', long)]
    pub sort_by_time2: bool,
    /// Print YAML
    #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, overrides_with = "json")]
    pub yaml: Option<Option<String>>,
    /// Nothing is expected here
    #[arg(hide = true)]
    pub operands: Vec<String>,
}

/// The order of the requests; the largest first, but for the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequestOrder {
    #[default]
    Count,
    Id,
    Time,
    MeanTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sdiag {
    pub reset: bool,
    pub order: RequestOrder,
    pub machine: Option<Machine>,
    pub verbose: u8,
}

/// Makes a query of a command line.
///
/// # Errors
/// Any word that is not an option.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Parsed<Sdiag>, CliError> {
    let reader = match Reader::scan::<SdiagOpts>(APPLET, argv)? {
        Parsed::Run(reader) => reader,
        Parsed::Print(text) => return Ok(Parsed::Print(text)),
    };
    let (options, choices) = reader.finish::<SdiagOpts>(origin, &[])?;
    if let Some(word) = options.operands.first() {
        return Err(CliError::error(1, format!("Unrecognized option: {}", shown(word))));
    }
    Ok(Parsed::Run(Sdiag {
        reset: options.reset,
        order: match choices.last_of(&["sort-by-id", "sort-by-time", "sort-by-time2"]) {
            Some("sort-by-id") => RequestOrder::Id,
            Some("sort-by-time") => RequestOrder::Time,
            Some(_) => RequestOrder::MeanTime,
            None => RequestOrder::Count,
        },
        machine: machine(options.json.is_some(), options.yaml.is_some()),
        verbose: options.common.verbose,
    }))
}
