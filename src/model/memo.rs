//! State that survives a restart of the daemon beside the jobs: the reservations, and what makes
//! each notification be sent once and with the right figures.

use crate::notice::Counts;
use crate::reservation::Reservation;
use crate::{ExitCode, JobId, Reason, Timestamp, is_default};
use serde::{Deserialize, Serialize};

/// The subject of a memo. Each subject has at most one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoKey {
    /// How the tasks of an array ended.
    Array(JobId),
    /// How the jobs of a chain ended. The chain is identified by the first of its jobs that was
    /// seen.
    Chain(JobId),
    /// The chain that a job belongs to.
    Link(JobId),
    /// The reasons reported so far for why a job can never start.
    Never(JobId),
    /// The percentage of a job's time limit that was last reported.
    Limit(JobId),
    /// A reservation, by its number.
    Reservation(u32),
    /// The number of the latest reservation.
    LastReservation,
    /// How jobs ended since the queue was last empty. It sorts last, so that its notification is
    /// sent last.
    Queue,
}

/// The content of a memo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoBody {
    Tally(Box<Tally>),
    Link(JobId),
    Reasons(Vec<Reason>),
    Percent(u8),
    Reservation(Box<Reservation>),
    Number(u32),
}

/// A job's ID and the name that its user gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedJob {
    pub id: JobId,
    pub name: String,
}

/// How the ended jobs of a group ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// When counting began. Jobs that ended earlier are not included.
    pub since: Timestamp,
    /// Jobs and array tasks, by how they ended.
    pub counts: Counts,
    /// The jobs with the lowest and the highest ID.
    #[serde(skip_serializing_if = "is_default")]
    pub first: Option<NamedJob>,
    #[serde(skip_serializing_if = "is_default")]
    pub last: Option<NamedJob>,
    /// When the first of them started.
    #[serde(skip_serializing_if = "is_default")]
    pub start: Option<Timestamp>,
    /// The best exit code, by the number that a shell reports, and the worst.
    #[serde(skip_serializing_if = "is_default")]
    pub codes: Option<(ExitCode, ExitCode)>,
    /// At least one job was requeued.
    #[serde(skip_serializing_if = "is_default")]
    pub requeued: bool,
}

impl Tally {
    pub fn since(now: Timestamp) -> Tally {
        Tally { since: now, ..Tally::default() }
    }

    /// Adds a job to the group.
    pub fn add_job(&mut self, id: JobId, name: &str) {
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

    /// Merges another group into this one.
    pub fn merge(&mut self, other: Tally) {
        self.since = self.since.min(other.since);
        self.counts.merge(&other.counts);
        for job in [&other.first, &other.last].into_iter().flatten() {
            self.add_job(job.id, &job.name);
        }
        self.start = [self.start, other.start].into_iter().flatten().min();
        for code in other.codes.into_iter().flat_map(|(best, worst)| [best, worst]) {
            self.note_code(code);
        }
        self.requeued |= other.requeued;
    }
}

impl MemoKey {
    /// Returns the topic and the job ID, as the store keeps them.
    pub fn parts(self) -> (&'static str, u32) {
        match self {
            MemoKey::Queue => ("queue", 0),
            MemoKey::Array(JobId(id)) => ("array", id),
            MemoKey::Chain(JobId(id)) => ("chain", id),
            MemoKey::Link(JobId(id)) => ("link", id),
            MemoKey::Never(JobId(id)) => ("never", id),
            MemoKey::Limit(JobId(id)) => ("limit", id),
            MemoKey::Reservation(number) => ("reservation", number),
            MemoKey::LastReservation => ("last reservation", 0),
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
            MemoKey::Reservation(number),
            MemoKey::LastReservation,
        ];
        keys.into_iter().find(|key| key.parts() == (topic, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::End;

    #[test]
    fn merged_tallies_add_up() {
        let tally = |at, id, state, exit| {
            let mut tally = Tally::since(Timestamp(at));
            tally.add_job(JobId(id), &format!("job {id}"));
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
    fn keys_survive_the_store() {
        for key in [
            MemoKey::Queue,
            MemoKey::Link(JobId(7)),
            MemoKey::Limit(JobId(0)),
            MemoKey::Reservation(2),
            MemoKey::LastReservation,
        ] {
            let (topic, number) = key.parts();
            assert_eq!(MemoKey::of_parts(topic, number), Some(key));
        }
        assert_eq!(MemoKey::of_parts("queue", 3), None);
    }
}
