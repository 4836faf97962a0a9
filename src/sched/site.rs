//! Changes that the owner of the host makes while the daemon runs.

use super::core::Core;
use super::types::{Config, Cx, Effect};
use slotd_model::node::Drains;
use slotd_model::partition::{Host, Machine};
use slotd_model::topology::Place;
use slotd_model::{JobState, Refusal, Timestamp};
use slotd_parse::partition::{self, PartitionError, Written};

impl Core {
    /// Updates the hardware of the machine. Parts that have disappeared are lost until they return.
    pub fn on_machine_seen(&mut self, Machine { topology, mem_mb }: Machine, now: Timestamp) {
        let known = &self.resources.config().host;
        if topology == known.topology && mem_mb == known.machine_mem_mb {
            return;
        }
        let all = known.topology.places().iter().chain(&known.lost_cpus);
        let mut lost_cpus: Vec<Place> =
            all.filter(|place| !topology.has_all(&[place.cpu])).copied().collect();
        lost_cpus.sort_unstable();
        let lost_mem_mb =
            known.machine_mem_mb.saturating_add(known.lost_mem_mb).saturating_sub(mem_mb);
        let mut host =
            Host { topology, lost_cpus, machine_mem_mb: mem_mb, lost_mem_mb, ..known.clone() };
        self.resources.config().capacities.give(&mut host);
        self.set_host(host, self.resources.config().all_partitions.clone(), now);
    }

    /// Applies a changed configuration. Facts about the machine are kept, because they are more
    /// recent here, and so are the parts out of use, which are not configured.
    pub fn set_config(&mut self, config: Config, now: Timestamp) {
        self.notifications.set_audience(config.audience);
        self.resources.set_config(config, &self.records, now);
        self.refresh_pending(now);
    }

    /// Sets the parts that the owner has drained. Running jobs continue, even on these parts.
    pub fn set_drains(&mut self, drains: Drains, now: Timestamp) {
        let drained = drains.all_parts();
        self.resources.node_mut().set_drains(drains);
        if drained != self.resources.host().drained {
            let host = Host { drained, ..self.resources.host().clone() };
            self.set_host(host, self.resources.config().all_partitions.clone(), now);
        }
    }

    /// Notifies the jobs on parts that went out of use since the last call: the manager of a job's
    /// steps, or without one, the job itself by the signal that it requested.
    pub fn notify_of_outages(&mut self, cx: &mut Cx) {
        let (known, out) = self.resources.announce_outages();
        // Parts that have returned are used again.
        self.resources.managers_mut().keep_spares_within(&out);
        let mut changed = Vec::new();
        for job in self.records.active_jobs() {
            let id = &job.id;
            let own = job.run.alloc.as_ref().map(|alloc| alloc.parts()).unwrap_or_default();
            let (before, now) = (own.within(&known), own.within(&out));
            if before == now {
                continue;
            }
            changed.push(*id);
            if self.resources.managers().has(*id) {
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

    /// Marks the current outages as announced, because the previous daemon has announced them.
    pub fn outages_are_known(&mut self) {
        self.resources.announce_outages();
    }

    /// Changes a partition (`scontrol update PartitionName=…`). The change holds until the
    /// configuration is read again, as in Slurm.
    pub fn update_partition(
        &mut self,
        name: &str,
        settings: &[(String, String)],
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let mut all = self.resources.config().all_partitions.clone();
        let Some(at) = all.iter().position(|known| known.name == name) else {
            return Err(self.resources.config().unknown_partition(name));
        };
        for (key, value) in settings {
            partition::set(&mut all[at], key, value, Written::ToScontrol).map_err(|error| {
                Refusal::Configuration(match error {
                    PartitionError::Expected(forms) => format!("{key}={value}: expected {forms}"),
                    PartitionError::UnknownKey(hint) => {
                        format!("{key} is not a key of a partition: {hint}")
                    }
                })
            })?;
        }
        partition::check(&all[at]).map_err(|why| Refusal::Configuration(why.to_string()))?;
        let there = self.resources.host().parts().cpus;
        let missing = all[at].cpus.iter().flatten().find(|cpu| !there.contains(cpu));
        if let Some(cpu) = missing {
            return Err(Refusal::Configuration(format!("there is no CPU {cpu} that jobs may use")));
        }
        let was_default = self
            .resources
            .config()
            .partitions
            .iter()
            .any(|known| known.name == name && known.is_default);
        if all[at].is_default && !was_default {
            all.iter_mut().enumerate().for_each(|(other, known)| known.is_default = other == at);
        }
        self.set_host(self.resources.host().clone(), all, now);
        Ok(())
    }
}
