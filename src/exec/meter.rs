//! Measures the resource usage of a step's processes, as seen by its watcher: each task with all
//! its descendants.
//!
//! CPU time, page faults, reads and writes of ended processes are exact, because they were waited
//! for. For processes that nobody waited for, the last sample counts (`unwaited`).
//!
//! Memory is resident memory: anonymous and shared memory and the mapped parts of files. Each page
//! counts once, even if several processes of the step share it. The rest of the page cache does not
//! count. Memory is sampled (`pace`); for single processes that were waited for, the kernel also
//! remembers the peak. The value is that of the cgroup, if there is one. Otherwise, if the sum over
//! several processes would be a new peak, the kernel is asked how much of each process is shared.

mod over_time;
mod pace;
mod unwaited;

pub(super) use over_time::OverTime;
pub(super) use pace::{Activity, Pace};

use crate::launch_spec::StepUsage;
use crate::reap::Dead;
use nix::sys::resource::{UsageWho, getrusage};
use slotd_model::tres::{Spread, TaskUsage, Usage};
use slotd_sys::proc::{self, CpuTime, DeadChildrenIo, Io, Stat};
use slotd_sys::system;
use std::collections::HashMap;
use unwaited::{Seen, Unwaited};

/// The increase over the peak, in percent, that counts as growth. A smaller increase is not worth
/// an exact measurement.
const GROWTH_PERCENT: u64 = 3;

/// The resource usage of a step.
#[derive(Debug, Default)]
pub(super) struct Meter {
    peak_rss_kb: u64,
    tasks: Vec<Task>,
    /// The task that each process belonged to in the last sample, as an index into `tasks`.
    owners: HashMap<i32, usize>,
    /// The usage of ended processes, as far as they were waited for.
    dead: Usage,
    dead_io: DeadChildrenIo,
    unwaited: Unwaited,
    /// The work done by the processes as of the last sample.
    work: Work,
    shared: Option<Shared>,
}

/// The work done by processes, to determine whether they slept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Work {
    processes: usize,
    used: CpuTime,
    faults: u64,
    /// A process is running, or waiting for a CPU or a disk.
    is_awake: bool,
}

/// The memory of several processes, each page counted once.
#[derive(Debug, Clone, Copy)]
struct Shared {
    kb: u64,
    /// The page faults at that time. Without new faults, nothing has become resident.
    faults: u64,
}

/// A sample of the processes.
pub(super) struct Sample {
    pub usage: StepUsage,
    pub activity: Activity,
}

#[derive(Debug, Default)]
struct Task {
    rank: u32,
    pid: i32,
    peak_vm_kb: u64,
    dead: Amounts,
    /// The maximum, over all samples, of `dead` plus the living processes. A process may end
    /// without being waited for.
    seen: Amounts,
}

#[derive(Debug, Clone, Copy, Default)]
struct Amounts {
    pages: u64,
    io: Io,
}

impl Amounts {
    fn plus(self, other: Amounts) -> Amounts {
        Amounts { pages: self.pages.saturating_add(other.pages), io: self.io.plus(other.io) }
    }

    fn most(self, other: Amounts) -> Amounts {
        let io = Io {
            read: self.io.read.max(other.io.read),
            written: self.io.written.max(other.io.written),
        };
        Amounts { pages: self.pages.max(other.pages), io }
    }
}

impl Meter {
    /// Creates a meter. `dead_io` belongs to this process and was last read after its previous
    /// step.
    pub(super) fn new(dead_io: DeadChildrenIo) -> Meter {
        Meter { dead_io, ..Meter::default() }
    }

    /// Returns `dead_io`, for the meter of the next step.
    pub(super) fn take_dead_io(&mut self) -> DeadChildrenIo {
        std::mem::take(&mut self.dead_io)
    }

    pub(super) fn add_task(&mut self, rank: u32, pid: i32) {
        self.tasks.push(Task { rank, pid, ..Task::default() });
    }

    /// Samples all processes of the step, which are the descendants of this one. `memory_kb` is the
    /// memory of their cgroup.
    pub(super) fn sample(&mut self, memory_kb: Option<u64>) -> Sample {
        let processes = self.processes();
        let mut usage = StepUsage { total: self.dead, ..StepUsage::default() };
        let mut owners = HashMap::new();
        let mut living = vec![(0u64, Amounts::default()); self.tasks.len()];
        let (mut resident, mut is_starting) = (Vec::new(), false);
        let mut work = Work { processes: processes.len(), ..Work::default() };
        for (pid, stat) in &processes {
            let owner = self.owner(*pid, stat, &owners);
            owners.insert(*pid, owner);
            work.used = work.used.plus(stat.used);
            work.is_awake |= matches!(stat.state, b'R' | b'D');
            work.faults =
                work.faults.saturating_add(stat.minor_faults).saturating_add(stat.major_faults);
            if stat.state == b'Z' {
                continue;
            }
            usage.pids.push(*pid);
            if self.has_watcher_memory(*pid, stat) {
                is_starting = true;
                continue;
            }
            resident.push((*pid, stat.rss_pages * (system::page_bytes() / 1024)));
            if let Some((task_vm_kb, amounts)) = living.get_mut(owner) {
                *task_vm_kb += stat.vm_bytes / 1024;
                *amounts = amounts.plus(Amounts { pages: stat.major_faults, io: proc::io(*pid) });
            }
        }
        self.owners = owners;
        for (task, (vm_kb, amounts)) in self.tasks.iter_mut().zip(living) {
            task.peak_vm_kb = task.peak_vm_kb.max(vm_kb);
            task.seen = task.seen.most(task.dead.plus(amounts));
        }
        self.count_unwaited(&processes, &usage.total);
        let used = work.used.plus(self.unwaited.lost());
        usage.total.user_us += used.user_us;
        usage.total.system_us += used.system_us;
        usage.rss_kb = memory_kb.unwrap_or_else(|| self.resident_kb(&resident, work.faults));
        let activity =
            if is_starting { Activity::Starting } else { self.activity(work, usage.rss_kb) };
        self.work = work;
        self.peak_rss_kb = self.peak_rss_kb.max(usage.rss_kb);
        self.add_peaks(&mut usage.total);
        Sample { usage, activity }
    }

    /// Returns the processes of the step, parents before children.
    fn processes(&self) -> Vec<(i32, Stat)> {
        let mut found: Vec<(i32, Stat)> = proc::descendants(std::process::id().cast_signed())
            .into_iter()
            .filter_map(|pid| Some((pid, proc::stat(pid)?)))
            .collect();
        // A process that lost its parent during the listing may have been missed.
        for (pid, start) in self.unwaited.seen() {
            if !found.iter().any(|(known, _)| *known == pid)
                && let Some(stat) = proc::stat(pid).filter(|stat| stat.start_ticks == start)
            {
                found.push((pid, stat));
            }
        }
        found
    }

    fn count_unwaited(&mut self, processes: &[(i32, Stat)], dead: &Usage) {
        let seen = |(pid, stat): &(i32, Stat)| {
            let Stat { start_ticks, ppid: parent, used, by_children, .. } = *stat;
            (*pid, Seen { start_ticks, parent, used, by_children })
        };
        let reaped = CpuTime { user_us: dead.user_us, system_us: dead.system_us };
        self.unwaited.sample(processes.iter().map(seen).collect(), reaped, |pid| {
            Some(proc::stat(pid)?.by_children)
        });
    }

    /// Returns the resident memory of these processes together, in KiB. Each is given with its own.
    /// If there are several, the kernel is asked how much they share only if their sum would be a
    /// new peak, because that is expensive.
    fn resident_kb(&mut self, processes: &[(i32, u64)], faults: u64) -> u64 {
        let sum: u64 = processes.iter().map(|(_, kb)| kb).sum();
        if processes.len() < 2 {
            return sum;
        }
        if !is_growth(self.peak_rss_kb, sum) {
            return sum.min(self.peak_rss_kb);
        }
        if let Some(shared) = self.shared.filter(|shared| shared.faults == faults) {
            return shared.kb.min(sum);
        }
        // Small processes hardly matter.
        let part = |(pid, kb): &(i32, u64)| {
            let shares = if *kb * 64 < sum { Some(*kb) } else { proc::pss_kb(*pid) };
            (*pid, shares.unwrap_or(*kb))
        };
        let parts: Vec<(i32, u64)> = processes.iter().map(part).collect();
        // When a process ends, the shares of the others grow. Adding its own share would make the
        // sum too large.
        let is_left = |pid: i32| proc::stat(pid).is_some_and(|stat| stat.rss_pages > 0);
        let kb = parts.iter().filter(|(pid, _)| is_left(*pid)).map(|(_, kb)| kb).sum();
        self.shared = Some(Shared { kb, faults });
        kb
    }

    fn activity(&self, work: Work, rss_kb: u64) -> Activity {
        if is_growth(self.peak_rss_kb, rss_kb) {
            Activity::Growing
        } else if work == self.work && !work.is_awake {
            Activity::Asleep
        } else {
            Activity::Steady
        }
    }

    /// Counts a child of the watcher that was waited for: a task or an orphan.
    pub(super) fn reaped(&mut self, dead: &Dead) {
        self.dead = self.dead.merge(dead.usage);
        let io = self.dead_io.since();
        let by_pid = self.tasks.iter().position(|task| task.pid == dead.pid);
        let owner = by_pid.or_else(|| self.owners.get(&dead.pid).copied()).unwrap_or(0);
        if let Some(task) = self.tasks.get_mut(owner) {
            task.dead = task.dead.plus(Amounts { pages: dead.major_faults, io });
        }
    }

    /// Returns the total usage, once no process is left.
    pub(super) fn final_usage(&mut self) -> Usage {
        let mut usage = self.dead;
        self.count_unwaited(&[], &usage);
        usage.user_us += self.unwaited.lost().user_us;
        usage.system_us += self.unwaited.lost().system_us;
        self.add_peaks(&mut usage);
        usage
    }

    fn add_peaks(&self, usage: &mut Usage) {
        // A task starts with the watcher's memory, which the kernel then remembers as the task's
        // peak. If no sample shows more, the peak is unknown, as in Slurm for a step that ends
        // before the first sample.
        let is_own = usage.max_rss_kb <= own_peak_kb();
        usage.max_rss_kb =
            if is_own { self.peak_rss_kb } else { usage.max_rss_kb.max(self.peak_rss_kb) };
        let over = |amount: fn(&Task) -> u64| {
            Spread::over(self.tasks.iter().map(|task| (task.rank, amount(task))))
        };
        usage.tasks = TaskUsage {
            vm_kb: over(|task| task.peak_vm_kb),
            pages: over(|task| task.dead.most(task.seen).pages),
            read: over(|task| task.dead.most(task.seen).io.read),
            written: over(|task| task.dead.most(task.seen).io.written),
        };
    }

    /// Returns whether the memory of a process is still the watcher's, which forked it to become a
    /// task. A process that a task forked and left behind has an owner from its second sample on.
    fn has_watcher_memory(&self, pid: i32, stat: &Stat) -> bool {
        let is_new =
            || stat.ppid == std::process::id().cast_signed() && !self.owners.contains_key(&pid);
        stat.is_copy && (self.tasks.iter().any(|task| task.pid == pid) || is_new())
    }

    /// Returns the task that a process descends from. `owners` contains its parents, which were
    /// sampled before it. For an orphan, the previous sample or its process group decides. Any
    /// other process counts towards the first task.
    fn owner(&self, pid: i32, stat: &Stat, owners: &HashMap<i32, usize>) -> usize {
        let task = |pid: i32| self.tasks.iter().position(|task| task.pid == pid);
        task(pid)
            .or_else(|| owners.get(&stat.ppid).copied())
            .or_else(|| self.owners.get(&pid).copied())
            .or_else(|| task(stat.pgid))
            .or_else(|| task(stat.session))
            .unwrap_or(0)
    }
}

fn is_growth(peak_kb: u64, now_kb: u64) -> bool {
    now_kb.saturating_mul(100) > peak_kb.saturating_mul(100 + GROWTH_PERCENT)
}

/// Returns the peak resident memory of this process, in KiB.
pub(super) fn own_peak_kb() -> u64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0, |used| u64::try_from(used.max_rss()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(ppid: i32, pgid: i32) -> proc::Stat {
        proc::Stat {
            state: b'S',
            ppid,
            pgid,
            session: 1,
            is_copy: false,
            is_in_exec: false,
            expects_environment: true,
            is_exiting: false,
            minor_faults: 0,
            major_faults: 0,
            used: CpuTime::default(),
            by_children: CpuTime::default(),
            start_ticks: 0,
            vm_bytes: 0,
            rss_pages: 0,
        }
    }

    #[test]
    fn a_task_has_the_watchers_memory_until_it_executes_its_program() {
        let mut meter = Meter::default();
        meter.add_task(0, 10);
        let own = std::process::id().cast_signed();
        let copy = |ppid| Stat { is_copy: true, ..stat(ppid, ppid) };
        assert!(
            meter.has_watcher_memory(10, &copy(own)) && meter.has_watcher_memory(11, &copy(own))
        );
        assert!(!meter.has_watcher_memory(10, &stat(own, own)), "it has executed its program");
        assert!(!meter.has_watcher_memory(12, &copy(10)), "the task forked it");
        meter.owners.insert(11, 0);
        assert!(!meter.has_watcher_memory(11, &copy(own)), "the task left it behind");
    }

    #[test]
    fn a_process_belongs_to_the_task_that_it_descends_from() {
        let mut meter = Meter::default();
        meter.add_task(0, 10);
        meter.add_task(1, 20);
        let parents = HashMap::from([(10, 0), (20, 1), (21, 1)]);
        let owner = |meter: &Meter, pid, ppid, pgid| meter.owner(pid, &stat(ppid, pgid), &parents);
        assert_eq!(owner(&meter, 20, 5, 20), 1, "the task itself");
        assert_eq!(owner(&meter, 22, 21, 99), 1, "its parent's");
        assert_eq!(owner(&meter, 23, 5, 20), 1, "an orphan of its process group");
        assert_eq!(owner(&meter, 24, 5, 24), 0, "an unknown orphan");
        meter.owners.insert(24, 1);
        assert_eq!(owner(&meter, 24, 5, 24), 1, "an orphan that was sampled with its parents");
    }

    #[test]
    fn usage_is_counted_per_task_and_includes_ended_processes() {
        let mut meter = Meter::default();
        meter.add_task(3, 10);
        meter.add_task(4, 20);
        let io = |read| Io { read, written: read / 2 };
        meter.tasks[0].peak_vm_kb = 100;
        meter.tasks[1].peak_vm_kb = 300;
        meter.tasks[0].dead = Amounts { pages: 7, io: io(50) };
        meter.tasks[0].seen = Amounts { pages: 2, io: io(80) };
        let tasks = meter.final_usage().tasks;
        assert_eq!(tasks.vm_kb, Spread { max: 300, task: 4, total: 400 });
        assert_eq!(tasks.pages, Spread { max: 7, task: 3, total: 7 });
        assert_eq!((tasks.read.max, tasks.written.max), (80, 40));
    }
}
