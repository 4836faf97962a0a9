//! `srun`: a step, in an allocation of its own where there is none.

pub mod args;
pub mod options;

use super::output::print;
use super::tasks::{Reporter, all_streams, caller, check_work_dir, client, hand_in, tell, verdict};
use super::{Done, Entry, paths, refused, submitting_origin, unexpected};
use crate::args::choices::definition;
use crate::args::error::{CliError, Mark};
use crate::args::step::{Stream as Wanted, check_node};
use crate::client::connection::{ClientError, Connection, RECONNECT_TIMEOUT, reopen};
use crate::client::foreground::{Caller, Grant, StepOptions, StreamTasks, end_by_interrupt, run_step, wait_for_grant};
use crate::commands::pages::texts;
use crate::commands::srun::args::{Srun, parse};
use crate::model::job::ClientProcess;
use crate::model::query::JobQuery;
use crate::model::request::OpenMode;
use crate::model::view::JobView;
use crate::model::{ExitCode, JobId, JobRef, JobRequest, JobState, Reason};
use crate::protocol::answer::Answer;
use crate::protocol::frame::FrameError;
use crate::protocol::request::{Request, StepLaunch, Stream, Submit, TaskStreams};
use crate::spec::multi_prog;
use crate::sys::paths::Paths;
use crate::sys::{proc, system};
use nix::errno::Errno;
use std::ffi::OsString;
use std::io::IsTerminal;

const FAILURE: &str = "Unable to allocate resources";

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: args::APPLET, define: definition::<options::SrunOpts>, run, page: &texts::SRUN };

pub fn run(argv: &[OsString]) -> Done {
    let origin = submitting_origin()?;
    let srun = parse(argv, &origin)?;
    if srun.verbose > 0 {
        super::sbatch::report("srun", &srun.defined);
    }
    let code = srun.error_exit;
    carry_out(srun, &origin.tz).map_err(|error| if error.exit == 1 { error.with_exit(code) } else { error })
}

fn carry_out(srun: Srun, tz: &jiff::tz::TimeZone) -> Done {
    check_work_dir(&srun.request, "srun")?;
    match &srun.inside {
        Some(job) if !srun.no_wait && !srun.test_only => {
            let job = job.clone();
            inside(srun, &job)
        }
        _ if srun.no_wait || srun.test_only => submit_only(srun, tz),
        _ => outside(srun),
    }
}

/// `--no-wait`, `--test-only`.
fn submit_only(srun: Srun, tz: &jiff::tz::TimeZone) -> Done {
    let submit = Submit {
        request: srun.request,
        script_len: 0,
        wait: false,
        test_only: srun.test_only,
        client: client(false),
        again: false,
    };
    match hand_in(&paths()?, submit, &srun.env, "srun")?.1 {
        Answer::Refused(why) => Err(if srun.test_only { super::trial_refused(&why) } else { refused(FAILURE, &why) }),
        Answer::Submitted { job } => {
            if srun.quiet {
                Ok(0)
            } else {
                print(&format!("Submitted run job {job}\n"))
            }
        }
        Answer::WouldStart { job, at, cpus, partition } => {
            super::sbatch::would_start("srun", job, at, cpus, &partition, tz);
            Ok(0)
        }
        other => Err(unexpected(&other)),
    }
}

/// A step of a job that runs.
fn inside(srun: Srun, job: &JobRef) -> Done {
    let query = JobQuery { without_paths: true, without_steps: true, ..JobQuery::of(vec![job.clone()]) };
    let paths = paths()?;
    let (mut conn, answer) = confirm(&paths, job, &Request::Jobs(query))?;
    let jobs = match answer {
        Answer::Jobs(list) => list.jobs,
        Answer::Refused(why) => return Err(CliError::error(1, why.to_string())),
        other => return Err(unexpected(&other)),
    };
    let Some(view) = jobs.iter().find(|view| view.run.state.is_active()) else {
        return Err(no_allocation(job, &jobs));
    };
    check_node(&srun.step, view.id, &system::probe_host_name())?;
    let argv = commands(&srun, &view.request)?;
    let caller = caller(paths);
    step(&srun, argv, &mut conn, &caller, view)?.done()
}

/// Why none of these records of a job takes a step.
fn no_allocation(job: &JobRef, records: &[JobView]) -> CliError {
    let unable = |why: &str| format!("Unable to confirm allocation for job {job}: {why}");
    let text = if records.is_empty() {
        unable("Invalid job id specified")
    } else if records.iter().any(|view| view.run.state == JobState::Pending) {
        unable("Job is pending execution")
    } else {
        format!("Slurm job {job} has expired")
    };
    let hint = format!("Check SLURM_JOB_ID environment variable. Expired or invalid job {job}");
    CliError::error(1, text).and(Mark::Plain, hint)
}

/// Asks about the job. A daemon that is away while its job runs comes back: it is waited for.
fn confirm(paths: &Paths, job: &JobRef, request: &Request) -> Result<(Connection, Answer), CliError> {
    let ask = |mut conn: Connection| conn.ask(request, &[]).map(|(answer, _)| (conn, answer));
    match Connection::open(paths).and_then(ask) {
        Err(ClientError::NoDaemon { .. } | ClientError::Broken(FrameError::Closed | FrameError::Io(_))) => {
            tell(&format!("srun: Unable to confirm allocation for job {job}: the daemon is away, waiting for it\n"));
            Ok(reopen(paths, Some(RECONNECT_TIMEOUT)).and_then(ask)?)
        }
        other => Ok(other?),
    }
}

/// An allocation of its own, one step in it, and back.
fn outside(srun: Srun) -> Done {
    let argv = commands(&srun, &srun.request)?;
    let mut caller = caller(paths()?);
    let submit = Submit {
        request: srun.request.clone(),
        script_len: 0,
        wait: false,
        test_only: false,
        client: client(true),
        again: false,
    };
    let (mut conn, answer) = hand_in(&caller.paths, submit, &[], "srun")?;
    let job = match answer {
        Answer::Submitted { job } => job,
        Answer::Refused(why) => return Err(refused(FAILURE, &why).with_exit(srun.error_exit)),
        other => return Err(unexpected(&other)),
    };
    caller.allocation = Some(job);
    let mut told = false;
    // With --immediate nothing is queued: it starts, or it is refused.
    let quiet = srun.quiet || srun.request.immediate_secs.is_some();
    let mut queued = || {
        told = true;
        if !quiet {
            tell(&format!("srun: job {job} queued and waiting for resources\n"));
        }
    };
    let view = match wait_for_grant(&mut conn, &caller, job, &mut queued)? {
        Grant::Granted(view) => view,
        Grant::Ended(view) => return Err(revoked(&srun, job, &view)),
        Grant::Interrupted { typed } => {
            tell(&format!("srun: Job allocation {job} has been revoked\nsrun: Force Terminated JobId={job}\n"));
            if typed {
                end_by_interrupt();
            }
            return Ok(1);
        }
    };
    if told && !quiet {
        tell(&format!("srun: job {job} has been allocated resources\n"));
    }
    let done = step(&srun, argv, &mut conn, &caller, &view);
    // A step that failed before it ran ends its allocation as well: with this connection, if not by this request.
    let exit = match &done {
        Ok(end) => end.exit,
        Err(error) => ExitCode::status(error.exit),
    };
    let _ = conn.send(&Request::Release { job, exit }, &[]);
    done?.done()
}

fn revoked(srun: &Srun, job: JobId, view: &JobView) -> CliError {
    if srun.request.immediate_secs.is_some() {
        return CliError::error(srun.immediate_exit, "Unable to allocate resources: Requested nodes are busy");
    }
    if view.run.reason == Reason::CancelledByUser {
        return CliError::new(Mark::Plain, 1, "Job has been cancelled")
            .and(Mark::Error, format!("{FAILURE}: Job/step already completing or completed"));
    }
    CliError::new(Mark::Plain, 1, format!("Job allocation {job} has been revoked"))
        .and(Mark::Plain, format!("Force Terminated JobId={job}: {}", view.run.reason))
}

/// How a step ended.
struct StepEnd {
    /// The exit code of this client.
    code: u8,
    /// What the records say.
    exit: ExitCode,
    /// By Ctrl-C at this client's terminal.
    interrupted: bool,
}

impl StepEnd {
    fn done(self) -> Done {
        if self.interrupted {
            end_by_interrupt();
        }
        Ok(self.code)
    }
}

fn step(
    srun: &Srun,
    argv: Vec<Vec<String>>,
    conn: &mut Connection,
    caller: &Caller,
    view: &JobView,
) -> Result<StepEnd, CliError> {
    let (launch, options) = plan(srun, argv, view, caller.client);
    let mut reporter = Reporter::new("srun", srun.quiet);
    let outcome = match run_step(conn, caller, launch, &srun.env, &options, &mut reporter) {
        Err(ClientError::Interrupted(signal)) => {
            let code = u8::try_from(128 + signal).unwrap_or(1);
            let exit = ExitCode::signal(signal);
            return Ok(StepEnd { code, exit, interrupted: reporter.was_interrupted(exit) });
        }
        other => other?,
    };
    let node = system::probe_host_name();
    let (code, lines) = verdict(&node, view.id, &outcome)?;
    for line in lines {
        tell(&format!("srun: {line}\n"));
    }
    let exit = outcome.exit();
    Ok(StepEnd { code, exit, interrupted: reporter.was_interrupted(exit) })
}

/// The command of the tasks, or with `--multi-prog` of each.
fn commands(srun: &Srun, job: &JobRequest) -> Result<Vec<Vec<String>>, CliError> {
    if !srun.multi_prog {
        return Ok(vec![srun.command.clone()]);
    }
    let file = &srun.command[0];
    let text = std::fs::read_to_string(file).map_err(|e| {
        let why = e.raw_os_error().map_or_else(|| e.to_string(), |number| Errno::from_raw(number).desc().to_owned());
        CliError::error(1, format!("Could not open multi_prog config file {file}: {why}"))
    })?;
    multi_prog::parse(&text, file, srun.step.tasks(job), &srun.command[1..])
        .map_err(|e| CliError::error(1, e.to_string()))
}

/// The launch, and how its streams are connected.
fn plan(srun: &Srun, argv: Vec<Vec<String>>, view: &JobView, client: ClientProcess) -> (StepLaunch, StepOptions) {
    let ntasks = srun.step.tasks(&view.request);
    let streams = &srun.streams;
    let append = streams.open_mode == Some(OpenMode::Append);
    let mut options = StepOptions {
        label: streams.label,
        unbuffered: streams.unbuffered,
        quit_on_interrupt: srun.quit_on_interrupt,
        wait_secs: srun.wait_secs,
        ..all_streams()
    };
    if streams.pty {
        // As Slurm: without a terminal of our own there is nothing to relay.
        if std::io::stdin().is_terminal() {
            options.pty = true;
        } else {
            eprintln!("srun: error: Not using a pseudo-terminal, disregarding --pty option");
        }
    }
    let of = |wanted: &Wanted| match wanted {
        Wanted::All => (StreamTasks::All, Stream::Null),
        Wanted::None => (StreamTasks::Nobody, Stream::Null),
        Wanted::Task(task) => (StreamTasks::Task(*task), Stream::Null),
        Wanted::File(path) => (StreamTasks::Given, Stream::File { path: path.clone(), append }),
    };
    let (stdin, stdin_stream) = of(&streams.input);
    let (stdout, stdout_stream) = of(&streams.output);
    let (stderr, stderr_stream) = match &streams.error {
        Some(error) => of(error),
        // Where the output goes to a file, errors go with it.
        None if stdout == StreamTasks::Given => (StreamTasks::Given, Stream::SameAsStdout),
        None => (StreamTasks::All, Stream::Null),
    };
    (options.stdin, options.stdout, options.stderr) = (stdin, stdout, stderr);
    let task = TaskStreams { stdin: stdin_stream, stdout: stdout_stream, stderr: stderr_stream };
    let launch = StepLaunch {
        job: view.id,
        client,
        again: false,
        request: srun.step.clone(),
        argv,
        work_dir: srun.work_dir.clone(),
        umask: Some(proc::umask()),
        rlimits: srun.rlimits.clone(),
        streams: vec![task; ntasks as usize],
        pty: false,
        tie: None,
        label: streams.label,
    };
    (launch, options)
}
