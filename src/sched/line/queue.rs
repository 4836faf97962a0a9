//! The order in which pending jobs are looked at.
//!
//! Higher priority first. Among equals the one that was served longest ago: a job that has never
//! run was "served" when it was submitted, an array each time one of its tasks starts. So plain
//! jobs go in the order of their submission, arrays take turns, and no job starves: whoever comes
//! later has a later turn.
//!
//! Job numbers are handed out in order, to submissions and to tasks that start, so the number of
//! the last task that started says when an array had its turn. That survives a restart without
//! being written down.

use crate::model::gpu::GpuShare;
use crate::model::{JobId, JobRequest, Tres};
use crate::sched::resources::capacity::{CpuSharing, Want};
use crate::sched::resources::gpu_pool::GpuWant;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// The priority of a job that asked for none. Low, so that an explicit priority overrides the order
/// of submission, and not 0, which in Slurm means held.
pub const DEFAULT_PRIORITY: u32 = 1;

/// The place of a record in the queue, one for each partition that it may go to; the smallest is
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    /// Of the partition.
    pub tier: Reverse<u32>,
    pub priority: Reverse<i64>,
    /// The number of the job or of the array's last started task.
    pub turn: u32,
    /// The task of an array, where it has a record of its own: tasks with one turn start in their
    /// order.
    pub task: u32,
    pub id: JobId,
    /// Which of the partitions that the job names.
    pub choice: u16,
}

/// What the order goes by: the priority less the nice value, which may be below zero.
pub fn rank(request: &JobRequest) -> i64 {
    i64::from(request.priority.unwrap_or(DEFAULT_PRIORITY)).saturating_sub(request.nice)
}

/// The same as a user sees it: never 0, which would mean held.
pub fn shown_priority(request: &JobRequest) -> u32 {
    u32::try_from(rank(request).clamp(1, i64::from(u32::MAX) - 1)).unwrap_or(1)
}

/// All that decides, beside the order, whether a record may start now. While resources only become
/// fewer, what holds for one record of a shape holds for all of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// First, so that all that are too wide are passed over together.
    cpus: u32,
    mem_mb: u64,
    gpus: u32,
    gpu_share: GpuShare,
    gpu_model: Option<String>,
    named_cpus: Vec<u32>,
    place: CpuSharing,
    /// Seconds.
    pub limit: Option<u64>,
}

impl Shape {
    pub fn of(want: &Want, limit: Option<u64>) -> Self {
        let Want { tres: Tres { cpus, mem_mb, .. }, gpu, named_cpus, place } = *want;
        let (gpus, gpu_share, gpu_model) = (gpu.count, gpu.share, gpu.model.map(str::to_owned));
        Shape {
            cpus,
            mem_mb,
            gpus,
            gpu_share,
            gpu_model,
            named_cpus: named_cpus.to_vec(),
            place,
            limit,
        }
    }

    pub fn want(&self) -> Want<'_> {
        let tres = Tres { cpus: self.cpus, mem_mb: self.mem_mb, ..self.gpu_share.of(self.gpus) };
        let model = self.gpu_model.as_deref();
        let gpu = GpuWant { count: self.gpus, share: self.gpu_share, model, among: None };
        Want { tres, gpu, named_cpus: &self.named_cpus, place: self.place }
    }

    pub fn needs_cpus(&self) -> u32 {
        self.cpus
    }

    fn names_cpus(&self) -> bool {
        !self.named_cpus.is_empty()
    }
}

/// Records that wait in one place, and that one limit keeps from starting all at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    pub place: CpuSharing,
    /// Where there are limits: of each record.
    pub cpus: u32,
}

impl Lane {
    fn of(shape: &Shape) -> Self {
        Lane {
            place: shape.place,
            cpus: if shape.place.limits.is_empty() { 0 } else { shape.cpus },
        }
    }
}

/// Where a record stands in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub key: QueueKey,
    /// One for all that are alike.
    pub shape: Arc<Shape>,
}

/// The records that only wait for resources, in their order: all of them, and those of each shape.
/// One that may go to several partitions stands in it as often.
///
/// A round so looks at each shape that does not fit once, however many jobs of it there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queue {
    keys: BTreeSet<QueueKey>,
    lanes: BTreeMap<Lane, BTreeSet<QueueKey>>,
    shapes: BTreeMap<Arc<Shape>, BTreeSet<QueueKey>>,
    /// How many shapes name CPUs.
    naming: usize,
    arrivals: u64,
}

impl Queue {
    /// The shape, as those have it that wait already.
    pub fn known(&self, shape: Shape) -> Arc<Shape> {
        self.shapes
            .get_key_value(&shape)
            .map_or_else(|| Arc::new(shape), |(known, _)| Arc::clone(known))
    }

    /// Puts a record into a line in which it was not.
    pub fn insert(&mut self, place: &Place) {
        self.enter(place);
        self.arrivals += 1;
    }

    /// Gives a record other places than it has.
    pub fn replace(&mut self, old: &[Place], new: &[Place]) {
        old.iter().for_each(|place| self.remove(place));
        for place in new {
            let is_known = old.iter().any(|old| old.key.choice == place.key.choice);
            if is_known { self.enter(place) } else { self.insert(place) }
        }
    }

    /// What is in it may start though it could not before: the round has to be repeated.
    pub fn look_again(&mut self) {
        self.arrivals += 1;
    }

    fn enter(&mut self, Place { key, shape }: &Place) {
        self.keys.insert(*key);
        self.lanes.entry(Lane::of(shape)).or_default().insert(*key);
        match self.shapes.get_mut(shape) {
            Some(line) => line.insert(*key),
            None => {
                self.naming += usize::from(shape.names_cpus());
                self.shapes.entry(Arc::clone(shape)).or_default().insert(*key)
            }
        };
    }

    /// How often something has come in, or may start of a sudden: tells whether a round has to be
    /// repeated.
    pub fn arrivals(&self) -> u64 {
        self.arrivals
    }

    pub fn remove(&mut self, Place { key, shape }: &Place) {
        self.keys.remove(key);
        let lane = Lane::of(shape);
        if let Some(own) = self.lanes.get_mut(&lane) {
            own.remove(key);
            if own.is_empty() {
                self.lanes.remove(&lane);
            }
        }
        if let Some(line) = self.shapes.get_mut(shape) {
            line.remove(key);
            if line.is_empty() {
                self.naming -= usize::from(shape.names_cpus());
                self.shapes.remove(shape);
            }
        }
    }

    /// Whether somebody waits for CPUs by their numbers.
    pub fn names_cpus(&self) -> bool {
        self.naming > 0
    }

    pub fn first(&self) -> Option<QueueKey> {
        self.keys.first().copied()
    }

    /// The first of those lanes.
    pub fn first_of(&self, is_meant: impl Fn(&Lane) -> bool) -> Option<QueueKey> {
        let own = self.lanes.iter().filter(|(lane, _)| is_meant(lane));
        own.filter_map(|(_, keys)| keys.first().copied()).min()
    }

    pub fn contains(&self, key: &QueueKey) -> bool {
        self.keys.contains(key)
    }

    /// The next record after `key`.
    pub fn after(&self, key: QueueKey) -> Option<QueueKey> {
        next_in(&self.keys, key)
    }

    /// The next record of that shape after `key`.
    pub fn after_of(&self, shape: &Shape, key: QueueKey) -> Option<QueueKey> {
        next_in(self.shapes.get(shape)?, key)
    }

    /// The shapes, those that need the fewest CPUs first.
    pub fn shapes(&self) -> impl Iterator<Item = &Arc<Shape>> {
        self.shapes.keys()
    }

    /// All records in their order.
    pub fn iter(&self) -> impl Iterator<Item = QueueKey> + '_ {
        self.keys.iter().copied()
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// What is wrong with the index by shapes, given each record's place.
    #[cfg(test)]
    pub fn check<'a>(&self, places: impl Iterator<Item = &'a Place>) -> Result<(), String> {
        let mut anew = Queue { arrivals: self.arrivals, ..Queue::default() };
        places.for_each(|place| anew.enter(place));
        if anew == *self {
            Ok(())
        } else {
            Err(format!("the queue is {self:?} and should be {anew:?}"))
        }
    }
}

fn next_in(line: &BTreeSet<QueueKey>, key: QueueKey) -> Option<QueueKey> {
    line.range((Bound::Excluded(key), Bound::Unbounded)).next().copied()
}
