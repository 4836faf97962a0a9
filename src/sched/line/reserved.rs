//! The owner's reservations: the resources that other jobs may use beside them.
//!
//! At the start of each reservation, and now if it has begun, the reserved resources must be free
//! or held by its own jobs. So a job may start if it ends by its own limit before that moment, or
//! takes only what is then spare: what is left after the running jobs that end by then are gone,
//! less the reserved resources that the reservation's own jobs do not hold yet. Only a time limit
//! counts as an end here, never an estimate.
//!
//! The jobs of a reservation pass its own part, but not that of others. As in Slurm, those of one
//! with MAINT pass all others, and those of one with OVERLAP all but those with MAINT.

use super::backfill::Running;
use super::run_times::ExpectedEnd;
use crate::recurrence;
use crate::resources::capacity::{Capacity, CpuSharing, Part, Want};
use crate::resources::gpu_pool::GpuWant;
use crate::resources::limits::LimitSet;
use crate::types::Config;
use slotd_model::partition::Host;
use slotd_model::reservation::{Reservation, Share};
use slotd_model::{JobId, Timestamp, Tres};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The spare resources at the start of a reservation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Moment {
    at: Timestamp,
    /// The reservations at that moment, by number.
    kept: Vec<(u32, Kept)>,
    /// Which reservations pass which others: the numbers of both.
    passes: BTreeSet<(u32, u32)>,
    /// The resources left beside them.
    spare: Capacity,
    /// The running jobs that end by then.
    gone: BTreeSet<JobId>,
}

/// The resources that a reservation keeps from other jobs.
#[derive(Debug, Clone, PartialEq)]
enum Kept {
    /// Everything: the whole node, or more than is left.
    All,
    Part(Part),
}

impl Moment {
    /// A moment without reservations of the owner, with these spare resources and ended jobs.
    pub(crate) fn alone(at: Timestamp, spare: Capacity, gone: BTreeSet<JobId>) -> Moment {
        Moment { at, kept: Vec::new(), passes: BTreeSet::new(), spare, gone }
    }

    /// Notes that what the reservations keep at `present` from the jobs of `own` is missing in the
    /// spare resources. Their own jobs may use it.
    pub(crate) fn keep_as(&mut self, present: &Moment, own: Option<u32>) {
        let is_kept = |(number, _): &&(u32, Kept)| !present.is_open_to(own, *number);
        self.kept = present.kept.iter().filter(is_kept).cloned().collect();
        self.passes = present.passes.clone();
    }

    pub(crate) fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns whether a job of one reservation may use what the other one keeps.
    fn is_open_to(&self, own: Option<u32>, other: u32) -> bool {
        own.is_some_and(|own| own == other || self.passes.contains(&(own, other)))
    }

    /// Returns what a job of this reservation may use; `None` for nothing.
    pub(crate) fn spare_for(&self, own: Option<u32>) -> Option<Cow<'_, Capacity>> {
        let mut spare = Cow::Borrowed(&self.spare);
        for (number, kept) in &self.kept {
            match (kept, self.is_open_to(own, *number)) {
                (Kept::All, false) => return None,
                (Kept::Part(part), true) => spare.to_mut().give(part),
                (Kept::All, true) | (Kept::Part(_), false) => {}
            }
        }
        Some(spare)
    }

    /// Notes that what these jobs held is spare.
    pub(crate) fn note_gone(&mut self, jobs: Vec<JobId>) {
        self.gone.extend(jobs);
    }

    /// Returns what is left beside the reservations.
    pub(crate) fn spare(&self) -> &Capacity {
        &self.spare
    }

    /// Returns whether a running job has ended by this moment.
    pub(crate) fn is_gone(&self, job: JobId) -> bool {
        self.gone.contains(&job)
    }

    /// Notes that a job starts which still runs at this moment.
    pub(crate) fn take(&mut self, started: &Part, host: &Host) {
        let own = started.place.limits.reservation();
        let all = std::mem::take(&mut self.kept);
        let is_open = |(number, _): &(u32, Kept)| self.is_open_to(own, *number);
        let (open, mut kept): (Vec<_>, Vec<_>) = all.into_iter().partition(is_open);
        for part in open.iter().filter_map(|(_, kept)| kept.part()) {
            self.spare.give(part);
        }
        self.spare.take(started);
        // A reservation keeps less once its own job has started.
        for (number, old) in open {
            let new = match old.part() {
                Some(part) if Some(number) == own => {
                    let limits = part.place.limits.less(std::iter::once(&started.place.limits));
                    let place = CpuSharing { limits, ..part.place.clone() };
                    let left = less(&part.alloc.tres, &held_alone(started));
                    keep(&mut self.spare, None, left, place, host)
                }
                Some(part) => {
                    keep(&mut self.spare, None, part.alloc.tres, part.place.clone(), host)
                }
                None => Kept::All,
            };
            kept.push((number, new));
        }
        self.kept = kept;
    }
}

impl Kept {
    fn part(&self) -> Option<&Part> {
        match self {
            Kept::All => None,
            Kept::Part(part) => Some(part),
        }
    }
}

/// Takes what a reservation still needs.
fn keep(
    spare: &mut Capacity,
    beside: Option<&Capacity>,
    tres: Tres,
    place: CpuSharing,
    host: &Host,
) -> Kept {
    let gpu = GpuWant { count: tres.gpus, ..GpuWant::default() };
    let want = Want { tres, gpu, named_cpus: &[], place };
    let part = match beside {
        Some(beside) => spare.pick_beside(beside, &want, host),
        None => spare.pick(&want, host),
    };
    match part {
        Some(part) => {
            spare.take(&part);
            Kept::Part(part)
        }
        None => Kept::All,
    }
}

/// Returns what a job holds of its reservation. CPUs that it shares do not count, since jobs outside
/// the reservation may be on them, too.
fn held_alone(part: &Part) -> Tres {
    let cpus = if part.place.jobs_per_cpu > 1 { 0 } else { part.alloc.tres.cpus };
    Tres { cpus, ..part.alloc.tres }
}

fn less(all: &Tres, used: &Tres) -> Tres {
    Tres {
        cpus: all.cpus.saturating_sub(used.cpus),
        mem_mb: all.mem_mb.saturating_sub(used.mem_mb),
        gpus: all.gpus.saturating_sub(used.gpus),
        ..Tres::ZERO
    }
}

/// Returns what the reservations leave at each of their starts.
pub(crate) fn moments(
    config: &Config,
    now: Timestamp,
    capacity: &Capacity,
    running: impl FnOnce() -> Vec<Running>,
) -> Vec<Moment> {
    let periods: Vec<Reservation> = config
        .reservations
        .iter()
        .filter_map(|reservation| recurrence::from(reservation, now, &config.zone))
        .collect();
    if periods.is_empty() {
        return Vec::new();
    }
    let running = running();
    let passes = passes(&periods);
    starts(&periods, now, config)
        .into_iter()
        .map(|at| {
            let there = periods.iter().filter_map(|reservation| {
                recurrence::from(reservation, at, &config.zone).filter(|there| there.start <= at)
            });
            let (kept, spare) = keep_all(at, there, capacity, &running, config);
            let gone = running.iter().filter(|one| ends_by_limit(one, at)).map(|one| one.id);
            Moment { at, kept, passes: passes.clone(), spare, gone: gone.collect() }
        })
        .collect()
}

/// Returns the moments at which a reservation begins, or has begun by now.
fn starts(periods: &[Reservation], now: Timestamp, config: &Config) -> BTreeSet<Timestamp> {
    let own = periods.iter().map(|reservation| reservation.start.max(now));
    // A later repetition may begin during another reservation.
    let within = periods.iter().flat_map(|other| {
        periods.iter().filter(|reservation| reservation.repeat().is_some()).filter_map(
            move |reservation| {
                let next = recurrence::from(reservation, other.start, &config.zone)?;
                let is_within = next.start > other.start && !other.is_over(next.start);
                is_within.then_some(next.start.max(now))
            },
        )
    });
    own.chain(within).collect()
}

/// Returns the numbers of reservations, each with that of another one that it passes.
fn passes(all: &[Reservation]) -> BTreeSet<(u32, u32)> {
    let of = |one: &Reservation, other: &Reservation| {
        (one.number != other.number && one.passes(other)).then_some((one.number, other.number))
    };
    all.iter().flat_map(|one| all.iter().filter_map(move |other| of(one, other))).collect()
}

/// Returns whether a running job ends by this time, by its own limit.
fn ends_by_limit(running: &Running, at: Timestamp) -> bool {
    matches!(running.end, ExpectedEnd::ByLimit(end) if end <= at)
}

/// Returns what these reservations keep at a moment, and what they leave.
fn keep_all(
    at: Timestamp,
    there: impl Iterator<Item = Reservation>,
    capacity: &Capacity,
    running: &[Running],
    config: &Config,
) -> (Vec<(u32, Kept)>, Capacity) {
    let mut spare = capacity.clone();
    let (gone, left): (Vec<&Running>, Vec<&Running>) =
        running.iter().partition(|one| ends_by_limit(one, at));
    gone.iter().for_each(|running| spare.give(&running.part));
    let mut kept = Vec::new();
    for reservation in there {
        let number = reservation.number;
        let own = left
            .iter()
            .map(|running| &running.part)
            .filter(|part| part.place.limits.reservation() == Some(number));
        let licenses = reservation.licenses.as_deref().unwrap_or_default();
        let limits = LimitSet::of_licenses(licenses, &config.licenses)
            .less(own.clone().map(|part| &part.place.limits));
        let used = own.fold(Tres::ZERO, |used, part| used.plus(&held_alone(part)));
        let all = match reservation.share {
            Share::Node => {
                kept.push((number, Kept::All));
                continue;
            }
            Share::Parts(amounts) => amounts.tres(),
            Share::Licenses => Tres::ZERO,
        };
        let place = CpuSharing {
            partition: config.partition_index(reservation.partition.as_deref()),
            jobs_per_cpu: 1,
            exclusive: false,
            mem_per_cpu_mb: 0,
            limits,
        };
        let part = keep(&mut spare, Some(capacity), less(&all, &used), place, &config.host);
        kept.push((number, part));
    }
    (kept, spare)
}

/// Returns the CPUs that a reservation keeps free now.
pub(crate) fn kept_cpus(moments: &[Moment], now: Timestamp, number: u32) -> Vec<u32> {
    let present = moments.iter().filter(|moment| moment.at == now);
    let kept = present.flat_map(|moment| &moment.kept).filter(|(own, _)| *own == number);
    let parts = kept.filter_map(|(_, kept)| kept.part());
    parts.flat_map(|part| part.alloc.cpu_ids.iter().copied()).collect()
}
