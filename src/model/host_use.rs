//! The host's resource use over time, in spans that are fine for the last hour and coarser with
//! age.
//!
//! Nothing is sampled while no job runs. Spans that fall into the same interval of their age's
//! resolution are merged, even across a pause. The merged span is then longer than its sampled
//! time.

use crate::{Timestamp, is_default};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const SEC_MS: i64 = 1000;
const HOUR_MS: i64 = 3600 * SEC_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// The resolution up to each age: pairs of age and interval, milliseconds.
const FINENESS: [(i64, i64); 3] =
    [(HOUR_MS, 10 * SEC_MS), (DAY_MS, 300 * SEC_MS), (KEPT_MS, HOUR_MS)];

/// The age at which spans are deleted.
const KEPT_MS: i64 = 30 * DAY_MS;

/// Maximum number of spans: one per interval, plus one at each boundary between two ages.
pub const MOST_SPANS: usize = 2 * (360 + 276 + 696) + 6;

/// The host's resource use in a span of time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostSpan {
    /// Start and end, milliseconds since 1970.
    pub from: i64,
    pub to: i64,
    /// The sampled part of the span, milliseconds.
    pub ms: u64,
    /// CPUs of the machine.
    pub cpus: u32,
    /// CPU time used by all processes, ours or not.
    pub cpu_us: u64,
    /// Memory that was unavailable to a new process: peak and mean, KiB.
    pub mem_max_kb: u64,
    pub mem_mean_kb: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub swap_max_kb: u64,
    /// The mean of the one-minute load average, times 100.
    pub load_centi: u32,
    /// The sampled GPUs, by number.
    #[serde(skip_serializing_if = "is_default")]
    pub gpus: BTreeMap<u32, GpuSpan>,
}

/// The use of one GPU in a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuSpan {
    /// The sampled part of the span, milliseconds.
    pub ms: u64,
    /// Utilization in thousandths; `None` if the GPU does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_milli: Option<u32>,
    /// Memory in use by all processes: peak and mean, MB.
    pub mem_max_mb: u64,
    pub mem_mean_mb: u64,
}

/// Returns the mean of two amounts, weighted by their durations, or the larger amount if both
/// durations are zero.
pub(super) fn mean(one: (u64, u64), other: (u64, u64)) -> u64 {
    let whole = u128::from(one.1) + u128::from(other.1);
    let sum = u128::from(one.0) * u128::from(one.1) + u128::from(other.0) * u128::from(other.1);
    match whole {
        0 => one.0.max(other.0),
        _ => u64::try_from((sum + whole / 2) / whole).unwrap_or(u64::MAX),
    }
}

fn mean_u32(one: (u32, u64), other: (u32, u64)) -> u32 {
    u32::try_from(mean((one.0.into(), one.1), (other.0.into(), other.1))).unwrap_or(u32::MAX)
}

impl GpuSpan {
    fn and(self, next: GpuSpan) -> GpuSpan {
        GpuSpan {
            ms: self.ms.saturating_add(next.ms),
            busy_milli: match (self.busy_milli, next.busy_milli) {
                (Some(one), Some(other)) => Some(mean_u32((one, self.ms), (other, next.ms))),
                (one, other) => one.or(other),
            },
            mem_max_mb: self.mem_max_mb.max(next.mem_max_mb),
            mem_mean_mb: mean((self.mem_mean_mb, self.ms), (next.mem_mean_mb, next.ms)),
        }
    }
}

impl HostSpan {
    fn and(mut self, next: HostSpan) -> HostSpan {
        for (id, gpu) in next.gpus {
            self.gpus.entry(id).and_modify(|known| *known = known.and(gpu)).or_insert(gpu);
        }
        HostSpan {
            from: self.from.min(next.from),
            to: self.to.max(next.to),
            ms: self.ms.saturating_add(next.ms),
            cpus: self.cpus.max(next.cpus),
            cpu_us: self.cpu_us.saturating_add(next.cpu_us),
            mem_max_kb: self.mem_max_kb.max(next.mem_max_kb),
            mem_mean_kb: mean((self.mem_mean_kb, self.ms), (next.mem_mean_kb, next.ms)),
            swap_max_kb: self.swap_max_kb.max(next.swap_max_kb),
            load_centi: mean_u32((self.load_centi, self.ms), (next.load_centi, next.ms)),
            gpus: self.gpus,
        }
    }

    /// Returns the interval of the current resolution that the span falls into, or `None` if it is
    /// too old. If the clock was set back, spans may lie in the future. They get the resolution of
    /// past spans at the same distance.
    fn place(&self, now_ms: i64) -> Option<(i64, i64)> {
        let age = now_ms.saturating_sub(self.to).saturating_abs();
        let (_, width) = FINENESS.into_iter().find(|(until, _)| age <= *until)?;
        Some((width, self.to.div_euclid(width)))
    }
}

/// Sorts spans by time and merges those that fall into one interval at their age.
pub fn thinned(mut spans: Vec<HostSpan>, now: Timestamp) -> Vec<HostSpan> {
    let now_ms = now.0.div_euclid(1000);
    spans.retain(|span| span.ms > 0 && span.from < span.to);
    spans.sort_by_key(|span| span.to);
    let mut thin: Vec<HostSpan> = Vec::new();
    let mut last = None;
    for span in spans {
        let Some(place) = span.place(now_ms) else { continue };
        match thin.last_mut() {
            Some(before) if last == Some(place) => *before = std::mem::take(before).and(span),
            _ => thin.push(span),
        }
        last = Some(place);
    }
    thin
}

/// The host's use in one of several bins of equal length.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostBin {
    /// CPUs that were busy.
    pub cpus: f64,
    pub mem_kb: f64,
    /// The peak of the memory in use.
    pub mem_max_kb: f64,
    pub swap_kb: f64,
    pub load: f64,
    pub gpus: BTreeMap<u32, GpuBin>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GpuBin {
    /// Utilization in percent; `None` if the GPU does not report it.
    pub busy: Option<f64>,
    pub mem_mb: f64,
    weight: f64,
    busy_weight: f64,
}

/// The host's use between two instants, in bins. A bin in which no job ran is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct HostUse {
    pub from: Timestamp,
    pub to: Timestamp,
    pub bins: Vec<Option<HostBin>>,
    /// All bins as one.
    pub whole: Option<HostBin>,
    /// The sampled time, milliseconds.
    pub known_ms: u64,
    /// CPUs of the machine.
    pub cpus: u32,
    /// The GPUs that have samples.
    pub gpus: BTreeSet<u32>,
}

impl HostUse {
    pub fn within(spans: &[HostSpan], from: Timestamp, to: Timestamp, count: usize) -> HostUse {
        let (from_ms, to_ms) =
            (from.0.div_euclid(1000), to.0.div_euclid(1000).max(from.0.div_euclid(1000) + 1));
        let width = (to_ms.saturating_sub(from_ms)) as f64 / count.max(1) as f64;
        let mut bins: Vec<(f64, HostBin)> = vec![Default::default(); count];
        let (mut known_ms, mut whole) = (0.0, HostBin::default());
        let (mut cpus, mut gpus) = (0, BTreeSet::new());
        let seen = |span: &&HostSpan| {
            span.ms > 0 && span.from < span.to && span.to > from_ms && span.from < to_ms
        };
        for span in spans.iter().filter(seen) {
            let length = span.to.saturating_sub(span.from) as f64;
            // Sampled time is assumed to be spread evenly over the span.
            let density = (span.ms as f64 / length).min(1.0);
            let begin = span.from.saturating_sub(from_ms) as f64;
            let end = begin + length;
            let inside = end.min(count as f64 * width) - begin.max(0.0);
            known_ms += (inside * density).max(0.0);
            whole.add(span, (inside * density).max(0.0));
            cpus = cpus.max(span.cpus);
            gpus.extend(span.gpus.keys());
            let first = (begin / width).floor().max(0.0) as usize;
            for (i, (known, bin)) in bins.iter_mut().enumerate().skip(first) {
                let (left, right) = (i as f64 * width, (i + 1) as f64 * width);
                if left >= end {
                    break;
                }
                let weight = (end.min(right) - begin.max(left)).max(0.0) * density;
                *known += weight;
                bin.add(span, weight);
            }
        }
        let divided = |(known, bin): (f64, HostBin)| (known > 0.0).then(|| bin.divided(known));
        HostUse {
            from,
            to,
            bins: bins.into_iter().map(divided).collect(),
            whole: divided((known_ms, whole)),
            known_ms: known_ms.round() as u64,
            cpus,
            gpus,
        }
    }

    /// Returns an amount for each bin.
    pub fn column(&self, amount: impl Fn(&HostBin) -> f64) -> Vec<Option<f64>> {
        self.bins.iter().map(|bin| bin.as_ref().map(&amount)).collect()
    }

    /// Returns an amount of one GPU for each bin.
    pub fn gpu_column(
        &self,
        gpu: u32,
        amount: impl Fn(&GpuBin) -> Option<f64>,
    ) -> Vec<Option<f64>> {
        self.bins.iter().map(|bin| bin.as_ref()?.gpus.get(&gpu).and_then(&amount)).collect()
    }
}

impl HostBin {
    /// Adds the part of a span that covers `weight` sampled milliseconds.
    fn add(&mut self, span: &HostSpan, weight: f64) {
        if weight <= 0.0 {
            return;
        }
        let part = weight / span.ms as f64;
        self.cpus += span.cpu_us as f64 / 1000.0 * part;
        self.mem_kb += span.mem_mean_kb as f64 * weight;
        self.mem_max_kb = self.mem_max_kb.max(span.mem_max_kb as f64);
        self.swap_kb = self.swap_kb.max(span.swap_max_kb as f64);
        self.load += f64::from(span.load_centi) / 100.0 * weight;
        for (id, gpu) in &span.gpus {
            let known = self.gpus.entry(*id).or_default();
            let weight = gpu.ms as f64 * part;
            known.weight += weight;
            if let Some(milli) = gpu.busy_milli {
                known.busy_weight += weight;
                *known.busy.get_or_insert_default() += f64::from(milli) / 10.0 * weight;
            }
            known.mem_mb += gpu.mem_mean_mb as f64 * weight;
        }
    }

    fn divided(mut self, known_ms: f64) -> HostBin {
        self.gpus.retain(|_, gpu| gpu.weight > 0.0);
        for gpu in self.gpus.values_mut() {
            let busy = gpu.busy.map(|busy| busy / gpu.busy_weight).filter(|busy| busy.is_finite());
            *gpu = GpuBin { busy, mem_mb: gpu.mem_mb / gpu.weight, ..*gpu };
        }
        HostBin {
            cpus: self.cpus / known_ms,
            mem_kb: self.mem_kb / known_ms,
            load: self.load / known_ms,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn gpu() -> impl Strategy<Value = GpuSpan> {
        (1..20_000u64, proptest::option::of(0..1000u32), 0..80_000u64).prop_map(
            |(ms, busy_milli, mb)| GpuSpan { ms, busy_milli, mem_max_mb: mb, mem_mean_mb: mb / 2 },
        )
    }

    /// Consecutive spans with pauses between them.
    fn spans() -> impl Strategy<Value = Vec<HostSpan>> {
        let one = (
            1..20_000u64,
            0..5_000_000i64,
            0..80_000_000u64,
            0..1u64 << 30,
            proptest::option::of(gpu()),
        );
        vec(one, 0..400).prop_map(|all| {
            let mut at = 1_700_000_000_000;
            let span = |(ms, pause, cpu_us, kb, gpu): (u64, i64, u64, u64, Option<GpuSpan>)| {
                let from = at + pause;
                at = from + ms as i64;
                let gpus =
                    gpu.map(|gpu| (3, GpuSpan { ms: gpu.ms.min(ms), ..gpu })).into_iter().collect();
                let (mem_max_kb, mem_mean_kb) = (kb, kb / 3);
                HostSpan {
                    from,
                    to: at,
                    ms,
                    cpus: 8,
                    cpu_us,
                    mem_max_kb,
                    mem_mean_kb,
                    gpus,
                    ..HostSpan::default()
                }
            };
            all.into_iter().map(span).collect()
        })
    }

    fn end(spans: &[HostSpan]) -> Timestamp {
        Timestamp(spans.iter().map(|span| span.to).max().unwrap_or(0) * 1000)
    }

    fn sum(spans: &[HostSpan], amount: fn(&HostSpan) -> u64) -> u64 {
        spans.iter().map(amount).sum()
    }

    proptest! {
        #[test]
        fn thinning_keeps_time_and_amounts_and_stays_bounded(all in spans(), later in 0..20i64) {
            let now = Timestamp(end(&all).0 + later * DAY_MS * 1000);
            let thin = thinned(all.clone(), now);
            prop_assert!(thin.len() <= MOST_SPANS);
            prop_assert!(thin.windows(2).all(|pair| pair[0].to < pair[1].to));
            let kept: Vec<HostSpan> =
                all.into_iter().filter(|span| span.place(now.0 / 1000).is_some()).collect();
            for amount in [|s: &HostSpan| s.ms, |s: &HostSpan| s.cpu_us] {
                prop_assert_eq!(sum(&thin, amount), sum(&kept, amount));
            }
            let most = |spans: &[HostSpan]| spans.iter().map(|span| span.mem_max_kb).max();
            prop_assert_eq!(most(&thin), most(&kept));
            // Thinning again gives the same spans.
            prop_assert_eq!(thinned(thin.clone(), now), thin);
        }

        #[test]
        fn bins_add_up_to_the_spans_and_are_none_where_nothing_was_sampled(all in spans(), count in 1..200usize) {
            let from = Timestamp(all.iter().map(|span| span.from).min().unwrap_or(0) * 1000);
            let found = HostUse::within(&all, from, end(&all), count);
            prop_assert_eq!(found.bins.len(), count);
            if all.is_empty() {
                prop_assert!(found.bins.iter().all(Option::is_none));
                return Ok(());
            }
            prop_assert_eq!(found.known_ms, sum(&all, |span| span.ms));
            let width = (end(&all).0 - from.0) as f64 / 1000.0 / count as f64;
            for (i, bin) in found.bins.iter().enumerate() {
                let left = from.0 as f64 / 1000.0 + i as f64 * width;
                let shared = |span: &&HostSpan| (span.to as f64) > left + 0.01 && (span.from as f64) < left + width - 0.01;
                if all.iter().any(|span| shared(&span)) {
                    prop_assert!(bin.is_some());
                }
                let touches = |span: &HostSpan| (span.to as f64) >= left - 0.01 && (span.from as f64) <= left + width + 0.01;
                prop_assert!(bin.is_none() || all.iter().any(touches));
                if let Some(gpu) = bin.as_ref().and_then(|bin| bin.gpus.get(&3)) {
                    prop_assert!(gpu.busy.is_none_or(|busy| (0.0..=100.0).contains(&busy)), "{gpu:?}");
                }
            }
            let one = HostUse::within(&all, from, end(&all), 1);
            let cpus = one.bins[0].as_ref().map(|bin| bin.cpus).unwrap();
            let truth = sum(&all, |span| span.cpu_us) as f64 / 1000.0 / sum(&all, |span| span.ms) as f64;
            prop_assert!((cpus - truth).abs() <= 1e-6 * truth.max(1.0), "{cpus} {truth}");
        }
    }

    fn span(from: i64, to: i64, cpu_ms: u64) -> HostSpan {
        let (ms, cpu_us) = ((to - from) as u64, cpu_ms * 1000);
        HostSpan {
            from,
            to,
            ms,
            cpu_us,
            cpus: 4,
            mem_max_kb: 10,
            mem_mean_kb: 10,
            ..HostSpan::default()
        }
    }

    #[test]
    fn a_pause_is_a_gap_but_an_idle_host_is_not() {
        let all = [span(0, 1000, 2000), span(3000, 4000, 0)];
        let found = HostUse::within(&all, Timestamp(0), Timestamp(4_000_000), 4);
        assert_eq!(found.column(|bin| bin.cpus), [Some(2.0), None, None, Some(0.0)]);
        assert_eq!((found.known_ms, found.cpus), (2000, 4));
        let part = HostUse::within(&all, Timestamp(500_000), Timestamp(2_500_000), 1);
        assert_eq!((part.column(|bin| bin.cpus), part.known_ms), (vec![Some(2.0)], 500));
    }

    #[test]
    fn resolution_gets_coarser_with_age() {
        // Ten days of a job that always runs, sampled every ten seconds.
        let now = 10 * DAY_MS;
        let all: Vec<HostSpan> =
            (0..now / 10_000).map(|i| span(i * 10_000, (i + 1) * 10_000, 5000)).collect();
        let thin = thinned(all, Timestamp(now * 1000));
        let of_age = |least: i64, most: i64| {
            let lengths = thin
                .iter()
                .filter(|s| now - s.to > least && now - s.to < most)
                .map(|s| s.to - s.from);
            lengths.max()
        };
        assert_eq!(of_age(0, HOUR_MS), Some(10_000));
        assert_eq!(of_age(2 * HOUR_MS, 23 * HOUR_MS), Some(300_000));
        assert_eq!(of_age(2 * DAY_MS, 20 * DAY_MS), Some(HOUR_MS));
        assert!(thin.len() <= 360 + 276 + 216 + 4, "{}", thin.len());
        assert!(thinned(thin, Timestamp(50 * DAY_MS * 1000)).is_empty());
    }

    #[test]
    fn spans_in_the_future_do_not_pile_up() {
        let all: Vec<HostSpan> =
            (0..100_000).map(|i| span(i * 10_000, (i + 1) * 10_000, 5000)).collect();
        assert!(thinned(all, Timestamp(0)).len() <= MOST_SPANS);
    }
}
