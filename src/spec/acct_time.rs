//! The window of an accounting query: `sacct -S`, `sacct -E` (sacct man page).

use crate::model::Timestamp;
use crate::spec::error::{SpecError, shown};
use crate::spec::moment::{self, Toward};
use jiff::tz::TimeZone;

/// The instant of `now`, `now-3600`, `now-2days`, `today`, `midnight`, `noon`, `HH:MM[:SS] [AM|PM]`, `MMDD[YY]`,
/// `MM/DD[/YY]`, `MM.DD[.YY]`, `YYYY-MM-DD[THH:MM[:SS]]` or seconds since 1970.
///
/// A bare time is today's, also where that is still to come, and a day without a year is the latest such day. Where
/// daylight saving makes a wall time ambiguous, the window is made the larger one: `is_end` says which end it is.
///
/// # Errors
/// `Invalid time specification (pos=0): foo` (golden G, `sacct -S foo`).
pub fn parse(text: &str, now: Timestamp, tz: &TimeZone, is_end: bool) -> Result<Timestamp, SpecError> {
    let toward = if is_end { Toward::PastEnd } else { Toward::PastStart };
    moment::parse(text, now, tz, toward)
        .map_err(|pos| SpecError::value(format!("Invalid time specification (pos={pos}): {}", shown(text))))
}
