//! Dependencies: the conditions that a pending job waits for, and the dependents to update when a
//! job starts, ends or is requeued.
//!
//! The status of each term is computed once, and again whenever its target starts, ends or is
//! requeued. An index finds the dependents of a job; nothing scans the records. A term that was met
//! stays met: when its target returns to the queue, the term is removed from the request of the
//! waiting job, because after a restart the target's record would no longer show that it was met.
//! An array ID means all tasks of the array, which count as met together.

use super::Records;
use super::waits::{Corr, CorrTarget, Status, Waits};
use crate::sizes::may_resize;
use crate::types::{Cx, EndedJob};
use slotd_model::dependency::{Dependency, DependencyKind, DependencyTerm};
use slotd_model::{ArrayRole, End, Job, JobId, JobRef, JobState, Refusal, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Returns the jobs that these dependencies name, to look up in the store before `submit` and
/// `recover`.
pub fn dependency_targets<'a>(
    dependencies: impl IntoIterator<Item = &'a Dependency>,
) -> Vec<JobId> {
    let mut targets: Vec<JobId> = dependencies
        .into_iter()
        .flat_map(|dependency| &dependency.terms)
        .filter_map(|term| match term {
            DependencyTerm::On { job, .. } => Some(job.job),
            DependencyTerm::Singleton => None,
        })
        .collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}

fn dependency_of(job: &Job) -> &Dependency {
    &job.request.dependency
}

/// The state of one dependency target.
#[derive(Debug, Clone, Copy)]
struct Fact {
    begun: Option<Timestamp>,
    /// It is running, and not being stopped.
    runs: bool,
    ended: bool,
    ok: bool,
}

impl Fact {
    fn of(job: &Job) -> Self {
        let ended = job.run.state.is_terminal();
        // A requeued job has begun once. Its start time is lost; the submission time is the
        // earliest that it can have been.
        let requeued = (job.run.restarts > 0).then_some(job.submit);
        Fact {
            begun: job.run.start.or(if ended { job.run.end } else { requeued }),
            runs: matches!(job.run.state, JobState::Running | JobState::Suspended),
            ended,
            ok: job.run.state == JobState::Ended(End::Completed),
        }
    }
}

/// Facts from the store, by job and by array.
#[derive(Debug, Default)]
pub(crate) struct Known {
    single: BTreeMap<JobId, Fact>,
    arrays: BTreeMap<JobId, BTreeMap<u32, Fact>>,
}

impl Known {
    pub(crate) fn new(ended: &[EndedJob]) -> Self {
        let mut known = Known::default();
        for job in ended {
            let fact = Fact {
                begun: Some(job.start.unwrap_or(job.ended)),
                runs: false,
                ended: true,
                ok: job.ok,
            };
            known.single.insert(job.id, fact);
            if let Some((array, task)) = job.array {
                known.arrays.entry(array).or_default().insert(task, fact);
            }
        }
        known
    }
}

/// The combined state of several targets.
#[derive(Debug, Default)]
struct Tally {
    total: usize,
    begun: usize,
    runs: usize,
    ended: usize,
    ok: usize,
    last_begun: Option<Timestamp>,
}

impl Tally {
    fn add(&mut self, fact: Fact) {
        self.total += 1;
        self.begun += usize::from(fact.begun.is_some());
        self.runs += usize::from(fact.runs);
        self.ended += usize::from(fact.ended);
        self.ok += usize::from(fact.ok);
        self.last_begun = self.last_begun.max(fact.begun);
    }

    fn status(&self, kind: DependencyKind, delay_minutes: u32) -> Status {
        let all_ended = self.ended == self.total;
        let met = |is_met: bool| if is_met { Status::Met } else { Status::Open };
        match kind {
            DependencyKind::After if self.begun < self.total => Status::Open,
            DependencyKind::After => match (delay_minutes, self.last_begun) {
                (0, _) | (_, None) => Status::Met,
                (minutes, Some(at)) => Status::MetAt(at.plus_secs(u64::from(minutes) * 60)),
            },
            DependencyKind::AfterAny | DependencyKind::AfterBurstBuffer => met(all_ended),
            DependencyKind::AfterOk | DependencyKind::AfterCorr => {
                if self.ok < self.ended {
                    Status::Failed
                } else {
                    met(all_ended)
                }
            }
            DependencyKind::Expand if self.ended > 0 => Status::Failed,
            DependencyKind::Expand => met(self.total > 0 && self.runs == self.total),
            DependencyKind::AfterNotOk => {
                if all_ended && self.ok == self.total {
                    Status::Failed
                } else {
                    met(all_ended)
                }
            }
        }
    }
}

/// Returns whether the status is final, whatever happens to the target. An expand term is never
/// final: a job can be expanded only while it is running.
fn is_settled(term: &DependencyTerm, status: Status) -> bool {
    let expands = matches!(term, DependencyTerm::On { kind: DependencyKind::Expand, .. });
    status == Status::Met && !expands
}

impl Records {
    /// Fails if the dependency names an unknown job.
    pub(crate) fn check_dependency(
        &self,
        dependency: &Dependency,
        known: &Known,
    ) -> Result<(), Refusal> {
        for term in &dependency.terms {
            let DependencyTerm::On { job: target, .. } = term else { continue };
            if !self.is_known(target, known) {
                return Err(Refusal::UnknownDependency(term.clone()));
            }
        }
        Ok(())
    }

    /// Returns a job that waits for `job` and that `job` would wait for, directly or indirectly.
    pub(crate) fn circle(&self, job: &Job, dependency: &Dependency) -> Option<JobId> {
        let own = job.array_job_id().unwrap_or(job.id);
        let mut next: Vec<JobId> = dependency.targets().collect();
        let mut seen: BTreeSet<JobId> = next.iter().copied().collect();
        while let Some(target) = next.pop() {
            let records: Vec<JobId> = self
                .arrays
                .get(&target)
                .map_or_else(|| vec![target], |group| group.waiting.iter().copied().collect());
            let pending = records.into_iter().filter_map(|id| self.job(id));
            for other in pending.filter(|other| other.run.state == JobState::Pending) {
                for further in dependency_of(other).targets() {
                    if further == own || further == job.id {
                        return Some(other.id);
                    }
                    next.extend(seen.insert(further).then_some(further));
                }
            }
        }
        None
    }

    fn is_known(&self, target: &JobRef, known: &Known) -> bool {
        let is_known_job = self.has(target.job)
            || known.single.contains_key(&target.job)
            || known.arrays.contains_key(&target.job);
        match &target.tasks {
            None => is_known_job,
            Some(tasks) => {
                is_known_job
                    && tasks.iter().all(|task| self.task_fact(target.job, task, known).is_some())
            }
        }
    }

    fn task_fact(&self, array: JobId, task: u32, known: &Known) -> Option<Fact> {
        if let Some(group) = self.arrays.get(&array) {
            if let Some(record) = group.tasks.get(&task).and_then(|id| self.jobs.get(id)) {
                return Some(Fact::of(&record.job));
            }
            if group.ended.contains(task) {
                return Some(Fact {
                    begun: group.last_begun,
                    runs: false,
                    ended: true,
                    ok: group.ok.contains(task),
                });
            }
            if self.compact_with(array, task).is_some() {
                return Some(Fact { begun: None, runs: false, ended: false, ok: false });
            }
        }
        known.arrays.get(&array).and_then(|tasks| tasks.get(&task)).copied()
    }

    /// Adds the store's records of ended tasks to the arrays that are still in memory.
    pub(crate) fn learn(&mut self, known: &Known) {
        for (array, tasks) in &known.arrays {
            let Some(group) = self.arrays.get_mut(array) else { continue };
            for (&task, fact) in tasks {
                if !group.tasks.contains_key(&task) && !group.ended.contains(task) {
                    group.note_ended(task, fact.ok);
                    group.last_begun = group.last_begun.max(fact.begun);
                }
            }
        }
    }

    fn term_status(&self, term: &DependencyTerm, of: &Job, known: &Known) -> Status {
        let DependencyTerm::On { kind, job: target, delay_minutes } = term else {
            return Status::Open;
        };
        let mut tally = Tally::default();
        if let (DependencyKind::AfterCorr, None, ArrayRole::Task { task, .. }) =
            (kind, &target.tasks, &of.role)
            && let Some(fact) = self.task_fact(target.job, *task, known)
        {
            tally.add(fact);
            return tally.status(*kind, *delay_minutes);
        }
        match &target.tasks {
            Some(tasks) => {
                for task in tasks.iter() {
                    tally.add(self.task_fact(target.job, task, known).unwrap_or(Fact {
                        begun: None,
                        runs: false,
                        ended: true,
                        ok: false,
                    }));
                }
            }
            // A task without a counterpart waits for the whole array, as in Slurm.
            None => match self.whole(target.job, known) {
                Some(whole) => tally = whole,
                // The target was checked at submission; one that has vanished since cannot be
                // waited for.
                None => {
                    use DependencyKind::{After, AfterAny, AfterBurstBuffer};
                    let is_met = matches!(kind, After | AfterAny | AfterBurstBuffer);
                    return if is_met { Status::Met } else { Status::Failed };
                }
            },
        }
        tally.status(*kind, *delay_minutes)
    }

    /// Returns the combined state of an array's tasks, or of a single job, or `None` if it is
    /// unknown.
    fn whole(&self, id: JobId, known: &Known) -> Option<Tally> {
        if let Some(group) = self.arrays.get(&id) {
            return Some(Tally {
                total: group.total,
                begun: group.begun.len(),
                runs: 0,
                ended: group.ended.len(),
                ok: group.ok.len(),
                last_begun: group.last_begun,
            });
        }
        let mut tally = Tally::default();
        if let Some(tasks) = known.arrays.get(&id) {
            tasks.values().for_each(|fact| tally.add(*fact));
        } else if let Some(record) = self.jobs.get(&id) {
            tally.add(Fact::of(&record.job));
        } else {
            tally.add(*known.single.get(&id)?);
        }
        Some(tally)
    }

    fn is_array(&self, id: JobId, known: &Known) -> bool {
        self.arrays.contains_key(&id) || known.arrays.contains_key(&id)
    }

    /// Computes the dependency state of a new or changed pending record.
    pub(crate) fn set_waits(&mut self, id: JobId, known: &Known) {
        self.clear_waits(id);
        if let Some(waits) = self.job(id).and_then(|job| self.waits_of(job, known)) {
            self.put_waits(id, Some(Box::new(waits)));
        }
    }

    /// Returns the dependency state of a pending record, or `None` if it has no dependency.
    pub(crate) fn waits_of(&self, job: &Job, known: &Known) -> Option<Waits> {
        let dependency = dependency_of(job);
        if dependency.is_empty() || job.run.state != JobState::Pending {
            return None;
        }
        let terms: Vec<(DependencyTerm, Status)> = dependency
            .terms
            .iter()
            .map(|term| (term.clone(), self.term_status(term, job, known)))
            .collect();
        let corr = self.corr_of(job, &terms, dependency.any, known);
        Some(Waits { terms, any: dependency.any, corr })
    }

    /// Computes the per-task state of a compact record whose tasks wait for their counterparts in
    /// other arrays.
    fn corr_of(
        &self,
        job: &Job,
        terms: &[(DependencyTerm, Status)],
        any: bool,
        known: &Known,
    ) -> Option<Corr> {
        let tasks = job.compact_tasks()?;
        let target = |(term, _): &(DependencyTerm, Status)| {
            let job = self.corr_target(term, known)?;
            let whole = self.whole_status(job, known)?;
            Some(CorrTarget { job, ended: BTreeMap::new(), without: BTreeSet::new(), whole })
        };
        let targets: Vec<CorrTarget> = terms.iter().filter_map(target).collect();
        if targets.is_empty() {
            return None;
        }
        let mut corr = Corr { targets, ..Corr::default() };
        for task in tasks.iter() {
            self.update_corr(&mut corr, any, task, known);
        }
        Some(corr)
    }

    fn corr_target(&self, term: &DependencyTerm, known: &Known) -> Option<JobId> {
        match term {
            DependencyTerm::On { kind: DependencyKind::AfterCorr, job, .. }
                if job.tasks.is_none() && self.is_array(job.job, known) =>
            {
                Some(job.job)
            }
            DependencyTerm::On { .. } | DependencyTerm::Singleton => None,
        }
    }

    /// Returns the status of an array for a task without a counterpart, or `None` if the array has
    /// left the memory.
    fn whole_status(&self, array: JobId, known: &Known) -> Option<Status> {
        let is_there = self.is_array(array, known);
        let whole = is_there.then(|| self.whole(array, known))??;
        Some(whole.status(DependencyKind::AfterCorr, 0))
    }

    fn update_corr(&self, corr: &mut Corr, any: bool, task: u32, known: &Known) {
        for target in &mut corr.targets {
            // The status for an array that has left the memory stays as it was.
            if let Some(fact) = self.task_fact(target.job, task, known) {
                let mut tally = Tally::default();
                tally.add(fact);
                match tally.status(DependencyKind::AfterCorr, 0) {
                    Status::Open => target.ended.remove(&task),
                    ended => target.ended.insert(task, ended),
                };
            } else if !target.ended.contains_key(&task) {
                target.without.insert(task);
            }
        }
        let statuses: Vec<Status> = corr.targets.iter().map(|target| target.status(task)).collect();
        let (is_lost, is_met) = (|s: &Status| *s == Status::Failed, |s: &Status| *s == Status::Met);
        let (lost, met) = if any {
            (statuses.iter().all(is_lost), statuses.iter().any(is_met))
        } else {
            (statuses.iter().any(is_lost), statuses.iter().all(is_met))
        };
        corr.ready.remove(&task);
        corr.failed.remove(&task);
        if met {
            corr.ready.insert(task);
        } else if lost {
            corr.failed.insert(task);
        }
    }

    pub(crate) fn put_waits(&mut self, id: JobId, waits: Option<Box<Waits>>) {
        self.clear_waits(id);
        if let Some(waits) = &waits {
            for (term, _) in &waits.terms {
                if let DependencyTerm::On { job, .. } = term {
                    self.dependents.entry(job.job).or_default().insert(id);
                }
            }
        }
        if let Some(record) = self.jobs.get_mut(&id) {
            record.waits = waits;
        }
    }

    pub(crate) fn clear_waits(&mut self, id: JobId) {
        let Some(waits) = self.jobs.get_mut(&id).and_then(|record| record.waits.take()) else {
            return;
        };
        for (term, _) in &waits.terms {
            let DependencyTerm::On { job, .. } = term else { continue };
            if let Some(dependents) = self.dependents.get_mut(&job.job) {
                dependents.remove(&id);
                if dependents.is_empty() {
                    self.dependents.remove(&job.job);
                }
            }
        }
    }

    /// Re-evaluates the dependents of `target`, and returns them, since their outlook may have
    /// changed. With `task`, only that task of the target has changed.
    pub(crate) fn reconsider_dependents(
        &mut self,
        target: JobId,
        task: Option<u32>,
        cx: &mut Cx,
    ) -> Vec<JobId> {
        let Some(dependents) = self.dependents.get(&target) else { return Vec::new() };
        let dependents: Vec<JobId> = dependents.iter().copied().collect();
        for &id in &dependents {
            let Some(mut waits) = self.jobs.get_mut(&id).and_then(|record| record.waits.take())
            else {
                continue;
            };
            let outlived = self.reconsider(id, &mut waits, target, task);
            if let Some(record) = self.jobs.get_mut(&id) {
                record.waits = Some(waits);
            }
            if !outlived.is_empty() {
                self.drop_met_terms(id, &outlived);
                self.save(id, cx);
            }
        }
        dependents
    }

    /// Re-evaluates the terms of record `id` that name `target`. Returns the terms that were met
    /// for good but that the target's current state would not meet.
    fn reconsider(
        &self,
        id: JobId,
        waits: &mut Waits,
        target: JobId,
        task: Option<u32>,
    ) -> Vec<DependencyTerm> {
        let Some(job) = self.job(id) else { return Vec::new() };
        let known = Known::default();
        let mut outlived = Vec::new();
        for at in 0..waits.terms.len() {
            let (term, old) = &waits.terms[at];
            if !matches!(term, DependencyTerm::On { job, .. } if job.job == target) {
                continue;
            }
            let new = self.term_status(term, job, &known);
            if is_settled(term, *old) && !waits.is_for_corr(term) {
                outlived.extend((new != Status::Met).then(|| term.clone()));
            } else {
                waits.terms[at].1 = new;
            }
        }
        let any = waits.any;
        if let (Some(corr), Some(tasks)) = (&mut waits.corr, job.compact_tasks()) {
            // Tasks without a counterpart depend on the whole array.
            let whole = self.whole_status(target, &known);
            let mut has_changed = false;
            for one in corr.targets.iter_mut().filter(|one| one.job == target) {
                has_changed |= whole.is_some_and(|whole| whole != one.whole);
                one.whole = whole.unwrap_or(one.whole);
            }
            match task {
                Some(task) if !has_changed => {
                    if tasks.contains(task) {
                        self.update_corr(corr, any, task, &known);
                    }
                }
                _ => tasks.iter().for_each(|task| self.update_corr(corr, any, task, &known)),
            }
        }
        outlived
    }

    /// Removes met terms from a job's request. If any one term is enough (`?`), all terms are
    /// removed.
    fn drop_met_terms(&mut self, id: JobId, met: &[DependencyTerm]) {
        self.edit(id, |job| {
            let dependency = &mut Arc::make_mut(&mut job.request).dependency;
            let is_any = dependency.any;
            dependency.terms.retain(|term| !is_any && !met.contains(term));
        });
        let Some(mut waits) = self.jobs.get_mut(&id).and_then(|record| record.waits.clone()) else {
            return;
        };
        waits.terms.retain(|(term, _)| !waits.any && !met.contains(term));
        self.put_waits(id, Some(waits).filter(|waits| !waits.terms.is_empty()));
    }

    /// Drops the dependency of a requeued job that has begun: it was met once, and is not waited for again, as in
    /// Slurm. A singleton term stays, because it still applies.
    pub(crate) fn keep_only_singleton(&mut self, id: JobId) {
        if self.job(id).is_none_or(|job| job.request.dependency.is_empty()) {
            return;
        }
        self.edit(id, |job| {
            let dependency = &mut Arc::make_mut(&mut job.request).dependency;
            let is_any = dependency.any;
            // A job that expands another one has no other purpose.
            let expands = |term: &DependencyTerm| {
                matches!(term, DependencyTerm::On { kind: DependencyKind::Expand, .. })
            };
            dependency
                .terms
                .retain(|term| expands(term) || (*term == DependencyTerm::Singleton && !is_any));
        });
        self.set_waits(id, &Known::default());
    }

    /// Returns the running job that a pending job is to expand.
    pub(crate) fn expanded_by(&self, id: JobId) -> Option<JobId> {
        let named = self.job(id)?.request.dependency.expands()?;
        self.resolve(named)
            .into_iter()
            .find(|id| self.job(*id).is_some_and(|job| may_resize(job.run.state)))
    }

    /// Checks a changed dependency. Fails if the job would depend on itself, directly or in a
    /// circle, or on an unknown job.
    pub(crate) fn check_new_dependency(
        &self,
        job: &Job,
        dependency: &Dependency,
        ended: &[EndedJob],
    ) -> Result<(), Refusal> {
        if dependency.terms.iter().any(|term| depends_on_itself(job, term)) {
            return Err(Refusal::DependsOnItself(job.id));
        }
        if let Some(between) = self.circle(job, dependency) {
            return Err(Refusal::CircularDependency(between));
        }
        self.check_dependency(dependency, &Known::new(ended))
    }
}

fn depends_on_itself(job: &Job, term: &DependencyTerm) -> bool {
    match term {
        DependencyTerm::On { job: target, .. } => {
            target.job == job.id || Some(target.job) == job.array_job_id()
        }
        DependencyTerm::Singleton => false,
    }
}
