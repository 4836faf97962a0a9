//! `slotd submit`: submits many jobs in one call, for tools. Each line of standard input is a job
//! and is answered by a line.
//!
//! Options are parsed once for all lines that have the same. Lines that arrive together are sent
//! together, but a tool that waits for each answer gets it immediately.

use super::launch::{Copied, check_work_dir, client, note_tree, take_snapshot};
use super::output::print;
use super::sbatch::{self, Sbatch, Text};
use super::{Done, paths, refused, submitting_origin, unexpected};
use crate::args::error::{CliError, Mark};
use crate::args::origin::Origin;
use crate::args::submit::submit_line;
use crate::client::connection::Connection;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};
use slotd_model::{JobId, JobRequest};
use slotd_parse::directive::Directive;
use slotd_parse::script_tasks::script_tasks;
use slotd_protocol::answer::Answer;
use slotd_protocol::request::{OneOfMany, Request, SubmitMany};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;

/// Size of the input buffer in bytes: many lines of a fast writer.
const READ: usize = 256 << 10;

/// Maximum size of a batch: jobs, and bytes of scripts, which the last job may exceed.
const MOST_JOBS: usize = 1000;
const MOST_BYTES: usize = 1 << 20;

/// Maximum length of a line, in bytes.
const MOST_LINE: usize = 8 << 20;

/// Maximum number of options of a line, including those of its script. People and tools use a
/// dozen.
const MOST_OPTIONS: usize = 1000;

/// Maximum number of cached templates.
const MOST_TEMPLATES: usize = 1000;

/// Maximum number of unanswered batches: one is prepared while the daemon works on another.
const IN_FLIGHT: usize = 2;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  echo '{\"wrap\": \"make test\", \"name\": \"test\"}' | slotd submit -c 2 --mem=1G"
)]
pub struct SubmitArgs {
    /// Options of sbatch for all jobs: -p cpu --mem=1G
    #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

/// A line of JSON that describes a job: a script or a command, and its own options.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    /// The text of a batch script, including its directives.
    script: Option<String>,
    /// Alternatively a command, as in `sbatch --wrap`.
    wrap: Option<String>,
    name: Option<String>,
    /// The arguments of the script.
    #[serde(default)]
    args: Vec<String>,
    /// Options of sbatch, applied after those of the command line.
    #[serde(default)]
    options: Vec<String>,
}

/// The result for a line.
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

/// The parsed options and directives of lines, and their environment.
#[derive(Debug, Clone)]
struct Template {
    request: JobRequest,
    env: Vec<u8>,
}

/// Everything that a [`Template`] depends on.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TemplateKey {
    options: Vec<String>,
    directives: Vec<(usize, Vec<String>)>,
    is_wrapped: bool,
}

/// Converts lines to jobs.
struct Maker<'a> {
    options: Vec<String>,
    origin: &'a Origin,
    templates: HashMap<TemplateKey, Template>,
    /// One copy for all lines with the same options.
    copies: Vec<Copied>,
}

/// A job that is ready to submit.
struct Made {
    request: JobRequest,
    script: Vec<u8>,
    env: Vec<u8>,
}

impl Maker<'_> {
    fn make(&mut self, text: &[u8]) -> Result<Made, CliError> {
        let line: Line = serde_json::from_slice(text).map_err(|error| {
            // Each line is parsed separately, so its line number is always 1.
            let is_object = text.trim_ascii_start().starts_with(b"{");
            let what = match error.to_string().replace(" at line 1 column ", " at column ") {
                what if is_object => what,
                _ => "not a JSON object".to_owned(),
            };
            CliError::error(1, format!("invalid job: {what}"))
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
                    "args apply only to a script: put the arguments of wrap in its text",
                ));
            }
            (Some(_), Some(_)) => {
                return Err(CliError::error(1, "a job has either a script or a wrap, not both"));
            }
            (None, None) => return Err(CliError::error(1, "a job needs a script or a wrap")),
        };
        slotd_parse::script::check(script.as_bytes()).map_err(|error| sbatch::refuse(&error))?;
        if let Some(word) = line.options.iter().chain(&line.args).find(|word| word.contains('\0')) {
            return Err(CliError::error(1, format!("{word:?} contains a null byte"))
                .hint("no program accepts one"));
        }
        let mut directives = Vec::new();
        if command.is_none() {
            let found = slotd_parse::directive::directives(&script)
                .map_err(|error| sbatch::refuse(&error))?;
            directives.extend(found.into_iter().map(|Directive { line, words }| (line, words)));
        }
        let count = line.options.len()
            + directives.iter().map(|(_, words): &(_, Vec<_>)| words.len()).sum::<usize>();
        if count > MOST_OPTIONS {
            let text = format!("the job has {count} options, but the maximum is {MOST_OPTIONS}");
            return Err(
                CliError::error(1, text).hint("pass values to the script as args or in a file")
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

    /// Returns the template of a key. `script` contains the directives of the key.
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
        let parsed = sbatch::parse(&argv, self.origin, &read).map_err(refuse_output)?;
        let Sbatch { mut request, texts, wait, test_only, snapshot, .. } = parsed;
        if wait || test_only {
            let text = "--wait and --test-only are for single jobs: wait for submitted jobs with `slotd wait`";
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

/// Refuses options that only print text, since each line of standard output is an answer.
fn refuse_output(error: CliError) -> CliError {
    if error.output.is_empty() {
        error
    } else {
        CliError::error(1, "--help, --usage and --version submit no job")
            .hint("run `sbatch --help`")
    }
}

/// Lines that are answered together. Invalid ones have their answer already.
#[derive(Default)]
struct LineBatch {
    /// The lines, with the error of each invalid one.
    lines: Vec<(usize, Option<String>)>,
    jobs: Vec<OneOfMany>,
    env: Vec<u8>,
    scripts: Vec<u8>,
}

impl LineBatch {
    fn is_full(&self) -> bool {
        self.lines.len() >= MOST_JOBS || self.scripts.len() >= MOST_BYTES
    }

    /// Returns whether a job with this environment can join the batch.
    fn accepts(&self, env: &[u8]) -> bool {
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

/// Returns the text of an error for a program, without the marks for terminals.
fn in_words(error: &CliError) -> String {
    error.lines.iter().map(|(_, line)| line.trim()).collect::<Vec<_>>().join("\n")
}

/// The connection to the daemon, and the lines of each unanswered batch.
struct Unanswered {
    daemon: Connection,
    in_flight: VecDeque<Vec<(usize, Option<String>)>>,
    all_accepted: bool,
}

impl Unanswered {
    fn send(&mut self, batch: LineBatch) -> Result<(), CliError> {
        let LineBatch { lines, mut jobs, env, scripts } = batch;
        note_trees(&mut jobs);
        self.in_flight.push_back(lines);
        let request = SubmitMany { jobs, env_len: env.len(), client: client(false).process };
        self.daemon.send(&Request::SubmitMany(request), &[env, scripts].concat())?;
        if self.in_flight.len() > IN_FLIGHT { self.answer() } else { Ok(()) }
    }

    fn answer_all(&mut self) -> Result<(), CliError> {
        while !self.in_flight.is_empty() {
            self.answer()?;
        }
        Ok(())
    }

    /// Prints the answers for the oldest batch.
    fn answer(&mut self) -> Result<(), CliError> {
        let results = match self.daemon.receive()?.0 {
            Answer::SubmittedMany(results) => results,
            Answer::Refused(why) => return Err(refused("Batch job submission failed", &why)),
            other => return Err(unexpected(&other)),
        };
        let mut results = results.into_iter();
        let mut text = String::new();
        for (line, wrong) in self.in_flight.pop_front().unwrap_or_default() {
            let outcome = match wrong {
                Some(wrong) => Outcome::Error(wrong),
                None => match results.next() {
                    Some(Ok(job)) => Outcome::Job(job),
                    Some(Err(why)) => {
                        Outcome::Error(in_words(&refused("Batch job submission failed", &why)))
                    }
                    None => {
                        return Err(CliError::error(
                            1,
                            "the daemon answered fewer jobs than were submitted",
                        ));
                    }
                },
            };
            self.all_accepted &= matches!(outcome, Outcome::Job(_));
            text += &serde_json::to_string(&LineAnswer { line, outcome }).unwrap_or_default();
            text.push('\n');
        }
        print(&text).map(drop)
    }
}

/// Records the work trees of the jobs of a batch. Most are in one directory.
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
    // Reports errors in the common options before a line is read.
    let plain = TemplateKey { options: Vec::new(), directives: Vec::new(), is_wrapped: true };
    maker.template(plain, "")?;
    let mut unanswered = Unanswered {
        daemon: Connection::open(&paths()?)?,
        in_flight: VecDeque::new(),
        all_accepted: true,
    };
    let done = submit_all(&mut maker, &mut unanswered);
    done.map_err(|error| match unanswered.in_flight.front().and_then(|lines| lines.first()) {
        Some((line, _)) => error.and(
            Mark::Error,
            format!(
                "line {line} and later ones were not answered: check with `squeue` or `sacct` which of them became jobs"
            ),
        ),
        None => error,
    })?;
    Ok(u8::from(!unanswered.all_accepted))
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
            if made.as_ref().is_ok_and(|made| !batch.accepts(&made.env)) {
                unanswered.send(std::mem::take(&mut batch))?;
            }
            batch.push(number, made);
        }
        let has_more = input.buffer().contains(&b'\n');
        if batch.is_full() || (!has_more && !batch.lines.is_empty()) {
            unanswered.send(std::mem::take(&mut batch))?;
        }
        if !has_more && !is_readable(&stdin) {
            unanswered.answer_all()?;
        }
    }
    unanswered.answer_all()
}

/// Reads the next line. The last line need not end with a newline. Returns `None` at the end of
/// input.
fn next_line(input: &mut impl BufRead) -> Result<Option<Vec<u8>>, CliError> {
    let mut line = Vec::new();
    let read = input.take(MOST_LINE as u64 + 1).read_until(b'\n', &mut line);
    read.map_err(|error| CliError::error(1, format!("cannot read standard input: {error}")))?;
    if line.len() > MOST_LINE {
        return Err(CliError::error(1, format!("a line is longer than {} MB", MOST_LINE >> 20)));
    }
    Ok((!line.is_empty()).then_some(line))
}

/// Returns whether a read would not block: there is input, or its end.
fn is_readable(stdin: &io::Stdin) -> bool {
    let mut asked = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    // If polling fails, the read waits instead.
    poll(&mut asked, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}
