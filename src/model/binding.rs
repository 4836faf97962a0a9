//! CPU and GPU binding of a step's tasks (srun man page, `--cpu-bind` and `--gpu-bind`).

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The value of `--cpu-bind`.
///
/// Stored as text: the printed form, which `read::cpu_bind` parses back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CpuBind {
    /// No binding was requested: the launcher's default applies. `verbose` or `quiet` may still
    /// have been given.
    #[default]
    Auto,
    /// Tasks may run on any CPU of the allocation.
    None,
    Threads,
    Cores,
    Sockets,
    Ldoms,
    /// Binds task `n` to the allocation's CPU `n`.
    Rank,
    RankLdom,
    /// Binds task `n` to the `n`-th CPU of the list, which is repeated as needed.
    MapCpu(Vec<Repeated<u32>>),
    /// Like `MapCpu`, with a set of CPUs per task.
    MaskCpu(Vec<Repeated<Vec<u32>>>),
    /// Binds task `n` to the CPUs of the `n`-th NUMA node of the list, which is repeated as needed.
    MapLdom(Vec<Repeated<u32>>),
    /// Like `MapLdom`, with a set of nodes per task.
    MaskLdom(Vec<Repeated<Vec<u32>>>),
}

/// A list element written `value*times`. It is not expanded, so that `0*4000000000` costs no more
/// than `0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeated<T> {
    pub value: T,
    /// At least 1.
    pub times: u32,
}

impl CpuBind {
    /// Formats the list of a map or a mask with repeated elements written out. Lists with more than
    /// [`MAX_EXPANDED`] elements keep the `value*times` form.
    fn elements(&self) -> String {
        fn expand<T>(list: &[Repeated<T>], print: impl Fn(&T) -> String) -> String {
            let count: u64 = list.iter().map(|r| u64::from(r.times)).sum();
            let one = |r: &Repeated<T>| match (count > MAX_EXPANDED, r.times) {
                (true, 2..) => format!("{}*{}", print(&r.value), r.times),
                (true, _) => print(&r.value),
                (false, times) => vec![print(&r.value); times as usize].join(","),
            };
            list.iter().map(one).collect::<Vec<_>>().join(",")
        }
        match self {
            CpuBind::MapCpu(list) | CpuBind::MapLdom(list) => expand(list, u32::to_string),
            CpuBind::MaskCpu(list) | CpuBind::MaskLdom(list) => {
                expand(list, |units| print_mask(units))
            }
            _ => String::new(),
        }
    }

    /// Returns the host CPUs that a map or a mask names for the first `ntasks` tasks, ascending.
    pub fn named_cpus(&self, ntasks: u32) -> Vec<u32> {
        fn of_tasks<T>(list: &[Repeated<T>], ntasks: u32) -> impl Iterator<Item = &T> {
            let mut left = ntasks;
            list.iter().map_while(move |r| {
                let is_reached = left > 0;
                left = left.saturating_sub(r.times);
                is_reached.then_some(&r.value)
            })
        }
        let named: BTreeSet<u32> = match self {
            CpuBind::MapCpu(list) => of_tasks(list, ntasks).copied().collect(),
            CpuBind::MaskCpu(list) => of_tasks(list, ntasks).flatten().copied().collect(),
            _ => BTreeSet::new(),
        };
        named.into_iter().collect()
    }

    /// Returns the environment variables that describe the binding to tasks, as Slurm's task plugin
    /// sets them. Empty if no binding was requested and no task is bound.
    pub fn variables(&self, verbose: bool, bound: &Bound<'_>) -> Vec<(&'static str, String)> {
        let mode = if verbose { "verbose" } else { "quiet" };
        let (kind, list) = match self.masks(bound) {
            Some(masks) => ("mask_cpu:".to_owned(), masks),
            None if *self == CpuBind::Auto && !verbose => return Vec::new(),
            None if *self == CpuBind::Auto => Default::default(),
            None => match self.to_string().split_once(':') {
                // Slurm writes masks without the `0x` prefix and repeated elements one by one.
                Some((name, _)) => (format!("{name}:"), self.elements().replace("0x", "")),
                None => (self.to_string(), String::new()),
            },
        };
        let all = if kind.is_empty() { mode.to_owned() } else { format!("{mode},{kind}{list}") };
        let values = [all, list, kind, mode.to_owned()];
        CPU_BIND_VARIABLES.into_iter().zip(values).collect()
    }

    /// Formats the CPUs of each task as masks, or as one mask if unbound tasks share the job's
    /// CPUs. Returns `None` if no task is bound, or if the binding lists its CPUs itself.
    fn masks(&self, bound: &Bound<'_>) -> Option<String> {
        let Bound { tasks, host } = bound;
        let is_bound = !tasks.is_empty() && tasks.iter().all(|cpus| !cpus.is_empty());
        let is_common = tasks.windows(2).all(|pair| pair[0] == pair[1]);
        let has_all = || host.iter().all(|cpu| tasks.iter().all(|cpus| cpus.contains(cpu)));
        let count = match self {
            _ if !is_bound => return None,
            CpuBind::None if has_all() => return None,
            CpuBind::None | CpuBind::Auto if is_common => 1,
            CpuBind::None | CpuBind::Auto => tasks.len(),
            CpuBind::Threads | CpuBind::Cores | CpuBind::Sockets | CpuBind::Ldoms => tasks.len(),
            CpuBind::Rank
            | CpuBind::RankLdom
            | CpuBind::MapCpu(_)
            | CpuBind::MaskCpu(_)
            | CpuBind::MapLdom(_)
            | CpuBind::MaskLdom(_) => return None,
        };
        let digits = host.iter().max().map_or(1, |last| last / 4 + 1) as usize;
        let mask =
            |cpus: &Vec<u32>| format!("0x{:0>digits$}", print_mask(cpus)[2..].to_uppercase());
        (count.saturating_mul(digits + 3) <= MAX_MASKS).then(|| {
            let masks: Vec<String> = tasks[..count].iter().map(mask).collect();
            masks.join(",")
        })
    }
}

/// The CPUs that the tasks of a step are bound to.
#[derive(Debug, Clone, Copy)]
pub struct Bound<'a> {
    /// The CPUs of each task; empty for a task that is not bound.
    pub tasks: &'a [Vec<u32>],
    /// The CPUs that jobs on this host may use.
    pub host: &'a [u32],
}

/// The variables that describe the CPU binding to tasks.
pub const CPU_BIND_VARIABLES: [&str; 4] =
    ["SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_VERBOSE"];

/// Maximum size of the masks in a variable, in bytes. Longer masks are left out, since the kernel
/// accepts no variable longer than 128 KiB.
const MAX_MASKS: usize = 64 << 10;

/// Maximum number of list elements to write out. Longer lists keep the `value*times` form.
const MAX_EXPANDED: u64 = 4096;

/// Prints the form that `read::cpu_bind` parses back to the same binding.
impl fmt::Display for CpuBind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Slurm's word for "do not report", which is the default.
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

/// Prints the numbers as a hexadecimal mask.
pub(super) fn print_mask(cpus: &[u32]) -> String {
    let highest = cpus.iter().copied().max().unwrap_or(0);
    let digits = (0..=highest / 4).rev().map(|digit| {
        let bits =
            cpus.iter().filter(|&&cpu| cpu / 4 == digit).fold(0, |bits, cpu| bits | 1 << (cpu % 4));
        char::from_digit(bits, 16).unwrap_or('0')
    });
    std::iter::once('0').chain(std::iter::once('x')).chain(digits).collect()
}

/// Returns the list element for a task, repeating the list as needed. `None` for an empty list.
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

/// The value of `--gpu-bind`: how to distribute the GPUs of a step among its tasks.
///
/// Index 0 is the first GPU of the step. Stored as text: the printed form, which `read::gpu_bind`
/// parses back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum GpuBind {
    /// No binding was requested. Each task gets its own GPUs if they were requested per task;
    /// otherwise every task gets all of them.
    #[default]
    Auto,
    /// Every task gets all GPUs.
    None,
    /// `single:N`: each task gets one GPU, shared by N consecutive tasks.
    Single(u32),
    /// `per_task:N`: each task gets the next N GPUs.
    PerTask(u32),
    /// `map_gpu:0,1`: task `n` gets the GPU at the `n`-th index of the list, which is repeated as
    /// needed.
    Map(Vec<u32>),
    /// `mask_gpu:0x3,0xc`: like `Map`, with a set of indices per task.
    Mask(Vec<u64>),
}

impl GpuBind {
    /// Returns the largest index that a map or a mask names for these tasks, if a step with `gpus`
    /// GPUs does not have it.
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

    /// Returns the GPUs that the task of this rank sees, out of the GPUs of the step. `None` means
    /// all of them. If the binding names none of the step's GPUs, the task gets the first, as in
    /// Slurm.
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

/// Prints the form that `read::gpu_bind` parses back to the same binding.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn vars(bind: &CpuBind, tasks: &[Vec<u32>]) -> Vec<String> {
        let host: Vec<u32> = (0..6).collect();
        let vars = bind.variables(false, &Bound { tasks, host: &host });
        vars.into_iter().map(|(_, value)| value).collect()
    }

    #[test]
    fn tasks_see_their_cpus_as_masks() {
        let own = [vec![0], vec![1, 5]];
        let each = ["quiet,mask_cpu:0x01,0x22", "0x01,0x22", "mask_cpu:", "quiet"];
        for bind in [CpuBind::Auto, CpuBind::Cores, CpuBind::Threads, CpuBind::None] {
            assert_eq!(vars(&bind, &own), each, "{bind}");
        }
        let common = [vec![2, 3], vec![2, 3]];
        assert_eq!(vars(&CpuBind::Auto, &common)[1], "0x0C");
        assert_eq!(vars(&CpuBind::Sockets, &common)[1], "0x0C,0x0C");
        assert_eq!(vars(&CpuBind::None, &common)[1], "0x0C", "the job's CPUs still confine it");
        assert_eq!(vars(&CpuBind::None, &[(0..6).collect()]), ["quiet,none", "", "none", "quiet"]);
    }

    #[test]
    fn an_explicit_binding_is_shown_as_written_and_a_missing_one_is_not_shown() {
        let once = |value| Repeated { value, times: 1 };
        let map = CpuBind::MapCpu(vec![once(1), once(0)]);
        assert_eq!(
            vars(&map, &[vec![1], vec![0]]),
            ["quiet,map_cpu:1,0", "1,0", "map_cpu:", "quiet"]
        );
        let unbound = [vec![], vec![]];
        assert_eq!(vars(&CpuBind::Auto, &unbound), [""; 0]);
        assert_eq!(vars(&CpuBind::Cores, &unbound), ["quiet,cores", "", "cores", "quiet"]);
        let wide: Vec<Vec<u32>> = vec![vec![70_000]; 512];
        let vars = CpuBind::Cores.variables(false, &Bound { tasks: &wide, host: &[70_000] });
        assert!(
            vars.iter().all(|(_, value)| value.len() < 128 << 10),
            "exec would fail with a longer variable"
        );
    }

    #[test]
    fn named_cpus_stop_at_the_last_task() {
        let map = CpuBind::MapCpu(vec![
            Repeated { value: 7, times: 2 },
            Repeated { value: 3, times: u32::MAX },
        ]);
        assert_eq!(
            (map.named_cpus(2), map.named_cpus(3), map.named_cpus(u32::MAX)),
            (vec![7], vec![3, 7], vec![3, 7])
        );
        let mask = CpuBind::MaskCpu(vec![
            Repeated { value: vec![4, 1], times: 1 },
            Repeated { value: vec![2], times: 1 },
        ]);
        assert_eq!((mask.named_cpus(1), mask.named_cpus(9)), (vec![1, 4], vec![1, 2, 4]));
        assert!(
            CpuBind::Rank.named_cpus(2).is_empty()
                && CpuBind::MapLdom(Vec::new()).named_cpus(2).is_empty()
        );
    }
}
