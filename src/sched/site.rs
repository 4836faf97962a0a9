//! What the owner of the host changes while the daemon runs.

use super::core::Core;
use super::cpu_use::CpuUse;
use super::types::Config;
use crate::model::partition::Host;
use crate::model::{Refusal, Timestamp};
use crate::spec::partition::{self, PartitionError, Written};

impl Core {
    /// The configuration was read again. What is known of the machine is younger here, and what is out of use is not its
    /// matter.
    pub fn set_config(&mut self, config: Config, now: Timestamp) {
        let Host {
            gpus, lost_gpus, topology, lost_cpus, machine_mem_mb, lost_mem_mb, drained, ..
        } = self.config.host.clone();
        let machine = Host {
            gpus,
            lost_gpus,
            topology,
            lost_cpus,
            machine_mem_mb,
            lost_mem_mb,
            ..config.host.clone()
        };
        let mut host = Host { drained, ..machine };
        config.capacities.give(&mut host);
        if !config.avoids_used_cpus {
            self.cpu_use = CpuUse::default();
        }
        let all_partitions = config.all_partitions.clone();
        self.config = config;
        self.set_host(host, all_partitions, now);
    }

    /// `scontrol update PartitionName=…`. It holds until the configuration is read again, as in Slurm.
    pub fn update_partition(
        &mut self,
        name: &str,
        settings: &[(String, String)],
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let mut all = self.config.all_partitions.clone();
        let Some(at) = all.iter().position(|known| known.name == name) else {
            return Err(self.unknown_partition(name));
        };
        for (key, value) in settings {
            partition::set(&mut all[at], key, value, Written::ToScontrol).map_err(|error| {
                Refusal::Configuration(match error {
                    PartitionError::Expected(forms) => format!("{key}={value}: expected {forms}"),
                    PartitionError::UnknownKey(hint) => {
                        format!("{key} is no key of a partition: {hint}")
                    }
                })
            })?;
        }
        partition::check(&all[at]).map_err(Refusal::Configuration)?;
        let there = self.config.host.parts().cpus;
        let missing = all[at].cpus.iter().flatten().find(|cpu| !there.contains(cpu));
        if let Some(cpu) = missing {
            return Err(Refusal::Configuration(format!("there is no CPU {cpu} that jobs may use")));
        }
        let was_default =
            self.config.partitions.iter().any(|known| known.name == name && known.is_default);
        if all[at].is_default && !was_default {
            all.iter_mut().enumerate().for_each(|(other, known)| known.is_default = other == at);
        }
        self.set_host(self.config.host.clone(), all, now);
        Ok(())
    }
}
