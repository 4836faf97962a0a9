//! The processes that manage the steps of their jobs themselves, and the parts out of use that
//! their steps leave unused until there is a replacement.

use crate::types::{Cx, Effect};
use slotd_model::job::ClientProcess;
use slotd_model::node::NodeParts;
use slotd_model::resize::PartChange;
use slotd_model::{JobId, StepId};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default)]
pub struct Managers {
    /// The manager, and the step that it runs in.
    of: BTreeMap<JobId, (ClientProcess, Option<StepId>)>,
    /// Parts out of use that no step uses, to be replaced when possible.
    spares: BTreeMap<JobId, NodeParts>,
}

impl Managers {
    pub fn get(&self, job: JobId) -> Option<(ClientProcess, Option<StepId>)> {
        self.of.get(&job).copied()
    }

    /// Returns the process that manages the job, if any.
    pub fn process(&self, job: JobId) -> Option<ClientProcess> {
        self.of.get(&job).map(|(process, _)| *process)
    }

    /// Returns whether the job has a manager, which holds all of the job's resources, so that no
    /// other step can hold any exclusively.
    pub fn has(&self, job: JobId) -> bool {
        self.of.contains_key(&job)
    }

    /// Notifies the job's manager, if any, that its resources have changed.
    pub fn notify(&self, job: JobId, why: PartChange, cx: &mut Cx) {
        if self.has(job) {
            cx.out.effects.push(Effect::ManagerChanged(job, why));
        }
    }

    pub fn set(&mut self, job: JobId, process: ClientProcess, within: Option<StepId>) {
        self.of.insert(job, (process, within));
    }

    /// Removes the manager. The next manager will report which parts its steps do not use.
    pub fn remove(&mut self, job: JobId) {
        self.of.remove(&job);
        self.spares.remove(&job);
    }

    pub(crate) fn set_spare(&mut self, job: JobId, spare: NodeParts) {
        self.spares.remove(&job);
        self.add_spare(job, &spare);
    }

    pub(crate) fn add_spare(&mut self, job: JobId, spare: &NodeParts) {
        if !spare.is_empty() {
            self.spares.entry(job).or_default().add(spare);
        }
    }

    pub(crate) fn take_spares(&mut self) -> BTreeMap<JobId, NodeParts> {
        std::mem::take(&mut self.spares)
    }

    /// Drops the spare parts that have returned.
    pub(crate) fn keep_spares_within(&mut self, out: &NodeParts) {
        self.spares.values_mut().for_each(|spare| *spare = spare.within(out));
        self.spares.retain(|_, spare| !spare.is_empty());
    }
}
