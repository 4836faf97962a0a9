//! Jobs as the page shows them: one shape for what waits, runs and has ended. Times are
//! milliseconds since 1970.

use crate::model::tres::Usage;
use crate::model::view::JobView;
use crate::model::{JobState, Progress, Reason, Timestamp};
use crate::render::array::Shown;
use crate::render::{Ctx, job as facts};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
pub struct Row {
    /// The number of the record.
    pub id: u32,
    /// As squeue writes it, cut where it is long.
    label: String,
    /// What commands call it.
    pub target: String,
    pub array: Option<u32>,
    /// How many jobs it stands for.
    tasks: usize,
    name: String,
    user: String,
    partition: String,
    pub state: &'static str,
    reason: &'static str,
    /// The reason in a sentence.
    why: String,
    pub priority: u32,
    cpus: u32,
    mem_mb: u64,
    gpus: u32,
    cpu_ids: Vec<u32>,
    gpu_ids: Vec<u32>,
    submit: i64,
    start: Option<i64>,
    pub end: Option<i64>,
    /// When the plan starts it.
    expected: Option<i64>,
    limit_secs: Option<u64>,
    elapsed_ms: u64,
    exit: String,
    restarts: u32,
    pub used: Option<Used>,
}

/// What of its resources a job used.
#[derive(Debug, Serialize)]
pub struct Used {
    cpu_secs: f64,
    mem_mb: u64,
    /// Of all its GPUs together, percent of one.
    gpu_percent: Option<u64>,
}

impl Used {
    /// `None` where nothing was measured.
    pub fn of(usage: &Usage) -> Option<Used> {
        let cpu_us = usage.user_us.saturating_add(usage.system_us);
        (cpu_us > 0 || usage.max_rss_kb > 0).then(|| Used {
            cpu_secs: cpu_us as f64 / 1e6,
            mem_mb: usage.max_rss_kb / 1024,
            gpu_percent: usage.gpu.busy_sum.checked_div(usage.gpu.readings),
        })
    }
}

pub fn millis(at: Timestamp) -> i64 {
    at.0.div_euclid(1000)
}

impl Row {
    pub fn of(view: &JobView, usage: Option<&Usage>, ctx: &Ctx) -> Row {
        let (request, run) = (&view.request, &view.run);
        let shown = Shown::of(view.id, &view.role);
        let has = facts::allocated_or_asked(view);
        let alloc = run.alloc.as_deref();
        Row {
            id: view.id.0,
            label: shown.id(ctx),
            target: target(&shown),
            array: view.array_job_id().map(|array| array.0),
            tasks: view.weight(),
            name: request.name.clone(),
            user: request.user.clone(),
            partition: view.partition.clone(),
            state: facts::state_name(view),
            reason: run.reason.name(),
            why: why(view),
            priority: view.priority,
            cpus: has.cpus,
            mem_mb: has.mem_mb,
            gpus: has.gpus,
            cpu_ids: alloc.map(|alloc| alloc.cpu_ids.clone()).unwrap_or_default(),
            gpu_ids: alloc.map(|alloc| alloc.gpu_ids.clone()).unwrap_or_default(),
            submit: millis(view.submit),
            start: run.start.map(millis),
            end: if run.state.is_terminal() { run.end.map(millis) } else { None },
            expected: view.expected_start.map(millis),
            limit_secs: request.time_limit_secs,
            elapsed_ms: u64::try_from(view.elapsed(ctx.now).as_millis()).unwrap_or(u64::MAX),
            exit: run.exit.to_string(),
            restarts: run.restarts,
            used: usage.and_then(Used::of),
        }
    }
}

/// `12`, `12_3`, `12_[3-9]`, in full.
fn target(shown: &Shown<'_>) -> String {
    match shown {
        Shown::Plain(id) => id.to_string(),
        Shown::Task { array, task, .. } => format!("{array}_{task}"),
        Shown::Tasks { array, tasks, .. } => format!("{array}_[{tasks}]"),
    }
}

/// The scheduler's own words, if it has any; what is left of a dependency; else what the reason
/// means.
fn why(view: &JobView) -> String {
    let run = &view.run;
    if let Some(words) = &run.system_comment {
        return words.clone();
    }
    if run.reason == Reason::Dependency && !view.dependency.is_empty() {
        return format!("waits for {}", view.dependency);
    }
    match run.reason {
        Reason::None | Reason::NonZeroExitCode if run.state != JobState::Pending => String::new(),
        reason => reason.name().to_owned(),
    }
}

/// Of each array that has tasks that wait or run.
pub fn progress(live: &[JobView]) -> BTreeMap<u32, Progress> {
    let mut arrays: BTreeMap<u32, Progress> = BTreeMap::new();
    for view in live {
        let Some(array) = view.array_job_id() else { continue };
        let progress = arrays.entry(array.0).or_default();
        progress.total =
            view.request.array.as_ref().map_or(progress.total, |spec| spec.tasks.len());
        *progress += Progress::of(view);
    }
    arrays.retain(|_, progress| progress.waiting + progress.running > 0);
    arrays
}
