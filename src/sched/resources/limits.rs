//! The owner's limits on jobs of an account or with a given name: which jobs count towards which
//! limit, and their usage.
//!
//! A job at its limit waits, holds no reservation, and keeps no other job from starting.

use slotd_model::limit::Limit;
use slotd_model::{JobRequest, Reason};
use std::sync::Arc;

/// A set of the configured limits, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LimitSet(u64);

// One bit for each limit.
const _: () = assert!(Limit::MOST <= u64::BITS as usize);

impl LimitSet {
    /// Returns the limits that a job counts towards.
    pub fn of(request: &JobRequest, limits: &[Limit]) -> Self {
        let account = request.account.as_deref();
        let own = limits
            .iter()
            .take(Limit::MOST)
            .enumerate()
            .filter(|(_, limit)| limit.is_of(account, &request.name));
        LimitSet(own.fold(0, |set, (at, _)| set | 1 << at))
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        (0..u64::BITS as usize)
            .filter(move |at| self.0 & (1 << at) != 0)
            .take(self.0.count_ones() as usize)
    }
}

/// The usage of the jobs that count towards one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Load {
    jobs: u32,
    cpus: u32,
}

/// A limit that lets no more jobs start, and its current usage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reached<'a> {
    pub limit: &'a Limit,
    pub reason: Reason,
    pub jobs: u32,
    pub cpus: u32,
}

/// The limits and their usage.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Limits {
    limits: Arc<[Limit]>,
    used: Vec<Load>,
}

impl Limits {
    pub(crate) fn new(limits: &[Limit]) -> Self {
        Limits { limits: limits.into(), used: vec![Load::default(); limits.len()] }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// Returns the first of these limits that one more job with `cpus` CPUs would exceed, and the
    /// reason.
    pub(crate) fn reached(&self, set: LimitSet, cpus: u32) -> Option<Reached<'_>> {
        set.iter().filter_map(|at| Some((self.limits.get(at)?, self.used.get(at)?))).find_map(
            |(limit, used)| {
                let has_jobs = limit.jobs.is_some_and(|most| used.jobs >= most);
                let has_cpus = limit.cpus.is_some_and(|most| used.cpus.saturating_add(cpus) > most);
                let reason =
                    if has_jobs { Reason::AssocMaxJobsLimit } else { Reason::AssocGrpCpuLimit };
                (has_jobs || has_cpus).then_some(Reached {
                    limit,
                    reason,
                    jobs: used.jobs,
                    cpus: used.cpus,
                })
            },
        )
    }

    pub(crate) fn take(&mut self, set: LimitSet, cpus: u32) {
        self.change(set, |used| Load { jobs: used.jobs + 1, cpus: used.cpus.saturating_add(cpus) });
    }

    pub(crate) fn give(&mut self, set: LimitSet, cpus: u32) {
        self.change(set, |used| Load {
            jobs: used.jobs.saturating_sub(1),
            cpus: used.cpus.saturating_sub(cpus),
        });
    }

    fn change(&mut self, set: LimitSet, change: impl Fn(Load) -> Load) {
        for at in set.iter() {
            if let Some(used) = self.used.get_mut(at) {
                *used = change(*used);
            }
        }
    }
}
