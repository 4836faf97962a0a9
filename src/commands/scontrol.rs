//! `scontrol`: shows jobs, the node and the partitions, and changes them.
//!
//! A single table of verbs serves dispatch, help and completion. [`show`], [`update`] and
//! [`control`] implement the verbs.

pub mod command;
pub mod control;
mod errors;
mod reservation;
mod session;
pub mod show;
mod site;
mod step;
pub mod update;

use super::{Done, Entry, origin, output};
use crate::args::choices::{self, Applet, definition};
use crate::args::error::CliError;
use crate::args::extra;
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::args::table::options;
use crate::args::value::{Parse, Why};
use crate::commands::pages::texts;
use crate::daemon::command_line::PlainQuery;
use clap::Args;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use command::{Command, Mode};
use session::{OutputOpts, Session, bare};
use show::Show;
use slotd_model::job::Hold;
use slotd_parse::error::shown;
use slotd_parse::suggest;
use slotd_protocol::request::{ControlAction, Request};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, IsTerminal};

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Scontrol>, run, page: &texts::SCONTROL };

const APPLET: Applet = Applet {
    extras: &[extra::SCONTROL],
    variables: || vec![("SLURM_CLUSTERS", "clusters")],
    examples: &[
        ("scontrol show job 12", "show all details of a job"),
        ("scontrol hold 12", "keep a pending job from starting until it is released"),
        ("scontrol update JobId=12 TimeLimit=4:00:00", "change the time limit of a job"),
    ],
    ..Applet::new("scontrol", "Show and change jobs, the node and the partitions")
};

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub struct Scontrol {
        #[command(flatten)]
        pub common: CommonOpts,
        /// Print this help
        #[arg(short, long)]
        pub help: bool,
        #[command(flatten)]
        pub output: OutputOpts,
        /// The command to run; without one, commands are read from standard input, one per line
        #[arg(value_name = "COMMAND", value_parser = VerbParser)]
        pub words: Vec<String>,
        /// The parsed command
        #[arg(skip)]
        pub command: Command,
    }
}

/// Parses the words after a verb.
type ReadWords = fn(&[String], &Origin) -> Result<Command, CliError>;

/// A verb, its shortest accepted abbreviation in letters (scontrol man page), its help text, and
/// the parser for the words after it.
struct Verb(&'static str, usize, &'static str, ReadWords);

/// The verbs of `scontrol`.
const VERBS: [Verb; 23] = [
    Verb(
        "show",
        2,
        "Show jobs, steps, the node, partitions, the configuration or host lists",
        |words, origin| show::read(words, origin).map(Command::Show),
    ),
    Verb("hold", 4, "Hold pending jobs", |words, _| {
        control::targets("hold", words).map(Command::Hold)
    }),
    Verb("uhold", 2, "Hold pending jobs, like hold", |words, _| {
        control::targets("uhold", words).map(Command::UserHold)
    }),
    Verb("release", 3, "Release held jobs", |words, _| {
        control::targets("release", words).map(Command::Release)
    }),
    Verb("requeue", 3, "Requeue running or ended jobs", |words, _| {
        control::requeued("requeue", words, None)
    }),
    Verb("requeuehold", 8, "Requeue jobs and hold them", |words, _| {
        control::requeued("requeuehold", words, Some(Hold::User))
    }),
    Verb("suspend", 2, "Suspend running jobs", |words, _| {
        control::targets("suspend", words).map(Command::Suspend)
    }),
    Verb("resume", 3, "Resume suspended jobs", |words, _| {
        control::targets("resume", words).map(Command::Resume)
    }),
    Verb(
        "update",
        2,
        "Update a job, a step, a partition, a reservation or the node: JobId=12 TimeLimit=2:00:00, StepId=12.0 TimeLimit=10, NodeName=n1 State=DRAIN Reason=dust Gres=gpu:0",
        update::read,
    ),
    Verb(
        "create",
        2,
        "Create a reservation: reservation StartTime=now Duration=60 CoreCnt=4 Users=ann",
        create,
    ),
    Verb("delete", 2, "Delete a reservation: ReservationName=ann_1", |words, _| delete(words)),
    Verb("reconfigure", 3, "Read slotd.toml and detect CPUs, memory and GPUs again", |words, _| {
        control::alone("reconfigure", words, Command::Reconfigure)
    }),
    Verb("top", 3, "Move pending jobs ahead of their user's other jobs", |words, _| {
        control::jobs("top", words).map(Command::Top)
    }),
    Verb("write", 2, "Write the script of a job to a file: batch_script 12 [FILE]", |words, _| {
        control::write(words)
    }),
    Verb("notify", 1, "Send a message to a job", |words, _| control::notify(words)),
    Verb("listpids", 1, "List the processes of jobs", |words, _| control::list_pids(words)),
    Verb("wait_job", 2, "Report whether a job has its node", |words, _| control::wait_job(words)),
    Verb("completing", 2, "Show completing jobs", |words, _| {
        control::alone("completing", words, Command::Completing)
    }),
    Verb("pidinfo", 3, "Show which job a process belongs to and when the job ends", |words, _| {
        control::pid_info(words)
    }),
    Verb("errnumstr", 3, "Print the text of an error number", |words, _| errors::read(words)),
    Verb("help", 2, "Print this help", |words, _| control::alone("help", words, Command::Help)),
    Verb("ping", 3, "Check whether the daemon responds", |words, _| {
        control::alone("ping", words, Command::Ping)
    }),
    Verb("version", 4, "Print the version", |words, _| {
        control::alone("version", words, Command::Version)
    }),
];

/// Returns the verbs and the commands of a session, with their help texts.
pub fn verbs() -> impl Iterator<Item = (&'static str, &'static str)> {
    let modes = MODES.iter().map(|(name, _, about, _)| (*name, *about));
    VERBS.iter().map(|Verb(name, _, about, _)| (*name, *about)).chain(modes)
}

/// A value parser that accepts any word, since verbs may be abbreviated. It provides the verbs for
/// help and completion.
#[derive(Clone)]
struct VerbParser;

impl TypedValueParser for VerbParser {
    type Value = String;

    fn parse_ref(
        &self,
        cmd: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(cmd, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(verbs().map(|(name, about)| PossibleValue::new(name).help(about))))
    }
}

impl Parse<String> for VerbParser {
    fn parse(&self, text: &str, _: &str) -> Result<String, Why> {
        Ok(text.to_owned())
    }
}

/// Slurm's commands that have nothing to act on here, with the reason.
const REFUSED: [(&str, &str); 12] = [
    ("abort", "stop the daemon the way it was started"),
    ("cancel_reboot", "slotd does not reboot the host"),
    ("cluster", "there are no other clusters"),
    ("fsdampeningfactor", "there is no fair share"),
    ("power", "slotd does not control the power of the host"),
    ("reboot", "slotd does not reboot the host"),
    ("schedloglevel", "SLOTD_LOG sets the daemon's log level"),
    ("setdebug", "SLOTD_LOG sets the daemon's log level"),
    ("setdebugflags", "SLOTD_LOG sets the daemon's log level"),
    ("shutdown", "stop the daemon the way it was started"),
    ("takeover", "there is no second daemon"),
    ("token", "only the owner of the socket can connect"),
];

/// The commands for an interactive session, each with its shortest accepted abbreviation in letters
/// and its help text.
const MODES: [(&str, usize, &str, Mode); 8] = [
    ("all", 2, "Include hidden partitions; there are none", Mode::Partitions),
    ("details", 3, "Show more details from now on", Mode::Details),
    ("exit", 1, "End the session", Mode::End),
    ("hide", 2, "Omit hidden partitions; there are none", Mode::Partitions),
    ("oneliner", 1, "Print one line per record from now on", Mode::Oneliner),
    ("quiet", 4, "Print no messages from now on", Mode::Quiet),
    ("quit", 1, "End the session", Mode::End),
    ("verbose", 4, "Print messages again", Mode::Verbose),
];

/// Parses a command line.
///
/// # Errors
/// Fails with Slurm's messages and exit code 1.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Scontrol, CliError> {
    let (mut scontrol, _) = choices::parse::<Scontrol>(APPLET, argv, origin)?;
    scontrol.command = command(&scontrol.words, origin)?;
    Ok(scontrol)
}

/// Parses the words of one command, from the command line or a line of standard input.
///
/// # Errors
/// Fails like [`parse`].
pub fn command(words: &[String], origin: &Origin) -> Result<Command, CliError> {
    let Some((word, rest)) = words.split_first() else {
        return Ok(Command::Interactive);
    };
    let verb = match word.to_ascii_lowercase().as_str() {
        "holdjob" => "hold".to_owned(),
        verb => verb.to_owned(),
    };
    let is_meant = |known: &&Verb| verb.len() >= known.1 && known.0.starts_with(&verb);
    if let Some(Verb(.., read)) = VERBS.iter().find(is_meant) {
        return read(rest, origin);
    }
    let is_mode = |(name, least, ..): &&(&str, usize, &str, Mode)| {
        verb.len() >= *least && name.starts_with(&verb) && rest.is_empty()
    };
    if let Some((.., mode)) = MODES.iter().find(is_mode) {
        return Ok(Command::Mode(*mode));
    }
    if let Some((name, why)) = REFUSED.iter().find(|(name, _)| *name == verb) {
        return Err(bare(format!("{name} is not supported by slotd: {why}")));
    }
    let unknown = bare(format!("invalid keyword: {}", shown(word)));
    Err(unknown.hint(suggest::one_of("commands", &verb, VERBS.iter().map(|known| known.0))))
}

/// Parses the words after `create`. Without a name, they begin with another key of a reservation.
fn create(words: &[String], origin: &Origin) -> Result<Command, CliError> {
    match words.first() {
        Some(first) if is_of_site(first) => Err(not_here("create", first)),
        _ => reservation::read(reservation::Verb::Create, words, origin),
    }
}

/// Parses the words after `delete`.
fn delete(words: &[String]) -> Result<Command, CliError> {
    match words.first() {
        Some(first) if is_of_site(first) => Err(not_here("delete", first)),
        Some(first) if !reservation::is_reservation(first) => {
            Err(bare(format!("Invalid deletion entity: {}", shown(&words.join(" ")))))
        }
        _ => reservation::deletion(words),
    }
}

fn not_here(verb: &str, entity: &String) -> CliError {
    let instead = instead_of(verb, Some(entity));
    bare(format!("{verb} is not supported by slotd: {instead}"))
}

/// Returns whether a word names a partition or a node, which the configuration has. `nodename` is
/// the entity; `nodes` and `nodecnt` are keys of a reservation.
fn is_of_site(entity: &str) -> bool {
    let key = entity.split('=').next().unwrap_or_default().to_ascii_lowercase();
    let is = |name: &str, least: usize| key.len() >= least && name.starts_with(&key);
    key == "partition" || is("partitionname", 13) || key == "node" || is("nodename", 6)
}

/// Returns what to do instead of creating or deleting something.
fn instead_of(verb: &str, entity: Option<&String>) -> &'static str {
    let word = entity.map(|word| word.to_ascii_lowercase()).unwrap_or_default();
    let key = word.split('=').next().unwrap_or_default();
    let is = |names: [&str; 2]| key.len() >= 3 && names.iter().any(|name| name.starts_with(key));
    match verb {
        _ if is(["node", "nodename"]) => "this host is the only node",
        "create" => "add the partition to slotd.toml and run scontrol reconfigure",
        _ => "remove the partition from slotd.toml and run scontrol reconfigure",
    }
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    let scontrol = parse(argv, &origin)?;
    match (Session { output: &scontrol.output, origin: &origin }).carry_out(&scontrol.command) {
        Err(error) if scontrol.output.quiet => Ok(u8::try_from(error.exit).unwrap_or(1)),
        done => done,
    }
}

/// Returns the query of a plain command line: of `show job`.
pub(super) fn plain(argv: &[OsString], origin: Origin) -> Option<PlainQuery> {
    let scontrol = parse(argv, &origin).ok()?;
    match scontrol.command {
        Command::Show(Show::Jobs(Some(jobs))) => show::plain_jobs(jobs, scontrol.output, origin),
        _ => None,
    }
}

impl Mode {
    fn apply(self, output: &mut OutputOpts) {
        match self {
            Mode::Details => output.details = true,
            Mode::Oneliner => output.oneliner = true,
            Mode::Quiet => output.quiet = true,
            Mode::Verbose => output.quiet = false,
            Mode::Partitions | Mode::End => {}
        }
    }
}

impl Session<'_> {
    fn carry_out(&self, command: &Command) -> Done {
        match command {
            Command::Show(what) => self.show(what),
            Command::Hold(targets) | Command::UserHold(targets) => {
                self.control(&self.jobs_of(targets)?, ControlAction::Hold, control::SUSPEND_CALL)
            }
            Command::Release(targets) => {
                self.control(&self.jobs_of(targets)?, ControlAction::Release, control::SUSPEND_CALL)
            }
            Command::Requeue(jobs, hold) => self.control(jobs, ControlAction::Requeue(*hold), None),
            Command::Suspend(targets) => {
                self.control(&self.jobs_of(targets)?, ControlAction::Suspend, None)
            }
            Command::Resume(targets) => {
                self.control(&self.jobs_of(targets)?, ControlAction::Resume, None)
            }
            Command::Top(jobs) => self.control(jobs, ControlAction::Top, None),
            Command::Update { target, updates } => self.update(target, updates),
            Command::UpdateStep { step, limit } => self.update_step(step, limit),
            Command::UpdatePartition { name, settings } => {
                let (name, settings) = (name.clone(), settings.clone());
                site::change(&Request::UpdatePartition { name, settings }, "slurm_update")
            }
            Command::UpdateNode { name, order } => self.update_node(name, order),
            Command::Reservation { order, entity } => self.order_reservation(order, entity),
            Command::Reconfigure => site::change(&Request::Reconfigure, "slurm_reconfigure"),
            Command::WriteScript { job, file } => control::write_script(job, file.as_deref()),
            Command::Notify { job, message } => {
                let notify = ControlAction::Notify(message.clone());
                self.control(std::slice::from_ref(job), notify, None)
            }
            Command::ListPids(job) => self.list_pids(job.as_ref()),
            Command::WaitJob(job) => self.wait_job(job),
            Command::Completing => self.completing(),
            Command::PidInfo(pid) => self.pid_info(*pid),
            Command::ErrorText(number) => output::print(&format!("{}\n", errors::text(*number))),
            Command::Mode(_) => Ok(0),
            Command::Help => {
                output::print(&definition::<Scontrol>(APPLET).render_help().to_string())
            }
            Command::Ping => self.ping(),
            Command::Version => {
                output::print(&format!("slurm-wlm {}\n", slotd_render::ctx::VERSION))
            }
            Command::Interactive => self.interactive(),
        }
    }

    /// Runs commands from standard input, one per line, until `quit` or the end. `!!` repeats the
    /// last one. Like Slurm, it prints a prompt, and echoes each line if the input is not a terminal.
    fn interactive(&self) -> Done {
        let stdin = io::stdin();
        let is_terminal = stdin.is_terminal();
        let mut output = self.output.clone();
        let mut last = String::new();
        let mut code = 0;
        loop {
            output::print("scontrol: ")?;
            let mut line = String::new();
            match stdin.lock().read_line(&mut line) {
                Ok(0) | Err(_) => {
                    output::print("\n")?;
                    return Ok(code);
                }
                Ok(_) => {}
            }
            if !is_terminal {
                output::print(&format!("{}\n", line.trim_end_matches('\n')))?;
            }
            match line.trim() {
                "!!" => line.clone_from(&last),
                _ => last.clone_from(&line),
            }
            let Some(words) = shlex::split(&line) else {
                report!("scontrol: error: unbalanced quotes: {}", line.trim_end());
                code = 1;
                continue;
            };
            if words.is_empty() {
                continue;
            }
            let session = Session { output: &output, ..*self };
            let done = match command(&words, self.origin) {
                Ok(Command::Mode(Mode::End)) => return Ok(code),
                Ok(Command::Mode(mode)) => {
                    mode.apply(&mut output);
                    continue;
                }
                command => command.and_then(|command| session.carry_out(&command)),
            };
            match done {
                Ok(0) => {}
                Ok(other) => code = other,
                Err(error) => {
                    if !output.quiet {
                        output::print_error("scontrol", &error);
                    }
                    code = 1;
                }
            }
        }
    }
}
