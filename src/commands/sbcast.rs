//! `sbcast`: copies a file to the node of a job, which is this host.

use super::{Done, Entry, ask_job_list, origin};
use crate::args::choices::{self, Applet, definition};
use crate::args::error::{CliError, Mark};
use crate::args::extra;
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::args::table::options;
use crate::args::value::value;
use crate::commands::pages::texts;
use clap::Args;
use slotd_model::query::JobQuery;
use slotd_model::{JobRef, JobState, Refusal};
use slotd_parse::error::shown;
use slotd_protocol::request::Request;
use slotd_sys::files;
use slotd_sys::fresh::Fresh;
use slotd_sys::system::reason;
use std::ffi::OsString;
use std::fs::{File, FileTimes, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Sbcast>, run, page: &texts::SBCAST };

const APPLET: Applet = Applet {
    extras: &[extra::SBCAST],
    variables: || vec![("SBCAST_FORCE", "force"), ("SBCAST_PRESERVE", "preserve")],
    examples: &[(
        "sbcast model.bin /tmp/model.bin",
        "inside a job: copy a file to where its tasks run",
    )],
    ..Applet::new("sbcast", "Copy a file to the node of a job, which is this host")
};

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub struct Sbcast {
        #[command(flatten)]
        pub common: CommonOpts,
        /// Print this help
        #[arg(long)]
        pub help: bool,
        /// Replace an existing file
        #[arg(short, long)]
        pub force: bool,
        /// Set the job; the default inside a job is that job
        #[arg(short, long, value_name = "JOB", value_parser = value(job))]
        pub jobid: Option<JobRef>,
        /// Keep the file's mode and times
        #[arg(short, long)]
        pub preserve: bool,
        /// The file and the name of the copy
        #[arg(value_name = "SOURCE DEST")]
        pub operands: Vec<String>,
    }
}

fn job(text: &str) -> Result<JobRef, CliError> {
    slotd_parse::ids::parse_job(text)
        .map_err(|_| CliError::error(1, format!("Invalid job id: {}", shown(text))))
}

/// The exit code if the copy could not be attempted, as in Slurm.
const UNUSABLE: i32 = 255;

pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Sbcast, CliError> {
    let (mut args, _) = choices::parse::<Sbcast>(APPLET, argv, origin)?;
    if args.operands.len() != 2 {
        let text = format!("Need two file names, have {} names", args.operands.len());
        let refusal = CliError::new(Mark::Bare, 1, text);
        return Err(refusal.and(Mark::Bare, "Try \"sbcast --help\" for more information"));
    }
    if args.operands[1].ends_with('/') {
        return Err(CliError::error(1, "Target filename cannot be a directory."));
    }
    if args.jobid.is_none() {
        args.jobid = origin.nonempty("SLURM_JOB_ID").map(job).transpose()?;
    }
    Ok(args)
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    let args = parse(argv, &origin)?;
    let Some(job) = &args.jobid else {
        let text = "Need a job id to run this command.  Run from within a Slurm job or use the --jobid option.";
        return Err(CliError::error(1, text));
    };
    check_running(job)?;
    let [source, target] = [0, 1].map(|i| PathBuf::from(origin.absolute(&args.operands[i])));
    let open = files::open(&source).and_then(|file| Ok((file.metadata()?, file)));
    let (facts, from) = open.map_err(|e| unreadable(&args.operands[0], &e))?;
    copy(from, &facts, &target, &args).map_err(|e| {
        let text =
            format!("REQUEST_FILE_BCAST({}): {}: {}", origin.host, reason(&e), target.display());
        CliError::error(e.raw_os_error().unwrap_or(1), text)
    })?;
    Ok(0)
}

fn unreadable(name: &str, e: &io::Error) -> CliError {
    CliError::error(UNUSABLE, format!("Can't open `{}`: {}", shown(name), reason(e)))
}

/// Fails unless the job is running, because only then does it have a node.
fn check_running(job: &JobRef) -> Result<(), CliError> {
    let query =
        JobQuery { without_paths: true, without_steps: true, ..JobQuery::of(vec![job.clone()]) };
    let list = ask_job_list(&Request::Jobs(query))?;
    let state =
        list.jobs.iter().map(|found| found.run.state).min_by_key(|state| !state.is_active());
    let why = match state {
        None => Refusal::UnknownJob,
        Some(JobState::Pending) => Refusal::Pending,
        Some(state) if state.is_terminal() => Refusal::AlreadyDone,
        Some(_) => return Ok(()),
    };
    Err(CliError::error(UNUSABLE, format!("Slurm job {job} lookup error: {why}")))
}

/// Copies the file with its permissions. The copy belongs to the user and drops the set-user-ID and
/// set-group-ID bits. An existing file is replaced atomically, so that a program running from it is
/// not disturbed. A failed copy leaves nothing behind.
fn copy(mut from: File, facts: &std::fs::Metadata, target: &Path, args: &Sbcast) -> io::Result<()> {
    let mode = facts.permissions().mode() & 0o777;
    // Check here to avoid copying a large file that is then refused. `put` checks again.
    if !args.force && target.symlink_metadata().is_ok() {
        return Err(io::Error::from_raw_os_error(libc::EEXIST));
    }
    let mut fresh = Fresh::new(target, mode)?;
    io::copy(&mut from, &mut fresh.file)?;
    if args.preserve {
        fresh.file.set_permissions(Permissions::from_mode(mode))?;
        let times = FileTimes::new().set_accessed(facts.accessed()?);
        fresh.file.set_times(times.set_modified(facts.modified()?))?;
    }
    if args.force { fresh.replace() } else { fresh.put() }
}
