//! What keeps the node from taking jobs, as sinfo and scontrol tell it.

use crate::model::{StepKey, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// What the host lacked when a process could not be started: no fault of the job, which waits until
/// it is mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostFault {
    /// ENOSPC: no room or no inodes.
    Space,
    /// EDQUOT.
    Quota,
    /// EROFS.
    ReadOnly,
    /// EIO.
    Disk,
    /// EAGAIN of a fork.
    Processes,
    /// ENOMEM.
    Memory,
    /// ENFILE, or EMFILE of the daemon.
    Descriptors,
    /// The process that starts the jobs cannot be started, or dies.
    Launcher,
}

impl HostFault {
    /// As a task writes it to its watcher.
    pub const ALL: [HostFault; 8] = [
        HostFault::Space,
        HostFault::Quota,
        HostFault::ReadOnly,
        HostFault::Disk,
        HostFault::Processes,
        HostFault::Memory,
        HostFault::Descriptors,
        HostFault::Launcher,
    ];
}

/// The beginning of the node's reason: sinfo shows 20 characters of it.
impl fmt::Display for HostFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            HostFault::Space => "no space on disk",
            HostFault::Quota => "over disk quota",
            HostFault::ReadOnly => "read-only disk",
            HostFault::Disk => "disk error",
            HostFault::Processes => "no processes left",
            HostFault::Memory => "no memory left",
            HostFault::Descriptors => "no descriptors left",
            HostFault::Launcher => "no launcher",
        })
    }
}

/// The step that was being launched when a daemon died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchAtDeath {
    pub step: StepKey,
    /// How many daemons died of it one after the other.
    pub deaths: u32,
}

/// CPUs and GPUs of the node, by number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeParts {
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub cpus: BTreeSet<u32>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub gpus: BTreeSet<u32>,
}

impl NodeParts {
    pub fn is_empty(&self) -> bool {
        self.cpus.is_empty() && self.gpus.is_empty()
    }

    pub fn add(&mut self, others: &NodeParts) {
        self.cpus.extend(&others.cpus);
        self.gpus.extend(&others.gpus);
    }

    /// What is in both.
    #[must_use]
    pub fn within(&self, others: &NodeParts) -> NodeParts {
        NodeParts { cpus: &self.cpus & &others.cpus, gpus: &self.gpus & &others.gpus }
    }

    #[must_use]
    pub fn without(&self, others: &NodeParts) -> NodeParts {
        NodeParts { cpus: &self.cpus - &others.cpus, gpus: &self.gpus - &others.gpus }
    }
}

/// `CPU 2-3, GPU 0`
impl fmt::Display for NodeParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |name: &str, ids: &BTreeSet<u32>| {
            (!ids.is_empty()).then(|| format!("{name} {}", ranges(ids)))
        };
        let words: Vec<String> =
            told("CPU", &self.cpus).into_iter().chain(told("GPU", &self.gpus)).collect();
        f.write_str(&words.join(", "))
    }
}

/// `0-2,5`: ascending numbers as Slurm prints sets of CPUs and GPUs.
pub fn ranges<'a>(ids: impl IntoIterator<Item = &'a u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for id in ids {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*id) => *last = *id,
            _ => runs.push((*id, *id)),
        }
    }
    let told =
        runs.iter().map(
            |(first, last)| {
                if first == last { first.to_string() } else { format!("{first}-{last}") }
            },
        );
    told.collect::<Vec<_>>().join(",")
}

/// What the owner of the host tells the node (`scontrol update NodeName=…`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeOrder {
    /// Take no more jobs, for this reason; where parts are named, give those to none.
    Drain { reason: String, parts: NodeParts },
    /// The opposite. The node as a whole and parts of it are put back each by itself.
    Resume { parts: NodeParts },
}

impl NodeOrder {
    /// What it is about; empty: the node as a whole.
    pub fn parts(&self) -> &NodeParts {
        match self {
            NodeOrder::Drain { parts, .. } | NodeOrder::Resume { parts } => parts,
        }
    }
}

/// Why the node is drained, since when, and by whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReason {
    pub text: String,
    pub since: Timestamp,
    /// The name of a user: the daemon's own where it drained the node itself.
    pub user: String,
    pub uid: u32,
}

/// Parts of the node that no job gets, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// Those that the owner named. Empty where the daemon found it: the reason names them then.
    #[serde(default, skip_serializing_if = "NodeParts::is_empty")]
    pub parts: NodeParts,
    pub reason: NodeReason,
}

impl Outage {
    /// The reason with what it is about: `GPU 0: new fan`.
    pub fn told(&self) -> NodeReason {
        let text = if self.parts.is_empty() {
            self.reason.text.clone()
        } else {
            format!("{}: {}", self.parts, self.reason.text)
        };
        NodeReason { text, ..self.reason.clone() }
    }
}

/// What the owner has taken out of use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Drains {
    /// The node as a whole.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeReason>,
    /// No part is in two of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Outage>,
}

impl Drains {
    pub fn is_empty(&self) -> bool {
        *self == Drains::default()
    }

    /// The parts that are out of use.
    pub fn all_parts(&self) -> NodeParts {
        let mut all = NodeParts::default();
        self.parts.iter().for_each(|outage| all.add(&outage.parts));
        all
    }

    /// As they are after this order. `because` makes the reason of its text.
    #[must_use]
    pub fn after(mut self, order: NodeOrder, because: impl FnOnce(String) -> NodeReason) -> Drains {
        if order.parts().is_empty() {
            self.node = match order {
                NodeOrder::Drain { reason, .. } => Some(because(reason)),
                NodeOrder::Resume { .. } => None,
            };
            return self;
        }
        for outage in &mut self.parts {
            outage.parts = outage.parts.without(order.parts());
        }
        self.parts.retain(|outage| !outage.parts.is_empty());
        if let NodeOrder::Drain { reason, parts } = order {
            self.parts.push(Outage { parts, reason: because(reason) });
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(cpus: &[u32], gpus: &[u32]) -> NodeParts {
        NodeParts { cpus: cpus.iter().copied().collect(), gpus: gpus.iter().copied().collect() }
    }

    fn because(text: String) -> NodeReason {
        NodeReason { text, since: Timestamp(7), user: "lab".to_owned(), uid: 1 }
    }

    fn drain(reason: &str, parts: NodeParts) -> NodeOrder {
        NodeOrder::Drain { reason: reason.to_owned(), parts }
    }

    #[test]
    fn a_part_has_its_last_reason_and_comes_back_by_itself() {
        let both = Drains::default().after(drain("dust", parts(&[2, 3], &[0, 1])), because);
        let again = both
            .after(drain("hot", parts(&[], &[1])), because)
            .after(drain("fan", parts(&[], &[])), because);
        let told = |drains: &Drains| {
            drains.parts.iter().map(|outage| outage.told().text).collect::<Vec<_>>()
        };
        assert_eq!(told(&again), ["CPU 2-3, GPU 0: dust", "GPU 1: hot"]);
        assert_eq!(again.all_parts(), parts(&[2, 3], &[0, 1]));
        let kept: Drains = serde_json::from_str(&serde_json::to_string(&again).unwrap()).unwrap();
        assert_eq!(kept, again);
        let whole = again.after(NodeOrder::Resume { parts: NodeParts::default() }, because);
        assert_eq!((whole.node.clone(), told(&whole).len()), (None, 2));
        assert!(
            whole.after(NodeOrder::Resume { parts: parts(&[2, 3], &[0, 1]) }, because).is_empty()
        );
    }

    #[test]
    fn the_reason_alone_as_it_was_kept_once_is_that_of_the_node() {
        let kept: Drains =
            serde_json::from_str(r#"{"text":"fan","since":7,"user":"lab","uid":1}"#).unwrap();
        assert_eq!(kept, Drains { node: Some(because("fan".to_owned())), parts: Vec::new() });
        assert!(serde_json::from_str::<Drains>("{}").unwrap().is_empty());
    }

    #[test]
    fn ranges_of_cpus() {
        assert_eq!(ranges(&[0, 1, 2, 5, u32::MAX]), "0-2,5,4294967295");
        assert_eq!(ranges(&[]), "");
    }
}
