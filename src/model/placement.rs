//! Placement of tasks on cores, sockets and memory, apart from `--cpu-bind`.

use crate::binding::{Repeated, print_mask};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The placement options that were given. The default means none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Placement {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<Hint>,
    /// Maximum number of threads to use per core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads_per_core: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ntasks_per_core: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ntasks_per_socket: Option<u32>,
    /// The shape that the host must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets_per_node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores_per_socket: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_bind: Option<MemBind>,
}

impl Placement {
    /// Returns the maximum number of threads to use per core, if it was given or follows from a
    /// hint.
    pub fn threads(&self) -> Option<u32> {
        let one =
            matches!(self.hint, Some(Hint::NoMultithread | Hint::ComputeBound | Hint::MemoryBound));
        self.threads_per_core.or(one.then_some(1))
    }
}

/// The value of `-m/--distribution`. Stored as text: the printed form, which `read::distribution`
/// parses back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Distribution {
    /// Distribution over nodes. Since there is only one, it applies to its sockets if `sockets` is
    /// not given.
    pub nodes: Spread,
    pub sockets: Option<Dealing>,
    pub cores: Option<Dealing>,
    /// `pack` or `nopack`, which only affect several nodes.
    pub packs: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// `*`: the default.
    Default,
    Block,
    Cyclic,
    /// `plane=N`: this many tasks in one place, then as many in the next. `None`:
    /// SLURM_DIST_PLANESIZE sets the size.
    Plane(Option<u32>),
}

/// The order in which tasks get CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dealing {
    /// Fills one socket after the other.
    Block,
    /// Puts each task on the next socket.
    Cyclic,
    /// Takes each CPU of a task from the next socket.
    Fcyclic,
}

impl fmt::Display for Dealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dealing::Block => "block",
            Dealing::Cyclic => "cyclic",
            Dealing::Fcyclic => "fcyclic",
        })
    }
}

/// Prints the form that `read::distribution` parses back to the same value.
impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nodes {
            Spread::Default => f.write_str("*")?,
            Spread::Block => f.write_str("block")?,
            Spread::Cyclic => f.write_str("cyclic")?,
            Spread::Plane(None) => f.write_str("plane")?,
            Spread::Plane(Some(size)) => write!(f, "plane={size}")?,
        }
        match (self.sockets, self.cores) {
            (None, None) => {}
            (Some(sockets), None) => write!(f, ":{sockets}")?,
            (None, Some(cores)) => write!(f, ":*:{cores}")?,
            (Some(sockets), Some(cores)) => write!(f, ":{sockets}:{cores}")?,
        }
        match self.packs {
            None => Ok(()),
            Some(true) => f.write_str(",pack"),
            Some(false) => f.write_str(",nopack"),
        }
    }
}

impl From<Distribution> for String {
    fn from(distribution: Distribution) -> String {
        distribution.to_string()
    }
}

/// The value of `--hint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hint {
    /// Use one thread per core.
    ComputeBound,
    /// Use one thread per core, too.
    MemoryBound,
    Multithread,
    NoMultithread,
}

impl Hint {
    pub const ALL: [(&str, Hint); 4] = [
        ("compute_bound", Hint::ComputeBound),
        ("memory_bound", Hint::MemoryBound),
        ("multithread", Hint::Multithread),
        ("nomultithread", Hint::NoMultithread),
    ];
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Hint::ALL.iter().find(|(_, hint)| hint == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// The value of `--mem-bind`. Stored as text: the printed form, which `read::mem_bind` parses
/// back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MemBind {
    pub nodes: MemNodes,
    /// `prefer`: use other memory when the bound nodes are full.
    pub prefers: bool,
    /// `sort` or `nosort`, for a kind of memory that is no longer built.
    pub sorts: Option<bool>,
    /// Print the binding on each task's standard error.
    pub reports: bool,
}

/// The NUMA nodes that tasks allocate memory from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum MemNodes {
    /// Any node.
    #[default]
    None,
    /// The nodes of the task's CPUs.
    Local,
    /// Node `n` for task `n`.
    Rank,
    /// The `n`-th node of the list for task `n`. The list is repeated as needed.
    Map(Vec<Repeated<u32>>),
    /// Like `Map`, with a set of nodes per task.
    Mask(Vec<Repeated<Vec<u32>>>),
}

impl MemNodes {
    /// Returns the keyword and the list, which is empty if the keyword takes none.
    fn parts(&self) -> (&'static str, String) {
        fn list<T>(list: &[Repeated<T>], print: impl Fn(&T) -> String) -> String {
            let one = |r: &Repeated<T>| match r.times {
                1 => print(&r.value),
                times => format!("{}*{times}", print(&r.value)),
            };
            list.iter().map(one).collect::<Vec<_>>().join(",")
        }
        match self {
            MemNodes::None => ("none", String::new()),
            MemNodes::Local => ("local", String::new()),
            MemNodes::Rank => ("rank", String::new()),
            MemNodes::Map(nodes) => ("map_mem:", list(nodes, u32::to_string)),
            MemNodes::Mask(masks) => ("mask_mem:", list(masks, |nodes| print_mask(nodes))),
        }
    }
}

impl MemBind {
    /// Returns the environment variables that describe the binding to tasks.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let (kind, list) = self.nodes.parts();
        let list = list.replace("0x", "");
        let mode = if self.reports { "verbose" } else { "quiet" };
        let prefer = if self.prefers { "prefer," } else { "" };
        let mut vars = vec![
            ("SLURM_MEM_BIND", format!("{mode},{prefer}{kind}{list}")),
            ("SLURM_MEM_BIND_LIST", list),
            ("SLURM_MEM_BIND_TYPE", kind.to_owned()),
            ("SLURM_MEM_BIND_VERBOSE", mode.to_owned()),
        ];
        vars.extend(self.prefers.then(|| ("SLURM_MEM_BIND_PREFER", "prefer".to_owned())));
        vars.extend((self.sorts == Some(true)).then(|| ("SLURM_MEM_BIND_SORT", "sort".to_owned())));
        vars
    }
}

/// Prints the form that `read::mem_bind` parses back to the same value.
impl fmt::Display for MemBind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, list) = self.nodes.parts();
        let words = [(self.reports, "verbose,"), (self.prefers, "prefer,")];
        for (_, word) in words.iter().filter(|(is_set, _)| *is_set) {
            f.write_str(word)?;
        }
        match self.sorts {
            None => {}
            Some(true) => f.write_str("sort,")?,
            Some(false) => f.write_str("nosort,")?,
        }
        write!(f, "{kind}{list}")
    }
}

impl From<MemBind> for String {
    fn from(bind: MemBind) -> String {
        bind.to_string()
    }
}
