//! Time limits: `--time`, `--time-min`, `TimeLimit=` (sbatch man page, `--time`).
//!
//! Points in time are parsed by `begin` and `acct_time`.

use crate::error::SpecError;
use crate::suggest;

/// The longest limit in seconds: Slurm stores minutes in 32 bits and reserves two values.
const MAX_SECS: u64 = (u32::MAX as u64 - 2) * 60;

/// Parses a time limit into seconds. `None` means no limit: `UNLIMITED`, `INFINITE`, `-1` or zero.
///
/// The forms are `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`,
/// `days-hours:minutes` and `days-hours:minutes:seconds`. Fields need no padding and have no upper
/// bound (`0:600`). Limits of a minute or more are rounded up to whole minutes, as in Slurm;
/// shorter ones stay exact, which Slurm does not support.
///
/// # Errors
/// Fails with `Invalid --time specification: …`. Unlike in Slurm, `-5` is an error: Slurm turns it
/// into a limit of eight thousand years that no command can print.
pub fn parse_limit(text: &str) -> Result<Option<u64>, SpecError> {
    parse_limit_for(text, "--time")
}

/// Like [`parse_limit`], for the named option.
pub fn parse_limit_for(text: &str, option: &str) -> Result<Option<u64>, SpecError> {
    Ok(match parse_secs_for(text, option)? {
        None | Some(0) => None,
        Some(secs @ 1..60) => Some(secs),
        Some(secs) => Some(secs.next_multiple_of(60)),
    })
}

/// Parses a duration in the syntax of a time limit, without rounding: `None` is no limit.
///
/// # Errors
/// Fails like [`parse_limit_for`].
pub fn parse_secs_for(text: &str, option: &str) -> Result<Option<u64>, SpecError> {
    if text == "-1"
        || text.eq_ignore_ascii_case("unlimited")
        || text.eq_ignore_ascii_case("infinite")
    {
        return Ok(None);
    }
    let invalid = || SpecError::invalid_option(option, text).with_hint(hint(text));
    seconds(text).filter(|&secs| secs <= MAX_SECS).map(Some).ok_or_else(invalid)
}

/// The accepted forms, for hints.
const FORMS: &str = "minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]] or UNLIMITED (90, \
     1:30:00, 2-12)";

/// Returns the hint for an invalid time limit. For `1h` and the like it suggests the equivalent
/// form.
fn hint(text: &str) -> String {
    let end = text.len().saturating_sub(1);
    let meant = match text.split_at_checked(end) {
        Some((count, unit)) if number(count).is_some() && !count.is_empty() => match unit {
            "s" | "S" => Some(format!("0:{count}")),
            "m" | "M" => Some(count.to_owned()),
            "h" | "H" => Some(format!("{count}:00:00")),
            "d" | "D" => Some(format!("{count}-0")),
            _ => None,
        },
        _ => None,
    };
    match meant {
        Some(meant) => format!("{FORMS}; did you mean {meant}?"),
        None => suggest::hint(FORMS, text, ["UNLIMITED", "INFINITE"]),
    }
}

/// Parses a duration in the syntax of a time limit. Returns seconds without rounding, or `None` if
/// the text is malformed.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(number(days)?), rest),
        None => (None, text),
    };
    // `1-` is one day.
    let fields: Vec<u64> = match (days, rest) {
        (Some(_), "") => Vec::new(),
        _ => rest.splitn(4, ':').map(number).collect::<Option<_>>()?,
    };
    let (hours, minutes, secs) = match (days.is_some(), fields.as_slice()) {
        (true, []) => (0, 0, 0),
        (true, &[h]) => (h, 0, 0),
        (true, &[h, m]) => (h, m, 0),
        (false, &[m]) => (0, m, 0),
        (false, &[m, s]) => (0, m, s),
        (_, &[h, m, s]) => (h, m, s),
        _ => return None,
    };
    let hours = days.unwrap_or(0).checked_mul(24)?.checked_add(hours)?;
    let minutes = hours.checked_mul(60)?.checked_add(minutes)?;
    minutes.checked_mul(60)?.checked_add(secs)
}

/// Parses digits only: `u64::from_str` would accept a sign.
fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Formats the limit like `scontrol show job`, which [`parse_limit`] reads back: `01:30:00`,
    /// `2-12:00:00`, `UNLIMITED`.
    fn print_limit(limit_secs: Option<u64>) -> String {
        let Some(secs) = limit_secs else { return "UNLIMITED".to_string() };
        let (days, hours, minutes) = (secs / 86_400, secs / 3_600 % 24, secs / 60 % 60);
        let clock = format!("{hours:02}:{minutes:02}:{:02}", secs % 60);
        if days > 0 { format!("{days}-{clock}") } else { clock }
    }

    #[test]
    fn every_slurm_form_parses() {
        for (text, secs) in [
            ("10", 600),
            ("90:30", 91 * 60),
            ("1:30:00", 5400),
            ("1-", 86_400),
            ("2-12", 216_000),
            ("1-02:03", 86_400 + 7380),
            ("1-00:00:00", 86_400),
            ("0:600", 600),
            ("0:5:0", 300),
            ("0-0:5:0", 300),
            ("00:05:00", 300),
            ("1-02", 93_600),
            ("0:30", 30),
            ("0:59", 59),
            ("0:60", 60),
            ("0:61", 120),
        ] {
            assert_eq!(parse_limit(text), Ok(Some(secs)), "{text}");
        }
    }

    #[test]
    fn unlimited_has_several_spellings() {
        for text in ["0", "UNLIMITED", "infinite", "Unlimited", "-1", "0:0", "00:00:00", "0-0"] {
            assert_eq!(parse_limit(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn malformed_limit_errors_show_the_value() {
        for text in [
            "",
            "foo",
            "1:2:3:4",
            "1h",
            "-5",
            "1.5",
            ":",
            "1:",
            ":1",
            "1-:",
            "1--2",
            "1-2-3",
            "+5",
            " 5",
            "5 ",
            "-",
            "1-1:2:3:4",
            "٣",
            "4294967295",
            "99999999999999999999",
            "18446744073709551615:0:0",
        ] {
            let error = parse_limit(text).expect_err(text);
            assert_eq!(error.to_string(), format!("Invalid --time specification: {text}"));
            assert_eq!(error.exit_code(), 255);
        }
        let hint = |text: &str| parse_limit(text).expect_err(text).hint.expect("a hint");
        assert!(hint("x").starts_with("minutes, ") && !hint("x").contains("did you mean"));
        for (text, meant) in [
            ("1h", "1:00:00"),
            ("90m", "90"),
            ("2d", "2-0"),
            ("30s", "0:30"),
            ("unlimted", "UNLIMITED"),
        ] {
            assert!(
                hint(text).ends_with(&format!("; did you mean {meant}?")),
                "{text}: {}",
                hint(text)
            );
            assert!(parse_limit(meant).is_ok());
        }
        assert_eq!(
            parse_limit_for("x", "--time-min").map_err(|e| e.to_string()),
            Err("Invalid --time-min specification: x".to_string())
        );
    }

    proptest! {
        #[test]
        fn a_printed_limit_reads_back(secs in prop_oneof![1u64..60, (1..=MAX_SECS / 60).prop_map(|m| m * 60)]) {
            prop_assert_eq!(parse_limit(&print_limit(Some(secs))), Ok(Some(secs)));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "[0-9:\\-a-z]{0,30}|\\PC*|.*") {
            if let Ok(limit) = parse_limit(&text) {
                prop_assert_eq!(parse_limit(&print_limit(limit)), Ok(limit));
            }
        }
    }

    #[test]
    fn unlimited_reads_back() {
        assert_eq!(parse_limit(&print_limit(None)), Ok(None));
    }
}
