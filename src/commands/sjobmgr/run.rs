//! `sjobmgr run`: becomes the manager inside a job, and outside a job submits one that runs a
//! manager.

use super::control::wait_for;
use super::{answer, checked, own_job};
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::commands::launch::client;
use crate::commands::output::print_stderr;
use crate::commands::{Done, output, paths, sbatch};
use crate::stepmgrd::{
    Client, Identity, RunError, Setup, Source, Verbosity, begin, check, manage, read_steps,
    socket_path, step_within, text_of,
};
use slotd_model::JobId;
use slotd_parse::mem;
use slotd_stepmgr::api::{Ask, Event};
use slotd_stepmgr::def::OnFailure;
use slotd_sys::paths::Paths;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Run at most COUNT steps at once; 0 means as many as fit
    #[arg(short = 'j', long = "jobs", value_name = "COUNT")]
    most: Option<u32>,
    /// Continue an earlier run of this file; completed steps do not run again
    #[arg(long)]
    resume: bool,
    /// Like --resume, but also run failed steps again
    #[arg(long)]
    resume_failed: bool,
    /// If a step fails, still run all steps that do not depend on it
    #[arg(short = 'k', long)]
    keep_going: bool,
    /// Start no more steps once one has failed
    #[arg(long, conflicts_with = "keep_going")]
    halt_on_failure: bool,
    /// Do not print progress
    #[arg(short = 'Q', long)]
    quiet: bool,
    #[command(flatten)]
    job: JobArgs,
    /// The steps: lines of commands, TOML (.toml) or JSON lines (.json, .jsonl); - for standard
    /// input
    file: String,
}

/// Options for sbatch, which are only used outside a job.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of the job that is submitted outside a job")]
struct JobArgs {
    /// Request this many CPUs
    #[arg(short = 'c', long, value_name = "COUNT")]
    cpus_per_task: Option<String>,
    /// Request this much memory: 500M, 8G
    #[arg(long)]
    mem: Option<String>,
    /// Request this many GPUs
    #[arg(short = 'G', long)]
    gpus: Option<String>,
    /// Set the time limit: 90, 1:30:00
    #[arg(short = 't', long)]
    time: Option<String>,
    /// Run in this partition
    #[arg(short = 'p', long)]
    partition: Option<String>,
    /// Set the name of the job
    #[arg(short = 'J', long)]
    job_name: Option<String>,
    /// Write the output of the job to this file
    #[arg(short = 'o', long)]
    output: Option<String>,
    /// Requeue the job if it fails or reaches its time limit, to run the remaining steps
    #[arg(long)]
    requeue: bool,
}

impl JobArgs {
    fn words(&self) -> Vec<String> {
        let named = [
            ("--cpus-per-task", &self.cpus_per_task),
            ("--mem", &self.mem),
            ("--gpus", &self.gpus),
            ("--time", &self.time),
            ("--partition", &self.partition),
            ("--job-name", &self.job_name),
            ("--output", &self.output),
        ];
        let given = named
            .iter()
            .filter_map(|(name, value)| value.as_ref().map(|value| format!("{name}={value}")));
        given.chain(self.requeue.then(|| "--requeue".to_owned())).collect()
    }

    /// Returns the CPUs, memory and GPUs of the job, as far as they are known before sbatch parses
    /// the values.
    fn size(&self) -> (Option<u32>, Option<u64>, Option<u32>) {
        let cpus = self.cpus_per_task.as_ref().map_or(Some(1), |text| text.parse().ok());
        // 0 means all of the host's memory.
        let mem_mb = self.mem.as_deref().and_then(mem::megabytes).filter(|mb| *mb > 0);
        let gpus = self.gpus.as_ref().and_then(|text| text.rsplit(':').next()?.parse().ok());
        (cpus, mem_mb, gpus)
    }
}

pub fn run(args: &RunArgs, origin: &Origin) -> Done {
    if args.file == "-" && (args.resume || args.resume_failed) {
        return Err(CliError::error(1, "cannot resume from standard input")
            .hint("write the steps to a file: sjobmgr run --resume FILE"));
    }
    let Some(job) = own_job(origin) else { return submit(args, origin) };
    let paths = paths()?;
    loop {
        let beginning = begin(&paths, job).map_err(|e| {
            CliError::error(1, format!("job {job} has no directory for a manager: {e}"))
        })?;
        let Ok(first) = Client::open(&socket_path(&paths, job)) else {
            return become_manager(args, origin, (paths, job), beginning);
        };
        drop(beginning);
        if let Some(code) = hand_over(args, origin, job, first)? {
            return Ok(code);
        }
    }
}

fn source(args: &RunArgs, origin: &Origin) -> Source {
    match args.file.as_str() {
        "-" => Source::Pipe,
        name => Source::File { name: name.to_owned(), path: PathBuf::from(origin.absolute(name)) },
    }
}

/// Turns this process into the manager of the job and its step launcher.
fn become_manager(
    args: &RunArgs,
    origin: &Origin,
    (paths, job): (Paths, JobId),
    beginning: File,
) -> Done {
    let on_failure = match (args.keep_going, args.halt_on_failure) {
        (true, _) => Some(OnFailure::Skip),
        (false, true) => Some(OnFailure::Stop),
        (false, false) => None,
    };
    let run =
        origin.nonempty("SLURM_RESTART_COUNT").and_then(|count| count.parse().ok()).unwrap_or(0);
    let within = step_within(origin.nonempty("SLURM_STEP_ID"));
    let setup = Setup {
        identity: Identity { paths, job, run, client: client(false).process, within },
        source: source(args, origin),
        on_failure,
        most_running: args.most.filter(|most| *most > 0),
        resume: args.resume || args.resume_failed,
        resume_failed: args.resume_failed,
        verbosity: if args.quiet { Verbosity::Quiet } else { Verbosity::Normal },
        work_dir: origin.cwd.clone(),
        umask: *origin.umask,
    };
    manage(setup, beginning, report)
        .map_err(|e| CliError::error(1, format!("cannot start the manager: {e}")))
}

/// Prints why the manager cannot run. Returns its exit code.
fn report(error: RunError) -> u8 {
    output::print_error("sjobmgr", &why_not(error));
    1
}

fn why_not(error: RunError) -> CliError {
    let hint = error.hint();
    let error = match error {
        RunError::Daemon(error) => CliError::from(error),
        other => CliError::error(1, other.to_string()),
    };
    error.maybe_hint(hint)
}

/// Returns whether the manager has stopped starting steps.
fn is_ending(manager: &mut Client) -> bool {
    manager.ask(&Ask::Status).is_ok()
        && matches!(manager.next_event(), Ok(Some(Event::Status(status))) if status.halted)
}

/// Passes the steps to the manager that is running in this job, and waits for them. Returns `None`
/// if it has ended and accepted none.
fn hand_over(
    args: &RunArgs,
    origin: &Origin,
    job: JobId,
    mut manager: Client,
) -> Result<Option<u8>, CliError> {
    if is_ending(&mut manager) {
        return Ok(wait_for_end(manager));
    }
    print_stderr("sjobmgr: a manager is already running in this job: passing the steps to it\n");
    let read = match args.file.as_str() {
        "-" => {
            let mut bytes = Vec::new();
            std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
        }
        name => read_steps(Path::new(&origin.absolute(name))),
    };
    let text = read
        .and_then(text_of)
        .map_err(|e| CliError::error(1, format!("could not read {}: {e}", args.file)))?;
    let dir = origin.cwd.to_string_lossy().into_owned();
    let ask = Ask::Submit { file: args.file.clone(), text, dir };
    let mut event = match manager.ask(&ask).and_then(|()| manager.next_event()) {
        // Standard input can be read only once.
        Ok(None) | Err(_) if args.file != "-" => return Ok(None),
        Ok(Some(Event::Refused { .. })) if args.file != "-" && is_ending(&mut manager) => {
            return Ok(wait_for_end(manager));
        }
        first => checked(first)?,
    };
    let mut names = Vec::new();
    loop {
        match event {
            Event::Accepted { name } => names.push(name),
            Event::Changed { .. } if names.is_empty() => return Ok(Some(0)),
            Event::Changed { .. } => return wait_for(manager, job, &names).map(Some),
            _ => {}
        }
        event = answer(&mut manager)?;
    }
}

/// Waits until the manager has ended. A manager that has stopped starting steps keeps its
/// connections open until then.
fn wait_for_end(mut manager: Client) -> Option<u8> {
    print_stderr(
        "sjobmgr: the manager of this job is ending and starts no more steps: waiting for it\n",
    );
    while let Ok(Some(_)) = manager.next_event() {}
    None
}

/// Returns a path by which a job can later read a file that this process can read now.
///
/// # Errors
/// Fails if no such path exists, for example for a pipe of the shell's `<(command)`.
fn lasting_path(named: &str, path: &str) -> Result<String, CliError> {
    let unusable = |what: &str| {
        CliError::error(1, format!("{named} is {what}: the submitted job could not read it"))
            .hint("write the steps to a file, or run sjobmgr inside a job: sbatch, salloc")
    };
    // Other errors are reported by the code that reads it.
    let Ok(found) = std::fs::metadata(path) else { return Ok(path.to_owned()) };
    if !found.is_file() && !found.is_dir() {
        return Err(unusable("not a regular file"));
    }
    // Descriptors of this process mean something else to others: /dev/stdin, /proc/self/fd/3.
    if !["/dev/", "/proc/"].iter().any(|dir| path.starts_with(dir)) {
        return Ok(path.to_owned());
    }
    let real = std::fs::canonicalize(path).map_err(|_| unusable("a file without a name"))?;
    real.into_os_string()
        .into_string()
        .map_err(|_| unusable("a file with a name that is not valid UTF-8"))
}

/// Submits a job that runs this command.
fn submit(args: &RunArgs, origin: &Origin) -> Done {
    if args.file == "-" {
        let text = "not inside a job, and a submitted job cannot read this standard input";
        return Err(CliError::error(1, text)
            .hint("specify a file, or run sjobmgr inside a job: sbatch, salloc"));
    }
    let file = lasting_path(&args.file, &origin.absolute(&args.file))?;
    let (cpus, mem_mb, gpus) = args.job.size();
    if check(&source(args, origin), &origin.cwd, cpus, mem_mb, gpus).map_err(why_not)? == 0 {
        return Err(CliError::error(
            1,
            format!("{} contains no steps: no job was submitted", args.file),
        ));
    }
    let program = std::env::current_exe()
        .map_err(|e| CliError::error(1, format!("cannot find this program: {e}")))?;
    let mut own =
        vec![program.to_string_lossy().into_owned(), "sjobmgr".to_owned(), "run".to_owned()];
    own.extend(args.most.map(|most| format!("--jobs={most}")));
    // A requeued job continues where it stopped.
    let flags = [
        (args.resume || args.job.requeue, "--resume"),
        (args.resume_failed, "--resume-failed"),
        (args.keep_going, "--keep-going"),
        (args.halt_on_failure, "--halt-on-failure"),
        (args.quiet, "--quiet"),
    ];
    own.extend(flags.iter().filter(|(given, _)| *given).map(|(_, flag)| (*flag).to_owned()));
    own.extend(["--".to_owned(), file]);
    let script = shlex::try_join(own.iter().map(String::as_str)).map_err(|e| {
        CliError::error(1, format!("{}: {e}", args.file)).and(Mark::Bare, "use another name")
    })?;
    print_stderr("sjobmgr: not inside a job: submitting a job that runs the steps\n");
    let mut words = vec!["sbatch".to_owned()];
    words.extend(args.job.words());
    if args.job.job_name.is_none() {
        words.push("--job-name=sjobmgr".to_owned());
    }
    words.push(format!("--wrap=exec {script}"));
    sbatch::run(&words.into_iter().map(OsString::from).collect::<Vec<_>>())
}
