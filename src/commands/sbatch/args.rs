//! `sbatch`: submit a script, or a command as one.
//!
//! Reading the script and the export file is the only thing here that touches the world, and the caller does it.

use crate::args::choices::{Applet, Reader};
use crate::args::error::CliError;
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::job_env::Export;
use crate::args::origin::Origin;
use crate::args::submit::{Submission, base_name, given, own_batch_tasks};
use crate::commands::sbatch::options::{SbatchOpts, VARIABLES};
use crate::model::JobRequest;
use crate::model::change::LaunchTexts;
use crate::model::request::{ExportSpec, JobKind};
use crate::spec::script_tasks::script_tasks;
use crate::spec::{self, SpecError};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

pub const APPLET: Applet = Applet {
    name: "sbatch",
    about: "Submit a batch script",
    operands: Operands::EndOptions,
    usage_exit: 255,
    points_to_help: true,
    extras: &[extra::SUBMIT, extra::SBATCH],
    variables: VARIABLES,
    submission: "Batch job submission failed",
};

/// A submission, ready for the daemon.
#[derive(Debug, Clone, PartialEq)]
pub struct Sbatch {
    pub request: JobRequest,
    /// The script and the environment of the job before the daemon adds `SLURM_*`.
    pub texts: LaunchTexts,
    /// Print the bare id (`12`, or `12;cluster` with `-M`).
    pub parsable: bool,
    /// `-W`: wait for the end of the job and exit with its code.
    pub wait: bool,
    /// `-Q`: print nothing on success, not even with `--parsable`.
    pub quiet: bool,
    pub verbose: u8,
    /// `--test-only`: tell when the job would start and submit nothing.
    pub test_only: bool,
    /// `-M`, as written.
    pub cluster: Option<String>,
    /// The options given, sorted by name, for `-v`: (`ntasks`, `2`); a flag has `set`.
    pub defined: Vec<(String, String)>,
    /// The exit code of a submission that fails: 1, or `SLURM_EXIT_ERROR`.
    pub error_exit: i32,
}

/// Something that sbatch reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text<'a> {
    /// Standard input, to its end.
    Stdin,
    File(&'a Path),
    /// An open descriptor (`--export-file=3`), to its end.
    Descriptor(i32),
}

/// Makes a submission of a command line. `read` fetches the script and the export file.
///
/// # Errors
/// Slurm's texts for bad options, values and scripts. A fault in a directive names its line.
pub fn parse(
    argv: &[OsString],
    origin: &Origin,
    read: &mut dyn FnMut(Text<'_>) -> io::Result<Vec<u8>>,
) -> Result<Sbatch, CliError> {
    let reader = Reader::scan::<SbatchOpts>(APPLET, argv)?;
    let source = if reader.has("wrap") { None } else { Some(script_of(&reader, origin, read)?) };
    let directives = match &source {
        Some(source) => spec::directive::directives(&source.text).map_err(|error| refuse(&error))?,
        None => Vec::new(),
    };
    let (options, choices) = reader.finish::<SbatchOpts>(origin, &directives)?;
    let job = &options.job;
    let default_name = source.as_ref().map_or("wrap", |source| source.name.as_str());
    let submission = Submission { job, choices: &choices, origin };
    let mut request = submission.request(JobKind::Batch, default_name, argv)?;
    request.rlimits = submission.rlimits(&options.propagate)?;

    let operands = choices.operands.iter().map(|operand| operand.text.clone());
    let script = match source {
        Some(source) => {
            request.script_tasks = script_tasks(&source.text);
            request.command = Some(source.path);
            request.args = operands.skip(1).collect();
            source.bytes
        }
        None if !choices.operands.is_empty() => {
            return Err(CliError::error(1, "Script arguments not permitted with --wrap option"));
        }
        None => {
            let script = wrapped(options.wrap.as_deref().unwrap_or(""));
            request.wrapped = true;
            request.script_tasks = script_tasks(&script);
            script.into_bytes()
        }
    };
    spec::script::check(&script).map_err(|error| refuse(&error))?;
    request.batch_tasks = own_batch_tasks(origin)?;

    request.array = options.array.clone().flatten();
    request.std_out = given(&options.output);
    request.std_err = given(&options.error);
    request.std_in = given(&options.input);
    request.open_mode = options.open_mode;
    request.requeue = options.requeue;
    request.no_requeue = options.no_requeue;
    let export = match &options.export {
        Some(_) => choices.read("export", options.export.as_ref(), spec::export::parse)?.unwrap_or_default(),
        None => ExportSpec::default(),
    };
    let file = match given(&options.export_file) {
        Some(path) => export_file(&path, origin, read)?,
        None => Vec::new(),
    };
    let env = Export { spec: &export, written: options.export.as_deref(), file: &file, new_job: true }.block(origin);
    request.export = export;

    Ok(Sbatch {
        request,
        texts: LaunchTexts { script, env },
        parsable: options.parsable,
        wait: options.wait,
        quiet: job.quiet,
        verbose: job.common.verbose,
        test_only: options.test_only,
        cluster: given(&job.clusters),
        defined: choices.defined(),
        error_exit: error_exit(origin),
    })
}

/// The exit code of a command that the daemon refuses: 1, or `SLURM_EXIT_ERROR`.
pub fn error_exit(origin: &Origin) -> i32 {
    origin.nonempty("SLURM_EXIT_ERROR").and_then(|code| code.parse().ok()).unwrap_or(1)
}

fn refuse(error: &SpecError) -> CliError {
    let exit = if error.usage { APPLET.usage_exit } else { 1 };
    CliError::error(exit, error.to_string())
}

/// The script of `--wrap`. The command stands in its fourth line, as in Slurm's, so that errors of the shell name it.
fn wrapped(command: &str) -> String {
    format!("#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n")
}

struct Script {
    /// Absolute, or `(null)`-like for standard input: Slurm shows the directory and `stdin`.
    path: String,
    name: String,
    bytes: Vec<u8>,
    /// The bytes as text, for the directives.
    text: String,
}

fn script_of(
    reader: &Reader,
    origin: &Origin,
    read: &mut dyn FnMut(Text<'_>) -> io::Result<Vec<u8>>,
) -> Result<Script, CliError> {
    let (path, name, bytes) = match reader.operands.first() {
        None => {
            ("stdin".to_owned(), "sbatch".to_owned(), read(Text::Stdin).map_err(|error| unreadable("stdin", &error))?)
        }
        Some(operand) => {
            let (path, bytes) =
                find_script(&operand.text, origin, read).map_err(|error| match reader.operands.len() {
                    1 => error,
                    _ => error.hint(wrap_hint(reader)),
                })?;
            // A program of PATH is no script: what was meant is to run it.
            let is_program = !bytes.starts_with(b"#!") && path != origin.absolute(&operand.text);
            if is_program && let Err(error) = spec::script::check(&bytes) {
                return Err(refuse(&error).hint(wrap_hint(reader)));
            }
            (path, base_name(&operand.text).to_owned(), bytes)
        }
    };
    spec::script::check(&bytes).map_err(|error| refuse(&error))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Script { path: origin.absolute(&path), name, bytes, text })
}

/// What to write for a command in place of a script.
fn wrap_hint(reader: &Reader) -> String {
    let join = |words: &[&str]| shlex::try_join(words.iter().copied()).unwrap_or_default();
    let words: Vec<&str> = reader.operands.iter().map(|operand| operand.text.as_str()).collect();
    format!("to run a command rather than a script: sbatch --wrap {}", join(&[&join(&words)]))
}

/// A name without a slash is looked for in the working directory and then in PATH, as Slurm does.
fn find_script(
    name: &str,
    origin: &Origin,
    read: &mut dyn FnMut(Text<'_>) -> io::Result<Vec<u8>>,
) -> Result<(String, Vec<u8>), CliError> {
    let mut candidates = vec![PathBuf::from(origin.absolute(name))];
    if !name.contains('/') {
        let path = origin.var_os("PATH").unwrap_or_default();
        candidates.extend(std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)));
    }
    let mut failure = None;
    for candidate in candidates {
        match read(Text::File(&candidate)) {
            Ok(bytes) => return Ok((candidate.to_string_lossy().into_owned(), bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                failure.get_or_insert(error);
            }
            Err(error) => return Err(unreadable(name, &error)),
        }
    }
    Err(match failure {
        Some(error) => unreadable(name, &error),
        None => CliError::error(1, format!("Unable to open file {name}")),
    })
}

/// Slurm's text for a script that is not there (golden A-17), and for a directory (golden A-18).
fn unreadable(name: &str, error: &io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::NotFound => CliError::error(1, format!("Unable to open file {name}")),
        io::ErrorKind::IsADirectory => CliError::error(1, "Batch script is empty!"),
        _ => CliError::error(1, format!("Unable to open file {name}: {error}")),
    }
}

/// A number names an open descriptor (sbatch man page, `--export-file`), anything else a file.
fn export_file(
    path: &str,
    origin: &Origin,
    read: &mut dyn FnMut(Text<'_>) -> io::Result<Vec<u8>>,
) -> Result<Vec<(String, String)>, CliError> {
    let absolute = PathBuf::from(origin.absolute(path));
    let text = match path.parse::<i32>() {
        Ok(descriptor) if descriptor >= 0 => Text::Descriptor(descriptor),
        _ => Text::File(&absolute),
    };
    let bytes =
        read(text).map_err(|error| CliError::error(1, format!("Unable to read --export-file {path}: {error}")))?;
    spec::export::parse_file(&bytes).map_err(|error| refuse(&error))
}
