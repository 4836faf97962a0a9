//! Points in time as Slurm's commands read them: the grammar that `begin` and `acct_time` share.
//!
//! A text is a sequence of a day (`today`, `tomorrow`, `01/02/30`, `2030-01-02`), a time of day (`16:00`, `4:30PM`,
//! `noon`) and `now` with an offset, with blanks, `-` or `T` between them, in any order: `16:00 tomorrow`.
//! This module says what the words mean; which error text a malformed one gets is the caller's business.

use crate::model::Timestamp;
use crate::spec::time;
use jiff::civil::{Date, Time};
use jiff::tz::{Disambiguation, TimeZone};

/// Which way an incomplete time points, and which instant a wall time that occurs twice or never stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Toward {
    /// The next such time (`--begin`): `16:00` after four is tomorrow's, `01/02` in March is next year's.
    Future,
    /// The latest such day, and of two possible instants the earlier (`sacct -S`).
    PastStart,
    /// The latest such day, and of two possible instants the later (`sacct -E`).
    PastEnd,
}

/// The instant that `text` names.
///
/// # Errors
/// The position, in bytes, of the first thing that was not understood.
pub fn parse(text: &str, now: Timestamp, tz: &TimeZone, toward: Toward) -> Result<Timestamp, usize> {
    // The last second whose calendar time still exists in every zone.
    let in_range = |secs: i64| jiff::Timestamp::from_second(secs).is_ok().then(|| Timestamp::from_secs(secs));
    if let Some(secs) = epoch_seconds(text) {
        return in_range(secs).ok_or(0);
    }
    let present = jiff::Timestamp::from_second(now.as_secs()).map_err(|_| 0usize)?.to_zoned(tz.clone());
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
        (None, Some(day), clock) => resolve(day, clock.unwrap_or(Time::midnight()), tz, toward).ok_or(0),
        (None, None, Some(clock)) => {
            let today = resolve(present.date(), clock, tz, toward).ok_or(0usize)?;
            // The seconds of `now` count: at 16:00:00 sharp, `16:00` is tomorrow's, as in Slurm.
            if toward != Toward::Future || today.as_secs() > now.as_secs() {
                return Ok(today);
            }
            let tomorrow = present.date().tomorrow().map_err(|_| 0usize)?;
            resolve(tomorrow, clock, tz, toward).ok_or(0)
        }
        _ => Err(0),
    }
}

/// `1767225600` or Slurm's `uts1767225600`. Nine digits or more: fewer are a date (`010230`) or a mistake
/// (`20300102`), and no job was submitted before 1973.
fn epoch_seconds(text: &str) -> Option<i64> {
    let (digits, least) = match text.get(..3) {
        Some(uts) if uts.eq_ignore_ascii_case("uts") => (&text[3..], 1),
        _ => (text, 9),
    };
    if digits.len() < least || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

fn set<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.replace(value).is_none().then_some(())
}

/// The instant of a wall time. One that a clock change skips or repeats is taken as the direction wants it:
/// jiff's "compatible" rule for the future, and for a window the instant that makes the window larger.
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
            // `T` parts a date from a time; `tomorrow` and `today` and `teatime` begin with one.
            let parts = matches!(c, 'T' | 't') && rest[i + 1..].starts_with(|c: char| c.is_ascii_digit());
            if !(c == ' ' || c == '\t' || c == '-' || parts) {
                break;
            }
            skip = i + 1;
        }
        self.pos += skip;
    }

    /// Takes `word`, in any case, where no letter follows it.
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

    /// How many digits come next, at most `most`, and their value.
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

    /// `HH:MM[:SS][ AM| PM]`; nothing is taken where no `H:` or `HH:` comes next.
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
        let hour = if self.word("AM") || self.word("PM") {
            let pm = self.text[..self.pos].ends_with(['P', 'p', 'M', 'm'])
                && self.text[..self.pos - 1].ends_with(['P', 'p']);
            match (hour, pm) {
                (12, false) => 0,
                (1..=11, true) => hour + 12,
                (1..=12, _) => hour,
                _ => return Err(start),
            }
        } else {
            self.pos = after;
            hour
        };
        match (i8::try_from(hour), i8::try_from(minute), i8::try_from(second)) {
            (Ok(h), Ok(m), Ok(s)) => Time::new(h, m, s, 0).map(Some).map_err(|_| start),
            _ => Err(start),
        }
    }

    /// `YYYY-MM-DD`, `MMDD[YY]`, `MM/DD[/YY]` or `MM.DD[.YY]`; the year may have four digits in all of them.
    fn date(&mut self, today: Date, toward: Toward) -> Result<Date, usize> {
        let start = self.pos;
        let date = |year: i64, month: i64, day: i64| {
            let (year, month, day) = (i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?);
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
        let run = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let (month, day, year);
        if let 4 | 6 = run {
            month = self.digits(2, 2).ok_or(start)?;
            day = self.digits(2, 2).ok_or(start)?;
            year = if run == 6 { Some(self.digits(2, 2).ok_or(start)? + 2000) } else { None };
        } else {
            month = self.digits(1, 2).ok_or(start)?;
            let separator = if self.take('/') {
                '/'
            } else if self.take('.') {
                '.'
            } else {
                return Err(start);
            };
            day = self.digits(1, 2).ok_or(start)?;
            year = if self.take(separator) {
                let at = self.pos;
                let year = self.digits(2, 4).ok_or(start)?;
                match self.pos - at {
                    2 => Some(year + 2000),
                    4 => Some(year),
                    _ => return Err(start),
                }
            } else {
                None
            };
        }
        self.end_of_number(start)?;
        if let Some(year) = year {
            return date(year, month, day).ok_or(start);
        }
        // Without a year: the next such day, or the latest, and 29 February only where there is one.
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

    fn end_of_number(&self, start: usize) -> Result<(), usize> {
        if self.rest().starts_with(|c: char| c.is_ascii_digit() || c == '/' || c == '.') { Err(start) } else { Ok(()) }
    }

    /// What stands after `now`: nothing, or a sign and a length of time. Seconds, negative for the past.
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
        let length = rest.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '-')).unwrap_or(rest.len());
        let (number, after) = rest.split_at(length);
        let secs = if number.bytes().all(|b| b.is_ascii_digit()) {
            let unit = after.trim_start_matches(' ');
            let letters = unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len());
            let factor = unit_secs(&unit[..letters]).ok_or(start)?;
            self.pos = self.text.len() - (unit.len() - letters);
            number.parse::<i64>().ok().and_then(|n| n.checked_mul(factor))
        } else {
            // The book's `now+00:10:00`: the forms of a time limit.
            self.pos += length;
            time::seconds(number).and_then(|secs| i64::try_from(secs).ok())
        };
        secs.map(|secs| sign * secs).ok_or(start)
    }
}

/// Seconds of Slurm's units and of their beginnings (`min`, `h`); `m` is minutes.
fn unit_secs(unit: &str) -> Option<i64> {
    if unit.is_empty() {
        return Some(1);
    }
    let unit = unit.to_ascii_lowercase();
    [("seconds", 1), ("minutes", 60), ("hours", 3600), ("days", 86_400), ("weeks", 604_800)]
        .into_iter()
        .find(|(name, _)| {
            name.starts_with(&unit) || (unit == "secs" && *name == "seconds") || (unit == "mins" && *name == "minutes")
        })
        .map(|(_, secs)| secs)
}
