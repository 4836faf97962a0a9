//! How often the processes of a step are looked at: often while they are young or grow, and hardly
//! ever while they sleep.

use std::time::{Duration, Instant};

/// The first look, and the shortest time between two.
const SHORTEST: Duration = Duration::from_millis(20);
/// The longest time between two looks at a step that does something. Slurm looks every 30 seconds.
const LONGEST: Duration = Duration::from_secs(30);
/// The longest time between two looks at one whose processes all sleep: they can't grow without
/// running.
const LONGEST_ASLEEP: Duration = Duration::from_secs(300);
/// A step that does something is looked at so many times while it doubles its age, and more: what a
/// process used at its last look is then within a few per cent of what it used in all.
const LOOKS: u32 = 20;
/// A look may take this part of the time of one CPU, while a step is young or grows.
const COST: u32 = 20;

/// A step of this age has begun its programs, unless it waits for somebody else.
const YOUNG: Duration = Duration::from_secs(1);

/// What a look at the processes has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// A task has not begun its program: nothing could be seen of it.
    Starting,
    /// Nothing has run since the look before.
    Asleep,
    Steady,
    /// More memory than ever before.
    Growing,
}

/// When to look next.
#[derive(Debug)]
pub struct Pace {
    started: Instant,
    pause: Duration,
    next: Instant,
}

impl Pace {
    pub fn new(now: Instant) -> Pace {
        Pace { started: now, pause: SHORTEST, next: now + SHORTEST }
    }

    /// When the next look is due.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// A look was taken, which has cost so much CPU time.
    pub fn looked(&mut self, activity: Activity, cost: Duration, now: Instant) {
        let age = now.saturating_duration_since(self.started);
        if activity == Activity::Starting && age < YOUNG {
            self.next = now + SHORTEST;
            return;
        }
        let busy = (age / LOOKS).clamp(SHORTEST, LONGEST);
        let pause = match activity {
            Activity::Growing => (self.pause / 8).min(busy),
            Activity::Steady => (self.pause * 2).min(busy),
            // One that has just begun may be waiting for its first input.
            Activity::Asleep if age < YOUNG => self.pause * 2,
            // It waits for what belongs to its start, a pipe that is its input say.
            Activity::Asleep | Activity::Starting => (self.pause * 8).min(LONGEST_ASLEEP),
        };
        self.pause = pause.max(SHORTEST).max(cost * COST);
        self.next = now + self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Duration = Duration::from_micros(100);

    /// The times of the looks at a step that is always seen to do the same, in seconds from its
    /// start.
    fn looks(activity: Activity, until: u64) -> Vec<f64> {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let mut looks = Vec::new();
        while pace.next() < start + Duration::from_secs(until) {
            let now = pace.next();
            looks.push(now.duration_since(start).as_secs_f64());
            pace.looked(activity, COST, now);
        }
        looks
    }

    #[test]
    fn a_thousand_sleeping_steps_wake_up_a_few_times_a_second() {
        let looks = looks(Activity::Asleep, 3600);
        assert!(looks.iter().filter(|at| **at > 60.0).count() <= 12, "{looks:?}");
        assert!(looks.iter().filter(|at| **at > 10.0 && **at < 60.0).count() <= 1, "{looks:?}");
    }

    #[test]
    fn a_working_step_is_looked_at_by_its_age() {
        let looks = looks(Activity::Steady, 7200);
        let gaps = looks.windows(2).map(|pair| (pair[0], pair[1] - pair[0]));
        for (at, gap) in gaps {
            assert!(gap <= (at / 19.9).max(0.021) && gap <= 30.001, "at {at} for {gap}");
        }
        assert!(looks.len() < 500, "{}", looks.len());
    }

    #[test]
    fn a_program_that_starts_late_is_seen_soon_after_and_one_that_never_starts_seldom() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let now = start + Duration::from_millis(900);
        pace.looked(Activity::Starting, Duration::from_millis(50), now);
        assert_eq!(pace.next(), now + SHORTEST);
        let looks = looks(Activity::Starting, 3600);
        assert!(looks.iter().filter(|at| **at > 60.0).count() <= 12, "{looks:?}");
    }

    #[test]
    fn growth_is_followed_closely_and_a_costly_look_is_rare() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let at = |secs: u64| start + Duration::from_secs(secs);
        pace.looked(Activity::Asleep, COST, at(1000));
        pace.pause = LONGEST_ASLEEP;
        for _ in 0..5 {
            pace.looked(Activity::Growing, COST, at(1300));
        }
        assert_eq!(pace.next(), at(1300) + SHORTEST);
        pace.looked(Activity::Growing, Duration::from_millis(50), at(1300));
        assert_eq!(pace.next(), at(1301));
    }
}
