//! `slotd submit`: many jobs in one call, for tools. Each line of standard input is a job, and has
//! a line as its answer.
//!
//! What the options come to is worked out once for all lines that have the same. Jobs that are
//! there together travel together; a tool that waits for each answer gets it at once.

use super::launch::{Copied, check_work_dir, client, note_tree, take_snapshot};
use super::output::print;
use super::sbatch::{self, Sbatch, Text};
use super::{Done, paths, refused, submitting_origin, unexpected};
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::args::submit::submit_line;
use crate::client::connection::Connection;
use crate::model::{JobId, JobRequest};
use crate::parse;
use crate::parse::directive::Directive;
use crate::parse::script_tasks::script_tasks;
use crate::protocol::answer::Answer;
use crate::protocol::request::{OneOfMany, Request, SubmitMany};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;

/// What is read at once, bytes: many lines of a tool that writes many.
const READ: usize = 256 << 10;

/// A batch of jobs holds no more jobs, and hardly more bytes of scripts, than these.
const MOST_JOBS: usize = 1000;
const MOST_BYTES: usize = 1 << 20;

/// The longest line, bytes.
const MOST_LINE: usize = 8 << 20;

/// The most options that a line may have, those of its script included. People and tools give a
/// dozen.
const MOST_OPTIONS: usize = 1000;

/// Templates that are remembered at once.
const MOST_TEMPLATES: usize = 1000;

/// Parcels that are under way at once: one is read and made while the daemon works on another.
const UNDER_WAY: usize = 2;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  echo '{\"wrap\": \"make test\", \"name\": \"test\"}' | slotd submit -c 2 --mem=1G"
)]
pub struct SubmitArgs {
    /// Options of sbatch for all jobs: -p cpu --mem=1G
    #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

/// A job, as a line of JSON: a script or a command, and what is its own beside.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    /// The text of a batch script. Its directives count.
    script: Option<String>,
    /// Or a command, as of `sbatch --wrap`.
    wrap: Option<String>,
    name: Option<String>,
    /// Of the script.
    #[serde(default)]
    args: Vec<String>,
    /// Options of sbatch, after those of the command line.
    #[serde(default)]
    options: Vec<String>,
}

/// What a line comes to.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Job(JobId),
    Error(String),
}

#[derive(Debug, PartialEq, Serialize)]
struct LineAnswer {
    line: usize,
    #[serde(flatten)]
    outcome: Outcome,
}

/// What the options and directives of lines come to, and their environment.
#[derive(Debug, Clone)]
struct Template {
    request: JobRequest,
    env: Vec<u8>,
}

/// All on which a [`Template`] depends.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TemplateKey {
    options: Vec<String>,
    directives: Vec<(usize, Vec<String>)>,
    is_wrapped: bool,
}

/// Makes jobs of lines.
struct Maker<'a> {
    options: Vec<String>,
    origin: &'a Origin,
    templates: HashMap<TemplateKey, Template>,
    /// One for all lines with the same options.
    copies: Vec<Copied>,
}

/// A job that can be handed in.
struct Made {
    request: JobRequest,
    script: Vec<u8>,
    env: Vec<u8>,
}

impl Maker<'_> {
    fn make(&mut self, text: &[u8]) -> Result<Made, CliError> {
        let line: Line = serde_json::from_slice(text).map_err(|error| {
            // Each line is a text of its own.
            let what = error.to_string().replace(" at line 1 column ", " at column ");
            CliError::error(1, format!("this is no job: {what}"))
                .hint(r##"{"script": "#!/bin/sh\n…"} or {"wrap": "command"}"##)
        })?;
        let (script, command) = match (line.script, line.wrap) {
            (Some(script), None) => (script, None),
            (None, Some(command)) if line.args.is_empty() => {
                (sbatch::wrapped(&command), Some(command))
            }
            (None, Some(_)) => {
                return Err(CliError::error(
                    1,
                    "args are for a script: write those of wrap into it",
                ));
            }
            (Some(_), Some(_)) => {
                return Err(CliError::error(1, "a job has a script or a wrap, not both"));
            }
            (None, None) => return Err(CliError::error(1, "a job needs a script or a wrap")),
        };
        parse::script::check(script.as_bytes()).map_err(|error| sbatch::refuse(&error))?;
        if let Some(word) = line.options.iter().chain(&line.args).find(|word| word.contains('\0')) {
            return Err(CliError::error(1, format!("{word:?} has a zero byte in it"))
                .hint("no program can get one"));
        }
        let mut directives = Vec::new();
        if command.is_none() {
            let found =
                parse::directive::directives(&script).map_err(|error| sbatch::refuse(&error))?;
            directives.extend(found.into_iter().map(|Directive { line, words }| (line, words)));
        }
        let count = line.options.len()
            + directives.iter().map(|(_, words): &(_, Vec<_>)| words.len()).sum::<usize>();
        if count > MOST_OPTIONS {
            let text = format!("a job has {count} options: {MOST_OPTIONS} are the most");
            return Err(
                CliError::error(1, text).hint("pass values to the script as args, or in a file")
            );
        }
        let key = TemplateKey { options: line.options, directives, is_wrapped: command.is_some() };
        let Template { mut request, env } = self.template(key, &script)?;
        request
            .submit_line
            .extend(command.map(|command| format!(" --wrap {}", submit_line(&[command]))));
        request.script_tasks = script_tasks(&script);
        request.args = line.args;
        request.name = line.name.unwrap_or(request.name);
        Ok(Made { request, script: script.into_bytes(), env })
    }

    /// `script` has the directives of the key.
    fn template(&mut self, key: TemplateKey, script: &str) -> Result<Template, CliError> {
        if let Some(known) = self.templates.get(&key) {
            return Ok(known.clone());
        }
        let words = ["sbatch"].into_iter().map(str::to_owned);
        let mut argv: Vec<OsString> = words
            .chain(self.options.iter().chain(&key.options).cloned())
            .map(OsString::from)
            .collect();
        if key.is_wrapped {
            argv.push("--wrap=true".into());
        }
        let read = |text: Text<'_>| match text {
            Text::Stdin => Ok(script.as_bytes().to_vec()),
            other => sbatch::read(other),
        };
        let parsed = sbatch::parse(&argv, self.origin, &read).map_err(no_text)?;
        let Sbatch { mut request, texts, wait, test_only, snapshot, .. } = parsed;
        if wait || test_only {
            let text = "--wait and --test-only are for one job: submit many, and wait for them by their numbers";
            return Err(CliError::error(1, text));
        }
        check_work_dir(&request, "slotd submit")?;
        if snapshot {
            self.copies.push(take_snapshot(&mut request, &paths()?)?);
        }
        let mut template = Template { request, env: texts.env };
        template.request.submit_line =
            submit_line(&argv[..argv.len() - usize::from(key.is_wrapped)]);
        if self.templates.len() >= MOST_TEMPLATES {
            self.templates.clear();
        }
        self.templates.insert(key, template.clone());
        Ok(template)
    }
}

/// Options that print a text submit no job: each line of standard output is an answer.
fn no_text(error: CliError) -> CliError {
    if error.output.is_empty() {
        error
    } else {
        CliError::error(1, "--help, --usage and --version submit no job")
            .hint("run `sbatch --help`")
    }
}

/// Lines that are answered together: those that are no jobs have their answer already.
#[derive(Default)]
struct LineBatch {
    /// The lines, and what is wrong with each that is no job.
    lines: Vec<(usize, Option<String>)>,
    jobs: Vec<OneOfMany>,
    env: Vec<u8>,
    scripts: Vec<u8>,
}

impl LineBatch {
    fn is_full(&self) -> bool {
        self.lines.len() >= MOST_JOBS || self.scripts.len() >= MOST_BYTES
    }

    /// Whether jobs with this environment can go with these.
    fn takes(&self, env: &[u8]) -> bool {
        self.jobs.is_empty() || self.env == env
    }

    fn push(&mut self, line: usize, made: Result<Made, CliError>) {
        match made {
            Ok(Made { request, script, env }) => {
                self.jobs.push(OneOfMany { request, script_len: script.len() });
                self.scripts.extend(script);
                self.env = env;
                self.lines.push((line, None));
            }
            Err(error) => self.lines.push((line, Some(in_words(&error)))),
        }
    }
}

/// The text of a refusal for a program: without the marks of a terminal.
fn in_words(error: &CliError) -> String {
    error.lines.iter().map(|(_, line)| line.trim()).collect::<Vec<_>>().join("\n")
}

/// The daemon, and the lines of each batch that it has not answered.
struct Unanswered {
    daemon: Connection,
    under_way: VecDeque<Vec<(usize, Option<String>)>>,
    all_taken: bool,
}

impl Unanswered {
    fn hand_in(&mut self, batch: LineBatch) -> Result<(), CliError> {
        let LineBatch { lines, mut jobs, env, scripts } = batch;
        note_trees(&mut jobs);
        self.under_way.push_back(lines);
        let request = SubmitMany { jobs, env_len: env.len(), client: client(false).process };
        self.daemon.send(&Request::SubmitMany(request), &[env, scripts].concat())?;
        if self.under_way.len() > UNDER_WAY { self.answer() } else { Ok(()) }
    }

    fn answer_all(&mut self) -> Result<(), CliError> {
        while !self.under_way.is_empty() {
            self.answer()?;
        }
        Ok(())
    }

    /// Tells what came of the oldest batch.
    fn answer(&mut self) -> Result<(), CliError> {
        let taken = match self.daemon.receive()?.0 {
            Answer::SubmittedMany(taken) => taken,
            Answer::Refused(why) => return Err(refused("Batch job submission failed", &why)),
            other => return Err(unexpected(&other)),
        };
        let mut taken = taken.into_iter();
        let mut text = String::new();
        for (line, wrong) in self.under_way.pop_front().unwrap_or_default() {
            let outcome = match wrong {
                Some(wrong) => Outcome::Error(wrong),
                None => match taken.next() {
                    Some(Ok(job)) => Outcome::Job(job),
                    Some(Err(why)) => {
                        Outcome::Error(in_words(&refused("Batch job submission failed", &why)))
                    }
                    None => {
                        return Err(CliError::error(
                            1,
                            "the daemon answered fewer jobs than it was asked for",
                        ));
                    }
                },
            };
            self.all_taken &= matches!(outcome, Outcome::Job(_));
            text += &serde_json::to_string(&LineAnswer { line, outcome }).unwrap_or_default();
            text.push('\n');
        }
        print(&text).map(drop)
    }
}

/// Notes the work trees of jobs that are handed in together. Most are in one directory.
fn note_trees(jobs: &mut [OneOfMany]) {
    let mut last: Option<JobRequest> = None;
    for OneOfMany { request, .. } in jobs {
        let known = last
            .as_ref()
            .filter(|last| last.work_dir == request.work_dir && request.snapshot.is_none());
        match known {
            Some(last) => request.tree.clone_from(&last.tree),
            None => {
                note_tree(request);
                last = Some(JobRequest {
                    work_dir: request.work_dir.clone(),
                    tree: request.tree.clone(),
                    ..JobRequest::default()
                });
            }
        }
    }
}

pub fn run(args: &SubmitArgs) -> Done {
    let origin = submitting_origin()?;
    let mut maker = Maker {
        options: args.options.clone(),
        origin: &origin,
        templates: HashMap::new(),
        copies: Vec::new(),
    };
    // What is wrong with the options of all is told before a line is read.
    let plain = TemplateKey { options: Vec::new(), directives: Vec::new(), is_wrapped: true };
    maker.template(plain, "")?;
    let mut unanswered = Unanswered {
        daemon: Connection::open(&paths()?)?,
        under_way: VecDeque::new(),
        all_taken: true,
    };
    let done = submit_all(&mut maker, &mut unanswered);
    done.map_err(|error| match unanswered.under_way.front().and_then(|lines| lines.first()) {
        Some((line, _)) => error.and(
            Mark::Error,
            format!(
                "line {line} and those after it have no answer: look with `squeue` or `sacct` which of them are jobs"
            ),
        ),
        None => error,
    })?;
    Ok(u8::from(!unanswered.all_taken))
}

fn submit_all(maker: &mut Maker<'_>, unanswered: &mut Unanswered) -> Result<(), CliError> {
    let stdin = io::stdin();
    let mut input = BufReader::with_capacity(READ, stdin.lock());
    let mut batch = LineBatch::default();
    let mut number = 0;
    while let Some(text) = next_line(&mut input)? {
        number += 1;
        let text = text.trim_ascii();
        if !text.is_empty() {
            let made = maker.make(text);
            if made.as_ref().is_ok_and(|made| !batch.takes(&made.env)) {
                unanswered.hand_in(std::mem::take(&mut batch))?;
            }
            batch.push(number, made);
        }
        let has_more = input.buffer().contains(&b'\n');
        if batch.is_full() || (!has_more && !batch.lines.is_empty()) {
            unanswered.hand_in(std::mem::take(&mut batch))?;
        }
        if !has_more && !is_readable(&stdin) {
            unanswered.answer_all()?;
        }
    }
    unanswered.answer_all()
}

/// The next line, which the last one need not end; `None` where there is no more.
fn next_line(input: &mut impl BufRead) -> Result<Option<Vec<u8>>, CliError> {
    let mut line = Vec::new();
    let read = input.take(MOST_LINE as u64 + 1).read_until(b'\n', &mut line);
    read.map_err(|error| CliError::error(1, format!("standard input cannot be read: {error}")))?;
    if line.len() > MOST_LINE {
        return Err(CliError::error(1, format!("a line is longer than {} MB", MOST_LINE >> 20)));
    }
    Ok((!line.is_empty()).then_some(line))
}

/// Whether something can be read, or there is no more.
fn is_readable(stdin: &io::Stdin) -> bool {
    let mut asked = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    // What cannot be asked is waited for by the read.
    poll(&mut asked, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}
