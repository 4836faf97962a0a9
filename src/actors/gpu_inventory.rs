//! GpuInventoryActor: which GPUs the host has.
//!
//! Owns the way they are found: `SLOTD_GPU_COUNT`, else `nvidia-smi`. Receives
//! [`ProbeGpus`] (at the start of the daemon and on SIGHUP), answers it, and sends [`GpusChanged`] where the answer
//! differs from the one before. It never polls. If it dies, the last known inventory stays in force.

use crate::actors::messages::{GpusChanged, ProbeGpus};
use crate::model::gpu::Gpu;
use crate::sys::gpus;
use actix::prelude::*;
use std::time::Duration;

/// How long one `nvidia-smi` may take: with a driver that has to wake up it needs a few seconds.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

pub struct GpuInventoryActor {
    count: Option<u32>,
    known: Vec<Gpu>,
    outputs: Option<Recipient<GpusChanged>>,
}

impl GpuInventoryActor {
    pub fn new(count: Option<u32>) -> Self {
        GpuInventoryActor { count, known: Vec::new(), outputs: None }
    }
}

impl Actor for GpuInventoryActor {
    type Context = Context<Self>;
}

/// From now on changes go there.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ReportTo(pub Recipient<GpusChanged>);

impl Handler<ReportTo> for GpuInventoryActor {
    type Result = ();

    fn handle(&mut self, ReportTo(recipient): ReportTo, _: &mut Self::Context) {
        self.outputs = Some(recipient);
    }
}

impl Handler<ProbeGpus> for GpuInventoryActor {
    type Result = ResponseActFuture<Self, Vec<Gpu>>;

    fn handle(&mut self, _: ProbeGpus, _: &mut Self::Context) -> Self::Result {
        let count = self.count;
        // A driver that does not answer once has not taken the GPUs away.
        let known = self.known.clone();
        let probe = async move {
            match count {
                Some(n) => gpus::counted(n),
                None => gpus::probe(PROBE_TIMEOUT).await.unwrap_or_else(|e| {
                    log::warn!("GPUs could not be looked for: {e}");
                    known
                }),
            }
        };
        Box::pin(probe.into_actor(self).map(|found: Vec<Gpu>, actor, _| {
            if found != actor.known {
                actor.known = found.clone();
                if let Some(scheduler) = &actor.outputs {
                    scheduler.do_send(GpusChanged(found.clone()));
                }
            }
            found
        }))
    }
}
