//! `srun`: run a command as a step, in an allocation of its own where there is none.

use crate::args::choices::{Applet, Choices, Reader};
use crate::args::error::{CliError, Mark};
use crate::args::extra;
use crate::args::getopt::Operands;
use crate::args::job_env::Export;
use crate::args::origin::Origin;
use crate::args::step::{Stream, Streams};
use crate::args::submit::{Submission, base_name};
use crate::commands::sbatch::args::error_exit;
use crate::commands::srun::options::{SrunOpts, VARIABLES};
use crate::model::request::{ExportSpec, GpuRequest, JobKind, MemRequest, Rlimit};
use crate::model::step_request::StepKind;
use crate::model::{JobRef, JobRequest, StepRequest};
use crate::spec;
use std::ffi::OsString;

pub const APPLET: Applet = Applet {
    name: "srun",
    about: "Run a command as a step of a job",
    operands: Operands::EndOptions,
    usage_exit: 255,
    points_to_help: true,
    extras: &[extra::SUBMIT, extra::SRUN],
    variables: VARIABLES,
    submission: "Unable to allocate resources",
};

#[derive(Debug, Clone, PartialEq)]
pub struct Srun {
    /// The job to run in: `--jobid`, else `SLURM_JOB_ID`. `None`: get an allocation by `request`, or with `no_wait`
    /// submit it.
    pub inside: Option<JobRef>,
    /// The allocation (kind `Allocation`), or with `no_wait` the job (kind `Run`, the command in `args`).
    pub request: JobRequest,
    pub step: StepRequest,
    pub streams: Streams,
    /// The command and its arguments; with `multi_prog` the file's name first. Never empty.
    pub command: Vec<String>,
    /// The tasks' environment as `KEY=VALUE` entries, each ended by a zero byte; `SLURM_*` of the step come on top.
    pub env: Vec<u8>,
    /// `-D`, absolute: where the tasks start.
    pub work_dir: String,
    /// `--propagate`: the limits that the tasks get.
    pub rlimits: Vec<Rlimit>,
    /// `--no-wait`: let the daemon run it, and return.
    pub no_wait: bool,
    /// `--multi-prog`: the command is a file that gives each rank its program.
    pub multi_prog: bool,
    /// `-W`: end the rest so many seconds after the first task ended. `None`: never.
    pub wait_secs: Option<u64>,
    /// `--quit-on-interrupt`: one Ctrl-C ends the step.
    pub quit_on_interrupt: bool,
    /// `-X`: Ctrl-C goes to the step at once, without the status report.
    pub disable_status: bool,
    pub test_only: bool,
    /// `-Q`: hide what is only news.
    pub quiet: bool,
    pub verbose: u8,
    /// The options given, sorted by name, for `-v`.
    pub defined: Vec<(String, String)>,
    /// 1, or `SLURM_EXIT_ERROR`.
    pub error_exit: i32,
    /// Exit code when `--immediate` fails: 1, or `SLURM_EXIT_IMMEDIATE`.
    pub immediate_exit: i32,
}

/// Makes a launch of a command line.
///
/// # Errors
/// Slurm's texts for bad options and values; no command; what the book rules out with `--no-wait`.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Srun, CliError> {
    let reader = Reader::scan::<SrunOpts>(APPLET, argv)?;
    let (options, choices) = reader.finish::<SrunOpts>(origin, &[])?;
    let job = &options.job;
    let command: Vec<String> = choices.operands.iter().map(|operand| operand.text.clone()).collect();
    let Some(program) = command.first() else {
        return Err(CliError::fatal(1, "No command given to execute."));
    };
    check_no_wait(&options)?;
    let submission = Submission { job, choices: &choices, origin };
    let default_name = base_name(program);
    let kind = if options.no_wait { JobKind::Run } else { JobKind::Allocation };
    let mut request = submission.request(kind, default_name, argv)?;
    request.immediate_secs = options.immediate;
    let inside = match options.jobid.clone() {
        // A job of its own, also when it is submitted from inside another.
        Some(_) if options.no_wait && choices.from_environment("jobid") => None,
        other => other,
    };
    let cpu_bind = choices
        .read("cpu-bind", options.cpu_bind.as_ref(), spec::cpu_bind::parse)
        .map_err(|error| error.and(Mark::Fatal, "Failed to parse --cpu-bind= values."))?;
    let relative = options.relative;
    if relative.is_some() && inside.is_none() {
        return Err(CliError::fatal(1, "--relative option invalid for job allocation request"));
    }
    let streams = streams(&options);
    let rlimits = submission.rlimits(&options.propagate)?;
    if options.no_wait {
        request.rlimits.clone_from(&rlimits);
        request.args = command.clone();
        request.command = Some(program.clone());
        request.cpu_bind = cpu_bind.clone().unwrap_or_default();
        request.std_in = streams.input.path();
        request.std_out = streams.output.path();
        request.std_err = streams.error.as_ref().and_then(Stream::path);
        request.open_mode = streams.open_mode;
    }
    let export = match &options.export {
        Some(_) => choices.read("export", options.export.as_ref(), spec::export::parse)?.unwrap_or_default(),
        None => ExportSpec::default(),
    };
    let report_cpu_bind = options.cpu_bind.as_deref().is_some_and(spec::cpu_bind::wants_report);
    let mut own = cpu_bind.as_ref().map(|bind| bind.variables(report_cpu_bind)).unwrap_or_default();
    // Inside a job without a name of its own, this is the job's, as with Slurm.
    own.push(("SLURM_JOB_NAME", request.name.clone()));
    let env = Export { spec: &export, written: options.export.as_deref(), file: &[], new_job: options.no_wait }
        .block_with(origin, &own);
    request.export = export;
    let step = StepRequest {
        relative,
        cpu_bind: cpu_bind.unwrap_or_default(),
        report_cpu_bind,
        gpu_bind: options.gpu_bind.clone().unwrap_or_default(),
        kill_on_bad_exit: options.kill_on_bad_exit.is_some_and(|number| number > 0),
        ..step(&options, &choices, &request, inside.is_some(), default_name)
    };

    Ok(Srun {
        work_dir: request.work_dir.clone(),
        inside,
        request,
        step,
        streams,
        command,
        env,
        rlimits,
        no_wait: options.no_wait,
        multi_prog: options.multi_prog,
        wait_secs: options.wait.filter(|secs| *secs > 0).map(u64::from),
        quit_on_interrupt: options.quit_on_interrupt,
        disable_status: options.disable_status,
        test_only: options.test_only,
        quiet: job.quiet,
        verbose: job.common.verbose,
        defined: choices.defined(),
        error_exit: error_exit(origin),
        immediate_exit: immediate_exit(origin),
    })
}

/// The step. What the environment says of memory and GPUs there describes the job, not the step, once there is one;
/// but GPUs for each task are for the tasks of every step (golden M-10).
fn step(options: &SrunOpts, choices: &Choices, request: &JobRequest, inside: bool, default_name: &str) -> StepRequest {
    let asked = |names: &[&str]| names.iter().any(|name| choices.of(name).is_some() && !choices.from_environment(name));
    let jobs_own = |names: &[&str]| inside && !asked(names);
    let mem = ["mem", "mem-per-cpu", "mem-per-gpu"];
    let gpu = ["gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres", "tres-per-task", "ntasks-per-gpu"];
    let sized = request.cpus_per_task.is_some() || options.job.exclusive.is_some();
    StepRequest {
        kind: StepKind::Numbered,
        // The name of the job around it is not the step's (srun man page, SLURM_JOB_NAME).
        name: if jobs_own(&["job-name"]) { default_name.to_owned() } else { request.name.clone() },
        ntasks: request.ntasks,
        ntasks_per_node: request.ntasks_per_node,
        cpus_per_task: request.cpus_per_task,
        nodes: if jobs_own(&["nodes"]) { None } else { request.nodes },
        nodelist: request.nodelist.clone(),
        exclude: request.exclude.clone(),
        mem: if jobs_own(&mem) { MemRequest::Default } else { request.mem },
        gpu: match jobs_own(&gpu) {
            true => GpuRequest { per_task: request.gpu.per_task, ..GpuRequest::default() },
            false => request.gpu.clone(),
        },
        exact: options.exact || (inside && sized && !options.whole && !options.overlap),
        overlap: options.overlap,
        overcommit: request.overcommit,
        // Of an allocation of its own the limit is the job's.
        time_limit_secs: request.time_limit_secs.filter(|_| inside),
        immediate: request.immediate_secs.is_some() && inside,
        submit_line: request.submit_line.clone(),
        ..StepRequest::default()
    }
}

fn streams(options: &SrunOpts) -> Streams {
    let stream = |text: &Option<String>| text.as_deref().map(Stream::read);
    Streams {
        input: stream(&options.input).unwrap_or_default(),
        output: stream(&options.output).unwrap_or_default(),
        error: stream(&options.error),
        open_mode: options.open_mode,
        label: options.label,
        unbuffered: options.unbuffered,
        pty: options.pty.is_some(),
    }
}

/// The restrictions of `--no-wait`: nobody is there to label, flush or type, or to hand each task its program.
fn check_no_wait(options: &SrunOpts) -> Result<(), CliError> {
    let attended = [
        ("label", options.label),
        ("unbuffered", options.unbuffered),
        ("pty", options.pty.is_some()),
        ("multi-prog", options.multi_prog),
    ];
    match attended.iter().find(|(_, given)| options.no_wait && *given) {
        Some((name, _)) => Err(CliError::error(1, format!("--{name} is not supported together with --no-wait"))),
        None => Ok(()),
    }
}

/// The exit code when `--immediate` was in vain: 1, or `SLURM_EXIT_IMMEDIATE`.
pub fn immediate_exit(origin: &Origin) -> i32 {
    origin.nonempty("SLURM_EXIT_IMMEDIATE").and_then(|code| code.parse().ok()).unwrap_or(1)
}
