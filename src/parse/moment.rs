//! Points in time in Slurm's syntax: the grammar that `begin` and `acct_time` share.
//!
//! A text is a sequence of a day (`today`, `tomorrow`, `01/02/30`, `2030-01-02`), a time of day
//! (`16:00`, `4:30PM`, `noon`) and `now` with an offset, in any order and separated by spaces, `-`
//! or `T`: `16:00 tomorrow`. Callers choose the error text.

use crate::{number, suggest, time};
use jiff::civil::{Date, Time};
use jiff::tz::{Disambiguation, TimeZone};
use slotd_model::Timestamp;

/// The keywords of the grammar.
const WORDS: [&str; 8] =
    ["now", "today", "tomorrow", "midnight", "noon", "elevenses", "fika", "teatime"];

/// The direction in which an incomplete time is completed, and the instant chosen for a wall time
/// that occurs twice or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Toward {
    /// The next occurrence (`--begin`): after 16:00, `16:00` is tomorrow; in March, `01/02` is next
    /// year.
    Future,
    /// The most recent such day, and the earlier of two possible instants (`sacct -S`).
    PastStart,
    /// The most recent such day, and the later of two possible instants (`sacct -E`).
    PastEnd,
}

/// Parses a point in time.
///
/// # Errors
/// Returns the byte position of the first part that could not be parsed.
pub fn parse(
    text: &str,
    now: Timestamp,
    tz: &TimeZone,
    toward: Toward,
) -> Result<Timestamp, usize> {
    // Times outside jiff's years (-9999 to 9999) could not be printed as dates later.
    let in_range =
        |secs: i64| jiff::Timestamp::from_second(secs).is_ok().then(|| Timestamp::from_secs(secs));
    if let Some(secs) = epoch_seconds(text) {
        return in_range(secs).ok_or(0);
    }
    let present =
        jiff::Timestamp::from_second(now.as_secs()).map_err(|_| 0usize)?.to_zoned(tz.clone());
    let mut reader = Reader { text, pos: 0 };
    let mut day: Option<Date> = None;
    let mut clock: Option<Time> = None;
    let mut instant: Option<Timestamp> = None;
    loop {
        reader.skip_separators();
        if reader.rest().is_empty() {
            break;
        }
        let start = reader.pos;
        if reader.word("now") {
            let offset = reader.offset()?;
            let secs = now.as_secs().checked_add(offset).and_then(in_range);
            if instant.replace(secs.ok_or(start)?).is_some() {
                return Err(start);
            }
        } else if reader.word("today") {
            set(&mut day, present.date()).ok_or(start)?;
        } else if reader.word("tomorrow") {
            set(&mut day, present.date().tomorrow().map_err(|_| start)?).ok_or(start)?;
        } else if let Some(hour) = reader.named_hour() {
            set(&mut clock, Time::constant(hour, 0, 0, 0)).ok_or(start)?;
        } else if let Some(time) = reader.clock()? {
            set(&mut clock, time).ok_or(start)?;
        } else {
            set(&mut day, reader.date(present.date(), toward)?).ok_or(start)?;
        }
    }
    match (instant, day, clock) {
        (Some(instant), None, None) => Ok(instant),
        (None, Some(day), clock) => {
            resolve(day, clock.unwrap_or(Time::midnight()), tz, toward).ok_or(0)
        }
        (None, None, Some(clock)) => {
            let today = resolve(present.date(), clock, tz, toward).ok_or(0usize)?;
            // Compare seconds: at exactly 16:00:00, `16:00` is tomorrow, as in Slurm.
            if toward != Toward::Future || today.as_secs() > now.as_secs() {
                return Ok(today);
            }
            let tomorrow = present.date().tomorrow().map_err(|_| 0usize)?;
            resolve(tomorrow, clock, tz, toward).ok_or(0)
        }
        _ => Err(0),
    }
}

/// Parses `1767225600` or Slurm's `uts1767225600`. Slurm, which has only the latter, accepts it from
/// 1,000,000. A bare number needs at least nine digits: a shorter one is a date (`010230`) or a
/// mistake (`20300102`), and no job was submitted before 1973.
fn epoch_seconds(text: &str) -> Option<i64> {
    match text.get(..3) {
        Some(uts) if uts.eq_ignore_ascii_case("uts") => {
            number::digits(&text[3..])?.parse().ok().filter(|secs| *secs >= LEAST_UTS)
        }
        _ if is_number(text) && text.len() >= LEAST_DIGITS => text.parse().ok(),
        _ => None,
    }
}

const LEAST_UTS: i64 = 1_000_000;
const LEAST_DIGITS: usize = 9;

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Returns the forms that a hint lists for a malformed time: all, or those of a number.
pub fn hint(forms: &str, text: &str) -> String {
    if is_number(text) {
        return format!(
            "seconds since 1970 have at least {LEAST_DIGITS} digits (shorter: uts{LEAST_UTS}), dates are MMDD, MMDDYY or \
             YYYY-MM-DD"
        );
    }
    suggest::hint(forms, text, WORDS)
}

fn set<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.replace(value).is_none().then_some(())
}

/// Returns the instant of a wall time. A time that a clock change skips or repeats is resolved by
/// jiff's "compatible" rule for the future; for a time window, the instant that makes the window
/// larger is used.
fn resolve(day: Date, clock: Time, tz: &TimeZone, toward: Toward) -> Option<Timestamp> {
    let rule = match toward {
        Toward::Future => Disambiguation::Compatible,
        Toward::PastStart => Disambiguation::Earlier,
        Toward::PastEnd => Disambiguation::Later,
    };
    let instant = tz.to_ambiguous_timestamp(day.to_datetime(clock)).disambiguate(rule).ok()?;
    Some(Timestamp::from_secs(instant.as_second()))
}

struct Reader<'a> {
    text: &'a str,
    pos: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.pos..]
    }

    fn skip_separators(&mut self) {
        let rest = self.rest();
        let mut skip = 0;
        for (i, c) in rest.char_indices() {
            // `T` separates a date from a time, but `tomorrow`, `today` and `teatime` also begin
            // with one.
            let parts =
                matches!(c, 'T' | 't') && rest[i + 1..].starts_with(|c: char| c.is_ascii_digit());
            if !(c == ' ' || c == '\t' || c == '-' || parts) {
                break;
            }
            skip = i + 1;
        }
        self.pos += skip;
    }

    /// Consumes `word`, ignoring case, unless a letter follows it.
    fn word(&mut self, word: &str) -> bool {
        let rest = self.rest();
        let found = rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
            && !rest[word.len()..].starts_with(char::is_alphanumeric);
        if found {
            self.pos += word.len();
        }
        found
    }

    fn named_hour(&mut self) -> Option<i8> {
        [("midnight", 0), ("elevenses", 11), ("noon", 12), ("fika", 15), ("teatime", 16)]
            .into_iter()
            .find(|(word, _)| self.word(word))
            .map(|(_, hour)| hour)
    }

    /// Consumes `least` to `most` digits and returns their value.
    fn digits(&mut self, least: usize, most: usize) -> Option<i64> {
        let rest = self.rest();
        let count = rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if count < least {
            return None;
        }
        let value = rest[..count].parse().ok()?;
        self.pos += count;
        Some(value)
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.rest().starts_with(wanted);
        if found {
            self.pos += wanted.len_utf8();
        }
        found
    }

    /// Parses `HH:MM[:SS][ AM| PM]`. Consumes nothing if the text does not begin with `H:` or
    /// `HH:`.
    fn clock(&mut self) -> Result<Option<Time>, usize> {
        let start = self.pos;
        let hour = self.digits(1, 2);
        let (Some(hour), true) = (hour, self.take(':')) else {
            self.pos = start;
            return Ok(None);
        };
        let minute = self.digits(1, 2).ok_or(start)?;
        let second = if self.take(':') { self.digits(1, 2).ok_or(start)? } else { 0 };
        if self.rest().starts_with(|c: char| c.is_ascii_digit() || c == ':') {
            return Err(start);
        }
        let after = self.pos;
        while self.take(' ') {}
        let afternoon = if self.word("AM") {
            Some(false)
        } else if self.word("PM") {
            Some(true)
        } else {
            self.pos = after;
            None
        };
        let hour = match (hour, afternoon) {
            (_, None) => hour,
            (12, Some(false)) => 0,
            (1..=11, Some(true)) => hour + 12,
            (1..=12, Some(_)) => hour,
            _ => return Err(start),
        };
        match (i8::try_from(hour), i8::try_from(minute), i8::try_from(second)) {
            (Ok(h), Ok(m), Ok(s)) => Time::new(h, m, s, 0).map(Some).map_err(|_| start),
            _ => Err(start),
        }
    }

    /// Parses `YYYY-MM-DD`, `MMDD[YY]`, `MM/DD[/YY]` or `MM.DD[.YY]`. Years after a separator may
    /// have four digits.
    fn date(&mut self, today: Date, toward: Toward) -> Result<Date, usize> {
        let start = self.pos;
        let date = |year: i64, month: i64, day: i64| {
            let (year, month, day) =
                (i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?);
            Date::new(year, month, day).ok()
        };
        if self.rest().as_bytes().get(4) == Some(&b'-') {
            let year = self.digits(4, 4).ok_or(start)?;
            self.pos += 1;
            let month = self.digits(1, 2).ok_or(start)?;
            if !self.take('-') {
                return Err(start);
            }
            let day = self.digits(1, 2).ok_or(start)?;
            self.end_of_number(start)?;
            return date(year, month, day).ok_or(start);
        }
        let (month, day, year) = self.month_day_year(start)?;
        self.end_of_number(start)?;
        if let Some(year) = year {
            return date(year, month, day).ok_or(start);
        }
        // Without a year, choose the next or the most recent such day. 29 February skips years
        // without one.
        let this_year = i64::from(today.year());
        let years: Vec<i64> = match toward {
            Toward::Future => (this_year..=this_year + 8).collect(),
            Toward::PastStart | Toward::PastEnd => (this_year - 8..=this_year).rev().collect(),
        };
        years
            .into_iter()
            .filter_map(|year| date(year, month, day))
            .find(|&date| if toward == Toward::Future { date >= today } else { date <= today })
            .ok_or(start)
    }

    /// Parses `MMDD`, `MMDDYY`, `MM/DD` or `MM.DD`. The latter two may be followed by a year with
    /// two or four digits.
    fn month_day_year(&mut self, start: usize) -> Result<(i64, i64, Option<i64>), usize> {
        let run = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        if let 4 | 6 = run {
            let month = self.digits(2, 2).ok_or(start)?;
            let day = self.digits(2, 2).ok_or(start)?;
            let year = if run == 6 { Some(self.digits(2, 2).ok_or(start)? + 2000) } else { None };
            return Ok((month, day, year));
        }
        let month = self.digits(1, 2).ok_or(start)?;
        let separator =
            ['/', '.'].into_iter().find(|separator| self.take(*separator)).ok_or(start)?;
        let day = self.digits(1, 2).ok_or(start)?;
        if !self.take(separator) {
            return Ok((month, day, None));
        }
        let at = self.pos;
        let year = self.digits(2, 4).ok_or(start)?;
        match self.pos - at {
            2 => Ok((month, day, Some(year + 2000))),
            4 => Ok((month, day, Some(year))),
            _ => Err(start),
        }
    }

    fn end_of_number(&self, start: usize) -> Result<(), usize> {
        if self.rest().starts_with(|c: char| c.is_ascii_digit() || c == '/' || c == '.') {
            Err(start)
        } else {
            Ok(())
        }
    }

    /// Parses the optional offset after `now`: a sign and a duration. Returns seconds, negative for
    /// the past.
    fn offset(&mut self) -> Result<i64, usize> {
        while self.take(' ') {}
        let start = self.pos;
        let sign = if self.take('+') {
            1
        } else if self.take('-') {
            -1
        } else {
            return Ok(0);
        };
        while self.take(' ') {}
        let rest = self.rest();
        let length = rest
            .find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '-'))
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(length);
        let secs = if number.bytes().all(|b| b.is_ascii_digit()) {
            let unit = after.trim_start_matches(' ');
            let letters = unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len());
            let factor = unit_secs(&unit[..letters]).ok_or(start)?;
            self.pos = self.text.len() - (unit.len() - letters);
            number.parse::<i64>().ok().and_then(|n| n.checked_mul(factor))
        } else {
            // `now+00:10:00` uses the syntax of a time limit.
            self.pos += length;
            time::seconds(number).and_then(|secs| i64::try_from(secs).ok())
        };
        secs.map(|secs| sign * secs).ok_or(start)
    }
}

/// Returns the seconds of Slurm's units and of their prefixes (`min`, `h`); `m` is minutes.
fn unit_secs(unit: &str) -> Option<i64> {
    if unit.is_empty() {
        return Some(1);
    }
    let unit = unit.to_ascii_lowercase();
    let unit = match unit.as_str() {
        "secs" => "sec",
        "mins" => "min",
        unit => unit,
    };
    [("seconds", 1), ("minutes", 60), ("hours", 3600), ("days", 86_400), ("weeks", 604_800)]
        .into_iter()
        .find(|(name, _)| name.starts_with(unit))
        .map(|(_, secs)| secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::{DateTime, date};
    use proptest::prelude::*;

    /// Central European time as a POSIX rule, so that tests need no time zone database.
    fn berlin() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a rule")
    }

    fn at(tz: &TimeZone, local: DateTime) -> Timestamp {
        Timestamp::from_secs(tz.to_timestamp(local).expect("in range").as_second())
    }

    /// Parses `text` at `now`; both are wall times in Berlin.
    fn local(text: &str, now: DateTime, toward: Toward) -> Result<String, usize> {
        let tz = berlin();
        let instant = parse(text, at(&tz, now), &tz, toward)?;
        let zoned = jiff::Timestamp::from_second(instant.as_secs()).expect("in range").to_zoned(tz);
        Ok(zoned.datetime().to_string())
    }

    fn friday() -> DateTime {
        date(2026, 11, 20).at(23, 39, 37, 0)
    }

    #[test]
    fn every_slurm_form_parses() {
        for (text, meant) in [
            ("now", "2026-11-20T23:39:37"),
            ("now+60", "2026-11-20T23:40:37"),
            ("now+1hour", "2026-11-21T00:39:37"),
            ("now + 2 hours", "2026-11-21T01:39:37"),
            ("now+2days", "2026-11-22T23:39:37"),
            ("now+1week", "2026-11-27T23:39:37"),
            ("now+90seconds", "2026-11-20T23:41:07"),
            ("now+5min", "2026-11-20T23:44:37"),
            ("now+00:10:00", "2026-11-20T23:49:37"),
            ("now+1-00:00:00", "2026-11-21T23:39:37"),
            ("NOW-1minute", "2026-11-20T23:38:37"),
            ("today", "2026-11-20T00:00:00"),
            ("tomorrow", "2026-11-21T00:00:00"),
            ("midnight", "2026-11-21T00:00:00"),
            ("noon", "2026-11-21T12:00:00"),
            ("Teatime", "2026-11-21T16:00:00"),
            ("fika", "2026-11-21T15:00:00"),
            ("elevenses", "2026-11-21T11:00:00"),
            ("16:00", "2026-11-21T16:00:00"),
            ("23:40", "2026-11-20T23:40:00"),
            ("23:39:37", "2026-11-21T23:39:37"),
            ("23:39:38", "2026-11-20T23:39:38"),
            ("4:30PM", "2026-11-21T16:30:00"),
            ("12:00 am", "2026-11-21T00:00:00"),
            ("12:30pm", "2026-11-21T12:30:00"),
            ("16:00 tomorrow", "2026-11-21T16:00:00"),
            ("tomorrow 16:00", "2026-11-21T16:00:00"),
            ("noon tomorrow", "2026-11-21T12:00:00"),
            ("2030-01-02", "2030-01-02T00:00:00"),
            ("2030-01-02T03:04:05", "2030-01-02T03:04:05"),
            ("2030-01-02T03:04", "2030-01-02T03:04:00"),
            ("2030-01-02 03:04", "2030-01-02T03:04:00"),
            ("2030-1-2", "2030-01-02T00:00:00"),
            ("01/02/30", "2030-01-02T00:00:00"),
            ("01/02/30-03:04:05", "2030-01-02T03:04:05"),
            ("01/02/2030", "2030-01-02T00:00:00"),
            ("01.02.30", "2030-01-02T00:00:00"),
            ("1/2", "2027-01-02T00:00:00"),
            ("12/24", "2026-12-24T00:00:00"),
            ("11/20", "2026-11-20T00:00:00"),
            ("0102", "2027-01-02T00:00:00"),
            ("010230", "2030-01-02T00:00:00"),
            ("1893456000", "2030-01-01T01:00:00"),
            ("uts1893456000", "2030-01-01T01:00:00"),
            ("uts1000000", "1970-01-12T14:46:40"),
            ("uts +1893456000", "2030-01-01T01:00:00"),
        ] {
            assert_eq!(local(text, friday(), Toward::Future), Ok(meant.to_string()), "{text}");
        }
    }

    #[test]
    fn an_accounting_window_points_to_the_past() {
        for (text, meant) in [
            ("now-3600", "2026-11-20T22:39:37"),
            ("now-2days", "2026-11-18T23:39:37"),
            ("midnight", "2026-11-20T00:00:00"),
            ("23:59", "2026-11-20T23:59:00"),
            ("12/24", "2025-12-24T00:00:00"),
            ("11/20", "2026-11-20T00:00:00"),
            ("1231", "2025-12-31T00:00:00"),
            ("02/29", "2024-02-29T00:00:00"),
        ] {
            for toward in [Toward::PastStart, Toward::PastEnd] {
                assert_eq!(local(text, friday(), toward), Ok(meant.to_string()), "{text}");
            }
        }
    }

    #[test]
    fn malformed_time_errors_have_the_position() {
        for (text, pos) in [
            ("foo", 0),
            ("", 0),
            ("-", 0),
            ("16", 0),
            ("1234567", 0),
            ("20300102", 0),
            ("uts", 0),
            ("uts0", 0),
            ("uts999999", 0),
            ("uts-5", 0),
            ("25:00", 0),
            ("16:60", 0),
            ("13:00PM", 0),
            ("0:30AM", 0),
            ("1:2:3:4", 0),
            ("2030-13-01", 0),
            ("2030-02-30", 0),
            ("02/30", 0),
            ("1/2.30", 0),
            ("1/2/3", 0),
            ("tomorrow foo", 9),
            ("tomorrow today", 9),
            ("noon 16:00", 5),
            ("now+", 3),
            ("now+x", 3),
            ("now+1fortnight", 3),
            ("now tomorrow", 0),
            ("now+99999999999999999999", 3),
            ("now+9999999999999", 0),
            ("99999999999999", 0),
        ] {
            assert_eq!(local(text, friday(), Toward::Future), Err(pos), "{text}");
        }
    }

    #[test]
    fn skipped_wall_times_move_forward_and_repeated_ones_mean_the_first() {
        // Clocks change from 02:00 to 03:00 on 2026-03-29 and from 03:00 back to 02:00 on
        // 2026-10-25.
        let now = date(2026, 3, 1).at(0, 0, 0, 0);
        assert_eq!(
            local("2026-03-29T02:30", now, Toward::Future),
            Ok("2026-03-29T03:30:00".to_string())
        );
        let tz = berlin();
        let first = at(&tz, date(2026, 10, 25).at(1, 30, 0, 0)).plus_secs(3600);
        let read = |toward| parse("2026-10-25T02:30", Timestamp(0), &tz, toward);
        assert_eq!(read(Toward::Future), Ok(first));
        assert_eq!(read(Toward::PastStart), Ok(first));
        assert_eq!(read(Toward::PastEnd), Ok(first.plus_secs(3600)));
    }

    #[test]
    fn tomorrow_is_the_next_calendar_day_even_after_a_25_hour_day() {
        let now = date(2026, 10, 25).at(0, 30, 0, 0);
        assert_eq!(local("tomorrow", now, Toward::Future), Ok("2026-10-26T00:00:00".to_string()));
        assert_eq!(local("now+1day", now, Toward::Future), Ok("2026-10-25T23:30:00".to_string()));
    }

    proptest! {
        #[test]
        fn a_printed_instant_reads_back(secs in 0i64..4_000_000_000) {
            let tz = berlin();
            let zoned = jiff::Timestamp::from_second(secs).expect("in range").to_zoned(tz.clone());
            let read = parse(&zoned.datetime().to_string(), Timestamp(0), &tz, Toward::Future).expect("ISO");
            let printed = jiff::Timestamp::from_second(read.as_secs()).expect("in range").to_zoned(tz.clone());
            prop_assert_eq!(printed.datetime(), zoned.datetime());
            let seconds = parse(&format!("uts{secs}"), Timestamp(0), &tz, Toward::PastEnd);
            prop_assert_eq!(seconds.ok(), (secs >= LEAST_UTS).then(|| Timestamp::from_secs(secs)));
        }

        #[test]
        fn a_bare_time_lies_within_the_next_day(now in 0i64..4_000_000_000, h in 0u8..24, m in 0u8..60) {
            let now = Timestamp::from_secs(now);
            let read = parse(&format!("{h}:{m:02}"), now, &berlin(), Toward::Future).expect("a time");
            prop_assert!(read > now && read.since(now).as_secs() <= 26 * 3600);
        }

        #[test]
        fn no_text_breaks_the_parser(
            text in "(now|today|tomorrow|noon|[0-9]{1,4}|[-+:/.T ]|AM|PM|hour|days){0,10}|.*",
            now in any::<i64>(),
        ) {
            for toward in [Toward::Future, Toward::PastStart, Toward::PastEnd] {
                if let Err(pos) = parse(&text, Timestamp(now), &berlin(), toward) {
                    prop_assert!(text.is_char_boundary(pos));
                }
            }
        }
    }
}
