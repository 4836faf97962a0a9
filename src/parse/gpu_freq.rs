//! GPU frequencies: `--gpu-freq` (sbatch man page). slotd leaves frequencies to the driver: it only
//! validates the value.

use crate::error::{SpecError, shown};

const FREQUENCIES: [&str; 4] = ["low", "medium", "high", "highm1"];

/// Checks `[TYPE=]VALUE` entries, separated by commas, and `verbose`. The only type is `memory`. A
/// value is a frequency in megahertz, `low`, `medium`, `high` or `highm1`.
///
/// # Errors
/// Fails with `Invalid --gpu-freq argument: …`.
pub fn check(text: &str) -> Result<(), SpecError> {
    let is_value = |word: &str| {
        let is_known = FREQUENCIES.iter().any(|name| name.eq_ignore_ascii_case(word));
        is_known || word.parse::<u32>().is_ok_and(|mhz| mhz > 0)
    };
    let is_entry = |entry: &str| match entry.split_once('=') {
        Some((kind, value)) => kind.eq_ignore_ascii_case("memory") && is_value(value),
        None => is_value(entry) || entry.eq_ignore_ascii_case("verbose"),
    };
    if text.split(',').all(is_entry) {
        return Ok(());
    }
    let error = SpecError::usage(format!("Invalid --gpu-freq argument: {}", shown(text)));
    let forms = FREQUENCIES.join(", ");
    Err(error.with_hint(format!("megahertz, {forms}; also memory=VALUE and verbose")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_frequencies_of_the_gpu_or_its_memory() {
        for text in ["high", "1200", "medium,memory=high", "memory=900,verbose", "HIGHM1"] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for text in ["", "foo", "0", "high,", "core=high", "memory=foo", "high:low"] {
            assert_eq!(check(text).expect_err(text).exit_code(), 255, "{text}");
        }
    }
}
