//! The exchange with a cluster about a submission, until its outcome is known or cannot be.

use super::super::remote::{Remote, UNKNOWN};
use super::staged::{Begin, Staged};
use super::{Batch, directive};
use crate::args::error::CliError;
use crate::clusters::config::Cluster;
use crate::clusters::link::{Ended, Input, Output};
use crate::clusters::program::{self, Launch, Start};
use crate::clusters::token::{self, Action, Answer, Fact, Job, Outcome, Submission};
use crate::commands::output::print_stderr;
use slotd_sys::clock;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::Duration;

/// The maximum number of connections for a submission, if all break before anything is sent.
const TRIES: u32 = 3;

/// The pause after which a message explains why sbatch waits, in seconds.
const NOTE_AFTER: u64 = 3;

/// A submission whose outcome is being determined: whether there is a job, and which one.
pub struct Settling<'a> {
    pub cluster: &'a Cluster,
    pub token: &'a str,
    /// The number of days in which sacct looks for the job.
    pub days: u64,
    /// The user wants the job to be held, so it is not released.
    pub keeps_hold: bool,
}

impl Settling<'_> {
    /// Carries out actions until the submission has ended. `submit` makes an attempt, or asks for
    /// its answer, and may end the submission itself. `note` is called ahead of each wait with its
    /// length in seconds.
    pub fn run(
        &self,
        mut submission: Submission,
        submit: &mut dyn FnMut(u32, bool) -> ControlFlow<Outcome, Fact>,
        note: &mut dyn FnMut(u64),
    ) -> Outcome {
        let now = || clock::monotonic().as_secs();
        loop {
            match submission.next(now()) {
                Action::Submit { attempt, held } => match submit(attempt, held) {
                    ControlFlow::Continue(fact) => submission.note(fact, now()),
                    ControlFlow::Break(outcome) => return outcome,
                },
                Action::LookUp => {
                    submission.note(look_up(self.cluster, self.token, self.days), now())
                }
                Action::Release(_) if self.keeps_hold => submission.acted(true, now()),
                Action::Release(job) => {
                    let done = act(self.cluster, &program::release(job), "scontrol");
                    submission.acted(done, now());
                }
                Action::Cancel(job) => {
                    let done = act(self.cluster, &program::cancel(job), "scancel");
                    submission.acted(done, now());
                }
                Action::Wait(seconds) => {
                    note(seconds);
                    // Wait until the next query is due: a cluster sends no events.
                    std::thread::sleep(Duration::from_secs(seconds));
                }
                Action::Finish(outcome) => return outcome,
            }
        }
    }
}

/// The exchange with a cluster about one submission.
pub struct Exchange<'a> {
    pub cluster: &'a Cluster,
    pub token: String,
    pub job: &'a Batch,
    pub options: Vec<String>,
    pub staged: Staged,
    /// The last answer of sbatch, or the messages of a failed stage.
    pub answer: Option<Output>,
    pub not_reached: Option<Ended>,
    /// The attempt on which the cluster has reported, or 0.
    pub reported: u32,
    /// The user wants the job to be held.
    pub keeps_hold: bool,
}

impl Exchange<'_> {
    /// Submits the job, and returns once nothing more can be found out. Explains a long wait.
    pub fn settle(&mut self) -> Outcome {
        let settling = Settling {
            cluster: self.cluster,
            token: &self.token.clone(),
            days: 2,
            keeps_hold: self.keeps_hold,
        };
        let (name, token) = (&self.cluster.name, settling.token);
        let mut waited = 0;
        let mut note = |seconds| {
            if waited < NOTE_AFTER && waited + seconds >= NOTE_AFTER {
                print_stderr(&format!(
                    "sbatch: cluster {name} has not reported whether it accepted the job; asking again for a few minutes. After Ctrl-C: slotd cluster resolve {token}\n"
                ));
            }
            waited += seconds;
        };
        let mut submit = |attempt, held| ControlFlow::Continue(self.submit(attempt, held));
        settling.run(Submission::new(), &mut submit, &mut note)
    }

    fn submit(&mut self, attempt: u32, held: bool) -> Fact {
        let mut tries = 1;
        loop {
            let fact = self.try_to_submit(attempt, held);
            // A connection that breaks before the program starts has sent nothing.
            let is_transient = self.not_reached.as_ref().is_some_and(|ended| match ended {
                Ended::NotReached(printed) => broke_early(printed),
                Ended::Missing | Ended::Broken | Ended::Code(_) => false,
            });
            if fact != Fact::NotReached || !is_transient || tries == TRIES {
                return fact;
            }
            tries += 1;
        }
    }

    fn try_to_submit(&mut self, attempt: u32, held: bool) -> Fact {
        let mut options = self.options.clone();
        if held {
            options.insert(0, "--hold".to_owned());
        }
        let launch = Launch {
            attempt,
            again: self.reported == attempt,
            script: &self.job.name,
            options: &options,
            arguments: &self.job.arguments,
            start: match &self.staged.start {
                Begin::Copy(below) => Start::Copy(below),
                Begin::Path(path) => Start::Path(path),
            },
            overrides_cluster: directive(&self.job.text).is_some(),
        };
        let place = program::Place { dir: &self.cluster.dir, token: &self.token };
        let body = program::submit(place, &launch);
        let stage = &self.staged.stage;
        let failure = std::sync::Mutex::new(None);
        let output = Remote::new(self.cluster, &body, "sbatch").and_then(|remote| {
            remote.output(Input::From(Box::new(|to| {
                let packed = stage.pack(to);
                if let Err(error) = &packed
                    && error.kind() != io::ErrorKind::BrokenPipe
                    && let Ok(mut failure) = failure.lock()
                {
                    *failure = Some(error.to_string());
                }
                packed
            })))
        });
        if let Some(why) = failure.into_inner().ok().flatten() {
            print_stderr(&format!("sbatch: error: cannot copy the work tree: {why}\n"));
        }
        match output {
            Ok(output) => {
                let fact = self.fact(output);
                if matches!(fact, Fact::Running(_) | Fact::Answered { .. }) {
                    self.reported = attempt;
                }
                fact
            }
            Err(error) => {
                print_stderr(&error.text("sbatch"));
                Fact::NotReached
            }
        }
    }

    fn fact(&mut self, output: Output) -> Fact {
        match &output.ended {
            ended @ (Ended::NotReached(_) | Ended::Missing) => {
                self.not_reached = Some(ended.clone());
                Fact::NotReached
            }
            Ended::Broken => {
                self.not_reached = None;
                Fact::Broken
            }
            Ended::Code(_) => {
                let (fact, answer) = read_report(&output.out, output.err);
                self.not_reached = None;
                self.answer = answer.or(self.answer.take());
                if matches!(fact, Fact::Answered { answer: Answer::Strange, .. }) {
                    self.report_strange();
                }
                fact
            }
        }
    }

    /// Prints the output of an sbatch whose end does not show whether there is a job, before it is
    /// looked up.
    fn report_strange(&mut self) {
        let Some(Output { ended: Ended::Code(code), out, err }) = &mut self.answer else { return };
        // An error on standard error cannot be reported anywhere.
        let _ = io::stderr().write_all(&[std::mem::take(out), std::mem::take(err)].concat());
        print_stderr(&format!(
            "sbatch: error: sbatch of cluster {} exited with {code}, which does not show whether there is a job; looking for it\n",
            self.cluster.name
        ));
    }

    /// Returns the ID of a job whose ID sbatch did not print.
    ///
    /// # Errors
    /// Fails if the cluster does not report the ID.
    pub fn found(&self) -> Result<u64, CliError> {
        match look_up(self.cluster, &self.token, 2) {
            Fact::Jobs { jobs, .. } if !jobs.is_empty() => Ok(jobs[0].id),
            _ => Err(CliError::error(
                UNKNOWN,
                format!(
                    "the job was submitted, but cluster {} does not report its ID",
                    self.cluster.name
                ),
            )
            .hint(format!("slotd cluster resolve {}", self.token))),
        }
    }
}

/// Returns whether ssh reports that an existing connection broke, and not that there is none.
fn broke_early(printed: &str) -> bool {
    ["closed by", "reset by peer", "Broken pipe"].iter().any(|text| printed.contains(text))
}

/// Reads the report of a program about a submission, and sbatch's answer in it.
pub fn read_report(out: &[u8], err: Vec<u8>) -> (Fact, Option<Output>) {
    let (first, rest) =
        out.split_at(out.iter().position(|byte| *byte == b'\n').map_or(out.len(), |at| at + 1));
    let first = String::from_utf8_lossy(first);
    let words: Vec<&str> = first.split_whitespace().collect();
    let seconds = |word: &str| word.parse::<i64>().map_or(0, |age| u64::try_from(age).unwrap_or(0));
    match words.as_slice() {
        ["answered", code, age] => {
            let code = code.parse().unwrap_or(1);
            let answer = token::interpret(code, rest, &err);
            let output = Output { ended: Ended::Code(code), out: rest.to_vec(), err };
            (Fact::Answered { age: seconds(age), answer }, Some(output))
        }
        ["running", age] => (Fact::Running(seconds(age)), None),
        ["none"] => (Fact::NoTrace, None),
        ["stage"] => {
            let output = Output { ended: Ended::Code(1), out: Vec::new(), err };
            (Fact::NoStage, Some(output))
        }
        // The program itself failed, which does not show whether sbatch ran.
        _ => (Fact::Broken, None),
    }
}

/// Looks for jobs with a token.
fn look_up(cluster: &Cluster, token: &str, days: u64) -> Fact {
    let output = Remote::new(cluster, &program::look_up(token, days), "squeue")
        .and_then(|remote| remote.output(Input::Nothing));
    match output {
        Ok(Output { ended: Ended::Code(_), out, .. }) => {
            let found = program::looked_up(&out);
            let jobs = found.jobs.into_iter().map(|id| Job { id }).collect();
            Fact::Jobs { jobs, whole: found.whole }
        }
        _ => Fact::Broken,
    }
}

/// Runs a program and returns whether it succeeded.
fn act(cluster: &Cluster, body: &[u8], needs: &str) -> bool {
    let output = Remote::new(cluster, body, needs).and_then(|remote| remote.output(Input::Nothing));
    output.is_ok_and(|output| output.ended == Ended::Code(0))
}
