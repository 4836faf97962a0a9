//! Lists of host names: `n[1-3,5],m` (`scontrol show hostnames`, `-w`).

use crate::spec::error::{SpecError, shown};

/// The most names that a list may stand for.
pub const MAX_HOSTS: usize = 65_536;

/// Every name that the list stands for, in its order, repeats kept. Leading zeros are kept: `m[01-02]`.
///
/// # Errors
/// `Invalid hostlist: n[1-3]x` (golden H-25): as in Slurm, nothing may follow the last bracket of a name. Also for
/// more than [`MAX_HOSTS`] names.
pub fn expand(text: &str) -> Result<Vec<String>, SpecError> {
    hosts(text).ok_or_else(|| SpecError::value(format!("Invalid hostlist: {}", shown(text))))
}

fn hosts(text: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for (element, _) in crate::spec::ids::split_outside_brackets(text, |c| c == ',' || c.is_whitespace()) {
        if element.is_empty() {
            continue;
        }
        let mut names = vec![String::new()];
        let mut rest = element;
        while let Some((before, after)) = rest.split_once('[') {
            let (list, after) = after.split_once(']')?;
            let numbers = numbers(list)?;
            if names.len().checked_mul(numbers.len())? > MAX_HOSTS {
                return None;
            }
            names = names
                .iter()
                .flat_map(|name| numbers.iter().map(move |number| format!("{name}{before}{number}")))
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
        if rest.contains([']', '[']) || element.chars().any(char::is_control) {
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

/// The numbers of `1-3,07`, each as wide as it was written.
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
    // No host is numbered with more digits, and a width is copied into each name.
    let good = (1..=18).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if good { text.parse().ok() } else { None }
}
