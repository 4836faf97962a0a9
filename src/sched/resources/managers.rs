//! Who manages the steps of a job itself, and what its steps do without until there is something
//! else for it.

use crate::model::job::ClientProcess;
use crate::model::node::NodeParts;
use crate::model::resize::PartChange;
use crate::model::{JobId, StepId};
use crate::sched::types::{Cx, Effect};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default)]
pub struct Managers {
    /// That process, and the step that it is a process of.
    of: BTreeMap<JobId, (ClientProcess, Option<StepId>)>,
    /// Parts out of use that no step is on, to be replaced when there are others.
    spares: BTreeMap<JobId, NodeParts>,
}

impl Managers {
    pub fn get(&self, job: JobId) -> Option<(ClientProcess, Option<StepId>)> {
        self.of.get(&job).copied()
    }

    /// Who manages the job, if somebody does.
    pub fn process(&self, job: JobId) -> Option<ClientProcess> {
        self.of.get(&job).map(|(process, _)| *process)
    }

    /// Whether a step of this job could not have anything for itself, since all is its manager's.
    pub fn has(&self, job: JobId) -> bool {
        self.of.contains_key(&job)
    }

    /// The manager hears of it where it has more of the job than before, or less.
    pub fn tell(&self, job: JobId, why: PartChange, cx: &mut Cx) {
        if self.has(job) {
            cx.out.effects.push(Effect::ManagerChanged(job, why));
        }
    }

    pub fn set(&mut self, job: JobId, process: ClientProcess, within: Option<StepId>) {
        self.of.insert(job, (process, within));
    }

    /// The manager is gone. The next one says itself what its steps do not use.
    pub fn remove(&mut self, job: JobId) {
        self.of.remove(&job);
        self.spares.remove(&job);
    }

    pub fn set_spare(&mut self, job: JobId, spare: NodeParts) {
        self.spares.remove(&job);
        self.add_spare(job, &spare);
    }

    pub fn add_spare(&mut self, job: JobId, spare: &NodeParts) {
        if !spare.is_empty() {
            self.spares.entry(job).or_default().add(spare);
        }
    }

    pub fn take_spares(&mut self) -> BTreeMap<JobId, NodeParts> {
        std::mem::take(&mut self.spares)
    }

    /// Forgets the spare parts that are in use again.
    pub fn keep_spares_within(&mut self, out: &NodeParts) {
        self.spares.values_mut().for_each(|spare| *spare = spare.within(out));
        self.spares.retain(|_, spare| !spare.is_empty());
    }
}
