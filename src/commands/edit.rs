//! `slotd edit`: edits the options and the script of a pending job as one text.
//!
//! All changes are sent as one request, so that either all take effect or none.

use super::draft::Draft;
use super::output::{print, print_error, print_stderr};
use super::why::refs;
use super::{Done, ask_outcomes, changes, known_names, origin, paths, sbatch, unexpected};
use crate::args::error::CliError;
use crate::args::origin::Origin;
use crate::client::connection::Connection;
use crate::commands::log::views;
use slotd_model::environ::Environ;
use slotd_model::request::JobKind;
use slotd_model::update::Update;
use slotd_model::view::JobView;
use slotd_model::{JobRef, JobRequest, JobState};
use slotd_parse::directive::{directives, line_of};
use slotd_parse::script_tasks::script_tasks;
use slotd_protocol::answer::Answer;
use slotd_protocol::request::{ControlAction, Request};
use std::ffi::OsString;
use std::io::{self, IsTerminal};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  EDITOR=nano slotd edit 12")]
pub struct EditArgs {
    /// The pending job: 12 or 12_3
    #[arg(value_name = "JOB")]
    job: String,
}

/// Maximum size of the edited text, in bytes. The daemon accepts scripts of up to 4 MB.
const MOST_TEXT: u64 = 8 << 20;

/// Separates the options from the script.
const RULE: &str = "# ---- the script ----";

pub fn run(args: &EditArgs) -> Done {
    let named = match refs(std::slice::from_ref(&args.job))?.as_slice() {
        [one] if one.step.is_none() => one.clone(),
        _ => {
            return Err(CliError::error(2, "specify a single job: 12, or 12_3 for an array task"));
        }
    };
    let view = waiting(&named)?;
    let origin = bare_origin();
    let script = script_of(&view)?;
    let shown = text(&named, &view, script.as_deref(), &origin);
    let before = understood(&shown, &view, &origin)?;
    let draft = Draft::new("slotd", &format!("job-{}.sh", named.job), shown.as_bytes())?;
    loop {
        draft.open().map_err(|error| draft.kept(error))?;
        let edited = draft.read(MOST_TEXT).and_then(|text| draft.text(text));
        let done = edited.and_then(|text| carry_out(&text, &named, &view, &before, &origin));
        match done {
            Ok(message) => {
                draft.remove();
                return print(&message);
            }
            Err(error) if may_ask() => {
                print_error("slotd", &error);
                if !wants_again(&named)? {
                    return Err(draft.kept(CliError { exit: 1, ..CliError::default() }));
                }
            }
            Err(error) => return Err(draft.kept(error)),
        }
    }
}

/// Returns the editable text of a pending job: its options and its script.
///
/// # Errors
/// Fails if the job does not exist or is not pending.
pub fn editable(named: &JobRef) -> Result<String, CliError> {
    let view = waiting(named)?;
    Ok(text(named, &view, script_of(&view)?.as_deref(), &bare_origin()))
}

/// Changes a pending job to match `text_now`, which was edited from `before`. Returns the message
/// to print.
///
/// # Errors
/// Fails as [`editable`] does, if the job was changed since `before`, or if the changes are
/// invalid. The job is then unchanged.
pub fn change(named: &JobRef, before: &str, text_now: &str) -> Result<String, CliError> {
    let (view, origin) = (waiting(named)?, bare_origin());
    let shown = text(named, &view, script_of(&view)?.as_deref(), &origin);
    if shown != before {
        let why = format!("job {named} was changed in the meantime: nothing was done");
        return Err(CliError::error(1, why).hint("open it again"));
    }
    carry_out(text_now, named, &view, &understood(&shown, &view, &origin)?, &origin)
}

/// Returns the origin of an edited text, in which environment variables have no effect.
fn bare_origin() -> Origin {
    Origin { env: Environ::default(), ..origin() }
}

/// Returns the job if it is pending.
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
                format!("job {named} is {}: only pending jobs can be edited", first.run.state);
            Err(CliError::error(1, why).hint("`slotd retry` resubmits ended jobs"))
        }
    }
}

/// Fetches the script of a batch job.
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
        let why =
            format!("the script of job {} is not valid UTF-8 and cannot be edited", view.label());
        CliError::error(1, why).hint("change its options with scontrol update")
    })
}

/// Returns the text for the editor.
fn text(named: &JobRef, view: &JobView, script: Option<&str>, origin: &Origin) -> String {
    let mut text = format!(
        "# Job {named} is pending. Edit its options (the #SBATCH lines){}, save, and close the editor.\n\
         # To change nothing, close it without saving.\n",
        if script.is_some() { " and its script" } else { "" }
    );
    // An option whose value cannot be written on a line is left out and does not change.
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

/// The contents of an edited text.
#[derive(Debug, PartialEq)]
struct Understood {
    request: JobRequest,
    script: Option<String>,
}

/// Parses an edited text.
///
/// # Errors
/// Fails if an option is unknown, cannot be changed, or has an invalid value.
fn understood(text: &str, view: &JobView, origin: &Origin) -> Result<Understood, CliError> {
    let has_script = view.request.kind == JobKind::Batch;
    let (head, script) = match text.split_once(&format!("{RULE}\n")) {
        Some((head, script)) if has_script => (head, Some(script.to_owned())),
        None if !has_script => (text, None),
        _ => {
            let why = format!(
                "the line `{RULE}`, which separates the options from the script, is missing"
            );
            return Err(CliError::error(1, why).hint("put it back on a line of its own"));
        }
    };
    let refuse = |error: slotd_parse::SpecError| {
        CliError::error(1, error.to_string()).maybe_hint(error.hint)
    };
    let is_other = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    if let Some(line) = head.lines().find(is_other) {
        let why = format!("not an option: {}", slotd_parse::error::shown(line));
        return Err(
            CliError::error(1, why).hint("write options on lines such as #SBATCH --time=1:00:00")
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
        let why = format!("--{name} of a pending job cannot be changed");
        return Err(CliError::error(1, why)
            .hint(format!("options that can be changed: {}", names.join(", "))));
    }
    if let Some(script) = &script {
        slotd_parse::script::check(script.as_bytes()).map_err(refuse)?;
    }
    Ok(Understood { request: parsed.request, script })
}

/// Returns the updates that turn one text into the other.
///
/// # Errors
/// Fails if an option has a value that the job cannot be changed to.
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
            let why = "the #SBATCH lines of the script are read only at submission: changing them has no effect";
            return Err(
                CliError::error(1, why).hint(format!("change the options above the line `{RULE}`"))
            );
        }
        updates.push(Update::Script { text: new.clone(), tasks: script_tasks(new) });
    }
    Ok(updates)
}

/// Applies the edited text. Returns the message to print.
fn carry_out(
    text: &str,
    named: &JobRef,
    view: &JobView,
    before: &Understood,
    origin: &Origin,
) -> Result<String, CliError> {
    let updates = updates(before, &understood(text, view, origin)?, origin)?;
    if updates.is_empty() {
        return Ok(format!("job {named} is unchanged\n"));
    }
    let action = ControlAction::Update(updates);
    let outcomes = ask_outcomes(&Request::Control { jobs: vec![named.clone()], action })?;
    match outcomes.into_iter().find_map(|outcome| outcome.result.err()) {
        Some(why) => {
            let cause = why.cause();
            let words = cause.detail().unwrap_or_else(|| cause.to_string());
            Err(CliError::error(1, format!("job {named} was not changed: {words}"))
                .maybe_hint(known_names(cause)))
        }
        None => Ok(format!("changed job {named}\n")),
    }
}

/// Returns whether the user can be asked.
fn may_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks whether to open the editor again.
fn wants_again(named: &JobRef) -> Result<bool, CliError> {
    print_stderr(&format!("slotd: edit job {named} again (Enter) or leave it unchanged (q)? "));
    let mut line = String::new();
    let read =
        io::stdin().read_line(&mut line).map_err(|error| CliError::error(1, error.to_string()))?;
    Ok(read > 0 && line.trim().is_empty())
}
