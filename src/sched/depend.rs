//! Dependencies: what a pending job waits for other jobs to do, and who is told when one of them does it.
//!
//! Each term has a status, worked out once and again when its target starts, ends or is requeued; the dependents of
//! a job are found through an index, never by a scan. A term that is met stays met. An array id means all its tasks;
//! they count as met together.

use super::core::{Core, dependency_of};
use super::types::EndedJob;
use super::waits::{Corr, Outlook, Status, Waits};
use crate::model::array::TaskSet;
use crate::model::dependency::{Dependency, DependencyKind, DependencyTerm};
use crate::model::{ArrayRole, Job, JobId, JobRef, JobState, Reason, Refusal, Timestamp};
use std::collections::BTreeMap;

/// What is known of one job that another one depends on.
#[derive(Debug, Clone, Copy)]
struct Fact {
    begun: Option<Timestamp>,
    /// It runs now, and is not being stopped.
    runs: bool,
    ended: bool,
    ok: bool,
}

impl Fact {
    fn of(job: &Job) -> Self {
        let ended = job.run.state.is_terminal();
        // A requeued job has begun once; when is forgotten, its submission is the earliest it can have been.
        let requeued = (job.run.restarts > 0).then_some(job.submit);
        Fact {
            begun: job.run.start.or(if ended { job.run.end } else { requeued }),
            runs: matches!(job.run.state, JobState::Running | JobState::Suspended),
            ended,
            ok: job.run.state == JobState::Completed,
        }
    }
}

/// Facts from the store, by job and by array.
#[derive(Debug, Default)]
pub(super) struct Known {
    single: BTreeMap<JobId, Fact>,
    arrays: BTreeMap<JobId, BTreeMap<u32, Fact>>,
}

impl Known {
    pub(super) fn new(ended: &[EndedJob]) -> Self {
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

/// Several targets that count as one.
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
            DependencyKind::AfterAny => met(all_ended),
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

/// Whether it stays so, whatever becomes of the other job. A job can be expanded only as long as it runs.
fn is_settled(term: &DependencyTerm, status: Status) -> bool {
    let expands = matches!(term, DependencyTerm::On { kind: DependencyKind::Expand, .. });
    status == Status::Met && !expands
}

impl Core {
    /// Refuses a dependency on jobs that nobody knows.
    pub(super) fn check_dependency(
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

    fn is_known(&self, target: &JobRef, known: &Known) -> bool {
        let is_known_job = self.jobs.contains_key(&target.job)
            || self.arrays.contains_key(&target.job)
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

    /// Takes over what the store knows of tasks of arrays that are still in memory.
    pub(super) fn learn(&mut self, known: &Known) {
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
        match (&target.tasks, &of.role) {
            (Some(tasks), _) => {
                for task in tasks.iter() {
                    tally.add(self.task_fact(target.job, task, known).unwrap_or(Fact {
                        begun: None,
                        runs: false,
                        ended: true,
                        ok: false,
                    }));
                }
            }
            (None, ArrayRole::Task { task, .. })
                if *kind == DependencyKind::AfterCorr && self.is_array(target.job, known) =>
            {
                return match self.task_fact(target.job, *task, known) {
                    // A task without a counterpart can never be told that it has done well.
                    None => Status::Failed,
                    Some(fact) => {
                        tally.add(fact);
                        tally.status(*kind, *delay_minutes)
                    }
                };
            }
            (None, _) => {
                if let Some(group) = self.arrays.get(&target.job) {
                    tally = Tally {
                        total: group.total,
                        begun: group.begun.len(),
                        runs: 0,
                        ended: group.ended.len(),
                        ok: group.ok.len(),
                        last_begun: group.last_begun,
                    };
                } else if let Some(tasks) = known.arrays.get(&target.job) {
                    tasks.values().for_each(|fact| tally.add(*fact));
                } else if let Some(record) = self.jobs.get(&target.job) {
                    tally.add(Fact::of(&record.job));
                } else if let Some(fact) = known.single.get(&target.job) {
                    tally.add(*fact);
                } else {
                    // Checked at submission; a target that has vanished since can't be waited for.
                    return if *kind == DependencyKind::After || *kind == DependencyKind::AfterAny {
                        Status::Met
                    } else {
                        Status::Failed
                    };
                }
            }
        }
        tally.status(*kind, *delay_minutes)
    }

    fn is_array(&self, id: JobId, known: &Known) -> bool {
        self.arrays.contains_key(&id) || known.arrays.contains_key(&id)
    }

    /// Sets up what a new or changed pending record waits for.
    pub(super) fn set_waits(&mut self, id: JobId, known: &Known) {
        self.clear_waits(id);
        if let Some(waits) = self.job(id).and_then(|job| self.waits_of(job, known)) {
            self.put_waits(id, Some(Box::new(waits)));
        }
    }

    /// What a pending record waits for; `None` without a dependency.
    pub(super) fn waits_of(&self, job: &Job, known: &Known) -> Option<Waits> {
        let dependency = dependency_of(job);
        if dependency.is_empty() || job.run.state != JobState::Pending {
            return None;
        }
        let terms: Vec<(DependencyTerm, Status)> = dependency
            .terms
            .iter()
            .map(|term| (term.clone(), self.term_status(term, job, known)))
            .collect();
        let corr = self.corr_of(job, &terms, known);
        Some(Waits { terms, any: dependency.any, corr })
    }

    /// For a compact record whose tasks wait for their counterparts in other arrays.
    fn corr_of(
        &self,
        job: &Job,
        terms: &[(DependencyTerm, Status)],
        known: &Known,
    ) -> Option<Corr> {
        let tasks = job.compact_tasks()?;
        let targets: Vec<JobId> =
            terms.iter().filter_map(|(term, _)| self.corr_target(term, known)).collect();
        if targets.is_empty() {
            return None;
        }
        let mut corr = Corr { targets, ..Corr::default() };
        for task in tasks.iter() {
            self.update_corr(&mut corr, task, known);
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

    fn update_corr(&self, corr: &mut Corr, task: u32, known: &Known) {
        let facts: Vec<Option<Fact>> =
            corr.targets.iter().map(|target| self.task_fact(*target, task, known)).collect();
        corr.ready.remove(&task);
        corr.failed.remove(&task);
        if facts.iter().any(|fact| fact.is_none_or(|f| f.ended && !f.ok)) {
            corr.failed.insert(task);
        } else if facts.iter().all(|fact| fact.is_some_and(|f| f.ok)) {
            corr.ready.insert(task);
        }
    }

    pub(super) fn put_waits(&mut self, id: JobId, waits: Option<Box<Waits>>) {
        self.clear_waits(id);
        if let Some(waits) = &waits {
            for (term, status) in &waits.terms {
                if let DependencyTerm::On { job, .. } = term
                    && !is_settled(term, *status)
                {
                    self.dependents.entry(job.job).or_default().insert(id);
                }
            }
        }
        if let Some(record) = self.jobs.get_mut(&id) {
            record.waits = waits;
        }
    }

    pub(super) fn clear_waits(&mut self, id: JobId) {
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

    /// Works out again what the dependents of `target` wait for. `task`: only this task of it has changed.
    /// The records whose outlook may be another now.
    pub(super) fn reconsider_dependents(&mut self, target: JobId, task: Option<u32>) -> Vec<JobId> {
        let Some(dependents) = self.dependents.get(&target) else { return Vec::new() };
        let dependents: Vec<JobId> = dependents.iter().copied().collect();
        let known = Known::default();
        for &id in &dependents {
            let Some(mut waits) = self.jobs.get_mut(&id).and_then(|record| record.waits.take())
            else {
                continue;
            };
            if let Some(record) = self.jobs.get(&id) {
                for (term, status) in &mut waits.terms {
                    if let DependencyTerm::On { job, .. } = &*term
                        && job.job == target
                        && !is_settled(term, *status)
                    {
                        *status = self.term_status(term, &record.job, &known);
                    }
                }
                if let Some(corr) = &mut waits.corr {
                    match (task, record.job.compact_tasks()) {
                        (Some(task), Some(tasks)) if tasks.contains(task) => {
                            self.update_corr(corr, task, &known);
                        }
                        (None, Some(tasks)) => {
                            tasks.iter().for_each(|task| self.update_corr(corr, task, &known));
                        }
                        (Some(_), Some(_)) | (_, None) => {}
                    }
                }
            }
            if let Some(record) = self.jobs.get_mut(&id) {
                record.waits = Some(waits);
            }
        }
        dependents
    }

    /// Whether a singleton may run: nobody of its name and user is there who was submitted earlier, or runs.
    pub(super) fn is_singleton_free(&self, job: &Job) -> bool {
        let own = job.array_job_id().unwrap_or(job.id);
        let Some(group) =
            self.names.get(&job.request.uid).and_then(|names| names.get(&job.request.name))
        else {
            return true;
        };
        group.live.range(..own).next().is_none() && !group.active.keys().any(|id| *id != own)
    }

    pub(super) fn dependency_outlook(&self, job: &Job, waits: &Waits, now: Timestamp) -> Outlook {
        let has_singleton = waits.terms.iter().any(|(term, _)| *term == DependencyTerm::Singleton);
        let outlook = waits.outlook(now, has_singleton && self.is_singleton_free(job));
        match (&waits.corr, job.compact_tasks(), outlook) {
            // With `?` another term may do, and then the counterparts don't matter.
            (Some(corr), Some(tasks), Outlook::Clear)
                if !(waits.any && self.is_clear_without_corr(job, waits, now)) =>
            {
                if !corr.ready.is_empty() {
                    Outlook::Clear
                } else if corr.failed.len() >= tasks.len() {
                    Outlook::Never
                } else {
                    Outlook::Waiting
                }
            }
            (_, _, outlook) => outlook,
        }
    }

    fn is_clear_without_corr(&self, job: &Job, waits: &Waits, now: Timestamp) -> bool {
        waits.terms.iter().any(|(term, status)| match (term, status) {
            (DependencyTerm::Singleton, _) => self.is_singleton_free(job),
            (DependencyTerm::On { .. }, Status::Met) => true,
            (DependencyTerm::On { .. }, Status::MetAt(at)) => *at <= now,
            (DependencyTerm::On { .. }, Status::Open | Status::Failed) => false,
        })
    }

    /// The task of a compact record that starts next.
    pub(super) fn next_task(
        &self,
        job: &Job,
        waits: Option<&Waits>,
        now: Timestamp,
    ) -> Option<u32> {
        let tasks = job.compact_tasks()?;
        match waits.and_then(|waits| waits.corr.as_ref().map(|corr| (waits, corr))) {
            Some((waits, corr)) if !(waits.any && self.is_clear_without_corr(job, waits, now)) => {
                corr.ready.iter().copied().find(|task| tasks.contains(*task))
            }
            Some(_) | None => tasks.first(),
        }
    }

    /// Tasks of a compact record that can never start and are to be cancelled for it (`--kill-on-invalid-dep`).
    pub(super) fn hopeless_tasks(&self, job: &Job, waits: &Waits) -> TaskSet {
        match (&waits.corr, waits.any) {
            (Some(corr), false) if job.request.kill_on_invalid_dep => {
                TaskSet::from_sorted(&corr.failed.iter().copied().collect::<Vec<_>>())
            }
            (Some(_) | None, _) => TaskSet::default(),
        }
    }

    /// What is left of the dependency, as squeue `%E` shows it: `afterok:12(unfulfilled),afterany:13_*(unfulfilled)`.
    pub(super) fn dependency_text(&self, job: &Job, waits: &Waits, now: Timestamp) -> String {
        let mut text = String::new();
        for (term, status) in &waits.terms {
            let mark = match (term, status) {
                (DependencyTerm::Singleton, _) if self.is_singleton_free(job) => continue,
                (DependencyTerm::On { .. }, _) if waits.is_for_corr(term) => {
                    let hopeless = waits.corr.as_ref().map_or(0, |corr| corr.failed.len());
                    if hopeless >= job.pending_tasks() { "(failed)" } else { "(unfulfilled)" }
                }
                (DependencyTerm::On { .. }, Status::Met) => continue,
                (DependencyTerm::On { .. }, Status::MetAt(at)) if *at <= now => continue,
                (DependencyTerm::On { .. }, Status::Failed) => "(failed)",
                (DependencyTerm::Singleton, _) | (_, Status::Open | Status::MetAt(_)) => {
                    "(unfulfilled)"
                }
            };
            if !text.is_empty() {
                text.push(if waits.any { '?' } else { ',' });
            }
            match term {
                DependencyTerm::On { kind, job: target, delay_minutes }
                    if target.tasks.is_none() && self.arrays.contains_key(&target.job) =>
                {
                    text.push_str(&format!("{}:{}_*", kind.name(), target.job));
                    if *delay_minutes > 0 {
                        text.push_str(&format!("+{delay_minutes}"));
                    }
                }
                DependencyTerm::On { .. } | DependencyTerm::Singleton => {
                    text.push_str(&term.to_string())
                }
            }
            text.push_str(mark);
        }
        text
    }

    /// The reason of a pending job that its dependency keeps from running.
    pub(super) fn dependency_blocker(
        &self,
        job: &Job,
        waits: Option<&Waits>,
        now: Timestamp,
    ) -> Option<Reason> {
        match self.dependency_outlook(job, waits?, now) {
            Outlook::Clear => None,
            Outlook::Waiting => Some(Reason::Dependency),
            Outlook::Never => Some(Reason::DependencyNeverSatisfied),
        }
    }
}
