//! `squeue -s/--steps`: the running steps.

use crate::Ctx;
use crate::array::Shown;
use crate::field::{Cut, Field, Place, Table};
use crate::layout::Layout;
use crate::tres;
use crate::value::Value;
use slotd_model::Step;
use slotd_model::view::JobView;

/// The field table of steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steps;

/// A running step.
pub struct StepRow<'a> {
    job: &'a JobView,
    step: &'a Step,
}

impl StepRow<'_> {
    fn shown(&self) -> Shown<'_> {
        Shown::of(self.job.id, &self.job.role)
    }
}

impl Table for Steps {
    type Row<'a> = StepRow<'a>;

    fn fields() -> &'static [Field<Self>] {
        FIELDS
    }

    fn unknown(place: Place, word: &str) -> String {
        match place {
            Place::Code | Place::Name | Place::LongName | Place::WideName => {
                format!("Invalid job step format specification: {word}")
            }
            Place::Sort => format!("Invalid sort specification: {word}"),
        }
    }
}

type F = Field<Steps>;

static FIELDS: &[F] = &[
    F::new(&["StepID"], "STEPID", |r, c| format!("{}.{}", r.shown().id(c), r.step.id).into())
        .code("i"),
    F::new(&["JobID"], "JOB_ID", |r, _| r.job.id.0.into()).code("A"),
    F::new(&["StepName", "Name"], "NAME", |r, _| r.step.name.clone().into()).code("j"),
    F::new(&["Partition"], "PARTITION", |r, _| r.job.partition.to_string().into()).code("P"),
    F::new(&["UserName"], "USER", |r, _| r.job.request.user.clone().into()).code("u"),
    F::new(&["UserID"], "USER", |r, _| r.job.request.uid.into()).code("U"),
    F::new(&["TimeUsed"], "TIME", |r, c| {
        Value::Short(Some(r.job.step_elapsed(r.step, c.now).as_secs()))
    })
    .code("M")
    .cut(Cut::Header),
    F::new(&["TimeLimit"], "TIME_LIMIT", |r, _| Value::Short(r.step.time_limit_secs))
        .code("l")
        .cut(Cut::Header),
    F::new(&["StartTime"], "START_TIME", |r, _| Value::Time(Some(r.step.start), "N/A")).code("S"),
    F::new(&["Nodes", "NodeList"], "NODELIST", |_, c| c.node.clone().into())
        .code("N")
        .cut(Cut::Never),
    F::new(&["NumCPUs"], "NUM_CPUS", |r, _| r.step.alloc.tres.cpus.into()).code("C"),
    F::new(&["StepState", "State"], "STATE", |r, _| r.step.state.name().into()).code("T"),
    F::new(&["MinMemory"], "MIN_MEMORY", |r, _| Value::Mib(r.step.alloc.tres.mem_mb)).code("m"),
    F::new(&["tres-per-node", "gres"], "TRES_PER_NODE", |r, c| {
        Value::or_not_available(
            tres::gres(&r.step.alloc.tres, c.units).map(|gres| format!("gres:{gres}")),
        )
    })
    .code("b"),
    F::new(&["NumTasks"], "TASKS", |r, _| r.step.ntasks.into()),
    F::new(&["ArrayJobID"], "ARRAY_JOB_ID", |r, _| r.shown().array_job().0.into()),
    F::new(&["ArrayTaskID"], "ARRAY_TASK_ID", |r, c| Value::or_not_available(r.shown().task(c))),
    F::new(&["WorkDir"], "WORK_DIR", |r, _| r.job.request.work_dir.clone().into()),
    F::new(&["Comment"], "COMMENT", |r, _| Value::or_null(r.job.request.comment.as_deref())),
];

/// Returns the default columns, which are always Slurm's.
pub fn default_layout() -> Layout<Steps> {
    // A test checks that this constant parses.
    Layout::codes("%.15i %.8j %.9P %.8u %.9M %N").unwrap_or_default()
}

/// Prints the running steps of these jobs.
pub fn print_steps(jobs: &[JobView], layout: &Layout<Steps>, header: bool, ctx: &Ctx) -> String {
    let steps = |job| active(job).map(move |step| StepRow { job, step });
    layout.print(&jobs.iter().flat_map(steps).collect::<Vec<_>>(), header, ctx)
}

fn active(job: &JobView) -> impl Iterator<Item = &Step> {
    job.steps.iter().filter(|step| step.state.is_active())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, ctx, job, step};
    use slotd_model::{End, ExitCode, JobState, StepId};

    #[test]
    fn steps_option_lists_running_steps() {
        let jobs = [job(172, "runner")
            .running(4)
            .step(step(StepId::Batch, "batch", JobState::Running, ExitCode::OK, 4, None))
            .step(step(StepId::Num(0), "true", End::Completed, ExitCode::OK, 4, Some(3)))
            .build()];
        assert_eq!(
            print_steps(&jobs, &default_layout(), true, &ctx()),
            "         STEPID     NAME PARTITION     USER      TIME NODELIST\n      172.batch    batch       cpu      lab      0:04 vm\n"
        );
        assert_eq!(print_steps(&jobs, &Layout::codes("%i").unwrap(), false, &ctx()), "172.batch\n");
        assert_eq!(
            print_steps(&jobs, &Layout::long("stepid:#,numtasks:#").unwrap(), false, &ctx()),
            "172.batch#1#\n"
        );
    }

    #[test]
    fn a_step_does_not_age_while_its_job_is_suspended() {
        let mut jobs = [job(172, "runner")
            .running(10)
            .step(step(StepId::Num(0), "true", JobState::Running, ExitCode::OK, 10, None))
            .build()];
        jobs[0].steps[0].suspended_us = 2_000_000;
        let times =
            |jobs: &[JobView]| print_steps(jobs, &Layout::codes("%M").unwrap(), false, &ctx());
        assert_eq!(times(&jobs), "0:08\n");
        (jobs[0].run.state, jobs[0].run.suspended_at) = (JobState::Suspended, Some(at(7)));
        assert_eq!(times(&jobs), "0:01\n");
    }

    #[test]
    fn an_unknown_step_field_is_an_error() {
        let error = Layout::<Steps>::long("nosuch").unwrap_err();
        assert!(error.message.contains("nosuch") && error.hint.contains("StepID"));
    }
}
