//! Parts of the host that no job gets: what its owner takes out of use, and what is not there any more.

use super::core::Core;
use super::node::Trouble;
use super::types::{Cx, Effect};
use crate::model::gpu::Gpu;
use crate::model::node::{Drains, NodeParts, NodeReason, Outage, ranges};
use crate::model::partition::Host;
use crate::model::{JobId, JobState, Refusal, Timestamp};

impl Core {
    /// What the owner has taken out of use. Jobs that run go on, also on the parts that are.
    pub fn set_drains(&mut self, drains: Drains, now: Timestamp) {
        let drained = drains.all_parts();
        self.node.order = drains.node.map(by_owner);
        self.node.drained = drains.parts;
        if drained != self.config.host.drained {
            let host = Host { drained, ..self.config.host.clone() };
            self.set_host(host, self.config.all_partitions.clone(), now);
        }
    }

    /// Refuses to name parts that the host does not have.
    pub fn check_parts(&self, parts: &NodeParts) -> Result<(), Refusal> {
        let there = self.config.host.parts();
        let missing = parts.without(&there);
        if missing.is_empty() {
            return Ok(());
        }
        let there =
            if there.gpus.is_empty() { format!("{there} and no GPU") } else { there.to_string() };
        Err(Refusal::Configuration(format!("this host has no {missing}: it has {there}")))
    }

    /// What no job gets, and why. Where no parts are named the text names them.
    pub fn outages(&self) -> Vec<(NodeParts, Trouble)> {
        let owners = self.node.drained.iter().cloned();
        let owners = owners.map(|Outage { parts, reason }| (parts, by_owner(reason)));
        owners
            .chain(self.node.found.iter().cloned().map(|trouble| (NodeParts::default(), trouble)))
            .collect()
    }

    /// The parts that no job gets: those that are out of use, and those that are not there any more.
    fn all_out(&self) -> NodeParts {
        let Host { lost_gpus, lost_cpus, drained, .. } = &self.config.host;
        let mut out = drained.clone();
        out.gpus.extend(lost_gpus.iter().map(|gpu| gpu.id));
        out.cpus.extend(lost_cpus.iter().map(|place| place.cpu));
        out
    }

    /// What a job has that is out of use.
    pub fn parts_out(&self, id: JobId) -> NodeParts {
        let alloc = self.job(id).and_then(|job| job.run.alloc.as_ref());
        alloc.map_or_else(NodeParts::default, |alloc| alloc.parts().within(&self.all_out()))
    }

    /// Why parts of the host are out of use, in one text.
    pub fn why_out(&self) -> String {
        let told = |(parts, trouble): (NodeParts, Trouble)| match parts.is_empty() {
            true => trouble.text,
            false => format!("{parts}: {}", trouble.text),
        };
        self.outages().into_iter().map(told).collect::<Vec<_>>().join("; ")
    }

    /// The jobs on parts that have gone out of use since the last time hear of it: the manager of a job's steps, and where
    /// there is none, the job by the signal that it asked for.
    pub fn tell_outages(&mut self, cx: &mut Cx) {
        let out = self.all_out();
        let known = std::mem::replace(&mut self.node.told, out.clone());
        // What is back is used again.
        self.spares.values_mut().for_each(|spare| *spare = spare.within(&out));
        self.spares.retain(|_, spare| !spare.is_empty());
        let mut changed = Vec::new();
        for id in &self.active {
            let Some(job) = self.jobs.get(id).map(|record| &record.job) else { continue };
            let own = job.run.alloc.as_ref().map(|alloc| alloc.parts()).unwrap_or_default();
            let (before, now) = (own.within(&known), own.within(&out));
            if before == now {
                continue;
            }
            changed.push(*id);
            if self.is_managed(*id) {
                cx.out.effects.push(Effect::PartsOut(*id));
            } else if !now.without(&before).is_empty() && job.run.state == JobState::Running {
                cx.out.effects.extend(job.request.signal.map(|_| Effect::Warn(*id)));
            }
        }
        for id in changed {
            self.refuse_steps_too_large(id, cx);
            self.start_waiting_steps(id, cx);
        }
    }

    /// What is out of use already when the daemon starts was told by the one before.
    pub fn outages_are_known(&mut self) {
        self.node.told = self.all_out();
    }

    /// CPUs that no job has, and none gets.
    pub fn closed_cpus(&self) -> u32 {
        self.ledger.room().closed_cpus()
    }

    /// What is not there any more, in words.
    pub fn losses(&self) -> Vec<String> {
        self.node.found.iter().map(|trouble| trouble.text.clone()).collect()
    }

    /// Notes what is not there any more.
    pub(super) fn note_losses(&mut self, now: Timestamp) {
        let known = std::mem::take(&mut self.node.found);
        let since = |text: &str| {
            known.iter().find(|trouble| trouble.text == text).map_or(now, |trouble| trouble.since)
        };
        let losses = losses(&self.config.host).into_iter();
        self.node.found =
            losses.map(|text| Trouble { since: since(&text), text, by: None }).collect();
    }
}

fn by_owner(NodeReason { text, since, user, uid }: NodeReason) -> Trouble {
    Trouble { text, since, by: Some((user, uid)) }
}

/// What was there and is not any more, in words.
fn losses(host: &Host) -> Vec<String> {
    let gpu = |gpu: &Gpu| match &gpu.uuid {
        Some(uuid) => format!("GPU {} ({uuid})", gpu.id),
        None => format!("GPU {}", gpu.id),
    };
    let gpus: Vec<String> = host.lost_gpus.iter().map(gpu).collect();
    let cpus: Vec<u32> = host.lost_cpus.iter().map(|place| place.cpu).collect();
    let gpus = (!gpus.is_empty()).then(|| format!("{}: not found any more", gpus.join(", ")));
    let cpus = (!cpus.is_empty()).then(|| format!("CPU {}: offline", ranges(&cpus)));
    let memory = (host.lost_mem_mb > 0).then(|| format!("{} MB of memory: gone", host.lost_mem_mb));
    [gpus, cpus, memory].into_iter().flatten().collect()
}
