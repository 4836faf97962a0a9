//! The status of a dependency: term by term, and as a whole.
//!
//! This module only computes with known facts. `depend` finds the targets and decides when to
//! re-evaluate.

use slotd_model::array::TaskSet;
use slotd_model::dependency::{DependencyKind, DependencyTerm};
use slotd_model::{JobId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// The status of one term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Open,
    Met,
    /// Met at this time (`after:12+5`).
    MetAt(Timestamp),
    /// The target ended in a way that does not meet the term.
    Failed,
}

/// The dependency state of a pending job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Waits {
    pub terms: Vec<(DependencyTerm, Status)>,
    pub any: bool,
    /// For a compact record with `aftercorr`: the tasks whose counterparts ended well, and those
    /// whose counterparts never will.
    pub corr: Option<Corr>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Corr {
    /// The arrays that contain the counterparts.
    pub targets: Vec<CorrTarget>,
    pub ready: BTreeSet<u32>,
    pub failed: BTreeSet<u32>,
}

/// The state of an array for the tasks that wait for its tasks. It is stored, because the array may
/// have left the memory by the time another target changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorrTarget {
    pub job: JobId,
    /// The status for each task whose counterpart has ended.
    pub ended: BTreeMap<u32, Status>,
    /// The tasks without a counterpart: they wait for the whole array, as in Slurm.
    pub without: BTreeSet<u32>,
    pub whole: Status,
}

impl CorrTarget {
    pub fn status(&self, task: u32) -> Status {
        match self.ended.get(&task) {
            Some(status) => *status,
            None if self.without.contains(&task) => self.whole,
            None => Status::Open,
        }
    }

    fn retain(&mut self, stays: impl Fn(u32) -> bool) {
        self.ended.retain(|task, _| stays(*task));
        self.without.retain(|task| stays(*task));
    }
}

/// The status of a dependency as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlook {
    Clear,
    Waiting,
    Never,
}

impl Waits {
    /// Combines the terms, except those with a status for each array task, which `corr` holds.
    pub(crate) fn outlook(&self, now: Timestamp, is_singleton_free: bool) -> Outlook {
        let stand = |(term, status): &(DependencyTerm, Status)| match (term, status) {
            (DependencyTerm::Singleton, _) if is_singleton_free => Outlook::Clear,
            (DependencyTerm::Singleton, _) => Outlook::Waiting,
            (DependencyTerm::On { .. }, _) if self.is_for_corr(term) => Outlook::Clear,
            (DependencyTerm::On { .. }, Status::Met) => Outlook::Clear,
            (DependencyTerm::On { .. }, Status::MetAt(at)) if *at <= now => Outlook::Clear,
            (DependencyTerm::On { .. }, Status::Failed) => Outlook::Never,
            (DependencyTerm::On { .. }, Status::Open | Status::MetAt(_)) => Outlook::Waiting,
        };
        let mut stands = self.terms.iter().map(stand);
        match self.any {
            _ if self.terms.is_empty() => Outlook::Clear,
            true if stands.clone().any(|s| s == Outlook::Clear) => Outlook::Clear,
            true if stands.all(|s| s == Outlook::Never) => Outlook::Never,
            true => Outlook::Waiting,
            false if stands.clone().any(|s| s == Outlook::Never) => Outlook::Never,
            false if stands.all(|s| s == Outlook::Clear) => Outlook::Clear,
            false => Outlook::Waiting,
        }
    }

    /// Returns whether this term has a separate status for each task.
    pub(crate) fn is_for_corr(&self, term: &DependencyTerm) -> bool {
        match (term, &self.corr) {
            (DependencyTerm::On { kind: DependencyKind::AfterCorr, job, .. }, Some(corr)) => {
                job.tasks.is_none() && corr.targets.iter().any(|target| target.job == job.job)
            }
            (DependencyTerm::On { .. } | DependencyTerm::Singleton, _) => false,
        }
    }

    /// Returns the state for some tasks of a compact record, or for one task that has left it.
    pub fn narrowed(&self, tasks: &TaskSet, is_compact: bool) -> Self {
        let mut waits = Waits { terms: self.terms.clone(), any: self.any, corr: None };
        let Some(all) = &self.corr else { return waits };
        let (ready, failed) = (common(&all.ready, tasks), common(&all.failed, tasks));
        if is_compact {
            let mut targets = all.targets.clone();
            targets.iter_mut().for_each(|target| target.retain(|task| tasks.contains(task)));
            waits.corr = Some(Corr { targets, ready, failed });
            return waits;
        }
        for (term, status) in &mut waits.terms {
            let DependencyTerm::On { job, .. } = &*term else { continue };
            if !self.is_for_corr(term) {
                continue;
            }
            let target = all.targets.iter().find(|target| target.job == job.job);
            if let (Some(target), Some(task)) = (target, tasks.first()) {
                *status = target.status(task);
            }
        }
        waits
    }

    /// Removes tasks that have left the compact record.
    pub(crate) fn drop_tasks(&mut self, gone: &TaskSet) {
        if let Some(corr) = &mut self.corr {
            match gone.single() {
                Some(task) => {
                    corr.ready.remove(&task);
                    corr.failed.remove(&task);
                    for target in &mut corr.targets {
                        target.ended.remove(&task);
                        target.without.remove(&task);
                    }
                }
                None => {
                    for target in &mut corr.targets {
                        target.retain(|task| !gone.contains(task));
                    }
                    corr.ready.retain(|task| !gone.contains(*task));
                    corr.failed.retain(|task| !gone.contains(*task));
                }
            }
        }
    }

    /// Returns when the next term is met by the clock alone.
    pub fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.terms
            .iter()
            .filter_map(|(_, status)| match status {
                Status::MetAt(at) if *at > now => Some(*at),
                Status::MetAt(_) | Status::Open | Status::Met | Status::Failed => None,
            })
            .min()
    }
}

/// Returns the members of both sets, in time proportional to the smaller one.
fn common(set: &BTreeSet<u32>, tasks: &TaskSet) -> BTreeSet<u32> {
    if tasks.len() < set.len() {
        tasks.iter().filter(|task| set.contains(task)).collect()
    } else {
        set.iter().copied().filter(|task| tasks.contains(*task)).collect()
    }
}
