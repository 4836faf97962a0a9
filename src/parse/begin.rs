//! The earliest start of a job: `--begin`, and `--deadline`, which has the same syntax (sbatch man
//! page).

use crate::error::SpecError;
use crate::moment::{self, Toward};
use jiff::tz::TimeZone;
use slotd_model::Timestamp;

/// Parses `now`, `now+1hour`, `now+00:10:00`, `16:00`, `4:00PM`, `16:00 tomorrow`, `tomorrow`,
/// `noon`, `teatime`, `fika`, `elevenses`, `midnight`, `MMDD[YY]`, `MM/DD[/YY]`,
/// `YYYY-MM-DD[THH:MM[:SS]]` or seconds since 1970 (`1767225600`,
/// `uts1767225600`).
///
/// A bare time means its next occurrence. The days and weeks of `now+…` are multiples of 24 hours,
/// as in Slurm. A wall time that daylight saving skips moves forward by the gap; for one that
/// occurs twice, the first is used.
///
/// # Errors
/// Fails with `Invalid --begin specification: …`, with the name of `option`.
pub fn parse_for(
    text: &str,
    option: &str,
    now: Timestamp,
    tz: &TimeZone,
) -> Result<Timestamp, SpecError> {
    moment::parse(text, now, tz, Toward::Future)
        .map_err(|_| SpecError::invalid_option(option, text).with_hint(moment::hint(FORMS, text)))
}

/// The accepted forms, for hints.
const FORMS: &str = "now+2hours, 16:00, tomorrow, noon, 16:00 tomorrow, 12/31, 2030-12-31T23:59";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, now: Timestamp, tz: &TimeZone) -> Result<Timestamp, SpecError> {
        parse_for(text, "--begin", now, tz)
    }

    #[test]
    fn begin_accepts_epoch_seconds_dates_and_offsets() {
        let (now, tz) = (Timestamp::from_secs(1_800_000_000), TimeZone::UTC);
        for (text, secs) in [
            ("1800000060", 1_800_000_060),
            ("2027-02-01", 1_801_440_000),
            ("2027-02-01T00:00:01", 1_801_440_001),
            ("now+00:10:00", 1_800_000_600),
        ] {
            assert_eq!(parse(text, now, &tz), Ok(Timestamp::from_secs(secs)), "{text}");
        }
    }

    #[test]
    fn a_malformed_begin_error_shows_the_value() {
        let error = parse("foo", Timestamp(0), &TimeZone::UTC).expect_err("foo");
        assert_eq!(
            (error.to_string().as_str(), error.exit_code()),
            ("Invalid --begin specification: foo", 255)
        );
        let error = parse("tomorow", Timestamp(0), &TimeZone::UTC).expect_err("tomorow");
        assert_eq!(error.hint, Some(format!("{FORMS}; did you mean tomorrow?")));
        for text in ["1234567", "20300102"] {
            let error = parse(text, Timestamp(0), &TimeZone::UTC).expect_err(text);
            let hint = error.hint.expect("a hint");
            assert!(hint.starts_with("seconds since 1970 have at least 9 digits"), "{hint}");
        }
        let error = parse_for("", "--deadline", Timestamp(0), &TimeZone::UTC).expect_err("empty");
        assert_eq!(error.to_string(), "Invalid --deadline specification: ");
    }
}
