//! `slotd clean`: removes old jobs, through the daemon where one runs, else by itself.

use crate::args::error::CliError;
use crate::client::connection::{ClientError, Connection};
use crate::commands::{Done, now, paths, unexpected};
use crate::daemon;
use crate::model::Timestamp;
use crate::protocol::answer::{Answer, Cleaned};
use crate::protocol::request::Request;
use crate::render::size::{Units, kib};
use crate::render::time::iso;
use crate::spec::age::parse;

#[derive(Debug, clap::Args)]
pub struct CleanArgs {
    /// Jobs that ended longer ago than this: 30d, 12h, 2w, or as Slurm writes a time (2-12, 1:30:00)
    #[arg(long, value_name = "AGE")]
    older_than: String,
    /// Tell what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &CleanArgs) -> Done {
    let age =
        parse(&args.older_than, "--older-than").map_err(|e| CliError::error(2, e.to_string()).maybe_hint(e.hint))?;
    let before = Timestamp(now().0.saturating_sub(i64::try_from(age.as_micros()).unwrap_or(i64::MAX)));
    let cleaned = match Connection::open(&paths()?) {
        Ok(daemon) => by_daemon(daemon, before, args.dry_run)?,
        Err(ClientError::NoDaemon { .. }) => {
            daemon::clean_directly(&paths()?, before, args.dry_run).map_err(|e| CliError::error(1, e))?
        }
        Err(e) => return Err(e.into()),
    };
    println!("{}", text(&cleaned, args.dry_run));
    Ok(0)
}

fn by_daemon(mut daemon: Connection, before: Timestamp, dry_run: bool) -> Result<Cleaned, CliError> {
    match daemon.ask(&Request::Clean { before, dry_run }, &[])?.0 {
        Answer::Cleaned(cleaned) => Ok(cleaned),
        Answer::Refused(why) => Err(CliError::error(1, why.to_string())),
        other => Err(unexpected(&other)),
    }
}

fn text(cleaned: &Cleaned, dry_run: bool) -> String {
    let zone = crate::sys::zone::local();
    let (verb, would) = if dry_run { ("would be removed", "would free") } else { ("were removed", "freed") };
    format!(
        "{} jobs that ended before {} {verb}; their directories {would} {}",
        cleaned.jobs,
        iso(cleaned.before, &zone),
        kib(cleaned.bytes.div_ceil(1024), Units::Exact)
    )
}
