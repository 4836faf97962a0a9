//! Parts of the host that no job gets: what its owner takes out of use, and what is not there any
//! more.

use super::Resources;
use crate::model::gpu::Gpu;
use crate::model::node::{NodeParts, ranges};
use crate::model::partition::Host;
use crate::model::{JobId, Refusal, Timestamp};

impl Resources {
    /// Refuses to name parts that the host does not have.
    pub fn check_parts(&self, parts: &NodeParts) -> Result<(), Refusal> {
        let there = self.host().parts();
        let missing = parts.without(&there);
        if missing.is_empty() {
            return Ok(());
        }
        let there =
            if there.gpus.is_empty() { format!("{there} and no GPU") } else { there.to_string() };
        Err(Refusal::Configuration(format!("this host has no {missing}: it has {there}")))
    }

    /// The parts that no job gets: those that are out of use, and those that are not there any
    /// more.
    pub fn all_out(&self) -> NodeParts {
        let Host { lost_cpus, drained, .. } = self.host();
        let mut out = drained.clone();
        out.gpus.extend(missing_gpus(self.host()).map(|gpu| gpu.id));
        out.cpus.extend(lost_cpus.iter().map(|place| place.cpu));
        out
    }

    /// What a job has that is out of use.
    pub fn parts_out(&self, id: JobId) -> NodeParts {
        let held = self.ledger.held(id);
        held.map_or_else(NodeParts::default, |held| held.alloc.parts().within(&self.all_out()))
    }

    /// CPUs that no job has, and none gets.
    pub fn closed_cpus(&self) -> u32 {
        self.ledger.capacity().closed_cpus()
    }

    /// Notes what is not there any more.
    pub fn note_losses(&mut self, now: Timestamp) {
        self.node.set_losses(losses(&self.config.host), now);
    }

    /// Running jobs hear of what is out of use now; what they knew of.
    pub fn note_told_outages(&mut self) -> (NodeParts, NodeParts) {
        let out = self.all_out();
        (self.node.note_told(out.clone()), out)
    }
}

/// The GPUs that were there and are not. Until the detection has ended nobody knows of any.
fn missing_gpus(host: &Host) -> impl Iterator<Item = &Gpu> {
    host.lost_gpus.iter().filter(|_| !host.detects_gpus)
}

/// What was there and is not any more, in words.
fn losses(host: &Host) -> Vec<String> {
    let gpu = |gpu: &Gpu| match &gpu.uuid {
        Some(uuid) => format!("GPU {} ({uuid})", gpu.id),
        None => format!("GPU {}", gpu.id),
    };
    let gpus: Vec<String> = missing_gpus(host).map(gpu).collect();
    let cpus: Vec<u32> = host.lost_cpus.iter().map(|place| place.cpu).collect();
    let gpus = (!gpus.is_empty()).then(|| format!("{}: not found any more", gpus.join(", ")));
    let cpus = (!cpus.is_empty()).then(|| format!("CPU {}: offline", ranges(&cpus)));
    let memory = (host.lost_mem_mb > 0).then(|| format!("{} MB of memory: gone", host.lost_mem_mb));
    [gpus, cpus, memory].into_iter().flatten().collect()
}
