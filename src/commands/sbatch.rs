//! `sbatch`: submits a script, or a command as a script, and prints the job ID once the daemon has
//! recorded the job.
//!
//! [`parse`] builds the submission. The caller passes it a function that reads the script and the
//! export file, so that it can be tested.

use super::launch::{
    Copied, check_work_dir, client, end_attempt, hand_in_after, print_defined, print_start,
    take_snapshot, work_tree_of,
};
use super::output::print;
use super::output::print_stderr;
use super::{
    Done, Entry, enforces_memory, paths, refused, run_elsewhere, submitting_origin, trial_refused,
    unexpected,
};
use crate::args::choices::{Applet, Reader, definition};
use crate::args::error::{CliError, Mark};
use crate::args::getopt::Operands;
use crate::args::headings::{DOES, NEWS, RUNS, WHEN};
use crate::args::job_env::{self, Export, ExportOption};
use crate::args::job_values::{Limits, open_mode};
use crate::args::options::JobOpts;
use crate::args::origin::Origin;
use crate::args::submit::{Submission, base_name, given, own_batch_tasks, stream};
use crate::args::table::options;
use crate::args::value::{Maybe, unless_empty, value};
use crate::args::{extra, variables};
use crate::client::connection::{ClientError, Connection, reopen};
use crate::commands::pages::texts;
use clap::Args;
use slotd_model::array::ArraySpec;
use slotd_model::batch_tasks::{BatchTasks, TaskRule};
use slotd_model::change::LaunchTexts;
use slotd_model::query::JobQuery;
use slotd_model::request::{JobKind, MemRequest, OpenMode};
use slotd_model::{End, JobId, JobRef, JobRequest, JobState};
use slotd_parse::SpecError;
use slotd_parse::error::shown;
use slotd_parse::script_tasks::script_tasks;
use slotd_protocol::answer::Answer;
use slotd_protocol::frame::{FrameError, MAX_RAW};
use slotd_protocol::request::{Request, Submit};
use slotd_render::seff::ENFORCES;
use slotd_shortcut::Attempt;
use slotd_sys::paths::Paths;
use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read};
use std::iter::once;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Sbatch>, run, page: &texts::SBATCH };

pub(super) const APPLET: Applet = Applet {
    operands: Operands::EndOptions,
    usage_exit: 255,
    extras: &[extra::SUBMIT, extra::SBATCH],
    variables: variables::sbatch,
    submission: "Batch job submission failed",
    examples: &[
        (
            "sbatch -c 4 --mem=8G -t 2:00:00 train.sh",
            "run a script with four CPUs for up to two hours",
        ),
        ("sbatch --wrap 'python3 fit.py'", "run a command"),
        ("sbatch -a 1-100%4 fit.sh", "run 100 array tasks, four at a time"),
        ("sbatch -d afterok:12 report.sh", "run after job 12 if it succeeds"),
    ],
    ..Applet::new("sbatch", "Submit a batch script")
};

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub struct Sbatch {
        /// Run this command instead of a script
        #[arg(long, value_name = "COMMAND", help_heading = RUNS)]
        pub wrap: Option<String>,
        /// Submit a job array: 0-7, 1,3,5-9:2, with %N at most N at once
        #[arg(short, long, value_name = "INDEXES", value_parser = unless_empty(slotd_parse::array::parse), help_heading = RUNS)]
        pub array: Option<Maybe<ArraySpec>>,
        #[command(flatten)]
        pub job: JobOpts,
        /// Run in a copy of the current git work tree, unaffected by later changes
        #[arg(long, help_heading = RUNS)]
        pub snapshot: bool,
        /// Set the environment of the job: ALL, NONE, NIL, or names and NAME=VALUE
        #[arg(long, value_name = "NAMES", value_parser = value(job_env::export), help_heading = RUNS)]
        pub export: Option<ExportOption>,
        /// Read NAME=VALUE entries for the job's environment from this file or descriptor
        #[arg(long, value_name = "FILE", help_heading = RUNS)]
        pub export_file: Option<String>,
        /// Propagate resource limits of this shell to the job: ALL, NONE, or names (CORE,NOFILE)
        #[arg(long, value_name = "LIMITS", num_args = 0..=1, require_equals = true, default_missing_value = "ALL", value_parser = value(slotd_parse::propagate::parse), help_heading = RUNS)]
        pub propagate: Option<Limits>,
        /// Requeue the job once if it fails
        #[arg(long, overrides_with = "no_requeue", help_heading = WHEN)]
        pub requeue: bool,
        /// Never requeue the job
        #[arg(long, overrides_with = "requeue", help_heading = WHEN)]
        pub no_requeue: bool,
        /// Set the file for standard output; %j job, %A array, %a task, %x name, %u user, %N host
        #[arg(short, long, value_name = "PATTERN", help_heading = NEWS)]
        pub output: Option<String>,
        /// Set the file for standard error; the default is the output file
        #[arg(short, long, value_name = "PATTERN", help_heading = NEWS)]
        pub error: Option<String>,
        /// Set the file for standard input
        #[arg(short, long, value_name = "PATTERN", help_heading = NEWS)]
        pub input: Option<String>,
        /// Open existing output files in this mode: append or truncate
        #[arg(long, value_name = "MODE", value_parser = value(open_mode), help_heading = NEWS)]
        pub open_mode: Option<OpenMode>,
        /// Print only the job ID
        #[arg(long, help_heading = DOES)]
        pub parsable: bool,
        /// Print when the job would start, without submitting it
        #[arg(long, help_heading = DOES)]
        pub test_only: bool,
        /// Wait for the job to end and exit with its exit code
        #[arg(short = 'W', long, help_heading = DOES)]
        pub wait: bool,
        /// The script and its arguments; the default is standard input
        #[arg(value_name = "SCRIPT [ARGS]")]
        pub operands: Vec<String>,
        /// The resulting job
        #[arg(skip)]
        pub request: JobRequest,
        /// The script, and the environment of the job before the daemon adds `SLURM_*`
        #[arg(skip)]
        pub texts: LaunchTexts,
        /// The given options by name, for `-v`
        #[arg(skip)]
        pub defined: Vec<(String, String)>,
    }
}

/// An input of sbatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text<'a> {
    /// Standard input, to its end.
    Stdin,
    File(&'a Path),
    /// An open descriptor (`--export-file=3`), to its end.
    Descriptor(i32),
}

/// A function that reads an input.
pub(super) type Fetch<'a> = &'a dyn Fn(Text<'_>) -> io::Result<Vec<u8>>;

/// Parses a command line into a submission. `read` reads the script and the export file.
///
/// # Errors
/// Fails with Slurm's messages for invalid options, values and scripts. An error in a directive
/// includes its line number.
pub fn parse(argv: &[OsString], origin: &Origin, read: Fetch<'_>) -> Result<Sbatch, CliError> {
    let reader = Reader::scan::<Sbatch>(APPLET, argv)?;
    reader.refuse_components(false)?;
    // Help needs no script.
    if let Some(help) = reader.value_help() {
        return Err(help);
    }
    let script = if reader.has("wrap") { None } else { Some(script_of(&reader, origin, read)?) };
    let directives = match &script {
        Some(script) => {
            slotd_parse::directive::directives(&script.text).map_err(|error| refuse(&error))?
        }
        None => Vec::new(),
    };
    let (mut sbatch, choices) = reader.finish::<Sbatch>(origin, &directives)?;
    let default_name = script.as_ref().map_or("wrap", |script| script.name.as_str());
    let submission = Submission { job: &sbatch.job, choices: &choices, origin };
    let mut request = submission.request(JobKind::Batch, default_name, argv)?;
    submission.check_gpus(&request)?;
    sbatch.texts.script = match script {
        Some(script) => {
            request.script_tasks = script_tasks(&script.text);
            request.command = script.path;
            request.args = sbatch.operands.iter().skip(1).cloned().collect();
            script.bytes
        }
        None if !sbatch.operands.is_empty() => {
            return Err(CliError::error(1, "Script arguments not permitted with --wrap option"));
        }
        None => {
            let script = wrapped(sbatch.wrap.as_deref().unwrap_or(""));
            request.wrapped = true;
            request.script_tasks = script_tasks(&script);
            script.into_bytes()
        }
    };
    slotd_parse::script::check(&sbatch.texts.script).map_err(|error| refuse(&error))?;
    sbatch.complete(&mut request, origin)?;
    let file = match given(&sbatch.export_file) {
        Some(path) => export_file(&path, origin, read)?,
        None => Vec::new(),
    };
    sbatch.texts.env = Export { option: sbatch.export.as_ref(), file: &file, new_job: true }
        .block(origin, &choices.option_variables());
    sbatch.request = request;
    sbatch.defined = choices.defined();
    Ok(sbatch)
}

/// Checks options that are given beside a script, as in a form, and those in the script. Invalid
/// options are left to the submission.
///
/// # Errors
/// Fails if they name a script of their own, which would replace the other one, if they do not
/// submit a job, or if they wait for its end.
pub fn check_beside_script(options: &[String], script: &str) -> Result<(), CliError> {
    let argv: Vec<OsString> = std::iter::once("sbatch")
        .chain(options.iter().map(String::as_str))
        .map(Into::into)
        .collect();
    let mut reader = match Reader::scan::<Sbatch>(APPLET, &argv) {
        Ok(reader) => reader,
        Err(error) if error.code() == 0 => {
            return Err(CliError::error(1, "--help, --usage and --version submit no job"));
        }
        Err(_) => return Ok(()),
    };
    if let Some(word) = reader.operands.first() {
        let text = format!(
            "{}: not an option: a script here would replace the other one",
            shown(&word.text)
        );
        return Err(CliError::error(1, text));
    }
    if reader.has("wrap") {
        return Err(CliError::error(1, "--wrap: the command would replace the script"));
    }
    let directives = slotd_parse::directive::directives(script).unwrap_or_default();
    for (name, why) in [
        ("wait", "the answer must not wait for the end of the job"),
        ("test-only", "it submits no job"),
    ] {
        let place = if reader.has(name) {
            ""
        } else if reader.has_directive(&directives, name) {
            "#SBATCH "
        } else {
            continue;
        };
        return Err(CliError::error(1, format!("{place}--{name}: leave it out: {why}")));
    }
    Ok(())
}

impl Sbatch {
    /// Sets the parts of the request that only sbatch has options for.
    pub(super) fn complete(
        &self,
        request: &mut JobRequest,
        origin: &Origin,
    ) -> Result<(), CliError> {
        request.rlimits = origin.propagated(self.propagate.as_ref());
        request.batch_tasks = own_batch_tasks(origin)?;
        request.array = self.array.clone().flatten();
        request.std_out = stream(&self.output);
        request.std_err = stream(&self.error);
        request.std_in = stream(&self.input);
        request.open_mode = self.open_mode;
        request.requeue = self.requeue;
        request.no_requeue = self.no_requeue;
        request.export = self.export.as_ref().map(|option| option.spec.clone()).unwrap_or_default();
        Ok(())
    }
}

pub(super) fn refuse(error: &SpecError) -> CliError {
    let exit = if error.usage { APPLET.usage_exit } else { 1 };
    CliError::error(exit, error.to_string())
}

/// Returns the script for `--wrap`. As in Slurm, the command is on line 4, which is the line that
/// the shell's error messages mention.
pub(super) fn wrapped(command: &str) -> String {
    format!("#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n")
}

struct Script {
    /// Absolute; `None` for a script on standard input.
    path: Option<String>,
    name: String,
    bytes: Vec<u8>,
    /// The script as text, for reading directives.
    text: String,
}

fn script_of(reader: &Reader, origin: &Origin, read: Fetch<'_>) -> Result<Script, CliError> {
    let (path, name, bytes) = match reader.operands.first() {
        None => (
            None,
            "sbatch".to_owned(),
            read(Text::Stdin).map_err(|error| unreadable("stdin", &error))?,
        ),
        Some(operand) => {
            let (path, bytes) = find_script(&operand.text, origin, read).map_err(|error| {
                match reader.operands.len() {
                    1 => error,
                    _ => error.hint(wrap_hint(reader)),
                }
            })?;
            // A program found in PATH is not a script: the user probably meant to run it.
            let is_program = !bytes.starts_with(b"#!") && path != origin.absolute(&operand.text);
            if is_program && let Err(error) = slotd_parse::script::check(&bytes) {
                return Err(refuse(&error).hint(wrap_hint(reader)));
            }
            (Some(origin.absolute(&path)), base_name(&operand.text).to_owned(), bytes)
        }
    };
    slotd_parse::script::check(&bytes).map_err(|error| refuse(&error))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Script { path, name, bytes, text })
}

/// Returns the hint for a user who passed a command where a script is expected.
fn wrap_hint(reader: &Reader) -> String {
    let join = |words: &[&str]| shlex::try_join(words.iter().copied()).unwrap_or_default();
    let words: Vec<&str> = reader.operands.iter().map(|operand| operand.text.as_str()).collect();
    if words.iter().any(|word| *word == "--wrap" || word.starts_with("--wrap=")) {
        return format!(
            "options come before the script, and --wrap replaces the script: leave out {}",
            join(&words[..1])
        );
    }
    format!("to run a command instead of a script: sbatch --wrap {}", join(&[&join(&words)]))
}

/// Finds a script. As in Slurm, a name without a slash is searched for in the working directory,
/// then in PATH.
pub(super) fn find_script(
    name: &str,
    origin: &Origin,
    read: Fetch<'_>,
) -> Result<(String, Vec<u8>), CliError> {
    let path = origin.var_os("PATH").filter(|_| !name.contains('/')).unwrap_or_default();
    let of_path =
        std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name));
    let mut failure = None;
    for candidate in once(PathBuf::from(origin.absolute(name))).chain(of_path) {
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

/// Returns Slurm's message for a missing script. For a directory, Slurm reports an empty script,
/// which is misleading.
fn unreadable(name: &str, error: &io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::NotFound => CliError::error(1, format!("Unable to open file {name}")),
        io::ErrorKind::IsADirectory => {
            CliError::error(1, format!("Unable to open file {name}: it is a directory"))
        }
        _ => CliError::error(1, format!("Unable to open file {name}: {error}")),
    }
}

/// Reads the export file. A number is an open descriptor (sbatch man page, `--export-file`),
/// anything else a path.
fn export_file(
    path: &str,
    origin: &Origin,
    read: Fetch<'_>,
) -> Result<Vec<(String, String)>, CliError> {
    let absolute = PathBuf::from(origin.absolute(path));
    let text = match path.parse::<i32>() {
        Ok(descriptor) if descriptor >= 0 => Text::Descriptor(descriptor),
        _ => Text::File(&absolute),
    };
    let bytes = read(text).map_err(|error| {
        CliError::error(1, format!("Unable to read --export-file {path}: {error}"))
    })?;
    slotd_parse::export::parse_file(&bytes).map_err(|error| refuse(&error))
}

pub fn run(argv: &[OsString]) -> Done {
    let mut attempt = slotd_shortcut::attempt();
    if attempt == Attempt::Submitted {
        return print_submitted(&slotd_shortcut::unprinted().collect::<Vec<u8>>());
    }
    let origin = submitting_origin()?;
    let script: RefCell<Option<Vec<u8>>> = RefCell::default();
    let is_wanted = Cell::new(false);
    // Another cluster gets the script that was read here.
    let read = |text: Text<'_>| {
        is_wanted.set(true);
        let bytes = read(text)?;
        // The export file is read later.
        if !matches!(text, Text::Descriptor(_)) && script.borrow().is_none() {
            script.replace(Some(bytes.clone()));
        }
        Ok(bytes)
    };
    let parsed = parse(argv, &origin, &read);
    let sent_another = is_wanted.get()
        && slotd_shortcut::sent_another(script.borrow().as_deref().unwrap_or_default());
    // The daemon may accept the script that was sent, whatever this one says.
    if sent_another && let Some(text) = late_answer(&mut attempt)? {
        return print_submitted(&text);
    }
    // The script may name another cluster, which has options that are unknown here. It may also
    // name all clusters.
    let may_be_elsewhere = parsed.as_ref().map_or(true, |sbatch| sbatch.job.clusters.is_some());
    if may_be_elsewhere
        && let Some(script) = script.take()
        && let Some(done) = run_elsewhere(argv, &script)
    {
        return done;
    }
    // The daemon will also refuse an invalid command line.
    if parsed.is_ok()
        && let Some(text) = late_answer(&mut attempt)?
    {
        return print_submitted(&text);
    }
    let sbatch = parsed?;
    if sbatch.job.common.verbose > 0 {
        print_defined("sbatch", &sbatch.defined);
    }
    submit(sbatch, &origin, attempt)
}

/// Waits for the daemon's answer to the shortcut, if it has not come yet. Returns the text to print if
/// the job was submitted.
///
/// # Errors
/// See [`end_attempt`].
fn late_answer(attempt: &mut Attempt) -> Result<Option<Vec<u8>>, CliError> {
    if *attempt != Attempt::Asked {
        return Ok(None);
    }
    let text;
    (*attempt, text) = end_attempt(&paths()?)?;
    Ok((*attempt == Attempt::Submitted).then_some(text))
}

/// Prints the daemon's answer to the shortcut. The job exists, even if this fails.
fn print_submitted(text: &[u8]) -> Done {
    let text = String::from_utf8_lossy(text);
    let job = text.split_whitespace().last().unwrap_or_default();
    print(&text).map_err(|e| e.and(Mark::Error, format!("job {job} was submitted")))
}

pub(super) fn read(text: Text<'_>) -> io::Result<Vec<u8>> {
    match text {
        Text::Stdin => {
            let stdin = io::stdin();
            if stdin.is_terminal() {
                print_stderr(
                    "sbatch: reading the script from standard input: press Ctrl-D to end it, or name a file (sbatch job.sh)\n",
                );
            }
            read_all(&mut stdin.lock())
        }
        Text::File(path) => read_all(&mut File::open(path)?),
        Text::Descriptor(fd) => {
            // SAFETY: the user passed this descriptor. It is only read, never closed, and if it is
            // not open, reading fails.
            let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
            read_all(&mut *file)
        }
    }
}

/// Reads an input, but never more than the daemon accepts: `/dev/zero` has no end.
fn read_all(from: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_RAW as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_RAW {
        let why = format!("it is larger than {} MB", MAX_RAW >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

fn submit(mut sbatch: Sbatch, origin: &Origin, attempt: Attempt) -> Done {
    let with_exit = |error: CliError| error.with_exit(origin.exit_code("SLURM_EXIT_ERROR"));
    check_work_dir(&sbatch.request, "sbatch").map_err(with_exit)?;
    let paths = paths()?;
    let copy = match (sbatch.snapshot, sbatch.test_only) {
        (false, _) => None,
        (true, true) => work_tree_of(&sbatch.request).map(|_| None).map_err(with_exit)?,
        (true, false) => Some(take_snapshot(&mut sbatch.request, &paths).map_err(with_exit)?),
    };
    let raw = [sbatch.texts.script.as_slice(), &sbatch.texts.env].concat();
    let (tasks, rule) = (sbatch.request.task_count(), sbatch.request.task_rule(BatchTasks::Auto));
    let asks_memory = sbatch.request.mem != MemRequest::Default;
    let submit = Submit {
        request: sbatch.request,
        script_len: sbatch.texts.script.len(),
        wait: sbatch.wait,
        test_only: sbatch.test_only,
        client: client(false),
        ..Submit::default()
    };
    let (conn, answer) =
        hand_in_after(attempt, &paths, submit, &raw, "sbatch").map_err(with_exit)?;
    match answer {
        Answer::Refused(why) if sbatch.test_only => Err(with_exit(trial_refused(&why))),
        Answer::Refused(why) => {
            copy.into_iter().for_each(Copied::discard);
            Err(with_exit(refused("Batch job submission failed", &why)))
        }
        Answer::WouldStart { job, at, cpus, partition } => {
            print_start("sbatch", job, at, cpus, &partition, &origin.tz)
        }
        Answer::Submitted { job } => {
            let quiet = sbatch.job.quiet;
            if !quiet && tasks > 1 && io::stderr().is_terminal() {
                report_task_rule(&paths, job, tasks, rule);
            }
            if !quiet && asks_memory && io::stderr().is_terminal() {
                note_memory_limits(&paths);
            }
            let text = match (sbatch.job.clusters.flatten(), sbatch.parsable) {
                _ if quiet => String::new(),
                (None, true) => number(job),
                (Some(cluster), true) => format!("{job};{cluster}\n"),
                (None, false) => sentence(job),
                (Some(cluster), false) => {
                    format!("Submitted batch job {job} on cluster {cluster}\n")
                }
            };
            // The job exists, even if its ID cannot be printed.
            let printed =
                print(&text).map_err(|e| e.and(Mark::Error, format!("job {job} was submitted")));
            if !sbatch.wait {
                return printed;
            }
            if !quiet && io::stderr().is_terminal() {
                // If this fails in a way that matters, the wait below reports it.
                let _ = super::wait::until_over(&[JobRef::job(job)], "");
            }
            wait(conn, &paths, job).and_then(|code| printed.map(|_| code))
        }
        other => Err(unexpected(&other)),
    }
}

/// Returns what is printed for a submitted job with `--parsable`.
pub(super) fn number(job: JobId) -> String {
    format!("{job}\n")
}

/// Returns what is printed for a submitted job.
pub(super) fn sentence(job: JobId) -> String {
    format!("Submitted batch job {job}\n")
}

/// Prints, once per root, that nothing enforces `--mem` here.
fn note_memory_limits(paths: &Paths) {
    // The file records that the note was printed. If it cannot be created, the note is skipped, or
    // it would appear on every submission.
    let mut once = OpenOptions::new();
    once.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    if !paths.memory_note().exists() && !enforces_memory() && once.open(paths.memory_note()).is_ok()
    {
        print_stderr(&format!(
            "sbatch: --mem is reserved, but limits are not enforced on this host: jobs can use more; {ENFORCES}\n"
        ));
    }
}

/// Prints what several tasks mean for the script. Asks the daemon, because its configuration
/// decides.
fn report_task_rule(paths: &Paths, job: JobId, tasks: u32, rule: TaskRule) {
    let query =
        Request::Jobs(JobQuery { without_steps: true, ..JobQuery::of(vec![JobRef::job(job)]) });
    let answer = Connection::open(paths).and_then(|mut conn| conn.ask(&query, &[]));
    let Ok((Answer::Jobs(list), _)) = answer else { return };
    let Some(view) = list.jobs.first() else { return };
    let rule = if view.batch_ranks == rule.ranks {
        rule
    } else {
        TaskRule { ranks: view.batch_ranks, reason: "the daemon is configured this way".to_owned() }
    };
    print_stderr(&format!("sbatch: {}\n", tasks_line(tasks, &rule)));
}

fn tasks_line(tasks: u32, TaskRule { ranks, reason }: &TaskRule) -> String {
    if *ranks {
        format!(
            "the script runs {tasks} times, once for each task: {reason} (set SLOTD_BATCH_TASKS=once to change this)"
        )
    } else {
        format!(
            "the script runs once with resources for {tasks} tasks: {reason} (set SLOTD_BATCH_TASKS=ranks to change this)"
        )
    }
}

/// Waits for the job and returns its exit code, or 1 if a signal or a cancellation ended it (`-W`).
///
/// If the daemon restarts meanwhile, this reconnects and continues to wait.
fn wait(mut conn: Connection, paths: &Paths, job: JobId) -> Done {
    let answer = loop {
        match conn.wait() {
            Ok((answer, _)) => break answer,
            Err(ClientError::Broken(FrameError::Closed | FrameError::Io(_))) => {
                conn = reopen(paths, None)?;
                conn.send(&Request::WaitEnd(job), &[])?;
            }
            Err(error) => return Err(error.into()),
        }
    };
    match answer {
        Answer::Ended { view } => {
            let exit = view.run.exit;
            if view.run.state == JobState::Ended(End::Completed) {
                return Ok(0);
            }
            Ok(if exit.signal != 0 || exit.status == 0 {
                1
            } else {
                u8::try_from(exit.status).unwrap_or(1)
            })
        }
        Answer::Refused(why) => Err(CliError::error(1, why.to_string())),
        other => Err(unexpected(&other)),
    }
}
