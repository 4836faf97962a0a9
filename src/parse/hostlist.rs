//! Host lists: `n[1-3,5],m` (`scontrol show hostnames`, `-w`).

use crate::error::{SpecError, shown};
use slotd_model::{HostList, read};

/// Expands a list into its names, in order. Repeats and leading zeros are kept: `m[01-02]`.
///
/// # Errors
/// Fails with `Invalid hostlist: n[1-3]x`: as in Slurm, no text may follow the last bracket of a
/// name. Also fails for more than 65,536 names.
pub fn expand(text: &str) -> Result<Vec<String>, SpecError> {
    read::hosts(text).ok_or_else(|| SpecError::value(format!("Invalid hostlist: {}", shown(text))))
}

/// Parses a list like [`expand`] into a [`HostList`].
///
/// # Errors
/// See [`expand`].
pub fn parse(text: &str) -> Result<HostList, SpecError> {
    expand(text).map(HostList::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn brackets_are_expanded_in_order() {
        for (text, names) in [
            ("n[1-3,7],m[01-02]", vec!["n1", "n2", "n3", "n7", "m01", "m02"]),
            ("vm", vec!["vm"]),
            ("a,b c", vec!["a", "b", "c"]),
            ("r[0-1]n[2-3]", vec!["r0n2", "r0n3", "r1n2", "r1n3"]),
            ("n[08-10]", vec!["n08", "n09", "n10"]),
            ("n[1,1]", vec!["n1", "n1"]),
            ("", vec![]),
        ] {
            assert_eq!(expand(text), Ok(names.iter().map(|n| n.to_string()).collect()), "{text}");
        }
    }

    #[test]
    fn malformed_and_huge_lists_are_refused() {
        for text in [
            "n[1-3]x",
            "][5]",
            "a]b[1]",
            "n[1-3",
            "n1]",
            "n[]",
            "n[3-1]",
            "n[a-b]",
            "n[1-]",
            "n[0-4294967295]",
            "n[1-1000][1-1000]",
            "n[1-60000],m[1-60000]",
            "n[0000000000000000001]",
            "n[1]]",
            "n[[1]]",
        ] {
            assert_eq!(
                expand(text).map_err(|e| e.to_string()),
                Err(format!("Invalid hostlist: {text}"))
            );
        }
        assert!(expand(&format!("{}[1-60000]", "n".repeat(100_000))).is_err());
        assert!(expand(&"n[1-60000]".repeat(100)).is_err());
    }

    proptest! {
        #[test]
        fn plain_names_are_kept(names in prop::collection::vec("[a-z][a-z0-9.-]{0,9}", 0..6)) {
            prop_assert_eq!(expand(&names.join(",")), Ok(names));
        }

        #[test]
        fn a_range_has_each_number_once(first in 0u32..9999, more in 0u32..99) {
            let names = expand(&format!("n[{first}-{}]", first + more));
            prop_assert_eq!(names, Ok((first..=first + more).map(|i| format!("n{i}")).collect()));
        }

        #[test]
        fn no_text_breaks_the_parser(text in "[n0-9,\\[\\]\\-]{0,30}|.*") {
            let _ = expand(&text);
        }
    }
}
