//! `sattach`: attaches the terminal to a running step.

use super::output::{print, print_error};
use super::{Done, Entry, ask_usage, origin, paths};
use crate::args::choices::{self, Applet, definition};
use crate::args::error::CliError;
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::args::table::options;
use crate::args::value::{named, value};
use crate::client::attach::{JoinError, Joining, StepEnd, attach};
use crate::commands::pages::texts;
use clap::Args;
use slotd_model::{ExitCode, JobRef, StepId};
use slotd_parse::error::shown;
use slotd_protocol::request::{Request, UsageAsk};
use slotd_sys::{proc, system};
use std::ffi::OsString;

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Sattach>, run, page: &texts::SATTACH };

const APPLET: Applet = Applet {
    examples: &[("sattach 12.0", "show the output of a step and send input to it")],
    ..Applet::new("sattach", "Attach to a running step")
};

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub struct Sattach {
        #[command(flatten)]
        pub common: CommonOpts,
        /// Print this help
        #[arg(short = 'h', long)]
        pub help: bool,
        /// Show standard error of this task only
        #[arg(long, value_name = "TASK", value_parser = named(slotd_parse::count::parse_or_zero))]
        pub error_filter: Option<u32>,
        /// Send standard input to this task only
        #[arg(long, value_name = "TASK", value_parser = named(slotd_parse::count::parse_or_zero))]
        pub input_filter: Option<u32>,
        /// Prefix each line of output with the task number
        #[arg(short, long)]
        pub label: bool,
        /// Print where the tasks run, without attaching
        #[arg(long)]
        pub layout: bool,
        /// Show standard output of this task only
        #[arg(long, value_name = "TASK", value_parser = named(slotd_parse::count::parse_or_zero))]
        pub output_filter: Option<u32>,
        /// Attach to the step's pseudo terminal
        #[arg(long)]
        pub pty: bool,
        /// Suppress informational messages
        #[arg(short = 'Q', long)]
        pub quiet: bool,
        /// The step: 12.0
        #[arg(value_name = "JOB.STEP", value_parser = value(step_of))]
        pub operands: Vec<JobRef>,
    }
}

/// Parses a step ID. A job ID alone means its first step.
fn step_of(text: &str) -> Result<JobRef, CliError> {
    match slotd_parse::ids::parse_job(text) {
        Ok(job) => Ok(JobRef { step: Some(job.step.unwrap_or(StepId::Num(0))), ..job }),
        Err(_) => Err(CliError::error(1, format!("Invalid job step id: {}", shown(text)))),
    }
}

/// Parses the command line. Returns the options and the step.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<(Sattach, JobRef), CliError> {
    let (args, _) = choices::parse::<Sattach>(APPLET, argv, origin)?;
    match args.operands.as_slice() {
        [step] => Ok((args.clone(), step.clone())),
        [] => Err(CliError::error(1, "No job step given: sattach <job>.<step>")),
        [_, extra, ..] => Err(CliError::error(1, format!("One job step at a time: {extra}"))),
    }
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = origin();
    let (args, step) = parse(argv, &origin)?;
    let own =
        ["SLURM_JOB_ID", "SLURM_STEP_ID"].map(|name| origin.nonempty(name).unwrap_or_default());
    if [step.job.to_string(), step.step.map_or_else(String::new, |step| step.to_string())] == own
        && !args.layout
    {
        // sattach would print its own output over and over.
        return Err(CliError::error(
            1,
            format!("cannot attach to StepId={step} from inside it: run sattach outside the step"),
        ));
    }
    join(&args, &step)
}

fn join(args: &Sattach, wanted: &JobRef) -> Done {
    if wanted.step == Some(StepId::Batch) {
        return Err(CliError::error(
            1,
            format!("cannot attach to the batch script {wanted}: read its output file instead"),
        ));
    }
    let asked = UsageAsk { steps: vec![wanted.clone()], all_steps: false };
    let (list, processes) = ask_usage(&Request::Usage(asked))?;
    let running =
        list.jobs.iter().find_map(|job| Some((job.id, job.run.restarts, job.steps.first()?)));
    let Some((job, run, step)) = running else {
        return Err(CliError::error(
            1,
            format!("Could not get job step info: {}", unknown(wanted, &list.unknown)),
        ));
    };
    if args.layout {
        return print(&layout(&system::probe_host_name(), step.ntasks));
    }
    let pids = processes.into_iter().find(|(key, _)| key.job == job && key.step == step.id);
    let pids = pids.map(|(_, pids)| pids).unwrap_or_default();
    let joining = Joining {
        input_task: args.input_filter,
        output_task: args.output_filter,
        error_task: args.error_filter,
        label: args.label,
        pty: args.pty,
    };
    let job_dir = paths()?.job_dir(job);
    let end = StepEnd::of(&job_dir, step.id, run, &pids);
    let lost = |e| CliError::error(1, format!("lost the connection to StepId={wanted}: {e}"));
    match attach(&job_dir, step.id, &pids, joining) {
        Ok(()) => {
            let record = end.and_then(StepEnd::wait).map_err(lost)?;
            Ok(report(&record.map(|record| record.tasks).unwrap_or_default()))
        }
        // It has ended, and the daemon has not recorded that yet.
        Err(JoinError::NotShared) if !pids.iter().any(|pid| is_alive(*pid)) => {
            Err(CliError::error(1, format!("Could not get job step info: {NOT_RUNNING}")))
        }
        Err(JoinError::NotShared) => {
            let text = format!(
                "the output of StepId={wanted} goes to a pipe or is discarded: there is nothing to attach to"
            );
            Err(CliError::error(1, text))
        }
        Err(JoinError::NoTerminal) => {
            let text = format!(
                "--pty requires a terminal here and a step started with srun --pty, which {wanted} is not"
            );
            Err(CliError::error(1, text))
        }
        Err(JoinError::OwnOutput(file)) => {
            let text = format!(
                "StepId={wanted} writes to {}, and so would sattach: redirect the output of sattach",
                file.display()
            );
            Err(CliError::error(1, text))
        }
        Err(JoinError::Io(e)) => Err(lost(e)),
    }
}

/// Prints which tasks failed, and returns the highest exit code. As in Slurm, a task that was killed
/// by a signal does not count.
fn report(tasks: &[ExitCode]) -> u8 {
    let failed = (0..).zip(tasks).filter(|(_, exit)| exit.signal == 0 && exit.status != 0);
    for (rank, exit) in failed.clone() {
        let text = format!("task {rank} exited with exit code {}", exit.status);
        print_error("sattach", &CliError::error(1, text));
    }
    failed.map(|(_, exit)| exit.status as u8).max().unwrap_or(0)
}

const NOT_RUNNING: &str = "Job step is not running";

fn is_alive(pid: i32) -> bool {
    proc::stat(pid).is_some_and(|stat| !stat.is_exiting)
}

fn unknown(wanted: &JobRef, unknown: &[slotd_model::JobId]) -> &'static str {
    if unknown.contains(&wanted.job) { "Invalid job id specified" } else { NOT_RUNNING }
}

/// Returns the text of `--layout`, in Slurm's format.
fn layout(node: &str, tasks: u32) -> String {
    let ranks: String = (0..tasks).map(|rank| format!("{rank} ")).collect();
    format!(
        "Job step layout:\n\t{tasks} tasks, 1 nodes ({node})\n\n\tNode 0 ({node}), {tasks} task(s): {ranks}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_lists_the_ranks() {
        let text =
            "Job step layout:\n\t3 tasks, 1 nodes (vm)\n\n\tNode 0 (vm), 3 task(s): 0 1 2 \n";
        assert_eq!(layout("vm", 3), text);
    }
}
