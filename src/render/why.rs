//! `slotd why`: what keeps a job from starting, how long it may run, or why it ended.

use crate::size::{Units, kib};
use crate::text::printable;
use crate::{Ctx, job, seff, time};
use serde_json::{Value, json};
use slotd_model::request::JobKind;
use slotd_model::tres::Usage;
use slotd_model::view::JobView;
use slotd_model::why::What;
use slotd_model::{ArrayRole, End, ExitCode, JobState, Reason, Step, Tres};

/// Maximum number of failed steps listed.
const MOST_STEPS: usize = 3;

/// Lookups that only the host can answer.
pub struct Names<'a> {
    /// Returns the kernel's name of a signal.
    pub signal: &'a dyn Fn(i32) -> String,
    pub user: &'a dyn Fn(u32) -> String,
    /// Whether memory limits are enforced.
    pub memory_is_enforced: &'a dyn Fn() -> bool,
}

/// The last lines of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tail {
    pub path: String,
    pub lines: Vec<String>,
}

/// Prints the explanation of one job. `tail` is the end of its standard error, if that helps to
/// explain why it ended.
pub fn print(view: &JobView, tail: Option<&Tail>, ctx: &Ctx, names: &Names<'_>) -> String {
    let mut lines = sentences(view, ctx, names).into_iter();
    let mut all: Vec<String> = lines.next().into_iter().collect();
    for blocker in &view.blockers {
        all.push(format!("  {}: {}", blocker.reason, blocker.text));
        all.extend(blocker.remedy.iter().map(|remedy| format!("    to change that: {remedy}")));
    }
    all.extend(lines.map(|line| format!("  {line}")));
    if let Some(Tail { path, lines }) = tail.filter(|tail| !tail.lines.is_empty()) {
        all.push(format!("  The last lines of {path}:"));
        all.extend(lines.iter().map(|line| format!("    {line}")));
    }
    // Names of jobs and steps, comments and paths are the user's text.
    all.into_iter().map(|line| printable(line.into(), true).into_owned() + "\n").collect()
}

/// Returns the explanation as JSON. Times are seconds since 1970.
pub fn json(view: &JobView, tail: Option<&Tail>, ctx: &Ctx, names: &Names<'_>) -> Value {
    let (array, task) = match &view.role {
        ArrayRole::Task { array_job, task } => (Some(*array_job), Some(*task)),
        other => (other.array_job(view.id), None),
    };
    let secs = |at: Option<slotd_model::Timestamp>| at.map(slotd_model::Timestamp::as_secs);
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

/// Returns the explanation as sentences. The first one is about the state of the job.
fn sentences(view: &JobView, ctx: &Ctx, names: &Names<'_>) -> Vec<String> {
    let mut lines = match view.run.state {
        JobState::Pending => pending(view, ctx),
        JobState::Running | JobState::Suspended | JobState::Completing => running(view, ctx),
        JobState::Ended(_) => ended(view, ctx, names),
    };
    lines.extend(view.run.rerun_in_words().map(|words| format!("The first {words}.")));
    let too_much =
        seff::excess(view, &seff::recorded_usage(view)).filter(|_| !(names.memory_is_enforced)());
    lines.extend(too_much);
    lines
}

/// Returns the start of the first sentence: `Job 12_3 (fit)`.
fn subject(view: &JobView) -> String {
    let label = view.full_label();
    format!("Job {label} ({})", view.request.name)
}

fn pending(view: &JobView, ctx: &Ctx) -> Vec<String> {
    let since = time::instant(view.submit, ctx);
    let mut lines = vec![format!("{} is PENDING, submitted at {since}.", subject(view))];
    if view.blockers.is_empty() {
        lines.push("Nothing is blocking it; it will start shortly.".to_owned());
    }
    lines.extend(
        view.expected_start
            .map(|at| format!("It is expected to start at {}.", time::instant(at, ctx))),
    );
    let node = view.blockers.iter().find(|blocker| matches!(blocker.what, What::Node { .. }));
    lines.extend(node.map(|blocker| {
        let when = match blocker.remedy {
            Some(_) => "when the node is resumed",
            None => "when the node can start jobs again",
        };
        format!("It may start {when}.")
    }));
    lines.extend(view.deadline().map(|at| {
        format!(
            "It will be cancelled if it has not started by {} (--deadline).",
            time::instant(at, ctx)
        )
    }));
    lines
}

fn running(view: &JobView, ctx: &Ctx) -> Vec<String> {
    let (state, has) = (job::state_name(view), job::allocated_or_asked(view));
    let since = time::instant_or(view.run.start, "an unknown time", ctx);
    let elapsed = time::short(view.elapsed(ctx.now).as_secs());
    let mut lines = vec![format!(
        "{} is {state}. It has run for {elapsed} since {since} with {}.",
        subject(view),
        amounts(&has)
    )];
    lines.push(
        match (view.run.state, view.request.time_limit_secs, job::end_or_expected(view, ctx)) {
            (JobState::Completing, ..) => match &view.run.ended_reservation {
                Some(name) => format!("It is ending: its reservation {name} has ended."),
                None => format!("It is ending: {}.", view.run.reason),
            },
            (JobState::Suspended, ..) => suspended(view),
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
    lines.extend(run_preemption(view, ctx));
    lines.extend(view.request.deadline.map(|at| {
        format!(
            "It will be ended at {} if it is still running (--deadline).",
            time::instant(at, ctx)
        )
    }));
    lines
}

/// Explains how a suspended job continues.
fn suspended(view: &JobView) -> String {
    match view.run.preempted.as_ref().filter(|_| view.run.waits_for_its_cpus()) {
        Some(by) => {
            format!("Job {} preempted it; it continues as soon as its CPUs are free.", by.by)
        }
        None => "It is suspended; run `scontrol resume` to continue it.".to_owned(),
    }
}

/// Explains why a job has to make room for another.
fn run_preemption(view: &JobView, ctx: &Ctx) -> Option<String> {
    let preempted = view.run.preempted.as_deref()?;
    let (until, by) = (time::instant(preempted.grace_end()?, ctx), preempted.by);
    Some(match view.run.state {
        JobState::Running | JobState::Suspended => {
            format!("It makes room for job {by}: its grace time ends at {until}.")
        }
        JobState::Pending | JobState::Completing | JobState::Ended(_) => {
            format!("It makes room for job {by}.")
        }
    })
}

fn ended(view: &JobView, ctx: &Ctx, names: &Names<'_>) -> Vec<String> {
    let state = view.run.state.name();
    let end = time::instant_or(view.run.end, "an unknown time", ctx);
    let mut lines = vec![match view.run.start {
        Some(_) => {
            let ran = time::short(view.elapsed(ctx.now).as_secs());
            format!("{} is {state}. It ended at {end}, after {ran}.", subject(view))
        }
        None => format!("{} is {state}. It ended at {end} and never ran.", subject(view)),
    }];
    lines.extend(why_ended(view, ctx, names));
    lines.extend(seff::cause_of_failure(view));
    lines.extend(view.run.system_comment.iter().map(|comment| format!("Details: {comment}.")));
    let failed = |step: &&Step| Some(step.id) != view.own_step_id() && !step.exit.is_success();
    let all = view.steps.iter().filter(failed).count();
    for step in view.steps.iter().filter(failed).take(MOST_STEPS) {
        let how = how_it_ended(step.exit, names);
        lines.push(format!("Step {}.{} ({}) {how}.", view.label(), step.id, step.name));
    }
    if all > MOST_STEPS {
        lines.push(format!("{} more of its steps failed.", all - MOST_STEPS));
    }
    lines
}

fn why_ended(view: &JobView, ctx: &Ctx, names: &Names<'_>) -> Option<String> {
    let run = &view.run;
    let what = match view.request.kind {
        JobKind::Batch => "Its script",
        JobKind::Run => "Its command",
        JobKind::Allocation => "The command that held the allocation",
    };
    Some(match (run.state, run.reason) {
        (JobState::Ended(End::Completed), _) => return None,
        (JobState::Ended(End::Timeout), _) => match &run.ended_reservation {
            Some(name) => format!("Its reservation {name} ended."),
            None => format!(
                "It reached its time limit of {}.",
                time::short_limit(view.request.time_limit_secs)
            ),
        },
        (JobState::Ended(End::OutOfMemory), _) => {
            let Usage { max_rss_kb, .. } = seff::recorded_usage(view);
            let used = (max_rss_kb > 0)
                .then(|| format!("; the largest sample was {}", kib(max_rss_kb, Units::Exact)));
            let had = job::allocated_or_asked(view).mem_mb;
            format!("It ran out of memory: it had {had} MB{}.", used.unwrap_or_default())
        }
        (JobState::Ended(End::NodeFail), _) => {
            "The machine went down while it was running.".to_owned()
        }
        (JobState::Ended(End::Preempted), _) => match &run.preempted {
            Some(by) => format!("Job {} preempted it.", by.by),
            None => "Another job preempted it.".to_owned(),
        },
        (_, Reason::DeadLine) => {
            let deadline = time::instant_or(view.request.deadline, "its deadline", ctx);
            format!("It could not finish by {deadline} (--deadline).")
        }
        (_, Reason::DependencyNeverSatisfied) => {
            "Its dependency could never be satisfied.".to_owned()
        }
        (_, Reason::ClientLost) => "The command that held its allocation disappeared.".to_owned(),
        (_, Reason::RunnerLost) => {
            "The process that supervised it died, so its result is unknown.".to_owned()
        }
        (_, Reason::JobLaunchFailure) => "It could not be launched.".to_owned(),
        (JobState::Ended(End::Cancelled), Reason::Resources) => {
            "It could not start immediately (--immediate): resources were not free.".to_owned()
        }
        (JobState::Ended(End::Cancelled), Reason::Licenses) => {
            "It could not start immediately (--immediate): its licenses were not free.".to_owned()
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
        signal => format!("was killed by signal {signal} ({})", (names.signal)(signal)),
    }
}

fn amounts(has: &Tres) -> String {
    let count = |n: u32, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let mut words = vec![count(has.cpus, "CPU"), format!("{} MB of memory", has.mem_mb)];
    words.extend((has.gpus > 0).then(|| count(has.gpus, "GPU")));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ctx, job, step};
    use slotd_model::StepId;

    #[test]
    fn the_end_of_its_reservation_is_not_the_time_limit() {
        let names = Names {
            signal: &|signal| signal.to_string(),
            user: &|uid| uid.to_string(),
            memory_is_enforced: &|| true,
        };
        let ended = |job: crate::fixture::JobBuilder| {
            let job = job.with(|view| view.run.ended_reservation = Some("half".into()));
            print(&job.build(), None, &ctx(), &names)
        };
        let exit = ExitCode::signal(9);
        let text = ended(job(7, "a").ended(End::Timeout, Reason::TimeLimit, exit, 10, 5));
        assert!(text.contains("Its reservation half ended.\n"), "{text}");
        assert!(!text.contains("limit"), "{text}");
        let text = ended(job(7, "a").with(|view| view.run.state = JobState::Completing));
        assert!(text.contains("It is ending: its reservation half has ended."), "{text}");
    }

    #[test]
    fn an_escape_in_a_name_does_not_reach_a_terminal() {
        let exit = ExitCode::status(1);
        let failed = step(StepId::Num(0), "c\u{1b}]0;d\n", End::Failed, exit, 10, Some(5));
        let view = job(7, "a\u{1b}[2J\nb")
            .ended(End::Failed, Reason::NonZeroExitCode, exit, 10, 5)
            .with(|view| view.run.system_comment = Some("e\u{1b}f".into()))
            .step(failed);
        let names = Names {
            signal: &|signal| signal.to_string(),
            user: &|uid| uid.to_string(),
            memory_is_enforced: &|| true,
        };
        let tail = Tail { path: "/g\u{1b}h".to_owned(), lines: vec!["i\u{1b}j".to_owned()] };
        let text = print(&view.build(), Some(&tail), &ctx(), &names);
        assert!(text.contains("(a\\033[2J\\012b)") && text.contains("(c\\033]0;d\\012)"), "{text}");
        assert!(text.contains("e\\033f") && text.contains("/g\\033h"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
