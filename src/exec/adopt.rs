//! Finds out what happened to the steps of an earlier daemon: they may be running, have ended in
//! the meantime, or never have been launched.
//!
//! Three things keep a step from running twice. A watcher binds its socket in the job directory
//! before the first task starts, never replaces an existing one, and removes it only after its exit
//! record is in place. And a launch in progress holds the launcher's lock, so that after
//! [`await_launches`] every launch has left its socket or record. If somebody has deleted both,
//! [`has_processes`] finds the processes that still have the environment of the step.

use crate::job_files::{read_job, read_record};
use crate::step_handle::{self, Identity, Opening, StepHandle};
use crate::{launch_lock, launch_spec, stopped};
use slotd_model::{ExitRecord, StepId, StepKey, Timestamp};
use slotd_sys::paths::{DAEMON_LOCK, is_root_of};
use slotd_sys::{clock, lock, proc, socket};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The state of a step that an earlier daemon may have launched.
#[derive(Debug)]
#[must_use]
pub enum Adoption {
    /// It is running and sends its events to this connection, `Started` first.
    Running(StepHandle),
    Ended(Box<ExitRecord>),
    /// No process of it was ever started, so it may be launched.
    NeverLaunched,
    /// It was started, but its watcher died without a record: the result is unknown.
    Lost,
}

/// Blocks until no launch of an earlier daemon is in progress. A new daemon calls this once, before
/// its first `inspect` and before it starts a launcher. Call it outside the event loop, although it
/// returns within milliseconds.
pub fn await_launches(root: &Path) -> io::Result<()> {
    // A stopped process would never release its shared lock.
    stopped::resume(root);
    let _alone = launch_lock::take(root, lock::Kind::Exclusive)?;
    launch_lock::forget_idle(root);
    Ok(())
}

/// Determines the state of a step. Connects to the step if it is running, so this needs a tokio
/// runtime.
///
/// # Errors
/// Fails if the job directory exists but cannot be read, or if the exit record is damaged and no
/// watcher of the step answers.
pub fn inspect(job_dir: &Path, step: StepId, run: u32) -> io::Result<Adoption> {
    // Look for the record first: once it exists, the socket no longer matters. Look for it again
    // after a refused connection, because the step may have ended in between.
    for attempt in 0..2 {
        let damaged = match read_record(job_dir, step, run) {
            Ok(Some(record)) => return Ok(Adoption::Ended(Box::new(record))),
            Ok(None) => None,
            Err(e) => Some(e),
        };
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
            // The watcher knows its step, whatever was put in the place of its record.
            Err(_) if let Some(damaged) = damaged => return Err(damaged),
            Err(e) if attempt == 1 && e.kind() == io::ErrorKind::NotFound => {
                let is_noted = step == StepId::Batch
                    && read_job(job_dir).is_some_and(|job| job.run.restarts == run);
                return Ok(if is_noted { Adoption::Lost } else { Adoption::NeverLaunched });
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

/// The longest time to search for the processes of a lost step.
const HUNT: Duration = Duration::from_secs(10);

/// The time for which a search that finds nothing is repeated, if processes end before they can be
/// examined: any of them may be part of a chain of forks. It is CPU time, because on a busy machine
/// the chain and the search get equal shares of it. It begins after a pass over all processes, which
/// alone may take longer.
const DOUBT: Duration = Duration::from_millis(100);

/// The result of killing the processes of a lost step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Leftovers {
    /// The number of processes killed.
    pub killed: usize,
    /// New processes kept appearing until the end, so some may still be running.
    pub is_incomplete: bool,
}

/// The variables by which the processes of a launch are recognized.
///
/// A variable that people set by hand does not make a process the job's: `SLURM_JOB_ID=7 srun …` in
/// another shell is common. Its start time is set only by the launch.
fn marks(key: StepKey, start: Timestamp) -> Vec<Vec<u8>> {
    let mut marks = vec![
        format!("SLURM_JOB_ID={}", key.job).into_bytes(),
        format!("SLURM_JOB_START_TIME={}", start.as_secs()).into_bytes(),
    ];
    if let StepId::Num(n) = key.step {
        marks.push(format!("SLURM_STEP_ID={n}").into_bytes());
    }
    marks
}

/// The result of examining a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Examined {
    /// It belongs to the step.
    Ours(Process),
    /// It belongs to this process group.
    Foreign(i32),
    /// It ended before it could be examined.
    Vanished,
    /// It has ended and was not waited for yet.
    Dead(Process),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Process {
    pid: i32,
    start_ticks: u64,
    pgid: i32,
}

fn examine(pid: i32, root: &Path, marks: &[Vec<u8>]) -> Examined {
    let Some(stat) = proc::stat(pid) else { return Examined::Vanished };
    let process = Process { pid, start_ticks: stat.start_ticks, pgid: stat.pgid };
    if stat.state == b'Z' {
        return Examined::Dead(process);
    }
    // It is empty if the process is exiting, and not readable if it belongs to another user.
    let environment = proc::settled_environment(pid).unwrap_or_default();
    if environment.is_empty() && proc::stat(pid).is_none_or(|stat| stat.is_exiting) {
        return Examined::Vanished;
    }
    let entries: Vec<&[u8]> = environment.split(|b| *b == 0).collect();
    let is_marked = marks.iter().all(|mark| entries.contains(&mark.as_slice()));
    if is_marked && entries.iter().any(|entry| names_root(pid, entry, root)) {
        Examined::Ours(process)
    } else {
        Examined::Foreign(stat.pgid)
    }
}

/// Returns whether processes of a step run: those that [`kill_leftovers`] would kill. Reads the
/// environment of every process once.
pub fn has_processes(root: &Path, key: StepKey, start: Timestamp) -> bool {
    let marks = marks(key, start);
    let is_ours = |pid: i32| matches!(examine(pid, root, &marks), Examined::Ours(_));
    proc::all_pids().into_iter().any(is_ours)
}

/// Kills the processes of a lost step: those of this user whose environment names this daemon's
/// root, this job and the `start` of its launch (for a numbered step, also the step).
///
/// Processes may fork or execute another program in the meantime, so this repeats, and blocks,
/// until a pass over all processes of the machine finds no new ones to kill. A process that keeps
/// forking and exiting is gone before its PID can be used, but its process group stays: groups that
/// consist only of the step's processes are killed as a whole, which no fork escapes. If processes
/// vanish before they can be examined, the newest one is chased for a while. Daemons of any root
/// may have been started in the same environment: they and their descendants are spared.
pub fn kill_leftovers(root: &Path, key: StepKey, start: Timestamp) -> Leftovers {
    let marks = marks(key, start);
    let begun = Instant::now();
    let mut doubt_ends = None;
    // PIDs with start times, since PIDs are reused.
    let mut killed: HashSet<(i32, u64)> = HashSet::new();
    // The groups of foreign processes, as examined since the last kill.
    let mut foreign: HashMap<i32, i32> = HashMap::new();
    let mut dead = HashSet::new();
    loop {
        let before = killed.len();
        let mut has_vanished = false;
        let mut ours = Vec::new();
        // Newest first, since these are the most likely to exit soon.
        for pid in proc::all_pids().into_iter().rev() {
            if foreign.contains_key(&pid) {
                continue;
            }
            match examine(pid, root, &marks) {
                Examined::Ours(process) => ours.push(process),
                Examined::Foreign(pgid) => drop(foreign.insert(pid, pgid)),
                Examined::Vanished => has_vanished = true,
                Examined::Dead(process) => has_vanished |= dead.insert(process),
            }
        }
        let ends = *doubt_ends.get_or_insert_with(|| clock::thread_cpu() + DOUBT);
        if ours.is_empty() && has_vanished {
            let is_over = || begun.elapsed() > HUNT || clock::thread_cpu() > ends;
            ours.extend(chase(root, &marks, is_over));
        }
        if !ours.is_empty() {
            let spared = daemons_with_theirs();
            let (spared, wanted): (Vec<_>, Vec<_>) =
                ours.into_iter().partition(|process| spared.contains(&process.pid));
            let of_others: HashSet<i32> =
                foreign.values().copied().chain(spared.iter().map(|p| p.pgid)).collect();
            for Process { pid, start_ticks, pgid } in wanted {
                let is_same = proc::start_ticks(pid) == Some(start_ticks);
                // The group first: a shell whose command is killed alone would run the next one.
                let by_group = !of_others.contains(&pgid) && proc::kill_group(pgid, libc::SIGKILL);
                let by_pid = is_same && proc::kill(pid, libc::SIGKILL);
                if by_pid || by_group {
                    killed.insert((pid, start_ticks));
                }
            }
        }
        if killed.len() > before {
            doubt_ends = None;
            foreign.clear();
        } else if !has_vanished || clock::thread_cpu() > ends {
            return Leftovers { killed: killed.len(), is_incomplete: false };
        }
        if begun.elapsed() > HUNT {
            return Leftovers { killed: killed.len(), is_incomplete: killed.len() > before };
        }
    }
}

/// Examines only the newest process of the machine until the search ends, and returns the first one
/// of the step. A pass over all processes takes longer than a process in a chain of forks lives.
fn chase(root: &Path, marks: &[Vec<u8>], is_over: impl Fn() -> bool) -> Option<Process> {
    let mut last = 0;
    while !is_over() {
        let newest = proc::newest_pid()?;
        if newest == last {
            std::thread::yield_now();
            continue;
        }
        last = newest;
        if let Examined::Ours(process) = examine(newest, root, marks) {
            return Some(process);
        }
    }
    None
}

/// Whether an entry of an environment sets `SLOTD_ROOT` to this root.
fn names_root(pid: i32, entry: &[u8], root: &Path) -> bool {
    let named = entry.strip_prefix(b"SLOTD_ROOT=").map(OsStr::from_bytes);
    named.is_some_and(|named| is_root_of(pid, Path::new(named), root))
}

/// Returns the processes that hold a daemon's lock, and their descendants.
fn daemons_with_theirs() -> HashSet<i32> {
    let is_daemon = |pid: &i32| lock::is_held_by(*pid, DAEMON_LOCK);
    let daemons = proc::all_pids().into_iter().filter(is_daemon);
    daemons.flat_map(|pid| proc::descendants(pid).into_iter().chain([pid])).collect()
}
