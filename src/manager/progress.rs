//! How far it is, for the user: a line that changes on a terminal, plain lines in a log.

use crate::jobmgr::core::Counts;
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
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("rate", rate));
            bar
        });
        Progress { manner, bar, told_percent: 0, told: now, began: now }
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
        let percent = u64::from(counts.ended()) * 100 / u64::from(counts.all.max(1));
        let is_time = percent >= self.told_percent + EVERY_PERCENT && now >= self.told + EVERY;
        if is_time && self.manner == Manner::Normal {
            (self.told_percent, self.told) = (percent - percent % EVERY_PERCENT, now);
            let secs = now.saturating_sub(self.began).as_secs_f64();
            let rate = f64::from(counts.ended()) / secs.max(1e-3);
            let left = f64::from(counts.all - counts.ended()) / rate.max(1e-3);
            self.say(&format!(
                "{percent} % of {}: {}; {rate:.1} a second, {left:.0} s to go",
                counts.all,
                words(counts)
            ));
        }
    }

    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// `12 done, 2 running, 1 failed, 5 waiting`
pub fn words(counts: &Counts) -> String {
    let mut words = vec![format!("{} done", counts.ok), format!("{} running", counts.running)];
    for (count, name) in [(counts.failed, "failed"), (counts.cancelled, "cancelled"), (counts.skipped, "skipped")] {
        if count > 0 {
            words.push(format!("{count} {name}"));
        }
    }
    words.push(format!("{} waiting", counts.waiting()));
    words.join(", ")
}
