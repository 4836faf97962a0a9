//! How the tasks of a step are bound to CPUs and GPUs (srun man page, `--cpu-bind` and `--gpu-bind`).

use crate::model::topology::{Level, Topology};
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
}

/// `value*times` of a list, so that `0*4000000000` costs no more than `0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeated<T> {
    pub value: T,
    /// At least 1.
    pub times: u32,
}

impl CpuBind {
    /// The CPUs of one task of an allocation (srun man page, `--cpu-bind`). Empty: not bound. Of a core only what is
    /// allocated counts.
    pub fn cpus_of(&self, cpus: &[u32], host: &Topology, rank: u32, ntasks: u32, per_task: u32) -> Vec<u32> {
        match self {
            CpuBind::Auto | CpuBind::None => Vec::new(),
            CpuBind::Threads => share(cpus, rank, ntasks, per_task),
            CpuBind::Cores => {
                let cores = host.group(cpus.iter().copied(), Level::Core);
                let threads = cores.iter().map(Vec::len).max().unwrap_or(1);
                let per_task = per_task.div_ceil(u32::try_from(threads).unwrap_or(1));
                let mut bound = share(&cores, rank, ntasks, per_task).concat();
                bound.sort_unstable();
                bound
            }
            // One host with its memory as one: the whole allocation.
            CpuBind::Sockets | CpuBind::Ldoms | CpuBind::RankLdom => cpus.to_vec(),
            CpuBind::Rank => cpus.get(rank as usize % cpus.len().max(1)).copied().into_iter().collect(),
            CpuBind::MapCpu(list) => element_for(list, rank).copied().into_iter().collect(),
            CpuBind::MaskCpu(list) => element_for(list, rank).cloned().unwrap_or_default(),
        }
    }

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
            CpuBind::MapCpu(list) => told(list, u32::to_string),
            CpuBind::MaskCpu(list) => told(list, |cpus| print_mask(cpus)),
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

fn print_mask(cpus: &[u32]) -> String {
    let highest = cpus.iter().copied().max().unwrap_or(0);
    let digits = (0..=highest / 4).rev().map(|digit| {
        let bits = cpus.iter().filter(|&&cpu| cpu / 4 == digit).fold(0, |bits, cpu| bits | 1 << (cpu % 4));
        char::from_digit(bits, 16).unwrap_or('0')
    });
    std::iter::once('0').chain(std::iter::once('x')).chain(digits).collect()
}

/// The part of one task: as many as it asks for, or more where there are more for each; beginning anew at the end.
fn share<T: Clone>(units: &[T], rank: u32, ntasks: u32, per_task: u32) -> Vec<T> {
    let each = (per_task.max(1) as usize).max(units.len() / ntasks.max(1) as usize).min(units.len());
    let first = (rank as usize * each) % units.len().max(1);
    units.iter().cycle().skip(first).take(each).cloned().collect()
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
        let seen: Vec<u32> = places.iter().filter_map(|place| gpus.get(*place as usize)).copied().collect();
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
            GpuBind::Map(places) => write!(f, "map_gpu:{}", list(places.iter().map(u32::to_string).collect())),
            GpuBind::Mask(masks) => {
                write!(f, "mask_gpu:{}", list(masks.iter().map(|mask| format!("{mask:#x}")).collect()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_shared_out_by_rank_and_cores_with_all_their_threads() {
        let of = |bind: CpuBind, cpus: &[u32], rank, ntasks| {
            bind.cpus_of(cpus, &Topology::uniform(1, 4, 2), rank, ntasks, 1)
        };
        assert_eq!(of(CpuBind::Threads, &[0, 1, 4, 5], 1, 2), [4, 5]);
        assert_eq!(of(CpuBind::Threads, &[0, 4], 0, 1), [0, 4]);
        assert_eq!(of(CpuBind::Cores, &[0, 1, 4, 5], 0, 2), [0, 4]);
        assert_eq!(of(CpuBind::Cores, &[0, 1, 4, 5], 1, 2), [1, 5]);
        // More tasks than cores begin anew; of a core that is not the job's alone only its part counts.
        assert_eq!(of(CpuBind::Cores, &[0, 4, 5], 3, 4), [5]);
        assert_eq!(of(CpuBind::Cores, &[0, 4, 5], 2, 4), [0, 4]);
        assert_eq!(CpuBind::Cores.cpus_of(&[4, 5, 6, 7], &Topology::default(), 1, 2, 1), [6, 7]);
        assert_eq!(of(CpuBind::Rank, &[4, 5, 6, 7], 5, 6), [5]);
        assert_eq!(of(CpuBind::None, &[0], 0, 1), [] as [u32; 0]);
        assert_eq!(of(CpuBind::Cores, &[], 0, 1), [] as [u32; 0]);
    }

    #[test]
    fn a_map_begins_anew_at_its_end() {
        let once = |value| Repeated { value, times: 1 };
        let map = CpuBind::MapCpu(vec![once(0), once(2)]);
        let of = |rank| map.cpus_of(&[0, 1, 2, 3], &Topology::default(), rank, 3, 1);
        assert_eq!((of(0), of(1), of(2)), (vec![0], vec![2], vec![0]));
    }
}
