//! What is asked of a manager that runs: wait, list, cancel, hold, release, top, status.

use super::{answer, ask, connect};
use crate::args::error::CliError;
use crate::args::origin::Origin;
use crate::commands::{Done, output};
use crate::jobmgr::api::{Ask, Event, Status};
use crate::jobmgr::core::Row;
use std::fmt::Write;

#[derive(Debug, clap::Args)]
pub struct JobArg {
    /// The job of the manager, where it is not this one
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
    /// Names or patterns of steps: fit-*; without them, all steps
    names: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub struct SomeNames {
    /// The job of the manager, where it is not this one
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
    CliError::error(1, format!("the manager's answer makes no sense here: {event:?}"))
}

/// The exit code is that of the worst of the steps.
pub fn wait(args: &Names, origin: &Origin) -> Done {
    let mut client = connect(args.job.jobid, origin)?;
    let mut event = ask(&mut client, &Ask::Wait { names: args.names.clone() })?;
    loop {
        match event {
            Event::Waited { exit_code } => return Ok(u8::try_from(exit_code).unwrap_or(1)),
            _ => event = answer(&mut client)?,
        }
    }
}

pub fn list(args: &Names, origin: &Origin) -> Done {
    let mut client = connect(args.job.jobid, origin)?;
    match ask(&mut client, &Ask::List { names: args.names.clone() })? {
        Event::List { steps } if args.job.json => print_json(&steps),
        Event::List { steps } => output::print(&table(&steps)),
        other => Err(unexpected(&other)),
    }
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
        Event::Changed { steps: 0 } => {
            Err(CliError::error(1, "none of these steps can be changed: they run, or have ended"))
        }
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
    let text = serde_json::to_string_pretty(value).map_err(|e| CliError::error(1, e.to_string()))?;
    output::print(&format!("{text}\n"))
}

fn table(steps: &[Row]) -> String {
    let width = steps.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(4);
    let mut out = format!("{:width$} {:9} {:>8} {:>8} {:>5} REASON\n", "NAME", "STATE", "STEP", "PRIORITY", "TRIES");
    for Row { name, state, step, priority, attempts, reason } in steps {
        let step = step.map_or_else(String::new, |step| step.to_string());
        let line = format!("{name:width$} {state:9} {step:>8} {priority:>8} {attempts:>5} {reason}");
        // Writing to a string does not fail.
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

fn lines(status: &Status) -> String {
    let Status { job, pid, steps, waiting, running, completed, failed, cancelled, skipped, .. } = status;
    let Status { cpus, mem_mb, gpus, halted, undelivered, .. } = status;
    format!(
        "JobId={job} ManagerPid={pid} Halted={}\n   \
         Steps={steps} Pending={waiting} Running={running} Completed={completed} Failed={failed} Cancelled={cancelled} \
         Skipped={skipped}\n   CPUs={cpus} Mem={mem_mb}M GPUs={gpus} Undelivered={undelivered}\n",
        if *halted { "Yes" } else { "No" }
    )
}
