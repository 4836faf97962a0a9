//! Lists of host names.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Host names in the order given, duplicates included (sbatch man page, `--nodelist`).
///
/// Stored as text: the printed form, which `read::hosts` parses back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostList {
    names: Vec<String>,
}

impl HostList {
    pub fn new(names: Vec<String>) -> Self {
        HostList { names }
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// Prints `n[1-3],x7`: consecutive names with the same prefix share a bracket.
impl fmt::Display for HostList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for name in &self.names {
            let (stem, digits) = split(name);
            match groups.last_mut() {
                Some((last, list))
                    if *last == stem && !digits.is_empty() && !list[0].is_empty() =>
                {
                    list.push(digits)
                }
                _ => groups.push((stem, vec![digits])),
            }
        }
        for (i, (stem, list)) in groups.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match list.as_slice() {
                [one] => write!(f, "{stem}{one}")?,
                many => write!(f, "{stem}[{}]", padded_ranges(many))?,
            }
        }
        Ok(())
    }
}

impl From<HostList> for String {
    fn from(list: HostList) -> String {
        list.to_string()
    }
}

/// Splits off the digits at the end of a name. Too many digits for a number stay part of the name.
fn split(name: &str) -> (&str, &str) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = &name[stem.len()..];
    if digits.len() > 18 { (name, "") } else { (stem, digits) }
}

/// Prints `1-3,7` or `01-03`: all numbers of a range have the same width.
fn padded_ranges(digits: &[&str]) -> String {
    let value = |d: &str| d.parse::<u64>().unwrap_or(0);
    let mut out = String::new();
    let mut i = 0;
    while i < digits.len() {
        let mut end = i;
        while end + 1 < digits.len()
            && value(digits[end + 1]) == value(digits[end]) + 1
            && (digits[end + 1].len() == digits[end].len()
                || !digits[end].starts_with('0') && !digits[end + 1].starts_with('0'))
        {
            end += 1;
        }
        if i > 0 {
            out.push(',');
        }
        out.push_str(digits[i]);
        if end > i {
            out.push('-');
            out.push_str(digits[end]);
        }
        i = end + 1;
    }
    out
}
