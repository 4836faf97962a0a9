//! Repeated lines of the log.

use log::Level;
use std::time::{Duration, Instant};

/// The interval at which a repeating line is written again.
const REMINDER: Duration = Duration::from_secs(60);

/// The last line and the number of its repeats since it was written.
#[derive(Debug, Default)]
pub struct Repeats {
    last: Option<(Level, String)>,
    written: Option<Instant>,
    left_out: u64,
}

/// How to treat a line. The numbers count skipped lines.
#[derive(Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Write it. The previous line was skipped this many times.
    Write {
        before: u64,
    },
    /// It repeats: write it with the number of skipped repeats.
    Remind {
        left_out: u64,
    },
    LeaveOut,
}

impl Repeats {
    pub fn line(&mut self, level: Level, text: &str, now: Instant) -> Treatment {
        if self.last.as_ref().is_none_or(|(known, last)| (*known, last.as_str()) != (level, text)) {
            self.last = Some((level, text.to_owned()));
            self.written = Some(now);
            return Treatment::Write { before: std::mem::take(&mut self.left_out) };
        }
        if self.written.is_none_or(|written| now.duration_since(written) >= REMINDER) {
            self.written = Some(now);
            return Treatment::Remind { left_out: std::mem::take(&mut self.left_out) };
        }
        self.left_out += 1;
        Treatment::LeaveOut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_line_is_counted_and_written_once_a_minute() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        let mut line =
            |text, secs| repeats.line(Level::Warn, text, start + Duration::from_secs(secs));
        assert_eq!(line("a", 0), Treatment::Write { before: 0 });
        assert_eq!([line("a", 1), line("a", 59)], [Treatment::LeaveOut, Treatment::LeaveOut]);
        assert_eq!(line("a", 60), Treatment::Remind { left_out: 2 });
        assert_eq!(line("a", 61), Treatment::LeaveOut);
        assert_eq!(line("b", 62), Treatment::Write { before: 1 });
        assert_eq!(line("a", 63), Treatment::Write { before: 0 });
        assert_eq!(
            repeats.line(Level::Error, "a", start),
            Treatment::Write { before: 0 },
            "the level has changed"
        );
    }
}
