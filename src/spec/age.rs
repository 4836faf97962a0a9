//! How old something is: `30d`, `12h`, or the forms of a time limit.

use crate::spec::error::SpecError;
use crate::spec::time::seconds;
use std::time::Duration;

const FORMS: &str = "a number of seconds, minutes, hours, days or weeks (90s, 10m, 12h, 30d, 2w), or a time as Slurm writes \
     it (90, 1:30:00, 2-12)";

/// The age in the text of `option`. A number alone is minutes, as in Slurm.
///
/// # Errors
/// It is none of these forms.
pub fn parse(text: &str, option: &str) -> Result<Duration, SpecError> {
    let invalid = || SpecError::invalid_option(option, text).with_hint(FORMS);
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
    fn units_and_slurms_forms_are_understood() {
        let hour = 3600;
        let known = [
            ("30d", 720 * hour),
            ("12h", 12 * hour),
            ("2w", 336 * hour),
            ("10m", 600),
            ("0s", 0),
            ("90", 5400),
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
}
