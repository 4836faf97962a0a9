//! `slotd report`: compares usage with allocations per job name and suggests what to request next.

use crate::field::{Cut, Field, Table};
use crate::layout::Layout;
use crate::size::glance;
use crate::text::printable;
use crate::value::Value;
use crate::{Ctx, job, seff, time};
use serde_json::{Value as Json, json};
use slotd_model::tres::Usage;
use slotd_model::view::JobView;
use slotd_model::{End, JobState, Timestamp, counted};
use std::cmp::Reverse;
use std::collections::HashMap;

/// The usage and allocations of all jobs with one name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Use {
    pub name: String,
    pub jobs: u64,
    /// The jobs that did not complete.
    pub left_out: LeftOut,
    pub cpu_had_us: u128,
    pub cpu_used_us: u128,
    /// Memory that was allocated but not used, in KiB times microseconds.
    mem_wasted: u128,
    all: Most,
    /// The completed jobs only: a failed job may have stopped before doing any work.
    completed: Most,
    /// The largest allocation with which a job ran out of memory, MB.
    short_mem_mb: u64,
    /// The longest time limit that a job reached, seconds.
    short_limit_secs: u64,
    /// The sum of all GPU readings, in hundredths of a GPU, and the number of readings.
    gpu_busy: u64,
    gpu_readings: u64,
}

/// The largest allocation and usage of a single job. CPU and GPU usage are means over its run time.
#[derive(Debug, Clone, PartialEq, Default)]
struct Most {
    cpus_had: u32,
    cpus_used: f64,
    mem_had_mb: u64,
    mem_used_kb: u64,
    longest_us: u128,
    /// The longest time limit, seconds; `None` if no job had one.
    limit_secs: Option<u64>,
    has_no_limit: bool,
    /// The number of whole GPUs of a job, and the mean number in use.
    gpus_had: u32,
    gpus_used: f64,
}

/// The jobs that did not complete, by how they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    failed: u64,
    cancelled: u64,
    timed_out: u64,
    out_of_memory: u64,
}

impl LeftOut {
    fn plus(self, other: LeftOut) -> LeftOut {
        LeftOut {
            failed: self.failed + other.failed,
            cancelled: self.cancelled + other.cancelled,
            timed_out: self.timed_out + other.timed_out,
            out_of_memory: self.out_of_memory + other.out_of_memory,
        }
    }

    pub fn all(self) -> u64 {
        self.failed + self.cancelled + self.timed_out + self.out_of_memory
    }

    /// Formats the counts: `2 failed, 1 timed out`.
    fn in_words(self) -> String {
        let kinds = [
            (self.failed, "failed"),
            (self.cancelled, "cancelled"),
            (self.timed_out, "timed out"),
            (self.out_of_memory, "out of memory"),
        ];
        let words = kinds
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, kind)| format!("{count} {kind}"));
        words.collect::<Vec<_>>().join(", ")
    }
}

/// The minimum run time, in microseconds, of a job whose CPU usage is meaningful.
const MIN_WALL_US: u128 = 10_000_000;

/// The share of an allocation, in percent, that must be saved for a suggestion to be worthwhile.
const WORTH_PERCENT: u128 = 20;

const HOUR_US: f64 = 3.6e9;

impl Most {
    fn take(&mut self, view: &JobView, used: &Usage, wall_us: u128) {
        let has = job::allocated_or_asked(view);
        let cpu_us = u128::from(used.user_us) + u128::from(used.system_us);
        self.cpus_had = self.cpus_had.max(has.cpus);
        if wall_us >= MIN_WALL_US {
            self.cpus_used = self.cpus_used.max(cpu_us as f64 / wall_us as f64);
        }
        self.mem_had_mb = self.mem_had_mb.max(has.mem_mb);
        self.mem_used_kb = self.mem_used_kb.max(used.max_rss_kb);
        // A cancelled job does not show how long it would have run.
        if view.run.state != JobState::Ended(End::Cancelled) {
            self.longest_us = self.longest_us.max(wall_us);
        }
        self.limit_secs = self.limit_secs.max(view.request.time_limit_secs);
        self.has_no_limit |= view.request.time_limit_secs.is_none();
        self.gpus_had = self.gpus_had.max(has.gpus);
        if let Some(mean) =
            used.gpu.busy_sum.checked_div(used.gpu.readings).filter(|_| wall_us >= MIN_WALL_US)
        {
            self.gpus_used = self.gpus_used.max(mean as f64 / 100.0);
        }
    }
}

impl Use {
    fn take(&mut self, view: &JobView, now: Timestamp) {
        let (has, used) = (job::allocated_or_asked(view), seff::recorded_usage(view));
        let wall_us = view.elapsed(now).as_micros();
        let mem_had_kb = has.mem_mb.saturating_mul(1024);
        self.jobs += 1;
        self.cpu_had_us += wall_us * u128::from(has.cpus);
        self.cpu_used_us += u128::from(used.user_us) + u128::from(used.system_us);
        self.mem_wasted += u128::from(mem_had_kb.saturating_sub(used.max_rss_kb)) * wall_us;
        self.gpu_busy = self.gpu_busy.saturating_add(used.gpu.busy_sum);
        self.gpu_readings = self.gpu_readings.saturating_add(used.gpu.readings);
        self.all.take(view, &used, wall_us);
        let Some(end) = view.run.state.end() else { return };
        match end {
            End::Completed => self.completed.take(view, &used, wall_us),
            End::Failed | End::NodeFail => self.left_out.failed += 1,
            End::Cancelled | End::Preempted => self.left_out.cancelled += 1,
            End::Timeout => {
                self.left_out.timed_out += 1;
                self.short_limit_secs =
                    self.short_limit_secs.max(view.request.time_limit_secs.unwrap_or(0));
            }
            End::OutOfMemory => {
                self.left_out.out_of_memory += 1;
                self.short_mem_mb = self.short_mem_mb.max(has.mem_mb);
            }
        }
    }

    pub fn cpu_hours_had(&self) -> f64 {
        self.cpu_had_us as f64 / HOUR_US
    }

    pub fn cpu_hours_used(&self) -> f64 {
        self.cpu_used_us as f64 / HOUR_US
    }

    fn cpu_wasted_us(&self) -> u128 {
        self.cpu_had_us.saturating_sub(self.cpu_used_us)
    }

    fn gb_hours_wasted(&self) -> f64 {
        self.mem_wasted as f64 / HOUR_US / f64::from(1 << 20)
    }

    fn is_worth_it(had: u128, ask: u128) -> bool {
        ask * 100 <= had * (100 - WORTH_PERCENT)
    }

    /// Suggests what to request next time, with reasons. Completed jobs show how much is enough; a
    /// job that ran out of memory or time shows that it had too little.
    pub fn advice(&self) -> Vec<Advice> {
        [self.cpus(), self.gpus(), self.memory(), self.time()].into_iter().flatten().collect()
    }

    fn cpus(&self) -> Option<Advice> {
        let Most { cpus_had, cpus_used, .. } = self.completed;
        // Round down if only slightly above a whole number: programs also spend time reading their
        // input.
        let ask = (cpus_used - 0.1).ceil().max(1.0) as u32;
        (cpus_used > 0.0 && Use::is_worth_it(cpus_had.into(), ask.into())).then(|| Advice {
            why: format!("had {}, used {cpus_used:.2}", counted(cpus_had, "CPU")),
            option: format!("-c {ask}"),
        })
    }

    /// Suggests how many GPUs to request, at least one: a job may depend on a GPU that it hardly
    /// uses.
    fn gpus(&self) -> Option<Advice> {
        let Most { gpus_had, gpus_used, .. } = self.completed;
        let ask = (gpus_used - 0.1).ceil().max(1.0) as u32;
        (gpus_used > 0.0 && Use::is_worth_it(gpus_had.into(), ask.into())).then(|| Advice {
            why: format!("had {}, used {gpus_used:.2}", counted(gpus_had, "GPU")),
            option: format!("--gpus={ask}"),
        })
    }

    fn memory(&self) -> Option<Advice> {
        if self.left_out.out_of_memory > 0 {
            let ask = rounded_mb(self.short_mem_mb.saturating_mul(3) / 2);
            let had = glance(self.short_mem_mb as f64 * f64::from(1 << 20));
            let why = format!("{} ran out of memory with {had}", jobs(self.left_out.out_of_memory));
            return Some(Advice { why, option: format!("--mem={ask}M") });
        }
        let Most { mem_had_mb, mem_used_kb, .. } = self.completed;
        let had = glance(mem_had_mb as f64 * f64::from(1 << 20));
        let ask = rounded_mb((mem_used_kb / 1024).saturating_mul(5) / 4);
        let is_too_much = Use::is_worth_it(mem_had_mb.into(), ask.into());
        let is_too_little = mem_used_kb / 1024 > mem_had_mb;
        (mem_used_kb > 0 && (is_too_much || is_too_little)).then(|| Advice {
            why: format!("had {had}, used {}", glance(mem_used_kb as f64 * 1024.0)),
            option: format!("--mem={ask}M"),
        })
    }

    fn time(&self) -> Option<Advice> {
        if self.left_out.timed_out > 0 && self.short_limit_secs > 0 {
            let limit = self.short_limit_secs;
            let why = format!(
                "{} reached the limit of {}",
                jobs(self.left_out.timed_out),
                time::long(limit)
            );
            return Some(Advice {
                why,
                option: format!("-t {}", time::long(rounded_secs(limit.saturating_mul(2)))),
            });
        }
        let Most { longest_us, limit_secs, has_no_limit, .. } = self.completed;
        let limit = limit_secs?;
        let longest = u64::try_from(longest_us.div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let ask = rounded_secs(longest.saturating_mul(3) / 2);
        // Limits are guesses, so only one that is far too long is worth a suggestion.
        (!has_no_limit && longest > 0 && ask <= limit / 2).then(|| Advice {
            why: format!("had a limit of {}, took {}", time::long(limit), time::long(longest)),
            option: format!("-t {}", time::long(ask)),
        })
    }
}

fn jobs(count: u64) -> String {
    counted(count, "job")
}

/// A suggestion for the next request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    pub why: String,
    /// The sbatch option.
    pub option: String,
}

/// Rounds up to a round number of megabytes.
fn rounded_mb(mb: u64) -> u64 {
    let step = match mb {
        0..256 => 32,
        256..1024 => 128,
        1024..8192 => 512,
        _ => 1024,
    };
    mb.max(1).div_ceil(step).saturating_mul(step)
}

fn rounded_secs(secs: u64) -> u64 {
    let step = match secs {
        0..600 => 60,
        600..3600 => 300,
        _ => 1800,
    };
    secs.max(1).div_ceil(step).saturating_mul(step)
}

/// The usage of many jobs, by name.
#[derive(Debug, Default)]
pub struct Report {
    names: HashMap<String, Use>,
}

impl Report {
    /// Adds a job; ignores it unless it started and ended.
    pub fn take(&mut self, view: &JobView, now: Timestamp) {
        if view.run.state.is_terminal() && view.run.start.is_some() {
            let name = &view.request.name;
            // Most jobs share their name with an earlier one, so the name is rarely copied.
            if !self.names.contains_key(name) {
                self.names.insert(name.clone(), Use { name: name.clone(), ..Use::default() });
            }
            if let Some(used) = self.names.get_mut(name) {
                used.take(view, now);
            }
        }
    }

    /// Returns the names, the most wasteful first.
    pub fn ranked(self) -> Vec<Use> {
        let mut all: Vec<Use> = self.names.into_values().collect();
        all.sort_by(|a, b| {
            (Reverse(a.cpu_wasted_us()), &a.name).cmp(&(Reverse(b.cpu_wasted_us()), &b.name))
        });
        all
    }
}

/// The field table of the report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Names;

impl Table for Names {
    type Row<'a> = &'a Use;

    fn fields() -> &'static [Field<Self>] {
        FIELDS
    }
}

type F = Field<Names>;

static FIELDS: &[F] = &[
    F::new(&["name"], "NAME", |u, _| u.name.clone().into()).cut(Cut::Never),
    F::new(&["jobs"], "JOBS", |u, _| u.jobs.into()),
    F::new(&["failed"], "FAILED", |u, _| u.left_out.all().into()),
    F::new(&["cpuhours"], "CPU-HOURS", |u, _| Value::Share(u.cpu_hours_had(), 2)),
    F::new(&["used"], "USED", |u, _| percent(u.cpu_used_us as f64, u.cpu_had_us as f64).into()),
    F::new(&["cpus"], "CPUS", |u, _| u.all.cpus_had.into()),
    F::new(&["memory"], "MEMORY", |u, _| {
        glance(u.all.mem_had_mb as f64 * f64::from(1 << 20)).into()
    }),
    F::new(&["maxrss"], "MAXRSS", |u, _| measured(u).into()),
    F::new(&["gpu"], "GPU", |u, _| busy(u).unwrap_or_else(|| "-".to_owned()).into()),
    F::new(&["cpuwaste"], "WASTED-CPU-HOURS", |u, _| {
        Value::Share(u.cpu_wasted_us() as f64 / HOUR_US, 2)
    }),
    F::new(&["memwaste"], "WASTED-GB-HOURS", |u, _| Value::Share(u.gb_hours_wasted(), 2)),
];

fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.0}%", part / whole * 100.0) } else { "-".to_owned() }
}

fn measured(used: &Use) -> String {
    if used.all.mem_used_kb == 0 {
        "-".to_owned()
    } else {
        glance(used.all.mem_used_kb as f64 * 1024.0)
    }
}

fn busy(used: &Use) -> Option<String> {
    used.gpu_busy.checked_div(used.gpu_readings).map(|mean| format!("{mean}%"))
}

/// Returns the headings and the cells, for a table of any kind.
pub fn cells(all: &[Use], ctx: &Ctx) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let has_gpus = all.iter().any(|used| busy(used).is_some());
    let shown = || FIELDS.iter().filter(|field| has_gpus || field.title() != "GPU");
    let row =
        |used: &Use| shown().map(|field| field.value(&used, ctx).text(ctx).into_owned()).collect();
    (shown().map(Field::title).collect(), all.iter().map(row).collect())
}

/// Returns the summary above the table.
pub fn summary(all: &[Use], from: Timestamp, to: Timestamp, ctx: &Ctx) -> String {
    let sum = |of: fn(&Use) -> u128| all.iter().map(of).sum::<u128>() as f64;
    let (had, used) = (sum(|u| u.cpu_had_us), sum(|u| u.cpu_used_us));
    let (from, to) = (time::iso(from, &ctx.tz), time::iso(to, &ctx.tz));
    format!(
        "{} ran and ended between {from} and {to}: {:.2} CPU-hours allocated, {:.2} used ({})",
        jobs(all.iter().map(|u| u.jobs).sum()),
        had / HOUR_US,
        used / HOUR_US,
        percent(used, had)
    )
}

/// Returns the table.
pub fn table(all: &[Use], ctx: &Ctx) -> String {
    let (heads, _) = cells(all, ctx);
    let wanted = FIELDS.iter().filter(|field| heads.contains(&field.title()));
    let names: Vec<&str> = wanted.flat_map(|field| field.names.iter().copied().next()).collect();
    // A test checks that this constant parses.
    let layout = Layout::<Names>::names(&names.join(",")).unwrap_or_default();
    layout.print(&all.iter().collect::<Vec<_>>(), true, ctx)
}

/// Returns the suggestions, one per line.
pub fn advice(all: &[Use]) -> Vec<String> {
    let of = |used: &Use| -> Vec<String> {
        let name = printable(used.name.as_str().into(), true);
        let line = |advice: Advice| format!("{name}: {}: request {}", advice.why, advice.option);
        used.advice().into_iter().map(line).collect()
    };
    all.iter().flat_map(of).collect()
}

/// Returns notes on the data behind the suggestions, one per line.
pub fn notes(all: &[Use]) -> Vec<String> {
    let is_of_memory = |advice: &Advice| advice.option.starts_with("--mem=");
    let has_memory = all.iter().any(|used| used.advice().iter().any(is_of_memory));
    left_out(all).into_iter().chain(has_memory.then(|| seff::SAMPLED.to_owned())).collect()
}

/// Counts the jobs behind the suggestions unless they are all jobs: `Based on 3 completed jobs.
/// Excluded: 2 failed, 1 cancelled`.
fn left_out(all: &[Use]) -> Option<String> {
    let left_out = all.iter().fold(LeftOut::default(), |sum, used| sum.plus(used.left_out));
    let completed = all.iter().map(|used| used.jobs).sum::<u64>() - left_out.all();
    let count = match completed {
        0 => "No job completed.".to_owned(),
        1 => "Based on 1 completed job.".to_owned(),
        n => format!("Based on {n} completed jobs."),
    };
    (left_out.all() > 0).then(|| format!("{count} Excluded: {}", left_out.in_words()))
}

/// Returns the report as JSON, with hours, bytes and seconds.
pub fn json(all: &[Use], from: Timestamp, to: Timestamp) -> Json {
    let one = |used: &Use| {
        let advice: Vec<Json> =
            used.advice().iter().map(|a| json!({ "why": a.why, "option": a.option })).collect();
        json!({
            "name": used.name,
            "jobs": used.jobs,
            "failed": used.left_out.all(),
            "left_out": {
                "failed": used.left_out.failed,
                "cancelled": used.left_out.cancelled,
                "timed_out": used.left_out.timed_out,
                "out_of_memory": used.left_out.out_of_memory,
            },
            "cpu_hours": used.cpu_hours_had(),
            "cpu_hours_used": used.cpu_hours_used(),
            "cpus": used.all.cpus_had,
            "cpus_used": used.all.cpus_used,
            "memory": used.all.mem_had_mb.saturating_mul(1 << 20),
            "memory_used": used.all.mem_used_kb.saturating_mul(1024),
            "gb_hours_wasted": used.gb_hours_wasted(),
            "longest_secs": u64::try_from(used.all.longest_us / 1_000_000).unwrap_or(u64::MAX),
            "time_limit_secs": used.all.limit_secs,
            "gpus": used.all.gpus_had,
            "gpus_used": used.all.gpus_used,
            "gpu_percent": used.gpu_busy.checked_div(used.gpu_readings),
            "advice": advice,
        })
    };
    json!({ "from": from.as_secs(), "to": to.as_secs(), "names": all.iter().map(one).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, ctx, now};
    use proptest::prelude::*;
    use slotd_model::tres::{Allocation, GpuUsage};
    use slotd_model::{ExitCode, Reason, Tres};

    /// A job with 8 CPUs and 8 GB that ran for `secs` seconds.
    fn ended(name: &str, end: End, secs: i64, usage: Usage) -> JobView {
        let tres = Tres { cpus: 8, mem_mb: 8192, ..Tres::ZERO };
        let job = crate::fixture::job(1, name).limit(86_400);
        job.ended(end, Reason::None, ExitCode::OK, secs + 10, 10)
            .with(|j| {
                j.tres = tres;
                j.run.alloc = Some(Allocation { tres, ..Allocation::default() }.into());
                j.run.usage = Some(Box::new(usage));
            })
            .build()
    }

    fn used(max_rss_kb: u64, cpu_secs: u64) -> Usage {
        Usage { max_rss_kb, user_us: cpu_secs * 1_000_000, ..Usage::default() }
    }

    fn of(views: &[JobView]) -> Vec<Use> {
        let mut report = Report::default();
        views.iter().for_each(|view| report.take(view, now()));
        report.ranked()
    }

    #[test]
    fn names_are_ranked_by_waste_with_suggestions() {
        let all = of(&[
            ended("train", End::Completed, 3600, used(1_153_434, 6840)),
            ended("train", End::Failed, 1200, used(900_000, 1200)),
            ended("tight", End::Completed, 3600, used(8_000_000, 28_700)),
            crate::fixture::job(4, "waits").build(),
            crate::fixture::job(5, "runs").running(60).build(),
        ]);
        assert_eq!(
            table(&all, &ctx()),
            "NAME  | JOBS | FAILED | CPU-HOURS | USED | CPUS | MEMORY | MAXRSS | WASTED-CPU-HOURS | WASTED-GB-HOURS\n\
             train | 2    | 1      | 10.67     | 21%  | 8    | 8G     | 1.1G   | 8.43             | 9.28\n\
             tight | 1    | 0      | 8.00      | 100% | 8    | 8G     | 7.6G   | 0.03             | 0.37\n"
        );
        assert_eq!(
            advice(&all),
            [
                "train: had 8 CPUs, used 1.90: request -c 2",
                "train: had 8G, used 1.1G: request --mem=1536M",
                "train: had a limit of 1-00:00:00, took 01:00:00: request -t 01:30:00",
                "tight: had a limit of 1-00:00:00, took 01:00:00: request -t 01:30:00",
            ]
        );
        assert_eq!(
            summary(&all, at(86_400), now(), &ctx()),
            "3 jobs ran and ended between 2026-11-19T23:39:58 and 2026-11-20T23:39:58: \
             18.67 CPU-hours allocated, 10.21 used (55%)"
        );
        let json = json(&all, at(86_400), now());
        assert_eq!(json["names"][0]["advice"][1]["option"], "--mem=1536M");
    }

    #[test]
    fn a_job_name_cannot_forge_a_suggestion() {
        let mut all = of(&[ended("train", End::Completed, 86_000, used(10 << 20, 86_000 * 8))]);
        all[0].name = "a\ntrain: request --mem=1M\u{1b}]0;x\u{7}".to_owned();
        let lines = advice(&all);
        assert!(lines[0].starts_with("a\\012train: request --mem=1M\\033]0;x\\007: "), "{lines:?}");
    }

    #[test]
    fn suggestions_use_completed_jobs_and_count_the_others() {
        let all = of(&[ended("burn", End::Completed, 86_000, used(10 << 20, 86_000 * 8))]);
        assert_eq!(advice(&all), ["burn: had 8G, used 10G: request --mem=13312M"]);
        assert_eq!(left_out(&all), None);
        // These jobs ended while importing their modules.
        let early = |state| ended("burn", state, 40, used(20 << 10, 4));
        let cut_off = [End::Failed, End::Cancelled, End::NodeFail].map(early);
        let all = of(&cut_off);
        assert_eq!(advice(&all), [""; 0]);
        assert_eq!(
            left_out(&all).as_deref(),
            Some("No job completed. Excluded: 2 failed, 1 cancelled")
        );
        let mut views = cut_off.to_vec();
        views.push(ended("burn", End::Completed, 86_000, used(4 << 20, 86_000 * 8)));
        let all = of(&views);
        assert_eq!(advice(&all), ["burn: had 8G, used 4G: request --mem=5120M"]);
        assert_eq!(
            left_out(&all).as_deref(),
            Some("Based on 1 completed job. Excluded: 2 failed, 1 cancelled")
        );
        let json = json(&all, at(0), now());
        assert_eq!(json["names"][0]["left_out"]["failed"], 2);
    }

    #[test]
    fn jobs_that_had_too_little_should_request_more() {
        let all = of(&[
            ended("small", End::OutOfMemory, 60, used(8 << 20, 60 * 8)),
            ended("short", End::Timeout, 86_400, used(7 << 20, 86_400 * 8)),
        ]);
        assert_eq!(
            advice(&all),
            [
                "short: 1 job reached the limit of 1-00:00:00: request -t 2-00:00:00",
                "small: 1 job ran out of memory with 8G: request --mem=12288M",
            ]
        );
        assert_eq!(
            left_out(&all).as_deref(),
            Some("No job completed. Excluded: 1 timed out, 1 out of memory")
        );
    }

    #[test]
    fn unmeasured_usage_gives_no_suggestions() {
        let mut view = ended("quick", End::Completed, 0, Usage::default());
        let request = std::sync::Arc::make_mut(&mut view.job.request);
        request.time_limit_secs = None;
        let all = of(&[view]);
        assert!(advice(&all).is_empty(), "{:?}", advice(&all));
        let (_, rows) = cells(&all, &ctx());
        assert_eq!(rows[0], ["quick", "1", "0", "0.00", "-", "8", "8G", "-", "0.00", "0.00"]);
        let gpu = GpuUsage { readings: 4, busy_sum: 200, ..GpuUsage::default() };
        let all = of(&[ended("cards", End::Completed, 60, Usage { gpu, ..Usage::default() })]);
        assert!(table(&all, &ctx()).contains("| 50% |"), "{}", table(&all, &ctx()));
    }

    #[test]
    fn unused_gpus_give_a_suggestion() {
        let of_gpus = |gpus: u32, secs, busy_sum| {
            let gpu = GpuUsage { readings: 4, busy_sum, ..GpuUsage::default() };
            let mut view = ended("cards", End::Completed, secs, Usage { gpu, ..Usage::default() });
            view.job.tres.gpus = gpus;
            let tres = Tres { gpus, ..view.tres };
            view.job.run.alloc = Some(Allocation { tres, ..Allocation::default() }.into());
            of(&[view])[0].gpus().map(|advice| format!("{}: request {}", advice.why, advice.option))
        };
        assert_eq!(
            of_gpus(2, 600, 120).as_deref(),
            Some("had 2 GPUs, used 0.30: request --gpus=1")
        );
        assert_eq!(
            of_gpus(4, 600, 480).as_deref(),
            Some("had 4 GPUs, used 1.20: request --gpus=2")
        );
        assert_eq!(
            [of_gpus(2, 600, 700), of_gpus(1, 600, 4), of_gpus(2, 600, 0), of_gpus(2, 5, 120)],
            [const { None }; 4]
        );
    }

    proptest! {
        #[test]
        fn suggestions_save_something_and_leave_a_margin(had in 1..1u64 << 20, used_kb in 1..1u64 << 30, secs in 0..1u64 << 20) {
            let completed = Most { mem_had_mb: had, mem_used_kb: used_kb, ..Most::default() };
            let of = Use { completed, ..Use::default() };
            if let Some(advice) = of.memory() {
                let ask: u64 = advice.option.trim_start_matches("--mem=").trim_end_matches('M').parse().unwrap();
                let had_enough = used_kb / 1024 <= had;
                prop_assert!((ask < had) == had_enough && ask * 1024 >= used_kb, "{advice:?}");
            }
            let longest_us = u128::from(secs) * 1_000_000;
            let completed = Most { limit_secs: Some(1 << 21), longest_us, ..Most::default() };
            let of = Use { completed, ..Use::default() };
            let ask = rounded_secs(secs * 3 / 2);
            prop_assert!(ask >= secs);
            prop_assert_eq!(of.time().is_some(), secs > 0 && ask <= 1 << 20);
        }
    }
}
