//! Drained nodes and parts of nodes, and the reasons that sinfo and scontrol show.

use crate::{StepKey, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// A shortage of the host that kept a process from starting. The job is not at fault and waits
/// until it is fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostFault {
    /// ENOSPC: no space or no inodes left.
    Space,
    /// EDQUOT.
    Quota,
    /// EROFS.
    ReadOnly,
    /// EIO.
    Disk,
    /// EAGAIN from fork.
    Processes,
    /// ENOMEM.
    Memory,
    /// ENFILE, or EMFILE in the daemon.
    Descriptors,
    /// The launcher process cannot be started, or dies.
    Launcher,
}

impl HostFault {
    /// All faults. A task sends the index of one to its watcher.
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

/// Prints the beginning of the node's reason. sinfo shows 20 characters of it.
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

/// The step that was being launched when the daemon died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchAtDeath {
    pub step: StepKey,
    /// The number of consecutive daemons that died during its launch.
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

    /// Returns the CPUs and GPUs that both contain.
    #[must_use]
    pub fn within(&self, others: &NodeParts) -> NodeParts {
        NodeParts { cpus: &self.cpus & &others.cpus, gpus: &self.gpus & &others.gpus }
    }

    #[must_use]
    pub fn without(&self, others: &NodeParts) -> NodeParts {
        NodeParts { cpus: &self.cpus - &others.cpus, gpus: &self.gpus - &others.gpus }
    }
}

/// Prints `CPU 2-3, GPU 0`.
impl fmt::Display for NodeParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |name: &str, ids: &BTreeSet<u32>| {
            (!ids.is_empty()).then(|| format!("{name} {}", ranges(ids)))
        };
        let words: Vec<String> =
            part("CPU", &self.cpus).into_iter().chain(part("GPU", &self.gpus)).collect();
        f.write_str(&words.join(", "))
    }
}

/// Formats ascending numbers as Slurm prints sets of CPUs and GPUs: `0-2,5`.
pub fn ranges<'a>(ids: impl IntoIterator<Item = &'a u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for id in ids {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*id) => *last = *id,
            _ => runs.push((*id, *id)),
        }
    }
    let text =
        runs.iter().map(
            |(first, last)| {
                if first == last { first.to_string() } else { format!("{first}-{last}") }
            },
        );
    text.collect::<Vec<_>>().join(",")
}

/// An order from the owner of the host (`scontrol update NodeName=…`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeOrder {
    /// Start no more jobs, for this reason. If parts are given, only stop allocating those parts.
    Drain { reason: String, parts: NodeParts },
    /// Undo a drain. The node and its parts are drained and resumed independently.
    Resume { parts: NodeParts },
}

impl NodeOrder {
    /// Returns the parts that the order affects. Empty means the whole node.
    pub fn parts(&self) -> &NodeParts {
        match self {
            NodeOrder::Drain { parts, .. } | NodeOrder::Resume { parts } => parts,
        }
    }
}

/// The reason why the node or a part of it is drained, with the time and the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReason {
    pub text: String,
    pub since: Timestamp,
    /// The name of the user who drained it, or the daemon's user if the daemon did.
    pub user: String,
    pub uid: u32,
}

/// Parts of the node that are not allocated, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// The parts that the owner named. Empty if the daemon found the outage; the reason names the
    /// parts then.
    #[serde(default, skip_serializing_if = "NodeParts::is_empty")]
    pub parts: NodeParts,
    pub reason: NodeReason,
}

impl Outage {
    /// Returns the reason, prefixed with the parts: `GPU 0: new fan`.
    pub fn with_parts_named(&self) -> NodeReason {
        let text = if self.parts.is_empty() {
            self.reason.text.clone()
        } else {
            format!("{}: {}", self.parts, self.reason.text)
        };
        NodeReason { text, ..self.reason.clone() }
    }
}

/// Everything that the owner has drained.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Drains {
    /// The drain of the whole node.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeReason>,
    /// Drained parts. No part appears twice.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Outage>,
}

impl Drains {
    pub fn is_empty(&self) -> bool {
        *self == Drains::default()
    }

    /// Returns all drained parts.
    pub fn all_parts(&self) -> NodeParts {
        let mut all = NodeParts::default();
        self.parts.iter().for_each(|outage| all.add(&outage.parts));
        all
    }

    /// Applies an order and returns the resulting drains. `because` turns the order's text into a
    /// reason.
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
    fn a_part_has_its_latest_reason_and_resumes_independently_of_the_node() {
        let both = Drains::default().after(drain("dust", parts(&[2, 3], &[0, 1])), because);
        let again = both
            .after(drain("hot", parts(&[], &[1])), because)
            .after(drain("fan", parts(&[], &[])), because);
        let text = |drains: &Drains| {
            drains.parts.iter().map(|outage| outage.with_parts_named().text).collect::<Vec<_>>()
        };
        assert_eq!(text(&again), ["CPU 2-3, GPU 0: dust", "GPU 1: hot"]);
        assert_eq!(again.all_parts(), parts(&[2, 3], &[0, 1]));
        let kept: Drains = serde_json::from_str(&serde_json::to_string(&again).unwrap()).unwrap();
        assert_eq!(kept, again);
        let whole = again.after(NodeOrder::Resume { parts: NodeParts::default() }, because);
        assert_eq!((whole.node.clone(), text(&whole).len()), (None, 2));
        assert!(
            whole.after(NodeOrder::Resume { parts: parts(&[2, 3], &[0, 1]) }, because).is_empty()
        );
    }

    #[test]
    fn a_bare_reason_from_an_older_version_drains_the_node() {
        let kept: Drains =
            serde_json::from_str(r#"{"text":"fan","since":7,"user":"lab","uid":1}"#).unwrap();
        assert_eq!(kept, Drains { node: Some(because("fan".to_owned())), parts: Vec::new() });
        assert!(serde_json::from_str::<Drains>("{}").unwrap().is_empty());
    }

    #[test]
    fn consecutive_numbers_become_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, u32::MAX]), "0-2,5,4294967295");
        assert_eq!(ranges(&[]), "");
    }
}
