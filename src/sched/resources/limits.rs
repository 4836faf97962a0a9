//! The owner's limits on jobs of an account or with a given name, and the licenses: which jobs
//! count towards which of them, and their usage.
//!
//! A job at a limit waits, holds no reservation, and keeps no other job from starting. So does a
//! job that lacks a license, as in Slurm 22.05.

use crate::types::Config;
use slotd_model::license::{self, License, LicenseUse};
use slotd_model::limit::Limit;
use slotd_model::{JobRequest, Reason};
use std::sync::Arc;

/// The limits and licenses that a job counts towards, by their indexes in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LimitSet {
    /// One bit for each limit.
    limits: u64,
    /// Ordered by index. `None`: no license.
    licenses: Option<Arc<[Need]>>,
}

/// The number of a license that a job needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Need {
    /// [`GONE`] if the license no longer exists.
    at: usize,
    count: u32,
}

const GONE: usize = usize::MAX;

// One bit for each limit.
const _: () = assert!(Limit::MOST <= u64::BITS as usize);

impl LimitSet {
    /// Returns the limits and licenses that a job counts towards.
    pub fn of(request: &JobRequest, config: &Config) -> Self {
        let licenses =
            request.licenses.as_deref().and_then(|text| needs_of(text, &config.licenses));
        LimitSet { limits: limits_of(request, &config.limits), licenses }
    }

    pub fn is_empty(&self) -> bool {
        self.limits == 0 && self.licenses.is_none()
    }

    /// Returns the limits alone, for a running job, which has its licenses.
    #[must_use]
    pub(crate) fn without_licenses(&self) -> Self {
        LimitSet { limits: self.limits, licenses: None }
    }

    /// Returns whether jobs with these sets count towards the same limits.
    pub(crate) fn has_same_limits(&self, other: &LimitSet) -> bool {
        self.limits == other.limits
    }

    /// Returns how many of the license at this index the job needs.
    pub(crate) fn count_of(&self, at: usize) -> u32 {
        self.needs().iter().find(|need| need.at == at).map_or(0, |need| need.count)
    }

    fn needs(&self) -> &[Need] {
        self.licenses.as_deref().unwrap_or_default()
    }

    fn limits(&self) -> impl Iterator<Item = usize> {
        let limits = self.limits;
        (0..u64::BITS as usize)
            .filter(move |at| limits & (1 << at) != 0)
            .take(limits.count_ones() as usize)
    }
}

fn limits_of(request: &JobRequest, limits: &[Limit]) -> u64 {
    let account = request.account.as_deref();
    let own = limits
        .iter()
        .take(Limit::MOST)
        .enumerate()
        .filter(|(_, limit)| limit.is_of(account, &request.name));
    own.fold(0, |set, (at, _)| set | 1 << at)
}

/// Returns the licenses in a request. Their names were valid when the job was admitted, but the
/// owner may have removed them since.
fn needs_of(text: &str, licenses: &[License]) -> Option<Arc<[Need]>> {
    let all = license::parse(text)?.into_iter().filter(|(_, count)| *count > 0);
    let mut needs: Vec<Need> = all
        .map(|(name, count)| Need { at: index_of(name, licenses).unwrap_or(GONE), count })
        .collect();
    needs.sort_unstable();
    (!needs.is_empty()).then(|| needs.into())
}

/// Returns the index of a license. `licenses` is ordered by name.
pub(crate) fn index_of(name: &str, licenses: &[License]) -> Option<usize> {
    licenses.binary_search_by(|known| known.name.as_str().cmp(name)).ok()
}

/// The usage of the jobs that count towards one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Load {
    jobs: u32,
    cpus: u32,
}

/// A limit or license that lets no more jobs start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reached<'a> {
    /// A limit and its current usage.
    Limit { limit: &'a Limit, reason: Reason, jobs: u32, cpus: u32 },
    /// The index of a license that is not free; `None` if it no longer exists.
    License(Option<usize>),
}

impl Reached<'_> {
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Reached::Limit { reason, .. } => *reason,
            Reached::License(_) => Reason::Licenses,
        }
    }
}

/// The limits and licenses, and their usage.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Limits {
    limits: Arc<[Limit]>,
    used: Vec<Load>,
    licenses: Arc<[License]>,
    /// The number of each license that jobs hold. More than there are if the owner has lowered the
    /// count.
    held: Vec<u32>,
}

impl Limits {
    pub(crate) fn new(limits: &[Limit], licenses: &[License]) -> Self {
        Limits {
            limits: limits.into(),
            used: vec![Load::default(); limits.len()],
            licenses: licenses.into(),
            held: vec![0; licenses.len()],
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.licenses.is_empty()
    }

    /// Returns the first of these limits and licenses that keeps one more job with `cpus` CPUs from
    /// starting.
    pub(crate) fn reached(&self, set: &LimitSet, cpus: u32) -> Option<Reached<'_>> {
        self.limit_reached(set, cpus).or_else(|| {
            let lacking = set.needs().iter().find(|need| need.count > self.free(need.at));
            lacking.map(|need| Reached::License(Some(need.at).filter(|at| *at != GONE)))
        })
    }

    fn limit_reached(&self, set: &LimitSet, cpus: u32) -> Option<Reached<'_>> {
        set.limits().filter_map(|at| Some((self.limits.get(at)?, self.used.get(at)?))).find_map(
            |(limit, used)| {
                let has_jobs = limit.jobs.is_some_and(|most| used.jobs >= most);
                let has_cpus = limit.cpus.is_some_and(|most| used.cpus.saturating_add(cpus) > most);
                let reason =
                    if has_jobs { Reason::AssocMaxJobsLimit } else { Reason::AssocGrpCpuLimit };
                (has_jobs || has_cpus).then_some(Reached::Limit {
                    limit,
                    reason,
                    jobs: used.jobs,
                    cpus: used.cpus,
                })
            },
        )
    }

    /// Returns how many of a license are free.
    fn free(&self, at: usize) -> u32 {
        let there = self.licenses.get(at).zip(self.held.get(at));
        there.map_or(0, |(license, held)| license.count.saturating_sub(*held))
    }

    /// Returns the licenses and their use.
    pub(crate) fn licenses(&self) -> impl Iterator<Item = LicenseUse> {
        self.licenses.iter().zip(&self.held).map(|(License { name, count }, held)| LicenseUse {
            name: name.clone(),
            total: *count,
            used: *held,
        })
    }

    pub(crate) fn take(&mut self, set: &LimitSet, cpus: u32) {
        self.change(
            set,
            |used| Load { jobs: used.jobs + 1, cpus: used.cpus.saturating_add(cpus) },
            u32::saturating_add,
        );
    }

    pub(crate) fn give(&mut self, set: &LimitSet, cpus: u32) {
        self.change(
            set,
            |used| Load { jobs: used.jobs.saturating_sub(1), cpus: used.cpus.saturating_sub(cpus) },
            u32::saturating_sub,
        );
    }

    fn change(
        &mut self,
        set: &LimitSet,
        load: impl Fn(Load) -> Load,
        count: impl Fn(u32, u32) -> u32,
    ) {
        for at in set.limits() {
            if let Some(used) = self.used.get_mut(at) {
                *used = load(*used);
            }
        }
        for need in set.needs() {
            if let Some(held) = self.held.get_mut(need.at) {
                *held = count(*held, need.count);
            }
        }
    }
}
