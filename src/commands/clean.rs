//! `slotd clean`: removes old jobs, through the daemon where one runs, else by itself.

use crate::args::error::CliError;
use crate::client::connection::{ClientError, Connection};
use crate::commands::output::print;
use crate::commands::{Done, now, paths, unexpected};
use crate::daemon;
use crate::model::{JobId, Timestamp};
use crate::protocol::answer::{Answer, Cleaned};
use crate::protocol::request::Request;
use crate::render::size::{Units, kib};
use crate::render::time::iso;
use crate::spec::age::parse;
use crate::spec::error::SpecError;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  slotd clean --older-than 30d --dry-run   what it would remove, and how much that frees\n  slotd clean --older-than 30d"
)]
pub struct CleanArgs {
    /// Jobs that ended longer ago than this: 30d, 12h, 2w, or as Slurm writes a time (2-12, 1:30:00)
    #[arg(long, value_name = "AGE")]
    older_than: String,
    /// Tell what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
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
    let cleaned = match Connection::open(&paths()?) {
        Ok(daemon) => by_daemon(daemon, before, args.dry_run)?,
        Err(ClientError::NoDaemon { .. }) => {
            daemon::clean_directly(&paths()?, before, args.dry_run)
                .map_err(|e| CliError::error(1, e))?
        }
        Err(e) => return Err(e.into()),
    };
    print(&text(&cleaned, args.dry_run))
}

fn by_daemon(
    mut daemon: Connection,
    before: Timestamp,
    dry_run: bool,
) -> Result<Cleaned, CliError> {
    match daemon.ask(&Request::Clean { before, dry_run }, &[])?.0 {
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
    let recent = left(&cleaned.recent, "squeue still shows them (SLOTD_MIN_JOB_AGE)");
    let needed = left(
        &cleaned.needed,
        "a pending job depends on them, or their array has tasks that have not ended",
    );
    done + &recent + &needed
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
