//! `slotd edit`: the options and the script of a job that waits, as one text in the user's editor.
//!
//! What was changed in the text is one request of the daemon: all of it is done, or none.

use super::output::{print, tell as tell_error};
use super::tasks::tell;
use super::why::refs;
use super::{Done, ask, known_names, origin, paths, sbatch, unexpected};
use crate::args::error::CliError;
use crate::args::origin::Origin;
use crate::client::connection::Connection;
use crate::commands::log::views;
use crate::model::dependency::Dependency;
use crate::model::request::{GpuRequest, JobKind, KeptText, MemRequest, Sharing};
use crate::model::update::Update;
use crate::model::view::JobView;
use crate::model::{JobRef, JobRequest, JobState};
use crate::protocol::answer::Answer;
use crate::protocol::request::{ControlAction, Request};
use crate::render::time::{iso, long_limit};
use crate::spec;
use crate::spec::directive::{directives, line_of};
use crate::spec::script_tasks::script_tasks;
use std::ffi::OsString;
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

/// Between the options and the script.
const RULE: &str = "# ---- the script ----";

/// An option that can be changed while a job waits, as the text shows it, and what a change of it comes to.
struct EditOption {
    names: &'static [&'static str],
    /// The words of the option. Empty: the job has none.
    show: fn(&JobRequest, &Origin) -> Vec<String>,
    /// `None`: the same in both.
    change: fn(&JobRequest, &JobRequest, &Origin) -> Option<Change>,
}

/// What a changed option comes to: an update, or why there is none.
type Change = Result<Update, &'static str>;

const STAYS: &str = "it cannot be taken away: name another value";

fn word(name: &str, value: impl std::fmt::Display) -> Vec<String> {
    vec![format!("--{name}={value}")]
}

fn words(name: &str, value: Option<impl std::fmt::Display>) -> Vec<String> {
    value.map(|value| word(name, value)).unwrap_or_default()
}

/// The update where a part of the request is another one.
fn differs<T: PartialEq>(
    old: &JobRequest,
    new: &JobRequest,
    part: impl Fn(&JobRequest) -> T,
    update: impl FnOnce(T) -> Change,
) -> Option<Change> {
    let now = part(new);
    (part(old) != now).then(|| update(now))
}

/// A file of a stream, which a job always has.
fn file(path: Option<String>, update: fn(String) -> Update) -> Change {
    path.map(update).ok_or(STAYS)
}

macro_rules! kept {
    ($name:literal, $field:ident, $text:ident) => {
        EditOption {
            names: &[$name],
            show: |r, _| words($name, r.$field.as_ref()),
            change: |old, new, _| {
                differs(
                    old,
                    new,
                    |r| r.$field.clone(),
                    |text| Ok(Update::Text(KeptText::$text, text.unwrap_or_default())),
                )
            },
        }
    };
}

const OPTIONS: &[EditOption] = &[
    EditOption {
        names: &["job-name"],
        show: |r, _| word("job-name", &r.name),
        change: |old, new, _| {
            differs(old, new, |r| r.name.clone(), |name| Ok(Update::JobName(name)))
        },
    },
    EditOption {
        names: &["partition"],
        show: |r, _| words("partition", r.partition.as_ref()),
        change: |old, new, _| {
            differs(
                old,
                new,
                |r| r.partition.clone(),
                |names| names.map(Update::Partition).ok_or(STAYS),
            )
        },
    },
    EditOption {
        names: &["time"],
        show: |r, _| word("time", long_limit(r.time_limit_secs)),
        change: |old, new, _| {
            differs(old, new, |r| r.time_limit_secs, |limit| Ok(Update::TimeLimit(limit)))
        },
    },
    EditOption {
        names: &["time-min"],
        show: |r, _| words("time-min", r.time_min_secs.map(|secs| long_limit(Some(secs)))),
        change: |old, new, _| {
            differs(old, new, |r| r.time_min_secs, |limit| Ok(Update::TimeMin(limit)))
        },
    },
    EditOption {
        names: &["ntasks"],
        show: |r, _| words("ntasks", r.ntasks),
        change: |old, new, _| {
            differs(old, new, |r| r.ntasks, |tasks| Ok(Update::NumTasks(tasks.unwrap_or(1))))
        },
    },
    EditOption {
        names: &["cpus-per-task"],
        show: |r, _| words("cpus-per-task", r.cpus_per_task),
        change: |old, new, _| {
            differs(
                old,
                new,
                |r| r.cpus_per_task,
                |cpus| Ok(Update::CpusPerTask(cpus.unwrap_or(1))),
            )
        },
    },
    EditOption {
        names: &["mem", "mem-per-cpu"],
        show: |r, _| match r.mem {
            MemRequest::PerNode(mb) => word("mem", format!("{mb}M")),
            MemRequest::PerCpu(mb) => word("mem-per-cpu", format!("{mb}M")),
            MemRequest::Default | MemRequest::PerGpu(_) => Vec::new(),
        },
        change: |old, new, _| {
            differs(
                old,
                new,
                |r| r.mem,
                |mem| match mem {
                    MemRequest::PerNode(mb) => Ok(Update::MinMemoryNode(mb)),
                    MemRequest::PerCpu(mb) => Ok(Update::MinMemoryCpu(mb)),
                    MemRequest::Default | MemRequest::PerGpu(_) => Err(STAYS),
                },
            )
        },
    },
    EditOption {
        names: &["gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres"],
        show: |r, _| gpu_words(&r.gpu),
        change: |old, new, _| differs(old, new, |r| r.gpu.clone(), |gpu| Ok(Update::Gpus(gpu))),
    },
    EditOption {
        names: &["begin"],
        show: |r, origin| words("begin", r.begin.map(|at| iso(at, &origin.tz))),
        change: |old, new, origin| {
            differs(old, new, |r| r.begin, |at| Ok(Update::StartTime(at.unwrap_or(origin.now))))
        },
    },
    EditOption {
        names: &["deadline"],
        show: |r, origin| words("deadline", r.deadline.map(|at| iso(at, &origin.tz))),
        change: |old, new, _| {
            differs(old, new, |r| r.deadline, |at| at.map(Update::Deadline).ok_or(STAYS))
        },
    },
    EditOption {
        names: &["dependency"],
        show: |r, _| {
            words("dependency", Some(&r.dependency).filter(|dependency| !dependency.is_empty()))
        },
        change: |old, new, _| {
            differs(old, new, |r| r.dependency.clone(), |on: Dependency| Ok(Update::Dependency(on)))
        },
    },
    EditOption {
        names: &["array"],
        show: |r, _| words("array", r.array.as_ref()),
        change: |old, new, _| {
            differs(
                old,
                new,
                |r| r.array.clone(),
                |array| match array {
                    Some(array)
                        if old.array.as_ref().is_some_and(|there| there.tasks == array.tasks) =>
                    {
                        Ok(Update::ArrayTaskThrottle(array.limit))
                    }
                    _ => Err("its tasks stay: only %N, how many run at once, can be changed"),
                },
            )
        },
    },
    EditOption {
        names: &["priority"],
        show: |r, _| words("priority", r.priority),
        change: |old, new, _| {
            differs(
                old,
                new,
                |r| r.priority,
                |priority| Ok(priority.map_or(Update::PriorityReset, Update::Priority)),
            )
        },
    },
    EditOption {
        names: &["nice"],
        show: |r, _| words("nice", Some(r.nice).filter(|nice| *nice != 0)),
        change: |old, new, _| differs(old, new, |r| r.nice, |nice| Ok(Update::Nice(nice))),
    },
    EditOption {
        names: &["constraint"],
        show: |r, _| words("constraint", r.constraint.as_ref()),
        change: |old, new, _| {
            differs(old, new, |r| r.constraint.clone(), |wanted| Ok(Update::Features(wanted)))
        },
    },
    EditOption {
        names: &["exclusive"],
        show: |r, _| {
            if r.sharing == Sharing::Exclusive {
                vec!["--exclusive".to_owned()]
            } else {
                Vec::new()
            }
        },
        change: |old, new, _| {
            differs(old, new, |r| r.sharing == Sharing::Exclusive, |yes| Ok(Update::Exclusive(yes)))
        },
    },
    EditOption {
        names: &["requeue", "no-requeue"],
        show: |r, _| match (r.requeue, r.no_requeue) {
            (true, _) => vec!["--requeue".to_owned()],
            (false, true) => vec!["--no-requeue".to_owned()],
            (false, false) => Vec::new(),
        },
        change: |old, new, _| {
            differs(
                old,
                new,
                |r| (r.requeue, r.no_requeue),
                |(yes, no)| match yes || no {
                    true => Ok(Update::Requeue(yes)),
                    false => Err("it cannot be taken away: --requeue or --no-requeue"),
                },
            )
        },
    },
    EditOption {
        names: &["chdir"],
        show: |r, _| word("chdir", &r.work_dir),
        change: |old, new, _| {
            differs(old, new, |r| r.work_dir.clone(), |dir| Ok(Update::WorkDir(dir)))
        },
    },
    EditOption {
        names: &["output"],
        show: |r, _| words("output", r.std_out.as_ref()),
        change: |old, new, _| {
            differs(old, new, |r| r.std_out.clone(), |path| file(path, Update::StdOut))
        },
    },
    EditOption {
        names: &["error"],
        show: |r, _| words("error", r.std_err.as_ref()),
        change: |old, new, _| {
            differs(old, new, |r| r.std_err.clone(), |path| file(path, Update::StdErr))
        },
    },
    EditOption {
        names: &["input"],
        show: |r, _| words("input", r.std_in.as_ref()),
        change: |old, new, _| {
            differs(old, new, |r| r.std_in.clone(), |path| file(path, Update::StdIn))
        },
    },
    kept!("account", account, Account),
    kept!("qos", qos, Qos),
    kept!("comment", comment, Comment),
    kept!("extra", extra, Extra),
    kept!("wckey", wckey, WcKey),
    kept!("mail-type", mail_type, MailType),
    kept!("mail-user", mail_user, MailUser),
];

fn gpu_words(gpu: &GpuRequest) -> Vec<String> {
    let model = gpu.model.as_ref().map(|model| format!("{model}:")).unwrap_or_default();
    let counts = [
        ("gpus", gpu.total),
        ("gpus-per-node", gpu.per_node),
        ("gpus-per-task", gpu.per_task),
        ("gpus-per-socket", gpu.per_socket),
    ];
    let counts =
        counts.into_iter().filter_map(|(name, count)| Some(format!("--{name}={model}{}", count?)));
    let shares = [
        gpu.mem_mb.map(|mb| format!("--gres=gpumem:{mb}M")),
        gpu.shards.map(|n| format!("--gres=shard:{n}")),
    ];
    counts.chain(shares.into_iter().flatten()).collect()
}

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
/// As [`editable`], it is not as it was shown any more, or what the text says cannot be done: nothing is changed.
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
    for option in OPTIONS {
        // What no line can hold stays as it is.
        for line in (option.show)(&view.request, origin).iter().filter_map(|word| line_of(word)) {
            text += &line;
            text.push('\n');
        }
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
        |error: spec::SpecError| CliError::error(1, error.to_string()).maybe_hint(error.hint);
    let is_other = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    if let Some(line) = head.lines().find(is_other) {
        let why = format!("no option: {}", spec::error::shown(line));
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
    let is_known = |name: &String| {
        name == "wrap" || OPTIONS.iter().any(|option| option.names.contains(&name.as_str()))
    };
    if let Some((name, _)) = parsed.defined.iter().find(|(name, _)| !is_known(name)) {
        let names: Vec<&str> = OPTIONS.iter().flat_map(|option| option.names).copied().collect();
        let why = format!("--{name} cannot be changed while a job waits");
        return Err(CliError::error(1, why).hint(format!("options that can: {}", names.join(", "))));
    }
    if let Some(script) = &script {
        spec::script::check(script.as_bytes()).map_err(refuse)?;
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
    let mut updates = Vec::new();
    for option in OPTIONS {
        match (option.change)(&before.request, &after.request, origin) {
            Some(Ok(update)) => updates.push(update),
            Some(Err(why)) => {
                return Err(CliError::error(1, format!("--{}: {why}", option.names[0])));
            }
            None => {}
        }
    }
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
    let outcomes = match ask(&Request::Control { jobs: vec![named.clone()], action }, &[])?.0 {
        Answer::Done(outcomes) => outcomes,
        other => return Err(unexpected(&other)),
    };
    match outcomes.into_iter().find_map(|outcome| outcome.result.err()) {
        Some(why) => {
            let detail = why.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
            Err(CliError::error(1, format!("nothing of job {named} was changed: {why}{detail}"))
                .maybe_hint(known_names(&why)))
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
        let failed = |error| CliError::error(1, format!("{}: {error}", self.path.display()));
        std::fs::read_to_string(&self.path).map_err(failed)
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
