//! `sattach`: the terminal joins a running step.

use crate::args::choices::{Applet, Reader};
use crate::args::error::{CliError, Parsed};
use crate::args::getopt::Operands;
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::model::{JobRef, StepId};
use crate::spec;
use crate::spec::error::shown;
use clap::Args;
use std::ffi::OsString;

pub const APPLET: Applet = Applet {
    name: "sattach",
    about: "Join a running step",
    operands: Operands::Anywhere,
    usage_exit: 1,
    points_to_help: true,
    extras: &[],
    variables: &[],
    submission: "",
};

#[derive(Debug, Clone, Default, Args)]
pub struct SattachOpts {
    #[command(flatten)]
    pub common: CommonOpts,
    /// Print this help
    #[arg(short = 'h', long)]
    pub help: bool,
    /// Standard error of this task only
    #[arg(long, value_name = "TASK")]
    pub error_filter: Option<String>,
    /// Standard input for this task only
    #[arg(long, value_name = "TASK")]
    pub input_filter: Option<String>,
    /// Put the number of the task before each line of output
    #[arg(short, long)]
    pub label: bool,
    /// Print where the tasks are, and do not join them
    #[arg(long)]
    pub layout: bool,
    /// Standard output of this task only
    #[arg(long, value_name = "TASK")]
    pub output_filter: Option<String>,
    /// Join the step's pseudo terminal
    #[arg(long)]
    pub pty: bool,
    /// Hide messages that are only news
    #[arg(short = 'Q', long)]
    pub quiet: bool,
    /// The step: 12.0
    #[arg(value_name = "JOB.STEP")]
    pub operands: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sattach {
    /// Always with a step.
    pub step: JobRef,
    /// The one task whose stream is meant; `None`: all of them.
    pub input_task: Option<u32>,
    pub output_task: Option<u32>,
    pub error_task: Option<u32>,
    pub label: bool,
    pub layout: bool,
    pub pty: bool,
    pub quiet: bool,
    pub verbose: u8,
}

/// Makes a request to join of a command line.
///
/// # Errors
/// Anything but one step, and task numbers that are none.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Parsed<Sattach>, CliError> {
    let reader = match Reader::scan::<SattachOpts>(APPLET, argv)? {
        Parsed::Run(reader) => reader,
        Parsed::Print(text) => return Ok(Parsed::Print(text)),
    };
    let (options, choices) = reader.finish::<SattachOpts>(origin, &[])?;
    let word = match options.operands.as_slice() {
        [word] => word,
        [] => return Err(CliError::error(1, "No job step given: sattach <job>.<step>")),
        [_, extra, ..] => return Err(CliError::error(1, format!("One job step at a time: {}", shown(extra)))),
    };
    let step = match spec::ids::parse_job(word) {
        Ok(JobRef { job, tasks, step }) => JobRef { job, tasks, step: Some(step.unwrap_or(StepId::Num(0))) },
        Err(_) => return Err(CliError::error(1, format!("Invalid job step id: {}", shown(word)))),
    };
    let task = |name: &'static str, value: &Option<String>| {
        choices.read(name, value.as_ref(), |text| spec::count::parse_or_zero(text, &format!("--{name}")))
    };
    Ok(Parsed::Run(Sattach {
        step,
        input_task: task("input-filter", &options.input_filter)?,
        output_task: task("output-filter", &options.output_filter)?,
        error_task: task("error-filter", &options.error_filter)?,
        label: options.label,
        layout: options.layout,
        pty: options.pty,
        quiet: options.quiet,
        verbose: options.common.verbose,
    }))
}
