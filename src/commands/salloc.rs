//! `salloc`: gets an allocation and runs a command or a shell in it.

use super::launch::{
    Reporter, all_streams, caller, check_work_dir, client, hand_in, print_defined,
    stays_until_back, verdict,
};
use super::output::print;
use super::output::print_stderr;
use super::{Done, Entry, not_immediate, paths, refused, submitting_origin, unexpected};
use crate::args::choices::{Applet, Reader, definition};
use crate::args::error::{CliError, Mark};
use crate::args::getopt::Operands;
use crate::args::headings::{DOES, WHEN};
use crate::args::job_env::Export;
use crate::args::job_values::immediate;
use crate::args::options::JobOpts;
use crate::args::origin::Origin;
use crate::args::submit::{Submission, own_batch_tasks, submit_line};
use crate::args::table::options;
use crate::args::value::value;
use crate::args::{extra, variables};
use crate::client::connection::{ClientError, Connection};
use crate::client::foreground::{
    Caller, Grant, StepOptions, StepOutcome, end_by_interrupt, run_step, wait_for_grant,
    wait_for_release,
};
use crate::commands::pages::texts;
use clap::Args;
use slotd_model::job::{Client, ClientProcess};
use slotd_model::request::JobKind;
use slotd_model::step_request::StepKind;
use slotd_model::view::JobView;
use slotd_model::{End, ExitCode, JobId, JobRequest, StepRequest};
use slotd_parse::script_tasks::script_tasks;
use slotd_parse::shell_command::{Commands, commands_of};
use slotd_protocol::answer::Answer;
use slotd_protocol::request::{Request, StepLaunch, Stream, Submit, TaskStreams};
use slotd_render::Columns;
use slotd_sys::system;
use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Salloc>, run, page: &texts::SALLOC };

const APPLET: Applet = Applet {
    operands: Operands::EndOptions,
    usage_exit: 255,
    extras: &[extra::SUBMIT, extra::SALLOC],
    variables: variables::salloc,
    submission: "Job submit/allocate failed",
    examples: &[
        ("salloc -c 4 -t 1:00:00", "run a shell with four CPUs for up to an hour"),
        ("salloc -G 1 python3 train.py", "run a command with a GPU"),
    ],
    ..Applet::new("salloc", "Get an allocation and run a command in it")
};

/// The wait after which the bell rings by default (salloc man page, --bell).
const BELL_AFTER: Duration = Duration::from_secs(10);

/// The number of bytes of a script to search for commands that start several tasks.
const MAX_SCRIPT: u64 = 1 << 20;

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub struct Salloc {
        #[command(flatten)]
        pub job: JobOpts,
        /// Fail unless the resources are available within this many seconds (immediately if no value is
        /// given)
        #[arg(short = 'I', long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "0", value_parser = value(immediate), help_heading = WHEN)]
        pub immediate: Option<u64>,
        /// Return once the allocation is granted, without running a command
        #[arg(long, help_heading = DOES)]
        pub no_shell: bool,
        /// Ring the terminal's bell when the allocation is granted
        #[arg(long, overrides_with = "no_bell", help_heading = DOES)]
        pub bell: bool,
        /// Do not ring the bell
        #[arg(long, overrides_with = "bell", help_heading = DOES)]
        pub no_bell: bool,
        /// The command and its arguments; the default is your shell
        #[arg(value_name = "COMMAND [ARGS]")]
        pub command: Vec<String>,
        /// The resulting job
        #[arg(skip)]
        pub request: JobRequest,
        /// The given options by name, for `-v`
        #[arg(skip)]
        pub defined: Vec<(String, String)>,
        /// The `SLURM_*` variables for options without effect, which its processes may read
        #[arg(skip)]
        pub option_variables: Vec<(&'static str, String)>,
    }
}

impl Salloc {
    /// Whether the terminal's bell rings after a wait of this length.
    pub fn rings(&self, waited: Duration) -> bool {
        self.bell || (waited > BELL_AFTER && !self.no_bell)
    }

    /// Returns the path of a program, without checking whether it is executable.
    fn find(&self, program: &str) -> Option<PathBuf> {
        let dir = Path::new(&self.request.work_dir);
        if program.contains('/') {
            return Some(dir.join(program)).filter(|path| path.exists());
        }
        let path =
            std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        std::env::split_paths(&path)
            .map(|place| dir.join(place).join(program))
            .find(|path| path.is_file())
    }

    /// Returns the text of the script that the command runs, directly or as the argument of a
    /// shell.
    fn script(&self, shell: &str) -> Option<String> {
        let (path, is_shells) = match commands_of(&self.command, shell) {
            Some(Commands::File(name)) => (Path::new(&self.request.work_dir).join(name), true),
            Some(Commands::Stdin | Commands::Argument) => return None,
            None => (self.find(self.command.first()?)?, false),
        };
        if !path.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        File::open(path).ok()?.take(MAX_SCRIPT).read_to_end(&mut bytes).ok()?;
        let is_script = is_shells && !bytes.contains(&0) || bytes.starts_with(b"#!");
        is_script.then(|| String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Parses a command line into an allocation.
///
/// # Errors
/// Fails with Slurm's messages for invalid options and values.
pub fn parse(argv: &[OsString], origin: &Origin) -> Result<Salloc, CliError> {
    let reader = Reader::scan::<Salloc>(APPLET, argv)?;
    reader.refuse_components(false)?;
    let (mut salloc, choices) = reader.finish::<Salloc>(origin, &[])?;
    // The job is not named after the command.
    let name = if salloc.no_shell { "no-shell" } else { "interactive" };
    let submission = Submission { job: &salloc.job, choices: &choices, origin };
    let mut request = submission.request(JobKind::Allocation, name, argv)?;
    submission.check_gpus(&request)?;
    request.immediate_secs = salloc.immediate;
    request.script_tasks = script_tasks(&submit_line(&salloc.command));
    request.batch_tasks = own_batch_tasks(origin)?;
    salloc.request = request;
    salloc.defined = choices.defined();
    salloc.option_variables = choices.option_variables();
    Ok(salloc)
}

pub fn run(argv: &[OsString]) -> Done {
    let origin = submitting_origin()?;
    let mut salloc = parse(argv, &origin)?;
    if salloc.job.common.verbose > 0 {
        print_defined("salloc", &salloc.defined);
    }
    if let Some(script) = salloc.script(&origin.shell) {
        let tasks = &mut salloc.request.script_tasks;
        *tasks = std::mem::take(tasks).min(script_tasks(&script));
    }
    Session { salloc, origin }.carry_out()
}

struct Session {
    salloc: Salloc,
    origin: Origin,
}

impl Session {
    fn say(&self, text: &str) {
        if !self.salloc.job.quiet {
            print_stderr(&format!("salloc: {text}\n"));
        }
    }

    fn carry_out(self) -> Done {
        check_work_dir(&self.salloc.request, "salloc")?;
        let mut caller = caller(paths()?);
        let (mut conn, job) = self.submit(&caller)?;
        caller.allocation = Some(job);
        let Some(view) = self.wait(&mut conn, &caller, job)? else { return Ok(1) };
        self.report_granted(job)?;
        if self.salloc.no_shell {
            return Ok(0);
        }
        if let Some(program) =
            self.salloc.command.first().filter(|program| self.salloc.find(program).is_none())
        {
            conn.send(&Request::Release { job, exit: ExitCode::status(1) }, &[])?;
            let _ = wait_for_release(&mut conn);
            print_stderr(&format!(
                "salloc: error: _fork_command: Unable to find command \"{program}\"\n"
            ));
            self.say(&release_message(job, Some(End::Completed)));
            return Ok(1);
        }
        let (launch, options) = self.plan(caller.client, &view);
        let env = Export { option: None, file: &[], new_job: false };
        let env = env.block(&self.origin, &self.salloc.option_variables);
        let mut reporter = Reporter::new("salloc", self.salloc.job.quiet);
        let outcome = match run_step(&mut conn, &caller, launch, &env, &options, &mut reporter) {
            Err(ClientError::Interrupted(signal)) => {
                return Ok(u8::try_from(128 + signal).unwrap_or(1));
            }
            other => other?,
        };
        let interrupted = matches!(&outcome, StepOutcome::Ended { record, .. } if reporter.was_interrupted(record.exit));
        let done = self.end(conn, job, outcome);
        if interrupted {
            end_by_interrupt();
        }
        done
    }

    fn submit(&self, caller: &Caller) -> Result<(Connection, JobId), CliError> {
        let submit = Submit {
            request: self.salloc.request.clone(),
            client: Client { until_granted: self.salloc.no_shell, ..client(true) },
            ..Submit::default()
        };
        match hand_in(&caller.paths, submit, &[], "salloc")? {
            (conn, Answer::Submitted { job }) => Ok((conn, job)),
            (_, Answer::Refused(why)) => Err(refused("Job submit/allocate failed", &why)
                .with_exit(self.origin.exit_code("SLURM_EXIT_ERROR"))),
            (_, other) => Err(unexpected(&other)),
        }
    }

    /// Waits for the allocation. Returns `None` if a signal ended the wait.
    fn wait(
        &self,
        conn: &mut Connection,
        caller: &Caller,
        job: JobId,
    ) -> Result<Option<Box<JobView>>, CliError> {
        let begun = Instant::now();
        let immediate = self.salloc.request.immediate_secs.is_some();
        let mut was_queued = false;
        let mut queued = || {
            if !immediate {
                was_queued = true;
                self.say(&format!("Pending job allocation {job}"));
                self.say(&format!("job {job} queued and waiting for resources"));
            }
        };
        let view = match wait_for_grant(conn, caller, job, &mut queued)? {
            Grant::Granted(view) => view,
            Grant::Ended(view) if immediate => return Err(not_immediate(&view, &self.origin)),
            Grant::Ended(_) => {
                return Err(CliError::new(Mark::Plain, 1, "Job has been cancelled")
                    .and(Mark::Plain, format!("Job allocation {job} has been revoked."))
                    .and(
                        Mark::Error,
                        "Job submit/allocate failed: Job/step already completing or completed",
                    ));
            }
            Grant::Interrupted { typed, is_withdrawn } => {
                if is_withdrawn {
                    self.say(&format!("Job allocation {job} has been revoked."))
                } else {
                    print_stderr(&format!("salloc: {}\n", stays_until_back(job)))
                }
                self.say("Job aborted due to signal");
                if typed {
                    end_by_interrupt();
                }
                return Ok(None);
            }
        };
        if was_queued {
            self.say(&format!("job {job} has been allocated resources"));
        }
        if self.salloc.rings(begun.elapsed()) && std::io::stdout().is_terminal() {
            print("\x07")?;
        }
        Ok(Some(view))
    }

    /// Prints the job ID to standard output, or to standard error like Slurm with Slurm's columns.
    fn report_granted(&self, job: JobId) -> Done {
        let line = format!("Granted job allocation {job}");
        match super::output::default_columns(&self.origin) {
            Columns::Slurm => self.say(&line),
            _ if self.salloc.job.quiet => {}
            _ => return print(&format!("{line}\n")),
        }
        Ok(0)
    }

    /// Plans the launch: the command once or for each task, or one shell. The daemon decides which,
    /// since this depends on its configuration.
    fn plan(&self, client: ClientProcess, view: &JobView) -> (StepLaunch, StepOptions) {
        // A shell that reads standard input runs once, because there is only one input. The user's
        // own shell also runs once if no command is given.
        let reads_stdin =
            commands_of(&self.salloc.command, &self.origin.shell) == Some(Commands::Stdin);
        let (argv, ntasks) = match self.salloc.command.as_slice() {
            [] => (vec![self.origin.shell.to_string(), "-i".to_owned()], 1),
            command if view.batch_ranks && !reads_stdin => {
                (command.to_vec(), view.request.task_count().max(1))
            }
            command => (command.to_vec(), 1),
        };
        let interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let argv = if self.salloc.command.is_empty() && !interactive {
            vec![self.origin.shell.to_string()]
        } else {
            argv
        };
        let options = if interactive && ntasks == 1 {
            StepOptions { pty: true, ..all_streams() }
        } else {
            StepOptions { as_is: true, ..all_streams() }
        };
        let none =
            TaskStreams { stdin: Stream::Null, stdout: Stream::Null, stderr: Stream::SameAsStdout };
        let launch = StepLaunch {
            job: view.id,
            client,
            uid: self.salloc.request.uid,
            request: StepRequest {
                kind: StepKind::Interactive,
                name: self.salloc.command.first().unwrap_or_else(|| &self.origin.shell).clone(),
                ntasks: Some(ntasks),
                overlap: true,
                overcommit: true,
                submit_line: self.salloc.request.submit_line.clone(),
                ..StepRequest::default()
            },
            argv: vec![argv],
            work_dir: self.salloc.request.work_dir.clone(),
            umask: Some(*self.origin.umask),
            rlimits: self.origin.propagated(None),
            streams: vec![none; ntasks as usize],
            ..StepLaunch::default()
        };
        (launch, options)
    }

    fn end(&self, mut conn: Connection, job: JobId, outcome: StepOutcome) -> Done {
        if let StepOutcome::JobEnded(view) = &outcome {
            self.say(&release_message(job, view.run.state.end()));
            return Ok(u8::try_from(view.run.exit.as_shell()).unwrap_or(1).max(1));
        }
        let node = system::probe_host_name();
        let result = verdict(&node, job, &outcome);
        let code = match &result {
            Ok((code, _)) => *code,
            Err(error) => u8::try_from(error.exit).unwrap_or(1),
        };
        let exit = outcome.exit();
        conn.send(&Request::Release { job, exit }, &[])?;
        // Wait until the daemon has released the allocation, so that the next command of a script
        // finds the resources free.
        let end = wait_for_release(&mut conn).ok().flatten();
        self.say(&release_message(job, end));
        result.map(|_| code)
    }
}

/// Returns Slurm's message for the end of an allocation, whether released or revoked.
fn release_message(job: JobId, end: Option<End>) -> String {
    match end {
        Some(End::Timeout) => {
            format!("Job {job} has exceeded its time limit and its allocation has been revoked.")
        }
        Some(End::Cancelled | End::OutOfMemory | End::NodeFail | End::Preempted) => {
            format!("Job allocation {job} has been revoked.")
        }
        Some(End::Completed | End::Failed) | None => {
            format!("Relinquishing job allocation {job}")
        }
    }
}
