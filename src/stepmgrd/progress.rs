//! How far it is, for the user: a line that changes on a terminal, plain lines in a log.

use crate::stepmgr::core::Counts;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// How much is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// What failed, and a line every tenth of the way; on a terminal, a line that changes.
    Normal,
    /// Errors alone.
    Quiet,
}

/// A line in a log for every so many hundredths of the way.
const EVERY_PERCENT: u64 = 10;

/// But no more often.
const EVERY: Duration = Duration::from_secs(1);

/// Tells of progress on standard error.
pub struct Progress {
    manner: Manner,
    bar: Option<ProgressBar>,
    told_percent: u64,
    told: Duration,
    began: Duration,
    /// Steps that have ended under earlier managers.
    before: u32,
}

impl Progress {
    pub fn new(manner: Manner, now: Duration) -> Progress {
        let is_live = manner == Manner::Normal && std::io::stderr().is_terminal();
        let bar = is_live.then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(5));
            // The template is written here, and right.
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
        Progress { manner, bar, told_percent: 0, told: now, began: now, before: 0 }
    }

    /// The manager begins with this: what has ended already says nothing about its pace.
    pub fn begin(&mut self, counts: &Counts, now: Duration) {
        (self.before, self.began, self.told) = (counts.ended(), now, now);
        let percent = percent(counts);
        self.told_percent = percent - percent % EVERY_PERCENT;
        if let Some(bar) = &self.bar {
            bar.set_length(counts.all.into());
            bar.set_position(counts.ended().into());
            bar.tick();
            bar.reset_eta();
        }
    }

    /// A line of its own.
    pub fn say(&self, line: &str) {
        let line = format!("sjobmgr: {line}");
        match &self.bar {
            Some(bar) => bar.println(line),
            // Where standard error is gone there is nobody to tell that.
            None => drop(writeln!(std::io::stderr(), "{line}")),
        }
    }

    /// As [`Progress::say`], of what is no error.
    pub fn note(&self, line: &str) {
        if self.manner == Manner::Normal {
            self.say(line);
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
        let is_time = percent >= self.told_percent + EVERY_PERCENT && now >= self.told + EVERY;
        if is_time && self.manner == Manner::Normal {
            (self.told_percent, self.told) = (percent - percent % EVERY_PERCENT, now);
            let (rate, left) = self.pace(counts, now);
            self.say(&format!(
                "{percent} % of {}: {}; {rate:.1} a second, {left:.0} s to go",
                counts.all,
                words(counts)
            ));
        }
    }

    /// Steps that have ended under this manager a second, and seconds until all have at this rate.
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

/// `12 done, 2 running, 1 failed, 5 waiting`
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
    fn what_earlier_managers_have_done_is_no_part_of_the_pace() {
        let secs = Duration::from_secs;
        let mut progress = Progress::new(Manner::Quiet, secs(5));
        let counts = |ok| Counts { all: 1000, ok, ..Counts::default() };
        progress.begin(&counts(900), secs(10));
        assert_eq!(progress.pace(&counts(920), secs(20)), (2.0, 40.0));
        assert_eq!((progress.told_percent, progress.told), (90, secs(10)), "it was told before");
    }

    #[test]
    fn the_bar_of_a_terminal_takes_what_was_done_before_for_no_progress() {
        let bar = ProgressBar::hidden();
        let mut progress =
            Progress { bar: Some(bar.clone()), ..Progress::new(Manner::Quiet, Duration::ZERO) };
        progress
            .begin(&Counts { all: 1_000_000, ok: 900_000, ..Counts::default() }, Duration::ZERO);
        progress.show(&Counts { all: 1_000_000, ok: 900_001, ..Counts::default() }, Duration::ZERO);
        assert_eq!((bar.position(), bar.length()), (900_001, Some(1_000_000)));
        // A single one in a moment is soon a small rate; what was done before would be a large one
        // for a minute.
        let began = std::time::Instant::now();
        while bar.per_sec() > 10_000.0 {
            assert!(began.elapsed() < Duration::from_secs(10), "{}", bar.per_sec());
            std::thread::yield_now();
        }
    }
}
