//! How the tasks of a step are bound to CPUs and GPUs (srun man page, `--cpu-bind` and `--gpu-bind`).

use serde::{Deserialize, Serialize};
use std::fmt;

/// How tasks are bound.
///
/// Kept as text: the printed form, which `spec::cpu_bind` reads back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CpuBind {
    /// Nothing said but, at most, how much to report: the launcher's default.
    #[default]
    Auto,
    /// Tasks may run on every CPU of the allocation.
    None,
    Threads,
    Cores,
    Sockets,
    Ldoms,
    /// Task `n` on the allocation's CPU `n`.
    Rank,
    RankLdom,
    /// Task `n` on the `n`-th CPU of the list, which begins anew at its end.
    MapCpu(Vec<Repeated<u32>>),
    /// As `MapCpu`, with a set of CPUs for each task.
    MaskCpu(Vec<Repeated<Vec<u32>>>),
    /// Task `n` on the CPUs of the `n`-th NUMA node of the list, which begins anew at its end.
    MapLdom(Vec<Repeated<u32>>),
    /// As `MapLdom`, with a set of nodes for each task.
    MaskLdom(Vec<Repeated<Vec<u32>>>),
}

/// `value*times` of a list, so that `0*4000000000` costs no more than `0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeated<T> {
    pub value: T,
    /// At least 1.
    pub times: u32,
}

impl CpuBind {
    /// The list of a map or a mask with each element as often as it counts.
    fn elements(&self) -> String {
        fn told<T>(list: &[Repeated<T>], print: impl Fn(&T) -> String) -> String {
            let count: u64 = list.iter().map(|r| u64::from(r.times)).sum();
            let one = |r: &Repeated<T>| match (count > MAX_TOLD, r.times) {
                (true, 2..) => format!("{}*{}", print(&r.value), r.times),
                (true, _) => print(&r.value),
                (false, times) => vec![print(&r.value); times as usize].join(","),
            };
            list.iter().map(one).collect::<Vec<_>>().join(",")
        }
        match self {
            CpuBind::MapCpu(list) | CpuBind::MapLdom(list) => told(list, u32::to_string),
            CpuBind::MaskCpu(list) | CpuBind::MaskLdom(list) => {
                told(list, |units| print_mask(units))
            }
            _ => String::new(),
        }
    }

    /// What srun tells its tasks of the binding; nothing where nothing was asked for.
    pub fn variables(&self, verbose: bool) -> Vec<(&'static str, String)> {
        let written = match self {
            CpuBind::Auto if !verbose => return Vec::new(),
            CpuBind::Auto => String::new(),
            _ => self.to_string(),
        };
        let said = if verbose { "verbose" } else { "quiet" };
        let (kind, list) = match written.split_once(':') {
            // Slurm writes masks without what marks them as hexadecimal, and repeated elements one by one.
            Some((name, _)) => (format!("{name}:"), self.elements().replace("0x", "")),
            None => (written, String::new()),
        };
        let all = if kind.is_empty() { said.to_owned() } else { format!("{said},{kind}{list}") };
        vec![
            ("SLURM_CPU_BIND", all),
            ("SLURM_CPU_BIND_LIST", list),
            ("SLURM_CPU_BIND_TYPE", kind),
            ("SLURM_CPU_BIND_VERBOSE", said.to_owned()),
        ]
    }
}

/// A longer list is told in its short form.
const MAX_TOLD: u64 = 4096;

/// What `spec::cpu_bind` reads back as the same binding.
impl fmt::Display for CpuBind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Slurm's word for "say nothing", which is what the default does.
            CpuBind::Auto => f.write_str("quiet"),
            CpuBind::None => f.write_str("none"),
            CpuBind::Threads => f.write_str("threads"),
            CpuBind::Cores => f.write_str("cores"),
            CpuBind::Sockets => f.write_str("sockets"),
            CpuBind::Ldoms => f.write_str("ldoms"),
            CpuBind::Rank => f.write_str("rank"),
            CpuBind::RankLdom => f.write_str("rank_ldom"),
            CpuBind::MapCpu(list) => write_list(f, "map_cpu", list, |cpu| cpu.to_string()),
            CpuBind::MaskCpu(list) => write_list(f, "mask_cpu", list, |cpus| print_mask(cpus)),
            CpuBind::MapLdom(list) => write_list(f, "map_ldom", list, |node| node.to_string()),
            CpuBind::MaskLdom(list) => write_list(f, "mask_ldom", list, |nodes| print_mask(nodes)),
        }
    }
}

fn write_list<T>(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    list: &[Repeated<T>],
    print: impl Fn(&T) -> String,
) -> fmt::Result {
    for (i, r) in list.iter().enumerate() {
        let before = if i == 0 { format!("{name}:") } else { ",".to_string() };
        write!(f, "{before}{}", print(&r.value))?;
        if r.times > 1 {
            write!(f, "*{}", r.times)?;
        }
    }
    Ok(())
}

/// The numbers as bits of a hexadecimal mask.
pub(super) fn print_mask(cpus: &[u32]) -> String {
    let highest = cpus.iter().copied().max().unwrap_or(0);
    let digits = (0..=highest / 4).rev().map(|digit| {
        let bits =
            cpus.iter().filter(|&&cpu| cpu / 4 == digit).fold(0, |bits, cpu| bits | 1 << (cpu % 4));
        char::from_digit(bits, 16).unwrap_or('0')
    });
    std::iter::once('0').chain(std::iter::once('x')).chain(digits).collect()
}

/// The element of a list for one task; the list begins anew at its end. `None` for an empty list.
pub fn element_for<T>(list: &[Repeated<T>], task: u32) -> Option<&T> {
    let total: u64 = list.iter().map(|r| u64::from(r.times)).sum();
    let mut index = u64::from(task).checked_rem(total)?;
    for r in list {
        match index.checked_sub(u64::from(r.times)) {
            Some(rest) => index = rest,
            None => return Some(&r.value),
        }
    }
    None
}

impl From<CpuBind> for String {
    fn from(bind: CpuBind) -> String {
        bind.to_string()
    }
}

/// How the GPUs of a step are shared out to its tasks.
///
/// Place 0 is the first GPU of the step. Kept as text: the printed form, which `spec::gpu_bind` reads back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum GpuBind {
    /// Nothing said: each task its own where GPUs were asked for by task, otherwise every task all of them.
    #[default]
    Auto,
    /// Every task all of them.
    None,
    /// `single:N`: one GPU a task, shared by N tasks that stand side by side.
    Single(u32),
    /// `per_task:N`: N GPUs a task, one task after the other.
    PerTask(u32),
    /// `map_gpu:0,1`: task `n` has the GPU at the `n`-th place of the list, which begins anew at its end.
    Map(Vec<u32>),
    /// `mask_gpu:0x3,0xc`: as `Map`, with a set of places for each task.
    Mask(Vec<u64>),
}

impl GpuBind {
    /// A place that a map or a mask names for one of these tasks, and that a step with so many GPUs does not have.
    pub fn outside(&self, gpus: usize, ntasks: u32) -> Option<u32> {
        let ranks = 0..ntasks;
        let last = match self {
            GpuBind::Map(list) => ranks.filter_map(|rank| element(list, rank)).max(),
            GpuBind::Mask(list) => {
                ranks.filter_map(|rank| element(list, rank)?.checked_ilog2()).max()
            }
            GpuBind::Auto | GpuBind::None | GpuBind::Single(_) | GpuBind::PerTask(_) => None,
        };
        last.filter(|place| gpus > 0 && *place as usize >= gpus)
    }

    /// The GPUs that the task of this rank sees, of those that the step has. `None`: all of them. A binding that names
    /// none of the step's GPUs gives the first, as Slurm does.
    pub fn gpus_of(&self, per_task: Option<u32>, gpus: &[u32], rank: u32) -> Option<Vec<u32>> {
        let count = u32::try_from(gpus.len()).ok().filter(|count| *count > 0)?;
        let places: Vec<u32> = match self {
            GpuBind::None => return None,
            GpuBind::Auto => consecutive(per_task.filter(|each| *each > 0)?, rank),
            GpuBind::PerTask(each) => consecutive(*each, rank),
            GpuBind::Single(tasks) => vec![rank / tasks % count],
            GpuBind::Map(list) => element(list, rank).into_iter().collect(),
            GpuBind::Mask(list) => {
                let mask = element(list, rank).unwrap_or(0);
                (0..u64::BITS).filter(|place| mask >> place & 1 == 1).collect()
            }
        };
        let seen: Vec<u32> =
            places.iter().filter_map(|place| gpus.get(*place as usize)).copied().collect();
        Some(if seen.is_empty() { vec![gpus[0]] } else { seen })
    }
}

/// What `spec::gpu_bind` reads back as the same binding.
impl fmt::Display for GpuBind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |items: Vec<String>| items.join(",");
        match self {
            GpuBind::Auto => f.write_str("closest"),
            GpuBind::None => f.write_str("none"),
            GpuBind::Single(tasks) => write!(f, "single:{tasks}"),
            GpuBind::PerTask(gpus) => write!(f, "per_task:{gpus}"),
            GpuBind::Map(places) => {
                write!(f, "map_gpu:{}", list(places.iter().map(u32::to_string).collect()))
            }
            GpuBind::Mask(masks) => {
                write!(
                    f,
                    "mask_gpu:{}",
                    list(masks.iter().map(|mask| format!("{mask:#x}")).collect())
                )
            }
        }
    }
}

impl From<GpuBind> for String {
    fn from(bind: GpuBind) -> String {
        bind.to_string()
    }
}

fn consecutive(each: u32, rank: u32) -> Vec<u32> {
    let first = rank.saturating_mul(each);
    (first..first.saturating_add(each)).collect()
}

fn element<T: Copy>(list: &[T], rank: u32) -> Option<T> {
    list.get((rank as usize).checked_rem(list.len())?).copied()
}
