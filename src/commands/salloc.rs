//! `salloc`: an allocation, and a command or a shell inside it.

pub mod args;
pub mod options;

use super::output::print;
use super::tasks::{Reporter, all_streams, caller, check_work_dir, client, hand_in, tell, verdict};
use super::{Done, Entry, paths, refused, submitting_origin, unexpected};
use crate::args::choices::definition;
use crate::args::error::{CliError, Mark};
use crate::args::job_env::Export;
use crate::client::connection::{ClientError, Connection};
use crate::client::foreground::{Grant, StepOptions, StepOutcome, end_by_interrupt, run_step, wait_for_grant};
use crate::commands::pages::texts;
use crate::commands::salloc::args::{Salloc, parse};
use crate::model::batch_tasks::BatchTasks;
use crate::model::job::ClientProcess;
use crate::model::request::ExportSpec;
use crate::model::step_request::StepKind;
use crate::model::{ExitCode, JobId, JobState, StepRequest};
use crate::protocol::answer::Answer;
use crate::protocol::request::{Request, StepLaunch, Stream, Submit, TaskStreams};
use crate::sys::{limits, system};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;

/// This command in the table of all.
pub const ENTRY: Entry =
    Entry { applet: args::APPLET, define: definition::<options::SallocOpts>, run, page: &texts::SALLOC };

pub fn run(argv: &[OsString]) -> Done {
    let origin = submitting_origin()?;
    let slurm = std::env::var_os("SLOTD_OUTPUT").is_some_and(|v| v == "slurm");
    let spec = ExportSpec::default();
    let env = Export { spec: &spec, written: None, file: &[], new_job: false }.block(&origin);
    let salloc = parse(argv, &origin)?;
    if salloc.verbose > 0 {
        super::sbatch::report("salloc", &salloc.defined);
    }
    Session { salloc, env, shell: origin.shell.clone(), umask: origin.umask, slurm }.carry_out()
}

struct Session {
    salloc: Salloc,
    env: Vec<u8>,
    shell: String,
    umask: u32,
    /// `SLOTD_OUTPUT=slurm`.
    slurm: bool,
}

impl Session {
    fn say(&self, text: &str) {
        if !self.salloc.quiet {
            tell(&format!("salloc: {text}\n"));
        }
    }

    fn carry_out(self) -> Done {
        check_work_dir(&self.salloc.request, "salloc")?;
        let mut caller = caller(paths()?);
        let request = self.salloc.request.clone();
        let submit = Submit {
            request,
            script_len: 0,
            wait: self.salloc.no_shell,
            test_only: false,
            client: client(!self.salloc.no_shell),
            again: false,
        };
        let (mut conn, answer) = hand_in(&caller.paths, submit, &[], "salloc")?;
        let job = match answer {
            Answer::Submitted { job } => job,
            Answer::Refused(why) => {
                return Err(refused("Job submit/allocate failed", &why).with_exit(self.salloc.error_exit));
            }
            other => return Err(unexpected(&other)),
        };
        caller.allocation = Some(job);
        let mut told = false;
        let mut queued = || {
            if self.salloc.request.immediate_secs.is_some() {
                return;
            }
            told = true;
            self.say(&format!("Pending job allocation {job}"));
            self.say(&format!("job {job} queued and waiting for resources"));
        };
        let view = match wait_for_grant(&mut conn, &caller, job, &mut queued)? {
            Grant::Granted(view) => view,
            Grant::Ended(_) if self.salloc.request.immediate_secs.is_some() => {
                let text = "Unable to allocate resources: Requested nodes are busy";
                return Err(CliError::error(self.salloc.immediate_exit, text));
            }
            Grant::Ended(_) => {
                return Err(CliError::new(Mark::Plain, 1, "Job has been cancelled")
                    .and(Mark::Plain, format!("Job allocation {job} has been revoked."))
                    .and(Mark::Error, "Job submit/allocate failed: Job/step already completing or completed"));
            }
            Grant::Interrupted { typed } => {
                self.say(&format!("Job allocation {job} has been revoked."));
                self.say("Job aborted due to signal");
                if self.salloc.no_shell {
                    cancel(&mut conn, job);
                }
                if typed {
                    end_by_interrupt();
                }
                return Ok(1);
            }
        };
        if told {
            self.say(&format!("job {job} has been allocated resources"));
        }
        if self.slurm {
            self.say(&format!("Granted job allocation {job}"));
        } else if !self.salloc.quiet {
            // The book's line, on the stream of its example.
            print(&format!("Granted job allocation {job}\n"))?;
        }
        if self.salloc.no_shell {
            return Ok(0);
        }
        if let Some(program) = self.salloc.command.first().filter(|program| !self.is_found(program)) {
            conn.send(&Request::Release { job, exit: ExitCode::status(1) }, &[])?;
            let _ = wait_end(&mut conn);
            tell(&format!("salloc: error: _fork_command: Unable to find command \"{program}\"\n"));
            self.say(&farewell(job, JobState::Completed));
            return Ok(1);
        }
        let (launch, options) = self.plan(job, caller.client, view.request.task_count());
        let mut reporter = Reporter::new("salloc", self.salloc.quiet);
        let outcome = match run_step(&mut conn, &caller, launch, &self.env, &options, &mut reporter) {
            Err(ClientError::Interrupted(signal)) => return Ok(u8::try_from(128 + signal).unwrap_or(1)),
            other => other?,
        };
        let interrupted =
            matches!(&outcome, StepOutcome::Ended { record, .. } if reporter.was_interrupted(record.exit));
        let done = self.end(conn, job, outcome);
        if interrupted {
            end_by_interrupt();
        }
        done
    }

    /// Whether there is a file to run. Whether it may be run shows when it is.
    fn is_found(&self, program: &str) -> bool {
        let dir = Path::new(&self.salloc.work_dir);
        if program.contains('/') {
            return dir.join(program).exists();
        }
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        std::env::split_paths(&path).any(|place| dir.join(place).join(program).is_file())
    }

    /// The command, for each task or once; or one shell.
    fn plan(&self, job: JobId, client: ClientProcess, tasks: u32) -> (StepLaunch, StepOptions) {
        let ranks = self.salloc.request.task_rule(BatchTasks::Auto).ranks;
        let (argv, ntasks) = match self.salloc.command.as_slice() {
            [] => (vec![self.shell.clone(), "-i".to_owned()], 1),
            command => (command.to_vec(), if ranks { tasks.max(1) } else { 1 }),
        };
        let interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let argv = if self.salloc.command.is_empty() && !interactive { vec![self.shell.clone()] } else { argv };
        let options = if interactive && ntasks == 1 {
            StepOptions { pty: true, ..all_streams() }
        } else {
            StepOptions { as_is: true, ..all_streams() }
        };
        let none = TaskStreams { stdin: Stream::Null, stdout: Stream::Null, stderr: Stream::SameAsStdout };
        let launch = StepLaunch {
            job,
            client,
            again: false,
            request: StepRequest {
                kind: StepKind::Interactive,
                name: self.salloc.command.first().unwrap_or(&self.shell).clone(),
                ntasks: Some(ntasks),
                overlap: true,
                overcommit: true,
                submit_line: self.salloc.request.submit_line.clone(),
                ..StepRequest::default()
            },
            argv: vec![argv],
            work_dir: self.salloc.work_dir.clone(),
            umask: Some(self.umask),
            rlimits: limits::propagated().into_iter().map(|(_, limit)| limit).collect(),
            streams: vec![none; ntasks as usize],
            pty: false,
            tie: None,
            label: false,
        };
        (launch, options)
    }

    fn end(&self, mut conn: Connection, job: JobId, outcome: StepOutcome) -> Done {
        if let StepOutcome::JobEnded(view) = &outcome {
            self.say(&farewell(job, view.run.state));
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
        // Given back when the daemon says so: the next command of a script finds the resources free.
        let state = wait_end(&mut conn).unwrap_or(JobState::Completed);
        self.say(&farewell(job, state));
        result.map(|_| code)
    }
}

fn wait_end(conn: &mut Connection) -> Result<JobState, ClientError> {
    loop {
        if let Answer::Ended { view } = conn.receive()?.0 {
            return Ok(view.run.state);
        }
    }
}

/// What Slurm says when an allocation is over: given back, or taken away.
fn farewell(job: JobId, state: JobState) -> String {
    match state {
        JobState::Timeout => format!("Job {job} has exceeded its time limit and its allocation has been revoked."),
        JobState::Cancelled | JobState::OutOfMemory => format!("Job allocation {job} has been revoked."),
        JobState::Pending
        | JobState::Running
        | JobState::Suspended
        | JobState::Completing
        | JobState::Completed
        | JobState::Failed => format!("Relinquishing job allocation {job}"),
    }
}

fn cancel(conn: &mut Connection, job: JobId) {
    let ask = crate::protocol::request::CancelAsk {
        query: crate::model::query::JobQuery::of(vec![crate::model::JobRef::job(job)]),
        ..crate::protocol::request::CancelAsk::default()
    };
    let _ = conn.ask(&Request::Cancel(ask), &[]);
}
