//! `sjobmgr run`: the manager itself within a job, a job that runs one outside of any.

use super::control::wait_for;
use super::{answer, own_job, understood};
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::commands::launch::{client, tell};
use crate::commands::{Done, output, paths, sbatch};
use crate::model::JobId;
use crate::parse::mem;
use crate::stepmgr::api::{Ask, Event};
use crate::stepmgr::def::OnFailure;
use crate::stepmgrd::{
    Client, Identity, Manner, RunError, Setup, Source, begin, check, manage, socket_path,
    step_within, text_of,
};
use crate::sys::paths::Paths;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// At most so many steps at once; 0: as many as there is room for
    #[arg(short = 'j', long = "jobs", value_name = "COUNT")]
    most: Option<u32>,
    /// Go on where an earlier run of this file ended: nothing that ended well is run again
    #[arg(long)]
    resume: bool,
    /// As --resume, and run again what had failed
    #[arg(long)]
    resume_failed: bool,
    /// Whatever fails, run all that does not depend on it
    #[arg(short = 'k', long)]
    keep_going: bool,
    /// Start no other step once one has failed
    #[arg(long, conflicts_with = "keep_going")]
    halt_on_failure: bool,
    /// No lines about progress
    #[arg(short = 'Q', long)]
    quiet: bool,
    #[command(flatten)]
    job: JobArgs,
    /// Lines of commands, TOML (.toml) or JSON lines (.json, .jsonl); - for standard input
    file: String,
}

/// What sbatch is told where this is not within a job.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Of the job that is submitted, where this is not within one")]
struct JobArgs {
    /// CPUs
    #[arg(short = 'c', long, value_name = "COUNT")]
    cpus_per_task: Option<String>,
    /// Memory: 500M, 8G
    #[arg(long)]
    mem: Option<String>,
    /// GPUs
    #[arg(short = 'G', long)]
    gpus: Option<String>,
    /// Time limit: 90, 1:30:00
    #[arg(short = 't', long)]
    time: Option<String>,
    /// Partition
    #[arg(short = 'p', long)]
    partition: Option<String>,
    /// Name of the job
    #[arg(short = 'J', long)]
    job_name: Option<String>,
    /// Where the output of the job goes
    #[arg(short = 'o', long)]
    output: Option<String>,
    /// Queue the job again where it fails or its time is up: the steps that are left run then
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

    /// CPUs, memory and GPUs of the job, as far as they are known before sbatch has read the
    /// values.
    fn size(&self) -> (Option<u32>, Option<u64>, Option<u32>) {
        let cpus = self.cpus_per_task.as_ref().map_or(Some(1), |text| text.parse().ok());
        // None is all that there is.
        let mem_mb = self.mem.as_deref().and_then(mem::megabytes).filter(|mb| *mb > 0);
        let gpus = self.gpus.as_ref().and_then(|text| text.rsplit(':').next()?.parse().ok());
        (cpus, mem_mb, gpus)
    }
}

pub fn run(args: &RunArgs, origin: &Origin) -> Done {
    if args.file == "-" && (args.resume || args.resume_failed) {
        return Err(CliError::error(1, "standard input has no name to go on with")
            .hint("write the steps into a file: sjobmgr run --resume FILE"));
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

/// This process becomes the manager of the job, and what starts its steps.
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
        manner: if args.quiet { Manner::Quiet } else { Manner::Normal },
        work_dir: origin.cwd.clone(),
        umask: *origin.umask,
    };
    manage(setup, beginning, told)
        .map_err(|e| CliError::error(1, format!("the manager cannot be started: {e}")))
}

/// Tells why a manager does not run, and how it ends then.
fn told(error: RunError) -> u8 {
    output::tell("sjobmgr", &why_not(error));
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

/// Whether the manager starts no other step.
fn is_ending(manager: &mut Client) -> bool {
    manager.ask(&Ask::Status).is_ok()
        && matches!(manager.next_event(), Ok(Some(Event::Status(status))) if status.halted)
}

/// The manager that runs in this job takes the steps, and this process waits for them. `None`: it
/// has ended, and took none.
fn hand_over(
    args: &RunArgs,
    origin: &Origin,
    job: JobId,
    mut manager: Client,
) -> Result<Option<u8>, CliError> {
    if is_ending(&mut manager) {
        return Ok(wait_for_end(manager));
    }
    tell("sjobmgr: a manager runs in this job already: it takes the steps\n");
    let mut bytes = Vec::new();
    let read = match args.file.as_str() {
        "-" => std::io::stdin().lock().read_to_end(&mut bytes),
        name => File::open(origin.absolute(name)).and_then(|mut file| file.read_to_end(&mut bytes)),
    };
    let text = read
        .and_then(|_| text_of(bytes))
        .map_err(|e| CliError::error(1, format!("could not read {}: {e}", args.file)))?;
    let dir = origin.cwd.to_string_lossy().into_owned();
    let ask = Ask::Submit { file: args.file.clone(), text, dir };
    let mut event = match manager.ask(&ask).and_then(|()| manager.next_event()) {
        // Standard input is read once.
        Ok(None) | Err(_) if args.file != "-" => return Ok(None),
        Ok(Some(Event::Refused { .. })) if args.file != "-" && is_ending(&mut manager) => {
            return Ok(wait_for_end(manager));
        }
        first => understood(first)?,
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

/// A manager that starts nothing more holds its connections until it has ended.
fn wait_for_end(mut manager: Client) -> Option<u8> {
    tell("sjobmgr: the manager of this job starts no other step: waiting for its end\n");
    while let Ok(Some(_)) = manager.next_event() {}
    None
}

/// The name by which a job can read a file later, which this process can read now.
///
/// # Errors
/// There is none: it is a pipe, say, as of the shell's `<(command)`.
fn lasting(named: &str, path: &str) -> Result<String, CliError> {
    let unusable = |what: &str| {
        CliError::error(
            1,
            format!("{named} is {what}: the job that is submitted could not read it"),
        )
        .hint("write the steps into a file, or call sjobmgr within a job: sbatch, salloc")
    };
    // Whatever else is wrong with it is told by who reads it.
    let Ok(found) = std::fs::metadata(path) else { return Ok(path.to_owned()) };
    if !found.is_file() && !found.is_dir() {
        return Err(unusable("no regular file"));
    }
    // What descriptors of this process are called is nothing to others: /dev/stdin,
    // /proc/self/fd/3.
    if !["/dev/", "/proc/"].iter().any(|dir| path.starts_with(dir)) {
        return Ok(path.to_owned());
    }
    let real = std::fs::canonicalize(path).map_err(|_| unusable("a file without a name"))?;
    real.into_os_string()
        .into_string()
        .map_err(|_| unusable("a file whose name is no text in UTF-8"))
}

/// A job of its own that runs this command.
fn submit(args: &RunArgs, origin: &Origin) -> Done {
    if args.file == "-" {
        let text =
            "this is not within a job, and standard input cannot go with one that is submitted";
        return Err(CliError::error(1, text)
            .hint("name a file, or call sjobmgr within a job: sbatch, salloc"));
    }
    let file = lasting(&args.file, &origin.absolute(&args.file))?;
    let (cpus, mem_mb, gpus) = args.job.size();
    if check(&source(args, origin), &origin.cwd, cpus, mem_mb, gpus).map_err(why_not)? == 0 {
        return Err(CliError::error(
            1,
            format!("{}: there is no step in it: no job is submitted", args.file),
        ));
    }
    let program = std::env::current_exe()
        .map_err(|e| CliError::error(1, format!("this program is not found: {e}")))?;
    let mut own =
        vec![program.to_string_lossy().into_owned(), "sjobmgr".to_owned(), "run".to_owned()];
    own.extend(args.most.map(|most| format!("--jobs={most}")));
    // A job that comes back goes on where it was.
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
    tell("sjobmgr: this is not within a job: a job is submitted that runs the steps\n");
    let mut words = vec!["sbatch".to_owned()];
    words.extend(args.job.words());
    if args.job.job_name.is_none() {
        words.push("--job-name=sjobmgr".to_owned());
    }
    words.push(format!("--wrap=exec {script}"));
    sbatch::run(&words.into_iter().map(OsString::from).collect::<Vec<_>>())
}
