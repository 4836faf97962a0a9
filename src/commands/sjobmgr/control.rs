//! The commands that talk to a running manager: wait, list, cancel, hold, release, top, status.

use super::{ask, checked, connect, connect_to, job_meant};
use crate::args::error::CliError;
use crate::args::origin::Origin;
use crate::commands::output::print_stderr;
use crate::commands::{Done, output, paths};
use crate::stepmgrd::ended::{self, Known};
use crate::stepmgrd::{Client, begin};
use slotd_model::{ExitCode, JobId, counted};
use slotd_stepmgr::api::{Ask, Event, Status};
use slotd_stepmgr::core::Row;
use std::fmt::Write;

#[derive(Debug, clap::Args)]
pub struct JobArg {
    /// Talk to the manager of this job [default: the current one]
    #[arg(long, value_name = "JOB")]
    jobid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub struct Names {
    #[command(flatten)]
    job: JobArg,
    /// Names or patterns of steps: fit-*. Without names, all steps
    names: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub struct SomeNames {
    /// Talk to the manager of this job [default: the current one]
    #[arg(long, value_name = "JOB")]
    jobid: Option<u32>,
    /// Names or patterns of steps: fit-*
    #[arg(required = true)]
    names: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
pub enum Change {
    Cancel,
    Hold,
    Release,
    Top,
}

fn unexpected(event: &Event) -> CliError {
    CliError::error(1, format!("unexpected answer from the manager: {event:?}"))
}

/// The source of the steps' states.
enum StepSource {
    Manager(Client),
    /// The manager has ended: the contents of its journal.
    Journal(Vec<Known>),
}

fn step_source(job: JobId) -> Result<StepSource, CliError> {
    let no_manager = match connect_to(job) {
        Ok(client) => return Ok(StepSource::Manager(client)),
        Err(error) => error,
    };
    let paths = paths()?;
    let dir = paths.job_dir(job);
    if !dir.exists() {
        return Err(no_manager);
    }
    // A manager that is starting listens before it releases the lock.
    let _beginning = begin(&paths, job)
        .map_err(|e| CliError::error(1, format!("cannot use the directory of job {job}: {e}")))?;
    if let Ok(client) = connect_to(job) {
        return Ok(StepSource::Manager(client));
    }
    let steps = ended::read(&dir).map_err(|e| {
        CliError::error(1, format!("cannot read the step journal of job {job}: {e}"))
    })?;
    if steps.is_empty() { Err(no_manager) } else { Ok(StepSource::Journal(steps)) }
}

/// Returns the steps with these names or patterns; without names, all steps.
fn named<'a>(steps: &'a [Known], names: &[String], job: JobId) -> Result<Vec<&'a Known>, CliError> {
    if names.is_empty() {
        return Ok(steps.iter().collect());
    }
    let mut found = Vec::new();
    for name in names {
        let matching = ended::matching(steps, name);
        if matching.is_empty() {
            let text =
                format!("the manager of job {job} has ended, and its journal has no step {name:?}");
            return Err(CliError::error(1, text).hint("sjobmgr list shows the names"));
        }
        found.extend(matching);
    }
    Ok(found)
}

/// Waits for steps. The exit code is that of the worst step.
pub fn wait(args: &Names, origin: &Origin) -> Done {
    let job = job_meant(args.job.jobid, origin)?;
    match step_source(job)? {
        StepSource::Manager(client) => wait_for(client, job, &args.names),
        StepSource::Journal(steps) => exit_code_of(&steps, job, &args.names),
    }
}

/// Waits until these steps, or their manager, have ended. Returns the exit code.
pub fn wait_for(mut client: Client, job: JobId, names: &[String]) -> Done {
    let ask = Ask::Wait { names: names.to_vec() };
    let mut event = client.ask(&ask).and_then(|()| client.next_event());
    loop {
        match event {
            Ok(Some(Event::Waited { exit_code })) => {
                return Ok(u8::try_from(exit_code).unwrap_or(1));
            }
            Ok(Some(other)) => drop(checked(Ok(Some(other)))?),
            // The manager has ended in the meantime.
            Ok(None) | Err(_) => {
                drop(client);
                return match step_source(job)? {
                    StepSource::Manager(client) => wait_for(client, job, names),
                    StepSource::Journal(steps) => exit_code_of(&steps, job, names),
                };
            }
        }
        event = client.next_event();
    }
}

/// Returns the exit code that waiting would have returned, from the journal.
fn exit_code_of(steps: &[Known], job: JobId, names: &[String]) -> Done {
    let steps = named(steps, names, job)?;
    let ends = steps.iter().filter_map(|step| step.end);
    let worst = ends.fold(ExitCode::OK, |worst, (_, exit)| worst.worse(exit)).as_shell();
    let left: Vec<&&Known> = steps.iter().filter(|step| step.end.is_none()).collect();
    let code = u8::try_from(worst).unwrap_or(1);
    let Some(first) = left.first() else { return Ok(code) };
    let text = format!(
        "{} of {} {} not run ({:?}): their manager has ended",
        left.len(),
        counted(steps.len(), "step"),
        if left.len() == 1 { "has" } else { "have" },
        first.name
    );
    Err(CliError::error(i32::from(code.max(1)), text)
        .hint("run them with sjobmgr run --resume FILE"))
}

pub fn list(args: &Names, origin: &Origin) -> Done {
    let job = job_meant(args.job.jobid, origin)?;
    let rows: Vec<Row> = match step_source(job)? {
        StepSource::Manager(mut client) => {
            match ask(&mut client, &Ask::List { names: args.names.clone() })? {
                Event::List { steps } => steps,
                other => return Err(unexpected(&other)),
            }
        }
        StepSource::Journal(steps) => {
            print_stderr(&format!(
                "sjobmgr: the manager of job {job} has ended: showing its journal\n"
            ));
            named(&steps, &args.names, job)?.into_iter().map(Known::row).collect()
        }
    };
    if args.job.json { print_json(&rows) } else { output::print(&table(&rows)) }
}

pub fn change(args: &SomeNames, origin: &Origin, change: Change) -> Done {
    let mut client = connect(args.jobid, origin)?;
    let names = args.names.clone();
    let request = match change {
        Change::Cancel => Ask::Cancel { names },
        Change::Hold => Ask::Hold { names },
        Change::Release => Ask::Release { names },
        Change::Top => Ask::Top { names },
    };
    match ask(&mut client, &request)? {
        Event::Changed { steps: 0 } => Err(CliError::error(
            1,
            "none of these steps can be changed: they are running or have ended",
        )),
        Event::Changed { .. } => Ok(0),
        other => Err(unexpected(&other)),
    }
}

pub fn status(args: &JobArg, origin: &Origin) -> Done {
    let mut client = connect(args.jobid, origin)?;
    match ask(&mut client, &Ask::Status)? {
        Event::Status(status) if args.json => print_json(&status),
        Event::Status(status) => output::print(&lines(&status)),
        other => Err(unexpected(&other)),
    }
}

fn print_json(value: &impl serde::Serialize) -> Done {
    let text =
        serde_json::to_string_pretty(value).map_err(|e| CliError::error(1, e.to_string()))?;
    output::print(&format!("{text}\n"))
}

fn table(steps: &[Row]) -> String {
    let width = steps.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(4);
    let mut out = format!(
        "{:width$} {:9} {:>8} {:>8} {:>5} REASON\n",
        "NAME", "STATE", "STEP", "PRIORITY", "TRIES"
    );
    for Row { name, state, step, priority, attempts, reason } in steps {
        let step = step.map_or_else(String::new, |step| step.to_string());
        let priority = priority.map_or_else(String::new, |priority| priority.to_string());
        let line =
            format!("{name:width$} {state:9} {step:>8} {priority:>8} {attempts:>5} {reason}");
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

fn lines(status: &Status) -> String {
    let Status { job, pid, steps, waiting, running, completed, failed, cancelled, skipped, .. } =
        status;
    let Status { cpus, mem_mb, gpus, halted, undelivered, .. } = status;
    format!(
        "JobId={job} ManagerPid={pid} Halted={}\n   \
         Steps={steps} Pending={waiting} Running={running} Completed={completed} Failed={failed} Cancelled={cancelled} \
         Skipped={skipped}\n   CPUs={cpus} Mem={mem_mb}M GPUs={gpus} Undelivered={undelivered}\n",
        if *halted { "Yes" } else { "No" }
    )
}
