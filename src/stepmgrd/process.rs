//! The two processes of a manager: the launcher, started by the user, and its child, which makes
//! the decisions.

use super::link::Identity;
use super::run::{self, RunError, Setup};
use crate::client::connection::Connection;
use nix::sys::signal::SigHandler;
use slotd_exec::step_journal::{self, Entry, Journal, StepEnd};
use slotd_exec::step_launcher::{self, Ended};
use slotd_model::{End, ExitCode};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use slotd_sys::fork::{Memory, fork_into};
use slotd_sys::start;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;

/// Records per request.
const CHUNK: usize = 200;

/// Runs a manager and returns its exit code. This process must have a single thread. `beginning` is
/// the lock from [`super::client::begin`].
///
/// # Errors
/// Fails if the processes cannot be started. The manager reports its own errors.
pub fn manage(setup: Setup, beginning: File, report: fn(RunError) -> u8) -> io::Result<u8> {
    // A broken output pipe must not end the steps. The steps themselves get the default action.
    start::on_broken_pipe(SigHandler::SigIgn);
    start::on_large_file(SigHandler::SigIgn);
    let identity = setup.identity.clone();
    let mut ends = Some(UnixStream::pair()?);
    let mut job = Some((setup, beginning));
    // SAFETY: this process has one thread.
    let child = unsafe {
        fork_into(Memory::Copy, &mut || {
            let (Some((own, managers)), Some((setup, beginning))) = (ends.take(), job.take())
            else {
                return 1;
            };
            // Only the launcher may hold its end, so that its death closes the connection.
            drop(own);
            run::run(setup, managers, beginning).unwrap_or_else(report).into()
        })
    }?;
    let Some((own, managers)) = ends.take() else { return Ok(1) };
    drop((job, managers));
    let job_dir = identity.paths.job_dir(identity.job);
    let (exit, killed) = step_launcher::serve(child.as_raw(), own, own_environment(), &job_dir)?;
    start::on_broken_pipe(SigHandler::SigIgn);
    if exit.signal != 0 {
        let count = killed.len();
        let _ = writeln!(
            io::stderr(),
            "sjobmgr: error: the manager was killed by signal {}, and {count} running steps with it\n\
             to continue: sjobmgr run --resume FILE",
            exit.signal
        );
    }
    if exit.signal != 0 || !killed.is_empty() {
        // Records that cannot be sent now are sent by the next manager, or read by the daemon when
        // the job ends.
        let _ = report_ends(&identity, killed);
    }
    Ok(u8::try_from(exit.as_shell()).unwrap_or(1))
}

/// Records the ends of steps that outlived their manager, and reports them to the daemon.
fn report_ends(identity: &Identity, killed: Vec<Ended>) -> io::Result<()> {
    let job_dir = identity.paths.job_dir(identity.job);
    let (mut journal, _) = Journal::open(&step_journal::path(&job_dir, identity.run))?;
    for end in killed {
        let Ended { number, exit, usage, started, ended, .. } = end;
        let state = match exit {
            ExitCode::OUT_OF_MEMORY => End::OutOfMemory,
            _ if exit.is_success() => End::Completed,
            _ => End::Failed,
        };
        let (start, end) = (started, ended);
        journal.push(&Entry::End(StepEnd {
            step: number,
            state,
            exit,
            usage,
            start,
            end,
            interrupted: false,
            cancelled_by: None,
        }));
    }
    journal.write()?;
    let steps = step_journal::undelivered(&job_dir, identity.run)?;
    let mut conn = Connection::open(&identity.paths).map_err(io::Error::other)?;
    for steps in steps.chunks(CHUNK) {
        let request =
            Request::RecordSteps { job: identity.job, run: identity.run, steps: steps.to_vec() };
        match conn.ask(&request, &[]).map_err(io::Error::other)?.0 {
            Answer::Recorded => {}
            other => return Err(io::Error::other(format!("{other:?}"))),
        }
    }
    let bytes = journal.written();
    journal.push(&Entry::Delivered { bytes });
    journal.write()
}

/// Returns the environment for the steps: `KEY=VALUE` entries, each terminated by a null byte.
fn own_environment() -> Vec<u8> {
    let entry = |(name, value): (OsString, OsString)| {
        let mut entry = name.into_encoded_bytes();
        entry.push(b'=');
        entry.extend(value.into_encoded_bytes());
        entry.push(0);
        entry
    };
    std::env::vars_os().flat_map(entry).collect()
}
