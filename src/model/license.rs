//! Licenses: tokens that the owner counts, and that jobs hold from their start to their end.

use crate::JobId;
use crate::why::Until;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A license of the host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct License {
    pub name: String,
    /// The number that jobs may hold together.
    pub count: u32,
}

/// Prints the license as slurm.conf does.
impl fmt::Display for License {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.count)
    }
}

/// A license and its use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LicenseUse {
    pub name: String,
    pub total: u32,
    /// More than the total if the owner has lowered it while jobs held more.
    pub used: u32,
}

impl LicenseUse {
    pub fn free(&self) -> u32 {
        self.total.saturating_sub(self.used)
    }
}

/// A license that a pending job lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LicenseShortage {
    pub license: String,
    pub needs: u32,
    /// `None` if there is no such license any more.
    pub total: Option<u32>,
    pub free: u32,
    /// The jobs that must end first, in the order in which they are expected to.
    pub holders: Vec<LicenseHolder>,
}

/// A job that holds a license.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LicenseHolder {
    pub id: JobId,
    /// The job ID as users write it.
    pub job: String,
    pub holds: u32,
    pub until: Until,
}

/// The fault of a request for licenses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LicenseFault {
    /// Contains the request.
    Malformed(String),
    Unknown {
        name: String,
        known: Vec<String>,
    },
    TooMany {
        name: String,
        asked: u32,
        there: u32,
    },
    /// A running job requests more than it holds.
    NotFree {
        name: String,
        more: u32,
        free: u32,
    },
}

impl fmt::Display for LicenseFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let are = |count: u32| if count == 1 { "is" } else { "are" };
        match self {
            LicenseFault::Malformed(text) => write!(
                f,
                "not a list of licenses: {text}: expected names with numbers, as in matlab:2,foo"
            ),
            LicenseFault::Unknown { name, known } if known.is_empty() => {
                write!(f, "no such license: {name} (slotd.toml configures none)")
            }
            LicenseFault::Unknown { name, .. } => write!(f, "no such license: {name}"),
            LicenseFault::TooMany { name, asked, there } => {
                write!(f, "{asked} of license {name} requested, {there} {} configured", are(*there))
            }
            LicenseFault::NotFree { name, more, free } => {
                write!(f, "{more} more of license {name} requested, {free} {} free", are(*free))
            }
        }
    }
}

/// Parses a request such as `matlab:2,foo`, as Slurm does: commas and semicolons separate the
/// licenses, a name without a number means one, an empty number means none, and repeated names are
/// added up. Returns `None` for an invalid request.
pub fn parse(text: &str) -> Option<Vec<(&str, u32)>> {
    let mut found: Vec<(&str, u32)> = Vec::new();
    for one in text.split([',', ';']).filter(|one| !one.is_empty()) {
        let (name, count) = match one.split_once(':') {
            None => (one, 1),
            Some((name, "")) => (name, 0),
            Some((name, count)) if count.bytes().all(|digit| digit.is_ascii_digit()) => {
                (name, count.parse().ok()?)
            }
            Some(_) => return None,
        };
        match found.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum = sum.checked_add(count)?,
            None => found.push((name, count)),
        }
    }
    Some(found)
}

/// Returns whether a request names this license.
pub fn names(text: &str, license: &str) -> bool {
    parse(text).is_some_and(|all| all.iter().any(|(name, _)| *name == license))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_in_slurm() {
        for (text, parsed) in [
            ("matlab", Some(vec![("matlab", 1)])),
            ("matlab:2,foo", Some(vec![("matlab", 2), ("foo", 1)])),
            ("matlab:1;foo:1", Some(vec![("matlab", 1), ("foo", 1)])),
            ("matlab:1,matlab:2", Some(vec![("matlab", 3)])),
            ("matlab:0", Some(vec![("matlab", 0)])),
            ("matlab:", Some(vec![("matlab", 0)])),
            ("", Some(vec![])),
            (",;", Some(vec![])),
            ("matlab:x", None),
            ("matlab:-1", None),
            ("matlab:1|foo:1", None),
            ("matlab:4294967296", None),
            ("matlab:4294967295,matlab:1", None),
            // These are names, and no license has them.
            ("matlab=1", Some(vec![("matlab=1", 1)])),
            (" matlab", Some(vec![(" matlab", 1)])),
        ] {
            assert_eq!(parse(text), parsed, "{text:?}");
        }
        assert!(names("matlab:2,foo", "foo") && !names("matlab:2,foo", "mat"));
    }
}
