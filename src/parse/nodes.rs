//! Node counts: `-N 1`, `-N 1-2` (sbatch man page, `--nodes`).
//!
//! Counts above one are parsed here and refused by admission, because slotd has one host.

use crate::error::{SpecError, shown};
use crate::number;
use slotd_model::request::NodeCount;

/// Parses the minimum and maximum number of nodes. `1-` has no maximum: `u32::MAX`.
///
/// # Errors
/// Fails with `"x" is not a valid node count` and exit code 255. A maximum of zero gets the error
/// of Slurm's controller, `Node count specification invalid: 0`.
pub fn parse(text: &str) -> Result<NodeCount, SpecError> {
    let (min, max) = match text.split_once('-') {
        Some((min, "")) => (count(min)?, u32::MAX),
        Some((min, max)) => (count(min)?, count(max)?),
        None => {
            let number = count(text)?;
            (number, number)
        }
    };
    if max == 0 {
        return Err(SpecError::submission(format!("Node count specification invalid: {text}")));
    }
    if max < min {
        return Err(SpecError::usage(format!(
            "Maximum node count {max} is less than minimum node count {min}: {text}"
        )));
    }
    Ok(NodeCount { min, max })
}

/// Parses a count with Slurm's suffixes `k` (1024) and `m` (1048576).
fn count(text: &str) -> Result<u32, SpecError> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    number::parse(digits)
        .and_then(|count| count.checked_mul(unit))
        .filter(|&count| count <= i32::MAX as u32)
        .ok_or_else(|| SpecError::usage(format!("\"{}\" is not a valid node count", shown(text))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_and_ranges_parse() {
        assert_eq!(parse("1"), Ok(NodeCount { min: 1, max: 1 }));
        assert_eq!(parse("1-2"), Ok(NodeCount { min: 1, max: 2 }));
        assert_eq!(parse("1-"), Ok(NodeCount { min: 1, max: u32::MAX }));
        assert_eq!(parse("0-1"), Ok(NodeCount { min: 0, max: 1 }));
        assert_eq!(parse(" 1-+2"), Ok(NodeCount { min: 1, max: 2 }));
        assert_eq!(parse("2k"), Ok(NodeCount { min: 2048, max: 2048 }));
    }

    #[test]
    fn malformed_counts_are_refused_with_slurms_texts() {
        for (text, message, exit) in [
            ("0", "Node count specification invalid: 0", 1),
            ("1-x", "\"x\" is not a valid node count", 255),
            ("", "\"\" is not a valid node count", 255),
            ("-1", "\"\" is not a valid node count", 255),
            ("1-2-3", "\"2-3\" is not a valid node count", 255),
            ("k", "\"k\" is not a valid node count", 255),
            ("4294967295", "\"4294967295\" is not a valid node count", 255),
            ("3-2", "Maximum node count 2 is less than minimum node count 3: 3-2", 255),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!((error.to_string().as_str(), error.exit_code()), (message, exit));
        }
    }

    proptest! {
        #[test]
        fn a_printed_range_reads_back(min in 0u32..1000, more in 0u32..1000) {
            let range = NodeCount { min, max: (min + more).max(1) };
            prop_assert_eq!(parse(&range.to_string()), Ok(range));
            let open = NodeCount { min, max: u32::MAX };
            prop_assert_eq!(parse(&open.to_string()), Ok(open));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "[0-9km\\-]{0,20}|.*") {
            let _ = parse(&text);
        }
    }
}
