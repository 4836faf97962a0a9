//! `slotd daemon`: serves in the foreground, or starts, stops and finds a daemon beside its caller.
//!
//! The root is the one that every command uses: `SLOTD_ROOT`, else the one that the environment
//! file names. All other settings of a daemon that is started here come from that file, so that it
//! is the same whoever starts it.

use crate::args::error::{CliError, Mark};
use crate::client::connection::Connection;
use crate::commands::Done;
use crate::daemon::detached::{self, DetachedError};
use crate::daemon::{self, SETTINGS, Sources, VERSION_KEY};
use crate::parse::env_file::EnvFile;
use crate::protocol::answer::Answer;
use crate::protocol::request::Request;
use crate::sys::files;
use crate::sys::paths::Paths;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct DaemonArgs {
    /// What to do with a daemon beside this shell; without it the daemon serves in the foreground
    action: Option<Action>,
    /// Its settings, as systemd reads them [default: ~/.config/slotd/slotd.env]. In the foreground
    /// there is no default, and the variables of the environment go before it
    #[arg(long, value_name = "PATH")]
    env_file: Option<PathBuf>,
    /// The daemon leaves its caller's session
    #[arg(long = detached::DETACHED_OPTION, hide = true, conflicts_with = "action")]
    is_detached: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Action {
    /// Start it where none serves the root, and wait until it does; its log is run/slotd.log below
    /// the root
    Start,
    /// Stop it; running jobs go on, and the next daemon takes them over
    Stop,
    /// Stop it where one runs, and start it
    Restart,
    /// Tell whether one serves the root: exit code 0; 3 where none does, 4 where one does not
    /// answer
    Status,
}

pub fn run(args: &DaemonArgs) -> Done {
    let Some(action) = args.action else { return serve(args) };
    let file = settings_file(args.env_file.as_deref())?;
    let paths = match (
        variable("SLOTD_ROOT"),
        file.as_ref().and_then(|file| file.settings.get("SLOTD_ROOT")),
    ) {
        (None, Some(root)) if !root.is_empty() => Paths::new(root),
        _ => super::paths()?,
    };
    if matches!(action, Action::Stop | Action::Restart) {
        detached::check_own(&paths)?;
    }
    let running = detached::pid_of(&paths);
    match (action, running) {
        (Action::Status, _) => status(&paths, running),
        (Action::Stop, None) => say(0, &format!("no daemon serves {}", paths.root().display())),
        (Action::Stop, Some(pid)) => {
            detached::stop(&paths, pid)?;
            say(0, "stopped; running jobs go on")
        }
        (Action::Start, Some(pid)) if configuration(&paths).is_some() => runs_already(&paths, pid),
        // One that has the lock and does not answer starts or ends: the new one waits for the lock,
        // and who has it then is known.
        (Action::Start, _) | (Action::Restart, None) => start(&paths, file.as_ref()),
        (Action::Restart, Some(pid)) => {
            // Before one is stopped that could not be started again.
            detached::check_outside(&paths).map_err(DetachedError::from)?;
            detached::stop(&paths, pid)?;
            start(&paths, file.as_ref())
        }
    }
}

/// How long a daemon that serves may take to say so.
const PATIENCE: Duration = Duration::from_secs(10);

/// The configuration of the daemon; `None` where it does not answer in time.
pub fn configuration(paths: &Paths) -> Option<Vec<(String, String)>> {
    let (answer, news) = mpsc::channel();
    let paths = paths.clone();
    // Of one that hangs not even the connection may come.
    std::thread::spawn(move || {
        let mut daemon = Connection::open(&paths).ok()?;
        daemon.send(&Request::Config, &[]).ok()?;
        match daemon.wait().ok()?.0 {
            Answer::Config(config) => answer.send(config).ok(),
            _ => None,
        }
    });
    news.recv_timeout(PATIENCE).ok()
}

fn runs_already(paths: &Paths, pid: i32) -> Done {
    say(0, &format!("the daemon of {} runs already (process {pid})", paths.root().display()))
}

fn serve(args: &DaemonArgs) -> Done {
    if args.is_detached {
        detached::leave_caller();
    }
    let sources = Sources::new(std::env::vars_os().collect(), args.env_file.clone());
    let root = match &sources {
        Ok(sources) => super::paths_of(sources.at_start().get(OsStr::new("SLOTD_ROOT")).cloned())?,
        Err(_) => super::paths()?,
    };
    daemon::run(root.root().to_owned(), sources)
        .map_err(|e| CliError::error(e.exit_code().into(), e.to_string()))?;
    Ok(0)
}

fn start(paths: &Paths, file: Option<&SettingsFile>) -> Done {
    let program =
        std::env::current_exe().map_err(|e| CliError::error(1, format!("this program: {e}")))?;
    warn_of_ignored(file);
    let settings = file
        .map(|file| detached::Given { file: &file.path, settings: file.settings.iter().collect() });
    let pid = match detached::start(
        &program,
        paths,
        &settings.unwrap_or_default(),
        std::env::vars_os(),
    ) {
        Ok(pid) => pid,
        // Another start was quicker.
        Err(DetachedError::Ended { .. }) if configuration(paths).is_some() => {
            return runs_already(paths, detached::pid_of(paths).unwrap_or_default());
        }
        Err(error) => return Err(error.into()),
    };
    say(
        0,
        &format!(
            "the daemon of {} runs (process {pid}, log {})",
            paths.root().display(),
            paths.log().display()
        ),
    )
}

/// Variables of the caller that would be settings if the caller were the daemon.
fn warn_of_ignored(file: Option<&SettingsFile>) {
    // The first has its say; the second is also one of sbatch.
    let both = ["SLOTD_ROOT", "SLOTD_BATCH_TASKS"];
    let names = SETTINGS.iter().map(|setting| setting.variable);
    for name in names.filter(|name| !both.contains(name)) {
        let given = std::env::var(name).ok().filter(|value| !value.is_empty());
        if given.is_some() && given.as_deref() != file.and_then(|file| file.settings.get(name)) {
            let place = file
                .map_or_else(|| "~/.config/slotd/slotd.env".to_owned(), |file| file.path.clone());
            eprintln!(
                "slotd: warning: {name} of this shell has no effect on the daemon: write it to {place}"
            );
        }
    }
}

fn status(paths: &Paths, running: Option<i32>) -> Done {
    let root = paths.root().display();
    let Some(pid) = running else { return say(3, &format!("no daemon serves {root}")) };
    let Some(config) = configuration(paths) else {
        return say(
            4,
            &format!(
                "the daemon of {root} (process {pid}) does not answer: it starts or ends, or hangs"
            ),
        );
    };
    let version =
        config.iter().find(|(key, _)| key == VERSION_KEY).map_or("unknown", |(_, version)| version);
    say(
        0,
        &format!(
            "the daemon of {root} runs (process {pid})\nversion {version}\nsocket {}",
            paths.socket().display()
        ),
    )
}

fn say(code: u8, text: &str) -> Done {
    println!("{text}");
    Ok(code)
}

struct SettingsFile {
    path: String,
    settings: EnvFile,
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The environment file that is named, else the one of the user where there is one.
fn settings_file(named: Option<&Path>) -> Result<Option<SettingsFile>, CliError> {
    let default = || {
        variable("HOME")
            .map(|home| home.join(".config/slotd/slotd.env"))
            .filter(|path| path.exists())
    };
    let Some(path) = named.map(Path::to_owned).or_else(default) else { return Ok(None) };
    let settings = read_settings(&path)?;
    let path = std::path::absolute(&path).unwrap_or(path);
    Ok(Some(SettingsFile { path: path.display().to_string(), settings }))
}

/// # Errors
/// The file cannot be read, or a line makes no sense.
pub fn read_settings(path: &Path) -> Result<EnvFile, CliError> {
    let text = files::read_text(path, files::MOST_SETTINGS)
        .map_err(|e| CliError::error(1, format!("{}: {e}", path.display())))?;
    EnvFile::parse(&text).map_err(|e| {
        CliError::error(1, format!("{}:{e}: correct or remove the line", path.display()))
    })
}

impl From<DetachedError> for CliError {
    fn from(error: DetachedError) -> CliError {
        let mut refusal = CliError::error(1, error.to_string());
        if let DetachedError::Ended { said, .. } = error {
            refusal.lines.splice(0..0, said.lines().map(|line| (Mark::Bare, line.to_owned())));
        }
        refusal
    }
}
