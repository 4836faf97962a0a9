//! The order in which pending jobs are considered.
//!
//! Higher priorities come first. Among equals, the one that was served longest ago comes first: a
//! job that has never run was "served" when it was submitted, an array whenever one of its tasks
//! starts. So plain jobs run in submission order, arrays take turns, and no job starves, because
//! later arrivals have later turns.
//!
//! Job IDs are assigned in order, to submissions and to tasks that start. So the ID of the task
//! that started last determines when an array had its turn, and the order survives a restart
//! without being stored.

use crate::resources::capacity::{Capacity, CpuSharing, Want};
use crate::resources::gpu_pool::GpuWant;
use slotd_model::gpu::GpuShare;
use slotd_model::qos::Qos;
use slotd_model::{JobId, JobRequest, Tres};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// The priority of a job that requests none. It is low, so that an explicit priority overrides the
/// submission order, and not 0, which means held in Slurm.
pub(crate) const DEFAULT_PRIORITY: u32 = 1;

/// The sort key of a record in the queue, one for each partition in which it may run; the smallest
/// is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    /// The tier of the partition.
    pub tier: Reverse<u32>,
    pub priority: Reverse<i64>,
    /// The ID of the job, or of the array's task that started last.
    pub turn: u32,
    /// The task ID of an array task with its own record: tasks with the same turn start in their
    /// order.
    pub task: u32,
    pub id: JobId,
    /// The index of the choice among the job's partitions and reservations.
    pub choice: u16,
}

/// Returns the effective priority, which may be negative: the requested priority, or else that of
/// the QOS, minus the nice value.
pub(crate) fn rank(request: &JobRequest, qos: Option<&Qos>) -> i64 {
    let of_qos = qos.map_or(0, |qos| i64::from(qos.priority));
    let own = request.priority.map_or(i64::from(DEFAULT_PRIORITY) + of_qos, i64::from);
    own.saturating_sub(request.nice)
}

/// Returns the priority as users see it: never 0, which would mean held.
pub(crate) fn shown_priority(request: &JobRequest, qos: Option<&Qos>) -> u32 {
    u32::try_from(rank(request, qos).clamp(1, i64::from(u32::MAX) - 1)).unwrap_or(1)
}

/// Everything, apart from the order, that decides whether a record may start now. While free
/// resources only decrease, a decision for one record of a shape holds for all of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// The first field, so that all shapes that are too wide can be skipped together.
    cpus: u32,
    mem_mb: u64,
    gpus: u32,
    gpu_share: GpuShare,
    gpu_model: Option<String>,
    named_cpus: Vec<u32>,
    place: CpuSharing,
    /// In seconds.
    pub limit: Option<u64>,
}

impl Shape {
    pub fn of(want: &Want, limit: Option<u64>) -> Self {
        let Want { tres: Tres { cpus, mem_mb, .. }, gpu, named_cpus, ref place } = *want;
        let (gpus, gpu_share, gpu_model) = (gpu.count, gpu.share, gpu.model.map(str::to_owned));
        Shape {
            cpus,
            mem_mb,
            gpus,
            gpu_share,
            gpu_model,
            named_cpus: named_cpus.to_vec(),
            place: place.clone(),
            limit,
        }
    }

    pub fn want(&self) -> Want<'_> {
        let tres = Tres { cpus: self.cpus, mem_mb: self.mem_mb, ..self.gpu_share.of(self.gpus) };
        let model = self.gpu_model.as_deref();
        let gpu = GpuWant { count: self.gpus, share: self.gpu_share, model, among: None };
        Want { tres, gpu, named_cpus: &self.named_cpus, place: self.place.clone() }
    }

    pub(crate) fn needs_cpus(&self) -> u32 {
        self.cpus
    }

    fn names_cpus(&self) -> bool {
        !self.named_cpus.is_empty()
    }

    fn is_limited(&self) -> bool {
        !self.place.limits.is_empty()
    }
}

/// Records that limits treat alike: they wait in the same place and, if the place has limits, need
/// the same resources.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    pub place: CpuSharing,
    /// The CPUs, memory and GPUs of each record if the place has limits, otherwise 0.
    amounts: (u32, u64, u32),
}

impl Lane {
    fn of(shape: &Shape) -> Self {
        let Tres { cpus, mem_mb, gpus, .. } = shape.want().tres;
        let amounts = if shape.is_limited() { (cpus, mem_mb, gpus) } else { (0, 0, 0) };
        Lane { place: shape.place.clone(), amounts }
    }

    /// Returns the resources of each record that limits count.
    pub fn tres(&self) -> Tres {
        let (cpus, mem_mb, gpus) = self.amounts;
        Tres { cpus, mem_mb, gpus, ..Tres::ZERO }
    }
}

/// The place of a record in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub key: QueueKey,
    /// Shared by all equal records.
    pub shape: Arc<Shape>,
}

/// The records that wait only for resources, in order: all of them, and those of each shape. A
/// record that may run in several partitions has one entry for each.
///
/// This lets a round consider each shape that does not fit once, regardless of the number of its
/// jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queue {
    keys: BTreeSet<QueueKey>,
    lanes: BTreeMap<Lane, BTreeSet<QueueKey>>,
    shapes: BTreeMap<Arc<Shape>, BTreeSet<QueueKey>>,
    /// The number of shapes that name CPUs.
    naming: usize,
    /// The number of shapes that count towards limits.
    limited: usize,
    arrivals: u64,
}

impl Queue {
    /// Returns the shared copy of a shape if a waiting record already has it.
    pub fn known(&self, shape: Shape) -> Arc<Shape> {
        self.shapes
            .get_key_value(&shape)
            .map_or_else(|| Arc::new(shape), |(known, _)| Arc::clone(known))
    }

    /// Adds a record to a line in which it was not.
    pub fn insert(&mut self, place: &Place) {
        self.enter(place);
        self.arrivals += 1;
    }

    /// Replaces the places of a record.
    pub fn replace(&mut self, old: &[Place], new: &[Place]) {
        old.iter().for_each(|place| self.remove(place));
        for place in new {
            let is_known = old.iter().any(|old| old.key.choice == place.key.choice);
            if is_known { self.enter(place) } else { self.insert(place) }
        }
    }

    /// Requests another round, because a job in the queue may be able to start now.
    pub(crate) fn request_round(&mut self) {
        self.arrivals += 1;
    }

    fn enter(&mut self, Place { key, shape }: &Place) {
        self.keys.insert(*key);
        self.lanes.entry(Lane::of(shape)).or_default().insert(*key);
        match self.shapes.get_mut(shape) {
            Some(line) => line.insert(*key),
            None => {
                self.naming += usize::from(shape.names_cpus());
                self.limited += usize::from(shape.is_limited());
                self.shapes.entry(Arc::clone(shape)).or_default().insert(*key)
            }
        };
    }

    /// Returns the number of new entries and of requests for another round. If it changes, the
    /// round has to be repeated.
    pub(crate) fn arrivals(&self) -> u64 {
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
                self.limited -= usize::from(shape.is_limited());
                self.shapes.remove(shape);
            }
        }
    }

    /// Returns whether any record waits for CPUs by number.
    pub(crate) fn names_cpus(&self) -> bool {
        self.naming > 0
    }

    /// Returns whether a start may unblock a job considered earlier in the round. The CPUs that the
    /// started job got may show that the earlier one delays nobody, and a job at its limit no
    /// longer holds a reservation.
    pub(crate) fn start_may_unblock(&self, capacity: &Capacity) -> bool {
        capacity.lines() > 1 || self.limited > 0
    }

    pub fn first(&self) -> Option<QueueKey> {
        self.keys.first().copied()
    }

    /// Returns the first record of the matching lanes.
    pub fn first_of(&self, is_meant: impl Fn(&Lane) -> bool) -> Option<QueueKey> {
        let own = self.lanes.iter().filter(|(lane, _)| is_meant(lane));
        own.filter_map(|(_, keys)| keys.first().copied()).min()
    }

    pub fn contains(&self, key: &QueueKey) -> bool {
        self.keys.contains(key)
    }

    /// Returns the next record after `key`.
    pub fn after(&self, key: QueueKey) -> Option<QueueKey> {
        next_in(&self.keys, key)
    }

    /// Returns the next record of this shape after `key`.
    pub(crate) fn after_of(&self, shape: &Shape, key: QueueKey) -> Option<QueueKey> {
        next_in(self.shapes.get(shape)?, key)
    }

    /// Returns all records of this shape, in order.
    pub(crate) fn all_of(&self, shape: &Shape) -> impl Iterator<Item = QueueKey> {
        self.shapes.get(shape).into_iter().flatten().copied()
    }

    /// Returns the shapes, those that need the fewest CPUs first.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = &Arc<Shape>> {
        self.shapes.keys()
    }

    /// Returns all records in order.
    pub fn iter(&self) -> impl Iterator<Item = QueueKey> + '_ {
        self.keys.iter().copied()
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Fails if the indexes do not match the places of the records.
    #[cfg(any(test, feature = "test-support"))]
    pub fn check<'a>(&self, places: impl Iterator<Item = &'a Place>) -> Result<(), String> {
        let mut anew = Queue { arrivals: self.arrivals, ..Queue::default() };
        places.for_each(|place| anew.enter(place));
        if anew == *self {
            Ok(())
        } else {
            Err(format!("the queue is {self:?}, but should be {anew:?}"))
        }
    }
}

fn next_in(line: &BTreeSet<QueueKey>, key: QueueKey) -> Option<QueueKey> {
    line.range((Bound::Excluded(key), Bound::Unbounded)).next().copied()
}
