//! What keeps a pending job from running anywhere: one predicate for each blocker.

use super::{ArrayGroup, Record, Records};
use crate::model::job::Hold;
use crate::model::{Job, Reason, Timestamp};
use std::iter::once_with;

/// The user or an administrator holds it.
fn held(job: &Job) -> Option<Reason> {
    match job.hold {
        Hold::No => None,
        Hold::User => Some(Reason::JobHeldUser),
        Hold::Admin => Some(Reason::JobHeldAdmin),
    }
}

/// Its begin time has not come. The clock is asked each time: it may have been set back.
fn too_early(job: &Job, now: Timestamp) -> Option<Reason> {
    job.request.begin.filter(|begin| *begin > now).map(|_| Reason::BeginTime)
}

/// The array has as many tasks running as it may.
fn array_full(group: Option<&ArrayGroup>) -> Option<Reason> {
    group.filter(|group| group.is_at_limit()).map(|_| Reason::JobArrayTaskLimit)
}

impl Records {
    /// All that keeps a record from starting and is neither a matter of free resources nor of its
    /// partition, each worked out when it is asked for.
    pub fn gates_anywhere(&self, record: &Record, now: Timestamp) -> impl Iterator<Item = Reason> {
        let job = &record.job;
        let group = || self.array_of(job);
        once_with(|| held(job))
            .chain(once_with(move || self.dependency_blocker(job, record.waits.as_deref(), now)))
            .chain(once_with(move || too_early(job, now)))
            .chain(once_with(move || array_full(group())))
            .flatten()
    }

    /// The first of them.
    pub fn gate_anywhere(&self, record: &Record, now: Timestamp) -> Option<Reason> {
        self.gates_anywhere(record, now).next()
    }
}
