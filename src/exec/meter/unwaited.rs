//! CPU time that the kernel tells nobody: of processes that ended without being waited for, since
//! their parent ignores SIGCHLD. What they had used at the last look is known.

use crate::sys::proc::CpuTime;
use std::collections::HashMap;

/// The kernel tells the times of a process in hundredths of a second, rounded down.
const ROUNDING_US: u64 = 20_000;

/// A process as it was seen.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// With the pid a name that is never given twice.
    pub start_ticks: u64,
    pub parent: i32,
    /// With that of its children that were waited for.
    pub used: CpuTime,
    /// Of those children alone.
    pub by_children: CpuTime,
}

/// What was lost in this way so far.
#[derive(Debug, Default)]
pub struct Unwaited {
    seen: HashMap<i32, Seen>,
    /// Of the children of the watcher that were waited for, at the last look.
    reaped: CpuTime,
    lost: CpuTime,
}

impl Unwaited {
    /// The processes of the step as they are now, each by its pid, and what the watcher's own dead
    /// children have used.
    ///
    /// What a process had used that is gone must have come to an ancestor that waited for it. As
    /// far as it has not, it is lost. `by_children` reads again what the children of a process have
    /// used: between the reading of a parent and of its child the one may have waited for the
    /// other.
    pub fn look(
        &mut self,
        seen: HashMap<i32, Seen>,
        reaped: CpuTime,
        by_children: impl Fn(i32) -> Option<CpuTime>,
    ) {
        let mut gone: HashMap<Option<i32>, CpuTime> = HashMap::new();
        for (pid, process) in self.seen.iter().filter(|(pid, _)| !self.is_still_there(&seen, **pid))
        {
            let used = gone.entry(self.heir(&seen, *pid)).or_default();
            *used = used.plus(process.used);
        }
        let (came, ended) = (reaped.minus(self.reaped), gone.remove(&None).unwrap_or_default());
        let mut missing = beyond_rounding(ended.minus(came));
        // An orphan that ended came to the watcher, though an ancestor that was seen before is
        // still there.
        let by_orphans = came.minus(ended);
        for (heir, used) in gone.iter().filter_map(|(heir, used)| Some(((*heir)?, *used))) {
            let before =
                self.seen.get(&heir).map(|process| process.by_children).unwrap_or_default();
            // One that has ended meanwhile takes its children's time along: none of it counts as
            // lost.
            let inherited = by_children(heir).map_or(used, |now| now.minus(before));
            missing = missing.plus(beyond_rounding(used.minus(inherited)));
        }
        self.lost = self.lost.plus(missing.minus(by_orphans));
        (self.seen, self.reaped) = (seen, reaped);
    }

    /// The processes of the look before: pid and start.
    pub fn seen(&self) -> impl Iterator<Item = (i32, u64)> {
        self.seen.iter().map(|(pid, process)| (*pid, process.start_ticks))
    }

    pub fn lost(&self) -> CpuTime {
        self.lost
    }

    fn is_still_there(&self, now: &HashMap<i32, Seen>, pid: i32) -> bool {
        let start = |seen: &HashMap<i32, Seen>| seen.get(&pid).map(|process| process.start_ticks);
        start(now).is_some() && start(now) == start(&self.seen)
    }

    /// The nearest ancestor that is still there; `None` is the watcher.
    fn heir(&self, now: &HashMap<i32, Seen>, pid: i32) -> Option<i32> {
        let mut parent = self.seen.get(&pid)?.parent;
        // A pid that was given anew could make a circle of parents.
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

    /// Processes by pid, parent, seconds with those of their children, seconds of their children.
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

    fn look(
        unwaited: &mut Unwaited,
        processes: &[(i32, i32, u64, u64)],
        reaped: CpuTime,
    ) -> CpuTime {
        let now = seen(processes);
        unwaited.look(now.clone(), reaped, |pid| now.get(&pid).map(|process| process.by_children));
        unwaited.lost()
    }

    #[test]
    fn what_nobody_waited_for_is_remembered_and_the_rest_is_not_counted_twice() {
        let mut unwaited = Unwaited::default();
        look(&mut unwaited, &[(10, 1, 1, 0), (11, 10, 5, 0), (12, 10, 7, 0)], secs(0));
        // The parent has waited for one of its two children.
        assert_eq!(look(&mut unwaited, &[(10, 1, 8, 7)], secs(0)), secs(5));
        // It ends, and the watcher has waited for it.
        assert_eq!(look(&mut unwaited, &[], secs(8)), secs(5));
    }

    #[test]
    fn time_goes_to_the_nearest_ancestor_that_is_left() {
        let mut unwaited = Unwaited::default();
        look(&mut unwaited, &[(10, 1, 0, 0), (11, 10, 0, 0), (12, 11, 6, 0)], secs(0));
        // The middle one waited, and was waited for.
        assert_eq!(look(&mut unwaited, &[(10, 1, 6, 6)], secs(0)), secs(0));
        look(&mut unwaited, &[(10, 1, 6, 6), (12, 10, 9, 0)], secs(0));
        assert_eq!(look(&mut unwaited, &[], secs(6)), secs(9));
    }

    #[test]
    fn an_orphan_that_the_watcher_waited_for_is_not_lost() {
        let mut unwaited = Unwaited::default();
        look(&mut unwaited, &[(10, 1, 0, 0), (11, 10, 0, 0), (12, 11, 6, 0)], secs(0));
        // 11 ended and left 12 to the watcher; then 12 ended.
        assert_eq!(look(&mut unwaited, &[(10, 1, 0, 0)], secs(6)), secs(0));
    }

    #[test]
    fn a_parent_that_waited_while_it_was_looked_at_has_the_time() {
        let mut unwaited = Unwaited::default();
        look(&mut unwaited, &[(10, 1, 0, 0), (11, 10, 5, 0)], secs(0));
        unwaited.look(seen(&[(10, 1, 0, 0)]), secs(0), |_| Some(secs(5)));
        assert_eq!(unwaited.lost(), secs(0));
        unwaited.look(seen(&[(10, 1, 5, 5)]), secs(0), |_| Some(secs(5)));
        assert_eq!(unwaited.lost(), secs(0));
    }

    #[test]
    fn a_pid_that_was_given_again_is_another_process() {
        let mut unwaited = Unwaited::default();
        look(&mut unwaited, &[(10, 1, 3, 0)], secs(0));
        let again = Seen { start_ticks: 99, parent: 1, used: secs(0), by_children: secs(0) };
        unwaited.look(HashMap::from([(10, again)]), secs(0), |_| None);
        assert_eq!(unwaited.lost(), secs(3));
    }

    #[test]
    fn what_is_less_than_the_clock_can_tell_is_not_lost() {
        let mut unwaited = Unwaited::default();
        look(&mut unwaited, &[(10, 1, 3, 0)], secs(0));
        let reaped = CpuTime { user_us: 3 * SEC - 9_000, system_us: 0 };
        assert_eq!(look(&mut unwaited, &[], reaped), secs(0));
    }
}
