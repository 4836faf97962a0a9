//! What a step uses over time: the series that its looks make.

use crate::model::series::{GpuSpan, Series, Span};
use crate::model::tres::Usage;
use std::time::{Duration, Instant};

/// A step that is over sooner, and before the first look, has no series: there are masses of such
/// steps.
const SHORTEST: Duration = Duration::from_millis(20);

/// The series of a step, and how it stood at the last look.
pub struct OverTime {
    started: Instant,
    /// From the start of the step to the last look.
    until: Duration,
    used: Usage,
    rss_kb: u64,
    series: Series,
    gpus: Gpus,
}

/// What was told of the step's GPUs: since the last look together, and last.
#[derive(Debug, Default)]
struct Gpus {
    since: Option<Readings>,
    last: Option<(Instant, GpuSpan)>,
}

#[derive(Debug, Default)]
struct Readings {
    count: u64,
    busy_milli: u64,
    mem_kb: u64,
    mem_max_kb: u64,
}

/// While a step has GPUs they are read no more seldom. What is older says nothing any more.
const FRESH: Duration = Duration::from_secs(15);

impl Gpus {
    /// The use in a span of this length that ends now.
    fn span(&mut self, ms: u64, now: Instant) -> GpuSpan {
        match self.since.take() {
            Some(Readings { count, busy_milli, mem_kb, mem_max_kb }) => GpuSpan {
                ms,
                busy_milli: busy_milli.checked_div(count).unwrap_or(0),
                mem_max_kb,
                mem_mean_kb: mem_kb.checked_div(count).unwrap_or(0),
            },
            None => {
                let known = self.last.filter(|(at, _)| now.saturating_duration_since(*at) <= FRESH);
                known.map(|(_, read)| GpuSpan { ms, ..read }).unwrap_or_default()
            }
        }
    }
}

impl OverTime {
    pub fn new(started: Instant) -> OverTime {
        OverTime {
            started,
            until: Duration::ZERO,
            used: Usage::default(),
            rss_kb: 0,
            series: Series::default(),
            gpus: Gpus::default(),
        }
    }

    pub fn series(&self) -> &Series {
        &self.series
    }

    /// So busy are the GPUs of the step together, percent of one, and so much of their memory is
    /// used.
    pub fn gpus_read(&mut self, busy_percent: u64, mem_mb: u64, now: Instant) {
        let (busy_milli, kb) = (busy_percent.saturating_mul(10), mem_mb.saturating_mul(1024));
        let read = GpuSpan { ms: 1, busy_milli, mem_max_kb: kb, mem_mean_kb: kb };
        // The first reading comes when the step is a second old.
        if self.gpus.last.is_none() && now.saturating_duration_since(self.started) <= FRESH {
            self.series.gpus_were(read);
        }
        self.gpus.last = Some((now, read));
        let since = self.gpus.since.get_or_insert_default();
        since.count += 1;
        since.busy_milli = since.busy_milli.saturating_add(busy_milli);
        since.mem_kb = since.mem_kb.saturating_add(kb);
        since.mem_max_kb = since.mem_max_kb.max(kb);
    }

    /// This is what the step has used so far, and the memory that it has now.
    pub fn looked(&mut self, used: &Usage, rss_kb: u64, now: Instant) {
        let at = now.saturating_duration_since(self.started);
        // Whole milliseconds from the start, so that no part of one is lost from look to look.
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let time = |used: &Usage| used.user_us.saturating_add(used.system_us);
        let since = |of: fn(&Usage) -> u64| of(used).saturating_sub(of(&self.used));
        // A peak that no look has seen was told by the kernel, at the end of a process.
        let is_told_late = used.max_rss_kb > self.used.max_rss_kb.max(rss_kb);
        let is_unseen = is_told_late && !self.series.raise_peak(used.max_rss_kb);
        let peak = if is_unseen { used.max_rss_kb } else { rss_kb };
        let length = ms(at).saturating_sub(ms(self.until));
        self.series.push(Span {
            ms: length,
            gpu: self.gpus.span(length, now),
            cpu_us: time(used).saturating_sub(time(&self.used)),
            mem_max_kb: peak,
            mem_mean_kb: rss_kb,
            read: since(|used| used.tasks.read.total),
            written: since(|used| used.tasks.written.total),
        });
        (self.until, self.rss_kb) = (at, rss_kb);
        // Times that are read from two places may go back a little: what was counted is not counted
        // again.
        let most = if time(used) > time(&self.used) { *used } else { self.used };
        self.used = Usage {
            max_rss_kb: self.used.max_rss_kb.max(used.max_rss_kb),
            tasks: used.tasks,
            ..most
        };
    }

    /// The step is over, and used this in all. One that was over at once has no series.
    pub fn ended(&mut self, used: &Usage, now: Instant) {
        if !self.series.is_empty() || now.saturating_duration_since(self.started) >= SHORTEST {
            self.looked(used, self.rss_kb, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tres::{Spread, TaskUsage};

    fn used(secs: u64, max_rss_kb: u64, read: u64) -> Usage {
        let tasks =
            TaskUsage { read: Spread { max: read, task: 0, total: read }, ..TaskUsage::default() };
        Usage { user_us: secs * 1_000_000, max_rss_kb, tasks, ..Usage::default() }
    }

    #[test]
    fn each_look_tells_what_was_used_since_the_one_before() {
        let start = Instant::now();
        let at = |secs: u64| start + Duration::from_secs(secs);
        let mut over_time = OverTime::new(start);
        over_time.looked(&used(1, 100, 10), 100, at(1));
        over_time.looked(&used(3, 100, 50), 40, at(2));
        // Processes came and went between two looks, and one of them was large.
        over_time.looked(&used(3, 900, 50), 60, at(4));
        let span = |ms, secs: u64, mem_max_kb, mem_mean_kb, read| Span {
            ms,
            cpu_us: secs * 1_000_000,
            mem_max_kb,
            mem_mean_kb,
            read,
            ..Span::default()
        };
        let seen =
            [span(1000, 1, 100, 100, 10), span(1000, 2, 40, 40, 40), span(2000, 0, 900, 60, 0)];
        assert_eq!(over_time.series().spans(), seen);
        // One that had been looked at when it was nearly as large as ever has ended.
        over_time.ended(&used(4, 950, 51), at(5));
        assert_eq!(
            over_time.series().spans()[3],
            span(1000, 1, 60, 60, 1),
            "the memory of the last look"
        );
        assert_eq!(over_time.series().spans()[2].mem_max_kb, 950);
    }

    #[test]
    fn readings_of_gpus_are_part_of_the_span_that_they_came_in_and_hold_until_the_next() {
        let start = Instant::now();
        let at = |secs: u64| start + Duration::from_secs(secs);
        let mut over_time = OverTime::new(start);
        let look = |over_time: &mut OverTime, secs| over_time.looked(&used(0, 1, 0), 1, at(secs));
        look(&mut over_time, 1);
        over_time.gpus_read(90, 2, at(2));
        over_time.gpus_read(30, 1, at(3));
        look(&mut over_time, 4);
        look(&mut over_time, 10);
        look(&mut over_time, 40);
        let told: Vec<_> = over_time.series().spans().iter().map(|span| span.gpu).collect();
        let gpu = |ms, busy_milli, mem_max_kb, mem_mean_kb| GpuSpan {
            ms,
            busy_milli,
            mem_max_kb,
            mem_mean_kb,
        };
        // Before the first reading it was as that tells; long after the last one nothing is known.
        let known =
            [gpu(1000, 900, 2048, 2048), gpu(3000, 600, 2048, 1536), gpu(6000, 300, 1024, 1024)];
        assert_eq!(told[..3], known);
        assert_eq!(told[3], GpuSpan::default());
        // An idle GPU is known to be idle.
        over_time.gpus_read(0, 0, at(41));
        look(&mut over_time, 42);
        assert_eq!(over_time.series().spans()[4].gpu, gpu(2000, 0, 0, 0));
    }

    #[test]
    fn time_that_is_told_twice_is_counted_once() {
        let start = Instant::now();
        let at = |secs: u64| start + Duration::from_secs(secs);
        let mut over_time = OverTime::new(start);
        for (i, secs) in [5, 4, 6].into_iter().enumerate() {
            over_time.looked(&used(secs, 1, 0), 1, at(i as u64 + 1));
        }
        let told: u64 = over_time.series().spans().iter().map(|span| span.cpu_us).sum();
        assert_eq!(told, 6_000_000);
    }

    #[test]
    fn a_step_that_was_over_at_once_has_no_series() {
        let start = Instant::now();
        let ended = |ms| {
            let mut over_time = OverTime::new(start);
            over_time.ended(&used(1, 1, 1), start + Duration::from_millis(ms));
            over_time.series().spans().len()
        };
        assert_eq!((ended(9), ended(90)), (0, 1));
    }
}
