//! Every column of sinfo: Slurm's letters, Slurm's `-O` names, and the book's field names.

use crate::model::partition::Host;
use crate::model::view::{NodeView, PartitionView};
use crate::render::ctx::VERSION;
use crate::render::format::{Cut, Field};
use crate::render::{Ctx, size};

/// What the host is doing, in Slurm's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Idle,
    /// Some of its CPUs are taken, or some of its memory or GPUs.
    Mixed,
    /// All CPUs are taken, or an exclusive job has the host.
    Allocated,
}

impl State {
    pub fn of(node: &NodeView) -> Self {
        let taken = &node.allocated;
        if node.exclusive || (taken.cpus > 0 && taken.cpus as usize >= node.host.cpu_ids.len()) {
            State::Allocated
        } else if taken.cpus > 0 || taken.mem_mb > 0 || taken.gpus > 0 {
            State::Mixed
        } else {
            State::Idle
        }
    }

    /// `%T`
    pub const fn name(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Mixed => "mixed",
            State::Allocated => "allocated",
        }
    }

    /// `%t`
    pub const fn code(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Mixed => "mix",
            State::Allocated => "alloc",
        }
    }
}

/// A line of sinfo: the host as a member of some partitions.
pub struct Row<'a> {
    pub node: &'a NodeView,
    /// One partition; all that are shown in the book's node view.
    pub partitions: Vec<&'a PartitionView>,
    /// False where the host is left out by `-t`, `-n` or `-d`: the line then has no node.
    pub has_node: bool,
}

impl Row<'_> {
    /// `cpu*`, or `cpu*,gpu` in the book's node view.
    fn partition(&self, star: bool) -> String {
        let name = |p: &&PartitionView| {
            let mark = if star && p.partition.is_default { "*" } else { "" };
            format!("{}{mark}", p.partition.name)
        };
        self.partitions.iter().map(name).collect::<Vec<_>>().join(",")
    }

    /// The GPUs belong to the GPU partitions.
    fn has_gpus(&self) -> bool {
        self.partitions.iter().any(|p| p.partition.is_gpu)
    }

    fn sum(&self, of: impl Fn(&PartitionView) -> u64) -> String {
        self.partitions.iter().map(|p| of(p)).sum::<u64>().to_string()
    }

    fn state(&self, name: impl Fn(State) -> &'static str) -> String {
        if self.has_node { name(State::of(self.node)) } else { "n/a" }.to_owned()
    }

    /// A number of the host, 0 on a line without it.
    fn count(&self, n: u64) -> String {
        if self.has_node { n } else { 0 }.to_string()
    }

    /// A name of the host, empty on a line without it.
    fn name(&self) -> String {
        if self.has_node { self.node.host.name.clone() } else { String::new() }
    }

    /// Nodes that are `allocated/idle`; a host that is partly taken counts as allocated.
    fn nodes_ai(&self) -> (u8, u8) {
        match (self.has_node, State::of(self.node)) {
            (false, _) => (0, 0),
            (true, State::Idle) => (0, 1),
            (true, State::Mixed | State::Allocated) => (1, 0),
        }
    }

    fn cpus(&self) -> (u64, u64) {
        let total = self.node.host.cpu_ids.len() as u64;
        let taken = if self.node.exclusive { total } else { u64::from(self.node.allocated.cpus).min(total) };
        (taken, total)
    }

    fn features(&self) -> String {
        feature_words(&self.node.host, self.has_gpus())
    }

    /// The book's column: `cpu` alone, or with the models of the GPUs.
    fn book_features(&self) -> String {
        let mut words = vec!["cpu".to_owned()];
        if self.has_gpus() {
            words.extend(self.node.host.gpu_models().map(str::to_owned));
        }
        join_distinct(words)
    }

    fn gres(&self) -> String {
        let gres = gres(&self.node.host);
        if self.has_gpus() && self.has_node && !gres.is_empty() { gres } else { "(null)".to_owned() }
    }
}

/// `--constraint` words: `cpu`, what the host is configured to have, and the models of GPUs.
fn feature_words(host: &Host, gpus: bool) -> String {
    let mut words = vec!["cpu".to_owned()];
    // The bare word `gpu` says nothing that the partition does not say (book).
    words.extend(host.features.iter().filter(|f| *f != "gpu").cloned());
    if gpus {
        words.extend(host.gpu_models().map(str::to_owned));
    }
    join_distinct(words)
}

/// What `--constraint` may ask for on this host.
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

/// What the host has beside CPUs and memory: `gpu:2`, `gpu:nvidia_h200:2`; empty for nothing.
pub fn gres(host: &Host) -> String {
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
    text.collect::<Vec<_>>().join(",")
}

pub type Get = fn(&Row<'_>, &Ctx) -> String;

const fn coded(code: char, names: &'static [&'static str], header: &'static str, get: Get) -> Field<Get> {
    Field { code: Some(code), names, header, cut: Cut::Always, get }
}

const fn named(names: &'static [&'static str], header: &'static str, get: Get) -> Field<Get> {
    Field { code: None, names, header, cut: Cut::Always, get }
}

const fn nodes(code: char, names: &'static [&'static str], header: &'static str, get: Get) -> Field<Get> {
    Field { code: Some(code), names, header, cut: Cut::Never, get }
}

fn null(_: &Row<'_>, _: &Ctx) -> String {
    "(null)".to_owned()
}

fn unknown(_: &Row<'_>, _: &Ctx) -> String {
    "Unknown".to_owned()
}

fn one(_: &Row<'_>, _: &Ctx) -> String {
    "1".to_owned()
}

fn not_available(_: &Row<'_>, _: &Ctx) -> String {
    "N/A".to_owned()
}

/// `2.53`
pub fn load(node: &NodeView) -> String {
    format!("{}.{:02}", node.load_centi / 100, node.load_centi % 100)
}

fn sct(r: &Row<'_>) -> String {
    let h = &r.node.host;
    format!("{}:{}:{}", h.sockets, h.cores_per_socket, h.threads_per_core)
}

/// `GRES_USED`: the GPUs in use, or `N/A` in a partition without any.
fn gres_used(r: &Row<'_>) -> String {
    if r.has_gpus() { format!("gpu:{}", r.node.allocated.gpus) } else { "N/A".to_owned() }
}

/// Slurm's fields.
pub static FIELDS: &[Field<Get>] = &[
    coded('P', &["Partition"], "PARTITION", |r, _| r.partition(true)),
    coded('R', &["PartitionName"], "PARTITION", |r, _| r.partition(false)),
    coded('a', &["Available"], "AVAIL", |_, _| "up".to_owned()),
    coded('l', &["Time"], "TIMELIMIT", |_, _| "infinite".to_owned()),
    coded('L', &["DefaultTime"], "DEFAULTTIME", |_, _| "n/a".to_owned()),
    coded('D', &["Nodes"], "NODES", |r, _| r.count(1)),
    coded('t', &["StateCompact"], "STATE", |r, _| r.state(State::code)),
    coded('T', &["StateLong"], "STATE", |r, _| r.state(State::name)),
    nodes('N', &["NodeList"], "NODELIST", |r, _| r.name()),
    nodes('n', &["NodeHost"], "HOSTNAMES", |r, _| r.name()),
    nodes('o', &["NodeAddr"], "NODE_ADDR", |r, _| r.name()),
    coded('A', &["NodeAI"], "NODES(A/I)", |r, _| {
        let (a, i) = r.nodes_ai();
        format!("{a}/{i}")
    }),
    coded('F', &["NodeAIOT"], "NODES(A/I/O/T)", |r, _| {
        let (a, i) = r.nodes_ai();
        format!("{a}/{i}/0/{}", a + i)
    }),
    coded('c', &["CPUs"], "CPUS", |r, _| r.count(r.cpus().1)),
    coded('C', &["CPUsState"], "CPUS(A/I/O/T)", |r, _| {
        let (taken, total) = if r.has_node { r.cpus() } else { (0, 0) };
        format!("{taken}/{}/0/{total}", total - taken)
    }),
    coded('O', &["CPUsLoad"], "CPU_LOAD", |r, _| load(r.node)),
    coded('m', &["Memory"], "MEMORY", |r, _| r.count(r.node.host.mem_mb)),
    coded('e', &["FreeMem"], "FREE_MEM", |r, _| r.count(r.node.free_mem_mb)),
    coded('d', &["Disk"], "TMP_DISK", |_, _| "0".to_owned()),
    coded('G', &["Gres"], "GRES", |r, _| r.gres()),
    coded('f', &["Features"], "AVAIL_FEATURES", |r, _| r.features()),
    coded('b', &["features_act"], "ACTIVE_FEATURES", |r, _| r.features()),
    coded('X', &["Sockets"], "SOCKETS", |r, _| r.node.host.sockets.to_string()),
    coded('Y', &["Cores"], "CORES", |r, _| r.node.host.cores_per_socket.to_string()),
    coded('Z', &["Threads"], "THREADS", |r, _| r.node.host.threads_per_core.to_string()),
    coded('z', &["SocketCoreThread"], "S:C:T", |r, _| sct(r)),
    coded('w', &["Weight"], "WEIGHT", one),
    coded('E', &["Reason"], "REASON", |_, _| "none".to_owned()),
    coded('H', &["TimeStamp"], "TIMESTAMP", unknown),
    coded('u', &["User"], "USER", unknown),
    coded('U', &["UserLong"], "USER", unknown),
    coded('g', &["Groups"], "GROUPS", |_, _| "all".to_owned()),
    coded('h', &["OverSubscribe", "Share"], "OVERSUBSCRIBE", |_, _| "NO".to_owned()),
    coded('r', &["Root"], "ROOT", |_, _| "no".to_owned()),
    coded('s', &["Size"], "JOB_SIZE", |_, _| "1-infinite".to_owned()),
    coded('S', &["AllocNodes"], "ALLOCNODES", |_, _| "all".to_owned()),
    coded('p', &["PriorityTier", "Priority"], "PRIO_TIER", one),
    coded('I', &["PriorityJobFactor"], "PRIO_JOB_FACTOR", one),
    coded('M', &["PreemptMode"], "PREEMPT_MODE", |_, _| "OFF".to_owned()),
    coded('B', &["MaxCPUsPerNode"], "MAX_CPUS_PER_NODE", |_, _| "UNLIMITED".to_owned()),
    coded('V', &["Cluster"], "CLUSTER", not_available),
    coded('v', &["Version"], "VERSION", |_, _| VERSION.to_owned()),
    named(&["AllocMem"], "ALLOCMEM", |r, _| r.count(r.node.allocated.mem_mb)),
    named(&["Comment"], "COMMENT", null),
    named(&["Extra"], "EXTRA", null),
    named(&["GresUsed"], "GRES_USED", |r, _| gres_used(r)),
    named(&["Port"], "PORT", |_, _| "0".to_owned()),
    named(&["StateComplete"], "STATE", |r, _| r.state(State::name)),
];

/// Whether the column differs between partitions: without one, Slurm prints equal lines once.
pub fn tells_partitions_apart(field: usize) -> bool {
    matches!(FIELDS[field].code, Some('P' | 'R'))
}

/// The book's field names, which win over Slurm's of the same name in a list after `-o`.
pub static BOOK: &[Field<Get>] = &[
    named(&["Partition"], "PARTITION", |r, _| r.partition(true)),
    named(&["Hostnames", "Hostname", "NodeList"], "HOSTNAMES", |r, _| r.name()),
    named(&["State"], "STATE", |r, _| r.state(State::code)),
    named(&["Features"], "FEATURES", |r, _| r.book_features()),
    named(&["CPUS"], "CPUS", |r, _| r.count(r.cpus().1)),
    named(&["CPU_ALLOC", "CPUSLOAD", "CPUALLOC"], "CPU_ALLOC", |r, _| r.count(r.cpus().0)),
    named(&["Memory", "Mem"], "MEMORY", |r, c| size::mib(r.node.host.mem_mb, c.units)),
    named(&["MEM_ALLOC", "MemoryAllocated", "MemAlloc"], "MEM_ALLOC", |r, c| {
        size::mib(r.node.allocated.mem_mb, c.units)
    }),
    named(&["GPUS"], "GPUS", |r, _| if r.has_gpus() { r.node.host.gpus.len() } else { 0 }.to_string()),
    named(&["GPU_ALLOC", "GpusAllocated", "GpuAlloc"], "GPU_ALLOC", |r, _| {
        if r.has_gpus() { r.node.allocated.gpus } else { 0 }.to_string()
    }),
    named(&["Running", "RunningJobs"], "RUNNING", |r, _| r.sum(|p| p.running)),
    named(&["Pending", "PendingJobs"], "PENDING", |r, _| r.sum(|p| p.pending)),
    named(&["GRES_USED", "GresUsed"], "GRES_USED", |r, _| gres_used(r)),
];
