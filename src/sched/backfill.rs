//! EASY backfill: the first blocked job holds a reservation, and later ones may only pass it if they do not delay it.
//!
//! The reservation: running jobs are assumed to end at their time limits, in that order, and those without a limit
//! after all others, the oldest first. The job is expected to start when enough of them have ended; what is then
//! left over is spare. A later job may start if it ends, by its own limit, before that moment, or if it takes no more
//! than what is spare. So whatever starts, the jobs that the blocked one waits for stay the same, and it starts no
//! later than reserved.
//!
//! One [`Round`] serves the plan itself and the forecast for `squeue --start`: they can't disagree.

use super::room::{Room, Want};
use crate::model::partition::Host;
use crate::model::{Timestamp, Tres};

/// A running job, as far as others wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// By its time limit; `None` has none.
    pub end: Option<Timestamp>,
    /// Who started before whom, also within one moment.
    pub order: u64,
    pub tres: Tres,
    pub gpus: Vec<u32>,
    pub exclusive: bool,
}

/// What is kept for the first blocked job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// When it starts at the latest; `None`: it waits for a job without a time limit.
    pub at: Option<Timestamp>,
    /// What others may use beyond that moment.
    spare: Tres,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    Start,
    /// It does not fit, or would delay the first blocked job.
    Wait,
}

/// One pass over the queue at one moment.
#[derive(Debug)]
pub struct Round<'h> {
    host: &'h Host,
    now: Timestamp,
    reservation: Option<Reservation>,
}

impl<'h> Round<'h> {
    pub fn new(host: &'h Host, now: Timestamp) -> Self {
        Round { host, now, reservation: None }
    }

    /// Whether a job was found blocked: what is considered from now on stands behind it.
    pub fn is_blocked(&self) -> bool {
        self.reservation.is_some()
    }

    /// What this round keeps for the first job that it found blocked.
    #[cfg(test)]
    pub fn reservation(&self) -> Option<Reservation> {
        self.reservation
    }

    /// Whether the next job of the queue may start in `room`. `running` is asked for once, when the first job is found
    /// blocked; it must include what this round has started.
    pub fn consider(
        &mut self,
        want: &Want,
        limit_secs: Option<u64>,
        room: &Room,
        running: impl FnOnce() -> Vec<Running>,
    ) -> Verdict {
        let fits = room.fits(want, self.host);
        let Some(reservation) = &mut self.reservation else {
            if fits {
                return Verdict::Start;
            }
            self.reservation = Some(reserve(want, room.clone(), running(), self.host));
            return Verdict::Wait;
        };
        if !fits {
            return Verdict::Wait;
        }
        let ends_before = match (limit_secs, reservation.at) {
            (Some(limit), Some(at)) => self.now.plus_secs(limit) <= at,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if ends_before {
            return Verdict::Start;
        }
        let taken = want.taken(self.host);
        if !want.exclusive && reservation.spare.fits(&taken) {
            reservation.spare = reservation.spare.minus(&taken);
            return Verdict::Start;
        }
        Verdict::Wait
    }
}

/// The reservation of a job that does not fit into `room`.
fn reserve(want: &Want, mut room: Room, mut running: Vec<Running>, host: &Host) -> Reservation {
    running.sort_by_key(|r| (r.end.is_none(), r.end, r.order));
    let mut at = None;
    let mut ends = running.into_iter().peekable();
    while let Some(r) = ends.next() {
        room.give(&r.tres, &r.gpus, r.exclusive);
        at = r.end;
        // Jobs that end together are all gone at that moment.
        if r.end.is_some() && ends.peek().is_some_and(|next| next.end == r.end) {
            continue;
        }
        if room.fits(want, host) {
            break;
        }
    }
    // A job that fits not even then waits for the host to change: nothing is spare, and its start is unknown.
    let spare = match (room.fits(want, host), want.exclusive) {
        (true, false) => left_over(want, &room, host),
        (true, true) => Tres::ZERO,
        (false, _) => {
            return Reservation { at: None, spare: Tres::ZERO };
        }
    };
    Reservation { at, spare }
}

fn left_over(want: &Want, room: &Room, host: &Host) -> Tres {
    // With GPUs of several models, which ones a later job would take is not settled by their number.
    let is_mixed = host.gpus.windows(2).any(|pair| pair[0].model != pair[1].model);
    let gpus = if is_mixed && want.tres.gpus > 0 { 0 } else { (room.gpus.len() as u32).saturating_sub(want.tres.gpus) };
    Tres { cpus: room.cpus.saturating_sub(want.tres.cpus), mem_mb: room.mem_mb.saturating_sub(want.tres.mem_mb), gpus }
}
