//! Array ids as text: `12_3`, `12_[3-9%2]`, and the limits on their length.
//!
//! Slurm cuts a list of array tasks to `SLURM_BITSTR_LEN` bytes (64 by default, the final zero byte among them) and
//! ends it in `...`; 0 lifts that. squeue's `%i` has, where the variable is not set, 31 bytes for the whole id and no
//! dots.

use crate::model::{ArrayRole, JobId, TaskSet};
use crate::render::Ctx;
use std::borrow::Cow;
use std::fmt::Write;

/// Bytes of a task list where `SLURM_BITSTR_LEN` is not set.
const DEFAULT_BITSTR_LEN: usize = 64;

/// Bytes of an id in squeue where `SLURM_BITSTR_LEN` is not set.
const SQUEUE_ID_LEN: usize = 31;

/// What a row shows of an array.
#[derive(Debug, Clone, PartialEq)]
pub enum Shown<'a> {
    /// No array.
    Plain(JobId),
    /// One task. `raw` is the number of its record, which is the array's for a task that has none of its own yet.
    Task { raw: JobId, array: JobId, task: u32 },
    /// Tasks that wait together.
    Tasks { array: JobId, tasks: Cow<'a, TaskSet>, limit: Option<u32> },
}

impl<'a> Shown<'a> {
    pub fn of(id: JobId, role: &'a ArrayRole) -> Self {
        match role {
            ArrayRole::None => Shown::Plain(id),
            ArrayRole::Task { array_job, task } => Shown::Task { raw: id, array: *array_job, task: *task },
            ArrayRole::Part { array_job, tasks } => {
                Shown::Tasks { array: *array_job, tasks: Cow::Borrowed(tasks), limit: None }
            }
            ArrayRole::Rest { tasks, limit } => Shown::Tasks { array: id, tasks: Cow::Borrowed(tasks), limit: *limit },
        }
    }

    /// The number of the record: `%A`, `JobIDRaw`.
    pub fn raw(&self) -> JobId {
        match self {
            Shown::Plain(id) | Shown::Task { raw: id, .. } | Shown::Tasks { array: id, .. } => *id,
        }
    }

    /// The number of the array, or of the job where there is none: `%F`.
    pub fn array_job(&self) -> JobId {
        match self {
            Shown::Plain(id) | Shown::Task { array: id, .. } | Shown::Tasks { array: id, .. } => *id,
        }
    }

    /// `12`, `12_3`, `12_[3-9%2]` with the usual limit on the list.
    pub fn id(&self, ctx: &Ctx) -> String {
        match self {
            Shown::Plain(id) => id.to_string(),
            Shown::Task { array, task, .. } => format!("{array}_{task}"),
            Shown::Tasks { array, tasks, limit } => format!("{array}_[{}]", task_list(tasks, *limit, ctx)),
        }
    }

    /// As [`Shown::id`] with squeue's own limit (`%i`, `JobArrayID`).
    pub fn squeue_id(&self, ctx: &Ctx) -> String {
        match (self, ctx.bitstr_len) {
            (Shown::Tasks { array, tasks, limit }, None) => {
                let mut text = format!("{array}_[{}]", list_text(tasks, *limit));
                text.truncate(SQUEUE_ID_LEN);
                text
            }
            _ => self.id(ctx),
        }
    }

    /// `3`, `3-9%2`; `None` outside an array: `%K`, `ArrayTaskId`.
    pub fn task(&self, ctx: &Ctx) -> Option<String> {
        match self {
            Shown::Plain(_) => None,
            Shown::Task { task, .. } => Some(task.to_string()),
            Shown::Tasks { tasks, limit, .. } => Some(task_list(tasks, *limit, ctx)),
        }
    }
}

fn list_text(tasks: &TaskSet, limit: Option<u32>) -> String {
    let mut text = tasks.to_string();
    if let Some(limit) = limit {
        // Writing to a String cannot fail.
        let _ = write!(text, "%{limit}");
    }
    text
}

/// The tasks with their limit, `3-9%2`, cut as `SLURM_BITSTR_LEN` says.
pub fn task_list(tasks: &TaskSet, limit: Option<u32>, ctx: &Ctx) -> String {
    let mut text = list_text(tasks, limit);
    let room = ctx.bitstr_len.unwrap_or(DEFAULT_BITSTR_LEN);
    if room > 0 && text.len() >= room {
        text.truncate(room.saturating_sub(4));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::array::TaskRange;
    use crate::render::fixture::ctx;

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
    fn slurm_bitstr_len_0_lifts_the_limit() {
        let mut c = ctx();
        c.bitstr_len = Some(0);
        assert_eq!(
            shown(&long_list()).squeue_id(&c),
            "100_[1,3-4,6-9,11-12,14-15,17-18,20-21,23-24,26-27,29-30,32-33,35-36,38-39,41-42,44-45,47-48,50-51,\
             53-54,56-57,59-60,62-63,65-66,68-69,71-72,74-75,77-78,80-81,83-84,86-87,89-1000]"
        );
    }

    #[test]
    fn a_small_slurm_bitstr_len_does_no_harm() {
        for len in 1..6 {
            let mut c = ctx();
            c.bitstr_len = Some(len);
            assert!(shown(&long_list()).id(&c).ends_with("...]"));
        }
    }

    #[test]
    fn the_limit_of_an_array_is_part_of_its_id() {
        let tasks = TaskSet::from_sorted(&[3, 4, 5, 6, 7, 8, 9]);
        let shown = Shown::Tasks { array: JobId(96), tasks: Cow::Owned(tasks), limit: Some(2) };
        assert_eq!(shown.squeue_id(&ctx()), "96_[3-9%2]");
        assert_eq!(shown.task(&ctx()).as_deref(), Some("3-9%2"));
    }
}
