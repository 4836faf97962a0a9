//! `scontrol`: show jobs, the node and the partitions, and change jobs.
//!
//! One table of verbs is what dispatch, help and completion read. [`show`], [`update`] and
//! [`control`] hold the verbs.

pub mod command;
pub mod control;
mod errors;
mod session;
pub mod show;
mod site;
pub mod update;

use super::{Done, Entry, origin, output};
use crate::args::choices::{self, Applet, definition};
use crate::args::error::CliError;
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::commands::pages::texts;
use crate::parse::error::shown;
use crate::parse::suggest;
use crate::protocol::request::{ControlAction, Request};
use clap::Args;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use command::Command;
use session::{OutputOpts, Session, bare};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, IsTerminal};

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Scontrol>, run, page: &texts::SCONTROL };

const APPLET: Applet = Applet {
    name: "scontrol",
    about: "Show and change jobs, the node and the partitions",
    operands: Operands::Anywhere,
    usage_exit: 1,
    points_to_help: true,
    extras: &[extra::SCONTROL],
    variables: || vec![("SLURM_CLUSTERS", "clusters")],
    submission: "",
    examples: &[
        ("scontrol show job 12", "all about a job"),
        ("scontrol hold 12", "keep it from starting; release lets it start"),
        ("scontrol update JobId=12 TimeLimit=4:00:00", "change it"),
    ],
};

#[derive(Debug, Clone, Default, Args)]
pub struct Scontrol {
    #[command(flatten)]
    pub common: CommonOpts,
    /// Print this help
    #[arg(short, long)]
    pub help: bool,
    #[command(flatten)]
    pub output: OutputOpts,
    /// What to do; without it, commands are read from standard input, a line each
    #[arg(value_name = "COMMAND", value_parser = VerbParser)]
    pub words: Vec<String>,
    /// What the words say
    #[arg(skip)]
    pub command: Command,
}

/// How the words after a verb are read.
type ReadWords = fn(&[String], &Origin) -> Result<Command, CliError>;

/// A verb, how many letters of it are enough (scontrol man page), what it does, and how the words
/// after it are read.
struct Verb(&'static str, usize, &'static str, ReadWords);

/// What `scontrol` can do.
const VERBS: [Verb; 21] = [
    Verb(
        "show",
        2,
        "Show jobs, steps, the node, partitions, the settings, host lists",
        |words, origin| show::read(words, origin).map(Command::Show),
    ),
    Verb("hold", 4, "Keep pending jobs from starting", |words, _| {
        control::targets("hold", words).map(Command::Hold)
    }),
    Verb("uhold", 2, "The same", |words, _| {
        control::targets("uhold", words).map(Command::UserHold)
    }),
    Verb("release", 3, "End a hold", |words, _| {
        control::targets("release", words).map(Command::Release)
    }),
    Verb("requeue", 3, "Put running or ended jobs back into the queue", |words, _| {
        control::requeued("requeue", words).map(Command::Requeue)
    }),
    Verb("requeuehold", 8, "The same, and hold them there", |words, _| {
        control::requeued("requeuehold", words).map(Command::RequeueHold)
    }),
    Verb("suspend", 2, "Stop running jobs", |words, _| {
        control::targets("suspend", words).map(Command::Suspend)
    }),
    Verb("resume", 3, "Let suspended jobs run on", |words, _| {
        control::targets("resume", words).map(Command::Resume)
    }),
    Verb(
        "update",
        2,
        "Change a job, a partition or the node: JobId=12 TimeLimit=2:00:00, NodeName=n1 State=DRAIN Reason=dust Gres=gpu:0",
        update::read,
    ),
    Verb(
        "reconfigure",
        3,
        "Read slotd.toml, and look for CPUs, memory and GPUs again",
        |words, _| control::alone("reconfigure", words, Command::Reconfigure),
    ),
    Verb("top", 3, "Put pending jobs before the others of their user", |words, _| {
        control::jobs("top", words).map(Command::Top)
    }),
    Verb("write", 2, "Write the script of a job: batch_script 12 [FILE]", |words, _| {
        control::write(words)
    }),
    Verb("notify", 1, "Tell a job something", |words, _| control::notify(words)),
    Verb("listpids", 1, "List the processes of jobs", |words, _| control::list_pids(words)),
    Verb("wait_job", 2, "Tell whether a job has its node", |words, _| control::wait_job(words)),
    Verb("completing", 2, "Show the jobs that are ending", |words, _| {
        control::alone("completing", words, Command::Completing)
    }),
    Verb("pidinfo", 3, "Show which job a process belongs to, and when it ends", |words, _| {
        control::pid_info(words)
    }),
    Verb("errnumstr", 3, "Print the text of an error number", |words, _| errors::read(words)),
    Verb("help", 2, "Print this help", |words, _| control::alone("help", words, Command::Help)),
    Verb("ping", 3, "Tell whether the daemon answers", |words, _| {
        control::alone("ping", words, Command::Ping)
    }),
    Verb("version", 4, "Print the version", |words, _| {
        control::alone("version", words, Command::Version)
    }),
];

/// Takes any words, as verbs may be shortened; knows the verbs for help and completion.
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
        Some(Box::new(
            VERBS.iter().map(|Verb(name, _, about, _)| PossibleValue::new(*name).help(*about)),
        ))
    }
}

/// Commands of Slurm for which there is nothing to command here.
const REFUSED: [(&str, &str); 12] = [
    ("abort", "stop the daemon as it was started"),
    ("cancel_reboot", "the host is not rebooted by slotd"),
    ("cluster", "there are no other clusters"),
    ("fsdampeningfactor", "there is no fair share"),
    ("power", "the host is not powered by slotd"),
    ("reboot", "the host is not rebooted by slotd"),
    ("schedloglevel", "the daemon's log is set by SLOTD_LOG"),
    ("setdebug", "the daemon's log is set by SLOTD_LOG"),
    ("setdebugflags", "the daemon's log is set by SLOTD_LOG"),
    ("shutdown", "stop the daemon as it was started"),
    ("takeover", "there is no second daemon"),
    ("token", "the socket's owner is the only user"),
];

/// Makes a command of a command line.
///
/// # Errors
/// Slurm's texts, exit code 1.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Scontrol, CliError> {
    let (mut scontrol, _) = choices::parse::<Scontrol>(APPLET, argv, origin)?;
    scontrol.command = command(&scontrol.words, origin)?;
    Ok(scontrol)
}

/// One command in words: of the command line, or of a line of standard input.
///
/// # Errors
/// As [`parse`].
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
    if verb == "delete" && rest.first().is_some_and(|entity| !is_deletable(entity)) {
        return Err(bare(format!("Invalid deletion entity: {}", shown(&rest.join(" ")))));
    }
    if let "create" | "delete" = verb.as_str() {
        return Err(bare(format!(
            "{verb} is not supported by slotd: {}",
            instead_of(&verb, rest.first())
        )));
    }
    if let Some((name, why)) = REFUSED.iter().find(|(name, _)| *name == verb) {
        return Err(bare(format!("{name} is not supported by slotd: {why}")));
    }
    let unknown = bare(format!("invalid keyword: {}", shown(word)));
    Err(unknown.hint(suggest::one_of("commands", &verb, VERBS.iter().map(|known| known.0))))
}

/// What to do instead of creating or deleting something.
fn instead_of(verb: &str, entity: Option<&String>) -> &'static str {
    let word = entity.map(|word| word.to_ascii_lowercase()).unwrap_or_default();
    let key = word.split('=').next().unwrap_or_default();
    let is = |names: [&str; 2]| key.len() >= 3 && names.iter().any(|name| name.starts_with(key));
    match verb {
        _ if is(["reservation", "reservationname"]) => {
            "there are no reservations; scontrol update NodeName=... State=DRAIN keeps jobs away, also from some of the CPUs"
        }
        _ if is(["node", "nodename"]) => "there is one node, this host",
        "create" => "add the partition to slotd.toml and call scontrol reconfigure",
        _ => "take the partition out of slotd.toml and call scontrol reconfigure",
    }
}

/// `PartitionName=x` and the like: what Slurm could delete.
fn is_deletable(entity: &str) -> bool {
    let key = entity.split('=').next().unwrap_or_default().to_ascii_lowercase();
    ["partitionname", "reservationname", "nodename"]
        .iter()
        .any(|name| key.len() >= 3 && name.starts_with(&key))
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    let scontrol = parse(argv, &origin)?;
    match (Session { output: &scontrol.output, origin: &origin }).carry_out(&scontrol.command) {
        Err(error) if scontrol.output.quiet => Ok(u8::try_from(error.exit).unwrap_or(1)),
        done => done,
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
            Command::Requeue(jobs) => self.control(jobs, ControlAction::Requeue, None),
            Command::RequeueHold(jobs) => self.control(jobs, ControlAction::RequeueHold, None),
            Command::Suspend(targets) => {
                self.control(&self.jobs_of(targets)?, ControlAction::Suspend, None)
            }
            Command::Resume(targets) => {
                self.control(&self.jobs_of(targets)?, ControlAction::Resume, None)
            }
            Command::Top(jobs) => self.control(jobs, ControlAction::Top, None),
            Command::Update { target, updates } => self.update(target, updates),
            Command::UpdatePartition { name, settings } => {
                let (name, settings) = (name.clone(), settings.clone());
                site::change(&Request::UpdatePartition { name, settings }, "slurm_update")
            }
            Command::UpdateNode { name, order } => self.update_node(name, order),
            Command::Reconfigure => site::change(&Request::Reconfigure, "slurm_reconfigure"),
            Command::WriteScript { job, file } => control::write_script(job, file.as_deref()),
            Command::Notify { job, message } => {
                let tell = ControlAction::Notify(message.clone());
                self.control(std::slice::from_ref(job), tell, None)
            }
            Command::ListPids(job) => self.list_pids(job.as_ref()),
            Command::WaitJob(job) => self.wait_job(job),
            Command::Completing => self.completing(),
            Command::PidInfo(pid) => self.pid_info(*pid),
            Command::ErrorText(number) => output::print(&format!("{}\n", errors::text(*number))),
            Command::Help => {
                output::print(&definition::<Scontrol>(APPLET).render_help().to_string())
            }
            Command::Ping => self.ping(),
            Command::Version => {
                output::print(&format!("slurm-wlm {}\n", crate::render::ctx::VERSION))
            }
            Command::Interactive => self.interactive(),
        }
    }

    /// Commands from standard input, a line each, until `quit` or the end. Slurm prompts whoever
    /// writes them, and shows what it read where no terminal does.
    fn interactive(&self) -> Done {
        let stdin = io::stdin();
        let is_terminal = stdin.is_terminal();
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
            let Some(words) = shlex::split(&line) else {
                eprintln!("scontrol: error: unbalanced quotes: {}", line.trim_end());
                code = 1;
                continue;
            };
            match words.first().map(String::as_str) {
                None => continue,
                Some("quit" | "exit" | "q" | "e") => return Ok(code),
                Some(_) => {}
            }
            match command(&words, self.origin).and_then(|command| self.carry_out(&command)) {
                Ok(0) => {}
                Ok(other) => code = other,
                Err(error) => {
                    if !self.output.quiet {
                        output::tell("scontrol", &error);
                    }
                    code = 1;
                }
            }
        }
    }
}
