//! Lines of the log that come again and again.

use log::Level;
use std::time::{Duration, Instant};

/// A line that keeps coming is written again so often.
const REMINDER: Duration = Duration::from_secs(60);

/// The last line, and how often it has come since it was written.
#[derive(Debug, Default)]
pub struct Repeats {
    last: Option<(Level, String)>,
    written: Option<Instant>,
    left_out: u64,
}

/// What becomes of a line. The numbers are lines that were left out.
#[derive(Debug, PartialEq, Eq)]
pub enum Treatment {
    /// It is written; the one before it came so many times more.
    Write {
        before: u64,
    },
    /// It is the same again, and is written with how often it came meanwhile.
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
    fn a_line_that_comes_again_is_counted_and_told_once_a_minute() {
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
            "it is worse now"
        );
    }
}
