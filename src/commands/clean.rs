//! `slotd clean`: deletes old jobs, through the daemon if one runs, else by itself.

use crate::args::error::CliError;
use crate::client::connection::{ClientError, Connection};
use crate::commands::output::{print, says_yes};
use crate::commands::{Done, now, paths, unexpected};
use crate::daemon;
use crate::model::{JobId, Timestamp};
use crate::parse::age::parse;
use crate::parse::error::SpecError;
use crate::protocol::answer::{Answer, Cleaned};
use crate::protocol::request::{Clean, Request};
use crate::render::size::{Units, kib};
use crate::render::time::iso;
use std::io::{self, IsTerminal};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  slotd clean --older-than 30d --dry-run   what it would delete, and how much that frees\n  slotd clean --older-than 30d             the same, then ask, and delete\n  slotd clean --older-than 30d --yes       delete without asking (scripts)"
)]
pub struct CleanArgs {
    /// Jobs that ended longer ago than this: 30d, 12h, 2w, or as Slurm writes a time (2-12,
    /// 1:30:00)
    #[arg(long, value_name = "AGE")]
    older_than: String,
    /// Print what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Delete without asking. Required if standard input or output is no terminal
    #[arg(short, long)]
    yes: bool,
}

pub fn run(args: &CleanArgs) -> Done {
    let age = parse(&args.older_than, "--older-than")
        .map_err(|e| CliError::error(2, e.to_string()).maybe_hint(e.hint))?;
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
        return print(&text(&clean(&all(true))?, true));
    }
    let mut what = all(false);
    if !args.yes {
        if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
            return Err(CliError::error(2, "nothing was deleted: there is no terminal to ask on")
                .hint("--yes deletes without asking, --dry-run prints what would be deleted"));
        }
        let planned = clean(&all(true))?;
        print(&text(&planned, true))?;
        if (planned.jobs, planned.bytes) == (0, 0) {
            return Ok(0);
        }
        if !says_yes("Delete them [y/n]? ") {
            print("nothing was deleted\n")?;
            return Ok(1);
        }
        what.except = [planned.recent, planned.needed].concat();
    }
    print(&text(&clean(&what)?, false))
}

/// Cleans through the daemon, or directly if none runs.
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
    let zone = crate::sys::zone::local();
    let (verb, would) =
        if dry_run { ("would be removed", "would free") } else { ("were removed", "freed") };
    let done = format!(
        "{} jobs that ended before {} {verb}; their directories {would} {}\n",
        cleaned.jobs,
        iso(cleaned.before, &zone),
        kib(cleaned.bytes.div_ceil(1024), Units::Exact)
    );
    let ends = cleaned.ends.filter(|_| dry_run).map(|(first, last)| {
        format!(
            "the first of them ended at {}, the last at {}\n",
            iso(first, &zone),
            iso(last, &zone)
        )
    });
    let recent = left(&cleaned.recent, "squeue still shows them (SLOTD_MIN_JOB_AGE)");
    let needed = left(
        &cleaned.needed,
        "a pending job depends on them, or their array has tasks that have not ended",
    );
    done + &ends.unwrap_or_default() + &recent + &needed
}

/// The numbers that one line names at most.
const NAMED: usize = 20;

/// The line about those that are not removed; empty where there are none.
fn left(jobs: &[JobId], why: &str) -> String {
    if jobs.is_empty() {
        return String::new();
    }
    let named: Vec<String> = jobs.iter().take(NAMED).map(JobId::to_string).collect();
    let more = match jobs.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{} jobs are left, since {why}: {}{more}\n", jobs.len(), named.join(" "))
}
