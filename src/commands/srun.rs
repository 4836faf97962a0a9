//! `srun`: runs a command as a step, in a new allocation unless it is inside a job.
//!
//! [`parse`] turns a command line into a launch. [`step`] builds the request for the step and runs
//! it.

pub mod step;

use super::launch::{
    caller, check_work_dir, client, hand_in, print_defined, print_start, stays_until_back,
};
use super::output::print;
use super::output::print_stderr;
use super::{
    Done, Entry, not_immediate, paths, refused, submitting_origin, trial_refused, unexpected,
};
use crate::args::choices::{Applet, Choices, Reader, definition};
use crate::args::error::{CliError, Mark};
use crate::args::getopt::Operands;
use crate::args::headings::{CPUS, DOES, NEWS, RUNS, WHEN, WHERE};
use crate::args::job_env::{self, Export, ExportOption};
use crate::args::job_values::{Limits, immediate, open_mode};
use crate::args::options::JobOpts;
use crate::args::origin::Origin;
use crate::args::submit::{Submission, base_name};
use crate::args::table::options;
use crate::args::value::{named, value};
use crate::args::{extra, variables};
use crate::client::connection::{ClientError, Connection, RECONNECT_TIMEOUT, reopen};
use crate::client::foreground::{Caller, Grant, end_by_interrupt, wait_for_grant};
use crate::commands::pages::texts;
use crate::commands::srun::step::{Binding, Redirection, check_node, commands};
use clap::Args;
use slotd_model::binding::CpuBind;
use slotd_model::query::JobQuery;
use slotd_model::request::{JobKind, OpenMode};
use slotd_model::step_request::Mpi;
use slotd_model::view::JobView;
use slotd_model::{ExitCode, JobId, JobRef, JobRequest, JobState, Reason, StepRequest};
use slotd_protocol::answer::Answer;
use slotd_protocol::frame::FrameError;
use slotd_protocol::request::{Request, Submit};
use slotd_sys::paths::Paths;
use slotd_sys::system;
use std::ffi::OsString;

const FAILURE: &str = "Unable to allocate resources";

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Srun>, run, page: &texts::SRUN };

const APPLET: Applet = Applet {
    operands: Operands::EndOptions,
    usage_exit: 255,
    extras: &[extra::SUBMIT, extra::SRUN],
    variables: variables::srun,
    submission: FAILURE,
    examples: &[
        ("srun -c 4 make test", "run a command once four CPUs are free"),
        ("srun -G 1 --pty bash", "run a shell with a GPU"),
        ("srun -n 4 ./ranks", "run four tasks with ranks 0 to 3"),
    ],
    ..Applet::new("srun", "Run a command as a step of a job")
};

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub struct Srun {
        #[command(flatten)]
        pub job: JobOpts,
        /// Set the environment of the tasks: ALL, NONE, or names and NAME=VALUE
        #[arg(long, value_name = "NAMES", value_parser = value(job_env::export), help_heading = RUNS)]
        pub export: Option<ExportOption>,
        /// Propagate resource limits of this shell to the job: ALL, NONE, or names (CORE,NOFILE)
        #[arg(long, value_name = "LIMITS", num_args = 0..=1, require_equals = true, default_missing_value = "ALL", value_parser = value(slotd_parse::propagate::parse), help_heading = RUNS)]
        pub propagate: Option<Limits>,
        /// Read the program of each task from a file, which is given as the command
        #[arg(long, help_heading = RUNS)]
        pub multi_prog: bool,
        /// Set how MPI ranks find each other: pmi2, none, list
        #[arg(long, value_name = "KIND", value_parser = value(step::mpi), help_heading = RUNS)]
        pub mpi: Option<Mpi>,
        /// Run task 0 in a pseudo terminal
        #[arg(long, value_name = "DESCRIPTOR", num_args = 0..=1, require_equals = true, help_heading = RUNS)]
        pub pty: Option<Option<String>>,
        /// Share the job's resources with its other steps
        #[arg(long, help_heading = CPUS)]
        pub overlap: bool,
        /// Give the step only the resources it requests
        #[arg(long, overrides_with = "whole", help_heading = CPUS)]
        pub exact: bool,
        /// Give the step all resources of the job
        #[arg(long, overrides_with = "exact", help_heading = CPUS)]
        pub whole: bool,
        /// Skip this many nodes of the allocation; there is only one
        #[arg(short, long, value_name = "N", value_parser = named(slotd_parse::count::parse_or_zero), help_heading = CPUS)]
        pub relative: Option<u32>,
        /// Bind tasks to CPUs: none, threads, cores, sockets, rank, map_cpu:0,2, mask_cpu:0x3, with
        /// verbose or quiet
        #[arg(long, alias = "cpu_bind", value_name = "MODE", value_parser = value(step::cpu_bind), help_heading = CPUS)]
        pub cpu_bind: Option<Binding>,
        /// Fail unless the resources are available within this many seconds (immediately if no value is
        /// given)
        #[arg(short = 'I', long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "0", value_parser = value(immediate), help_heading = WHEN)]
        pub immediate: Option<u64>,
        /// Run the step in this job
        #[arg(long, value_name = "JOB", value_parser = value(slotd_parse::ids::parse_job), help_heading = WHERE)]
        pub jobid: Option<JobRef>,
        /// Set the file for standard output: a pattern, all, none, or a task number
        #[arg(short, long, value_name = "PATTERN", value_parser = value(Redirection::read), help_heading = NEWS)]
        pub output: Option<Redirection>,
        /// Set the file for standard error: a pattern, all, none, or a task number
        #[arg(short, long, value_name = "PATTERN", value_parser = value(Redirection::read), help_heading = NEWS)]
        pub error: Option<Redirection>,
        /// Set the file for standard input: a path, all, none, or a task number
        #[arg(short, long, value_name = "PATTERN", value_parser = value(Redirection::read), help_heading = NEWS)]
        pub input: Option<Redirection>,
        /// Open existing output files in this mode: append or truncate
        #[arg(long, value_name = "MODE", value_parser = value(open_mode), help_heading = NEWS)]
        pub open_mode: Option<OpenMode>,
        /// Prefix each line of output with the task number
        #[arg(short, long, help_heading = NEWS)]
        pub label: bool,
        /// Forward output without waiting for the end of a line
        #[arg(short, long, help_heading = NEWS)]
        pub unbuffered: bool,
        /// Print when the job would start, without running it
        #[arg(long, help_heading = DOES)]
        pub test_only: bool,
        /// Terminate the step this many seconds after its first task ended
        #[arg(short = 'W', long, value_name = "SECONDS", value_parser = named(slotd_parse::count::parse_or_zero), help_heading = DOES)]
        pub wait: Option<u32>,
        /// Let the daemon run the command and return immediately
        #[arg(long, help_heading = DOES)]
        pub no_wait: bool,
        /// Terminate the step if a task fails (=0: do not)
        #[arg(short = 'K', long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = named(slotd_parse::count::parse_or_zero), help_heading = DOES)]
        pub kill_on_bad_exit: Option<u32>,
        /// Terminate the step on the first Ctrl-C
        #[arg(long, help_heading = DOES)]
        pub quit_on_interrupt: bool,
        /// The command and its arguments
        #[arg(value_name = "COMMAND [ARGS]")]
        pub command: Vec<String>,
        /// The allocation (kind `Allocation`), or with `--no-wait` the job (kind `Run`, the command in
        /// `args`)
        #[arg(skip)]
        pub request: JobRequest,
        #[arg(skip)]
        pub step: StepRequest,
        /// The tasks' environment as `KEY=VALUE` entries, each terminated by a zero byte; the `SLURM_*`
        /// variables of the step are added later
        #[arg(skip)]
        pub env: Vec<u8>,
        /// The warning about an option that is ignored
        #[arg(skip)]
        pub warning: Option<String>,
        /// The given options by name, for `-v`
        #[arg(skip)]
        pub defined: Vec<(String, String)>,
    }
}

/// Parses a command line into a launch. `jobid` is then the job to run in; without one, srun
/// requests an allocation.
///
/// # Errors
/// Fails with Slurm's messages for invalid options and values, if there is no command, or if
/// `--no-wait` is combined with an option that needs srun to stay.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Srun, CliError> {
    let reader = Reader::scan::<Srun>(APPLET, argv)?;
    reader.refuse_components(true)?;
    let (mut srun, choices) = reader.finish::<Srun>(origin, &[])?;
    let Some(program) = srun.command.first() else {
        return Err(CliError::fatal(1, "No command given to execute."));
    };
    srun.check_no_wait()?;
    let name = base_name(program).to_owned();
    let kind = if srun.no_wait { JobKind::Run } else { JobKind::Allocation };
    let submission = Submission { job: &srun.job, choices: &choices, origin };
    let mut request = submission.request(kind, &name, argv)?;
    request.immediate_secs = srun.immediate;
    if !srun.no_wait {
        // As in Slurm, the program without its arguments.
        request.command = Some(program.clone());
    }
    srun.warning = drop_ntasks_per_node(&mut request, &choices);
    if srun.no_wait {
        // It is a separate job, even if submitted from inside another.
        srun.jobid = srun.jobid.filter(|_| !choices.is_from_environment("jobid"));
    }
    if srun.jobid.is_some() && choices.on_command_line("dependency") {
        return Err(step_dependency());
    }
    // As in Slurm, steps inherit the kind of binding that the surrounding step requested. They do
    // not inherit the masks that slotd derived from it, and other jobs inherit nothing.
    let is_outer = |kind: &str| srun.jobid.is_none() || kind == "mask_cpu:";
    if choices.is_from_environment("cpu-bind") && origin.binding_of_step().is_some_and(is_outer) {
        srun.cpu_bind = srun.cpu_bind.map(|(_, report)| (CpuBind::Auto, report));
    }
    if let (None, Some((bind, _))) = (&srun.jobid, &srun.cpu_bind) {
        request.named_cpus = bind.named_cpus(request.task_count());
    }
    if srun.no_wait {
        srun.complete_run(&mut request, origin);
    }
    if srun.jobid.is_none() {
        submission.check_gpus(&request)?;
    }
    if srun.relative.is_some() && srun.jobid.is_none() {
        return Err(CliError::fatal(1, "--relative option invalid for job allocation request"));
    }
    let mut own = choices.option_variables();
    // Slurm's default distribution. It sets none for a single task outside of a job.
    if srun.job.distribution.is_none() {
        let has_several = request.ntasks.is_some_and(|tasks| tasks > 1);
        let spread = match (has_several, &srun.jobid) {
            (true, _) => Some("block"),
            (false, Some(_)) => Some("cyclic"),
            (false, None) => None,
        };
        own.extend(spread.map(|spread| ("SLURM_DISTRIBUTION", spread.to_owned())));
    }
    // As in Slurm, this is the job's name inside a job, unless the step has its own.
    own.push(("SLURM_JOB_NAME", request.name.clone()));
    srun.env = Export { option: srun.export.as_ref(), file: &[], new_job: srun.no_wait }
        .block(origin, &own);
    request.export = srun.export.as_ref().map(|option| option.spec.clone()).unwrap_or_default();
    srun.step = srun.step_request(&submission, &request, &name);
    srun.request = request;
    srun.defined = choices.defined();
    Ok(srun)
}

impl Srun {
    /// Fails if `--no-wait` is combined with an option that needs srun to stay, such as labelling
    /// output, forwarding input or giving each task its own program.
    fn check_no_wait(&self) -> Result<(), CliError> {
        let attended = [
            ("label", self.label),
            ("unbuffered", self.unbuffered),
            ("pty", self.pty.is_some()),
            ("multi-prog", self.multi_prog),
            ("mpi", self.mpi == Some(Mpi::Pmi2)),
        ];
        match attended.iter().find(|(_, given)| self.no_wait && *given) {
            Some((name, _)) => Err(CliError::error(
                1,
                format!("--{name} is not supported together with --no-wait"),
            )),
            None => Ok(()),
        }
    }

    /// Completes the request so that the daemon can run the command itself (`--no-wait`).
    fn complete_run(&self, request: &mut JobRequest, origin: &Origin) {
        let path = |stream: &Option<Redirection>| stream.as_ref().and_then(Redirection::path);
        request.rlimits = origin.propagated(self.propagate.as_ref());
        request.args = self.command.clone();
        request.cpu_bind = self.cpu_bind.clone().unwrap_or_default().0;
        request.std_in = path(&self.input);
        request.std_out = path(&self.output);
        request.std_err = path(&self.error);
        request.open_mode = self.open_mode;
    }
}

/// Removes `--ntasks-per-node` if it contradicts the numbers of tasks and nodes. Returns Slurm's
/// warning, which only too many tasks cause. Two numbers of the surrounding job never cause one.
fn drop_ntasks_per_node(request: &mut JobRequest, choices: &Choices) -> Option<String> {
    let (tasks, each, nodes) =
        (request.ntasks?, request.ntasks_per_node?, request.nodes?.min.max(1));
    let is_own = ["ntasks", "ntasks-per-node"].iter().any(|name| choices.on_command_line(name));
    if !is_own || each == tasks / nodes {
        return None;
    }
    request.ntasks_per_node = None;
    let warning = format!(
        "can't honor --ntasks-per-node set to {each} which doesn't match the requested tasks {tasks} with the number of \
         requested nodes {nodes}. Ignoring --ntasks-per-node."
    );
    (tasks > each).then_some(warning)
}

/// In Slurm, `--dependency` has no effect on steps (srun man page), so that a step which should wait
/// runs at once.
fn step_dependency() -> CliError {
    CliError::error(1, "--dependency applies to jobs, and inside a job srun starts a step")
        .hint("sjobmgr submit -d STEP COMMAND starts a step after another one")
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = submitting_origin()?;
    let srun = parse(argv, &origin)?;
    if srun.job.common.verbose > 0 {
        print_defined("srun", &srun.defined);
    }
    if let Some(warning) = srun.warning.as_ref().filter(|_| !srun.job.quiet) {
        print_stderr(&format!("srun: warning: {warning}\n"));
    }
    let session = Session { srun, origin };
    session.carry_out().map_err(|error| match error.exit {
        1 => error.with_exit(session.origin.exit_code("SLURM_EXIT_ERROR")),
        _ => error,
    })
}

struct Session {
    srun: Srun,
    origin: Origin,
}

impl Session {
    fn carry_out(&self) -> Done {
        check_work_dir(&self.srun.request, "srun")?;
        match &self.srun.jobid {
            _ if self.srun.no_wait || self.srun.test_only => self.submit_only(),
            Some(job) => self.inside(job),
            None => self.outside(),
        }
    }

    fn submission(&self, holds: bool) -> Submit {
        Submit {
            request: self.srun.request.clone(),
            test_only: self.srun.test_only,
            client: client(holds),
            ..Submit::default()
        }
    }

    /// Submits without waiting (`--no-wait`, `--test-only`).
    fn submit_only(&self) -> Done {
        match hand_in(&paths()?, self.submission(false), &self.srun.env, "srun")?.1 {
            Answer::Refused(why) if self.srun.test_only => Err(trial_refused(&why)),
            Answer::Refused(why) => Err(refused(FAILURE, &why)),
            Answer::Submitted { .. } if self.srun.job.quiet => Ok(0),
            Answer::Submitted { job } => print(&format!("Submitted run job {job}\n"))
                .map_err(|e| e.and(Mark::Error, format!("job {job} was submitted"))),
            Answer::WouldStart { job, at, cpus, partition } => {
                print_start("srun", job, at, cpus, &partition, &self.origin.tz)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Runs a step in a running job.
    fn inside(&self, job: &JobRef) -> Done {
        let query = JobQuery {
            without_paths: true,
            without_steps: true,
            ..JobQuery::of(vec![job.clone()])
        };
        let paths = paths()?;
        let (mut conn, answer) = confirm(&paths, job, &Request::Jobs(query))?;
        let jobs = match answer {
            Answer::Jobs(list) => list.jobs,
            Answer::Refused(why) => return Err(CliError::error(1, why.to_string())),
            other => return Err(unexpected(&other)),
        };
        let Some(view) = jobs.iter().find(|view| view.run.state.is_active()) else {
            return Err(no_allocation(job, &jobs));
        };
        check_node(&self.srun.step, view.id, &system::probe_host_name())?;
        let argv = commands(&self.srun, &view.request)?;
        step::run(&self.srun, &self.origin, argv, (&mut conn, &caller(paths)), view)?.done()
    }

    /// Gets an allocation, runs one step in it and releases it.
    fn outside(&self) -> Done {
        let argv = commands(&self.srun, &self.srun.request)?;
        let mut caller = caller(paths()?);
        let mut submission = self.submission(true);
        submission.first_step = Some(Box::new(self.srun.step.clone()));
        let (mut conn, answer) = hand_in(&caller.paths, submission, &[], "srun")?;
        let job = match answer {
            Answer::Submitted { job } => job,
            Answer::Refused(why) => return Err(refused(FAILURE, &why)),
            other => return Err(unexpected(&other)),
        };
        caller.allocation = Some(job);
        let Some(view) = self.wait(&mut conn, &caller, job)? else { return Ok(1) };
        let done = step::run(&self.srun, &self.origin, argv, (&mut conn, &caller), &view);
        // A step that fails before it runs also ends its allocation, by this request or with the
        // connection.
        let exit = match &done {
            Ok(end) => end.exit,
            Err(error) => ExitCode::status(error.exit),
        };
        let _ = conn.send(&Request::Release { job, exit }, &[]);
        done?.done()
    }

    /// Waits for the allocation. Returns `None` if a signal ended the wait.
    fn wait(
        &self,
        conn: &mut Connection,
        caller: &Caller,
        job: JobId,
    ) -> Result<Option<Box<JobView>>, CliError> {
        let mut was_queued = false;
        // With --immediate, nothing is queued: the job starts or is refused.
        let quiet = self.srun.job.quiet || self.srun.request.immediate_secs.is_some();
        let mut queued = || {
            was_queued = true;
            if !quiet {
                print_stderr(&format!("srun: job {job} queued and waiting for resources\n"));
            }
        };
        let view = match wait_for_grant(conn, caller, job, &mut queued)? {
            Grant::Granted(view) => view,
            Grant::Ended(view) => return Err(self.revoked(job, &view)),
            Grant::Interrupted { typed, is_withdrawn } => {
                print_stderr(&if is_withdrawn {
                    format!(
                        "srun: Job allocation {job} has been revoked\nsrun: Force Terminated JobId={job}\n"
                    )
                } else {
                    format!("srun: {}\n", stays_until_back(job))
                });
                if typed {
                    end_by_interrupt();
                }
                return Ok(None);
            }
        };
        if was_queued && !quiet {
            print_stderr(&format!("srun: job {job} has been allocated resources\n"));
        }
        Ok(Some(view))
    }

    fn revoked(&self, job: JobId, view: &JobView) -> CliError {
        if self.srun.request.immediate_secs.is_some() {
            return not_immediate(view, &self.origin);
        }
        if view.run.reason == Reason::CancelledByUser {
            return CliError::new(Mark::Plain, 1, "Job has been cancelled")
                .and(Mark::Error, format!("{FAILURE}: Job/step already completing or completed"));
        }
        CliError::new(Mark::Plain, 1, format!("Job allocation {job} has been revoked"))
            .and(Mark::Plain, format!("Force Terminated JobId={job}: {}", view.run.reason))
    }
}

/// Returns the error for a job that cannot run steps, given its records.
fn no_allocation(job: &JobRef, records: &[JobView]) -> CliError {
    let unable = |why: &str| format!("Unable to confirm allocation for job {job}: {why}");
    let text = if records.is_empty() {
        unable("Invalid job id specified")
    } else if records.iter().any(|view| view.run.state == JobState::Pending) {
        unable("Job is pending execution")
    } else {
        format!("Slurm job {job} has expired")
    };
    let hint = format!("Check SLURM_JOB_ID environment variable. Expired or invalid job {job}");
    CliError::error(1, text).and(Mark::Plain, hint)
}

/// Queries the job. If the daemon is down while the job runs, waits for the daemon to come back.
fn confirm(
    paths: &Paths,
    job: &JobRef,
    request: &Request,
) -> Result<(Connection, Answer), CliError> {
    let ask = |mut conn: Connection| conn.ask(request, &[]).map(|(answer, _)| (conn, answer));
    match Connection::open(paths).and_then(ask) {
        Err(
            ClientError::NoDaemon { .. }
            | ClientError::Broken(FrameError::Closed | FrameError::Io(_)),
        ) => {
            print_stderr(&format!(
                "srun: Unable to confirm allocation for job {job}: the daemon is down, waiting for it\n"
            ));
            Ok(reopen(paths, Some(RECONNECT_TIMEOUT)).and_then(ask)?)
        }
        other => Ok(other?),
    }
}
