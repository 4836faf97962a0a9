//! The partitions that a job may use, and the job as it would run in each.
//!
//! A pending job that names several partitions waits in the line of each, and starts in the first
//! one that lets it.

use super::line::queue::Shape;
use super::resources::capacity::{CpuSharing, Want};
use super::sizes::size;
use super::types::Config;
use slotd_model::qos::Qos;
use slotd_model::{Job, Partition, Tres};

/// A job in one of its partitions.
#[derive(Debug, Clone)]
pub struct Choice<'a> {
    pub job: &'a Job,
    /// The index of the partition, among those that the job names.
    pub at: u16,
    /// `None` if the partition no longer exists.
    pub partition: Option<&'a Partition>,
    /// The resources that the job takes there.
    pub tres: Tres,
    /// The time limit there.
    pub limit_secs: Option<u64>,
    /// `None` if the QOS no longer exists.
    pub qos: Option<&'a Qos>,
    place: CpuSharing,
}

impl<'a> Choice<'a> {
    /// Returns all choices of a job, in the order in which it names its partitions. A running job
    /// has one.
    pub fn all(job: &'a Job, config: &'a Config) -> impl Iterator<Item = Choice<'a>> {
        let is_settled = !job.has_several_partitions();
        let qos = config.qos_of(&job.request);
        job.partitions().zip(0..).map(move |(name, at)| {
            let place = CpuSharing::of(&job.request, name, config);
            let partition = place.partition.and_then(|at| config.partitions.get(at));
            let (tres, limit_secs) = match partition.filter(|_| !is_settled) {
                Some(partition) => (
                    size(&job.request, partition, config),
                    config.limit_for(&job.request, partition),
                ),
                None => (job.tres, job.request.time_limit_secs),
            };
            Choice { job, at, partition, tres, limit_secs, qos, place }
        })
    }

    /// Returns the name of the partition, as the job gives it.
    pub fn name(&self) -> &'a str {
        self.job.partitions().nth(usize::from(self.at)).unwrap_or_default()
    }

    pub fn want(&self) -> Want<'a> {
        Want::sized(&self.job.request, self.tres, self.place.clone())
    }

    pub fn shape(&self) -> Shape {
        Shape::of(&self.want(), self.limit_secs)
    }
}
