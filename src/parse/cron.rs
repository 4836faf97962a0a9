//! The times of crontab entries, in Slurm's grammar: five fields or a name such as `@daily`.
//!
//! A crate finds the next matching date. The fields that it receives are plain lists of numbers,
//! because its grammar is larger than Slurm's.

use crate::hours::Zone;
use cronexpr::{Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions};
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp as Instant, ToSpan};
use slotd_model::Timestamp;
use slotd_model::cron::{Recurrence, Values};
use std::fmt;

/// The reason why a line is not an entry, in Slurm's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    #[error("something is broken")]
    Malformed,
    #[error("cronspec_to_bitstring: unexpected end of line")]
    End,
    #[error("bad step value")]
    Step,
    #[error("bad month specification")]
    Month,
    #[error("bad day specification")]
    Weekday,
    #[error("invalid @ line")]
    Name,
}

use CronError::Malformed;

/// The time and the command of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timed<'a> {
    pub recurrence: Recurrence,
    /// The time as written: `0 5 * * mon`.
    pub written: &'a str,
    pub command: &'a str,
}

const MONTHS: &[&str] =
    &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// A field of the time.
struct Field {
    /// The number of values, including one that wraps to 0.
    size: u8,
    /// The first value of `*/2`.
    first: u8,
    /// The names of the values from 1 on.
    names: &'static [&'static str],
    unknown_name: CronError,
}

impl Field {
    const fn numbers(size: u8, first: u8) -> Field {
        Field { size, first, names: &[], unknown_name: Malformed }
    }

    const FIVE: [Field; 5] = [
        Field::numbers(61, 0),
        Field::numbers(25, 0),
        Field::numbers(32, 1),
        Field { size: 13, first: 1, names: MONTHS, unknown_name: CronError::Month },
        Field { size: 8, first: 1, names: WEEKDAYS, unknown_name: CronError::Weekday },
    ];

    /// Parses a field and returns the rest of the line. The values of `*` are `None`.
    fn parse<'a>(&self, text: &'a str) -> Result<(Option<Values>, &'a str), CronError> {
        let is_name = !self.names.is_empty() && text.starts_with(|c: char| c.is_ascii_alphabetic());
        let (mut values, rest) = match text.strip_prefix('*') {
            _ if text.is_empty() => return Err(CronError::End),
            Some(rest) if !rest.starts_with('/') => return Ok((None, rest)),
            Some(rest) => ((0..self.size).collect(), rest),
            None if is_name => self.name(text)?,
            None => self.list(text)?,
        };
        let Some(step) = rest.strip_prefix('/') else { return Ok((Some(values), rest)) };
        let (digits, rest) = split_at_digits_end(step);
        let step: u8 = digits.parse().map_err(|_| CronError::Step)?;
        if step <= 1 || step >= self.size {
            return Err(CronError::Step);
        }
        let steps: Values = (self.first..self.size).step_by(usize::from(step)).collect();
        values = values.iter().filter(|value| steps.contains(*value)).collect();
        Ok((Some(values), rest))
    }

    /// Parses the first three letters of a name. Lists and ranges of names do not exist.
    fn name<'a>(&self, text: &'a str) -> Result<(Values, &'a str), CronError> {
        let (word, rest) = text.split_at_checked(3).ok_or(self.unknown_name)?;
        let found = (1_u8..).zip(self.names).find(|(_, name)| name.eq_ignore_ascii_case(word));
        let (value, _) = found.ok_or(self.unknown_name)?;
        Ok((Values::from_iter([value]), rest))
    }

    /// Parses `1,3-5`.
    fn list<'a>(&self, text: &'a str) -> Result<(Values, &'a str), CronError> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '-' && c != ',');
        let (list, rest) = text.split_at(end.unwrap_or(text.len()));
        let mut values = Values::default();
        for range in list.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.parse::<u8>().map_err(|_| Malformed);
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= self.size {
                return Err(Malformed);
            }
            (first..=last).for_each(|value| values.insert(value));
        }
        Ok((values, rest))
    }
}

fn split_at_digits_end(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns the text after the blanks that end a field.
fn after_blanks(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches([' ', '\t']);
    (rest.len() < text.len()).then_some(rest)
}

/// Parses a line with a time and a command.
///
/// # Errors
/// Fails if the time is malformed or never comes (31 February), or if there is no command.
pub fn parse(line: &str) -> Result<Timed<'_>, CronError> {
    let (recurrence, rest) = match line.strip_prefix('@') {
        Some(name) => named(name)?,
        None => five_fields(line)?,
    };
    let written = line.strip_suffix(rest).unwrap_or(line);
    let command = after_blanks(rest).filter(|command| !command.is_empty()).ok_or(Malformed)?;
    if !can_come(&recurrence) {
        return Err(Malformed);
    }
    Ok(Timed { recurrence, written, command })
}

fn five_fields(line: &str) -> Result<(Recurrence, &str), CronError> {
    let mut fields = [None; 5];
    let mut rest = line;
    for (at, (field, found)) in Field::FIVE.iter().zip(&mut fields).enumerate() {
        if at > 0 {
            rest = after_blanks(rest).ok_or(Malformed)?;
        }
        (*found, rest) = field.parse(rest)?;
    }
    let [minute, hour, day_of_month, month, day_of_week] = fields;
    let minute = minute.map(|values| wrapped(values, 60));
    let hour = hour.map(|values| wrapped(values, 24));
    let day_of_week = day_of_week.map(|values| wrapped(values, 7));
    let without_zero = |field: Option<Values>| field.map(|v| v.iter().filter(|v| *v > 0).collect());
    let (day_of_month, month) = (without_zero(day_of_month), without_zero(month));
    Ok((Recurrence { minute, hour, day_of_month, month, day_of_week }, rest))
}

/// Replaces the value after the last one by 0.
fn wrapped(mut values: Values, last: u8) -> Values {
    if values.contains(last) {
        values.insert(0);
        values.remove(last);
    }
    values
}

fn named(name: &str) -> Result<(Recurrence, &str), CronError> {
    let one = |value: u8| Some(Values::from_iter([value]));
    let hourly = Recurrence { minute: one(0), ..Recurrence::default() };
    let daily = Recurrence { hour: one(0), ..hourly };
    let weekly = Recurrence { day_of_week: one(0), ..daily };
    let monthly = Recurrence { day_of_month: one(1), ..daily };
    let yearly = Recurrence { month: one(1), ..monthly };
    let known = [
        ("yearly", yearly),
        ("annually", yearly),
        ("monthly", monthly),
        ("weekly", weekly),
        ("daily", daily),
        ("midnight", daily),
        ("hourly", hourly),
    ];
    let found = known.into_iter().find_map(|(word, recurrence)| {
        let (start, rest) = name.split_at_checked(word.len())?;
        start.eq_ignore_ascii_case(word).then_some((recurrence, rest))
    });
    found.ok_or(CronError::Name)
}

/// Returns whether each field has a value, and the months have one of the days. As in Slurm, that
/// also holds if the day of the week could match instead.
fn can_come(recurrence: &Recurrence) -> bool {
    let Recurrence { minute, hour, day_of_month, month, day_of_week } = recurrence;
    let is_empty =
        |field: &Option<Values>| field.is_some_and(|values| values.iter().next().is_none());
    if [minute, hour, day_of_month, month, day_of_week].into_iter().any(is_empty) {
        return false;
    }
    let has_month = |days: u8| {
        let longest = |month: u8| match month {
            2 => 29,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        month.is_none_or(|months| months.iter().any(|month| longest(month) >= days))
    };
    day_of_month.and_then(|days| days.iter().next()).is_none_or(has_month)
}

/// A recurrence in the grammar of the crate, on the calendar alone.
struct Calendar(Crontab);

/// Prints a field as a list of numbers, never as `*/2`.
struct List(Option<Values>);

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("*"),
            Some(values) => values.fmt(f),
        }
    }
}

/// The crate looks this many years ahead at once. 29 February may be eight years away.
const YEARS_AT_ONCE: i32 = 4;
const MOST_SEARCHES: usize = 3;

impl Calendar {
    fn of(recurrence: &Recurrence) -> Option<Calendar> {
        let Recurrence { minute, hour, day_of_month, month, day_of_week } = *recurrence;
        let text = [minute, hour, day_of_month, month, day_of_week].map(|f| List(f).to_string());
        let mut options = ParseOptions::default();
        options.fallback_timezone_option = FallbackTimezoneOption::UTC;
        cronexpr::parse_crontab_with(&text.join(" "), options).ok().map(Calendar)
    }

    /// Returns the first matching minute of the calendar after this one.
    fn after(&self, minute: DateTime) -> Option<DateTime> {
        let mut from = minute;
        for _ in 0..MOST_SEARCHES {
            let start = Offset::UTC.to_timestamp(from).ok()?;
            if let Ok(found) = self.0.find_next(MakeTimestamp(start)) {
                return Some(found.datetime());
            }
            from = from.checked_add(YEARS_AT_ONCE.years()).ok()?.checked_sub(1.day()).ok()?;
        }
        None
    }
}

/// The most time zone changes to look beyond. Zones have a few a year, a leap day is eight years
/// away at most.
const MOST_CHANGES: usize = 100;

/// The most times to skip because they came before the clocks went back. A day has fewer minutes.
const MOST_SKIPPED: usize = 24 * 60;

impl Zone {
    /// Returns the first time after `now` at which a job recurs. `None`: never.
    ///
    /// As in cron, daylight saving affects entries with fixed hours and others differently. An hour
    /// that is skipped delays a fixed one by as much as the clocks change, and a repeated hour does
    /// not repeat it. With `*` for the hour, entries follow the time that passes.
    pub fn next_of(&self, recurrence: &Recurrence, now: Timestamp) -> Option<Timestamp> {
        let calendar = Calendar::of(recurrence)?;
        let now = Instant::from_second(now.as_secs()).ok()?;
        let next = match recurrence.hour {
            Some(_) => self.next_of_fixed(&calendar, now),
            None => self.next_of_any_hour(&calendar, now),
        };
        next.map(|at| Timestamp::from_secs(at.as_second()))
    }

    fn next_of_fixed(&self, calendar: &Calendar, now: Instant) -> Option<Instant> {
        let mut minute = self.time_zone().to_datetime(now);
        for _ in 0..MOST_SKIPPED {
            minute = calendar.after(minute)?;
            let at = self.time_zone().to_ambiguous_zoned(minute).compatible().ok()?.timestamp();
            if at > now {
                return Some(at);
            }
        }
        None
    }

    fn next_of_any_hour(&self, calendar: &Calendar, now: Instant) -> Option<Instant> {
        let zone: &TimeZone = self.time_zone();
        let mut minute = calendar.after(zone.to_datetime(now))?;
        let (mut since, mut offset) = (now, zone.to_offset(now));
        for _ in 0..MOST_CHANGES {
            let at = offset.to_timestamp(minute).ok()?;
            let change = zone.following(since).next().map(|change| change.timestamp());
            let Some(change) = change.filter(|change| *change <= at) else { return Some(at) };
            // The clock shows other times from here on.
            (since, offset) = (change, zone.to_offset(change));
            let just_before = zone.to_datetime(change).checked_sub(1.minute()).ok()?;
            minute = calendar.after(just_before)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spec(time: &str) -> Result<String, CronError> {
        parse(&format!("{time} true")).map(|timed| timed.recurrence.to_string())
    }

    #[test]
    fn fields_and_names_are_read_as_in_slurm() {
        let same = [
            ("* * * * *", "* * * * *"),
            ("0 5 * * mon", "0 5 * * 1"),
            ("0 5 * JANuary *", ""),
            ("0 5 * JAN SUN", "0 5 * 1 0"),
            ("*/7 * * * *", "0,7,14,21,28,35,42,49,56 * * * *"),
            ("*/20 */6 */10 */5 */2", "0,20,40 0,6,12,18 1,11,21,31 1,6,11 0-1,3,5"),
            ("1-10/3 * * * *", "3,6,9 * * * *"),
            ("60 24 1,15 * 7", "0 0 1,15 * 0"),
            ("5,1-3 * * * 0-7", "1-3,5 * * * 0-6"),
            ("@Daily", "0 0 * * *"),
            ("@midnight", "0 0 * * *"),
            ("@hourly", "0 * * * *"),
            ("@weekly", "0 0 * * 0"),
            ("@monthly", "0 0 1 * *"),
            ("@yearly", "0 0 1 1 *"),
            ("@annually", "0 0 1 1 *"),
            ("0 0 29 2 *", "0 0 29 2 *"),
            ("0 0 30-31 2,4 *", "0 0 30-31 2,4 *"),
        ];
        for (text, shown) in same {
            let expected = if shown.is_empty() { Err(Malformed) } else { Ok(shown.to_owned()) };
            assert_eq!(spec(text), expected, "{text}");
        }
    }

    #[test]
    fn the_time_is_kept_as_written() {
        let timed = parse("0 5\t* * mon  \t echo  two ").unwrap();
        assert_eq!((timed.written, timed.command), ("0 5\t* * mon", "echo  two "));
        let timed = parse("@daily /bin/true arg").unwrap();
        assert_eq!((timed.written, timed.command), ("@daily", "/bin/true arg"));
    }

    #[test]
    fn malformed_times_are_refused_in_slurms_words() {
        let refused = [
            ("bad line", Malformed),
            ("61 * * * * true", Malformed),
            ("* * * * *", Malformed),
            ("* * *", Malformed),
            ("* * * ", CronError::End),
            ("", CronError::End),
            ("0 0 31 2 * true", Malformed),
            ("0 0 31 4,6 mon true", Malformed),
            ("0 0 0 * * true", Malformed),
            ("* * * true", CronError::Month),
            ("0 0 * foo * true", CronError::Month),
            ("0 0 * é * true", Malformed),
            ("0 0 * * foo true", CronError::Weekday),
            ("0 0 * * mon,tue true", Malformed),
            ("*/1 * * * * true", CronError::Step),
            ("*/61 * * * * true", CronError::Step),
            ("*/999 * * * * true", CronError::Step),
            ("*/ * * * * true", CronError::Step),
            ("5-1 * * * * true", Malformed),
            ("1- * * * * true", Malformed),
            ("1,,2 * * * * true", Malformed),
            ("@reboot true", CronError::Name),
            ("@dailyx true", Malformed),
            ("@daily", Malformed),
        ];
        for (line, error) in refused {
            assert_eq!(parse(line), Err(error), "{line}");
        }
    }

    /// Central European time, with daylight saving from 2026-03-29 02:00 to 2026-10-25 03:00.
    fn berlin() -> Zone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap().into()
    }

    fn secs(text: &str) -> Timestamp {
        Timestamp::from_secs(text.parse::<Instant>().unwrap().as_second())
    }

    /// Returns the first times after this UTC time, in UTC.
    fn times(zone: &Zone, time: &str, from: &str, count: usize) -> Vec<String> {
        let recurrence = parse(&format!("{time} true")).unwrap().recurrence;
        let mut now = secs(from);
        let mut found = Vec::new();
        while found.len() < count {
            now = zone.next_of(&recurrence, now).unwrap();
            let at = Instant::from_second(now.as_secs()).unwrap().to_string();
            found.push(at.trim_start_matches("20").trim_end_matches(":00Z").to_owned());
        }
        found
    }

    fn utc(time: &str, from: &str, count: usize) -> Vec<String> {
        times(&Zone::default(), time, from, count)
    }

    #[test]
    fn the_next_time_is_in_a_later_minute() {
        assert_eq!(
            utc("* * * * *", "2026-11-26T10:00:00Z", 2),
            ["26-11-26T10:01", "26-11-26T10:02"]
        );
        assert_eq!(utc("* * * * *", "2026-11-26T10:00:59Z", 1), ["26-11-26T10:01"]);
        assert_eq!(
            utc("*/7 * * * *", "2026-11-26T10:49:00Z", 3),
            ["26-11-26T10:56", "26-11-26T11:00", "26-11-26T11:07"]
        );
    }

    #[test]
    fn months_without_the_day_are_skipped() {
        assert_eq!(
            utc("0 0 31 * *", "2026-01-31T00:00:00Z", 3),
            ["26-03-31T00:00", "26-05-31T00:00", "26-07-31T00:00"]
        );
        assert_eq!(
            utc("0 0 29 2 *", "2026-01-01T00:00:00Z", 2),
            ["28-02-29T00:00", "32-02-29T00:00"]
        );
        // 2100 is not a leap year.
        assert_eq!(utc("0 0 29 2 *", "2096-03-01T00:00:00Z", 1), ["2104-02-29T00:00"]);
    }

    #[test]
    fn either_day_suffices_if_both_are_restricted() {
        // 2026-11-26 is a Thursday.
        assert_eq!(
            utc("0 0 1,15 * mon", "2026-11-26T00:00:00Z", 4),
            ["26-11-30T00:00", "26-12-01T00:00", "26-12-07T00:00", "26-12-14T00:00"]
        );
        // A step restricts the field, too.
        assert_eq!(
            utc("0 0 */30 * mon", "2026-11-26T00:00:00Z", 3),
            ["26-11-30T00:00", "26-12-01T00:00", "26-12-07T00:00"]
        );
        assert_eq!(
            utc("0 0 * * 0", "2026-11-26T00:00:00Z", 2),
            ["26-11-29T00:00", "26-12-06T00:00"]
        );
    }

    #[test]
    fn a_skipped_hour_delays_fixed_times_only() {
        let at = |time, count| times(&berlin(), time, "2026-03-29T00:30:00Z", count);
        // 02:30 does not exist on that day.
        assert_eq!(at("30 2 * * *", 2), ["26-03-29T01:30", "26-03-30T00:30"]);
        assert_eq!(at("0 3 * * *", 2), ["26-03-29T01:00", "26-03-30T01:00"]);
        assert_eq!(at("*/30 * * * *", 3), ["26-03-29T01:00", "26-03-29T01:30", "26-03-29T02:00"]);
        assert_eq!(at("10 * * * *", 2), ["26-03-29T01:10", "26-03-29T02:10"]);
    }

    #[test]
    fn a_repeated_hour_repeats_only_entries_for_all_hours() {
        let at = |time, count| times(&berlin(), time, "2026-10-25T00:10:00Z", count);
        assert_eq!(at("30 2 * * *", 2), ["26-10-25T00:30", "26-10-26T01:30"]);
        assert_eq!(times(&berlin(), "30 2 * * *", "2026-10-25T01:10:00Z", 1), ["26-10-26T01:30"]);
        assert_eq!(at("30 * * * *", 3), ["26-10-25T00:30", "26-10-25T01:30", "26-10-25T02:30"]);
        assert_eq!(
            at("*/20 * 25 * *", 4),
            ["26-10-25T00:20", "26-10-25T00:40", "26-10-25T01:00", "26-10-25T01:20"]
        );
        // Summer is several changes away.
        assert_eq!(at("0 * 1 7 *", 1), ["27-06-30T22:00"]);
    }

    proptest! {
        #[test]
        fn no_line_panics(line in "\\PC{0,30}", fields in "[0-9*/,@a-z-]{1,6}( [0-9*/,a-z-]{1,6}){0,5}") {
            let _ = parse(&line);
            let _ = parse(&fields);
        }

        #[test]
        fn printed_fields_read_back(minute in "(\\*|[0-5]?[0-9](,[0-5]?[0-9]){0,3})(/[2-9])?", day in "[1-9]|[12][0-9]") {
            if let Ok(timed) = parse(&format!("{minute} * {day} * * true")) {
                let shown = format!("{} true", timed.recurrence);
                prop_assert_eq!(parse(&shown).map(|again| again.recurrence), Ok(timed.recurrence));
            }
        }

        /// Every found time matches, and none is left out: with `*` for the hour, the clock shows
        /// a matching minute, and no minute between matches.
        #[test]
        fn the_next_time_is_the_first_match(start in 1_774_700_000_i64..1_800_000_000, step in 2_u8..60) {
            let recurrence = parse(&format!("*/{step} * * * * true")).unwrap().recurrence;
            let zone = berlin();
            let next = zone.next_of(&recurrence, Timestamp::from_secs(start)).unwrap().as_secs();
            let matches = |secs: i64| {
                let clock = zone.time_zone().to_datetime(Instant::from_second(secs).unwrap());
                recurrence.minute.unwrap().contains(clock.minute() as u8)
            };
            prop_assert!(next > start && next % 60 == 0 && matches(next));
            let first_minute = start - start.rem_euclid(60) + 60;
            prop_assert!((first_minute..next).step_by(60).all(|secs| !matches(secs)));
        }
    }
}
