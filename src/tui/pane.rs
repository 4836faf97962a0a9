//! One of the three lists: its rows, their order, and the part on the screen.
//!
//! A queue may be long, so a change costs only the changed records and drawing only the visible
//! rows.

use super::order::{Order, Sort};
use crate::live::picture::label;
use crate::live::{Picture, Place, Sorted};
use slotd_model::JobId;
use slotd_model::view::JobView;
use slotd_render::job::is_held;
use std::collections::{BTreeSet, HashMap};

/// The job or array that a row shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Job(JobId),
    /// Several records of an array.
    Array(JobId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub key: Key,
    /// Whether this is a record of the array in the row above.
    pub is_inner: bool,
}

/// The stored facts about a record.
#[derive(Debug)]
struct Entry {
    order: Order,
    array: Option<JobId>,
    tasks: usize,
    cpus: u32,
    /// Its tasks, if they are held or have failed.
    special: usize,
}

/// The records of an array in one list.
#[derive(Debug, Default)]
pub struct Group {
    records: Sorted<(Order, JobId)>,
    pub tasks: usize,
    pub cpus: u32,
}

impl Group {
    /// Returns the record that decides the position of the group.
    pub fn first(&self) -> Option<JobId> {
        self.records.get(0).map(|(_, id)| *id)
    }
}

/// An open array: its position among the top-level rows, and the number of rows inside it.
#[derive(Debug, Clone, Copy)]
struct Opened {
    at: usize,
    array: JobId,
    rows: usize,
}

#[derive(Debug)]
pub struct Pane {
    pub place: Place,
    /// The selected row.
    pub at: usize,
    /// The first visible row.
    pub top: usize,
    pub sort: Sort,
    /// The number of records, counting each task of an array.
    pub count: usize,
    /// The number of those that are held or have failed.
    pub special: usize,
    entries: HashMap<JobId, Entry>,
    groups: HashMap<JobId, Group>,
    /// The top-level rows, without the rows inside open arrays.
    heads: Sorted<(Order, Key)>,
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
            special: 0,
            entries: HashMap::new(),
            groups: HashMap::new(),
            heads: Sorted::default(),
            open: BTreeSet::new(),
            opened: Vec::new(),
        }
    }

    pub fn selected(&self) -> Option<Key> {
        self.row(self.at).map(|row| row.key)
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.heads.len() + self.opened.iter().map(|opened| opened.rows).sum::<usize>()
    }

    /// Returns the keys of the top-level rows.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.heads.iter().map(|(_, key)| *key)
    }

    pub fn group(&self, array: JobId) -> Option<&Group> {
        self.groups.get(&array)
    }

    /// Rebuilds all rows and keeps the same job or array selected.
    pub fn fill(&mut self, picture: &Picture, filter: &str) {
        let chosen = self.selected();
        let wanted = filter.to_lowercase();
        (self.count, self.special) = (0, 0);
        self.entries.clear();
        self.groups.clear();
        let (mut heads, mut records) = (Vec::new(), HashMap::<JobId, Vec<(Order, JobId)>>::new());
        for job in picture.list(self.place).filter(|job| matches(job, &wanted)) {
            let entry = self.entry(job);
            self.count += entry.tasks;
            self.special += entry.special;
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
        self.settle(chosen);
    }

    /// Updates these records and keeps the same job or array selected.
    pub fn change(&mut self, picture: &Picture, filter: &str, changed: &BTreeSet<JobId>) {
        let chosen = self.selected();
        let wanted = filter.to_lowercase();
        for id in changed {
            self.take_out(*id);
            let job = picture.jobs.get(id).filter(|job| Place::of(job.run.state) == self.place);
            if let Some(job) = job.filter(|job| matches(job, &wanted)) {
                self.put_in(job);
            }
        }
        self.settle(chosen);
    }

    fn entry(&self, job: &JobView) -> Entry {
        Entry {
            order: Order::of(job, self.sort),
            array: job.array_job_id(),
            tasks: job.weight(),
            cpus: job.tres.cpus,
            special: if is_special(job) { job.weight() } else { 0 },
        }
    }

    fn take_out(&mut self, id: JobId) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.count -= entry.tasks;
        self.special -= entry.special;
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
        self.special += entry.special;
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

    /// Recomputes the positions of the open arrays and of the selected row after a change.
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

    /// Returns the row of this key.
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
            // A record inside a closed array is not visible; its array's row is used.
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
                return Some(Row { key: Key::Job(*id), is_inner: true });
            }
            head -= opened.rows;
        }
        let (_, key) = self.heads.get(head)?;
        Some(Row { key: *key, is_inner: false })
    }

    /// Opens or closes the array of the selected row. Returns false if the row has no array.
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

    /// Moves the selection by this many rows.
    pub fn step(&mut self, by: isize) {
        self.at = self.at.saturating_add_signed(by).min(self.len().saturating_sub(1));
    }

    /// Scrolls until the selected row is within this many lines.
    pub fn scroll(&mut self, lines: usize) {
        let most = self.len().saturating_sub(lines);
        let first = (self.at + 1).saturating_sub(lines);
        self.top = self.top.clamp(first, self.at.max(first)).min(most);
    }

    /// Scrolls by this many rows, and keeps the selected row within these lines.
    pub fn wheel(&mut self, by: isize, lines: usize) {
        let most = self.len().saturating_sub(lines);
        self.top = self.top.saturating_add_signed(by).min(most);
        self.at = self.at.clamp(self.top, (self.top + lines).saturating_sub(1).max(self.top));
        self.at = self.at.min(self.len().saturating_sub(1));
    }

    /// Returns the name of the list, as headings and tabs show it.
    pub fn name(&self) -> &'static str {
        match self.place {
            Place::Running => "RUNNING",
            Place::Waiting => "PENDING",
            Place::Ended => "ENDED",
        }
    }

    /// Returns the visible rows.
    pub fn shown(&self, lines: usize) -> impl Iterator<Item = Row> {
        (self.top..self.top + lines).map_while(move |at| self.row(at))
    }
}

/// Returns the row of an array: the array itself, or its only record.
fn head(array: JobId, group: &Group) -> Option<(Order, Key)> {
    let (order, id) = group.records.get(0)?;
    let key = if group.records.len() > 1 { Key::Array(array) } else { Key::Job(*id) };
    Some((order.clone(), key))
}

/// Returns whether a job is held or has failed.
fn is_special(job: &JobView) -> bool {
    is_held(job) || job.run.state.is_failure()
}

/// Returns whether the visible fields of a job contain this text, which must be in lower case.
fn matches(job: &JobView, wanted: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(wanted);
    wanted.is_empty()
        || has(&label(job))
        || has(&job.request.name)
        || has(&job.request.user)
        || has(&job.partition)
        || has(job.run.state.name())
        || (job.run.state == slotd_model::JobState::Pending && has(job.run.reason.name()))
}

#[cfg(test)]
mod tests;
