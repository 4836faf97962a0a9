//! Sampling intervals: `--acctg-freq` (sbatch man page). slotd chooses its own: it only validates the
//! value.

use crate::error::SpecError;
use crate::number;

const KINDS: [&str; 4] = ["task", "energy", "network", "filesystem"];

/// Checks `KIND=SECONDS` entries, separated by commas, or a number of seconds for tasks.
///
/// # Errors
/// Fails with `Invalid --acctg-freq specification: …`.
pub fn check(text: &str) -> Result<(), SpecError> {
    let is_number = |word: &str| number::parse(word).is_some();
    let is_entry = |entry: &str| match entry.split_once('=') {
        Some((kind, seconds)) => {
            KINDS.iter().any(|known| known.eq_ignore_ascii_case(kind)) && is_number(seconds)
        }
        None => is_number(entry),
    };
    if text.split(',').all(is_entry) {
        return Ok(());
    }
    let error = SpecError::invalid_option("--acctg-freq", text);
    Err(error.with_hint(format!("seconds, or KIND=SECONDS with one of {}", KINDS.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_seconds_with_or_without_a_kind() {
        for text in ["30", "0", "task=15", "task=15,network=0", "ENERGY=5", " 30"] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for text in ["", "foo", "task=foo", "task", "disk=5", "30,", "-1"] {
            assert_eq!(check(text).expect_err(text).exit_code(), 255, "{text}");
        }
    }
}
