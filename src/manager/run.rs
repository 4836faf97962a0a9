//! From what a user wants to a manager that runs: the text read, the job taken over, the journal opened.

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
use crate::jobmgr::core::{Core, Policy};
use crate::jobmgr::def::{OnFailure, StepDef};
use crate::jobmgr::graph::Refused;
use crate::jobmgr::language::{self, Fault, Form};
use crate::model::StepId;
use crate::protocol::answer::ManagedJob;
use crate::sys::{clock, proc};
use std::collections::BTreeMap;
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

/// Reads a file that a text names, from the manager's working directory.
pub fn read_named(work_dir: &Path, name: &str) -> Result<String, String> {
    std::fs::read_to_string(work_dir.join(name)).map_err(|e| e.to_string())
}

/// A step that the graph does not take, as a fault of its text.
pub fn fault_of(file: &str, refused: Refused) -> Fault {
    Fault { file: file.to_owned(), line: refused.line, text: refused.text, hint: refused.hint }
}

fn steps_of(setup: &Setup) -> Result<Vec<StepDef>, RunError> {
    let Source::File { name, path } = &setup.source else { return Ok(Vec::new()) };
    let text = std::fs::read_to_string(path).map_err(RunError::file("read", path))?;
    let read = |named: &str| read_named(&setup.work_dir, named);
    language::parse(Form::of(name, &text), name, &text, &read).map_err(RunError::Text)
}

/// Runs the manager in this process, which the launcher at the other end of `launcher` has forked. Its exit code.
///
/// # Errors
/// It could not begin: no step was started.
pub fn run(mut setup: Setup, launcher: UnixStream) -> Result<u8, RunError> {
    // A set of signals that there are can be blocked.
    let _ = shell::signals().thread_block();
    // Nothing is asked of anybody for a text that makes no sense.
    let steps = steps_of(&setup)?;
    setup.identity.client.pid = std::process::id();
    setup.identity.client.start_ticks =
        i32::try_from(setup.identity.client.pid).ok().and_then(proc::start_ticks).unwrap_or(0);
    let count = u32::try_from(steps.len()).unwrap_or(u32::MAX).saturating_add(SPARE_NUMBERS);
    let (link, job) = link::open(&setup.identity, count)?;
    let policy = Policy {
        on_failure: setup.on_failure,
        most_running: setup.most_running,
        grace: Duration::from_millis(job.grace_ms),
    };
    let mut core = Core::new(job.alloc.clone(), policy, job.end_us.map(Duration::from_micros));
    core.on_numbers(job.numbers.0..job.numbers.0.saturating_add(job.numbers.1));
    let (file, pasts, mut journal) = open_journal(&setup, &mut core, steps)?;
    let known = past::restore(&mut core, pasts, setup.resume_failed);
    let (own, run) = (setup.identity.job, setup.identity.run);
    journal.push(&Entry::Head { job: own, run, file, resumed: setup.resume });
    for (name, past) in known {
        journal.push(&Entry::Before { name, past });
    }
    let mut shell = make_shell(setup, core, link, *job, journal, launcher)?;
    Ok(shell.run())
}

/// Opens the journal of this run of the job, and takes the steps in. The file as the journal knows it, and what earlier
/// managers of it have done.
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
    std::fs::create_dir_all(&job_dir).map_err(RunError::file("make", &job_dir))?;
    // Before this manager's own is the newest.
    let others = if setup.resume { past::find(&paths.jobs_dir(), &file) } else { BTreeMap::new() };
    let path = step_journal::path(&job_dir, *run);
    let (mut journal, mut entries) = Journal::open(&path).map_err(RunError::file("open", &path))?;
    let lost: Vec<Entry> = past::lost_ends(&entries, clock::now()).into_iter().map(Entry::End).collect();
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
    job: ManagedJob,
    mut journal: Journal,
    launcher: UnixStream,
) -> Result<Shell, RunError> {
    let now = clock::monotonic();
    let job_dir = setup.identity.paths.job_dir(setup.identity.job);
    let path = step_journal::path(&job_dir, setup.identity.run);
    journal.write().map_err(RunError::file("write", &path))?;
    let mut records = Records::new(&journal).map_err(RunError::file("write", &path))?;
    // What an earlier manager of this run could not tell.
    for step in step_journal::undelivered(&job_dir, setup.identity.run).map_err(RunError::file("read", &path))? {
        records.put(step, now);
    }
    let socket = socket_path(&setup.identity.paths, setup.identity.job);
    let api = Api::open(&socket).map_err(RunError::file("listen at", &socket))?;
    let root = setup.identity.paths.root().to_string_lossy().into_owned();
    let numbers = job.numbers;
    let launches = Launches::new(job, root, socket, setup.work_dir.clone(), setup.umask);
    let input = match setup.source {
        Source::Pipe => Some(Input::default()),
        Source::File { .. } => None,
    };
    let progress = Progress::new(setup.manner, now);
    let parts = (setup.identity, setup.work_dir);
    Shell::new(parts, core, link, journal, records, launches, api, launcher, progress, input, numbers)
        .map_err(RunError::file("watch", &job_dir))
}

/// The step that this process is of, as its environment tells.
pub fn step_within(told: Option<&str>) -> Option<StepId> {
    told.and_then(|text| text.parse().ok())
}
