//! The time window of an accounting query: `sacct -S`, `sacct -E` (sacct man page).

use crate::error::{SpecError, shown};
use crate::moment::{self, Toward};
use jiff::tz::TimeZone;
use slotd_model::Timestamp;

/// Parses one end of a time window: `now`, `now-3600`, `now-2days`, `today`, `midnight`, `noon`,
/// `HH:MM[:SS] [AM|PM]`, `MMDD[YY]`, `MM/DD[/YY]`, `MM.DD[.YY]`, `YYYY-MM-DD[THH:MM[:SS]]` or
/// seconds since 1970 (`1767225600`, `uts1767225600`).
///
/// A bare time means today, even if it is still in the future. A date without a year means its most
/// recent occurrence. If daylight saving makes a wall time ambiguous, the instant that makes the
/// window larger is chosen; `is_end` selects the end that is being parsed.
///
/// # Errors
/// Fails with `Invalid time specification (pos=0): foo` (`sacct -S foo`).
pub fn parse(
    text: &str,
    now: Timestamp,
    tz: &TimeZone,
    is_end: bool,
) -> Result<Timestamp, SpecError> {
    let toward = if is_end { Toward::PastEnd } else { Toward::PastStart };
    moment::parse(text, now, tz, toward).map_err(|pos| {
        SpecError::value(format!("Invalid time specification (pos={pos}): {}", shown(text)))
            .with_hint(moment::hint(FORMS, text))
    })
}

/// The accepted forms, for hints.
const FORMS: &str = "now-2days, today, noon, 14:30, 12/31, 2026-12-31, 2026-12-31T23:59";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_time_gets_the_error_text_of_sacct() {
        let error = parse("foo", Timestamp(0), &TimeZone::UTC, false).expect_err("foo");
        assert_eq!(
            (error.to_string().as_str(), error.exit_code()),
            ("Invalid time specification (pos=0): foo", 1)
        );
    }

    #[test]
    fn a_window_begins_at_midnight_and_ends_now() {
        let (now, tz) = (Timestamp::from_secs(1_800_000_000), TimeZone::UTC);
        assert_eq!(parse("now", now, &tz, true), Ok(now));
        assert_eq!(parse("now-1hour", now, &tz, false), Ok(Timestamp::from_secs(1_799_996_400)));
        assert_eq!(parse("today", now, &tz, false), Ok(Timestamp::from_secs(1_799_971_200)));
    }
}
