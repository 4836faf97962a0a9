//! `scontrol show step`.

use crate::array::Shown;
use crate::show::record::Record;
use crate::{Ctx, time, tres};
use slotd_model::view::JobView;
use slotd_model::{Step, StepId};

/// Prints the running steps of a job, or only the requested one. Empty without such a step.
pub fn steps(job: &JobView, only: Option<StepId>, one_line: bool, ctx: &Ctx) -> String {
    steps_shown(job, only).map(|s| step(job, s, ctx).print(one_line, ctx)).collect()
}

/// Returns those steps, for other output formats.
pub fn steps_shown(job: &JobView, only: Option<StepId>) -> impl Iterator<Item = &Step> {
    job.steps.iter().filter(move |s| match only {
        Some(id) => s.id == id,
        None => s.state.is_active(),
    })
}

fn step(job: &JobView, step: &Step, ctx: &Ctx) -> Record {
    let mut r = Record::default();
    r.line(vec![
        ("StepId", format!("{}.{}", Shown::of(job.id, &job.role).id(ctx), step.id)),
        ("UserId", job.request.uid.to_string()),
        ("StartTime", time::instant(step.start, ctx)),
        ("TimeLimit", time::long_limit(step.time_limit_secs)),
    ]);
    r.line(vec![
        ("State", step.state.name().to_owned()),
        ("Partition", job.partition.to_string()),
        ("NodeList", ctx.node.clone()),
    ]);
    r.line(vec![
        ("Nodes", "1".to_owned()),
        ("CPUs", step.alloc.tres.cpus.to_string()),
        ("Tasks", step.ntasks.to_string()),
        ("Name", step.name.clone()),
        ("Network", "(null)".to_owned()),
    ]);
    r.word("TRES", tres::sacct_step(&step.alloc.tres, ctx.units));
    r.word("ResvPorts", "(null)");
    r.word("CPUFreqReq", "Default");
    r.word("SrunHost:Pid", "(null):0");
    r
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ctx, job as build, step as build_step};
    use slotd_model::{End, ExitCode, JobState};

    #[test]
    fn running_steps_of_a_job() {
        let j = build(190, "running")
            .running(2)
            .step(build_step(StepId::Batch, "batch", JobState::Running, ExitCode::OK, 2, None))
            .step(build_step(StepId::Num(0), "true", End::Completed, ExitCode::OK, 2, Some(1)))
            .build();
        assert_eq!(
            steps(&j, None, false, &ctx()),
            "StepId=190.batch UserId=1001 StartTime=2026-11-20T23:39:56 TimeLimit=UNLIMITED\n\
             \x20  State=RUNNING Partition=cpu NodeList=vm\n\
             \x20  Nodes=1 CPUs=1 Tasks=1 Name=batch Network=(null)\n\
             \x20  TRES=cpu=1,mem=100M,node=1\n\
             \x20  ResvPorts=(null)\n\
             \x20  CPUFreqReq=Default\n\
             \x20  SrunHost:Pid=(null):0\n\
             \n"
        );
        assert!(
            steps(&j, Some(StepId::Num(0)), true, &ctx()).starts_with("StepId=190.0 UserId=1001 ")
        );
        assert_eq!(steps(&j, Some(StepId::Num(7)), false, &ctx()), "");
    }
}
