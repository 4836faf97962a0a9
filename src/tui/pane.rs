//! One of the three lists: which rows it has, in which order, and which of them are in sight.
//!
//! A queue may be long: a change costs what the records cost that have changed, and a look at the
//! list what is in sight.

use super::order::{Order, Sort, Turns};
use super::picture::{Picture, Place, label};
use super::sorted::Sorted;
use crate::model::JobId;
use crate::model::view::JobView;
use std::collections::{BTreeSet, HashMap};

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
    /// Of a job that waits for its turn: how many are before it in the queue, and one.
    pub position: Option<usize>,
}

/// What is known here of a record.
#[derive(Debug)]
struct Entry {
    order: Order,
    array: Option<JobId>,
    tasks: usize,
    cpus: u32,
}

/// The records of an array in one list.
#[derive(Debug, Default)]
pub struct Group {
    records: Sorted<(Order, JobId)>,
    pub tasks: usize,
    pub cpus: u32,
}

impl Group {
    /// The one whose place it has.
    pub fn first(&self) -> Option<JobId> {
        self.records.get(0).map(|(_, id)| *id)
    }
}

/// An array that is open: its place among those rows that are no records of others, and how many
/// rows it has within.
#[derive(Debug, Clone, Copy)]
struct Opened {
    at: usize,
    array: JobId,
    rows: usize,
}

#[derive(Debug)]
pub struct Pane {
    pub place: Place,
    /// The place of the row that keys are about.
    pub at: usize,
    /// The first row in sight.
    pub top: usize,
    pub sort: Sort,
    /// Records here, tasks of arrays each counted.
    pub count: usize,
    entries: HashMap<JobId, Entry>,
    groups: HashMap<JobId, Group>,
    /// A row each, but for those within arrays that are open.
    heads: Sorted<(Order, Key)>,
    turns: Turns,
    open: BTreeSet<JobId>,
    opened: Vec<Opened>,
}

impl Pane {
    pub fn new(place: Place) -> Pane {
        Pane {
            place,
            at: 0,
            top: 0,
            sort: Sort::Queue,
            count: 0,
            entries: HashMap::new(),
            groups: HashMap::new(),
            heads: Sorted::default(),
            turns: Turns::default(),
            open: BTreeSet::new(),
            opened: Vec::new(),
        }
    }

    pub fn selected(&self) -> Option<Key> {
        self.row(self.at).map(|row| row.key)
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.heads.len() + self.opened.iter().map(|opened| opened.rows).sum::<usize>()
    }

    /// The rows that are no records of others.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.heads.iter().map(|(_, key)| *key)
    }

    pub fn group(&self, array: JobId) -> Option<&Group> {
        self.groups.get(&array)
    }

    /// Makes the rows anew. The same row stays chosen, wherever it is now.
    pub fn fill(&mut self, picture: &Picture, filter: &str) {
        let chosen = self.selected();
        let wanted = filter.to_lowercase();
        (self.count, self.turns) = (0, Turns::default());
        self.entries.clear();
        self.groups.clear();
        let (mut heads, mut records, mut turns) =
            (Vec::new(), HashMap::<JobId, Vec<(Order, JobId)>>::new(), Vec::new());
        for job in picture.jobs.values().filter(|job| Place::of(job.run.state) == self.place) {
            turns.extend(Turns::turn(job));
            if !matches(job, &wanted) {
                continue;
            }
            let entry = self.entry(job);
            self.count += entry.tasks;
            match entry.array {
                Some(array) => {
                    records.entry(array).or_default().push((entry.order.clone(), job.id));
                    let group = self.groups.entry(array).or_default();
                    (group.tasks, group.cpus) =
                        (group.tasks + entry.tasks, group.cpus + entry.cpus);
                }
                None => heads.push((entry.order.clone(), Key::Job(job.id))),
            }
            self.entries.insert(job.id, entry);
        }
        for (array, records) in records {
            if let Some(group) = self.groups.get_mut(&array) {
                group.records = Sorted::of(records);
                heads.extend(head(array, group));
            }
        }
        self.heads = Sorted::of(heads);
        self.turns = Turns::of(turns);
        self.settle(chosen);
    }

    /// Takes these records as they are now. The same row stays chosen, wherever it is now.
    pub fn change(&mut self, picture: &Picture, filter: &str, changed: &BTreeSet<JobId>) {
        let chosen = self.selected();
        let wanted = filter.to_lowercase();
        for id in changed {
            self.take_out(*id);
            let job = picture.jobs.get(id).filter(|job| Place::of(job.run.state) == self.place);
            self.turns.set(*id, job.and_then(Turns::turn));
            if let Some(job) = job.filter(|job| matches(job, &wanted)) {
                self.put_in(job);
            }
        }
        self.settle(chosen);
    }

    fn entry(&self, job: &JobView) -> Entry {
        Entry {
            order: Order::of(job, self.sort, self.place),
            array: job.array_job_id(),
            tasks: job.weight(),
            cpus: job.tres.cpus,
        }
    }

    fn take_out(&mut self, id: JobId) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.count -= entry.tasks;
        let Some(array) = entry.array else {
            return self.heads.remove(&(entry.order, Key::Job(id)));
        };
        let Some(group) = self.groups.get_mut(&array) else { return };
        if let Some(head) = head(array, group) {
            self.heads.remove(&head);
        }
        group.records.remove(&(entry.order, id));
        (group.tasks, group.cpus) = (group.tasks - entry.tasks, group.cpus - entry.cpus);
        match head(array, group) {
            Some(head) => self.heads.insert(head),
            None => drop(self.groups.remove(&array)),
        }
    }

    fn put_in(&mut self, job: &JobView) {
        let entry = self.entry(job);
        self.count += entry.tasks;
        match entry.array {
            None => self.heads.insert((entry.order.clone(), Key::Job(job.id))),
            Some(array) => {
                let group = self.groups.entry(array).or_default();
                if let Some(head) = head(array, group) {
                    self.heads.remove(&head);
                }
                group.records.insert((entry.order.clone(), job.id));
                (group.tasks, group.cpus) = (group.tasks + entry.tasks, group.cpus + entry.cpus);
                head(array, group).into_iter().for_each(|head| self.heads.insert(head));
            }
        }
        self.entries.insert(job.id, entry);
    }

    /// After a change: where the arrays are that are open, and the chosen row.
    fn settle(&mut self, chosen: Option<Key>) {
        let opened = |array: &JobId| {
            let group = self.groups.get(array).filter(|group| group.records.len() > 1)?;
            Some(Opened {
                at: self.heads.place(&head(*array, group)?)?,
                array: *array,
                rows: group.records.len(),
            })
        };
        let mut all: Vec<Opened> = self.open.iter().filter_map(opened).collect();
        all.sort_unstable_by_key(|opened| opened.at);
        self.opened = all;
        let kept = chosen.and_then(|key| self.place_of(key));
        self.at = kept.unwrap_or(self.at).min(self.len().saturating_sub(1));
    }

    /// The row of this key.
    fn place_of(&self, key: Key) -> Option<usize> {
        let (array, id) = match key {
            Key::Array(array) => (Some(array), None),
            Key::Job(id) => (self.entries.get(&id)?.array, Some(id)),
        };
        let Some(array) = array else {
            let head = (self.entries.get(&id?)?.order.clone(), key);
            return Some(self.row_of_head(self.heads.place(&head)?));
        };
        let group = self.groups.get(&array)?;
        let row = self.row_of_head(self.heads.place(&head(array, group)?)?);
        match id.filter(|_| group.records.len() > 1) {
            // Nobody sees it where the array is closed: the array is where it was.
            Some(id) if self.open.contains(&array) => {
                let order = self.entries.get(&id)?.order.clone();
                Some(row + 1 + group.records.place(&(order, id))?)
            }
            _ => Some(row),
        }
    }

    fn row_of_head(&self, at: usize) -> usize {
        at + self
            .opened
            .iter()
            .take_while(|opened| opened.at < at)
            .map(|opened| opened.rows)
            .sum::<usize>()
    }

    pub fn row(&self, at: usize) -> Option<Row> {
        let mut head = at;
        for opened in &self.opened {
            if head <= opened.at {
                break;
            }
            if head <= opened.at + opened.rows {
                let (_, id) = self.groups.get(&opened.array)?.records.get(head - opened.at - 1)?;
                return Some(Row {
                    key: Key::Job(*id),
                    is_inner: true,
                    position: self.turns.position(*id),
                });
            }
            head -= opened.rows;
        }
        let (_, key) = self.heads.get(head)?;
        let first = match key {
            Key::Job(id) => Some(*id),
            Key::Array(array) => self.groups.get(array).and_then(Group::first),
        };
        let position = first.and_then(|id| self.turns.position(id));
        Some(Row { key: *key, is_inner: false, position })
    }

    /// Opens or closes the array of the chosen row. False where it is none.
    pub fn toggle(&mut self) -> bool {
        let array = match self.row(self.at) {
            Some(Row { key: Key::Array(array), .. }) => array,
            Some(Row { key: Key::Job(id), is_inner: true, .. }) => {
                let Some(array) = self.entries.get(&id).and_then(|entry| entry.array) else {
                    return false;
                };
                array
            }
            _ => return false,
        };
        if !self.open.remove(&array) {
            self.open.insert(array);
        }
        self.settle(Some(Key::Array(array)));
        true
    }

    pub fn is_open(&self, array: JobId) -> bool {
        self.open.contains(&array)
    }

    /// Moves the choice by so many rows.
    pub fn step(&mut self, by: isize) {
        self.at = self.at.saturating_add_signed(by).min(self.len().saturating_sub(1));
    }

    /// Brings the chosen row in sight of so many lines.
    pub fn scroll(&mut self, lines: usize) {
        let most = self.len().saturating_sub(lines);
        let first = (self.at + 1).saturating_sub(lines);
        self.top = self.top.clamp(first, self.at.max(first)).min(most);
    }

    /// The rows in sight.
    pub fn shown(&self, lines: usize) -> impl Iterator<Item = Row> {
        (self.top..self.top + lines).map_while(move |at| self.row(at))
    }
}

/// The row of an array: several records, or the one that there is.
fn head(array: JobId, group: &Group) -> Option<(Order, Key)> {
    let (order, id) = group.records.get(0)?;
    let key = if group.records.len() > 1 { Key::Array(array) } else { Key::Job(*id) };
    Some((order.clone(), key))
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

#[cfg(test)]
mod tests;
