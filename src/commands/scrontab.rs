//! `scrontab`: edits, lists, replaces or removes the user's crontab of jobs.

use super::draft::Draft;
use super::launch::client;
use super::output::{print_bytes, print_error, print_stderr};
use super::{Done, Entry, ask, known_names, submitting_origin, unexpected};
use crate::args::choices::{self, Applet, definition};
use crate::args::error::{CliError, Mark};
use crate::args::options::CommonOpts;
use crate::args::origin::Origin;
use crate::args::table::options;
use crate::commands::pages::texts;
use clap::Args;
use slotd_model::{JobId, Refusal};
use slotd_parse::cron::CronError;
use slotd_parse::crontab::{self, BadLine, BadLineError};
use slotd_parse::error::shown;
use slotd_protocol::answer::Answer;
use slotd_protocol::request::{CrontabJob, InstallCrontab, OneOfMany, Request};
use slotd_sys::{files, user};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::Path;

mod job;

/// The entry of this command in the command table.
pub const ENTRY: Entry =
    Entry { applet: APPLET, define: definition::<Scrontab>, run, page: &texts::SCRONTAB };

const APPLET: Applet = Applet {
    examples: &[
        ("scrontab -e", "edit your crontab"),
        ("scrontab -l", "print it"),
        ("scrontab file", "replace it by this file; - is standard input"),
    ],
    ..Applet::new("scrontab", "Manage a crontab of jobs")
};

options! {
    #[derive(Debug, Clone, Default, Args)]
    pub(super) struct Scrontab {
        /// Edit the crontab with VISUAL, EDITOR or vi
        #[arg(short = 'e')]
        edit: bool,
        /// Print the crontab
        #[arg(short = 'l')]
        list: bool,
        /// Remove the crontab
        #[arg(short = 'r')]
        remove: bool,
        /// Act on the crontab of this user, who must be you
        #[arg(short = 'u', value_name = "USER")]
        user: Option<String>,
        #[command(flatten)]
        common: CommonOpts,
        /// Print this help
        #[arg(long)]
        help: bool,
        /// The new crontab; - is standard input
        #[arg(value_name = "FILE")]
        operands: Vec<String>,
    }
}

/// The maximum size of a crontab, in bytes.
const MOST_TEXT: u64 = 1 << 20;

/// A crontab that was not installed: its bad lines, and why.
struct Rejected {
    lines: Vec<(usize, usize)>,
    error: CliError,
}

impl From<CliError> for Rejected {
    fn from(error: CliError) -> Self {
        Rejected { lines: Vec::new(), error }
    }
}

fn run(argv: &[OsString]) -> Done {
    let origin = submitting_origin()?;
    let (args, _) = choices::parse::<Scrontab>(APPLET, argv, &origin)?;
    if let Some(name) = &args.user {
        check_user(name, origin.uid)?;
    }
    let origin = job::login(origin);
    let command = Command { argv, origin: &origin, is_verbose: args.common.verbose > 0 };
    match (args.edit, args.list, args.remove, args.operands.as_slice()) {
        (true, false, false, []) => command.edit(),
        (false, true, false, []) => list(&origin),
        (false, false, true, []) => remove(),
        (false, false, false, [file]) => {
            let text = read(file)?;
            command.install(&text).map(|()| 0).map_err(|rejected| rejected.error)
        }
        _ => Err(CliError::error(1, "specify one of -e, -l, -r and a file")
            .and(Mark::Bare, "Try \"scrontab --help\" for more information")),
    }
}

/// Refuses another user's name: a daemon has only the jobs of its own user.
fn check_user(name: &str, own: u32) -> Result<(), CliError> {
    match user::uid_of(name) {
        Some(uid) if uid == own => Ok(()),
        Some(_) => Err(CliError::fatal(1, "slurm_request_crontab failed: Invalid user id")),
        None => Err(CliError::fatal(1, format!("Could not find user {name}"))),
    }
}

/// Reads a new crontab.
fn read(file: &str) -> Result<Vec<u8>, CliError> {
    let opened = match file {
        "-" => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        path => File::open(Path::new(path)),
    };
    let opened =
        opened.map_err(|_| CliError::fatal(1, format!("failed to open {}", shown(file))))?;
    files::read_open(&opened, MOST_TEXT)
        .map_err(|why| CliError::fatal(1, format!("failed to read {}: {why}", shown(file))))
}

/// Returns the crontab, if there is one.
fn current() -> Result<Option<Vec<u8>>, CliError> {
    match ask(&Request::Crontab, &[])? {
        (Answer::Crontab { exists }, text) => Ok(exists.then_some(text)),
        (other, _) => Err(unexpected(&other)),
    }
}

fn list(origin: &Origin) -> Done {
    match current()? {
        Some(text) => print_bytes(&text),
        None => {
            let output = format!("no crontab for {}\n", *origin.user);
            Err(CliError { output, exit: 1, ..CliError::default() })
        }
    }
}

fn remove() -> Done {
    match ask(&Request::RemoveCrontab, &[])?.0 {
        Answer::Recorded => Ok(0),
        other => Err(unexpected(&other)),
    }
}

struct Command<'a> {
    argv: &'a [OsString],
    /// The origin of the jobs.
    origin: &'a Origin,
    is_verbose: bool,
}

impl Command<'_> {
    /// Replaces the crontab.
    ///
    /// # Errors
    /// Fails if a line is invalid or an entry is refused. The old crontab is unchanged then.
    fn install(&self, text: &[u8]) -> Result<(), Rejected> {
        let readable = std::str::from_utf8(text)
            .map_err(|why| CliError::error(1, format!("the crontab is not valid UTF-8: {why}")))?;
        let entries = crontab::parse(readable).map_err(|bad| invalid(readable, &bad))?;
        let lines: Vec<(usize, usize)> = entries.iter().map(|entry| entry.lines).collect();
        let mut raw = text.to_vec();
        let mut jobs = Vec::with_capacity(entries.len());
        for entry in &entries {
            let (request, texts) =
                job::of(entry, self.argv, self.origin).map_err(|error| Rejected {
                    lines: vec![entry.lines],
                    error: error.with_exit(1).and(Mark::Bare, ERRORS),
                })?;
            raw.extend_from_slice(&texts.script);
            raw.extend_from_slice(&texts.env);
            jobs.push(CrontabJob {
                job: OneOfMany { request, script_len: texts.script.len() },
                env_len: texts.env.len(),
                recurrence: entry.recurrence,
                lines: entry.lines,
            });
        }
        let client = client(false).process;
        let request = InstallCrontab { text_len: text.len(), entries: jobs, client };
        match ask(&Request::InstallCrontab(request), &raw)?.0 {
            Answer::CrontabInstalled(jobs) => {
                self.report(&lines, &jobs);
                Ok(())
            }
            Answer::CrontabRefused { entry, why } => {
                let lines = lines.get(entry).copied().unwrap_or_default();
                Err(Rejected { lines: vec![lines], error: refused(lines, &why) })
            }
            other => Err(unexpected(&other).into()),
        }
    }

    /// Prints the jobs of the entries (`-v`).
    fn report(&self, lines: &[(usize, usize)], jobs: &[JobId]) {
        for ((first, last), job) in lines.iter().zip(jobs).filter(|_| self.is_verbose) {
            print_stderr(&format!("scrontab: lines {first}-{last}: job {job}\n"));
        }
    }

    fn edit(&self) -> Done {
        if !io::stdin().is_terminal() {
            return Err(CliError::fatal(1, "Standard input is not a TTY"));
        }
        let mut text = current()?.unwrap_or_default();
        loop {
            let draft = Draft::new("scrontab", "crontab", &text)?;
            let edited = draft.open().and_then(|()| draft.read(MOST_TEXT));
            let edited = edited.inspect_err(|_| draft.remove())?;
            if edited == text {
                draft.remove();
                print_stderr("scrontab: the crontab is unchanged\n");
                return Ok(0);
            }
            match self.install(&edited) {
                Ok(()) => {
                    draft.remove();
                    return Ok(0);
                }
                // The lines are in order, but the daemon did not take them.
                Err(Rejected { lines, error }) if lines.is_empty() => {
                    return Err(draft.kept(error));
                }
                Err(Rejected { lines, error }) => {
                    draft.remove();
                    print_error(APPLET.name, &error);
                    if !wants_again()? {
                        return Err(CliError { exit: 1, ..CliError::default() });
                    }
                    text = marked(&edited, &lines);
                }
            }
        }
    }
}

const ERRORS: &str = "There are errors in your crontab.";

/// Returns the error for invalid lines.
fn invalid(text: &str, bad: &[BadLine]) -> Rejected {
    let mut error = CliError { exit: 1, ..CliError::default() };
    for BadLine { error: why, .. } in bad {
        error = error.and(Mark::Error, why.to_string());
        if matches!(why, BadLineError::Time(time) if *time != CronError::Malformed) {
            error = error.and(Mark::Error, CronError::Malformed.to_string());
        }
    }
    error = error.and(Mark::Bare, ERRORS);
    let first = bad.first().map_or(1, |bad| bad.line);
    if let Some(line) = text.split('\n').nth(first - 1) {
        error = error.hint(format!("line {first}: {}", shown(line)));
    }
    Rejected { lines: bad.iter().map(|bad| (bad.line, bad.line)).collect(), error }
}

/// Returns the error for an entry that the daemon refused.
fn refused((first, last): (usize, usize), why: &Refusal) -> CliError {
    let cause = why.cause();
    let text = format!("There was an issue with the job submission on lines {first}-{last}");
    let error = CliError::new(Mark::Bare, 1, text)
        .and(Mark::Bare, format!("The error code return was: {why}"));
    let error = match cause.detail() {
        Some(detail) => error.and(Mark::Bare, format!("The error message was: {detail}")),
        None => error,
    };
    error.maybe_hint(known_names(cause))
}

/// Comments out bad lines, for the next edit.
fn marked(text: &[u8], bad: &[(usize, usize)]) -> Vec<u8> {
    let is_bad = |line: usize| bad.iter().any(|(first, last)| (*first..=*last).contains(&line));
    let lines = text.split_inclusive(|byte| *byte == b'\n').zip(1..);
    lines
        .flat_map(|(line, number)| {
            let mark: &[u8] = if is_bad(number) { b"#BAD: " } else { b"" };
            mark.iter().chain(line).copied()
        })
        .collect()
}

/// Asks whether to open the editor again.
fn wants_again() -> Result<bool, CliError> {
    loop {
        print_stderr("Do you want to retry the edit? (y/n) ");
        let mut line = String::new();
        let read = io::stdin().read_line(&mut line);
        let read = read.map_err(|error| CliError::error(1, error.to_string()))?;
        match line.trim() {
            "y" | "Y" => return Ok(true),
            "n" | "N" => return Ok(false),
            _ if read == 0 => return Ok(false),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_lines_are_reported_and_marked() {
        let text = "@daily a\nbad line\n* * * true\n";
        let bad = crontab::parse(text).unwrap_err();
        let Rejected { lines, error } = invalid(text, &bad);
        assert_eq!(
            error.text("scrontab"),
            "scrontab: error: something is broken\n\
             scrontab: error: bad month specification\n\
             scrontab: error: something is broken\n\
             There are errors in your crontab.\n  hint: line 2: bad line\n"
        );
        let shown = marked(text.as_bytes(), &lines);
        assert_eq!(shown, b"@daily a\n#BAD: bad line\n#BAD: * * * true\n");
    }

    #[test]
    fn a_refused_entry_is_reported_as_in_slurm() {
        let why = Refusal::UnknownPartition {
            name: "nosuch".to_owned(),
            known: Vec::new(),
            lacks_gpus: false,
        };
        let text = refused((1, 2), &why).text("scrontab");
        assert!(
            text.starts_with(
                "There was an issue with the job submission on lines 1-2\n\
                 The error code return was: Invalid partition name specified\n\
                 The error message was: invalid partition specified: nosuch\n"
            ),
            "{text}"
        );
    }
}
