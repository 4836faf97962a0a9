//! A step's resource use over time, as a series of spans whose number stays bounded however long
//! the step runs.
//!
//! Each sample adds a span. When there are more than [`MOST_SPANS`], the two neighbors with the
//! shortest total length are merged. Sums, peaks and means are kept, and the resolution stays as
//! even as the length allows.

use crate::host_use::mean;
use crate::{StepId, StepKey, Timestamp, is_default};
use serde::{Deserialize, Serialize};

/// Maximum number of spans in a series.
pub const MOST_SPANS: usize = 120;

/// Neighboring spans are merged if their total length is at most this.
const SHORTEST_MS: u64 = 200;

/// The resource use in a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The length of the span.
    pub ms: u64,
    /// CPU time.
    pub cpu_us: u64,
    /// Memory: peak and mean, KiB.
    pub mem_max_kb: u64,
    pub mem_mean_kb: u64,
    /// Bytes read and written.
    pub read: u64,
    pub written: u64,
    pub gpu: GpuSpan,
}

/// The GPU use in a span of time, all GPUs of the step together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuSpan {
    /// The sampled part of the span, ms.
    pub ms: u64,
    /// Utilization, in thousandths of one GPU.
    pub busy_milli: u64,
    /// GPU memory: peak and mean, KiB.
    pub mem_max_kb: u64,
    pub mem_mean_kb: u64,
}

impl GpuSpan {
    fn and(self, next: GpuSpan) -> GpuSpan {
        GpuSpan {
            ms: self.ms.saturating_add(next.ms),
            busy_milli: mean((self.busy_milli, self.ms), (next.busy_milli, next.ms)),
            mem_max_kb: self.mem_max_kb.max(next.mem_max_kb),
            mem_mean_kb: mean((self.mem_mean_kb, self.ms), (next.mem_mean_kb, next.ms)),
        }
    }
}

impl Span {
    /// Merges this span with the next one.
    fn and(self, next: Span) -> Span {
        Span {
            ms: self.ms.saturating_add(next.ms),
            cpu_us: self.cpu_us.saturating_add(next.cpu_us),
            mem_max_kb: self.mem_max_kb.max(next.mem_max_kb),
            mem_mean_kb: mean((self.mem_mean_kb, self.ms), (next.mem_mean_kb, next.ms)),
            read: self.read.saturating_add(next.read),
            written: self.written.saturating_add(next.written),
            gpu: self.gpu.and(next.gpu),
        }
    }

    /// Returns the number of busy GPUs, as far as known.
    pub fn gpus(&self) -> f64 {
        self.gpu.busy_milli as f64 / 1000.0
    }

    /// Returns the number of busy CPUs.
    pub fn cpus(&self) -> f64 {
        if self.ms == 0 { 0.0 } else { self.cpu_us as f64 / (self.ms as f64 * 1000.0) }
    }
}

/// Consecutive spans, from the start of the step.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Columns", into = "Columns")]
pub struct Series {
    spans: Vec<Span>,
}

impl Series {
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Returns whether there are GPU samples.
    pub fn has_gpus(&self) -> bool {
        self.spans.iter().any(|span| span.gpu.ms > 0)
    }

    /// Fills in the GPU use of earlier spans, for which nothing is known yet.
    pub fn fill_in_gpus(&mut self, gpu: GpuSpan) {
        for span in self.spans.iter_mut().filter(|span| span.gpu.ms == 0) {
            span.gpu = GpuSpan { ms: span.ms, ..gpu };
        }
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the time from the start of the step to the end of the last span.
    pub(crate) fn length_ms(&self) -> u64 {
        self.spans.iter().fold(0, |sum, span| sum.saturating_add(span.ms))
    }

    /// Raises the highest span's peak to a peak that was reported late, if that is at most 10%
    /// higher. Otherwise returns false.
    pub fn raise_peak(&mut self, kb: u64) -> bool {
        let highest = self.spans.iter_mut().max_by_key(|span| span.mem_max_kb);
        let Some(span) =
            highest.filter(|span| kb.saturating_mul(10) <= span.mem_max_kb.saturating_mul(11))
        else {
            return false;
        };
        span.mem_max_kb = span.mem_max_kb.max(kb);
        true
    }

    /// Adds the use since the last span.
    pub fn push(&mut self, span: Span) {
        match self.spans.last_mut() {
            Some(last) if last.ms.saturating_add(span.ms) <= SHORTEST_MS => *last = last.and(span),
            _ => self.spans.push(span),
        }
        if self.spans.len() > MOST_SPANS {
            let together = |at: &usize| self.spans[*at].ms.saturating_add(self.spans[at + 1].ms);
            if let Some(at) = (0..self.spans.len() - 1).min_by_key(together) {
                let next = self.spans.remove(at + 1);
                self.spans[at] = self.spans[at].and(next);
            }
        }
    }
}

/// The resource use of one step over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepSeries {
    pub step: StepKey,
    /// When the series begins.
    pub start: Timestamp,
    pub series: Series,
}

/// The combined use of a job's steps, from the start of the first to the end of the last.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSeries {
    pub from: Timestamp,
    pub to: Timestamp,
    pub bins: Vec<Bin>,
    /// Whether there are GPU samples.
    pub has_gpus: bool,
}

impl JobSeries {
    /// Combines the steps into `count` bins. Returns `None` if there are no steps.
    pub fn of(steps: &[StepSeries], count: usize) -> Option<JobSeries> {
        let begin = |one: &StepSeries| one.start.0.div_euclid(1000);
        let end = |one: &StepSeries| {
            begin(one).saturating_add(i64::try_from(one.series.length_ms()).unwrap_or(i64::MAX))
        };
        let from = steps.iter().map(begin).min()?;
        let to = steps.iter().map(end).max()?.max(from.saturating_add(1));
        let at = |ms: i64| Timestamp(ms.saturating_mul(1000));
        Some(JobSeries::within(steps, at(from), at(to), count))
    }

    /// Combines the part of the series between two instants.
    pub fn within(steps: &[StepSeries], from: Timestamp, to: Timestamp, count: usize) -> JobSeries {
        let ms = |at: Timestamp| at.0.div_euclid(1000);
        let is_whole = |step: StepId| !matches!(step, StepId::Num(_));
        let series = steps.iter().map(|one| (ms(one.start), is_whole(one.step.step), &one.series));
        let has_gpus = steps.iter().any(|one| one.series.has_gpus());
        JobSeries { from, to, bins: bins(series, ms(from), ms(to), count), has_gpus }
    }

    /// Returns an amount for each bin.
    pub fn column(&self, amount: impl Fn(&Bin) -> f64) -> Vec<f64> {
        self.bins.iter().map(amount).collect()
    }
}

/// The stored form: one list per amount. A list whose amounts are all zero is left out.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Columns {
    ms: Vec<u64>,
    #[serde(skip_serializing_if = "is_default")]
    cpu_us: Vec<u64>,
    #[serde(skip_serializing_if = "is_default")]
    mem_max_kb: Vec<u64>,
    #[serde(skip_serializing_if = "is_default")]
    mem_mean_kb: Vec<u64>,
    #[serde(skip_serializing_if = "is_default")]
    read: Vec<u64>,
    #[serde(skip_serializing_if = "is_default")]
    written: Vec<u64>,
    #[serde(skip_serializing_if = "is_default")]
    gpu_ms: Vec<u64>,
    #[serde(skip_serializing_if = "is_default")]
    gpu_busy_milli: Vec<u64>,
    #[serde(skip_serializing_if = "is_default")]
    gpu_mem_max_kb: Vec<u64>,
    #[serde(skip_serializing_if = "is_default")]
    gpu_mem_mean_kb: Vec<u64>,
}

impl From<Series> for Columns {
    fn from(series: Series) -> Columns {
        let column = |of: fn(&Span) -> u64| -> Vec<u64> {
            let column: Vec<u64> = series.spans.iter().map(of).collect();
            if column.iter().all(|amount| *amount == 0) { Vec::new() } else { column }
        };
        Columns {
            ms: series.spans.iter().map(|span| span.ms).collect(),
            cpu_us: column(|span| span.cpu_us),
            mem_max_kb: column(|span| span.mem_max_kb),
            mem_mean_kb: column(|span| span.mem_mean_kb),
            read: column(|span| span.read),
            written: column(|span| span.written),
            gpu_ms: column(|span| span.gpu.ms),
            gpu_busy_milli: column(|span| span.gpu.busy_milli),
            gpu_mem_max_kb: column(|span| span.gpu.mem_max_kb),
            gpu_mem_mean_kb: column(|span| span.gpu.mem_mean_kb),
        }
    }
}

impl From<Columns> for Series {
    fn from(columns: Columns) -> Series {
        let at = |column: &[u64], i: usize| column.get(i).copied().unwrap_or(0);
        let span = |(i, ms): (usize, &u64)| Span {
            ms: *ms,
            cpu_us: at(&columns.cpu_us, i),
            mem_max_kb: at(&columns.mem_max_kb, i),
            mem_mean_kb: at(&columns.mem_mean_kb, i),
            read: at(&columns.read, i),
            written: at(&columns.written, i),
            gpu: GpuSpan {
                ms: at(&columns.gpu_ms, i),
                busy_milli: at(&columns.gpu_busy_milli, i),
                mem_max_kb: at(&columns.gpu_mem_max_kb, i),
                mem_mean_kb: at(&columns.gpu_mem_mean_kb, i),
            },
        };
        Series { spans: columns.ms.iter().enumerate().map(span).collect() }
    }
}

/// The combined use of several steps in one of several bins of equal length.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Bin {
    /// Busy CPUs.
    pub cpus: f64,
    /// Memory in KiB. The steps may have peaked at different moments, so this is an upper bound.
    pub mem_max_kb: f64,
    pub mem_mean_kb: f64,
    /// Bytes per second.
    pub read: f64,
    pub written: f64,
    /// Busy GPUs, and the peak of their memory in KiB.
    pub gpus: f64,
    pub gpu_mem_kb: f64,
}

/// Combines series into `count` bins between two instants (in ms of any clock). Each series comes
/// with its start and a flag that says whether the step has all GPUs of the job. The GPU use of
/// such a step includes that of the other steps.
fn bins<'a>(
    series: impl IntoIterator<Item = (i64, bool, &'a Series)>,
    from_ms: i64,
    to_ms: i64,
    count: usize,
) -> Vec<Bin> {
    let mut bins = vec![Bin::default(); count];
    let width = to_ms.saturating_sub(from_ms) as f64 / count.max(1) as f64;
    if width <= 0.0 || count == 0 {
        return bins;
    }
    // Busy GPUs and their memory. Index 1: the steps that have all GPUs of the job; index 0: the
    // others.
    let mut gpus = [vec![(0.0f64, 0.0f64); count], vec![(0.0f64, 0.0f64); count]];
    for (start_ms, is_whole, series) in series {
        let mut peaks = vec![(0.0f64, 0.0f64); count];
        let of_step = &mut gpus[usize::from(is_whole)];
        let mut at = start_ms.saturating_sub(from_ms) as f64;
        for span in &series.spans {
            let (begin, end) = (at, at + span.ms as f64);
            at = end;
            if end < 0.0 {
                continue;
            }
            let first = (begin / width).floor().max(0.0) as usize;
            // A span of zero length falls into a single bin.
            let last = if end > begin { (end / width).floor() as usize } else { first };
            for i in first..=last.min(count - 1) {
                let (left, right) = (i as f64 * width, (i + 1) as f64 * width);
                let shared = (end.min(right) - begin.max(left)).max(0.0);
                let part = if end > begin { shared / (end - begin) } else { 1.0 };
                if part > 0.0 {
                    let (memory, of_gpus) = &mut peaks[i];
                    *memory = memory.max(span.mem_max_kb as f64);
                    *of_gpus = of_gpus.max(span.gpu.mem_max_kb as f64);
                }
                bins[i].cpus += span.cpu_us as f64 / 1000.0 * part / width;
                bins[i].mem_mean_kb += span.mem_mean_kb as f64 * shared / width;
                bins[i].read += span.read as f64 * 1000.0 * part / width;
                bins[i].written += span.written as f64 * 1000.0 * part / width;
                of_step[i].0 += span.gpus() * shared / width;
            }
        }
        for ((bin, of_step), (memory, of_gpus)) in bins.iter_mut().zip(of_step).zip(peaks) {
            bin.mem_max_kb += memory;
            of_step.1 += of_gpus;
        }
    }
    let [others, whole] = gpus;
    for (bin, (other, whole)) in bins.iter_mut().zip(others.into_iter().zip(whole)) {
        (bin.gpus, bin.gpu_mem_kb) = (other.0.max(whole.0), other.1.max(whole.1));
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn gpu() -> impl Strategy<Value = GpuSpan> {
        (0..8000u64, 0..1u64 << 27).prop_map(|(busy_milli, kb)| GpuSpan {
            ms: 0,
            busy_milli,
            mem_max_kb: kb,
            mem_mean_kb: kb / 2,
        })
    }

    fn span() -> impl Strategy<Value = Span> {
        (
            0..30_000u64,
            0..60_000_000u64,
            0..1u64 << 40,
            0..1u64 << 30,
            any::<u32>(),
            proptest::option::of(gpu()),
        )
            .prop_map(|(ms, cpu_us, mem, read, written, gpu)| Span {
                ms,
                cpu_us,
                mem_max_kb: mem,
                mem_mean_kb: mem / 2,
                read,
                written: written.into(),
                gpu: gpu.map(|gpu| GpuSpan { ms, ..gpu }).unwrap_or_default(),
            })
    }

    fn of(spans: &[Span]) -> Series {
        let mut series = Series::default();
        spans.iter().for_each(|span| series.push(*span));
        series
    }

    fn sum(spans: &[Span], amount: fn(&Span) -> u64) -> u64 {
        spans.iter().map(amount).sum()
    }

    proptest! {
        #[test]
        fn merging_keeps_times_amounts_and_peaks(spans in vec(span(), 0..500)) {
            let series = of(&spans);
            prop_assert!(series.spans().len() <= MOST_SPANS);
            for amount in [|s: &Span| s.ms, |s: &Span| s.cpu_us, |s: &Span| s.read, |s: &Span| s.written, |s: &Span| s.gpu.ms] {
                prop_assert_eq!(sum(series.spans(), amount), sum(&spans, amount));
            }
            let most = |spans: &[Span]| spans.iter().map(|span| span.mem_max_kb).max();
            prop_assert_eq!(most(series.spans()), most(&spans));
            let busy = |spans: &[Span]| -> f64 {
                let weighed: u128 = spans.iter().map(|s| u128::from(s.gpu.busy_milli) * u128::from(s.gpu.ms)).sum();
                weighed as f64 / sum(spans, |s| s.gpu.ms).max(1) as f64
            };
            prop_assert!((busy(series.spans()) - busy(&spans)).abs() <= spans.len() as f64);
            let mean = |spans: &[Span]| {
                let weighed: u128 = spans.iter().map(|s| u128::from(s.mem_mean_kb) * u128::from(s.ms)).sum();
                weighed as f64 / sum(spans, |s| s.ms).max(1) as f64
            };
            // Each merge rounds to a KiB, and spans of zero length have no weight.
            prop_assert!((mean(series.spans()) - mean(&spans)).abs() <= spans.len() as f64);
        }

        #[test]
        fn resolution_stays_even(spans in vec(1..5_000u64, 0..1000)) {
            let series = of(&spans.iter().map(|ms| Span { ms: *ms, ..Span::default() }).collect::<Vec<_>>());
            let fair = 2 * series.length_ms() / MOST_SPANS as u64;
            let longest = spans.iter().copied().max().unwrap_or(0);
            for span in series.spans() {
                prop_assert!(span.ms <= longest.max(fair).max(SHORTEST_MS), "{} of {}", span.ms, series.length_ms());
            }
        }

        #[test]
        fn series_round_trip(spans in vec(span(), 0..200)) {
            let series = of(&spans);
            let text = serde_json::to_string(&series).unwrap();
            prop_assert!(text.len() < 16 << 10, "{}", text.len());
            prop_assert_eq!(serde_json::from_str::<Series>(&text).unwrap(), series);
        }

        #[test]
        fn bins_add_up_to_the_series(
            steps in vec((0..100_000i64, vec(span(), 0..50)), 1..4),
            count in 1..100usize,
        ) {
            let steps: Vec<(i64, Series)> = steps.iter().map(|(start, spans)| (*start, of(spans))).collect();
            let from = steps.iter().map(|(start, _)| *start).min().unwrap();
            let to = steps.iter().map(|(start, series)| start + series.length_ms() as i64).max().unwrap();
            // Leave space for a last span of zero length.
            let to = to + 1;
            let bins = bins(steps.iter().map(|(start, series)| (*start, false, series)), from, to, count);
            prop_assert_eq!(bins.len(), count);
            let width = (to - from) as f64 / count as f64;
            let all = |amount: fn(&Span) -> u64| -> f64 {
                steps.iter().map(|(_, series)| sum(series.spans(), amount) as f64).sum()
            };
            let near = |one: f64, other: f64| (one - other).abs() <= 1e-6 * one.abs().max(other.abs()).max(1.0);
            let cpu_us: f64 = bins.iter().map(|bin| bin.cpus * width * 1000.0).sum();
            prop_assert!(near(cpu_us, all(|s| s.cpu_us)), "{cpu_us} of {}", all(|s| s.cpu_us));
            let known: f64 = steps.iter().flat_map(|(_, series)| series.spans()).map(|s| s.gpus() * s.ms as f64).sum();
            let busy: f64 = bins.iter().map(|bin| bin.gpus * width).sum();
            prop_assert!(near(busy, known), "{busy} of {known}");
            let read: f64 = bins.iter().map(|bin| bin.read * width / 1000.0).sum();
            prop_assert!(near(read, all(|s| s.read)), "{read} of {}", all(|s| s.read));
            let peak = bins.iter().map(|bin| bin.mem_max_kb).fold(0.0, f64::max);
            for (_, series) in &steps {
                let own = series.spans().iter().map(|span| span.mem_max_kb).max().unwrap_or(0);
                prop_assert!(peak >= own as f64);
            }
        }
    }

    #[test]
    fn short_spans_are_merged_and_zero_amounts_are_not_stored() {
        let looks = [Span { ms: 20, cpu_us: 7, ..Span::default() }; 50];
        let series = of(&looks);
        assert!(series.spans().len() <= 10, "{:?}", series.spans());
        assert_eq!(series.length_ms(), 1000);
        let text = serde_json::to_string(&of(&looks[..1])).unwrap();
        assert_eq!(text, r#"{"ms":[20],"cpu_us":[7]}"#);
        assert_eq!(serde_json::from_str::<Series>("{}").unwrap(), Series::default());
    }

    #[test]
    fn bins_add_up_while_two_steps_run() {
        let busy = of(&[Span {
            ms: 2000,
            cpu_us: 4_000_000,
            mem_max_kb: 30,
            mem_mean_kb: 20,
            ..Span::default()
        }]);
        let late = of(&[Span {
            ms: 1000,
            cpu_us: 500_000,
            mem_max_kb: 5,
            mem_mean_kb: 5,
            written: 100,
            ..Span::default()
        }]);
        let bins = bins([(0, true, &busy), (1000, false, &late)], 0, 2000, 2);
        assert_eq!(
            bins[0],
            Bin { cpus: 2.0, mem_max_kb: 30.0, mem_mean_kb: 20.0, ..Bin::default() }
        );
        assert_eq!(
            bins[1],
            Bin {
                cpus: 2.5,
                mem_max_kb: 35.0,
                mem_mean_kb: 25.0,
                written: 100.0,
                ..Bin::default()
            }
        );
        assert_eq!(super::bins([(0, true, &busy)], 5, 5, 3), [Bin::default(); 3]);
    }

    #[test]
    fn gpu_use_of_steps_is_not_counted_again_for_the_script() {
        let of_gpus = |busy_milli, kb| {
            of(&[Span {
                ms: 1000,
                gpu: GpuSpan { ms: 1000, busy_milli, mem_max_kb: kb, mem_mean_kb: kb },
                ..Span::default()
            }])
        };
        let (script, one, other) = (of_gpus(1500, 60), of_gpus(900, 40), of_gpus(700, 10));
        let told = |steps: &[(i64, bool, &Series)]| {
            let bin = bins(steps.iter().copied(), 0, 1000, 1)[0];
            (bin.gpus, bin.gpu_mem_kb)
        };
        assert_eq!(told(&[(0, true, &script), (0, false, &one)]), (1.5, 60.0));
        assert_eq!(told(&[(0, true, &script), (0, false, &one), (0, false, &other)]), (1.6, 60.0));
        assert_eq!(told(&[(0, false, &one)]), (0.9, 40.0));
        // Series of older versions have no GPU samples.
        assert!(
            script.has_gpus()
                && !serde_json::from_str::<Series>(r#"{"ms":[20],"cpu_us":[7]}"#)
                    .unwrap()
                    .has_gpus()
        );
    }

    #[test]
    fn a_job_series_spans_all_its_steps() {
        let step = |start: i64, ms| StepSeries {
            step: StepKey { job: crate::JobId(1), step: crate::StepId::Batch },
            start: Timestamp::from_secs(start),
            series: of(&[Span { ms, cpu_us: ms * 1000, ..Span::default() }]),
        };
        let job = JobSeries::of(&[step(12, 3000), step(10, 4000)], 5).unwrap();
        assert_eq!((job.from, job.to), (Timestamp::from_secs(10), Timestamp::from_secs(15)));
        assert_eq!(job.column(|bin| bin.cpus.round()), [1.0, 1.0, 2.0, 2.0, 1.0]);
        assert_eq!(JobSeries::of(&[], 5), None);
    }
}
