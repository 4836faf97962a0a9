//! `sjobmgr`: the step manager of a job, and the commands that talk to one that runs.
//!
//! Slurm has no such command: its options are clap's own, and each verb has a file.

mod control;
mod resize;
mod run;
mod submit;

use super::{Done, Entry, paths};
use crate::args::choices::{Applet, VERSION};
use crate::args::error::{CliError, Mark};
use crate::args::getopt::Operands;
use crate::args::origin::Origin;
use crate::commands::pages::texts;
use crate::model::JobId;
use crate::stepmgr::api::Event;
use crate::stepmgrd::{Client, socket_path};
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::io::ErrorKind;

/// This command in the table of all.
pub const ENTRY: Entry = Entry { applet: APPLET, define, run: main, page: &texts::SJOBMGR };

const APPLET: Applet = Applet {
    name: "sjobmgr",
    about: "Run many steps in a job, in order and side by side",
    operands: Operands::Anywhere,
    usage_exit: 2,
    points_to_help: true,
    extras: &[],
    variables: Vec::new,
    submission: "",
    examples: &[],
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
    /// Run the steps of a file, or of standard input (-), in this job; outside of a job, submit one
    /// that does
    Run(run::RunArgs),
    /// Hand a step to the manager that runs in this job
    Submit(submit::SubmitArgs),
    /// Wait until steps have ended, or all
    Wait(control::Names),
    /// Show what waits and why, what runs, what ended
    List(control::Names),
    /// Cancel steps
    Cancel(control::SomeNames),
    /// Keep steps from starting
    Hold(control::SomeNames),
    /// End a hold
    Release(control::SomeNames),
    /// Put steps before all others
    Top(control::SomeNames),
    /// Give the job more or less while it runs, and show what it waits for
    Resize(resize::ResizeArgs),
    /// Show how far the manager is
    Status(control::JobArg),
}

fn define(_: Applet) -> clap::Command {
    Words::command()
}

fn main(argv: &[OsString]) -> Done {
    // As the other commands say it, without a name before it.
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

/// The job that this process is in.
fn own_job(origin: &Origin) -> Option<JobId> {
    origin.nonempty("SLURM_JOB_ID")?.parse().ok().map(JobId)
}

/// The job that is meant: this one, where none is named.
///
/// # Errors
/// There is none.
fn job_meant(named: Option<u32>, origin: &Origin) -> Result<JobId, CliError> {
    named.map(JobId).or_else(|| own_job(origin)).ok_or_else(|| {
        CliError::error(1, "this is not within a job")
            .hint("name the job of the manager: --jobid=12")
    })
}

/// # Errors
/// No manager runs in the job.
fn connect_to(job: JobId) -> Result<Client, CliError> {
    Client::open(&socket_path(&paths()?, job)).map_err(|e| {
        let why = match e.kind() {
            // There is no such socket, or nobody behind it.
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => String::new(),
            _ => format!(": {e}"),
        };
        CliError::error(1, format!("no manager runs in job {job}{why}"))
            .hint("start one within the job: sjobmgr run FILE")
    })
}

/// The manager of a job: of this one, where none is named.
///
/// # Errors
/// There is no job, or no manager runs in it.
fn connect(named: Option<u32>, origin: &Origin) -> Result<Client, CliError> {
    connect_to(job_meant(named, origin)?)
}

/// The next event of a manager that is expected to say something.
///
/// # Errors
/// It has refused what was asked, or has ended.
fn answer(client: &mut Client) -> Result<Event, CliError> {
    understood(client.next_event())
}

/// # Errors
/// As of [`answer`].
fn understood(event: std::io::Result<Option<Event>>) -> Result<Event, CliError> {
    match event {
        Ok(Some(Event::Refused { error, hint })) => Err(CliError::error(1, error).maybe_hint(hint)),
        Ok(Some(Event::Lost { error })) => Err(CliError::error(1, error)),
        Ok(Some(event)) => Ok(event),
        Ok(None) => Err(CliError::error(1, "the manager has ended")),
        Err(e) => Err(CliError::error(1, format!("the manager cannot be asked: {e}"))),
    }
}

/// # Errors
/// The manager is gone.
fn ask(client: &mut Client, what: &impl serde::Serialize) -> Result<Event, CliError> {
    client
        .ask(what)
        .map_err(|e| CliError::error(1, format!("the manager cannot be asked: {e}")))?;
    answer(client)
}
