//! Sets up a manager: reads the steps, requests the job from the daemon and opens the journal.

use super::api::Api;
use super::client::socket_path;
use super::launches::Launches;
use super::link::{self, Identity};
use super::past;
use super::progress::{Progress, Verbosity};
use super::records::Records;
use super::shell::{self, Input, Shell};
use crate::client::connection::ClientError;
use slotd_exec::step_journal::{self, Entry, Journal, Past};
use slotd_model::request::JobKind;
use slotd_model::tres::Allocation;
use slotd_model::{JobRequest, StepId, Tres};
use slotd_protocol::answer::ManagedJob;
use slotd_stepmgr::core::{Core, Policy};
use slotd_stepmgr::def::{OnFailure, StepDef, Warning};
use slotd_stepmgr::graph::Refused;
use slotd_stepmgr::language::{self, Fault, Form};
use slotd_sys::{clock, files, proc, system};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Step numbers requested beyond the number of steps, for retries and late submissions.
const SPARE_NUMBERS: u32 = 1000;

/// The source of the steps.
#[derive(Debug, Clone)]
pub enum Source {
    /// The name as given by the user, and its absolute path.
    File { name: String, path: PathBuf },
    /// Standard input, read line by line.
    Pipe,
}

/// The options of a manager.
#[derive(Debug, Clone)]
pub struct Setup {
    pub identity: Identity,
    pub source: Source,
    pub on_failure: Option<OnFailure>,
    pub most_running: Option<u32>,
    /// Resume the work of an earlier manager of this file.
    pub resume: bool,
    /// Like `resume`, and run failed steps again.
    pub resume_failed: bool,
    pub verbosity: Verbosity,
    pub work_dir: PathBuf,
    pub umask: u32,
}

/// The reason why a manager cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{0}")]
    Text(Fault),
    #[error(transparent)]
    Daemon(#[from] ClientError),
    #[error("could not {what} {}: {source}", .path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
}

impl RunError {
    fn file(what: &'static str, path: &Path) -> impl Fn(io::Error) -> RunError {
        move |source| RunError::File { what, path: path.to_owned(), source }
    }

    /// Returns a hint for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            RunError::Text(fault) => fault.hint.clone(),
            RunError::Daemon(_) | RunError::File { .. } => None,
        }
    }
}

/// The message for input that is not valid UTF-8.
pub const NOT_UTF8: &str = "not valid UTF-8";

/// Converts input bytes to text.
///
/// # Errors
/// Fails if the bytes are not valid UTF-8.
pub fn text_of(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, NOT_UTF8))
}

/// Reads a file of steps. It may be a pipe that is already open, such as a shell's `<(…)`.
///
/// # Errors
/// Fails if it cannot be read or is too large. Also fails for a FIFO that nobody is writing to and
/// for a device: they could block the manager, which handles signals only between two reads.
pub fn read_steps(path: &Path) -> io::Result<Vec<u8>> {
    let found = fs::metadata(path)?;
    let is_open_pipe = found.file_type().is_fifo()
        && ["/dev/fd", "/dev/stdin", "/proc"].iter().any(|dir| path.starts_with(dir));
    if is_open_pipe {
        return files::read_open(&File::open(path)?, files::MOST_RECORD);
    }
    if found.file_type().is_fifo() {
        let why = "it is a FIFO: write the steps to a file, or pass them on standard input (-)";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    files::read(path, files::MOST_RECORD)
}

fn not_utf8(e: io::Error) -> io::Error {
    match e.kind() {
        io::ErrorKind::InvalidData => io::Error::new(e.kind(), NOT_UTF8),
        _ => e,
    }
}

/// Returns a reader of the regular files named in a step description, relative to this directory. A
/// FIFO is refused, since it could block the manager.
pub fn reader(work_dir: &Path) -> impl Fn(&str) -> Result<String, Box<dyn std::error::Error>> {
    move |name| {
        let text = files::read_text(&work_dir.join(name), files::MOST_RECORD);
        text.map_err(|e| not_utf8(e).into())
    }
}

/// Converts a rejected step to an error in its file.
pub fn fault_of(file: &str, refused: Refused) -> Fault {
    Fault { file: file.to_owned(), line: refused.line, text: refused.text, hint: refused.hint }
}

fn steps_of(
    source: &Source,
    work_dir: &Path,
    last_number: &mut u32,
) -> Result<Vec<StepDef>, RunError> {
    let Source::File { name, path } = source else { return Ok(Vec::new()) };
    let text = read_steps(path).and_then(text_of).map_err(RunError::file("read", path))?;
    let read = reader(work_dir);
    language::parse(Form::of(name, &text), name, &text, &read, last_number).map_err(RunError::Text)
}

/// Checks the steps before a job of this size is submitted for them, and returns their number.
/// Sizes not known yet are assumed to suffice.
///
/// # Errors
/// Fails if a manager would reject the steps in such a job.
pub fn check(
    source: &Source,
    work_dir: &Path,
    cpus: Option<u32>,
    mem_mb: Option<u64>,
    gpus: Option<u32>,
) -> Result<usize, RunError> {
    let Source::File { name, .. } = source else { return Ok(0) };
    let steps = steps_of(source, work_dir, &mut 0)?;
    let asks = || steps.iter().map(|step| &step.settings.ask);
    let gpus = gpus.unwrap_or_else(|| asks().map(|ask| ask.gpus).max().unwrap_or(0));
    let tres = Tres {
        cpus: cpus.unwrap_or_else(|| asks().map(|ask| ask.cpus).max().unwrap_or(0)),
        mem_mb: mem_mb.unwrap_or_else(|| asks().filter_map(|ask| ask.mem_mb).max().unwrap_or(0)),
        gpus,
        ..Tres::ZERO
    };
    let whole = Allocation { tres, gpu_ids: (0..gpus).collect(), ..Allocation::default() };
    let policy = Policy { longest_word: Some(system::longest_word()), ..Policy::default() };
    let (mut core, count) = (Core::new(whole, policy, None), steps.len());
    core.add(steps).map_err(|refused| RunError::Text(fault_of(name, refused)))?;
    Ok(count)
}

/// Runs the manager in this process, forked by the launcher at the other end of `launcher`. Returns
/// its exit code. The `beginning` lock is released once the manager listens.
///
/// # Errors
/// Fails before any step was started.
pub fn run(mut setup: Setup, launcher: UnixStream, beginning: File) -> Result<u8, RunError> {
    // Blocking valid signals does not fail.
    let _ = shell::signals().thread_block();
    // Parse the text first: an invalid one needs no daemon.
    let mut last_number = 0;
    let steps = steps_of(&setup.source, &setup.work_dir, &mut last_number)?;
    setup.identity.client.pid = std::process::id();
    setup.identity.client.start_ticks =
        i32::try_from(setup.identity.client.pid).ok().and_then(proc::start_ticks).unwrap_or(0);
    let count = u32::try_from(steps.len()).unwrap_or(u32::MAX).saturating_add(SPARE_NUMBERS);
    let progress = Progress::new(setup.verbosity, clock::monotonic());
    let mut away = || progress.print("the daemon is down: waiting for it");
    let (link, job) = link::open(&setup.identity, count, &mut away)?;
    let request = &job.view.job.request;
    let may_requeue =
        setup.resume && request.requeue && !request.no_requeue && request.kind == JobKind::Batch;
    let policy = Policy {
        on_failure: setup.on_failure,
        warning: warning_of(request),
        most_running: setup.most_running,
        grace: Duration::from_millis(job.grace_ms),
        longest_word: Some(system::longest_word()),
    };
    let mut core =
        Core::new(job.part.alloc.clone(), policy, job.part.end_us.map(Duration::from_micros));
    core.on_resources(job.part.alloc.clone(), job.part.owed);
    core.on_parts_out(job.out.clone(), Duration::ZERO);
    core.on_suspended(Duration::from_micros(job.part.suspended_us));
    core.on_numbers(job.numbers.0..job.numbers.0.saturating_add(job.numbers.1));
    let (file, pasts, mut journal) = open_journal(&setup, &mut core, steps)?;
    let known = past::restore(&mut core, pasts, setup.resume_failed);
    let is_resumed = !known.is_empty();
    let (own, run) = (setup.identity.job, setup.identity.run);
    journal.push(&Entry::Head { job: own, run, file, resumed: setup.resume });
    for (name, past) in known {
        journal.push(&Entry::Before { name, past });
    }
    let mut shell =
        make_shell(setup, core, link, (*job, is_resumed), journal, (launcher, progress))?;
    (shell.last_number, shell.may_requeue) = (last_number, may_requeue);
    drop(beginning);
    Ok(shell.run())
}

/// Returns the job's `--signal` if it applies to steps.
fn warning_of(request: &JobRequest) -> Option<Warning> {
    let asked = request.signal.filter(|asked| !asked.batch_only)?;
    Some(Warning { signal: asked.signal, before_secs: asked.before_secs.into() })
}

/// Opens the journal of this run of the job and adds the steps. Returns the name of the file in the
/// journal and the results of earlier managers.
fn open_journal(
    setup: &Setup,
    core: &mut Core,
    steps: Vec<StepDef>,
) -> Result<(String, BTreeMap<String, Past>, Journal), RunError> {
    let Identity { paths, job, run, .. } = &setup.identity;
    let (file, name) = match &setup.source {
        Source::File { name, path } => (path.to_string_lossy().into_owned(), name.as_str()),
        Source::Pipe => ("-".to_owned(), "-"),
    };
    let job_dir = paths.job_dir(*job);
    // Search before this run's journal becomes the newest.
    let others = if setup.resume { past::find(&paths.jobs_dir(), &file) } else { BTreeMap::new() };
    let path = step_journal::path(&job_dir, *run);
    let (mut journal, mut entries) = Journal::open(&path).map_err(RunError::file("open", &path))?;
    let lost: Vec<Entry> =
        past::lost_ends(&entries, clock::now()).into_iter().map(Entry::End).collect();
    lost.iter().for_each(|end| journal.push(end));
    entries.extend(lost);
    let own = past::of_file(&entries, &file);
    let pasts = if setup.resume && own.is_empty() { others } else { own };
    core.add(steps).map_err(|refused| RunError::Text(fault_of(name, refused)))?;
    Ok((file, if setup.resume { pasts } else { BTreeMap::new() }, journal))
}

fn make_shell(
    setup: Setup,
    core: Core,
    link: link::Link,
    (job, is_resumed): (ManagedJob, bool),
    mut journal: Journal,
    (launcher, progress): (UnixStream, Progress),
) -> Result<Shell, RunError> {
    let now = clock::monotonic();
    let job_dir = setup.identity.paths.job_dir(setup.identity.job);
    let path = step_journal::path(&job_dir, setup.identity.run);
    journal.write().map_err(RunError::file("write", &path))?;
    let mut records = Records::new(&journal).map_err(RunError::file("write", &path))?;
    // Records that an earlier manager of this run could not send.
    for step in step_journal::undelivered(&job_dir, setup.identity.run)
        .map_err(RunError::file("read", &path))?
    {
        records.put(step, now);
    }
    let socket = socket_path(&setup.identity.paths, setup.identity.job);
    let api = Api::open(&socket).map_err(RunError::file("listen at", &socket))?;
    let root = setup.identity.paths.root().to_string_lossy().into_owned();
    let numbers = job.numbers;
    let launches =
        Launches::new(job, root, socket, setup.work_dir.clone(), setup.umask, is_resumed);
    let input = match setup.source {
        Source::Pipe => Some(Input::default()),
        Source::File { .. } => None,
    };
    let parts = (setup.identity, setup.work_dir);
    Shell::new(
        parts, core, link, journal, records, launches, api, launcher, progress, input, numbers,
    )
    .map_err(RunError::file("watch", &job_dir))
}

/// Returns the step that this process belongs to, from its environment variable.
pub fn step_within(value: Option<&str>) -> Option<StepId> {
    value.and_then(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_can_be_named_in_steps() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("rows"), "a\n").unwrap();
        std::os::unix::fs::symlink("rows", dir.path().join("link")).unwrap();
        nix::unistd::mkfifo(&dir.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let read = reader(dir.path());
        assert_eq!(read("rows").unwrap(), "a\n");
        assert_eq!(read("link").unwrap(), "a\n");
        for name in ["fifo", ".", "/dev/zero"] {
            let why = read(name).unwrap_err().to_string();
            assert!(why.contains("regular file"), "{name}: {why}");
        }
    }
}
