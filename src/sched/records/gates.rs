//! The conditions that keep a pending job from running anywhere: one predicate for each.

use super::{ArrayGroup, Record, Records};
use slotd_model::{Job, Reason, Timestamp};
use std::iter::once_with;

/// Checks whether the begin time is still in the future. Compares it with the clock every time,
/// since the clock may have been set back.
fn too_early(job: &Job, now: Timestamp) -> Option<Reason> {
    job.begin().filter(|begin| *begin > now).map(|_| Reason::BeginTime)
}

/// Checks whether the array already runs as many tasks as it may.
fn array_full(group: Option<&ArrayGroup>) -> Option<Reason> {
    group.filter(|group| group.is_at_limit()).map(|_| Reason::JobArrayTaskLimit)
}

impl Records {
    /// Returns everything that keeps a record from starting, apart from free resources and its
    /// partition. Each condition is evaluated lazily.
    pub(crate) fn gates_anywhere(
        &self,
        record: &Record,
        now: Timestamp,
    ) -> impl Iterator<Item = Reason> {
        let job = &record.job;
        let group = || self.array_of(job);
        once_with(|| job.hold.reason())
            .chain(once_with(move || self.dependency_blocker(job, record.waits.as_deref(), now)))
            .chain(once_with(move || too_early(job, now)))
            .chain(once_with(move || array_full(group())))
            .flatten()
    }

    /// Returns the first of [`Self::gates_anywhere`].
    pub(crate) fn gate_anywhere(&self, record: &Record, now: Timestamp) -> Option<Reason> {
        self.gates_anywhere(record, now).next()
    }
}
