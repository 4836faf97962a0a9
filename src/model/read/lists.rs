//! Lists of CPUs or NUMA nodes, as numbers or masks.

use crate::binding::Repeated;

/// The largest CPU number in a map or mask; Linux supports at most 8192 CPUs.
const MAX_CPU: u32 = 65_535;

/// Returns whether a word continues a list. No kind's name consists only of hexadecimal digits.
pub(crate) fn is_item(word: &str) -> bool {
    let value = word.split_once('*').map_or(word, |(value, _)| value);
    let digits = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")).unwrap_or(value);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

pub(crate) fn list<T>(
    items: &[String],
    value: impl Fn(&str) -> Option<T>,
) -> Option<Vec<Repeated<T>>> {
    items
        .iter()
        .map(|item| {
            let (text, times) = match item.split_once('*') {
                Some((text, times)) => (text, decimal(times).filter(|&times| times > 0)?),
                None => (item.as_str(), 1),
            };
            Some(Repeated { value: value(text)?, times })
        })
        .collect()
}

fn decimal(text: &str) -> Option<u32> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

pub(crate) fn number(text: &str) -> Option<u32> {
    let cpu = match text.strip_prefix("0x") {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u32::from_str_radix(hex, 16).ok()
        }
        Some(_) => None,
        None => decimal(text),
    };
    cpu.filter(|&cpu| cpu <= MAX_CPU)
}

/// Returns the CPUs of a hexadecimal mask in ascending order, or `None` if the mask is empty.
pub(crate) fn mask(text: &str) -> Option<Vec<u32>> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let significant = digits.trim_start_matches('0');
    if digits.is_empty() || significant.len() as u64 * 4 > u64::from(MAX_CPU) + 1 {
        return None;
    }
    let mut cpus = Vec::new();
    for (base, digit) in (0u32..).step_by(4).zip(significant.chars().rev()) {
        let digit = digit.to_digit(16)?;
        cpus.extend((0..4).filter(|bit| digit >> bit & 1 == 1).map(|bit| base + bit));
    }
    if cpus.is_empty() { None } else { Some(cpus) }
}
