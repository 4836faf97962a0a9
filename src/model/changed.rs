//! What has changed since somebody last looked: told to those who keep a picture of the queue.

use crate::model::change::Change;
use crate::model::{JobId, is_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// More jobs than this are not named: whoever has so many to look at looks at all.
const MOST_NAMED: usize = 1024;

/// What may be different from what it was. It says where to look and not what is there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Changed {
    /// Everything may be: a picture is to be taken anew.
    #[serde(skip_serializing_if = "is_default")]
    pub all: bool,
    /// Records that are new, different or gone.
    #[serde(skip_serializing_if = "is_default")]
    pub jobs: BTreeSet<JobId>,
    /// Which jobs wait, in which order, and why.
    #[serde(skip_serializing_if = "is_default")]
    pub queue: bool,
    /// The node, its parts or its partitions.
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

    /// What is out of use, and what partitions take, decides who waits and why.
    pub fn node() -> Changed {
        Changed { node: true, queue: true, ..Changed::default() }
    }

    /// A record that is no more.
    pub fn gone(job: JobId) -> Changed {
        Changed { jobs: BTreeSet::from([job]), queue: true, ..Changed::default() }
    }

    /// By what is to be remembered.
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

    /// Adds what has changed since. It takes no more memory than so many jobs do, whatever comes.
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
    use crate::model::{Job, StepId};

    fn update(id: u32) -> Change {
        Change::Update(Box::new(Job { id: JobId(id), ..Job::default() }))
    }

    #[test]
    fn changes_name_their_jobs_once() {
        let step = Change::DropStep { job: JobId(3), step: StepId::Batch };
        let changed = Changed::by(&[update(2), update(2), step.clone()]);
        assert_eq!((changed.jobs, changed.queue), (BTreeSet::from([JobId(2), JobId(3)]), true));
        assert!(!Changed::by(&[step]).queue, "a step changes nothing for those who wait");
        assert!(Changed::by(&[Change::DropNotice { number: 1 }]).is_empty());
    }

    #[test]
    fn what_comes_together_is_told_together() {
        let mut changed = Changed::by(&[update(1)]);
        changed.add(&Changed::by(&[update(2)]));
        changed.add(&Changed::node());
        assert_eq!(
            changed,
            Changed { jobs: [JobId(1), JobId(2)].into(), queue: true, node: true, all: false }
        );
    }

    #[test]
    fn a_great_many_jobs_are_not_named() {
        let mut changed = Changed::default();
        for id in 0..100_000 {
            changed.add(&Changed::gone(JobId(id)));
            assert!(changed.jobs.len() <= MOST_NAMED);
        }
        assert_eq!(changed, Changed::everything());
    }
}
