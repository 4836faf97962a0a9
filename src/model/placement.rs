//! How the tasks of a job or a step are laid on the cores, the sockets and the memory of the host,
//! beside `--cpu-bind`.

use crate::model::binding::{Repeated, print_mask};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What is said of it. The default says nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Placement {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<Hint>,
    /// Threads of each core to use, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads_per_core: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ntasks_per_core: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ntasks_per_socket: Option<u32>,
    /// What the host must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets_per_node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores_per_socket: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_bind: Option<MemBind>,
}

impl Placement {
    /// Threads of each core to use, at most: where it is said outright, or follows from a hint or
    /// from one task a core.
    pub fn threads(&self) -> Option<u32> {
        let one =
            matches!(self.hint, Some(Hint::NoMultithread | Hint::ComputeBound | Hint::MemoryBound));
        self.threads_per_core.or(one.then_some(1))
    }
}

/// `-m/--distribution`. Kept as text: the printed form, which `parse::distribution` reads back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Distribution {
    /// Over nodes, of which there is one: over its sockets where nothing is said of them.
    pub nodes: Spread,
    pub sockets: Option<Dealing>,
    pub cores: Option<Dealing>,
    /// `pack` or `nopack`, which say something of several nodes alone.
    pub packs: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// `*`: as the system does by itself.
    Default,
    Block,
    Cyclic,
    /// `plane=N`: so many tasks in one place, then as many in the next. `None`:
    /// SLURM_DIST_PLANESIZE tells.
    Plane(Option<u32>),
}

/// How CPUs are dealt to tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dealing {
    /// One socket after the other is filled.
    Block,
    /// Each task is in the next socket.
    Cyclic,
    /// Each CPU of a task is in the next socket.
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

/// What `parse::distribution` reads back as the same.
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

/// `--hint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hint {
    /// One thread of each core.
    ComputeBound,
    /// One thread of each core, too.
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

/// `--mem-bind`. Kept as text: the printed form, which `parse::mem_bind` reads back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MemBind {
    pub nodes: MemNodes,
    /// `prefer`: other memory is taken where theirs is full.
    pub prefers: bool,
    /// `sort` or `nosort`, for a kind of memory that is built no more.
    pub sorts: Option<bool>,
    /// A line on each task's standard error tells the binding.
    pub reports: bool,
}

/// From which NUMA nodes tasks have their memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum MemNodes {
    /// From any.
    #[default]
    None,
    /// From those of their CPUs.
    Local,
    /// Task `n` from node `n`.
    Rank,
    /// Task `n` from the `n`-th node of the list, which begins anew at its end.
    Map(Vec<Repeated<u32>>),
    /// As `Map`, with a set of nodes for each task.
    Mask(Vec<Repeated<Vec<u32>>>),
}

impl MemNodes {
    /// The word that names it, and its list as far as it has one.
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
    /// What tasks are told of it.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let (kind, list) = self.nodes.parts();
        let list = list.replace("0x", "");
        let said = if self.reports { "verbose" } else { "quiet" };
        let prefer = if self.prefers { "prefer," } else { "" };
        let mut told = vec![
            ("SLURM_MEM_BIND", format!("{said},{prefer}{kind}{list}")),
            ("SLURM_MEM_BIND_LIST", list),
            ("SLURM_MEM_BIND_TYPE", kind.to_owned()),
            ("SLURM_MEM_BIND_VERBOSE", said.to_owned()),
        ];
        told.extend(self.prefers.then(|| ("SLURM_MEM_BIND_PREFER", "prefer".to_owned())));
        told.extend((self.sorts == Some(true)).then(|| ("SLURM_MEM_BIND_SORT", "sort".to_owned())));
        told
    }
}

/// What `parse::mem_bind` reads back as the same.
impl fmt::Display for MemBind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, list) = self.nodes.parts();
        let words = [(self.reports, "verbose,"), (self.prefers, "prefer,")];
        for (_, word) in words.iter().filter(|(is_said, _)| *is_said) {
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
