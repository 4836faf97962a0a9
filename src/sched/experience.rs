//! How long jobs of a name took: what is expected of one that has no time limit.
//!
//! Only what ended well counts: a job that fails at once says nothing about the next one. Nothing here is a promise; nobody
//! passes a blocked job because of it.

use crate::model::JobRequest;
use std::collections::{HashMap, VecDeque};

/// So many of the last ends of a name count.
const ENDS: usize = 10;

/// So many names are remembered: those with the latest ends.
const NAMES: usize = 1000;

/// Of each user the names.
#[derive(Debug, Clone, Default)]
pub struct Experience {
    of_users: HashMap<u32, HashMap<String, Past>>,
    names: usize,
    noted: u64,
}

#[derive(Debug, Clone, Default)]
struct Past {
    /// Seconds, the latest last.
    took: VecDeque<u64>,
    last: u64,
}

impl Experience {
    /// A job of this user and name ended well after so many seconds.
    pub fn note(&mut self, request: &JobRequest, secs: u64) {
        // One that has expanded another took no time.
        if request.dependency.expands().is_some() {
            return;
        }
        self.noted += 1;
        let names = self.of_users.entry(request.uid).or_default();
        if !names.contains_key(&request.name) {
            names.insert(request.name.clone(), Past::default());
            self.names += 1;
        }
        if let Some(past) = names.get_mut(&request.name) {
            past.last = self.noted;
            past.took.push_back(secs);
            if past.took.len() > ENDS {
                past.took.pop_front();
            }
        }
        if self.names > NAMES {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let all = self.of_users.values().flat_map(HashMap::values);
        let Some(oldest) = all.map(|past| past.last).min() else { return };
        for names in self.of_users.values_mut() {
            names.retain(|_, past| past.last != oldest);
        }
        self.of_users.retain(|_, names| !names.is_empty());
        self.names -= 1;
    }

    /// How many seconds such a job takes: the median of the last ones. `None`: none ended yet.
    pub fn expected_secs(&self, request: &JobRequest) -> Option<u64> {
        let past = self.of_users.get(&request.uid)?.get(&request.name)?;
        let mut took: Vec<u64> = past.took.iter().copied().collect();
        took.sort_unstable();
        // Of an even number the longer one of the middle: rather too late than too early.
        took.get(took.len() / 2).map(|secs| (*secs).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, uid: u32) -> JobRequest {
        JobRequest { name: name.to_owned(), uid, ..JobRequest::default() }
    }

    #[test]
    fn the_median_of_the_last_ends_of_the_users_own_jobs_counts() {
        let mut known = Experience::default();
        let fit = named("fit", 1);
        assert_eq!(known.expected_secs(&fit), None);
        known.note(&fit, 0);
        assert_eq!(known.expected_secs(&fit), Some(1));
        for secs in [9000, 100, 300, 200] {
            known.note(&fit, secs);
        }
        assert_eq!(known.expected_secs(&fit), Some(200));
        assert_eq!(
            (known.expected_secs(&named("fit", 2)), known.expected_secs(&named("fi", 1))),
            (None, None)
        );
        (0..ENDS).for_each(|_| known.note(&fit, 7));
        assert_eq!(known.expected_secs(&fit), Some(7));
    }

    #[test]
    fn the_names_with_the_oldest_ends_are_forgotten() {
        let mut known = Experience::default();
        let first = named("0", 1);
        for number in 0..=NAMES {
            known.note(&named(&number.to_string(), number as u32 % 3), 5);
            known.note(&first, 5);
        }
        assert_eq!(known.names, NAMES);
        assert_eq!(known.of_users.values().map(HashMap::len).sum::<usize>(), NAMES);
        assert!(
            known.expected_secs(&first).is_some() && known.expected_secs(&named("0", 0)).is_none()
        );
    }
}
