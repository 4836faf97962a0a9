//! CPU time that the kernel does not report: that of processes that ended without being waited for,
//! because their parent ignores SIGCHLD. Their usage as of the last sample is counted.

use slotd_sys::proc::CpuTime;
use std::collections::HashMap;

/// The kernel reports the times of a process in hundredths of a second, rounded down.
const ROUNDING_US: u64 = 20_000;

/// A process in a sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// Together with the PID it identifies the process across PID reuse.
    pub start_ticks: u64,
    pub parent: i32,
    /// Includes the children that it waited for.
    pub used: CpuTime,
    /// The part used by those children.
    pub by_children: CpuTime,
}

/// The CPU time lost in this way so far.
#[derive(Debug, Default)]
pub(crate) struct Unwaited {
    seen: HashMap<i32, Seen>,
    /// The CPU time of the watcher's children that were waited for, as of the last sample.
    reaped: CpuTime,
    lost: CpuTime,
}

impl Unwaited {
    /// Adds a sample: the current processes of the step by PID, and the CPU time of the watcher's
    /// own dead children.
    ///
    /// The time of a process that has ended must have been added to an ancestor that waited for it.
    /// The part that was not is lost. `by_children` rereads the time of a process's children,
    /// because a parent may have waited for a child after the parent was read but before the child
    /// was.
    pub(crate) fn sample(
        &mut self,
        seen: HashMap<i32, Seen>,
        reaped: CpuTime,
        by_children: impl Fn(i32) -> Option<CpuTime>,
    ) {
        let mut gone: HashMap<Option<i32>, CpuTime> = HashMap::new();
        for (pid, process) in self.seen.iter().filter(|(pid, _)| !self.is_still_there(&seen, **pid))
        {
            let used = gone.entry(self.surviving_ancestor(&seen, *pid)).or_default();
            *used = used.plus(process.used);
        }
        let (came, ended) = (reaped.minus(self.reaped), gone.remove(&None).unwrap_or_default());
        let mut missing = beyond_rounding(ended.minus(came));
        // The time of an orphan goes to the watcher when it ends, even if an ancestor from the last
        // sample still exists.
        let by_orphans = came.minus(ended);
        for (ancestor, used) in
            gone.iter().filter_map(|(ancestor, used)| Some(((*ancestor)?, *used)))
        {
            let before =
                self.seen.get(&ancestor).map(|process| process.by_children).unwrap_or_default();
            // An ancestor that has ended in the meantime takes its children's time along, so
            // nothing counts as lost.
            let inherited = by_children(ancestor).map_or(used, |now| now.minus(before));
            missing = missing.plus(beyond_rounding(used.minus(inherited)));
        }
        self.lost = self.lost.plus(missing.minus(by_orphans));
        (self.seen, self.reaped) = (seen, reaped);
    }

    /// Returns the PID and start time of the processes of the last sample.
    pub(crate) fn seen(&self) -> impl Iterator<Item = (i32, u64)> {
        self.seen.iter().map(|(pid, process)| (*pid, process.start_ticks))
    }

    pub(crate) fn lost(&self) -> CpuTime {
        self.lost
    }

    fn is_still_there(&self, now: &HashMap<i32, Seen>, pid: i32) -> bool {
        let start = |seen: &HashMap<i32, Seen>| seen.get(&pid).map(|process| process.start_ticks);
        start(now).is_some() && start(now) == start(&self.seen)
    }

    /// Returns the nearest ancestor that still exists; `None` is the watcher.
    fn surviving_ancestor(&self, now: &HashMap<i32, Seen>, pid: i32) -> Option<i32> {
        let mut parent = self.seen.get(&pid)?.parent;
        // A reused PID could make the parents form a cycle.
        for _ in 0..self.seen.len() {
            if self.is_still_there(now, parent) {
                return Some(parent);
            }
            parent = self.seen.get(&parent)?.parent;
        }
        None
    }
}

fn beyond_rounding(time: CpuTime) -> CpuTime {
    let known = |us: u64| if us < ROUNDING_US { 0 } else { us };
    CpuTime { user_us: known(time.user_us), system_us: known(time.system_us) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: u64 = 1_000_000;

    fn secs(user: u64) -> CpuTime {
        CpuTime { user_us: user * SEC, system_us: 0 }
    }

    /// Processes as PID, parent, seconds including children, and seconds of the children.
    fn seen(processes: &[(i32, i32, u64, u64)]) -> HashMap<i32, Seen> {
        let one = |&(pid, parent, used, by_children): &(i32, i32, u64, u64)| {
            (
                pid,
                Seen {
                    start_ticks: pid as u64,
                    parent,
                    used: secs(used),
                    by_children: secs(by_children),
                },
            )
        };
        processes.iter().map(one).collect()
    }

    fn sample(
        unwaited: &mut Unwaited,
        processes: &[(i32, i32, u64, u64)],
        reaped: CpuTime,
    ) -> CpuTime {
        let now = seen(processes);
        unwaited
            .sample(now.clone(), reaped, |pid| now.get(&pid).map(|process| process.by_children));
        unwaited.lost()
    }

    #[test]
    fn unwaited_time_is_kept_and_other_time_is_not_counted_twice() {
        let mut unwaited = Unwaited::default();
        sample(&mut unwaited, &[(10, 1, 1, 0), (11, 10, 5, 0), (12, 10, 7, 0)], secs(0));
        // The parent has waited for one of its two children.
        assert_eq!(sample(&mut unwaited, &[(10, 1, 8, 7)], secs(0)), secs(5));
        // The parent ends and the watcher waits for it.
        assert_eq!(sample(&mut unwaited, &[], secs(8)), secs(5));
    }

    #[test]
    fn time_goes_to_the_nearest_surviving_ancestor() {
        let mut unwaited = Unwaited::default();
        sample(&mut unwaited, &[(10, 1, 0, 0), (11, 10, 0, 0), (12, 11, 6, 0)], secs(0));
        // The middle process waited, and was waited for.
        assert_eq!(sample(&mut unwaited, &[(10, 1, 6, 6)], secs(0)), secs(0));
        sample(&mut unwaited, &[(10, 1, 6, 6), (12, 10, 9, 0)], secs(0));
        assert_eq!(sample(&mut unwaited, &[], secs(6)), secs(9));
    }

    #[test]
    fn the_time_of_an_orphan_reaped_by_the_watcher_is_not_lost() {
        let mut unwaited = Unwaited::default();
        sample(&mut unwaited, &[(10, 1, 0, 0), (11, 10, 0, 0), (12, 11, 6, 0)], secs(0));
        // 11 ended and left 12 to the watcher. Then 12 ended.
        assert_eq!(sample(&mut unwaited, &[(10, 1, 0, 0)], secs(6)), secs(0));
    }

    #[test]
    fn a_parent_that_waits_during_the_sample_gets_the_time() {
        let mut unwaited = Unwaited::default();
        sample(&mut unwaited, &[(10, 1, 0, 0), (11, 10, 5, 0)], secs(0));
        unwaited.sample(seen(&[(10, 1, 0, 0)]), secs(0), |_| Some(secs(5)));
        assert_eq!(unwaited.lost(), secs(0));
        unwaited.sample(seen(&[(10, 1, 5, 5)]), secs(0), |_| Some(secs(5)));
        assert_eq!(unwaited.lost(), secs(0));
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let mut unwaited = Unwaited::default();
        sample(&mut unwaited, &[(10, 1, 3, 0)], secs(0));
        let again = Seen { start_ticks: 99, parent: 1, used: secs(0), by_children: secs(0) };
        unwaited.sample(HashMap::from([(10, again)]), secs(0), |_| None);
        assert_eq!(unwaited.lost(), secs(3));
    }

    #[test]
    fn differences_within_clock_rounding_do_not_count_as_lost() {
        let mut unwaited = Unwaited::default();
        sample(&mut unwaited, &[(10, 1, 3, 0)], secs(0));
        let reaped = CpuTime { user_us: 3 * SEC - 9_000, system_us: 0 };
        assert_eq!(sample(&mut unwaited, &[], reaped), secs(0));
    }
}
