//! `squeue -s/--steps`: the running steps.

use crate::model::Step;
use crate::model::view::JobView;
use crate::render::array::Shown;
use crate::render::format::{Cut, Field, Format, FormatError, known};
use crate::render::{Ctx, job, size, time};

type Get = fn(&StepRow<'_>, &Ctx) -> String;

struct StepRow<'a> {
    job: &'a JobView,
    step: &'a Step,
}

impl StepRow<'_> {
    fn id(&self, ctx: &Ctx) -> String {
        format!("{}.{}", Shown::of(self.job.id, &self.job.role).id(ctx), self.step.id)
    }
}

const DEFAULT: &str = "%.15i %.8j %.9P %.8u %.9M %N";

static FIELDS: &[Field<Get>] = &[
    field(Some('i'), &["StepID"], "STEPID", Cut::Always, |r, c| r.id(c)),
    field(Some('A'), &["JobID"], "JOB_ID", Cut::Always, |r, _| r.job.id.to_string()),
    field(Some('j'), &["StepName", "Name"], "NAME", Cut::Always, |r, _| r.step.name.clone()),
    field(Some('P'), &["Partition"], "PARTITION", Cut::Always, |r, _| r.job.partition.clone()),
    field(Some('u'), &["UserName"], "USER", Cut::Always, |r, _| r.job.request.user.clone()),
    field(Some('U'), &["UserID"], "USER", Cut::Always, |r, _| r.job.request.uid.to_string()),
    field(Some('M'), &["TimeUsed"], "TIME", Cut::Header, |r, c| {
        time::short(r.job.step_elapsed(r.step, c.now).as_secs())
    }),
    field(Some('l'), &["TimeLimit"], "TIME_LIMIT", Cut::Header, |_, _| time::short_limit(None)),
    field(Some('S'), &["StartTime"], "START_TIME", Cut::Always, |r, c| time::instant(r.step.start, c)),
    field(Some('N'), &["Nodes", "NodeList"], "NODELIST", Cut::Never, |_, c| c.node.clone()),
    field(Some('C'), &["NumCPUs"], "NUM_CPUS", Cut::Always, |r, _| r.step.alloc.tres.cpus.to_string()),
    field(Some('T'), &["StepState", "State"], "STATE", Cut::Always, |r, _| r.step.state.name().to_owned()),
    field(Some('m'), &["MinMemory"], "MIN_MEMORY", Cut::Always, |r, c| size::mib(r.step.alloc.tres.mem_mb, c.units)),
    field(Some('b'), &["tres-per-node", "gres"], "TRES_PER_NODE", Cut::Always, |r, _| match r.step.alloc.tres.gpus {
        0 => "N/A".to_owned(),
        n => format!("gres:gpu:{n}"),
    }),
    field(None, &["NumTasks"], "TASKS", Cut::Always, |r, _| r.step.ntasks.to_string()),
    field(None, &["ArrayJobID"], "ARRAY_JOB_ID", Cut::Always, |r, _| {
        Shown::of(r.job.id, &r.job.role).array_job().to_string()
    }),
    field(None, &["ArrayTaskID"], "ARRAY_TASK_ID", Cut::Always, |r, c| {
        Shown::of(r.job.id, &r.job.role).task(c).unwrap_or_else(|| "N/A".to_owned())
    }),
    field(None, &["WorkDir"], "WORK_DIR", Cut::Always, |r, _| r.job.request.work_dir.clone()),
    field(None, &["Comment"], "COMMENT", Cut::Always, |r, _| job::or_null(r.job.request.comment.as_deref())),
];

const fn field(
    code: Option<char>,
    names: &'static [&'static str],
    header: &'static str,
    cut: Cut,
    get: Get,
) -> Field<Get> {
    Field { code, names, header, cut, get }
}

fn unknown(what: &str) -> FormatError {
    let (codes, names) = known(FIELDS);
    FormatError {
        message: format!("Invalid job step format specification: {what}"),
        hint: format!("known codes: {codes}; known fields: {names}"),
    }
}

/// The running steps of these jobs, Slurm's columns in either face. `percent` is `-o`, `long` is `-O`.
///
/// # Errors
/// An unknown code or name.
pub fn print_steps(
    jobs: &[JobView],
    percent: Option<&str>,
    long: Option<&str>,
    header: bool,
    ctx: &Ctx,
) -> Result<String, FormatError> {
    let format = match (long, percent) {
        (Some(text), _) => Format::long(text, FIELDS),
        (None, Some(text)) => Format::percent(text, FIELDS),
        (None, None) => Format::percent(DEFAULT, FIELDS),
    }
    .map_err(|bad| unknown(&bad))?;
    let mut out = String::new();
    if header {
        format.header(&mut out, FIELDS);
    }
    for job in jobs {
        for step in job.steps.iter().filter(|s| s.state.is_active()) {
            let row = StepRow { job, step };
            format.row(&mut out, FIELDS, |get| get(&row, ctx));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ExitCode, JobState, StepId};
    use crate::render::fixture::{at, ctx, job, step};

    #[test]
    fn steps_option_lists_running_steps() {
        let jobs = [job(172, "runner")
            .running(4)
            .step(step(StepId::Batch, "batch", JobState::Running, ExitCode::OK, 4, None))
            .step(step(StepId::Num(0), "true", JobState::Completed, ExitCode::OK, 4, Some(3)))
            .build()];
        assert_eq!(
            print_steps(&jobs, None, None, true, &ctx()).unwrap(),
            "         STEPID     NAME PARTITION     USER      TIME NODELIST\n      172.batch    batch       cpu      lab      0:04 vm\n"
        );
        assert_eq!(print_steps(&jobs, Some("%i"), None, false, &ctx()).unwrap(), "172.batch\n");
        assert_eq!(print_steps(&jobs, None, Some("stepid:#,numtasks:#"), false, &ctx()).unwrap(), "172.batch#1#\n");
    }

    #[test]
    fn a_step_does_not_age_while_its_job_is_suspended() {
        let mut jobs = [job(172, "runner")
            .running(10)
            .step(step(StepId::Num(0), "true", JobState::Running, ExitCode::OK, 10, None))
            .build()];
        jobs[0].steps[0].suspended_us = 2_000_000;
        let times = |jobs: &[JobView]| print_steps(jobs, Some("%M"), None, false, &ctx()).unwrap();
        assert_eq!(times(&jobs), "0:08\n");
        (jobs[0].run.state, jobs[0].run.suspended_at) = (JobState::Suspended, Some(at(7)));
        assert_eq!(times(&jobs), "0:01\n");
    }

    #[test]
    fn an_unknown_step_field_is_an_error() {
        let error = print_steps(&[], None, Some("nosuch"), true, &ctx()).unwrap_err();
        assert!(error.message.contains("nosuch") && error.hint.contains("StepID"));
    }
}
