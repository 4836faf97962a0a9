//! Memory sizes: `--mem`, `--mem-per-cpu`, `--mem-per-gpu`, `MinMemoryNode=` (sbatch man page,
//! `--mem`).

use crate::error::SpecError;
use crate::number;

/// The largest size, 2^60 bytes, so that sums and conversions to bytes fit into 64 bits.
const MAX_MB: u64 = 1 << 40;

/// Parses `512M`, `1G`, `1g`, `1GB`, `500K` (rounded up to 1 MB) or a bare number of megabytes.
/// Returns megabytes (2^20 bytes).
///
/// Zero is returned as is: it means the host's whole memory.
///
/// # Errors
/// Fails with `Invalid --mem specification: …` if `option` is `--mem`. As in Slurm, fractions and
/// minus signs are errors.
pub fn parse_mb_for(text: &str, option: &str) -> Result<u64, SpecError> {
    megabytes(number::without_plus(text))
        .ok_or_else(|| SpecError::invalid_option(option, text).with_hint(FORMS))
}

/// The accepted forms, for hints.
const FORMS: &str =
    "a whole number of megabytes, or a number with K, M, G or T: 4000, 512M, 8G; 0 is all memory";

/// Like [`parse_mb_for`], but returns `None` for malformed text.
pub fn megabytes(text: &str) -> Option<u64> {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let count: u64 = digits.parse().ok()?;
    let unit = match unit.as_bytes() {
        [unit] | [unit, b'B' | b'b'] => unit.to_ascii_uppercase(),
        [] => b'M',
        _ => return None,
    };
    let mb = match unit {
        b'K' => Some(count.div_ceil(1 << 10)),
        b'M' => Some(count),
        b'G' => count.checked_mul(1 << 10),
        b'T' => count.checked_mul(1 << 20),
        _ => None,
    };
    mb.filter(|&mb| mb <= MAX_MB)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse_mb(text: &str) -> Result<u64, SpecError> {
        parse_mb_for(text, "--mem")
    }

    /// Prints the size with the largest unit that needs no fraction: `512M`, `1G`.
    fn print_mb(mb: u64) -> String {
        match mb {
            0 => "0".to_string(),
            _ if mb.is_multiple_of(1 << 20) => format!("{}T", mb >> 20),
            _ if mb.is_multiple_of(1 << 10) => format!("{}G", mb >> 10),
            _ => format!("{mb}M"),
        }
    }

    #[test]
    fn every_slurm_unit_parses() {
        for (text, mb) in [
            ("10", 10),
            ("0", 0),
            ("1G", 1024),
            ("1g", 1024),
            ("1GB", 1024),
            ("4gb", 4096),
            ("512M", 512),
            ("512MB", 512),
            ("500K", 1),
            ("1024K", 1),
            ("1025KB", 2),
            ("2T", 2 << 20),
            ("1tb", 1 << 20),
            ("100000000", 100_000_000),
            (" 1", 1),
            ("+1G", 1024),
        ] {
            assert_eq!(parse_mb(text), Ok(mb), "{text}");
        }
    }

    #[test]
    fn malformed_size_errors_show_the_value() {
        for text in [
            "",
            "abc",
            "1.5G",
            "-3",
            "+-3",
            "G",
            "B",
            "1B",
            "1GG",
            "1GBB",
            "1 G",
            "1 ",
            "1P",
            "1ß",
            "18446744073709551616",
        ] {
            let error = parse_mb(text).expect_err(text);
            assert_eq!(error.to_string(), format!("Invalid --mem specification: {text}"));
            assert!(error.usage);
        }
        assert_eq!(
            parse_mb_for("18446744073709551615T", "--mem-per-cpu").map_err(|e| e.to_string()),
            Err("Invalid --mem-per-cpu specification: 18446744073709551615T".to_string())
        );
    }

    proptest! {
        #[test]
        fn a_printed_size_reads_back(mb in prop_oneof![0..=MAX_MB, (0u64..1 << 20).prop_map(|g| g << 10)]) {
            prop_assert_eq!(parse_mb(&print_mb(mb)), Ok(mb));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "[0-9]{0,25}[a-zA-Z]{0,3}|.*") {
            if let Ok(mb) = parse_mb(&text) {
                prop_assert!(mb <= MAX_MB);
            }
        }
    }
}
