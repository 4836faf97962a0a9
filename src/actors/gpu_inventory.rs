//! GpuInventoryActor: which GPUs the host has, and how they are used.
//!
//! Owns the way they are found, and their numbers. Receives [`ProbeGpus`] (at the start of the
//! daemon and on SIGHUP), which it answers, and [`ReadGpus`]; sends [`GpusRead`] for the second,
//! and [`GpusChanged`] whenever it sees others than before. It never looks on its own. If it dies,
//! the last known inventory stays in force.

use crate::actors::messages::{GpusChanged, GpusRead, ProbeGpus, ReadGpus};
use crate::model::gpu::{Gpu, GpuReading, keep_numbers};
use crate::sys::aside;
use crate::sys::gpus::{Depth, Places, Seen};
use actix::prelude::*;

/// Where its facts go.
pub struct GpuOutputs {
    pub changed: Recipient<GpusChanged>,
    pub read: Recipient<GpusRead>,
}

pub struct GpuInventoryActor {
    places: Places,
    known: Vec<Gpu>,
    /// Those that were known and are not there.
    lost: Vec<Gpu>,
    outputs: Option<GpuOutputs>,
    /// The first look has ended, well or not.
    has_looked: bool,
    is_reading: bool,
}

impl GpuInventoryActor {
    /// `kept` are those of the daemon before: each is lost until it is seen.
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

    /// What was seen is what there is now.
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
        // Nobody waits for the disk.
        actix::spawn(aside::run("writing the numbers of the GPUs", aside::PATIENCE, move || {
            places.keep(all)
        }));
        self.tell_changed();
    }

    /// Those who wait for the first look learn of its end, even if it has found nothing.
    fn end_detection(&mut self) {
        if !std::mem::replace(&mut self.has_looked, true) {
            log_lost(self.lost.iter());
            self.tell_changed();
        }
    }

    fn tell_changed(&self) {
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
            "GPU {} ({}) is not there any more",
            gpu.id,
            gpu.uuid.as_deref().unwrap_or("without a UUID")
        );
    }
}

impl Actor for GpuInventoryActor {
    type Context = Context<Self>;
}

/// From now on its facts go there.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ReportTo(pub GpuOutputs);

impl Handler<ReportTo> for GpuInventoryActor {
    type Result = ();

    fn handle(&mut self, ReportTo(outputs): ReportTo, _: &mut Self::Context) {
        self.outputs = Some(outputs);
        // The first answer tells what there is; what went while no daemon ran comes here.
        if self.has_looked && !self.lost.is_empty() {
            log_lost(self.lost.iter());
            self.tell_changed();
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
                // A driver that does not answer once has not taken the GPUs away.
                Err(e) => {
                    log::warn!("GPUs could not be looked for: {e}");
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
        // Whoever asks meanwhile has the same answer.
        if std::mem::replace(&mut self.is_reading, true) {
            return;
        }
        let places = self.places.clone();
        let look = async move { places.look(Depth::Use).await.map_err(|e| e.to_string()) };
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
            read.into_actor(actor).map(|read: Result<Vec<GpuReading>, String>, actor, _| {
                actor.is_reading = false;
                if let Some(outputs) = &actor.outputs {
                    outputs.read.do_send(GpusRead(read));
                }
            })
        }));
    }
}

/// Of a host without GPUs: nothing is ever read.
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
