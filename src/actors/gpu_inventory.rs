//! GpuInventoryActor: the GPUs of the host and their usage.
//!
//! Owns the detection method and the GPU numbers. Answers [`ProbeGpus`], which it receives at
//! startup and on SIGHUP. Sends [`GpusRead`] in response to [`ReadGpus`]. Sends [`GpusChanged`]
//! whenever the set of GPUs differs from the last one. It never probes on its own. If it dies, the
//! last known inventory stays in use.

use crate::actors::messages::{GpusChanged, GpusRead, ProbeGpus, ReadGpus};
use actix::prelude::*;
use slotd_model::gpu::{Gpu, GpuReading, keep_numbers};
use slotd_model::unread::Unread;
use slotd_sys::aside;
use slotd_sys::gpus::{Depth, Places, Seen};

/// The recipients of its facts.
pub struct GpuOutputs {
    pub changed: Recipient<GpusChanged>,
    pub read: Recipient<GpusRead>,
}

pub struct GpuInventoryActor {
    places: Places,
    known: Vec<Gpu>,
    /// GPUs that were present once and are missing now.
    lost: Vec<Gpu>,
    outputs: Option<GpuOutputs>,
    /// The first detection has finished, successfully or not.
    has_looked: bool,
    is_reading: bool,
}

impl GpuInventoryActor {
    /// `kept` are the GPUs that the previous daemon knew. Each counts as lost until it is detected.
    pub fn new(places: Places, kept: Vec<Gpu>) -> Self {
        GpuInventoryActor {
            places,
            known: Vec::new(),
            lost: kept,
            outputs: None,
            has_looked: false,
            is_reading: false,
        }
    }

    /// Replaces the inventory with the GPUs just detected.
    fn note(&mut self, seen: &[Seen]) {
        let known: Vec<Gpu> = self.known.iter().chain(&self.lost).cloned().collect();
        let found = keep_numbers(&known, seen.iter().map(|one| one.gpu.clone()).collect());
        let mut lost: Vec<Gpu> =
            known.into_iter().filter(|gpu| found.iter().all(|found| found.id != gpu.id)).collect();
        lost.sort_by_key(|gpu| gpu.id);
        if found == self.known && lost == self.lost {
            return self.end_detection();
        }
        self.has_looked = true;
        log_lost(lost.iter().filter(|gpu| !self.lost.contains(gpu)));
        (self.known, self.lost) = (found, lost);
        let (places, all) =
            (self.places.clone(), self.known.iter().chain(&self.lost).cloned().collect());
        // In the background: the disk may be slow.
        actix::spawn(aside::run("storing the GPU numbers", aside::PATIENCE, move || {
            places.keep(all)
        }));
        self.publish();
    }

    /// Completes the first detection. Reports it even if it found no GPUs, since other actors wait
    /// for the report.
    fn end_detection(&mut self) {
        if !std::mem::replace(&mut self.has_looked, true) {
            log_lost(self.lost.iter());
            self.publish();
        }
    }

    fn publish(&self) {
        if let Some(outputs) = &self.outputs {
            outputs
                .changed
                .do_send(GpusChanged { gpus: self.known.clone(), lost: self.lost.clone() });
        }
    }
}

fn log_lost<'a>(gpus: impl Iterator<Item = &'a Gpu>) {
    for gpu in gpus {
        log::error!(
            "GPU {} ({}) has disappeared",
            gpu.id,
            gpu.uuid.as_deref().unwrap_or("without a UUID")
        );
    }
}

impl Actor for GpuInventoryActor {
    type Context = Context<Self>;
}

/// Sets the recipients of its facts.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ReportTo(pub GpuOutputs);

impl Handler<ReportTo> for GpuInventoryActor {
    type Result = ();

    fn handle(&mut self, ReportTo(outputs): ReportTo, _: &mut Self::Context) {
        self.outputs = Some(outputs);
        // The answer to the first probe lists present GPUs only. GPUs that disappeared while no
        // daemon was running are reported here.
        if self.has_looked && !self.lost.is_empty() {
            log_lost(self.lost.iter());
            self.publish();
        }
    }
}

impl Handler<ProbeGpus> for GpuInventoryActor {
    type Result = ResponseActFuture<Self, Vec<Gpu>>;

    fn handle(&mut self, _: ProbeGpus, _: &mut Self::Context) -> Self::Result {
        let places = self.places.clone();
        let look = async move { places.look(Depth::Inventory).await };
        Box::pin(look.into_actor(self).map(|seen, actor, _| {
            match seen {
                Ok(seen) => actor.note(&seen),
                // One failed query does not mean that the GPUs have disappeared.
                Err(e) => {
                    log::warn!("cannot detect GPUs: {e}");
                    actor.end_detection();
                }
            }
            actor.known.clone()
        }))
    }
}

impl Handler<ReadGpus> for GpuInventoryActor {
    type Result = ();

    fn handle(&mut self, _: ReadGpus, ctx: &mut Self::Context) {
        // A request during a reading gets the result of that reading.
        if std::mem::replace(&mut self.is_reading, true) {
            return;
        }
        let places = self.places.clone();
        let look = async move { places.look(Depth::Use).await.map_err(Unread::gpus) };
        ctx.spawn(look.into_actor(self).then(|seen, actor, _| {
            if let Ok(seen) = &seen {
                actor.note(seen);
            }
            let (places, known) = (actor.places.clone(), actor.known.clone());
            let read = async move {
                match seen {
                    Ok(seen) => Ok(places.readings(seen, &known).await),
                    Err(e) => Err(e),
                }
            };
            read.into_actor(actor).map(|read: Result<Vec<GpuReading>, Unread>, actor, _| {
                actor.is_reading = false;
                if let Some(outputs) = &actor.outputs {
                    outputs.read.do_send(GpusRead(read));
                }
            })
        }));
    }
}

/// A host without GPUs, where nothing is ever read.
#[cfg(test)]
pub struct NoGpus;

#[cfg(test)]
impl Actor for NoGpus {
    type Context = Context<Self>;
}

#[cfg(test)]
impl Handler<ReadGpus> for NoGpus {
    type Result = ();

    fn handle(&mut self, _: ReadGpus, _: &mut Self::Context) {}
}
