//! Ages: `30d`, `12h`, or a time limit in a form with unambiguous units (`1:30:00`, `2-12`).

use crate::error::{SpecError, shown};
use crate::time::seconds;
use std::time::Duration;

const FORMS: &str = "seconds, minutes, hours, days or weeks with their unit (90s, 10m, 12h, 30d, 2w), or a time in Slurm's \
     format (1:30:00, 2-12)";

/// Parses an age given to `option`. A bare number is an error: Slurm would read it as minutes, but
/// the user may have meant days.
///
/// # Errors
/// Fails for any other form.
pub fn parse(text: &str, option: &str) -> Result<Duration, SpecError> {
    let invalid = || SpecError::invalid_option(option, text).with_hint(FORMS);
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        let hint = format!("a number needs a unit: did you mean {}d?", shown(text));
        return Err(invalid().with_hint(hint));
    }
    let with_unit = text.char_indices().last().and_then(|(at, unit)| {
        let secs = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 24 * 3600,
            'w' => 7 * 24 * 3600,
            _ => return None,
        };
        let is_number = !text[..at].is_empty() && text[..at].bytes().all(|b| b.is_ascii_digit());
        text[..at].parse::<u64>().ok().filter(|_| is_number)?.checked_mul(secs)
    });
    with_unit.or_else(|| seconds(text)).map(Duration::from_secs).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_slurm_time_formats_parse() {
        let hour = 3600;
        let known = [
            ("30d", 720 * hour),
            ("12h", 12 * hour),
            ("2w", 336 * hour),
            ("10m", 600),
            ("0s", 0),
            ("0d", 0),
            ("1:30:00", 5400),
            ("2-12", 60 * hour),
        ];
        for (text, secs) in known {
            assert_eq!(parse(text, "--older-than").map(|age| age.as_secs()), Ok(secs), "{text}");
        }
        for text in ["", "d", "30y", "-1d", "1.5h", "99999999999999999999d"] {
            let error = parse(text, "--older-than").unwrap_err();
            assert!(error.to_string().starts_with("Invalid --older-than specification"), "{error}");
        }
    }

    #[test]
    fn a_bare_number_is_refused_with_a_suggested_unit() {
        for text in ["30", "0", "007", "99999999999999999999"] {
            let error = parse(text, "--older-than").unwrap_err();
            assert_eq!(error.to_string(), format!("Invalid --older-than specification: {text}"));
            assert_eq!(error.hint, Some(format!("a number needs a unit: did you mean {text}d?")));
        }
    }
}
