//! Recurring jobs: when they run, and the crontab that lists them.

use crate::JobId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A set of numbers below 64: the values of a field of a [`Recurrence`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Values(u64);

impl Values {
    /// Adds a number. Numbers from 64 up have no place and are ignored.
    pub fn insert(&mut self, value: u8) {
        self.0 |= 1_u64.checked_shl(u32::from(value)).unwrap_or(0);
    }

    pub fn remove(&mut self, value: u8) {
        self.0 &= !1_u64.checked_shl(u32::from(value)).unwrap_or(0);
    }

    pub fn contains(self, value: u8) -> bool {
        self.iter().any(|known| known == value)
    }

    /// Returns the numbers in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..64).filter(move |value| self.0 & (1 << value) != 0)
    }
}

impl FromIterator<u8> for Values {
    fn from_iter<I: IntoIterator<Item = u8>>(values: I) -> Self {
        let mut set = Values::default();
        values.into_iter().for_each(|value| set.insert(value));
        set
    }
}

/// Prints ranges: `0,15,30-32`.
impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest: Vec<u8> = self.iter().collect();
        let mut comma = "";
        while let Some(first) = rest.first().copied() {
            let run = rest.iter().zip(first..).take_while(|(value, next)| *value == next).count();
            let last = rest.drain(..run).next_back().unwrap_or(first);
            write!(f, "{comma}{first}")?;
            if first != last {
                write!(f, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

/// The minutes at which a job recurs. `None` stands for `*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct Recurrence {
    pub minute: Option<Values>,
    pub hour: Option<Values>,
    /// If the day of the week is restricted too, a day needs to match only one of them.
    pub day_of_month: Option<Values>,
    pub month: Option<Values>,
    /// 0 is Sunday.
    pub day_of_week: Option<Values>,
}

/// Prints the five fields with numbers only, as in Slurm's `CrontabSpec`: `0 5 * * 1`.
impl fmt::Display for Recurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [self.minute, self.hour, self.day_of_month, self.month, self.day_of_week];
        for (at, field) in fields.into_iter().enumerate() {
            f.write_str(if at == 0 { "" } else { " " })?;
            match field {
                None => f.write_str("*")?,
                Some(values) => values.fmt(f)?,
            }
        }
        Ok(())
    }
}

/// An entry of a crontab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CronEntry {
    /// The line numbers of its first `#SCRON` line and of its command, starting at 1.
    pub lines: (usize, usize),
    /// The job, which recurs.
    pub job: JobId,
}

/// The crontab of a user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Crontab {
    /// The file, byte for byte.
    pub text: Vec<u8>,
    pub entries: Vec<CronEntry>,
}

/// Precedes each line of an entry whose job was cancelled.
const DISABLED: &[u8] = b"#DISABLED: ";

impl Crontab {
    /// Returns the text to show: entries whose jobs have ended for good are commented out.
    pub fn shown(&self, has_ended: impl Fn(JobId) -> bool) -> Vec<u8> {
        let ended: Vec<_> = self.entries.iter().filter(|entry| has_ended(entry.job)).collect();
        let is_off = |line: usize| {
            ended.iter().any(|CronEntry { lines, .. }| (lines.0..=lines.1).contains(&line))
        };
        let lines = self.text.split_inclusive(|byte| *byte == b'\n').zip(1..);
        lines
            .flat_map(|(line, number)| {
                let mark = if is_off(number) { DISABLED } else { b"" };
                mark.iter().chain(line).copied()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_print_as_ranges() {
        let of = |values: &[u8]| Some(values.iter().copied().collect::<Values>());
        let recurrence = Recurrence {
            minute: of(&[0, 15, 16, 17, 59]),
            hour: of(&[5]),
            month: of(&[1, 2]),
            day_of_week: of(&[]),
            ..Recurrence::default()
        };
        assert_eq!(recurrence.to_string(), "0,15-17,59 5 * 1-2 ");
        assert_eq!(Recurrence::default().to_string(), "* * * * *");
        let mut values = Values::default();
        [0, 63, 64, 255].into_iter().for_each(|value| values.insert(value));
        values.remove(0);
        assert_eq!((values.to_string(), values.contains(63)), ("63".to_owned(), true));
    }

    #[test]
    fn all_lines_of_an_ended_entry_are_commented_out() {
        let entry = |first, last, job| CronEntry { lines: (first, last), job: JobId(job) };
        let crontab = Crontab {
            text: b"# mine\n#SCRON -t 1\n* * * * * a\n@daily \xff".to_vec(),
            entries: vec![entry(2, 3, 7), entry(4, 4, 8)],
        };
        assert_eq!(crontab.shown(|_| false), crontab.text);
        assert_eq!(
            crontab.shown(|job| job == JobId(7)),
            b"# mine\n#DISABLED: #SCRON -t 1\n#DISABLED: * * * * * a\n@daily \xff"
        );
        assert!(crontab.shown(|_| true).ends_with(b"a\n#DISABLED: @daily \xff"));
    }
}
