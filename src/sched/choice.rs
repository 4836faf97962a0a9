//! The partitions and reservations that a job may use, and the job as it would run in each.
//!
//! A pending job that names several waits in the line of each, and starts in the first one that
//! lets it.

use super::line::queue::Shape;
use super::resources::capacity::{CpuSharing, Want};
use super::sizes::size;
use super::types::Config;
use slotd_model::qos::Qos;
use slotd_model::reservation::{self, Reservation};
use slotd_model::{Job, Partition, Tres};

/// A job in one of its partitions and reservations.
#[derive(Debug, Clone)]
pub struct Choice<'a> {
    pub job: &'a Job,
    /// The index of the choice.
    pub at: u16,
    name: &'a str,
    /// `None` if the partition no longer exists.
    pub partition: Option<&'a Partition>,
    /// The resources that the job takes there.
    pub tres: Tres,
    /// The time limit there.
    pub limit_secs: Option<u64>,
    /// `None` if the QOS no longer exists.
    pub qos: Option<&'a Qos>,
    /// The reservation, if the job names any; `Some(None)` if it no longer exists.
    pub reservation: Option<Option<&'a Reservation>>,
    place: CpuSharing,
}

impl<'a> Choice<'a> {
    /// Returns all choices of a job: each of its reservations with each of its partitions, in the
    /// order in which it names them. A running job has one.
    pub fn all(job: &'a Job, config: &'a Config) -> impl Iterator<Item = Choice<'a>> {
        let named = reservation::names(&job.request).map(Some);
        let none = job.request.reservation.is_none().then_some(None);
        let in_reservations = named.chain(none).enumerate();
        let count = if job.has_several_partitions() { job.partitions().count() } else { 1 };
        in_reservations.flat_map(move |(number, reservation)| {
            let first = number * count;
            Choice::of_reservation(job, reservation, config)
                .map(move |choice| Choice { at: (first + usize::from(choice.at)) as u16, ..choice })
        })
    }

    /// Returns the choices in one reservation.
    fn of_reservation(
        job: &'a Job,
        reservation: Option<&'a str>,
        config: &'a Config,
    ) -> impl Iterator<Item = Choice<'a>> {
        let is_settled = !job.has_several_partitions();
        let qos = config.qos_of(&job.request);
        let reserved = reservation.map(|name| config.reservation(name));
        job.partitions().zip(0..).map(move |(name, at)| {
            let mut place = CpuSharing::of(&job.request, name, config);
            let number = reserved.flatten().map(|reservation| reservation.number);
            if place.limits.reservation() != number {
                place.limits = place.limits.in_reservation(number);
            }
            let partition = place.partition.and_then(|at| config.partitions.get(at));
            let (tres, limit_secs) = match partition.filter(|_| !is_settled) {
                Some(partition) => (
                    size(&job.request, partition, config),
                    config.limit_for(&job.request, partition),
                ),
                None => (job.tres, job.request.time_limit_secs),
            };
            let (name, reservation) = (name, reserved);
            Choice { job, at, name, partition, tres, limit_secs, qos, reservation, place }
        })
    }

    /// Returns the name of the partition, as the job gives it.
    pub fn name(&self) -> &'a str {
        self.name
    }

    pub fn want(&self) -> Want<'a> {
        Want::sized(&self.job.request, self.tres, self.place.clone())
    }

    pub fn shape(&self) -> Shape {
        Shape::of(&self.want(), self.limit_secs)
    }
}
