//! Every column of sinfo.

use crate::Ctx;
use crate::ctx::VERSION;
use crate::field::{Cut, Field, Need, Place, Table};
use crate::sinfo::State;
use crate::tone::Tone;
use crate::value::Value;
use crate::{time, tres};
use slotd_model::node::{NodeReason, Outage, ranges};
use slotd_model::partition::Host;
use slotd_model::preempt::PreemptMode;
use slotd_model::view::{NodeView, PartitionView};
use slotd_model::{Partition, Tres};
use std::collections::BTreeSet;

/// A line of sinfo: the host as a member of some partitions.
pub struct Row<'a> {
    pub node: &'a NodeView,
    /// One partition, or all shown partitions on the node's own line.
    pub partitions: Vec<&'a PartitionView>,
    /// The reason why the host or a part of it accepts no jobs.
    pub why: Option<NodeReason>,
    /// False if `-t`, `-n` or `-d` exclude the host: the line then has no node.
    pub has_node: bool,
}

impl Row<'_> {
    /// Returns `cpu*`, or `cpu*,gpu` on the node's own line.
    fn partition(&self, star: bool) -> Value<'static> {
        let name = |p: &&PartitionView| {
            let mark = if star && p.partition.is_default { "*" } else { "" };
            format!("{}{mark}", p.partition.name)
        };
        self.partitions.iter().map(name).collect::<Vec<_>>().join(",").into()
    }

    /// Returns a value of the partition, or of the node's first one.
    fn first(&self, value: impl Fn(&Partition) -> Value<'static>) -> Value<'static> {
        self.partitions.first().map_or(Value::NONE, |p| value(&p.partition))
    }

    /// Returns whether the line includes the GPUs, which belong to the GPU partitions.
    fn has_gpus(&self) -> bool {
        self.partitions.iter().any(|p| p.partition.is_gpu)
    }

    fn sum(&self, of: impl Fn(&PartitionView) -> u64) -> Value<'static> {
        self.partitions.iter().map(|p| of(p)).sum::<u64>().into()
    }

    fn state(&self, name: impl Fn(State) -> &'static str) -> Value<'static> {
        if self.has_node { name(State::of(self.node)) } else { "n/a" }.into()
    }

    /// Returns a number of the host; 0 on a line without it.
    fn count(&self, n: u64) -> Value<'static> {
        if self.has_node { n } else { 0 }.into()
    }

    /// Returns a number of GPUs; 0 outside the GPU partitions.
    fn gpus(&self, n: u64) -> Value<'static> {
        if self.has_gpus() { n } else { 0 }.into()
    }

    /// Returns the name of the host; empty on a line without it.
    fn name(&self) -> Value<'static> {
        if self.has_node { self.node.host.name.clone().into() } else { Value::NONE }
    }

    /// Returns the nodes as `allocated/idle/other`. A partly allocated host counts as allocated.
    fn nodes_aio(&self) -> (u8, u8, u8) {
        match (self.has_node, State::of(self.node)) {
            (false, _) => (0, 0, 0),
            (true, State::Idle) => (0, 1, 0),
            (true, State::Mixed | State::Allocated | State::Draining) => (1, 0, 0),
            (true, State::Drained | State::Reserved | State::Maint) => (0, 0, 1),
        }
    }

    /// Returns a value of the reason why the host or a part of it is drained, or `otherwise`.
    fn reason(&self, otherwise: &str, value: impl Fn(&NodeReason) -> String) -> Value<'static> {
        self.why
            .as_ref()
            .filter(|_| self.has_node)
            .map_or_else(|| otherwise.to_owned(), value)
            .into()
    }

    fn cpus(&self) -> (u64, u64) {
        let total = self.node.host.cpu_ids.len() as u64;
        let taken = if self.node.exclusive {
            total
        } else {
            u64::from(self.node.allocated.cpus).min(total)
        };
        (taken, total)
    }

    fn features(&self) -> Value<'static> {
        feature_words(&self.node.host, self.has_gpus()).into()
    }

    /// Returns `cpu`, followed by the models of the GPUs.
    fn models(&self) -> Value<'static> {
        let mut words = vec!["cpu".to_owned()];
        if self.has_gpus() {
            words.extend(self.node.host.gpu_models().map(str::to_owned));
        }
        join_distinct(words).into()
    }

    fn gres(&self, ctx: &Ctx) -> Value<'static> {
        let gres = gres(&self.node.host, ctx);
        Value::or_null(Some(&gres).filter(|_| self.has_gpus() && self.has_node).map(String::as_str))
    }
}

/// Returns the words for `--constraint`: `cpu`, the configured features and the models of the GPUs.
fn feature_words(host: &Host, gpus: bool) -> String {
    let mut words = vec!["cpu".to_owned()];
    // The word `gpu` repeats the partition.
    words.extend(host.features.iter().filter(|f| *f != "gpu").cloned());
    if gpus {
        words.extend(host.gpu_models().map(str::to_owned));
    }
    join_distinct(words)
}

/// Returns the words that `--constraint` accepts on this host.
pub fn features(node: &NodeView) -> String {
    feature_words(&node.host, true)
}

fn join_distinct(words: Vec<String>) -> String {
    let mut distinct: Vec<String> = Vec::with_capacity(words.len());
    for word in words {
        if !distinct.contains(&word) {
            distinct.push(word);
        }
    }
    distinct.join(",")
}

/// Returns the GPUs in use: `gpu:1`, `gpu:1,gpumem:10G`.
pub(crate) fn gres_used(n: &NodeView, ctx: &Ctx) -> String {
    let parts = tres::gres(&Tres { gpus: 0, ..n.allocated }, ctx.units);
    let whole = format!("gpu:{}", n.allocated.gpus);
    parts.map_or(whole.clone(), |parts| format!("{whole},{parts}"))
}

/// Returns the reasons why the host or a part of it is not allocated to jobs.
pub(crate) fn reasons_of(n: &NodeView) -> Vec<NodeReason> {
    n.drained.iter().cloned().chain(n.outages.iter().map(Outage::with_parts_named)).collect()
}

/// Returns the GPUs that are not allocated to jobs: `gpu:1(IDX:1)`.
pub(crate) fn gres_drained(n: &NodeView) -> String {
    let lost = n.host.lost_gpus.iter().map(|gpu| &gpu.id);
    let ids: BTreeSet<u32> = lost.chain(&n.host.drained.gpus).copied().collect();
    if ids.is_empty() {
        "N/A".to_owned()
    } else {
        format!("gpu:{}(IDX:{})", ids.len(), ranges(&ids))
    }
}

/// Returns all reasons as one. The reason of a drained node replaces those of its parts.
pub fn reason(n: &NodeView) -> Option<NodeReason> {
    let reasons = reasons_of(n);
    let texts: Vec<&str> = reasons.iter().map(|why| why.text.as_str()).collect();
    let text = n.drained.as_ref().map_or_else(|| texts.join("; "), |why| why.text.clone());
    reasons.first().map(|first| NodeReason { text, ..first.clone() })
}

/// Returns the resources of the host besides CPUs and memory: `gpu:2`,
/// `gpu:nvidia_h200:2,gpumem:280G`; empty for none.
pub fn gres(host: &Host, ctx: &Ctx) -> String {
    let mut groups: Vec<(Option<&str>, u32)> = Vec::new();
    for gpu in &host.gpus {
        match groups.iter_mut().find(|(model, _)| *model == gpu.model.as_deref()) {
            Some((_, n)) => *n += 1,
            None => groups.push((gpu.model.as_deref(), 1)),
        }
    }
    let text = groups.into_iter().map(|(model, n)| match model {
        Some(model) => format!("gpu:{model}:{n}"),
        None => format!("gpu:{n}"),
    });
    let parts = tres::gres(&Tres { gpus: 0, ..host.tres() }, ctx.units);
    text.chain(parts).collect::<Vec<_>>().join(",")
}

/// The field table of sinfo.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sinfo;

impl Table for Sinfo {
    type Row<'a> = Row<'a>;

    const HAS_HELPFORMAT: bool = true;

    // Slurm's `%all` prints a space after these.
    const AFTER_CAPITALS: &'static str = " ";

    fn fields() -> &'static [Field<Self>] {
        FIELDS
    }

    fn unknown(place: Place, word: &str) -> String {
        match place {
            Place::Code | Place::Name | Place::WideName => {
                format!("Invalid node format specification: {word}")
            }
            // Slurm copied this text from squeue.
            Place::LongName => format!("Invalid job format specification: {word}"),
            Place::Sort => format!("Invalid sort specification: {word}"),
        }
    }
}

type F = Field<Sinfo>;

fn null(_: &Row<'_>, _: &Ctx) -> Value<'static> {
    "(null)".into()
}

fn one(_: &Row<'_>, _: &Ctx) -> Value<'static> {
    1u32.into()
}

fn limit(secs: Option<u64>) -> Value<'static> {
    secs.map_or_else(|| "infinite".to_owned(), time::short).into()
}

/// Formats the load: `2.53`.
pub fn load(node: &NodeView) -> String {
    centi(node.load_centi)
}

/// Formats hundredths as a load.
pub fn centi(hundredths: u32) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn sct(r: &Row<'_>) -> Value<'static> {
    let h = &r.node.host;
    let t = &h.topology;
    format!("{}:{}:{}", t.sockets(), t.cores_per_socket(), t.threads_per_core()).into()
}

/// `GRES_USED`: returns the GPUs in use, or `N/A` in a partition without GPUs.
fn gres_used_by(r: &Row<'_>, ctx: &Ctx) -> Value<'static> {
    if r.has_gpus() { gres_used(r.node, ctx).into() } else { "N/A".into() }
}

/// Returns the CPUs as `allocated/idle/other/total`. CPUs that cannot be allocated count as other.
fn cpus_aiot(r: &Row<'_>) -> Value<'static> {
    let (taken, total) = if r.has_node { r.cpus() } else { (0, 0) };
    let free = total - taken;
    let other =
        if r.node.drained.is_some() { free } else { free.min(u64::from(r.node.closed_cpus)) };
    let idle = free - other;
    format!("{taken}/{idle}/{other}/{total}").into()
}

static FIELDS: &[F] = &[
    F::new(&["Partition"], "PARTITION", |r, _| r.partition(true))
        .code("P")
        .cut(Cut::Star)
        .needs(Need::Partition),
    F::new(&["PartitionName"], "PARTITION", |r, _| r.partition(false))
        .code("R")
        .needs(Need::Partition),
    F::new(&["Available"], "AVAIL", |r, _| r.first(|p| p.state.code().into()))
        .code("a")
        .toned(Tone::of_node_cell),
    F::new(&["Time"], "TIMELIMIT", |r, _| r.first(|p| limit(p.max_time_secs))).code("l"),
    F::new(&["DefaultTime"], "DEFAULTTIME", |r, _| {
        r.first(|p| p.default_time_secs.map_or_else(|| "n/a".into(), |secs| limit(Some(secs))))
    })
    .code("L"),
    F::new(&["Nodes"], "NODES", |r, _| r.count(1)).code("D"),
    F::new(&["StateCompact"], "STATE", |r, _| r.state(State::code))
        .code("t")
        .own(&["State"])
        .toned(Tone::of_node_cell),
    F::new(&["StateLong"], "STATE", |r, _| r.state(State::name))
        .code("T")
        .toned(Tone::of_node_cell),
    F::new(&["NodeList"], "NODELIST", |r, _| r.name()).code("N").cut(Cut::Never),
    F::new(&["NodeHost"], "HOSTNAMES", |r, _| r.name())
        .code("n")
        .own(&["Hostnames", "Hostname", "NodeList"])
        .cut(Cut::Never),
    F::new(&["NodeAddr"], "NODE_ADDR", |r, _| r.name()).code("o").cut(Cut::Never),
    F::new(&["NodeAI"], "NODES(A/I)", |r, _| {
        let (allocated, idle, _) = r.nodes_aio();
        format!("{allocated}/{idle}").into()
    })
    .code("A"),
    F::new(&["NodeAIOT"], "NODES(A/I/O/T)", |r, _| {
        let (allocated, idle, other) = r.nodes_aio();
        format!("{allocated}/{idle}/{other}/{}", allocated + idle + other).into()
    })
    .code("F"),
    F::new(&["CPUs"], "CPUS", |r, _| r.count(r.cpus().1)).code("c"),
    F::new(&["CPUsState"], "CPUS(A/I/O/T)", |r, _| cpus_aiot(r)).code("C"),
    F::new(&["CPUsLoad"], "CPU_LOAD", |r, _| Value::Ranked(r.node.load_centi.into(), load(r.node)))
        .code("O"),
    F::new(&["Memory"], "MEMORY", |r, _| r.count(r.node.host.mem_mb)).code("m"),
    F::new(&["FreeMem"], "FREE_MEM", |r, _| r.count(r.node.free_mem_mb)).code("e"),
    F::new(&["Disk"], "TMP_DISK", |_, _| 0u32.into()).code("d"),
    F::new(&["Gres"], "GRES", |r, c| r.gres(c)).code("G"),
    F::new(&["Features"], "AVAIL_FEATURES", |r, _| r.features()).code("f").yielding(),
    F::new(&["features_act"], "ACTIVE_FEATURES", |r, _| r.features()).code("b"),
    F::new(&["Sockets"], "SOCKETS", |r, _| r.node.host.topology.sockets().into()).code("X"),
    F::new(&["Cores"], "CORES", |r, _| r.node.host.topology.cores_per_socket().into()).code("Y"),
    F::new(&["Threads"], "THREADS", |r, _| r.node.host.topology.threads_per_core().into())
        .code("Z"),
    F::new(&["SocketCoreThread"], "S:C:T", |r, _| sct(r)).code("z"),
    F::new(&["Weight"], "WEIGHT", one).code("w"),
    F::new(&["Reason"], "REASON", |r, _| r.reason("none", |why| why.text.clone()))
        .code("E")
        .yielding(),
    F::new(&["TimeStamp"], "TIMESTAMP", |r, ctx| {
        r.reason("Unknown", |why| time::instant(why.since, ctx))
    })
    .code("H"),
    F::new(&["User"], "USER", |r, _| r.reason("Unknown", |why| why.user.clone())).code("u"),
    F::new(&["UserLong"], "USER", |r, _| {
        r.reason("Unknown", |why| format!("{}({})", why.user, why.uid))
    })
    .code("U"),
    F::new(&["Groups"], "GROUPS", |_, _| "all".into()).code("g"),
    F::new(&["OverSubscribe", "Share"], "OVERSUBSCRIBE", |r, _| {
        r.first(|p| p.over_subscribe.to_string().into())
    })
    .code("h"),
    F::new(&["Root"], "ROOT", |_, _| "no".into()).code("r"),
    F::new(&["Size"], "JOB_SIZE", |_, _| "1-infinite".into()).code("s"),
    F::new(&["AllocNodes"], "ALLOCNODES", |_, _| "all".into()).code("S"),
    F::new(&["PriorityTier", "Priority"], "PRIO_TIER", |r, _| r.first(|p| p.tier().into()))
        .code("p"),
    F::new(&["PriorityJobFactor"], "PRIO_JOB_FACTOR", one).code("I"),
    F::new(&["PreemptMode"], "PREEMPT_MODE", |r, _| {
        r.first(|p| p.preempt_mode.unwrap_or(PreemptMode::Off).name().into())
    })
    .code("M"),
    F::new(&["MaxCPUsPerNode"], "MAX_CPUS_PER_NODE", |_, _| "UNLIMITED".into()).code("B"),
    F::new(&["Cluster"], "CLUSTER", |_, _| "N/A".into()).code("V"),
    F::new(&["Version"], "VERSION", |_, _| VERSION.into()).code("v"),
    F::new(&["AllocMem"], "ALLOCMEM", |r, _| r.count(r.node.allocated.mem_mb)),
    F::new(&["Comment"], "COMMENT", null),
    F::new(&["Extra"], "EXTRA", null),
    F::new(&["GresUsed"], "GRES_USED", gres_used_by),
    F::new(&["Port"], "PORT", |_, _| 0u32.into()),
    F::new(&["StateComplete"], "STATE", |r, _| {
        if r.has_node { State::complete(r.node) } else { "n/a".to_owned() }.into()
    })
    .toned(Tone::of_node_cell),
    // slotd's own, for lists of names.
    F::new(&[], "FEATURES", |r, _| r.models()).own(&["Features"]).yielding(),
    F::new(&[], "CPU_ALLOC", |r, _| r.count(r.cpus().0)).own(&["CPU_ALLOC", "CPUSLOAD"]),
    F::new(&[], "MEMORY", |r, _| Value::Mib(r.node.host.mem_mb)).own(&["Memory", "Mem"]),
    F::new(&[], "MEM_ALLOC", |r, _| Value::Mib(r.node.allocated.mem_mb))
        .own(&["MEM_ALLOC", "MemoryAllocated"]),
    F::new(&[], "GPUS", |r, _| r.gpus(r.node.host.gpus.len() as u64)).own(&["GPUS"]),
    F::new(&[], "GPU_ALLOC", |r, _| r.gpus(r.node.allocated.gpus.into()))
        .own(&["GPU_ALLOC", "GpusAllocated"]),
    F::new(&[], "RUNNING", |r, _| r.sum(|p| p.running)).own(&["Running", "RunningJobs"]),
    F::new(&[], "PENDING", |r, _| r.sum(|p| p.pending)).own(&["Pending", "PendingJobs"]),
];
