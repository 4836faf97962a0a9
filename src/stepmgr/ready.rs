//! Steps that wait only for resources, in the order in which they start.
//!
//! The highest priority starts first. Within a priority, the oldest step that fits starts. A step
//! that does not fit blocks all lower priorities, so that it is not starved.

use super::def::Ask;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The properties that decide whether a step can start now, equal for all steps of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    pub ask: Ask,
    /// Seconds.
    pub time_secs: Option<u64>,
}

/// Whether a shape can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    Now,
    /// Its resources are in use.
    Later,
    /// Too little time is left before the job ends.
    Never,
}

#[derive(Debug, Clone, Default)]
pub struct Ready {
    levels: BTreeMap<Reverse<i64>, BTreeMap<Shape, BTreeSet<u32>>>,
}

impl Ready {
    pub fn insert(&mut self, priority: i64, shape: Shape, step: u32) {
        self.levels.entry(Reverse(priority)).or_default().entry(shape).or_default().insert(step);
    }

    pub fn remove(&mut self, priority: i64, shape: Shape, step: u32) {
        let Some(level) = self.levels.get_mut(&Reverse(priority)) else { return };
        if let Some(steps) = level.get_mut(&shape) {
            steps.remove(&step);
            if steps.is_empty() {
                level.remove(&shape);
            }
        }
        if level.is_empty() {
            self.levels.remove(&Reverse(priority));
        }
    }

    /// Returns the next step to start with its priority and shape. It stays queued until removed.
    pub fn first(&self, fit: impl Fn(&Shape) -> Fit) -> Option<(i64, Shape, u32)> {
        for (priority, level) in &self.levels {
            let mut waits = false;
            let mut first: Option<(u32, Shape)> = None;
            for (shape, steps) in level {
                match fit(shape) {
                    Fit::Now => {
                        let own = steps.first().map(|step| (*step, *shape));
                        first = [first, own].into_iter().flatten().min_by_key(|(step, _)| *step);
                    }
                    Fit::Later => waits = true,
                    Fit::Never => {}
                }
            }
            if let Some((step, shape)) = first {
                return Some((priority.0, shape, step));
            }
            if waits {
                return None;
            }
        }
        None
    }

    /// Returns the highest priority among the ready steps.
    pub fn top(&self) -> Option<i64> {
        self.levels.keys().next().map(|priority| priority.0)
    }

    /// Returns whether any of the steps can still start.
    pub fn has_any(&self, fit: impl Fn(&Shape) -> Fit) -> bool {
        self.levels.values().flat_map(BTreeMap::keys).any(|shape| fit(shape) != Fit::Never)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(cpus: u32) -> Shape {
        Shape { ask: Ask { cpus, mem_mb: None, gpus: 0 }, time_secs: None }
    }

    #[test]
    fn step_that_does_not_fit_blocks_only_lower_priorities() {
        let mut ready = Ready::default();
        ready.insert(0, shape(1), 1);
        ready.insert(5, shape(4), 2);
        ready.insert(5, shape(1), 3);
        let with = |free: u32| {
            move |shape: &Shape| if shape.ask.cpus <= free { Fit::Now } else { Fit::Later }
        };
        assert_eq!(ready.first(with(4)), Some((5, shape(4), 2)));
        assert_eq!(ready.first(with(2)), Some((5, shape(1), 3)));
        ready.remove(5, shape(1), 3);
        assert_eq!(ready.first(with(2)), None);
        let in_time = |shape: &Shape| if shape.ask.cpus == 4 { Fit::Never } else { Fit::Now };
        assert_eq!(
            ready.first(in_time),
            Some((0, shape(1), 1)),
            "a step that can never start blocks nothing"
        );
    }
}
