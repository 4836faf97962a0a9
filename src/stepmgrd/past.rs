//! The work of earlier managers: the journal to resume from, and the state of each step.

use slotd_exec::step_journal::{self, Entry, Past};
use slotd_model::{End, ExitCode, Timestamp};
use slotd_stepmgr::core::{Core, StepOutcome};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Returns the steps recorded in the latest journal of this file. Searches the directories of all
/// jobs.
pub fn find(jobs_dir: &Path, file: &str) -> BTreeMap<String, Past> {
    let dirs = std::fs::read_dir(jobs_dir).into_iter().flatten().flatten();
    let journals = dirs.flat_map(|dir| journals_in(&dir.path()));
    let newest = journals
        .filter(|(path, _)| heads(path).any(|head| head == file))
        .max_by_key(|(_, written)| *written);
    let entries = newest.and_then(|(path, _)| step_journal::read(&path).ok()).unwrap_or_default();
    of_file(&entries, file)
}

fn journals_in(dir: &Path) -> Vec<(PathBuf, std::time::SystemTime)> {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let is_journal = |path: &PathBuf| path.extension().is_some_and(|end| end == "journal");
    files
        .filter(|file| is_journal(&file.path()))
        .filter_map(|file| Some((file.path(), file.metadata().ok()?.modified().ok()?)))
        .collect()
}

/// Returns the step files named in a journal's head entries.
fn heads(path: &Path) -> impl Iterator<Item = String> {
    let lines = std::fs::File::open(path).map(|file| BufReader::new(file).lines());
    lines.into_iter().flatten().map_while(Result::ok).filter_map(|line| {
        let is_head = line.starts_with("{\"Head\"");
        match is_head.then(|| serde_json::from_str(&line)) {
            Some(Ok(Entry::Head { file, .. })) => Some(file),
            _ => None,
        }
    })
}

/// Returns the steps of one file. A job may have run several files, one after the other. A run that
/// did not resume the previous one started over.
pub fn of_file(entries: &[Entry], file: &str) -> BTreeMap<String, Past> {
    let mut own = Vec::new();
    let mut is_own = false;
    for entry in entries {
        match entry {
            Entry::Head { file: other, resumed, .. } => {
                is_own = other == file;
                if is_own && !resumed {
                    own.clear();
                }
            }
            _ if is_own => own.push(entry.clone()),
            _ => {}
        }
    }
    step_journal::pasts(&own)
}

/// Restores the state of steps from an earlier run, and returns the steps found. With `again`,
/// steps that failed for good are run again.
pub fn restore(core: &mut Core, pasts: BTreeMap<String, Past>, again: bool) -> Vec<(String, Past)> {
    let mut known = Vec::new();
    for (name, past) in pasts {
        let Some(step) = core.find(&name).first().copied() else { continue };
        let Some(entry) = core
            .entry(step)
            .filter(|entry| entry.command.text() == past.command || past.command.is_empty())
        else {
            continue;
        };
        let may_retry = past.attempts <= entry.settings.retry.times;
        let lost = ExitCode::signal(SIGKILL);
        match past.last {
            Some((End::Completed, exit)) => {
                core.restore_end(step, StepOutcome::Ok, exit, past.attempts)
            }
            // The job ended, and its manager had no time to record the interruption.
            Some((End::Failed, exit)) if exit.signal == SIGTERM => {
                core.restore_attempts(step, past.attempts - 1)
            }
            Some((End::Cancelled, exit)) => {
                core.restore_end(step, StepOutcome::Cancelled, exit, past.attempts)
            }
            Some(_) if again => core.restore_attempts(step, 0),
            Some((_, exit)) if !may_retry => {
                core.restore_end(step, StepOutcome::Failed, exit, past.attempts)
            }
            None if past.lost && again => core.restore_attempts(step, 0),
            None if past.lost && !may_retry => {
                core.restore_end(step, StepOutcome::Failed, lost, past.attempts)
            }
            Some(_) | None => core.restore_attempts(step, past.attempts),
        }
        known.push((name, past));
    }
    known
}

/// Returns end entries for steps whose manager and launcher were killed, so that no process
/// recorded their ends.
pub fn lost_ends(entries: &[Entry], now: Timestamp) -> Vec<step_journal::StepEnd> {
    let end = |step: slotd_model::Step| {
        let slotd_model::StepId::Num(number) = step.id else { return None };
        Some(step_journal::StepEnd {
            step: number,
            state: End::Failed,
            exit: ExitCode::signal(SIGKILL),
            usage: Default::default(),
            start: step.start,
            end: now,
            interrupted: false,
            cancelled_by: None,
        })
    };
    step_journal::unended(entries).into_iter().filter_map(end).collect()
}
