//! The step of an srun: its request, its commands, its streams and its end.

use super::super::launch::{Reporter, all_streams, verdict};
use super::super::output::print_stderr;
use super::{Done, Srun};
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::args::submit::Submission;
use crate::client::connection::{ClientError, Connection};
use crate::client::foreground::{Caller, StepOptions, StreamTasks, end_by_interrupt, run_step};
use slotd_model::binding::CpuBind;
use slotd_model::refusal::MOST_TASKS;
use slotd_model::request::{GpuRequest, MemRequest, OpenMode};
use slotd_model::step_request::{Mpi, StepKind};
use slotd_model::view::JobView;
use slotd_model::{ExitCode, JobId, JobRequest, StepRequest};
use slotd_parse::error::shown;
use slotd_parse::{SpecError, multi_prog};
use slotd_protocol::request::{StepLaunch, Stream, TaskStreams};
use slotd_sys::{files, system};
use std::io::IsTerminal;
use std::path::Path;

/// The value of `--cpu-bind`: the binding, and whether to report it.
pub type Binding = (CpuBind, bool);

/// Parses the value of `--cpu-bind`.
///
/// # Errors
/// Fails with srun's message if the text is not a binding. `help` also returns an error, which
/// holds the output.
pub fn cpu_bind(text: &str) -> Result<Binding, CliError> {
    if text.eq_ignore_ascii_case("help") {
        return Err(CliError::output(format!("--cpu-bind=: {}\n", slotd_parse::cpu_bind::FORMS)));
    }
    let bind = slotd_parse::cpu_bind::parse(text).map_err(|error| {
        CliError::error(1, error.to_string())
            .and(Mark::Fatal, "Failed to parse --cpu-bind= values.")
            .maybe_hint(error.hint)
    })?;
    Ok((bind, slotd_parse::cpu_bind::wants_report(text)))
}

/// Parses the value of `--mpi`.
///
/// # Errors
/// Fails if slotd does not support the type. `list` also returns an error, which holds the output.
pub fn mpi(text: &str) -> Result<Mpi, CliError> {
    match text {
        "list" => Err(CliError::output("MPI plugin types are...\n\tnone\n\tpmi2\n")),
        // Open MPI needs no support from Slurm, which once had this type for it.
        "none" | "openmpi" => Ok(Mpi::None),
        "pmi2" => Ok(Mpi::Pmi2),
        other => {
            let text =
                format!("invalid MPI type '{}', --mpi=list for acceptable types", shown(other));
            let hint = "inside sbatch or salloc, mpirun starts the ranks of any MPI: mpirun PROGRAM instead of srun PROGRAM";
            Err(CliError::error(1, text).hint(hint))
        }
    }
}

/// The target of a standard stream (srun man page, "IO Redirection").
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Redirection {
    /// To or from srun's terminal, for all tasks. The default.
    #[default]
    All,
    /// `none`: output is discarded and input is empty.
    None,
    /// To or from srun, for this task only.
    Task(u32),
    /// A file, with the patterns of `slotd_parse::filename`.
    File(String),
}

impl Redirection {
    /// Parses `all`, `none`, a task number or a file pattern. An empty text means the default.
    ///
    /// # Errors
    /// Never fails.
    pub fn read(text: &str) -> Result<Redirection, SpecError> {
        Ok(match text {
            "" => Redirection::All,
            _ if text.eq_ignore_ascii_case("all") => Redirection::All,
            _ if text.eq_ignore_ascii_case("none") => Redirection::None,
            _ => {
                text.parse().map_or_else(|_| Redirection::File(text.to_owned()), Redirection::Task)
            }
        })
    }

    /// Returns the file pattern for a job that the daemon runs. For `none` it is `/dev/null`.
    pub fn path(&self) -> Option<String> {
        match self {
            Redirection::All | Redirection::Task(_) => None,
            Redirection::None => Some("/dev/null".to_owned()),
            Redirection::File(path) => Some(path.clone()),
        }
    }
}

/// Checks the requested nodes against the single node of the allocation. Slurm's srun also checks
/// this before it contacts the controller.
///
/// # Errors
/// Fails with srun's messages if the step requests several nodes, excludes this node or names
/// another one.
pub fn check_node(step: &StepRequest, job: JobId, node: &str) -> Result<(), CliError> {
    let is_node = |name: &String| name == node || name == "localhost";
    let asked = step.nodes.map_or(1, |nodes| nodes.min.max(1));
    if let Some(first) = step.relative.filter(|first| first.saturating_add(asked) > 1) {
        let of = if step.nodes.is_some() { "--nodes" } else { "SLURM_JOB_NUM_NODES" };
        let why = format!("incompatible with count of allocated nodes ({first}+{asked}>1)");
        return Err(CliError::error(1, format!("--relative and {of} option {why}")));
    }
    if asked > 1 {
        return Err(CliError::error(1, format!("Only allocated 1 nodes asked for {asked}")));
    }
    if step.exclude.names().iter().any(is_node) {
        return Err(CliError::error(1, "Hostlist is empty!  Can't run job."));
    }
    if !step.nodelist.names().iter().all(is_node) {
        let why = "Requested node configuration is not available";
        return Err(CliError::error(1, format!("Unable to create step for job {job}: {why}")));
    }
    Ok(())
}

impl Srun {
    /// Returns the request for the step. Inside a job, memory and GPUs from the environment
    /// describe the job, not the step, except that GPUs per task apply to the tasks of every step.
    pub fn step_request(
        &self,
        submission: &Submission,
        request: &JobRequest,
        default_name: &str,
    ) -> StepRequest {
        let choices = submission.choices;
        let inside = self.jobid.is_some();
        let asked = |names: &[&str]| {
            names
                .iter()
                .any(|name| choices.of(name).is_some() && !choices.is_from_environment(name))
        };
        let jobs_own = |names: &[&str]| inside && !asked(names);
        let mem = ["mem", "mem-per-cpu", "mem-per-gpu"];
        let gpu = [
            "gpus",
            "gpus-per-node",
            "gpus-per-task",
            "gpus-per-socket",
            "gres",
            "tres-per-task",
            "ntasks-per-gpu",
        ];
        let sized = request.cpus_per_task.is_some() || self.job.exclusive.is_some();
        let (cpu_bind, report_cpu_bind) = self.cpu_bind.clone().unwrap_or_default();
        StepRequest {
            kind: StepKind::Numbered,
            // The step does not inherit the name of its job (srun man page, SLURM_JOB_NAME).
            name: if jobs_own(&["job-name"]) {
                default_name.to_owned()
            } else {
                request.name.clone()
            },
            ntasks: request.ntasks,
            ntasks_per_node: request.ntasks_per_node,
            cpus_per_task: request.cpus_per_task,
            nodes: if jobs_own(&["nodes"]) { None } else { request.nodes },
            nodelist: request.nodelist.clone(),
            exclude: request.exclude.clone(),
            mem: if jobs_own(&mem) { MemRequest::Default } else { request.mem },
            gpu: if jobs_own(&gpu) && submission.own_gpus().is_empty() {
                GpuRequest { per_task: request.gpu.per_task, ..GpuRequest::default() }
            } else {
                request.gpu.clone()
            },
            exact: self.exact || (inside && sized && !self.whole && !self.overlap),
            overlap: self.overlap,
            overcommit: request.overcommit,
            // In a new allocation, the time limit is the job's.
            time_limit_secs: request.time_limit_secs.filter(|_| inside),
            immediate: request.immediate_secs.is_some() && inside,
            submit_line: request.submit_line.clone(),
            relative: self.relative,
            cpu_bind,
            placement: request.placement.clone(),
            report_cpu_bind,
            gpu_bind: self.job.gpu_bind.clone().unwrap_or_default(),
            mpi: self.mpi.unwrap_or_default(),
            kill_on_bad_exit: self.kill_on_bad_exit.is_some_and(|number| number > 0),
        }
    }
}

/// The end of a step.
pub struct StepEnd {
    /// The exit code of this client.
    code: u8,
    /// The recorded exit code.
    pub exit: ExitCode,
    /// Whether Ctrl-C at this client's terminal ended it.
    interrupted: bool,
}

impl StepEnd {
    pub fn done(self) -> Done {
        if self.interrupted {
            end_by_interrupt();
        }
        Ok(self.code)
    }
}

/// Runs the step in this allocation.
///
/// # Errors
/// Fails if the step could not be started, or if the connection to the daemon was lost permanently.
pub fn run(
    srun: &Srun,
    origin: &Origin,
    argv: Vec<Vec<String>>,
    (conn, caller): (&mut Connection, &Caller),
    view: &JobView,
) -> Result<StepEnd, CliError> {
    let (streams, options) = streams(srun, srun.step.tasks(&view.request));
    // The daemon refuses a step with too many tasks, so do not allocate streams for them.
    let with_streams =
        Some(srun.step.tasks(&view.request)).filter(|tasks| *tasks <= MOST_TASKS).unwrap_or(0);
    let launch = StepLaunch {
        job: view.id,
        client: caller.client,
        uid: srun.request.uid,
        request: srun.step.clone(),
        argv,
        work_dir: srun.request.work_dir.clone(),
        umask: Some(*origin.umask),
        rlimits: origin.propagated(srun.propagate.as_ref()),
        streams: vec![streams; with_streams as usize],
        label: srun.label,
        ..StepLaunch::default()
    };
    let mut reporter = Reporter::new("srun", srun.job.quiet);
    let outcome = match run_step(conn, caller, launch, &srun.env, &options, &mut reporter) {
        Err(ClientError::Interrupted(signal)) => {
            let code = u8::try_from(128 + signal).unwrap_or(1);
            let exit = ExitCode::signal(signal);
            return Ok(StepEnd { code, exit, interrupted: reporter.was_interrupted(exit) });
        }
        other => other?,
    };
    let node = system::probe_host_name();
    let (code, lines) = verdict(&node, view.id, &outcome)?;
    for line in lines {
        print_stderr(&format!("srun: {line}\n"));
    }
    let exit = outcome.exit();
    Ok(StepEnd { code, exit, interrupted: reporter.was_interrupted(exit) })
}

/// Returns the command for all tasks or, with `--multi-prog`, for each.
///
/// # Errors
/// Fails if the file of `--multi-prog` cannot be read or parsed.
pub fn commands(srun: &Srun, job: &JobRequest) -> Result<Vec<Vec<String>>, CliError> {
    if !srun.multi_prog {
        return Ok(vec![srun.command.clone()]);
    }
    let file = &srun.command[0];
    let text = files::read_input(Path::new(file), files::MOST_SETTINGS).map_err(|e| {
        let why = system::reason(&e);
        CliError::error(1, format!("Could not open multi_prog config file {file}: {why}"))
    })?;
    let tasks = srun.step.tasks(job);
    if tasks > MOST_TASKS {
        // The daemon refuses this many tasks.
        return Ok(Vec::new());
    }
    multi_prog::parse(&text, file, tasks, &srun.command[1..])
        .map_err(|e| CliError::error(1, e.to_string()))
}

/// Returns the targets of each task's streams, and the streams that this client forwards.
fn streams(srun: &Srun, tasks: u32) -> (TaskStreams, StepOptions) {
    let append = srun.open_mode == Some(OpenMode::Append);
    let file = |path: String| (StreamTasks::Given, Stream::File { path: path.into(), append });
    let of = |wanted: Option<&Redirection>| match wanted {
        None | Some(Redirection::All) => (StreamTasks::All, Stream::Null),
        Some(Redirection::None) => (StreamTasks::Nobody, Stream::Null),
        Some(Redirection::Task(task)) if *task < tasks => (StreamTasks::Task(*task), Stream::Null),
        // The number of no task is the name of a file (srun man page).
        Some(Redirection::Task(name)) => file(name.to_string()),
        Some(Redirection::File(path)) => file(path.clone()),
    };
    let (stdin, stdin_stream) = of(srun.input.as_ref());
    let (stdout, stdout_stream) = of(srun.output.as_ref());
    let (stderr, stderr_stream) = match &srun.error {
        // If output goes to a file, errors go to the same file.
        None if stdout == StreamTasks::Given => (StreamTasks::Given, Stream::SameAsStdout),
        error => of(error.as_ref()),
    };
    let wants_pty = srun.pty.is_some();
    let pty = wants_pty && std::io::stdin().is_terminal();
    if wants_pty && !pty {
        // As in Slurm, there is nothing to relay without a terminal.
        report!("srun: error: Not using a pseudo-terminal, disregarding --pty option");
    }
    let options = StepOptions {
        stdin,
        stdout,
        stderr,
        pty,
        label: srun.label,
        unbuffered: srun.unbuffered,
        quit_on_interrupt: srun.quit_on_interrupt,
        wait_secs: srun.wait.filter(|secs| *secs > 0).map(u64::from),
        ..all_streams()
    };
    (TaskStreams { stdin: stdin_stream, stdout: stdout_stream, stderr: stderr_stream }, options)
}
