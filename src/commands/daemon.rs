//! `slotd daemon`: runs the daemon in the foreground, or starts, stops and queries a detached
//! daemon.
//!
//! The root is that of all commands: `SLOTD_ROOT`, or else the one in the environment file. A
//! daemon that is started here takes all its other settings from that file, so that they do not
//! depend on who starts it.

use crate::args::error::{CliError, Mark};
use crate::commands::output::print;
use crate::commands::running::{Running, running};
use crate::commands::{Done, plain};
use crate::daemon::detached::{self, DetachedError};
use crate::daemon::{self, Environment, SETTINGS, Sources, VERSION_KEY, check_settings};
use slotd_parse::env_file::EnvFile;
use slotd_sys::paths::Paths;
use slotd_sys::{files, umask};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct DaemonArgs {
    /// Control a detached daemon. Without an action, run the daemon in the foreground
    action: Option<Action>,
    /// Read the settings from this file, in systemd's format [default: ~/.config/slotd/slotd.env].
    /// In the foreground there is no default, and environment variables override the file
    #[arg(long, value_name = "PATH")]
    env_file: Option<PathBuf>,
    /// Detach from the caller's session
    #[arg(long = detached::DETACHED_OPTION, hide = true, conflicts_with = "action")]
    is_detached: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Action {
    /// Start the daemon if none is running, and wait until it accepts requests. It logs to
    /// run/slotd.log below the root
    Start,
    /// Stop the daemon. Running jobs continue, and the next daemon adopts them
    Stop,
    /// Stop the daemon if it is running, then start it, by default with the file that it read
    Restart,
    /// Show whether the daemon is running. The exit code is 0 if it is, 3 if not, and 4 if it
    /// gives no answer that this command understands
    Status,
}

pub fn run(args: &DaemonArgs) -> Done {
    let Some(action) = args.action else { return serve(args) };
    let file = match settings_file(args.env_file.as_deref()) {
        Err(fault) if matches!(action, Action::Status | Action::Stop) => {
            without_file(fault)?;
            None
        }
        file => file?,
    };
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
    let of_running = match (action, running) {
        (Action::Restart, Some(pid)) if args.env_file.is_none() => file_of(pid),
        _ => None,
    };
    let file = match of_running {
        Some(path) if file.as_ref().is_none_or(|file| Path::new(&file.path) != path) => {
            print(&format!("the settings are those of {}, as before\n", path.display()))?;
            settings_file(Some(&path))?
        }
        _ => file,
    };
    match (action, running) {
        (Action::Status, _) => status(&paths, running),
        (Action::Stop, None) => {
            finish(0, &format!("no daemon is running for {}", paths.root().display()))
        }
        (Action::Stop, Some(pid)) => {
            detached::stop(&paths, pid)?;
            finish(0, "stopped; running jobs continue")
        }
        (Action::Start, Some(pid)) if answers(&paths) => runs_already(&paths, pid),
        // A daemon that holds the lock but does not answer is starting or exiting. The new one
        // waits for the lock, which then decides which of them runs.
        (Action::Start, _) | (Action::Restart, None) => start(&paths, file.as_ref()),
        (Action::Restart, Some(pid)) => {
            // Checked first, so that no daemon is stopped that could not be started again.
            detached::check_outside(&paths).map_err(DetachedError::from)?;
            check(file.as_ref())?;
            detached::stop(&paths, pid)?;
            start(&paths, file.as_ref())
        }
    }
}

/// Warns of an invalid environment file, of which only the root is needed.
///
/// # Errors
/// Fails with its fault if `SLOTD_ROOT` is not set.
fn without_file(fault: CliError) -> Result<(), CliError> {
    if variable("SLOTD_ROOT").is_none() {
        return Err(fault.hint("with SLOTD_ROOT, status and stop work without this file"));
    }
    for (_, line) in &fault.lines {
        report!("slotd: warning: {line}");
    }
    Ok(())
}

/// Checks the settings with which [`start`] starts a daemon.
///
/// # Errors
/// Fails if a setting or `slotd.toml` is invalid.
fn check(file: Option<&SettingsFile>) -> Result<(), CliError> {
    let given = file.into_iter().flat_map(|file| file.settings.iter());
    let mut env: Environment =
        std::env::vars_os().filter(|(name, _)| detached::is_inherited(name)).collect();
    env.extend(given.map(|(name, value)| (name.into(), value.into())));
    check_settings(&env)
        .map_err(|e| CliError::error(1, format!("{e}: the running daemon was not stopped")))
}

fn runs_already(paths: &Paths, pid: i32) -> Done {
    finish(
        0,
        &format!("the daemon for {} is already running (process {pid})", paths.root().display()),
    )
}

fn serve(args: &DaemonArgs) -> Done {
    if args.is_detached {
        detached::leave_caller();
    } else {
        umask::keep_own_access();
    }
    let sources = Sources::new(std::env::vars_os().collect(), args.env_file.clone());
    let root = match &sources {
        Ok(sources) => super::paths_of(sources.at_start().get(OsStr::new("SLOTD_ROOT")).cloned())?,
        Err(_) => super::paths()?,
    };
    let parser = plain::Parser::start();
    let parse = move |line| parser.parse(line);
    daemon::run(root.root().to_owned(), sources, Box::new(parse))
        .map_err(|e| CliError::error(e.exit_code().into(), e.to_string()))?;
    Ok(0)
}

fn start(paths: &Paths, file: Option<&SettingsFile>) -> Done {
    let program = std::env::current_exe()
        .map_err(|e| CliError::error(1, format!("cannot find this program: {e}")))?;
    warn_of_ignored(file);
    let has_lost_database = warn_of_lost_database(paths);
    let settings = file
        .map(|file| detached::Given { file: &file.path, settings: file.settings.iter().collect() });
    let pid = match detached::start(
        &program,
        paths,
        &settings.unwrap_or_default(),
        std::env::vars_os(),
    ) {
        Ok(pid) => pid,
        // Another `slotd daemon start` was faster.
        Err(DetachedError::Ended { .. }) if answers(paths) => {
            return runs_already(paths, detached::pid_of(paths).unwrap_or_default());
        }
        Err(error) => return Err(error.into()),
    };
    if has_lost_database {
        // The daemon has moved the last backup aside, so that the next backup does not replace it.
        report!(
            "  hint: stop the daemon and run `slotd db restore {}` to restore the last backup",
            daemon::kept_backup(paths).display()
        );
    }
    finish(
        0,
        &format!(
            "the daemon for {} is running (process {pid}, log {})",
            paths.root().display(),
            paths.log().display()
        ),
    )
}

/// Warns if the database is missing although there was one: the queue is then recovered from the
/// directories of the jobs. Returns whether there is a backup of it.
fn warn_of_lost_database(paths: &Paths) -> bool {
    let has_jobs = || fs::read_dir(paths.jobs_dir()).is_ok_and(|mut jobs| jobs.next().is_some());
    let is_missing = |path: &Path| path.symlink_metadata().is_err();
    let (db, backup) = (paths.db(), paths.db_backup());
    if !is_missing(&db) || is_missing(&backup) && !has_jobs() {
        return false;
    }
    report!(
        "slotd: warning: the database {} is missing: the new one has only jobs that still have a directory",
        db.display()
    );
    !is_missing(&backup)
}

/// Warns of variables of the caller that look like settings but do not reach the detached daemon.
fn warn_of_ignored(file: Option<&SettingsFile>) {
    // SLOTD_ROOT takes effect, and SLOTD_BATCH_TASKS also applies to sbatch.
    let both = ["SLOTD_ROOT", "SLOTD_BATCH_TASKS"];
    let names = SETTINGS.iter().map(|setting| setting.variable);
    for name in names.filter(|name| !both.contains(name)) {
        let given = std::env::var(name).ok().filter(|value| !value.is_empty());
        if given.is_some() && given.as_deref() != file.and_then(|file| file.settings.get(name)) {
            let place = file
                .map_or_else(|| "~/.config/slotd/slotd.env".to_owned(), |file| file.path.clone());
            report!(
                "slotd: warning: {name} in this shell has no effect on the daemon: set it in {place}"
            );
        }
    }
}

fn answers(paths: &Paths) -> bool {
    running(paths).is_some()
}

fn status(paths: &Paths, pid: Option<i32>) -> Done {
    let root = paths.root().display();
    let Some(pid) = pid else { return finish(3, &format!("no daemon is running for {root}")) };
    let config = match running(paths) {
        Some(Running::Config(config)) => config,
        Some(Running::Other(why)) => {
            let text = format!("the daemon for {root} is running (process {pid}), but: {why}");
            return finish(4, &text);
        }
        None => {
            let text = format!(
                "the daemon for {root} (process {pid}) does not answer: it is starting, exiting or hung"
            );
            return finish(4, &text);
        }
    };
    let version =
        config.iter().find(|(key, _)| key == VERSION_KEY).map_or("unknown", |(_, version)| version);
    finish(
        0,
        &format!(
            "the daemon for {root} is running (process {pid})\nversion {version}\nsocket {}",
            paths.socket().display()
        ),
    )
}

fn finish(code: u8, text: &str) -> Done {
    print(&format!("{text}\n"))?;
    Ok(code)
}

struct SettingsFile {
    path: String,
    settings: EnvFile,
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns the environment file of a running daemon, from its command line. A relative path is
/// unknown.
fn file_of(pid: i32) -> Option<PathBuf> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split(|byte| *byte == 0);
    let named = loop {
        match words.next()? {
            b"--env-file" => break words.next()?,
            word => {
                if let Some(named) = word.strip_prefix(b"--env-file=") {
                    break named;
                }
            }
        }
    };
    Some(PathBuf::from(OsStr::from_bytes(named))).filter(|path| path.is_absolute())
}

/// Reads the given environment file, or else the user's default one if it exists.
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

/// Reads an environment file.
///
/// # Errors
/// Fails if the file cannot be read or a line is invalid.
pub fn read_settings(path: &Path) -> Result<EnvFile, CliError> {
    let text = files::read_text(path, files::MOST_SETTINGS).map_err(|e| {
        CliError::error(1, format!("{}: {e}: replace it or remove it", path.display()))
    })?;
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
