//! How long jobs of a name took: what is expected of one that has no time limit.
//!
//! Only what ended well counts: a job that fails at once says nothing about the next one. Nothing
//! here is a promise; nobody passes a blocked job because of it.

use crate::model::{Job, JobRequest, JobState, Timestamp};
use std::collections::{HashMap, VecDeque};

/// When a job that holds resources gives them back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedEnd {
    /// It has no time limit, or is suspended.
    Unknown,
    /// By its time limit. One that is overdue, or is ending already, is expected to be gone in a
    /// moment.
    ByLimit(Timestamp),
    /// As earlier jobs of its name took. One that takes longer already may take for ever.
    AsEarlier(Timestamp),
}

impl ExpectedEnd {
    pub fn at(self) -> Option<Timestamp> {
        match self {
            ExpectedEnd::Unknown => None,
            ExpectedEnd::ByLimit(at) | ExpectedEnd::AsEarlier(at) => Some(at),
        }
    }

    pub fn is_estimate(self) -> bool {
        matches!(self, ExpectedEnd::AsEarlier(_))
    }
}

/// `usual_secs`: how long jobs of its name took.
pub fn expected_end(job: &Job, usual_secs: Option<u64>, now: Timestamp) -> ExpectedEnd {
    let soon = Timestamp(now.0.saturating_add(1_000_000));
    let after = |secs| {
        let suspended = std::time::Duration::from_micros(job.run.suspended_us);
        Some(job.run.start?.plus_secs(secs).plus(suspended).plus_us(job.run.stepped_us))
    };
    match job.run.state {
        JobState::Completing => ExpectedEnd::ByLimit(soon),
        JobState::Running => match job.request.time_limit_secs {
            Some(limit) => {
                after(limit).map_or(ExpectedEnd::Unknown, |end| ExpectedEnd::ByLimit(end.max(soon)))
            }
            None => {
                let end = usual_secs.and_then(after).filter(|end| *end >= soon);
                end.map_or(ExpectedEnd::Unknown, ExpectedEnd::AsEarlier)
            }
        },
        JobState::Suspended => ExpectedEnd::Unknown,
        JobState::Pending | JobState::Ended(_) => ExpectedEnd::ByLimit(now),
    }
}

/// So many of the last ends of a name count.
const ENDS: usize = 10;

/// So many names are remembered: those with the latest ends.
const NAMES: usize = 1000;

/// Of each user the names.
#[derive(Debug, Clone, Default)]
pub struct RunTimes {
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

impl RunTimes {
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
        let mut known = RunTimes::default();
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
        let mut known = RunTimes::default();
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
