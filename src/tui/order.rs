//! The sort order of a list.

use crate::live::picture;
use slotd_model::view::JobView;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// The order of the queue; jobs that ended last come first.
    #[default]
    Queue,
    Number,
    Name,
    User,
    Cpus,
    Memory,
    Gpus,
}

impl Sort {
    const ALL: [(Sort, &'static str); 7] = [
        (Sort::Queue, "queue"),
        (Sort::Number, "number"),
        (Sort::Name, "name"),
        (Sort::User, "user"),
        (Sort::Cpus, "CPUs"),
        (Sort::Memory, "memory"),
        (Sort::Gpus, "GPUs"),
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

/// The sort key of a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Order {
    text: String,
    numbers: [i64; 3],
}

#[cfg(test)]
thread_local! {
    /// The number of sort keys computed. A change must cost only the changed records.
    pub static MADE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Order {
    pub fn of(job: &JobView, sort: Sort) -> Order {
        #[cfg(test)]
        MADE.set(MADE.get() + 1);
        let id = i64::from(job.id.0);
        let (text, numbers) = match sort {
            Sort::Queue => (None, picture::order(job)),
            Sort::Number => (None, [id, 0, 0]),
            Sort::Name => (Some(&job.request.name), [id, 0, 0]),
            Sort::User => (Some(&job.request.user), [id, 0, 0]),
            Sort::Cpus => (None, [-i64::from(job.tres.cpus), id, 0]),
            Sort::Memory => (None, [-i64::try_from(job.tres.mem_mb).unwrap_or(i64::MAX), id, 0]),
            Sort::Gpus => (None, [-i64::from(job.tres.gpus), id, 0]),
        };
        Order { text: text.cloned().unwrap_or_default(), numbers }
    }
}
