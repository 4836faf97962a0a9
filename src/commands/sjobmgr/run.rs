//! `sjobmgr run`: the manager itself within a job, a job that runs one outside of any.

use super::{answer, own_job};
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::commands::tasks::{client, tell};
use crate::commands::{Done, output, paths, sbatch};
use crate::jobmgr::api::{Ask, Event};
use crate::jobmgr::def::OnFailure;
use crate::manager::{Client, Identity, Manner, RunError, Setup, Source, manage, socket_path, step_within};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// At most so many steps at once
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
        let given = named.iter().filter_map(|(name, value)| value.as_ref().map(|value| format!("{name}={value}")));
        given.chain(self.requeue.then(|| "--requeue".to_owned())).collect()
    }
}

pub fn run(args: &RunArgs, origin: &Origin) -> Done {
    let Some(job) = own_job(origin) else { return submit(args, origin) };
    let paths = paths()?;
    if let Ok(first) = Client::open(&socket_path(&paths, job)) {
        return hand_over(args, origin, first);
    }
    let source = match args.file.as_str() {
        "-" => Source::Pipe,
        name => Source::File { name: name.to_owned(), path: PathBuf::from(origin.absolute(name)) },
    };
    let on_failure = match (args.keep_going, args.halt_on_failure) {
        (true, _) => Some(OnFailure::Skip),
        (false, true) => Some(OnFailure::Stop),
        (false, false) => None,
    };
    let run = origin.nonempty("SLURM_RESTART_COUNT").and_then(|count| count.parse().ok()).unwrap_or(0);
    let within = step_within(origin.nonempty("SLURM_STEP_ID"));
    let setup = Setup {
        identity: Identity { paths, job, run, client: client(false).process, within },
        source,
        on_failure,
        most_running: args.most,
        resume: args.resume || args.resume_failed,
        resume_failed: args.resume_failed,
        manner: if args.quiet { Manner::Quiet } else { Manner::Normal },
        work_dir: origin.cwd.clone(),
        umask: *origin.umask,
    };
    manage(setup, told).map_err(|e| CliError::error(1, format!("the manager cannot be started: {e}")))
}

/// Tells why a manager does not run, and how it ends then.
fn told(error: RunError) -> u8 {
    let hint = error.hint();
    let error = match error {
        RunError::Daemon(error) => CliError::from(error),
        other => CliError::error(1, other.to_string()),
    };
    output::tell("sjobmgr", &error.maybe_hint(hint));
    1
}

/// The manager that runs in this job takes the steps, and this process waits for them.
fn hand_over(args: &RunArgs, origin: &Origin, mut manager: Client) -> Done {
    tell("sjobmgr: a manager runs in this job already: it takes the steps\n");
    let text = match args.file.as_str() {
        "-" => std::io::read_to_string(std::io::stdin()),
        name => std::fs::read_to_string(origin.absolute(name)),
    };
    let text = text.map_err(|e| CliError::error(1, format!("could not read {}: {e}", args.file)))?;
    let gone = |e: std::io::Error| CliError::error(1, format!("the manager cannot be asked: {e}"));
    let dir = origin.cwd.to_string_lossy().into_owned();
    manager.ask(&Ask::Submit { file: args.file.clone(), text, dir }).map_err(gone)?;
    let mut names = Vec::new();
    loop {
        match answer(&mut manager)? {
            Event::Accepted { name } => names.push(name),
            Event::Changed { .. } if names.is_empty() => return Ok(0),
            Event::Changed { .. } => manager.ask(&Ask::Wait { names: names.clone() }).map_err(gone)?,
            Event::Waited { exit_code } => return Ok(u8::try_from(exit_code).unwrap_or(1)),
            _ => {}
        }
    }
}

/// A job of its own that runs this command.
fn submit(args: &RunArgs, origin: &Origin) -> Done {
    if args.file == "-" {
        let text = "this is not within a job, and standard input cannot go with one that is submitted";
        return Err(CliError::error(1, text).hint("name a file, or call sjobmgr within a job: sbatch, salloc"));
    }
    let file = origin.absolute(&args.file);
    if let Err(e) = std::fs::metadata(&file) {
        return Err(CliError::error(1, format!("could not read {}: {e}", args.file)));
    }
    let program = std::env::current_exe().map_err(|e| CliError::error(1, format!("this program is not found: {e}")))?;
    let mut own = vec![program.to_string_lossy().into_owned(), "sjobmgr".to_owned(), "run".to_owned()];
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
    let script = shlex::try_join(own.iter().map(String::as_str))
        .map_err(|e| CliError::error(1, format!("{}: {e}", args.file)).and(Mark::Bare, "use another name"))?;
    tell("sjobmgr: this is not within a job: a job is submitted that runs the steps\n");
    let mut words = vec!["sbatch".to_owned()];
    words.extend(args.job.words());
    if args.job.job_name.is_none() {
        words.push("--job-name=sjobmgr".to_owned());
    }
    words.push(format!("--wrap=exec {script}"));
    sbatch::run(&words.into_iter().map(OsString::from).collect::<Vec<_>>())
}
