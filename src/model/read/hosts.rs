//! The reader of host lists.

use super::split_outside_brackets;

/// The maximum number of names in an expanded list.
const MAX_HOSTS: usize = 65_536;

/// The maximum length of a name, the same as in DNS.
const MAX_NAME_LEN: usize = 255;

/// Reads `n[1-3,5],m`, and returns the names in order.
pub fn hosts(text: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for (element, _) in split_outside_brackets(text, |c| c == ',' || c.is_whitespace()) {
        if element.is_empty() {
            continue;
        }
        let mut names = vec![String::new()];
        let mut rest = element;
        while let Some((before, after)) = rest.split_once('[') {
            let (list, after) = after.split_once(']')?;
            let numbers = numbers(list)?;
            if before.contains(']') || names.first()?.len() + before.len() > MAX_NAME_LEN {
                return None;
            }
            if names.len().checked_mul(numbers.len())? > MAX_HOSTS {
                return None;
            }
            names = names
                .iter()
                .flat_map(|name| {
                    numbers.iter().map(move |number| format!("{name}{before}{number}"))
                })
                .collect();
            if after.is_empty() {
                rest = "";
                break;
            }
            if !after.contains('[') {
                return None;
            }
            rest = after;
        }
        if rest.len() > MAX_NAME_LEN
            || rest.contains([']', '['])
            || element.chars().any(char::is_control)
        {
            return None;
        }
        names.iter_mut().for_each(|name| name.push_str(rest));
        all.append(&mut names);
        if all.len() > MAX_HOSTS {
            return None;
        }
    }
    Some(all)
}

/// Returns the numbers of `1-3,07`, each with its leading zeros.
fn numbers(list: &str) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for element in list.split(',') {
        let (first, last) = element.split_once('-').unwrap_or((element, element));
        let (low, high) = (number(first)?, number(last)?);
        if low > high || high - low >= MAX_HOSTS as u64 {
            return None;
        }
        let width = first.len();
        numbers.extend((low..=high).map(|n| format!("{n:0width$}")));
        if numbers.len() > MAX_HOSTS {
            return None;
        }
    }
    Some(numbers)
}

fn number(text: &str) -> Option<u64> {
    // Longer numbers are refused, because every name would repeat the width.
    let good = (1..=18).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if good { text.parse().ok() } else { None }
}
