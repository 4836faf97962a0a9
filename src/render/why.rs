//! `slotd why`: what keeps a job from starting, how long it may run, or why it ended.

use crate::model::request::JobKind;
use crate::model::tres::Usage;
use crate::model::view::JobView;
use crate::model::{ArrayRole, End, ExitCode, JobState, Reason, Step, Tres};
use crate::render::size::{Units, kib};
use crate::render::text::printable;
use crate::render::{Ctx, job, seff, time};
use serde_json::{Value, json};

/// So many steps that failed are named.
const MOST_STEPS: usize = 3;

/// What only the host can tell.
pub struct Names<'a> {
    /// The kernel's word for a signal.
    pub signal: &'a dyn Fn(i32) -> String,
    pub user: &'a dyn Fn(u32) -> String,
    /// Whether jobs are held to the memory that they have.
    pub memory_is_enforced: &'a dyn Fn() -> bool,
}

/// The last lines of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tail {
    pub path: String,
    pub lines: Vec<String>,
}

/// The report on one job. `tail` is of its standard error, where that says why it ended.
pub fn print(view: &JobView, tail: Option<&Tail>, ctx: &Ctx, names: &Names<'_>) -> String {
    let mut lines = sentences(view, ctx, names).into_iter();
    let mut out = lines.next().map(|line| line + "\n").unwrap_or_default();
    for blocker in &view.blockers {
        out.push_str(&format!("  {}: {}\n", blocker.reason, blocker.text));
        out.extend(blocker.remedy.iter().map(|remedy| format!("    to change that: {remedy}\n")));
    }
    out.extend(lines.map(|line| format!("  {line}\n")));
    if let Some(Tail { path, lines }) = tail.filter(|tail| !tail.lines.is_empty()) {
        out.push_str(&format!("  The last lines of {path}:\n"));
        out.extend(lines.iter().map(|line| format!("    {line}\n")));
    }
    out
}

/// The same as data. Times are seconds since 1970.
pub fn json(view: &JobView, tail: Option<&Tail>, ctx: &Ctx, names: &Names<'_>) -> Value {
    let (array, task) = match &view.role {
        ArrayRole::Task { array_job, task } => (Some(*array_job), Some(*task)),
        other => (other.array_job(view.id), None),
    };
    let secs = |at: Option<crate::model::Timestamp>| at.map(crate::model::Timestamp::as_secs);
    json!({
        "job_id": view.id,
        "array_job_id": array,
        "array_task_id": task,
        "label": view.label(),
        "name": view.request.name,
        "state": view.run.state.name(),
        "reason": view.run.reason.name(),
        "sentences": sentences(view, ctx, names),
        "blockers": view.blockers,
        "expected_start": secs(view.expected_start),
        "deadline": secs(view.deadline()),
        "submit": view.submit.as_secs(),
        "start": secs(view.run.start),
        "end": secs(view.run.end),
        "time_limit_secs": view.request.time_limit_secs,
        "exit_code": { "status": view.run.exit.status, "signal": view.run.exit.signal },
        "comment": view.run.system_comment,
        "stderr": tail.map(|tail| json!({ "path": tail.path, "last_lines": tail.lines })),
    })
}

/// What is to be said of a job, the first about its state.
fn sentences(view: &JobView, ctx: &Ctx, names: &Names<'_>) -> Vec<String> {
    let mut told = match view.run.state {
        JobState::Pending => pending(view, ctx),
        JobState::Running | JobState::Suspended | JobState::Completing => running(view, ctx),
        JobState::Ended(_) => ended(view, ctx, names),
    };
    told.extend(view.run.rerun_in_words().map(|words| format!("The first {words}.")));
    let too_much =
        seff::excess(view, &seff::recorded_usage(view)).filter(|_| !(names.memory_is_enforced)());
    told.extend(too_much);
    told
}

/// `Job 12_3 (fit)`
fn subject(view: &JobView) -> String {
    let label = view.full_label();
    let name = printable((&*view.request.name).into(), true);
    format!("Job {label} ({name})")
}

fn pending(view: &JobView, ctx: &Ctx) -> Vec<String> {
    let since = time::instant(view.submit, ctx);
    let mut told = vec![format!("{} is PENDING, submitted at {since}.", subject(view))];
    if view.blockers.is_empty() {
        told.push("Nothing keeps it: it starts in a moment.".to_owned());
    }
    told.extend(
        view.expected_start
            .map(|at| format!("It is expected to start at {}.", time::instant(at, ctx))),
    );
    told.extend(view.deadline().map(|at| {
        format!("Unless it has started by {} it is cancelled (--deadline).", time::instant(at, ctx))
    }));
    told
}

fn running(view: &JobView, ctx: &Ctx) -> Vec<String> {
    let (state, has) = (job::state_name(view), job::allocated_or_asked(view));
    let since = time::instant_or(view.run.start, "an unknown time", ctx);
    let elapsed = time::short(view.elapsed(ctx.now).as_secs());
    let mut told = vec![format!(
        "{} is {state}. It runs since {since}, for {elapsed}, with {}.",
        subject(view),
        amounts(&has)
    )];
    told.push(
        match (view.run.state, view.request.time_limit_secs, job::end_or_expected(view, ctx)) {
            (JobState::Completing, ..) => format!("It is about to end: {}.", view.run.reason),
            (JobState::Suspended, ..) => {
                "It is suspended; `scontrol resume` lets it go on.".to_owned()
            }
            (_, Some(limit), Some(end)) => {
                format!(
                    "It may run until {}: its time limit is {}.",
                    time::instant(end, ctx),
                    time::short(limit)
                )
            }
            (_, Some(limit), None) => format!("Its time limit is {}.", time::short(limit)),
            (_, None, _) => "It has no time limit.".to_owned(),
        },
    );
    told.extend(view.request.deadline.map(|at| {
        format!("It is ended at {} at the latest (--deadline).", time::instant(at, ctx))
    }));
    told
}

fn ended(view: &JobView, ctx: &Ctx, names: &Names<'_>) -> Vec<String> {
    let state = view.run.state.name();
    let end = time::instant_or(view.run.end, "an unknown time", ctx);
    let mut told = vec![match view.run.start {
        Some(_) => {
            let ran = time::short(view.elapsed(ctx.now).as_secs());
            format!("{} is {state}. It ended at {end}, after {ran}.", subject(view))
        }
        None => format!("{} is {state}. It ended at {end}, and never ran.", subject(view)),
    }];
    told.extend(why_ended(view, ctx, names));
    told.extend(seff::cause_of_failure(view));
    told.extend(view.run.system_comment.iter().map(|comment| format!("slotd says: {comment}.")));
    let failed = |step: &&Step| Some(step.id) != view.own_step_id() && !step.exit.is_success();
    let all = view.steps.iter().filter(failed).count();
    for step in view.steps.iter().filter(failed).take(MOST_STEPS) {
        let how = how_it_ended(step.exit, names);
        told.push(format!("Step {}.{} ({}) {how}.", view.label(), step.id, step.name));
    }
    if all > MOST_STEPS {
        told.push(format!("{} more of its steps failed.", all - MOST_STEPS));
    }
    told
}

fn why_ended(view: &JobView, ctx: &Ctx, names: &Names<'_>) -> Option<String> {
    let run = &view.run;
    let what = match view.request.kind {
        JobKind::Batch => "Its script",
        JobKind::Run => "Its command",
        JobKind::Allocation => "The command that held it",
    };
    Some(match (run.state, run.reason) {
        (JobState::Ended(End::Completed), _) => return None,
        (JobState::Ended(End::Timeout), _) => {
            format!(
                "It reached its time limit of {}.",
                time::short_limit(view.request.time_limit_secs)
            )
        }
        (JobState::Ended(End::OutOfMemory), _) => {
            let Usage { max_rss_kb, .. } = seff::recorded_usage(view);
            let used = (max_rss_kb > 0)
                .then(|| format!("; it was seen with {}", kib(max_rss_kb, Units::Exact)));
            let had = job::allocated_or_asked(view).mem_mb;
            format!(
                "It wanted more memory than the {had} MB that it had{}.",
                used.unwrap_or_default()
            )
        }
        (JobState::Ended(End::NodeFail), _) => "The machine went down while it ran.".to_owned(),
        (_, Reason::DeadLine) => {
            let deadline = time::instant_or(view.request.deadline, "its deadline", ctx);
            format!("It could not end by {deadline} (--deadline).")
        }
        (_, Reason::DependencyNeverSatisfied) => "What it depended on could never be.".to_owned(),
        (_, Reason::ClientLost) => "The command that held its allocation went away.".to_owned(),
        (_, Reason::RunnerLost) => {
            "The process that watched it died: how it would have ended is not known.".to_owned()
        }
        (_, Reason::JobLaunchFailure) => "It could not be launched.".to_owned(),
        (JobState::Ended(End::Cancelled), Reason::Resources) => {
            "It was to start at once (--immediate), and there was no room.".to_owned()
        }
        (JobState::Ended(End::Cancelled), _) => match run.cancelled_by {
            Some(uid) => format!("User {} cancelled it.", (names.user)(uid)),
            None => format!("It was cancelled: {}.", run.reason),
        },
        (JobState::Ended(End::Failed), _)
        | (JobState::Pending | JobState::Running, _)
        | (JobState::Suspended | JobState::Completing, _) => {
            format!("{what} {}.", how_it_ended(run.exit, names))
        }
    })
}

fn how_it_ended(exit: ExitCode, names: &Names<'_>) -> String {
    match exit.signal {
        0 => format!("ended with exit code {}", exit.status),
        _ if exit == ExitCode::OUT_OF_MEMORY => "ran out of memory".to_owned(),
        signal => format!("was ended by signal {signal} ({})", (names.signal)(signal)),
    }
}

fn amounts(has: &Tres) -> String {
    let count = |n: u32, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let mut words = vec![count(has.cpus, "CPU"), format!("{} MB of memory", has.mem_mb)];
    words.extend((has.gpus > 0).then(|| count(has.gpus, "GPU")));
    words.join(", ")
}
