//! `slotd clean`: deletes old jobs, through the daemon if it runs, otherwise directly.

use crate::args::error::CliError;
use crate::client::connection::{ClientError, Connection};
use crate::commands::output::{print, says_yes};
use crate::commands::{Done, now, paths, unexpected};
use crate::daemon;
use slotd_model::Timestamp;
use slotd_parse::age::parse;
use slotd_parse::error::SpecError;
use slotd_protocol::answer::{Answer, Cleaned};
use slotd_protocol::request::{Clean, Request};
use slotd_render::size::{Units, kib};
use slotd_render::time::iso;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  slotd clean --older-than 30d --dry-run   print what would be deleted and how much space that frees\n  slotd clean --older-than 30d             the same, then ask for confirmation and delete\n  slotd clean --older-than 30d --yes       delete without asking (scripts)"
)]
pub struct CleanArgs {
    /// Delete jobs that ended longer ago than this: 30d, 12h, 2w, or a time in Slurm's format
    /// (2-12, 1:30:00)
    #[arg(long, value_name = "AGE")]
    older_than: String,
    /// Print what would be deleted, but delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Delete without asking for confirmation. Required if standard input or output is not a
    /// terminal
    #[arg(short, long)]
    yes: bool,
}

pub fn run(args: &CleanArgs) -> Done {
    let age = older_than(&args.older_than)?;
    let before = i64::try_from(age.as_micros())
        .ok()
        .and_then(|age| now().0.checked_sub(age))
        .filter(|at| *at >= 0);
    let before = before.map(Timestamp).ok_or_else(|| {
        let invalid = SpecError::invalid_option("--older-than", &args.older_than);
        CliError::error(2, invalid.to_string()).maybe_hint(Some("no job ended before 1970"))
    })?;
    let all = |dry_run| Clean { before, except: Vec::new(), dry_run };
    if args.dry_run {
        return print(&(text(&clean(&all(true))?, true) + &older_copies()?));
    }
    let mut what = all(false);
    if !args.yes {
        can_ask()?;
        let planned = clean(&all(true))?;
        print(&text(&planned, true))?;
        if (planned.jobs, planned.runs, planned.bytes) == (0, 0, 0) {
            return Ok(0);
        }
        if !confirms()? {
            return Ok(1);
        }
        what.except = [planned.recent, planned.needed].concat();
    }
    print(&(text(&clean(&what)?, false) + &older_copies()?))
}

/// Returns the lines about databases that cleaning does not touch: those that a restore has
/// replaced. They are the user's to keep or to delete.
fn older_copies() -> Result<String, CliError> {
    let line = |path: PathBuf| {
        let path = path.display();
        format!("not cleaned: {path}, an older database; delete it if you do not need it\n")
    };
    Ok(daemon::kept_databases(&paths()?).into_iter().map(line).collect())
}

/// Parses the value of `--older-than`.
///
/// # Errors
/// Fails if it is not an age.
pub fn older_than(text: &str) -> Result<Duration, CliError> {
    parse(text, "--older-than").map_err(|e| CliError::error(2, e.to_string()).maybe_hint(e.hint))
}

/// Refuses to ask for confirmation without a terminal.
///
/// # Errors
/// Fails if standard input or output is not a terminal.
pub fn can_ask() -> Result<(), CliError> {
    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        return Ok(());
    }
    let text = "nothing was deleted: cannot ask for confirmation without a terminal";
    Err(CliError::error(2, text)
        .hint("--yes deletes without asking, --dry-run prints what would be deleted"))
}

/// Asks whether to delete what was listed.
///
/// # Errors
/// Fails if standard output cannot be written.
pub fn confirms() -> Result<bool, CliError> {
    if says_yes("Delete them [y/n]? ") {
        return Ok(true);
    }
    print("nothing was deleted\n")?;
    Ok(false)
}

/// Cleans through the daemon, or directly if it does not run.
fn clean(what: &Clean) -> Result<Cleaned, CliError> {
    match Connection::open(&paths()?) {
        Ok(daemon) => by_daemon(daemon, what.clone()),
        Err(ClientError::NoDaemon { .. }) => daemon::clean_directly(&paths()?, what.clone())
            .map_err(|e| CliError::error(1, e.to_string())),
        Err(e) => Err(e.into()),
    }
}

fn by_daemon(mut daemon: Connection, what: Clean) -> Result<Cleaned, CliError> {
    match daemon.ask(&Request::Clean(what), &[])?.0 {
        Answer::Cleaned(cleaned) => Ok(cleaned),
        Answer::Refused(why) => Err(CliError::error(1, why.to_string())),
        other => Err(unexpected(&other)),
    }
}

fn text(cleaned: &Cleaned, dry_run: bool) -> String {
    let zone = slotd_sys::zone::local();
    let is_one = cleaned.jobs == 1;
    let (verb, would) = match (dry_run, is_one) {
        (true, _) => ("would be deleted", "would free"),
        (false, true) => ("was deleted", "freed"),
        (false, false) => ("were deleted", "freed"),
    };
    let done = format!(
        "{} that ended before {} {verb}; {} {would} {}\n",
        count(cleaned.jobs),
        iso(cleaned.before, &zone),
        if is_one { "its directory" } else { "their directories" },
        kib(cleaned.bytes.div_ceil(1024), Units::Exact)
    );
    let ends = cleaned.ends.filter(|_| dry_run).map(|(first, last)| {
        format!("the first ended at {}, the last at {}\n", iso(first, &zone), iso(last, &zone))
    });
    let runs = match (cleaned.runs, dry_run) {
        (0, _) => String::new(),
        (runs, true) => format!("earlier runs of unended jobs to delete: {runs}\n"),
        (runs, false) => format!("earlier runs of unended jobs deleted: {runs}\n"),
    };
    let recent = left("job", &cleaned.recent, |them, _| {
        format!("squeue still shows {them} (SLOTD_MIN_JOB_AGE)")
    });
    let needed = left("job", &cleaned.needed, |them, their| {
        format!("a pending job depends on {them} or {their} array has unfinished tasks")
    });
    done + &runs + &ends.unwrap_or_default() + &recent + &needed
}

fn count(jobs: u64) -> String {
    counted(jobs, "job")
}

/// Returns a number with its noun: `2 jobs`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Maximum number of job IDs listed on a line.
const NAMED: usize = 20;

/// Returns the line about jobs, or other things with this noun, that are not deleted, or an empty
/// string. `why` gets the pronouns for them.
pub fn left(noun: &str, kept: &[impl ToString], why: impl Fn(&str, &str) -> String) -> String {
    if kept.is_empty() {
        return String::new();
    }
    let named: Vec<String> = kept.iter().take(NAMED).map(ToString::to_string).collect();
    let more = match kept.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (are, why) = match kept.len() {
        1 => ("is", why("it", "its")),
        _ => ("are", why("them", "their")),
    };
    let count = counted(kept.len() as u64, noun);
    format!("{count} {are} kept, because {why}: {}{more}\n", named.join(" "))
}
