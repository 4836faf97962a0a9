//! Facts about a job that the commands derive from its plain fields: start and end, node, request
//! and allocation. squeue, sacct and scontrol share them, so their output agrees.

use crate::Ctx;
use crate::size::{self, Units};
use slotd_model::request::{JobKind, MemRequest, Sharing};
use slotd_model::view::JobView;
use slotd_model::{End, ExitCode, JobState, Reason, Step, Timestamp, Tres};
use std::time::Duration;

/// Returns the job's quality of service.
pub fn qos(job: &JobView) -> &str {
    slotd_model::qos::of(&job.request)
}

/// Returns the start time. As in Slurm, a job that ended without starting "started" when it ended.
pub fn start(job: &JobView) -> Option<Timestamp> {
    job.run.start.or(if job.run.state.is_terminal() { job.run.end } else { None })
}

/// Like [`start`]; for a pending job, the predicted start: the value of `StartTime`.
pub(crate) fn start_or_expected(job: &JobView) -> Option<Timestamp> {
    start(job).or(job.expected_start)
}

/// Returns the end, or the time at which the time limit ends the job. `None` without a limit or a
/// start.
pub fn end_or_expected(job: &JobView, ctx: &Ctx) -> Option<Timestamp> {
    if job.run.state.is_terminal() {
        return job.run.end;
    }
    let grace = job.run.preempted.as_ref().and_then(|by| by.grace_end());
    limit_end(job, ctx).into_iter().chain(grace).min()
}

fn limit_end(job: &JobView, ctx: &Ctx) -> Option<Timestamp> {
    let limit = job.request.time_limit_secs?;
    let suspended_now = job.run.suspended_at.map_or(Duration::ZERO, |at| ctx.now.since(at));
    let suspended = Duration::from_micros(job.run.suspended_us).saturating_add(suspended_now);
    Some(start_or_expected(job)?.plus_secs(limit).plus(suspended).plus_us(job.run.stepped_us))
}

/// Returns the run time without suspensions, in seconds.
pub fn elapsed_secs(job: &JobView, ctx: &Ctx) -> u64 {
    job.elapsed(ctx.now).as_secs()
}

/// Returns the node that the job runs or ran on; empty if it never started.
pub fn nodes<'a>(job: &JobView, ctx: &'a Ctx) -> &'a str {
    if job.run.start.is_some() { &ctx.node } else { "" }
}

/// Returns the exit code of the accounting. Slurm records the end of a cancelled or timed-out job
/// before its processes have exited, so the exit code that the signal causes does not count.
pub fn recorded_exit(job: &JobView) -> ExitCode {
    let is_nothing = job.run.state.end().is_some_and(End::precedes_exit);
    if is_nothing { ExitCode::OK } else { job.run.exit }
}

/// Returns the priority; 0 for a held job, as in Slurm.
pub fn priority(job: &JobView) -> u32 {
    if is_held(job) { 0 } else { job.priority }
}

/// Returns the time from which the job may start. Before it becomes eligible, that is the user's
/// begin time.
pub fn eligible(job: &JobView) -> Option<Timestamp> {
    job.run.eligible.or(job.begin())
}

/// Returns whether the job waits because the user or an administrator holds it.
pub fn is_held(job: &JobView) -> bool {
    job.run.state == JobState::Pending
        && matches!(
            job.run.reason,
            Reason::JobHeldUser
                | Reason::JobHeldAdmin
                | Reason::ReservationDeleted
                | Reason::SpecialExit
        )
}

/// Returns whether the job waits because its reservation has ended.
fn is_left_over(job: &JobView) -> bool {
    job.run.state == JobState::Pending && job.run.reason == Reason::ReservationDeleted
}

/// Returns the reason as squeue shows it: `Reservation half was deleted` names the reservation.
pub fn reason(job: &JobView) -> &str {
    let comment = job.run.system_comment.as_deref().filter(|_| is_left_over(job));
    comment.unwrap_or(job.run.reason.slurm_name())
}

/// Returns the abbreviated name of the state.
pub(crate) fn state_code(job: &JobView) -> &'static str {
    held_state(job).map_or(job.run.state.code(), |(_, code)| code)
}

/// Returns the state of a held job, by name and code, if Slurm does not show it as PENDING.
fn held_state(job: &JobView) -> Option<(&'static str, &'static str)> {
    job.run.reason.held_state().filter(|_| job.run.state == JobState::Pending)
}

/// Returns whether `%R` shows the reason rather than the node.
pub(crate) fn shows_reason(state: JobState) -> bool {
    state == JobState::Pending || state.is_failure()
}

/// Returns `CANCELLED by 1001` if the canceller is known, otherwise the name of the state.
pub(crate) fn state_with_who(job: &JobView) -> String {
    match (job.run.state, job.run.cancelled_by) {
        (JobState::Ended(End::Cancelled), Some(uid)) if !job.requeued => {
            format!("CANCELLED by {uid}")
        }
        _ => accounted_state(job).to_owned(),
    }
}

/// Returns `CANCELLED by 1001` for a step that a user cancelled, otherwise the name of its state.
pub(crate) fn step_state_with_who(step: &Step) -> String {
    match (step.state, step.cancelled_by) {
        (JobState::Ended(End::Cancelled), Some(uid)) => format!("CANCELLED by {uid}"),
        (state, _) => state.name().to_owned(),
    }
}

/// Returns the name of the state in accounting, where Slurm records a held job as PENDING.
pub(crate) fn accounted_state(job: &JobView) -> &'static str {
    if job.requeued { "REQUEUED" } else { job.run.state.name() }
}

/// Returns the name of the state.
pub fn state_name(job: &JobView) -> &'static str {
    held_state(job).map_or(accounted_state(job), |(name, _)| name)
}

/// Returns the resources that the job has or had; `None` if it never started.
pub fn allocated(job: &JobView) -> Option<Tres> {
    job.run.start?;
    Some(job.run.alloc.as_ref().map_or(job.tres, |a| a.tres))
}

/// Returns the allocated resources, or the requested ones before the start.
pub fn allocated_or_asked(job: &JobView) -> Tres {
    allocated(job).unwrap_or(job.tres)
}

/// Returns the script with its arguments, the program of `srun`, or the command of a `Run`; `None`
/// for `--wrap`, a script on standard input or `salloc`.
pub fn command(job: &JobView) -> Option<String> {
    let words = job.request.command.iter().chain(job.args());
    let text = words.map(String::as_str).collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

/// Returns whether it is a batch job in Slurm's sense.
pub fn is_batch(job: &JobView) -> bool {
    job.request.kind == JobKind::Batch
}

/// Returns the number of CPUs per task.
pub fn cpus_per_task(job: &JobView) -> u32 {
    job.request.cpus_per_task.unwrap_or(1).max(1)
}

/// Returns `MinCPUsNode`: `--mincpus`, or the smallest number of CPUs that the tasks of the node
/// need.
pub(crate) fn min_cpus(job: &JobView) -> u32 {
    let tasks = job.request.ntasks_per_node.unwrap_or(1).max(1);
    tasks.saturating_mul(cpus_per_task(job)).max(job.request.mincpus.unwrap_or(1))
}

/// Returns the requested megabytes and whether they are per CPU.
pub(crate) fn min_memory(job: &JobView) -> (u64, bool) {
    match job.request.mem {
        MemRequest::PerCpu(mb) => (mb, true),
        MemRequest::Default | MemRequest::None | MemRequest::PerNode(_) | MemRequest::PerGpu(_) => {
            (job.tres.mem_mb, false)
        }
    }
}

/// Returns the CPUs per GPU: `--cpus-per-gpu`.
pub(crate) fn cpus_per_tres(job: &JobView) -> Option<String> {
    job.request.gpu.cpus_per_gpu.map(|cpus| format!("gres:gpu:{cpus}"))
}

/// Returns the memory per GPU in MB: `--mem-per-gpu`.
pub(crate) fn mem_per_tres(job: &JobView) -> Option<String> {
    match job.request.mem {
        MemRequest::PerGpu(mb) => Some(format!("gres:gpu:{mb}")),
        MemRequest::Default | MemRequest::None | MemRequest::PerNode(_) | MemRequest::PerCpu(_) => {
            None
        }
    }
}

/// Returns `OverSubscribe`: `NO` with `--exclusive`, `USER` and `MCS` with its values of these names,
/// `YES` with `--oversubscribe`, else `OK`.
pub fn over_subscribe(job: &JobView) -> &'static str {
    match job.request.sharing {
        Sharing::Default => "OK",
        Sharing::Exclusive => "NO",
        Sharing::User => "USER",
        Sharing::Mcs => "MCS",
        Sharing::Oversubscribe => "YES",
    }
}

/// Returns the resources per node: `--gres` and `--gpus-per-node`.
pub(crate) fn tres_per_node(job: &JobView) -> Option<String> {
    let gpu = &job.request.gpu;
    let gpus = gpu.per_node.filter(|count| *count > 0).map(|count| gpu.as_gres(count));
    let mem = gpu.mem_mb.map(|mb| format!("gres:gpumem:{}", size::mib(mb, Units::Exact)));
    let shards = gpu.shards.map(|shards| format!("gres:shard:{shards}"));
    let all: Vec<String> = [gpus, mem, shards].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join(","))
}

/// Returns the GPUs of the whole job: `-G/--gpus`.
pub(crate) fn tres_per_job(job: &JobView) -> Option<String> {
    let gpu = &job.request.gpu;
    // A total of 0, which remains after an update removes the request, is not a request.
    let total = gpu.total.filter(|gpus| *gpus > 0 && gpu.per_node.is_none());
    total.map(|count| gpu.as_gres(count))
}

/// Returns the GPUs per task: `--gpus-per-task`.
pub fn tres_per_task(job: &JobView) -> Option<String> {
    let gpu = &job.request.gpu;
    gpu.per_task.map(|count| gpu.as_gres(count))
}

/// Returns the GPUs per socket: `--gpus-per-socket`.
pub(crate) fn tres_per_socket(job: &JobView) -> Option<String> {
    let gpu = &job.request.gpu;
    gpu.per_socket.map(|count| gpu.as_gres(count))
}

/// Returns the requested binding of tasks to GPUs: `--gpu-bind`.
pub(crate) fn tres_bind(job: &JobView) -> Option<String> {
    job.request.gpu_bind.as_ref().map(|bind| format!("gres:gpu:{bind}"))
}

/// Returns the text, or Slurm's `(null)` if it is missing.
pub fn or_null(text: Option<&str>) -> String {
    text.filter(|t| !t.is_empty()).unwrap_or("(null)").to_owned()
}

/// Returns the value as text, or Slurm's `(null)`.
pub(crate) fn value_or_null(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| "(null)".to_owned(), ToString::to_string)
}

/// Returns the remaining dependency, with Slurm's word for each term: `afterok:12(unfulfilled)`.
/// The scheduler writes it, since it knows which terms can still be fulfilled.
pub fn dependency(job: &JobView) -> Option<String> {
    (!job.dependency.is_empty()).then(|| job.dependency.clone())
}

/// Returns when the scheduler last considered the job: now for a pending job, since each round
/// considers all of them.
pub(crate) fn last_evaluation(job: &JobView, ctx: &Ctx) -> Option<Timestamp> {
    if job.run.state == JobState::Pending { Some(ctx.now) } else { start(job).or(job.run.eligible) }
}

/// Returns the seconds left until the time limit; `None` without a limit.
pub(crate) fn time_left(job: &JobView, ctx: &Ctx) -> Option<u64> {
    job.request.time_limit_secs.map(|limit| limit.saturating_sub(elapsed_secs(job, ctx)))
}
