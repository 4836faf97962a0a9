//! The reader of memory bindings.

use super::lists::{is_item, list, mask, number};
use crate::placement::{MemBind, MemNodes};

/// Reads a memory binding in lower case.
pub fn mem_bind(text: &str) -> Option<MemBind> {
    let mut bind = MemBind::default();
    let mut words = text.split(',').peekable();
    while let Some(word) = words.next() {
        match word {
            "v" | "verbose" => bind.reports = true,
            "q" | "quiet" => bind.reports = false,
            "p" | "prefer" => bind.prefers = true,
            "sort" => bind.sorts = Some(true),
            "nosort" => bind.sorts = Some(false),
            "no" | "none" => bind.nodes = MemNodes::None,
            "local" => bind.nodes = MemNodes::Local,
            "rank" => bind.nodes = MemNodes::Rank,
            _ => {
                let (name, first) = word.split_once(':')?;
                let mut items = vec![first.to_owned()];
                while let Some(item) = words.next_if(|item| is_item(item)) {
                    items.push(item.to_owned());
                }
                bind.nodes = match name {
                    "map_mem" => MemNodes::Map(list(&items, number)?),
                    "mask_mem" => MemNodes::Mask(list(&items, mask)?),
                    _ => return None,
                };
            }
        }
    }
    Some(bind)
}
