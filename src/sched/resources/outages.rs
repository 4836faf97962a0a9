//! Parts of the host that no job gets: drained by the owner, or missing.

use super::Resources;
use slotd_model::gpu::Gpu;
use slotd_model::node::{NodeParts, ranges};
use slotd_model::partition::Host;
use slotd_model::{JobId, Refusal, Timestamp};

impl Resources {
    /// Fails if `parts` includes parts that the host does not have.
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

    /// Returns the parts that no job gets: those that are drained, and those that are missing.
    pub(crate) fn all_out(&self) -> NodeParts {
        let Host { lost_cpus, drained, .. } = self.host();
        let mut out = drained.clone();
        out.gpus.extend(missing_gpus(self.host()).map(|gpu| gpu.id));
        out.cpus.extend(lost_cpus.iter().map(|place| place.cpu));
        out
    }

    /// Returns the parts out of use that a job holds.
    pub fn parts_out(&self, id: JobId) -> NodeParts {
        let held = self.ledger.held(id);
        held.map_or_else(NodeParts::default, |held| held.alloc.parts().within(&self.all_out()))
    }

    /// Returns the number of drained CPUs that no job holds.
    pub fn closed_cpus(&self) -> u32 {
        self.ledger.capacity().closed_cpus()
    }

    /// Records missing hardware.
    pub(crate) fn note_losses(&mut self, now: Timestamp) {
        self.node.set_losses(losses(&self.config.host), now);
    }

    /// Records that running jobs are notified of the parts out of use now. Returns the previously
    /// announced parts and the current ones.
    pub(crate) fn announce_outages(&mut self) -> (NodeParts, NodeParts) {
        let out = self.all_out();
        (self.node.announce(out.clone()), out)
    }
}

/// Returns the GPUs that are missing. Until the detection has ended, none are.
fn missing_gpus(host: &Host) -> impl Iterator<Item = &Gpu> {
    host.lost_gpus.iter().filter(|_| !host.detects_gpus)
}

/// Describes missing hardware.
fn losses(host: &Host) -> Vec<String> {
    let gpu = |gpu: &Gpu| match &gpu.uuid {
        Some(uuid) => format!("GPU {} ({uuid})", gpu.id),
        None => format!("GPU {}", gpu.id),
    };
    let gpus: Vec<String> = missing_gpus(host).map(gpu).collect();
    let cpus: Vec<u32> = host.lost_cpus.iter().map(|place| place.cpu).collect();
    let gpus = (!gpus.is_empty()).then(|| format!("{}: no longer found", gpus.join(", ")));
    let cpus = (!cpus.is_empty()).then(|| format!("CPU {}: offline", ranges(&cpus)));
    let memory =
        (host.lost_mem_mb > 0).then(|| format!("{} MB of memory: missing", host.lost_mem_mb));
    [gpus, cpus, memory].into_iter().flatten().collect()
}
