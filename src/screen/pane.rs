//! One of the three lists: which rows it has, in which order, and which of them are in sight.

use super::picture::{Picture, Place, label};
use crate::model::view::JobView;
use crate::model::{JobId, Reason};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What a row stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Job(JobId),
    /// Several records of an array.
    Array(JobId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub key: Key,
    /// A record of the array in the row above.
    pub is_inner: bool,
    /// Of a job that waits for its turn: how many are before it, and one.
    pub position: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// As the queue has them; what ended last comes first.
    #[default]
    Queue,
    Number,
    Name,
    User,
    Cpus,
}

impl Sort {
    const ALL: [(Sort, &'static str); 5] = [
        (Sort::Queue, "queue"),
        (Sort::Number, "number"),
        (Sort::Name, "name"),
        (Sort::User, "user"),
        (Sort::Cpus, "CPUs"),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(sort, _)| *sort == self).map_or("", |(_, name)| name)
    }

    #[must_use]
    pub fn next(self) -> Sort {
        let at = Self::ALL.iter().position(|(sort, _)| *sort == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()].0
    }
}

#[derive(Debug)]
pub struct Pane {
    pub place: Place,
    pub rows: Vec<Row>,
    /// The place of the row that keys are about.
    pub at: usize,
    /// The first row in sight.
    pub top: usize,
    pub sort: Sort,
    open: BTreeSet<JobId>,
    /// Records here, tasks of arrays each counted.
    pub count: usize,
}

impl Pane {
    pub fn new(place: Place) -> Pane {
        Pane { place, rows: Vec::new(), at: 0, top: 0, sort: Sort::Queue, open: BTreeSet::new(), count: 0 }
    }

    pub fn selected(&self) -> Option<Key> {
        self.rows.get(self.at).map(|row| row.key)
    }

    /// Makes the rows anew. The same row stays chosen, wherever it is now.
    pub fn fill(&mut self, picture: &Picture, filter: &str) {
        let chosen = self.selected();
        let wanted = filter.to_lowercase();
        let is_here = |job: &&JobView| Place::of(job.run.state) == self.place && matches(job, &wanted);
        let mut jobs: Vec<&JobView> = picture.jobs.values().filter(is_here).collect();
        self.count = jobs.iter().map(|job| job.compact_tasks().map_or(1, crate::model::TaskSet::len)).sum();
        self.order(&mut jobs);
        let mut arrays: BTreeMap<JobId, usize> = BTreeMap::new();
        for array in jobs.iter().filter_map(|job| job.array_job_id()) {
            *arrays.entry(array).or_default() += 1;
        }
        let mut seen = BTreeSet::new();
        let (mut rows, mut turn) = (Vec::new(), 0);
        for job in &jobs {
            let position = (self.place == Place::Waiting && waits_for_its_turn(job.run.reason)).then(|| {
                turn += 1;
                turn
            });
            let Some(array) = job.array_job_id().filter(|array| arrays.get(array).is_some_and(|n| *n > 1)) else {
                rows.push(Row { key: Key::Job(job.id), is_inner: false, position });
                continue;
            };
            if !seen.insert(array) {
                continue;
            }
            rows.push(Row { key: Key::Array(array), is_inner: false, position });
            if self.open.contains(&array) {
                let inner = jobs.iter().filter(|job| job.array_job_id() == Some(array));
                rows.extend(inner.map(|job| Row { key: Key::Job(job.id), is_inner: true, position: None }));
            }
        }
        self.rows = rows;
        let kept = chosen.and_then(|key| self.rows.iter().position(|row| row.key == key));
        self.at = kept.unwrap_or(self.at).min(self.rows.len().saturating_sub(1));
    }

    fn order(&self, jobs: &mut [&JobView]) {
        match self.sort {
            Sort::Queue => match self.place {
                Place::Running => jobs.sort_by_key(|job| (job.run.start, job.id)),
                Place::Waiting => {
                    jobs.sort_by_key(|job| (!waits_for_its_turn(job.run.reason), Reverse(job.priority), job.id));
                }
                Place::Ended => jobs.sort_by_key(|job| Reverse((job.run.end, job.id))),
            },
            Sort::Number => jobs.sort_by_key(|job| job.id),
            Sort::Name => jobs.sort_by(|a, b| a.request.name.cmp(&b.request.name)),
            Sort::User => jobs.sort_by(|a, b| a.request.user.cmp(&b.request.user)),
            Sort::Cpus => jobs.sort_by_key(|job| Reverse(job.tres.cpus)),
        }
    }

    /// Opens or closes the array of the chosen row. False where it is none.
    pub fn toggle(&mut self, picture: &Picture) -> bool {
        let array = match self.rows.get(self.at) {
            Some(Row { key: Key::Array(array), .. }) => *array,
            Some(Row { key: Key::Job(id), is_inner: true, .. }) => {
                let Some(array) = picture.jobs.get(id).and_then(|job| job.array_job_id()) else { return false };
                array
            }
            _ => return false,
        };
        if !self.open.remove(&array) {
            self.open.insert(array);
        } else if let Some(at) = self.rows.iter().position(|row| row.key == Key::Array(array)) {
            self.at = at;
        }
        true
    }

    pub fn is_open(&self, array: JobId) -> bool {
        self.open.contains(&array)
    }

    /// Moves the choice by so many rows.
    pub fn step(&mut self, by: isize) {
        self.at = self.at.saturating_add_signed(by).min(self.rows.len().saturating_sub(1));
    }

    /// Brings the chosen row in sight of so many lines.
    pub fn scroll(&mut self, lines: usize) {
        let most = self.rows.len().saturating_sub(lines);
        let first = (self.at + 1).saturating_sub(lines);
        self.top = self.top.clamp(first, self.at.max(first)).min(most);
    }

    /// The rows in sight.
    pub fn shown(&self, lines: usize) -> &[Row] {
        let end = self.rows.len().min(self.top + lines);
        self.rows.get(self.top..end).unwrap_or_default()
    }
}

/// Whether resources or other jobs keep it, rather than something that has nothing to do with its turn.
fn waits_for_its_turn(reason: Reason) -> bool {
    matches!(reason, Reason::None | Reason::Resources | Reason::Priority | Reason::Exclusive)
}

/// Whether what is shown of a job has this text in it, which is in small letters.
fn matches(job: &JobView, wanted: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(wanted);
    wanted.is_empty()
        || has(&label(job))
        || has(&job.request.name)
        || has(&job.request.user)
        || has(&job.partition)
        || has(job.run.state.name())
        || (job.run.state == crate::model::JobState::Pending && has(job.run.reason.name()))
}
