//! Array IDs as text: `12_3`, `12_[3-9%2]`, and the limits on their length.
//!
//! Slurm truncates a list of array tasks to `SLURM_BITSTR_LEN` bytes (64 by default, including the
//! final zero byte) and ends it with `...`; 0 removes the limit. Without the variable, squeue's
//! `%i` has 31 bytes for the whole ID and no dots.

use crate::Ctx;
use slotd_model::{ArrayRole, JobId, TaskSet};
use std::borrow::Cow;
use std::fmt::Write;

/// The length of a task list without `SLURM_BITSTR_LEN`, in bytes.
const DEFAULT_BITSTR_LEN: usize = 64;

/// The length of an ID in squeue without `SLURM_BITSTR_LEN`, in bytes.
const SQUEUE_ID_LEN: usize = 31;

/// The part of an array that a row shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Shown<'a> {
    /// Not an array.
    Plain(JobId),
    /// One task. `raw` is the ID of its record: that of the array until the task has a record of
    /// its own.
    Task { raw: JobId, array: JobId, task: u32 },
    /// Tasks that wait together.
    Tasks { array: JobId, tasks: Cow<'a, TaskSet>, limit: Option<u32> },
}

impl<'a> Shown<'a> {
    pub fn of(id: JobId, role: &'a ArrayRole) -> Self {
        match role {
            ArrayRole::None => Shown::Plain(id),
            ArrayRole::Task { array_job, task } => {
                Shown::Task { raw: id, array: *array_job, task: *task }
            }
            // A single task that was split off is shown like a task with its own record, not as a
            // list.
            ArrayRole::Part { array_job, tasks } if tasks.single().is_some() => {
                Shown::Task { raw: id, array: *array_job, task: tasks.first().unwrap_or_default() }
            }
            ArrayRole::Part { array_job, tasks } => {
                Shown::Tasks { array: *array_job, tasks: Cow::Borrowed(tasks), limit: None }
            }
            ArrayRole::Rest { tasks, limit } => {
                Shown::Tasks { array: id, tasks: Cow::Borrowed(tasks), limit: *limit }
            }
        }
    }

    /// Returns the ID of the record: `%A`, `JobIDRaw`.
    pub fn raw(&self) -> JobId {
        match self {
            Shown::Plain(id) | Shown::Task { raw: id, .. } | Shown::Tasks { array: id, .. } => *id,
        }
    }

    /// Returns the ID of the array, or of a job outside an array: `%F`.
    pub fn array_job(&self) -> JobId {
        match self {
            Shown::Plain(id) | Shown::Task { array: id, .. } | Shown::Tasks { array: id, .. } => {
                *id
            }
        }
    }

    /// Returns `12`, `12_3` or `12_[3-9%2]`, with the usual limit on the list.
    pub fn id(&self, ctx: &Ctx) -> String {
        match self {
            Shown::Plain(id) => id.0.to_string(),
            Shown::Task { array, task, .. } => format!("{array}_{task}"),
            Shown::Tasks { array, tasks, limit } => {
                format!("{array}_[{}]", task_list(tasks, *limit, ctx))
            }
        }
    }

    /// Like [`Shown::id`], with squeue's own limit (`%i`, `JobArrayID`).
    pub(crate) fn squeue_id(&self, ctx: &Ctx) -> String {
        match (self, ctx.bitstr_len) {
            (Shown::Tasks { array, tasks, limit }, None) => {
                let mut text = format!("{array}_[{}]", list_text(tasks, *limit, SQUEUE_ID_LEN));
                text.truncate(SQUEUE_ID_LEN);
                text
            }
            _ => self.id(ctx),
        }
    }

    /// Returns `3` or `3-9%2`; `None` outside an array: `%K`, `ArrayTaskId`.
    pub fn task(&self, ctx: &Ctx) -> Option<String> {
        match self {
            Shown::Plain(_) => None,
            Shown::Task { task, .. } => Some(task.to_string()),
            Shown::Tasks { tasks, limit, .. } => Some(task_list(tasks, *limit, ctx)),
        }
    }
}

/// Formats the list as Slurm does and stops shortly after `max_len` bytes; 0 means no limit.
///
/// Slurm writes a step (`0-20:4`) only if the whole list is a single step range with six tasks or
/// more that spans more than ten IDs. Everything else is single IDs and ranges without gaps, the
/// only form that some clients parse.
fn list_text(tasks: &TaskSet, limit: Option<u32>, max_len: usize) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    match tasks.ranges() {
        [range] if range.count() > 5 && range.last - range.first > 10 => {
            let _ = write!(text, "{tasks}");
        }
        ranges => {
            let mut gapless = ranges
                .iter()
                .flat_map(|range| {
                    let length = if range.step == 1 { range.last - range.first } else { 0 };
                    (range.first..=range.last)
                        .step_by((length + range.step) as usize)
                        .map(move |id| (id, id + length))
                })
                .peekable();
            while let Some((first, mut last)) = gapless.next() {
                if max_len > 0 && text.len() >= max_len {
                    return text;
                }
                // A range with a step may end next to the following one.
                while let Some((_, end)) = gapless.next_if(|(next, _)| *next == last + 1) {
                    last = end;
                }
                let comma = if text.is_empty() { "" } else { "," };
                let _ = if first == last {
                    write!(text, "{comma}{first}")
                } else {
                    write!(text, "{comma}{first}-{last}")
                };
            }
        }
    }
    if let Some(limit) = limit {
        let _ = write!(text, "%{limit}");
    }
    text
}

/// Formats the tasks with their limit, `3-9%2`, truncated according to `SLURM_BITSTR_LEN`.
pub(crate) fn task_list(tasks: &TaskSet, limit: Option<u32>, ctx: &Ctx) -> String {
    let max_len = ctx.bitstr_len.unwrap_or(DEFAULT_BITSTR_LEN);
    let mut text = list_text(tasks, limit, max_len);
    if max_len > 0 && text.len() >= max_len {
        text.truncate(max_len.saturating_sub(4));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::ctx;
    use slotd_model::array::TaskRange;

    fn long_list() -> TaskSet {
        let ranges = std::iter::once((1, 1))
            .chain(std::iter::once((3, 4)))
            .chain(std::iter::once((6, 9)))
            .chain((11..89).step_by(3).map(|i| (i, i + 1)))
            .chain(std::iter::once((89, 1000)));
        TaskSet::from_ranges(ranges.filter_map(|(a, b)| TaskRange::new(a, b, 1)).collect())
    }

    fn shown(tasks: &TaskSet) -> Shown<'_> {
        Shown::Tasks { array: JobId(100), tasks: Cow::Borrowed(tasks), limit: None }
    }

    #[test]
    fn squeue_cuts_a_long_array_id_to_31_bytes() {
        assert_eq!(shown(&long_list()).squeue_id(&ctx()), "100_[1,3-4,6-9,11-12,14-15,17-1");
    }

    #[test]
    fn a_long_task_list_ends_in_three_dots_within_64_bytes() {
        assert_eq!(
            shown(&long_list()).task(&ctx()).as_deref(),
            Some("1,3-4,6-9,11-12,14-15,17-18,20-21,23-24,26-27,29-30,32-33,35...")
        );
    }

    #[test]
    fn slurm_bitstr_len_0_removes_the_limit() {
        let mut c = ctx();
        c.bitstr_len = Some(0);
        assert_eq!(
            shown(&long_list()).squeue_id(&c),
            "100_[1,3-4,6-9,11-12,14-15,17-18,20-21,23-24,26-27,29-30,32-33,35-36,38-39,41-42,44-45,47-48,50-51,\
             53-54,56-57,59-60,62-63,65-66,68-69,71-72,74-75,77-78,80-81,83-84,86-87,89-1000]"
        );
    }

    #[test]
    fn a_small_slurm_bitstr_len_is_harmless() {
        for len in 1..6 {
            let mut c = ctx();
            c.bitstr_len = Some(len);
            assert!(shown(&long_list()).id(&c).ends_with("...]"));
        }
    }

    #[test]
    fn task_lists_use_steps_as_slurm_does() {
        let of = |first, last, step| {
            TaskSet::from_ranges(TaskRange::new(first, last, step).into_iter().collect())
        };
        for (tasks, text) in [
            (of(1, 7, 2), "1,3,5,7"),
            (of(0, 15, 4), "0,4,8,12"),
            (of(0, 16, 4), "0,4,8,12,16"),
            (of(0, 20, 4), "0-20:4"),
            (of(0, 10, 2), "0,2,4,6,8,10"),
            (of(0, 12, 2), "0-12:2"),
            (of(0, 400, 100), "0,100,200,300,400"),
            (of(0, 500, 100), "0-500:100"),
            (of(0, 1000, 1), "0-1000"),
            (of(3, 4, 1), "3-4"),
            (of(4_000_000, 4_000_000, 1), "4000000"),
            (TaskSet::from_sorted(&[1, 3, 5, 7, 9, 20]), "1,3,5,7,9,20"),
            (TaskSet::from_sorted(&[1, 2, 3, 5, 7, 9, 10]), "1-3,5,7,9-10"),
        ] {
            assert_eq!(list_text(&tasks, None, 0), text);
            assert_eq!(list_text(&tasks, Some(2), 64), format!("{text}%2"));
        }
        let mut many = of(0, 1_000_000, 2);
        many.insert(1);
        assert!(list_text(&many, None, 64).len() < 80);
        assert_eq!(task_list(&many, None, &ctx()).len(), 63);
    }

    #[test]
    fn the_limit_of_an_array_is_part_of_its_id() {
        let tasks = TaskSet::from_sorted(&[3, 4, 5, 6, 7, 8, 9]);
        let shown = Shown::Tasks { array: JobId(96), tasks: Cow::Owned(tasks), limit: Some(2) };
        assert_eq!(shown.squeue_id(&ctx()), "96_[3-9%2]");
        assert_eq!(shown.task(&ctx()).as_deref(), Some("3-9%2"));
    }
}
