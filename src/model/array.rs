//! Sets of array task IDs, stored as ranges, so that an array of four million tasks costs no more
//! than an array of two.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The largest array task ID, the same as with Slurm's `MaxArraySize=4000001`.
pub const MAX_TASK_ID: u32 = 4_000_000;

/// The IDs `first`, `first+step`, …, `last`. `last` is always a member. `step` is at least 1, and
/// exactly 1 if `first == last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TaskRange {
    pub first: u32,
    pub last: u32,
    pub step: u32,
}

impl TaskRange {
    /// Creates the range from `first` up to and including `last`. Returns `None` if it would be
    /// empty or `step` is 0.
    pub fn new(first: u32, last: u32, step: u32) -> Option<Self> {
        if step == 0 || last < first {
            return None;
        }
        let last = last - (last - first) % step;
        Some(TaskRange { first, last, step: if first == last { 1 } else { step } })
    }

    pub fn count(&self) -> usize {
        ((self.last - self.first) / self.step) as usize + 1
    }

    pub fn contains(&self, id: u32) -> bool {
        (self.first..=self.last).contains(&id) && (id - self.first).is_multiple_of(self.step)
    }
}

/// Array task IDs in ascending order, stored as disjoint ranges.
///
/// Ranges with a step may interleave (`0-10:2,1`). They are split until they no longer do, so that
/// `ranges` is always sorted and no range begins before the previous one ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskSet {
    ranges: Vec<TaskRange>,
}

impl TaskSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a set with one member.
    pub fn one(id: u32) -> Self {
        TaskSet { ranges: vec![TaskRange { first: id, last: id, step: 1 }] }
    }

    /// Creates the union of `ranges`, which may be in any order and overlap.
    pub fn from_ranges(mut ranges: Vec<TaskRange>) -> Self {
        ranges.sort_by_key(|r| (r.first, r.last));
        let disjoint = ranges.windows(2).all(|w| w[0].last < w[1].first);
        if disjoint {
            return TaskSet { ranges };
        }
        // Overlapping ranges are rare and small in practice. They are merged if every step is 1;
        // otherwise the members are listed one by one.
        if ranges.iter().all(|r| r.step == 1) {
            let mut merged: Vec<TaskRange> = Vec::with_capacity(ranges.len());
            for r in ranges {
                match merged.last_mut() {
                    Some(m) if r.first <= m.last.saturating_add(1) => m.last = m.last.max(r.last),
                    _ => merged.push(r),
                }
            }
            return TaskSet { ranges: merged };
        }
        let mut ids: Vec<u32> =
            ranges.iter().flat_map(|r| (r.first..=r.last).step_by(r.step as usize)).collect();
        ids.sort_unstable();
        ids.dedup();
        Self::from_sorted(&ids)
    }

    /// Creates a set from ascending, distinct `ids`. Evenly spaced runs become one range.
    pub fn from_sorted(ids: &[u32]) -> Self {
        let mut ranges = Vec::new();
        let mut i = 0;
        while i < ids.len() {
            let mut end = i;
            if i + 1 < ids.len() {
                let step = ids[i + 1] - ids[i];
                while end + 1 < ids.len() && ids[end + 1] - ids[end] == step {
                    end += 1;
                }
                // Two IDs with a gap stay separate instead of becoming a range with a step.
                if end == i + 1 && step != 1 {
                    end = i;
                }
                let step = if end == i { 1 } else { step };
                ranges.push(TaskRange { first: ids[i], last: ids[end], step });
            } else {
                ranges.push(TaskRange { first: ids[i], last: ids[i], step: 1 });
            }
            i = end + 1;
        }
        TaskSet { ranges }
    }

    pub fn ranges(&self) -> &[TaskRange] {
        &self.ranges
    }

    pub fn len(&self) -> usize {
        self.ranges.iter().map(TaskRange::count).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn first(&self) -> Option<u32> {
        self.ranges.first().map(|r| r.first)
    }

    pub fn last(&self) -> Option<u32> {
        self.ranges.last().map(|r| r.last)
    }

    /// Returns the only member, or `None` if there is not exactly one.
    pub fn single(&self) -> Option<u32> {
        match self.ranges.as_slice() {
            [r] if r.first == r.last => Some(r.first),
            _ => None,
        }
    }

    fn index_of(&self, id: u32) -> Option<usize> {
        let i = self.ranges.partition_point(|r| r.last < id);
        self.ranges.get(i).filter(|r| r.contains(id)).map(|_| i)
    }

    pub fn contains(&self, id: u32) -> bool {
        self.index_of(id).is_some()
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|r| (r.first..=r.last).step_by(r.step as usize))
    }

    /// Removes `id`. Returns false if it was not a member.
    pub fn remove(&mut self, id: u32) -> bool {
        let Some(i) = self.index_of(id) else { return false };
        let r = self.ranges[i];
        let before = (id > r.first).then(|| TaskRange::new(r.first, id - r.step, r.step)).flatten();
        let after = (id < r.last).then(|| TaskRange::new(id + r.step, r.last, r.step)).flatten();
        self.ranges.splice(i..=i, before.into_iter().chain(after));
        true
    }

    /// Adds `id`. Returns false if it was already a member.
    pub fn insert(&mut self, id: u32) -> bool {
        if self.contains(id) {
            return false;
        }
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.push(TaskRange { first: id, last: id, step: 1 });
        *self = Self::from_ranges(ranges);
        true
    }

    /// Returns the members that both sets share.
    pub fn intersection(&self, other: &TaskSet) -> TaskSet {
        let (small, large) = if self.len() <= other.len() { (self, other) } else { (other, self) };
        let ids: Vec<u32> = small.iter().filter(|id| large.contains(*id)).collect();
        Self::from_sorted(&ids)
    }

    /// Returns the members of `self` that are not in `other`.
    pub fn difference(&self, other: &TaskSet) -> TaskSet {
        if other.len() <= 64 {
            let mut left = self.clone();
            for id in other.iter() {
                left.remove(id);
            }
            return left;
        }
        let ids: Vec<u32> = self.iter().filter(|id| !other.contains(*id)).collect();
        Self::from_sorted(&ids)
    }
}

/// Prints `0-3,7,10-20:5`, which `parse::array` parses back to the same set.
impl fmt::Display for TaskSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.ranges.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match (r.first == r.last, r.step) {
                (true, _) => write!(f, "{}", r.first)?,
                (false, 1) => write!(f, "{}-{}", r.first, r.last)?,
                (false, step) => write!(f, "{}-{}:{}", r.first, r.last, step)?,
            }
        }
        Ok(())
    }
}

/// The value of `--array`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArraySpec {
    pub tasks: TaskSet,
    /// Maximum number of tasks to run at once (`%4`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

impl fmt::Display for ArraySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tasks.fmt(f)?;
        match self.limit {
            Some(limit) => write!(f, "%{limit}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(u32, u32, u32)]) -> TaskSet {
        TaskSet::from_ranges(
            ranges.iter().filter_map(|&(a, b, s)| TaskRange::new(a, b, s)).collect(),
        )
    }

    #[test]
    fn removing_a_middle_task_leaves_two_ranges() {
        let mut s = set(&[(0, 9, 1)]);
        assert!(s.remove(4));
        assert!(!s.remove(4));
        assert_eq!(s.to_string(), "0-3,5-9");
        assert_eq!(s.len(), 9);
    }

    #[test]
    fn a_stepped_range_keeps_its_step() {
        let mut s = set(&[(0, 15, 2)]);
        assert_eq!(s.to_string(), "0-14:2");
        assert!(s.remove(0));
        assert_eq!(s.to_string(), "2-14:2");
        assert!(!s.contains(3));
        s.remove(8);
        assert_eq!(s.to_string(), "2-6:2,10-14:2");
    }

    #[test]
    fn overlapping_ranges_become_one_set() {
        assert_eq!(set(&[(0, 5, 1), (3, 9, 1)]).to_string(), "0-9");
        assert_eq!(set(&[(0, 6, 2), (1, 1, 1)]).iter().collect::<Vec<_>>(), vec![0, 1, 2, 4, 6]);
    }

    #[test]
    fn an_inserted_task_is_a_member() {
        let mut s = set(&[(1, 3, 1), (7, 9, 1)]);
        assert!(s.insert(5));
        assert!(!s.insert(5));
        assert_eq!(s.to_string(), "1-3,5,7-9");
        assert!(s.insert(4));
        assert_eq!(s.iter().collect::<Vec<_>>(), vec![1, 2, 3, 4, 5, 7, 8, 9]);
    }

    #[test]
    fn four_million_tasks_are_one_range() {
        let s = set(&[(0, MAX_TASK_ID - 1, 1)]);
        assert_eq!(s.ranges().len(), 1);
        assert_eq!(s.len(), 4_000_000);
    }
}
