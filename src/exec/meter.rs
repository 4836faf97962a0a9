//! What the processes of a step use, as its watcher sees it: each task with everything that
//! descends from it.
//!
//! CPU time, faults, reads and writes of what ended are known exactly, since it was waited for.
//! What nobody waited for is known as of the last look (`unwaited`).
//!
//! Memory is what is resident: anonymous and shared memory and the parts of files that are mapped,
//! each page once, however many processes of the step share it. What only lies in the page cache
//! does not count. It is known as often as it is looked at (`pace`), and of single processes also
//! by the peak that the kernel remembers of each that was waited for. The kernel is asked for the
//! memory of the cgroup where there is one. Where there is none, and the sum over several processes
//! would be a new peak, it is asked how much of each is shared.

mod over_time;
mod pace;
mod unwaited;

pub(super) use over_time::OverTime;
pub(super) use pace::{Activity, Pace};

use crate::exec::launch_spec::StepUsage;
use crate::model::tres::{Spread, TaskUsage, Usage};
use crate::sys::proc::{self, CpuTime, DeadChildrenIo, Io, Stat};
use crate::sys::system;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use std::collections::HashMap;
use unwaited::{Seen, Unwaited};

/// More memory than before by so many per cent is growth: less is not worth a closer look.
const GROWTH_PERCENT: u64 = 3;

/// The use of one step.
#[derive(Debug, Default)]
pub(super) struct Meter {
    peak_rss_kb: u64,
    tasks: Vec<Task>,
    /// To which task a process was seen to belong, by its place in `tasks`.
    owners: HashMap<i32, usize>,
    /// What those used that have ended, as far as somebody waited for them.
    dead: Usage,
    dead_io: DeadChildrenIo,
    unwaited: Unwaited,
    /// What the processes had done at the last look.
    work: Work,
    shared: Option<Shared>,
}

/// What processes have done, to tell whether they slept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Work {
    processes: usize,
    used: CpuTime,
    faults: u64,
    /// One of them runs, or waits for a CPU or a disk.
    is_awake: bool,
}

/// The memory of several processes, each page once.
#[derive(Debug, Clone, Copy)]
struct Shared {
    kb: u64,
    /// By then: without new ones nothing has become resident.
    faults: u64,
}

/// What a look at the processes has shown.
pub(super) struct Look {
    pub usage: StepUsage,
    pub activity: Activity,
}

#[derive(Debug, Default)]
struct Task {
    rank: u32,
    pid: i32,
    peak_vm_kb: u64,
    dead: Amounts,
    /// With what lived when it was looked at: the most ever, for a process may end without being
    /// waited for.
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
    /// `dead_io`: of this process, looked at after the steps before.
    pub(super) fn new(dead_io: DeadChildrenIo) -> Meter {
        Meter { dead_io, ..Meter::default() }
    }

    /// The same, for the meter of the next step.
    pub(super) fn take_dead_io(&mut self) -> DeadChildrenIo {
        std::mem::take(&mut self.dead_io)
    }

    pub(super) fn add_task(&mut self, rank: u32, pid: i32) {
        self.tasks.push(Task { rank, pid, ..Task::default() });
    }

    /// Looks at all processes of the step, which are all below this one. `memory_kb` is what their
    /// cgroup tells.
    pub(super) fn look(&mut self, memory_kb: Option<u64>) -> Look {
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
            if self.is_launchers(*pid, stat) {
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
        Look { usage, activity }
    }

    /// The processes of the step, parents before their children.
    fn processes(&self) -> Vec<(i32, Stat)> {
        let mut found: Vec<(i32, Stat)> = proc::descendants(std::process::id().cast_signed())
            .into_iter()
            .filter_map(|pid| Some((pid, proc::stat(pid)?)))
            .collect();
        // One that lost its parents while they were listed may have been missed.
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
        self.unwaited.look(processes.iter().map(seen).collect(), reaped, |pid| {
            Some(proc::stat(pid)?.by_children)
        });
    }

    /// The resident memory of these processes, each with its own, KiB. Of several the kernel is
    /// asked what they share only where their sum would be a new peak: that is costly.
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
        // The small ones matter little.
        let part = |(pid, kb): &(i32, u64)| {
            let shares = if *kb * 64 < sum { Some(*kb) } else { proc::pss_kb(*pid) };
            (*pid, shares.unwrap_or(*kb))
        };
        let parts: Vec<(i32, u64)> = processes.iter().map(part).collect();
        // When one ends, the parts of the others grow: with its own one the sum would be too large.
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

    /// This child of the watcher was waited for: a task, or what has lost its parents.
    pub(super) fn reaped(&mut self, pid: i32, used: &libc::rusage) {
        let micros = |time: libc::timeval| {
            u64::try_from(TimeVal::from(time).num_microseconds()).unwrap_or(0)
        };
        self.dead.user_us += micros(used.ru_utime);
        self.dead.system_us += micros(used.ru_stime);
        self.dead.max_rss_kb = self.dead.max_rss_kb.max(u64::try_from(used.ru_maxrss).unwrap_or(0));
        let io = self.dead_io.since();
        let by_pid = self.tasks.iter().position(|task| task.pid == pid);
        let owner = by_pid.or_else(|| self.owners.get(&pid).copied()).unwrap_or(0);
        if let Some(task) = self.tasks.get_mut(owner) {
            task.dead =
                task.dead.plus(Amounts { pages: u64::try_from(used.ru_majflt).unwrap_or(0), io });
        }
    }

    /// What all of it used, when no process is left.
    pub(super) fn of_the_dead(&mut self) -> Usage {
        let mut usage = self.dead;
        self.count_unwaited(&[], &usage);
        usage.user_us += self.unwaited.lost().user_us;
        usage.system_us += self.unwaited.lost().system_us;
        self.add_peaks(&mut usage);
        usage
    }

    fn add_peaks(&self, usage: &mut Usage) {
        // A task begins with the watcher's memory, and the kernel remembers that as its peak. Where
        // nothing was seen either, nothing is known, as in Slurm of a step that is over before the
        // first look.
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

    /// The task that a process descends from. What lost its parents is known from earlier, or by
    /// its process group; else it counts for the first task. `owners` holds the parents: they were
    /// looked at before. Whether the memory of a process is that of this one, which has forked it
    /// to become a task. A process that the task forked and left behind is known by its second
    /// look.
    fn is_launchers(&self, pid: i32, stat: &Stat) -> bool {
        let is_new =
            || stat.ppid == std::process::id().cast_signed() && !self.owners.contains_key(&pid);
        stat.is_copy && (self.tasks.iter().any(|task| task.pid == pid) || is_new())
    }

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

/// The most memory that was ever resident of this process.
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
    fn the_memory_of_what_has_not_begun_its_program_is_the_launchers() {
        let mut meter = Meter::default();
        meter.add_task(0, 10);
        let own = std::process::id().cast_signed();
        let copy = |ppid| Stat { is_copy: true, ..stat(ppid, ppid) };
        assert!(meter.is_launchers(10, &copy(own)) && meter.is_launchers(11, &copy(own)));
        assert!(!meter.is_launchers(10, &stat(own, own)), "it has executed its program");
        assert!(!meter.is_launchers(12, &copy(10)), "the task forked it");
        meter.owners.insert(11, 0);
        assert!(!meter.is_launchers(11, &copy(own)), "the task left it behind");
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
        assert_eq!(owner(&meter, 24, 5, 24), 0, "an orphan that nothing is known of");
        meter.owners.insert(24, 1);
        assert_eq!(owner(&meter, 24, 5, 24), 1, "an orphan that was seen with its parents");
    }

    #[test]
    fn each_task_counts_for_itself_and_the_dead_are_not_lost() {
        let mut meter = Meter::default();
        meter.add_task(3, 10);
        meter.add_task(4, 20);
        let io = |read| Io { read, written: read / 2 };
        meter.tasks[0].peak_vm_kb = 100;
        meter.tasks[1].peak_vm_kb = 300;
        meter.tasks[0].dead = Amounts { pages: 7, io: io(50) };
        meter.tasks[0].seen = Amounts { pages: 2, io: io(80) };
        let tasks = meter.of_the_dead().tasks;
        assert_eq!(tasks.vm_kb, Spread { max: 300, task: 4, total: 400 });
        assert_eq!(tasks.pages, Spread { max: 7, task: 3, total: 7 });
        assert_eq!((tasks.read.max, tasks.written.max), (80, 40));
    }
}
