//! What the processes of a step use, as its watcher sees it: each task with everything that descends from it.
//!
//! What ended is known exactly, since it was waited for: the kernel adds its times, faults, reads and writes to those of
//! the watcher's dead children. Memory is known as often as it is looked at, and of the living only.

use crate::exec::launch_spec::StepUsage;
use crate::model::tres::{Spread, TaskUsage, Usage};
use crate::sys::proc::{self, Io};
use crate::sys::system;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use std::collections::HashMap;

/// The use of one step.
#[derive(Debug, Default)]
pub(super) struct Meter {
    peak_rss_kb: u64,
    tasks: Vec<Task>,
    /// To which task a process was seen to belong, by its place in `tasks`.
    owners: HashMap<i32, usize>,
    dead_io: Io,
}

#[derive(Debug, Default)]
struct Task {
    rank: u32,
    pid: i32,
    peak_vm_kb: u64,
    dead: Amounts,
    /// With what lived when it was looked at: the most ever, for a process may end without being waited for.
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
        let io = Io { read: self.io.read.max(other.io.read), written: self.io.written.max(other.io.written) };
        Amounts { pages: self.pages.max(other.pages), io }
    }
}

impl Meter {
    pub(super) fn add_task(&mut self, rank: u32, pid: i32) {
        self.tasks.push(Task { rank, pid, ..Task::default() });
    }

    /// Looks at all processes of the step, which are all below this one.
    pub(super) fn sample(&mut self) -> StepUsage {
        let (page_kb, tick_us) = (system::page_bytes() / 1024, 1_000_000 / system::ticks_per_sec());
        let mut usage = StepUsage { total: dead_usage(), ..StepUsage::default() };
        let mut owners = HashMap::new();
        let mut living = vec![(0u64, Amounts::default()); self.tasks.len()];
        for pid in proc::descendants(std::process::id().cast_signed()) {
            let Some(stat) = proc::stat(pid) else { continue };
            let owner = self.owner(pid, &stat, &owners);
            owners.insert(pid, owner);
            if stat.state == b'Z' {
                continue;
            }
            let vm_kb = stat.vm_bytes / 1024;
            usage.pids.push(pid);
            usage.rss_kb += stat.rss_pages * page_kb;
            usage.total.user_us += stat.user_ticks * tick_us;
            usage.total.system_us += stat.system_ticks * tick_us;
            if let Some((task_vm_kb, amounts)) = living.get_mut(owner) {
                *task_vm_kb += vm_kb;
                *amounts = amounts.plus(Amounts { pages: stat.major_faults, io: proc::io(pid) });
            }
        }
        self.owners = owners;
        for (task, (vm_kb, amounts)) in self.tasks.iter_mut().zip(living) {
            task.peak_vm_kb = task.peak_vm_kb.max(vm_kb);
            task.seen = task.seen.most(task.dead.plus(amounts));
        }
        self.peak_rss_kb = self.peak_rss_kb.max(usage.rss_kb);
        self.add_peaks(&mut usage.total);
        usage
    }

    /// This child of the watcher was waited for: a task, or what has lost its parents.
    pub(super) fn reaped(&mut self, pid: i32, used: &libc::rusage) {
        let all = proc::io_of_dead_children();
        let io = all.minus(self.dead_io);
        self.dead_io = all;
        let by_pid = self.tasks.iter().position(|task| task.pid == pid);
        let owner = by_pid.or_else(|| self.owners.get(&pid).copied()).unwrap_or(0);
        if let Some(task) = self.tasks.get_mut(owner) {
            task.dead = task.dead.plus(Amounts { pages: u64::try_from(used.ru_majflt).unwrap_or(0), io });
        }
    }

    /// What all of it used, when no process is left.
    pub(super) fn of_the_dead(&self) -> Usage {
        let mut usage = dead_usage();
        self.add_peaks(&mut usage);
        usage
    }

    fn add_peaks(&self, usage: &mut Usage) {
        usage.max_rss_kb = usage.max_rss_kb.max(self.peak_rss_kb);
        let over = |amount: fn(&Task) -> u64| Spread::over(self.tasks.iter().map(|task| (task.rank, amount(task))));
        usage.tasks = TaskUsage {
            vm_kb: over(|task| task.peak_vm_kb),
            pages: over(|task| task.dead.most(task.seen).pages),
            read: over(|task| task.dead.most(task.seen).io.read),
            written: over(|task| task.dead.most(task.seen).io.written),
        };
    }

    /// The task that a process descends from. What lost its parents is known from earlier, or by its process group;
    /// else it counts for the first task. `owners` holds the parents: they were looked at before.
    fn owner(&self, pid: i32, stat: &proc::Stat, owners: &HashMap<i32, usize>) -> usize {
        let task = |pid: i32| self.tasks.iter().position(|task| task.pid == pid);
        task(pid)
            .or_else(|| owners.get(&stat.ppid).copied())
            .or_else(|| self.owners.get(&pid).copied())
            .or_else(|| task(stat.pgid))
            .or_else(|| task(stat.session))
            .unwrap_or(0)
    }
}

/// What all processes that have ended used, as far as somebody waited for them.
fn dead_usage() -> Usage {
    let Ok(used) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return Usage::default() };
    let micros = |time: TimeVal| u64::try_from(time.num_microseconds()).unwrap_or(0);
    Usage {
        max_rss_kb: u64::try_from(used.max_rss()).unwrap_or(0),
        user_us: micros(used.user_time()),
        system_us: micros(used.system_time()),
        tasks: TaskUsage::default(),
    }
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
            major_faults: 0,
            user_ticks: 0,
            system_ticks: 0,
            start_ticks: 0,
            vm_bytes: 0,
            rss_pages: 0,
        }
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
