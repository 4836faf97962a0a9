//! The owner's limits on groups of jobs, across all partitions.

use serde::{Deserialize, Serialize};
use std::fmt;
use wildmatch::WildMatch;

/// A limit on the jobs of an account, on jobs with a matching name, or on jobs that match both.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Limit {
    pub account: Option<String>,
    /// A pattern: `*` matches any characters, `?` matches one.
    pub name: Option<WildMatch>,
    /// Maximum number of jobs and array tasks to run at once (`MaxJobs`).
    pub jobs: Option<u32>,
    /// Maximum number of CPUs for the running ones (`GrpTRES=cpu=`).
    pub cpus: Option<u32>,
}

impl Limit {
    /// Maximum number of limits in the configuration.
    pub const MOST: usize = 64;

    /// Returns whether a job counts towards this limit.
    pub fn is_of(&self, account: Option<&str>, name: &str) -> bool {
        self.account.as_deref().is_none_or(|own| account == Some(own))
            && self.name.as_ref().is_none_or(|pattern| pattern.matches(name))
    }
}

/// Prints the limit as `scontrol show config` does.
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
    fn a_limit_applies_to_jobs_that_match_account_and_name() {
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
