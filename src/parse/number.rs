//! Whole numbers in options. Slurm reads them with C's `strtol`, which skips blanks and a plus sign
//! before the digits: `-n ' 2'`, `-n +2`. Job IDs are stricter, in Slurm too.

/// Returns the text without the blanks and the plus sign before it.
pub(crate) fn without_plus(text: &str) -> &str {
    // The blanks of C's `isspace`.
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    text.strip_prefix('+').unwrap_or(text)
}

/// Returns the digits of a number, or `None` for anything else.
pub(crate) fn digits(text: &str) -> Option<&str> {
    let digits = without_plus(text);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(digits)
}

/// Parses a number. Returns `None` if it is malformed or too large.
pub(crate) fn parse(text: &str) -> Option<u32> {
    digits(text)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts were tried with Slurm 22.05.
    #[test]
    fn blanks_and_a_plus_sign_are_accepted_before_the_digits_only() {
        for text in ["2", " 2", "+2", "\t 2", " +2", "02"] {
            assert_eq!(parse(text), Some(2), "{text:?}");
        }
        for text in ["", " ", "+", "+ 2", "++2", "2 ", "-2", " -2", "0x2", "2k", "\u{a0}2"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!((digits("+4294967296"), parse("+4294967296")), (Some("4294967296"), None));
    }
}
