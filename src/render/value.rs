//! The typed value of a cell, used for printing and for sorting.

use crate::{Ctx, size, time};
use slotd_model::Timestamp;
use std::borrow::Cow;
use std::fmt::Write as _;

/// The value of a cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    Text(Cow<'a, str>),
    Number(i64),
    /// A share from 0 to 1, printed with this many decimals.
    Share(f64, usize),
    /// A number printed as text, such as `96_[3-9]`.
    Ranked(i64, String),
    /// A time, or the word for no time.
    Time(Option<Timestamp>, &'static str),
    /// Seconds as squeue prints them (`1:02:03`); `None` is no limit.
    Short(Option<u64>),
    /// Seconds as sacct prints them (`01:02:03`); `None` is no limit.
    Long(Option<u64>),
    /// CPU time in microseconds, as sacct prints it.
    Cpu(u64),
    Kib(u64),
    Mib(u64),
    /// Bytes read or written.
    Bytes(u64),
}

/// The sort key: empty values before numbers, numbers before text.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key<'a> {
    Nothing,
    Number(i64),
    Text(&'a str),
}

impl<'a> Value<'a> {
    /// An empty cell.
    pub const NONE: Value<'a> = Value::Text(Cow::Borrowed(""));

    /// Returns the text, or Slurm's `(null)` if it is missing.
    pub fn or_null(text: Option<&(impl ToString + ?Sized)>) -> Self {
        text.map(ToString::to_string)
            .filter(|text| !text.is_empty())
            .map_or("(null)".into(), Value::from)
    }

    /// Returns the text, or Slurm's `N/A` if it does not apply.
    pub(crate) fn or_not_available(text: Option<String>) -> Self {
        text.filter(|text| !text.is_empty()).map_or("N/A".into(), Value::from)
    }

    pub fn text(self, ctx: &Ctx) -> Cow<'a, str> {
        match self {
            Value::Text(text) => text,
            Value::Ranked(_, text) => text.into(),
            other => {
                let mut text = String::new();
                other.write(&mut text, ctx);
                text.into()
            }
        }
    }

    /// Appends the text.
    pub fn write(&self, out: &mut String, ctx: &Ctx) {
        // Writing to a string cannot fail.
        let _ = match *self {
            Value::Text(ref text) => out.write_str(text),
            Value::Number(number) => write!(out, "{number}"),
            Value::Share(share, places) => write!(out, "{share:.places$}"),
            Value::Ranked(_, ref text) => out.write_str(text),
            Value::Time(at, none) => out.write_str(&time::instant_or(at, none, ctx)),
            Value::Short(secs) => {
                time::write_short(out, secs);
                Ok(())
            }
            Value::Long(secs) => out.write_str(&time::long_limit(secs)),
            Value::Cpu(us) => out.write_str(&time::cpu(us)),
            Value::Kib(amount) => out.write_str(&size::kib(amount, ctx.units)),
            Value::Mib(amount) => out.write_str(&size::mib(amount, ctx.units)),
            Value::Bytes(amount) => out.write_str(&size::transferred(amount, ctx.units)),
        };
    }

    /// Returns the sort key. "No time" and "no limit" sort last.
    pub fn key(&self) -> Key<'_> {
        let number = |n: u64| Key::Number(i64::try_from(n).unwrap_or(i64::MAX));
        match self {
            Value::Text(text) if text.is_empty() => Key::Nothing,
            Value::Text(text) => Key::Text(text),
            Value::Number(n) | Value::Ranked(n, _) => Key::Number(*n),
            // Keep more digits than a 32-bit priority has.
            Value::Share(share, _) => Key::Number((share * 1e15) as i64),
            Value::Time(at, _) => Key::Number(at.map_or(i64::MAX, |at| at.0)),
            Value::Short(secs) | Value::Long(secs) => secs.map_or(Key::Number(i64::MAX), number),
            Value::Cpu(n) | Value::Kib(n) | Value::Mib(n) | Value::Bytes(n) => number(*n),
        }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Text(Cow::Borrowed(text))
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Value::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::Text(Cow::Owned(text))
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Value::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Value::Number(number.into())
    }
}

impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Value::Number(flag.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, ctx};

    #[test]
    fn values_sort_by_type_and_not_by_text() {
        let sorted = |mut values: Vec<Value<'_>>| {
            values.sort_by(|a, b| a.key().cmp(&b.key()));
            values.into_iter().map(|v| v.text(&ctx()).into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            sorted(vec![Value::Number(10), Value::Number(9), "a".into(), Value::NONE]),
            " 9 10 a"
        );
        assert_eq!(
            sorted(vec![Value::Short(None), Value::Short(Some(86_400)), Value::Short(Some(9))]),
            "0:09 1-00:00:00 UNLIMITED"
        );
        assert_eq!(sorted(vec![Value::Mib(1024), Value::Mib(900)]), "900M 1G");
        assert_eq!(
            sorted(vec![Value::Time(None, "N/A"), Value::Time(Some(at(4)), "N/A")]),
            "2026-11-20T23:39:54 N/A"
        );
        assert_eq!(
            sorted(vec![Value::Ranked(10, "10_1".into()), Value::Ranked(9, "9".into())]),
            "9 10_1"
        );
        assert_eq!(sorted(vec![Value::Share(0.5, 2), Value::Share(0.25, 2)]), "0.25 0.50");
    }

    #[test]
    fn missing_values_have_slurms_words() {
        let text = |value: Value<'_>| value.text(&ctx()).into_owned();
        assert_eq!(
            [text(Value::or_null(None::<&str>)), text(Value::or_null(Some("")))],
            ["(null)", "(null)"]
        );
        assert_eq!(text(Value::or_not_available(None)), "N/A");
    }
}
