//! The hours of the day during which a partition starts jobs (`allowed_hours` of `slotd.toml`), and
//! the calendar of the local time zone.

use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use slotd_model::Timestamp;
use slotd_model::partition::Hours;

const MINUTES_OF_DAY: u16 = 24 * 60;

/// Parses `18:00-08:00`. The hours may span midnight. Returns `None` if the text is malformed.
pub fn parse(text: &str) -> Option<Hours> {
    let minute = |text: &str| -> Option<u16> {
        let (hours, minutes) = text.trim().split_once(':')?;
        let digits =
            |text: &str| (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        let (hours, minutes): (u16, u16) = (
            hours.parse().ok().filter(|_| digits(hours))?,
            minutes.parse().ok().filter(|_| minutes.len() == 2)?,
        );
        (minutes < 60 && hours * 60 + minutes <= MINUTES_OF_DAY)
            .then_some((hours * 60 + minutes) % MINUTES_OF_DAY)
    };
    let (from, until) = text.split_once('-')?;
    let hours = Hours { from: minute(from)?, until: minute(until)? };
    (hours.from != hours.until).then_some(hours)
}

/// The time zone in which hours are interpreted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Default for Zone {
    fn default() -> Self {
        Zone(TimeZone::UTC)
    }
}

impl From<TimeZone> for Zone {
    fn from(zone: TimeZone) -> Self {
        Zone(zone)
    }
}

impl Zone {
    /// Returns whether `now` is within these hours.
    pub fn is_within(&self, hours: Hours, now: Timestamp) -> bool {
        let Some(now) = self.at(now) else { return true };
        let minute =
            u16::try_from(i32::from(now.hour()) * 60 + i32::from(now.minute())).unwrap_or(0);
        if hours.from < hours.until {
            (hours.from..hours.until).contains(&minute)
        } else {
            minute >= hours.from || minute < hours.until
        }
    }

    /// Returns the next time at which these hours begin.
    pub fn next_begin(&self, hours: Hours, now: Timestamp) -> Option<Timestamp> {
        let present = self.at(now)?;
        let clock = Time::new((hours.from / 60) as i8, (hours.from % 60) as i8, 0, 0).ok()?;
        [present.date(), present.date().tomorrow().ok()?].into_iter().find_map(|day| {
            let begin = self.0.to_ambiguous_zoned(day.to_datetime(clock)).compatible().ok()?;
            Some(Timestamp::from_secs(begin.timestamp().as_second())).filter(|begin| *begin > now)
        })
    }

    /// Returns the same time of day, this many days later.
    pub fn days_later(&self, moment: Timestamp, days: i64) -> Option<Timestamp> {
        let then = self.at(moment)?;
        let day = then.datetime().checked_add(jiff::Span::new().try_days(days).ok()?).ok()?;
        let then = self.0.to_ambiguous_zoned(day).compatible().ok()?;
        Some(Timestamp::from_secs(then.timestamp().as_second()))
    }

    pub fn is_weekend(&self, moment: Timestamp) -> bool {
        let day = self.at(moment).map(|then| then.weekday());
        matches!(day, Some(Weekday::Saturday | Weekday::Sunday))
    }

    /// Formats an instant, without the date if it is today. Returns `None` if it has no calendar
    /// form.
    pub fn format(&self, moment: Timestamp, now: Timestamp) -> Option<String> {
        let (then, today) = (self.at(moment)?, self.at(now)?.date());
        let form = if then.date() == today { "%H:%M" } else { "%Y-%m-%d %H:%M" };
        Some(then.strftime(form).to_string())
    }

    pub(crate) fn time_zone(&self) -> &TimeZone {
        &self.0
    }

    fn at(&self, now: Timestamp) -> Option<jiff::Zoned> {
        Some(jiff::Timestamp::from_second(now.as_secs()).ok()?.to_zoned(self.0.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hours_may_span_midnight() {
        let (zone, day) = (Zone::default(), 1_800_000_000 - 1_800_000_000 % 86_400);
        let at = |hour: i64, minute: i64| Timestamp::from_secs(day + hour * 3600 + minute * 60);
        let night = parse("18:00-08:00").unwrap();
        let within = |hours, hour, minute| zone.is_within(hours, at(hour, minute));
        assert_eq!(
            [within(night, 17, 59), within(night, 18, 0), within(night, 0, 0)],
            [false, true, true]
        );
        assert_eq!([within(night, 7, 59), within(night, 8, 0)], [true, false]);
        assert_eq!(zone.next_begin(night, at(9, 0)), Some(at(18, 0)));
        assert_eq!(zone.next_begin(night, at(18, 0)), Some(at(42, 0)));
        let noon = parse("9:30-24:00").unwrap();
        assert_eq!(
            [within(noon, 9, 29), within(noon, 23, 59), within(noon, 0, 0)],
            [false, true, false]
        );
    }

    #[test]
    fn malformed_hours_are_refused() {
        for text in [
            "",
            "18:00",
            "18-8",
            "8:00-8:00",
            "25:00-8:00",
            "18:60-8:00",
            "24:01-8:00",
            "18:0-8:00",
            "a:00-b:00",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn printed_hours_read_back(from in 0..MINUTES_OF_DAY, until in 0..MINUTES_OF_DAY) {
            let hours = Hours { from, until };
            prop_assert_eq!(parse(&hours.to_string()), Some(hours).filter(|_| from != until));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,20}") {
            let _ = parse(&text);
        }
    }
}
