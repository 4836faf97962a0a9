//! What the commands say of a job beyond its plain fields: which start, which end, which node,
//! which words for the request. Shared by squeue, sacct and scontrol, so that they agree.

use crate::model::request::{JobKind, MemRequest, Sharing};
use crate::model::view::JobView;
use crate::model::{End, ExitCode, JobState, Reason, Timestamp, Tres};
use crate::render::Ctx;
use crate::render::size::{self, Units};
use std::time::Duration;

/// The quality of service that jobs without one have in Slurm.
const DEFAULT_QOS: &str = "normal";

/// Its quality of service.
pub fn qos(job: &JobView) -> &str {
    job.request.qos.as_deref().unwrap_or(DEFAULT_QOS)
}

/// When it started. A job that ended without starting "started" when it ended, as in Slurm.
pub fn start(job: &JobView) -> Option<Timestamp> {
    job.run.start.or(if job.run.state.is_terminal() { job.run.end } else { None })
}

/// As [`start`], and for a pending job when the plan would start it: what `StartTime` shows.
pub fn start_or_expected(job: &JobView) -> Option<Timestamp> {
    start(job).or(job.expected_start)
}

/// The end, or when the time limit ends it; `None` where there is no limit or no start.
pub fn end_or_expected(job: &JobView, ctx: &Ctx) -> Option<Timestamp> {
    if job.run.state.is_terminal() {
        return job.run.end;
    }
    let limit = job.request.time_limit_secs?;
    let suspended_now = job.run.suspended_at.map_or(Duration::ZERO, |at| ctx.now.since(at));
    let suspended = Duration::from_micros(job.run.suspended_us).saturating_add(suspended_now);
    Some(start_or_expected(job)?.plus_secs(limit).plus(suspended).plus_us(job.run.stepped_us))
}

/// Seconds it has run, without suspension.
pub fn elapsed_secs(job: &JobView, ctx: &Ctx) -> u64 {
    job.elapsed(ctx.now).as_secs()
}

/// The node it runs or ran on; empty where it never started.
pub fn nodes<'a>(job: &JobView, ctx: &'a Ctx) -> &'a str {
    if job.run.start.is_some() { &ctx.node } else { "" }
}

/// The exit code of the accounting. Slurm writes the end of a job that is cancelled or out of time
/// before its processes have ended: whatever they make of the signal, it is nothing.
pub fn recorded_exit(job: &JobView) -> ExitCode {
    let is_nothing = job.run.state.end().is_some_and(End::precedes_exit);
    if is_nothing { ExitCode::OK } else { job.run.exit }
}

/// A held job has priority 0, as in Slurm.
pub fn priority(job: &JobView) -> u32 {
    if is_held(job) { 0 } else { job.priority }
}

/// From when on it may start: where that has not come yet, the begin time that the user gave.
pub fn eligible(job: &JobView) -> Option<Timestamp> {
    job.run.eligible.or(job.request.begin)
}

/// Whether it waits because the user or the administrator holds it.
pub fn is_held(job: &JobView) -> bool {
    job.run.state == JobState::Pending
        && matches!(job.run.reason, Reason::JobHeldUser | Reason::JobHeldAdmin)
}

/// Whether `%R` shows the reason rather than the node.
pub fn shows_reason(state: JobState) -> bool {
    state == JobState::Pending || state.is_failure()
}

/// `CANCELLED by 1001` where it is known who did it, else the state's name.
pub fn state_with_who(job: &JobView) -> String {
    match (job.run.state, job.run.cancelled_by) {
        _ if job.requeued => state_name(job).to_owned(),
        (JobState::Ended(End::Cancelled), Some(uid)) => format!("CANCELLED by {uid}"),
        (state, _) => state.name().to_owned(),
    }
}

/// The name of its state.
pub fn state_name(job: &JobView) -> &'static str {
    if job.requeued { "REQUEUED" } else { job.run.state.name() }
}

/// What it holds or held, or, where it never started, `None`.
pub fn allocated(job: &JobView) -> Option<Tres> {
    job.run.start?;
    Some(job.run.alloc.as_ref().map_or(job.tres, |a| a.tres))
}

/// What it holds, else what it asks for.
pub fn allocated_or_asked(job: &JobView) -> Tres {
    allocated(job).unwrap_or(job.tres)
}

/// The script with its arguments, or the command of a `Run`; `None` for `--wrap`, for a script on
/// stdin and for an allocation.
pub fn command(job: &JobView) -> Option<String> {
    let request = &job.request;
    let words = request.command.iter().chain(&request.args);
    let text = words.map(String::as_str).collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

/// Whether it is a batch job in Slurm's sense.
pub fn is_batch(job: &JobView) -> bool {
    job.request.kind == JobKind::Batch
}

/// CPUs of each task.
pub fn cpus_per_task(job: &JobView) -> u32 {
    job.request.cpus_per_task.unwrap_or(1).max(1)
}

/// `MinCPUsNode`: `--mincpus`, or what the tasks on the node need at least.
pub fn min_cpus(job: &JobView) -> u32 {
    let tasks = job.request.ntasks_per_node.unwrap_or(1).max(1);
    tasks.saturating_mul(cpus_per_task(job)).max(job.request.mincpus.unwrap_or(1))
}

/// Megabytes that were asked for, and whether for each CPU.
pub fn min_memory(job: &JobView) -> (u64, bool) {
    match job.request.mem {
        MemRequest::PerCpu(mb) => (mb, true),
        MemRequest::Default | MemRequest::None | MemRequest::PerNode(_) | MemRequest::PerGpu(_) => {
            (job.tres.mem_mb, false)
        }
    }
}

/// `OverSubscribe`: `NO` with `--exclusive`, `YES` with `--oversubscribe`, else `OK`.
pub fn over_subscribe(job: &JobView) -> &'static str {
    match job.request.sharing {
        Sharing::Default => "OK",
        Sharing::Exclusive => "NO",
        Sharing::Oversubscribe => "YES",
    }
}

/// `--gres` and `--gpus-per-node`.
pub fn tres_per_node(job: &JobView) -> Option<String> {
    let gpu = &job.request.gpu;
    let gpus = gpu.per_node.filter(|count| *count > 0).map(|count| gpu.as_gres(count));
    let mem = gpu.mem_mb.map(|mb| format!("gres:gpumem:{}", size::mib(mb, Units::Exact)));
    let shards = gpu.shards.map(|shards| format!("gres:shard:{shards}"));
    let all: Vec<String> = [gpus, mem, shards].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join(","))
}

/// `-G/--gpus`.
pub fn tres_per_job(job: &JobView) -> Option<String> {
    let gpu = &job.request.gpu;
    // None at all, as an update leaves it that takes the request away, is no request.
    let total = gpu.total.filter(|gpus| *gpus > 0 && gpu.per_node.is_none());
    total.map(|count| gpu.as_gres(count))
}

/// `--gpus-per-task`.
pub fn tres_per_task(job: &JobView) -> Option<String> {
    let gpu = &job.request.gpu;
    gpu.per_task.map(|count| gpu.as_gres(count))
}

/// `--gpus-per-socket`.
pub fn tres_per_socket(job: &JobView) -> Option<String> {
    let gpu = &job.request.gpu;
    gpu.per_socket.map(|count| gpu.as_gres(count))
}

/// Slurm's text for what is not there.
pub fn or_null(text: Option<&str>) -> String {
    text.filter(|t| !t.is_empty()).unwrap_or("(null)").to_owned()
}

/// The same of a value.
pub fn value_or_null(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| "(null)".to_owned(), ToString::to_string)
}

/// The dependency that is left, with the word that Slurm adds to each term:
/// `afterok:12(unfulfilled)`. The scheduler writes it, as it knows which terms can still be met.
pub fn dependency(job: &JobView) -> Option<String> {
    (!job.dependency.is_empty()).then(|| job.dependency.clone())
}

/// When the scheduler last thought of it: now, while it waits, since it thinks of all that wait.
pub fn last_evaluation(job: &JobView, ctx: &Ctx) -> Option<Timestamp> {
    if job.run.state == JobState::Pending { Some(ctx.now) } else { start(job).or(job.run.eligible) }
}

/// Seconds left of the time limit; `None` for no limit.
pub fn time_left(job: &JobView, ctx: &Ctx) -> Option<u64> {
    job.request.time_limit_secs.map(|limit| limit.saturating_sub(elapsed_secs(job, ctx)))
}
