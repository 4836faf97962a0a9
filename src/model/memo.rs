//! What has to be kept over a restart of the daemon, so that what is told is told once and with the
//! right figures.

use crate::model::notice::Counts;
use crate::model::{ExitCode, JobId, Reason, Timestamp, is_default};
use serde::{Deserialize, Serialize};

/// What a memo is about. There is one for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoKey {
    /// How the tasks of an array ended.
    Array(JobId),
    /// How the jobs of a chain ended, by the first of them that was known.
    Chain(JobId),
    /// The chain that a job is in.
    Link(JobId),
    /// The reasons that were told of why a job can never start.
    Never(JobId),
    /// How much of its time limit was told to be over.
    Limit(JobId),
    /// How jobs ended since the queue was last empty. It comes last: so it is told.
    Queue,
}

/// What is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoBody {
    Tally(Box<Tally>),
    Link(JobId),
    Reasons(Vec<Reason>),
    Percent(u8),
}

/// A job by its number, and the name that its user gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedJob {
    pub id: JobId,
    pub name: String,
}

/// How those of a group ended that have ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// When it was begun: what ended before is not in it.
    pub since: Timestamp,
    /// Jobs and array tasks.
    pub counts: Counts,
    /// The jobs with the lowest and the highest number.
    #[serde(skip_serializing_if = "is_default")]
    pub first: Option<NamedJob>,
    #[serde(skip_serializing_if = "is_default")]
    pub last: Option<NamedJob>,
    /// The start of the first that ran.
    #[serde(skip_serializing_if = "is_default")]
    pub start: Option<Timestamp>,
    /// The exit codes that are best and worst for a shell.
    #[serde(skip_serializing_if = "is_default")]
    pub codes: Option<(ExitCode, ExitCode)>,
    /// One of them went back to the queue.
    #[serde(skip_serializing_if = "is_default")]
    pub requeued: bool,
}

impl Tally {
    pub fn since(now: Timestamp) -> Tally {
        Tally { since: now, ..Tally::default() }
    }

    /// A job belongs to the group.
    pub fn take_in(&mut self, id: JobId, name: &str) {
        let named = || Some(NamedJob { id, name: name.to_owned() });
        if self.first.as_ref().is_none_or(|first| id < first.id) {
            self.first = named();
        }
        if self.last.as_ref().is_none_or(|last| id > last.id) {
            self.last = named();
        }
    }

    pub fn note_code(&mut self, exit: ExitCode) {
        let (best, worst) = self.codes.unwrap_or((exit, exit));
        let best = if exit.as_shell() < best.as_shell() { exit } else { best };
        self.codes = Some((best, worst.worse(exit)));
    }

    /// Both groups are one.
    pub fn merge(&mut self, other: Tally) {
        self.since = self.since.min(other.since);
        self.counts.merge(&other.counts);
        for job in [&other.first, &other.last].into_iter().flatten() {
            self.take_in(job.id, &job.name);
        }
        self.start = [self.start, other.start].into_iter().flatten().min();
        for code in other.codes.into_iter().flat_map(|(best, worst)| [best, worst]) {
            self.note_code(code);
        }
        self.requeued |= other.requeued;
    }
}

impl MemoKey {
    /// What it is about, and of which job, for the store.
    pub fn parts(self) -> (&'static str, u32) {
        match self {
            MemoKey::Queue => ("queue", 0),
            MemoKey::Array(JobId(id)) => ("array", id),
            MemoKey::Chain(JobId(id)) => ("chain", id),
            MemoKey::Link(JobId(id)) => ("link", id),
            MemoKey::Never(JobId(id)) => ("never", id),
            MemoKey::Limit(JobId(id)) => ("limit", id),
        }
    }

    pub fn of_parts(topic: &str, number: u32) -> Option<MemoKey> {
        let id = JobId(number);
        let keys = [
            MemoKey::Queue,
            MemoKey::Array(id),
            MemoKey::Chain(id),
            MemoKey::Link(id),
            MemoKey::Never(id),
            MemoKey::Limit(id),
        ];
        keys.into_iter().find(|key| key.parts() == (topic, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::End;

    #[test]
    fn two_tallies_make_one() {
        let tally = |at, id, state, exit| {
            let mut tally = Tally::since(Timestamp(at));
            tally.take_in(JobId(id), &format!("job {id}"));
            tally.counts.add(state, 2);
            tally.note_code(ExitCode::status(exit));
            tally
        };
        let mut one = tally(9, 4, End::Completed, 0);
        one.merge(tally(5, 7, End::Failed, 3));
        assert_eq!((one.since, one.counts.total()), (Timestamp(5), 4));
        assert_eq!(one.codes, Some((ExitCode::OK, ExitCode::status(3))));
        let ends = [&one.first, &one.last].map(|job| job.as_ref().map(|job| job.name.as_str()));
        assert_eq!(ends, [Some("job 4"), Some("job 7")]);
    }

    #[test]
    fn each_key_is_found_by_its_parts() {
        for key in [MemoKey::Queue, MemoKey::Link(JobId(7)), MemoKey::Limit(JobId(0))] {
            let (topic, number) = key.parts();
            assert_eq!(MemoKey::of_parts(topic, number), Some(key));
        }
        assert_eq!(MemoKey::of_parts("queue", 3), None);
    }
}
