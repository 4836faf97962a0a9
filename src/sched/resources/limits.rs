//! The owner's limits on jobs of an account or with a given name, the limits of QOS, the licenses,
//! and what the jobs of a reservation may hold: which jobs count towards which of them, and their
//! usage.
//!
//! A job at a limit waits, holds no reservation, and keeps no other job from starting. So does a
//! job that lacks a license, as in Slurm 22.05.

use crate::types::Config;
use slotd_model::license::{self, License, LicenseUse};
use slotd_model::limit::Limit;
use slotd_model::qos::{Limited, Qos, TresLimit};
use slotd_model::reservation::Reservation;
use slotd_model::{JobRequest, Reason, Timestamp, Tres};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The limits, QOS and licenses that a job counts towards, by their indexes in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LimitSet {
    /// One bit for each limit.
    limits: u64,
    /// [`GONE`] if the QOS no longer exists. `None`: one that affects no starts.
    qos: Option<usize>,
    /// Ordered by index. `None`: no license.
    licenses: Option<Arc<[Need]>>,
    /// The number of the reservation in which the job runs.
    reservation: Option<u32>,
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
    /// Returns the limits, QOS and licenses that a job counts towards.
    pub fn of(request: &JobRequest, config: &Config) -> Self {
        let licenses =
            request.licenses.as_deref().and_then(|text| needs_of(text, &config.licenses));
        let qos = match config.qos_index(request) {
            Some(at) => config.qos[at].affects_starts().then_some(at),
            None => Some(GONE),
        };
        let reservation = config.reservation_of(request).map(|reservation| reservation.number);
        LimitSet { limits: limits_of(request, &config.limits), qos, licenses, reservation }
    }

    /// Returns the licenses alone that a reservation keeps.
    pub(crate) fn of_licenses(text: &str, licenses: &[License]) -> Self {
        LimitSet { licenses: needs_of(text, licenses), ..LimitSet::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.limits == 0
            && self.qos.is_none()
            && self.licenses.is_none()
            && self.reservation.is_none()
    }

    /// Returns the number of the reservation in which the job runs.
    pub(crate) fn reservation(&self) -> Option<u32> {
        self.reservation
    }

    /// Returns the set of a job in this reservation.
    #[must_use]
    pub(crate) fn in_reservation(&self, reservation: Option<u32>) -> Self {
        LimitSet { reservation, ..self.clone() }
    }

    /// Returns the set with fewer licenses: without those of these sets.
    #[must_use]
    pub(crate) fn less<'a>(&self, others: impl Iterator<Item = &'a LimitSet> + Clone) -> Self {
        let left = self.needs().iter().map(|need| {
            let gone = others.clone().map(|other| other.count_of(need.at)).sum();
            Need { count: need.count.saturating_sub(gone), ..*need }
        });
        let left: Vec<Need> = left.filter(|need| need.count > 0).collect();
        LimitSet { licenses: (!left.is_empty()).then(|| left.into()), ..self.clone() }
    }

    /// Returns the limits and the QOS alone, for a running job, which has its licenses.
    #[must_use]
    pub(crate) fn without_licenses(&self) -> Self {
        LimitSet { licenses: None, ..*self }
    }

    /// Returns whether jobs with these sets count towards the same limits, QOS and reservation.
    pub(crate) fn has_same_limits(&self, other: &LimitSet) -> bool {
        self.limits == other.limits
            && self.qos == other.qos
            && self.reservation == other.reservation
    }

    /// Returns whether a job counts towards the limits of the QOS at this index.
    pub(crate) fn is_of_qos(&self, at: usize) -> bool {
        self.qos == Some(at)
    }

    /// Returns the index of the QOS, if it affects starts.
    pub(crate) fn qos(&self) -> Option<usize> {
        self.qos
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

fn reserved(reservation: &Reservation) -> (u32, Reserved) {
    let (most, job_end) = (reservation.limit(), reservation.job_end());
    (reservation.number, Reserved { most, job_end, used: Load::default() })
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

/// The usage of the jobs that count towards one limit or QOS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    pub jobs: u32,
    pub tres: Tres,
}

impl Load {
    fn plus(self, tres: &Tres) -> Load {
        Load { jobs: self.jobs.saturating_add(1), tres: self.tres.plus(tres) }
    }

    fn minus(self, tres: &Tres) -> Load {
        Load { jobs: self.jobs.saturating_sub(1), tres: self.tres.minus(tres) }
    }
}

/// A limit of a QOS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QosLimit {
    Jobs,
    PerUser(Limited),
    Group(Limited),
}

impl QosLimit {
    /// Returns the first limit that a job with these resources would exceed beside those that run.
    /// As in Slurm, limits of the group come before those of a user.
    pub(crate) fn exceeded(qos: &Qos, used: &Load, tres: &Tres) -> Option<QosLimit> {
        let has_jobs = qos.max_jobs.is_some_and(|most| used.jobs >= most);
        has_jobs
            .then_some(QosLimit::Jobs)
            .or_else(|| qos.grp_tres.exceeded_by(&used.tres, tres).map(QosLimit::Group))
            .or_else(|| qos.max_tres.exceeded_by(&used.tres, tres).map(QosLimit::PerUser))
    }

    /// Returns the limited resource; `None` for the number of jobs.
    pub(crate) fn resource(self) -> Option<Limited> {
        match self {
            QosLimit::Jobs => None,
            QosLimit::PerUser(what) | QosLimit::Group(what) => Some(what),
        }
    }

    /// Returns the amount that the limit counts.
    pub(crate) fn of(self, load: &Load) -> u64 {
        self.resource().map_or(u64::from(load.jobs), |what| what.of(&load.tres))
    }

    pub(crate) fn most(self, qos: &Qos) -> Option<u64> {
        match self {
            QosLimit::Jobs => qos.max_jobs.map(u64::from),
            QosLimit::PerUser(what) => qos.max_tres.on(what),
            QosLimit::Group(what) => qos.grp_tres.on(what),
        }
    }

    /// Returns the name of the limit in the output of `sacctmgr`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            QosLimit::Jobs => "MaxJobsPU",
            QosLimit::PerUser(_) => "MaxTRESPU",
            QosLimit::Group(_) => "GrpTRES",
        }
    }

    pub(crate) fn reason(self) -> Reason {
        match self {
            QosLimit::Jobs => Reason::QosMaxJobsPerUserLimit,
            QosLimit::PerUser(Limited::Cpus) => Reason::QosMaxCpuPerUserLimit,
            QosLimit::PerUser(Limited::Memory) => Reason::QosMaxMemoryPerUser,
            QosLimit::PerUser(Limited::Gpus) => Reason::QosMaxGresPerUser,
            QosLimit::Group(Limited::Cpus) => Reason::QosGrpCpuLimit,
            QosLimit::Group(Limited::Memory) => Reason::QosGrpMemLimit,
            QosLimit::Group(Limited::Gpus) => Reason::QosGrpGres,
        }
    }
}

/// A limit, QOS or license that lets no more jobs start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reached<'a> {
    /// A limit and its current usage.
    Limit { limit: &'a Limit, reason: Reason, used: Load },
    /// A limit of the QOS at this index, and the current usage.
    Qos { at: usize, limit: QosLimit, used: Load },
    /// The QOS no longer exists.
    NoQos,
    /// The index of a license that is not free; `None` if it no longer exists.
    License(Option<usize>),
    /// The number of a reservation, and what its jobs hold.
    Reservation { number: u32, used: Load },
}

impl Reached<'_> {
    /// Returns whether it is a limit of the job's QOS on the resources of the job.
    pub(crate) fn is_of_job(&self) -> bool {
        matches!(self, Reached::Qos { limit: QosLimit::PerUser(_) | QosLimit::Group(_), .. })
    }

    pub(crate) fn reason(&self) -> Reason {
        match self {
            Reached::Limit { reason, .. } => *reason,
            Reached::Qos { limit, .. } => limit.reason(),
            Reached::NoQos => Reason::InvalidQos,
            Reached::License(_) => Reason::Licenses,
            Reached::Reservation { .. } => Reason::Resources,
        }
    }
}

/// The limits, QOS and licenses, and their usage.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Limits {
    limits: Arc<[Limit]>,
    used: Vec<Load>,
    qos: Arc<[Qos]>,
    /// The usage of each QOS that affects starts.
    used_of_qos: Vec<Load>,
    licenses: Arc<[License]>,
    /// The number of each license that jobs hold. More than there are if the owner has lowered the
    /// count.
    held: Vec<u32>,
    /// The reservations whose jobs may hold only so much, or only until their end, with what they
    /// hold.
    reserved: BTreeMap<u32, Reserved>,
}

/// The limit on the jobs of a reservation, their end, and their usage.
#[derive(Debug, Clone, PartialEq)]
struct Reserved {
    most: TresLimit,
    job_end: Option<Timestamp>,
    used: Load,
}

impl Limits {
    pub(crate) fn new(config: &Config) -> Self {
        let Config { limits, qos, licenses, .. } = config;
        Limits {
            limits: limits.as_slice().into(),
            used: vec![Load::default(); limits.len()],
            qos: qos.as_slice().into(),
            used_of_qos: vec![Load::default(); qos.len()],
            licenses: licenses.as_slice().into(),
            held: vec![0; licenses.len()],
            reserved: config.reservations.iter().map(reserved).collect(),
        }
    }

    /// Returns when a reservation ends its jobs.
    pub(crate) fn job_end(&self, set: &LimitSet) -> Option<Timestamp> {
        self.reserved.get(&set.reservation?)?.job_end
    }

    fn reservation_reached(&self, set: &LimitSet, tres: &Tres) -> Option<Reached<'_>> {
        let number = set.reservation?;
        let Reserved { most, used, .. } = self.reserved.get(&number)?;
        most.exceeded_by(&used.tres, tres).map(|_| Reached::Reservation { number, used: *used })
    }

    /// Returns the first of these limits, QOS and licenses that keeps one more job with these
    /// resources from starting.
    pub(crate) fn reached(&self, set: &LimitSet, tres: &Tres) -> Option<Reached<'_>> {
        let limit = self.limit_reached(set, tres).or_else(|| self.qos_reached(set, tres));
        limit.or_else(|| self.reservation_reached(set, tres)).or_else(|| {
            let lacking = set.needs().iter().find(|need| need.count > self.free(need.at));
            lacking.map(|need| Reached::License(Some(need.at).filter(|at| *at != GONE)))
        })
    }

    fn limit_reached(&self, set: &LimitSet, tres: &Tres) -> Option<Reached<'_>> {
        set.limits().filter_map(|at| Some((self.limits.get(at)?, self.used.get(at)?))).find_map(
            |(limit, used)| {
                let has_jobs = limit.jobs.is_some_and(|most| used.jobs >= most);
                let cpus = used.tres.cpus.saturating_add(tres.cpus);
                let has_cpus = limit.cpus.is_some_and(|most| cpus > most);
                let reason =
                    if has_jobs { Reason::AssocMaxJobsLimit } else { Reason::AssocGrpCpuLimit };
                (has_jobs || has_cpus).then_some(Reached::Limit { limit, reason, used: *used })
            },
        )
    }

    fn qos_reached(&self, set: &LimitSet, tres: &Tres) -> Option<Reached<'_>> {
        let at = set.qos?;
        let Some((qos, used)) = self.qos.get(at).zip(self.used_of_qos.get(at)) else {
            return Some(Reached::NoQos);
        };
        let limit = QosLimit::exceeded(qos, used, tres)?;
        Some(Reached::Qos { at, limit, used: *used })
    }

    /// Returns whether the QOS of a job lets it reserve resources that it lacks.
    pub(crate) fn reserves(&self, set: &LimitSet) -> bool {
        let qos = set.qos.and_then(|at| self.qos.get(at));
        qos.is_none_or(|qos| !qos.reserves_nothing)
    }

    /// Returns the number of GPUs that one more job may get.
    pub(crate) fn gpus_left(&self, set: &LimitSet) -> u32 {
        let Some((qos, used)) =
            set.qos.and_then(|at| self.qos.get(at).zip(self.used_of_qos.get(at)))
        else {
            return u32::MAX;
        };
        let most = qos.max_tres.gpus.into_iter().chain(qos.grp_tres.gpus).min();
        most.map_or(u32::MAX, |most| most.saturating_sub(used.tres.gpus))
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

    /// Returns the usage of each QOS.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn qos(&self) -> impl Iterator<Item = (&Qos, Load)> {
        self.qos.iter().zip(self.used_of_qos.iter().copied())
    }

    pub(crate) fn take(&mut self, set: &LimitSet, tres: &Tres) {
        self.change(set, |used| used.plus(tres), u32::saturating_add);
    }

    pub(crate) fn give(&mut self, set: &LimitSet, tres: &Tres) {
        self.change(set, |used| used.minus(tres), u32::saturating_sub);
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
        if let Some(used) = set.qos.and_then(|at| self.used_of_qos.get_mut(at)) {
            *used = load(*used);
        }
        if let Some(own) = set.reservation.and_then(|number| self.reserved.get_mut(&number)) {
            own.used = load(own.used);
        }
        for need in set.needs() {
            if let Some(held) = self.held.get_mut(need.at) {
                *held = count(*held, need.count);
            }
        }
    }
}
