//! CPUs and GPUs of the node by number: `CPUs=2-3,6` and `Gres=gpu:0,2` of
//! `scontrol update NodeName=…`, and of partitions.

use crate::parse::array;
use std::collections::BTreeSet;

/// What numbers look like.
pub const NUMBERS: &str = "numbers and ranges, such as 0-3,6";

/// What the GPUs look like.
pub const GPUS: &str = "gpu: and numbers and ranges, such as gpu:0,2-3";

/// No list names more.
const MOST: usize = 65_536;

/// `0-3,6`. `None` where it is no such list, or an endless one.
pub fn numbers(text: &str) -> Option<BTreeSet<u32>> {
    let list = array::parse(text).ok().filter(|list| list.limit.is_none())?;
    let numbers: BTreeSet<u32> = list.tasks.iter().take(MOST + 1).collect();
    Some(numbers).filter(|numbers| !numbers.is_empty() && numbers.len() <= MOST)
}

/// `gpu:0,2`: by number, where jobs ask by count. `gpu:0,gpu:2`, as lists of GRES have it, too.
pub fn gpus(text: &str) -> Option<BTreeSet<u32>> {
    let list = text.strip_prefix("gpu:").or_else(|| text.strip_prefix("gres/gpu:"))?;
    numbers(&list.replace(",gpu:", ","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::node::ranges;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_list_of_numbers_is_none() {
        for text in ["", "a", "gpu", "gpu:", "gpu:a100:1", "0", "gpu:0%2", "gpu:0-", "gpu:1-0"] {
            assert_eq!(gpus(text), None, "{text}");
        }
        assert_eq!(gpus("gpu:0,gpu:2-3"), Some([0, 2, 3].into()));
        assert_eq!(numbers("0-4000000"), None);
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(ids in prop::collection::btree_set(0u32..500, 1..20)) {
            let text = ranges(&ids);
            prop_assert_eq!(gpus(&format!("gpu:{text}")), Some(ids.clone()));
            prop_assert_eq!(numbers(&text), Some(ids));
        }
    }
}
