//! seff: the efficiency of one job, in the format of Slurm's seff script.

use crate::{Ctx, cause, job, time};
use slotd_model::tres::Usage;
use slotd_model::view::JobView;
use slotd_model::{ArrayRole, End, JobState, Reason, counted};
use std::fmt::Write as _;

/// Returns the recorded usage of a job: the total time and the largest peak of its steps, or the
/// job's own figures if it had no steps.
pub fn recorded_usage(job: &JobView) -> Usage {
    if job.steps.is_empty() {
        job.run.usage()
    } else {
        job.steps.iter().fold(Usage::default(), |sum, step| sum.merge(step.usage))
    }
}

/// Prints the report on one job with this usage so far.
pub fn print(view: &JobView, usage: &Usage, ctx: &Ctx) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = report(&mut out, view, usage, ctx);
    out
}

fn report(out: &mut String, view: &JobView, usage: &Usage, ctx: &Ctx) -> std::fmt::Result {
    let request = &view.request;
    writeln!(out, "Job ID: {}", view.id)?;
    if let ArrayRole::Task { array_job, task } = &view.role {
        writeln!(out, "Array Job ID: {array_job}_{task}")?;
    }
    writeln!(out, "Cluster: {}", ctx.cluster)?;
    writeln!(out, "User/Group: {}/{}", request.user, request.group)?;
    writeln!(out, "State: {} (exit code {})", view.run.state.name(), view.run.exit.status)?;
    let has = job::allocated_or_asked(view);
    if has.cpus == 1 {
        writeln!(out, "Cores: 1")?;
    } else {
        writeln!(out, "Nodes: 1\nCores per node: {}", has.cpus)?;
    }
    if view.run.state == JobState::Pending {
        return writeln!(out, "Efficiency not available for jobs in the PENDING state.");
    }
    let wall = view.elapsed(ctx.now);
    let used_us = usage.user_us.saturating_add(usage.system_us);
    let core_us = wall.as_micros() * u128::from(has.cpus);
    writeln!(out, "CPU Utilized: {}", time::long(used_us / 1_000_000))?;
    let core_secs = wall.as_secs().saturating_mul(u64::from(has.cpus));
    writeln!(
        out,
        "CPU Efficiency: {} of {} core-walltime",
        share(used_us as f64, core_us as f64),
        time::long(core_secs)
    )?;
    writeln!(out, "Job Wall-clock time: {}", time::long(wall.as_secs()))?;
    let asked_kib = has.mem_mb.saturating_mul(1024);
    writeln!(out, "Memory Utilized: {}", size(usage.max_rss_kb))?;
    writeln!(
        out,
        "Memory Efficiency: {} of {}",
        share(usage.max_rss_kb as f64, asked_kib as f64),
        size(asked_kib)
    )?;
    if let Some(mean) = usage.gpu.busy_sum.checked_div(usage.gpu.readings) {
        let gpus = view.run.alloc.as_ref().map_or(0, |alloc| alloc.gpu_ids.len() as u32);
        writeln!(
            out,
            "GPU Efficiency: {} of {}",
            share(mean as f64, f64::from(gpus) * 100.0),
            counted(gpus, "GPU")
        )?;
        writeln!(out, "GPU Memory Utilized: {}", size(usage.gpu.mem_max_mb.saturating_mul(1024)))?;
    }
    if !view.run.state.is_terminal() {
        writeln!(
            out,
            "WARNING: Efficiency statistics may be misleading for {} jobs.",
            view.run.state.name()
        )?;
    }
    Ok(())
}

/// Returns additional lines for terminals: the likely cause of a failure and how reliable the
/// figures are.
pub fn notes(view: &JobView, usage: &Usage, memory_is_enforced: bool) -> String {
    let sampled = (usage.max_rss_kb > 0).then(|| format!("{SAMPLED}."));
    let excess = excess(view, usage).filter(|_| !memory_is_enforced);
    let notes = [cause_of_failure(view), excess, sampled];
    notes.iter().flatten().map(|note| format!("NOTE: {note}\n")).collect()
}

/// A caveat about `MaxRSS`.
pub(crate) const SAMPLED: &str =
    "Memory is sampled: a short combined peak of several processes may be missing";

/// Describes the likely cause of a failure of the job itself.
pub(crate) fn cause_of_failure(view: &JobView) -> Option<String> {
    let by_itself = matches!(view.run.reason, Reason::NonZeroExitCode | Reason::RaisedSignal);
    let exit = Some(view.run.exit)
        .filter(|_| view.run.state == JobState::Ended(End::Failed) && by_itself)?;
    cause::sentence(exit, recorded_usage(view).host_ooms)
}

/// Describes memory usage above the allocation, for hosts that do not enforce memory limits.
pub fn excess(view: &JobView, usage: &Usage) -> Option<String> {
    let had_kib = job::allocated_or_asked(view).mem_mb.saturating_mul(1024);
    let is_more = had_kib > 0
        && usage.max_rss_kb > had_kib
        && view.run.state != JobState::Ended(End::OutOfMemory);
    is_more.then(|| {
        format!(
            "It used {} of memory but had only {}: memory limits are not enforced on this host; \
             {ENFORCES}.",
            size(usage.max_rss_kb),
            size(had_kib)
        )
    })
}

/// How to enforce memory limits.
pub const ENFORCES: &str =
    "`slotd install --cgroup-base auto` enforces them where there is a systemd user manager";

/// Returns the raw values behind the percentages (`--debug`).
pub fn debug(view: &JobView, usage: &Usage, ctx: &Ctx) -> String {
    let (array_job, task) = match &view.role {
        ArrayRole::Task { array_job, task } => (array_job.to_string(), task.to_string()),
        ArrayRole::None | ArrayRole::Rest { .. } | ArrayRole::Part { .. } => {
            (String::new(), String::new())
        }
    };
    let has = job::allocated_or_asked(view);
    let values = [
        ("JobID", view.id.to_string()),
        ("ArrayJobID", array_job),
        ("ArrayTaskID", task),
        ("User", view.request.user.clone()),
        ("Group", view.request.group.clone()),
        ("State", view.run.state.name().to_owned()),
        ("Clustername", ctx.cluster.clone()),
        ("Ncpus", has.cpus.to_string()),
        ("Nnodes", "1".to_owned()),
        ("ReqmemKiB", has.mem_mb.saturating_mul(1024).to_string()),
        ("CputUs", usage.user_us.saturating_add(usage.system_us).to_string()),
        ("WalltimeUs", view.elapsed(ctx.now).as_micros().to_string()),
        ("MemKiB", usage.max_rss_kb.to_string()),
        ("ExitStatus", view.run.exit.status.to_string()),
    ];
    values.iter().map(|(name, value)| format!("Slurm data: {name}={value}\n")).collect()
}

fn share(part: f64, whole: f64) -> String {
    format!("{:.2}%", if whole > 0.0 { part / whole * 100.0 } else { 0.0 })
}

/// Formats a size: `0.00 MB`, `908.00 KB`, `3.27 GB`.
fn size(kib: u64) -> String {
    if kib == 0 {
        return "0.00 MB".to_owned();
    }
    let mut amount = kib as f64;
    let mut units = ["KB", "MB", "GB", "TB"].into_iter();
    let mut unit = units.next();
    while amount >= 1024.0
        && let Some(next) = units.next()
    {
        amount /= 1024.0;
        unit = Some(next);
    }
    format!("{amount:.2} {}", unit.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ctx, job, step};
    use slotd_model::tres::Allocation;
    use slotd_model::{ExitCode, Reason, Step, StepId, Tres};

    const TRES: Tres = Tres { cpus: 4, mem_mb: 2048, ..Tres::ZERO };

    fn ended() -> JobView {
        let exit = ExitCode { status: 3, signal: 0 };
        let job = job(12, "j").ended(End::Failed, Reason::NonZeroExitCode, exit, 100, 40);
        job.with(|j| {
            j.tres = TRES;
            j.run.alloc = Some(Allocation { tres: TRES, ..Allocation::default() }.into());
            j.run.add_usage(Usage {
                max_rss_kb: 512 * 1024,
                user_us: 50_000_000,
                system_us: 10_000_000,
                ..Usage::default()
            });
        })
        .build()
    }

    #[test]
    fn an_ended_job_has_its_efficiency() {
        let view = ended();
        assert_eq!(
            print(&view, &recorded_usage(&view), &ctx()),
            "Job ID: 12\nCluster: slotd\nUser/Group: lab/lab\nState: FAILED (exit code 3)\nNodes: 1\n\
             Cores per node: 4\nCPU Utilized: 00:01:00\nCPU Efficiency: 25.00% of 00:04:00 core-walltime\n\
             Job Wall-clock time: 00:01:00\nMemory Utilized: 512.00 MB\nMemory Efficiency: 25.00% of 2.00 GB\n"
        );
    }

    #[test]
    fn notes_qualify_the_figures() {
        let view = ended();
        let usage = recorded_usage(&view);
        let sampled =
            "NOTE: Memory is sampled: a short combined peak of several processes may be missing.\n";
        assert_eq!(notes(&view, &usage, false), sampled, "exit code 3 and a quarter of the memory");
        let more = Usage { max_rss_kb: 3 << 20, ..usage };
        let text = notes(&view, &more, false);
        let excess = "NOTE: It used 3.00 GB of memory but had only 2.00 GB: memory limits are not enforced on this \
                      host; `slotd install --cgroup-base auto` enforces them where there is a systemd user manager.\n";
        assert_eq!(text, format!("{excess}{sampled}"));
        assert_eq!(notes(&view, &more, true), sampled);
        let mut killed = ended();
        killed.run.exit = ExitCode::status(139);
        killed.run.reason = Reason::NonZeroExitCode;
        let text = notes(&killed, &Usage::default(), false);
        assert!(
            text.starts_with("NOTE: Exit code 139 is 128 + 11: ") && text.lines().count() == 1,
            "{text}"
        );
        killed.run.state = JobState::Ended(End::Completed);
        assert_eq!(notes(&killed, &Usage::default(), false), "");
    }

    #[test]
    fn an_array_task_has_both_numbers() {
        let view = job(9, "j").task(7, 2).running(60).build();
        let text = print(&view, &Usage::default(), &ctx());
        assert!(text.starts_with("Job ID: 9\nArray Job ID: 7_2\n"), "{text}");
        assert!(
            text.contains("\nCores: 1\nCPU Utilized: 00:00:00\nCPU Efficiency: 0.00% of 00:01:00 "),
            "{text}"
        );
        assert!(
            text.ends_with(
                "\nWARNING: Efficiency statistics may be misleading for RUNNING jobs.\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_pending_job_has_no_efficiency() {
        let text = print(&job(9, "j").build(), &Usage::default(), &ctx());
        assert!(
            text.ends_with("Efficiency not available for jobs in the PENDING state.\n"),
            "{text}"
        );
        assert!(!text.contains("CPU Utilized"), "{text}");
    }

    #[test]
    fn a_job_without_run_time_has_zero_efficiency() {
        let exit = ExitCode::OK;
        let view = job(1, "j").ended(End::Cancelled, Reason::None, exit, 5, 5).build();
        assert!(
            print(&view, &Usage::default(), &ctx())
                .contains("CPU Efficiency: 0.00% of 00:00:00 core-walltime\n")
        );
    }

    #[test]
    fn sizes_have_two_places_and_the_largest_unit() {
        for (kib, text) in [
            (0, "0.00 MB"),
            (908, "908.00 KB"),
            (1024, "1.00 MB"),
            (897_731, "876.69 MB"),
            (3 << 30, "3.00 TB"),
        ] {
            assert_eq!(size(kib), text);
        }
        assert_eq!(size(5 << 40), "5120.00 TB");
    }

    #[test]
    fn step_times_add_up_and_the_largest_memory_counts() {
        let mut view = ended();
        let used = |max_rss_kb, user_us| Usage { max_rss_kb, user_us, ..Usage::default() };
        for (id, usage) in
            [(StepId::Batch, used(1024, 1_000_000)), (StepId::Num(0), used(4096, 39_000_000))]
        {
            view.steps
                .push(Step { usage, ..step(id, "s", End::Completed, ExitCode::OK, 0, Some(9)) });
        }
        view.run.usage = Some(Box::new(used(1024, 1_000_000)));
        let text = print(&view, &recorded_usage(&view), &ctx());
        assert!(
            text.contains("CPU Utilized: 00:00:40\n")
                && text.contains("Memory Utilized: 4.00 MB\n"),
            "{text}"
        );
    }

    #[test]
    fn debug_prints_the_raw_values() {
        let view = ended();
        let text = debug(&view, &recorded_usage(&view), &ctx());
        assert!(
            text.contains("Slurm data: CputUs=60000000\nSlurm data: WalltimeUs=60000000\n"),
            "{text}"
        );
    }
}
