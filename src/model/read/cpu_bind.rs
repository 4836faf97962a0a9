//! The reader of CPU bindings.

use super::lists::{is_item, list, mask, number};
use crate::binding::CpuBind;

/// Reads a CPU binding, and whether it is to be reported.
pub fn cpu_bind(text: &str) -> Option<(CpuBind, bool)> {
    let (mut bind, mut verbose) = (CpuBind::Auto, false);
    let mut words = text.split(',').peekable();
    while let Some(word) = words.next() {
        let lower = word.to_ascii_lowercase();
        let kind = match lower.as_str() {
            "v" | "verbose" => {
                verbose = true;
                continue;
            }
            "q" | "quiet" => {
                verbose = false;
                continue;
            }
            "none" | "no" => CpuBind::None,
            "threads" | "thread" => CpuBind::Threads,
            "cores" | "core" => CpuBind::Cores,
            "sockets" | "socket" => CpuBind::Sockets,
            "ldoms" | "ldom" => CpuBind::Ldoms,
            "rank" => CpuBind::Rank,
            "rank_ldom" => CpuBind::RankLdom,
            _ => {
                let (name, first) = lower.split_once(':')?;
                let mut items = vec![first.to_string()];
                while let Some(item) = words.next_if(|item| is_item(item)) {
                    items.push(item.to_ascii_lowercase());
                }
                match name {
                    "map_cpu" => CpuBind::MapCpu(list(&items, number)?),
                    "mask_cpu" => CpuBind::MaskCpu(list(&items, mask)?),
                    "map_ldom" => CpuBind::MapLdom(list(&items, number)?),
                    "mask_ldom" => CpuBind::MaskLdom(list(&items, mask)?),
                    _ => return None,
                }
            }
        };
        if bind != CpuBind::Auto {
            return None;
        }
        bind = kind;
    }
    Some((bind, verbose))
}
