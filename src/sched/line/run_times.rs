//! Run times by job name, to predict the end of jobs without a time limit.
//!
//! Only jobs that ended well count: one that fails at once says nothing about the next. The result
//! is an estimate; no job passes a blocked one because of it.

use slotd_model::{Job, JobRequest, JobState, Timestamp};
use std::collections::{HashMap, VecDeque};

/// When a job is expected to release its resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedEnd {
    /// The job has no time limit, or is suspended.
    Unknown,
    /// At its time limit. A job that is overdue or already ending is expected to end in a moment.
    ByLimit(Timestamp),
    /// After as long as earlier jobs of its name took. A job that already runs longer may never
    /// end.
    AsEarlier(Timestamp),
}

impl ExpectedEnd {
    /// Returns the end of a job that ends at this time if it still runs then.
    #[must_use]
    pub(crate) fn by(self, end: Option<Timestamp>) -> Self {
        match (self, end) {
            (own, Some(end)) if own.at().is_none_or(|at| at > end) => ExpectedEnd::ByLimit(end),
            (own, _) => own,
        }
    }

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

/// Returns the expected end of a job. `usual_secs`: how long jobs of its name usually take.
pub(crate) fn expected_end(job: &Job, usual_secs: Option<u64>, now: Timestamp) -> ExpectedEnd {
    let soon = Timestamp(now.0.saturating_add(1_000_000));
    let after = |secs| {
        let suspended = std::time::Duration::from_micros(job.run.suspended_us);
        Some(job.run.start?.plus_secs(secs).plus(suspended).plus_us(job.run.stepped_us))
    };
    match job.run.state {
        JobState::Completing => ExpectedEnd::ByLimit(soon),
        JobState::Running => {
            let end = match job.request.time_limit_secs {
                Some(limit) => after(limit)
                    .map_or(ExpectedEnd::Unknown, |end| ExpectedEnd::ByLimit(end.max(soon))),
                None => {
                    let end = usual_secs.and_then(after).filter(|end| *end >= soon);
                    end.map_or(ExpectedEnd::Unknown, ExpectedEnd::AsEarlier)
                }
            };
            let grace = job.run.preempted.as_ref().and_then(|by| by.grace_end());
            end.by(grace.map(|end| end.max(soon)))
        }
        JobState::Suspended => ExpectedEnd::Unknown,
        JobState::Pending | JobState::Ended(_) => ExpectedEnd::ByLimit(now),
    }
}

/// Returns the expected end of a suspended job that is resumed then. It may be suspended again
/// before, so this is never a certain end.
pub(crate) fn end_if_resumed(job: &Job, usual_secs: Option<u64>, at: Timestamp) -> ExpectedEnd {
    let Some(secs) = job.request.time_limit_secs.or(usual_secs) else {
        return ExpectedEnd::Unknown;
    };
    let left = secs.saturating_sub(job.elapsed(job.run.suspended_at.unwrap_or(at)).as_secs());
    ExpectedEnd::AsEarlier(at.plus_secs(left.max(1)))
}

/// The number of recent run times of a name that count.
const ENDS: usize = 10;

/// The number of names that are kept: those with the most recent ends.
const NAMES: usize = 1000;

/// Run times by user and job name.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunTimes {
    of_users: HashMap<u32, HashMap<String, Past>>,
    names: usize,
    noted: u64,
}

#[derive(Debug, Clone, Default)]
struct Past {
    /// In seconds, the latest last.
    took: VecDeque<u64>,
    last: u64,
}

impl RunTimes {
    /// Records that a job of this user and name ended well after `secs` seconds.
    pub(crate) fn note(&mut self, request: &JobRequest, secs: u64) {
        // A job that expanded another one took no time.
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

    /// Returns the median of the recent run times in seconds, or `None` if no such job has ended
    /// yet.
    pub(crate) fn expected_secs(&self, request: &JobRequest) -> Option<u64> {
        let past = self.of_users.get(&request.uid)?.get(&request.name)?;
        let mut took: Vec<u64> = past.took.iter().copied().collect();
        took.sort_unstable();
        // With an even count, take the longer of the two middle values: a late estimate is better
        // than an early one.
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
    fn the_estimate_is_the_median_of_the_users_own_recent_jobs() {
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
    fn names_with_the_oldest_ends_are_forgotten() {
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
