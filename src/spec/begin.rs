//! The earliest start of a job: `--begin`, and `--deadline` in the same forms (sbatch man page; book, "Delayed Start").

use crate::model::Timestamp;
use crate::spec::error::SpecError;
use crate::spec::moment::{self, Toward};
use jiff::tz::TimeZone;

/// The instant of `now`, `now+1hour`, `now+00:10:00`, `16:00`, `4PM`-like `4:00PM`, `tomorrow`, `noon`, `teatime`,
/// `fika`, `elevenses`, `midnight`, `MMDD[YY]`, `MM/DD[/YY]`, `YYYY-MM-DD[THH:MM[:SS]]` or seconds since 1970.
///
/// A bare time is the next such time; days and weeks of `now+…` have 24 hours and 7 times 24, as in Slurm. Wall
/// times that daylight saving skips are moved forward by the gap; of those that it repeats, the first is meant.
///
/// # Errors
/// `Invalid --begin specification: …` (golden A-108).
pub fn parse(text: &str, now: Timestamp, tz: &TimeZone) -> Result<Timestamp, SpecError> {
    parse_for(text, "--begin", now, tz)
}

/// As [`parse`], for the named option.
pub fn parse_for(text: &str, option: &str, now: Timestamp, tz: &TimeZone) -> Result<Timestamp, SpecError> {
    moment::parse(text, now, tz, Toward::Future).map_err(|_| SpecError::invalid_option(option, text))
}
