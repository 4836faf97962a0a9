//! `sattach`: the terminal joins a running step.

pub mod args;

use super::{Done, Entry, ask, origin, parsed, paths, unexpected};
use crate::args::choices::definition;
use crate::args::error::CliError;
use crate::client::attach::{JoinError, Joining, attach};
use crate::commands::pages::texts;
use crate::commands::sattach::args::{Sattach, parse};
use crate::model::{JobRef, StepId};
use crate::protocol::answer::Answer;
use crate::protocol::request::{Request, UsageAsk};
use crate::sys::system;
use std::ffi::OsString;

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: args::APPLET, define: definition::<args::SattachOpts>, run, page: &texts::SATTACH };

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    parsed(parse(argv, &origin)?, |sattach| {
        let step = &sattach.step;
        let own = ["SLURM_JOB_ID", "SLURM_STEP_ID"].map(|name| origin.nonempty(name).unwrap_or_default());
        if [step.job.to_string(), step.step.map_or_else(String::new, |step| step.to_string())] == own && !sattach.layout
        {
            // It would show its own output again and again.
            return Err(CliError::error(1, format!("this is StepId={step} itself: run sattach outside of it")));
        }
        carry_out(&sattach)
    })
}

fn carry_out(sattach: &Sattach) -> Done {
    let wanted = &sattach.step;
    if wanted.step == Some(StepId::Batch) {
        return Err(CliError::error(
            1,
            format!("{wanted} is a batch script, which has no client: look into its output"),
        ));
    }
    let asked = UsageAsk { steps: vec![wanted.clone()], all_steps: false };
    let (list, processes) = match ask(&Request::Usage(asked), &[])?.0 {
        Answer::Usage { list, processes } => (list, processes),
        other => return Err(unexpected(&other)),
    };
    let running = list.jobs.iter().find_map(|job| Some((job.id, job.steps.first()?)));
    let Some((job, step)) = running else {
        return Err(CliError::error(1, format!("Could not get job step info: {}", unknown(wanted, &list.unknown))));
    };
    if sattach.layout {
        print!("{}", layout(&system::probe_host_name(), step.ntasks));
        return Ok(0);
    }
    let pids = processes.into_iter().find(|(key, _)| key.job == job && key.step == step.id);
    let joining = Joining {
        input_task: sattach.input_task,
        output_task: sattach.output_task,
        error_task: sattach.error_task,
        label: sattach.label,
        pty: sattach.pty,
    };
    let job_dir = paths()?.job_dir(job);
    match attach(&job_dir, step.id, &pids.map(|(_, pids)| pids).unwrap_or_default(), joining) {
        Ok(()) => Ok(0),
        Err(JoinError::NotShared) => {
            let text =
                format!("the output of StepId={wanted} goes into a pipe or nowhere: there is nothing to attach to");
            Err(CliError::error(1, text))
        }
        Err(JoinError::NoTerminal) => {
            let text = format!("--pty needs a terminal here and a step with one (srun --pty), which {wanted} is not");
            Err(CliError::error(1, text))
        }
        Err(JoinError::OwnOutput(file)) => {
            let text =
                format!("StepId={wanted} writes to {}, as sattach would: send the output elsewhere", file.display());
            Err(CliError::error(1, text))
        }
        Err(JoinError::Io(e)) => Err(CliError::error(1, format!("the connection to StepId={wanted} broke: {e}"))),
    }
}

fn unknown(wanted: &JobRef, unknown: &[crate::model::JobId]) -> &'static str {
    if unknown.contains(&wanted.job) { "Invalid job id specified" } else { "Job step is not running" }
}

/// `--layout`, in Slurm's form.
fn layout(node: &str, tasks: u32) -> String {
    let ranks: String = (0..tasks).map(|rank| format!("{rank} ")).collect();
    format!("Job step layout:\n\t{tasks} tasks, 1 nodes ({node})\n\n\tNode 0 ({node}), {tasks} task(s): {ranks}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_names_the_ranks() {
        let text = "Job step layout:\n\t3 tasks, 1 nodes (vm)\n\n\tNode 0 (vm), 3 task(s): 0 1 2 \n";
        assert_eq!(layout("vm", 3), text);
    }
}
