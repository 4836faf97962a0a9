//! The commands: from a process's arguments to its requests, its output and its exit code.
//!
//! Each command has its own file. Data goes to standard output, everything else to standard error.
//! Errors have the form `command: error: text`, as in Slurm.

use crate::args::choices::Applet;
use crate::args::error::{CliError, Mark};
use crate::args::origin::{Account, Origin};
use crate::client::connection::{ClientError, Connection};
use crate::client::terminal;
use crate::commands::pages::texts::Page;
use crate::daemon::CGROUP_KEY;
use nix::sys::signal::{SigHandler, SigSet, Signal};
use slotd_model::late::late;
use slotd_model::license::LicenseFault;
use slotd_model::view::{JobList, JobView, NodeView};
use slotd_model::{Reason, Refusal, StepKey};
use slotd_parse::suggest;
use slotd_protocol::answer::{Answer, Outcome};
use slotd_protocol::request::Request;
use slotd_sys::paths::Paths;
use slotd_sys::{guard, limits, memory, proc, start, system, user};
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

mod changes;
mod clean;
mod clusters;
mod complete;
mod daemon;
mod db;
mod doctor;
mod draft;
mod drain;
mod edit;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
mod install;
mod launch;
mod log;
mod messenger;
mod needless;
mod output;
pub mod pages;
mod pids;
mod plain;
mod report;
mod retry;
mod run;
mod running;
pub mod sacct;
pub mod sacctmgr;
pub mod salloc;
pub mod sattach;
pub mod sbatch;
pub mod sbcast;
pub mod scancel;
pub mod scontrol;
mod scrontab;
pub mod sdiag;
pub mod seff;
pub mod sinfo;
pub mod sjobmgr;
mod slotd;
mod source;
pub mod sprio;
pub mod squeue;
mod sreport;
pub mod srun;
pub mod sshare;
pub mod sstat;
mod submit;
mod sweep;
#[cfg(test)]
mod tests_launch;
#[cfg(test)]
mod tests_query;
#[cfg(test)]
mod tests_sbatch;
mod top;
mod wait;
mod web;
mod why;

/// The exit code of a command, or its error.
pub type Done = Result<u8, CliError>;

/// A command: its name, arguments, implementation and man page.
#[derive(Clone, Copy)]
pub struct Entry {
    pub applet: Applet,
    /// Returns its clap definition, the source of help, man page and completions.
    pub define: fn(Applet) -> clap::Command,
    /// Runs it. The first word is its name.
    pub run: fn(&[OsString]) -> Done,
    /// The parts of its man page besides the options.
    pub page: &'static Page,
}

impl Entry {
    pub fn name(&self) -> &'static str {
        self.applet.name
    }

    pub fn definition(&self) -> clap::Command {
        (self.define)(self.applet)
    }
}

/// All commands. The dispatcher, help, man pages, completions and the installer's links are derived
/// from this table.
pub const COMMANDS: [Entry; 21] = [
    sbatch::ENTRY,
    srun::ENTRY,
    salloc::ENTRY,
    squeue::ENTRY,
    sacct::ENTRY,
    scontrol::ENTRY,
    scancel::ENTRY,
    sinfo::ENTRY,
    sstat::ENTRY,
    sattach::ENTRY,
    sprio::ENTRY,
    sdiag::ENTRY,
    seff::ENTRY,
    sjobmgr::ENTRY,
    sacctmgr::ENTRY,
    sshare::ENTRY,
    sbcast::ENTRY,
    needless::STRIGGER,
    sreport::ENTRY,
    scrontab::ENTRY,
    needless::SGATHER,
];

/// Runs sbatch on the clusters that a directive of its script names. Returns `None` if no directive
/// does, or if a source of higher precedence names clusters.
fn run_elsewhere(argv: &[OsString], script: &[u8]) -> Option<Done> {
    clusters::run_directive(&sbatch::ENTRY, argv, script)
}

/// Returns the definitions of all commands, including `slotd` itself, by name.
fn definitions() -> impl Iterator<Item = (&'static str, clap::Command)> {
    let slurms = COMMANDS.iter().map(|entry| (entry.name(), entry.definition()));
    slurms.chain([("slotd", slotd::definition())])
}

/// Returns the command with exactly this name. A renamed binary (`slotd-1.2`) is `slotd`.
fn find(word: &str) -> Option<Entry> {
    COMMANDS.into_iter().find(|entry| entry.name() == word)
}

/// Runs the process. Returns its exit code.
pub fn main() -> u8 {
    start::open_standard_streams();
    start::report_missing_threads();
    let mut args: Vec<OsString> = std::env::args_os().collect();
    if args.get(1).is_some_and(|arg| arg == slotd_exec::launcher::LAUNCHER_ARG) {
        start::on_broken_pipe(SigHandler::SigIgn);
        let rest: Vec<String> =
            args[2..].iter().map(|a| a.to_string_lossy().into_owned()).collect();
        slotd_exec::launcher::launcher_main(&rest);
    }
    if args.get(1).is_some_and(|arg| arg == guard::GUARD_ARG) {
        return guard::run(&args[2..]);
    }
    if let Some(run) = args.get(1).and_then(|arg| messenger::named(arg)) {
        start::on_broken_pipe(SigHandler::SigIgn);
        return run();
    }
    // If the reader exits (`squeue | head`), SIGPIPE ends the command as it does any other program.
    start::on_broken_pipe(SigHandler::SigDfl);
    let name =
        args.first().map(|arg| Path::new(arg).file_name().unwrap_or_default().to_os_string());
    let mut entry = name.as_deref().and_then(|name| find(&name.to_string_lossy()));
    if entry.is_none() {
        // `slotd help sbatch` means `slotd sbatch --help`.
        if args.len() > 2 && args[1] == "help" {
            args.remove(1);
            args.push("--help".into());
        }
        // `slotd sbatch …`
        entry = args.get(1).and_then(|word| find(&word.to_string_lossy()));
        if entry.is_none() {
            return slotd::main(&args[1.min(args.len())..]);
        }
        args.remove(0);
    }
    let Some(entry) = entry else { return 2 };
    memory::keep_freed();
    let done = clusters::run(&entry, &args).unwrap_or_else(|| (entry.run)(&args));
    match done {
        Ok(code) => code,
        Err(error) => {
            if let Err(error) = output::print(&error.output) {
                output::print_error(entry.name(), &error);
                return 1;
            }
            output::print_error(entry.name(), &error);
            error.code()
        }
    }
}

/// Returns the paths below `SLOTD_ROOT`, or else below `~/.local/share/slotd`. A relative root is
/// resolved against the working directory, since jobs and launches run in others.
///
/// # Errors
/// Fails if neither is set, or if the root is not valid UTF-8: jobs receive it in their
/// environment, and launches contain it.
pub fn paths() -> Result<Paths, CliError> {
    paths_of(std::env::var_os("SLOTD_ROOT"))
}

/// Like [`paths`], with this value of `SLOTD_ROOT`.
pub fn paths_of(root: Option<OsString>) -> Result<Paths, CliError> {
    let root = root_of(root, std::env::var_os("HOME")).ok_or_else(|| {
        CliError::error(
            1,
            "neither SLOTD_ROOT nor HOME is set: set SLOTD_ROOT to the daemon's runtime root",
        )
    })?;
    let root = std::path::absolute(&root).unwrap_or(root);
    if root.to_str().is_none() {
        let why = format!(
            "the runtime root is not valid UTF-8: {}: set SLOTD_ROOT to another path",
            root.display()
        );
        return Err(CliError::error(1, why));
    }
    Ok(Paths::new(root))
}

/// Returns the origin of a process that submits. Its working directory becomes the job's.
///
/// # Errors
/// Fails if the path of the working directory is not valid UTF-8, since the job would run
/// elsewhere.
pub fn submitting_origin() -> Result<Origin, CliError> {
    let origin = origin();
    if origin.cwd.to_str().is_none() {
        let why = format!(
            "the path of the working directory is not valid UTF-8: {}",
            origin.cwd.display()
        );
        return Err(CliError::error(1, why));
    }
    Ok(origin)
}

fn root_of(root: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let given = |v: Option<OsString>| v.filter(|v| !v.is_empty()).map(PathBuf::from);
    given(root).or_else(|| Paths::default_root(given(home).as_deref()))
}

/// Returns the origin of this process.
pub fn origin() -> Origin {
    let (uid, gid) = user::current();
    Origin {
        cwd: late(working_directory),
        user: late(|| user::user_name(user::current().0)),
        uid,
        group: late(|| user::group_name(user::current().1)),
        gid,
        account,
        home: late(|| user::home_and_shell(user::current().0).0),
        shell: late(|| user::home_and_shell(user::current().0).1),
        host: system::probe_host_name(),
        env: std::env::vars_os().collect(),
        umask: late(proc::umask),
        limits: late(limits::propagated),
        now: now(),
        tz: Rc::new(late(slotd_sys::zone::local)),
        terminal: late(terminal_columns),
    }
}

/// Returns the columns of the terminal on standard output, if known, or `None` if it is no terminal.
fn terminal_columns() -> Option<Option<u16>> {
    let out = io::stdout();
    let columns = || terminal::window(out.as_fd()).map(|size| size.ws_col);
    out.is_terminal().then(|| columns().filter(|columns| *columns > 0))
}

/// Returns another user's account, by name or number.
fn account(name: &str) -> Option<Account> {
    let (uid, gid) = user::uid_and_gid(name)?;
    Some(Account { user: user::user_name(uid), uid, group: user::group_name(gid), gid })
}

/// Returns the working directory as the user wrote it (`PWD`), if that is correct. For a directory
/// that was deleted, returns its former path as the kernel reports it (`/home/me/q (deleted)`): no
/// job can run there, but queries do not need it.
fn working_directory() -> PathBuf {
    let place = |path: &Path| std::fs::metadata(path).ok().map(|dir| (dir.dev(), dir.ino()));
    let is_here = |shown: &PathBuf| {
        shown.is_absolute() && place(shown).is_some_and(|it| place(Path::new(".")) == Some(it))
    };
    let removed = || std::fs::read_link("/proc/self/cwd");
    let real = || {
        std::env::current_dir()
            .or_else(|_| removed())
            .unwrap_or_else(|_| PathBuf::from("(unreachable)"))
    };
    std::env::var_os("PWD").map(PathBuf::from).filter(is_here).unwrap_or_else(real)
}

pub use slotd_sys::clock::now;

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let text = error.to_string();
        let mut lines = text.lines();
        let first = CliError::new(Mark::Error, 1, lines.next().unwrap_or_default());
        lines.fold(first, CliError::hint)
    }
}

/// Returns the error for a refused request. `what` is the operation: `Batch job submission failed`.
pub fn refused(what: &str, why: &Refusal) -> CliError {
    CliError::error(1, why.lines(what).join("\n")).maybe_hint(known_names(why))
}

/// Returns the error for a job with `--immediate` that could not start.
pub fn not_immediate(view: &JobView, origin: &Origin) -> CliError {
    let why = match view.run.reason {
        Reason::Licenses => "Job dependency problem",
        _ => "Requested nodes are busy",
    };
    let code = origin.exit_code("SLURM_EXIT_IMMEDIATE");
    CliError::error(code, format!("Unable to allocate resources: {why}"))
}

/// Returns the hint for a refusal: the known names if a name is unknown, or a note that there is
/// only one host.
pub fn known_names(why: &Refusal) -> Option<String> {
    let (of, wanted, known) = match why {
        Refusal::NodeCount | Refusal::OneNodeOnly => {
            return Some("slotd runs on one host: omit --nodes".to_owned());
        }
        Refusal::UnknownPartition { name, lacks_gpus: true, .. } => {
            return Some(format!("partition {name} exists only while the host has GPUs"));
        }
        Refusal::UnknownPartition { name, known, .. } => ("partitions", name, known),
        Refusal::MissingFeature { wanted, known }
        | Refusal::UnknownPreference { wanted, known } => ("features", wanted, known),
        Refusal::UnknownGpuModel { model, known } => ("GPU models", model, known),
        Refusal::InvalidLicenses(LicenseFault::Unknown { name, known }) if !known.is_empty() => {
            ("licenses", name, known)
        }
        Refusal::UnknownQos { name, known } => ("QOS", name, known),
        _ => return None,
    };
    let is_unknown = |word: &&str| !word.is_empty() && !known.iter().any(|name| name == word);
    let word = wanted.split(|c: char| "&|,()!*".contains(c)).find(is_unknown).unwrap_or_default();
    Some(suggest::one_of(of, word, known.iter().map(String::as_str)))
}

/// Returns the error for a refused `--test-only`. Slurm prints its last line without the command's
/// name.
pub fn trial_refused(why: &Refusal) -> CliError {
    let mut lines = why.lines("allocation failure");
    let last = lines.pop().unwrap_or_default();
    CliError::error(1, lines.join("\n")).and(Mark::Bare, last).maybe_hint(known_names(why))
}

/// Sends one request and returns the answer.
///
/// # Errors
/// Fails if the daemon cannot be reached or refuses the request.
pub fn ask(request: &Request, raw: &[u8]) -> Result<(Answer, Vec<u8>), CliError> {
    ask_daemon(&paths()?, request, raw).map_err(|error| match error {
        ClientError::Refused(why) => CliError::error(1, why.to_string()),
        other => other.into(),
    })
}

/// Requests jobs in a single answer.
///
/// # Errors
/// Fails as [`ask`] does.
pub fn ask_job_list(request: &Request) -> Result<JobList, CliError> {
    match ask(request, &[])?.0 {
        Answer::Jobs(list) => Ok(list),
        other => Err(unexpected(&other)),
    }
}

/// The processes of each step.
type Processes = Vec<(StepKey, Vec<i32>)>;

/// Requests jobs with the resource usage and the processes of their running steps.
///
/// # Errors
/// Fails as [`ask`] does.
pub fn ask_usage(request: &Request) -> Result<(JobList, Processes), CliError> {
    match ask(request, &[])?.0 {
        Answer::Usage { list, processes } => Ok((list, processes)),
        other => Err(unexpected(&other)),
    }
}

/// Requests the state of the node.
///
/// # Errors
/// Fails as [`ask`] does.
pub fn ask_node() -> Result<NodeView, CliError> {
    match ask(&Request::Node, &[])?.0 {
        Answer::Node(node) => Ok(*node),
        other => Err(unexpected(&other)),
    }
}

/// Holds SIGTERM back until this process ends, if it belongs to a job. A job that requeues or cancels
/// itself gets the signal often before this process has the answer, and would take the request for
/// failed.
fn outlive_own_job() {
    if std::env::var_os("SLURM_JOB_ID").is_some() {
        // It fails only for invalid signals.
        let _ = SigSet::from(Signal::SIGTERM).thread_block();
    }
}

/// Sends a request that acts on jobs. Returns the outcome for each, in order.
///
/// # Errors
/// Fails as [`ask`] does.
pub fn ask_outcomes(request: &Request) -> Result<Vec<Outcome>, CliError> {
    match ask(request, &[])?.0 {
        Answer::Done(outcomes) => Ok(outcomes),
        other => Err(unexpected(&other)),
    }
}

/// Returns whether the daemon enforces memory limits, or true if the daemon cannot be reached.
fn enforces_memory() -> bool {
    let Ok((Answer::Config(config), _)) = ask(&Request::Config, &[]) else { return true };
    config.iter().find(|(key, _)| key == CGROUP_KEY).is_none_or(|(_, base)| base != "(null)")
}

/// Like [`ask`], for callers that continue without the daemon.
fn ask_daemon(
    paths: &Paths,
    request: &Request,
    raw: &[u8],
) -> Result<(Answer, Vec<u8>), ClientError> {
    let mut conn = Connection::open(paths)?;
    let mut parts: Vec<JobView> = Vec::new();
    conn.send(request, raw)?;
    loop {
        match conn.receive()? {
            (Answer::Refused(why), _) => return Err(ClientError::Refused(why)),
            (Answer::SomeJobs(list), _) => parts.extend(list.jobs),
            (Answer::Jobs(last), raw) if !parts.is_empty() => {
                return Ok((Answer::Jobs(last.after(parts)), raw));
            }
            answer => return Ok(answer),
        }
    }
}

/// Requests jobs and passes them to `take` in batches as they arrive, so that a long answer is
/// never in memory as a whole.
///
/// # Errors
/// Fails if the daemon cannot be reached, if it refuses the request, or if `take` fails.
pub fn ask_for_jobs(
    request: &Request,
    mut take: impl FnMut(JobList) -> Result<(), CliError>,
) -> Result<(), CliError> {
    ask_for_lists(request, |list| take(list.whole()))
}

/// Like [`ask_for_jobs`], but leaves brief jobs brief.
///
/// # Errors
/// Like [`ask_for_jobs`].
fn ask_for_lists(
    request: &Request,
    take: impl FnMut(JobList) -> Result<(), CliError>,
) -> Result<(), CliError> {
    Ok(lists_if_there(request, take)??)
}

/// Like [`ask_for_lists`], for callers that continue without the daemon.
fn lists_if_there(
    request: &Request,
    mut take: impl FnMut(JobList) -> Result<(), CliError>,
) -> Result<Result<(), ClientError>, CliError> {
    let mut conn = match Connection::open(&paths()?) {
        Ok(conn) => conn,
        Err(error) => return Ok(Err(error)),
    };
    if let Err(error) = conn.send(request, &[]) {
        return Ok(Err(error));
    }
    loop {
        match conn.receive() {
            Err(error) => return Ok(Err(error)),
            Ok((Answer::Refused(why), _)) => return Err(CliError::error(1, why.to_string())),
            Ok((Answer::SomeJobs(list), _)) => take(list)?,
            Ok((Answer::Jobs(last), _)) => return take(last).map(Ok),
            Ok((other, _)) => return Err(unexpected(&other)),
        }
    }
}

/// Returns the error for an answer of the wrong kind.
pub fn unexpected(answer: &Answer) -> CliError {
    CliError::error(1, format!("unexpected answer from the daemon: {answer:?}"))
}
