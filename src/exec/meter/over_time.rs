//! The resource usage of a step over time: a series of samples.

use slotd_model::series::{GpuSpan, Series, Span};
use slotd_model::tres::Usage;
use std::time::{Duration, Instant};

/// A step that is shorter than this and ends before its first sample has no series, because there
/// are too many such steps.
const SHORTEST: Duration = Duration::from_millis(20);

/// The series of a step, and its state at the last sample.
pub(crate) struct OverTime {
    started: Instant,
    /// The time from the start of the step to the last sample.
    until: Duration,
    used: Usage,
    rss_kb: u64,
    series: Series,
    gpus: Gpus,
}

/// The GPU readings: the sum since the last sample, and the last reading.
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

/// The longest interval between GPU readings while a step has GPUs. An older reading is no longer
/// valid.
const FRESH: Duration = Duration::from_secs(15);

impl Gpus {
    /// Returns the usage in a span of this length that ends now.
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
    pub(crate) fn new(started: Instant) -> OverTime {
        OverTime {
            started,
            until: Duration::ZERO,
            used: Usage::default(),
            rss_kb: 0,
            series: Series::default(),
            gpus: Gpus::default(),
        }
    }

    pub(crate) fn series(&self) -> &Series {
        &self.series
    }

    /// Adds a reading: the load of all GPUs of the step together, in percent of one, and their used
    /// memory.
    pub(crate) fn gpus_read(&mut self, busy_percent: u64, mem_mb: u64, now: Instant) {
        let (busy_milli, kb) = (busy_percent.saturating_mul(10), mem_mb.saturating_mul(1024));
        let read = GpuSpan { ms: 1, busy_milli, mem_max_kb: kb, mem_mean_kb: kb };
        // The first reading arrives when the step is a second old. Apply it to the time before.
        if self.gpus.last.is_none() && now.saturating_duration_since(self.started) <= FRESH {
            self.series.fill_in_gpus(read);
        }
        self.gpus.last = Some((now, read));
        let since = self.gpus.since.get_or_insert_default();
        since.count += 1;
        since.busy_milli = since.busy_milli.saturating_add(busy_milli);
        since.mem_kb = since.mem_kb.saturating_add(kb);
        since.mem_max_kb = since.mem_max_kb.max(kb);
    }

    /// Adds a sample: the usage since the start, and the current memory.
    pub(crate) fn sampled(&mut self, used: &Usage, rss_kb: u64, now: Instant) {
        let at = now.saturating_duration_since(self.started);
        // Count whole milliseconds from the start, so that fractions do not get lost between
        // samples.
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let time = |used: &Usage| used.user_us.saturating_add(used.system_us);
        let since = |of: fn(&Usage) -> u64| of(used).saturating_sub(of(&self.used));
        // The kernel reported a peak between samples, when a process ended.
        let is_late = used.max_rss_kb > self.used.max_rss_kb.max(rss_kb);
        let is_unseen = is_late && !self.series.raise_peak(used.max_rss_kb);
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
        // Times come from two sources and may go back a little. Do not count the difference again.
        let most = if time(used) > time(&self.used) { *used } else { self.used };
        self.used = Usage {
            max_rss_kb: self.used.max_rss_kb.max(used.max_rss_kb),
            tasks: used.tasks,
            ..most
        };
    }

    /// Adds the final usage when the step ends. A step that ended right away gets no series.
    pub(crate) fn ended(&mut self, used: &Usage, now: Instant) {
        if !self.series.is_empty() || now.saturating_duration_since(self.started) >= SHORTEST {
            self.sampled(used, self.rss_kb, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotd_model::tres::{Spread, TaskUsage};

    fn used(secs: u64, max_rss_kb: u64, read: u64) -> Usage {
        let tasks =
            TaskUsage { read: Spread { max: read, task: 0, total: read }, ..TaskUsage::default() };
        Usage { user_us: secs * 1_000_000, max_rss_kb, tasks, ..Usage::default() }
    }

    #[test]
    fn each_sample_covers_the_time_since_the_previous_one() {
        let start = Instant::now();
        let at = |secs: u64| start + Duration::from_secs(secs);
        let mut over_time = OverTime::new(start);
        over_time.sampled(&used(1, 100, 10), 100, at(1));
        over_time.sampled(&used(3, 100, 50), 40, at(2));
        // Between two samples, processes came and went, and one of them was large.
        over_time.sampled(&used(3, 900, 50), 60, at(4));
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
        // A process that was almost at its peak when it was sampled has ended.
        over_time.ended(&used(4, 950, 51), at(5));
        assert_eq!(
            over_time.series().spans()[3],
            span(1000, 1, 60, 60, 1),
            "the memory of the last sample"
        );
        assert_eq!(over_time.series().spans()[2].mem_max_kb, 950);
    }

    #[test]
    fn gpu_readings_count_for_their_span_and_remain_valid_for_a_while() {
        let start = Instant::now();
        let at = |secs: u64| start + Duration::from_secs(secs);
        let mut over_time = OverTime::new(start);
        let sample =
            |over_time: &mut OverTime, secs| over_time.sampled(&used(0, 1, 0), 1, at(secs));
        sample(&mut over_time, 1);
        over_time.gpus_read(90, 2, at(2));
        over_time.gpus_read(30, 1, at(3));
        sample(&mut over_time, 4);
        sample(&mut over_time, 10);
        sample(&mut over_time, 40);
        let gpus: Vec<_> = over_time.series().spans().iter().map(|span| span.gpu).collect();
        let gpu = |ms, busy_milli, mem_max_kb, mem_mean_kb| GpuSpan {
            ms,
            busy_milli,
            mem_max_kb,
            mem_mean_kb,
        };
        // The first reading also applies to the time before it. Long after the last one, the usage
        // is unknown.
        let known =
            [gpu(1000, 900, 2048, 2048), gpu(3000, 600, 2048, 1536), gpu(6000, 300, 1024, 1024)];
        assert_eq!(gpus[..3], known);
        assert_eq!(gpus[3], GpuSpan::default());
        // A reading of 0 counts as idle, not as unknown.
        over_time.gpus_read(0, 0, at(41));
        sample(&mut over_time, 42);
        assert_eq!(over_time.series().spans()[4].gpu, gpu(2000, 0, 0, 0));
    }

    #[test]
    fn cpu_time_that_goes_back_is_not_counted_twice() {
        let start = Instant::now();
        let at = |secs: u64| start + Duration::from_secs(secs);
        let mut over_time = OverTime::new(start);
        for (i, secs) in [5, 4, 6].into_iter().enumerate() {
            over_time.sampled(&used(secs, 1, 0), 1, at(i as u64 + 1));
        }
        let total: u64 = over_time.series().spans().iter().map(|span| span.cpu_us).sum();
        assert_eq!(total, 6_000_000);
    }

    #[test]
    fn a_step_that_ended_right_away_has_no_series() {
        let start = Instant::now();
        let ended = |ms| {
            let mut over_time = OverTime::new(start);
            over_time.ended(&used(1, 1, 1), start + Duration::from_millis(ms));
            over_time.series().spans().len()
        };
        assert_eq!((ended(9), ended(90)), (0, 1));
    }
}
