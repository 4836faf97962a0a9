//! What sbatch, srun and salloc have in common: handing a job in, launching a step, and what is
//! said of them.

use super::sbatch::Sbatch;
use super::{paths, refused, unexpected};
use crate::args::error::{CliError, Mark};
use crate::client::connection::{ClientError, Connection, submit};
use crate::client::foreground::{Caller, StepObserver, StepOptions, StepOutcome, StreamTasks};
use crate::exec::snapshots::{self, Held, SnapshotError};
use crate::model::job::{Client, ClientProcess};
use crate::model::source::{Snapshot, WorkTree};
use crate::model::{ExitCode, JobId, JobRequest, StepId, Timestamp};
use crate::protocol::answer::Answer;
use crate::protocol::request::{Request, Submit};
use crate::render::time;
use crate::sys::paths::Paths;
use crate::sys::{clock, proc, system, user, work_tree};
use jiff::tz::TimeZone;
use nix::errno::Errno;
use std::ffi::CStr;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// This process as the one that submits, and that its allocation lives and dies with or not.
pub fn client(holds: bool) -> Client {
    let pid = std::process::id();
    let start_ticks = i32::try_from(pid).ok().and_then(proc::start_ticks).unwrap_or(0);
    Client {
        process: ClientProcess { pid, start_ticks, boot: clock::boot_id() },
        holds,
        until_granted: false,
    }
}

/// This process, for the daemon.
pub fn caller(paths: Paths) -> Caller {
    Caller { paths, allocation: None, client: client(false).process }
}

/// What becomes of a job that waits, whose client ends while no daemon is there.
pub fn stays_until_back(job: JobId) -> String {
    format!(
        "the daemon is away: job {job} stays in the queue until it is back, and is cancelled then"
    )
}

/// Says something in one write, so that several commands at one terminal do not tear each other's
/// lines.
pub fn tell(text: &str) {
    // Where standard error is gone there is nobody to tell that.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Hands a submission to the daemon. The connection is the one on which it was answered.
///
/// # Errors
/// No daemon is there; or it went away before it answered, and did not come back.
pub fn hand_in(
    paths: &Paths,
    mut submission: Submit,
    raw: &[u8],
    command: &str,
) -> Result<(Connection, Answer), CliError> {
    note_tree(&mut submission.request);
    let mut was_lost = false;
    let mut lost = || {
        was_lost = true;
        tell(&format!(
            "{command}: the daemon went away before it answered: waiting for it to come back\n"
        ));
    };
    submit(paths, submission, raw, &mut lost).map_err(|error| match error {
        error @ ClientError::NoDaemon { .. } if was_lost => CliError::from(error).and(
            Mark::Error,
            "the job may be in the queue or not: look with `squeue` or `sacct` before you submit it again",
        ),
        error => error.into(),
    })
}

/// Notes the commit of the work tree that the job works in: HEAD may be another one a moment later.
/// It costs a few reads of small files. `SLOTD_GIT=off` in the environment of the command keeps it
/// from looking.
pub fn note_tree(request: &mut JobRequest) {
    // That of a copy was noted when it was made.
    if request.snapshot.is_none() {
        // For another user, root would read what that user may not.
        let is_own = request.uid == nix::unistd::geteuid().as_raw();
        let is_off = !is_own || std::env::var_os("SLOTD_GIT").is_some_and(|word| word == "off");
        request.tree = if is_off { None } else { work_tree::probe(Path::new(&request.work_dir)) };
    }
}

/// A copy that takes longer is announced: a work tree may be huge, or have a FIFO where git reads a
/// file.
const SLOW_COPY: Duration = Duration::from_secs(5);

/// A copy of a work tree that no job runs in yet. If this process ends before one does, the daemon
/// deletes it.
pub struct Copied {
    held: Held,
    /// The daemon watches its end.
    _daemon: Connection,
}

impl Copied {
    /// Deletes it: no job is going to run in it.
    pub fn discard(self) {
        self.held.discard();
    }
}

/// `--snapshot`: copies the work tree that the job is to run in, and lets the job run in the copy.
/// What is returned holds it until the submission is answered; a refused one discards it.
///
/// # Errors
/// The working directory is in no work tree, no daemon is there, or the copy cannot be made:
/// nothing of it is left.
pub fn take_snapshot(request: &mut JobRequest, paths: &Paths) -> Result<Copied, CliError> {
    let tree = work_tree_of(request)?;
    let failed = |why: SnapshotError| {
        CliError::error(1, format!("the work tree {} cannot be copied for --snapshot: {why}", tree.root)).hint(
            "all files are copied that git knows or does not ignore: .gitignore can name large ones that no job needs",
        )
    };
    // Before anything is written: whoever owns that directory can replace what is made there.
    let mut daemon = Connection::open(paths)?;
    if daemon.owner() != nix::unistd::geteuid().as_raw() {
        let (owner, place) = (user::user_name(daemon.owner()), paths.snapshots_dir());
        let why = format!(
            "--snapshot copies into {}, and the daemon there runs as user {owner}",
            place.display()
        );
        return Err(CliError::error(1, why).hint("submit as that user, or without --snapshot"));
    }
    let mut held = snapshots::begin(paths, &tree).map_err(failed)?;
    let made = announce(&mut daemon, &held).and_then(|()| {
        let root = tree.root.clone();
        let note = move || {
            let what = format!("copying the work tree {root} takes long");
            tell(&format!("sbatch: {what}; Ctrl-C ends it, and nothing is submitted\n"));
        };
        noted_if_slow(SLOW_COPY, note, || held.fill(paths.root())).map_err(failed)?;
        run_in_copy(request, &held)
    });
    match made {
        Ok(()) => Ok(Copied { held, _daemon: daemon }),
        Err(why) => {
            held.discard();
            Err(why)
        }
    }
}

/// Does something, and calls `note` on another thread if that takes longer.
fn noted_if_slow<T>(
    patience: Duration,
    note: impl FnOnce() + Send + 'static,
    work: impl FnOnce() -> T,
) -> T {
    let (done, waits) = mpsc::channel::<()>();
    let noting = std::thread::spawn(move || {
        if waits.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            note();
        }
    });
    let result = work();
    drop(done);
    let _ = noting.join();
    result
}

/// Has the daemon hold the copy too, until the connection ends.
fn announce(daemon: &mut Connection, held: &Held) -> Result<(), CliError> {
    let request = Request::HoldCopy { name: held.name.clone() };
    daemon.send_with_fds(&request, &[], &[held.as_fd().as_raw_fd()])?;
    match daemon.receive()?.0 {
        Answer::Recorded => Ok(()),
        Answer::Refused(why) => Err(refused("Batch job submission failed", &why)),
        other => Err(unexpected(&other)),
    }
}

/// Has the job run in the matching directory of the copy.
fn run_in_copy(request: &mut JobRequest, held: &Held) -> Result<(), CliError> {
    let work_dir = Path::new(&request.work_dir);
    let own = fs::canonicalize(work_dir).unwrap_or_else(|_| work_dir.to_owned());
    let below = own.strip_prefix(&held.tree.root).unwrap_or(Path::new(""));
    let there = held.files().join(below);
    // git knows no empty directories.
    held.make_dir(below)
        .map_err(|why| CliError::error(1, format!("{}: {why}", there.display())))?;
    // An input that is ignored by git is where it was.
    if let Some(input) = request.std_in.as_mut().filter(|input| !input.contains(['%', '\\']))
        && !there.join(&*input).exists()
        && own.join(&*input).exists()
    {
        *input = own.join(&*input).to_string_lossy().into_owned();
    }
    let output_dir = std::mem::replace(&mut request.work_dir, there.to_string_lossy().into_owned());
    request.snapshot = Some(Snapshot { name: held.name.clone(), output_dir });
    request.tree = Some(held.tree.clone());
    Ok(())
}

/// The work tree that a job with `--snapshot` works in.
///
/// # Errors
/// There is none, or the job works in git's own files of one.
pub fn work_tree_of(request: &JobRequest) -> Result<WorkTree, CliError> {
    let work_dir = Path::new(&request.work_dir);
    let tree = work_tree::probe(work_dir).ok_or_else(|| {
        let none =
            format!("--snapshot copies a git work tree, and {} is in none", request.work_dir);
        let error = CliError::error(1, none);
        match work_tree::of_another_user(work_dir) {
            Some((dot_git, owner)) => error.hint(format!(
                "{} belongs to user {owner}: only your own repositories count",
                dot_git.display()
            )),
            None => error,
        }
    })?;
    match work_tree::git_dir_around(work_dir, Path::new(&tree.root)) {
        Some(git_dir) => Err(CliError::error(
            1,
            format!(
                "--snapshot copies a git work tree, and {} is in git's own directory {}",
                request.work_dir,
                git_dir.display()
            ),
        )
        .hint(format!("submit from the work tree, such as {}", tree.root))),
        None => Ok(tree),
    }
}

/// Submits what a command line of sbatch says, for a command that waits for nothing here.
///
/// # Errors
/// As of [`hand_in`], or it is refused.
pub fn submit_parsed(sbatch: Sbatch, command: &str) -> Result<JobId, CliError> {
    let Sbatch { mut request, texts, snapshot, .. } = sbatch;
    let copy = snapshot.then(|| take_snapshot(&mut request, &paths()?)).transpose()?;
    let raw = [texts.script.as_slice(), &texts.env].concat();
    let submission = Submit {
        request,
        script_len: texts.script.len(),
        texts_of: None,
        wait: false,
        test_only: false,
        client: client(false),
        again: false,
    };
    match hand_in(&paths()?, submission, &raw, command)?.1 {
        Answer::Refused(why) => {
            copy.into_iter().for_each(Copied::discard);
            Err(refused("Batch job submission failed", &why))
        }
        Answer::Submitted { job } => Ok(job),
        other => Err(unexpected(&other)),
    }
}

/// Looks for the working directory of a job. One that waits for other jobs or for a time may get it
/// from them: then a warning is enough.
///
/// # Errors
/// It is not there, no directory, or may not be entered.
pub fn check_work_dir(request: &JobRequest, command: &str) -> Result<(), CliError> {
    let dir = &request.work_dir;
    let entered =
        nix::sys::stat::stat(dir.as_str()).and_then(|found| match found.st_mode & libc::S_IFMT {
            libc::S_IFDIR => nix::unistd::access(dir.as_str(), nix::unistd::AccessFlags::X_OK),
            _ => Err(Errno::ENOTDIR),
        });
    let Err(errno) = entered else { return Ok(()) };
    let why = errno.desc();
    let waits =
        !request.dependency.is_empty() || request.begin.is_some_and(|begin| begin > super::now());
    if !waits {
        let hint = match errno {
            Errno::ENOENT => "make it, or name another one with --chdir",
            _ => "name another one with --chdir",
        };
        return Err(CliError::error(
            1,
            format!("unable to use the working directory {dir}: {why}"),
        )
        .hint(hint));
    }
    tell(&format!(
        "{command}: warning: the working directory {dir} must be there when the job starts: {why}\n"
    ));
    Ok(())
}

/// `--test-only`: when the job would start.
pub fn print_start(
    command: &str,
    job: JobId,
    at: Option<Timestamp>,
    cpus: u32,
    partition: &str,
    tz: &TimeZone,
) -> super::Done {
    let node = system::probe_host_name();
    let when = at.map_or_else(|| "an unknown time".to_owned(), |at| time::iso(at, tz));
    eprintln!(
        "{command}: Job {job} to start at {when} using {cpus} processors on nodes {node} in partition {partition}"
    );
    Ok(0)
}

/// `-v`: the options that were given.
pub fn print_defined(command: &str, defined: &[(String, String)]) {
    const RULE: &str = "-------------------- --------------------";
    eprintln!("{command}: defined options\n{command}: {RULE}");
    for (name, value) in defined {
        eprintln!("{command}: {name:<20}: {value}");
    }
    eprintln!("{command}: {RULE}\n{command}: end of defined options");
}

/// The kernel's word for a signal: `Killed`, `Segmentation fault`.
pub fn signal_text(signal: i32) -> String {
    // SAFETY: strsignal returns a string that lives until the next call in this thread.
    let text = unsafe { libc::strsignal(signal) };
    if text.is_null() {
        return format!("signal {signal}");
    }
    // SAFETY: not null, ended by a zero byte.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Slurm's lines about tasks that failed, those of one fate together:
/// `vm: tasks 0-1: Exited with exit code 7`.
pub fn failures(node: &str, tasks: &[ExitCode]) -> Vec<String> {
    let mut fates: Vec<(ExitCode, Vec<u32>)> = Vec::new();
    for (task, exit) in (0..).zip(tasks) {
        if exit.is_success() {
            continue;
        }
        match fates.iter_mut().find(|(fate, _)| fate == exit) {
            Some((_, list)) => list.push(task),
            None => fates.push((*exit, vec![task])),
        }
    }
    fates
        .into_iter()
        .map(|(exit, list)| {
            let plural = if list.len() > 1 { "tasks" } else { "task" };
            let which = crate::model::TaskSet::from_sorted(&list);
            let fate = match exit.signal {
                0 => format!("Exited with exit code {}", exit.status),
                _ if exit == ExitCode::OUT_OF_MEMORY => "Out Of Memory".to_owned(),
                signal => signal_text(signal),
            };
            format!("{node}: {plural} {which}: {fate}")
        })
        .collect()
}

/// Tells the user what happens while a step runs.
pub struct Reporter {
    command: &'static str,
    quiet: bool,
    raw: bool,
    interrupted: bool,
}

impl Reporter {
    pub fn new(command: &'static str, quiet: bool) -> Self {
        Reporter { command, quiet, raw: false, interrupted: false }
    }

    /// Whether Ctrl-C ended what ended so: then this process ends by it too.
    pub fn was_interrupted(&self, exit: ExitCode) -> bool {
        self.interrupted && exit == ExitCode::signal(libc::SIGINT)
    }

    fn news(&mut self, line: &str) {
        if !self.quiet {
            self.say(line);
        }
    }
}

impl StepObserver for Reporter {
    fn waits(&mut self, job: JobId) {
        self.news(&format!(
            "Job {job} step creation temporarily disabled, retrying (Requested nodes are busy)"
        ));
    }

    fn started(&mut self, job: JobId) {
        self.news(&format!("Step created for job {job}"));
    }

    fn aborted(&mut self, wait_secs: u64) {
        // The command of salloc is no step for the user: what is said of it is what became of the
        // allocation.
        if self.command == "srun" {
            self.say(&format!(
                "Job step aborted: Waiting up to {wait_secs} seconds for job step to finish."
            ));
        }
    }

    fn raw(&mut self, on: bool) {
        self.raw = on;
    }

    fn say(&mut self, line: &str) {
        let end = if self.raw { "\r\n" } else { "\n" };
        tell(&format!("{}: {line}{end}", self.command));
    }

    fn interrupted(&mut self) {
        self.interrupted = true;
    }
}

/// Options for a plain run: all tasks at this client's streams.
pub fn all_streams() -> StepOptions {
    StepOptions {
        stdin: StreamTasks::All,
        stdout: StreamTasks::All,
        stderr: StreamTasks::All,
        ..StepOptions::default()
    }
}

/// The exit code of a step as a shell's, and the lines that srun says about it.
pub fn verdict(
    node: &str,
    job: JobId,
    outcome: &StepOutcome,
) -> Result<(u8, Vec<String>), CliError> {
    match outcome {
        StepOutcome::Ended { step, record, stopped } => {
            let (exit, tasks) = (record.exit, &record.tasks);
            if let Some(error) = &record.launch_error {
                return Err(CliError::error(
                    1,
                    format!("task launch for StepId={job} failed: {error}"),
                ));
            }
            let mut lines: Vec<String> =
                failures(node, tasks).into_iter().map(|line| format!("error: {line}")).collect();
            // Of a step that was told to end srun has said so already.
            if !stopped && matches!(exit.signal, libc::SIGKILL | libc::SIGTERM) {
                lines.push(format!(
                    "Force Terminated StepId={job}.{}",
                    step.unwrap_or(StepId::Num(0))
                ));
            }
            Ok((u8::try_from(exit.as_shell()).unwrap_or(1), lines))
        }
        StepOutcome::Refused(why) => {
            Err(super::refused(&format!("Unable to create step for job {job}"), why))
        }
        StepOutcome::JobEnded(view) => {
            let code = if view.run.exit.is_success() {
                1
            } else {
                u8::try_from(view.run.exit.as_shell()).unwrap_or(1)
            };
            Ok((
                code,
                vec![format!("error: Job {job} is over: {} ({})", view.run.state, view.run.reason)],
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_longer_is_noted() {
        let (noted, notes) = mpsc::channel();
        let note = || {
            let noted = noted.clone();
            move || noted.send(()).unwrap()
        };
        // It ends when it has been noted.
        assert!(noted_if_slow(Duration::from_millis(1), note(), || notes.recv().is_ok()));
        assert_eq!(noted_if_slow(Duration::from_secs(3600), note(), || 7), 7);
        assert!(notes.try_recv().is_err());
    }

    #[test]
    fn tasks_of_one_fate_share_a_line() {
        let tasks = [
            ExitCode::status(7),
            ExitCode::status(7),
            ExitCode::OK,
            ExitCode::signal(libc::SIGKILL),
        ];
        assert_eq!(
            failures("vm", &tasks),
            ["vm: tasks 0-1: Exited with exit code 7", "vm: task 3: Killed"]
        );
        assert_eq!(failures("vm", &[ExitCode::OUT_OF_MEMORY]), ["vm: task 0: Out Of Memory"]);
    }
}
