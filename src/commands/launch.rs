//! Code that sbatch, srun and salloc share: submitting a job, running a step, and reporting on
//! both.

use super::output::print_stderr;
use super::sbatch::Sbatch;
use super::{paths, refused, unexpected};
use crate::args::error::{CliError, Mark};
use crate::client::connection::{ClientError, Connection, submit};
use crate::client::foreground::{Caller, StepObserver, StepOptions, StepOutcome, StreamTasks};
use jiff::tz::TimeZone;
use nix::errno::Errno;
use slotd_exec::snapshots::{self, Held, SnapshotError};
use slotd_model::job::{Client, ClientProcess};
use slotd_model::source::{Snapshot, WorkTree};
use slotd_model::{ExitCode, JobId, JobRequest, StepId, Timestamp};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::{Request, Submit};
use slotd_render::time;
use slotd_shortcut::Attempt;
use slotd_sys::paths::Paths;
use slotd_sys::{clock, proc, system, user, work_tree};
use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Returns this process as the submitter. `holds`: the allocation ends with the process.
pub fn client(holds: bool) -> Client {
    let pid = std::process::id();
    let start_ticks = i32::try_from(pid).ok().and_then(proc::start_ticks).unwrap_or(0);
    Client {
        process: ClientProcess { pid, start_ticks, boot: clock::boot_id() },
        holds,
        until_granted: false,
    }
}

/// Returns the identity of this process for the daemon.
pub fn caller(paths: Paths) -> Caller {
    Caller { paths, allocation: None, client: client(false).process }
}

/// Returns the message for a client that gives up on its pending job while the daemon is down.
pub fn stays_until_back(job: JobId) -> String {
    format!(
        "the daemon is down: job {job} stays in the queue until the daemon is back, and is then cancelled"
    )
}

/// Waits for the answer that the shortcut has left to the program. Returns the outcome of the
/// shortcut and, if it submitted the job, the text to print.
///
/// # Errors
/// Fails if the socket's other end cannot be identified.
pub fn end_attempt(paths: &Paths) -> Result<(Attempt, Vec<u8>), CliError> {
    let Some(socket) = slotd_shortcut::socket() else {
        return Ok((slotd_shortcut::attempt(), Vec::new()));
    };
    // SAFETY: the shortcut left this descriptor open, and this function runs once.
    let socket = unsafe { UnixStream::from_raw_fd(socket) };
    Ok(match Connection::adopt(socket, paths)?.receive() {
        Ok((Answer::Printed, text)) => (Attempt::Submitted, text),
        Ok((Answer::NotPlain | Answer::ScriptWanted, _)) => (Attempt::None, Vec::new()),
        Err(error) if error.is_away() => (Attempt::Lost, Vec::new()),
        Ok(_) | Err(_) => (Attempt::Answered, Vec::new()),
    })
}

/// Submits a job and returns the answer with the connection it arrived on.
///
/// # Errors
/// Fails if no daemon is running, or if it stopped before it answered and did not come back.
pub fn hand_in(
    paths: &Paths,
    submission: Submit,
    raw: &[u8],
    command: &str,
) -> Result<(Connection, Answer), CliError> {
    hand_in_after(Attempt::None, paths, submission, raw, command)
}

/// Submits a job like [`hand_in`], after an attempt of the shortcut. If the daemon may have
/// accepted the job already, the submission is a repeated one.
///
/// # Errors
/// Fails like [`hand_in`].
pub fn hand_in_after(
    attempt: Attempt,
    paths: &Paths,
    mut submission: Submit,
    raw: &[u8],
    command: &str,
) -> Result<(Connection, Answer), CliError> {
    note_tree(&mut submission.request);
    let mut was_lost = false;
    let mut lost = || {
        if !std::mem::replace(&mut was_lost, true) {
            print_stderr(&format!(
                "{command}: the daemon stopped before it answered: waiting for it to come back\n"
            ));
        }
    };
    submission.again = attempt != Attempt::None;
    submission.after_shortcut = submission.again;
    if attempt == Attempt::Lost {
        lost();
    }
    submit(paths, submission, raw, &mut lost).map_err(|error| match error {
        error @ ClientError::NoDaemon { .. } if was_lost => CliError::from(error).and(
            Mark::Error,
            "the job may or may not be in the queue: check with `squeue` or `sacct` before you submit it again",
        ),
        error => error.into(),
    })
}

/// Records the commit of the work tree that the job runs in, since HEAD may move right after. This
/// reads a few small files. `SLOTD_GIT=off` in the command's environment disables it.
pub fn note_tree(request: &mut JobRequest) {
    // A copy recorded its commit when it was made.
    if request.snapshot.is_none() {
        // Root, submitting for another user, would read files that the user may not.
        let is_own = request.uid == nix::unistd::geteuid().as_raw();
        let is_off = !is_own || std::env::var_os("SLOTD_GIT").is_some_and(|word| word == "off");
        request.tree = if is_off {
            None
        } else {
            work_tree::probe(Path::new(&request.work_dir)).map(Box::new)
        };
    }
}

/// The time after which a message reports that the copy is not finished. A work tree may be huge,
/// or contain a FIFO that blocks git.
pub const SLOW_COPY: Duration = Duration::from_secs(5);

/// A copy of a work tree that no job uses yet. The daemon deletes it if this process ends before a
/// job does.
pub struct Copied {
    held: Held,
    /// The daemon deletes the copy when this connection ends.
    _daemon: Connection,
}

impl Copied {
    /// Deletes the copy, because no job will run in it.
    pub fn discard(self) {
        self.held.discard();
    }
}

/// Copies the work tree of the job and makes the job run in the copy (`--snapshot`). The returned
/// value keeps the copy until the submission is answered. If it is refused, discard the copy.
///
/// # Errors
/// Fails if the working directory is not in a work tree, if no daemon is running, or if the copy
/// cannot be made, in which case nothing of it remains.
pub fn take_snapshot(request: &mut JobRequest, paths: &Paths) -> Result<Copied, CliError> {
    let tree = work_tree_of(request)?;
    let failed = |why: SnapshotError| {
        CliError::error(1, format!("cannot copy the work tree {} for --snapshot: {why}", tree.root)).hint(
            "--snapshot copies all files that git tracks or does not ignore: list large files that jobs do not need in .gitignore",
        )
    };
    // Checked before anything is written, because the owner of that directory could replace the
    // files.
    let mut daemon = Connection::open(paths)?;
    if daemon.owner() != nix::unistd::geteuid().as_raw() {
        let (owner, place) = (user::user_name(daemon.owner()), paths.snapshots_dir());
        let why = format!(
            "--snapshot copies into {}, but the daemon there runs as user {owner}",
            place.display()
        );
        return Err(CliError::error(1, why).hint("submit as that user, or without --snapshot"));
    }
    let mut held = snapshots::begin(paths, &tree).map_err(failed)?;
    let made = announce(&mut daemon, &held).and_then(|()| {
        let root = tree.root.clone();
        let note = move || {
            let what = format!("copying the work tree {root} is taking a while");
            print_stderr(&format!(
                "sbatch: {what}; press Ctrl-C to stop without submitting the job\n"
            ));
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

/// Runs `work`, and calls `note` on another thread if it takes longer than `patience`.
pub fn noted_if_slow<T>(
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

/// Makes the daemon hold the copy too, until the connection ends.
fn announce(daemon: &mut Connection, held: &Held) -> Result<(), CliError> {
    let request = Request::HoldCopy { name: held.name.clone() };
    daemon.send_with_fds(&request, &[], &[held.as_fd().as_raw_fd()])?;
    match daemon.receive()?.0 {
        Answer::Recorded => Ok(()),
        Answer::Refused(why) => Err(refused("Batch job submission failed", &why)),
        other => Err(unexpected(&other)),
    }
}

/// Makes the job run in the matching directory of the copy.
fn run_in_copy(request: &mut JobRequest, held: &Held) -> Result<(), CliError> {
    let work_dir = Path::new(&request.work_dir);
    let own = fs::canonicalize(work_dir).unwrap_or_else(|_| work_dir.to_owned());
    let below = own.strip_prefix(&held.tree.root).unwrap_or(Path::new(""));
    let there = held.files().join(below);
    // git does not track empty directories.
    held.make_dir(below)
        .map_err(|why| CliError::error(1, format!("{}: {why}", there.display())))?;
    // An input file that git ignores is not in the copy, so the job reads the original.
    if let Some(input) = request.std_in.as_mut().filter(|input| !input.contains(['%', '\\']))
        && !there.join(&*input).exists()
        && own.join(&*input).exists()
    {
        *input = own.join(&*input).to_string_lossy().into_owned();
    }
    let output_dir = std::mem::replace(&mut request.work_dir, there.to_string_lossy().into_owned());
    request.snapshot = Some(Box::new(Snapshot { name: held.name.clone(), output_dir }));
    request.tree = Some(Box::new(held.tree.clone()));
    Ok(())
}

/// Returns the work tree that a job with `--snapshot` runs in.
///
/// # Errors
/// Fails if the working directory is not in a work tree, or if it is inside a `.git` directory.
pub fn work_tree_of(request: &JobRequest) -> Result<WorkTree, CliError> {
    let work_dir = Path::new(&request.work_dir);
    let tree = work_tree::probe(work_dir).ok_or_else(|| {
        let none =
            format!("--snapshot copies a git work tree, but {} is not in one", request.work_dir);
        let error = CliError::error(1, none);
        match work_tree::of_another_user(work_dir) {
            Some((dot_git, owner)) => error.hint(format!(
                "{} belongs to user {owner}: only your own repositories can be copied",
                dot_git.display()
            )),
            None => error,
        }
    })?;
    match work_tree::git_dir_around(work_dir, Path::new(&tree.root)) {
        Some(git_dir) => Err(CliError::error(
            1,
            format!(
                "--snapshot copies a git work tree, but {} is in git's own directory {}",
                request.work_dir,
                git_dir.display()
            ),
        )
        .hint(format!("submit from the work tree, for example from {}", tree.root))),
        None => Ok(tree),
    }
}

/// Submits the job of a parsed sbatch command line without waiting for its end.
///
/// # Errors
/// Fails like [`hand_in`], or if the job is refused.
pub fn submit_parsed(sbatch: Sbatch, command: &str) -> Result<JobId, CliError> {
    let Sbatch { mut request, texts, snapshot, .. } = sbatch;
    let copy = snapshot.then(|| take_snapshot(&mut request, &paths()?)).transpose()?;
    let raw = [texts.script.as_slice(), &texts.env].concat();
    let submission = Submit {
        request,
        script_len: texts.script.len(),
        client: client(false),
        ..Submit::default()
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

/// Checks that the working directory of a job exists. If the job has a dependency or a begin time,
/// another job may still create it, so only a warning is printed.
///
/// # Errors
/// Fails if the path does not exist, is not a directory, or may not be entered.
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
            Errno::ENOENT => "create it, or choose another one with --chdir",
            _ => "choose another one with --chdir",
        };
        return Err(CliError::error(
            1,
            format!("unable to use the working directory {dir}: {why}"),
        )
        .hint(hint));
    }
    print_stderr(&format!(
        "{command}: warning: the working directory {dir} must exist when the job starts: {why}\n"
    ));
    Ok(())
}

/// Prints when the job would start (`--test-only`).
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
    report!(
        "{command}: Job {job} to start at {when} using {cpus} processors on nodes {node} in partition {partition}"
    );
    Ok(0)
}

/// Prints the options that were given (`-v`).
pub fn print_defined(command: &str, defined: &[(String, String)]) {
    const RULE: &str = "-------------------- --------------------";
    report!("{command}: defined options\n{command}: {RULE}");
    for (name, value) in defined {
        report!("{command}: {name:<20}: {value}");
    }
    report!("{command}: {RULE}\n{command}: end of defined options");
}

/// Returns the C library's name for a signal, such as `Killed` or `Segmentation fault`.
pub fn signal_text(signal: i32) -> String {
    // SAFETY: strsignal returns a string that stays valid until the next call in this thread.
    let text = unsafe { libc::strsignal(signal) };
    if text.is_null() {
        return format!("signal {signal}");
    }
    // SAFETY: the pointer is not null, and the string ends with a zero byte.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Returns Slurm's lines about failed tasks, one for each outcome: `vm: task 3: Killed`.
pub fn failures(node: &str, tasks: &[ExitCode]) -> Vec<String> {
    let mut outcomes: Vec<(ExitCode, Vec<u32>)> = Vec::new();
    for (task, exit) in (0..).zip(tasks) {
        if exit.is_success() {
            continue;
        }
        match outcomes.iter_mut().find(|(outcome, _)| outcome == exit) {
            Some((_, list)) => list.push(task),
            None => outcomes.push((*exit, vec![task])),
        }
    }
    outcomes
        .into_iter()
        .map(|(exit, list)| {
            let plural = if list.len() > 1 { "tasks" } else { "task" };
            let which = slotd_model::TaskSet::from_sorted(&list);
            let outcome = match exit.signal {
                0 => format!("Exited with exit code {}", exit.status),
                _ if exit == ExitCode::OUT_OF_MEMORY => "Out Of Memory".to_owned(),
                signal => signal_text(signal),
            };
            format!("{node}: {plural} {which}: {outcome}")
        })
        .collect()
}

/// Reports to the user while a step runs.
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

    /// Whether Ctrl-C caused this exit, in which case this process also ends with SIGINT.
    pub fn was_interrupted(&self, exit: ExitCode) -> bool {
        self.interrupted && exit == ExitCode::signal(libc::SIGINT)
    }

    fn info(&mut self, line: &str) {
        if !self.quiet {
            self.report(line);
        }
    }
}

impl StepObserver for Reporter {
    fn waits(&mut self, job: JobId) {
        self.info(&format!(
            "Job {job} step creation temporarily disabled, retrying (Requested nodes are busy)"
        ));
    }

    fn started(&mut self, job: JobId) {
        self.info(&format!("Step created for job {job}"));
    }

    fn aborted(&mut self, wait_secs: u64) {
        // Users of salloc do not see its command as a step. They get a message about the allocation
        // instead.
        if self.command == "srun" {
            self.report(&format!(
                "Job step aborted: Waiting up to {wait_secs} seconds for job step to finish."
            ));
        }
    }

    fn raw(&mut self, on: bool) {
        self.raw = on;
    }

    fn report(&mut self, line: &str) {
        let end = if self.raw { "\r\n" } else { "\n" };
        print_stderr(&format!("{}: {line}{end}", self.command));
    }

    fn interrupted(&mut self) {
        self.interrupted = true;
    }
}

/// Returns the options for a plain run: this client serves the streams of all tasks.
pub fn all_streams() -> StepOptions {
    StepOptions {
        stdin: StreamTasks::All,
        stdout: StreamTasks::All,
        stderr: StreamTasks::All,
        ..StepOptions::default()
    }
}

/// Returns a step's exit code as a shell reports it, and the lines that srun prints about it.
///
/// # Errors
/// Fails if the step was refused or could not be launched.
pub fn verdict(
    node: &str,
    job: JobId,
    outcome: &StepOutcome,
) -> Result<(u8, Vec<String>), CliError> {
    match outcome {
        StepOutcome::Ended { step, record, stopped, lost_output } => {
            let (exit, tasks) = (record.exit, &record.tasks);
            let step = step.unwrap_or(StepId::Num(0));
            if let Some(error) = &record.launch_error {
                return Err(CliError::error(
                    1,
                    format!("task launch for StepId={job}.{step} failed on node {node}: {error}"),
                ));
            }
            let mut lines: Vec<String> =
                failures(node, tasks).into_iter().map(|line| format!("error: {line}")).collect();
            // If srun ended the step itself, it has already printed this.
            if !stopped && matches!(exit.signal, libc::SIGKILL | libc::SIGTERM) {
                lines.push(format!("Force Terminated StepId={job}.{step}"));
            }
            let mut code = u8::try_from(exit.as_shell()).unwrap_or(1);
            if let Some(why) = lost_output {
                lines.push(format!("error: output of the tasks was lost: {why}"));
                code = code.max(1);
            }
            Ok((code, lines))
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
                vec![format!(
                    "error: Job {job} has ended: {} ({})",
                    view.run.state, view.run.reason
                )],
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::exit::ExitRecord;

    #[test]
    fn note_is_called_only_for_slow_work() {
        let (noted, notes) = mpsc::channel();
        let note = || {
            let noted = noted.clone();
            move || noted.send(()).unwrap()
        };
        // This work ends once the note is sent.
        assert!(noted_if_slow(Duration::from_millis(1), note(), || notes.recv().is_ok()));
        assert_eq!(noted_if_slow(Duration::from_secs(3600), note(), || 7), 7);
        assert!(notes.try_recv().is_err());
    }

    #[test]
    fn a_failed_launch_names_the_step_and_the_node() {
        let record = Box::new(ExitRecord::launch_failed("no space on disk".into(), Timestamp(0)));
        let step = Some(StepId::Num(3));
        let outcome = StepOutcome::Ended { step, record, stopped: false, lost_output: None };
        let error = verdict("vm", JobId(493), &outcome).unwrap_err();
        assert_eq!(
            error.text("srun"),
            "srun: error: task launch for StepId=493.3 failed on node vm: no space on disk\n"
        );
    }

    #[test]
    fn tasks_with_the_same_outcome_share_a_line() {
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
