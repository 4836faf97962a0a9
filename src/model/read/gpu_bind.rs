//! The reader of GPU bindings.

use crate::binding::GpuBind;

/// The maximum number of elements of a list, repeats (`0*1000`) included.
const MAX_ITEMS: usize = 65_536;

/// Reads a GPU binding. `verbose` may precede it.
pub fn gpu_bind(text: &str) -> Option<GpuBind> {
    let lower = text.to_ascii_lowercase();
    let kind =
        ["verbose,", "v,"].into_iter().find_map(|word| lower.strip_prefix(word)).unwrap_or(&lower);
    let count = |value: &str| value.parse::<u32>().ok().filter(|n| *n > 0);
    Some(match kind.split_once(':') {
        None => match kind {
            "verbose" | "v" | "closest" => GpuBind::Auto,
            "none" | "no" => GpuBind::None,
            "single" => GpuBind::Single(1),
            _ => return None,
        },
        Some(("single", value)) => GpuBind::Single(count(value)?),
        Some(("per_task", value)) => GpuBind::PerTask(count(value)?),
        Some(("map_gpu", value)) => GpuBind::Map(list(value, |item| item.parse().ok())?),
        Some(("mask_gpu", value)) => GpuBind::Mask(list(value, |item| {
            let digits = item.strip_prefix("0x").unwrap_or(item);
            u64::from_str_radix(digits, 16).ok().filter(|mask| *mask > 0)
        })?),
        Some(_) => return None,
    })
}

fn list<T: Copy>(text: &str, value: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let mut items = Vec::new();
    for item in text.split(',') {
        let (item, times) = match item.split_once('*') {
            Some((item, times)) => (item, times.parse::<usize>().ok().filter(|n| *n > 0)?),
            None => (item, 1),
        };
        if items.len() + times > MAX_ITEMS {
            return None;
        }
        items.extend(std::iter::repeat_n(value(item)?, times));
    }
    Some(items)
}
