//! `sjobmgr`: the step manager of a job, and the commands that talk to a running one.
//!
//! Slurm has no such command, so its options are parsed by clap. Each verb has its own file.

mod control;
mod resize;
mod run;
mod submit;

use super::{Done, Entry, paths};
use crate::args::choices::{Applet, VERSION};
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::commands::pages::texts;
use crate::stepmgrd::{Client, socket_path};
use clap::{CommandFactory, Parser};
use slotd_model::JobId;
use slotd_stepmgr::api::Event;
use std::ffi::OsString;
use std::io::ErrorKind;

/// The entry of this command in the table of commands.
pub const ENTRY: Entry = Entry { applet: APPLET, define, run: main, page: &texts::SJOBMGR };

const APPLET: Applet = Applet {
    usage_exit: 2,
    ..Applet::new("sjobmgr", "Run many steps in a job, in dependency order and in parallel")
};

const TRY_HELP: &str = "Try \"sjobmgr --help\" for more information";

#[derive(Debug, Parser)]
#[command(name = APPLET.name, about = APPLET.about, version = VERSION, disable_help_subcommand = true)]
#[command(arg_required_else_help = true, term_width = 100)]
struct Words {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Run the steps of a file, or of standard input (-), in this job; outside a job, submit one
    Run(run::RunArgs),
    /// Submit a step to the manager of this job
    Submit(submit::SubmitArgs),
    /// Wait until steps, or all steps, have ended
    Wait(control::Names),
    /// List the steps with their states and the reasons of pending ones
    List(control::Names),
    /// Cancel steps
    Cancel(control::SomeNames),
    /// Prevent steps from starting
    Hold(control::SomeNames),
    /// Release held steps
    Release(control::SomeNames),
    /// Move steps ahead of all others
    Top(control::SomeNames),
    /// Change the size of the running job, or show pending changes
    Resize(resize::ResizeArgs),
    /// Show the progress of the manager
    Status(control::JobArg),
}

fn define(_: Applet) -> clap::Command {
    Words::command()
}

fn main(argv: &[OsString]) -> Done {
    // Like the other commands, without the name in front.
    if argv.get(1).is_some_and(|word| word == "--version" || word == "-V") {
        return super::output::print(&format!("{VERSION}\n"));
    }
    let words = std::iter::once(OsString::from(APPLET.name)).chain(argv.iter().skip(1).cloned());
    match Words::try_parse_from(words) {
        Ok(Words { verb }) => carry_out(verb),
        Err(text) if !text.use_stderr() => {
            super::output::print(&format!("{}\n", text.to_string().trim_end()))
        }
        Err(error) => {
            let text = error.to_string();
            let Some(text) = text.strip_prefix("error: ") else {
                return Err(CliError::new(Mark::Bare, APPLET.usage_exit, text.trim_end()));
            };
            let lines: Vec<&str> =
                text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
            Err(CliError::error(APPLET.usage_exit, lines.join(" ")).and(Mark::Bare, TRY_HELP))
        }
    }
}

fn carry_out(verb: Verb) -> Done {
    let origin = super::origin();
    match verb {
        Verb::Run(args) => run::run(&args, &origin),
        Verb::Submit(args) => submit::run(&args, &origin),
        Verb::Wait(args) => control::wait(&args, &origin),
        Verb::List(args) => control::list(&args, &origin),
        Verb::Cancel(args) => control::change(&args, &origin, control::Change::Cancel),
        Verb::Hold(args) => control::change(&args, &origin, control::Change::Hold),
        Verb::Release(args) => control::change(&args, &origin, control::Change::Release),
        Verb::Top(args) => control::change(&args, &origin, control::Change::Top),
        Verb::Resize(args) => resize::run(&args, &origin),
        Verb::Status(args) => control::status(&args, &origin),
    }
}

/// Returns the job that this process runs in.
fn own_job(origin: &Origin) -> Option<JobId> {
    origin.nonempty("SLURM_JOB_ID")?.parse().ok().map(JobId)
}

/// Returns the named job, or else the job that this process runs in.
///
/// # Errors
/// Fails if neither exists.
fn job_meant(named: Option<u32>, origin: &Origin) -> Result<JobId, CliError> {
    named.map(JobId).or_else(|| own_job(origin)).ok_or_else(|| {
        CliError::error(1, "not inside a job").hint("specify the job of the manager: --jobid=12")
    })
}

/// Connects to the manager of a job.
///
/// # Errors
/// Fails if no manager is running in the job.
fn connect_to(job: JobId) -> Result<Client, CliError> {
    Client::open(&socket_path(&paths()?, job)).map_err(|e| {
        let why = match e.kind() {
            // No socket, or no listener.
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => String::new(),
            _ => format!(": {e}"),
        };
        CliError::error(1, format!("no manager is running in job {job}{why}"))
            .hint("start one inside the job: sjobmgr run FILE")
    })
}

/// Connects to the manager of the named job, or else of this one.
///
/// # Errors
/// Fails if there is no job or no manager is running in it.
fn connect(named: Option<u32>, origin: &Origin) -> Result<Client, CliError> {
    connect_to(job_meant(named, origin)?)
}

/// Returns the next event of a manager that must answer.
///
/// # Errors
/// Fails if the manager has refused the request or has ended.
fn answer(client: &mut Client) -> Result<Event, CliError> {
    checked(client.next_event())
}

/// Checks an event of the manager.
///
/// # Errors
/// Fails as [`answer`] does.
fn checked(event: std::io::Result<Option<Event>>) -> Result<Event, CliError> {
    match event {
        Ok(Some(Event::Refused { error, hint })) => Err(CliError::error(1, error).maybe_hint(hint)),
        Ok(Some(Event::Lost { error })) => Err(CliError::error(1, error)),
        Ok(Some(event)) => Ok(event),
        Ok(None) => Err(CliError::error(1, "the manager has ended")),
        Err(e) => Err(CliError::error(1, format!("cannot reach the manager: {e}"))),
    }
}

/// Sends a request to the manager and returns its answer.
///
/// # Errors
/// Fails as [`answer`] does.
fn ask(client: &mut Client, what: &impl serde::Serialize) -> Result<Event, CliError> {
    client.ask(what).map_err(|e| CliError::error(1, format!("cannot reach the manager: {e}")))?;
    answer(client)
}
