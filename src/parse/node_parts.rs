//! CPUs and GPUs of the node by number: `CPUs=2-3,6` and `Gres=gpu:0,2` of
//! `scontrol update NodeName=…` and of partitions.

use crate::array;
use std::collections::BTreeSet;

/// The accepted forms of numbers, for hints.
pub const NUMBERS: &str = "numbers and ranges, such as 0-3,6";

/// The accepted forms of GPUs, for hints.
pub const GPUS: &str = "gpu: with numbers and ranges, such as gpu:0,2-3";

/// The maximum length of a list.
const MOST: usize = 65_536;

/// Parses `0-3,6`. Returns `None` if the list is malformed or too long.
pub fn numbers(text: &str) -> Option<BTreeSet<u32>> {
    let list = array::parse(text).ok().filter(|list| list.limit.is_none())?;
    let numbers: BTreeSet<u32> = list.tasks.iter().take(MOST + 1).collect();
    Some(numbers).filter(|numbers| !numbers.is_empty() && numbers.len() <= MOST)
}

/// Parses `gpu:0,2`. Unlike in job requests, these are GPU numbers, not counts. `gpu:0,gpu:2`, as
/// in GRES lists, is also accepted.
pub fn gpus(text: &str) -> Option<BTreeSet<u32>> {
    let list = text.strip_prefix("gpu:").or_else(|| text.strip_prefix("gres/gpu:"))?;
    numbers(&list.replace(",gpu:", ","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use slotd_model::node::ranges;

    #[test]
    fn malformed_lists_do_not_parse() {
        for text in ["", "a", "gpu", "gpu:", "gpu:a100:1", "0", "gpu:0%2", "gpu:0-", "gpu:1-0"] {
            assert_eq!(gpus(text), None, "{text}");
        }
        assert_eq!(gpus("gpu:0,gpu:2-3"), Some([0, 2, 3].into()));
        assert_eq!(numbers("0-4000000"), None);
    }

    proptest! {
        #[test]
        fn a_printed_list_reads_back(ids in prop::collection::btree_set(0u32..500, 1..20)) {
            let text = ranges(&ids);
            prop_assert_eq!(gpus(&format!("gpu:{text}")), Some(ids.clone()));
            prop_assert_eq!(numbers(&text), Some(ids));
        }
    }
}
