//! Changes since a client's last update, sent to clients that mirror the queue.

use crate::change::Change;
use crate::{JobId, is_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum number of jobs to name. A client that would have to fetch more fetches everything.
const MOST_NAMED: usize = 1024;

/// The parts of the queue and the node that may have changed. It names them, but does not contain
/// the new values.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Changed {
    /// Anything may have changed: fetch everything again.
    #[serde(skip_serializing_if = "is_default")]
    pub all: bool,
    /// Records that were added, changed or deleted.
    #[serde(skip_serializing_if = "is_default")]
    pub jobs: BTreeSet<JobId>,
    /// The set of pending jobs, their order or their reasons.
    #[serde(skip_serializing_if = "is_default")]
    pub queue: bool,
    /// The node, its CPUs and GPUs, or its partitions.
    #[serde(skip_serializing_if = "is_default")]
    pub node: bool,
}

impl Changed {
    pub fn everything() -> Changed {
        Changed { all: true, ..Changed::default() }
    }

    pub fn queue() -> Changed {
        Changed { queue: true, ..Changed::default() }
    }

    /// Marks the node as changed, and the queue too: drained resources and partition states affect
    /// which jobs wait and why.
    pub fn node() -> Changed {
        Changed { node: true, queue: true, ..Changed::default() }
    }

    /// Marks a deleted record.
    pub fn gone(job: JobId) -> Changed {
        Changed { jobs: BTreeSet::from([job]), queue: true, ..Changed::default() }
    }

    /// Derives what changed from the changes that are to be stored.
    pub fn by(changes: &[Change]) -> Changed {
        let is_of_queue =
            |change: &Change| matches!(change, Change::Insert { .. } | Change::Update(_));
        Changed {
            jobs: changes.iter().filter_map(Change::job).collect(),
            queue: changes.iter().any(is_of_queue),
            ..Changed::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Changed::default()
    }

    /// Adds later changes. Memory use stays bounded by [`MOST_NAMED`] jobs.
    pub fn add(&mut self, later: &Changed) {
        self.all |= later.all;
        self.queue |= later.queue;
        self.node |= later.node;
        if !self.all {
            self.jobs.extend(&later.jobs);
            self.all = self.jobs.len() > MOST_NAMED;
        }
        if self.all {
            *self = Changed::everything();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Job, StepId};

    fn update(id: u32) -> Change {
        Change::Update(Box::new(Job { id: JobId(id), ..Job::default() }))
    }

    #[test]
    fn changes_name_their_jobs_once() {
        let step = Change::DropStep { job: JobId(3), step: StepId::Batch };
        let changed = Changed::by(&[update(2), update(2), step.clone()]);
        assert_eq!((changed.jobs, changed.queue), (BTreeSet::from([JobId(2), JobId(3)]), true));
        assert!(!Changed::by(&[step]).queue, "a step does not affect pending jobs");
        assert!(Changed::by(&[Change::DropNotice { number: 1 }]).is_empty());
    }

    #[test]
    fn later_changes_are_merged_into_one_message() {
        let mut changed = Changed::by(&[update(1)]);
        changed.add(&Changed::by(&[update(2)]));
        changed.add(&Changed::node());
        assert_eq!(
            changed,
            Changed { jobs: [JobId(1), JobId(2)].into(), queue: true, node: true, all: false }
        );
    }

    #[test]
    fn too_many_jobs_to_name_means_everything_changed() {
        let mut changed = Changed::default();
        for id in 0..100_000 {
            changed.add(&Changed::gone(JobId(id)));
            assert!(changed.jobs.len() <= MOST_NAMED);
        }
        assert_eq!(changed, Changed::everything());
    }
}
