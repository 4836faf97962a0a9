//! `slotd wait`: waits until jobs have ended, and shows a line of progress on a terminal. `sbatch
//! --wait` shows it too.

use super::clusters::{jobs, named};
use super::log::{views, views_if_there};
use super::why::refs;
use super::{Done, now, paths};
use crate::args::error::CliError;
use crate::client::follow::{Follower, Heard, Known, Standing};
use slotd_model::query::names_record;
use slotd_model::{JobId, JobRef, Progress, Timestamp};
use slotd_render::time;
use std::io::{self, IsTerminal, Write};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  slotd wait 12 13 && ./summary\n  slotd wait 17@hpc")]
pub struct WaitArgs {
    /// The jobs: 12, 12_3, or 17@hpc on another cluster
    #[arg(value_name = "JOB", required = true)]
    jobs: Vec<String>,
}

pub fn run(args: &WaitArgs) -> Done {
    let (there, here): (Vec<String>, Vec<String>) =
        args.jobs.iter().cloned().partition(|job| named::is_there(job));
    let own = || {
        let named = refs(&here)?;
        let scope = if there.is_empty() { "" } else { " on this host" };
        Ok(if named.is_empty() { 0 } else { until_over(&named, scope)?.worst() })
    };
    if there.is_empty() { own() } else { jobs::wait(&there, own) }
}

/// Waits until these jobs have ended. Prints progress only on a terminal, with `scope` behind it if
/// the counts leave out other jobs.
///
/// # Errors
/// Fails if the daemon cannot be reached or a job does not exist.
pub fn until_over(named: &[JobRef], scope: &'static str) -> Result<Known, CliError> {
    let mut follower = Follower::new(&paths()?)?;
    let mut line = Line::new(scope);
    let mut known = Known::default();
    let mut has_arrays = false;
    let mut first = true;
    while first || !known.is_over() {
        let changed = match follower.wait()? {
            Heard::Away | Heard::Answer(_) => continue,
            Heard::Changed(changed) => changed,
        };
        let is_meant = |id: &&JobId| known.has(**id) || has_arrays;
        let asked = if changed.all {
            named.to_vec()
        } else {
            changed.jobs.iter().filter(is_meant).map(|id| JobRef::job(*id)).collect()
        };
        if asked.is_empty() {
            continue;
        }
        let found = if first { views(&asked)? } else { views_if_there(&asked)? };
        if first
            && let Some(unknown) = named
                .iter()
                .find(|one| !found.iter().any(|view| names_record(one, view.id, &view.role)))
        {
            return Err(CliError::error(1, format!("there is no job {unknown}"))
                .hint("`sacct` lists all jobs"));
        }
        for view in found
            .iter()
            .filter(|view| named.iter().any(|one| names_record(one, view.id, &view.role)))
        {
            has_arrays |= view.array_job_id().is_some();
            known.note(view.id, Standing::of(view));
        }
        first = false;
        line.show(&known.progress());
    }
    line.end();
    Ok(known)
}

/// A line on the terminal that is overwritten repeatedly.
struct Line {
    is_shown: bool,
    scope: &'static str,
    /// When it was first shown, and how many tasks had ended then.
    begun: Option<(Timestamp, usize)>,
}

impl Line {
    fn new(scope: &'static str) -> Line {
        Line { is_shown: io::stderr().is_terminal(), scope, begun: None }
    }

    fn show(&mut self, progress: &Progress) {
        if !self.is_shown {
            return;
        }
        let at = now();
        let (begun, before) = *self.begun.get_or_insert((at, progress.over));
        let togo = to_go(progress, progress.over.saturating_sub(before), at.since(begun).as_secs());
        // Ignore errors: there is no other place to report them.
        let _ = write!(io::stderr(), "\r\x1b[K{}{}", text(progress, togo), self.scope);
    }

    fn end(&self) {
        if self.is_shown && self.begun.is_some() {
            let _ = io::stderr().write_all(b"\n");
        }
    }
}

/// Estimates the seconds until all have ended, if they continue to end at the rate of `over` in
/// `secs`.
fn to_go(progress: &Progress, over: usize, secs: u64) -> Option<u64> {
    let left = u64::try_from(progress.all().saturating_sub(progress.over))
        .ok()
        .filter(|left| *left > 0)?;
    let over = u64::try_from(over).ok().filter(|over| *over > 0 && secs > 0)?;
    Some(secs.saturating_mul(left).div_ceil(over))
}

/// Returns a line such as `12/40 done, 4 running, 1 failed, about 5:12 to go`.
fn text(progress: &Progress, to_go: Option<u64>) -> String {
    let Progress { over, failed, running, .. } = progress;
    let mut words = vec![format!("{over}/{} done", progress.all())];
    words.extend((*running > 0).then(|| format!("{running} running")));
    words.extend((*failed > 0).then(|| format!("{failed} failed")));
    words.extend(to_go.map(|secs| format!("about {} to go", time::short(secs))));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_shows_counts_and_time_to_go() {
        let progress = Progress { total: 40, over: 12, failed: 1, running: 4, waiting: 23 };
        assert_eq!(to_go(&progress, 10, 100), Some(280));
        assert_eq!(text(&progress, Some(280)), "12/40 done, 4 running, 1 failed, about 4:40 to go");
        assert_eq!((to_go(&progress, 0, 100), to_go(&progress, 10, 0)), (None, None));
        let over = Progress { over: 2, ..Progress::default() };
        assert_eq!(text(&over, to_go(&over, 2, 10)), "2/2 done");
    }
}
