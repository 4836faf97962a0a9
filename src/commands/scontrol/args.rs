//! `scontrol`: look at one thing closely, and change it.

use crate::args::choices::{Applet, Reader};
use crate::args::error::{CliError, Mark};
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::options::{CommonOpts, DataOpts, Machine};
use crate::args::origin::Origin;
use crate::commands::scontrol::show_args::show;
use crate::commands::scontrol::update_args::update;
use crate::model::JobRef;
use crate::model::update::Update;
use crate::spec;
use crate::spec::error::shown;
use clap::Args;
use std::ffi::OsString;

pub use crate::commands::scontrol::show_args::Show;

pub const APPLET: Applet = Applet {
    name: "scontrol",
    about: "Show and change jobs, the node and the partitions",
    operands: Operands::Anywhere,
    usage_exit: 1,
    points_to_help: true,
    extras: &[extra::SCONTROL],
    variables: &[("SLURM_CLUSTERS", "clusters")],
    submission: "",
};

#[derive(Debug, Clone, Default, Args)]
pub struct ScontrolOpts {
    #[command(flatten)]
    pub common: CommonOpts,
    /// Print this help
    #[arg(short, long)]
    pub help: bool,
    /// Show more
    #[arg(short, long)]
    pub details: bool,
    #[command(flatten)]
    pub data: DataOpts,
    /// One line for each record
    #[arg(short, long)]
    pub oneliner: bool,
    /// No messages, only the exit code
    #[arg(short = 'Q', long)]
    pub quiet: bool,
    /// show, hold, release, requeue, suspend, resume, update, …; commands on standard input where there is none
    #[arg(value_name = "COMMAND")]
    pub operands: Vec<String>,
}

/// Jobs named by number or by name (`jobname=x`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Jobs(Vec<JobRef>),
    Name(String),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    Show(Show),
    Hold(Vec<Target>),
    /// A hold that the job's owner may release.
    UserHold(Vec<Target>),
    Release(Vec<Target>),
    Requeue(Vec<JobRef>),
    RequeueHold(Vec<JobRef>),
    Suspend(Vec<Target>),
    Resume(Vec<Target>),
    /// `update JobId=…`. Never empty.
    Update {
        target: Target,
        updates: Vec<Update>,
    },
    Top(Vec<JobRef>),
    /// `write batch_script`; the file is `-` for standard output, `None` for `slurm-<id>.sh`.
    WriteScript {
        job: JobRef,
        file: Option<String>,
    },
    Notify {
        job: JobRef,
        message: String,
    },
    /// `listpids`: of one job or step, or all.
    ListPids(Option<JobRef>),
    /// `wait_job`: until the job's node is ready, which it always is.
    WaitJob(JobRef),
    Ping,
    Version,
    /// No words at all: commands come from standard input, a line each, and go through [`command`].
    Interactive,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Scontrol {
    pub command: Command,
    pub oneliner: bool,
    pub details: bool,
    pub machine: Option<Machine>,
    /// `-Q`: no messages on failure, only the exit code.
    pub quiet: bool,
    pub verbose: u8,
}

/// Commands of Slurm for which there is nothing to command here.
const REFUSED: [(&str, &str); 16] = [
    ("abort", "stop the daemon as it was started"),
    ("cancel_reboot", "the host is not rebooted by slotd"),
    ("cluster", "there are no other clusters"),
    ("create", "partitions are set by SLOTD_CPU_PARTITIONS and SLOTD_GPU_PARTITIONS"),
    ("delete", "partitions are set by SLOTD_CPU_PARTITIONS and SLOTD_GPU_PARTITIONS"),
    ("errnumstr", "errors come with their texts"),
    ("fsdampeningfactor", "there is no fair share"),
    ("power", "the host is not powered by slotd"),
    ("reboot", "the host is not rebooted by slotd"),
    ("reconfigure", "the daemon reads its settings when it starts"),
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
/// Slurm's texts (golden H), exit code 1.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Scontrol, CliError> {
    let reader = Reader::scan::<ScontrolOpts>(APPLET, argv)?;
    let (options, choices) = reader.finish::<ScontrolOpts>(origin, &[])?;
    let words: Vec<String> = choices.operands.iter().map(|operand| operand.text.clone()).collect();
    Ok(Scontrol {
        command: if words.is_empty() { Command::Interactive } else { command(&words, origin)? },
        oneliner: options.oneliner,
        details: options.details,
        machine: options.data.machine(),
        quiet: options.quiet,
        verbose: options.common.verbose,
    })
}

/// One command in words: of the command line, or of a line of standard input.
///
/// # Errors
/// As [`parse`].
pub fn command(words: &[String], origin: &Origin) -> Result<Command, CliError> {
    let Some((verb, rest)) = words.split_first() else {
        return Ok(Command::Interactive);
    };
    let verb = verb.to_ascii_lowercase();
    // Beginnings of at least the given length are enough, as in scontrol.
    let is = |name: &str, least: usize| verb.len() >= least && name.starts_with(verb.as_str());
    if is("show", 2) {
        show(rest, origin).map(Command::Show)
    } else if is("hold", 4) || verb == "holdjob" {
        targets("hold", rest).map(Command::Hold)
    } else if is("uhold", 2) {
        targets("uhold", rest).map(Command::UserHold)
    } else if is("release", 3) {
        targets("release", rest).map(Command::Release)
    } else if is("requeuehold", 8) {
        jobs("requeuehold", without_option(rest)).map(Command::RequeueHold)
    } else if is("requeue", 3) {
        jobs("requeue", without_option(rest)).map(Command::Requeue)
    } else if is("suspend", 2) {
        targets("suspend", rest).map(Command::Suspend)
    } else if is("resume", 3) {
        targets("resume", rest).map(Command::Resume)
    } else if is("update", 2) {
        update(rest, origin)
    } else if is("top", 3) {
        jobs("top", rest).map(Command::Top)
    } else if is("write", 2) {
        write(rest)
    } else if is("notify", 1) {
        notify(rest)
    } else if is("listpids", 1) {
        list_pids(rest)
    } else if is("wait_job", 2) {
        let job = only("wait_job", rest)?;
        one_job(job).map(Command::WaitJob)
    } else if is("ping", 3) {
        nothing_after("ping", rest, Command::Ping)
    } else if is("version", 4) {
        nothing_after("version", rest, Command::Version)
    } else if verb == "delete" && rest.first().is_some_and(|entity| !is_deletable(entity)) {
        Err(bare(format!("Invalid deletion entity: {}", shown(&rest.join(" ")))))
    } else if let Some((name, why)) = REFUSED.iter().find(|(name, _)| *name == verb) {
        Err(bare(format!("{name} is not supported by slotd: {why}")))
    } else {
        Err(bare(format!("invalid keyword: {}", shown(words.first().map_or("", String::as_str)))))
    }
}

/// `PartitionName=x` and the like: what Slurm could delete.
fn is_deletable(entity: &str) -> bool {
    let key = entity.split('=').next().unwrap_or_default().to_ascii_lowercase();
    ["partitionname", "reservationname", "nodename"].iter().any(|name| key.len() >= 3 && name.starts_with(&key))
}

/// A refusal without a prefix, which is scontrol's way.
pub(crate) fn bare(text: impl Into<String>) -> CliError {
    CliError::new(Mark::Bare, 1, text)
}

pub(crate) fn too_few(keyword: &str) -> CliError {
    bare(format!("too few arguments for keyword:{keyword}"))
}

pub(crate) fn too_many(keyword: &str) -> CliError {
    bare(format!("too many arguments for keyword:{keyword}"))
}

/// `jobid=12`, `job=12`, `jobs=12` and a plain `12`: what is meant is the id.
pub(crate) fn id_text(word: &str) -> &str {
    match word.split_once('=') {
        Some((key, value)) if ["job", "jobs", "jobid", "jobids"].iter().any(|name| key.eq_ignore_ascii_case(name)) => {
            value
        }
        _ => word,
    }
}

fn one_job(word: &str) -> Result<JobRef, CliError> {
    spec::ids::parse_job(id_text(word)).map_err(|_| unknown_job(word))
}

fn unknown_job(word: &str) -> CliError {
    bare(format!("Invalid job id specified for job {}", shown(id_text(word))))
}

/// Ids, after the word `job` of the book or without it.
pub(crate) fn job_list(words: &[String]) -> Result<Vec<JobRef>, CliError> {
    let mut refs = Vec::new();
    for word in words {
        refs.extend(spec::ids::parse_job_list(id_text(word)).map_err(|_| unknown_job(word))?);
    }
    // What is done to a job is not done to one of its steps.
    match refs.iter().find(|named| named.step.is_some()) {
        Some(step) => Err(unknown_job(&step.to_string())),
        None => Ok(refs),
    }
}

/// The words after `job` of the book's forms (`hold job 12`); all of them without it.
pub(crate) fn without_job_word(words: &[String]) -> &[String] {
    match words.split_first() {
        Some((first, rest))
            if ["job", "jobs", "jobid"].iter().any(|word| first.eq_ignore_ascii_case(word)) && !rest.is_empty() =>
        {
            rest
        }
        _ => words,
    }
}

fn jobs(keyword: &str, words: &[String]) -> Result<Vec<JobRef>, CliError> {
    let words = without_job_word(words);
    if words.is_empty() { Err(too_few(keyword)) } else { job_list(words) }
}

fn targets(keyword: &str, words: &[String]) -> Result<Vec<Target>, CliError> {
    let words = without_job_word(words);
    if words.is_empty() {
        return Err(too_few(keyword));
    }
    words
        .iter()
        .map(|word| match word.split_once('=') {
            Some((key, name)) if ["jobname", "name"].iter().any(|known| key.eq_ignore_ascii_case(known)) => {
                Ok(Target::Name(name.to_owned()))
            }
            _ => job_list(std::slice::from_ref(word)).map(Target::Jobs),
        })
        .collect()
}

/// `requeue Incomplete 12`, `requeuehold State=SpecialExit 12`: the option has no meaning of its own here.
fn without_option(words: &[String]) -> &[String] {
    match words.split_first() {
        Some((first, rest))
            if first.eq_ignore_ascii_case("incomplete") || first.to_ascii_lowercase().starts_with("state=") =>
        {
            rest
        }
        _ => words,
    }
}

fn only<'a>(keyword: &str, words: &'a [String]) -> Result<&'a str, CliError> {
    match words {
        [] => Err(too_few(keyword)),
        [one] => Ok(one),
        _ => Err(too_many(keyword)),
    }
}

fn nothing_after(keyword: &str, words: &[String], command: Command) -> Result<Command, CliError> {
    if words.is_empty() { Ok(command) } else { Err(too_many(keyword)) }
}

fn write(words: &[String]) -> Result<Command, CliError> {
    let Some((what, rest)) = words.split_first() else {
        return Err(too_few("write"));
    };
    if !what.eq_ignore_ascii_case("batch_script") {
        return Err(bare(format!("invalid entity:{} for keyword:write", shown(what))));
    }
    match rest {
        [] => Err(too_few("write")),
        [job] => Ok(Command::WriteScript { job: one_job(job)?, file: None }),
        [job, file] => Ok(Command::WriteScript { job: one_job(job)?, file: Some(file.clone()) }),
        _ => Err(too_many("write")),
    }
}

fn notify(words: &[String]) -> Result<Command, CliError> {
    match words.split_first() {
        Some((job, message)) if !message.is_empty() => {
            Ok(Command::Notify { job: one_job(job)?, message: message.join(" ") })
        }
        _ => Err(too_few("notify")),
    }
}

/// A node after the job is the one there is.
fn list_pids(words: &[String]) -> Result<Command, CliError> {
    match words {
        [] => Ok(Command::ListPids(None)),
        [job] | [job, _] => Ok(Command::ListPids(Some(one_job(job)?))),
        _ => Err(too_many("listpids")),
    }
}
