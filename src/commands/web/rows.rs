//! Jobs as rows of the page, with the same fields for pending, running and ended jobs. Times are
//! milliseconds since 1970.

use crate::live::picture::waits_for_its_turn;
use serde::Serialize;
use slotd_model::tres::Usage;
use slotd_model::view::JobView;
use slotd_model::{JobState, Reason, Timestamp};
use slotd_render::array::Shown;
use slotd_render::{Ctx, job as facts};

#[derive(Debug, Serialize)]
pub struct Row {
    /// The record number.
    id: u32,
    /// The ID in the format of `squeue`; long task lists are truncated.
    label: String,
    /// The ID to pass to commands.
    target: String,
    array: Option<u32>,
    /// The number of jobs in the record.
    tasks: usize,
    name: String,
    user: String,
    partition: String,
    state: &'static str,
    reason: &'static str,
    /// The explanation of the reason.
    why: String,
    priority: u32,
    cpus: u32,
    mem_mb: u64,
    gpus: u32,
    cpu_ids: Vec<u32>,
    gpu_ids: Vec<u32>,
    submit: i64,
    start: Option<i64>,
    end: Option<i64>,
    /// The expected start time.
    expected: Option<i64>,
    limit_secs: Option<u64>,
    /// The elapsed time; `None` while the job is running.
    elapsed_ms: Option<u64>,
    /// The start time of a running job, moved forward by the time it was suspended.
    since: Option<i64>,
    /// Whether it waits for something other than resources or other jobs.
    later: bool,
    exit: String,
    restarts: u32,
    /// The next run of a recurring job.
    next_run: Option<i64>,
    /// When a recurring job runs, in the five fields of a crontab.
    recurs: Option<String>,
    /// The reservations that it names.
    reservation: String,
    used: Option<Used>,
    /// CPUs in use: lately if it is running, else on average. `None` if nothing was measured.
    pub busy_cpus: Option<f64>,
}

/// The usage of a job.
#[derive(Debug, Serialize)]
pub struct Used {
    cpu_secs: f64,
    mem_mb: u64,
    /// The load of all its GPUs together, in percent of one GPU.
    gpu_percent: Option<u64>,
}

impl Used {
    /// Returns `None` if nothing was measured.
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
        let elapsed = view.elapsed(ctx.now);
        let used = usage.and_then(Used::of);
        let is_running = run.start.is_some() && run.end.is_none() && run.suspended_at.is_none();
        Row {
            id: view.id.0,
            label: shown.id(ctx),
            target: target(&shown),
            array: view.array_job_id().map(|array| array.0),
            tasks: view.weight(),
            name: request.name.clone(),
            user: request.user.clone(),
            partition: view.partition.to_string(),
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
            elapsed_ms: (!is_running).then(|| u64::try_from(elapsed.as_millis()).unwrap_or(0)),
            since: is_running
                .then(|| millis(ctx.now.plus_us(-i64::try_from(elapsed.as_micros()).unwrap_or(0)))),
            later: !waits_for_its_turn(view),
            exit: run.exit.to_string(),
            restarts: run.restarts,
            next_run: view.next_run.map(millis),
            recurs: request.recurrence.as_ref().map(|recurrence| recurrence.to_string()),
            reservation: request.reservation.clone().unwrap_or_default(),
            busy_cpus: used.as_ref().and_then(|used| {
                let secs = elapsed.as_secs_f64();
                (secs > 0.0).then(|| used.cpu_secs / secs)
            }),
            used,
        }
    }
}

/// Returns the full ID: `12`, `12_3`, `12_[3-9]`.
fn target(shown: &Shown<'_>) -> String {
    match shown {
        Shown::Plain(id) => id.to_string(),
        Shown::Task { array, task, .. } => format!("{array}_{task}"),
        Shown::Tasks { array, tasks, .. } => format!("{array}_[{tasks}]"),
    }
}

/// Returns the scheduler's comment if there is one, else the unfulfilled dependency, else the name
/// of the reason.
fn why(view: &JobView) -> String {
    let run = &view.run;
    if let Some(words) = &run.system_comment {
        return words.clone();
    }
    if run.reason == Reason::Dependency && !view.dependency.is_empty() {
        return format!("waiting for {}", view.dependency);
    }
    match run.reason {
        Reason::None | Reason::NonZeroExitCode if run.state != JobState::Pending => String::new(),
        reason => reason.name().to_owned(),
    }
}
