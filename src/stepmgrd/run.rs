//! From what a user wants to a manager that runs: the text read, the job taken over, the journal
//! opened.

use super::api::Api;
use super::client::socket_path;
use super::launches::Launches;
use super::link::{self, Identity};
use super::past;
use super::progress::{Manner, Progress};
use super::records::Records;
use super::shell::{self, Input, Shell};
use crate::client::connection::ClientError;
use crate::exec::step_journal::{self, Entry, Journal, Past};
use crate::model::request::JobKind;
use crate::model::tres::Allocation;
use crate::model::{JobRequest, StepId, Tres};
use crate::protocol::answer::ManagedJob;
use crate::stepmgr::core::{Core, Policy};
use crate::stepmgr::def::{OnFailure, StepDef, Warning};
use crate::stepmgr::graph::Refused;
use crate::stepmgr::language::{self, Fault, Form};
use crate::sys::{clock, files, proc, system};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// More numbers than there are steps, for those that are tried again or come later.
const SPARE_NUMBERS: u32 = 1000;

/// Where steps come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// As it was named, and its whole path.
    File { name: String, path: PathBuf },
    /// Standard input, line by line until its end.
    Pipe,
}

/// What a manager is to do.
#[derive(Debug, Clone)]
pub struct Setup {
    pub identity: Identity,
    pub source: Source,
    pub on_failure: Option<OnFailure>,
    pub most_running: Option<u32>,
    /// Go on where an earlier manager of this file has ended.
    pub resume: bool,
    /// And run what had failed again.
    pub resume_failed: bool,
    pub manner: Manner,
    pub work_dir: PathBuf,
    pub umask: u32,
}

/// Why a manager does not run.
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

    /// What would be right.
    pub fn hint(&self) -> Option<String> {
        match self {
            RunError::Text(fault) => fault.hint.clone(),
            RunError::Daemon(_) | RunError::File { .. } => None,
        }
    }
}

/// Why bytes are no steps.
pub const NO_TEXT: &str = "it is no text in UTF-8";

/// # Errors
/// They are no text.
pub fn text_of(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, NO_TEXT))
}

fn no_text(e: io::Error) -> io::Error {
    match e.kind() {
        io::ErrorKind::InvalidData => io::Error::new(e.kind(), NO_TEXT),
        _ => e,
    }
}

/// Reads a regular file that a text names, from the manager's working directory. A FIFO would keep
/// the manager from its steps.
pub fn read_named(work_dir: &Path, name: &str) -> Result<String, String> {
    let text = files::read_text(&work_dir.join(name), files::MOST_RECORD);
    text.map_err(|e| no_text(e).to_string())
}

/// A step that the graph does not take, as a fault of its text.
pub fn fault_of(file: &str, refused: Refused) -> Fault {
    Fault { file: file.to_owned(), line: refused.line, text: refused.text, hint: refused.hint }
}

fn steps_of(
    source: &Source,
    work_dir: &Path,
    last_number: &mut u32,
) -> Result<Vec<StepDef>, RunError> {
    let Source::File { name, path } = source else { return Ok(Vec::new()) };
    let text = files::read_input(path, files::MOST_RECORD)
        .map_err(no_text)
        .map_err(RunError::file("read", path))?;
    let read = |named: &str| read_named(work_dir, named);
    language::parse(Form::of(name, &text), name, &text, &read, last_number).map_err(RunError::Text)
}

/// Reads the steps that a job is to be submitted for, which is to have this. What nobody knows yet
/// is as much as the steps need. How many there are.
///
/// # Errors
/// A manager would not run them in that job.
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

/// Runs the manager in this process, which the launcher at the other end of `launcher` has forked.
/// Its exit code. `beginning` is given back as soon as it listens.
///
/// # Errors
/// It could not begin: no step was started.
pub fn run(mut setup: Setup, launcher: UnixStream, beginning: File) -> Result<u8, RunError> {
    // A set of signals that there are can be blocked.
    let _ = shell::signals().thread_block();
    // Nothing is asked of anybody for a text that makes no sense.
    let mut last_number = 0;
    let steps = steps_of(&setup.source, &setup.work_dir, &mut last_number)?;
    setup.identity.client.pid = std::process::id();
    setup.identity.client.start_ticks =
        i32::try_from(setup.identity.client.pid).ok().and_then(proc::start_ticks).unwrap_or(0);
    let count = u32::try_from(steps.len()).unwrap_or(u32::MAX).saturating_add(SPARE_NUMBERS);
    let progress = Progress::new(setup.manner, clock::monotonic());
    let mut away = || progress.say("the daemon is away: waiting for it");
    let (link, job) = link::open(&setup.identity, count, &mut away)?;
    let request = &job.view.job.request;
    let goes_on =
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
    let goes_on_with = !known.is_empty();
    let (own, run) = (setup.identity.job, setup.identity.run);
    journal.push(&Entry::Head { job: own, run, file, resumed: setup.resume });
    for (name, past) in known {
        journal.push(&Entry::Before { name, past });
    }
    let mut shell =
        make_shell(setup, core, link, (*job, goes_on_with), journal, (launcher, progress))?;
    (shell.last_number, shell.goes_on) = (last_number, goes_on);
    drop(beginning);
    Ok(shell.run())
}

/// The job's `--signal`, where it is for the steps.
fn warning_of(request: &JobRequest) -> Option<Warning> {
    let asked = request.signal.filter(|asked| !asked.batch_only)?;
    Some(Warning { signal: asked.signal, before_secs: asked.before_secs.into() })
}

/// Opens the journal of this run of the job, and takes the steps in. The file as the journal knows
/// it, and what earlier managers of it have done.
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
    // Before this manager's own is the newest.
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
    (job, goes_on_with): (ManagedJob, bool),
    mut journal: Journal,
    (launcher, progress): (UnixStream, Progress),
) -> Result<Shell, RunError> {
    let now = clock::monotonic();
    let job_dir = setup.identity.paths.job_dir(setup.identity.job);
    let path = step_journal::path(&job_dir, setup.identity.run);
    journal.write().map_err(RunError::file("write", &path))?;
    let mut records = Records::new(&journal).map_err(RunError::file("write", &path))?;
    // What an earlier manager of this run could not tell.
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
        Launches::new(job, root, socket, setup.work_dir.clone(), setup.umask, goes_on_with);
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

/// The step that this process is of, as its environment tells.
pub fn step_within(told: Option<&str>) -> Option<StepId> {
    told.and_then(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_a_text_names_is_a_regular_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("rows"), "a\n").unwrap();
        std::os::unix::fs::symlink("rows", dir.path().join("link")).unwrap();
        nix::unistd::mkfifo(&dir.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(read_named(dir.path(), "rows").unwrap(), "a\n");
        assert_eq!(read_named(dir.path(), "link").unwrap(), "a\n");
        for name in ["fifo", ".", "/dev/zero"] {
            let why = read_named(dir.path(), name).unwrap_err();
            assert!(why.contains("regular file"), "{name}: {why}");
        }
    }
}
