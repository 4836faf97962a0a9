//! What the owner of the host lets some kind of jobs have together, whichever partition they are
//! in.

use serde::{Deserialize, Serialize};
use std::fmt;
use wildmatch::WildMatch;

/// A limit on the jobs of an account, or with such a name. Where both are given, on those with
/// both.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Limit {
    pub account: Option<String>,
    /// `*` stands for any characters, `?` for one.
    pub name: Option<WildMatch>,
    /// Jobs and array tasks that run at once (`MaxJobs`).
    pub jobs: Option<u32>,
    /// CPUs of those that run (`GrpTRES=cpu=`).
    pub cpus: Option<u32>,
}

impl Limit {
    /// How many limits there may be.
    pub const MOST: usize = 64;

    /// Whether a job counts towards it.
    pub fn is_of(&self, account: Option<&str>, name: &str) -> bool {
        self.account.as_deref().is_none_or(|own| account == Some(own))
            && self.name.as_ref().is_none_or(|pattern| pattern.matches(name))
    }
}

/// As `scontrol show config` tells it.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            ("Account", self.account.clone()),
            ("Name", self.name.as_ref().map(ToString::to_string)),
            ("MaxJobs", self.jobs.map(|most| most.to_string())),
            ("GrpTRES=cpu", self.cpus.map(|most| most.to_string())),
        ];
        let words: Vec<String> = words
            .into_iter()
            .filter_map(|(key, value)| Some(format!("{key}={}", value?)))
            .collect();
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_of_the_jobs_that_have_all_it_names() {
        let both = Limit {
            account: Some("lab".to_owned()),
            name: Some(WildMatch::new("fit*")),
            ..Limit::default()
        };
        assert!(both.is_of(Some("lab"), "fit-12") && both.is_of(Some("lab"), "fit"));
        assert!(
            !both.is_of(Some("lab"), "refit")
                && !both.is_of(Some("other"), "fit")
                && !both.is_of(None, "fit")
        );
        let name = Limit { name: Some(WildMatch::new("fit?")), ..Limit::default() };
        assert!(name.is_of(None, "fit1") && !name.is_of(None, "fit"));
    }
}
