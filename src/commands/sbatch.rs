//! `sbatch`: submit, and print the number when it is durable.

pub mod args;
pub mod options;

use super::output::print;
use super::tasks::{check_work_dir, client, hand_in, tell};
use super::{Done, Entry, paths, refused, submitting_origin, trial_refused, unexpected};
use crate::args::choices::definition;
use crate::args::error::{CliError, Mark};
use crate::client::connection::{ClientError, Connection, reopen};
use crate::commands::pages::texts;
use crate::commands::sbatch::args::{Sbatch, Text, parse};
use crate::model::batch_tasks::{BatchTasks, TaskRule};
use crate::model::query::JobQuery;
use crate::model::{JobId, JobRef, Timestamp};
use crate::protocol::answer::Answer;
use crate::protocol::frame::{FrameError, MAX_RAW};
use crate::protocol::request::{Request, Submit};
use crate::sys::paths::Paths;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: args::APPLET, define: definition::<options::SbatchOpts>, run, page: &texts::SBATCH };

pub fn run(argv: &[OsString]) -> Done {
    let origin = submitting_origin()?;
    submit(parse(argv, &origin, &mut read)?, &origin.tz)
}

fn read(text: Text<'_>) -> io::Result<Vec<u8>> {
    match text {
        Text::Stdin => {
            let stdin = io::stdin();
            if stdin.is_terminal() {
                tell(
                    "sbatch: reading the script from standard input: end it with Ctrl-D, or name a file (sbatch job.sh)\n",
                );
            }
            read_all(&mut stdin.lock())
        }
        Text::File(path) => read_all(&mut File::open(path)?),
        Text::Descriptor(fd) => {
            // SAFETY: the user named it; it is read and not closed, and a number that is not open is an error of read.
            let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
            read_all(&mut *file)
        }
    }
}

/// Never more than the daemon takes: `/dev/zero` has no end.
fn read_all(from: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_RAW as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_RAW {
        let why = format!("it is larger than {} MB", MAX_RAW >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

fn submit(sbatch: Sbatch, tz: &jiff::tz::TimeZone) -> Done {
    if sbatch.verbose > 0 {
        report("sbatch", &sbatch.defined);
    }
    let with_exit = |error: CliError| error.with_exit(sbatch.error_exit);
    check_work_dir(&sbatch.request, "sbatch").map_err(with_exit)?;
    let paths = paths()?;
    let raw = [sbatch.texts.script.as_slice(), &sbatch.texts.env].concat();
    let (tasks, rule) = (sbatch.request.task_count(), sbatch.request.task_rule(BatchTasks::Auto));
    let submit = Submit {
        request: sbatch.request,
        script_len: sbatch.texts.script.len(),
        wait: sbatch.wait,
        test_only: sbatch.test_only,
        client: client(false),
        again: false,
    };
    let (conn, answer) = hand_in(&paths, submit, &raw, "sbatch").map_err(with_exit)?;
    match answer {
        Answer::Refused(why) if sbatch.test_only => Err(with_exit(trial_refused(&why))),
        Answer::Refused(why) => Err(with_exit(refused("Batch job submission failed", &why))),
        Answer::WouldStart { job, at, cpus, partition } => {
            would_start("sbatch", job, at, cpus, &partition, tz);
            Ok(0)
        }
        Answer::Submitted { job } => {
            if !sbatch.quiet && tasks > 1 && io::stderr().is_terminal() {
                tell_tasks(&paths, job, tasks, rule);
            }
            let told = if sbatch.quiet {
                Ok(0)
            } else {
                print(&match (&sbatch.cluster, sbatch.parsable) {
                    (None, true) => format!("{job}\n"),
                    (Some(cluster), true) => format!("{job};{cluster}\n"),
                    (None, false) => format!("Submitted batch job {job}\n"),
                    (Some(cluster), false) => format!("Submitted batch job {job} on cluster {cluster}\n"),
                })
            };
            // The job is there, whether its number could be told or not.
            let told = told.map_err(|e| e.and(Mark::Error, format!("job {job} was submitted")));
            if sbatch.wait { wait(conn, &paths, job).and_then(|code| told.map(|_| code)) } else { told }
        }
        other => Err(unexpected(&other)),
    }
}

/// Tells what several tasks mean for the job. What the daemon is set to is its own to say.
fn tell_tasks(paths: &Paths, job: JobId, tasks: u32, rule: TaskRule) {
    let query = Request::Jobs(JobQuery { without_steps: true, ..JobQuery::of(vec![JobRef::job(job)]) });
    let answer = Connection::open(paths).and_then(|mut conn| conn.ask(&query, &[]));
    let Ok((Answer::Jobs(list), _)) = answer else { return };
    let Some(view) = list.jobs.first() else { return };
    let rule = match view.batch_ranks == rule.ranks {
        true => rule,
        false => TaskRule { ranks: view.batch_ranks, reason: "the daemon is set so".to_owned() },
    };
    tell(&format!("sbatch: {}\n", tasks_line(tasks, &rule)));
}

fn tasks_line(tasks: u32, TaskRule { ranks, reason }: &TaskRule) -> String {
    match ranks {
        true => {
            format!("the script runs {tasks} times, once for each task: {reason} (SLOTD_BATCH_TASKS=once changes that)")
        }
        false => {
            format!("the script runs once with room for {tasks} tasks: {reason} (SLOTD_BATCH_TASKS=ranks changes that)")
        }
    }
}

/// `-W`: the job's exit code; 1 where a signal or a cancellation ended it (golden B-14 to B-19).
///
/// A daemon that is restarted meanwhile is waited for, and asked again.
fn wait(mut conn: Connection, paths: &Paths, job: JobId) -> Done {
    let answer = loop {
        match conn.receive() {
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
            if view.run.state == crate::model::JobState::Completed {
                return Ok(0);
            }
            Ok(if exit.signal != 0 || exit.status == 0 { 1 } else { u8::try_from(exit.status).unwrap_or(1) })
        }
        Answer::Refused(why) => Err(CliError::error(1, why.to_string())),
        other => Err(unexpected(&other)),
    }
}

/// `--test-only` (golden B-40).
pub fn would_start(
    command: &str,
    job: JobId,
    at: Option<Timestamp>,
    cpus: u32,
    partition: &str,
    tz: &jiff::tz::TimeZone,
) {
    let node = crate::sys::system::probe_host_name();
    let when = at.map_or_else(|| "an unknown time".to_owned(), |at| crate::render::time::iso(at, tz));
    eprintln!(
        "{command}: Job {job} to start at {when} using {cpus} processors on nodes {node} in partition {partition}"
    );
}

/// What `-v` prints (golden A-09).
pub fn report(command: &str, defined: &[(String, String)]) {
    const RULE: &str = "-------------------- --------------------";
    eprintln!("{command}: defined options\n{command}: {RULE}");
    for (name, value) in defined {
        eprintln!("{command}: {name:<20}: {value}");
    }
    eprintln!("{command}: {RULE}\n{command}: end of defined options");
}
