//! `slotd edit`: the options and the script of a job that waits, as one text in the user's editor.
//!
//! What was changed in the text is one request of the daemon: all of it is done, or none.

use super::launch::tell;
use super::output::{print, tell as tell_error};
use super::why::refs;
use super::{Done, ask_outcomes, changes, known_names, origin, paths, sbatch, unexpected};
use crate::args::error::CliError;
use crate::args::origin::Origin;
use crate::client::connection::Connection;
use crate::commands::log::views;
use crate::model::request::JobKind;
use crate::model::update::Update;
use crate::model::view::JobView;
use crate::model::{JobRef, JobRequest, JobState};
use crate::parse;
use crate::parse::directive::{directives, line_of};
use crate::parse::script_tasks::script_tasks;
use crate::protocol::answer::Answer;
use crate::protocol::request::{ControlAction, Request};
use crate::sys::files;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::Command;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  EDITOR=nano slotd edit 12")]
pub struct EditArgs {
    /// A job that waits: 12, 12_3
    #[arg(value_name = "JOB")]
    job: String,
}

/// The most that is read of the edited text, bytes. The daemon accepts scripts of up to 4 MB.
const MOST_TEXT: u64 = 8 << 20;

/// Between the options and the script.
const RULE: &str = "# ---- the script ----";

pub fn run(args: &EditArgs) -> Done {
    let named = match refs(std::slice::from_ref(&args.job))?.as_slice() {
        [one] if one.step.is_none() => one.clone(),
        _ => {
            return Err(CliError::error(
                2,
                "one job is edited at a time: 12, or 12_3 for an array task",
            ));
        }
    };
    let view = waiting(&named)?;
    let origin = bare_origin();
    let script = script_of(&view)?;
    let shown = text(&named, &view, script.as_deref(), &origin);
    let before = understood(&shown, &view, &origin)?;
    let draft = Draft::new(&named, &shown)?;
    loop {
        draft.open()?;
        let done = draft.read().and_then(|text| carry_out(&text, &named, &view, &before, &origin));
        match done {
            Ok(told) => {
                draft.remove();
                return print(&told);
            }
            Err(error) if may_ask() => {
                tell_error("slotd", &error);
                if !wants_again(&named)? {
                    return Err(draft.kept(CliError { exit: 1, ..CliError::default() }));
                }
            }
            Err(error) => return Err(draft.kept(error)),
        }
    }
}

/// What is edited of a job that waits: its options and its script.
///
/// # Errors
/// It is not there, or does not wait.
pub fn editable(named: &JobRef) -> Result<String, CliError> {
    let view = waiting(named)?;
    Ok(text(named, &view, script_of(&view)?.as_deref(), &bare_origin()))
}

/// Makes a job that waits what a text says that was made of `before`. What there is to tell of it.
///
/// # Errors
/// As [`editable`], it is not as it was shown any more, or what the text says cannot be done:
/// nothing is changed.
pub fn change(named: &JobRef, before: &str, text_now: &str) -> Result<String, CliError> {
    let (view, origin) = (waiting(named)?, bare_origin());
    let shown = text(named, &view, script_of(&view)?.as_deref(), &origin);
    if shown != before {
        let why = format!("job {named} has been changed meanwhile: nothing was done");
        return Err(CliError::error(1, why).hint("open it again"));
    }
    carry_out(text_now, named, &view, &understood(&shown, &view, &origin)?, &origin)
}

/// Where a text is read: variables of the environment say nothing in it.
fn bare_origin() -> Origin {
    Origin { env: Vec::new(), ..origin() }
}

/// The job, if it waits.
fn waiting(named: &JobRef) -> Result<JobView, CliError> {
    let found = views(std::slice::from_ref(named))?;
    let Some(first) = found.first() else {
        return Err(
            CliError::error(1, format!("there is no job {named}")).hint("`sacct` lists all jobs")
        );
    };
    match found.iter().find(|view| view.run.state == JobState::Pending) {
        Some(view) => Ok(view.clone()),
        None => {
            let why =
                format!("job {named} is {}: only a job that waits can be edited", first.run.state);
            Err(CliError::error(1, why).hint("`slotd retry` submits one again that is over"))
        }
    }
}

/// The script of a batch job.
fn script_of(view: &JobView) -> Result<Option<String>, CliError> {
    if view.request.kind != JobKind::Batch {
        return Ok(None);
    }
    let bytes = match Connection::open(&paths()?)?.ask(&Request::BatchScript(view.id), &[])? {
        (Answer::Script, script) => script,
        (Answer::Refused(why), _) => return Err(CliError::error(1, why.to_string())),
        (other, _) => return Err(unexpected(&other)),
    };
    String::from_utf8(bytes).map(Some).map_err(|_| {
        let why = format!(
            "the script of job {} is no text in UTF-8, which an editor could show",
            view.label()
        );
        CliError::error(1, why).hint("change its options by scontrol update")
    })
}

/// What the editor shows.
fn text(named: &JobRef, view: &JobView, script: Option<&str>, origin: &Origin) -> String {
    let mut text = format!(
        "# Job {named} waits. Change its options (the lines with #SBATCH){}, save, and leave the editor.\n\
         # Nothing is changed if you leave it as it is.\n",
        if script.is_some() { " and its script" } else { "" }
    );
    // An option with a value that fits in no line is not shown, and stays as it is.
    let words = changes::option_words(&view.request, origin);
    for line in words.iter().filter_map(|word| line_of(word)) {
        text += &line;
        text.push('\n');
    }
    if let Some(script) = script {
        text += &format!("{RULE}\n{script}");
    }
    text
}

/// What a text asks for.
#[derive(Debug, PartialEq)]
struct Understood {
    request: JobRequest,
    script: Option<String>,
}

/// # Errors
/// Options that do not exist, that cannot be changed, or have a value that makes no sense.
fn understood(text: &str, view: &JobView, origin: &Origin) -> Result<Understood, CliError> {
    let has_script = view.request.kind == JobKind::Batch;
    let (head, script) = match text.split_once(&format!("{RULE}\n")) {
        Some((head, script)) if has_script => (head, Some(script.to_owned())),
        None if !has_script => (text, None),
        _ => {
            let why =
                format!("the line `{RULE}` parts the options from the script, and stands no more");
            return Err(CliError::error(1, why).hint("put it back, with nothing else in it"));
        }
    };
    let refuse =
        |error: parse::SpecError| CliError::error(1, error.to_string()).maybe_hint(error.hint);
    let is_other = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    if let Some(line) = head.lines().find(is_other) {
        let why = format!("no option: {}", parse::error::shown(line));
        return Err(
            CliError::error(1, why).hint("options stand on lines such as #SBATCH --time=1:00:00")
        );
    }
    let words = directives(head).map_err(refuse)?.into_iter().flat_map(|directive| directive.words);
    let argv: Vec<OsString> = ["sbatch".to_owned()]
        .into_iter()
        .chain(words)
        .chain(["--wrap=true".to_owned()])
        .map(OsString::from)
        .collect();
    let read = |_: sbatch::Text<'_>| Err(io::Error::from(io::ErrorKind::Unsupported));
    let parsed = sbatch::parse(&argv, origin, &read).map_err(|error| error.with_exit(1))?;
    let names: Vec<&str> = changes::option_names().collect();
    let is_known = |name: &String| name == "wrap" || names.contains(&name.as_str());
    if let Some((name, _)) = parsed.defined.iter().find(|(name, _)| !is_known(name)) {
        let why = format!("--{name} cannot be changed while a job waits");
        return Err(CliError::error(1, why).hint(format!("options that can: {}", names.join(", "))));
    }
    if let Some(script) = &script {
        parse::script::check(script.as_bytes()).map_err(refuse)?;
    }
    Ok(Understood { request: parsed.request, script })
}

/// The updates that lead from one text to the other.
///
/// # Errors
/// An option was changed into what the job cannot become.
fn updates(
    before: &Understood,
    after: &Understood,
    origin: &Origin,
) -> Result<Vec<Update>, CliError> {
    let mut updates = changes::updates(&before.request, &after.request, origin)
        .map_err(|why| CliError::error(1, why.to_string()))?;
    if let (Some(old), Some(new)) = (&before.script, &after.script)
        && old != new
    {
        let words = |script| {
            directives(script).map(|found| found.into_iter().map(|d| d.words).collect::<Vec<_>>())
        };
        if words(old).ok() != words(new).ok() {
            let why =
                "the #SBATCH lines of the script counted when it was submitted, and do no more";
            return Err(
                CliError::error(1, why).hint(format!("change the options above the line `{RULE}`"))
            );
        }
        updates.push(Update::Script { text: new.clone(), tasks: script_tasks(new) });
    }
    Ok(updates)
}

/// Does what the text says. What there is to tell of it.
fn carry_out(
    text: &str,
    named: &JobRef,
    view: &JobView,
    before: &Understood,
    origin: &Origin,
) -> Result<String, CliError> {
    let updates = updates(before, &understood(text, view, origin)?, origin)?;
    if updates.is_empty() {
        return Ok(format!("job {named} is as it was: nothing was changed\n"));
    }
    let action = ControlAction::Update(updates);
    let outcomes = ask_outcomes(&Request::Control { jobs: vec![named.clone()], action })?;
    match outcomes.into_iter().find_map(|outcome| outcome.result.err()) {
        Some(why) => {
            let cause = why.cause();
            let words = cause.detail().unwrap_or_else(|| cause.to_string());
            Err(CliError::error(1, format!("nothing of job {named} was changed: {words}"))
                .maybe_hint(known_names(cause)))
        }
        None => Ok(format!("job {named} is changed\n")),
    }
}

/// Whether there is somebody to ask.
fn may_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Whether the editor is to be opened once more.
fn wants_again(named: &JobRef) -> Result<bool, CliError> {
    tell(&format!("slotd: edit job {named} again (Enter), or leave it as it is (q)? "));
    let mut line = String::new();
    let read =
        io::stdin().read_line(&mut line).map_err(|error| CliError::error(1, error.to_string()))?;
    Ok(read > 0 && line.trim().is_empty())
}

/// The text in a directory of its own, which nobody else may read.
struct Draft {
    dir: PathBuf,
    path: PathBuf,
}

impl Draft {
    fn new(named: &JobRef, text: &str) -> Result<Draft, CliError> {
        let failed = |error: io::Error| {
            CliError::error(1, format!("no file for the editor can be made: {error}"))
        };
        let dir = nix::unistd::mkdtemp(&std::env::temp_dir().join("slotd-edit-XXXXXX"))
            .map_err(|e| failed(e.into()))?;
        let path = dir.join(format!("job-{}.sh", named.job));
        std::fs::write(&path, text).map_err(failed)?;
        Ok(Draft { dir, path })
    }

    /// Opens the editor, and waits for its end.
    fn open(&self) -> Result<(), CliError> {
        let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let editor = of("VISUAL").or_else(|| of("EDITOR")).unwrap_or_else(|| "vi".into());
        let mut shell_line = editor.clone();
        shell_line.push(" \"$1\"");
        let ended =
            Command::new("/bin/sh").arg("-c").arg(shell_line).arg("sh").arg(&self.path).status();
        let shown = editor.to_string_lossy();
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                let error = CliError::error(
                    1,
                    format!("the editor ({shown}) failed, {status}: nothing was changed"),
                );
                Err(self.kept(error.hint("VISUAL or EDITOR names another one")))
            }
            Err(error) => Err(self.kept(CliError::error(
                1,
                format!("the editor ({shown}) cannot be started: {error}"),
            ))),
        }
    }

    fn read(&self) -> Result<String, CliError> {
        let file = files::own(OpenOptions::new().read(true), &self.path);
        let bytes = file.and_then(|file| files::read_open(&file, MOST_TEXT));
        let text = bytes.and_then(|bytes| {
            String::from_utf8(bytes)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
        });
        text.map_err(|error| {
            let why = format!("cannot read the edited text {}: {error}", self.path.display());
            CliError::error(1, why).hint("the editor must leave a regular text file there")
        })
    }

    /// Tells where the text is.
    fn kept(&self, error: CliError) -> CliError {
        error.and(
            crate::args::error::Mark::Bare,
            format!("slotd: your text is kept in {}", self.path.display()),
        )
    }

    fn remove(&self) {
        // What stays is in the directory for temporary files, and no harm.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
