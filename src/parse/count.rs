//! Plain counts: `--ntasks`, `--cpus-per-task`, `--ntasks-per-node`, ….

use crate::error::{SpecError, shown};
use crate::number;

/// The largest count: Slurm stores counts in an `int`.
pub const MAX: u32 = i32::MAX as u32;

/// Parses a positive count given to `option` (`--ntasks`).
///
/// # Errors
/// Fails with `Invalid numeric value "abc" for --ntasks.` and exit code 1, also for zero.
pub fn parse(text: &str, option: &str) -> Result<u32, SpecError> {
    parse_or_zero(text, option)
        .and_then(|count| if count == 0 { Err(invalid(text, option)) } else { Ok(count) })
}

/// Like [`parse`], but accepts zero.
pub fn parse_or_zero(text: &str, option: &str) -> Result<u32, SpecError> {
    let digits = number::digits(text).ok_or_else(|| invalid(text, option))?;
    match digits.parse::<u32>() {
        Ok(count) if count <= MAX => Ok(count),
        _ => {
            Err(SpecError::value(format!("Numeric argument {} too big for {option}.", shown(text))))
        }
    }
}

fn invalid(text: &str, option: &str) -> SpecError {
    SpecError::value(format!("Invalid numeric value \"{}\" for {option}.", shown(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zero_and_words_are_refused_with_slurms_text() {
        for text in ["0", "abc", "", "-1", " -1", "+0", "1.0", "None", "1 ", "00"] {
            let error = parse(text, "--ntasks").expect_err(text);
            assert_eq!(
                error.to_string(),
                format!("Invalid numeric value \"{text}\" for --ntasks.")
            );
            assert_eq!(error.exit_code(), 1);
        }
        assert_eq!(parse_or_zero("0", "--nice"), Ok(0));
        for text in ["007", " 7", "+7"] {
            assert_eq!(parse(text, "-c"), Ok(7));
        }
    }

    #[test]
    fn a_count_beyond_slurms_range_is_too_big() {
        assert_eq!(
            parse("2147483648", "--ntasks").map_err(|e| e.to_string()),
            Err("Numeric argument 2147483648 too big for --ntasks.".to_string())
        );
        assert!(parse("99999999999999999999999", "--ntasks").is_err());
    }

    proptest! {
        #[test]
        fn a_printed_count_reads_back(n in 1..=MAX) {
            prop_assert_eq!(parse(&n.to_string(), "-n"), Ok(n));
        }

        #[test]
        fn no_text_breaks_the_parser(text in ".*") {
            let _ = parse(&text, "-n");
        }
    }
}
