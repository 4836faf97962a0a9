//! Determines when to sample the processes of a step: often while they are young or growing, and
//! rarely while they sleep.

use std::time::{Duration, Instant};

/// The time until the first sample, and the shortest interval.
const SHORTEST: Duration = Duration::from_millis(20);
/// The longest interval for an active step. Slurm samples every 30 seconds.
const LONGEST: Duration = Duration::from_secs(30);
/// The longest interval for a step whose processes all sleep: they cannot grow without running.
const LONGEST_ASLEEP: Duration = Duration::from_secs(300);
/// An active step is sampled at least this often while its age doubles. The last sample of a
/// process is then within a few percent of its total usage.
const SAMPLES: u32 = 20;
/// Sampling uses at most 1/20 of the time of one CPU while a step is young or growing.
const COST: u32 = 20;

/// By this age, a step has started its programs, unless it is waiting for something.
const YOUNG: Duration = Duration::from_secs(1);

/// The activity that a sample shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activity {
    /// A task has not started its program, so there is nothing to measure yet.
    Starting,
    /// Nothing has run since the previous sample.
    Asleep,
    Steady,
    /// More memory than ever before.
    Growing,
}

/// The schedule of the samples.
#[derive(Debug)]
pub(crate) struct Pace {
    started: Instant,
    pause: Duration,
    next: Instant,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Pace {
        Pace { started: now, pause: SHORTEST, next: now + SHORTEST }
    }

    /// Returns when the next sample is due.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Schedules the next sample. The last one used `cost` of CPU time.
    pub(crate) fn sampled(&mut self, activity: Activity, cost: Duration, now: Instant) {
        let age = now.saturating_duration_since(self.started);
        if activity == Activity::Starting && age < YOUNG {
            self.next = now + SHORTEST;
            return;
        }
        let busy = (age / SAMPLES).clamp(SHORTEST, LONGEST);
        let pause = match activity {
            Activity::Growing => (self.pause / 8).min(busy),
            Activity::Steady => (self.pause * 2).min(busy),
            // A step that has just started may be waiting for its first input.
            Activity::Asleep if age < YOUNG => self.pause * 2,
            // It is waiting for something that its start depends on, such as a pipe for its input.
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

    /// Returns the times of the samples, in seconds from the start, for a step that always shows
    /// this activity.
    fn times(activity: Activity, until: u64) -> Vec<f64> {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let mut times = Vec::new();
        while pace.next() < start + Duration::from_secs(until) {
            let now = pace.next();
            times.push(now.duration_since(start).as_secs_f64());
            pace.sampled(activity, COST, now);
        }
        times
    }

    #[test]
    fn a_sleeping_step_is_rarely_sampled() {
        let times = times(Activity::Asleep, 3600);
        assert!(times.iter().filter(|at| **at > 60.0).count() <= 12, "{times:?}");
        assert!(times.iter().filter(|at| **at > 10.0 && **at < 60.0).count() <= 1, "{times:?}");
    }

    #[test]
    fn the_interval_of_an_active_step_grows_with_its_age() {
        let times = times(Activity::Steady, 7200);
        let gaps = times.windows(2).map(|pair| (pair[0], pair[1] - pair[0]));
        for (at, gap) in gaps {
            assert!(gap <= (at / 19.9).max(0.021) && gap <= 30.001, "at {at} for {gap}");
        }
        assert!(times.len() < 500, "{}", times.len());
    }

    #[test]
    fn a_late_start_is_sampled_soon_and_a_missing_one_rarely() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let now = start + Duration::from_millis(900);
        pace.sampled(Activity::Starting, Duration::from_millis(50), now);
        assert_eq!(pace.next(), now + SHORTEST);
        let times = times(Activity::Starting, 3600);
        assert!(times.iter().filter(|at| **at > 60.0).count() <= 12, "{times:?}");
    }

    #[test]
    fn growth_is_sampled_often_but_expensive_samples_are_rare() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let at = |secs: u64| start + Duration::from_secs(secs);
        pace.sampled(Activity::Asleep, COST, at(1000));
        pace.pause = LONGEST_ASLEEP;
        for _ in 0..5 {
            pace.sampled(Activity::Growing, COST, at(1300));
        }
        assert_eq!(pace.next(), at(1300) + SHORTEST);
        pace.sampled(Activity::Growing, Duration::from_millis(50), at(1300));
        assert_eq!(pace.next(), at(1301));
    }
}
