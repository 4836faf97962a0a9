//! The order of a list, and that of the queue.

use super::picture::Place;
use super::sorted::Sorted;
use crate::model::view::JobView;
use crate::model::{JobId, JobState, Reason, Timestamp};
use std::collections::HashMap;

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

/// Where a record stands among others: what comes first is smaller.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Order {
    text: String,
    numbers: [i64; 3],
}

#[cfg(test)]
thread_local! {
    /// How many records were put in order: a change is to cost what has changed.
    pub static MADE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Order {
    pub fn of(job: &JobView, sort: Sort, place: Place) -> Order {
        #[cfg(test)]
        MADE.set(MADE.get() + 1);
        let time = |at: Option<Timestamp>| at.map_or(i64::MAX, |at| at.0);
        let id = i64::from(job.id.0);
        let (text, numbers) = match sort {
            Sort::Queue => match place {
                Place::Running => (None, [time(job.run.start), id, 0]),
                Place::Waiting => {
                    let is_later = i64::from(!waits_for_its_turn(job.run.reason));
                    (None, [is_later, -i64::from(job.priority), id])
                }
                Place::Ended => (None, [-time(job.run.end), -id, 0]),
            },
            Sort::Number => (None, [id, 0, 0]),
            Sort::Name => (Some(&job.request.name), [id, 0, 0]),
            Sort::User => (Some(&job.request.user), [id, 0, 0]),
            Sort::Cpus => (None, [-i64::from(job.tres.cpus), id, 0]),
        };
        Order { text: text.cloned().unwrap_or_default(), numbers }
    }
}

/// Whether resources or other jobs keep it, rather than something that has nothing to do with its
/// turn.
fn waits_for_its_turn(reason: Reason) -> bool {
    matches!(reason, Reason::None | Reason::Resources | Reason::Priority | Reason::Exclusive)
}

/// Those that wait for their turn, in the order of the queue: all of them, however the list is
/// ordered and whatever it shows.
#[derive(Debug, Default)]
pub struct Turns {
    all: Sorted<(Order, JobId)>,
    orders: HashMap<JobId, Order>,
}

impl Turns {
    /// The turn of a record; `None`: it has none.
    pub fn turn(job: &JobView) -> Option<(Order, JobId)> {
        let has_turn = job.run.state == JobState::Pending && waits_for_its_turn(job.run.reason);
        has_turn.then(|| (Order::of(job, Sort::Queue, Place::Waiting), job.id))
    }

    pub fn of(turns: Vec<(Order, JobId)>) -> Turns {
        Turns {
            orders: turns.iter().map(|(order, id)| (*id, order.clone())).collect(),
            all: Sorted::of(turns),
        }
    }

    pub fn set(&mut self, id: JobId, turn: Option<(Order, JobId)>) {
        if let Some(order) = self.orders.remove(&id) {
            self.all.remove(&(order, id));
        }
        if let Some((order, id)) = turn {
            self.orders.insert(id, order.clone());
            self.all.insert((order, id));
        }
    }

    /// How many are before it, and one.
    pub fn position(&self, id: JobId) -> Option<usize> {
        let order = self.orders.get(&id)?.clone();
        self.all.place(&(order, id)).map(|before| before + 1)
    }
}
