//! `slotd wait`: waits until jobs have ended, and shows a line of progress on a terminal. `sbatch
//! --wait` shows it too.

use super::clusters::{jobs, named};
use super::why::refs;
use super::{Done, lists_if_there, now, paths};
use crate::args::error::CliError;
use crate::client::connection::ClientError;
use crate::client::follow::{Follower, Heard, Known, Standing};
use slotd_model::changed::Changed;
use slotd_model::query::{JobQuery, names_record};
use slotd_model::view::JobView;
use slotd_model::{JobId, JobRef, Progress, Refusal, Timestamp};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::Request;
use slotd_render::time;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

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

/// The minimum time between two updates of the line. Nobody reads faster.
const LINE_PAUSE: Duration = Duration::from_millis(200);

/// Waits until these jobs have ended. Prints progress only on a terminal, with `scope` behind it if
/// the counts leave out other jobs.
///
/// # Errors
/// Fails if the daemon cannot be reached or a job does not exist.
pub fn until_over(named: &[JobRef], scope: &'static str) -> Result<Known, CliError> {
    let mut jobs = Jobs { named, known: Known::default(), has_arrays: false };
    let mut line = Line::new(scope);
    // At first, only the notification that the daemon is there.
    let mut follower = Follower::new(&paths()?)?.with_pause(Duration::MAX);
    while !matches!(follower.wait()?, Heard::Changed(_)) {}
    let mut ends = jobs.find()?;
    follower = follower.with_pause(match (&ends, line.is_shown) {
        (None, _) => Duration::ZERO,
        (Some(_), true) => LINE_PAUSE,
        (Some(_), false) => Duration::MAX,
    });
    follower.go_on();
    ends.iter().for_each(|ends| ends.ask(&mut follower));
    loop {
        line.show(&jobs.known.progress());
        let is_over = ends.as_ref().map_or_else(|| jobs.known.is_over(), Ends::are_over);
        // The line may lag behind, and brief records have no exit codes.
        if is_over && jobs.look_at_all(false)? {
            line.show(&jobs.known.progress());
            line.end();
            return Ok(jobs.known);
        }
        match (follower.wait()?, &mut ends) {
            (Heard::Answer(answer), Some(ends)) => ends.hear(&answer, &mut follower),
            (Heard::Answer(_) | Heard::Away, _) => {}
            (Heard::Changed(changed), ends) => {
                if ends.is_none() || line.is_shown {
                    jobs.look_again(&changed)?;
                }
                // It may be from another daemon, which knows nothing of the question.
                if changed.all
                    && let Some(ends) = ends
                    && !follower.is_asking()
                {
                    ends.ask(&mut follower);
                }
            }
        }
    }
}

/// The jobs that the user named.
struct Jobs<'a> {
    named: &'a [JobRef],
    known: Known,
    has_arrays: bool,
}

impl Jobs<'_> {
    /// Reads the jobs for the first time. Returns those whose ends to ask for, or `None` if some of
    /// the names are tasks of an array: the daemon announces only the end of the whole array.
    fn find(&mut self) -> Result<Option<Ends>, CliError> {
        let mut found = vec![false; self.named.len()];
        let mut whole = vec![false; self.named.len()];
        let mut left = BTreeSet::new();
        let named = self.named;
        self.read(named.to_vec(), true, |view| {
            let job = view.array_job_id().unwrap_or(view.id);
            for (place, one) in named.iter().enumerate().filter(|(_, one)| names(one, view)) {
                found[place] = true;
                whole[place] |= one.tasks.is_none() && one.job == job;
            }
            if !view.run.state.is_terminal() {
                left.insert(job);
            }
        })??;
        if let Some(place) = found.iter().position(|is_found| !is_found) {
            return Err(CliError::error(1, format!("there is no job {}", named[place]))
                .hint("`sacct` lists all jobs"));
        }
        let ends = Ends { left: left.into_iter().rev().collect() };
        Ok(whole.iter().all(|is_whole| *is_whole).then_some(ends))
    }

    /// Reads the jobs among those that changed.
    fn look_again(&mut self, changed: &Changed) -> Result<(), CliError> {
        let is_meant = |id: &&JobId| self.known.has(**id) || self.has_arrays;
        if changed.all {
            return self.look_at_all(true).map(drop);
        }
        let asked: Vec<JobRef> =
            changed.jobs.iter().filter(is_meant).map(|id| JobRef::job(*id)).collect();
        if asked.is_empty() { Ok(()) } else { self.look(asked, true, |_| ()).map(drop) }
    }

    fn look_at_all(&mut self, brief: bool) -> Result<bool, CliError> {
        let mut found = BTreeSet::new();
        let is_read = self.look(self.named.to_vec(), brief, |view| found.extend([view.id]))?;
        if is_read {
            self.known.keep(&found);
        }
        Ok(is_read)
    }

    /// Reads jobs. Returns false if the daemon is down: the next one notifies its followers.
    fn look(
        &mut self,
        asked: Vec<JobRef>,
        brief: bool,
        take: impl FnMut(&JobView),
    ) -> Result<bool, CliError> {
        match self.read(asked, brief, take)? {
            Ok(()) => Ok(true),
            Err(error) if error.is_away() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads jobs and passes on those that the user named.
    fn read(
        &mut self,
        asked: Vec<JobRef>,
        brief: bool,
        mut take: impl FnMut(&JobView),
    ) -> Result<Result<(), ClientError>, CliError> {
        let query =
            JobQuery { brief, without_steps: true, without_paths: true, ..JobQuery::of(asked) };
        lists_if_there(&Request::Jobs(query), |list| {
            for view in list.whole().jobs {
                if self.named.iter().any(|one| names(one, &view)) {
                    take(&view);
                    self.has_arrays |= view.array_job_id().is_some();
                    self.known.note(view.id, Standing::of(&view));
                } else {
                    self.known.forget(view.id);
                }
            }
            Ok(())
        })
    }
}

fn names(one: &JobRef, view: &JobView) -> bool {
    names_record(one, view.id, &view.role)
}

/// Jobs and whole arrays that have not ended. The daemon announces the end of the last one.
struct Ends {
    left: Vec<JobId>,
}

impl Ends {
    fn are_over(&self) -> bool {
        self.left.is_empty()
    }

    fn ask(&self, follower: &mut Follower) {
        if let Some(job) = self.left.last() {
            follower.ask(&Request::WaitEnd(*job));
        }
    }

    /// Asks for the next one if the answer is that this one has ended. The daemon no longer knows
    /// jobs that ended a while ago.
    fn hear(&mut self, answer: &Answer, follower: &mut Follower) {
        if let Answer::Ended { .. } | Answer::Refused(Refusal::UnknownJob) = answer {
            self.left.pop();
            self.ask(follower);
        }
    }
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
