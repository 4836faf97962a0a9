//! Finding again what an earlier daemon started: still running, ended meanwhile, or never launched.
//!
//! Nothing runs twice because of two marks in the job directory. A watcher binds its socket there
//! before the first task starts and never over an existing one; it removes the socket only after
//! its exit record is in place. And a launch that is under way holds the launcher's lock, so that
//! after [`await_launches`] every launch that will ever happen has its mark.

use crate::exec::job_files::read_record;
use crate::exec::step_handle::{self, Identity, Opening, StepHandle};
use crate::exec::{launch_lock, launch_spec, stopped};
use crate::model::{ExitRecord, StepId, StepKey};
use crate::sys::paths::DAEMON_LOCK;
use crate::sys::{lock, proc, socket};
use std::collections::HashSet;
use std::io;
use std::path::Path;

/// What became of a step that was to be launched.
#[derive(Debug)]
#[must_use]
pub enum Adoption {
    /// It runs, and reports to this connection from now on: `Started` first.
    Running(StepHandle),
    Ended(Box<ExitRecord>),
    /// No process of it was ever started: it may be launched.
    NeverLaunched,
    /// It was started, and its watcher died without a record: nobody knows how it ended.
    Lost,
}

/// Blocks until no launch of an earlier daemon is under way. To be called once by a new daemon,
/// before its first `inspect` and before it starts a launcher; off the event loop, although it
/// returns within milliseconds.
pub fn await_launches(root: &Path) -> io::Result<()> {
    // A stopped one would keep its share of the lock for ever.
    stopped::resume(root);
    let _alone = launch_lock::take(root, lock::Kind::Exclusive)?;
    launch_lock::forget_idle(root);
    Ok(())
}

/// Looks what became of a step. Connects to it where it runs, so needs a tokio runtime.
///
/// # Errors
/// The job directory exists and cannot be read, or its exit record is damaged.
pub fn inspect(job_dir: &Path, step: StepId, run: u32) -> io::Result<Adoption> {
    // The record first: where there is one, the socket no longer matters. And the record again
    // after a refused connection: the step may have ended in between.
    for attempt in 0..2 {
        if let Some(record) = read_record(job_dir, step, run)? {
            return Ok(Adoption::Ended(Box::new(record)));
        }
        match socket::connect(&job_dir.join(launch_spec::socket_name(step, run))) {
            Ok(connection) => {
                let identity = Identity { job_dir: job_dir.to_owned(), step, run };
                let connection = step_handle::asynchronous(connection)?;
                return Ok(Adoption::Running(StepHandle::serve(
                    connection,
                    identity,
                    Opening::default(),
                )));
            }
            Err(e) if attempt == 1 && e.kind() == io::ErrorKind::NotFound => {
                return Ok(Adoption::NeverLaunched);
            }
            Err(e) if attempt == 1 && e.kind() == io::ErrorKind::ConnectionRefused => {
                return Ok(Adoption::Lost);
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(Adoption::Lost)
}

/// Kills what is left of a lost step: processes of this user whose environment names this daemon's
/// root and this job (for a numbered step: this step). Returns how many there were. Looks at every
/// process of the machine. A daemon, of whatever root, may have been started where that environment
/// is: it and what it started stay.
pub fn kill_leftovers(root: &Path, key: StepKey) -> usize {
    let wanted: Vec<Vec<u8>> = {
        let mut w = vec![format!("SLURM_JOB_ID={}", key.job).into_bytes()];
        let mut root_entry = b"SLOTD_ROOT=".to_vec();
        root_entry.extend_from_slice(root.as_os_str().as_encoded_bytes());
        w.push(root_entry);
        if let StepId::Num(n) = key.step {
            w.push(format!("SLURM_STEP_ID={n}").into_bytes());
        }
        w
    };
    let mut killed = 0;
    let mut spared: Option<HashSet<i32>> = None;
    for pid in proc::all_pids() {
        let Some(start) = proc::start_ticks(pid) else { continue };
        let Some(environment) = proc::environment(pid) else { continue };
        let entries: Vec<&[u8]> = environment.split(|b| *b == 0).collect();
        let is_ours = wanted.iter().all(|w| entries.contains(&w.as_slice()));
        if !is_ours || spared.get_or_insert_with(daemons_with_theirs).contains(&pid) {
            continue;
        }
        // The start time again: the number may have gone to another process since.
        if proc::start_ticks(pid) == Some(start) && proc::kill(pid, libc::SIGKILL) {
            killed += 1;
        }
    }
    killed
}

/// The processes that hold the lock of a daemon, and all below them.
fn daemons_with_theirs() -> HashSet<i32> {
    let is_daemon = |pid: &i32| lock::is_held_by(*pid, DAEMON_LOCK);
    let daemons = proc::all_pids().into_iter().filter(is_daemon);
    daemons.flat_map(|pid| proc::descendants(pid).into_iter().chain([pid])).collect()
}
