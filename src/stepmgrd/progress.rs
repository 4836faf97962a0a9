//! Progress output: a live line on a terminal, plain lines in a log.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use slotd_stepmgr::core::Counts;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// The amount of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    /// Failures and a line for every tenth of the steps; on a terminal, a live line.
    Normal,
    /// Errors only.
    Quiet,
}

/// The progress between two log lines, in percent.
const EVERY_PERCENT: u64 = 10;

/// The shortest time between two log lines.
const EVERY: Duration = Duration::from_secs(1);

/// Prints progress to standard error.
pub struct Progress {
    verbosity: Verbosity,
    bar: Option<ProgressBar>,
    logged_percent: u64,
    logged: Duration,
    began: Duration,
    /// Steps that ended under earlier managers.
    before: u32,
}

impl Progress {
    pub fn new(verbosity: Verbosity, now: Duration) -> Progress {
        let is_live = verbosity == Verbosity::Normal && std::io::stderr().is_terminal();
        let bar = is_live.then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(5));
            // The template is a constant and valid.
            let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg} {rate} {eta}");
            let rate = |state: &ProgressState, out: &mut dyn fmt::Write| {
                // Writing to a string does not fail.
                let _ = write!(out, "{:.1}/s", state.per_sec());
            };
            bar.set_style(
                style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("rate", rate),
            );
            bar
        });
        Progress { verbosity, bar, logged_percent: 0, logged: now, began: now, before: 0 }
    }

    /// Starts counting. Steps that have ended already do not count towards the rate.
    pub fn begin(&mut self, counts: &Counts, now: Duration) {
        (self.before, self.began, self.logged) = (counts.ended(), now, now);
        let percent = percent(counts);
        self.logged_percent = percent - percent % EVERY_PERCENT;
        if let Some(bar) = &self.bar {
            bar.set_length(counts.all.into());
            bar.set_position(counts.ended().into());
            bar.tick();
            bar.reset_eta();
        }
    }

    /// Prints a line.
    pub fn print(&self, line: &str) {
        let line = format!("sjobmgr: {line}");
        match &self.bar {
            Some(bar) => bar.println(line),
            // If standard error is closed, there is nobody to report that to.
            None => drop(writeln!(std::io::stderr(), "{line}")),
        }
    }

    /// Prints a line that is not an error. Omitted with [`Verbosity::Quiet`].
    pub fn note(&self, line: &str) {
        if self.verbosity == Verbosity::Normal {
            self.print(line);
        }
    }

    pub fn show(&mut self, counts: &Counts, now: Duration) {
        if let Some(bar) = &self.bar {
            bar.set_length(counts.all.into());
            bar.set_position(counts.ended().into());
            bar.set_message(words(counts));
            return;
        }
        let percent = percent(counts);
        let is_time = percent >= self.logged_percent + EVERY_PERCENT && now >= self.logged + EVERY;
        if is_time && self.verbosity == Verbosity::Normal {
            (self.logged_percent, self.logged) = (percent - percent % EVERY_PERCENT, now);
            let (rate, left) = self.pace(counts, now);
            self.print(&format!(
                "{percent}% of {}: {}; {rate:.1}/s, {left:.0} s left",
                counts.all,
                words(counts)
            ));
        }
    }

    /// Returns the steps ended per second under this manager, and the seconds left at this rate.
    fn pace(&self, counts: &Counts, now: Duration) -> (f64, f64) {
        let secs = now.saturating_sub(self.began).as_secs_f64();
        let rate = f64::from(counts.ended().saturating_sub(self.before)) / secs.max(1e-3);
        (rate, f64::from(counts.all - counts.ended()) / rate.max(1e-3))
    }

    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn percent(counts: &Counts) -> u64 {
    u64::from(counts.ended()) * 100 / u64::from(counts.all.max(1))
}

/// Formats the counts: `12 done, 2 running, 1 failed, 5 waiting`.
pub fn words(counts: &Counts) -> String {
    let mut words = vec![format!("{} done", counts.ok), format!("{} running", counts.running)];
    for (count, name) in
        [(counts.failed, "failed"), (counts.cancelled, "cancelled"), (counts.skipped, "skipped")]
    {
        if count > 0 {
            words.push(format!("{count} {name}"));
        }
    }
    words.push(format!("{} waiting", counts.waiting()));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_earlier_managers_do_not_count_towards_the_rate() {
        let secs = Duration::from_secs;
        let mut progress = Progress::new(Verbosity::Quiet, secs(5));
        let counts = |ok| Counts { all: 1000, ok, ..Counts::default() };
        progress.begin(&counts(900), secs(10));
        assert_eq!(progress.pace(&counts(920), secs(20)), (2.0, 40.0));
        assert_eq!((progress.logged_percent, progress.logged), (90, secs(10)), "already logged");
    }

    #[test]
    fn progress_bar_does_not_count_earlier_steps_as_progress() {
        let bar = ProgressBar::hidden();
        let mut progress =
            Progress { bar: Some(bar.clone()), ..Progress::new(Verbosity::Quiet, Duration::ZERO) };
        progress
            .begin(&Counts { all: 1_000_000, ok: 900_000, ..Counts::default() }, Duration::ZERO);
        progress.show(&Counts { all: 1_000_000, ok: 900_001, ..Counts::default() }, Duration::ZERO);
        assert_eq!((bar.position(), bar.length()), (900_001, Some(1_000_000)));
        // The rate of a single step soon drops. Earlier steps, if counted, would keep it high for a
        // minute.
        let began = std::time::Instant::now();
        while bar.per_sec() > 10_000.0 {
            assert!(began.elapsed() < Duration::from_secs(10), "{}", bar.per_sec());
            std::thread::yield_now();
        }
    }
}
