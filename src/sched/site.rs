//! What the owner of the host changes while the daemon runs.

use super::core::Core;
use super::node::Trouble;
use crate::model::limit::Limit;
use crate::model::node::NodeReason;
use crate::model::partition::Host;
use crate::model::{Partition, Refusal, Timestamp};
use crate::spec::partition::{self, PartitionError, Written};

impl Core {
    /// The configuration was read again.
    pub fn set_site(&mut self, host: Host, all_partitions: Vec<Partition>, limits: Vec<Limit>, now: Timestamp) {
        self.config.limits = limits;
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
                    PartitionError::UnknownKey(hint) => format!("{key} is no key of a partition: {hint}"),
                })
            })?;
        }
        partition::check(&all[at]).map_err(Refusal::Configuration)?;
        let missing = all[at].cpus.iter().flatten().find(|cpu| !self.config.host.cpu_ids.contains(cpu));
        if let Some(cpu) = missing {
            return Err(Refusal::Configuration(format!("there is no CPU {cpu} that jobs may use")));
        }
        let was_default = self.config.partitions.iter().any(|known| known.name == name && known.is_default);
        if all[at].is_default && !was_default {
            all.iter_mut().enumerate().for_each(|(other, known)| known.is_default = other == at);
        }
        self.set_host(self.config.host.clone(), all, now);
        Ok(())
    }

    /// The owner takes the node out of use, or puts it back (`None`). Jobs that run go on.
    pub fn set_drain(&mut self, reason: Option<NodeReason>) {
        let order = |NodeReason { text, since, user, uid }| Trouble { text, since, by: Some((user, uid)) };
        self.node.order = reason.map(order);
    }
}
