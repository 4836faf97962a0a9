//! How old something is: `30d`, `12h`, or the forms of a time limit that name their units by their
//! shape.

use crate::parse::error::{SpecError, shown};
use crate::parse::time::seconds;
use std::time::Duration;

const FORMS: &str = "a number of seconds, minutes, hours, days or weeks (90s, 10m, 12h, 30d, 2w), or a time as Slurm writes \
     it (1:30:00, 2-12)";

/// The age in the text of `option`. A bare number is refused: Slurm would read minutes, and its
/// author may mean days.
///
/// # Errors
/// It is none of these forms.
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
    fn units_and_slurms_forms_are_understood() {
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
    fn a_bare_number_is_refused_with_the_unit_that_may_be_meant() {
        for text in ["30", "0", "007", "99999999999999999999"] {
            let error = parse(text, "--older-than").unwrap_err();
            assert_eq!(error.to_string(), format!("Invalid --older-than specification: {text}"));
            assert_eq!(error.hint, Some(format!("a number needs a unit: did you mean {text}d?")));
        }
    }
}
