//! `salloc`: get an allocation and run a command in it, or a shell.

use crate::args::choices::{Applet, Reader};
use crate::args::error::CliError;
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::origin::Origin;
use crate::args::submit::{Submission, own_batch_tasks, submit_line};
use crate::commands::salloc::options::{SallocOpts, VARIABLES};
use crate::commands::sbatch::args::error_exit;
use crate::commands::srun::args::immediate_exit;
use crate::model::JobRequest;
use crate::model::request::JobKind;
use crate::spec::script_tasks::script_tasks;
use std::ffi::OsString;

pub const APPLET: Applet = Applet {
    name: "salloc",
    about: "Get an allocation and run a command in it",
    operands: Operands::EndOptions,
    usage_exit: 255,
    points_to_help: true,
    extras: &[extra::SUBMIT, extra::SALLOC],
    variables: VARIABLES,
    submission: "Job submit/allocate failed",
};

/// Whether the terminal bell rings when the allocation is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bell {
    /// After a wait of more than ten seconds.
    #[default]
    AfterWait,
    Always,
    Never,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Salloc {
    /// Kind `Allocation`.
    pub request: JobRequest,
    /// Empty: the user's shell.
    pub command: Vec<String>,
    /// `-D`, absolute: where the command starts.
    pub work_dir: String,
    /// `--no-shell`: leave the allocation to itself and return.
    pub no_shell: bool,
    /// `-K`: the signal for the command when the allocation ends first. `None`: it is left alone.
    pub kill_command: Option<i32>,
    pub bell: Bell,
    pub quiet: bool,
    pub verbose: u8,
    /// The options given, sorted by name, for `-v`.
    pub defined: Vec<(String, String)>,
    /// 1, or `SLURM_EXIT_ERROR`.
    pub error_exit: i32,
    /// Exit code when `--immediate` fails: 1, or `SLURM_EXIT_IMMEDIATE`.
    pub immediate_exit: i32,
}

/// Makes an allocation of a command line.
///
/// # Errors
/// Slurm's texts for bad options and values.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Salloc, CliError> {
    let reader = Reader::scan::<SallocOpts>(APPLET, argv)?;
    let (options, choices) = reader.finish::<SallocOpts>(origin, &[])?;
    let job = &options.job;
    // The name does not follow the command (golden E-14, L-17).
    let name = if options.no_shell { "no-shell" } else { "interactive" };
    let mut request = Submission { job, choices: &choices, origin }.request(JobKind::Allocation, name, argv)?;
    request.immediate_secs = options.immediate;
    let command: Vec<String> = choices.operands.iter().map(|operand| operand.text.clone()).collect();
    request.command = command.first().cloned();
    request.script_tasks = script_tasks(&submit_line(&command.iter().map(OsString::from).collect::<Vec<_>>()));
    request.batch_tasks = own_batch_tasks(origin)?;
    Ok(Salloc {
        work_dir: request.work_dir.clone(),
        request,
        command,
        no_shell: options.no_shell,
        kill_command: options.kill_command,
        bell: match (options.bell, options.no_bell) {
            (true, _) => Bell::Always,
            (false, true) => Bell::Never,
            (false, false) => Bell::AfterWait,
        },
        quiet: job.quiet,
        verbose: job.common.verbose,
        defined: choices.defined(),
        error_exit: error_exit(origin),
        immediate_exit: immediate_exit(origin),
    })
}
