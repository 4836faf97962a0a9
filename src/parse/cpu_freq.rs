//! CPU frequencies: `--cpu-freq` (srun man page). slotd leaves frequencies to the kernel: it
//! validates the value and passes it to the job.

use crate::error::{SpecError, shown};
use crate::number;

const FREQUENCIES: [&str; 4] = ["Low", "Medium", "High", "HighM1"];
const GOVERNORS: [&str; 6] =
    ["Conservative", "OnDemand", "Performance", "PowerSave", "SchedUtil", "UserSpace"];

/// Parses `F`, a governor, or `F-F[:GOVERNOR]`. `F` is a frequency in kilohertz, `low`, `medium`,
/// `high` or `highm1`. Returns Slurm's spelling: `Low-High:OnDemand`.
///
/// # Errors
/// Fails with `Invalid --cpu-freq argument: …`.
pub fn parse(text: &str) -> Result<String, SpecError> {
    let one_of = |names: &[&'static str], word: &str| {
        names.iter().find(|name| name.eq_ignore_ascii_case(word)).map(|name| (*name).to_owned())
    };
    let governor = |word: &str| one_of(&GOVERNORS, word);
    let kilohertz =
        |word: &str| number::parse(word).filter(|khz| *khz > 0).map(|khz| khz.to_string());
    let frequency = |word: &str| one_of(&FREQUENCIES, word).or_else(|| kilohertz(word));
    let range = |low: &str, rest: &str| match rest.split_once(':') {
        None => Some(format!("{}-{}", frequency(low)?, frequency(rest)?)),
        Some((high, word)) => {
            Some(format!("{}-{}:{}", frequency(low)?, frequency(high)?, governor(word)?))
        }
    };
    let read = match text.split_once('-') {
        None => frequency(text).or_else(|| governor(text)),
        Some((low, rest)) => range(low, rest),
    };
    let hint = || {
        format!(
            "kilohertz, {}, MIN-MAX[:GOVERNOR], or a governor: {}",
            FREQUENCIES.join(", "),
            GOVERNORS.join(", ")
        )
    };
    read.ok_or_else(|| {
        SpecError::usage(format!("Invalid --cpu-freq argument: {}", shown(text))).with_hint(hint())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_ranges_and_governors_parse() {
        for (text, read) in [
            ("2400000", "2400000"),
            ("high", "High"),
            ("HIGHM1", "HighM1"),
            ("Performance", "Performance"),
            ("low-high", "Low-High"),
            ("1000-2000:ondemand", "1000-2000:OnDemand"),
        ] {
            assert_eq!(parse(text), Ok(read.to_owned()), "{text}");
            assert_eq!(parse(read), Ok(read.to_owned()), "{read}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in
            ["foo", "", "0", "-", "low-", "low-foo", "low-high:foo", "Performance-low", "2.4GHz"]
        {
            assert_eq!(parse(text).expect_err(text).exit_code(), 255, "{text}");
        }
    }
}
